//! The peer: the crate `async-tiff`, as its user writes it.
//!
//! Headers come through its read-ahead cache, a tile through its `fetch_tile`; it is decoded by the
//! decoders the crate comes with, on a pool of threads.

use std::sync::Arc;

use anyhow::{Context, Result, bail};
use async_tiff::{
    ImageFileDirectory, TypedArray,
    decoder::DecoderRegistry,
    metadata::{TiffMetadataReader, cache::ReadaheadMetadataCache},
    reader::ObjectReader,
};
use ndarray::Array3;
use object_store::{ObjectStore, aws::AmazonS3Builder, path::Path as Key};
use rss_core::Pixels;

/// A store, the threads that decode and the crate's decoders.
#[derive(Clone, Debug)]
pub(crate) struct Plain {
    store: Arc<dyn ObjectStore>,
    pool: Arc<rayon::ThreadPool>,
    decoders: Arc<DecoderRegistry>,
}

impl Plain {
    /// Reads from a bucket of a server, and decodes on so many threads.
    pub(crate) fn new(endpoint: &str, bucket: &str, threads: usize) -> Result<Self> {
        let store = AmazonS3Builder::new()
            .with_bucket_name(bucket)
            .with_region("us-west-2")
            .with_skip_signature(true)
            .with_endpoint(endpoint)
            .with_allow_http(true)
            .build()?;
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()?;
        Ok(Self {
            store: Arc::new(store),
            pool: Arc::new(pool),
            decoders: Arc::default(),
        })
    }

    /// Opens a file: reads all its headers.
    pub(crate) async fn open(&self, key: &str) -> Result<PlainFile> {
        let reader = ObjectReader::new(Arc::clone(&self.store), Key::parse(key)?);
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
    pub(crate) image: ImageFileDirectory,
}

impl PlainFile {
    /// Reads one tile of full resolution.
    pub(crate) async fn tile(&self, col: usize, row: usize) -> Result<Pixels> {
        let tile = self.image.fetch_tile(col, row, &self.reader).await?;
        let (pool, decoders) = (
            Arc::clone(&self.plain.pool),
            Arc::clone(&self.plain.decoders),
        );
        // Decoding would keep a thread of the runtime from the network.
        let decode = move || pool.install(|| tile.decode(&decoders));
        let array = tokio::task::spawn_blocking(decode).await??;
        let [height, width, bands] = array.shape();
        match array.into_inner().0 {
            TypedArray::Int16(samples) if bands == 1 => Ok(Pixels::I16(Array3::from_shape_vec(
                (1, height, width),
                samples,
            )?)),
            _ => bail!("not one band of int16"),
        }
    }

    /// Returns where the tiles or strips lie, row by row: offsets and lengths.
    pub(crate) fn stored(&self) -> Result<Vec<std::ops::Range<u64>>> {
        let image = &self.image;
        let offsets = image.tile_offsets().or(image.strip_offsets());
        let lengths = image.tile_byte_counts().or(image.strip_byte_counts());
        let (offsets, lengths) = offsets.zip(lengths).context("no tiles and no strips")?;
        Ok(offsets
            .iter()
            .zip(lengths)
            .map(|(&at, length)| at..at + length)
            .collect())
    }
}
