//! The properties of the file in the first directory: CRS, transform, nodata, colours, metadata. No IO.
//!
//! See [GeoTIFF](https://docs.ogc.org/is/19-008r4/19-008r4.html) and
//! [GDAL's tags](https://gdal.org/en/stable/drivers/raster/gtiff.html#metadata).

use super::{
    directory::{Entry, Reader, Stop},
    level::{Compression, Level, Stored},
};
use crate::{
    geo::{Crs, GeoTransform},
    raster::{DataType, Number},
    reader::{
        BandProfile, ColorInterp, Profile,
        profile::{nodata_of, note_of_gcps, note_of_heights},
    },
};

/// Colours of a palette: one for each value of 16 bits.
const MOST_COLORS: usize = 1 << 16;

/// Characters of a nodata value that is quoted.
const MOST_NODATA: usize = 40;

/// The properties of the file.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    pub(super) nodata: Option<Number>,
    pub(super) crs: Option<Crs>,
    pub(super) transform: Option<GeoTransform>,
    pub(super) is_point: bool,
    pub(super) bands: Vec<BandProfile>,
    /// Red, green and blue of each value.
    pub(super) palette: Option<Vec<[u8; 3]>>,
    /// GDAL's metadata of the dataset.
    pub(super) metadata: Vec<(String, String)>,
    /// Ground control points, where there is no transform.
    pub(super) gcps: usize,
    /// What is odd of them.
    pub(super) notes: Vec<String>,
}

/// How the note on a CRS begins that a file states and that is not known here.
const UNKNOWN_CRS: &str = "it states a CRS that the COG reader does not know";

/// Returns the note of a file that states a CRS which is not known here, so that its profile has none.
pub(super) fn unknown_crs(profile: &Profile) -> Option<&str> {
    let mut notes = profile.notes.iter();
    let note = notes.find(|note| note.starts_with(UNKNOWN_CRS))?;
    profile.crs.is_none().then_some(note.as_str())
}

impl Reader<'_> {
    pub(super) fn facts(&self, entries: &[Entry], level: &Level) -> Result<Facts, Stop> {
        let keys = self.keys(entries)?;
        let is_point = keys.code(1025) == Some(2);
        let palette = self.palette(entries, level)?;
        let extra = self.numbers(entries, 338)?;
        let mut bands: Vec<BandProfile> = colors(level, &extra, palette.is_some())
            .into_iter()
            .map(|color| BandProfile {
                color,
                ..BandProfile::default()
            })
            .collect();
        let mut metadata = Vec::new();
        let xml = self.text(entries, 42112)?.unwrap_or_default();
        for item in items(&xml) {
            item.tell(&mut bands, &mut metadata);
        }
        let mut notes = Vec::new();
        let stated = self.text(entries, 42113)?.unwrap_or_default();
        let nodata = parse_number(&stated);
        if nodata.is_none() && !stated.trim().is_empty() {
            let stated: String = stated.chars().take(MOST_NODATA).collect();
            notes.push(format!(
                "its nodata value {stated:?} is no number, so it is none"
            ));
        }
        let nodata = nodata_of(level.dtype, nodata, &mut notes);
        let transform = self.transform(entries, is_point)?;
        let gcps = match transform {
            Some(_) => 0,
            None => self.gcps(entries)?,
        };
        notes.extend(note_of_gcps(gcps));
        // The CRS of control points is none of the pixels.
        let crs = keys.crs().filter(|_| gcps == 0);
        if crs.is_none() && gcps == 0 {
            notes.extend(keys.unknown().map(|what| format!("{UNKNOWN_CRS}: {what}")));
        }
        if crs.is_some() {
            notes.extend(keys.heights().map(|what| note_of_heights(Some(&what))));
        }
        Ok(Facts {
            nodata,
            crs,
            transform,
            is_point,
            bands,
            palette,
            metadata,
            gcps,
            notes,
        })
    }

    /// Reads the palette (ColorMap, tag 320): all reds, then all greens, then all blues.
    fn palette(&self, entries: &[Entry], level: &Level) -> Result<Option<Vec<[u8; 3]>>, Stop> {
        let values = self.numbers(entries, 320)?;
        if !values.is_empty() {
            let count = (values.len() / 3).clamp(1, MOST_COLORS);
            let mut planes = values.chunks_exact(count);
            let mut plane = || planes.next().unwrap_or_default();
            let (reds, greens, blues) = (plane(), plane(), plane());
            // Some writers store values of 8 bits in the 16 bits of each colour.
            let narrow = values.iter().all(|&value| value < 256);
            let byte = |value: u64| {
                let value = if narrow { value } else { value >> 8 };
                u8::try_from(value).unwrap_or(u8::MAX)
            };
            let colors = reds.iter().zip(greens).zip(blues);
            return Ok(Some(
                colors
                    .map(|((&r, &g), &b)| [byte(r), byte(g), byte(b)])
                    .collect(),
            ));
        }
        Ok(greys(level))
    }

    /// Returns the number of tie points of a file without a scale and a matrix: six numbers each, as GDAL counts them.
    fn gcps(&self, entries: &[Entry]) -> Result<usize, Stop> {
        match self.doubles(entries, 34264)?.len() {
            16.. => Ok(0),
            _ => Ok(self.doubles(entries, 33922)?.len() / 6),
        }
    }

    fn transform(&self, entries: &[Entry], is_point: bool) -> Result<Option<GeoTransform>, Stop> {
        let scale = self.doubles(entries, 33550)?;
        let tie = self.doubles(entries, 33922)?;
        let matrix = self.doubles(entries, 34264)?;
        let mut g = match (scale[..].as_ref(), tie[..].as_ref(), matrix[..].as_ref()) {
            ([sx, sy, ..], [col, row, _, x, y, _], _) if *sx != 0.0 && *sy != 0.0 => {
                let sy = -sy.abs();
                [x - col * sx, *sx, 0.0, y - row * sy, 0.0, sy]
            }
            (_, _, [a, b, _, c, d, e, _, f, ..]) => [*c, *a, *b, *f, *d, *e],
            _ => return Ok(None),
        };
        if is_point {
            // The tie point is of a pixel's centre; a geotransform is of its corner.
            g[0] -= 0.5 * (g[1] + g[2]);
            g[3] -= 0.5 * (g[4] + g[5]);
        }
        Ok(g.iter()
            .all(|value| value.is_finite())
            .then_some(GeoTransform(g)))
    }
}

/// Reads the number at the start of a text, as C's `strtod` does; NaN and infinity by name.
fn parse_number(text: &str) -> Option<Number> {
    let text = text.trim();
    // As older C libraries of Microsoft print them.
    let odd = text.trim_start_matches(['-', '+']).to_ascii_uppercase();
    match odd.as_str() {
        "1.#INF" if text.starts_with('-') => return Some(f64::NEG_INFINITY.into()),
        "1.#INF" => return Some(f64::INFINITY.into()),
        "1.#QNAN" | "1.#SNAN" | "1.#IND" => return Some(Number::NAN),
        _ => {}
    }
    if let Ok(number) = text.parse() {
        return Some(number);
    }
    let end = text
        .find(|c: char| !(c.is_ascii_digit() || matches!(c, '+' | '-' | '.' | 'e' | 'E')))
        .unwrap_or(text.len());
    (1..=end)
        .rev()
        .find_map(|end| text.get(..end)?.parse().ok())
}

/// Returns the palette that GDAL gives samples without one: those of 1 bit, and those whose 0 is white
/// (MINISWHITE).
fn greys(level: &Level) -> Option<Vec<[u8; 3]>> {
    let bits = match level.stored {
        Stored::Bits(bits @ 1..=16) => bits,
        Stored::Whole if level.dtype == DataType::U8 => 8,
        Stored::Whole if level.dtype == DataType::U16 => 16,
        _ => return None,
    };
    let most = (1_u32 << bits) - 1;
    let grey = |value: u32| u8::try_from(255 * value / most).unwrap_or(u8::MAX);
    match level.photometric {
        _ if level.bands != 1 => None,
        0 => Some((0..=most).map(|value| [grey(most - value); 3]).collect()),
        1 if bits == 1 => Some(vec![[0; 3], [255; 3]]),
        _ => None,
    }
}

/// Returns the colour interpretation of the bands, as GDAL does.
fn colors(level: &Level, extra: &[u64], has_palette: bool) -> Vec<ColorInterp> {
    use ColorInterp::{
        Alpha, Black, Blue, Cyan, Gray, Green, Magenta, Palette, Red, Undefined, Yellow,
    };
    let is_jpeg = level.compression == Compression::Jpeg;
    let named: &[ColorInterp] = match level.photometric {
        2 => &[Red, Green, Blue],
        6 if is_jpeg => &[Red, Green, Blue],
        5 => &[Cyan, Magenta, Yellow, Black],
        _ if has_palette => &[Palette],
        1 => &[Gray],
        _ => &[Undefined],
    };
    // Fewer bands than the photometric interpretation has colours: GDAL reports gray.
    let named = if named.len() > level.bands {
        &[Gray]
    } else {
        named
    };
    let others = level.bands - named.len();
    let first_extra = extra.len().saturating_sub(others);
    let extra = extra.iter().skip(first_extra);
    let extra = extra.map(|kind| {
        if matches!(kind, 1 | 2) {
            Alpha
        } else {
            Undefined
        }
    });
    let all = named
        .iter()
        .copied()
        .chain(extra)
        .chain(std::iter::repeat(Undefined));
    all.take(level.bands).collect()
}

/// One `Item` of GDAL's metadata.
#[derive(Debug, PartialEq)]
struct Item<'a> {
    name: String,
    /// Counted from 0; none is the dataset.
    band: Option<usize>,
    role: Option<&'a str>,
    domain: Option<&'a str>,
    value: String,
}

impl Item<'_> {
    /// Adds this item to its band or to the dataset's metadata.
    fn tell(self, bands: &mut [BandProfile], metadata: &mut Vec<(String, String)>) {
        let number = || self.value.trim().parse().ok();
        let band = match self.band {
            None if self.role.is_none() => {
                if self.domain.is_none() {
                    metadata.push((self.name, self.value));
                }
                return;
            }
            band => bands.get_mut(band.unwrap_or(0)),
        };
        let Some(band) = band else { return };
        match self.role {
            Some("scale") => band.scale = number(),
            Some("offset") => band.offset = number(),
            Some("unittype") => band.unit = Some(self.value),
            Some("description") => band.description = Some(self.value),
            Some("colorinterp") => {
                if let Some(color) = ColorInterp::of_name(&self.value) {
                    band.color = color;
                }
            }
            _ => {}
        }
    }
}

/// Lists the items of GDAL's metadata (tag 42112), XML without nested elements.
fn items(xml: &str) -> impl Iterator<Item = Item<'_>> {
    xml.split("<Item ").skip(1).filter_map(|item| {
        let (attributes, rest) = item.split_once('>')?;
        let attribute = |name: &str| {
            let (_, after) = attributes.split_once(&format!("{name}=\""))?;
            after.split('"').next()
        };
        Some(Item {
            name: unescaped(attribute("name")?),
            band: attribute("sample").and_then(|sample| sample.parse().ok()),
            role: attribute("role"),
            domain: attribute("domain"),
            // GDAL escapes values twice.
            value: unescaped(&unescaped(rest.split('<').next()?)),
        })
    })
}

/// Replaces the five predefined entities of XML. `&amp;` is last: its result must not be replaced again.
fn unescaped(text: &str) -> String {
    let pairs = [
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&quot;", "\""),
        ("&apos;", "'"),
        ("&amp;", "&"),
    ];
    pairs
        .iter()
        .fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodata_is_read_in_every_spelling() {
        assert_eq!(parse_number("-999 "), Some((-999.0).into()));
        assert_eq!(parse_number("-3.4e+38abc"), Some((-3.4e38).into()));
        let odd = "9007199254740993";
        assert_eq!(parse_number(odd).unwrap().to_string(), odd);
        assert!(parse_number("nan").unwrap().is_nan());
        assert_eq!(parse_number("-inf"), Some(f64::NEG_INFINITY.into()));
        assert_eq!(parse_number("-1.#INF"), Some(f64::NEG_INFINITY.into()));
        assert!(parse_number("-1.#IND").unwrap().is_nan());
        assert_eq!(parse_number("none"), None);
    }

    #[test]
    fn metadata_is_told_by_band() {
        let xml = "<GDALMetadata><Item name=\"SCALE\" sample=\"1\" role=\"scale\">2</Item>\
                   <Item name=\"SCALE\" sample=\"0\" role=\"scale\">0.0001</Item>\
                   <Item name=\"KIND\">a &amp; b</Item></GDALMetadata>";
        let mut bands = vec![BandProfile::default(); 2];
        let mut metadata = Vec::new();
        items(xml).for_each(|item| item.tell(&mut bands, &mut metadata));
        let scales: Vec<_> = bands.iter().map(|band| band.scale).collect();
        assert_eq!(scales, [Some(0.0001), Some(2.0)]);
        assert_eq!(metadata, [("KIND".to_owned(), "a & b".to_owned())]);
    }

    /// As GDAL 3.6 writes them.
    #[test]
    fn values_that_gdal_has_escaped_are_told_as_they_were() {
        let xml = "<GDALMetadata>\n  <Item name=\"A\">x&amp;lt;y &amp;amp; &amp;quot;z&amp;quot;</Item>\n\
                   </GDALMetadata>";
        let values: Vec<_> = items(xml).map(|item| item.value).collect();
        assert_eq!(values, ["x<y & \"z\""]);
    }
}
