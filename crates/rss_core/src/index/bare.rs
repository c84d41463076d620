//! STAC items for files without a catalogue. No IO.

use std::collections::HashMap;

use chrono::{DateTime, NaiveDate, NaiveDateTime, SecondsFormat, Utc};
use serde_json::{Map, Value, json};

use super::{items::Row, items::stripped};
use crate::{
    geo::{Bbox, Crs, GeoBox},
    location::Location,
    reader::Header,
};

/// The key of the one asset of such an item.
pub(super) const ASSET: &str = "data";

/// Returns an id for each location: the file's name; if two share it, the path; else the address.
/// `taken` returns true for ids that other items already have.
pub(super) fn ids(locations: &[Location], taken: impl Fn(&str) -> bool) -> Vec<String> {
    let mut names: HashMap<&str, usize> = HashMap::new();
    let mut paths: HashMap<String, usize> = HashMap::new();
    for location in locations {
        *names.entry(stem(location.file_name())).or_default() += 1;
        *paths.entry(path(location)).or_default() += 1;
    }
    let one = |location: &Location| {
        let name = stem(location.file_name());
        if !name.is_empty() && names.get(name) == Some(&1) && !taken(name) {
            return name.to_owned();
        }
        let path = path(location);
        if paths.get(&path) == Some(&1) && !taken(&path) {
            return path;
        }
        super::journal::address(location)
    };
    locations.iter().map(one).collect()
}

fn stem(name: &str) -> &str {
    match name.rsplit_once('.') {
        Some((stem, ending)) if ending.to_ascii_lowercase().starts_with("tif") => stem,
        _ => name,
    }
}

fn path(location: &Location) -> String {
    let path = match location {
        Location::S3 { key, .. } | Location::Gcs { key, .. } | Location::Azure { key, .. } => {
            key.clone()
        }
        Location::Http(url) => url.path().to_owned(),
        Location::Local(path) => path.to_string_lossy().into_owned(),
    };
    stem(path.trim_start_matches('/')).to_owned()
}

/// Returns the item of a file. Without a header it has no geometry, CRS, shape and transform.
pub(super) fn row(id: &str, location: &Location, header: Option<&Header>) -> Row {
    let extent = header.and_then(footprint);
    let bbox = extent.as_ref().map(|(_, bbox)| bbox.edges());
    let geometry = extent.as_ref().map(|(geometry, _)| geometry);
    let time = time_in(location.file_name());
    let href = location.to_href();
    let href = stripped(&href).unwrap_or(href);
    let mut properties = Map::new();
    let time = time.map(|time| time.to_rfc3339_opts(SecondsFormat::AutoSi, true));
    properties.insert("datetime".to_owned(), json!(time));
    if let Some(header) = header {
        let code = header.crs.as_ref().and_then(Crs::epsg);
        let code = code.map(|code| format!("EPSG:{code}"));
        let size = header.levels.first().map(|level| level.size);
        // `proj:transform` has the order of the Python package affine (rows of the matrix), not that of GDAL.
        let transform = header.transform.map(|transform| {
            let [a, b, c, d, e, f] = transform.0;
            [b, c, a, e, f, d]
        });
        properties.insert("proj:code".to_owned(), json!(code));
        let shape = size.map(|size| [size.height, size.width]);
        properties.insert("proj:shape".to_owned(), json!(shape));
        properties.insert("proj:transform".to_owned(), json!(transform));
    }
    let item = json!({
        "type": "Feature",
        "stac_version": "1.1.0",
        "stac_extensions": ["https://stac-extensions.github.io/projection/v2.0.0/schema.json"],
        "id": id,
        "geometry": geometry,
        "bbox": bbox,
        "links": [],
        "assets": { ASSET: {
            "href": href,
            "type": "image/tiff; application=geotiff",
            "roles": ["data"],
        }},
        "properties": properties,
    });
    match item {
        Value::Object(item) => Row::new(item),
        _ => Row::new(Map::new()),
    }
}

/// Returns a row with every field of [`row`], from which the columns are inferred.
pub(super) fn sample() -> Row {
    let item = json!({
        "assets": { ASSET: { "href": "", "type": "", "roles": [""] } },
        "properties": {
            "datetime": "2000-01-01T00:00:00Z",
            "proj:code": "",
            "proj:shape": [1],
            "proj:transform": [0.5],
        },
    });
    match item {
        Value::Object(item) => Row::new(item),
        _ => Row::new(Map::new()),
    }
}

/// Returns the time in a file's name, as `20210103` or `20210103T235959`; none if there is
/// none, or if there are two different days (acquisition and processing, as in Landsat's names).
fn time_in(name: &str) -> Option<DateTime<Utc>> {
    let mut found: Option<(NaiveDate, Option<NaiveDateTime>)> = None;
    let is_other = |c: char| !c.is_ascii_digit();
    let mut at = 0;
    for piece in name.split_inclusive(is_other) {
        let (start, run) = (at, piece.trim_end_matches(is_other));
        at += piece.len();
        if run.len() != 8 && run.len() != 14 {
            continue;
        }
        let day = run
            .get(..8)
            .and_then(|day| NaiveDate::parse_from_str(day, "%Y%m%d").ok());
        let Some(day) = day.filter(|day| (1970..2100).contains(&chrono::Datelike::year(day)))
        else {
            continue;
        };
        let clock = match run.get(8..14) {
            Some(clock) => Some(clock),
            // Only `T` joins a day and a time: the digits after `_` may be anything.
            None if name.as_bytes().get(start + 8) == Some(&b'T') => {
                name.get(start + 9..start + 15).filter(|_| {
                    !name
                        .as_bytes()
                        .get(start + 15)
                        .is_some_and(u8::is_ascii_digit)
                })
            }
            None => None,
        };
        let time = clock.and_then(|clock| {
            NaiveDateTime::parse_from_str(&format!("{day} {clock}"), "%Y-%m-%d %H%M%S").ok()
        });
        match found {
            Some((other, _)) if other != day => return None,
            Some((_, Some(_))) => {}
            _ => found = Some((day, time)),
        }
    }
    let (day, time) = found?;
    Some(time.or_else(|| day.and_hms_opt(0, 0, 0))?.and_utc())
}

/// Returns the footprint and the bbox in degrees of an image, if its CRS can be transformed to degrees.
fn footprint(header: &Header) -> Option<(geojson::Geometry, Bbox)> {
    let grid = GeoBox {
        size: header.levels.first()?.size,
        crs: header.crs.clone(),
        transform: header.transform,
    };
    Some((grid.footprint().ok()?, grid.bbox().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        geo::{GeoTransform, Size},
        index::items::Columns,
        raster::DataType,
        reader::{Image, Tiles},
    };

    fn header(epsg: u32, transform: [f64; 6], width: u32, height: u32) -> Header {
        let size = Size { width, height };
        let image = Image::new(size, size, 8, 1, Tiles::new(vec![8], vec![1]));
        let mut header = Header::new(DataType::U8, vec![image]);
        header.crs = Some(Crs::Epsg(epsg));
        header.transform = Some(GeoTransform(transform));
        header
    }

    #[test]
    fn a_footprint_is_in_degrees_or_there_is_none() {
        let plain = header(4326, [10.0, 0.5, 0.0, 50.0, 0.0, -0.5], 4, 2);
        assert_eq!(
            footprint(&plain).unwrap().1.edges(),
            [10.0, 49.0, 12.0, 50.0]
        );
        let crossing = header(4326, [179.0, 1.0, 0.0, 5.0, 0.0, -1.0], 2, 1);
        assert!(footprint(&crossing).unwrap().1.crosses_antimeridian());
        let unknown = header(999_999, [0.0, 1.0, 0.0, 0.0, 0.0, -1.0], 1, 1);
        assert_eq!(footprint(&unknown), None);
        let location = Location::parse("s3://b/20210103.tif").unwrap();
        // Columns are those of a row that has all, and of one that has nothing.
        let mut columns = Columns::default();
        columns.learn(&sample());
        for header in [Some(&plain), Some(&crossing), Some(&unknown), None] {
            assert!(columns.holds(&row("a", &location, header)));
        }
    }

    #[test]
    fn a_time_is_read_where_it_is_the_only_one() {
        for (name, expected) in [
            ("S2A_56JNS_20210103_0_L2A.tif", "2021-01-03T00:00:00Z"),
            ("T56JNS_20210103T235959_B04.tif", "2021-01-03T23:59:59Z"),
            ("a_20210103235959.tif", "2021-01-03T23:59:59Z"),
            ("20210103_20210103.tif", "2021-01-03T00:00:00Z"),
            ("é_20210103T235959.tif", "2021-01-03T23:59:59Z"),
        ] {
            let time = time_in(name).map(|t| t.to_rfc3339_opts(SecondsFormat::AutoSi, true));
            assert_eq!(time.as_deref(), Some(expected), "{name}");
        }
        for name in [
            "LC08_L2SP_090084_20210101_20210305_B4.tif",
            "B04.tif",
            "12345678.tif",
            "20211399.tif",
            "202101031.tif",
        ] {
            assert_eq!(time_in(name), None, "{name}");
        }
    }

    #[test]
    fn ids_are_names_and_paths_where_names_collide() {
        let locations = [
            "s3://b/x/B04.tif",
            "s3://b/y/B04.tif",
            "s3://b/y/one.TIFF",
            "s3://c/y/two.tif",
        ]
        .map(|text| Location::parse(text).unwrap());
        assert_eq!(
            ids(&locations, |id| id == "two"),
            ["x/B04", "y/B04", "one", "y/two"]
        );
        let locations =
            ["s3://b/B04.tif", "s3://c/B04.tif"].map(|text| Location::parse(text).unwrap());
        assert_eq!(
            ids(&locations, |_| false),
            ["s3://b/B04.tif", "s3://c/B04.tif"]
        );
    }
}
