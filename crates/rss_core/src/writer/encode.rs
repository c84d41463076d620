//! Encoding of one tile: predictor and compression.

use libdeflater::{CompressionLvl, Compressor};
use ndarray::ArrayView2;

use super::{options::Compression, plan::Filter};
use crate::{
    error::{Error, ErrorKind, Result},
    raster::{Sample, tiff::differences},
};

/// Compresses tiles one after another, in buffers that it reuses.
pub(super) struct Coder {
    codec: Codec,
    /// The tile before compression.
    plain: Vec<u8>,
    /// One row of samples, and one of byte planes.
    row: Vec<u8>,
    planes: Vec<u8>,
    coded: Vec<u8>,
}

enum Codec {
    None,
    Deflate(Compressor),
    Zstd(zstd::bulk::Compressor<'static>),
    Lzw,
}

impl Coder {
    pub(super) fn new(compression: Compression) -> Result<Self> {
        let codec = match compression {
            Compression::None => Codec::None,
            Compression::Lzw => Codec::Lzw,
            Compression::Deflate(level) => {
                // The plan has checked the level.
                let level = CompressionLvl::new(i32::from(level)).unwrap_or_default();
                Codec::Deflate(Compressor::new(level))
            }
            Compression::Zstd(level) => {
                let made = zstd::bulk::Compressor::new(i32::from(level));
                Codec::Zstd(made.map_err(|err| failed().with_source(err))?)
            }
        };
        Ok(Self {
            codec,
            plain: Vec::new(),
            row: Vec::new(),
            planes: Vec::new(),
            coded: Vec::new(),
        })
    }

    /// Returns the bytes of a tile of `side` columns and `rows` rows. Past the edge of the image the last
    /// pixels are repeated, which compress to almost nothing.
    pub(super) fn encode<T: Sample>(
        &mut self,
        pixels: ArrayView2<'_, T>,
        side: usize,
        rows: usize,
        filter: Filter,
    ) -> Result<Vec<u8>> {
        self.fill(pixels, side, rows, filter);
        self.compress()
    }

    fn fill<T: Sample>(
        &mut self,
        pixels: ArrayView2<'_, T>,
        side: usize,
        rows: usize,
        filter: Filter,
    ) {
        let size = T::DTYPE.size();
        let row_bytes = side * size;
        self.row.resize(row_bytes, 0);
        self.planes.resize(row_bytes, 0);
        self.plain.resize(row_bytes * rows, 0);
        let inside = (pixels.ncols() * size).min(row_bytes);
        for (row, out) in pixels
            .rows()
            .into_iter()
            .zip(self.plain.chunks_mut(row_bytes))
        {
            let samples = match filter {
                Filter::None => &mut *out,
                _ => &mut self.row[..],
            };
            match row.to_slice() {
                Some(row) => T::put_le(row.iter(), samples),
                None => T::put_le(row.iter(), samples),
            }
            if inside < row_bytes {
                let last = inside.saturating_sub(size)..inside;
                for at in (inside..row_bytes).step_by(size.max(1)) {
                    samples.copy_within(last.clone(), at);
                }
            }
            match filter {
                Filter::None => {}
                Filter::Horizontal => differences(&self.row, size, out),
                Filter::Float => {
                    by_weight(&self.row, size, &mut self.planes);
                    differences(&self.planes, 1, out);
                }
            }
        }
        let filled = pixels.nrows().min(rows) * row_bytes;
        if let Some(last) = filled.checked_sub(row_bytes) {
            for at in (filled..self.plain.len()).step_by(row_bytes.max(1)) {
                self.plain.copy_within(last..filled, at);
            }
        }
    }

    fn compress(&mut self) -> Result<Vec<u8>> {
        let length = match &mut self.codec {
            Codec::None => return Ok(self.plain.clone()),
            Codec::Lzw => {
                // TIFF widens codes one code earlier than GIF does.
                let mut coder =
                    weezl::encode::Encoder::with_tiff_size_switch(weezl::BitOrder::Msb, 8);
                return coder
                    .encode(&self.plain)
                    .map_err(|err| failed().with_source(err));
            }
            Codec::Deflate(compressor) => {
                let most = compressor.zlib_compress_bound(self.plain.len());
                self.coded.resize(most, 0);
                compressor
                    .zlib_compress(&self.plain, &mut self.coded)
                    .map_err(|err| failed().with_source(err))?
            }
            Codec::Zstd(compressor) => {
                let most = zstd::zstd_safe::compress_bound(self.plain.len());
                self.coded.resize(most, 0);
                compressor
                    .compress_to_buffer(&self.plain, &mut self.coded[..])
                    .map_err(|err| failed().with_source(err))?
            }
        };
        Ok(self.coded.get(..length).unwrap_or_default().to_vec())
    }
}

fn failed() -> Error {
    Error::new(ErrorKind::Unavailable, "a tile cannot be compressed")
}

/// Groups the bytes of a row's floats into planes, the most significant first
/// ([Adobe's technical note 3](http://chriscox.org/TIFFTN3d1.pdf)).
fn by_weight(row: &[u8], size: usize, out: &mut [u8]) {
    macro_rules! planes {
        ($size:literal) => {{
            let (samples, _) = row.as_chunks::<$size>();
            for (weight, plane) in out.chunks_exact_mut(samples.len().max(1)).enumerate() {
                let byte = $size - 1 - weight.min($size - 1);
                for (out, sample) in plane.iter_mut().zip(samples) {
                    *out = sample[byte];
                }
            }
        }};
    }
    match size {
        4 => planes!(4),
        _ => planes!(8),
    }
}

#[cfg(test)]
mod tests {
    use ndarray::{Array2, array};

    use super::*;

    fn plain<T: Sample>(pixels: &Array2<T>, side: usize, filter: Filter) -> Vec<u8> {
        let mut coder = Coder::new(Compression::None).unwrap();
        coder.encode(pixels.view(), side, side, filter).unwrap()
    }

    #[test]
    fn a_tile_past_the_edge_repeats_the_last_pixels() {
        let pixels = array![[1_u8, 2], [3, 4]];
        assert_eq!(
            plain(&pixels, 4, Filter::None),
            [1, 2, 2, 2, 3, 4, 4, 4, 3, 4, 4, 4, 3, 4, 4, 4]
        );
        assert_eq!(
            plain(&pixels, 4, Filter::Horizontal)[..8],
            [1, 1, 0, 0, 3, 1, 0, 0]
        );
    }

    #[test]
    fn differences_borrow_across_bytes() {
        let pixels = array![[256_u16, 255], [1000, 0]];
        let bytes = plain(&pixels, 2, Filter::Horizontal);
        let (values, _) = bytes.as_chunks::<2>();
        let values: Vec<u16> = values.iter().copied().map(u16::from_le_bytes).collect();
        assert_eq!(values, [256, u16::MAX, 1000, 64_536]);
    }

    #[test]
    fn floats_lie_apart_by_weight() {
        let bits = |bits: u32| f32::from_bits(bits);
        let pixels = array![
            [bits(0x0102_0304), bits(0x1112_1314)],
            [bits(0x0102_0304), bits(0x0102_0304)]
        ];
        let bytes = plain(&pixels, 2, Filter::Float);
        // 01 11 02 12 03 13 04 14, each less the one before.
        let expected: [u8; 8] = [0x01, 0x10, 0xf1, 0x10, 0xf1, 0x10, 0xf1, 0x10];
        assert_eq!(bytes[..8], expected);
        assert_eq!(bytes[8..], [1, 0, 1, 0, 1, 0, 1, 0]);
    }
}
