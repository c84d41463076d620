//! A writer of Cloud Optimized GeoTIFFs as Digital Earth Australia publishes them: IFDs first, then
//! the overviews, smallest first, then full resolution; square tiles, DEFLATE, predictor 2. Strips
//! without overviews too, as such files were before.
//!
//! It shares no code with the readers it helps to test; GDAL reads what it writes.

use std::io::{BufWriter, Write};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use libdeflater::{CompressionLvl, Compressor};
use rayon::prelude::*;

pub(crate) const TILE: usize = 512;

/// DEFLATE level: noise compresses no better at a higher one.
const LEVEL: i32 = 3;

const SHORT: u16 = 3;
const LONG: u16 = 4;
const ASCII: u16 = 2;
const DOUBLE: u16 = 12;

/// How the pixels of a file lie in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Layout {
    /// Tiles of 512 x 512 pixels, and overviews.
    Tiles,
    /// Strips as wide as the image, of so many rows each, and no overviews.
    Strips(u32),
}

impl Layout {
    /// Returns the size of a tile or strip of an image so wide, in pixels.
    fn block(self, width: usize) -> Block {
        match self {
            Self::Tiles => Block {
                width: TILE,
                height: TILE,
            },
            Self::Strips(rows) => Block {
                width,
                height: rows.max(1) as usize,
            },
        }
    }
}

#[derive(Clone, Copy)]
struct Block {
    width: usize,
    height: usize,
}

/// Returns a GeoTIFF of int16 samples: DEFLATE, predictor 2, nodata -999. `value` is asked for each
/// column and row.
///
/// # Errors
///
/// If a side is zero, or the file passes 4 GiB.
pub fn geotiff(
    width: u32,
    height: u32,
    layout: Layout,
    value: impl Fn(u32, u32) -> i16 + Sync,
) -> Result<Bytes> {
    ensure!(width > 0 && height > 0, "an image of no pixels");
    let samples = (0..height)
        .into_par_iter()
        .flat_map_iter(|row| {
            let value = &value;
            (0..width).map(move |col| value(col, row))
        })
        .collect();
    let image = Image {
        samples,
        width: width as usize,
        height: height as usize,
        epsg: 32_756,
        origin: [499_980.0, 7_200_040.0],
        pixel: 10.0,
    };
    let mut bytes = Vec::new();
    write_as(layout, image, &mut bytes)?;
    Ok(bytes.into())
}

/// A TIFF field's type, how many values, and their bytes.
type Field = (u16, usize, Vec<u8>);

/// A sample type that can be stored.
pub(crate) trait Sample: Copy + Send + Sync {
    const BYTES: usize;
    /// TIFF's SampleFormat: 1 unsigned, 2 signed.
    const FORMAT: u16;
    /// Appends the difference of `self` to `previous`, little-endian.
    fn push_difference(self, previous: Option<Self>, out: &mut Vec<u8>);
    /// Returns the mean of up to four samples that are not nodata.
    fn mean(samples: &[Self]) -> Self;
    fn is_nodata(self) -> bool;
    const NODATA: Self;
    const NODATA_TEXT: &'static str;
}

impl Sample for i16 {
    const BYTES: usize = 2;
    const FORMAT: u16 = 2;
    const NODATA: Self = -999;
    const NODATA_TEXT: &'static str = "-999";

    fn push_difference(self, previous: Option<Self>, out: &mut Vec<u8>) {
        out.extend(self.wrapping_sub(previous.unwrap_or(0)).to_le_bytes());
    }

    fn mean(samples: &[Self]) -> Self {
        let sum: i32 = samples.iter().map(|&sample| i32::from(sample)).sum();
        let count = i32::try_from(samples.len()).unwrap_or(1).max(1);
        i16::try_from(sum / count).unwrap_or(Self::NODATA)
    }

    fn is_nodata(self) -> bool {
        self == Self::NODATA
    }
}

impl Sample for u8 {
    const BYTES: usize = 1;
    const FORMAT: u16 = 1;
    const NODATA: Self = 0;
    const NODATA_TEXT: &'static str = "0";

    fn push_difference(self, previous: Option<Self>, out: &mut Vec<u8>) {
        out.push(self.wrapping_sub(previous.unwrap_or(0)));
    }

    /// Classes have no mean: the first stands for all.
    fn mean(samples: &[Self]) -> Self {
        samples.first().copied().unwrap_or(Self::NODATA)
    }

    fn is_nodata(self) -> bool {
        self == Self::NODATA
    }
}

/// What is written: full resolution, and where it lies.
pub(crate) struct Image<T> {
    pub(crate) samples: Vec<T>,
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) epsg: u16,
    /// X and y of the top left corner.
    pub(crate) origin: [f64; 2],
    pub(crate) pixel: f64,
}

/// Writes `image` in tiles, with overviews down to one tile.
pub(crate) fn write<T: Sample>(image: Image<T>, out: impl Write) -> Result<()> {
    write_as(Layout::Tiles, image, out)
}

fn write_as<T: Sample>(layout: Layout, image: Image<T>, out: impl Write) -> Result<()> {
    let geo = Geo {
        epsg: image.epsg,
        origin: image.origin,
        pixel: image.pixel,
    };
    let mut levels = Vec::new();
    let mut level = Level {
        samples: image.samples,
        width: image.width,
        height: image.height,
    };
    loop {
        let tiles = level.tiles(layout)?;
        let (width, height) = (level.width, level.height);
        let more = layout == Layout::Tiles && (width > TILE || height > TILE);
        let next = more.then(|| level.halved());
        levels.push(Stored {
            width,
            height,
            layout,
            tiles,
        });
        match next {
            Some(next) => level = next,
            None => break,
        }
    }

    // IFDs lie at the head in the order of the levels; data follows, smallest level first.
    let kind = |n: usize| u32::from(n > 0);
    let heads: Vec<usize> = levels
        .iter()
        .enumerate()
        .map(|(n, level)| {
            level
                .ifd::<T>(&geo, kind(n), 0, 0, &vec![0; level.tiles.len()])
                .len()
        })
        .collect();
    let mut offset = 8 + heads.iter().sum::<usize>();
    let mut places: Vec<Vec<u32>> = vec![Vec::new(); levels.len()];
    for (level, place) in levels.iter().zip(&mut places).rev() {
        for tile in &level.tiles {
            place.push(u32::try_from(offset).context("the file is past 4 GiB")?);
            offset += tile.len();
        }
    }

    let mut out = BufWriter::with_capacity(1 << 20, out);
    out.write_all(b"II*\0")?;
    out.write_all(&8_u32.to_le_bytes())?;
    let mut at = 8;
    for (n, level) in levels.iter().enumerate() {
        let end = at + heads[n];
        let next = if n + 1 < levels.len() { end } else { 0 };
        out.write_all(&level.ifd::<T>(&geo, kind(n), at, next, &places[n]))?;
        at = end;
    }
    for level in levels.iter().rev() {
        for tile in &level.tiles {
            out.write_all(tile)?;
        }
    }
    out.flush()?;
    Ok(())
}

struct Geo {
    epsg: u16,
    origin: [f64; 2],
    pixel: f64,
}

struct Level<T> {
    samples: Vec<T>,
    width: usize,
    height: usize,
}

impl<T: Sample> Level<T> {
    /// Compresses the tiles, row by row.
    fn tiles(&self, layout: Layout) -> Result<Vec<Vec<u8>>> {
        let block = layout.block(self.width);
        let across = self.width.div_ceil(block.width);
        let down = self.height.div_ceil(block.height);
        (0..across * down)
            .into_par_iter()
            .map_init(
                || Compressor::new(CompressionLvl::new(LEVEL).unwrap_or_default()),
                |compressor, n| {
                    let raw = self.tile(layout, n % across, n / across);
                    let mut bytes = vec![0; compressor.zlib_compress_bound(raw.len())];
                    let length = compressor.zlib_compress(&raw, &mut bytes)?;
                    bytes.truncate(length);
                    Ok(bytes)
                },
            )
            .collect()
    }

    /// Returns a tile's differences; past the edge the last sample is repeated. The last strip ends
    /// with the image.
    fn tile(&self, layout: Layout, col: usize, row: usize) -> Vec<u8> {
        let mut block = layout.block(self.width);
        if matches!(layout, Layout::Strips(_)) {
            block.height = block.height.min(self.height - row * block.height);
        }
        let top = row * layout.block(self.width).height;
        let mut bytes = Vec::with_capacity(block.width * block.height * T::BYTES);
        for y in 0..block.height {
            let y = (top + y).min(self.height - 1);
            let line = &self.samples[y * self.width..(y + 1) * self.width];
            let mut previous = None;
            for x in 0..block.width {
                let sample = line[(col * block.width + x).min(self.width - 1)];
                sample.push_difference(previous, &mut bytes);
                previous = Some(sample);
            }
        }
        bytes
    }

    fn halved(&self) -> Self {
        let (width, height) = (self.width.div_ceil(2), self.height.div_ceil(2));
        let samples = (0..height)
            .into_par_iter()
            .flat_map_iter(|y| {
                (0..width).map(move |x| {
                    let mut valid = [T::NODATA; 4];
                    let mut count = 0;
                    for (dx, dy) in [(0, 0), (1, 0), (0, 1), (1, 1)] {
                        let (x, y) = (2 * x + dx, 2 * y + dy);
                        if x < self.width && y < self.height {
                            let sample = self.samples[y * self.width + x];
                            if !sample.is_nodata() {
                                valid[count] = sample;
                                count += 1;
                            }
                        }
                    }
                    if count == 0 {
                        T::NODATA
                    } else {
                        T::mean(&valid[..count])
                    }
                })
            })
            .collect();
        Self {
            samples,
            width,
            height,
        }
    }
}

struct Stored {
    width: usize,
    height: usize,
    layout: Layout,
    tiles: Vec<Vec<u8>>,
}

impl Stored {
    /// Returns the IFD as it stands at `at`, with the values that do not fit its entries behind it.
    /// `kind` is 0 for full resolution, 1 for an overview.
    fn ifd<T: Sample>(
        &self,
        geo: &Geo,
        kind: u32,
        at: usize,
        next: usize,
        places: &[u32],
    ) -> Vec<u8> {
        let short = |value: u16| (SHORT, 1, value.to_le_bytes().to_vec());
        let long = |value: u32| (LONG, 1, value.to_le_bytes().to_vec());
        let longs = |values: &[u32]| {
            (
                LONG,
                values.len(),
                values
                    .iter()
                    .flat_map(|v| v.to_le_bytes())
                    .collect::<Vec<_>>(),
            )
        };
        let doubles = |values: &[f64]| {
            (
                DOUBLE,
                values.len(),
                values
                    .iter()
                    .flat_map(|v| v.to_le_bytes())
                    .collect::<Vec<_>>(),
            )
        };
        let counts: Vec<u32> = self.tiles.iter().map(|tile| tile.len() as u32).collect();
        let mut nodata = T::NODATA_TEXT.as_bytes().to_vec();
        nodata.push(0);
        let keys: Vec<u8> = [
            1, 1, 0, 3, 1024, 0, 1, 1, 1025, 0, 1, 1, 3072, 0, 1, geo.epsg,
        ]
        .iter()
        .flat_map(|key: &u16| key.to_le_bytes())
        .collect();
        let blocks = match self.layout {
            Layout::Tiles => vec![
                (322, long(TILE as u32)),
                (323, long(TILE as u32)),
                (324, longs(places)),
                (325, longs(&counts)),
            ],
            Layout::Strips(rows) => vec![
                (273, longs(places)),
                (278, long(rows.max(1))),
                (279, longs(&counts)),
            ],
        };
        let mut tags: Vec<(u16, Field)> = vec![
            (254, long(kind)),
            (256, long(self.width as u32)),
            (257, long(self.height as u32)),
            (258, short((T::BYTES * 8) as u16)),
            (259, short(8)),
            (262, short(1)),
            (277, short(1)),
            (284, short(1)),
            (317, short(2)),
            (339, short(T::FORMAT)),
            (33550, doubles(&[geo.pixel, geo.pixel, 0.0])),
            (
                33922,
                doubles(&[0.0, 0.0, 0.0, geo.origin[0], geo.origin[1], 0.0]),
            ),
            (34735, (SHORT, 16, keys)),
            (42113, (ASCII, nodata.len(), nodata)),
        ];
        tags.extend(blocks);
        tags.sort_unstable_by_key(|(id, _)| *id);
        let georeferenced = |id: u16| matches!(id, 33550 | 33922 | 34735);
        let tags: Vec<_> = tags
            .into_iter()
            .filter(|(id, _)| kind == 0 || !georeferenced(*id))
            .collect();
        let mut entries = (tags.len() as u16).to_le_bytes().to_vec();
        let mut behind = Vec::new();
        let base = at + 2 + 12 * tags.len() + 4;
        for (id, (kind, count, mut value)) in tags {
            entries.extend(id.to_le_bytes());
            entries.extend(kind.to_le_bytes());
            entries.extend((count as u32).to_le_bytes());
            if value.len() <= 4 {
                value.resize(4, 0);
                entries.extend(value);
            } else {
                entries.extend(((base + behind.len()) as u32).to_le_bytes());
                behind.extend(value);
                behind.resize(behind.len().next_multiple_of(2), 0);
            }
        }
        entries.extend((next as u32).to_le_bytes());
        entries.extend(behind);
        entries
    }
}
