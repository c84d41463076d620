//! A small [GeoTIFF](https://docs.ogc.org/is/19-008r4/19-008r4.html) writer: one image, strips,
//! DEFLATE with predictor 2 for integers, little-endian, bands one after another.

use std::io::Write;

use libdeflater::{CompressionLvl, Compressor};

use super::io_error;
use crate::{
    error::{Error, ErrorKind, Result},
    geo::{Crs, GeoBox},
    raster::{DataType, Raster},
};

/// Bytes of samples that one strip aims at.
const STRIP_BYTES: usize = 256 * 1024;

const SHORT: u16 = 3;
const LONG: u16 = 4;
const ASCII: u16 = 2;
const DOUBLE: u16 = 12;

pub(super) fn write(raster: &Raster, out: &mut impl Write) -> Result<()> {
    let [bands, height, width] = raster.pixels.shape();
    let dtype = raster.pixels.dtype();
    let row_bytes = width * dtype.size();
    let rows_per_strip = (STRIP_BYTES / row_bytes.max(1)).clamp(1, height.max(1));
    let is_whole = !matches!(
        dtype,
        DataType::F32 | DataType::F64 | DataType::C64 | DataType::C128
    );
    let predictor: u16 = if is_whole { 2 } else { 1 };

    let mut samples = raster.pixels.to_le_bytes();
    if predictor == 2 {
        samples
            .chunks_mut(row_bytes.max(1))
            .for_each(|row| difference(row, dtype.size()));
    }
    let mut compressor = Compressor::new(CompressionLvl::default());
    let strips = samples
        .chunks((row_bytes * height).max(1))
        .flat_map(|band| band.chunks((row_bytes * rows_per_strip).max(1)))
        .map(|strip| {
            let mut bytes = vec![0; compressor.zlib_compress_bound(strip.len())];
            let length = compressor.zlib_compress(strip, &mut bytes).map_err(|err| {
                Error::new(ErrorKind::Unavailable, "cannot be compressed").with_source(err)
            })?;
            bytes.truncate(length);
            Ok(bytes)
        })
        .collect::<Result<Vec<_>>>()?;

    let (format, bits) = match dtype {
        DataType::U8 | DataType::U16 | DataType::U32 | DataType::U64 => (1, dtype.size() * 8),
        DataType::I8 | DataType::I16 | DataType::I32 | DataType::I64 => (2, dtype.size() * 8),
        DataType::F32 | DataType::F64 => (3, dtype.size() * 8),
        DataType::C64 | DataType::C128 => (6, dtype.size() * 8),
    };
    let mut tags = Tags::default();
    tags.long(256, [width])?;
    tags.long(257, [height])?;
    tags.short(258, vec![bits; bands])?;
    tags.short(259, [8])?;
    tags.short(262, [1])?;
    tags.long(273, vec![0; strips.len()])?;
    tags.short(277, [bands])?;
    tags.long(278, [rows_per_strip])?;
    tags.long(279, strips.iter().map(Vec::len))?;
    tags.short(284, [if bands == 1 { 1 } else { 2 }])?;
    tags.short(317, [usize::from(predictor)])?;
    if bands > 1 {
        tags.short(338, vec![0; bands - 1])?;
    }
    tags.short(339, vec![format; bands])?;
    georeference(&mut tags, &raster.geobox)?;
    if let Some(nodata) = raster.nodata {
        let text = if nodata.is_nan() {
            "nan".to_owned()
        } else {
            nodata.to_string()
        };
        tags.ascii(42113, &text);
    }

    // The strips follow the IFD, so their offsets are known once the IFD's length is.
    let start = tags.length();
    let mut offset = start;
    let offsets = strips
        .iter()
        .map(|strip| {
            let this = offset;
            offset += strip.len();
            this
        })
        .collect::<Vec<_>>();
    tags.0.retain(|tag| tag.id != 273);
    tags.long(273, offsets)?;

    out.write_all(&tags.to_bytes()?)
        .and_then(|()| strips.iter().try_for_each(|strip| out.write_all(strip)))
        .map_err(io_error)
}

/// Replaces each sample of a row by its difference to the one before (predictor 2).
fn difference(row: &mut [u8], size: usize) {
    for end in (2 * size..=row.len()).rev().step_by(size) {
        let (before, this) = row.split_at_mut(end - size);
        let previous = &before[before.len() - size..];
        let mut borrow = 0_u16;
        for (byte, &other) in this[..size].iter_mut().zip(previous) {
            let difference = 0x100 + u16::from(*byte) - u16::from(other) - borrow;
            *byte = difference.to_le_bytes()[0];
            borrow = u16::from(difference < 0x100);
        }
    }
}

fn georeference(tags: &mut Tags, geobox: &GeoBox) -> Result<()> {
    let Some(transform) = geobox.transform else {
        return Ok(());
    };
    let g = transform.0;
    if g[2] == 0.0 && g[4] == 0.0 && g[5] < 0.0 && g[1] > 0.0 {
        tags.double(33550, [g[1], -g[5], 0.0]);
        tags.double(33922, [0.0, 0.0, 0.0, g[0], g[3], 0.0]);
    } else {
        let row = |a: f64, b: f64, c: f64| [a, b, 0.0, c];
        let rows = [
            row(g[1], g[2], g[0]),
            row(g[4], g[5], g[3]),
            [0.0; 4],
            [0.0, 0.0, 0.0, 1.0],
        ];
        tags.double(34264, rows.concat());
    }
    let Some(Crs::Epsg(code)) = geobox.crs else {
        return Ok(());
    };
    // GeoTIFF wants to know whether a code is geographic; an extent that fits the globe in degrees
    // says so without a database of codes.
    let [x, y] = transform.apply(f64::from(geobox.size.width), f64::from(geobox.size.height));
    let geographic =
        [g[0], x].iter().all(|x| x.abs() <= 360.0) && [g[3], y].iter().all(|y| y.abs() <= 90.5);
    let (model, key) = if geographic { (2, 2048) } else { (1, 3072) };
    let code = usize::try_from(code).unwrap_or(usize::MAX);
    let keys = [
        [1, 1, 0, 3],
        [1024, 0, 1, model],
        [1025, 0, 1, 1],
        [key, 0, 1, code],
    ];
    tags.short(34735, keys.concat())
}

/// The entries of one IFD.
#[derive(Default)]
struct Tags(Vec<Tag>);

struct Tag {
    id: u16,
    kind: u16,
    count: usize,
    bytes: Vec<u8>,
}

impl Tags {
    fn short(&mut self, id: u16, values: impl IntoIterator<Item = usize>) -> Result<()> {
        let mut bytes = Vec::new();
        for value in values {
            let value = u16::try_from(value).map_err(too_large)?;
            bytes.extend(value.to_le_bytes());
        }
        self.push(id, SHORT, bytes.len() / 2, bytes);
        Ok(())
    }

    fn long(&mut self, id: u16, values: impl IntoIterator<Item = usize>) -> Result<()> {
        let mut bytes = Vec::new();
        for value in values {
            let value = u32::try_from(value).map_err(too_large)?;
            bytes.extend(value.to_le_bytes());
        }
        self.push(id, LONG, bytes.len() / 4, bytes);
        Ok(())
    }

    fn double(&mut self, id: u16, values: impl IntoIterator<Item = f64>) {
        let bytes: Vec<u8> = values.into_iter().flat_map(f64::to_le_bytes).collect();
        self.push(id, DOUBLE, bytes.len() / 8, bytes);
    }

    fn ascii(&mut self, id: u16, text: &str) {
        let mut bytes = text.as_bytes().to_vec();
        bytes.push(0);
        self.push(id, ASCII, bytes.len(), bytes);
    }

    fn push(&mut self, id: u16, kind: u16, count: usize, bytes: Vec<u8>) {
        let place = self.0.partition_point(|tag| tag.id < id);
        self.0.insert(
            place,
            Tag {
                id,
                kind,
                count,
                bytes,
            },
        );
    }

    /// Bytes of header, IFD and the values that do not fit their entries.
    fn length(&self) -> usize {
        let outside: usize = self.0.iter().map(Tag::outside).sum();
        8 + 2 + 12 * self.0.len() + 4 + outside
    }

    fn to_bytes(&self) -> Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(self.length());
        bytes.extend(b"II*\0");
        bytes.extend(8_u32.to_le_bytes());
        bytes.extend(
            u16::try_from(self.0.len())
                .map_err(too_large)?
                .to_le_bytes(),
        );
        let mut outside = 8 + 2 + 12 * self.0.len() + 4;
        for tag in &self.0 {
            bytes.extend(tag.id.to_le_bytes());
            bytes.extend(tag.kind.to_le_bytes());
            bytes.extend(u32::try_from(tag.count).map_err(too_large)?.to_le_bytes());
            if tag.outside() == 0 {
                let mut value = tag.bytes.clone();
                value.resize(4, 0);
                bytes.extend(value);
            } else {
                bytes.extend(u32::try_from(outside).map_err(too_large)?.to_le_bytes());
                outside += tag.outside();
            }
        }
        bytes.extend(0_u32.to_le_bytes());
        for tag in self.0.iter().filter(|tag| tag.outside() > 0) {
            bytes.extend(&tag.bytes);
            bytes.resize(bytes.len() + tag.outside() - tag.bytes.len(), 0);
        }
        Ok(bytes)
    }
}

impl Tag {
    /// Bytes outside the entry, rounded up to a whole word.
    fn outside(&self) -> usize {
        if self.bytes.len() <= 4 {
            0
        } else {
            self.bytes.len().next_multiple_of(2)
        }
    }
}

fn too_large(err: std::num::TryFromIntError) -> Error {
    Error::new(
        ErrorKind::Unsupported,
        "a GeoTIFF past 4 GiB or 65,535 bands is not written; write .npy or .bin",
    )
    .with_source(err)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_borrow_across_bytes() {
        let row: Vec<u8> = [256_u16, 255, 1000]
            .iter()
            .flat_map(|v| v.to_le_bytes())
            .collect();
        let mut coded = row.clone();
        difference(&mut coded, 2);
        let values: Vec<u16> = coded
            .chunks(2)
            .map(|pair| u16::from_le_bytes([pair[0], pair[1]]))
            .collect();
        assert_eq!(values, [256, u16::MAX, 745]);
    }
}
