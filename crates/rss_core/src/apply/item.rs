//! The [STAC Item](https://github.com/radiantearth/stac-spec/blob/v1.1.0/item-spec/item-spec.md) of a file that was made.

use ::stac::{Asset, Band, Item, Link};
use chrono::{DateTime, Utc};
use serde_json::{Map, Value, json};

use crate::{
    error::{Error, ErrorKind, Result},
    geo::{Crs, GeoBox},
    raster::{DataType, Number},
};

/// The extensions of such an item.
const EXTENSIONS: [&str; 4] = [
    "https://stac-extensions.github.io/projection/v2.0.0/schema.json",
    "https://stac-extensions.github.io/processing/v1.2.0/schema.json",
    "https://stac-extensions.github.io/raster/v2.0.0/schema.json",
    "https://stac-extensions.github.io/file/v2.1.0/schema.json",
];

/// A file of which an item is made.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct MadeFile {
    /// The id of the item.
    pub id: String,
    /// The address of the file, absolute or relative to the item.
    pub href: String,
    /// Its media type.
    pub media_type: String,
    /// Its bytes, if they are known.
    pub bytes: Option<u64>,
    /// The SHA-256 of its bytes in hexadecimal, if it is known.
    pub sha256: Option<String>,
    /// Its bands.
    pub bands: Vec<MadeBand>,
    /// Further properties of the item.
    pub properties: Map<String, Value>,
}

/// A band of a file that was made.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct MadeBand {
    /// Its name.
    pub name: String,
    /// The dtype of its samples.
    pub dtype: Option<DataType>,
    /// The nodata value; may be NaN.
    pub nodata: Option<Number>,
    /// The statistics of its samples.
    pub statistics: Option<crate::writer::BandStatistics>,
}

impl MadeFile {
    /// Returns a file without facts.
    pub fn new(
        id: impl Into<String>,
        href: impl Into<String>,
        media_type: impl Into<String>,
    ) -> Self {
        Self {
            id: id.into(),
            href: href.into(),
            media_type: media_type.into(),
            ..Self::default()
        }
    }

    /// Returns the STAC Item of this file on a grid, made by `provenance` (of
    /// [`Apply::provenance`](super::Apply::provenance) or [`ImageCube::provenance`](super::ImageCube::provenance)): with
    /// the extensions projection, processing, raster and file.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] if the grid has no CRS, or the provenance no times.
    pub fn item(&self, grid: &GeoBox, provenance: &Value) -> Result<Item> {
        let invalid = |what: &str| Error::new(ErrorKind::InvalidInput, what);
        let mut item = Item::new(&self.id);
        item.extensions = EXTENSIONS.map(str::to_owned).to_vec();
        let bbox = grid.bbox()?;
        item.geometry = Some(grid.footprint()?);
        let [west, south, east, north] = bbox.edges();
        item.bbox = Some(::stac::Bbox::TwoDimensional([west, south, east, north]));
        let time = |name: &str| -> Option<DateTime<Utc>> {
            provenance["time"][name].as_str()?.parse().ok()
        };
        let (Some(start), Some(end)) = (time("start"), time("end")) else {
            return Err(invalid(
                "a STAC Item needs the times of the images, which have none",
            ));
        };
        item.properties.datetime = (start == end).then_some(start);
        if start != end {
            item.properties.start_datetime = Some(start);
            item.properties.end_datetime = Some(end);
        }
        let properties = &mut item.properties.additional_fields;
        properties.extend(self.properties.clone());
        properties.extend(projection(grid));
        let (name, version) = super::provenance::SOFTWARE
            .split_once(' ')
            .unwrap_or_default();
        properties.insert("processing:software".to_owned(), json!({name: version}));
        if let Some(computed) = provenance["computed"].as_str() {
            let expression = json!({"format": "rss", "expression": computed});
            properties.insert("processing:expression".to_owned(), expression);
        }
        properties.insert("rss:provenance".to_owned(), provenance.clone());
        for source in provenance["items"].as_array().into_iter().flatten() {
            if let Some(href) = source["href"].as_str() {
                item.links.push(Link::new(href, "derived_from"));
            }
        }
        item.assets.insert("data".to_owned(), self.asset(grid));
        Ok(item)
    }

    fn asset(&self, grid: &GeoBox) -> Asset {
        let mut asset = Asset::new(&self.href);
        asset.r#type = Some(self.media_type.clone());
        asset.roles = vec!["data".to_owned()];
        let fields = &mut asset.additional_fields;
        if let Some(bytes) = self.bytes {
            fields.insert("file:size".to_owned(), json!(bytes));
        }
        if let Some(sha256) = &self.sha256 {
            // A multihash: 12 is SHA-256, of 20 bytes in hexadecimal.
            fields.insert("file:checksum".to_owned(), json!(format!("1220{sha256}")));
        }
        let resolution = grid.resolution().filter(|side| side.x == side.y);
        // In metres: a pixel in degrees has no one size.
        let unit = grid.crs.as_ref().and_then(Crs::linear_unit);
        if let (Some(side), Some(metres)) = (resolution, unit) {
            let metres = side.x * metres;
            fields.insert("raster:spatial_resolution".to_owned(), json!(metres));
        }
        asset.bands = self.bands.iter().filter_map(MadeBand::to_band).collect();
        asset
    }
}

impl MadeBand {
    /// Returns a band without facts.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            ..Self::default()
        }
    }

    fn to_band(&self) -> Option<Band> {
        let statistics = self.statistics.as_ref().map(|found| {
            json!({
                "minimum": found.min,
                "maximum": found.max,
                "mean": found.mean,
                "stddev": found.stddev,
                "valid_percent": found.valid_percent(),
            })
        });
        let mut fields = json!({"name": self.name});
        if let Some(dtype) = self.dtype {
            fields["data_type"] = json!(data_type(dtype));
        }
        if let Some(statistics) = statistics {
            fields["statistics"] = statistics;
        }
        let mut band: Band = serde_json::from_value(fields).ok()?;
        if let Some(nodata) = self.nodata {
            let float = nodata.as_f64();
            // JSON has no such numbers; STAC spells them.
            let value = match nodata.as_integer() {
                Some(whole) if whole.unsigned_abs() > 1 << 53 => {
                    serde_json::from_str(&whole.to_string()).unwrap_or(json!(float))
                }
                _ if float.is_nan() => json!("nan"),
                _ if float.is_infinite() && float > 0.0 => json!("inf"),
                _ if float.is_infinite() => json!("-inf"),
                _ => json!(float),
            };
            band.additional_fields.insert("nodata".to_owned(), value);
        }
        Some(band)
    }
}

fn data_type(dtype: DataType) -> &'static str {
    match dtype {
        DataType::C64 => "cfloat32",
        DataType::C128 => "cfloat64",
        other => other.name(),
    }
}

/// Returns the fields of the [projection extension](https://github.com/stac-extensions/projection).
fn projection(grid: &GeoBox) -> Map<String, Value> {
    let mut fields = Map::new();
    let mut add = |name: &str, value: Value| _ = fields.insert(format!("proj:{name}"), value);
    if let Some(crs) = &grid.crs {
        match crs.epsg() {
            Some(code) => add("code", json!(format!("EPSG:{code}"))),
            None => {
                add("code", Value::Null);
                add("wkt2", json!(crs.to_string()));
            }
        }
    }
    add("shape", json!([grid.size.height, grid.size.width]));
    if let Some(transform) = grid.transform {
        let g = transform.0;
        add("transform", json!([g[1], g[2], g[0], g[4], g[5], g[3]]));
    }
    if let Some(bounds) = grid.bounds() {
        add("bbox", json!(bounds));
    }
    fields
}
