//! What samples mean is right for items that providers really served: scale, offset and nodata, the bits of
//! their QA bands, and which items are one scene.
//!
//! The items are in `tests/data/stac`, whose README says where each comes from. Expected numbers are those of
//! the providers' documentation, written out by hand.

#![expect(clippy::panic, reason = "a failed test panics")]

use std::{fs, path::PathBuf};

use rss_core::{
    BandValues, Collection, ErrorKind, Manifest, Pixels, Scaling, ScalingOrigin, Source,
    apply::time::{GroupOptions, Grouping, MosaicOrder, group},
    mask::{BandMask, MaskClasses, QaTable},
    stac::{self, Document},
};
use serde_json::{Value, json};

fn text(file: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/stac");
    fs::read_to_string(path.join(file)).unwrap()
}

fn read(json: &str) -> ::stac::Item {
    match stac::read(json.as_bytes()).unwrap() {
        Document::Item(item, _) => *item,
        other => panic!("{other:?}"),
    }
}

fn recorded(file: &str) -> ::stac::Item {
    read(&text(file))
}

/// Reads a recorded item with one property changed, or removed where it is null.
fn changed(file: &str, property: &str, value: Value) -> ::stac::Item {
    let mut json: Value = serde_json::from_str(&text(file)).unwrap();
    let properties = json["properties"].as_object_mut().unwrap();
    match value {
        Value::Null => properties.remove(property),
        value => properties.insert(property.to_owned(), value),
    };
    read(&json.to_string())
}

fn manifest(source: &str, collection: Collection) -> Manifest {
    let source: Source = source.parse().unwrap();
    Manifest::builtin(&source, &collection).unwrap()
}

const PLAIN: Scaling = Scaling::IDENTITY;

fn scaling(scale: f64, offset: f64) -> Scaling {
    Scaling { scale, offset }
}

#[test]
fn recorded_items_have_the_values_that_their_providers_document() {
    use ScalingOrigin::{Baseline, Item, Manifest, NotScaled};

    let dea_s2 = manifest("dea", Collection::Sentinel2);
    let dea_l8 = manifest("dea", Collection::Landsat8);
    let e84 = manifest("element84", Collection::Sentinel2);
    let e84_c1 = manifest("element84", Collection::Sentinel2C1);
    let e84_landsat = manifest("element84", Collection::Landsat);
    let pc = manifest("planetary-computer", Collection::Sentinel2);
    let pc_landsat = manifest("planetary-computer", Collection::Landsat8);
    let reflectance = scaling(2.75e-5, -0.2);
    let kelvin = scaling(0.003_418_02, 149.0);
    let one = scaling(0.0001, 0.0);
    let shifted = scaling(0.0001, -0.1);
    let water = scaling(0.001, 0.0);
    for (file, manifest, key, expected, nodata, origin) in [
        (
            "dea-sentinel2.json",
            &dea_s2,
            "nbart_red",
            one,
            -999.0,
            Manifest,
        ),
        (
            "dea-sentinel2.json",
            &dea_s2,
            "oa_fmask",
            PLAIN,
            0.0,
            NotScaled,
        ),
        (
            "dea-landsat8.json",
            &dea_l8,
            "nbart_nir",
            one,
            -999.0,
            Manifest,
        ),
        (
            "dea-landsat8-beta2.json",
            &dea_l8,
            "nbart_nir",
            one,
            -999.0,
            Manifest,
        ),
        (
            "dea-landsat8.json",
            &dea_l8,
            "oa_nbart_contiguity",
            PLAIN,
            255.0,
            NotScaled,
        ),
        (
            "dea-landsat8.json",
            &dea_l8,
            "oa_solar_zenith",
            PLAIN,
            f64::NAN,
            NotScaled,
        ),
        // The item states -0.1, and that it is in the samples already.
        ("element84-sentinel2.json", &e84, "red", one, 0.0, Item),
        (
            "element84-sentinel2.json",
            &e84,
            "scl",
            PLAIN,
            0.0,
            NotScaled,
        ),
        ("element84-sentinel2.json", &e84, "aot", water, 0.0, Item),
        // Baseline 02.14: the item states 0, and that nothing was applied.
        (
            "element84-sentinel2-baseline-02.14.json",
            &e84,
            "nir",
            one,
            0.0,
            Item,
        ),
        (
            "element84-sentinel2-c1.json",
            &e84_c1,
            "red",
            shifted,
            0.0,
            Item,
        ),
        (
            "element84-sentinel2-c1.json",
            &e84_c1,
            "wvp",
            water,
            0.0,
            Item,
        ),
        (
            "element84-sentinel2-c1.json",
            &e84_c1,
            "cloud",
            PLAIN,
            0.0,
            NotScaled,
        ),
        (
            "element84-landsat.json",
            &e84_landsat,
            "red",
            reflectance,
            0.0,
            Item,
        ),
        (
            "element84-landsat.json",
            &e84_landsat,
            "lwir11",
            kelvin,
            0.0,
            Item,
        ),
        (
            "element84-landsat.json",
            &e84_landsat,
            "qa_pixel",
            PLAIN,
            1.0,
            NotScaled,
        ),
        (
            "planetary-computer-landsat.json",
            &pc_landsat,
            "nir08",
            reflectance,
            0.0,
            Item,
        ),
        (
            "planetary-computer-landsat.json",
            &pc_landsat,
            "lwir11",
            kelvin,
            0.0,
            Item,
        ),
        (
            "planetary-computer-landsat.json",
            &pc_landsat,
            "emis",
            one,
            -9999.0,
            Item,
        ),
        (
            "planetary-computer-landsat-l2sr.json",
            &pc_landsat,
            "red",
            reflectance,
            0.0,
            Item,
        ),
        // Baseline 02.12, and the item states nothing else.
        (
            "planetary-computer-sentinel2.json",
            &pc,
            "B04",
            one,
            0.0,
            Baseline,
        ),
        (
            "planetary-computer-sentinel2.json",
            &pc,
            "B8A",
            one,
            0.0,
            Baseline,
        ),
        (
            "planetary-computer-sentinel2.json",
            &pc,
            "SCL",
            PLAIN,
            0.0,
            NotScaled,
        ),
        (
            "planetary-computer-sentinel2.json",
            &pc,
            "WVP",
            water,
            0.0,
            Manifest,
        ),
    ] {
        let item = recorded(file);
        let values = BandValues::of(&item, key, 0, Some(manifest)).unwrap();
        assert_eq!(values.scaling, expected, "{file} {key}: {}", values.why);
        assert_eq!(values.origin, origin, "{file} {key}: {}", values.why);
        let found = values.nodata.unwrap();
        assert!(
            found == nodata || found.is_nan() && nodata.is_nan(),
            "{file} {key}: {found}"
        );
    }
    let radsat = BandValues::of(
        &recorded("element84-landsat.json"),
        "qa_radsat",
        0,
        Some(&e84_landsat),
    );
    assert_eq!(radsat.unwrap().nodata, None);
}

#[test]
fn reflectance_is_the_same_however_it_is_delivered() {
    // One surface of reflectance 0.25, as ESA stores it from 04.00 on, and as Earth Search does.
    let pc = manifest("planetary-computer", Collection::Sentinel2);
    let file = "planetary-computer-sentinel2.json";
    let e84 = manifest("element84", Collection::Sentinel2);
    let c1 = manifest("element84", Collection::Sentinel2C1);
    let baseline = "s2:processing_baseline";
    for (item, key, manifest, sample) in [
        (changed(file, baseline, json!("04.00")), "B04", &pc, 3500.0),
        (changed(file, baseline, json!(5.11)), "B04", &pc, 3500.0),
        (changed(file, baseline, json!("03.01")), "B04", &pc, 2500.0),
        (recorded("element84-sentinel2.json"), "red", &e84, 2500.0),
        (recorded("element84-sentinel2-c1.json"), "red", &c1, 3500.0),
        (
            changed(
                "element84-sentinel2.json",
                "earthsearch:boa_offset_applied",
                json!(false),
            ),
            "red",
            &e84,
            3500.0,
        ),
    ] {
        let values = BandValues::of(&item, key, 0, Some(manifest)).unwrap();
        let found = values.scaling.apply(sample);
        assert!((found - 0.25).abs() < 1e-12, "{} {key}: {found}", item.id);
    }
    // The product's name says the baseline where the property is gone.
    let nameless = changed(file, baseline, Value::Null);
    let values = BandValues::of(&nameless, "B04", 0, Some(&pc)).unwrap();
    assert_eq!(values.scaling.offset, 0.0);
    let mut nothing = nameless;
    nothing
        .properties
        .additional_fields
        .remove("s2:product_uri");
    let err = BandValues::of(&nothing, "B04", 0, Some(&pc)).unwrap_err();
    assert_eq!(err.kind(), ErrorKind::InvalidInput);
    assert!(err.message().contains(&nothing.id), "{err}");
    // Classes do not depend on it.
    assert!(BandValues::of(&nothing, "SCL", 0, Some(&pc)).is_ok());
}

#[test]
fn bits_of_landsat_are_those_that_its_items_state() {
    let json: Value = serde_json::from_str(&text("planetary-computer-landsat.json")).unwrap();
    // Their names, where ours differ.
    let ours = |asset: &str, field: &str| match (asset, field) {
        ("qa_pixel", "fill") => "nodata".to_owned(),
        ("qa_pixel", "cloud_shadow_confidence") => "shadow_confidence".to_owned(),
        ("qa_radsat", "occlusion") => "terrain_occlusion".to_owned(),
        ("qa_radsat", band) => band.replace("band", "saturated_band_"),
        (_, field) => field.to_owned(),
    };
    let mut checked = 0;
    for asset in ["qa_pixel", "qa_radsat"] {
        let table = QaTable::of_canonical(asset, Some("landsat-8")).unwrap();
        let fields = &json["assets"][asset]["classification:bitfields"];
        for field in fields.as_array().unwrap() {
            let name = ours(asset, field["name"].as_str().unwrap());
            let first = field["offset"].as_u64().unwrap();
            for class in field["classes"].as_array().unwrap() {
                let value = class["value"].as_u64().unwrap();
                let level = class["name"].as_str().unwrap();
                let class = match field["length"].as_u64().unwrap() {
                    1 if value == 1 => name.clone(),
                    2 if value > 0 && level != "reserved" => format!("{name}_{level}"),
                    _ => continue,
                };
                let classes: MaskClasses = class.parse().unwrap();
                let mask = BandMask::new(asset, &table, &classes).unwrap();
                let bits = (1 << field["length"].as_u64().unwrap()) - 1;
                for other in 0..4_u64 {
                    let sample = u16::try_from(other << first).unwrap();
                    // Fill is left out whatever is asked for.
                    let is_fill = asset == "qa_pixel" && sample & 1 == 1;
                    let pixels = Pixels::U16(ndarray::Array3::from_elem((1, 1, 1), sample));
                    let found = mask.leave_out(&pixels, 0, None).unwrap()[(0, 0)];
                    assert_eq!(
                        found,
                        other & bits == value || is_fill,
                        "{asset} {class} {sample}"
                    );
                    checked += 1;
                }
            }
        }
    }
    assert!(checked > 80, "{checked}");
}

#[test]
fn masks_are_of_assets_that_recorded_items_have() {
    for (file, source, collection, assets) in [
        (
            "dea-sentinel2.json",
            "dea",
            Collection::Sentinel2,
            &["oa_fmask", "oa_nbart_contiguity"][..],
        ),
        (
            "dea-landsat8.json",
            "dea",
            Collection::Landsat,
            &["oa_fmask", "oa_nbart_contiguity"],
        ),
        (
            "element84-sentinel2.json",
            "element84",
            Collection::Sentinel2,
            &["scl"],
        ),
        (
            "element84-sentinel2-c1.json",
            "element84",
            Collection::Sentinel2C1,
            &["scl"],
        ),
        (
            "element84-landsat.json",
            "element84",
            Collection::Landsat8,
            &["qa_pixel", "qa_radsat"],
        ),
        (
            "planetary-computer-sentinel2.json",
            "planetary-computer",
            Collection::Sentinel2,
            &["SCL"],
        ),
        (
            "planetary-computer-landsat-l2sr.json",
            "planetary-computer",
            Collection::Landsat9,
            &["qa_pixel", "qa_radsat"],
        ),
    ] {
        let item = recorded(file);
        let manifest = manifest(source, collection);
        let classes = match assets.last() {
            Some(&"oa_nbart_contiguity") => "clouds,snow,non_contiguous",
            Some(&"qa_radsat") => "clouds,snow,saturated,terrain_occlusion",
            _ => "clouds,snow,saturated",
        };
        let masks = classes
            .parse::<MaskClasses>()
            .unwrap()
            .of_manifest(&manifest)
            .unwrap();
        let found: Vec<&str> = masks.iter().map(BandMask::asset).collect();
        assert_eq!(found, assets, "{file}");
        assert!(
            assets.iter().all(|asset| item.assets.contains_key(*asset)),
            "{file}"
        );
    }
}

#[test]
fn recorded_items_are_grouped_and_their_duplicates_left_out() {
    let mut items = vec![
        recorded("element84-sentinel2.json"),
        recorded("dea-landsat8.json"),
        changed("element84-sentinel2.json", "s2:sequence", json!("1")),
        changed("dea-landsat8.json", "dea:dataset_maturity", json!("nrt")),
        recorded("dea-sentinel2.json"),
    ];
    items[2].id = "S2B_20EPT_20250731_1_L2A".to_owned();
    items[3].id = "nrt".to_owned();
    let options = GroupOptions::new().with_order(MosaicOrder::LeastCloud);
    let grouped = group(&items, &options).unwrap();
    let groups: Vec<(&str, &[usize])> = grouped
        .groups
        .iter()
        .map(|group| (group.label.as_str(), group.members.as_slice()))
        .collect();
    // 23:35 of 25 May in Greenwich is the morning of the 26th at 153 degrees east.
    assert_eq!(
        groups,
        [
            ("2016-12-14", &[4][..]),
            ("2020-05-26", &[1]),
            ("2025-07-31", &[2])
        ]
    );
    let left_out: Vec<(usize, usize, &str)> = grouped
        .left_out
        .iter()
        .map(|one| (one.item, one.kept, one.reason.as_str()))
        .collect();
    assert_eq!(
        left_out,
        [
            (
                0,
                2,
                "the same scene as S2B_20EPT_20250731_1_L2A, whose sequence 1 is preferred over 0"
            ),
            (
                3,
                1,
                "the same scene as 2aa69fcf-aa55-4747-9d95-3652f9fe79b0, whose maturity final is preferred over near real time"
            ),
        ]
    );
    let days = group(&items, &options.with_grouping(Grouping::Day)).unwrap();
    assert_eq!(days.groups[1].label, "2020-05-25");
}
