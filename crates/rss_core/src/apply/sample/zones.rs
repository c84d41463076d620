//! Polygons (zones) of zonal statistics.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    mem::size_of_val,
};

use ::geo::{CoordsIter, MultiPolygon};
use geojson::GeometryValue;

use super::{
    cells::{Cell, Needs, Tiles},
    cover::{Cover, Coverage},
    features::{self, GeoJsonOptions, Named, named},
    shapes::{Samples, ShapeRows, Shapes},
    tally::{Kept, Statistics, Tally, Weighted},
};
use crate::{
    apply::footprint::Area,
    error::{Error, ErrorKind, Result},
    geo::{Bbox, Crs, GeoBox, Ring, Size, WorldToPixel, antimeridian, degrees_round, is_degrees},
};

/// The fewest rows of pixels of a read: strips of one row would cost a read each.
const LEAST_ROWS: u32 = 64;

/// Polygons, in the order of their rows.
#[derive(Clone, Debug)]
pub struct Zones {
    named: Vec<Named>,
    polygons: Vec<MultiPolygon<f64>>,
    crs: Crs,
    coverage: Coverage,
}

impl Zones {
    /// Reads the Polygons and MultiPolygons of a GeoJSON FeatureCollection, Feature or geometry. Their sides are
    /// straight in their own CRS; in degrees a side of 180 degrees or more crosses the antimeridian.
    ///
    /// ```
    /// use rss_core::apply::sample::{GeoJsonOptions, Zones};
    ///
    /// let field = r#"{"type": "Feature", "id": "north", "properties": {"crop": "wheat"}, "geometry":
    ///     {"type": "Polygon", "coordinates": [[[153.01, -25.33], [153.02, -25.33], [153.02, -25.34], [153.01, -25.33]]]}}"#;
    /// let zones = Zones::from_geojson(field, &GeoJsonOptions::new().with_name("crop"))?;
    /// assert_eq!(zones.named()[0].id, "north");
    /// assert_eq!(zones.named()[0].name.as_deref(), Some("wheat"));
    /// # Ok::<_, rss_core::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] if the text is not GeoJSON, names a CRS without an EPSG code, or a feature has
    /// another geometry, a ring of less than three points, invalid coordinates, or the id of another feature.
    pub fn from_geojson(text: &str, options: &GeoJsonOptions) -> Result<Self> {
        let (read, crs) = features::read(text, options)?;
        Self::of_features(read, crs)
    }

    /// Creates zones from polygons, multipolygons and rectangles of [`geo_types`](crate::geo_types) in a CRS; in degrees
    /// their coordinates are longitude, then latitude. Their ids are their indices, from 0.
    ///
    /// ```
    /// use rss_core::{Crs, apply::sample::Zones, geo_types::Rect};
    ///
    /// let fields = [Rect::new((153.01, -25.34), (153.02, -25.33))];
    /// let zones = Zones::new(fields, Crs::Epsg(4326))?;
    /// assert_eq!(zones.named()[0].id, "0");
    /// # Ok::<_, rss_core::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As of [`Zones::from_geojson`], also if there is none.
    pub fn new(
        geometries: impl IntoIterator<Item = impl Into<::geo::Geometry<f64>>>,
        crs: Crs,
    ) -> Result<Self> {
        let mut read = Vec::new();
        for (number, geometry) in geometries.into_iter().enumerate() {
            let geometry: ::geo::Geometry<f64> = geometry.into();
            read.push(features::Read {
                id: number.to_string(),
                name: None,
                geometry: geojson::Geometry::from(&geometry).value,
            });
        }
        match read.is_empty() {
            true => Err(Error::new(ErrorKind::InvalidInput, "no zones")),
            false => Self::of_features(read, crs),
        }
    }

    fn of_features(read: Vec<features::Read>, crs: Crs) -> Result<Self> {
        let (mut all, mut polygons) = (Vec::new(), Vec::new());
        for one in read {
            let parts = match &one.geometry {
                GeometryValue::Polygon { coordinates } => std::slice::from_ref(coordinates),
                GeometryValue::MultiPolygon { coordinates } => coordinates.as_slice(),
                other => {
                    let what = format!(
                        "is a {}, expected a Polygon or MultiPolygon",
                        other.type_name()
                    );
                    return Err(named(&one.id, &what));
                }
            };
            let parts = parts
                .iter()
                .map(|rings| features::polygon(&one.id, &crs, rings));
            let parts = MultiPolygon::new(parts.collect::<Result<_>>()?);
            if parts.0.is_empty() {
                return Err(named(&one.id, "has no polygon"));
            }
            polygons.push(match is_degrees(&crs) {
                true => antimeridian::unwrap(&parts),
                false => parts,
            });
            all.push(Named {
                id: one.id,
                name: one.name,
                place: None,
            });
        }
        Ok(Self {
            named: all,
            polygons,
            crs,
            coverage: Coverage::default(),
        })
    }

    /// Sets which pixels belong to a polygon.
    #[must_use]
    pub fn with_coverage(mut self, coverage: Coverage) -> Self {
        self.coverage = coverage;
        self
    }

    pub(super) fn coverage(&self) -> Coverage {
        self.coverage
    }

    /// Returns the ids and names of the zones.
    pub fn named(&self) -> &[Named] {
        &self.named
    }

    /// Returns the CRS of the zones.
    pub fn crs(&self) -> &Crs {
        &self.crs
    }

    /// Returns the bounding box of all zones in degrees: exactly, if that is their CRS.
    ///
    /// # Errors
    ///
    /// As of [`bbox`](Self::bbox).
    pub fn extent(&self) -> Result<Bbox> {
        if !is_degrees(&self.crs) {
            return self.bbox();
        }
        let boxes = self.polygons.iter().flatten().filter_map(|polygon| {
            let edges = polygon
                .coords_iter()
                .map(|point| [point.x, point.y, point.x, point.y]);
            let [west, south, east, north] = edges.reduce(|a, b| {
                [
                    a[0].min(b[0]),
                    a[1].min(b[1]),
                    a[2].max(b[2]),
                    a[3].max(b[3]),
                ]
            })?;
            let on_globe = |lon: f64| match (-180.0..=180.0).contains(&lon) {
                true => lon,
                false => (lon + 180.0).rem_euclid(360.0) - 180.0,
            };
            Some(match east - west < 360.0 {
                true => Bbox::new(on_globe(west), south, on_globe(east), north),
                false => Bbox::new(-180.0, south, 180.0, north),
            })
        });
        let boxes = boxes.collect::<Result<Vec<_>>>()?;
        Bbox::around(&boxes).ok_or_else(|| {
            let message = "the zones have no polygon with points";
            Error::new(ErrorKind::InvalidInput, message)
        })
    }

    /// Returns the pixels of a grid that belong to any zone, if there are any.
    pub(in crate::apply) fn cover(&self, grid: &GeoBox) -> Result<Option<Cover>> {
        let to_pixels = WorldToPixel::new(&self.crs, grid)?;
        let mut placed = Vec::new();
        for polygon in self.polygons.iter().flatten() {
            placed.extend(to_pixels.polygons(polygon)?);
        }
        Ok(Cover::of(&placed, grid.size, self.coverage))
    }

    /// Returns a number that differs for other polygons, CRSs and rules (FNV-1a of all coordinates).
    pub(in crate::apply) fn fingerprint(&self) -> String {
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        let mut add = |bytes: &[u8]| {
            for byte in bytes {
                hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
            }
        };
        add(self.crs.to_string().as_bytes());
        add(format!("{:?}", self.coverage).as_bytes());
        for polygon in self.polygons.iter().flatten() {
            for ring in std::iter::once(polygon.exterior()).chain(polygon.interiors()) {
                add(&(ring.0.len() as u64).to_le_bytes());
                for point in ring.coords() {
                    add(&point.x.to_le_bytes());
                    add(&point.y.to_le_bytes());
                }
            }
        }
        format!("{hash:016x}")
    }

    /// Returns the bounding box of all zones in degrees, slightly enlarged, for a search.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`] naming a CRS that cannot be transformed to degrees; [`ErrorKind::InvalidInput`]
    /// if a corner of a zone is outside of its domain.
    pub fn bbox(&self) -> Result<Bbox> {
        let corners = |polygon: &::geo::Polygon<f64>| {
            let corners: Vec<_> = polygon.coords_iter().collect();
            corners.into_iter().map(|point| [point.x, point.y])
        };
        let polygons = self.polygons.iter().flat_map(|polygons| &polygons.0);
        let bbox = degrees_round(&self.crs, polygons.map(corners))?;
        bbox.ok_or_else(|| {
            let message = format!("a zone extends beyond the domain of {}", self.crs);
            Error::new(ErrorKind::InvalidInput, message)
        })
    }
}

/// Zones, and the statistics to compute.
#[derive(Debug)]
pub(super) struct Counted {
    pub(super) zones: Zones,
    pub(super) statistics: Statistics,
}

impl Shapes for Counted {
    type Layout = Vec<Placed>;
    type Part = Vec<(u32, Tally)>;
    type Whole = BTreeMap<u32, Tally>;

    fn crs(&self) -> &Crs {
        &self.zones.crs
    }

    fn area(&self) -> Area {
        Area::around(self.zones.bbox().ok(), 0.0)
    }

    fn lay_out(
        &self,
        world_to_pixel: &WorldToPixel,
        tiles: Tiles,
    ) -> Result<(Self::Layout, Vec<Cell>)> {
        let mut needs = Needs::of(tiles.with_rows(LEAST_ROWS));
        let mut layout = Vec::with_capacity(self.zones.polygons.len());
        let zones = self.zones.named.iter().zip(&self.zones.polygons);
        for ((named, polygons), number) in zones.zip(0_u32..) {
            let mut projected = Vec::new();
            for polygon in polygons {
                let found = world_to_pixel.polygons(polygon).map_err(|err| {
                    let id = named.id.escape_debug();
                    Error::new(err.kind(), format!("zone {id}: {}", err.message()))
                })?;
                projected.extend(found);
            }
            let placed = Placed::of(&projected, tiles.size, self.zones.coverage);
            if let Placed::Covering(cover) = &placed {
                for (row, spans) in cover.rows() {
                    for span in spans {
                        needs.add_row(row, span.start, span.end, number);
                    }
                }
            }
            layout.push(placed);
        }
        Ok((layout, needs.cells()))
    }

    fn bytes(&self, layout: &Self::Layout, sample_bytes: usize) -> u64 {
        // Equal samples are stored once, so their number is bounded by the values of the dtype.
        let different = match sample_bytes {
            1 => 1 << 8,
            2 => 1 << 16,
            _ => u64::MAX,
        };
        let kept = |cover: &Cover| match self.statistics.keeps_samples() {
            // While lists are merged, the old and the new ones exist.
            true => 4 * cover.pixels().min(different) * size_of::<Kept>() as u64,
            false => 0,
        };
        let covers = layout.iter().filter_map(Placed::cover);
        let each = covers.map(|cover| cover.bytes() + kept(cover) + self.statistics.bytes());
        size_of_val(layout.as_slice()) as u64 + each.sum::<u64>()
    }

    fn bytes_per_pixel(&self) -> u64 {
        match self.statistics.keeps_samples() {
            // The sample itself, and its copy in a list that grows.
            true => 8 + 2 * size_of::<Kept>() as u64,
            false => 16,
        }
    }

    fn take(&self, layout: &Self::Layout, cell: &Cell, samples: &Samples) -> Self::Part {
        let window = &cell.window;
        let members = cell.members.iter();
        let found = members.filter_map(|&number| {
            let cover = layout.get(number as usize)?.cover()?;
            let rows = window.row..window.row.saturating_add(window.height);
            let pixels = rows.flat_map(|row| {
                let spans = cover.row_in(row, window);
                spans.flat_map(move |(span, fraction)| {
                    let samples =
                        (span.start..span.end).filter_map(move |col| samples.at(col, row));
                    samples.map(move |(value, is_out)| Weighted {
                        value,
                        is_out,
                        weight: fraction,
                    })
                })
            });
            Some((number, Tally::of(&self.statistics, pixels)))
        });
        found.collect()
    }

    fn add(&self, whole: &mut Self::Whole, part: Self::Part) {
        for (number, tally) in part {
            match whole.entry(number) {
                Entry::Vacant(entry) => {
                    entry.insert(tally);
                }
                Entry::Occupied(mut entry) => entry.get_mut().add(tally),
            }
        }
    }

    fn rows(&self, layout: &Self::Layout, mut whole: Self::Whole) -> ShapeRows {
        let mut rows = ShapeRows::default();
        for (placed, number) in layout.iter().zip(0_u32..) {
            if matches!(placed, Placed::Off) {
                continue;
            }
            let tally = whole.remove(&number);
            let tally = tally.unwrap_or_else(|| Tally::of(&self.statistics, std::iter::empty()));
            rows.shapes.push(number);
            tally.numbers(&self.statistics, self.zones.coverage, &mut rows.numbers);
        }
        rows
    }
}

/// Where a zone lies on an image.
#[derive(Clone, Debug)]
pub(super) enum Placed {
    /// Not on it.
    Off,
    /// On it, and no pixel belongs to it: no centre lies in it.
    Between,
    Covering(Cover),
}

impl Placed {
    fn of(polygons: &[Vec<Ring>], size: Size, coverage: Coverage) -> Self {
        match Cover::of(polygons, size, coverage) {
            Some(cover) => Self::Covering(cover),
            None if Cover::of(polygons, size, Coverage::Touched).is_some() => Self::Between,
            None => Self::Off,
        }
    }

    fn cover(&self) -> Option<&Cover> {
        match self {
            Self::Covering(cover) => Some(cover),
            Self::Off | Self::Between => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use ndarray::Array2;
    use serde::Deserialize;

    use super::*;
    use crate::geo::Window;

    /// A zone in pixels, and what exactextract says of it.
    #[derive(Deserialize)]
    struct Known {
        parts: Vec<Vec<Ring>>,
        answers: Vec<Option<f64>>,
    }

    /// `tests/data/sample/make_zones.py` makes the answers.
    #[test]
    fn weighted_statistics_are_those_of_exactextract() {
        let text = include_str!("../../../tests/data/sample/zones.json");
        let known: Vec<Known> = serde_json::from_str(text).unwrap();
        let size = Size {
            width: 40,
            height: 30,
        };
        let values = Array2::from_shape_fn((30, 40), |(row, col)| match (col + 2 * row) % 17 {
            0 => f64::NAN,
            _ => ((7 * col + 13 * row + col * row) % 101) as f64,
        });
        let samples = Samples {
            window: Window::whole(size),
            values,
            left_out: None,
        };
        let statistics: Statistics = "count,sum,mean,min,max,std,median,p10,p90".parse().unwrap();
        for (number, one) in known.iter().enumerate() {
            let cover = Cover::of(&one.parts, size, Coverage::Fraction).unwrap();
            // In two cells, as tiles cut a zone.
            let mut all = Tally::of(&statistics, std::iter::empty());
            for col in [0, 20] {
                let window = Window {
                    col,
                    row: 0,
                    width: 20,
                    height: 30,
                };
                let spans = (0..30).flat_map(|row| {
                    let spans = cover.row_in(row, &window);
                    spans.map(move |(span, fraction)| (row, span, fraction))
                });
                let pixels = spans.flat_map(|(row, span, weight)| {
                    let samples = &samples;
                    (span.start..span.end).filter_map(move |col| {
                        let (value, is_out) = samples.at(col, row)?;
                        Some(Weighted {
                            value,
                            is_out,
                            weight,
                        })
                    })
                });
                all.add(Tally::of(&statistics, pixels));
            }
            let mut numbers = Vec::new();
            all.numbers(&statistics, Coverage::Fraction, &mut numbers);
            assert!((numbers[0] - numbers[1] - numbers[3]).abs() < 1e-9);
            for (got, expected) in numbers[3..].iter().zip(&one.answers) {
                let expected = expected.unwrap_or(f64::NAN);
                let off = (got - expected).abs() / expected.abs().max(1.0);
                assert!(
                    off < 1e-6 || got.is_nan() && expected.is_nan(),
                    "zone {number}: {numbers:?}, {:?}",
                    one.answers
                );
            }
        }
        assert_eq!(known.len(), 32);
    }
}
