//! Rasterizing polygons: the pixels of a grid that belong to a polygon, as spans of rows.

use super::fraction::by_fraction;
use crate::geo::{Ring, Size, Window};

/// The rule by which pixels belong to a polygon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Coverage {
    /// Pixels whose centre lies within it. A pixel belongs to only one of two adjacent polygons: a centre on their
    /// common side is in the polygon with the smaller columns, or with the larger rows.
    #[default]
    Centre,
    /// Pixels that overlap it by more than a thousandth of a pixel. One that is met along an edge or in a corner only is
    /// not among them (GDAL's `ALL_TOUCHED` takes some of those).
    Touched,
    /// Pixels that overlap it, each with the fraction of it that is covered, as exactextract: statistics are weighted.
    Fraction,
}

/// The tolerance in pixels at their edges: GeoJSON in degrees has six or seven decimals, and reprojection loses digits. A
/// polygon drawn along pixel edges must not touch the pixels beyond.
const EDGE: f64 = 1e-3;
/// The tolerance in pixels at their centres: one on a side must not be now in the one polygon, now in the other.
const CENTRE: f64 = 1e-6;

/// A half-open range of columns of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::apply) struct Span {
    pub(in crate::apply) start: u32,
    pub(in crate::apply) end: u32,
}

/// The pixels of a polygon, run-length encoded by row.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::apply) struct Cover {
    first_row: u32,
    /// For each row, the end of its spans in `spans`.
    ends: Vec<usize>,
    /// The spans of all rows, from left to right, disjoint.
    spans: Vec<Span>,
    /// The covered fraction of each pixel of each span; empty if all are 1.
    fractions: Vec<f64>,
    pixels: u64,
}

impl Cover {
    /// Rasterizes polygons, each a list of rings in pixel coordinates, by the even-odd rule. None if no pixel of a grid
    /// of `size` is covered.
    pub(super) fn of(polygons: &[Vec<Ring>], size: Size, coverage: Coverage) -> Option<Self> {
        let mut runs: Vec<(u32, Span, f64)> = Vec::new();
        if coverage == Coverage::Fraction {
            by_fraction(polygons, size, &mut runs);
        } else {
            let mut whole = Vec::new();
            for rings in polygons {
                by_centre(rings, size, &mut whole);
                if coverage == Coverage::Touched {
                    by_touch(rings, size, &mut whole);
                }
            }
            whole.sort_unstable_by_key(|(row, span)| (*row, span.start, span.end));
            runs.extend(whole.into_iter().map(|(row, span)| (row, span, 1.0)));
        }
        let first_row = runs.first()?.0;
        let mut cover = Self {
            first_row,
            ends: Vec::new(),
            spans: Vec::new(),
            fractions: Vec::new(),
            pixels: 0,
        };
        let mut row = first_row;
        let mut start = 0;
        for (at, span, fraction) in runs {
            while row < at {
                start = cover.spans.len();
                cover.ends.push(start);
                row += 1;
            }
            if coverage == Coverage::Fraction {
                cover.spans.push(span);
                cover.fractions.push(fraction);
                continue;
            }
            match cover
                .spans
                .get_mut(start..)
                .and_then(|spans| spans.last_mut())
            {
                Some(last) if last.end >= span.start => last.end = last.end.max(span.end),
                _ => cover.spans.push(span),
            }
        }
        cover.ends.push(cover.spans.len());
        cover.pixels = cover
            .spans
            .iter()
            .map(|span| u64::from(span.end - span.start))
            .sum();
        Some(cover)
    }

    /// Returns how many pixels there are.
    pub(super) fn pixels(&self) -> u64 {
        self.pixels
    }

    /// Returns the bytes in memory.
    pub(super) fn bytes(&self) -> u64 {
        let spans = self.spans.len() * size_of::<Span>() + self.fractions.len() * size_of::<f64>();
        (self.ends.len() * size_of::<usize>() + spans) as u64
    }

    /// Returns each row with its spans.
    pub(super) fn rows(&self) -> impl Iterator<Item = (u32, &[Span])> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        (self.first_row..)
            .zip(starts.zip(&self.ends))
            .map(|(row, (start, &end))| (row, self.spans.get(start..end).unwrap_or_default()))
    }

    /// Returns the spans of a row, clipped to a window, and the covered fraction of each of their pixels.
    pub(in crate::apply) fn row_in(
        &self,
        row: u32,
        window: &Window,
    ) -> impl Iterator<Item = (Span, f64)> {
        let index = row.checked_sub(self.first_row).map(|index| index as usize);
        let end = |index: usize| self.ends.get(index).copied();
        let range = index.and_then(|index| {
            let start = index.checked_sub(1).map_or(Some(0), end)?;
            Some(start..end(index)?)
        });
        let range = range.unwrap_or(0..0);
        let fractions = self.fractions.get(range.clone()).unwrap_or_default();
        let fractions = fractions.iter().copied().chain(std::iter::repeat(1.0));
        let (left, right) = (window.col, window.col.saturating_add(window.width));
        let cut = move |span: &Span| Span {
            start: span.start.max(left),
            end: span.end.min(right),
        };
        let spans = self.spans.get(range).unwrap_or_default().iter().map(cut);
        spans
            .zip(fractions)
            .filter(|(span, _)| span.start < span.end)
    }
}

/// Adds the spans of pixels whose centres are inside by the even-odd rule (a scanline through each row's centres).
fn by_centre(rings: &[Ring], size: Size, runs: &mut Vec<(u32, Span)>) {
    let mut crossings: Vec<(u32, f64)> = Vec::new();
    for (mut from, mut to) in rings.iter().flat_map(sides) {
        (from[1], to[1]) = (centred(from[1]), centred(to[1]));
        // Each side is taken downwards, so that both polygons of a common side compute the same crossings.
        let ([x0, y0], [x1, y1]) = if from[1] <= to[1] {
            (from, to)
        } else {
            (to, from)
        };
        for row in whole_up(y0 - 0.5, size.height)..whole_up(y1 - 0.5, size.height) {
            let y = f64::from(row) + 0.5;
            if y0 <= y && y < y1 {
                crossings.push((row, centred(x0 + (y - y0) * (x1 - x0) / (y1 - y0))));
            }
        }
    }
    crossings.sort_unstable_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
    let (pairs, _) = crossings.as_chunks::<2>();
    for &[(row, left), (_, right)] in pairs {
        push(
            runs,
            row,
            whole(left + 0.5, size.width),
            whole(right + 0.5, size.width),
        );
    }
}

/// Returns a pixel's centre for a number within the tolerance of it.
fn centred(number: f64) -> f64 {
    let centre = number.floor() + 0.5;
    if (number - centre).abs() < CENTRE {
        centre
    } else {
        number
    }
}

/// Adds the spans of pixels that a side crosses.
fn by_touch(rings: &[Ring], size: Size, runs: &mut Vec<(u32, Span)>) {
    let before = runs.len();
    for (from, to) in rings.iter().flat_map(sides) {
        let ([x0, y0], [x1, y1]) = if from[1] <= to[1] {
            (from, to)
        } else {
            (to, from)
        };
        for row in whole(y0 + EDGE, size.height)..whole_up(y1 - EDGE, size.height) {
            let (top, bottom) = (f64::from(row).max(y0), (f64::from(row) + 1.0).min(y1));
            let at = |y: f64| {
                let x = x0 + (y - y0) * (x1 - x0) / (y1 - y0);
                x.max(x0.min(x1)).min(x0.max(x1))
            };
            let (a, b) = match y1 > y0 {
                true => (at(top), at(bottom)),
                false => (x0, x1),
            };
            let start = whole(a.min(b) + EDGE, size.width);
            push(runs, row, start, whole_up(a.max(b) - EDGE, size.width));
        }
    }
    if runs.len() == before {
        by_middle(rings, size, runs);
    }
}

/// Adds the pixel of a polygon that is smaller than the tolerance, and lies at an edge.
fn by_middle(rings: &[Ring], size: Size, runs: &mut Vec<(u32, Span)>) {
    let middle = |axis: usize| {
        let all = rings.iter().flatten().filter_map(|point| point.get(axis));
        let (least, most) = all.fold((f64::MAX, f64::MIN), |(least, most), &number| {
            (least.min(number), most.max(number))
        });
        (most > least && most - least < 1.0).then(|| f64::midpoint(least, most))
    };
    let (Some(x), Some(y)) = (middle(0), middle(1)) else {
        return;
    };
    if x < 0.0 || y < 0.0 {
        return;
    }
    let (col, row) = (whole(x, size.width), whole(y, size.height));
    if row < size.height {
        push(runs, row, col, col.saturating_add(1).min(size.width));
    }
}

fn push(runs: &mut Vec<(u32, Span)>, row: u32, start: u32, end: u32) {
    if start < end {
        runs.push((row, Span { start, end }));
    }
}

pub(super) fn sides(ring: &Ring) -> impl Iterator<Item = ([f64; 2], [f64; 2])> {
    let next = ring.iter().skip(1).chain(ring.first());
    ring.iter().copied().zip(next.copied())
}

/// Returns the floor, clamped to 0 to `most`.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "cut to the range before; what is no number becomes 0"
)]
pub(super) fn whole(number: f64, most: u32) -> u32 {
    number.floor().clamp(0.0, f64::from(most)) as u32
}

/// Returns the ceiling, clamped to 0 to `most`.
pub(super) fn whole_up(number: f64, most: u32) -> u32 {
    whole(number.ceil(), most)
}

#[cfg(test)]
mod tests {
    use ::geo::{Area, Contains, Distance, Euclidean, LineString, Point, Polygon};
    use proptest::prelude::*;

    use super::*;

    const SIZE: Size = Size {
        width: 24,
        height: 20,
    };

    fn pixels(polygons: &[Vec<Ring>], coverage: Coverage) -> Vec<[u32; 2]> {
        let Some(cover) = Cover::of(polygons, SIZE, coverage) else {
            return Vec::new();
        };
        let found: Vec<[u32; 2]> = cover
            .rows()
            .flat_map(|(row, spans)| {
                let cols = spans.iter().flat_map(|span| span.start..span.end);
                cols.map(move |col| [col, row]).collect::<Vec<_>>()
            })
            .collect();
        assert_eq!(cover.pixels(), found.len() as u64);
        // Row by row and clipped, it is the same.
        let window = Window {
            col: 3,
            row: 0,
            width: 10,
            height: 20,
        };
        let cut: Vec<[u32; 2]> = (0..SIZE.height)
            .flat_map(|row| {
                let spans = cover.row_in(row, &window);
                spans.flat_map(move |(span, _)| (span.start..span.end).map(move |col| [col, row]))
            })
            .collect();
        let inside = |pixel: &&[u32; 2]| (3..13).contains(&pixel[0]);
        assert!(cut.iter().eq(found.iter().filter(inside)));
        found
    }

    fn square(left: f64, top: f64, right: f64, bottom: f64) -> Ring {
        vec![[left, top], [right, top], [right, bottom], [left, bottom]]
    }

    #[test]
    fn a_pixel_is_of_the_polygon_that_holds_its_centre() {
        let found = pixels(&[vec![square(1.4, 1.4, 3.6, 2.6)]], Coverage::Centre);
        assert_eq!(found, [[1, 1], [2, 1], [3, 1], [1, 2], [2, 2], [3, 2]]);
        let small = vec![square(1.6, 1.6, 2.4, 2.4)];
        assert_eq!(
            pixels(std::slice::from_ref(&small), Coverage::Centre),
            [[0; 2]; 0]
        );
        let touched = pixels(&[small], Coverage::Touched);
        assert_eq!(touched, [[1, 1], [2, 1], [1, 2], [2, 2]]);
    }

    #[test]
    fn a_centre_on_a_common_side_is_of_one_polygon() {
        let (left, right) = (square(1.0, 1.0, 2.5, 4.0), square(2.5, 1.0, 5.0, 4.0));
        let (above, below) = (square(1.0, 1.0, 4.0, 2.5), square(1.0, 2.5, 4.0, 5.0));
        for (one, other) in [(left, right), (above, below)] {
            let mut both = pixels(&[vec![one]], Coverage::Centre);
            both.extend(pixels(&[vec![other]], Coverage::Centre));
            let all = both.len();
            both.sort_unstable();
            both.dedup();
            assert_eq!((both.len(), all), (12, 12));
        }
    }

    #[test]
    fn what_ends_at_the_edges_of_pixels_touches_no_more() {
        let aligned = vec![square(2.0, 3.0, 5.0, 6.0)];
        let noisy = vec![square(2.0 - 1e-8, 3.0 - 1e-8, 5.0 + 1e-8, 6.0 + 1e-8)];
        let expected = pixels(std::slice::from_ref(&aligned), Coverage::Centre);
        assert_eq!(expected.len(), 9);
        assert_eq!(pixels(&[aligned], Coverage::Touched), expected);
        assert_eq!(pixels(&[noisy], Coverage::Touched), expected);
    }

    #[test]
    fn parts_that_lie_over_each_other_count_once_and_holes_not_at_all() {
        let parts = [
            vec![square(1.0, 1.0, 4.0, 4.0)],
            vec![square(2.0, 2.0, 5.0, 5.0)],
        ];
        assert_eq!(pixels(&parts, Coverage::Centre).len(), 9 + 9 - 4);
        let holed = vec![square(1.0, 1.0, 7.0, 7.0), square(2.0, 2.0, 6.0, 6.0)];
        assert_eq!(pixels(&[holed], Coverage::Centre).len(), 36 - 16);
        let apart = [
            vec![square(1.0, 1.0, 3.0, 3.0)],
            vec![square(1.0, 8.0, 3.0, 9.0)],
        ];
        assert_eq!(pixels(&apart, Coverage::Centre).len(), 6);
    }

    #[test]
    fn what_lies_outside_is_cut_off() {
        let vast = vec![square(-1e9, -1e12, 1e9, 1e12)];
        assert_eq!(pixels(&[vast], Coverage::Touched).len(), 24 * 20);
        for outside in [
            square(-9.0, 2.0, -1.0, 4.0),
            square(24.0, 2.0, 30.0, 4.0),
            square(2.0, 20.0, 4.0, 30.0),
            square(2.0, -8.0, 4.0, 0.0),
            square(f64::NAN, f64::NAN, 4.0, f64::INFINITY),
            vec![],
        ] {
            for coverage in [Coverage::Centre, Coverage::Touched] {
                assert_eq!(
                    pixels(&[vec![outside.clone()]], coverage),
                    [[0; 2]; 0],
                    "{outside:?}"
                );
            }
        }
    }

    fn fractions(polygons: &[Vec<Ring>]) -> Vec<([u32; 2], f64)> {
        let Some(cover) = Cover::of(polygons, SIZE, Coverage::Fraction) else {
            return Vec::new();
        };
        let window = Window::whole(SIZE);
        let rows = (0..SIZE.height).flat_map(|row| {
            let spans = cover.row_in(row, &window);
            spans.flat_map(move |(span, fraction)| {
                (span.start..span.end).map(move |col| ([col, row], fraction))
            })
        });
        rows.collect()
    }

    #[test]
    fn a_fraction_is_the_area_of_a_pixel_that_is_covered() {
        let found = fractions(&[vec![square(1.5, 1.25, 3.0, 2.0)]]);
        assert_eq!(found, [([1, 1], 0.375), ([2, 1], 0.75)]);
        let triangle = vec![vec![[4.0, 4.0], [6.0, 4.0], [4.0, 6.0]]];
        let found = fractions(&[triangle]);
        assert_eq!(found, [([4, 4], 1.0), ([5, 4], 0.5), ([4, 5], 0.5)]);
        // Holes are none of it, what lies over each other counts once, and rings may cross themselves.
        let holed = vec![square(1.0, 1.0, 4.0, 4.0), square(1.5, 1.0, 4.0, 4.0)];
        let expected = [1, 2, 3].map(|row| ([1, row], 0.5));
        assert_eq!(fractions(&[holed]), expected);
        let parts = [
            vec![square(1.0, 1.0, 1.75, 2.0)],
            vec![square(1.25, 1.0, 2.0, 2.0)],
        ];
        assert_eq!(fractions(&parts), [([1, 1], 1.0)]);
        let bow = vec![vec![[1.0, 1.0], [2.0, 2.0], [2.0, 1.0], [1.0, 2.0]]];
        assert_eq!(fractions(&[bow]), [([1, 1], 0.5)]);
        // Beyond the image on every side.
        let vast = fractions(&[vec![square(-7.0, -9.5, 99.0, 99.0)]]);
        assert!(vast.len() == 24 * 20 && vast.iter().all(|(_, fraction)| *fraction == 1.0));
        assert_eq!(fractions(&[vec![square(-5.0, 2.0, -1.0, 4.0)]]), []);
        assert_eq!(fractions(&[vec![square(24.0, 2.0, 25.0, 4.0)]]), []);
    }

    #[test]
    fn pixels_that_are_met_in_a_corner_are_not_touched() {
        let diamond = vec![[5.0, 2.0], [8.0, 5.0], [5.0, 8.0], [2.0, 5.0]];
        let found = pixels(&[vec![diamond]], Coverage::Touched);
        assert_eq!(found.len(), 24);
    }

    #[test]
    fn what_is_drawn_along_edges_or_centres_has_as_many_pixels_however_it_was_rounded() {
        for off in [0.0, 4e-4, -4e-4] {
            let less = off / 1e3;
            let shifted = square(2.5 + less, 3.5 - less, 12.5 - less, 13.5 + less);
            assert_eq!(
                pixels(&[vec![shifted]], Coverage::Centre).len(),
                100,
                "{off}"
            );
            let aligned = square(2.0 - off, 3.0 + off, 12.0 + off, 13.0 - off);
            assert_eq!(
                pixels(&[vec![aligned]], Coverage::Touched).len(),
                100,
                "{off}"
            );
        }
        let tiny = square(3.9996, 2.9996, 3.9999, 2.9999);
        assert_eq!(pixels(&[vec![tiny]], Coverage::Touched), [[3, 2]]);
    }

    proptest! {
        /// Zones of `tests/data/sample` compare each pixel with exactextract's.
        #[test]
        fn fractions_add_up_to_the_area(
            outer in prop::collection::vec((0.0..24.0_f64, 0.0..20.0_f64), 3..4),
        ) {
            let ring = outer.iter().map(|&(x, y)| [x, y]).collect::<Ring>();
            let area = Polygon::new(LineString::from(outer), vec![]).unsigned_area();
            let found = fractions(&[vec![ring]]);
            prop_assert!(found.iter().all(|(_, fraction)| (0.0..=1.0).contains(fraction)));
            let sum: f64 = found.iter().map(|(_, fraction)| fraction).sum();
            prop_assert!((sum - area).abs() < 1e-5, "{} {}", sum, area);
        }

        /// Compared with point-in-polygon tests of the crate geo.
        #[test]
        fn centres_are_inside(
            outer in prop::collection::vec((-4.0..28.0_f64, -4.0..24.0_f64), 3..4),
            hole in prop::collection::vec((-4.0..28.0_f64, -4.0..24.0_f64), 3..4),
        ) {
            let ring = |points: &[(f64, f64)]| points.iter().map(|&(x, y)| [x, y]).collect::<Ring>();
            let polygon = |points: &[(f64, f64)]| {
                Polygon::new(LineString::from(points.to_vec()), vec![])
            };
            let found = pixels(&[vec![ring(&outer), ring(&hole)]], Coverage::Centre);
            let touched = pixels(&[vec![ring(&outer), ring(&hole)]], Coverage::Touched);
            let (outer, hole) = (polygon(&outer), polygon(&hole));
            let edges = [&outer, &hole].map(|polygon| polygon.exterior().clone());
            for row in 0..SIZE.height {
                for col in 0..SIZE.width {
                    let centre = Point::new(f64::from(col) + 0.5, f64::from(row) + 0.5);
                    // Within the tolerance of a side either is right.
                    let near = |edge: &LineString<f64>| Euclidean.distance(&centre, edge) < 4.0 * EDGE;
                    if edges.iter().any(near) {
                        continue;
                    }
                    // Inside exactly one of the two triangles (even-odd).
                    let expected = outer.contains(&centre) != hole.contains(&centre);
                    prop_assert_eq!(found.contains(&[col, row]), expected, "{} {}", col, row);
                    prop_assert!(!expected || touched.contains(&[col, row]));
                }
            }
        }
    }
}
