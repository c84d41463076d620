//! How much of each pixel a polygon covers: the exact area, as fractions of a pixel.
//!
//! Rows are cut at every corner, and where sides cross: between two cuts the sides stand beside each other, the
//! even-odd rule says between which of them is inside, and what lies right of a side within a pixel is a trapezoid.
//! Rings need not be valid, nor wound in any direction.

use crate::geo::{Ring, Size};

use super::cover::{Span, sides, whole, whole_up};

/// Fractions below this are digits that were lost, not pixels; as far from 1 they are 1.
const LEAST: f64 = 1e-7;
/// How far two sides may stand in each other, in pixels, before the row is cut where they cross.
const CROSSED: f64 = 1e-10;
/// How often a piece of a row is cut in two.
const MOST_CUTS: u32 = 24;

/// A side that goes down, of one of the polygons.
#[derive(Clone, Copy, Debug)]
struct Side {
    top: [f64; 2],
    bottom: [f64; 2],
    polygon: usize,
}

impl Side {
    fn at(&self, y: f64) -> f64 {
        let ([x0, y0], [x1, y1]) = (self.top, self.bottom);
        if y <= y0 {
            return x0;
        }
        if y >= y1 {
            return x1;
        }
        x0 + (y - y0) * (x1 - x0) / (y1 - y0)
    }
}

/// A piece of a side between two cuts.
#[derive(Clone, Copy, Debug)]
struct Piece {
    above: f64,
    below: f64,
    side: Side,
}

/// Adds the spans of pixels that polygons cover, and how much of each they cover: all of a long span alike.
pub(super) fn by_fraction(polygons: &[Vec<Ring>], size: Size, runs: &mut Vec<(u32, Span, f64)>) {
    let mut all: Vec<Side> = Vec::new();
    for (polygon, rings) in polygons.iter().enumerate() {
        for (from, to) in rings.iter().flat_map(sides) {
            let (top, bottom) = if from[1] <= to[1] {
                (from, to)
            } else {
                (to, from)
            };
            let is_there = top.iter().chain(&bottom).all(|number| number.is_finite());
            if is_there && top[1] < bottom[1] && bottom[1] > 0.0 && top[1] < f64::from(size.height)
            {
                all.push(Side {
                    top,
                    bottom,
                    polygon,
                });
            }
        }
    }
    all.sort_unstable_by(|a, b| a.top[1].total_cmp(&b.top[1]));
    let xs = all.iter().flat_map(|side| [side.top[0], side.bottom[0]]);
    let (left, right) = xs.fold((f64::MAX, f64::MIN), |(least, most), x| {
        (least.min(x), most.max(x))
    });
    let columns = whole(left, size.width)..whole_up(right, size.width);
    let Some(first) = all.first().map(|side| whole(side.top[1], size.height)) else {
        return;
    };
    let last = all.iter().map(|side| whole_up(side.bottom[1], size.height));
    let mut line = Line::new(columns.start, columns.end);
    let mut inside = vec![false; polygons.len()];
    let mut active: Vec<Side> = Vec::new();
    let mut coming = all.iter().copied().peekable();
    for row in first..last.max().unwrap_or(0) {
        let (top, bottom) = (f64::from(row), f64::from(row) + 1.0);
        active.retain(|side| side.bottom[1] > top);
        while let Some(side) = coming.next_if(|side| side.top[1] < bottom) {
            if side.bottom[1] > top {
                active.push(side);
            }
        }
        let ends = active
            .iter()
            .flat_map(|side| [side.top[1], side.bottom[1]])
            .filter(|y| (top..bottom).contains(y));
        let mut cuts: Vec<f64> = ends.chain([top, bottom]).collect();
        cuts.sort_unstable_by(f64::total_cmp);
        cuts.dedup();
        for (&above, &below) in cuts.iter().zip(cuts.iter().skip(1)) {
            let through = active
                .iter()
                .filter(|side| side.top[1] <= above && side.bottom[1] >= below);
            let pieces = through.copied().collect();
            slab(above, below, pieces, MOST_CUTS, &mut inside, &mut line);
        }
        line.take(row, runs);
    }
}

/// Adds what lies between sides that all go from `above` to `below`.
fn slab(above: f64, below: f64, sides: Vec<Side>, cuts: u32, inside: &mut [bool], line: &mut Line) {
    let mut pieces: Vec<Piece> = sides
        .iter()
        .map(|side| Piece {
            above: side.at(above),
            below: side.at(below),
            side: *side,
        })
        .collect();
    pieces.sort_unstable_by(|a, b| (a.above + a.below).total_cmp(&(b.above + b.below)));
    let pairs = pieces.iter().zip(pieces.iter().skip(1));
    // The first of two neighbours that stand the other way round at one end.
    let crossing = pairs
        .filter(|(a, b)| a.above > b.above + CROSSED || a.below > b.below + CROSSED)
        .map(|(a, b)| {
            let (top, bottom) = (b.above - a.above, b.below - a.below);
            above + (below - above) * (top / (top - bottom))
        })
        .find(|y| *y > above && *y < below);
    if let (Some(y), true) = (crossing, cuts > 0) {
        slab(above, y, sides.clone(), cuts - 1, inside, line);
        slab(y, below, sides, cuts - 1, inside, line);
        return;
    }
    inside.fill(false);
    let mut within = 0_usize;
    for piece in &pieces {
        let Some(inside) = inside.get_mut(piece.side.polygon) else {
            continue;
        };
        let before = within > 0;
        *inside = !*inside;
        within = if *inside { within + 1 } else { within - 1 };
        match (before, within > 0) {
            (false, true) => line.add(piece.above, piece.below, below - above),
            (true, false) => line.add(piece.above, piece.below, above - below),
            _ => {}
        }
    }
}

/// The covered areas of a row.
struct Line {
    start: u32,
    end: u32,
    /// What is covered in a pixel itself.
    part: Vec<f64>,
    /// What is covered in a pixel and all right of it.
    from_here: Vec<f64>,
}

impl Line {
    fn new(start: u32, end: u32) -> Self {
        let columns = end.saturating_sub(start) as usize;
        Self {
            start,
            end,
            part: vec![0.0; columns],
            from_here: vec![0.0; columns + 1],
        }
    }

    /// Adds the area right of a side from x `a` to x `b`, which is `height` tall: negative to take it away.
    fn add(&mut self, a: f64, b: f64, height: f64) {
        let (left, right) = (a.min(b), a.max(b));
        let (first, end) = (f64::from(self.start), f64::from(self.end));
        if left >= end {
            return;
        }
        let per_column = height / (right - left);
        if left < first {
            // What stands left of the first column covers it and all behind.
            let before = match right > first {
                true => (first - left) * per_column,
                false => height,
            };
            if let Some(all) = self.from_here.first_mut() {
                *all += before;
            }
        }
        let (from, to) = (left.max(first), right.min(end));
        if right <= left {
            if left >= first {
                self.add_in(left, left, height);
            }
            return;
        }
        let mut x = from;
        while x < to {
            let next = (x.floor() + 1.0).min(to);
            self.add_in(x, next, (next - x) * per_column);
            x = next;
        }
    }

    /// Adds the area right of a piece of a side within one column.
    fn add_in(&mut self, left: f64, right: f64, height: f64) {
        let column = whole(left, self.end);
        let index = column.saturating_sub(self.start) as usize;
        if let Some(part) = self.part.get_mut(index) {
            *part += height * (f64::from(column) + 1.0 - f64::midpoint(left, right));
        }
        if let Some(behind) = self.from_here.get_mut(index + 1) {
            *behind += height;
        }
    }

    /// Takes the row's fractions, and clears it.
    fn take(&mut self, row: u32, runs: &mut Vec<(u32, Span, f64)>) {
        let mut all = 0.0;
        let columns = self.start..self.end;
        for ((column, part), more) in columns.zip(&mut self.part).zip(&mut self.from_here) {
            all += *more;
            let fraction = all + *part;
            (*part, *more) = (0.0, 0.0);
            if fraction < LEAST {
                continue;
            }
            let fraction = if fraction > 1.0 - LEAST {
                1.0
            } else {
                fraction
            };
            match runs.last_mut() {
                Some((last, span, known))
                    if *last == row && span.end == column && *known == fraction =>
                {
                    span.end += 1;
                }
                _ => runs.push((
                    row,
                    Span {
                        start: column,
                        end: column + 1,
                    },
                    fraction,
                )),
            }
        }
        if let Some(more) = self.from_here.last_mut() {
            *more = 0.0;
        }
    }
}
