//! General warps, between grids that share no axes: those of different CRSs, or rotated ones.

use super::{
    kernel::{Area, CORNERS, Counts, Kernel, weights},
    mesh::{Line, Mesh, Patch},
    plane::{EDGE, Plane},
    quad::Quad,
    sample::{Cell, FRACTION, Real, Sum},
    tile::{Tile, beside, keep, put},
};
use crate::raster::Resampling;

/// The rows of a patch that are checked for nodata together: a nodata pixel makes only its strip slower.
const STRIP: u32 = 64;

/// Resamples a tile by nearest, and returns the number of valid pixels.
pub(super) fn nearest<T: Cell>(mesh: &Mesh, plane: &Plane<'_, T>, mut tile: Tile<'_, T>) -> usize {
    let mut count = 0;
    for patch in mesh.patches(&tile.window) {
        mesh.walk(&patch, [[0.5; 2]], |col, row, [line]| {
            let out = tile.run(col, row, line.count);
            count += match Fixed::of(&line, EDGE, plane) {
                // The fixed-point copy checks nodata, but no mask.
                Some(fixed) if plane.mask.is_none() => fixed.copy(plane, out),
                _ => put(
                    out,
                    (0..line.count).map(|i| plane.at(line.at(line.skip + i))),
                ),
            };
        });
    }
    count
}

/// Resamples a tile by bilinear or cubic, and returns the number of valid pixels.
pub(super) fn linear<T: Real>(
    kernel: &Kernel,
    mesh: &Mesh,
    plane: &Plane<'_, T>,
    mut tile: Tile<'_, T>,
) -> usize {
    let mut count = 0;
    for patch in mesh.patches(&tile.window) {
        for patch in patch.strips(STRIP) {
            // `run` has the result as a constant, which removes the nodata checks from its inner loop.
            let is_whole = is_whole(kernel, mesh, plane, &patch);
            mesh.walk(&patch, [[0.5; 2]], |col, row, [line]| {
                let out = tile.run(col, row, line.count);
                let run = match (kernel.is_wide, kernel.resampling, is_whole) {
                    (true, ..) => points,
                    (_, Resampling::Cubic, true) => run::<T, 4, true>,
                    (_, Resampling::Cubic, false) => run::<T, 4, false>,
                    (_, _, true) => run::<T, 2, true>,
                    (_, _, false) => run::<T, 2, false>,
                };
                count += run(kernel, plane, &line, out);
            });
        }
    }
    count
}

/// Resamples a tile by a statistic of areas, and returns the number of valid pixels.
pub(super) fn area<T: Real>(
    kernel: &Kernel,
    mesh: &Mesh,
    plane: &Plane<'_, T>,
    mut tile: Tile<'_, T>,
) -> usize {
    if kernel.resampling == Resampling::Sum {
        return sum(mesh, plane, tile);
    }
    let mut count = 0;
    let mut counts = Counts::new();
    for patch in mesh.patches(&tile.window) {
        mesh.walk(&patch, [[0.0; 2], [1.0; 2]], |col, row, [from, to]| {
            let out = tile.run(col, row, from.count);
            let samples = (from.skip..from.skip + from.count).map(|i| {
                let area = Area::between(plane, from.at(i), to.at(i))?;
                let sample = kernel.area(plane, &area, &mut counts)?;
                Some(keep(sample, plane.nodata))
            });
            count += put(out, samples);
        });
    }
    count
}

/// Resamples a tile by the sum of what each target pixel covers, and returns the number of valid pixels. Adjacent
/// pixels share their corners, so that each source pixel is shared out once in all.
fn sum<T: Real>(mesh: &Mesh, plane: &Plane<'_, T>, mut tile: Tile<'_, T>) -> usize {
    let mut count = 0;
    for patch in mesh.patches(&tile.window) {
        mesh.walk(&patch, CORNERS, |col, row, [a, b, c, d]| {
            let out = tile.run(col, row, a.count);
            let samples = (a.skip..a.skip + a.count).map(|i| {
                let sum = Quad::of([a.at(i), b.at(i), d.at(i), c.at(i)]).sum(plane)?;
                Some(keep(T::of_f64(sum), plane.nodata))
            });
            count += put(out, samples);
        });
    }
    count
}

/// Returns true if all source pixels of a patch are valid.
fn is_whole<T: Real>(kernel: &Kernel, mesh: &Mesh, plane: &Plane<'_, T>, patch: &Patch) -> bool {
    let Some([min, max]) = mesh.bounds(patch, kernel.offsets()) else {
        return false;
    };
    let span = |axis: usize, length| kernel.span(axis, min[axis], max[axis], length);
    match (span(0, plane.size.width), span(1, plane.size.height)) {
        (Some(cols), Some(rows)) => plane.is_whole(cols, rows),
        _ => false,
    }
}

/// Computes the pixels of a line one by one, and returns the number of valid ones.
fn points<T: Real>(kernel: &Kernel, plane: &Plane<'_, T>, line: &Line, out: &mut [T]) -> usize {
    let samples = (line.skip..line.skip + line.count).map(|i| {
        let value = kernel.point(plane, line.at(i))?;
        Some(keep(T::of_f64(value), plane.nodata))
    });
    put(out, samples)
}

/// Computes the pixels of a line from N x N taps each; those with a missing tap as [`points`] does.
fn run<T: Real, const N: usize, const WHOLE: bool>(
    kernel: &Kernel,
    plane: &Plane<'_, T>,
    line: &Line,
    out: &mut [T],
) -> usize {
    // Cubic starts one tap before the pixel centre at or before the position, bilinear at it.
    let before = if N > 2 { 1.0 } else { 0.0 };
    let fixed = match Fixed::of(line, -0.5 - before, plane) {
        // `Block::sum` checks samples but no mask; `points` checks both.
        Some(fixed) if WHOLE || plane.mask.is_none() => fixed,
        _ => return points(kernel, plane, line, out),
    };
    let mut block = Block::<T::Sum, N>::new();
    let mut count = 0;
    for (first, out) in (line.skip..).step_by(BLOCK).zip(out.chunks_mut(BLOCK)) {
        block.find(&fixed, first);
        let missing = block.sum::<T, WHOLE>(plane, out.len());
        if missing == 0 {
            block.put(plane, out);
            count += out.len();
            continue;
        }
        for ((i, slot), value) in (0..).zip(out).zip(block.values) {
            let sample = if missing & 1 << i == 0 {
                value.sample()
            } else {
                match kernel.point(plane, line.at(first + i)) {
                    Some(value) => T::of_f64(value),
                    None => continue,
                }
            };
            *slot = keep(sample, plane.nodata);
            count += 1;
        }
    }
    count
}

/// How many pixels are computed together, so that the compiler emits SIMD instructions; as many as [`Block::sum`]
/// has bits for.
const BLOCK: usize = 64;

/// Pixels computed from N x N taps each, in steps over arrays.
struct Block<S, const N: usize> {
    /// The first column and row of each pixel's taps, in the window.
    cols: [i32; BLOCK],
    rows: [i32; BLOCK],
    /// The weights of its taps along columns and rows.
    along: [[S; BLOCK]; N],
    down: [[S; BLOCK]; N],
    /// The weighted sums of the columns of its taps.
    sums: [[S; N]; BLOCK],
    values: [S; BLOCK],
}

impl<S: Sum, const N: usize> Block<S, N> {
    fn new() -> Self {
        Self {
            cols: [0; BLOCK],
            rows: [0; BLOCK],
            along: [[S::ZERO; BLOCK]; N],
            down: [[S::ZERO; BLOCK]; N],
            sums: [[S::ZERO; N]; BLOCK],
            values: [S::ZERO; BLOCK],
        }
    }

    /// Finds the taps and weights of the pixels from `first` on, counted from the line's first.
    fn find(&mut self, fixed: &Fixed, first: u32) {
        let mut parts = [[S::ZERO; BLOCK]; 2];
        for (axis, pixels) in [&mut self.cols, &mut self.rows].into_iter().enumerate() {
            let start = fixed.start[axis] + i64::from(first) * fixed.step[axis];
            for ((i, pixel), part) in (0..).zip(pixels).zip(&mut parts[axis]) {
                let position = start.wrapping_add(i * fixed.step[axis]);
                *pixel = (position >> FRACTION) as i32;
                *part = S::fraction(position);
            }
        }
        for (parts, weighted) in parts.iter().zip([&mut self.along, &mut self.down]) {
            for (i, part) in parts.iter().enumerate() {
                for (all, weight) in weighted.iter_mut().zip(weights::<S, N>(*part)) {
                    all[i] = weight;
                }
            }
        }
    }

    /// Computes the first `count` pixels. Returns a bit mask of those with a tap outside the window or without
    /// data.
    fn sum<T: Real<Sum = S>, const WHOLE: bool>(
        &mut self,
        plane: &Plane<'_, T>,
        count: usize,
    ) -> u64 {
        let none = [T::of_f64(0.0); N];
        let mut missing = 0;
        let taps_and_sums = self.cols.iter().zip(&self.rows).zip(&mut self.sums);
        for (i, ((&col, &row), sums)) in taps_and_sums.take(count).enumerate() {
            let rows = usize::try_from(row)
                .ok()
                .and_then(|row| plane.rows.get(row..)?.first_chunk::<N>());
            // A negative column becomes one outside the window.
            let col = usize::try_from(col).unwrap_or(usize::MAX);
            let (Some(rows), true) = (rows, col < plane.window.width as usize) else {
                missing |= 1 << i;
                continue;
            };
            let mut is_whole = true;
            // All taps are found before they are summed, so that the sums of four can be vectorised.
            let taps: [&[T; N]; N] = std::array::from_fn(|row| {
                let taps = rows[row].get(col..).and_then(|row| row.first_chunk());
                is_whole &= taps.is_some();
                taps.unwrap_or(&none)
            });
            let mut total = [S::ZERO; N];
            for (taps, down) in taps.iter().zip(&self.down) {
                for (sum, &sample) in total.iter_mut().zip(*taps) {
                    *sum += S::of_sample(sample) * down[i];
                }
            }
            *sums = total;
            if !WHOLE {
                for sample in taps.iter().flat_map(|taps| **taps) {
                    is_whole &= plane.is_data(sample);
                }
            }
            missing |= u64::from(!is_whole) << i;
        }
        for (i, (value, sums)) in self.values.iter_mut().zip(&self.sums).enumerate() {
            let mut total = S::ZERO;
            for (&sum, along) in sums.iter().zip(&self.along) {
                total += sum * along[i];
            }
            *value = total;
        }
        missing
    }

    /// Rounds the values and writes them.
    fn put<T: Real<Sum = S>>(&self, plane: &Plane<'_, T>, out: &mut [T]) {
        for (slot, value) in out.iter_mut().zip(&self.values) {
            *slot = value.sample();
        }
        beside(out, plane.nodata);
    }
}

/// Positions along a line in fixed point, with [`FRACTION`] bits of a pixel, counted from a window's first pixel:
/// the pixel and the fraction in it are a shift and a mask, without rounding a float.
struct Fixed {
    start: [i64; 2],
    step: [i64; 2],
    skip: u32,
}

impl Fixed {
    /// Returns the positions of a line, shifted by `moved` pixels; none if they do not fit the fixed point.
    fn of<T>(line: &Line, moved: f64, plane: &Plane<'_, T>) -> Option<Self> {
        const ONE: f64 = (1_i64 << FRACTION) as f64;
        /// The largest start and length in pixels: their sum takes 22 of the 23 bits above the fraction.
        const FAR: f64 = (1 << 21) as f64;
        let end = f64::from(line.skip + line.count);
        let along = |axis: usize, first: u32| {
            let start = line.start[axis] + moved - f64::from(first);
            let step = line.step[axis];
            #[expect(clippy::cast_possible_truncation, reason = "within 62 bits")]
            let fixed = |pixels: f64| (pixels * ONE).floor() as i64;
            let is_near = start.abs() < FAR && step.abs() * end < FAR;
            is_near.then(|| [fixed(start), fixed(step)])
        };
        let [x, x_step] = along(0, plane.window.col)?;
        let [y, y_step] = along(1, plane.window.row)?;
        Some(Self {
            start: [x, y],
            step: [x_step, y_step],
            skip: line.skip,
        })
    }

    /// Returns the positions, column and row, of the pixels from the first that belongs to the patch, without end.
    #[inline(always)]
    fn positions(&self) -> impl Iterator<Item = (i64, i64)> {
        let skip = i64::from(self.skip);
        let at = |axis: usize| self.start[axis] + skip * self.step[axis];
        let (mut x, mut y) = (at(0), at(1));
        let [along, down] = self.step;
        std::iter::repeat_with(move || {
            let position = (x, y);
            // The step after the last pixel may overflow.
            x = x.wrapping_add(along);
            y = y.wrapping_add(down);
            position
        })
    }

    /// Writes the samples that contain the positions, and returns the number of valid ones.
    fn copy<T: Cell>(&self, plane: &Plane<'_, T>, out: &mut [T]) -> usize {
        let mut count = 0;
        for ((x, y), slot) in self.positions().zip(out) {
            let sample = usize::try_from(y >> FRACTION)
                .ok()
                .zip(usize::try_from(x >> FRACTION).ok())
                .and_then(|(row, col)| plane.rows.get(row)?.get(col));
            if let Some(&sample) = sample
                && plane.is_data(sample)
            {
                *slot = sample;
                count += 1;
            }
        }
        count
    }
}
