//! A small [GeoTIFF](https://docs.ogc.org/is/19-008r4/19-008r4.html) writer: one image, strips, DEFLATE with
//! predictor 2 for integers, little-endian, planar configuration 2 (bands one after another).

use std::io::{self, Seek, SeekFrom, Write};

use libdeflater::{CompressionLvl, Compressor};

use super::io_error;
use crate::{
    error::Result,
    raster::{
        DataType, Raster,
        tiff::{Form, Tags, differences, nodata, sample_format, too_large},
    },
};

/// The target size of a strip in bytes, before compression.
const STRIP_BYTES: usize = 256 * 1024;

/// Writes strip after strip, so that no second copy of the samples is held, and then the header before them.
pub(super) fn write(raster: &Raster, out: &mut (impl Write + Seek)) -> Result<()> {
    let [bands, height, width] = raster.pixels.shape();
    let dtype = raster.pixels.dtype();
    let row_bytes = width * dtype.size();
    let rows_per_strip = (STRIP_BYTES / row_bytes.max(1)).clamp(1, height.max(1));
    let is_whole = !matches!(
        dtype,
        DataType::F32 | DataType::F64 | DataType::C64 | DataType::C128
    );
    let strips = match row_bytes {
        0 => 0,
        _ => bands * height.div_ceil(rows_per_strip),
    };

    let form = Form::Classic;
    let (format, bits) = sample_format(dtype);
    let mut tags = Tags::default();
    tags.long(256, [width])?;
    tags.long(257, [height])?;
    tags.short(258, vec![bits; bands])?;
    tags.short(259, [8])?;
    tags.short(262, [1])?;
    tags.short(277, [bands])?;
    tags.long(278, [rows_per_strip])?;
    tags.short(284, [if bands == 1 { 1 } else { 2 }])?;
    tags.short(317, [if is_whole { 2 } else { 1 }])?;
    if bands > 1 {
        tags.short(338, vec![0; bands - 1])?;
    }
    tags.short(339, vec![format; bands])?;
    tags.georeference(&raster.geobox)?;
    if let Some(value) = raster.nodata {
        tags.ascii(42113, &nodata(dtype, value));
    }
    // Room for StripOffsets and StripByteCounts: their number counts, their values are known behind the strips.
    for table in [273, 279] {
        tags.long(table, std::iter::repeat_n(0, strips))?;
    }
    let header_bytes = form.start().len() + tags.length(form);

    let mut written = Strips {
        out,
        compressor: Compressor::new(CompressionLvl::default()),
        predicted: is_whole.then_some(dtype.size()),
        row: vec![0; row_bytes],
        strip_bytes: row_bytes * rows_per_strip,
        band_bytes: row_bytes * height,
        left: row_bytes * height,
        strip: Vec::new(),
        compressed: Vec::new(),
        end: header_bytes,
        lengths: Vec::with_capacity(strips),
    };
    let done = written
        .start()
        .and_then(|()| raster.pixels.write_le(&mut written));
    let lengths = written.lengths;
    done.map_err(|err| match err.kind() {
        io::ErrorKind::FileTooLarge => too_large(err),
        _ => io_error(err),
    })?;

    let mut end = header_bytes;
    let offsets: Vec<usize> = lengths
        .iter()
        .map(|length| {
            let start = end;
            end += length;
            start
        })
        .collect();
    for (table, values) in [(273, offsets), (279, lengths)] {
        tags.remove(table);
        tags.long(table, values)?;
    }
    let mut header = form.start().to_vec();
    tags.write(form, &mut header, 0)?;
    out.seek(SeekFrom::Start(0))
        .and_then(|_| out.write_all(&header))
        .and_then(|()| out.seek(SeekFrom::End(0)))
        .map_err(io_error)?;
    Ok(())
}

/// Takes samples in the order of the file, and writes them in compressed strips behind the room for the header.
struct Strips<'a, W> {
    out: &'a mut W,
    compressor: Compressor,
    /// The size of the samples that predictor 2 takes differences of.
    predicted: Option<usize>,
    /// A row as it was before.
    row: Vec<u8>,
    strip_bytes: usize,
    band_bytes: usize,
    /// Bytes of the band from the strip that is filled on: strips do not go across bands.
    left: usize,
    /// The strip that is filled.
    strip: Vec<u8>,
    compressed: Vec<u8>,
    /// Where the next strip begins in the file.
    end: usize,
    lengths: Vec<usize>,
}

impl<W: Write + Seek> Strips<'_, W> {
    /// Leaves room for the header.
    fn start(&mut self) -> io::Result<()> {
        self.out.seek(SeekFrom::Start(0))?;
        self.out.write_all(&vec![0; self.end])
    }

    fn finish(&mut self) -> io::Result<()> {
        if let Some(size) = self.predicted {
            for row in self.strip.chunks_exact_mut(self.row.len().max(1)) {
                self.row.copy_from_slice(row);
                differences(&self.row, size, row);
            }
        }
        let most = self.compressor.zlib_compress_bound(self.strip.len());
        self.compressed.resize(most, 0);
        let length = self
            .compressor
            .zlib_compress(&self.strip, &mut self.compressed)
            .map_err(io::Error::other)?;
        if u32::try_from(self.end + length).is_err() {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let compressed = self.compressed.get(..length).unwrap_or_default();
        self.out.write_all(compressed)?;
        self.end += length;
        self.lengths.push(length);
        self.left -= self.strip.len();
        if self.left == 0 {
            self.left = self.band_bytes;
        }
        self.strip.clear();
        Ok(())
    }
}

impl<W: Write + Seek> Write for Strips<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let wanted = self.strip_bytes.min(self.left) - self.strip.len();
        let part = bytes.get(..wanted).unwrap_or(bytes);
        self.strip.extend_from_slice(part);
        if part.len() == wanted {
            self.finish()?;
        }
        Ok(part.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use ndarray::Array3;

    use super::*;
    use crate::{
        geo::{GeoBox, Size},
        raster::Sample,
    };

    fn word(file: &[u8], at: usize) -> usize {
        u32::from_le_bytes(*file[at..].first_chunk().unwrap()) as usize
    }

    /// The values of a tag of 32-bit integers in a file with one directory at its start.
    fn longs(file: &[u8], tag: u16) -> Vec<usize> {
        let entries = file[10..].chunks(12);
        let at = entries
            .map(|entry| u16::from_le_bytes([entry[0], entry[1]]))
            .position(|id| id == tag)
            .unwrap();
        let entry = 10 + 12 * at;
        let count = word(file, entry + 4);
        let first = match count {
            1 => entry + 8,
            _ => word(file, entry + 8),
        };
        (0..count).map(|n| word(file, first + 4 * n)).collect()
    }

    #[test]
    fn strips_of_two_bands_stand_one_behind_the_other() {
        // 300 rows of 4000 bytes: 65 to a strip, 40 in the last one of each band.
        let value = |(band, row, col)| (band * 7 + row * 13 + col) as u16;
        let pixels = Array3::from_shape_fn((2, 300, 2000), value);
        let raster = Raster {
            pixels: Sample::wrap(pixels.clone()),
            geobox: GeoBox {
                size: Size {
                    width: 2000,
                    height: 300,
                },
                crs: None,
                transform: None,
            },
            nodata: None,
            sparse: Vec::new(),
        };
        let mut file = Cursor::new(Vec::new());
        write(&raster, &mut file).unwrap();
        let file = file.into_inner();
        let (offsets, lengths) = (longs(&file, 273), longs(&file, 279));
        assert_eq!((offsets.len(), longs(&file, 278)), (10, vec![65]));
        assert_eq!(offsets[9] + lengths[9], file.len());
        let mut found = Vec::new();
        for (strip, (offset, length)) in offsets.iter().zip(&lengths).enumerate() {
            let rows = if strip % 5 == 4 { 40 } else { 65 };
            let mut samples = vec![0; rows * 4000];
            let mut decompressor = libdeflater::Decompressor::new();
            let bytes = &file[*offset..offset + length];
            decompressor.zlib_decompress(bytes, &mut samples).unwrap();
            for row in samples.chunks(4000) {
                let mut sum = 0_u16;
                for sample in row.as_chunks::<2>().0 {
                    sum = sum.wrapping_add(u16::from_le_bytes(*sample));
                    found.push(sum);
                }
            }
        }
        assert!(found.iter().eq(pixels.iter()));
    }
}
