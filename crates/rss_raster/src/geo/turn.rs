//! Turns of longitude on maps that go round the globe: two grids of one CRS may hold the same ground 360 degrees apart.

use super::{GeoBox, Lattice, Window, projection};

/// The most turns of longitude that two grids may be apart: further off, coordinates are no longitudes.
const MOST: f64 = 4.0;

/// The part of a pixel that is no overlap: the rounding error of edges.
const SLACK: f64 = 1e-3;

/// At which turns of longitude a target lies on a source.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Turns {
    /// Target coordinates are moved by this along x, which is often 0.
    One(f64),
    /// Some columns of the target lie on the source at one turn, and others at another: each x is moved to within half
    /// a turn of the middle of the source.
    Several { turn: f64, middle: f64 },
}

impl Turns {
    /// Returns the turns for two grids whose maps repeat after `turn` units along x.
    pub(super) fn of(target: &GeoBox, source: &GeoBox, turn: f64) -> Self {
        let none = Self::One(0.0);
        let (Some([west, _, east, _]), Some([left, _, right, _])) =
            (target.bounds(), source.bounds())
        else {
            return none;
        };
        let pixel = target
            .resolution()
            .map_or(0.0, |pixel| pixel.x.min(pixel.y));
        let slack = SLACK * pixel;
        let (first, last) = (
            ((left - east) / turn).ceil(),
            ((right - west) / turn).floor(),
        );
        if !(first.abs() <= MOST && last.abs() <= MOST) {
            return none;
        }
        // The columns of the target that lie on the source, at each turn.
        let mut found: Vec<(f64, [f64; 2])> = Vec::new();
        let mut moved = first * turn;
        while moved <= last * turn + turn / 2.0 {
            let part = [west.max(left - moved), east.min(right - moved)];
            if part[1] - part[0] > slack {
                found.push((moved, part));
            }
            moved += turn;
        }
        let width = |part: &[f64; 2]| part[1] - part[0];
        // Of equal ones that without a turn, so that nothing moves without need.
        let best = found.iter().copied().reduce(|a, b| {
            let gain = width(&b.1) - width(&a.1);
            let is_better = gain > slack || gain > -slack && b.0.abs() < a.0.abs();
            if is_better { b } else { a }
        });
        let Some((moved, best)) = best else {
            return none;
        };
        let is_in_best = |part: &[f64; 2]| part[0] >= best[0] - slack && part[1] <= best[1] + slack;
        match found.iter().all(|(_, part)| is_in_best(part)) {
            true => Self::One(moved),
            false => Self::Several {
                turn,
                middle: (left + right) / 2.0,
            },
        }
    }
}

impl GeoBox {
    /// Returns the part of this grid that holds windows of it; none without a window. On a map of the globe, whose ends meet,
    /// it goes past an end where it is narrower so.
    pub fn around(&self, windows: &[Window]) -> Option<Self> {
        let row = windows.iter().map(|window| window.row).min()?;
        let bottom = windows
            .iter()
            .map(|window| i64::from(window.row) + i64::from(window.height));
        let height = bottom.max()? - i64::from(row);
        let col = windows.iter().map(|window| window.col).min()?;
        let right = windows
            .iter()
            .map(|window| i64::from(window.col) + i64::from(window.width));
        let plain = (col, right.max()? - i64::from(col));
        let turn = Lattice::of(self).ok().and_then(|lattice| lattice.turn());
        let past = |start: u32, turn: i64| {
            let ends = windows.iter().map(|window| {
                (i64::from(window.col) - i64::from(start)).rem_euclid(turn)
                    + i64::from(window.width)
            });
            (start, ends.max().unwrap_or(0))
        };
        let all = turn.into_iter().flat_map(|turn| {
            let starts = windows.iter().map(|window| window.col);
            starts.map(move |start| past(start, turn))
        });
        let (col, width) = all.fold(plain, |best, one| if one.1 < best.1 { one } else { best });
        Some(self.of_window(&Window {
            col,
            row,
            width: u32::try_from(width).ok()?,
            height: u32::try_from(height).ok()?,
        }))
    }

    /// Returns grids of one CRS that lie either side of the end of its map, side by side: moved by whole turns of longitude
    /// to where together they are the narrowest. None where nothing is to be moved: they are within half a turn as they are,
    /// or in no half of the globe.
    pub fn side_by_side(grids: &[Self]) -> Option<Vec<Self>> {
        let crs = grids.first()?.crs.as_ref()?;
        let mut spans = Vec::with_capacity(grids.len());
        for grid in grids {
            if grid.crs.as_ref().is_none_or(|own| !own.is_same(crs)) {
                return None;
            }
            let [west, _, east, _] = grid.bounds()?;
            spans.push([west, east]);
        }
        let west = spans
            .iter()
            .map(|span| span[0])
            .fold(f64::INFINITY, f64::min);
        let east = spans
            .iter()
            .map(|span| span[1])
            .fold(f64::NEG_INFINITY, f64::max);
        let turn = projection::turn_of(crs)?;
        if east - west <= turn / 2.0 {
            return None;
        }
        // What lies side by side begins where one of them begins. Many images share a grid.
        let mut distinct = spans.clone();
        distinct.sort_by(|a, b| a[0].total_cmp(&b[0]).then(a[1].total_cmp(&b[1])));
        distinct.dedup();
        let width = |start: f64| {
            let ends = distinct
                .iter()
                .map(|[west, east]| (west - start).rem_euclid(turn) + (east - west));
            ends.fold(0.0, f64::max)
        };
        let (start, narrowest) = distinct
            .iter()
            .map(|[start, _]| (*start, width(*start)))
            .min_by(|a, b| a.1.total_cmp(&b.1))?;
        if narrowest > turn / 2.0 {
            return None;
        }
        let moved = grids.iter().zip(&spans).map(|(grid, [west, _])| {
            let along = start + (west - start).rem_euclid(turn) - west;
            let mut grid = grid.clone();
            if let Some(transform) = &mut grid.transform {
                transform.0[0] += (along / turn).round() * turn;
            }
            grid
        });
        Some(moved.collect())
    }
}

/// Returns the equivalent of a coordinate that lies from half a turn below `middle`, included, to half a turn above it.
pub(super) fn within(x: f64, middle: f64, turn: f64) -> f64 {
    x - turn * ((x - middle) / turn + 0.5).floor()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geo::{Crs, GeoTransform, Size};

    #[test]
    fn one_turn_is_taken_where_it_is_enough() {
        let grid = |west: f64, east: f64, side: f64| {
            GeoBox::of_bounds_at(
                Crs::Epsg(4326),
                [west, -10.0, east, 10.0],
                side,
                [west, 0.0],
            )
            .unwrap()
        };
        let several = |middle: f64| Turns::Several {
            turn: 360.0,
            middle,
        };
        for (target, source, expected) in [
            ([-100.0, -60.0], [0.0, 360.0], Turns::One(360.0)),
            ([170.0, 190.0], [0.0, 360.0], Turns::One(0.0)),
            ([-20.0, 20.0], [0.0, 360.0], several(180.0)),
            ([-180.0, 180.0], [0.0, 360.0], several(180.0)),
            ([170.0, 190.0], [-180.0, 180.0], several(0.0)),
            ([-180.0, 180.0], [-180.0, 180.0], Turns::One(0.0)),
            ([181.0, 190.0], [-180.0, 180.0], Turns::One(-360.0)),
            ([-540.0, -500.0], [-180.0, 180.0], Turns::One(360.0)),
            // Tiles either side of 180, and one that is not under the target.
            ([179.5, 180.5], [179.0, 180.0], Turns::One(0.0)),
            ([179.5, 180.5], [-180.0, -179.0], Turns::One(-360.0)),
            ([179.5, 180.5], [10.0, 11.0], Turns::One(0.0)),
            // A map whose ends are there twice needs no second turn.
            ([-180.0, 180.0], [-180.5, 180.5], Turns::One(0.0)),
            // Metres that are called degrees.
            ([500_000.0, 500_100.0], [-180.0, 180.0], Turns::One(0.0)),
        ] {
            let found = Turns::of(
                &grid(target[0], target[1], 0.1),
                &grid(source[0], source[1], 0.5),
                360.0,
            );
            assert_eq!(found, expected, "{target:?} {source:?}");
        }
    }

    #[test]
    fn windows_at_both_ends_of_a_map_are_side_by_side() {
        let globe = |crs: u32, west: f64, side: f64, width: u32| GeoBox {
            size: Size { width, height: 10 },
            crs: Some(Crs::Epsg(crs)),
            transform: Some(GeoTransform([west, side, 0.0, 5.0, 0.0, -side])),
        };
        let window = |text: &str| text.parse::<Window>().unwrap();
        let ends = [window("355,2,5,3"), window("0,4,10,2")];
        let whole = globe(4326, 0.0, 1.0, 360);
        for windows in [ends, [ends[1], ends[0]]] {
            let both = whole.around(&windows).unwrap();
            assert_eq!(both.bounds(), Some([355.0, -1.0, 370.0, 3.0]));
        }
        assert_eq!(whole.around(&ends[..1]), Some(whole.of_window(&ends[0])));
        assert_eq!(whole.around(&[]), None);
        // Side by side as they are, a turn that is no whole number of pixels, and a map that ends.
        let near = [window("10,0,5,5"), window("20,0,5,5")];
        let spans = whole.of_window(&window("10,0,15,5"));
        assert_eq!(whole.around(&near), Some(spans));
        for odd in [globe(4326, 0.0, 0.999, 360), globe(32755, 0.0, 1.0, 360)] {
            let spans = odd.of_window(&window("0,2,360,4"));
            assert_eq!(odd.around(&ends), Some(spans));
        }
        // A bbox across the seam of a map from 0 to 360, and across that of one from -180.
        let greenwich = whole.crop(&"-3,-2,4,2".parse().unwrap()).unwrap().unwrap();
        assert_eq!(greenwich.bounds(), Some([357.0, -2.0, 364.0, 2.0]));
        let fiji = globe(4326, -180.0, 0.5, 720);
        let fiji = fiji
            .crop(&"177,0,-178,2".parse().unwrap())
            .unwrap()
            .unwrap();
        assert_eq!(fiji.bounds(), Some([177.0, 0.0, 182.0, 2.0]));
    }

    #[test]
    fn a_map_ends_before_its_seam() {
        assert_eq!(within(180.0, 0.0, 360.0), -180.0);
        assert_eq!(within(-180.0, 0.0, 360.0), -180.0);
        assert_eq!(within(-90.0, 180.0, 360.0), 270.0);
    }
}
