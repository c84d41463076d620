//! Items made of files that no catalogue describes. No IO.

use std::collections::HashMap;

use chrono::{DateTime, NaiveDate, NaiveDateTime, SecondsFormat, Utc};
use serde_json::{Map, Value, json};

use super::{items::Row, items::stripped};
use crate::{
    geo::{Bbox, Crs, UtmZone},
    location::Location,
    reader::Header,
};

/// The key of the one asset of such an item.
pub(super) const ASSET: &str = "data";
/// Half the width of the square that EPSG:3857 is, in metres.
const WEB_MERCATOR_EDGE: f64 = 20_037_508.342_789_244;
/// Points of each edge of an image that are projected.
const STEPS: u32 = 16;

/// Returns an id for each location: the file's name, with the path where two share it.
/// `taken` says which ids are others' already.
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

/// Makes the item of a file; what only its header tells is missing without one.
pub(super) fn row(id: &str, location: &Location, header: Option<&Header>) -> Row {
    let bbox = header.and_then(footprint);
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
        // Affine's order: rows of a matrix.
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
        "geometry": bbox.map(geometry),
        "bbox": bbox.map(|bbox| bbox.edges()),
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

/// Returns a row that has every field which [`row`] makes.
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

fn geometry(bbox: Bbox) -> Value {
    let rings: Vec<_> = bbox
        .split()
        .iter()
        .map(|part| {
            let [w, s, e, n] = part.edges();
            json!([[[w, s], [e, s], [e, n], [w, n], [w, s]]])
        })
        .collect();
    match rings.as_slice() {
        [one] => json!({ "type": "Polygon", "coordinates": one }),
        parts => json!({ "type": "MultiPolygon", "coordinates": parts }),
    }
}

/// Returns the one time that a file's name holds, as `20210103` or `20210103T235959`; none if there is
/// none, or there are two different days.
fn time_in(name: &str) -> Option<DateTime<Utc>> {
    let mut found: Option<(NaiveDate, Option<NaiveDateTime>)> = None;
    let runs: Vec<&str> = name.split(|c: char| !c.is_ascii_digit()).collect();
    let mut at = 0;
    for run in runs {
        let start = at;
        at += run.len() + 1;
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
            // `T` alone joins a day and a time: what follows `_` may be anything.
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

/// Returns where an image lies in degrees, if it lies in a CRS that is understood here: geographic
/// WGS 84, its UTM zones, or web Mercator.
pub(super) fn footprint(header: &Header) -> Option<Bbox> {
    let transform = header.transform?;
    let epsg = header.crs.as_ref()?.epsg()?;
    let size = header.levels.first()?.size;
    let (width, height) = (f64::from(size.width), f64::from(size.height));
    let mut edges = [
        f64::INFINITY,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NEG_INFINITY,
    ];
    for step in 0..=STEPS {
        let part = f64::from(step) / f64::from(STEPS);
        for (col, row) in [
            (part * width, 0.0),
            (part * width, height),
            (0.0, part * height),
            (width, part * height),
        ] {
            let [x, y] = transform.apply(col, row);
            let [lon, lat] = degrees(epsg, x, y)?;
            edges = [
                edges[0].min(lon),
                edges[1].min(lat),
                edges[2].max(lon),
                edges[3].max(lat),
            ];
        }
    }
    let [west, south, east, north] = edges;
    // Rasters of the world reach a pixel's half over its edges.
    let (south, north) = (south.max(-90.0), north.min(90.0));
    if east - west >= 360.0 {
        return Bbox::new(-180.0, south, 180.0, north).ok();
    }
    let turned = |lon: f64| match lon {
        lon if lon > 180.0 => lon - 360.0,
        lon if lon < -180.0 => lon + 360.0,
        lon => lon,
    };
    Bbox::new(turned(west), south, turned(east), north).ok()
}

fn degrees(epsg: u32, x: f64, y: f64) -> Option<[f64; 2]> {
    let point = match epsg {
        4326 | 4979 => [x, y],
        3857 => {
            let turn = y / WEB_MERCATOR_EDGE * std::f64::consts::PI;
            [
                x / WEB_MERCATOR_EDGE * 180.0,
                turn.sinh().atan().to_degrees(),
            ]
        }
        32_601..=32_660 | 32_701..=32_760 => {
            let zone = UtmZone {
                number: u8::try_from(epsg % 100).ok()?,
                south: epsg > 32_700,
            };
            let point = zone.to_lon_lat(x, y);
            [point.lon, point.lat]
        }
        _ => return None,
    };
    point
        .iter()
        .all(|number| number.is_finite())
        .then_some(point)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        geo::{GeoTransform, Size},
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
    fn a_footprint_is_in_degrees() {
        // The corners of 56JNS by gdaltransform from EPSG:32756.
        let found = footprint(&header(
            32756,
            [499_980.0, 10.0, 0.0, 7_200_040.0, 0.0, -10.0],
            10_980,
            10_980,
        ))
        .unwrap();
        let expected = [152.999_796, -26.312_5, 154.100, -25.316];
        for (found, expected) in found.edges().iter().zip(expected) {
            assert!((found - expected).abs() < 0.02, "{found} {expected}");
        }
        let plain = footprint(&header(4326, [10.0, 0.5, 0.0, 50.0, 0.0, -0.5], 4, 2)).unwrap();
        assert_eq!(plain.edges(), [10.0, 49.0, 12.0, 50.0]);
        let web = header(3857, [0.0, 1.0, 0.0, 0.0, 0.0, -1.0], 1, 1);
        assert_eq!(footprint(&web).unwrap().west(), 0.0);
        let turned = footprint(&header(4326, [179.0, 1.0, 0.0, 5.0, 0.0, -1.0], 2, 1)).unwrap();
        assert!(turned.crosses_antimeridian());
        assert_eq!(geometry(turned)["type"], "MultiPolygon");
        assert_eq!(
            footprint(&header(3577, [0.0, 1.0, 0.0, 0.0, 0.0, -1.0], 1, 1)),
            None
        );
    }

    #[test]
    fn a_time_is_read_where_it_is_the_only_one() {
        for (name, expected) in [
            ("S2A_56JNS_20210103_0_L2A.tif", "2021-01-03T00:00:00Z"),
            ("T56JNS_20210103T235959_B04.tif", "2021-01-03T23:59:59Z"),
            ("a_20210103235959.tif", "2021-01-03T23:59:59Z"),
            ("20210103_20210103.tif", "2021-01-03T00:00:00Z"),
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
