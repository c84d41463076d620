//! The product manifests against items that the providers really sent.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use ::stac::Item;
use rss_core::{
    Collection, DataType, ErrorKind, ImageQueryBuilder, Intersects, Kind, Manifest, Scene, Session,
    Source,
    stac::{self, Document},
};

/// A manifest, the recorded item it is held against, and the scenes that the item is of and is not
/// of.
struct Case {
    source: &'static str,
    collection: &'static str,
    item: &'static str,
    scene: &'static str,
    other: &'static str,
}

const fn case(
    source: &'static str,
    collection: &'static str,
    item: &'static str,
    scene: &'static str,
    other: &'static str,
) -> Case {
    Case {
        source,
        collection,
        item,
        scene,
        other,
    }
}

const DEA_LANDSAT: &str = "dea_ga_ls8c_ard_3_stac1";

const CASES: &[Case] = &[
    case("dea", "sentinel2", "dea_ga_s2am_ard_3", "49jfm", "56jns"),
    case("dea", "landsat5", DEA_LANDSAT, "088080", "088081"),
    case("dea", "landsat7", DEA_LANDSAT, "088080", "088081"),
    case("dea", "landsat8", DEA_LANDSAT, "088080", "088081"),
    case("dea", "landsat9", DEA_LANDSAT, "088080", "088081"),
    case(
        "element84",
        "sentinel2",
        "earth-search_sentinel-2-l2a",
        "20ept",
        "20epu",
    ),
    case(
        "element84",
        "sentinel2-c1",
        "earth-search_sentinel-2-c1-l2a",
        "20EPT",
        "21EPT",
    ),
    case(
        "element84",
        "landsat",
        "earth-search_landsat-c2-l2",
        "033032",
        "032033",
    ),
    case(
        "planetary-computer",
        "sentinel2",
        "planetary-computer_sentinel-2-l2a",
        "60VUK",
        "60VUL",
    ),
    case(
        "planetary-computer",
        "landsat",
        "planetary-computer_landsat-c2-l2",
        "084082",
        "084083",
    ),
];

/// Assets that are rasters of an item and that its manifest leaves out, and why.
const LEFT_OUT: &[(&str, &str)] = &[
    (
        "nbar_",
        "DEA: reflectance without terrain correction, not in the public product",
    ),
    ("oa_nbar_contiguity", "DEA: goes with the above"),
    ("visual", "a picture"),
    ("preview", "a picture"),
    ("overview", "a picture"),
    ("thumbnail", "a picture"),
    ("rendered_preview", "a picture"),
    ("-jp2", "the same band as JPEG 2000"),
    ("snow", "a by-product of Sen2Cor"),
    ("cloud", "a by-product of Sen2Cor"),
    ("preview-pvi", "a picture"),
];

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/stac")
}

fn item(name: &str) -> Item {
    let bytes = std::fs::read(data().join(format!("{name}.json"))).unwrap();
    match stac::read(&bytes).unwrap() {
        Document::Item(item, _) => *item,
        other => panic!("{name}: {other:?}"),
    }
}

fn manifest(case: &Case) -> Manifest {
    Manifest::all()
        .into_iter()
        .find(|one| one.source == case.source && one.collection == case.collection)
        .unwrap_or_else(|| panic!("{} {}", case.source, case.collection))
}

#[test]
fn every_manifest_has_a_recorded_item() {
    let known: BTreeSet<(String, String)> = Manifest::all()
        .into_iter()
        .map(|one| (one.source, one.collection))
        .collect();
    let held: BTreeSet<(String, String)> = CASES
        .iter()
        .map(|case| (case.source.to_owned(), case.collection.to_owned()))
        .collect();
    assert_eq!(known, held);
}

#[test]
fn every_key_is_an_asset_of_the_item() {
    for case in CASES {
        let item = item(case.item);
        let missing: Vec<_> = manifest(case)
            .bands
            .into_iter()
            .filter(|band| !band.optional && !item.assets.contains_key(&band.asset))
            .map(|band| band.asset)
            .collect();
        assert_eq!(missing, [""; 0], "{} {}", case.source, case.collection);
    }
}

#[test]
fn every_raster_of_the_item_is_a_key_or_left_out_for_a_reason() {
    for case in CASES {
        let manifest = manifest(case);
        // One satellite's manifest leaves out what only others have.
        if case.item == DEA_LANDSAT && case.collection != "landsat8" {
            continue;
        }
        let item = item(case.item);
        let unknown: Vec<&String> = item
            .assets
            .iter()
            .filter(|(_, asset)| {
                let kind = asset.r#type.as_deref().unwrap_or_default();
                kind.contains("tiff") || kind.contains("jp2")
            })
            .map(|(key, _)| key)
            .filter(|key| manifest.band(key).is_none())
            .filter(|key| !LEFT_OUT.iter().any(|(part, _)| key.contains(part)))
            .collect();
        assert_eq!(unknown, [""; 0], "{} {}", case.source, case.collection);
    }
}

#[test]
fn what_the_item_states_of_a_band_the_manifest_states_too() {
    let mut stated = 0;
    for case in CASES {
        let item = item(case.item);
        for band in manifest(case).bands {
            let Some(asset) = item.assets.get(&band.asset) else {
                continue;
            };
            let what = format!("{} {} {}", case.source, case.collection, band.asset);
            let facts = stac::band_facts(asset);
            stated += usize::from(facts.dtype.is_some()) + usize::from(facts.nodata.is_some());
            if let Some(dtype) = facts.dtype {
                assert_eq!(band.dtype, dtype, "{what}");
            }
            if let Some(nodata) = facts.nodata {
                let ours = band.nodata.unwrap_or_else(|| panic!("{what}: no nodata"));
                assert!(ours == nodata || ours.is_nan() && nodata.is_nan(), "{what}");
            }
            if let Some(scale) = facts.scale {
                assert_eq!(band.scale.unwrap_or(1.0), scale, "{what}");
            }
            if let Some(offset) = facts.offset {
                assert_eq!(band.offset.unwrap_or(0.0), offset, "{what}");
            }
            let projection = stac::projection(&item, asset);
            let own_grid = asset.additional_fields.contains_key("proj:transform");
            if let Some(transform) = projection.transform
                && (own_grid || case.source != "dea")
                && item.properties.additional_fields.get("gsd").is_none()
            {
                assert_eq!(band.resolution, transform[1].abs(), "{what}");
            }
        }
    }
    assert!(stated > 100, "the items state only {stated} facts");
}

#[test]
fn cloud_cover_is_where_the_manifest_says() {
    for case in CASES {
        let manifest = manifest(case);
        let property = manifest.cloud_cover.unwrap();
        let percent = stac::cloud_cover(&item(case.item), &property);
        assert!(
            percent.is_some_and(|percent| (0.0..=100.0).contains(&percent)),
            "{} {}: {percent:?}",
            case.source,
            case.collection
        );
    }
}

#[test]
fn an_item_is_of_its_scene_and_of_no_other() {
    for case in CASES {
        let rule = manifest(case).scene.unwrap();
        let item = item(case.item);
        let properties = serde_json::to_value(&item.properties).unwrap();
        let properties = properties.as_object().unwrap();
        for (scene, is) in [(case.scene, true), (case.other, false)] {
            let scene: Scene = scene.parse().unwrap();
            assert_eq!(
                rule.matches(&scene, properties),
                Some(is),
                "{} {} {scene:?}",
                case.source,
                case.collection
            );
        }
    }
}

#[test]
fn one_canonical_name_is_one_band() {
    let mut kinds: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for manifest in Manifest::all() {
        let mut seen = BTreeSet::new();
        for band in manifest.bands {
            let Some(name) = band.canonical else { continue };
            let what = format!("{} {} {name}", manifest.source, manifest.collection);
            assert!(seen.insert(name.clone()), "{what} twice");
            let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
            assert!(name.chars().all(plain), "{what}");
            let kind = format!("{:?}", band.kind);
            kinds.entry(name).or_default().insert(kind);
        }
    }
    // A name means the same kind of thing everywhere.
    let odd: Vec<_> = kinds.iter().filter(|(_, kinds)| kinds.len() > 1).collect();
    assert!(odd.is_empty(), "{odd:?}");
    for name in ["red", "green", "blue", "nir", "swir_1", "swir_2"] {
        let everywhere = Manifest::all()
            .iter()
            .all(|one| one.resolve_canonical(&[name]).is_ok());
        assert!(everywhere, "{name} is not in every manifest");
    }
}

#[test]
fn quality_bands_are_told_apart() {
    for manifest in Manifest::all() {
        let chosen = manifest.default_bands();
        assert!(chosen.iter().all(|band| band.kind != Kind::Qa));
        assert!(
            chosen.len() >= 6,
            "{} {}",
            manifest.source,
            manifest.collection
        );
    }
}

const OWN: &str = "
source: lab
collection: radar
stac_collections: [s1_lab]
bands:
  - {asset: vv, canonical: vv, resolution: 20, dtype: float32, nodata: .nan, kind: quantity}
  - {asset: vh, canonical: vh, resolution: 20, dtype: float32, nodata: .nan, kind: quantity}
";

#[test]
fn a_manifest_of_your_own_works() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("radar.yaml");
    std::fs::write(&path, OWN).unwrap();
    let manifest = Manifest::from_file(&path).unwrap();
    assert_eq!(manifest.bands[0].dtype, DataType::F32);
    let query = ImageQueryBuilder::new(
        Source::api("https://stac.example.org").unwrap(),
        Collection::Id("radar".to_owned()),
        Intersects::everywhere(),
    )
    .session(Session::builder().build().unwrap())
    .manifest(manifest)
    .canonical_bands(["vh"])
    .build()
    .unwrap();
    assert_eq!(query.bands(), ["vh"]);
}

#[test]
fn a_wrong_manifest_is_one_clear_error_that_names_the_file() {
    let dir = tempfile::tempdir().unwrap();
    for (name, text, says) in [
        (
            "unknown.yaml",
            OWN.replace("source: lab", "source: lab\ncolour: blue"),
            "colour",
        ),
        (
            "missing.yaml",
            OWN.replace("collection: radar\n", ""),
            "collection",
        ),
        ("dtype.yaml", OWN.replace("float32", "float33"), "float33"),
        (
            "twice.yaml",
            OWN.replace("canonical: vh", "canonical: vv"),
            "vv",
        ),
        ("asset.yaml", OWN.replace("asset: vh", "asset: vv"), "vv"),
        ("none.yaml", String::new(), "none.yaml"),
    ] {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        let err = Manifest::from_file(&path).unwrap_err();
        assert_eq!(err.kind(), ErrorKind::InvalidInput, "{name}: {err}");
        let text = err.to_string();
        assert!(text.contains(says) && text.contains(name), "{text}");
        assert!(!text.contains('\n'), "{text}");
    }
    let err = Manifest::from_file(&dir.path().join("absent.yaml")).unwrap_err();
    assert_eq!(err.kind(), ErrorKind::NotFound);
}
