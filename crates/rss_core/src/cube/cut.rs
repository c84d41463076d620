//! How a cube is divided into levels, arrays, shards and chunks.

use serde_json::{Value, json};

use super::describe::{self, CubeBand, STACK};
use crate::{
    array::{Arrangement, ArraySpec, Layout},
    error::{Error, ErrorKind, Result},
    geo::GeoBox,
    raster::{Number, Resampling},
};

/// The name of the resampling that depends on the band.
const AUTO: &str = "auto";
/// The layout's list of bands of classes.
pub(super) const CLASSES: &str = "classes";

/// The division of a cube, as stored in the group's attribute `rss:layout`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cut {
    pub(super) layout: Layout,
    pub(super) overviews: usize,
    /// The resampling of overviews; none is nearest for bands of classes, average for all others.
    pub(super) resampling: Option<Resampling>,
}

impl Cut {
    /// Returns the resampling of a band's overviews.
    pub(super) fn resampling_of(&self, band: &CubeBand) -> Resampling {
        let usual = match band.is_class {
            true => Resampling::Nearest,
            false => Resampling::Average,
        };
        self.resampling.unwrap_or(usual)
    }

    /// Returns the resampling of all overviews; none where that of bands differs.
    pub(super) fn common_resampling(&self, bands: &[CubeBand]) -> Option<Resampling> {
        let mut all = bands.iter().map(|band| self.resampling_of(band));
        let first = all.next()?;
        all.all(|other| other == first).then_some(first)
    }

    /// Returns the attribute: everything but chunk and shard shapes, which the arrays' metadata holds.
    pub(super) fn to_json(self, bands: &[CubeBand]) -> Value {
        let names: Vec<&str> = bands.iter().map(|band| band.name.as_str()).collect();
        let classes = bands.iter().filter(|band| band.is_class);
        let classes: Vec<&str> = classes.map(|band| band.name.as_str()).collect();
        // Where no overview depends on classes the attribute is that of cubes that know none.
        let is_auto = self.resampling.is_none() && self.overviews > 0 && !classes.is_empty();
        let resampling = self.resampling.unwrap_or(Resampling::Average);
        let mut attribute = json!({
            "bands": names,
            "codec": self.layout.codec.to_string(),
            "stacked": self.layout.arrangement == Arrangement::Stacked,
            "overviews": self.overviews,
            "resampling": if is_auto { AUTO } else { resampling.name() },
        });
        if is_auto {
            attribute[CLASSES] = json!(classes);
        }
        attribute
    }

    pub(super) fn parse(attribute: &Value) -> Option<Self> {
        let arrangement = match attribute.get("stacked")?.as_bool()? {
            true => Arrangement::Stacked,
            false => Arrangement::Bands,
        };
        Some(Self {
            layout: Layout::default()
                .with_codec(attribute.get("codec")?.as_str()?.parse().ok()?)
                .with_arrangement(arrangement),
            overviews: usize::try_from(attribute.get("overviews")?.as_u64()?).ok()?,
            resampling: match attribute.get("resampling")?.as_str()? {
                AUTO => None,
                named => Some(named.parse().ok()?),
            },
        })
    }
}

/// Returns the path of a level's group: a cube without overviews has its arrays in the root.
pub(super) fn level_path(level: usize, overviews: usize) -> String {
    match overviews {
        0 => String::new(),
        _ => level.to_string(),
    }
}

/// Returns the names and specs of the arrays of a level.
pub(super) fn specs(
    bands: &[CubeBand],
    cut: &Cut,
    grid: &GeoBox,
    steps: usize,
) -> Result<Vec<(String, ArraySpec)>> {
    let (steps, size) = (steps as u64, grid.size);
    let (height, width) = (u64::from(size.height), u64::from(size.width));
    let spec = |band: &CubeBand| {
        let [chunk, shard] = cut.layout.blocks(band.dtype, size.height, size.width)?;
        let spec = ArraySpec::new([steps, height, width], band.dtype, chunk.axes())
            .with_shard(shard.axes())
            .with_codec(cut.layout.codec)
            .with_fill(band.nodata.unwrap_or(Number::ZERO))
            .with_dimensions(["time", "y", "x"])
            .with_attributes(describe::band_attributes(band, grid));
        spec.check()?;
        Ok::<_, Error>(spec)
    };
    match (cut.layout.arrangement, bands) {
        (Arrangement::Stacked, [first, rest @ ..]) => {
            if bands.iter().any(|band| band.name == STACK) {
                let message = format!(
                    "band `{STACK}` has the name of the array that holds all bands: choose an array for each"
                );
                return Err(Error::new(ErrorKind::InvalidInput, message));
            }
            for band in rest {
                let same = band.dtype == first.dtype
                    && band.nodata == first.nodata
                    && (band.scale, band.offset) == (first.scale, first.offset);
                if !same {
                    return Err(Error::new(
                        ErrorKind::InvalidInput,
                        format!(
                            "bands {} and {} differ in dtype, nodata or scale: they cannot share an array",
                            first.name, band.name
                        ),
                    ));
                }
            }
            let mut spec = spec(first)?;
            spec.shape.insert(1, bands.len() as u64);
            spec.chunk.insert(1, 1);
            if let Some(shard) = &mut spec.shard {
                shard.insert(1, 1);
            }
            spec.dimensions.insert(1, "band".to_owned());
            Ok(vec![(STACK.to_owned(), spec)])
        }
        _ => bands
            .iter()
            .map(|band| Ok((band.name.clone(), spec(band)?)))
            .collect(),
    }
}
