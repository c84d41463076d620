//! An image of a TIFF as a Zarr v2 array: chunks, dtype, and the codecs that decode it. No IO.
//!
//! Codecs are those of [numcodecs](https://numcodecs.readthedocs.io), and otherwise those that
//! [imagecodecs](https://pypi.org/project/imagecodecs/) registers with it. `scripts/check_exports.py` verifies their
//! behaviour.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::{Value, json};

use super::unsupported;
use crate::{
    error::Result,
    geo::Size,
    raster::DataType,
    reader::{ColorInterp, Header, Image},
};

/// The TIFF specification requires tile sizes to be multiples of this; strips need not be.
const TILE_STEP: u32 = 16;
/// The most chunks that the strips of an image are split into: each costs memory, and an entry of the export.
const MOST_PARTS: u64 = 1 << 20;

/// The interleaving of the bands of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bands {
    /// A single band.
    One,
    /// Pixel-interleaved: dimensions y, x, band.
    Together(u16),
    /// Band-interleaved (planar), each band in tiles of its own: dimensions band, y, x.
    Apart(u16),
}

/// An image as a Zarr array.
#[derive(Clone, Debug)]
pub(super) struct Encoding {
    /// The dtype as numpy spells it, with its byte order.
    pub(super) dtype: String,
    /// The pixels of a chunk: a tile, or a part of a strip.
    pub(super) chunk: Size,
    pub(super) bands: Bands,
    /// The decoding steps, from first to last.
    undone: Vec<Value>,
    /// Bytes of a chunk, if it is stored uncompressed.
    plain_bytes: Option<u64>,
    /// Chunks of a tile, from top to bottom.
    parts: u32,
}

/// A chunk and its byte range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chunk {
    pub(super) col: u64,
    pub(super) row: u64,
    pub(super) band: u64,
    pub(super) offset: u64,
    pub(super) length: u64,
}

impl Encoding {
    /// Returns the encoding of an image.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if Zarr v2 and its codecs cannot represent it.
    pub(super) fn of(header: &Header, image: &Image) -> Result<Self> {
        let bands = match (image.bands, image.planar) {
            (0, _) => return Err(unsupported("no band")),
            (1, _) => Bands::One,
            (n, false) => Bands::Together(n),
            (n, true) => Bands::Apart(n),
        };
        let side = |side: u32| (1..=i32::MAX.unsigned_abs()).contains(&side);
        let sides = [
            image.size.width,
            image.size.height,
            image.tile.width,
            image.tile.height,
        ];
        if !sides.into_iter().all(side) {
            return Err(unsupported("sizes that are zero or above 2^31"));
        }
        let samples = Samples::of(header.little_endian, image)?;
        let per_pixel = match bands {
            Bands::Together(n) => u64::from(n),
            _ => 1,
        };
        let row_bits = u64::from(image.tile.width)
            .saturating_mul(per_pixel)
            .saturating_mul(u64::from(image.bits));
        let row_bytes = row_bits.div_ceil(8);
        let (chunk, parts) = chunk(image, row_bytes)?;
        let mut encoding = Self {
            dtype: samples.native(),
            chunk,
            bands,
            undone: Vec::new(),
            plain_bytes: (image.compression == 1)
                .then(|| row_bytes.saturating_mul(u64::from(chunk.height))),
            parts,
        };
        if image.bits_reversed {
            encoding.undone.push(json!({"id": "imagecodecs_bitorder"}));
        }
        let compressed = match image.compression {
            1 => Compressed::Bytes,
            5 => encoding.undo(json!({"id": "imagecodecs_lzw"})),
            7 => encoding.undo(jpeg(image)?),
            8 | 32946 => encoding.undo(json!({"id": "zlib", "level": 6})),
            32773 => encoding.undo(json!({"id": "imagecodecs_packbits", "axis": null})),
            34925 => encoding.undo(
                json!({"id": "lzma", "format": 1, "check": -1, "preset": null, "filters": null}),
            ),
            50000 => encoding.undo(json!({"id": "zstd", "level": 0})),
            50001 => encoding.undo(webp(image)),
            34887 => {
                match image.compression_option {
                    0 => {}
                    1 => drop(encoding.undo(json!({"id": "zlib", "level": 6}))),
                    2 => drop(encoding.undo(json!({"id": "zstd", "level": 0}))),
                    other => return Err(unsupported(format!("LERC inside codec {other}"))),
                }
                encoding.undo(lerc(header, image)?)
            }
            50002 | 52546 => encoding.undo(json!({"id": "imagecodecs_jpegxl"})),
            2..=4 => {
                return Err(unsupported(
                    "no Zarr codec decodes CCITT compression exactly",
                ));
            }
            other => return Err(unsupported(format!("compression {other}"))),
        };
        let height = chunk.height;
        let shape = match bands {
            Bands::Together(n) => json!([height, image.tile.width, n]),
            _ => json!([height, image.tile.width]),
        };
        let run = u64::from(image.tile.width).saturating_mul(per_pixel);
        encoding.samples(samples, image, compressed, shape, run)?;
        Ok(encoding)
    }

    fn undo(&mut self, codec: Value) -> Compressed {
        let is_picture = ["jpeg", "webp", "lerc", "jpegxl"]
            .iter()
            .any(|name| codec["id"] == format!("imagecodecs_{name}").as_str());
        self.undone.push(codec);
        match is_picture {
            true => Compressed::Picture,
            false => Compressed::Bytes,
        }
    }

    /// Returns the codecs that turn the decompressed bytes of a tile into samples.
    fn samples(
        &mut self,
        samples: Samples,
        image: &Image,
        compressed: Compressed,
        shape: Value,
        run: u64,
    ) -> Result<()> {
        let predictor = image.predictor;
        if compressed == Compressed::Picture {
            if predictor != 1 || !samples.is_whole() {
                return Err(unsupported(
                    "an image codec with a predictor or unusual samples",
                ));
            }
            self.dtype = samples.native();
            return Ok(());
        }
        // libtiff applies a predictor with these compressions only.
        if predictor != 1 && !matches!(image.compression, 5 | 8 | 32946 | 34925 | 50000) {
            return Err(unsupported("a predictor with a compression that has none"));
        }
        match predictor {
            1 => {}
            2 => {
                let (size, order) = match samples {
                    Samples::Whole { size, order, .. } => (size, order),
                    Samples::Half { order } => (2, order),
                    _ => {
                        return Err(unsupported(
                            "predictor 2 of samples that are not whole bytes",
                        ));
                    }
                };
                let dtype = spelled(order, 'u', size);
                let step = json!({"id": "imagecodecs_delta", "shape": shape, "dtype": dtype, "axis": 1, "dist": 1});
                self.undone.push(step);
            }
            3 => {
                let size = match samples {
                    Samples::Whole {
                        kind: 'f', size, ..
                    } => size,
                    Samples::Half { .. } => 2,
                    _ => {
                        return Err(unsupported(
                            "predictor 3 of samples other than floats of 16, 32 or 64 bits",
                        ));
                    }
                };
                // Predictor 3 stores byte planes, most significant first, whatever the file's byte order.
                let dtype = spelled('<', 'f', size);
                let step = json!({"id": "imagecodecs_floatpred", "shape": shape, "dtype": dtype, "axis": 1, "dist": 1});
                self.undone.push(step);
            }
            other => return Err(unsupported(format!("predictor {other}"))),
        }
        let order = |order: char| if predictor == 3 { '<' } else { order };
        match samples {
            Samples::Whole {
                kind,
                size,
                order: stored,
            } => self.dtype = spelled(order(stored), kind, size),
            Samples::Half { order: stored } => {
                let from = spelled(order(stored), 'f', 2);
                self.undone
                    .push(json!({"id": "astype", "encode_dtype": from, "decode_dtype": "<f4"}));
            }
            Samples::ThreeByteFloat { order } => self.undone.push(
                json!({"id": "imagecodecs_float24", "byteorder": order.to_string(), "rounding": null}),
            ),
            Samples::Bits(bits) => self.undone.push(json!({
                "id": "imagecodecs_packints", "dtype": self.dtype, "bitspersample": bits,
                "bitorder": null, "runlen": run,
            })),
            Samples::ComplexInt { size, order } => {
                let from = spelled(order, 'i', size);
                self.undone
                    .push(json!({"id": "astype", "encode_dtype": from, "decode_dtype": "<f4"}));
            }
        }
        Ok(())
    }

    /// Returns the compressor and the filters. numcodecs decodes with the compressor first, then with the filters from
    /// last to first.
    pub(super) fn codecs(&self) -> (Value, Value) {
        match self.undone.split_first() {
            None => (Value::Null, Value::Null),
            Some((first, [])) => (first.clone(), Value::Null),
            Some((first, rest)) => (first.clone(), rest.iter().rev().cloned().collect()),
        }
    }

    /// Returns the chunks that are stored: band after band, row by row.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if the tables do not fit the image.
    pub(super) fn chunks(&self, image: &Image) -> Result<Vec<Chunk>> {
        let across = u64::from(image.size.width.div_ceil(image.tile.width));
        let down = u64::from(image.size.height.div_ceil(image.tile.height));
        let planes = match self.bands {
            Bands::Apart(n) => u64::from(n),
            _ => 1,
        };
        let count = across.saturating_mul(down).saturating_mul(planes);
        if image.tiles.len() as u64 != count {
            return Err(unsupported(format!(
                "{} tiles, expected {count}",
                image.tiles.len()
            )));
        }
        let parts = count.saturating_mul(u64::from(self.parts));
        if self.parts > 1 && parts > MOST_PARTS {
            return Err(unsupported(format!(
                "strips that would need more than {MOST_PARTS} chunks"
            )));
        }
        let mut chunks = Vec::with_capacity(image.tiles.len());
        for number in 0..image.tiles.len() {
            let Some(range) = image.tiles.range(number) else {
                return Err(unsupported(format!(
                    "tile {number} has an offset without a byte count, or the reverse, or ends beyond 2^64 bytes"
                )));
            };
            if range.is_empty() {
                continue;
            }
            let (number, stored) = (number as u64, range.end - range.start);
            let tile_row = number / across % down;
            let (col, band) = (number % across, number / across / down);
            for part in 0..u64::from(self.parts) {
                let row = tile_row * u64::from(self.parts) + part;
                if row * u64::from(self.chunk.height) >= u64::from(image.size.height) {
                    break;
                }
                // Bytes after a tile's samples are undefined: the range ends with the samples.
                let length = self.plain_bytes.unwrap_or(stored);
                let skip = part.saturating_mul(length);
                if skip.checked_add(length).is_none_or(|end| end > stored) {
                    return Err(unsupported(format!(
                        "tile {number} has {stored} bytes, fewer than its samples"
                    )));
                }
                chunks.push(Chunk {
                    col,
                    row,
                    band,
                    offset: range.start + skip,
                    length,
                });
            }
        }
        Ok(chunks)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Compressed {
    /// Decodes to the bytes of the samples.
    Bytes,
    /// Decodes to samples in the reader's native byte order.
    Picture,
}

/// How samples are stored.
#[derive(Clone, Copy)]
enum Samples {
    /// A numpy dtype: `kind` is `u`, `i`, `f` or `c`, `size` in bytes, `order` is `<` or `>`.
    Whole {
        kind: char,
        size: u16,
        order: char,
    },
    Half {
        order: char,
    },
    ThreeByteFloat {
        order: char,
    },
    Bits(u16),
    ComplexInt {
        size: u16,
        order: char,
    },
}

impl Samples {
    fn of(little_endian: bool, image: &Image) -> Result<Self> {
        let order = if little_endian { '<' } else { '>' };
        let bits = image.bits;
        let whole = |kind| Self::Whole {
            kind,
            size: bits / 8,
            order,
        };
        Ok(match (image.sample_format, bits) {
            (1 | 4, 8 | 16 | 32 | 64) => whole('u'),
            (2, 8 | 16 | 32 | 64) => whole('i'),
            (3, 16) => Self::Half { order },
            (3, 24) => Self::ThreeByteFloat { order },
            (3, 32 | 64) => whole('f'),
            (6, 64 | 128) => whole('c'),
            (5, 32 | 64) => Self::ComplexInt {
                size: bits / 16,
                order,
            },
            (1 | 4, 1..32) => Self::Bits(bits),
            (format, bits) => {
                return Err(unsupported(format!(
                    "samples of {bits} bits (format {format})"
                )));
            }
        })
    }

    fn is_whole(self) -> bool {
        matches!(self, Self::Whole { .. })
    }

    /// Returns the dtype of decoded samples in little-endian byte order.
    fn native(self) -> String {
        match self {
            Self::Whole { kind, size, .. } => spelled('<', kind, size),
            Self::Half { .. } | Self::ThreeByteFloat { .. } => spelled('<', 'f', 4),
            Self::Bits(..8) => spelled('<', 'u', 1),
            Self::Bits(..16) => spelled('<', 'u', 2),
            Self::Bits(_) => spelled('<', 'u', 4),
            Self::ComplexInt { .. } => spelled('<', 'c', 8),
        }
    }
}

fn spelled(order: char, kind: char, size: u16) -> String {
    let order = if size == 1 { '|' } else { order };
    format!("{order}{kind}{size}")
}

/// Returns the size of a chunk, and the number of chunks in a tile.
///
/// All chunks of a Zarr array have one size. So have tiles; the last strip may be shorter, and uncompressed strips are
/// split into chunks whose height divides all of them.
fn chunk(image: &Image, row_bytes: u64) -> Result<(Size, u32)> {
    let (size, tile) = (image.size, image.tile);
    let left = size.height % tile.height;
    if tile.width != size.width || left == 0 || tile.height > size.height {
        return Ok((tile, 1));
    }
    if image.compression == 1 {
        let full = row_bytes.saturating_mul(u64::from(tile.height));
        let last = image.tiles.byte_counts.last().copied().unwrap_or(0);
        if last >= full {
            return Ok((tile, 1));
        }
        let height = divisor(tile.height, left);
        return Ok((Size { height, ..tile }, tile.height / height));
    }
    // Tiles as wide as the image are rare. If both sides are multiples of 16, tiles and strips cannot be told apart.
    let may_be_tiles =
        tile.width.is_multiple_of(TILE_STEP) && tile.height.is_multiple_of(TILE_STEP);
    Err(unsupported(match may_be_tiles {
        true => "tiles as wide as the image, which may be strips with a short last one",
        false => "compressed strips of which the last is short",
    }))
}

/// Returns the greatest common divisor.
fn divisor(mut a: u32, mut b: u32) -> u32 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

fn jpeg(image: &Image) -> Result<Value> {
    let samples = if image.planar { 1 } else { image.bands };
    let (stored, read) = match (samples, image.photometric) {
        (1, _) => ("GRAYSCALE", "GRAYSCALE"),
        (3, 6) => ("YCBCR", "RGB"),
        (3, _) => ("RGB", "RGB"),
        (4, 0..=2) => ("CMYK", "CMYK"),
        (samples, colours) => {
            return Err(unsupported(format!(
                "JPEG with {samples} components (photometric {colours})"
            )));
        }
    };
    let tables = image
        .jpeg_tables
        .as_deref()
        .filter(|tables| !tables.is_empty());
    Ok(json!({
        "id": "imagecodecs_jpeg", "tables": tables.map(|bytes| BASE64_STANDARD.encode(bytes)),
        "colorspace_jpeg": stored, "colorspace_data": read,
    }))
}

fn webp(image: &Image) -> Value {
    json!({"id": "imagecodecs_webp", "hasalpha": image.bands == 4})
}

/// GDAL stores NaN, and pixels that an alpha band makes transparent, in the mask of LERC, which the codec does not
/// return.
fn lerc(header: &Header, image: &Image) -> Result<Value> {
    let has_alpha = header
        .bands
        .iter()
        .any(|band| band.color == ColorInterp::Alpha);
    let is_float = matches!(header.dtype, DataType::F32 | DataType::F64);
    if is_float || has_alpha && !image.planar {
        return Err(unsupported(
            "LERC of floats or with an alpha band: its codec of Zarr loses the mask",
        ));
    }
    Ok(json!({"id": "imagecodecs_lerc"}))
}
