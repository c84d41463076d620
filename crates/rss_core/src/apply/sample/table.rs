//! The result of sampling: a table with a row for each geometry, item and band.

use std::{
    collections::{BTreeMap, HashSet},
    ops::Range,
    sync::Arc,
};

use chrono::{DateTime, Utc};

use super::{Outside, features::Named, shapes::ShapeRows};

/// Rows of zones on no image: more are left to the report.
const MOST_EMPTY_ROWS: usize = 1 << 20;

/// A column of numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Column {
    /// Its name, such as `value` or `p90`.
    pub name: String,
    /// True if its numbers are counts: non-negative integers, never none.
    pub is_count: bool,
    /// True if a row without pixels has 0 there, and not none.
    is_amount: bool,
}

impl Column {
    pub(super) fn new(name: impl Into<String>, is_count: bool) -> Self {
        Self {
            name: name.into(),
            is_count,
            is_amount: is_count,
        }
    }

    /// Creates a column of pixels that are counted, or whose fractions are added up.
    pub(super) fn counting(name: impl Into<String>, is_count: bool) -> Self {
        Self {
            name: name.into(),
            is_count,
            is_amount: true,
        }
    }
}

/// Rows sorted by geometry, then time, then item, then band; geometries and bands in the order given.
#[derive(Clone, Debug)]
pub struct Table {
    geometries: Arc<[Named]>,
    images: Vec<(String, DateTime<Utc>)>,
    bands: Vec<String>,
    columns: Vec<Column>,
    keys: Vec<Key>,
    /// The numbers of all rows, as many for each as there are columns; NaN is none.
    numbers: Vec<f64>,
    metadata: BTreeMap<String, String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    geometry: u32,
    image: u32,
    band: u32,
}

/// The parts of a table.
pub(super) struct Parts {
    pub(super) geometries: Arc<[Named]>,
    /// In order of time and item.
    pub(super) images: Vec<(String, DateTime<Utc>)>,
    pub(super) bands: Vec<String>,
    /// By image and band; none if it could not be read.
    pub(super) rows: Vec<Vec<Option<ShapeRows>>>,
    pub(super) columns: Vec<Column>,
}

impl Table {
    /// Sorts the rows; also returns the ids of geometries without a row.
    pub(super) fn of(parts: Parts, outside: Outside) -> (Self, Vec<String>) {
        let width = parts.columns.len();
        let mut is_somewhere = vec![false; parts.geometries.len()];
        let mut order: Vec<(Key, Option<usize>)> = Vec::new();
        for (image, of_image) in parts.rows.iter().enumerate() {
            for (band, rows) in of_image.iter().enumerate() {
                let Some(rows) = rows else { continue };
                let key = |geometry: u32| Key {
                    geometry,
                    image: number(image),
                    band: number(band),
                };
                for (row, &geometry) in rows.shapes.iter().enumerate() {
                    order.push((key(geometry), Some(row)));
                    if let Some(is_somewhere) = is_somewhere.get_mut(geometry as usize) {
                        *is_somewhere = true;
                    }
                }
                if outside == Outside::Empty {
                    // The rows of an image are sorted by shape.
                    let missing = (0..number(parts.geometries.len()))
                        .filter(|geometry| rows.shapes.binary_search(geometry).is_err());
                    order.extend(missing.map(|geometry| (key(geometry), None)));
                }
            }
        }
        if outside == Outside::NoRow && parts.geometries.iter().all(|one| one.place.is_none()) {
            order.extend(
                nowhere(&parts, &is_somewhere)
                    .into_iter()
                    .map(|key| (key, None)),
            );
        }
        order.sort_unstable_by_key(|(key, _)| *key);
        let mut numbers = Vec::with_capacity(order.len() * width);
        for (key, row) in &order {
            let found = row.and_then(|row| {
                let of_image = parts.rows.get(key.image as usize)?;
                let rows = of_image.get(key.band as usize)?.as_ref()?;
                rows.numbers.get(row * width..(row + 1) * width)
            });
            match found {
                Some(found) => numbers.extend_from_slice(found),
                None => numbers.extend(parts.columns.iter().map(|column| match column.is_amount {
                    true => 0.0,
                    false => f64::NAN,
                })),
            }
        }
        // Points of one feature share their id.
        let mut nowhere: Vec<String> = Vec::new();
        for (named, _) in parts
            .geometries
            .iter()
            .zip(&is_somewhere)
            .filter(|(_, is)| !**is)
        {
            if nowhere.last() != Some(&named.id) {
                nowhere.push(named.id.clone());
            }
        }
        let table = Self {
            geometries: parts.geometries,
            images: parts.images,
            bands: parts.bands,
            columns: parts.columns,
            keys: order.into_iter().map(|(key, _)| key).collect(),
            numbers,
            metadata: BTreeMap::new(),
        };
        (table, nowhere)
    }

    /// Returns the ids of the zones that have no pixel in any row, without these.
    pub(super) fn without_pixels(&self, except: &[String]) -> Vec<String> {
        let except: HashSet<&str> = except.iter().map(String::as_str).collect();
        let mut has_any = vec![None; self.geometries.len()];
        let width = self.columns.len().max(1);
        for (key, numbers) in self.keys.iter().zip(self.numbers.chunks_exact(width)) {
            if let (Some(has_any), Some(pixels)) =
                (has_any.get_mut(key.geometry as usize), numbers.first())
            {
                *has_any = Some(has_any.unwrap_or(false) || *pixels > 0.0);
            }
        }
        let all = self.geometries.iter().zip(has_any);
        all.filter(|(named, has_any)| *has_any == Some(false) && !except.contains(&*named.id))
            .map(|(named, _)| named.id.clone())
            .collect()
    }

    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Returns true if there is no row.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Adds a text to the metadata of the table, which Parquet and Arrow files hold as pairs of keys and values.
    #[must_use]
    pub fn with_metadata(mut self, name: impl Into<String>, text: impl Into<String>) -> Self {
        self.metadata.insert(name.into(), text.into());
        self
    }

    /// Returns the metadata: `rss:provenance` is where the table comes from, as JSON.
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.metadata
    }

    /// Returns the columns of numbers.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// Returns the rows.
    pub fn rows(&self) -> impl Iterator<Item = SampleRow<'_>> {
        self.rows_in(0..self.len())
    }

    /// Returns some of the rows, by their indices.
    pub(super) fn rows_in(&self, indices: Range<usize>) -> impl Iterator<Item = SampleRow<'_>> {
        indices.filter_map(|index| self.row(index))
    }

    fn row(&self, index: usize) -> Option<SampleRow<'_>> {
        let key = self.keys.get(index)?;
        let (item, time) = self.images.get(key.image as usize)?;
        let width = self.columns.len();
        Some(SampleRow {
            geometry: self.geometries.get(key.geometry as usize)?,
            item,
            time: *time,
            band: self.bands.get(key.band as usize)?,
            columns: &self.columns,
            numbers: self.numbers.get(index * width..(index + 1) * width)?,
        })
    }

    /// Returns true if a geometry has a name beside its id.
    pub(super) fn is_named(&self) -> bool {
        self.geometries.iter().any(|one| one.name.is_some())
    }

    /// Returns true if geometries are points.
    pub(super) fn is_of_points(&self) -> bool {
        self.geometries.iter().any(|one| one.place.is_some())
    }

    pub(super) fn images(&self) -> usize {
        self.images.len()
    }
}

/// Returns the rows of zones on no image: for each image and band that could be read, so that every zone is in the table.
fn nowhere(parts: &Parts, is_somewhere: &[bool]) -> Vec<Key> {
    let zones = is_somewhere.iter().filter(|is| !**is).count();
    let read = || {
        let images = parts.rows.iter().enumerate();
        images.flat_map(|(image, bands)| {
            let bands = bands.iter().enumerate().filter(|(_, rows)| rows.is_some());
            bands.map(move |(band, _)| (number(image), number(band)))
        })
    };
    if zones.saturating_mul(read().count()) > MOST_EMPTY_ROWS {
        return Vec::new();
    }
    let all = is_somewhere.iter().zip(0_u32..).filter(|(is, _)| !**is);
    all.flat_map(|(_, geometry)| {
        read().map(move |(image, band)| Key {
            geometry,
            image,
            band,
        })
    })
    .collect()
}

fn number(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

/// One row.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct SampleRow<'a> {
    /// The point or zone.
    pub geometry: &'a Named,
    /// The item's id.
    pub item: &'a str,
    /// The item's time: `datetime`, else the start of its interval.
    pub time: DateTime<Utc>,
    /// The canonical name of the band, such as `red`; without a manifest the asset's key.
    pub band: &'a str,
    columns: &'a [Column],
    numbers: &'a [f64],
}

impl<'a> SampleRow<'a> {
    /// Returns the number of a column; none if the row has none, or the table has no such column.
    pub fn get(&self, column: &str) -> Option<f64> {
        let index = self.columns.iter().position(|one| one.name == column)?;
        self.numbers
            .get(index)
            .copied()
            .filter(|number| !number.is_nan())
    }

    /// Returns the number of each column, in order.
    pub fn numbers(&self) -> impl Iterator<Item = Option<f64>> + 'a {
        let numbers = self.numbers.iter().copied();
        numbers.map(|number| (!number.is_nan()).then_some(number))
    }
}
