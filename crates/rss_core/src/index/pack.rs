//! Encoding entries as the Arrow column of an asset. No IO.

use std::{mem, sync::Arc};

use arrow_array::{
    Array, ArrayRef, ListArray, StructArray,
    builder::{
        ArrayBuilder as _, BooleanBuilder, Float64Builder, Int32Builder, Int64Builder,
        StringBuilder, TimestampMillisecondBuilder,
    },
};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_schema::{Field, Fields};

use super::{delta, schema};
use crate::{
    error::{Error, ErrorKind, Result},
    geo::Crs,
    raster::Number,
    reader::{BandProfile, Entry, Image},
    store::hex,
};

/// Checks that a column can hold an entry.
///
/// # Errors
///
/// [`ErrorKind::Unsupported`] if one of its numbers is too large.
pub(super) fn check(entry: &Entry) -> Result<()> {
    column(&[Some(entry)]).map(|_| ())
}

/// Encodes the column of one asset: a row for each entry, null where there is none.
///
/// # Errors
///
/// [`ErrorKind::Unsupported`] if a number of an entry is too large for the column.
pub(super) fn column(entries: &[Option<&Entry>]) -> Result<StructArray> {
    let mut rows = PackedRows::default();
    for entry in entries {
        match entry {
            Some(entry) => rows.push(entry).map_err(|expected| {
                let message = format!("the header does not fit an index: expected {expected}");
                Error::new(ErrorKind::Unsupported, message).at(&entry.location)
            })?,
            None => rows.push_null(),
        }
    }
    Ok(rows.finish())
}

type Packed<T = ()> = Result<T, &'static str>;

fn whole(value: u64) -> Packed<i64> {
    i64::try_from(value).map_err(|_| "numbers below 2^63")
}

/// The offsets of an Arrow list array: the ends of the lists so far.
#[derive(Debug)]
struct Ends(Vec<i32>);

impl Default for Ends {
    fn default() -> Self {
        Self(vec![0])
    }
}

impl Ends {
    fn push(&mut self, end: usize) -> Packed {
        let end = i32::try_from(end).map_err(|_| "fewer than 2^31 tiles at once")?;
        self.0.push(end);
        Ok(())
    }

    fn repeat(&mut self) {
        self.0.push(self.0.last().copied().unwrap_or(0));
    }

    fn list(self, values: ArrayRef) -> ArrayRef {
        let element = Field::new("element", values.data_type().clone(), false);
        let ends = OffsetBuffer::new(self.0.into());
        Arc::new(ListArray::new(Arc::new(element), ends, values, None))
    }
}

fn structs(fields: Fields, columns: Vec<ArrayRef>) -> ArrayRef {
    Arc::new(StructArray::new(fields, columns, None))
}

#[derive(Debug)]
struct PackedRows {
    present: Vec<bool>,
    size: Int64Builder,
    etag: StringBuilder,
    last_modified: TimestampMillisecondBuilder,
    checksum: StringBuilder,
    little_endian: BooleanBuilder,
    header_bytes: Int64Builder,
    width: Int64Builder,
    height: Int64Builder,
    count: Int32Builder,
    dtype: StringBuilder,
    nodata: Float64Builder,
    nodata_integer: StringBuilder,
    epsg: Int64Builder,
    wkt: StringBuilder,
    transform: Float64Builder,
    transform_ends: Ends,
    pixel_is_point: BooleanBuilder,
    compression: StringBuilder,
    bands: Bands,
    band_ends: Ends,
    palette: StringBuilder,
    metadata_key: StringBuilder,
    metadata_value: StringBuilder,
    metadata_ends: Ends,
    levels: Levels,
    level_ends: Ends,
}

impl Default for PackedRows {
    fn default() -> Self {
        Self {
            present: Vec::new(),
            size: Int64Builder::new(),
            etag: StringBuilder::new(),
            last_modified: TimestampMillisecondBuilder::new().with_timezone("UTC"),
            checksum: StringBuilder::new(),
            little_endian: BooleanBuilder::new(),
            header_bytes: Int64Builder::new(),
            width: Int64Builder::new(),
            height: Int64Builder::new(),
            count: Int32Builder::new(),
            dtype: StringBuilder::new(),
            nodata: Float64Builder::new(),
            nodata_integer: StringBuilder::new(),
            epsg: Int64Builder::new(),
            wkt: StringBuilder::new(),
            transform: Float64Builder::new(),
            transform_ends: Ends::default(),
            pixel_is_point: BooleanBuilder::new(),
            compression: StringBuilder::new(),
            bands: Bands::default(),
            band_ends: Ends::default(),
            palette: StringBuilder::new(),
            metadata_key: StringBuilder::new(),
            metadata_value: StringBuilder::new(),
            metadata_ends: Ends::default(),
            levels: Levels::default(),
            level_ends: Ends::default(),
        }
    }
}

impl PackedRows {
    fn push(&mut self, entry: &Entry) -> Packed {
        let (version, header) = (&entry.version, &entry.header);
        self.present.push(true);
        self.size.append_value(whole(version.size)?);
        self.etag.append_option(version.etag.as_deref());
        let changed = version.last_modified.map(|time| time.timestamp_millis());
        self.last_modified.append_option(changed);
        self.checksum.append_option(version.checksum.as_deref());
        self.little_endian.append_value(header.little_endian);
        self.header_bytes.append_value(whole(header.header_bytes)?);
        let full = header.levels.first();
        self.width
            .append_option(full.map(|full| i64::from(full.size.width)));
        self.height
            .append_option(full.map(|full| i64::from(full.size.height)));
        self.count
            .append_option(full.map(|full| i32::from(full.bands)));
        self.dtype.append_value(header.dtype.name());
        let nodata = header.nodata;
        self.nodata.append_option(nodata.map(Number::as_f64));
        let integer = nodata.filter(|&nodata| Number::from(nodata.as_f64()) != nodata);
        self.nodata_integer
            .append_option(integer.map(|integer| integer.to_string()));
        let (epsg, wkt) = match &header.crs {
            Some(Crs::Epsg(code)) => (Some(i64::from(*code)), None),
            Some(Crs::Wkt(wkt)) => (None, Some(wkt)),
            None => (None, None),
        };
        self.epsg.append_option(epsg);
        self.wkt.append_option(wkt);
        if let Some(transform) = header.transform {
            self.transform.append_slice(&transform.0);
        }
        self.transform_ends.push(self.transform.len())?;
        self.pixel_is_point.append_value(header.pixel_is_point);
        let name = full.and_then(|full| schema::compression_name(full.compression));
        self.compression.append_option(name);
        for band in &header.bands {
            self.bands.push(band);
        }
        self.band_ends.push(self.bands.color.len())?;
        let palette = header.palette.as_ref();
        let palette = palette.map(|palette| hex(palette.as_flattened()));
        self.palette.append_option(palette);
        for (key, value) in &header.metadata {
            self.metadata_key.append_value(key);
            self.metadata_value.append_value(value);
        }
        self.metadata_ends.push(self.metadata_key.len())?;
        if header.masks.len() != header.levels.len() {
            return Err("as many masks as levels");
        }
        // A mask follows its level, marked by `mask`: one list holds both in the order in which they are read back.
        let mut masks = header.masks.iter();
        for level in &header.levels {
            self.levels.push(level, false)?;
            if let Some(Some(mask)) = masks.next() {
                self.levels.push(mask, true)?;
            }
        }
        self.level_ends.push(self.levels.mask.len())
    }

    fn push_null(&mut self) {
        self.present.push(false);
        self.size.append_null();
        self.etag.append_null();
        self.last_modified.append_null();
        self.checksum.append_null();
        self.little_endian.append_null();
        self.header_bytes.append_null();
        self.width.append_null();
        self.height.append_null();
        self.count.append_null();
        self.dtype.append_null();
        self.nodata.append_null();
        self.nodata_integer.append_null();
        self.epsg.append_null();
        self.wkt.append_null();
        self.transform_ends.repeat();
        self.pixel_is_point.append_null();
        self.compression.append_null();
        self.band_ends.repeat();
        self.palette.append_null();
        self.metadata_ends.repeat();
        self.level_ends.repeat();
    }

    fn finish(mut self) -> StructArray {
        let nulls = NullBuffer::from(mem::take(&mut self.present));
        let metadata = structs(
            schema::metadata(),
            vec![
                Arc::new(self.metadata_key.finish()),
                Arc::new(self.metadata_value.finish()),
            ],
        );
        // Lists are null where the row is: an empty list would mean a header without bands or levels.
        let list = |ends: Ends, values: ArrayRef| -> ArrayRef {
            let element = Field::new("element", values.data_type().clone(), false);
            let ends = OffsetBuffer::new(ends.0.into());
            Arc::new(ListArray::new(
                Arc::new(element),
                ends,
                values,
                Some(nulls.clone()),
            ))
        };
        let columns: Vec<ArrayRef> = vec![
            Arc::new(self.size.finish()),
            Arc::new(self.etag.finish()),
            Arc::new(self.last_modified.finish()),
            Arc::new(self.checksum.finish()),
            Arc::new(self.little_endian.finish()),
            Arc::new(self.header_bytes.finish()),
            Arc::new(self.width.finish()),
            Arc::new(self.height.finish()),
            Arc::new(self.count.finish()),
            Arc::new(self.dtype.finish()),
            Arc::new(self.nodata.finish()),
            Arc::new(self.nodata_integer.finish()),
            Arc::new(self.epsg.finish()),
            Arc::new(self.wkt.finish()),
            list(self.transform_ends, Arc::new(self.transform.finish())),
            Arc::new(self.pixel_is_point.finish()),
            Arc::new(self.compression.finish()),
            list(self.band_ends, self.bands.finish()),
            Arc::new(self.palette.finish()),
            list(self.metadata_ends, metadata),
            list(self.level_ends, self.levels.finish()),
        ];
        StructArray::new(schema::entry(), columns, Some(nulls.clone()))
    }
}

#[derive(Debug, Default)]
struct Bands {
    color: StringBuilder,
    description: StringBuilder,
    scale: Float64Builder,
    offset: Float64Builder,
    unit: StringBuilder,
}

impl Bands {
    fn push(&mut self, band: &BandProfile) {
        self.color.append_value(band.color.name());
        self.description.append_option(band.description.as_deref());
        self.scale.append_option(band.scale);
        self.offset.append_option(band.offset);
        self.unit.append_option(band.unit.as_deref());
    }

    fn finish(mut self) -> ArrayRef {
        structs(
            schema::bands(),
            vec![
                Arc::new(self.color.finish()),
                Arc::new(self.description.finish()),
                Arc::new(self.scale.finish()),
                Arc::new(self.offset.finish()),
                Arc::new(self.unit.finish()),
            ],
        )
    }
}

#[derive(Debug, Default)]
struct Levels {
    mask: BooleanBuilder,
    sides: [Int64Builder; 4],
    codes: [Int32Builder; 6],
    planar: BooleanBuilder,
    photometric: Int32Builder,
    bits_reversed: BooleanBuilder,
    jpeg_tables: StringBuilder,
    byte_counts: Vec<i64>,
    gaps: Vec<i64>,
    ends: Ends,
}

impl Levels {
    fn push(&mut self, image: &Image, mask: bool) -> Packed {
        self.mask.append_value(mask);
        let sides = [image.size, image.tile].map(|size| [size.width, size.height]);
        for (column, side) in self.sides.iter_mut().zip(sides.as_flattened()) {
            column.append_value(i64::from(*side));
        }
        let codes = [
            image.bands,
            image.bits,
            image.sample_format,
            image.compression,
            image.compression_option,
            image.predictor,
        ];
        for (column, code) in self.codes.iter_mut().zip(codes) {
            column.append_value(i32::from(code));
        }
        self.planar.append_value(image.planar);
        self.photometric.append_value(i32::from(image.photometric));
        self.bits_reversed.append_value(image.bits_reversed);
        let tables = image.jpeg_tables.as_deref().map(hex);
        self.jpeg_tables.append_option(tables);
        delta::pack(&image.tiles, &mut self.byte_counts, &mut self.gaps)?;
        self.ends.push(self.gaps.len())
    }

    fn finish(mut self) -> ArrayRef {
        let mut columns: Vec<ArrayRef> = vec![Arc::new(self.mask.finish())];
        for side in &mut self.sides {
            columns.push(Arc::new(side.finish()));
        }
        for code in &mut self.codes {
            columns.push(Arc::new(code.finish()));
        }
        let ends = Ends(self.ends.0.clone());
        columns.extend([
            Arc::new(self.planar.finish()) as ArrayRef,
            Arc::new(self.photometric.finish()),
            Arc::new(self.bits_reversed.finish()),
            Arc::new(self.jpeg_tables.finish()),
            ends.list(Arc::new(arrow_array::Int64Array::from(self.byte_counts))),
            self.ends
                .list(Arc::new(arrow_array::Int64Array::from(self.gaps))),
        ]);
        structs(schema::levels(), columns)
    }
}
