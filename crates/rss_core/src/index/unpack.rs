//! Decoding entries from the Arrow column of an asset. No IO.
//!
//! An index may come from anyone, so every value is checked; an error names the column.

use std::sync::Arc;

use arrow_array::{
    Array, BooleanArray, Float64Array, Int32Array, Int64Array, ListArray, StringArray, StructArray,
    TimestampMillisecondArray,
};
use bytes::Bytes;
use chrono::DateTime;

use super::delta;
use crate::{
    error::{Error, ErrorKind, Result},
    geo::{Crs, GeoTransform, Size},
    location::Location,
    raster::Number,
    reader::{BandProfile, ColorInterp, Entry, Header, Image, Tiles, Version},
};

/// The most colours of a palette: a TIFF sample with a palette has at most 16 bits.
const MOST_COLORS: usize = 1 << 16;

/// The column of one asset, downcast to its types.
#[derive(Debug)]
pub(super) struct Column<'a> {
    rows: &'a StructArray,
    little_endian: &'a BooleanArray,
    header_bytes: &'a Int64Array,
    dtype: &'a StringArray,
    nodata: &'a Float64Array,
    nodata_integer: Option<&'a StringArray>,
    epsg: &'a Int64Array,
    wkt: &'a StringArray,
    transform: &'a ListArray,
    pixel_is_point: &'a BooleanArray,
    bands: &'a ListArray,
    palette: &'a StringArray,
    metadata: &'a ListArray,
    levels: &'a ListArray,
}

impl<'a> Column<'a> {
    /// Downcasts the fields of a column.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`] if one is missing or of another type.
    pub(super) fn new(rows: &'a StructArray) -> Result<Self> {
        Ok(Self {
            rows,
            little_endian: part(rows, "little_endian")?,
            header_bytes: part(rows, "header_bytes")?,
            dtype: part(rows, "dtype")?,
            nodata: part(rows, "nodata")?,
            nodata_integer: match rows.column_by_name("nodata_integer") {
                Some(_) => Some(part(rows, "nodata_integer")?),
                None => None,
            },
            epsg: part(rows, "epsg")?,
            wkt: part(rows, "wkt")?,
            transform: part(rows, "transform")?,
            pixel_is_point: part(rows, "pixel_is_point")?,
            bands: part(rows, "bands")?,
            palette: part(rows, "palette")?,
            metadata: part(rows, "metadata")?,
            levels: part(rows, "levels")?,
        })
    }

    /// Returns true if a row holds an entry.
    pub(super) fn is_there(&self, row: usize) -> bool {
        row < self.rows.len() && self.rows.is_valid(row)
    }

    /// Returns the entry of a row, whose file is at `location`; none if the row holds none.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`] for an invalid value.
    pub(super) fn entry(&self, row: usize, location: Location) -> Result<Option<Entry>> {
        if !self.is_there(row) {
            return Ok(None);
        }
        let wrong = |err: Error| err.at(&location);
        let version = version(self.rows, row).map_err(wrong)?;
        let header = self.header(row).map_err(wrong)?;
        Ok(Some(Entry::new(location, version, header)))
    }

    fn header(&self, row: usize) -> Result<Header> {
        let dtype = needed(text(self.dtype, row), "dtype")?;
        let dtype = dtype
            .parse()
            .map_err(|_| wrong("dtype", "a dtype as numpy names it"))?;
        let (levels, masks) = self.levels(row)?;
        let mut header = Header::new(dtype, levels);
        header.masks = masks;
        header.little_endian = flag(self.little_endian, row, "little_endian")?;
        header.header_bytes = unsigned(self.header_bytes, row, "header_bytes")?;
        header.nodata = value(self.nodata, row, |a, i| a.value(i)).map(Number::from);
        if let Some(digits) = self
            .nodata_integer
            .and_then(|column| value(column, row, StringArray::value))
        {
            let integer = digits.parse();
            header.nodata = Some(integer.map_err(|_| wrong("nodata_integer", "an integer"))?);
        }
        let code = value(self.epsg, row, |a, i| a.value(i));
        header.crs = match (code, text(self.wkt, row)) {
            (Some(code), _) => Some(Crs::Epsg(
                u32::try_from(code).map_err(|_| wrong("epsg", "an EPSG code"))?,
            )),
            (None, Some(wkt)) => Some(Crs::Wkt(wkt)),
            (None, None) => None,
        };
        header.transform = self.transform(row)?;
        header.pixel_is_point = flag(self.pixel_is_point, row, "pixel_is_point")?;
        header.bands = self.bands(row)?;
        if let Some(digits) = value(self.palette, row, StringArray::value) {
            let bytes = unhex(digits, "palette")?;
            let (colors, rest) = bytes.as_chunks::<3>();
            if !rest.is_empty() || colors.len() > MOST_COLORS {
                let expected = "three bytes for each of at most 65536 colours";
                return Err(wrong("palette", expected));
            }
            header.palette = Some(colors.to_vec());
        }
        header.metadata = self.metadata(row)?;
        Ok(header)
    }

    fn transform(&self, row: usize) -> Result<Option<GeoTransform>> {
        let Some(list) = elements(self.transform, row) else {
            return Ok(None);
        };
        let numbers = typed::<Float64Array>(list.as_ref(), "transform")?;
        if numbers.null_count() == 0 {
            match <[f64; 6]>::try_from(numbers.values().as_ref()) {
                Ok(numbers) => return Ok(Some(GeoTransform(numbers))),
                Err(_) if numbers.is_empty() => return Ok(None),
                Err(_) => {}
            }
        }
        Err(wrong("transform", "six numbers or none"))
    }

    fn bands(&self, row: usize) -> Result<Vec<BandProfile>> {
        let Some(list) = elements(self.bands, row) else {
            return Ok(Vec::new());
        };
        let bands = typed::<StructArray>(list.as_ref(), "bands")?;
        let color: &StringArray = part(bands, "color")?;
        let description = part(bands, "description")?;
        let scale: &Float64Array = part(bands, "scale")?;
        let offset: &Float64Array = part(bands, "offset")?;
        let unit = part(bands, "unit")?;
        (0..bands.len())
            .map(|band| {
                let color = needed(text(color, band), "bands.color")?;
                Ok(BandProfile {
                    color: ColorInterp::of_name(&color).ok_or_else(|| {
                        wrong("bands.color", "a colour interpretation as GDAL names it")
                    })?,
                    description: text(description, band),
                    scale: value(scale, band, |a, i| a.value(i)),
                    offset: value(offset, band, |a, i| a.value(i)),
                    unit: text(unit, band),
                })
            })
            .collect()
    }

    fn metadata(&self, row: usize) -> Result<Vec<(String, String)>> {
        let Some(list) = elements(self.metadata, row) else {
            return Ok(Vec::new());
        };
        let pairs = typed::<StructArray>(list.as_ref(), "metadata")?;
        let (keys, values) = (part(pairs, "key")?, part(pairs, "value")?);
        (0..pairs.len())
            .map(|pair| {
                let key = needed(text(keys, pair), "metadata.key")?;
                Ok((key, needed(text(values, pair), "metadata.value")?))
            })
            .collect()
    }

    fn levels(&self, row: usize) -> Result<(Vec<Image>, Vec<Option<Image>>)> {
        let list = needed(elements(self.levels, row), "levels")?;
        let images = Images::new(typed(list.as_ref(), "levels")?)?;
        let mut levels = Vec::new();
        let mut masks: Vec<Option<Image>> = Vec::new();
        for index in 0..images.rows.len() {
            let image = images.image(index)?;
            if !flag(images.mask, index, "levels.mask")? {
                levels.push(image);
                masks.push(None);
                continue;
            }
            match masks.last_mut() {
                Some(mask @ None) => *mask = Some(image),
                _ => return Err(wrong("levels.mask", "at most one mask, after its level")),
            }
        }
        Ok((levels, masks))
    }
}

/// Returns the version of the file of a row; the column's other fields may be missing.
///
/// # Errors
///
/// [`ErrorKind::Corrupt`] for an invalid value.
pub(super) fn version(rows: &StructArray, row: usize) -> Result<Version> {
    let size = part(rows, "size")?;
    let etag = part(rows, "etag")?;
    let changed: &TimestampMillisecondArray = part(rows, "last_modified")?;
    let checksum = part(rows, "checksum")?;
    let changed = match value(changed, row, |a, i| a.value(i)) {
        None => None,
        Some(millis) => Some(
            DateTime::from_timestamp_millis(millis)
                .ok_or_else(|| wrong("last_modified", "a time within the calendar's range"))?,
        ),
    };
    Ok(Version::of_size(unsigned(size, row, "size")?)
        .with_etag(text(etag, row))
        .with_last_modified(changed)
        .with_checksum(text(checksum, row)))
}

/// The images of one entry.
struct Images<'a> {
    rows: &'a StructArray,
    mask: &'a BooleanArray,
    planar: &'a BooleanArray,
    bits_reversed: &'a BooleanArray,
    jpeg_tables: &'a StringArray,
    byte_counts: &'a ListArray,
    gaps: &'a ListArray,
}

impl<'a> Images<'a> {
    fn new(rows: &'a StructArray) -> Result<Self> {
        Ok(Self {
            rows,
            mask: part(rows, "mask")?,
            planar: part(rows, "planar")?,
            bits_reversed: part(rows, "bits_reversed")?,
            jpeg_tables: part(rows, "jpeg_tables")?,
            byte_counts: part(rows, "byte_counts")?,
            gaps: part(rows, "gaps")?,
        })
    }

    fn image(&self, index: usize) -> Result<Image> {
        let side = |name| {
            let number = unsigned(part(self.rows, name)?, index, name)?;
            u32::try_from(number).map_err(|_| wrong(name, "a size below 2^32"))
        };
        let code = |name| {
            let codes: &Int32Array = part(self.rows, name)?;
            let code = needed(value(codes, index, |a, i| a.value(i)), name)?;
            u16::try_from(code).map_err(|_| wrong(name, "a 16-bit code"))
        };
        let size = Size {
            width: side("width")?,
            height: side("height")?,
        };
        let tile = Size {
            width: side("tile_width")?,
            height: side("tile_height")?,
        };
        let mut image = Image::new(
            size,
            tile,
            code("bits")?,
            code("sample_format")?,
            self.tiles(index)?,
        );
        image.bands = code("bands")?;
        image.compression = code("compression")?;
        image.compression_option = code("compression_option")?;
        image.predictor = code("predictor")?;
        image.photometric = code("photometric")?;
        image.planar = flag(self.planar, index, "levels.planar")?;
        image.bits_reversed = flag(self.bits_reversed, index, "levels.bits_reversed")?;
        let tables = value(self.jpeg_tables, index, StringArray::value);
        let tables = tables.map(|digits| unhex(digits, "levels.jpeg_tables"));
        image.jpeg_tables = tables.transpose()?.map(Bytes::from);
        Ok(image)
    }

    fn tiles(&self, index: usize) -> Result<Tiles> {
        let sizes = needed(elements(self.byte_counts, index), "levels.byte_counts")?;
        let gaps = needed(elements(self.gaps, index), "levels.gaps")?;
        let sizes = whole_numbers(sizes.as_ref(), "levels.byte_counts")?;
        let gaps = whole_numbers(gaps.as_ref(), "levels.gaps")?;
        delta::unpack(sizes, gaps).map_err(|expected| wrong("levels", expected))
    }
}

/// Decodes pairs of hexadecimal digits.
fn unhex(digits: &str, name: &str) -> Result<Vec<u8>> {
    let digit = |byte: u8| {
        char::from(byte)
            .to_digit(16)
            .and_then(|digit| u8::try_from(digit).ok())
    };
    let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
    let bytes: Option<Vec<u8>> = pairs
        .iter()
        .map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?))
        .collect();
    bytes
        .filter(|_| rest.is_empty())
        .ok_or_else(|| wrong(name, "pairs of hexadecimal digits"))
}

fn wrong(column: &str, expected: &str) -> Error {
    let message = format!("column `{column}` of the index: expected {expected}");
    Error::new(ErrorKind::Corrupt, message)
}

fn typed<'a, T: Array + 'static>(array: &'a dyn Array, name: &str) -> Result<&'a T> {
    array.as_any().downcast_ref().ok_or_else(|| {
        let kind = array.data_type();
        wrong(name, &format!("another type than {kind}"))
    })
}

/// Returns a field of a struct by its name.
fn part<'a, T: Array + 'static>(rows: &'a StructArray, name: &str) -> Result<&'a T> {
    let found = rows
        .column_by_name(name)
        .ok_or_else(|| wrong(name, "the column to exist"))?;
    typed(found.as_ref(), name)
}

fn value<'a, A: Array, T>(array: &'a A, row: usize, get: impl Fn(&'a A, usize) -> T) -> Option<T> {
    (row < array.len() && array.is_valid(row)).then(|| get(array, row))
}

fn needed<T>(value: Option<T>, name: &str) -> Result<T> {
    value.ok_or_else(|| wrong(name, "a value, not null"))
}

fn text(array: &StringArray, row: usize) -> Option<String> {
    value(array, row, |array, row| array.value(row).to_owned())
}

fn flag(array: &BooleanArray, row: usize, name: &str) -> Result<bool> {
    needed(value(array, row, |array, row| array.value(row)), name)
}

fn unsigned(array: &Int64Array, row: usize, name: &str) -> Result<u64> {
    let number = needed(value(array, row, |array, row| array.value(row)), name)?;
    u64::try_from(number).map_err(|_| wrong(name, "a number of at least 0"))
}

fn elements(array: &ListArray, row: usize) -> Option<Arc<dyn Array>> {
    value(array, row, ListArray::value)
}

fn whole_numbers<'a>(array: &'a dyn Array, name: &str) -> Result<&'a [i64]> {
    let numbers: &Int64Array = typed(array, name)?;
    if numbers.null_count() > 0 {
        return Err(wrong(name, "no nulls"));
    }
    Ok(numbers.values())
}
