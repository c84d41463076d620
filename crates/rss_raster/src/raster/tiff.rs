//! Tags of the [GeoTIFFs](https://docs.ogc.org/is/19-008r4/19-008r4.html) that are written: image file directories and
//! georeferencing. Little-endian, classic and BigTIFF.

use crate::{
    error::{Error, ErrorKind, Result},
    geo::{
        Crs, GeoBox, GeoTransform,
        parts::{Parts, geokeys},
    },
    raster::{DataType, Number},
};

/// The field type of unsigned 32-bit integers.
pub const LONG: u16 = 4;
/// The field type of unsigned 64-bit integers, in BigTIFF.
pub const LONG8: u16 = 16;
const SHORT: u16 = 3;
const ASCII: u16 = 2;
const DOUBLE: u16 = 12;

/// The EPSG codes that a GeoKey can hold; 32767 means user-defined.
const CODES: std::ops::RangeInclusive<u32> = 1024..=32_766;

/// The variant of a file: the width of its offsets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Offsets of 32 bits.
    Classic,
    /// [BigTIFF](https://www.awaresystems.be/imaging/tiff/bigtiff.html): offsets of 64 bits.
    Big,
}

impl Form {
    /// Returns the file header; the first directory follows directly.
    pub fn start(self) -> &'static [u8] {
        match self {
            Self::Classic => b"II\x2a\0\x08\0\0\0",
            Self::Big => b"II\x2b\0\x08\0\0\0\x10\0\0\0\0\0\0\0",
        }
    }

    /// The size in bytes of a value that is stored in the entry itself.
    fn inline(self) -> usize {
        match self {
            Self::Classic => 4,
            Self::Big => 8,
        }
    }

    /// The size in bytes of a directory with `entries` entries.
    fn directory(self, entries: usize) -> usize {
        match self {
            Self::Classic => 2 + 12 * entries + 4,
            Self::Big => 8 + 20 * entries + 8,
        }
    }

    /// Writes an offset or a count in the width of this variant.
    fn put(self, out: &mut Vec<u8>, number: u64) -> Result<()> {
        match self {
            Self::Classic => {
                let number = u32::try_from(number).map_err(too_large)?;
                out.extend(number.to_le_bytes());
            }
            Self::Big => out.extend(number.to_le_bytes()),
        }
        Ok(())
    }
}

/// The entries of one directory, and the values that do not fit inline. They are sorted by tag id, as TIFF requires.
#[derive(Debug, Default)]
pub struct Tags(Vec<Tag>);

#[derive(Debug)]
struct Tag {
    id: u16,
    kind: u16,
    count: usize,
    value: Value,
}

#[derive(Debug)]
enum Value {
    /// Stored inline, or directly after the directory.
    Here(Vec<u8>),
    /// Written by the caller, at an offset in the file.
    There(u64),
}

impl Tags {
    /// Adds a tag of 16-bit integers.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`] if a value is larger.
    pub fn short(&mut self, id: u16, values: impl IntoIterator<Item = usize>) -> Result<()> {
        let mut bytes = Vec::new();
        for value in values {
            let value = u16::try_from(value).map_err(too_large)?;
            bytes.extend(value.to_le_bytes());
        }
        self.push(id, SHORT, bytes.len() / 2, Value::Here(bytes));
        Ok(())
    }

    /// Adds a tag of 32-bit integers.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`] if a value is larger.
    pub fn long(&mut self, id: u16, values: impl IntoIterator<Item = usize>) -> Result<()> {
        let mut bytes = Vec::new();
        for value in values {
            let value = u32::try_from(value).map_err(too_large)?;
            bytes.extend(value.to_le_bytes());
        }
        self.push(id, LONG, bytes.len() / 4, Value::Here(bytes));
        Ok(())
    }

    fn double(&mut self, id: u16, values: impl IntoIterator<Item = f64>) {
        let bytes: Vec<u8> = values.into_iter().flat_map(f64::to_le_bytes).collect();
        self.push(id, DOUBLE, bytes.len() / 8, Value::Here(bytes));
    }

    /// Adds a text; the terminating NUL is appended.
    pub fn ascii(&mut self, id: u16, text: &str) {
        let mut bytes = text.as_bytes().to_vec();
        bytes.push(0);
        self.push(id, ASCII, bytes.len(), Value::Here(bytes));
    }

    /// Adds a table that the caller writes at the offset `at`, unless it fits inline. Returns true if it does not.
    pub fn table(
        &mut self,
        form: Form,
        id: u16,
        kind: u16,
        count: usize,
        bytes: &[u8],
        at: u64,
    ) -> bool {
        let is_apart = bytes.len() > form.inline();
        let value = match is_apart {
            true => Value::There(at),
            false => Value::Here(bytes.to_vec()),
        };
        self.push(id, kind, count, value);
        is_apart
    }

    /// Adds the georeferencing tags, as far as they are known. A CRS without an EPSG code is stated in parts; a map
    /// projection whose text is not known ([`Crs::is_known`]) as this text, in a citation.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`] for a CRS that GeoKeys cannot state ([`Crs::has_geo_keys`]), and for an unknown code without a geotransform:
    /// its units are needed to choose the GeoKey.
    pub fn georeference(&mut self, geobox: &GeoBox) -> Result<()> {
        if let Some(transform) = &geobox.transform {
            self.transform(transform);
        }
        match &geobox.crs {
            Some(crs) => self.crs(crs, geobox),
            None => Ok(()),
        }
    }

    fn transform(&mut self, transform: &GeoTransform) {
        let g = transform.0;
        // ModelPixelScale and ModelTiepoint describe north-up grids only; others need ModelTransformation.
        if g[2] == 0.0 && g[4] == 0.0 && g[5] < 0.0 && g[1] > 0.0 {
            self.double(33550, [g[1], -g[5], 0.0]);
            self.double(33922, [0.0, 0.0, 0.0, g[0], g[3], 0.0]);
        } else {
            let row = |a: f64, b: f64, c: f64| [a, b, 0.0, c];
            let rows = [
                row(g[1], g[2], g[0]),
                row(g[4], g[5], g[3]),
                [0.0; 4],
                [0.0, 0.0, 0.0, 1.0],
            ];
            self.double(34264, rows.concat());
        }
    }

    fn crs(&mut self, crs: &Crs, geobox: &GeoBox) -> Result<()> {
        let code = match crs {
            Crs::Epsg(code) => *code,
            Crs::Wkt(wkt) => return self.crs_in_parts(wkt),
        };
        if !CODES.contains(&code) {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!(
                    "EPSG:{code} cannot be written to a GeoTIFF; expected a code from {} to {}",
                    CODES.start(),
                    CODES.end()
                ),
            ));
        }
        // An unknown code is taken to be geographic if the extent fits the globe in degrees.
        let by_extent = || {
            let [left, low, right, high] = geobox.bounds()?;
            let fits = |a: f64, b: f64, most: f64| a.abs() <= most && b.abs() <= most;
            // Accepts longitudes of 0 to 360, and global grids that exceed the poles by half a pixel.
            Some(fits(left, right, 360.0) && fits(low, high, 90.5))
        };
        let is_geographic = crs.is_geographic().or_else(by_extent).ok_or_else(|| {
            let message = format!(
                "EPSG:{code} is unknown, and without a geotransform it is undetermined whether its units are degrees"
            );
            Error::new(ErrorKind::Unsupported, message)
        })?;
        // GTModelType 2 with GeographicType, or 1 with ProjectedCSType.
        let (model, key) = if is_geographic { (2, 2048) } else { (1, 3072) };
        let code = usize::try_from(code).map_err(too_large)?;
        let keys = [
            // The header of the GeoKeyDirectory: version 1, revision 1.0, three keys. Then GTModelType,
            // GTRasterType (1 is PixelIsArea) and the CRS.
            [1, 1, 0, 3],
            [1024, 0, 1, model],
            [1025, 0, 1, 1],
            [key, 0, 1, code],
        ];
        self.short(34735, keys.concat())
    }

    /// Adds the GeoKeys of a CRS without an EPSG code.
    fn crs_in_parts(&mut self, wkt: &str) -> Result<()> {
        let keys = match Parts::parse(wkt) {
            Ok(parts) => Some(parts.geo_keys()),
            Err(_) => geokeys::quoted(wkt),
        };
        let keys = keys.ok_or_else(|| {
            let wkt: String = wkt.chars().take(60).collect();
            let message = format!(
                "the CRS {wkt} cannot be written to a GeoTIFF, which has no keys for it: choose another"
            );
            Error::new(ErrorKind::Unsupported, message)
        })?;
        let mut directory = vec![1, 1, 0, keys.directory.len()];
        directory.extend(keys.directory.iter().flatten().copied().map(usize::from));
        self.short(34735, directory)?;
        if !keys.doubles.is_empty() {
            self.double(34736, keys.doubles);
        }
        if !keys.texts.is_empty() {
            self.ascii(34737, &keys.texts);
        }
        Ok(())
    }

    fn push(&mut self, id: u16, kind: u16, count: usize, value: Value) {
        // TIFF requires the entries of a directory in ascending order of their tags.
        let index = self.0.partition_point(|tag| tag.id < id);
        let tag = Tag {
            id,
            kind,
            count,
            value,
        };
        self.0.insert(index, tag);
    }

    /// Removes an entry.
    pub(super) fn remove(&mut self, id: u16) {
        self.0.retain(|tag| tag.id != id);
    }

    /// Returns the size in bytes of the directory and of the values that follow it.
    pub fn length(&self, form: Form) -> usize {
        let outside: usize = self.0.iter().map(|tag| tag.outside(form)).sum();
        form.directory(self.0.len()) + outside
    }

    /// Appends the directory and its values to `out`, which is the file so far; `next` is the offset of the next
    /// directory, 0 if there is none.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`] if an offset does not fit a classic TIFF.
    pub fn write(&self, form: Form, out: &mut Vec<u8>, next: u64) -> Result<()> {
        // The offset of the next value that does not fit inline.
        let mut outside = out.len() + form.directory(self.0.len());
        match form {
            Form::Classic => {
                let entries = u16::try_from(self.0.len()).map_err(too_large)?;
                out.extend(entries.to_le_bytes());
            }
            Form::Big => out.extend((self.0.len() as u64).to_le_bytes()),
        }
        for tag in &self.0 {
            out.extend(tag.id.to_le_bytes());
            out.extend(tag.kind.to_le_bytes());
            form.put(out, tag.count as u64)?;
            match &tag.value {
                Value::There(at) => form.put(out, *at)?,
                // Inline values are left-justified in their field.
                Value::Here(bytes) if tag.outside(form) == 0 => {
                    let end = out.len() + form.inline();
                    out.extend(bytes);
                    out.resize(end, 0);
                }
                Value::Here(_) => {
                    form.put(out, outside as u64)?;
                    outside += tag.outside(form);
                }
            }
        }
        form.put(out, next)?;
        for tag in &self.0 {
            if let Value::Here(bytes) = &tag.value
                && tag.outside(form) > 0
            {
                let end = out.len() + tag.outside(form);
                out.extend(bytes);
                out.resize(end, 0);
            }
        }
        Ok(())
    }
}

impl Tag {
    /// The size in bytes after the directory, rounded up: TIFF requires offsets to be even.
    fn outside(&self, form: Form) -> usize {
        match &self.value {
            Value::Here(bytes) if bytes.len() > form.inline() => bytes.len().next_multiple_of(2),
            _ => 0,
        }
    }
}

/// Returns the value of the SampleFormat tag, and the bits per sample.
pub fn sample_format(dtype: DataType) -> (usize, usize) {
    let format = match dtype {
        DataType::U8 | DataType::U16 | DataType::U32 | DataType::U64 => 1,
        DataType::I8 | DataType::I16 | DataType::I32 | DataType::I64 => 2,
        DataType::F32 | DataType::F64 => 3,
        DataType::C64 | DataType::C128 => 6,
    };
    (format, dtype.size() * 8)
}

/// Returns the text of [GDAL's nodata tag](https://gdal.org/en/stable/drivers/raster/gtiff.html#nodata-value) for a
/// dtype. For 64-bit integers GDAL parses integers only: it would stop at an exponent, and all digits count.
pub fn nodata(dtype: DataType, value: Number) -> String {
    match dtype {
        DataType::U64 | DataType::I64 if dtype.holds(value) => value.to_string(),
        _ => number(value.as_f64()),
    }
}

/// Formats a number so that GDAL reads it back exactly, in at most 24 characters.
pub fn number(value: f64) -> String {
    if value.is_nan() {
        return "nan".to_owned();
    }
    let (plain, short) = (value.to_string(), format!("{value:e}"));
    match plain.len() <= short.len().max(12) {
        true => plain,
        false => short,
    }
}

/// Writes the differences of neighbours in a row
/// ([TIFF's predictor 2](https://www.adobe.io/open/standards/TIFF.html), section 14).
pub fn differences(row: &[u8], size: usize, out: &mut [u8]) {
    macro_rules! differences {
        ($type:ty) => {{
            const SIZE: usize = size_of::<$type>();
            let ((row, _), (out, _)) = (row.as_chunks::<SIZE>(), out.as_chunks_mut::<SIZE>());
            let (Some(first), Some((start, out))) = (row.first(), out.split_first_mut()) else {
                return;
            };
            *start = *first;
            let after = row.get(1..).unwrap_or_default();
            for ((out, before), here) in out.iter_mut().zip(row).zip(after) {
                let here = <$type>::from_le_bytes(*here);
                *out = here
                    .wrapping_sub(<$type>::from_le_bytes(*before))
                    .to_le_bytes();
            }
        }};
    }
    match size {
        1 => differences!(u8),
        2 => differences!(u16),
        4 => differences!(u32),
        _ => differences!(u64),
    }
}

/// Returns the error of a file that is too large for its form.
pub fn too_large(err: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::new(
        ErrorKind::Unsupported,
        "a GeoTIFF of more than 4 GiB or 65,535 bands is not supported; write .npy or .bin",
    )
    .with_source(err)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodata_of_whole_numbers_has_all_its_digits() {
        for (dtype, value, text) in [
            (DataType::I64, 1e13.into(), "10000000000000"),
            (DataType::U64, 2_f64.powi(60).into(), "1152921504606846976"),
            (DataType::U64, u64::MAX.into(), "18446744073709551615"),
            (DataType::I64, i64::MAX.into(), "9223372036854775807"),
            (DataType::I64, i64::MIN.into(), "-9223372036854775808"),
            (
                DataType::I64,
                ((1_i64 << 53) + 1).into(),
                "9007199254740993",
            ),
            (DataType::F64, 1e13.into(), "1e13"),
            // A file may state a nodata value that its dtype cannot represent.
            (DataType::U64, (-9999.0).into(), "-9999"),
            (DataType::I64, f64::NAN.into(), "nan"),
        ] {
            assert_eq!(nodata(dtype, value), text, "{dtype}");
        }
    }

    #[test]
    fn differences_borrow_across_bytes() {
        let row: Vec<u8> = [256_u16, 255, 1000]
            .iter()
            .flat_map(|number| number.to_le_bytes())
            .collect();
        let mut coded = vec![0; row.len()];
        differences(&row, 2, &mut coded);
        let (values, _) = coded.as_chunks::<2>();
        let values: Vec<u16> = values.iter().copied().map(u16::from_le_bytes).collect();
        assert_eq!(values, [256, u16::MAX, 745]);
    }

    #[test]
    fn numbers_are_short_and_exact() {
        for (value, text) in [
            (-999.0, "-999"),
            (0.0001, "0.0001"),
            (255.0, "255"),
            (
                -340_282_346_638_528_860_000_000_000_000_000_000_000.0,
                "-3.4028234663852886e38",
            ),
            (f64::INFINITY, "inf"),
        ] {
            assert_eq!(number(value), text);
            assert_eq!(text.parse(), Ok(value));
        }
        assert_eq!(number(f64::NAN), "nan");
        for value in [f64::MIN, -f64::MIN_POSITIVE, -1.234_567_890_123_456_7e-300] {
            assert!(number(value).len() <= 24);
        }
    }
}
