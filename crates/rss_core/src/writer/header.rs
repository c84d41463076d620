//! The header, which precedes the tiles: a directory for each level, then the offsets of all tiles.
//!
//! Its length is known before any tile: the tables have one entry for each tile, and the metadata is padded
//! for values that are not known yet.

use std::fmt::Write;

use super::{
    options::Compression,
    plan::{CogPlan, Filter},
    statistics::BandStatistics,
};
use crate::{
    error::Result,
    raster::tiff::{Form, LONG, LONG8, Tags, nodata, number, sample_format},
};

/// Characters of the longest number in the metadata: an f64 with sign and exponent.
const NUMBER: usize = 24;

/// Offsets and byte counts of the tiles of one level; 0 and 0 for a sparse tile.
#[derive(Clone, Debug, Default)]
pub(super) struct TileOffsets {
    pub(super) offsets: Vec<u64>,
    pub(super) lengths: Vec<u32>,
}

impl TileOffsets {
    pub(super) fn new(tiles: usize) -> Self {
        Self {
            offsets: vec![0; tiles],
            lengths: vec![0; tiles],
        }
    }

    pub(super) fn set(&mut self, slot: usize, offset: u64, length: u32) {
        if let (Some(o), Some(l)) = (self.offsets.get_mut(slot), self.lengths.get_mut(slot)) {
            (*o, *l) = (offset, length);
        }
    }

    fn offsets(&self, form: Form) -> (u16, Vec<u8>) {
        let offsets = self.offsets.iter();
        // The plan has chosen the form by a bound of the file's size, so no offset is past it.
        let short = |&offset: &u64| u32::try_from(offset).unwrap_or(u32::MAX).to_le_bytes();
        match form {
            Form::Classic => (LONG, offsets.flat_map(short).collect()),
            Form::Big => (LONG8, offsets.flat_map(|one| one.to_le_bytes()).collect()),
        }
    }

    fn lengths(&self) -> Vec<u8> {
        let bytes = self.lengths.iter().flat_map(|one| one.to_le_bytes());
        bytes.collect()
    }
}

/// The statistics in the metadata.
pub(super) enum HeaderFacts<'a> {
    /// Not known yet: placeholders of the largest size.
    Later,
    /// The statistics of each band; none if no sample is valid.
    Now(&'a [Option<BandStatistics>]),
}

/// Returns the bytes before the tiles.
pub(super) fn header(
    plan: &CogPlan,
    filter: Filter,
    tables: &[TileOffsets],
    facts: &HeaderFacts<'_>,
) -> Result<Vec<u8>> {
    let form = plan.form;
    let metadata = metadata(plan, facts);
    // Run twice: first with the tables at offset 0, to learn the size of the directories before them.
    let directories = |start: u64| -> Result<(Vec<Tags>, Vec<u8>)> {
        let (mut all, mut apart) = (Vec::with_capacity(tables.len()), Vec::new());
        for (level, table) in tables.iter().enumerate() {
            let mut tags = tags(plan, filter, level, &metadata)?;
            let (kind, offsets) = table.offsets(form);
            for (id, kind, bytes) in [(324, kind, offsets), (325, LONG, table.lengths())] {
                let at = start + apart.len() as u64;
                if tags.table(form, id, kind, table.offsets.len(), &bytes, at) {
                    apart.extend(bytes);
                }
            }
            all.push(tags);
        }
        Ok((all, apart))
    };
    let (all, _) = directories(0)?;
    let lengths: usize = all.iter().map(|tags| tags.length(form)).sum();
    let start = (form.start().len() + lengths).next_multiple_of(8);
    let (all, apart) = directories(start as u64)?;

    let mut bytes = form.start().to_vec();
    for (level, tags) in all.iter().enumerate() {
        let next = match level + 1 < all.len() {
            true => bytes.len() + tags.length(form),
            false => 0,
        };
        tags.write(form, &mut bytes, next as u64)?;
    }
    bytes.resize(start, 0);
    bytes.extend(apart);
    Ok(bytes)
}

/// Returns the entries of one directory, without the tables.
fn tags(plan: &CogPlan, filter: Filter, level: usize, metadata: &str) -> Result<Tags> {
    let size = plan
        .levels
        .get(level)
        .map_or(plan.grid.size, |level| level.size);
    let (format, bits) = sample_format(plan.dtype);
    let bands = plan.bands;
    let mut tags = Tags::default();
    // An overview is a "reduced-resolution image".
    tags.long(254, [usize::from(level > 0)])?;
    tags.long(256, [size.width as usize])?;
    tags.long(257, [size.height as usize])?;
    tags.short(258, vec![bits; bands])?;
    let compression = match plan.compression {
        Compression::None => 1,
        Compression::Lzw => 5,
        Compression::Deflate(_) => 8,
        Compression::Zstd(_) => 50_000,
    };
    tags.short(259, [compression])?;
    // MINISBLACK.
    tags.short(262, [1])?;
    tags.short(277, [bands])?;
    tags.short(284, [if bands == 1 { 1 } else { 2 }])?;
    // Written also if it is 1 (none): the length of the header must not depend on the chosen predictor.
    if plan.compression != Compression::None {
        tags.short(317, [filter.tag()])?;
    }
    tags.long(322, [plan.tile])?;
    tags.long(323, [plan.tile])?;
    if bands > 1 {
        tags.short(338, vec![0; bands - 1])?;
    }
    tags.short(339, vec![format; bands])?;
    if level == 0 {
        if let Some(software) = &plan.software {
            tags.ascii(305, software);
        }
        tags.georeference(&plan.grid)?;
        if !metadata.is_empty() {
            tags.ascii(42112, metadata);
        }
    }
    if let Some(value) = plan.nodata {
        tags.ascii(42113, &nodata(plan.dtype, value));
    }
    Ok(tags)
}

/// Returns [GDAL's metadata](https://gdal.org/en/stable/drivers/raster/gtiff.html#metadata), of the same length
/// with and without statistics; empty if there are no items.
fn metadata(plan: &CogPlan, facts: &HeaderFacts<'_>) -> String {
    let mut text = String::new();
    let mut padding = 0;
    for (name, value) in &plan.metadata {
        let value = escaped(&escaped(value));
        let name = escaped(name);
        let _ = writeln!(text, "  <Item name=\"{name}\">{value}</Item>");
    }
    let mut item = |name: &str, band: usize, role: &str, value: &str| {
        let role = match role {
            "" => String::new(),
            role => format!(" role=\"{role}\""),
        };
        // Escaped twice, because GDAL unescapes twice.
        let value = escaped(&escaped(value));
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "  <Item name=\"{name}\" sample=\"{band}\"{role}>{value}</Item>"
        );
    };
    for band in 0..plan.bands {
        if let Some(note) = plan.notes.get(band) {
            let numbers = [note.scale.map(number), note.offset.map(number)];
            let [scale, offset] = &numbers;
            for (name, role, value) in [
                ("DESCRIPTION", "description", &note.name),
                ("SCALE", "scale", scale),
                ("OFFSET", "offset", offset),
                ("UNITTYPE", "unittype", &note.unit),
            ] {
                if let Some(value) = value {
                    item(name, band, role, value);
                }
            }
        }
        if !plan.statistics {
            continue;
        }
        // In the order in which GDAL lists them.
        let values = |found: &BandStatistics| {
            [
                ("STATISTICS_MAXIMUM", found.max),
                ("STATISTICS_MEAN", found.mean),
                ("STATISTICS_MINIMUM", found.min),
                ("STATISTICS_STDDEV", found.stddev),
                ("STATISTICS_VALID_PERCENT", found.valid_percent()),
            ]
        };
        let nothing = BandStatistics {
            min: 0.0,
            max: 0.0,
            mean: 0.0,
            stddev: 0.0,
            valid: 0,
            samples: 0,
        };
        match facts {
            HeaderFacts::Later => {
                for (name, _) in values(&nothing) {
                    item(name, band, "", &"0".repeat(NUMBER));
                }
            }
            HeaderFacts::Now(found) => {
                let found = found.get(band).copied().flatten();
                let is_something = found.is_some();
                for (name, value) in values(&found.unwrap_or(nothing)) {
                    if is_something || name.ends_with("PERCENT") {
                        let value = number(value);
                        padding += NUMBER.saturating_sub(value.len());
                        item(name, band, "", &value);
                    } else {
                        let empty = "  <Item name=\"\" sample=\"\"></Item>\n".len();
                        padding += empty + name.len() + band.to_string().len() + NUMBER;
                    }
                }
            }
        }
    }
    if text.is_empty() {
        return text;
    }
    // Spaces between elements are ignored.
    let padding = " ".repeat(padding);
    format!("<GDALMetadata>\n{text}{padding}</GDALMetadata>\n")
}

fn escaped(text: &str) -> String {
    let pairs = [
        ("&", "&amp;"),
        ("<", "&lt;"),
        (">", "&gt;"),
        ("\"", "&quot;"),
    ];
    pairs
        .iter()
        .fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        geo::{Crs, GeoBox, GeoTransform, Size},
        raster::DataType,
        writer::{Band, CogOptions},
    };

    fn plan(width: u32, bands: usize) -> CogPlan {
        let grid = GeoBox {
            size: Size { width, height: 600 },
            crs: Some(Crs::Epsg(32_756)),
            transform: Some(GeoTransform([5e5, 10.0, 0.0, 7e6, 0.0, -10.0])),
        };
        let band = Band::named("a < b & \"c\"")
            .with_scale(1e-4, -0.1)
            .with_unit("m");
        let options = CogOptions::new().with_nodata(-999.0).with_bands([band]);
        CogPlan::new(grid, DataType::I16, bands, &options).unwrap()
    }

    #[test]
    fn the_header_is_as_long_as_it_was_said_to_be() {
        for (width, bands, form) in [
            (512, 1, Form::Classic),
            (512, 1, Form::Big),
            (3000, 1, Form::Classic),
            (3000, 12, Form::Big),
            (3000, 3, Form::Classic),
        ] {
            let mut plan = plan(width, bands);
            plan.form = form;
            let mut tables: Vec<TileOffsets> = plan
                .levels
                .iter()
                .map(|level| TileOffsets::new(level.tiles() * bands))
                .collect();
            let filter = Filter::Horizontal;
            let said = header(&plan, filter, &tables, &HeaderFacts::Later).unwrap();
            for table in &mut tables {
                table.offsets.fill(u64::from(u32::MAX) - 1);
                table.lengths.fill(u32::MAX);
            }
            let some = BandStatistics {
                min: -1.234_567_890_123_456_7e-300,
                max: f64::MAX,
                mean: 1.0 / 3.0,
                stddev: 0.0,
                valid: 1,
                samples: 3,
            };
            let found: Vec<_> = (0..bands)
                .map(|band| (band % 2 == 0).then_some(some))
                .collect();
            let known = header(&plan, filter, &tables, &HeaderFacts::Now(&found)).unwrap();
            assert_eq!(known.len(), said.len(), "{width} {bands} {form:?}");
            let text = String::from_utf8_lossy(&known);
            assert!(text.contains(
                "role=\"description\">a &amp;lt; b &amp;amp; &amp;quot;c&amp;quot;</Item>"
            ));
            assert!(
                text.contains("name=\"STATISTICS_MAXIMUM\" sample=\"0\">1.7976931348623157e308<")
            );
            assert_eq!(
                text.contains("name=\"STATISTICS_VALID_PERCENT\" sample=\"1\">0<"),
                bands > 1
            );
        }
    }
}
