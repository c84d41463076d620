//! The position of each target pixel on the source, interpolated from few exact ones.
//!
//! The target is split into cells that depend on nothing but its grid, so that a pixel has the same position
//! whichever window is requested. Inside a cell positions are interpolated between its corners, if the error
//! along its sides and at its middle is within the bound; otherwise the cell is split into quarters, down to
//! the smallest cells, in which each position is projected. This is GDAL's
//! [approximating transformer](https://gdal.org/en/stable/api/gdal_alg.html) in two dimensions: it projects
//! fewer positions, and checks the error along columns as well. As there, an error that is large only between
//! the points that are checked goes unnoticed.

use crate::geo::{Transformer, Window};

/// The side of the largest cells, in pixels.
pub(super) const CELL: u32 = 256;
/// The side of the smallest cells, in pixels. A check of a cell projects 13 positions, all its pixels 64: below
/// this size the check saves little.
const MIN_CELL: u32 = 8;
/// Where along a side the error is checked. A curve that bends to one side errs most at the middle, one with an
/// inflection there has no error at the middle; these two points detect both.
const PROBES: [f64; 2] = [0.3, 0.7];
/// By how much the error between the checked points may exceed that at them: for a parabola `t (1 - t)` it is
/// 1.19 times as large at the middle, and for a cubic `t (1 - t) (1 - 2 t)` 1.15 times at its extreme.
const MARGIN: f64 = 1.25;

/// The positions of target pixels on the source.
#[derive(Clone, Debug)]
pub(super) struct Mesh {
    there: Transformer,
    /// The bound on the error of a position, in source pixels.
    max_error: f64,
}

/// A square of the target's pixels.
#[derive(Clone, Copy, Debug)]
struct Cell {
    col: u32,
    row: u32,
    side: u32,
}

/// Target pixels whose positions are found in one of two ways.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patch {
    /// The pixels, on the target's grid.
    pub(super) window: Window,
    shape: Shape,
}

#[derive(Clone, Copy, Debug)]
enum Shape {
    /// Interpolated between the corners of a cell: top left and right, bottom left and right.
    Flat(Cell, [[f64; 2]; 4]),
    /// Each position is projected.
    Exact,
}

/// Equally spaced positions along a row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    /// The position of the line's first pixel.
    pub(super) start: [f64; 2],
    /// The difference from one position to the next.
    pub(super) step: [f64; 2],
    /// The first pixel of the line that belongs to the patch, counted from the line's first.
    pub(super) skip: u32,
    /// The number of pixels that belong to it.
    pub(super) count: u32,
}

impl Line {
    /// Returns the position of a pixel, counted from the line's first.
    pub(super) fn at(&self, pixel: u32) -> [f64; 2] {
        let along = f64::from(pixel);
        [
            self.start[0] + along * self.step[0],
            self.start[1] + along * self.step[1],
        ]
    }
}

impl Mesh {
    pub(super) fn new(there: Transformer, max_error: f64) -> Self {
        Self { there, max_error }
    }

    /// Returns the same mesh with another error bound.
    pub(super) fn with_max_error(&self, max_error: f64) -> Self {
        Self {
            max_error,
            ..self.clone()
        }
    }

    /// Returns patches that hold each pixel of a window once.
    pub(super) fn patches(&self, window: &Window) -> Vec<Patch> {
        let mut found = Vec::new();
        for row in cells(window.row, window.height) {
            for col in cells(window.col, window.width) {
                let cell = Cell {
                    col,
                    row,
                    side: CELL,
                };
                self.split(cell, window, &mut found);
            }
        }
        found
    }

    fn split(&self, cell: Cell, window: &Window, found: &mut Vec<Patch>) {
        let Some(part) = cell.and(window) else {
            return;
        };
        // With a bound of 0 each position is projected, so the cell is not checked.
        if self.max_error > 0.0 {
            if let Some(corners) = self.flat(&cell) {
                found.push(Patch {
                    window: part,
                    shape: Shape::Flat(cell, corners),
                });
                return;
            }
            if cell.side > MIN_CELL {
                for quarter in cell.quarters() {
                    self.split(quarter, window, found);
                }
                return;
            }
        }
        found.push(Patch {
            window: part,
            shape: Shape::Exact,
        });
    }

    /// Returns the positions of the corners of a cell, if interpolation between them is within the bound.
    fn flat(&self, cell: &Cell) -> Option<[[f64; 2]; 4]> {
        let (left, top) = (f64::from(cell.col), f64::from(cell.row));
        let side = f64::from(cell.side);
        let place =
            |[along, down]: [f64; 2]| self.there.place([left + along * side, top + down * side]);
        let (corners, error) = corners_and_error(place)?;
        (error <= self.max_error).then_some(corners)
    }

    /// Returns the minimum and the maximum position, column then row, of the points of a patch that lie `offset`
    /// from the top left corner of their pixel, for each offset; none if no point can be projected.
    pub(super) fn bounds(&self, patch: &Patch, offsets: &[[f64; 2]]) -> Option<[[f64; 2]; 2]> {
        let mut found: Option<[[f64; 2]; 2]> = None;
        let mut add = |at: [f64; 2]| {
            let [least, most] = found.unwrap_or([at, at]);
            found = Some([
                [least[0].min(at[0]), least[1].min(at[1])],
                [most[0].max(at[0]), most[1].max(at[1])],
            ]);
        };
        if let (Shape::Exact, [_, _, ..]) = (patch.shape, offsets) {
            let Window { col, row, .. } = patch.window;
            let pixels = (0..patch.window.height)
                .flat_map(|y| (0..patch.window.width).map(move |x| (col + x, row + y)));
            let mut places = Vec::with_capacity(offsets.len());
            for (x, y) in pixels {
                let at = |[right, below]: [f64; 2]| [f64::from(x) + right, f64::from(y) + below];
                places.clear();
                places.extend(offsets.iter().map(|offset| self.there.place(at(*offset))));
                // As a walk joins them: the right side of the last pixel before a seam is the end of the map, not its start.
                self.there.join(&mut places, at([0.5; 2]));
                places.iter().flatten().for_each(|place| add(*place));
            }
            return found;
        }
        for &offset in offsets {
            // Interpolation between four corners is linear along rows and along columns, so a patch has its extremes
            // at the ends of its first and last rows.
            let rows = match patch.shape {
                Shape::Flat(..) => vec![patch.strip(0, 1), patch.strip(patch.window.height - 1, 1)],
                Shape::Exact => vec![*patch],
            };
            for row in rows {
                self.walk(&row, [offset], |_, _, [line]| {
                    add(line.at(line.skip));
                    add(line.at(line.skip + line.count - 1));
                });
            }
        }
        found
    }

    /// Calls `each` with the positions of a patch, row by row: those of the points that lie `offset` from the top
    /// left corner of their pixel, for each offset. Points that cannot be projected are left out.
    pub(super) fn walk<const N: usize>(
        &self,
        patch: &Patch,
        offsets: [[f64; 2]; N],
        mut each: impl FnMut(u32, u32, [Line; N]),
    ) {
        let Window {
            col,
            row,
            width,
            height,
        } = patch.window;
        for y in row..row + height {
            match &patch.shape {
                Shape::Flat(cell, corners) => {
                    let lines = offsets.map(|[right, below]| {
                        let side = f64::from(cell.side);
                        let along = right / side;
                        let down = (f64::from(y - cell.row) + below) / side;
                        // The line starts at the cell's first column, not at the window's: a pixel's position is then
                        // computed by the same operations whichever window it is part of.
                        let start = between(corners, [along, down]);
                        let end = between(corners, [along + 1.0, down]);
                        Line {
                            start,
                            step: [(end[0] - start[0]) / side, (end[1] - start[1]) / side],
                            skip: col - cell.col,
                            count: width,
                        }
                    });
                    each(col, y, lines);
                }
                Shape::Exact => {
                    for x in col..col + width {
                        let at =
                            |[right, below]: [f64; 2]| [f64::from(x) + right, f64::from(y) + below];
                        let mut places = offsets.map(|offset| self.there.place(at(offset)));
                        if N > 1 {
                            self.there.join(&mut places, at([0.5; 2]));
                        }
                        let lines = places.map(|place| {
                            place.map(|start| Line {
                                start,
                                step: [0.0, 0.0],
                                skip: 0,
                                count: 1,
                            })
                        });
                        // An area needs all its corners.
                        if lines.iter().all(Option::is_some) {
                            each(x, y, lines.map(|line| line.unwrap_or(MISSING)));
                        }
                    }
                }
            }
        }
    }
}

impl Patch {
    /// Returns `count` rows of the patch from row `first`, counted from the patch's first.
    fn strip(&self, first: u32, count: u32) -> Self {
        Self {
            window: Window {
                row: self.window.row + first,
                height: count.min(self.window.height - first),
                ..self.window
            },
            shape: self.shape,
        }
    }

    /// Splits the patch into strips of `count` rows.
    pub(super) fn strips(&self, count: u32) -> impl Iterator<Item = Self> {
        (0..self.window.height)
            .step_by(count as usize)
            .map(move |first| self.strip(first, count))
    }
}

/// Replaces a line that cannot be projected.
const MISSING: Line = Line {
    start: [f64::NAN; 2],
    step: [0.0; 2],
    skip: 0,
    count: 0,
};

/// Returns the positions of the corners of a square, and an estimate of the largest interpolation error in it;
/// none if a checked point cannot be projected.
fn corners_and_error(place: impl Fn([f64; 2]) -> Option<[f64; 2]>) -> Option<([[f64; 2]; 4], f64)> {
    let corners = [
        place([0.0, 0.0])?,
        place([1.0, 0.0])?,
        place([0.0, 1.0])?,
        place([1.0, 1.0])?,
    ];
    let error = |at: [f64; 2]| {
        let (flat, exact) = (between(&corners, at), place(at)?);
        Some((flat[0] - exact[0]).abs() + (flat[1] - exact[1]).abs())
    };
    let mut errors = [0.0_f64; 2];
    for (axis, most) in errors.iter_mut().enumerate() {
        for end in [0.0, 1.0] {
            for along in PROBES {
                let at = if axis == 0 {
                    [along, end]
                } else {
                    [end, along]
                };
                *most = most.max(error(at)?);
            }
        }
    }
    // The error along both axes adds up. Sides may be straight where the inside is not, so the middle is checked
    // too: there a curve that bends to one side errs most.
    let middle = error([0.5; 2])?;
    Some((corners, middle.max((errors[0] + errors[1]) * MARGIN)))
}

/// Interpolates between the positions of four corners, at fractions along and down.
fn between(corners: &[[f64; 2]; 4], [along, down]: [f64; 2]) -> [f64; 2] {
    let part = |i: usize| {
        let [a, b, c, d] = corners.map(|corner| corner[i]);
        let left = a + (c - a) * down;
        let right = b + (d - b) * down;
        left + (right - left) * along
    };
    [part(0), part(1)]
}

/// Returns the first pixels of the cells that a range of pixels overlaps.
pub(super) fn cells(first: u32, count: u32) -> impl Iterator<Item = u32> {
    let end = u64::from(first) + u64::from(count);
    // Cells are aligned to the grid's origin, not to the window.
    let start = first / CELL * CELL;
    (u64::from(start)..end)
        .step_by(CELL as usize)
        .filter_map(|cell| u32::try_from(cell).ok())
}

impl Cell {
    /// Returns the part of a window that lies in the cell.
    fn and(&self, window: &Window) -> Option<Window> {
        let run = |start: u32, first: u32, count: u32| {
            let from = start.max(first);
            let end =
                (u64::from(start) + u64::from(self.side)).min(u64::from(first) + u64::from(count));
            let count = end.checked_sub(u64::from(from))?;
            let count = u32::try_from(count).ok().filter(|&count| count > 0)?;
            Some((from, count))
        };
        let (col, width) = run(self.col, window.col, window.width)?;
        let (row, height) = run(self.row, window.row, window.height)?;
        Some(Window {
            col,
            row,
            width,
            height,
        })
    }

    fn quarters(&self) -> [Self; 4] {
        let side = self.side / 2;
        [(0, 0), (1, 0), (0, 1), (1, 1)].map(|(right, down)| Self {
            col: self.col.saturating_add(right * side),
            row: self.row.saturating_add(down * side),
            side,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::geo::{Crs, GeoBox, GeoTransform, Size};

    fn grid(epsg: u32, x: f64, y: f64, side: f64, size: u32) -> GeoBox {
        GeoBox {
            size: Size {
                width: size,
                height: size,
            },
            crs: Some(Crs::Epsg(epsg)),
            transform: Some(GeoTransform([x, side, 0.0, y, 0.0, -side])),
        }
    }

    /// Checks that each pixel of a window occurs once, near its exact position. Returns the number of patches.
    fn check(from: &GeoBox, to: &GeoBox, window: Window, max_error: f64) -> usize {
        let mesh = Mesh::new(Transformer::new(to, from).unwrap(), max_error);
        let patches = mesh.patches(&window);
        let mut seen = vec![0_u8; window.width as usize * window.height as usize];
        let mut worst = 0.0_f64;
        for patch in &patches {
            mesh.walk(patch, [[0.5; 2]], |col, row, [line]| {
                for i in 0..line.count {
                    let x = col + i;
                    let at = line.at(line.skip + i);
                    let exact = mesh.there.place([f64::from(x) + 0.5, f64::from(row) + 0.5]);
                    if let Some(exact) = exact {
                        worst = worst.max((at[0] - exact[0]).abs() + (at[1] - exact[1]).abs());
                    }
                    let place = (row - window.row) * window.width + x - window.col;
                    seen[place as usize] += 1;
                }
            });
        }
        assert!(worst <= max_error + 1e-6, "{worst} of {max_error}");
        assert!(seen.iter().all(|&times| times == 1));
        patches.len()
    }

    #[test]
    fn what_bends_is_seen_along_both_axes_and_inside() {
        let error = |bent: fn(f64, f64) -> f64| {
            let place = |[x, y]: [f64; 2]| Some([90.0 * x + 5.0 * y + bent(x, y), 70.0 * y]);
            corners_and_error(place).unwrap().1
        };
        assert!(error(|x, y| 3.0 * x * y) < 1e-9, "flat between corners");
        // The largest error of each is 1.
        for bent in [
            |x: f64, _: f64| 4.0 * x * (1.0 - x),
            |_: f64, y: f64| 4.0 * y * (1.0 - y),
            |x: f64, y: f64| 2.0 * x * (1.0 - x) + 2.0 * y * (1.0 - y),
            |x: f64, _: f64| 10.392 * x * (1.0 - x) * (1.0 - 2.0 * x),
            |x: f64, y: f64| 16.0 * x * (1.0 - x) * y * (1.0 - y),
        ] {
            let found = error(bent);
            assert!((0.999..1.26).contains(&found), "{found}");
        }
        assert!(
            corners_and_error(|[x, y]| (x != y || x == 0.0 || x == 1.0).then_some([x, y]))
                .is_none()
        );
    }

    #[test]
    fn a_flat_map_takes_few_places_and_a_bent_one_more() {
        let utm = grid(32755, 600_000.0, 6_100_000.0, 10.0, 4096);
        let albers = grid(3577, 1_550_000.0, -3_950_000.0, 10.0, 1024);
        let whole = Window::whole(albers.size);
        assert_eq!(check(&utm, &albers, whole, 0.125), 16);
        // A global grid of whole degrees: in Mercator rows have an inflection at the equator.
        let mercator = grid(3857, -20_037_508.0, 20_037_508.0, 10_000.0, 4000);
        let world = grid(4326, -170.0, 80.0, 0.5, 320);
        let whole = Window::whole(world.size);
        assert!(check(&mercator, &world, whole, 0.125) > 16);
    }

    #[test]
    fn a_place_does_not_depend_on_the_window() {
        let utm = grid(32755, 600_000.0, 6_100_000.0, 30.0, 4096);
        let albers = grid(3577, 1_550_000.0, -3_950_000.0, 30.0, 1024);
        let mesh = Mesh::new(Transformer::new(&albers, &utm).unwrap(), 0.125);
        let place = |window: &str| {
            let mut found = None;
            for patch in mesh.patches(&window.parse().unwrap()) {
                mesh.walk(&patch, [[0.5; 2]], |col, row, [line]| {
                    if row == 300 && (col..col + line.count).contains(&290) {
                        found = Some(line.at(line.skip + 290 - col));
                    }
                });
            }
            found.unwrap()
        };
        assert_eq!(place("0,0,1024,1024"), place("290,300,1,1"));
        assert_eq!(place("270,280,40,40"), place("290,299,20,17"));
    }

    #[test]
    fn what_has_no_place_is_left_out() {
        // Half of this grid is outside the area of a UTM zone.
        let utm = grid(32755, 600_000.0, 6_100_000.0, 1000.0, 100);
        let world = grid(4326, -180.0, 90.0, 1.0, 180);
        let mesh = Mesh::new(Transformer::new(&world, &utm).unwrap(), 0.125);
        let window = Window::whole(world.size);
        let mut count = 0;
        for patch in mesh.patches(&window) {
            mesh.walk(&patch, [[0.5; 2]], |_, _, [line]| {
                assert!(line.at(line.skip).iter().all(|place| place.is_finite()));
                count += line.count;
            });
        }
        assert!(count < window.width * window.height, "{count}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn no_place_is_further_off_than_the_bound(
            codes in prop::sample::select(vec![
                (32755_u32, 3577_u32), (3577, 32755), (32755, 32756), (4326, 32755), (32755, 4326),
                (3857, 3577), (3577, 3857), (3031, 32755), (4326, 3857), (3857, 4326),
            ]),
            lon in 143.0..151.0_f64,
            lat in -43.0..-12.0_f64,
            metres in 5.0..3000.0_f64,
            col in 0_u32..600,
            row in 0_u32..600,
            width in 1_u32..300,
            height in 1_u32..300,
            max_error in 0.01..0.5_f64,
        ) {
            let bbox = crate::geo::Bbox::new(lon, lat, lon + 0.001, lat + 0.001).unwrap();
            let at = |code: u32| {
                let side = if code == 4326 { metres / 111_000.0 } else { metres };
                let crs = Crs::Epsg(code);
                let [x, _, _, y] = GeoBox::of_bbox(&bbox, crs, side).unwrap().bounds().unwrap();
                grid(code, x - 400.0 * side, y + 400.0 * side, side, 1000)
            };
            let window = Window { col, row, width, height };
            check(&at(codes.0), &at(codes.1), window, max_error);
        }
    }
}
