//! Conversion of pixel positions from one grid to another.

use super::{
    Crs, GeoBox, GeoTransform,
    projection::{self, Projection},
    turn::{Turns, within},
    utm::LonLat,
};
use crate::error::{Error, ErrorKind, Result};

/// Converts pixel positions of a target grid to those of a source grid.
#[derive(Clone, Debug)]
pub struct Transformer {
    target: GeoTransform,
    source: GeoTransform,
    between: Between,
    /// A turn of longitude in pixels of the source, column and row, where positions are moved by whole turns.
    turn: Option<[f64; 2]>,
}

#[derive(Clone, Debug)]
enum Between {
    /// The coordinates are the same.
    Same,
    /// The coordinates are the same but for turns of longitude: x is moved to within half a turn of the source's middle.
    Turned { turn: f64, middle: f64 },
    /// Target coordinates are unprojected to degrees of WGS 84, and these are projected to source coordinates.
    Degrees {
        target: Box<Projection>,
        source: Box<Projection>,
        /// The longitude of the source's centre, if its map is endless: longitudes are moved to within 180 degrees of
        /// it.
        middle: Option<f64>,
    },
}

impl Transformer {
    /// Creates a transformer from pixels of `target` to those of `source`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] if a grid has no CRS, no pixels, or no invertible geotransform;
    /// [`ErrorKind::Unsupported`] naming a CRS that cannot be converted to degrees, unless the two CRSs are the same.
    pub fn new(target: &GeoBox, source: &GeoBox) -> Result<Self> {
        let (to, to_crs) = placed(target, "target")?;
        let (from, from_crs) = placed(source, "source")?;
        let mut turn = None;
        let between = if to_crs.is_same(from_crs) {
            Between::Same
        } else {
            let (to, from) = (Projection::of(to_crs)?, Projection::of(from_crs)?);
            let middle = from.is_endless().then(|| {
                let (col, row) = (source.size.width, source.size.height);
                let middle = placed(source, "source").ok().and_then(|(transform, _)| {
                    let place = transform.apply(f64::from(col) / 2.0, f64::from(row) / 2.0);
                    from.to_lon_lat(place)
                });
                middle.map_or(from.middle(), |point| point.lon)
            });
            match (&to, &from) {
                (Projection::Degrees, Projection::Degrees) => Between::Same,
                _ => {
                    turn = middle.and_then(|_| from.turn());
                    Between::Degrees {
                        target: Box::new(to),
                        source: Box::new(from),
                        middle,
                    }
                }
            }
        };
        Ok(Self {
            target: to,
            source: from,
            between,
            turn: turn.and_then(|turn| in_pixels(&from, turn)),
        })
    }

    /// Creates a transformer as [`new`](Self::new) does, for grids of which one may lie a turn of longitude from the
    /// other: pixels of the target lie on the source wherever they hold the same ground. Also returns the target as it
    /// lies on the source, which is moved if one turn is that of all its columns.
    ///
    /// # Errors
    ///
    /// Those of [`new`](Self::new).
    pub(crate) fn round_globe(target: &GeoBox, source: &GeoBox) -> Result<(Self, GeoBox)> {
        let plain = Self::new(target, source)?;
        let mut moved = target.clone();
        if !matches!(plain.between, Between::Same) || is_inside(target, source) {
            return Ok((plain, moved));
        }
        let Some(turn) = source.crs.as_ref().and_then(projection::turn_of) else {
            return Ok((plain, moved));
        };
        Ok(match Turns::of(target, source, turn) {
            Turns::One(0.0) => (plain, moved),
            Turns::One(along) => {
                if let Some(transform) = &mut moved.transform {
                    transform.0[0] += along;
                }
                (Self::new(&moved, source)?, moved)
            }
            Turns::Several { turn, middle } => {
                let turned = Self {
                    between: Between::Turned { turn, middle },
                    turn: in_pixels(&plain.source, turn),
                    ..plain
                };
                (turned, moved)
            }
        })
    }

    /// Moves positions on the source by whole turns of longitude to where they are nearest to that of `middle` on the
    /// target: the corners of a pixel across the seam of a map lie at both of its ends.
    pub(crate) fn join(&self, places: &mut [Option<[f64; 2]>], middle: [f64; 2]) {
        let (Some(turn), Some(Some(first))) = (self.turn, places.first().copied()) else {
            return;
        };
        let square = turn[0] * turn[0] + turn[1] * turn[1];
        let turns = |place: &[f64; 2], other: &[f64; 2]| {
            let apart = [other[0] - place[0], other[1] - place[1]];
            ((apart[0] * turn[0] + apart[1] * turn[1]) / square).round()
        };
        // Few pixels are torn, and only these need another position.
        if places
            .iter()
            .flatten()
            .all(|place| turns(place, &first) == 0.0)
        {
            return;
        }
        let Some(middle) = self.place(middle) else {
            return;
        };
        for place in places.iter_mut().flatten() {
            let count = turns(place, &middle);
            place[0] += count * turn[0];
            place[1] += count * turn[1];
        }
    }

    /// Returns true if the two grids have the same coordinates and both are axis-aligned: columns then depend on
    /// columns only, and rows on rows.
    pub fn is_axis_aligned(&self) -> bool {
        matches!(self.between, Between::Same)
            && self.target.is_axis_aligned()
            && self.source.is_axis_aligned()
    }

    /// Converts a position on the target, column then row, to one on the source, inside its grid or not; none
    /// outside the domain of a projection.
    pub fn place(&self, [col, row]: [f64; 2]) -> Option<[f64; 2]> {
        let place = self.target.apply(col, row);
        let place = match &self.between {
            Between::Same => place,
            Between::Turned { turn, middle } => [within(place[0], *middle, *turn), place[1]],
            Between::Degrees {
                target,
                source,
                middle,
            } => {
                let LonLat { lon, lat } = target.to_lon_lat(place)?;
                let lon = middle.map_or(lon, |middle| within(lon, middle, 360.0));
                source.to_crs(LonLat { lon, lat })?
            }
        };
        self.source.pixel_of(place)
    }
}

/// Returns true if the bounds of a target lie in those of a source: it then needs no turn.
fn is_inside(target: &GeoBox, source: &GeoBox) -> bool {
    let (Some(inner), Some(outer)) = (target.bounds(), source.bounds()) else {
        return false;
    };
    inner[0] >= outer[0] && inner[2] <= outer[2]
}

/// Returns a distance along x in pixels of a grid.
fn in_pixels(transform: &GeoTransform, along: f64) -> Option<[f64; 2]> {
    let [x, y] = transform.apply(0.0, 0.0);
    transform.pixel_of([x + along, y])
}

/// Returns the geotransform and the CRS of a grid that has both.
fn placed<'a>(grid: &'a GeoBox, which: &str) -> Result<(GeoTransform, &'a Crs)> {
    let invalid = |why: &str| {
        Err(Error::new(
            ErrorKind::InvalidInput,
            format!("the {which} grid {why}"),
        ))
    };
    if grid.size.width == 0 || grid.size.height == 0 {
        return invalid("has no pixels");
    }
    let Some(crs) = &grid.crs else {
        return invalid("has no CRS, which a warp needs");
    };
    let Some(transform) = grid.transform else {
        return invalid("has no geotransform, which a warp needs");
    };
    if transform.pixel_of(transform.apply(1.0, 1.0)).is_none() {
        return invalid("has a geotransform that is not invertible");
    }
    Ok((transform, crs))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geo::Size;

    fn grid(epsg: u32, transform: [f64; 6]) -> GeoBox {
        GeoBox {
            size: Size {
                width: 1000,
                height: 1000,
            },
            crs: Some(Crs::Epsg(epsg)),
            transform: Some(GeoTransform(transform)),
        }
    }

    /// `echo "1551005 -3952005" | gdaltransform -s_srs EPSG:3577 -t_srs EPSG:32755`, GDAL 3.6.2 with PROJ
    /// 9.1.1: the coordinates of the requested pixel.
    #[test]
    fn places_agree_with_gdal() {
        let utm = grid(32755, [600_000.0, 10.0, 0.0, 6_100_000.0, 0.0, -10.0]);
        let albers = grid(3577, [1_550_000.0, 10.0, 0.0, -3_950_000.0, 0.0, -10.0]);
        let there = Transformer::new(&albers, &utm).unwrap();
        let back = Transformer::new(&utm, &albers).unwrap();
        let place = there.place([100.5, 200.5]).unwrap();
        let again = back.place(place).unwrap();
        assert!((again[0] - 100.5).abs() < 1e-6 && (again[1] - 200.5).abs() < 1e-6);
        let x = 600_000.0 + place[0] * 10.0;
        let y = 6_100_000.0 - place[1] * 10.0;
        assert!((x - ALBERS_IN_UTM[0]).abs() < 1e-4, "{x}");
        assert!((y - ALBERS_IN_UTM[1]).abs() < 1e-4, "{y}");
    }

    const ALBERS_IN_UTM: [f64; 2] = [693544.564095827, 6099192.43623314];

    #[test]
    fn a_turn_of_longitude_is_found_on_the_source() {
        // A global grid from 0 to 360, and a UTM zone west of Greenwich.
        let world = GeoBox {
            size: Size {
                width: 360,
                height: 180,
            },
            ..grid(4326, [0.0, 1.0, 0.0, 90.0, 0.0, -1.0])
        };
        let zone = grid(32630, [500_000.0, 1000.0, 0.0, 5_000_000.0, 0.0, -1000.0]);
        let there = Transformer::new(&zone, &world).unwrap();
        let [col, _] = there.place([0.0, 0.0]).unwrap();
        assert!((col - 357.0).abs() < 1e-6, "{col}");
    }

    #[test]
    fn a_grid_that_lies_nowhere_is_refused_by_name() {
        let good = grid(32755, [0.0, 10.0, 0.0, 0.0, 0.0, -10.0]);
        let mut bare = good.clone();
        bare.crs = None;
        let err = Transformer::new(&bare, &good).unwrap_err();
        assert_eq!(
            err.message(),
            "the target grid has no CRS, which a warp needs"
        );
        let flat = grid(32755, [0.0, 10.0, 10.0, 0.0, 10.0, 10.0]);
        let err = Transformer::new(&good, &flat).unwrap_err();
        assert_eq!(
            err.message(),
            "the source grid has a geotransform that is not invertible"
        );
        let unknown = grid(4855, [0.0, 10.0, 0.0, 0.0, 0.0, -10.0]);
        let err = Transformer::new(&good, &unknown).unwrap_err();
        assert_eq!(err.kind(), ErrorKind::Unsupported);
        // The same CRS needs no projection.
        assert!(
            Transformer::new(&unknown, &unknown)
                .unwrap()
                .is_axis_aligned()
        );
    }
}
