//! What the metadata of an index says of its rows: files and tiles of each asset, types of geometries, the bbox of all.

use std::collections::{BTreeMap, BTreeSet};

use arrow_array::{
    Array, BinaryArray, Float64Array, ListArray, RecordBatch, StructArray, cast::AsArray,
};
use arrow_schema::Schema;
use parquet::file::metadata::KeyValue;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{schema, table::ParquetTable, wkb};
use crate::error::{Error, ErrorKind, Result};

/// The value of `rss:index` in the file's metadata, as JSON.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Said {
    pub(super) version: u32,
    #[serde(default)]
    pub(super) assets: BTreeMap<String, Count>,
    /// True if the bbox of an item crosses the antimeridian: its west is larger than its east.
    #[serde(default)]
    pub(super) crosses_antimeridian: bool,
}

/// The number of files and tiles of one asset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Count {
    #[serde(default)]
    pub(super) files: u64,
    #[serde(default)]
    pub(super) tiles: u64,
}

/// What is said of some rows.
#[derive(Clone, Debug, Default)]
pub(super) struct Summary {
    said: Said,
    geometries: BTreeSet<String>,
    bbox: Option<[f64; 4]>,
}

impl Summary {
    /// Returns the summary of no rows of these columns.
    pub(super) fn of(columns: &Schema) -> Self {
        let assets = columns
            .fields()
            .iter()
            .filter_map(|field| field.name().strip_prefix(schema::PREFIX))
            .map(|asset| (asset.to_owned(), Count::default()));
        let said = Said {
            version: schema::VERSION,
            assets: assets.collect(),
            ..Said::default()
        };
        Self {
            said,
            ..Self::default()
        }
    }

    /// Returns what a file says; none if it says too little.
    pub(super) fn stated(table: &ParquetTable) -> Option<Self> {
        let geo: Value = serde_json::from_str(table.said("geo")?).ok()?;
        let column = geo.pointer("/columns/geometry")?;
        let types = column.get("geometry_types")?.as_array()?;
        let types = types
            .iter()
            .map(|name| Some(name.as_str()?.to_owned()))
            .collect::<Option<_>>()?;
        Some(Self {
            said: serde_json::from_str(table.said(schema::INDEX_KEY)?).ok()?,
            geometries: types,
            bbox: match column.get("bbox") {
                Some(bbox) => Some(serde_json::from_value(bbox.clone()).ok()?),
                None => None,
            },
        })
    }

    /// Adds what is said of other rows.
    pub(super) fn add(&mut self, other: &Self) {
        for (asset, more) in &other.said.assets {
            let count = self.said.assets.entry(asset.clone()).or_default();
            count.files = count.files.saturating_add(more.files);
            count.tiles = count.tiles.saturating_add(more.tiles);
        }
        self.said.crosses_antimeridian |= other.said.crosses_antimeridian;
        self.geometries.extend(other.geometries.iter().cloned());
        self.bbox = match (self.bbox, other.bbox) {
            (Some(one), Some(two)) => Some(union(one, two)),
            (one, two) => one.or(two),
        };
    }

    /// Takes the files and tiles of some of the rows away. Types and bbox stay: they may be those of the rest, too.
    pub(super) fn take(&mut self, part: &Self) {
        for (asset, fewer) in &part.said.assets {
            let count = self.said.assets.entry(asset.clone()).or_default();
            count.files = count.files.saturating_sub(fewer.files);
            count.tiles = count.tiles.saturating_sub(fewer.tiles);
        }
    }

    /// Counts files and tiles, and collects geometry types and bbox for the file's metadata.
    pub(super) fn count(&mut self, batch: &RecordBatch) {
        for (asset, count) in &mut self.said.assets {
            let column = batch.column_by_name(&schema::column_of(asset));
            let Some(column) = column.and_then(|column| column.as_struct_opt()) else {
                continue;
            };
            count.files += (column.len() - column.null_count()) as u64;
            count.tiles += tiles_before(column)
                .and_then(|ends| Some(ends.last()? - ends.first()?))
                .unwrap_or(0) as u64;
        }
        if let Some(column) = batch.column_by_name("geometry")
            && let Some(column) = column.as_any().downcast_ref::<BinaryArray>()
        {
            let names = column.iter().flatten().filter_map(wkb::name);
            self.geometries.extend(names);
        }
        let edges = batch.column_by_name("bbox").and_then(|column| {
            let column = column.as_struct_opt()?;
            let edge = |name| column.column_by_name(name)?.as_any().downcast_ref();
            let edges: [&Float64Array; 4] =
                [edge("xmin")?, edge("ymin")?, edge("xmax")?, edge("ymax")?];
            Some(edges)
        });
        let Some(edges) = edges else { return };
        for row in 0..batch.num_rows() {
            if edges.iter().any(|edge| edge.is_null(row)) {
                continue;
            }
            let [west, south, east, north] = edges.map(|edge| edge.value(row));
            // GeoJSON: a bbox across the antimeridian has its west larger than its east. The union of such boxes with
            // others is taken as all longitudes.
            let crosses = west > east;
            self.said.crosses_antimeridian |= crosses;
            let (west, east) = if crosses {
                (-180.0, 180.0)
            } else {
                (west, east)
            };
            let own = [west, south, east, north];
            self.bbox = Some(self.bbox.map_or(own, |all| union(all, own)));
        }
    }

    /// Returns the pairs of the file's metadata.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] if it is no JSON.
    pub(super) fn pairs(&self) -> Result<Vec<KeyValue>> {
        let geo = json!({
            "version": "1.1.0",
            "primary_column": "geometry",
            "columns": { "geometry": {
                "encoding": "WKB",
                "geometry_types": self.geometries,
                "bbox": self.bbox,
                "covering": { "bbox": {
                    "xmin": ["bbox", "xmin"],
                    "ymin": ["bbox", "ymin"],
                    "xmax": ["bbox", "xmax"],
                    "ymax": ["bbox", "ymax"],
                }},
            }},
        });
        let mut geo = geo;
        if self.bbox.is_none()
            && let Some(column) = geo.pointer_mut("/columns/geometry")
            && let Some(column) = column.as_object_mut()
        {
            column.remove("bbox");
        }
        let said = serde_json::to_string(&self.said).map_err(|err| {
            Error::new(
                ErrorKind::InvalidInput,
                "the index's metadata cannot be written as JSON",
            )
            .with_source(err)
        })?;
        let stac = json!({ "version": "1.0.0" });
        let pairs = [
            (schema::INDEX_KEY, said),
            ("geo", geo.to_string()),
            ("stac-geoparquet", stac.to_string()),
        ];
        let pairs = pairs.map(|(key, value)| KeyValue::new(key.to_owned(), value));
        Ok(pairs.into())
    }
}

fn union(one: [f64; 4], two: [f64; 4]) -> [f64; 4] {
    [
        one[0].min(two[0]),
        one[1].min(two[1]),
        one[2].max(two[2]),
        one[3].max(two[3]),
    ]
}

/// Returns the offsets of the rows' tiles in the list of all tiles of a column: one more than there are rows.
pub(super) fn tiles_before(column: &StructArray) -> Option<Vec<usize>> {
    let levels: &ListArray = column.column_by_name("levels")?.as_list_opt()?;
    let images = levels.values().as_struct_opt()?;
    let tiles: &ListArray = images.column_by_name("byte_counts")?.as_list_opt()?;
    let ends = tiles.value_offsets();
    levels
        .value_offsets()
        .iter()
        .map(|&image| {
            let image = usize::try_from(image).ok()?;
            usize::try_from(*ends.get(image)?).ok()
        })
        .collect()
}
