//! A table as a file: CSV, JSON lines, Parquet or Arrow.
//!
//! A file appears whole under its name or not at all.

#[cfg(feature = "arrow")]
mod arrow;

use std::{
    collections::BTreeMap,
    io::{self, BufWriter, Write},
    path::Path,
};

use chrono::SecondsFormat;
use serde_json::{Map, Value, json};

use super::table::{SampleRow, Table};
use crate::{
    error::{Error, ErrorKind, Result},
    raster::{io_error, publish, temporary},
};

/// How a table is written. Columns are `id`, `name` where geometries have names, `x` and `y` of points as they
/// were given, `item`, `datetime`, `band`, then the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TableFormat {
    /// Commas between, a line of names first, nothing where there is no number
    /// ([RFC 4180](https://www.rfc-editor.org/rfc/rfc4180), lines ending with a line feed). Ending `.csv`.
    Csv,
    /// A JSON object on each line. Endings `.jsonl`, `.ndjson`.
    JsonLines,
    /// Parquet, compressed by ZSTD. Ending `.parquet`; feature `arrow`.
    #[cfg(feature = "arrow")]
    Parquet,
    /// Arrow's IPC file. Endings `.arrow`, `.feather`; feature `arrow`.
    #[cfg(feature = "arrow")]
    Arrow,
}

impl TableFormat {
    /// Returns the format that a file's ending names.
    ///
    /// ```
    /// use rss_core::apply::sample::TableFormat;
    ///
    /// assert_eq!(TableFormat::of_path("plots.csv".as_ref())?, TableFormat::Csv);
    /// # Ok::<_, rss_core::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] naming the endings there are; [`ErrorKind::Unsupported`] naming the feature
    /// that this build lacks.
    pub fn of_path(path: &Path) -> Result<Self> {
        let ending = path.extension().and_then(|ending| ending.to_str());
        let (kind, message) = match ending.map(str::to_ascii_lowercase).as_deref() {
            Some("csv") => return Ok(Self::Csv),
            Some("jsonl" | "ndjson") => return Ok(Self::JsonLines),
            #[cfg(feature = "arrow")]
            Some("parquet") => return Ok(Self::Parquet),
            #[cfg(feature = "arrow")]
            Some("arrow" | "feather") => return Ok(Self::Arrow),
            #[cfg(not(feature = "arrow"))]
            Some("parquet" | "arrow" | "feather") => (
                ErrorKind::Unsupported,
                "this build writes no Parquet and Arrow: it lacks the feature `arrow`",
            ),
            _ => (
                ErrorKind::InvalidInput,
                "the ending of a table is one of .csv, .jsonl, .parquet, .arrow",
            ),
        };
        Err(Error::new(kind, message).at(path.display()))
    }
}

impl Table {
    /// Writes a file in the format its ending names. An existing file is replaced when the new one is whole.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] for an unknown ending or a folder that is not there;
    /// [`ErrorKind::Unsupported`] if this build lacks the feature; [`ErrorKind::Denied`] if the folder cannot be
    /// written; [`ErrorKind::Unavailable`] if the disk is full. Nothing is left behind.
    pub fn save(&self, path: &Path) -> Result<()> {
        let format = TableFormat::of_path(path)?;
        let at = |err: io::Error| io_error(err).at(path.display());
        let mut file = temporary(path)?;
        let mut out = BufWriter::new(file.as_file_mut());
        self.write_as(&mut out, format)
            .map_err(|err| err.at(path.display()))?;
        out.flush().map_err(at)?;
        drop(out);
        publish(file, path).map_err(at)?;
        Ok(())
    }

    /// Returns the [metadata](Self::metadata) of a file of Parquet or Arrow, by its ending.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`] for other formats, which hold none, and if this build lacks the feature `arrow`;
    /// [`ErrorKind::Corrupt`] for another file; as [`save`](Self::save) for one that cannot be read.
    pub fn metadata_of(path: &Path) -> Result<BTreeMap<String, String>> {
        let format = TableFormat::of_path(path)?;
        let found = match format {
            #[cfg(feature = "arrow")]
            TableFormat::Parquet => arrow::parquet_metadata(opened(path)?),
            #[cfg(feature = "arrow")]
            TableFormat::Arrow => arrow::arrow_metadata(opened(path)?),
            TableFormat::Csv | TableFormat::JsonLines => {
                let message = "CSV and JSON lines hold no metadata: expected Parquet or Arrow";
                Err(Error::new(ErrorKind::Unsupported, message))
            }
        };
        found.map_err(|err| err.at(path.display()))
    }

    /// Writes this table to `out` in a format.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`] or [`ErrorKind::Denied`] as the writer says.
    pub fn write_as(&self, out: &mut (impl Write + Send), format: TableFormat) -> Result<()> {
        match format {
            TableFormat::Csv => self.csv(out).map_err(io_error),
            TableFormat::JsonLines => self.json_lines(out).map_err(io_error),
            #[cfg(feature = "arrow")]
            TableFormat::Parquet => arrow::parquet(self, out),
            #[cfg(feature = "arrow")]
            TableFormat::Arrow => arrow::arrow(self, out),
        }
    }

    fn csv(&self, out: &mut impl Write) -> io::Result<()> {
        let mut names = vec!["id"];
        names.extend(self.is_named().then_some("name"));
        names.extend(
            self.is_of_points()
                .then_some(["x", "y"])
                .into_iter()
                .flatten(),
        );
        names.extend(["item", "datetime", "band"]);
        names.extend(self.columns().iter().map(|column| column.name.as_str()));
        let mut line: Vec<String> = names.into_iter().map(quoted).collect();
        writeln!(out, "{}", line.join(","))?;
        for row in self.rows() {
            line.clear();
            line.push(quoted(&row.geometry.id));
            if self.is_named() {
                line.push(quoted(row.geometry.name.as_deref().unwrap_or_default()));
            }
            line.extend(
                row.geometry
                    .place
                    .into_iter()
                    .flatten()
                    .map(|part| part.to_string()),
            );
            line.extend([quoted(row.item), time(&row), quoted(row.band)]);
            line.extend(
                row.numbers()
                    .map(|number| number.map_or_else(String::new, |number| number.to_string())),
            );
            writeln!(out, "{}", line.join(","))?;
        }
        Ok(())
    }

    fn json_lines(&self, out: &mut impl Write) -> io::Result<()> {
        for row in self.rows() {
            serde_json::to_writer(&mut *out, &self.json_of(&row))?;
            out.write_all(b"\n")?;
        }
        Ok(())
    }

    /// Returns the rows as JSON objects. A number that JSON has not, such as infinity, is null.
    pub fn json(&self) -> impl Iterator<Item = Value> {
        self.rows().map(|row| self.json_of(&row))
    }

    fn json_of(&self, row: &SampleRow<'_>) -> Value {
        let mut object = Map::new();
        object.insert("id".to_owned(), json!(row.geometry.id));
        if self.is_named() {
            object.insert("name".to_owned(), json!(row.geometry.name));
        }
        if let Some([x, y]) = row.geometry.place {
            object.insert("x".to_owned(), json!(x));
            object.insert("y".to_owned(), json!(y));
        }
        object.insert("item".to_owned(), json!(row.item));
        object.insert("datetime".to_owned(), json!(time(row)));
        object.insert("band".to_owned(), json!(row.band));
        for (column, number) in self.columns().iter().zip(row.numbers()) {
            let value = match (column.is_count, number) {
                (true, Some(count)) => json!(count_of(count)),
                (_, number) => json!(number),
            };
            object.insert(column.name.clone(), value);
        }
        Value::Object(object)
    }
}

#[cfg(feature = "arrow")]
fn opened(path: &Path) -> Result<std::fs::File> {
    std::fs::File::open(path).map_err(|err| io_error(err).at(path.display()))
}

/// Returns a count as a whole number.
#[expect(
    clippy::cast_possible_truncation,
    reason = "counts of pixels are whole and below 2^53"
)]
fn count_of(number: f64) -> i64 {
    number as i64
}

fn time(row: &SampleRow<'_>) -> String {
    row.time.to_rfc3339_opts(SecondsFormat::AutoSi, true)
}

/// Returns a text as a cell of CSV.
fn quoted(text: &str) -> String {
    match text.contains(['"', ',', '\n', '\r']) || text.trim() != text {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use chrono::{TimeZone, Utc};

    use super::*;
    use crate::apply::sample::{Column, Named, Outside, shapes::ShapeRows, table::Parts};

    pub(super) fn table(outside: Outside) -> Table {
        let named = |id: &str, name: Option<&str>, place| Named {
            id: id.to_owned(),
            name: name.map(str::to_owned),
            place: Some(place),
        };
        let rows = |shapes: &[u32], numbers: &[f64]| {
            Some(ShapeRows {
                shapes: shapes.to_vec(),
                numbers: numbers.to_vec(),
            })
        };
        let time = |day| Utc.with_ymd_and_hms(2021, 1, day, 23, 56, 39).unwrap();
        let parts = Parts {
            geometries: Arc::new([
                named("a, \"b\"", Some("wheat"), [153.5, -25.25]),
                named("1", None, [0.0, 1e-7]),
                named("far", None, [0.0, 0.0]),
            ]),
            images: vec![("one".to_owned(), time(3)), ("two".to_owned(), time(8))],
            bands: vec!["red".to_owned(), "nir".to_owned()],
            rows: vec![
                vec![rows(&[0, 1], &[7.0, 0.5, 0.0, f64::NAN]), None],
                vec![rows(&[], &[]), rows(&[0], &[9.0, f64::INFINITY])],
            ],
            columns: vec![Column::new("count", true), Column::new("mean", false)],
        };
        let (table, nowhere) = Table::of(parts, outside);
        assert_eq!(nowhere, ["far"]);
        table
    }

    fn written(table: &Table, format: TableFormat) -> String {
        let mut out = Vec::new();
        table.write_as(&mut out, format).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn rows_come_by_geometry_time_item_and_band() {
        let csv = "id,name,x,y,item,datetime,band,count,mean\n\
            \"a, \"\"b\"\"\",wheat,153.5,-25.25,one,2021-01-03T23:56:39Z,red,7,0.5\n\
            \"a, \"\"b\"\"\",wheat,153.5,-25.25,two,2021-01-08T23:56:39Z,nir,9,inf\n\
            1,,0,0.0000001,one,2021-01-03T23:56:39Z,red,0,\n";
        assert_eq!(written(&table(Outside::NoRow), TableFormat::Csv), csv);
    }

    #[test]
    fn what_lies_outside_may_have_rows_without_numbers() {
        let table = table(Outside::Empty);
        // Three bands of images could be read.
        assert_eq!(table.len(), 3 * 3);
        let far: Vec<_> = table
            .rows()
            .filter(|row| row.geometry.id == "far")
            .collect();
        assert_eq!(far.len(), 3);
        assert!(far.iter().all(|row| row.numbers().eq([Some(0.0), None])));
        assert!(far[0].get("mean").is_none() && far[0].get("count") == Some(0.0));
    }

    #[test]
    fn a_line_of_json_is_a_row() {
        let text = written(&table(Outside::NoRow), TableFormat::JsonLines);
        let rows: Vec<Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(
            rows[0],
            json!({"id": "a, \"b\"", "name": "wheat", "x": 153.5, "y": -25.25, "item": "one",
                "datetime": "2021-01-03T23:56:39Z", "band": "red", "count": 7, "mean": 0.5})
        );
        assert_eq!(
            (&rows[1]["mean"], &rows[2]["mean"]),
            (&Value::Null, &Value::Null)
        );
        assert_eq!(rows[2]["name"], Value::Null);
    }

    #[test]
    fn a_file_is_whole_or_not_there() {
        let folder = tempfile::tempdir().unwrap();
        let table = table(Outside::NoRow);
        for name in ["table.txt", "table", "none/table.csv"] {
            let err = table.save(&folder.path().join(name)).unwrap_err();
            assert_eq!(err.kind(), ErrorKind::InvalidInput, "{err}");
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        table.save(&folder.path().join("table.csv")).unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
