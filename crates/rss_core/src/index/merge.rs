//! Several indexes made one: of an item that several hold, the last one counts, asset by asset.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    path::Path,
    sync::Arc,
};

use arrow_array::{Array, ArrayRef, RecordBatch, StructArray, cast::AsArray, new_null_array};
use arrow_buffer::NullBuffer;
use arrow_schema::{Field, SchemaRef};
use arrow_select::interleave::interleave;
use parquet::arrow::ProjectionMask;
use sha2::{Digest, Sha256};

use super::{
    disk::{Stop, on_disk},
    file::{Writer, schema_of},
    inputs::ROWS_AT_ONCE,
    journal::Name,
    open::{Index, Info},
    pack,
    schema::{ASSETS, PREFIX, column_of},
    unite,
};
use crate::{
    error::{Error, ErrorKind, Result},
    reader::Entry,
};

/// Makes one index of several. Of items with the same id and collection the last input's counts; an
/// asset that only an earlier one has, or has read, is taken from there. Columns are united: what an
/// input lacks is null, whole numbers become floats where another input has floats.
///
/// `output` may be one of the inputs. It is written whole or not at all.
///
/// # Errors
///
/// As [`Index::open`] for each input; [`ErrorKind::InvalidInput`] that names a column whose types
/// cannot be united; as the file system's.
pub async fn merge<P: AsRef<Path>>(
    inputs: impl IntoIterator<Item = P>,
    output: impl AsRef<Path>,
) -> Result<Info> {
    let inputs: Vec<_> = inputs
        .into_iter()
        .map(|path| path.as_ref().to_owned())
        .collect();
    let output = output.as_ref().to_owned();
    on_disk(move |stop| {
        let inputs: Vec<&Path> = inputs.iter().map(AsRef::as_ref).collect();
        merge_indexes(&inputs, &output, stop)
    })
    .await
}

/// Where a row is: input, row group, row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct RowAddress {
    input: usize,
    group: usize,
    row: usize,
}

/// The rows of one item: where the one that counts is, and where older ones are, newest first.
#[derive(Debug)]
struct Versions {
    last: RowAddress,
    older: Vec<RowAddress>,
}

pub(super) fn merge_indexes(inputs: &[&Path], output: &Path, stop: &Stop) -> Result<Info> {
    if inputs.is_empty() {
        let message = "no index to merge, expected one at least";
        return Err(Error::new(ErrorKind::InvalidInput, message));
    }
    let indexes = inputs.iter().map(Index::open).collect::<Result<Vec<_>>>()?;
    let mut fields: Vec<Field> = Vec::new();
    for index in &indexes {
        let columns = index.table().schema()?;
        let columns: Vec<Field> = columns
            .fields()
            .iter()
            .map(|field| field.as_ref().clone())
            .collect();
        unite::join(&mut fields, &columns).map_err(|err| err.at(index.table().path().display()))?;
    }
    let columns = schema_of(fields);
    let items = items(&indexes, stop)?;
    let mut writer = Writer::create(output, Arc::clone(&columns), stop)?;
    for (input, index) in indexes.iter().enumerate() {
        let mask = ProjectionMask::all();
        for group in 0..index.table().groups() {
            let mut row = 0;
            for batch in index.table().read(group, &mask, None, ROWS_AT_ONCE)? {
                let batch = batch?;
                let names = names(&batch);
                let mut kept: Vec<(usize, &[RowAddress])> = Vec::new();
                for (at, name) in names.iter().enumerate() {
                    let here = RowAddress {
                        input,
                        group,
                        row: row + at,
                    };
                    if let Some(found) = items.get(name)
                        && found.last == here
                    {
                        kept.push((at, &found.older));
                    }
                }
                row += batch.num_rows();
                if !kept.is_empty() {
                    let batch = fitted(&batch, &columns)?;
                    writer.write(&joined(&batch, &kept, &indexes, &columns)?)?;
                }
            }
        }
    }
    // The inputs may be what is written over.
    drop(indexes);
    writer.finish()?;
    Ok(Index::open(output)?.info())
}

/// Finds each item's rows.
fn items(indexes: &[Index], stop: &Stop) -> Result<HashMap<Name, Versions>> {
    let mut items: HashMap<Name, Versions> = HashMap::new();
    for (input, index) in indexes.iter().enumerate() {
        let table = index.table();
        let mask = table.mask(&[&["id"], &["collection"]]);
        for group in 0..table.groups() {
            stop.check()?;
            let mut row = 0;
            for batch in table.read(group, &mask, None, 1024)? {
                for name in names(&batch?) {
                    let last = RowAddress { input, group, row };
                    row += 1;
                    match items.get_mut(&name) {
                        Some(known) => {
                            known.older.insert(0, known.last);
                            known.last = last;
                        }
                        None => {
                            let older = Vec::new();
                            items.insert(name, Versions { last, older });
                        }
                    }
                }
            }
        }
    }
    Ok(items)
}

/// Returns digests of the ids and collections of rows.
fn names(batch: &RecordBatch) -> Vec<Name> {
    let texts = |name: &str| batch.column_by_name(name)?.as_string_opt::<i32>();
    let (ids, collections) = (texts("id"), texts("collection"));
    (0..batch.num_rows())
        .map(|row| {
            let mut hash = Sha256::new();
            for column in [ids, collections] {
                let text = column.filter(|column| column.is_valid(row));
                let text = text.map_or("", |column| column.value(row));
                hash.update((text.len() as u64).to_le_bytes());
                hash.update(text);
            }
            Name::of_digest(hash)
        })
        .collect()
}

fn fitted(batch: &RecordBatch, columns: &SchemaRef) -> Result<RecordBatch> {
    let arrays = columns
        .fields()
        .iter()
        .map(|field| match batch.column_by_name(field.name()) {
            Some(column) => unite::fit(column, field.data_type()),
            None => Ok(new_null_array(field.data_type(), batch.num_rows())),
        });
    made(columns, arrays.collect::<Result<Vec<_>>>()?)
}

fn made(columns: &SchemaRef, arrays: Vec<ArrayRef>) -> Result<RecordBatch> {
    RecordBatch::try_new(Arc::clone(columns), arrays).map_err(misfit)
}

fn misfit(err: arrow_schema::ArrowError) -> Error {
    let message = "indexes whose columns do not fit together";
    Error::new(ErrorKind::Corrupt, message).with_source(err)
}

/// Returns the rows that are kept, each asset from the last row that has read it.
fn joined(
    batch: &RecordBatch,
    kept: &[(usize, &[RowAddress])],
    indexes: &[Index],
    columns: &SchemaRef,
) -> Result<RecordBatch> {
    // The older rows, each group of a file read once.
    let mut wanted: BTreeMap<(usize, usize), BTreeSet<usize>> = BTreeMap::new();
    for place in kept.iter().flat_map(|(_, older)| older.iter()) {
        let group = wanted.entry((place.input, place.group)).or_default();
        group.insert(place.row);
    }
    let mut batches = vec![batch.clone()];
    let mut places: HashMap<RowAddress, (usize, usize)> = HashMap::new();
    for ((input, group), rows) in wanted {
        let rows: Vec<usize> = rows.into_iter().collect();
        let Some(index) = indexes.get(input) else {
            continue;
        };
        let old = index
            .table()
            .rows_of(group, &ProjectionMask::all(), &rows)?;
        for (at, row) in rows.into_iter().enumerate() {
            places.insert(RowAddress { input, group, row }, (batches.len(), at));
        }
        batches.push(fitted(&old, columns)?);
    }
    let own: Vec<(usize, usize)> = kept.iter().map(|(at, _)| (0, *at)).collect();
    let older: Vec<Vec<(usize, usize)>> = kept
        .iter()
        .map(|(_, older)| {
            older
                .iter()
                .filter_map(|place| places.get(place).copied())
                .collect()
        })
        .collect();

    let mut picks: HashMap<String, Vec<(usize, usize)>> = HashMap::new();
    let mut arrays = Vec::new();
    for field in columns.fields() {
        let array = match field.name().as_str() {
            ASSETS => {
                let rows = structs(&batches, ASSETS);
                let mut parts = Vec::new();
                let mut there = vec![false; own.len()];
                let Some(first) = rows.first() else { continue };
                for part in first.fields() {
                    let picked = picks
                        .entry(part.name().clone())
                        .or_insert_with(|| picked(&batches, part.name(), &own, &older));
                    let part: Vec<&dyn Array> = rows
                        .iter()
                        .filter_map(|rows| Some(rows.column_by_name(part.name())?.as_ref()))
                        .collect();
                    let part = interleave(&part, picked).map_err(misfit)?;
                    for (row, there) in there.iter_mut().enumerate() {
                        *there |= part.is_valid(row);
                    }
                    parts.push(part);
                }
                let nulls = NullBuffer::from(there);
                let rows = StructArray::try_new(first.fields().clone(), parts, Some(nulls));
                Arc::new(rows.map_err(misfit)?) as ArrayRef
            }
            name => {
                let parts: Vec<&dyn Array> = batches
                    .iter()
                    .filter_map(|batch| Some(batch.column_by_name(name)?.as_ref()))
                    .collect();
                let rows = match name.strip_prefix(PREFIX) {
                    Some(asset) => picks
                        .entry(asset.to_owned())
                        .or_insert_with(|| picked(&batches, asset, &own, &older)),
                    None => &own,
                };
                interleave(&parts, rows).map_err(misfit)?
            }
        };
        arrays.push(array);
    }
    made(columns, arrays)
}

fn structs<'a>(batches: &'a [RecordBatch], name: &str) -> Vec<&'a StructArray> {
    let columns = batches
        .iter()
        .filter_map(|batch| batch.column_by_name(name));
    columns
        .filter_map(|column| column.as_struct_opt())
        .collect()
}

/// Returns from which row each item's asset is taken: the newest that has an entry, else the newest
/// whose catalogue has it.
fn picked(
    batches: &[RecordBatch],
    asset: &str,
    own: &[(usize, usize)],
    older: &[Vec<(usize, usize)>],
) -> Vec<(usize, usize)> {
    let column = column_of(asset);
    let is_read = |(batch, row): (usize, usize)| {
        let column = batches
            .get(batch)
            .and_then(|batch| batch.column_by_name(&column));
        column.is_some_and(|column| column.is_valid(row))
    };
    let is_there = |(batch, row): (usize, usize)| {
        let assets = batches
            .get(batch)
            .and_then(|batch| batch.column_by_name(ASSETS));
        let assets = assets.and_then(|assets| assets.as_struct_opt());
        let column = assets.and_then(|assets| assets.column_by_name(asset));
        column.is_some_and(|column| column.is_valid(row))
    };
    own.iter()
        .zip(older)
        .map(|(own, older)| {
            let all = || std::iter::once(*own).chain(older.iter().copied());
            all()
                .find(|place| is_read(*place))
                .or_else(|| all().find(|place| is_there(*place)))
                .unwrap_or(*own)
        })
        .collect()
}

/// Writes an index anew with other entries for some files.
///
/// # Errors
///
/// As [`Index::open`] and the file system's.
pub(super) fn replace(path: &Path, entries: &HashMap<Name, Entry>, stop: &Stop) -> Result<Info> {
    let index = Index::open(path)?;
    let columns = index.table().schema()?;
    let mut writer = Writer::create(path, Arc::clone(&columns), stop)?;
    for group in 0..index.table().groups() {
        for batch in index
            .table()
            .read(group, &ProjectionMask::all(), None, ROWS_AT_ONCE)?
        {
            let batch = batch?;
            let mut arrays = batch.columns().to_vec();
            for asset in index.keys() {
                let Ok(place) = columns.index_of(&column_of(asset)) else {
                    continue;
                };
                let names = index.names(&batch, asset);
                let fresh: Vec<Option<&Entry>> = names
                    .iter()
                    .map(|name| entries.get(name.as_ref()?))
                    .collect();
                let Some(old) = arrays.get_mut(place) else {
                    continue;
                };
                let here: Vec<(usize, usize)> = fresh
                    .iter()
                    .enumerate()
                    .map(|(row, entry)| (usize::from(entry.is_some() && old.is_valid(row)), row))
                    .collect();
                if here.iter().any(|(which, _)| *which == 1) {
                    let fresh = unite::fit(
                        &(Arc::new(pack::column(&fresh)?) as ArrayRef),
                        old.data_type(),
                    )?;
                    *old = interleave(&[old.as_ref(), fresh.as_ref()], &here).map_err(misfit)?;
                }
            }
            writer.write(&made(&columns, arrays)?)?;
        }
    }
    drop(index);
    writer.finish()?;
    Ok(Index::open(path)?.info())
}
