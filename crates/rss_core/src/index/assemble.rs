//! Writing the index from a plan and its journal: rows in the order of the plan, in small batches.

use std::{path::Path, sync::Arc};

use arrow_array::{
    ArrayRef, ListArray, MapArray, RecordBatch, StringArray, StructArray, cast::AsArray,
};
use arrow_schema::{DataType, Field, SchemaRef};

use super::{
    bare,
    disk::Stop,
    file::{Writer, schema_of},
    inputs::{BuildPlan, Chosen, IndexRows, ROWS_AT_ONCE, files_of},
    items::{Columns, Row, stripped},
    journal::{Journal, Name},
    schema::{self, column_of},
    unpack::Column,
};
use crate::{
    error::{Error, ErrorKind, Result},
    location::Location,
};

/// Items and bytes that were written.
#[derive(Clone, Debug)]
pub(super) struct Written {
    pub(super) items: u64,
    pub(super) bytes: u64,
    /// What is other than in the items, one sentence each.
    pub(super) notes: Vec<String>,
}

/// Writes the index of a plan, completely or not at all.
///
/// # Errors
///
/// Errors of the file system; [`ErrorKind::Unavailable`] if the write was cancelled.
pub(super) fn assemble(
    plan: BuildPlan,
    keys: Option<&[String]>,
    journal: &mut Journal,
    output: &Path,
    stop: &Stop,
) -> Result<Written> {
    let mut sheet = Sheet {
        journal,
        assets: plan.assets,
        output,
        stop,
        writer: None,
        items: 0,
        notes: Vec::new(),
    };
    match plan.rows {
        IndexRows::Items(items, trust) => {
            // A Parquet schema is fixed before the first row, so the items are passed over twice.
            let mut columns = Columns::default();
            for item in &items {
                columns.learn(&Row::of_item(item)?);
            }
            sheet.notes = columns.notes();
            sheet.start(columns.fields())?;
            for items in items.chunks(ROWS_AT_ONCE) {
                let rows = items.iter().map(Row::of_item);
                let rows = rows.collect::<Result<Vec<_>>>()?;
                sheet.write(columns.arrays(&rows), rows.len(), |asset, row| {
                    let href = &items.get(row)?.assets.get(asset)?.href;
                    Some(Name::of(&Location::parse_from(href, trust).ok()?))
                })?;
            }
        }
        IndexRows::Bare(files) => {
            // All items of bare files have the same fields: one pass suffices.
            let mut columns = Columns::default();
            columns.learn(&bare::sample());
            sheet.start(columns.fields())?;
            for files in files.chunks(ROWS_AT_ONCE) {
                let names: Vec<_> = files.iter().map(|(_, at)| Some(Name::of(at))).collect();
                let entries = sheet.journal.column(&names)?;
                let rows = bare_rows(files, &entries)?;
                sheet.write(columns.arrays(&rows), rows.len(), |asset, row| {
                    let name = names.get(row).copied().flatten();
                    name.filter(|_| asset == bare::ASSET)
                })?;
            }
        }
        IndexRows::ParquetTable(table, kept) => {
            let all = table.schema()?;
            let fields: Vec<Field> = all
                .fields()
                .iter()
                .filter(|field| !field.name().starts_with(schema::PREFIX))
                .map(|field| field.as_ref().clone())
                .collect();
            let names: Vec<String> = fields.iter().map(|field| field.name().clone()).collect();
            let paths: Vec<[&str; 1]> = names.iter().map(|name| [name.as_str()]).collect();
            let paths: Vec<&[&str]> = paths.iter().map(|path| path.as_slice()).collect();
            let mask = table.mask(&paths);
            sheet.start(fields)?;
            let chosen = Chosen { keys };
            for (group, rows) in kept.iter().enumerate() {
                if rows.is_empty() {
                    continue;
                }
                for batch in table.read(group, &mask, Some(rows), ROWS_AT_ONCE)? {
                    let batch = batch?;
                    let files = files_of(&batch);
                    let columns = batch.columns().iter().map(without_secrets).collect();
                    sheet.write(columns, batch.num_rows(), |asset, row| {
                        let column = files.iter().find(|column| column.key == asset)?;
                        let (_, location) = column.file(row, &chosen)?;
                        Some(Name::of(&location.ok()?))
                    })?;
                }
            }
        }
    }
    sheet.finish()
}

fn bare_rows(files: &[(String, Location)], entries: &ArrayRef) -> Result<Vec<Row>> {
    let lost = || Error::new(ErrorKind::Corrupt, "the journal's column is not a struct");
    let entries = Column::new(entries.as_struct_opt().ok_or_else(lost)?)?;
    let numbered = files.iter().enumerate();
    let rows = numbered.map(|(row, (id, location))| {
        let entry = entries.entry(row, location.clone())?;
        let header = entry.as_ref().map(|entry| entry.header.as_ref());
        Ok(bare::row(id, location, header))
    });
    rows.collect()
}

/// The index while it is written.
struct Sheet<'a> {
    journal: &'a mut Journal,
    assets: Vec<String>,
    output: &'a Path,
    stop: &'a Stop,
    writer: Option<(Writer, SchemaRef)>,
    items: u64,
    notes: Vec<String>,
}

impl Sheet<'_> {
    fn start(&mut self, mut fields: Vec<Field>) -> Result<()> {
        for asset in &self.assets {
            let kind = DataType::Struct(schema::entry());
            fields.push(schema::field(&column_of(asset), kind));
        }
        let columns = schema_of(fields);
        let writer = Writer::create(self.output, Arc::clone(&columns), self.stop)?;
        self.writer = Some((writer, columns));
        Ok(())
    }

    /// Writes rows: the columns of the catalogue, and the entries of the files that `name` returns.
    fn write(
        &mut self,
        mut columns: Vec<ArrayRef>,
        rows: usize,
        name: impl Fn(&str, usize) -> Option<Name>,
    ) -> Result<()> {
        for asset in &self.assets {
            let names: Vec<_> = (0..rows).map(|row| name(asset, row)).collect();
            columns.push(self.journal.column(&names)?);
        }
        let Some((writer, all)) = &mut self.writer else {
            return Ok(());
        };
        let batch = RecordBatch::try_new(Arc::clone(all), columns).map_err(|err| {
            let message = "the items' columns differ in length or type";
            Error::new(ErrorKind::Corrupt, message).with_source(err)
        })?;
        self.items += rows as u64;
        writer.write(&batch)
    }

    fn finish(self) -> Result<Written> {
        let Some((writer, _)) = self.writer else {
            return Err(Error::new(ErrorKind::InvalidInput, "nothing to write"));
        };
        Ok(Written {
            items: self.items,
            bytes: writer.finish()?,
            notes: self.notes,
        })
    }
}

/// Removes signatures and tokens from all text of a column, nested columns included: an index is meant to be shared.
fn without_secrets(array: &ArrayRef) -> ArrayRef {
    if let Some(texts) = array.as_string_opt::<i32>() {
        if !texts.iter().flatten().any(|text| stripped(text).is_some()) {
            return Arc::clone(array);
        }
        let plain = texts.iter().map(|text| {
            let text = text?;
            Some(stripped(text).unwrap_or_else(|| text.to_owned()))
        });
        return Arc::new(StringArray::from_iter(plain));
    }
    if let Some(rows) = array.as_struct_opt() {
        let (fields, columns, nulls) = rows.clone().into_parts();
        let columns = columns.iter().map(without_secrets).collect();
        return match StructArray::try_new(fields, columns, nulls) {
            Ok(rows) => Arc::new(rows),
            Err(_) => Arc::clone(array),
        };
    }
    if let Some(maps) = array.as_map_opt() {
        let (field, ends, entries, nulls, ordered) = maps.clone().into_parts();
        let entries = without_secrets(&(Arc::new(entries) as ArrayRef));
        let plain = entries.as_struct_opt().and_then(|entries| {
            MapArray::try_new(field, ends, entries.clone(), nulls, ordered).ok()
        });
        return match plain {
            Some(plain) => Arc::new(plain),
            None => Arc::clone(array),
        };
    }
    if let Some(lists) = array.as_list_opt::<i32>() {
        let (field, ends, values, nulls) = lists.clone().into_parts();
        let values = without_secrets(&values);
        return match ListArray::try_new(field, ends, values, nulls) {
            Ok(lists) => Arc::new(lists),
            Err(_) => Arc::clone(array),
        };
    }
    Arc::clone(array)
}

#[cfg(test)]
mod tests {
    use arrow_array::{
        Array,
        builder::{MapBuilder, StringBuilder},
    };

    use super::*;

    #[test]
    fn no_map_keeps_a_secret() {
        let mut maps = MapBuilder::new(None, StringBuilder::new(), StringBuilder::new());
        maps.keys().append_value("red");
        maps.values().append_value("https://h/a.tif?sig=CANARY");
        maps.append(true).unwrap();
        let maps: ArrayRef = Arc::new(maps.finish());
        let plain = without_secrets(&maps);
        assert_eq!(plain.data_type(), maps.data_type());
        let addresses = plain.as_map().values().as_string::<i32>();
        assert_eq!(addresses.value(0), "https://h/a.tif");
    }
}
