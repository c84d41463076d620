//! Grids that share their pixels: the lattice that rasters have in common, and the extent of each on it.

use super::{Crs, GeoBox, GeoTransform, Size, Window, projection};
use crate::error::{Error, ErrorKind, Result};

/// The fraction of a pixel by which two grids may differ and still be aligned: the rounding error of coordinates that
/// one program wrote and another read.
pub(super) const SLACK: f64 = 1e-3;

/// An unbounded grid of pixels: a CRS, a pixel size and an origin. A raster is aligned to it, or not.
#[derive(Clone, Debug, PartialEq)]
pub struct Lattice {
    crs: Crs,
    transform: GeoTransform,
}

/// The extent of a raster on a lattice, counted from the lattice's origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Pixels from the origin to the first column; negative to the left.
    pub col: i64,
    /// Pixels from the origin to the first row.
    pub row: i64,
    /// Columns.
    pub width: u32,
    /// Rows.
    pub height: u32,
}

impl Lattice {
    /// Returns the lattice of a grid.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] if the grid has no CRS or no geotransform, or is rotated.
    pub fn of(grid: &GeoBox) -> Result<Self> {
        let wrong = |what: &str| Error::new(ErrorKind::InvalidInput, what);
        let crs = grid
            .crs
            .clone()
            .ok_or_else(|| wrong("it has no CRS, so it cannot be aligned with others"))?;
        let transform = grid
            .transform
            .ok_or_else(|| wrong("it has no geotransform, so it cannot be aligned with others"))?;
        if !transform.is_axis_aligned() {
            return Err(wrong("its grid is rotated; expected an axis-aligned one"));
        }
        Ok(Self { crs, transform })
    }

    /// Returns the extent of a grid on this lattice.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] stating how the grid differs.
    pub fn extent(&self, grid: &GeoBox) -> Result<Extent> {
        let other = Self::of(grid)?;
        let wrong = |what: String| Err(Error::new(ErrorKind::InvalidInput, what));
        if !other.crs.is_same(&self.crs) {
            return wrong(format!(
                "its CRS is {}, expected {}: reproject it first",
                other.crs, self.crs
            ));
        }
        let (mine, its) = (self.transform.0, other.transform.0);
        // A difference in pixel size adds up, so it is compared over the width and height of the grid.
        let apart =
            |a: f64, b: f64, pixels: u32| (a - b).abs() * f64::from(pixels) > SLACK * a.abs();
        if apart(mine[1], its[1], grid.size.width) || apart(mine[5], its[5], grid.size.height) {
            return wrong(format!(
                "its pixels are {} x {}, expected {} x {}: resample it first",
                its[1].abs(),
                its[5].abs(),
                mine[1].abs(),
                mine[5].abs()
            ));
        }
        let col = (its[0] - mine[0]) / mine[1];
        let row = (its[3] - mine[3]) / mine[5];
        if (col - col.round()).abs() > SLACK || (row - row.round()).abs() > SLACK {
            return wrong(format!(
                "its pixels are offset by {:.3} columns and {:.3} rows from the others: resample it first",
                col - col.floor(),
                row - row.floor()
            ));
        }
        // Within 32 bits the conversions between `i64` and `f64` are exact, and sums cannot overflow.
        let far = f64::from(i32::MAX);
        if col.abs() > far || row.abs() > far {
            return wrong("it is more than 2147483647 pixels from the others".to_owned());
        }
        Ok(Extent {
            col: whole(col),
            row: whole(row),
            width: grid.size.width,
            height: grid.size.height,
        })
    }

    /// Returns the number of columns after which a map of the globe repeats itself; none where it ends, or a turn of
    /// longitude is no whole number of pixels.
    pub fn turn(&self) -> Option<i64> {
        let columns = (projection::turn_of(&self.crs)? / self.transform.0[1]).abs();
        let is_whole = (columns - columns.round()).abs() <= SLACK;
        (is_whole && (1.0..f64::from(i32::MAX)).contains(&columns)).then(|| whole(columns))
    }

    /// Returns the grid of an extent.
    pub fn grid(&self, extent: &Extent) -> GeoBox {
        let g = self.transform.0;
        #[expect(clippy::cast_precision_loss, reason = "an extent is within 32 bits")]
        let (col, row) = (extent.col as f64, extent.row as f64);
        GeoBox {
            size: Size {
                width: extent.width,
                height: extent.height,
            },
            crs: Some(self.crs.clone()),
            transform: Some(GeoTransform([
                g[0] + col * g[1],
                g[1],
                g[2],
                g[3] + row * g[5],
                g[4],
                g[5],
            ])),
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the value is within 32 bits"
)]
fn whole(value: f64) -> i64 {
    value.round() as i64
}

impl Extent {
    fn end(&self) -> [i64; 2] {
        [
            self.col + i64::from(self.width),
            self.row + i64::from(self.height),
        ]
    }

    /// Returns the union of two extents.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] if it is longer than 2147483647 pixels along an axis.
    pub fn and(&self, other: &Self) -> Result<Self> {
        let (col, row) = (self.col.min(other.col), self.row.min(other.row));
        let [a, b] = self.end();
        let [c, d] = other.end();
        let length = |start: i64, end: i64| {
            u32::try_from(end - start)
                .ok()
                .filter(|&length| i32::try_from(length).is_ok())
                .ok_or_else(|| {
                    Error::new(
                        ErrorKind::InvalidInput,
                        "it is more than 2147483647 pixels from the others",
                    )
                })
        };
        Ok(Self {
            col,
            row,
            width: length(col, a.max(c))?,
            height: length(row, b.max(d))?,
        })
    }

    /// Returns the part of a window of `self` that a raster covers: in the raster's pixels, and the row and column
    /// where it starts in the window.
    pub fn part(&self, window: &Window, image: &Self) -> Option<(Window, [usize; 2])> {
        let start = [
            self.col + i64::from(window.col),
            self.row + i64::from(window.row),
        ];
        let end = [
            start[0] + i64::from(window.width),
            start[1] + i64::from(window.height),
        ];
        let [image_end_col, image_end_row] = image.end();
        let low = [start[0].max(image.col), start[1].max(image.row)];
        let high = [end[0].min(image_end_col), end[1].min(image_end_row)];
        if low[0] >= high[0] || low[1] >= high[1] {
            return None;
        }
        let number = |value: i64| u32::try_from(value).ok();
        let part = Window {
            col: number(low[0] - image.col)?,
            row: number(low[1] - image.row)?,
            width: number(high[0] - low[0])?,
            height: number(high[1] - low[1])?,
        };
        let start = [
            usize::try_from(low[1] - start[1]).ok()?,
            usize::try_from(low[0] - start[0]).ok()?,
        ];
        Some((part, start))
    }

    /// Returns the parts of a window of `self` that a raster covers, each as [`part`](Self::part) does, at all turns of a
    /// map that repeats itself after `turn` columns. A raster wider than a turn would cover pixels twice.
    pub fn parts<'a>(
        &'a self,
        window: &'a Window,
        image: &'a Self,
        turn: Option<i64>,
    ) -> impl Iterator<Item = (Window, [usize; 2])> + 'a {
        let (turn, count) = match turn {
            Some(turn) => (turn.max(1), 1),
            None => (1, 0),
        };
        let middle = |extent: &Self| extent.col + i64::from(extent.width) / 2;
        let nearest = match count {
            0 => 0,
            _ => (middle(self) - middle(image) + turn / 2).div_euclid(turn),
        };
        (nearest - count..=nearest + count).filter_map(move |turns| {
            let moved = Self {
                col: image.col.saturating_add(turns.saturating_mul(turn)),
                ..*image
            };
            self.part(window, &moved)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid(x: f64, y: f64, side: f64, width: u32, height: u32, epsg: u32) -> GeoBox {
        GeoBox {
            size: Size { width, height },
            crs: Some(Crs::Epsg(epsg)),
            transform: Some(GeoTransform([x, side, 0.0, y, 0.0, -side])),
        }
    }

    #[test]
    fn images_of_one_lattice_are_placed() {
        let first = grid(300_000.0, 7_000_000.0, 30.0, 100, 80, 32655);
        let lattice = Lattice::of(&first).unwrap();
        let a = lattice.extent(&first).unwrap();
        let second = grid(300_000.0 - 300.0, 7_000_000.0 + 60.0, 30.0, 50, 50, 32655);
        let b = lattice.extent(&second).unwrap();
        assert_eq!((b.col, b.row), (-10, -2));
        let all = a.and(&b).unwrap();
        assert_eq!(
            all,
            Extent {
                col: -10,
                row: -2,
                width: 110,
                height: 82
            }
        );
        assert_eq!(lattice.grid(&all).transform.unwrap().0[0], 299_700.0);
        let window = Window {
            col: 5,
            row: 0,
            width: 20,
            height: 10,
        };
        let (part, place) = all.part(&window, &a).unwrap();
        assert_eq!((part.col, part.row, part.width, part.height), (0, 0, 15, 8));
        assert_eq!(place, [2, 5]);
        assert!(
            all.part(
                &Window {
                    col: 0,
                    row: 60,
                    width: 5,
                    height: 5
                },
                &b
            )
            .is_none()
        );
    }

    #[test]
    fn a_raster_is_found_at_each_turn_of_longitude() {
        let world = grid(-180.0, 10.0, 0.5, 720, 20, 4326);
        let lattice = Lattice::of(&world).unwrap();
        let turn = lattice.turn();
        assert_eq!(turn, Some(720));
        let of = |grid: &GeoBox| lattice.extent(grid).unwrap();
        let (all, pacific) = (of(&world), of(&grid(170.0, 10.0, 0.5, 40, 20, 4326)));
        let parts = |cube: &Extent, image: &Extent, turn| {
            let window = Window {
                col: 0,
                row: 0,
                width: cube.width,
                height: cube.height,
            };
            let parts = cube.parts(&window, image, turn);
            let parts =
                parts.map(|(part, [_, col])| [part.col, part.width, u32::try_from(col).unwrap()]);
            parts.collect::<Vec<_>>()
        };
        // The column and width in the raster, and the column in the window.
        assert_eq!(parts(&pacific, &all, turn), [[700, 20, 0], [0, 20, 20]]);
        assert_eq!(parts(&pacific, &all, None), [[700, 20, 0]]);
        let mut found = parts(&all, &pacific, turn);
        found.sort_unstable();
        assert_eq!(found, [[0, 20, 700], [20, 20, 0]]);
        let fiji = of(&grid(-180.0, 10.0, 0.5, 10, 20, 4326));
        assert_eq!(parts(&pacific, &fiji, turn), [[0, 10, 20]]);
        let far = of(&grid(-900.0, 10.0, 0.5, 10, 20, 4326));
        assert_eq!(parts(&pacific, &far, turn), [[0, 10, 20]]);
        // A zone has one place, and 0.7 degrees are not in 360.
        for other in [
            grid(3e5, 7e6, 30.0, 9, 9, 32755),
            grid(0.0, 0.0, 0.7, 9, 9, 4326),
        ] {
            assert_eq!(Lattice::of(&other).unwrap().turn(), None);
        }
    }

    #[test]
    fn another_grid_is_refused_by_what_differs() {
        let lattice = Lattice::of(&grid(0.0, 0.0, 30.0, 100, 100, 32655)).unwrap();
        for (other, said) in [
            (
                grid(0.0, 0.0, 30.0, 100, 100, 32656),
                "its CRS is EPSG:32656, expected EPSG:32655",
            ),
            (
                grid(0.0, 0.0, 10.0, 100, 100, 32655),
                "its pixels are 10 x 10, expected 30 x 30",
            ),
            (
                grid(15.0, 0.0, 30.0, 100, 100, 32655),
                "offset by 0.500 columns and 0.000 rows",
            ),
        ] {
            let err = lattice.extent(&other).unwrap_err();
            assert!(err.message().contains(said), "{err}");
        }
        let mut rotated = grid(0.0, 0.0, 30.0, 10, 10, 32655);
        rotated.transform = Some(GeoTransform([0.0, 30.0, 1.0, 0.0, 1.0, -30.0]));
        assert!(
            lattice
                .extent(&rotated)
                .unwrap_err()
                .message()
                .contains("rotated")
        );
        rotated.crs = None;
        assert!(
            lattice
                .extent(&rotated)
                .unwrap_err()
                .message()
                .contains("no CRS")
        );
    }
}
