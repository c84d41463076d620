//! Every product manifest is right about items that its provider really served.
//!
//! The items are in `tests/data/stac`, whose README says where each comes from. They are read as JSON
//! where they are the oracle, and by `stac::read` where the question is what the library makes of
//! them.

#![expect(clippy::panic, reason = "a failed test panics")]

use std::{collections::BTreeSet, fs, path::PathBuf};

use rss_core::{
    Collection, DEA, DataType, ELEMENT84, ErrorKind, ImageQueryBuilder, Intersects, Kind, Manifest,
    Number, Scene, Session, Source,
    stac::{self, Document},
};
use serde_json::Value;

/// A recorded item and what is known of it.
struct Recorded {
    file: &'static str,
    source: &'static str,
    collection: &'static str,
    scene: &'static str,
    /// Scenes that it is not of, each wrong in one way.
    elsewhere: &'static [&'static str],
    /// True if it states type, nodata, scale and offset of its bands.
    states_bands: bool,
}

const RECORDED: [Recorded; 10] = [
    Recorded {
        file: "dea-sentinel2.json",
        source: "dea",
        collection: "sentinel2",
        scene: "49JFM",
        elsewhere: &["49JFN", "50JFM", "49KFM"],
        states_bands: false,
    },
    Recorded {
        file: "dea-landsat8.json",
        source: "dea",
        collection: "landsat8",
        scene: "088080",
        elsewhere: &["080088", "088081", "089080"],
        states_bands: false,
    },
    Recorded {
        file: "dea-landsat8-beta2.json",
        source: "dea",
        collection: "landsat8",
        scene: "88/80",
        elsewhere: &["080088", "088081", "089080"],
        states_bands: false,
    },
    Recorded {
        file: "element84-sentinel2.json",
        source: "element84",
        collection: "sentinel2",
        scene: "20EPT",
        elsewhere: &["20EPS", "21EPT", "20FPT"],
        states_bands: true,
    },
    Recorded {
        file: "element84-sentinel2-baseline-02.14.json",
        source: "element84",
        collection: "sentinel2",
        scene: "28QCH",
        elsewhere: &["28QCJ", "27QCH", "28RCH"],
        states_bands: true,
    },
    Recorded {
        file: "element84-sentinel2-c1.json",
        source: "element84",
        collection: "sentinel2-c1",
        scene: "T20EPT",
        elsewhere: &["20EPS", "21EPT", "20FPT"],
        states_bands: true,
    },
    Recorded {
        file: "element84-landsat.json",
        source: "element84",
        collection: "landsat",
        scene: "033032",
        elsewhere: &["032033", "033033", "034032"],
        states_bands: true,
    },
    Recorded {
        file: "planetary-computer-sentinel2.json",
        source: "planetary-computer",
        collection: "sentinel2",
        scene: "60VUK",
        elsewhere: &["60VUJ", "59VUK", "60WUK"],
        states_bands: false,
    },
    Recorded {
        file: "planetary-computer-landsat.json",
        source: "planetary-computer",
        collection: "landsat",
        scene: "089090",
        elsewhere: &["090089", "089091", "088090"],
        states_bands: true,
    },
    Recorded {
        file: "planetary-computer-landsat-l2sr.json",
        source: "planetary-computer",
        collection: "landsat",
        scene: "084082",
        elsewhere: &["082084", "084083", "085082"],
        states_bands: true,
    },
];

/// The recorded collections: source, product, file. Their `item_assets` list what some items lack.
const COLLECTIONS: [(&str, &str, &str); 3] = [
    ("element84", "landsat", "element84-landsat-c2-l2.json"),
    ("element84", "sentinel2", "element84-sentinel-2-l2a.json"),
    (
        "planetary-computer",
        "landsat",
        "planetary-computer-landsat-c2-l2.json",
    ),
];

/// Manifests of which no item is recorded; they stand on [`DEA_LANDSAT`].
const WITHOUT_ITEM: [(&str, &str); 3] = [
    ("dea", "landsat5"),
    ("dea", "landsat7"),
    ("dea", "landsat9"),
];

/// Rasters in items that a manifest leaves out on purpose: source, product, start of the key, why.
const LEFT_OUT: [(&str, &str, &str, &str); 8] = [
    (
        "dea",
        "landsat8",
        "nbar_",
        "not corrected for terrain; older items only, the product definition has no such band",
    ),
    (
        "dea",
        "landsat8",
        "oa_nbar_contiguity",
        "goes with nbar_*, as above",
    ),
    (
        "element84",
        "sentinel2",
        "visual",
        "a picture of three bands, stretched for the eye",
    ),
    (
        "element84",
        "sentinel2",
        "cloud",
        "a JPEG 2000 in another bucket, where the reader pays",
    ),
    (
        "element84",
        "sentinel2",
        "snow",
        "a JPEG 2000 in another bucket, where the reader pays",
    ),
    (
        "element84",
        "sentinel2-c1",
        "visual",
        "a picture of three bands, stretched for the eye",
    ),
    (
        "element84",
        "sentinel2-c1",
        "preview",
        "a picture of three bands at 320 m",
    ),
    (
        "planetary-computer",
        "sentinel2",
        "visual",
        "a picture of three bands, stretched for the eye",
    ),
];

/// Ends of keys that no manifest knows: the same pixels as JPEG 2000, where the reader pays, and
/// pictures.
const LEFT_OUT_ENDS: [(&str, &str, &str); 2] = [
    ("element84", "sentinel2", "-jp2"),
    ("planetary-computer", "sentinel2", "preview"),
];

/// Every canonical name there is, and what it measures.
const VOCABULARY: [(&str, Kind); 49] = [
    ("coastal", Kind::Reflectance),
    ("blue", Kind::Reflectance),
    ("green", Kind::Reflectance),
    ("red", Kind::Reflectance),
    ("red_edge_1", Kind::Reflectance),
    ("red_edge_2", Kind::Reflectance),
    ("red_edge_3", Kind::Reflectance),
    ("nir", Kind::Reflectance),
    ("nir_2", Kind::Reflectance),
    ("water_vapour_band", Kind::Reflectance),
    ("swir_1", Kind::Reflectance),
    ("swir_2", Kind::Reflectance),
    ("panchromatic", Kind::Reflectance),
    ("thermal", Kind::Temperature),
    ("thermal_tm", Kind::Temperature),
    ("azimuthal_exiting", Kind::Angle),
    ("azimuthal_incident", Kind::Angle),
    ("exiting_angle", Kind::Angle),
    ("incident_angle", Kind::Angle),
    ("relative_azimuth", Kind::Angle),
    ("relative_slope", Kind::Angle),
    ("satellite_azimuth", Kind::Angle),
    ("satellite_view", Kind::Angle),
    ("solar_azimuth", Kind::Angle),
    ("solar_zenith", Kind::Angle),
    ("time_delta", Kind::Quantity),
    ("aot", Kind::Quantity),
    ("water_vapour", Kind::Quantity),
    ("atmospheric_transmittance", Kind::Quantity),
    ("atmospheric_opacity", Kind::Quantity),
    ("cloud_distance", Kind::Quantity),
    ("downwelled_radiance", Kind::Quantity),
    ("upwelled_radiance", Kind::Quantity),
    ("thermal_radiance", Kind::Quantity),
    ("emissivity", Kind::Quantity),
    ("emissivity_deviation", Kind::Quantity),
    ("temperature_uncertainty", Kind::Qa),
    ("terrain_shadow", Kind::Qa),
    ("fmask", Kind::Qa),
    ("contiguity", Kind::Qa),
    ("s2cloudless_mask", Kind::Qa),
    ("s2cloudless_prob", Kind::Qa),
    ("scl", Kind::Qa),
    ("cloud_probability", Kind::Qa),
    ("snow_probability", Kind::Qa),
    ("qa_pixel", Kind::Qa),
    ("qa_radsat", Kind::Qa),
    ("qa_aerosol", Kind::Qa),
    ("cloud_qa", Kind::Qa),
];

/// The centre of each band in micrometres, between these.
const WAVELENGTHS: [(&str, f64, f64); 14] = [
    ("coastal", 0.43, 0.45),
    ("blue", 0.46, 0.50),
    ("green", 0.55, 0.57),
    ("red", 0.64, 0.67),
    ("red_edge_1", 0.70, 0.71),
    ("red_edge_2", 0.735, 0.745),
    ("red_edge_3", 0.775, 0.785),
    // The wide band of Sentinel-2, and the only one of Landsat.
    ("nir", 0.83, 0.88),
    ("nir_2", 0.86, 0.87),
    ("water_vapour_band", 0.94, 0.95),
    ("swir_1", 1.56, 1.66),
    ("swir_2", 2.18, 2.22),
    ("thermal", 10.6, 11.2),
    ("thermal_tm", 11.2, 11.6),
];

/// The number of each band in the names of DEA's files, as ESA and USGS number them.
const DEA_NUMBERS: [(&str, &str, &str); 19] = [
    ("sentinel2", "coastal", "01"),
    ("sentinel2", "blue", "02"),
    ("sentinel2", "green", "03"),
    ("sentinel2", "red", "04"),
    ("sentinel2", "red_edge_1", "05"),
    ("sentinel2", "red_edge_2", "06"),
    ("sentinel2", "red_edge_3", "07"),
    ("sentinel2", "nir", "08"),
    ("sentinel2", "nir_2", "08a"),
    ("sentinel2", "swir_1", "11"),
    ("sentinel2", "swir_2", "12"),
    ("landsat8", "coastal", "01"),
    ("landsat8", "blue", "02"),
    ("landsat8", "green", "03"),
    ("landsat8", "red", "04"),
    ("landsat8", "nir", "05"),
    ("landsat8", "swir_1", "06"),
    ("landsat8", "swir_2", "07"),
    ("landsat8", "panchromatic", "08"),
];

/// Measurements of every DEA product, from its definitions in
/// [dea-config](https://github.com/GeoscienceAustralia/dea-config/tree/master/products/baseline_satellite_data/c3).
const DEA_COMMON: [(&str, DataType, f64); 14] = [
    ("oa_azimuthal_exiting", DataType::F32, f64::NAN),
    ("oa_azimuthal_incident", DataType::F32, f64::NAN),
    ("oa_combined_terrain_shadow", DataType::U8, 255.0),
    ("oa_exiting_angle", DataType::F32, f64::NAN),
    ("oa_fmask", DataType::U8, 0.0),
    ("oa_incident_angle", DataType::F32, f64::NAN),
    ("oa_nbart_contiguity", DataType::U8, 255.0),
    ("oa_relative_azimuth", DataType::F32, f64::NAN),
    ("oa_relative_slope", DataType::F32, f64::NAN),
    ("oa_satellite_azimuth", DataType::F32, f64::NAN),
    ("oa_satellite_view", DataType::F32, f64::NAN),
    ("oa_solar_azimuth", DataType::F32, f64::NAN),
    ("oa_solar_zenith", DataType::F32, f64::NAN),
    ("oa_time_delta", DataType::F32, f64::NAN),
];
/// The same of Sentinel-2 only.
const DEA_CLOUDLESS: [(&str, DataType, f64); 2] = [
    ("oa_s2cloudless_mask", DataType::U8, 0.0),
    ("oa_s2cloudless_prob", DataType::F64, f64::NAN),
];
/// The reflectances of each DEA product; all are int16, and -999 is no data.
const DEA_SENTINEL2: [&str; 11] = [
    "nbart_coastal_aerosol",
    "nbart_blue",
    "nbart_green",
    "nbart_red",
    "nbart_red_edge_1",
    "nbart_red_edge_2",
    "nbart_red_edge_3",
    "nbart_nir_1",
    "nbart_nir_2",
    "nbart_swir_2",
    "nbart_swir_3",
];
/// Those of a Landsat are the last six of TM, seven of ETM+ and eight of OLI.
const DEA_LANDSAT: [&str; 8] = [
    "nbart_coastal_aerosol",
    "nbart_panchromatic",
    "nbart_blue",
    "nbart_green",
    "nbart_red",
    "nbart_nir",
    "nbart_swir_1",
    "nbart_swir_2",
];

fn text(file: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/stac");
    fs::read_to_string(path.join(file)).unwrap_or_else(|err| panic!("{file}: {err}"))
}

fn json(file: &str) -> Value {
    serde_json::from_str(&text(file)).unwrap()
}

impl Recorded {
    fn json(&self) -> Value {
        json(self.file)
    }

    fn item(&self) -> ::stac::Item {
        match stac::read(text(self.file).as_bytes()).unwrap() {
            Document::Item(item, skipped) => {
                assert!(skipped.is_empty(), "{}: {skipped:?}", self.file);
                *item
            }
            other => panic!("{}: {other:?}", self.file),
        }
    }

    fn manifest(&self) -> Manifest {
        manifest(self.source, self.collection)
    }
}

fn manifest(source: &str, collection: &str) -> Manifest {
    Manifest::all()
        .iter()
        .find(|one| one.source == source && one.collection == collection)
        .cloned()
        .unwrap_or_else(|| panic!("no manifest of {source} {collection}"))
}

fn keys(object: &Value) -> BTreeSet<String> {
    object.as_object().unwrap().keys().cloned().collect()
}

/// Returns the keys of the rasters of an item.
fn rasters(item: &Value) -> BTreeSet<String> {
    let assets = item["assets"].as_object().unwrap();
    assets
        .iter()
        .filter(|(_, asset)| {
            let kind = asset["type"].as_str().unwrap_or_default();
            kind.starts_with("image/tiff") || kind.starts_with("image/jp2")
        })
        .map(|(key, _)| key.clone())
        .collect()
}

fn same(a: Option<f64>, b: Option<f64>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => a.to_bits() == b.to_bits() || a == b || a.is_nan() && b.is_nan(),
        (a, b) => a.is_none() && b.is_none(),
    }
}

#[test]
fn every_manifest_has_a_recorded_item_or_is_named_as_without() {
    for manifest in Manifest::all() {
        let name = (manifest.source.as_str(), manifest.collection.as_str());
        let recorded = RECORDED
            .iter()
            .any(|one| (one.source, one.collection) == name);
        assert_ne!(recorded, WITHOUT_ITEM.contains(&name), "{name:?}");
    }
}

#[test]
fn an_item_is_of_a_collection_of_its_manifest() {
    for recorded in &RECORDED {
        let item = recorded.json();
        let id = item["collection"]
            .as_str()
            .or_else(|| item["properties"]["odc:product"].as_str());
        let known = recorded.manifest().stac_collections;
        let id = id.unwrap_or_else(|| panic!("{}", recorded.file));
        assert!(known.iter().any(|one| one == id), "{}: {id}", recorded.file);
    }
}

#[test]
fn every_key_of_a_manifest_is_an_asset_of_a_recorded_item() {
    for manifest in Manifest::all() {
        let name = (manifest.source.as_str(), manifest.collection.as_str());
        if WITHOUT_ITEM.contains(&name) {
            continue;
        }
        let items = RECORDED
            .iter()
            .filter(|one| (one.source, one.collection) == name)
            .map(|one| keys(&one.json()["assets"]));
        let collections = COLLECTIONS
            .iter()
            .filter(|(source, collection, _)| (*source, *collection) == name)
            .map(|(_, _, file)| keys(&json(&format!("collections/{file}"))["item_assets"]));
        let seen: BTreeSet<String> = items.chain(collections).flatten().collect();
        let unknown: Vec<&str> = manifest
            .bands
            .iter()
            .map(|band| band.asset.as_str())
            .filter(|key| !seen.contains(*key))
            .collect();
        assert!(unknown.is_empty(), "{name:?}: {unknown:?}");
    }
}

#[test]
fn every_item_has_the_bands_that_are_not_optional() {
    for recorded in &RECORDED {
        let assets = keys(&recorded.json()["assets"]);
        let manifest = recorded.manifest();
        let missing: Vec<&str> = manifest
            .bands
            .iter()
            .filter(|band| !band.optional)
            .map(|band| band.asset.as_str())
            .filter(|key| !assets.contains(*key))
            .collect();
        assert!(missing.is_empty(), "{}: {missing:?}", recorded.file);
    }
}

#[test]
fn every_raster_of_an_item_is_in_its_manifest_or_left_out_for_a_reason() {
    let mut used = BTreeSet::new();
    let mut ends_used = BTreeSet::new();
    for recorded in &RECORDED {
        let manifest = recorded.manifest();
        let name = (recorded.source, recorded.collection);
        let mut unknown = Vec::new();
        for key in rasters(&recorded.json()) {
            if manifest.band(&key).is_some() {
                continue;
            }
            let start = LEFT_OUT
                .iter()
                .position(|out| (out.0, out.1) == name && key.starts_with(out.2));
            let end = LEFT_OUT_ENDS
                .iter()
                .position(|out| (out.0, out.1) == name && key.ends_with(out.2));
            match (start, end) {
                (_, Some(at)) => drop(ends_used.insert(at)),
                (Some(at), None) => drop(used.insert(at)),
                (None, None) => unknown.push(key),
            }
        }
        assert!(unknown.is_empty(), "{}: {unknown:?}", recorded.file);
    }
    assert_eq!(used.len(), LEFT_OUT.len(), "used {used:?}");
    assert_eq!(ends_used.len(), LEFT_OUT_ENDS.len(), "used {ends_used:?}");
}

#[test]
fn every_raster_of_a_collection_is_in_its_manifest() {
    for (source, collection, file) in COLLECTIONS {
        let manifest = manifest(source, collection);
        let assets = &json(&format!("collections/{file}"))["item_assets"];
        for (key, asset) in assets.as_object().unwrap() {
            let stated = &asset["raster:bands"][0];
            let Some(band) = manifest.band(key) else {
                let left_out = stated.is_null() || key.ends_with("-jp2") || key == "visual";
                assert!(left_out, "{file}: {key}");
                continue;
            };
            let stated_type = stated["data_type"].as_str().unwrap();
            assert_eq!(band.dtype.name(), stated_type, "{file}: {key}");
            assert!(
                same(band.nodata.map(Number::as_f64), stated["nodata"].as_f64()),
                "{file}: {key}"
            );
            assert!(same(band.scale, stated["scale"].as_f64()), "{file}: {key}");
            assert!(
                same(band.offset, stated["offset"].as_f64()),
                "{file}: {key}"
            );
            let metres = stated["spatial_resolution"].as_f64();
            assert_eq!(Some(band.resolution), metres, "{file}: {key}");
        }
    }
}

#[test]
fn canonical_names_are_unique_and_of_one_vocabulary() {
    let mut used = BTreeSet::new();
    for manifest in Manifest::all() {
        let name = format!("{} {}", manifest.source, manifest.collection);
        let mut own = BTreeSet::new();
        for band in &manifest.bands {
            let canonical = band.canonical.as_deref();
            let canonical = canonical.unwrap_or_else(|| panic!("{name} {}", band.asset));
            let entry = VOCABULARY.iter().find(|(word, _)| *word == canonical);
            let (word, kind) = entry.unwrap_or_else(|| panic!("{name}: {canonical}"));
            assert_eq!(band.kind, *kind, "{name}: {canonical}");
            assert!(own.insert(canonical.to_owned()), "{name}: {canonical}");
            used.insert(*word);
        }
    }
    assert_eq!(used.len(), VOCABULARY.len());
}

#[test]
fn a_canonical_name_means_one_wavelength() {
    let mut checked = 0;
    for recorded in &RECORDED {
        let item = recorded.json();
        for band in recorded.manifest().bands {
            let stated = &item["assets"][&band.asset]["eo:bands"][0]["center_wavelength"];
            let Some(micrometres) = stated.as_f64() else {
                continue;
            };
            let canonical = band.canonical.unwrap();
            let range = WAVELENGTHS.iter().find(|(name, ..)| *name == canonical);
            let (_, from, to) = range.unwrap_or_else(|| panic!("{}: {canonical}", recorded.file));
            assert!(
                (*from..=*to).contains(&micrometres),
                "{}: {canonical} at {micrometres}",
                recorded.file
            );
            checked += 1;
        }
    }
    // Three times Sentinel-2 at Element 84 and once at Planetary Computer, OLI and its thermal
    // band twice, OLI alone once.
    assert_eq!(checked, 3 * 12 + 12 + 2 * 8 + 7);
}

#[test]
fn the_thermal_band_of_tm_lies_where_the_collection_says() {
    for (source, collection, file) in COLLECTIONS {
        if collection != "landsat" {
            continue;
        }
        let manifest = manifest(source, collection);
        let band = manifest.resolve_canonical(&["thermal_tm"]).unwrap()[0];
        let collection = json(&format!("collections/{file}"));
        let (_, from, to) = WAVELENGTHS[13];
        let mut sensors = Vec::new();
        for stated in collection["summaries"]["eo:bands"].as_array().unwrap() {
            if stated["common_name"] == *band.asset {
                let micrometres = stated["center_wavelength"].as_f64().unwrap();
                assert!((from..=to).contains(&micrometres), "{file}: {micrometres}");
                sensors.push(stated["name"].as_str().unwrap());
            }
        }
        assert_eq!(sensors, ["TM_B6", "ETM_B6"], "{file}");
    }
}

#[test]
fn a_canonical_name_of_dea_means_one_band_number() {
    for (collection, canonical, number) in DEA_NUMBERS {
        let manifest = manifest("dea", collection);
        let band = manifest.resolve_canonical(&[canonical]).unwrap()[0];
        let of_collection = |one: &&Recorded| (one.source, one.collection) == ("dea", collection);
        let items: Vec<Value> = RECORDED
            .iter()
            .filter(of_collection)
            .map(Recorded::json)
            .collect();
        assert!(!items.is_empty());
        for item in items {
            let href = item["assets"][&band.asset]["href"].as_str().unwrap();
            assert!(href.ends_with(&format!("_band{number}.tif")), "{href}");
        }
    }
}

#[test]
fn resolution_is_what_the_item_states() {
    for recorded in &RECORDED {
        let item = recorded.item();
        let raw = recorded.json();
        let mut checked = 0;
        for band in recorded.manifest().bands {
            let Some(asset) = item.assets.get(&band.asset) else {
                continue;
            };
            let raw = &raw["assets"][&band.asset];
            let which = format!("{}: {}", recorded.file, band.asset);
            let transform = stac::projection(&item, asset).transform;
            let [_, width, _, _, _, height] = transform.unwrap_or_else(|| panic!("{which}"));
            assert_eq!([width, -height], [band.resolution; 2], "{which}");
            if let Some(metres) = raw["raster:bands"][0]["spatial_resolution"].as_f64() {
                assert_eq!(metres, band.resolution, "{which}");
            }
            // The thermal sensor sees 100 m; its band is delivered at 30 m.
            if let Some(metres) = raw["gsd"].as_f64().filter(|_| band.asset != "lwir11") {
                assert_eq!(metres, band.resolution, "{which}");
            }
            checked += 1;
        }
        assert!(checked >= 10, "{}: {checked}", recorded.file);
    }
}

#[test]
fn type_nodata_scale_and_offset_are_what_the_item_states() {
    for recorded in &RECORDED {
        let item = recorded.item();
        // Earth Search subtracts ESA's offset itself, says so, and states the offset all the same.
        let applied = item
            .properties
            .additional_fields
            .get("earthsearch:boa_offset_applied");
        let applied = applied.and_then(Value::as_bool).unwrap_or(false);
        for band in recorded.manifest().bands {
            let Some(asset) = item.assets.get(&band.asset) else {
                continue;
            };
            let which = format!("{}: {}", recorded.file, band.asset);
            let stated = stac::band_facts(asset);
            if !recorded.states_bands {
                assert_eq!(stated, stac::BandFacts::default(), "{which}");
                continue;
            }
            assert_eq!(stated.dtype, Some(band.dtype), "{which}");
            assert!(stated.nodata == band.nodata, "{which}: {stated:?}");
            assert!(same(stated.scale, band.scale), "{which}: {stated:?}");
            let offset = match stated.offset {
                Some(_) if applied => Some(0.0),
                offset => offset,
            };
            assert!(same(offset, band.offset), "{which}: {stated:?}");
        }
    }
}

#[test]
fn the_offset_of_sentinel2_at_element84_is_in_the_pixels_but_not_in_collection_1() {
    let facts = |file: &str| {
        let recorded = RECORDED.iter().find(|one| one.file == file).unwrap();
        let item = recorded.item();
        let stated = stac::band_facts(&item.assets["red"]).offset;
        let applied = item
            .properties
            .additional_fields
            .get("earthsearch:boa_offset_applied");
        let offset = recorded.manifest().band("red").unwrap().offset;
        (stated, applied.and_then(Value::as_bool), offset)
    };
    assert_eq!(
        facts("element84-sentinel2.json"),
        (Some(-0.1), Some(true), Some(0.0))
    );
    assert_eq!(
        facts("element84-sentinel2-baseline-02.14.json"),
        (Some(0.0), Some(false), Some(0.0))
    );
    assert_eq!(
        facts("element84-sentinel2-c1.json"),
        (Some(-0.1), None, Some(-0.1))
    );
}

#[test]
fn bands_of_dea_are_the_measurements_of_its_product_definitions() {
    let of = |collection: &str| -> Vec<(&str, DataType, f64)> {
        let reflectances = match collection {
            "sentinel2" => &DEA_SENTINEL2[..],
            "landsat5" => &DEA_LANDSAT[2..],
            "landsat7" => &DEA_LANDSAT[1..],
            _ => &DEA_LANDSAT[..],
        };
        let cloudless = match collection {
            "sentinel2" => &DEA_CLOUDLESS[..],
            _ => &[],
        };
        let reflectances = reflectances.iter().map(|key| (*key, DataType::I16, -999.0));
        let others = DEA_COMMON.iter().chain(cloudless).copied();
        reflectances.chain(others).collect()
    };
    for collection in ["sentinel2", "landsat5", "landsat7", "landsat8", "landsat9"] {
        let manifest = manifest("dea", collection);
        let expected = of(collection);
        assert_eq!(manifest.bands.len(), expected.len(), "{collection}");
        for (key, dtype, nodata) in expected {
            let band = manifest.band(key);
            let band = band.unwrap_or_else(|| panic!("{collection}: {key}"));
            assert_eq!(band.dtype, dtype, "{collection}: {key}");
            let expected = Number::from(nodata);
            assert_eq!(band.nodata, Some(expected), "{collection}: {key}");
        }
    }
}

#[test]
fn the_landsats_of_dea_differ_by_their_sensors_only() {
    let eight = manifest("dea", "landsat8");
    for (collection, id, missing) in [
        (
            "landsat5",
            "ga_ls5t_ard_3",
            &["nbart_coastal_aerosol", "nbart_panchromatic"][..],
        ),
        ("landsat7", "ga_ls7e_ard_3", &["nbart_coastal_aerosol"]),
        ("landsat9", "ga_ls9c_ard_3", &[]),
    ] {
        let manifest = manifest("dea", collection);
        assert_eq!(manifest.stac_collections, [id]);
        assert_eq!(manifest.scene, eight.scene);
        assert_eq!(manifest.cloud_cover, eight.cloud_cover);
        let bands = |manifest: &Manifest| -> BTreeSet<String> {
            // NaN is not equal to itself, its text is.
            let bands = manifest.bands.iter();
            bands.map(|band| format!("{band:?}")).collect()
        };
        let mut expected = eight.clone();
        expected
            .bands
            .retain(|band| !missing.contains(&band.asset.as_str()));
        assert_eq!(bands(&manifest), bands(&expected), "{collection}");
    }
}

#[test]
fn cloud_cover_is_a_percentage_of_the_item() {
    for recorded in &RECORDED {
        let property = recorded.manifest().cloud_cover.unwrap();
        let stated = recorded.json()["properties"][&property].as_f64();
        let percent = stac::cloud_cover(&recorded.item(), &property);
        assert!(
            percent.is_some_and(|percent| (0.0..=100.0).contains(&percent)),
            "{}: {percent:?}",
            recorded.file
        );
        assert_eq!(percent, stated, "{}", recorded.file);
    }
}

#[test]
fn a_scene_matches_its_item_and_no_other() {
    for recorded in &RECORDED {
        let rule = recorded.manifest().scene.unwrap();
        let item = recorded.item();
        let properties = &item.properties.additional_fields;
        let scene: Scene = recorded.scene.parse().unwrap();
        let file = recorded.file;
        assert_eq!(rule.matches(&scene, properties), Some(true), "{file}");
        for other in recorded.elsewhere {
            let other: Scene = other.parse().unwrap();
            assert_eq!(
                rule.matches(&other, properties),
                Some(false),
                "{file}: {other}"
            );
        }
    }
}

#[test]
fn a_search_by_scene_asks_for_the_value_that_the_item_has() {
    for recorded in &RECORDED {
        let rule = recorded.manifest().scene.unwrap();
        let raw = recorded.json();
        let scene: Scene = recorded.scene.parse().unwrap();
        for (name, value) in rule.properties(&scene).unwrap() {
            // A server compares types too: "033" is not 33.
            assert_eq!(raw["properties"][&name], value, "{}: {name}", recorded.file);
        }
    }
}

#[test]
fn a_scene_of_the_other_grid_matches_no_item() {
    for recorded in &RECORDED {
        let rule = recorded.manifest().scene.unwrap();
        let item = recorded.item();
        let other = match recorded.scene.parse().unwrap() {
            Scene::Mgrs(_) => Scene::Wrs { path: 90, row: 84 },
            _ => Scene::Mgrs("56JNS".to_owned()),
        };
        let stated = rule.matches(&other, &item.properties.additional_fields);
        assert_eq!(stated, None, "{}", recorded.file);
    }
}

#[test]
fn path_and_row_are_read_as_numbers_and_as_text() {
    let rule = manifest("element84", "landsat").scene.unwrap();
    // DEA writes 88 and 80, Element 84 "033" and "032".
    for (file, scene, other) in [
        ("dea-landsat8.json", "088080", "080088"),
        ("element84-landsat.json", "033032", "032033"),
    ] {
        let recorded = RECORDED.iter().find(|one| one.file == file).unwrap();
        let item = recorded.item();
        let properties = &item.properties.additional_fields;
        let matches = |scene: &str| rule.matches(&scene.parse().unwrap(), properties);
        assert_eq!(matches(scene), Some(true), "{file}");
        assert_eq!(matches(other), Some(false), "{file}");
    }
}

#[test]
fn a_satellite_of_a_shared_collection_is_the_platform_of_its_items() {
    for (file, collection) in [
        ("element84-landsat.json", Collection::Landsat8),
        ("planetary-computer-landsat.json", Collection::Landsat9),
        ("planetary-computer-landsat-l2sr.json", Collection::Landsat9),
    ] {
        let recorded = RECORDED.iter().find(|one| one.file == file).unwrap();
        let source: Source = recorded.source.parse().unwrap();
        let manifest = Manifest::builtin(&source, &collection).unwrap();
        let platform = recorded.json()["properties"]["platform"].clone();
        assert_eq!(manifest.platform.as_deref(), platform.as_str(), "{file}");
    }
}

/// A manifest as a user writes one.
const OWN: &str = "\
source: mine
collection: trees
stac_collections: [trees-v1, trees-v2]
cloud_cover: clouds
scene:
  grid: mgrs
  properties:
    - {name: \"tile\", value: \"T{tile}\"}
bands:
  - {asset: B4, canonical: red, resolution: 10, dtype: uint16, nodata: 0, scale: 0.0001, kind: reflectance}
  - {asset: B8, canonical: nir, resolution: 10, dtype: uint16, nodata: 0, kind: reflectance, optional: true}
  - {asset: height, resolution: 1, dtype: float32, nodata: .nan, kind: quantity}
  - {asset: mask, resolution: 20, dtype: uint8, kind: qa}
";

#[test]
fn a_manifest_of_your_own_is_read_from_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trees.yaml");
    fs::write(&path, OWN).unwrap();
    let manifest = Manifest::from_file(&path).unwrap();
    assert_eq!(manifest.stac_collections, ["trees-v1", "trees-v2"]);
    let height = manifest.band("height").unwrap();
    assert_eq!((height.dtype, height.kind), (DataType::F32, Kind::Quantity));
    assert!(height.nodata.unwrap().is_nan());
    assert_eq!((&height.canonical, height.scale), (&None, None));
    let tile = manifest
        .scene
        .unwrap()
        .properties(&"56JNS".parse().unwrap());
    assert_eq!(tile.unwrap(), [("tile".to_owned(), "T56JNS".into())]);
}

#[test]
fn a_query_takes_bands_from_your_own_manifest() {
    let own = || Manifest::from_yaml(OWN).unwrap();
    let query = |source: Source, collection: Collection| {
        ImageQueryBuilder::new(source, collection, Intersects::everywhere())
            .session(Session::builder().build().unwrap())
            .manifest(own())
    };
    let anywhere = Source::api("https://stac.invalid/v1").unwrap();
    let trees = Collection::Id("trees".to_owned());
    let named = query(anywhere.clone(), trees.clone()).canonical_bands(["nir", "red"]);
    assert_eq!(named.build().unwrap().bands(), ["B8", "B4"]);
    // Without names all but quality bands, in the manifest's order.
    let all = query(anywhere.clone(), trees.clone()).build().unwrap();
    assert_eq!(all.bands(), ["B4", "B8", "height"]);
    // It stands in for the built-in manifest of a known product.
    let known = query(DEA, Collection::Sentinel2).canonical_bands(["red"]);
    assert_eq!(known.build().unwrap().bands(), ["B4"]);
    let unknown = query(anywhere, trees).canonical_bands(["red", "swir_1"]);
    let err = unknown.build().unwrap_err();
    assert_eq!(err.kind(), ErrorKind::InvalidInput);
    assert_eq!(
        err.to_string(),
        "band swir_1 is not known in mine trees; known are red, nir"
    );
}

#[test]
fn the_collection_that_is_named_is_searched_whatever_the_manifest_lists() {
    let asked = |source: &Source, collection: &Collection| {
        let own = Manifest::from_yaml(OWN).unwrap();
        let query =
            ImageQueryBuilder::new(source.clone(), collection.clone(), Intersects::everywhere())
                .session(Session::builder().build().unwrap())
                .manifest(own)
                .build()?;
        Ok::<_, rss_core::Error>((format!("{query:?}"), query.collections().to_vec()))
    };
    let anywhere = Source::api("https://stac.invalid/v1").unwrap();
    let id = |text: &str| Collection::Id(text.to_owned());
    for (source, collection, expected) in [
        // The product's name stands for all collections that it lists.
        (&anywhere, id("trees"), vec!["trees-v1", "trees-v2"]),
        (&anywhere, id("trees-v2"), vec!["trees-v2"]),
        (&anywhere, id("shrubs"), vec!["shrubs"]),
        (
            &DEA,
            Collection::Sentinel2,
            vec!["ga_s2am_ard_3", "ga_s2bm_ard_3", "ga_s2cm_ard_3"],
        ),
        (&DEA, id("ga_s2bm_ard_3"), vec!["ga_s2bm_ard_3"]),
    ] {
        let (text, found) = asked(source, &collection).unwrap();
        assert_eq!(found, expected, "{text}");
    }
    let err = asked(&anywhere, &Collection::Sentinel2).unwrap_err();
    assert_eq!(err.kind(), ErrorKind::InvalidInput);
    assert_eq!(
        err.to_string(),
        "neither the source nor the manifest has a collection `sentinel2`: the manifest describes `trees` \
         (trees-v1, trees-v2)"
    );
}

#[test]
fn one_satellite_of_a_manifest_of_your_own_is_its_platform() {
    let yaml = OWN.replace("cloud_cover:", "satellites: {trees1: tree-1}\ncloud_cover:");
    let build = |collection: &str| {
        let source = Source::api("https://stac.invalid/v1").unwrap();
        let id = Collection::Id(collection.to_owned());
        ImageQueryBuilder::new(source, id, Intersects::everywhere())
            .session(Session::builder().build().unwrap())
            .manifest(Manifest::from_yaml(&yaml).unwrap())
            .build()
            .unwrap()
    };
    assert!(format!("{:?}", build("trees1")).contains("tree-1"));
    assert!(!format!("{:?}", build("trees")).contains("tree-1"));
}

#[test]
fn a_scene_is_searched_by_the_rule_of_your_own_manifest() {
    let without = OWN.replace(
        "scene:\n  grid: mgrs\n  properties:\n    - {name: \"tile\", value: \"T{tile}\"}\n",
        "",
    );
    assert!(!without.contains("scene"));
    let build = |yaml: &str, scene: &str| {
        let source = Source::api("https://stac.invalid/v1").unwrap();
        let trees = Collection::Id("trees".to_owned());
        ImageQueryBuilder::new(source, trees, Intersects::scene(scene))
            .session(Session::builder().build().unwrap())
            .manifest(Manifest::from_yaml(yaml).unwrap())
            .build()
            .map(|query| query.bands().len())
    };
    assert_eq!(build(OWN, "56JNS").unwrap(), 3);
    let err = build(OWN, "090084").unwrap_err();
    assert!(err.to_string().contains("Sentinel-2 tile"), "{err}");
    let err = build(&without, "090084").unwrap_err();
    assert!(err.to_string().contains("needs a manifest"), "{err}");
}

#[test]
fn a_wrong_manifest_is_one_clear_error_that_names_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trees.yaml");
    for (from, to, said) in [
        ("cloud_cover:", "cloud_cower:", "cloud_cower"),
        ("nodata: 0,", "no_data: 0,", "no_data"),
        ("source: mine\n", "", "source"),
        ("asset: mask, ", "", "asset"),
        ("dtype: uint8", "dtype: byte", "byte"),
        ("kind: qa", "kind: mask", "mask"),
        ("grid: mgrs", "grid: quads", "quads"),
        ("resolution: 20", "resolution: fine", "line 13"),
        ("canonical: nir", "canonical: red", "`B4` and `B8`"),
        ("asset: mask", "asset: B4", "`B4` and `B4`"),
        ("[trees-v1, trees-v2]", "[]", "at least one collection"),
    ] {
        assert!(OWN.contains(from), "{from}");
        fs::write(&path, OWN.replacen(from, to, 1)).unwrap();
        let err = Manifest::from_file(&path).unwrap_err();
        assert_eq!(err.kind(), ErrorKind::InvalidInput, "{to}: {err}");
        let message = err.to_string();
        assert!(message.contains(said), "{to}: {message}");
        assert!(message.contains("trees.yaml"), "{to}: {message}");
        assert_eq!(message.lines().count(), 1, "{to}: {message}");
    }
    fs::write(&path, "not: [a manifest").unwrap();
    let err = Manifest::from_file(&path).unwrap_err();
    assert_eq!(err.kind(), ErrorKind::InvalidInput, "{err}");
    let err = Manifest::from_file(&dir.path().join("none.yaml")).unwrap_err();
    assert_eq!(err.kind(), ErrorKind::NotFound, "{err}");
    assert!(err.to_string().contains("none.yaml"), "{err}");
}

#[test]
fn a_product_by_the_id_of_its_collection_has_its_manifest() {
    let by_id = |source, id: &str| Manifest::builtin(&source, &Collection::Id(id.to_owned()));
    let twin = by_id(DEA, "ga_s2bm_ard_3").unwrap();
    assert_eq!(twin.stac_collections, ["ga_s2bm_ard_3"]);
    assert_eq!(twin.bands.len(), manifest("dea", "sentinel2").bands.len());
    let c1 = by_id(ELEMENT84, "sentinel-2-c1-l2a").unwrap();
    assert_eq!(c1.collection, "sentinel2-c1");
    assert_eq!(by_id(ELEMENT84, "ga_s2bm_ard_3"), None);
}
