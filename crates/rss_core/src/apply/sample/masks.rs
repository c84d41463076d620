//! The masks of one image: read once, and warped onto the grid of each of its bands.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use futures::{StreamExt, TryStreamExt, stream};
use ndarray::{Array2, Array3, s};

use super::cells::{Cell, RowMajor, Tiles, pixels, shared};
use crate::{
    apply::{
        cube::ItemImage,
        source::{BandSource, Opened, SourceWindow},
    },
    error::{Error, ErrorKind, Result},
    geo::{GeoBox, Window},
    mask::{self, BandMask, Cleanup},
    raster::{Pixels, Sample, with_type},
    session::Session,
};

/// Concurrent reads of one image's masks.
const READS: usize = 16;

/// A mask that could not be opened or read, and its error.
pub(super) type Failed<'a> = (&'a BandSource, Error);

/// The reads that the masks of an image need.
#[derive(Debug)]
pub(super) struct MaskPlan<'a> {
    image: &'a ItemImage,
    veils: Vec<Arc<Veil>>,
    reads: Vec<Read>,
}

#[derive(Debug)]
struct Read {
    /// The index of the mask.
    mask: usize,
    opened: Arc<Opened>,
    window: Window,
}

/// A level of a mask, by the mask's index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Layer {
    mask: usize,
    level: usize,
}

/// The masks of an image on the grid of some of its bands.
#[derive(Debug)]
pub(super) struct Veil {
    grid: GeoBox,
    masks: Vec<(Arc<Opened>, BandMask)>,
    cleanup: Cleanup,
}

/// Pixels of the masks: for each mask its parts, and their levels.
pub(super) type Parts = Arc<Vec<Vec<(usize, SourceWindow)>>>;

impl<'a> MaskPlan<'a> {
    /// Opens the masks of an image, and determines the tiles that the cells of its bands need. Grids must be distinct.
    pub(super) async fn of(
        session: &Session,
        image: &'a ItemImage,
        cleanup: Cleanup,
        grids: &[(GeoBox, Vec<&[Cell]>)],
    ) -> Result<Self, Failed<'a>> {
        let mut veils = Vec::new();
        let mut tiles: BTreeMap<Layer, (Arc<Opened>, BTreeSet<RowMajor>)> = BTreeMap::new();
        for (grid, bands) in grids {
            let mut veil = Veil {
                grid: grid.clone(),
                masks: Vec::new(),
                cleanup,
            };
            for (number, (source, mask)) in image.masks.iter().enumerate() {
                let failed = |err: Error| (source, err);
                let opened = Arc::new(source.open(session, grid).await.map_err(failed)?);
                let profile = opened.reader.profile();
                let size = profile.level_size(opened.level).map_err(failed)?;
                let all = Tiles::of(profile, size);
                let entry = tiles.entry(Layer {
                    mask: number,
                    level: opened.level,
                });
                let (_, needed) = entry.or_insert_with(|| (Arc::clone(&opened), BTreeSet::new()));
                for cell in bands.iter().copied().flatten() {
                    if let Some(window) = opened.window(&veil.seen(&cell.window)) {
                        needed.extend(all.under(window).map(RowMajor::from));
                    }
                }
                veil.masks.push((opened, mask.clone()));
            }
            veils.push(Arc::new(veil));
        }
        let mut reads = Vec::new();
        for (Layer { mask, level }, (opened, needed)) in tiles {
            let (source, _) = match image.masks.get(mask) {
                Some(found) => found,
                None => continue,
            };
            let profile = opened.reader.profile();
            let size = profile.level_size(level).map_err(|err| (source, err))?;
            let windows = Tiles::of(profile, size).runs(&needed).into_iter();
            reads.extend(windows.map(|window| Read {
                mask,
                opened: Arc::clone(&opened),
                window,
            }));
        }
        Ok(Self {
            image,
            veils,
            reads,
        })
    }

    /// Returns the bytes of all reads.
    pub(super) fn bytes(&self) -> u64 {
        let each = self.reads.iter();
        each.map(|read| read.opened.bytes(&read.window)).sum()
    }

    /// Returns the masks on a grid.
    pub(super) fn on(&self, grid: &GeoBox) -> Option<&Arc<Veil>> {
        self.veils.iter().find(|veil| veil.grid == *grid)
    }

    /// Reads the needed tiles, each once.
    pub(super) async fn read(&self) -> Result<Parts, Failed<'a>> {
        let read = |read: &'_ Read| {
            let (mask, level, window) = (read.mask, read.opened.level, read.window);
            let opened = Arc::clone(&read.opened);
            async move {
                let part = opened.read(window).await.map_err(|err| (mask, err))?;
                Ok::<_, (usize, Error)>((mask, level, part))
            }
        };
        let reading: Vec<_> = self.reads.iter().map(read).collect();
        let found: Result<Vec<_>, (usize, Error)> =
            stream::iter(reading).buffered(READS).try_collect().await;
        let mut parts: Vec<Vec<(usize, SourceWindow)>> = Vec::new();
        parts.resize_with(self.image.masks.len(), Vec::new);
        match found {
            Ok(found) => {
                for (mask, level, part) in found {
                    if let Some(parts) = parts.get_mut(mask) {
                        parts.push((level, part));
                    }
                }
                Ok(Arc::new(parts))
            }
            Err((mask, err)) => match self.image.masks.get(mask) {
                Some((source, _)) => Err((source, err)),
                // Each read has the index of a mask of this list.
                None => Ok(Arc::new(parts)),
            },
        }
    }
}

impl Veil {
    /// Returns a window with the halo that mask cleanup (opening, dilation) needs.
    fn seen(&self, window: &Window) -> Window {
        let halo = u32::try_from(self.cleanup.halo()).unwrap_or(u32::MAX);
        let size = self.grid.size;
        let (col, row) = (
            window.col.saturating_sub(halo),
            window.row.saturating_sub(halo),
        );
        let end = |start: u32, length: u32, most: u32| {
            start.saturating_add(length).saturating_add(halo).min(most)
        };
        Window {
            col,
            row,
            width: end(window.col, window.width, size.width).saturating_sub(col),
            height: end(window.row, window.height, size.height).saturating_sub(row),
        }
    }

    /// Returns the peak bytes of computing the mask of a window.
    pub(super) fn bytes(&self, window: &Window) -> u64 {
        // Verdicts and booleans of one byte each, on the mask's grid and on this one, before and after cleanup.
        8 * pixels(&self.seen(window))
    }

    /// Returns which pixels (y, x) of a window are masked. Pixels where a mask has no data are masked as well.
    pub(super) fn left_out(&self, window: &Window, parts: &Parts) -> Result<Array2<bool>> {
        let seen = self.seen(window);
        let shape = (seen.height as usize, seen.width as usize);
        let verdicts = self
            .masks
            .iter()
            .zip(parts.iter())
            .map(|((opened, mask), parts)| {
                let part = match opened.window(&seen) {
                    Some(window) => Some(cut(parts, opened.level, window)?),
                    None => None,
                };
                opened.verdicts(mask, part.as_ref(), &seen)
            });
        let left_out = mask::left_out(shape, verdicts, self.cleanup)?;
        let (row, col) = (
            (window.row - seen.row) as usize,
            (window.col - seen.col) as usize,
        );
        let rows = row..row + window.height as usize;
        let cols = col..col + window.width as usize;
        Ok(left_out.slice_move(s![rows, cols]))
    }
}

/// Assembles a window from parts that cover it.
fn cut(parts: &[(usize, SourceWindow)], level: usize, window: Window) -> Result<SourceWindow> {
    let parts = parts
        .iter()
        .filter(|(of, _)| *of == level)
        .map(|(_, part)| part);
    let lost = || Error::new(ErrorKind::InvalidInput, "no part of the mask was read");
    let dtype = parts.clone().next().ok_or_else(lost)?.pixels.dtype();
    let shape = Pixels::check_size(dtype, 1, window.size())?;
    let pixels = with_type!(dtype, T => {
        let mut whole = Array3::<T>::zeros(shape);
        for part in parts {
            let (Some(view), Some(both)) = (part.pixels.view::<T>(), shared(&part.window, &window)) else {
                continue;
            };
            let slice_of = |of: &Window| {
                let (row, col) = ((both.row - of.row) as usize, (both.col - of.col) as usize);
                s![.., row..row + both.height as usize, col..col + both.width as usize]
            };
            whole.slice_mut(slice_of(&window)).assign(&view.slice(slice_of(&part.window)));
        }
        T::wrap(whole)
    });
    Ok(SourceWindow {
        pixels: Arc::new(pixels),
        band: 0,
        window,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_put_together_of_its_parts() {
        let sample = |col: u32, row: u32| u8::try_from(row * 10 + col).unwrap();
        let part = |text: &str| {
            let window: Window = text.parse().unwrap();
            let shape = (1, window.height as usize, window.width as usize);
            let samples = Array3::from_shape_fn(shape, |(_, y, x)| {
                sample(window.col + x as u32, window.row + y as u32)
            });
            SourceWindow {
                pixels: Arc::new(u8::wrap(samples)),
                band: 0,
                window,
            }
        };
        let of_other_level = (1, part("0,0,1,1"));
        let parts = [
            of_other_level,
            (0, part("0,0,8,4")),
            (0, part("0,4,4,4")),
            (0, part("4,4,4,4")),
        ];
        let window: Window = "2,3,5,3".parse().unwrap();
        let made = cut(&parts, 0, window).unwrap();
        let expected =
            Array3::from_shape_fn((1, 3, 5), |(_, y, x)| sample(2 + x as u32, 3 + y as u32));
        assert_eq!(*made.pixels, u8::wrap(expected));
        assert!(cut(&parts, 2, window).is_err());
    }
}
