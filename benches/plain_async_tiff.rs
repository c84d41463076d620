//! The peer of the COG reader: a program over the crate `async-tiff` 0.4, as its user writes it.
//!
//! Headers come through its read-ahead cache, a window's tiles through one `fetch_tiles`, which merges
//! neighbours and asks for the rest side by side; tiles are decoded on threads, as the crate's own bench
//! does, by the decoders it comes with.

use std::sync::Arc;

use anyhow::{Context, Result, bail};
use async_tiff::{
    Array, DataType, ImageFileDirectory, TypedArray,
    decoder::DecoderRegistry,
    metadata::{TiffMetadataReader, cache::ReadaheadMetadataCache},
    reader::ObjectReader,
};
use ndarray::{Array3, ArrayView3, ArrayViewMut3, Axis, s};
use object_store::{ObjectStore, path::Path as Key};
use rayon::prelude::*;
use rss_core::{Pixels, Window};

/// A store, the threads that decode and the crate's decoders.
#[derive(Clone, Debug)]
pub(crate) struct Plain {
    store: Arc<dyn ObjectStore>,
    pool: Arc<rayon::ThreadPool>,
    decoders: Arc<DecoderRegistry>,
}

impl Plain {
    /// Reads from a store, and decodes on so many threads.
    pub(crate) fn new(store: Arc<dyn ObjectStore>, threads: usize) -> Result<Self> {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        Ok(Self {
            store,
            pool: Arc::new(pool?),
            decoders: Arc::default(),
        })
    }

    /// Opens a file: reads all its headers.
    pub(crate) async fn open(&self, key: &Key) -> Result<PlainFile> {
        let reader = ObjectReader::new(Arc::clone(&self.store), key.clone());
        let cache = ReadaheadMetadataCache::new(reader.clone());
        let mut metadata = TiffMetadataReader::try_open(&cache).await?;
        let mut images = metadata.read_all_ifds(&cache).await?;
        Ok(PlainFile {
            plain: self.clone(),
            reader,
            image: images.swap_remove(0),
        })
    }
}

/// An open file.
#[derive(Debug)]
pub(crate) struct PlainFile {
    plain: Plain,
    reader: ObjectReader,
    image: ImageFileDirectory,
}

impl PlainFile {
    /// Reads a window of full resolution; none is the whole.
    pub(crate) async fn read(&self, window: Option<Window>) -> Result<Pixels> {
        let image = &self.image;
        let window = window.unwrap_or(Window {
            col: 0,
            row: 0,
            width: image.image_width(),
            height: image.image_height(),
        });
        let width = image.tile_width().context("not tiled")?;
        let height = image.tile_height().context("not tiled")?;
        let grid = Grid {
            window,
            width,
            height,
        };
        let tiles = image.fetch_tiles(&grid.tiles(), &self.reader).await?;
        let (pool, decoders) = (
            Arc::clone(&self.plain.pool),
            Arc::clone(&self.plain.decoders),
        );
        // Decoding would keep a thread of the runtime from the network.
        tokio::task::spawn_blocking(move || {
            pool.install(|| {
                let arrays = tiles
                    .into_par_iter()
                    .map(|tile| tile.decode(&decoders))
                    .collect::<Result<Vec<_>, _>>()?;
                grid.assemble(arrays)
            })
        })
        .await?
    }
}

/// The tiles of a window.
#[derive(Clone, Copy)]
struct Grid {
    window: Window,
    width: u32,
    height: u32,
}

impl Grid {
    fn cols(&self) -> std::ops::RangeInclusive<u32> {
        let Window { col, width, .. } = self.window;
        col / self.width..=(col + width - 1) / self.width
    }

    fn rows(&self) -> std::ops::RangeInclusive<u32> {
        let Window { row, height, .. } = self.window;
        row / self.height..=(row + height - 1) / self.height
    }

    /// Returns column and row of each tile, row by row, as the crate wants them.
    fn tiles(&self) -> Vec<(usize, usize)> {
        self.rows()
            .flat_map(|row| self.cols().map(move |col| (col as usize, row as usize)))
            .collect()
    }

    fn assemble(&self, mut arrays: Vec<Array>) -> Result<Pixels> {
        let (width, height) = (self.window.width as usize, self.window.height as usize);
        if let [tile] = &arrays[..]
            && tile.shape() == [height, width, 1]
        {
            return whole(arrays.swap_remove(0));
        }
        let first = arrays.first().context("no tile")?;
        match first.data_type() {
            Some(DataType::Int16) => Ok(Pixels::I16(self.copy(&arrays, |data| match data {
                TypedArray::Int16(samples) => Some(samples),
                _ => None,
            })?)),
            Some(DataType::UInt8) => Ok(Pixels::U8(self.copy(&arrays, |data| match data {
                TypedArray::UInt8(samples) => Some(samples),
                _ => None,
            })?)),
            Some(DataType::Float32) => Ok(Pixels::F32(self.copy(&arrays, |data| match data {
                TypedArray::Float32(samples) => Some(samples),
                _ => None,
            })?)),
            other => bail!("samples are {other:?}"),
        }
    }

    fn copy<T: Copy + Default + Send + Sync>(
        &self,
        arrays: &[Array],
        samples: impl Fn(&TypedArray) -> Option<&Vec<T>> + Sync,
    ) -> Result<Array3<T>> {
        let bands = arrays.first().context("no tile")?.shape()[2];
        let (width, height) = (self.window.width as usize, self.window.height as usize);
        let mut out = Array3::from_elem((bands, height, width), T::default());
        let across = self.cols().count();
        let mut rest = out.view_mut();
        let mut rows = Vec::new();
        for (row, arrays) in self.rows().zip(arrays.chunks(across)) {
            let top = (row * self.height).max(self.window.row);
            let bottom = ((row + 1) * self.height).min(self.window.row + self.window.height);
            let (part, below) = rest.split_at(Axis(1), (bottom - top) as usize);
            rest = below;
            rows.push((part, (top - row * self.height) as usize, arrays));
        }
        rows.into_par_iter()
            .try_for_each(|(part, skip, arrays)| self.copy_row(part, skip, arrays, &samples))?;
        Ok(out)
    }

    /// Copies a row of tiles, from their row `skip` on.
    fn copy_row<T: Copy>(
        &self,
        mut part: ArrayViewMut3<'_, T>,
        skip: usize,
        arrays: &[Array],
        samples: &impl Fn(&TypedArray) -> Option<&Vec<T>>,
    ) -> Result<()> {
        let (left, right) = (self.window.col, self.window.col + self.window.width);
        let rows = part.len_of(Axis(1));
        for (col, array) in self.cols().zip(arrays) {
            let from = (col * self.width).max(left);
            let to = ((col + 1) * self.width).min(right);
            let start = (from - col * self.width) as usize;
            let tile = samples(array.data()).context("tiles of several types")?;
            let tile = ArrayView3::from_shape(array.shape(), tile)?;
            let tile = tile.slice(s![
                skip..skip + rows,
                start..start + (to - from) as usize,
                ..
            ]);
            part.slice_mut(s![.., .., (from - left) as usize..(to - left) as usize])
                .assign(&tile.permuted_axes([2, 0, 1]));
        }
        Ok(())
    }
}

/// Takes a tile of one band as it is, where the window is all of it.
fn whole(tile: Array) -> Result<Pixels> {
    let [height, width, _] = tile.shape();
    let shape = (1, height, width);
    Ok(match tile.into_inner().0 {
        TypedArray::Int16(samples) => Pixels::I16(Array3::from_shape_vec(shape, samples)?),
        TypedArray::UInt8(samples) => Pixels::U8(Array3::from_shape_vec(shape, samples)?),
        TypedArray::Float32(samples) => Pixels::F32(Array3::from_shape_vec(shape, samples)?),
        _ => bail!("samples of another type"),
    })
}
