//! Metadata of an item on its bands, its grid and its access, in the spellings of all versions and extensions.

use ::geo::CoordsIter;
use chrono::{DateTime, Utc};
use serde_json::{Map, Value};
use stac::{Asset, Item};

use super::value::{as_exact, as_number, parse_time};
use crate::raster::{DataType, Number};

/// The georeferencing of an asset, as far as the item states it.
///
/// See the [projection extension](https://github.com/stac-extensions/projection).
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Projection {
    /// The EPSG code.
    pub epsg: Option<u32>,
    /// Where no EPSG code is stated: the CRS as WKT 2, PROJJSON or another authority's code.
    pub definition: Option<String>,
    /// The geotransform in GDAL's order, from six or nine numbers in STAC's.
    pub transform: Option<[f64; 6]>,
    /// Rows and columns.
    pub shape: Option<[u64; 2]>,
}

/// The metadata of one band of an asset.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct BandFacts {
    /// The nodata value; may be NaN.
    pub nodata: Option<Number>,
    /// The dtype of the samples.
    pub dtype: Option<DataType>,
    /// The factor of a sample.
    pub scale: Option<f64>,
    /// The offset, added after scaling.
    pub offset: Option<f64>,
}

/// Returns a property as a number, which may be written as a string; none for `"NaN"`.
pub fn number(item: &Item, name: &str) -> Option<f64> {
    as_number(item.properties.additional_fields.get(name)?).filter(|number| !number.is_nan())
}

/// Returns a property as text; a number is formatted.
pub fn text(item: &Item, name: &str) -> Option<String> {
    match item.properties.additional_fields.get(name)? {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// Returns the collection of an item; for items before STAC 1.0, which may lack it, the `odc:product`.
pub fn collection(item: &Item) -> Option<String> {
    let stated = item.collection.clone();
    stated.or_else(|| text(item, "odc:product"))
}

/// Returns a property as a time; without a zone it is UTC.
pub fn time(item: &Item, name: &str) -> Option<DateTime<Utc>> {
    let properties = &item.properties;
    let text = match name {
        "created" => properties.created.as_deref(),
        "updated" => properties.updated.as_deref(),
        name => properties.additional_fields.get(name)?.as_str(),
    };
    parse_time(text?)
}

/// Returns the size of the header of an asset's file in bytes, if the asset states it.
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

/// Returns the georeferencing of an asset: the fields of the asset, else of the item.
pub fn projection(item: &Item, asset: &Asset) -> Projection {
    let field = |name: &str| {
        let own = asset.additional_fields.get(name);
        // STAC 1.1 allows the field in the band.
        let band = || asset.bands.first()?.additional_fields.get(name);
        let of_item = || item.properties.additional_fields.get(name);
        own.or_else(band)
            .or_else(of_item)
            .filter(|value| !value.is_null())
    };
    // `proj:code` replaces `proj:epsg` from version 2.0 of the projection extension on.
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
    let epsg = code.or(epsg);
    let text = |name: &str| match field(name)? {
        Value::String(text) if !text.trim().is_empty() => Some(text.clone()),
        object @ Value::Object(_) => Some(object.to_string()),
        _ => None,
    };
    let named = ["proj:wkt2", "proj:projjson", "proj:code"];
    Projection {
        definition: match epsg {
            Some(_) => None,
            None => named.into_iter().find_map(text),
        },
        epsg,
        transform,
        shape: match shape[..] {
            [rows, columns] => Some([rows, columns]),
            _ => None,
        },
    }
}

/// Returns the metadata of an asset's first band: fields of STAC 1.1, else `raster:bands`.
pub fn band_facts(asset: &Asset) -> BandFacts {
    band_facts_of(asset, 0)
}

/// Returns the metadata of a band of an asset, counted from 0: fields of STAC 1.1, else
/// `raster:bands`. Fields of the asset apply to all its bands.
pub fn band_facts_of(asset: &Asset, band: usize) -> BandFacts {
    // Items before STAC 1.1 have `raster:bands`.
    let old = asset
        .additional_fields
        .get("raster:bands")
        .and_then(|bands| bands.as_array()?.get(band)?.as_object());
    let band = asset.bands.get(band);
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
    // Integers that the typed field cannot hold are among the other fields.
    let exact = |typed: Option<f64>, fields: &Map<String, Value>| {
        let typed = typed.map(Number::from);
        typed.or_else(|| as_exact(fields.get("nodata")?))
    };
    BandFacts {
        nodata: exact(asset.nodata, &asset.additional_fields)
            .or_else(|| exact(band?.nodata, &band?.additional_fields))
            .or_else(|| as_exact(old?.get("nodata")?)),
        dtype,
        scale: number("scale"),
        offset: number("offset"),
    }
}

/// Returns true if an asset states classes or flags of its samples, by the [classification
/// extension](https://github.com/stac-extensions/classification), or is named like a usual band of them.
pub fn is_class(key: &str, asset: &Asset) -> bool {
    let states = |fields: &Map<String, Value>| {
        let named = ["classification:classes", "classification:bitfields"];
        let lists = named
            .iter()
            .filter_map(|name| fields.get(*name)?.as_array());
        lists.into_iter().any(|list| !list.is_empty())
    };
    let old = asset.additional_fields.get("raster:bands");
    let mut old = old.and_then(Value::as_array).into_iter().flatten();
    let name = key.to_lowercase();
    let usual = [
        "scl",
        "fmask",
        "bqa",
        "qa",
        "qa60",
        "pixel_qa",
        "landcover",
        "land_cover",
        "lulc",
        "classification",
    ];
    states(&asset.additional_fields)
        || asset
            .bands
            .iter()
            .any(|band| states(&band.additional_fields))
        || old.any(|band| band.as_object().is_some_and(states))
        || usual.contains(&name.as_str())
        || name.starts_with("qa_")
        || name.ends_with("_fmask")
}

/// Returns true if the item states that the offset of Sentinel-2's processing baseline 04.00 is already applied to the
/// samples; none if it does not state it.
pub fn boa_offset_applied(item: &Item) -> Option<bool> {
    let names = [
        "earthsearch:boa_offset_applied",
        "sentinel:boa_offset_applied",
    ];
    names
        .iter()
        .find_map(|name| match item.properties.additional_fields.get(*name)? {
            Value::Bool(applied) => Some(*applied),
            Value::String(text) => text.trim().to_ascii_lowercase().parse().ok(),
            _ => None,
        })
}

/// Returns the processing baseline of a Sentinel-2 item, such as 5.11 for `05.11`: from a property, as text or number,
/// else from the product's name (`_N0511_`).
pub fn processing_baseline(item: &Item) -> Option<f64> {
    let properties = [
        "s2:processing_baseline",
        "sentinel:processing_baseline",
        "sentinel2:processing_baseline",
        "processing:version",
    ];
    let stated = properties
        .iter()
        .find_map(|name| baseline(&text(item, name)?));
    let names = ["s2:product_uri", "sentinel:product_id"];
    let in_name = |name: &str| {
        let part = |part: &&str| part.len() == 5 && part.starts_with('N');
        name.split('_').filter(part).find_map(baseline)
    };
    stated
        .or_else(|| names.iter().find_map(|name| in_name(&text(item, name)?)))
        .or_else(|| in_name(&item.id))
}

/// Parses `05.11`, `5.11`, `N0511` or `0511`.
fn baseline(text: &str) -> Option<f64> {
    let text = text.trim();
    let digits = text.strip_prefix(['N', 'n']).unwrap_or(text);
    let number: f64 = digits.parse().ok()?;
    let number = match digits.contains('.') {
        // Without a decimal point the last two digits are the fraction: `0511` is 5.11.
        false if number >= 100.0 => number / 100.0,
        _ => number,
    };
    (0.0..100.0).contains(&number).then_some(number)
}

/// Returns the longitude of the centre of an item's footprint in degrees, -180 to 180: of its bbox, or of its geometry
/// if there is no bbox, or one that spans more than half of the globe. Such a bbox usually belongs to a shape across
/// the antimeridian, written without `west` larger than `east`.
pub fn longitude(item: &Item) -> Option<f64> {
    let of_bbox = item.bbox.as_ref().map(|bbox| (bbox.xmin(), bbox.xmax()));
    let (west, east) = of_bbox
        .filter(|(west, east)| east - west <= 180.0)
        .or_else(|| of_geometry(item))
        .or(of_bbox)?;
    let east = if east < west { east + 360.0 } else { east };
    let middle = f64::midpoint(west, east);
    let middle = if middle > 180.0 {
        middle - 360.0
    } else {
        middle
    };
    (-180.0..=180.0).contains(&middle).then_some(middle)
}

/// Returns the western and eastern end of an item's geometry; the western one is larger if it crosses the
/// antimeridian.
fn of_geometry(item: &Item) -> Option<(f64, f64)> {
    let shape = ::geo::Geometry::<f64>::try_from(item.geometry.as_ref()?).ok()?;
    let all = shape.coords_iter().map(|coord| coord.x);
    let all: Vec<f64> = all.filter(|x| (-180.0..=180.0).contains(x)).collect();
    let ends = |all: &mut dyn Iterator<Item = f64>| {
        all.fold(None, |ends: Option<(f64, f64)>, x| {
            Some(ends.map_or((x, x), |(west, east)| (west.min(x), east.max(x))))
        })
    };
    let (west, east) = ends(&mut all.iter().copied())?;
    if east - west <= 180.0 {
        return Some((west, east));
    }
    // In longitudes 0 to 360 a shape across the antimeridian is in one piece.
    let (west, east) = ends(&mut all.iter().map(|x| x.rem_euclid(360.0)))?;
    let back = |x: f64| if x > 180.0 { x - 360.0 } else { x };
    Some((back(west), back(east)))
}

/// Returns true if the requester pays for reading an asset: `storage:requester_pays` of the asset or the
/// item, or the storage scheme the asset refers to.
///
/// See the [storage extension](https://github.com/stac-extensions/storage).
pub fn requester_pays(item: &Item, asset: &Asset) -> bool {
    let stated = storage(item, asset, "storage:requester_pays", "requester_pays");
    stated.is_some_and(|value| value.as_bool().unwrap_or(false))
}

/// Returns the region of the store of an asset, if the item states it.
pub fn storage_region(item: &Item, asset: &Asset) -> Option<String> {
    let region = storage(item, asset, "storage:region", "region")?;
    region.as_str().map(str::to_owned)
}

/// Returns the address of the server with the S3 API that holds an asset, where the item says that it is not Amazon's
/// (`custom-s3`). It may be a template with `{bucket}` and `{region}`.
pub fn storage_platform(item: &Item, asset: &Asset) -> Option<String> {
    let scheme = storage_scheme(item, asset)?;
    let is_custom = scheme.get("type")?.as_str()? == "custom-s3";
    let platform = scheme.get("platform")?.as_str()?;
    is_custom.then(|| platform.to_owned())
}

fn storage<'a>(item: &'a Item, asset: &'a Asset, name: &str, key: &str) -> Option<&'a Value> {
    asset
        .additional_fields
        .get(name)
        .or_else(|| storage_scheme(item, asset)?.get(key))
        .or_else(|| item.properties.additional_fields.get(name))
}

/// Returns the scheme of an asset: from version 2.0 of the storage extension on, assets refer to schemes of the item.
fn storage_scheme<'a>(item: &'a Item, asset: &'a Asset) -> Option<&'a Map<String, Value>> {
    let refs = asset.additional_fields.get("storage:refs")?.as_array()?;
    let name = refs.first()?.as_str()?;
    let schemes = item.properties.additional_fields.get("storage:schemes");
    let schemes = schemes.or_else(|| item.additional_fields.get("storage:schemes"))?;
    schemes.get(name)?.as_object()
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
    fn a_crs_without_a_code_is_read_as_its_definition() {
        let definition = |fields: Value| {
            let (item, asset) = item(fields, json!({"href": "x"}));
            projection(&item, &asset).definition
        };
        let wkt = "PROJCRS[..]";
        let both = json!({"proj:code": null, "proj:wkt2": wkt, "proj:projjson": {"type": "x"}});
        assert_eq!(definition(both).as_deref(), Some(wkt));
        let json = json!({"proj:epsg": null, "proj:projjson": {"type": "x"}});
        assert_eq!(definition(json).as_deref(), Some(r#"{"type":"x"}"#));
        let code = json!({"proj:code": "ESRI:54009"});
        assert_eq!(definition(code).as_deref(), Some("ESRI:54009"));
        let epsg = json!({"proj:code": "EPSG:3577", "proj:wkt2": wkt});
        assert_eq!(definition(epsg), None);
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

    #[test]
    fn the_middle_of_a_footprint_may_lie_beyond_the_antimeridian() {
        let of = |bbox: Value, geometry: Value| {
            let item = json!({"type": "Feature", "id": "a", "geometry": geometry, "bbox": bbox,
                "properties": {"datetime": "2020-01-01T00:00:00Z"}, "assets": {}});
            match crate::stac::read(item.to_string().as_bytes()).unwrap() {
                crate::stac::Document::Item(item, _) => longitude(&item),
                other => panic!("{other:?}"),
            }
        };
        let fiji = json!({"type": "MultiPolygon", "coordinates": [
            [[[178.0, -18.0], [180.0, -18.0], [180.0, -17.0], [178.0, -18.0]]],
            [[[-180.0, -18.0], [-179.0, -18.0], [-180.0, -17.0], [-180.0, -18.0]]]]});
        assert_eq!(
            of(json!([150.0, -30.0, 152.0, -29.0]), json!(null)),
            Some(151.0)
        );
        assert_eq!(
            of(json!([178.0, -18.0, -179.0, -17.0]), json!(null)),
            Some(179.5)
        );
        assert_eq!(
            of(json!([179.0, -18.0, -178.0, -17.0]), json!(null)),
            Some(-179.5)
        );
        assert_eq!(
            of(json!([-180.0, -18.0, 180.0, -17.0]), fiji.clone()),
            Some(179.5)
        );
        assert_eq!(of(json!(null), fiji), Some(179.5));
        assert_eq!(of(json!(null), json!(null)), None);
    }
}
