//! Regions of an array of any rank: which chunks they touch, and copies between a chunk and a part of the
//! output. No IO.

use std::ops::Range;

use ndarray::{ArrayD, ArrayViewD, ArrayViewMutD, Axis, Ix2, IxDyn, Slice};

use crate::{
    error::{Error, ErrorKind, Result},
    raster::Sample,
};

/// A region of an array: its offset and shape, axis by axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Region {
    pub(crate) start: Vec<u64>,
    pub(crate) shape: Vec<u64>,
}

impl Region {
    /// Returns the region of ranges that lie in an array of a shape.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] if a range is empty or ends outside, or their number is not the rank.
    pub(crate) fn checked(ranges: &[Range<u64>], shape: &[u64]) -> Result<Self> {
        let invalid = |what: String| Err(Error::new(ErrorKind::InvalidInput, what));
        if ranges.len() != shape.len() {
            return invalid(format!(
                "{} ranges for an array of {} axes, expected one for each",
                ranges.len(),
                shape.len()
            ));
        }
        for (axis, (range, &length)) in ranges.iter().zip(shape).enumerate() {
            if range.start >= range.end || range.end > length {
                return invalid(format!(
                    "{}..{} of axis {axis} is empty or outside of its {length} samples",
                    range.start, range.end
                ));
            }
        }
        Ok(Self {
            start: ranges.iter().map(|range| range.start).collect(),
            shape: ranges.iter().map(|range| range.end - range.start).collect(),
        })
    }

    /// Returns the part of this region that lies in the chunk at `index` of a chunk grid, if there is one: its
    /// offset in the chunk, and its offset in the region.
    fn part(&self, index: &[u64], grid: &[u64]) -> Option<ChunkProjection> {
        let mut part = ChunkProjection {
            from: Vec::with_capacity(index.len()),
            to: Vec::with_capacity(index.len()),
            shape: Vec::with_capacity(index.len()),
        };
        for axis in 0..index.len() {
            let first = index.get(axis)?.checked_mul(*grid.get(axis)?)?;
            let start = *self.start.get(axis)?;
            let end = start + self.shape.get(axis)?;
            let low = first.max(start);
            let high = first.saturating_add(*grid.get(axis)?).min(end);
            if low >= high {
                return None;
            }
            part.from.push(to_memory(low - first)?);
            part.to.push(to_memory(low - start)?);
            part.shape.push(to_memory(high - low)?);
        }
        Some(part)
    }

    /// Returns every chunk of a grid that this region touches, the last axis fastest.
    pub(crate) fn parts(
        &self,
        grid: &[u64],
    ) -> impl Iterator<Item = (Vec<u64>, ChunkProjection)> + '_ {
        let grid = grid.to_vec();
        let first: Vec<u64> = self
            .start
            .iter()
            .zip(&grid)
            .map(|(start, chunk)| start / chunk.max(&1))
            .collect();
        let counts: Vec<u64> = (0..grid.len())
            .map(|axis| {
                let end = self.start[axis] + self.shape[axis];
                end.div_ceil(grid[axis].max(1)) - first[axis]
            })
            .collect();
        indices(counts).filter_map(move |mut index| {
            for (at, first) in index.iter_mut().zip(&first) {
                *at += first;
            }
            let part = self.part(&index, &grid)?;
            Some((index, part))
        })
    }
}

/// The part of a region that one chunk holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ChunkProjection {
    /// Where it starts in the chunk.
    pub(crate) from: Vec<usize>,
    /// Where it starts in the region.
    pub(crate) to: Vec<usize>,
    pub(crate) shape: Vec<usize>,
}

impl ChunkProjection {
    /// Returns the smallest range of samples of the chunk, in C order, that holds the part. Blosc decodes only the
    /// blocks of this range.
    pub(crate) fn span(&self, chunk: &[usize]) -> Range<usize> {
        let (mut first, mut last) = (0, 0);
        for ((from, shape), chunk) in self.from.iter().zip(&self.shape).zip(chunk) {
            first = first * chunk + from;
            last = last * chunk + from + shape - 1;
        }
        first..last + 1
    }
}

fn to_memory(number: u64) -> Option<usize> {
    usize::try_from(number).ok()
}

/// Returns every index below `counts`, the last axis fastest.
pub(crate) fn indices(counts: Vec<u64>) -> impl Iterator<Item = Vec<u64>> {
    // An axis of length 0 leaves no index at all.
    let none = counts.contains(&0);
    let mut next = (!none).then(|| vec![0; counts.len()]);
    std::iter::from_fn(move || {
        let now = next.clone()?;
        let index = next.as_mut()?;
        let carried = (0..counts.len()).rev().all(|axis| {
            index[axis] += 1;
            let over = index[axis] == counts[axis];
            if over {
                index[axis] = 0;
            }
            over
        });
        if carried {
            next = None;
        }
        Some(now)
    })
}

/// Returns how many samples a shape holds, if samples of `size` bytes fit memory: a Rust allocation holds at most
/// `isize::MAX` bytes.
pub(crate) fn length_of(shape: &[u64], size: usize) -> Result<usize> {
    shape
        .iter()
        .try_fold(size, |bytes, &length| {
            bytes.checked_mul(usize::try_from(length).ok()?)
        })
        .filter(|&bytes| isize::try_from(bytes).is_ok())
        .map(|bytes| bytes / size.max(1))
        .ok_or_else(|| {
            let shape: Vec<String> = shape.iter().map(u64::to_string).collect();
            Error::new(
                ErrorKind::InvalidInput,
                format!("{} samples do not fit memory", shape.join(" x ")),
            )
        })
}

/// Splits an output into one mutable view for each part, in the order of the parts, so that threads can decode
/// into them without a lock. The parts must not overlap, and form a grid along each axis.
pub(crate) fn cut<'a, T>(
    output: ArrayViewMutD<'a, T>,
    parts: &[&ChunkProjection],
) -> Result<Vec<ArrayViewMutD<'a, T>>> {
    let mut positions: Vec<Option<ArrayViewMutD<'a, T>>> = parts.iter().map(|_| None).collect();
    let all: Vec<usize> = (0..parts.len()).collect();
    split(output, parts, &all, 0, &mut positions);
    positions
        .into_iter()
        .collect::<Option<_>>()
        .ok_or_else(|| Error::new(ErrorKind::Corrupt, "two chunks overlap in the output"))
}

/// Splits along one axis, then each piece along the next.
fn split<'a, T>(
    mut view: ArrayViewMutD<'a, T>,
    parts: &[&ChunkProjection],
    chosen: &[usize],
    axis: usize,
    positions: &mut [Option<ArrayViewMutD<'a, T>>],
) {
    let Some(&first) = chosen.first() else { return };
    if axis == view.ndim() {
        positions[first] = Some(view);
        return;
    }
    let mut order = chosen.to_vec();
    order.sort_by_key(|&one| parts[one].to[axis]);
    let mut gone = 0;
    for group in order.chunk_by(|&a, &b| parts[a].to[axis] == parts[b].to[axis]) {
        let part = parts[group[0]];
        let (start, length) = (part.to[axis], part.shape[axis]);
        // Parts that overlap or end outside leave their views unset, which `cut` reports.
        if start < gone || start - gone + length > view.len_of(Axis(axis)) {
            return;
        }
        let (_, rest) = view.split_at(Axis(axis), start - gone);
        let (piece, rest) = rest.split_at(Axis(axis), length);
        view = rest;
        gone = start + length;
        split(piece, parts, group, axis + 1, positions);
    }
}

/// Copies a part of a chunk into its view of the output. `bytes` are the chunk's samples, little-endian, in C order.
pub(crate) fn paste<T: Sample>(
    position: ArrayViewMutD<'_, T>,
    bytes: &[u8],
    chunk: &[usize],
    from: &[usize],
) -> Result<()> {
    let short = || Error::new(ErrorKind::Corrupt, "a chunk is shorter than its shape");
    let mut strides = vec![1; chunk.len()];
    for axis in (1..chunk.len()).rev() {
        strides[axis - 1] = strides[axis] * chunk[axis];
    }
    let start: usize = from
        .iter()
        .zip(&strides)
        .map(|(at, stride)| at * stride)
        .sum();
    fill(position, bytes, start, &strides).ok_or_else(short)
}

fn fill<T: Sample>(
    mut position: ArrayViewMutD<'_, T>,
    bytes: &[u8],
    start: usize,
    strides: &[usize],
) -> Option<()> {
    let size = T::DTYPE.size();
    let row = |start: usize, length: usize| bytes.get(start * size..(start + length) * size);
    match (position.ndim(), strides) {
        (0, _) => {
            let mut one = [T::of_number(0.0)];
            T::get_le(&mut one, row(start, 1)?);
            position.fill(one[0]);
        }
        (1, _) => {
            let from = row(start, position.len())?;
            match position.as_slice_mut() {
                Some(samples) => T::get_le(samples, from),
                None => T::get_le(&mut position, from),
            }
        }
        // The last axis is contiguous in the chunk, so rows are copied as slices.
        (2, &[stride, _]) => {
            let mut rows = position.into_dimensionality::<Ix2>().ok()?;
            let width = rows.ncols();
            for (number, mut out) in rows.rows_mut().into_iter().enumerate() {
                let from = row(start + number * stride, width)?;
                match out.as_slice_mut() {
                    Some(samples) => T::get_le(samples, from),
                    None => T::get_le(&mut out, from),
                }
            }
        }
        (_, [stride, rest @ ..]) => {
            for (number, inner) in position.outer_iter_mut().enumerate() {
                fill(inner, bytes, start + number * stride, rest)?;
            }
        }
        _ => return None,
    }
    Some(())
}

/// Copies samples into a chunk's bytes, little-endian, in C order. Bytes beyond the samples, in a chunk at the
/// array's edge, stay as they are.
pub(crate) fn collect<T: Sample>(samples: &ArrayViewD<'_, T>, chunk: &[usize], bytes: &mut [u8]) {
    let size = T::DTYPE.size();
    if samples.shape() == chunk
        && let Some(slice) = samples.as_slice()
    {
        T::put_le(slice.iter(), bytes);
        return;
    }
    let mut strides = vec![size; chunk.len()];
    for axis in (1..chunk.len()).rev() {
        strides[axis - 1] = strides[axis] * chunk[axis];
    }
    put(samples, &strides, bytes);
}

fn put<T: Sample>(samples: &ArrayViewD<'_, T>, strides: &[usize], bytes: &mut [u8]) {
    match (samples.ndim(), strides) {
        (0 | 1, _) => {
            let end = samples.len() * T::DTYPE.size();
            let Some(bytes) = bytes.get_mut(..end) else {
                return;
            };
            match samples.as_slice() {
                Some(slice) => T::put_le(slice.iter(), bytes),
                None => T::put_le(samples.iter(), bytes),
            }
        }
        (_, [stride, rest @ ..]) => {
            for (inner, bytes) in samples.outer_iter().zip(bytes.chunks_mut(*stride)) {
                put(&inner, rest, bytes);
            }
        }
        _ => {}
    }
}

/// Returns the part of samples that lies in the chunk at `index` of a chunk grid with the same origin.
pub(crate) fn piece<'a, T>(
    samples: &'a ArrayViewD<'_, T>,
    index: &[u64],
    chunk: &[usize],
) -> ArrayViewD<'a, T> {
    samples.slice_each_axis(|axis| {
        let number = axis.axis.index();
        let length = samples.len_of(axis.axis);
        let start = usize::try_from(index[number]).unwrap_or(usize::MAX);
        let start = start.saturating_mul(chunk[number]).min(length);
        let end = start.saturating_add(chunk[number]).min(length);
        Slice::from(start..end)
    })
}

/// Makes an array of one value.
pub(crate) fn filled<T: Sample>(shape: &[u64], value: T) -> Result<ArrayD<T>> {
    length_of(shape, size_of::<T>())?;
    let shape: Vec<usize> = shape.iter().filter_map(|&n| to_memory(n)).collect();
    Ok(ArrayD::from_elem(IxDyn(&shape), value))
}
