//! Merging indexes: of an item in several indexes the last one wins, asset by asset.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
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
    file::{Writer, keep, schema_of, temporary},
    inputs::ROWS_AT_ONCE,
    journal::Name,
    open::{Index, Info},
    pack,
    schema::{ASSETS, PREFIX, column_of},
    splice::{self, Splice},
    summary::Summary,
    unite,
};
use crate::{
    error::{Error, ErrorKind, Result},
    reader::Entry,
};

/// Merges indexes. Of items with the same id and collection that of the last input wins; an
/// asset or entry that only an earlier input has is taken from there. The columns are the union: a column that an
/// input lacks is null, and integers become floats if another input has floats.
///
/// `output` may be one of the inputs. It is written completely or not at all.
///
/// # Errors
///
/// As [`Index::open`] for each input; [`ErrorKind::InvalidInput`] that names a column whose types
/// have no union; errors of the file system.
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

/// The address of a row: input, row group, row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct RowAddress {
    input: usize,
    group: usize,
    row: usize,
}

/// The rows of one item: the last one, which wins, and the older ones, newest first.
#[derive(Debug)]
struct Versions {
    last: RowAddress,
    older: Vec<RowAddress>,
}

pub(super) fn merge_indexes(inputs: &[&Path], output: &Path, stop: &Stop) -> Result<Info> {
    if inputs.is_empty() {
        let message = "no index to merge, expected at least one";
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
    // Two passes: which row of an item wins is known only when all inputs were read.
    let items = items(&indexes, stop)?;
    let copied = copied(&indexes, &items, &columns);
    if copied.iter().all(BTreeSet::is_empty) {
        let mut writer = Writer::create(output, Arc::clone(&columns), stop)?;
        for input in 0..indexes.len() {
            write_rows(&indexes, input, &items, &BTreeSet::new(), &mut writer)?;
        }
        // Close the inputs first: one of them may be the file that the output replaces.
        drop(indexes);
        writer.finish()?;
        return Ok(Index::open(output)?.info());
    }
    // All other rows become row groups of a file of their own, which are copied behind the others.
    let rest = temporary(output)?;
    let mut writer = Writer::create(rest.path(), Arc::clone(&columns), stop)?;
    let mut summary = Summary::of(&columns);
    for (input, copied) in copied.iter().enumerate() {
        let written = write_rows(&indexes, input, &items, copied, &mut writer)?;
        if let Some(index) = indexes.get(input)
            && !copied.is_empty()
            && let Some(mut stated) = Summary::stated(index.table())
        {
            stated.take(&written);
            summary.add(&stated);
        }
    }
    writer.finish()?;
    let others = Index::open(rest.path())?;
    if let Some(stated) = Summary::stated(others.table()) {
        summary.add(&stated);
    }
    let mut splice = Splice::create(output, &columns, stop)?;
    for (index, copied) in indexes.iter().zip(&copied) {
        for group in copied {
            splice.copy(index.table(), *group)?;
        }
    }
    for group in 0..others.table().groups() {
        splice.copy(others.table(), group)?;
    }
    let done = splice.finish(&summary)?;
    drop((indexes, others));
    keep(done, output)?;
    Ok(Index::open(output)?.info())
}

/// Returns the row groups of each input that are copied by their bytes: large ones of the same columns, of which each row is
/// the only one of its item.
fn copied(
    indexes: &[Index],
    items: &HashMap<Name, Versions>,
    columns: &SchemaRef,
) -> Vec<BTreeSet<usize>> {
    let several = items.values().filter(|item| !item.older.is_empty());
    let changed: HashSet<(usize, usize)> = several
        .flat_map(|item| item.older.iter().chain([&item.last]))
        .map(|row| (row.input, row.group))
        .collect();
    let copied = indexes.iter().enumerate().map(|(input, index)| {
        let table = index.table();
        if !splice::is_alike(table, columns) || Summary::stated(table).is_none() {
            return BTreeSet::new();
        }
        (0..table.groups())
            .filter(|group| !changed.contains(&(input, *group)) && splice::is_large(table, *group))
            .collect()
    });
    copied.collect()
}

/// Writes the rows of an input that win, but for those of some row groups. Returns the summary of all rows that were read.
fn write_rows(
    indexes: &[Index],
    input: usize,
    items: &HashMap<Name, Versions>,
    without: &BTreeSet<usize>,
    writer: &mut Writer,
) -> Result<Summary> {
    let columns = writer.columns();
    let mut read = Summary::of(&columns);
    let Some(index) = indexes.get(input) else {
        return Ok(read);
    };
    let mask = ProjectionMask::all();
    for group in (0..index.table().groups()).filter(|group| !without.contains(group)) {
        let mut row = 0;
        for batch in index.table().read(group, &mask, None, ROWS_AT_ONCE)? {
            let batch = batch?;
            if !without.is_empty() {
                read.count(&batch);
            }
            let names = names(&batch);
            let mut retained: Vec<(usize, &[RowAddress])> = Vec::new();
            for (at, name) in names.iter().enumerate() {
                let here = RowAddress {
                    input,
                    group,
                    row: row + at,
                };
                if let Some(found) = items.get(name)
                    && found.last == here
                {
                    retained.push((at, &found.older));
                }
            }
            row += batch.num_rows();
            if !retained.is_empty() {
                let batch = fitted(&batch, &columns)?;
                writer.write(&joined(&batch, &retained, indexes, &columns)?)?;
            }
        }
    }
    Ok(read)
}

/// Finds the rows of each item.
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
    record_batch(columns, arrays.collect::<Result<Vec<_>>>()?)
}

fn record_batch(columns: &SchemaRef, arrays: Vec<ArrayRef>) -> Result<RecordBatch> {
    RecordBatch::try_new(Arc::clone(columns), arrays).map_err(misfit)
}

fn misfit(err: arrow_schema::ArrowError) -> Error {
    let message = "the indexes' columns differ in length or type";
    Error::new(ErrorKind::Corrupt, message).with_source(err)
}

/// Returns the retained rows, each asset from the last row that has an entry of it.
fn joined(
    batch: &RecordBatch,
    retained: &[(usize, &[RowAddress])],
    indexes: &[Index],
    columns: &SchemaRef,
) -> Result<RecordBatch> {
    // Older rows, sorted by input and row group, so that each row group is read once.
    let mut wanted: BTreeMap<(usize, usize), BTreeSet<usize>> = BTreeMap::new();
    for address in retained.iter().flat_map(|(_, older)| older.iter()) {
        let group = wanted.entry((address.input, address.group)).or_default();
        group.insert(address.row);
    }
    let mut batches = vec![batch.clone()];
    let mut rows_by_address: HashMap<RowAddress, (usize, usize)> = HashMap::new();
    for ((input, group), rows) in wanted {
        let rows: Vec<usize> = rows.into_iter().collect();
        let Some(index) = indexes.get(input) else {
            continue;
        };
        let old = index
            .table()
            .rows_of(group, &ProjectionMask::all(), &rows)?;
        for (at, row) in rows.into_iter().enumerate() {
            rows_by_address.insert(RowAddress { input, group, row }, (batches.len(), at));
        }
        batches.push(fitted(&old, columns)?);
    }
    let own: Vec<(usize, usize)> = retained.iter().map(|(at, _)| (0, *at)).collect();
    let older: Vec<Vec<(usize, usize)>> = retained
        .iter()
        .map(|(_, older)| {
            older
                .iter()
                .filter_map(|address| rows_by_address.get(address).copied())
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
    record_batch(columns, arrays)
}

fn structs<'a>(batches: &'a [RecordBatch], name: &str) -> Vec<&'a StructArray> {
    let columns = batches
        .iter()
        .filter_map(|batch| batch.column_by_name(name));
    columns
        .filter_map(|column| column.as_struct_opt())
        .collect()
}

/// Returns the row from which each item's asset is taken: the newest with an entry, else the newest
/// whose catalogue lists the asset. Href and entry come from the same row, so that they describe one file.
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
                .find(|address| is_read(*address))
                .or_else(|| all().find(|address| is_there(*address)))
                .unwrap_or(*own)
        })
        .collect()
}

/// Rewrites an index with new entries for some files. A Parquet file cannot be changed in place.
///
/// # Errors
///
/// As [`Index::open`]; errors of the file system.
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
                let Ok(column) = columns.index_of(&column_of(asset)) else {
                    continue;
                };
                let names = index.names(&batch, asset);
                let fresh: Vec<Option<&Entry>> = names
                    .iter()
                    .map(|name| entries.get(name.as_ref()?))
                    .collect();
                let Some(old) = arrays.get_mut(column) else {
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
            writer.write(&record_batch(&columns, arrays)?)?;
        }
    }
    drop(index);
    writer.finish()?;
    Ok(Index::open(path)?.info())
}
