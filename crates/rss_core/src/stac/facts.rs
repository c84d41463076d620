//! What an item says of its bands, its grid and its price, in whichever of the spellings.

use chrono::{DateTime, Utc};
use serde_json::{Map, Value};
use stac::{Asset, Item};

use crate::raster::DataType;

/// Where an asset's pixels lie, as far as the item says.
///
/// See the [projection extension](https://github.com/stac-extensions/projection).
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Projection {
    /// The EPSG code.
    pub epsg: Option<u32>,
    /// The transform in GDAL's order, from six or nine numbers in STAC's.
    pub transform: Option<[f64; 6]>,
    /// Rows and columns.
    pub shape: Option<[u64; 2]>,
}

/// What an item says of the first band of an asset.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct BandFacts {
    /// The nodata value; may be NaN.
    pub nodata: Option<f64>,
    /// The type of the samples.
    pub dtype: Option<DataType>,
    /// What a sample is multiplied with.
    pub scale: Option<f64>,
    /// What is then added.
    pub offset: Option<f64>,
}

/// Returns a number that may be written as a string; NaN and the infinities have no JSON number.
pub(super) fn as_number(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    }
}

/// Returns a property as a number; a number may be written as a string, and `"NaN"` is none.
pub fn number(item: &Item, name: &str) -> Option<f64> {
    as_number(item.properties.additional_fields.get(name)?).filter(|number| !number.is_nan())
}

/// Returns a property as text; a number is written out.
pub fn text(item: &Item, name: &str) -> Option<String> {
    match item.properties.additional_fields.get(name)? {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// Returns how many bytes of an asset's file its header takes, if the asset says so.
///
/// See the [file extension](https://github.com/stac-extensions/file).
pub fn header_bytes(asset: &Asset) -> Option<u64> {
    asset.additional_fields.get("file:header_size")?.as_u64()
}

/// Returns the cloud cover in percent that a property states.
pub fn cloud_cover(item: &Item, property: &str) -> Option<f64> {
    number(item, property)
}

/// Returns an item's time: `datetime`, else the start of its interval.
pub fn datetime(item: &Item) -> Option<DateTime<Utc>> {
    item.properties.datetime.or(item.properties.start_datetime)
}

/// Returns the first and last time of an item.
pub fn interval(item: &Item) -> Option<(DateTime<Utc>, DateTime<Utc>)> {
    let properties = &item.properties;
    let start = properties.start_datetime.or(properties.datetime)?;
    let end = properties
        .end_datetime
        .or(properties.datetime)
        .unwrap_or(start);
    Some((start, end))
}

/// Returns where an asset's pixels lie: what the asset says, else what the item says.
pub fn projection(item: &Item, asset: &Asset) -> Projection {
    let field = |name: &str| {
        let own = asset.additional_fields.get(name);
        // 1.1 may say it of the band.
        let band = || asset.bands.first()?.additional_fields.get(name);
        let of_item = || item.properties.additional_fields.get(name);
        own.or_else(band)
            .or_else(of_item)
            .filter(|value| !value.is_null())
    };
    let code = field("proj:code").and_then(|code| {
        let (authority, number) = code.as_str()?.split_once(':')?;
        (authority.eq_ignore_ascii_case("EPSG")).then(|| number.parse().ok())?
    });
    let epsg = field("proj:epsg").and_then(|code| u32::try_from(code.as_u64()?).ok());
    let numbers: Vec<f64> = field("proj:transform")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_f64)
        .collect();
    let transform = match numbers[..] {
        // STAC: x scale, x shear, x origin, y shear, y scale, y origin.
        [a, b, c, d, e, f] | [a, b, c, d, e, f, _, _, _] => Some([c, a, b, f, d, e]),
        _ => None,
    };
    let shape: Vec<u64> = field("proj:shape")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_u64)
        .collect();
    Projection {
        epsg: code.or(epsg),
        transform,
        shape: match shape[..] {
            [rows, columns] => Some([rows, columns]),
            _ => None,
        },
    }
}

/// Returns what an item says of an asset's first band: fields of STAC 1.1, else `raster:bands`.
pub fn band_facts(asset: &Asset) -> BandFacts {
    let band = asset.bands.first();
    let old = asset
        .additional_fields
        .get("raster:bands")
        .and_then(|bands| bands.as_array()?.first()?.as_object());
    let number = |name: &str| {
        let new = asset
            .additional_fields
            .get(name)
            .or_else(|| band?.additional_fields.get(name));
        let raster = |name: &str| as_number(old?.get(name)?);
        new.and_then(as_number)
            .or_else(|| as_number(asset.additional_fields.get(&format!("raster:{name}"))?))
            .or_else(|| as_number(band?.additional_fields.get(&format!("raster:{name}"))?))
            .or_else(|| raster(name))
    };
    let stated = asset
        .data_type
        .as_ref()
        .or_else(|| band?.data_type.as_ref());
    let dtype = match stated {
        Some(dtype) => serde_json::to_value(dtype)
            .ok()
            .and_then(|name| name.as_str()?.parse().ok()),
        None => old.and_then(|old| old.get("data_type")?.as_str()?.parse().ok()),
    };
    BandFacts {
        nodata: asset
            .nodata
            .or_else(|| band?.nodata)
            .or_else(|| as_number(old?.get("nodata")?)),
        dtype,
        scale: number("scale"),
        offset: number("offset"),
    }
}

/// Returns true if the one who reads an asset pays: `storage:requester_pays` of the asset or the
/// item, or the storage scheme the asset refers to.
///
/// See the [storage extension](https://github.com/stac-extensions/storage).
pub fn requester_pays(item: &Item, asset: &Asset) -> bool {
    let said = storage(item, asset, "storage:requester_pays", "requester_pays");
    said.is_some_and(|value| value.as_bool().unwrap_or(false))
}

/// Returns the region of the store that holds an asset, if the item says it.
pub fn storage_region(item: &Item, asset: &Asset) -> Option<String> {
    let region = storage(item, asset, "storage:region", "region")?;
    region.as_str().map(str::to_owned)
}

fn storage<'a>(item: &'a Item, asset: &'a Asset, name: &str, key: &str) -> Option<&'a Value> {
    let properties = &item.properties.additional_fields;
    let scheme = || -> Option<&'a Map<String, Value>> {
        let refs = asset.additional_fields.get("storage:refs")?.as_array()?;
        let name = refs.first()?.as_str()?;
        let schemes = properties
            .get("storage:schemes")
            .or_else(|| item.additional_fields.get("storage:schemes"))?;
        schemes.get(name)?.as_object()
    };
    asset
        .additional_fields
        .get(name)
        .or_else(|| scheme()?.get(key))
        .or_else(|| properties.get(name))
}

/// Returns `file:size` in bytes.
pub fn file_size(asset: &Asset) -> Option<u64> {
    asset.additional_fields.get("file:size")?.as_u64()
}

/// Returns the SHA-256 in `file:checksum`, in lower-case hex; none for other hashes.
///
/// The checksum is a [multihash](https://github.com/multiformats/multihash): `1220` and 32 bytes.
pub fn file_sha256(asset: &Asset) -> Option<String> {
    let text = asset.additional_fields.get("file:checksum")?.as_str()?;
    let hex = text.strip_prefix("1220")?;
    (hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_hexdigit()))
        .then(|| hex.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn item(properties: Value, asset: Value) -> (Item, Asset) {
        let mut item = Item::new("a");
        item.properties.additional_fields = properties.as_object().unwrap().clone();
        (item, serde_json::from_value(asset).unwrap())
    }

    #[test]
    fn a_transform_has_six_or_nine_numbers() {
        let gdal = Some([500.0, 10.0, 0.0, 700.0, 0.0, -10.0]);
        for numbers in [
            json!([10, 0, 500, 0, -10, 700]),
            json!([10, 0, 500, 0, -10, 700, 0, 0, 1]),
        ] {
            let (item, asset) = item(
                json!({"proj:epsg": 32756}),
                json!({"href": "x", "proj:transform": numbers}),
            );
            let projection = projection(&item, &asset);
            assert_eq!((projection.transform, projection.epsg), (gdal, Some(32756)));
        }
    }

    #[test]
    fn a_code_is_read_in_the_new_spelling() {
        let (item, asset) = item(
            json!({"proj:code": "EPSG:3577", "proj:epsg": null}),
            json!({"href": "x"}),
        );
        assert_eq!(projection(&item, &asset).epsg, Some(3577));
    }

    #[test]
    fn who_pays_is_said_in_three_places() {
        for (properties, asset) in [
            (
                json!({}),
                json!({"href": "x", "storage:requester_pays": true}),
            ),
            (
                json!({"storage:requester_pays": true}),
                json!({"href": "x"}),
            ),
            (
                json!({"storage:schemes": {"a": {"requester_pays": true, "region": "us-west-2"}}}),
                json!({"href": "x", "storage:refs": ["a"]}),
            ),
        ] {
            let (item, asset) = item(properties, asset);
            assert!(requester_pays(&item, &asset), "{asset:?}");
        }
        let (item, asset) = item(
            json!({}),
            json!({"href": "x", "storage:requester_pays": false}),
        );
        assert!(!requester_pays(&item, &asset));
    }

    #[test]
    fn a_number_may_be_a_string_and_nan_is_none() {
        let (item, _) = item(
            json!({"a": "12.5", "b": "NaN", "c": 3}),
            json!({"href": "x"}),
        );
        assert_eq!(number(&item, "a"), Some(12.5));
        assert_eq!(number(&item, "b"), None);
        assert_eq!(text(&item, "c").as_deref(), Some("3"));
    }
}
