//! Damage to cubes: a check finds all of it, and a repair ends with the bytes of a cube that nothing happened to.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use ndarray::Array3;
use rss_core::{
    Crs, GeoBox, GeoTransform, Location, Pixels, QueryResult, Raster, Resampling, Session, Size,
    Trust,
    apply::{self, Grid},
    zarr::{
        CheckDepth, CheckOptions, CheckReport, Cube, CubeImage, CubeOptions, Damage, Images,
        Layout, Remake, Use,
    },
};
use rss_testbed::Testbed;
use serde_json::json;

use super::cubes::{contents, place};

/// Damages of each kind of cube; more by this variable.
const MORE: &str = "RSS_TEST_DAMAGES";
const DAMAGES: usize = 16;

/// Numbers that look random, the same in each run: xorshift64*.
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let high = self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33;
        usize::try_from(high).unwrap() % end
    }
}

/// Where a cube is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Folder,
    Bucket,
}

/// How its samples are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Copied,
    Computed,
}

/// A cube of two writes, of files in a bucket.
struct Stage {
    bed: Testbed,
    session: Session,
    dir: tempfile::TempDir,
    at: At,
    kind: Kind,
    /// Of each source which version of it there is.
    versions: [usize; DAYS.len()],
}

const DAYS: [u32; 5] = [3, 8, 13, 18, 23];
/// The sources of the first write; those of the second are the others.
const FIRST: usize = 3;

impl Stage {
    fn new(at: At, kind: Kind) -> Self {
        let bed = Testbed::builder().start().unwrap();
        bed.add_bucket("cubes");
        bed.add_bucket("source");
        let session = Session::builder()
            .s3_endpoint(&bed.s3_endpoint())
            .cpu_threads(2)
            .build()
            .unwrap();
        let stage = Self {
            bed,
            session,
            dir: tempfile::tempdir().unwrap(),
            at,
            kind,
            versions: [0; DAYS.len()],
        };
        for source in 0..DAYS.len() {
            stage.put_source(source);
        }
        stage
    }

    /// Puts the version of a source into its bucket that is in force.
    fn put_source(&self, source: usize) {
        let (day, version) = (DAYS[source] as usize, self.versions[source]);
        let pixels = Array3::from_shape_fn((1, 70, 80), |(_, row, col)| {
            let value = day * 1000 + version * 171 + row * 3 + (col * col) % 97;
            match (row * 7 + col * 5) % 31 {
                0 => -999,
                // Whole shards without data.
                _ if row > 63 && source != 1 => -999,
                _ => i16::try_from(value).unwrap(),
            }
        });
        let raster = Raster {
            pixels: Pixels::I16(pixels),
            geobox: GeoBox {
                size: Size {
                    width: 80,
                    height: 70,
                },
                crs: Some(Crs::Epsg(32755)),
                transform: Some(GeoTransform([
                    700_000.0,
                    30.0,
                    0.0,
                    6_345_000.0,
                    0.0,
                    -30.0,
                ])),
            },
            nodata: Some((-999).into()),
            sparse: Vec::new(),
        };
        let path = self.dir.path().join("source.tif");
        let _ = fs::remove_file(&path);
        raster.save(&path).unwrap();
        self.bed.put(
            "source",
            &format!("day-{day}.tif"),
            fs::read(&path).unwrap(),
        );
    }

    fn location(&self, name: &str) -> Location {
        match self.at {
            At::Folder => place(&self.dir.path().join(name)),
            At::Bucket => Location::parse(&format!("s3://cubes/{name}")).unwrap(),
        }
    }

    fn options(&self) -> CubeOptions {
        let layout = Layout::new(Use::Balanced)
            .with_chunk("2,16,16".parse().unwrap())
            .with_shard("2,32,32".parse().unwrap());
        // Without compression all shards of a place have chunks of the same lengths.
        let layout = match self.kind {
            Kind::Copied => layout.with_codec("none".parse().unwrap()),
            Kind::Computed => layout,
        };
        let options = CubeOptions::new().with_layout(layout);
        options.with_overviews(1, Resampling::Average)
    }

    /// Returns the images of both writes.
    async fn images(&self) -> [Images; 2] {
        let href = |day: u32| format!("s3://source/day-{day}.tif");
        if self.kind == Kind::Copied {
            let of = |days: &[u32]| -> Images {
                let image = |&day: &u32| {
                    let time = format!("2021-01-{day:02}T00:00:00Z").parse().unwrap();
                    let file = Location::parse(&href(day)).unwrap();
                    CubeImage::new(format!("day-{day}"), time)
                        .with_band("red", file.clone())
                        .with_band("nir", file)
                };
                days.iter().map(image).collect::<Vec<_>>().into()
            };
            return [of(&DAYS[..FIRST]), of(&DAYS[FIRST..])];
        }
        let found = |days: &[u32]| {
            let feature = |&day: &u32| {
                json!({
                    "type": "Feature", "stac_version": "1.1.0", "id": format!("day-{day}"),
                    "geometry": null, "links": [], "bbox": [149.1, -33.1, 149.2, -33.0],
                    "properties": {"datetime": format!("2021-01-{day:02}T00:00:00Z")},
                    "assets": {"red": {"href": href(day), "raster:bands": [{"nodata": -999}]}},
                })
            };
            let features: Vec<_> = days.iter().map(feature).collect();
            let items = json!({"type": "FeatureCollection", "features": features}).to_string();
            QueryResult::from_json(&self.session, items.as_bytes(), Trust::User).unwrap()
        };
        let options = apply::ImageCubeOptions::new()
            .with_grid(Grid::Projected(Crs::Epsg(3577), 25.0.into()))
            .with_resampling(Resampling::Bilinear);
        let first = apply::ImageCube::of(&found(&DAYS[..FIRST]), &options)
            .await
            .unwrap();
        let options = options.with_grid(Grid::Of(first.grid().clone()));
        let second = apply::ImageCube::of(&found(&DAYS[FIRST..]), &options)
            .await
            .unwrap();
        [first.into(), second.into()]
    }

    /// Writes a cube by two writes.
    async fn make(&self, name: &str) -> BTreeMap<String, Vec<u8>> {
        let location = self.location(name);
        let [first, second] = self.images().await;
        let (session, options) = (&self.session, self.options());
        Cube::create(session, &location, first, &options)
            .await
            .unwrap();
        Cube::append(session, &location, second, &options)
            .await
            .unwrap();
        self.objects(name)
    }

    async fn writes(&self) -> Vec<Remake> {
        let images = self.images().await;
        let remake = |images| Remake::new(images, self.options());
        images.into_iter().map(remake).collect()
    }

    fn objects(&self, name: &str) -> BTreeMap<String, Vec<u8>> {
        match self.at {
            At::Folder => contents(&self.dir.path().join(name)).into_iter().collect(),
            At::Bucket => {
                let keys = self.bed.keys("cubes", &format!("{name}/"));
                let object = |key: String| {
                    let bytes = self.bed.object("cubes", &key).unwrap().to_vec();
                    (key[name.len() + 1..].to_owned(), bytes)
                };
                keys.into_iter().map(object).collect()
            }
        }
    }

    fn put(&self, name: &str, key: &str, bytes: &[u8]) {
        match self.at {
            At::Folder => {
                let path = self.dir.path().join(name).join(key);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, bytes).unwrap();
            }
            At::Bucket => self
                .bed
                .put("cubes", &format!("{name}/{key}"), bytes.to_vec()),
        }
    }

    fn remove(&self, name: &str, key: &str) {
        match self.at {
            At::Folder => fs::remove_file(self.dir.path().join(name).join(key)).unwrap(),
            At::Bucket => self.bed.remove("cubes", &format!("{name}/{key}")),
        }
    }

    /// Damages an object, and returns what a check should say of it.
    fn damage(&self, name: &str, key: &str, bytes: &[u8], chance: &mut Chance) -> Damage {
        match chance.below(3) {
            0 => {
                self.remove(name, key);
                return Damage::Missing;
            }
            1 => self.put(name, key, &bytes[..chance.below(bytes.len())]),
            _ => {
                let mut flipped = bytes.to_vec();
                let bit = chance.below(flipped.len() * 8);
                flipped[bit / 8] ^= 1 << (bit % 8);
                self.put(name, key, &flipped);
            }
        }
        Damage::Damaged
    }

    async fn repaired(&self, name: &str, options: &CheckOptions) -> CheckReport {
        let location = self.location(name);
        let check = Cube::check(&self.session, &location, options);
        let mut report = check.await.unwrap();
        report.repair_metadata().await.unwrap();
        if report.has_shards_to_remake() {
            report.remake(self.writes().await).await.unwrap();
        }
        report
    }
}

fn is_shard(key: &str) -> bool {
    ["/red/c/", "/nir/c/"].iter().any(|part| key.contains(part))
}

fn found(report: &CheckReport) -> BTreeMap<String, Damage> {
    let findings = report.findings.iter();
    findings.map(|one| (one.key.clone(), one.damage)).collect()
}

fn keys_of(objects: &BTreeMap<String, Vec<u8>>) -> Vec<&String> {
    objects.keys().collect()
}

#[expect(clippy::print_stdout, reason = "the counts of a run")]
fn tell(at: At, kind: Kind, told: &BTreeMap<&str, usize>) {
    println!("{at:?} {kind:?}: {told:?} found, repaired to the same bytes");
}

/// Damages a cube again and again.
async fn suffer(at: At, kind: Kind) {
    let count = std::env::var(MORE).map_or(DAMAGES, |text| text.parse().unwrap());
    let mut stage = Stage::new(at, kind);
    let mut chance = Chance(0x9E37_79B9_7F4A_7C15 ^ (at as u64) << 8 ^ kind as u64);
    let name = "cube.zarr";
    let mut whole = stage.make(name).await;
    let options = CheckOptions::new();
    let report = stage.repaired(name, &options).await;
    assert_eq!(report.findings, [], "a new cube is whole");
    assert!(whole.keys().filter(|key| is_shard(key)).count() > 9);
    let mut told: BTreeMap<&str, usize> = BTreeMap::new();
    for number in 0..count {
        let shards: Vec<String> = whole.keys().filter(|key| is_shard(key)).cloned().collect();
        let others: Vec<String> = whole.keys().filter(|key| !is_shard(key)).cloned().collect();
        let mut expected: BTreeMap<String, Damage> = BTreeMap::new();
        let mut options = options.clone();
        let what = ["shards", "metadata", "swapped", "stale", "surplus"][number % 5];
        *told.entry(what).or_default() += 1;
        match what {
            "shards" => {
                for _ in 0..=chance.below(3) {
                    let key = &shards[chance.below(shards.len())];
                    if !expected.contains_key(key) {
                        let damage = stage.damage(name, key, &whole[key], &mut chance);
                        expected.insert(key.clone(), damage);
                    }
                }
            }
            "metadata" => {
                let of_manifest = |key: &str| key.starts_with(".rss/");
                for _ in 0..=chance.below(3) {
                    let key = &others[chance.below(others.len())];
                    // The copy of what is damaged must be there.
                    let is_alone = of_manifest(key) || expected.keys().any(|key| of_manifest(key));
                    if !expected.contains_key(key) && (expected.is_empty() || !is_alone) {
                        let damage = stage.damage(name, key, &whole[key], &mut chance);
                        expected.insert(key.clone(), damage);
                    }
                }
            }
            "swapped" => {
                let one = &shards[chance.below(shards.len())];
                let other = &shards[chance.below(shards.len())];
                if whole[one] != whole[other] {
                    stage.put(name, one, &whole[other]);
                    stage.put(name, other, &whole[one]);
                    expected.extend([one, other].map(|key| (key.clone(), Damage::Swapped)));
                }
            }
            "stale" => {
                let source = chance.below(DAYS.len());
                stage.versions[source] += 1;
                stage.put_source(source);
                whole = stage.make(&format!("again-{number}.zarr")).await;
                // Shards hold two time steps.
                let time = source / 2;
                let of_time = |key: &&String| key.contains(&format!("/c/{time}/"));
                let stale = shards.iter().filter(of_time);
                expected.extend(stale.map(|key| (key.clone(), Damage::Stale)));
                options = options.with_sources([]);
            }
            _ => {
                let key = format!("0/red/c/0/{}/7", chance.below(9));
                stage.put(name, &key, &whole[&shards[0]]);
                expected.insert(key, Damage::Surplus);
            }
        }
        let report = stage.repaired(name, &options).await;
        assert_eq!(found(&report), expected, "{at:?} {kind:?} {number}: {what}");
        assert!(
            report.is_whole(),
            "{number} {what}: {:?} {:?}",
            report.findings,
            report.notes
        );
        let now = stage.objects(name);
        assert_eq!(
            keys_of(&now),
            keys_of(&whole),
            "{number}: {what} {expected:?}"
        );
        let differ: BTreeSet<&String> = now.keys().filter(|key| now[*key] != whole[*key]).collect();
        assert_eq!(differ, BTreeSet::new(), "{number}: {what} {expected:?}");
    }
    let again = stage.repaired(name, &options.with_sources([])).await;
    assert_eq!((again.findings, again.notes), (Vec::new(), Vec::new()));
    tell(at, kind, &told);
}

#[tokio::test]
async fn damage_to_a_copied_cube_in_a_folder_is_found_and_repaired() {
    suffer(At::Folder, Kind::Copied).await;
}

#[tokio::test]
async fn damage_to_a_copied_cube_in_a_bucket_is_found_and_repaired() {
    suffer(At::Bucket, Kind::Copied).await;
}

#[tokio::test]
async fn damage_to_a_computed_cube_in_a_folder_is_found_and_repaired() {
    suffer(At::Folder, Kind::Computed).await;
}

#[tokio::test]
async fn damage_to_a_computed_cube_in_a_bucket_is_found_and_repaired() {
    suffer(At::Bucket, Kind::Computed).await;
}

/// Turns a cube into one of an earlier version: without a manifest.
fn without_manifest(folder: &Path) {
    fs::remove_dir_all(folder.join(".rss")).unwrap();
    let path = folder.join("zarr.json");
    let mut root: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let attributes = root["attributes"].as_object_mut().unwrap();
    attributes.remove("rss:manifest").unwrap();
    fs::write(path, format!("{root:#}\n")).unwrap();
}

#[tokio::test]
async fn a_cube_without_a_manifest_is_checked_by_the_checksums_in_its_shards() {
    let stage = Stage::new(At::Folder, Kind::Copied);
    let name = "cube.zarr";
    stage.make(name).await;
    let folder = stage.dir.path().join(name);
    without_manifest(&folder);
    let whole = stage.objects(name);
    let options = CheckOptions::new();
    let report = stage.repaired(name, &options).await;
    assert_eq!(report.findings, []);
    assert!(
        report.notes[0].contains("no manifest"),
        "{:?}",
        report.notes
    );
    let key = "0/red/c/0/1/1";
    let mut flipped = whole[key].clone();
    flipped[3] ^= 1;
    stage.put(name, key, &flipped);
    stage.put(name, "1/nir/c/2/0/0", b"");
    let damaged = json!({"shape": [9]}).to_string();
    stage.put(name, "0/red/zarr.json", damaged.as_bytes());
    let report = stage.repaired(name, &options).await;
    let keys = ["0/red/c/0/1/1", "0/red/zarr.json", "1/nir/c/2/0/0"];
    assert_eq!(
        found(&report),
        keys.map(|key| (key.to_owned(), Damage::Damaged)).into()
    );
    assert!(report.is_whole(), "{:?}", report.notes);
    assert_eq!(stage.objects(name), whole);
    // An append records what it writes.
    let time = "2021-02-03T00:00:00Z".parse().unwrap();
    let file = Location::parse("s3://source/day-3.tif").unwrap();
    let image = CubeImage::new("later", time)
        .with_band("red", file.clone())
        .with_band("nir", file);
    let location = stage.location(name);
    Cube::append(&stage.session, &location, vec![image], &stage.options())
        .await
        .unwrap();
    let report = Cube::check(&stage.session, &location, &options)
        .await
        .unwrap();
    assert_eq!(report.findings, []);
    assert!(
        report.notes[0].contains("begins with an append"),
        "{:?}",
        report.notes
    );
}

/// An append of an earlier version that was stopped near its end had left coordinates of all dates under the old metadata.
#[tokio::test]
async fn a_cube_stranded_by_a_stopped_append_is_repaired_and_goes_on() {
    let stage = Stage::new(At::Folder, Kind::Copied);
    let (session, options) = (&stage.session, stage.options());
    let [first, _] = stage.images().await;
    let old = stage.location("old");
    Cube::create(session, &old, first, &options).await.unwrap();
    stage.make("new").await;
    for name in ["old", "new"] {
        without_manifest(&stage.dir.path().join(name));
    }
    let (old, new) = (stage.objects("old"), stage.objects("new"));
    // One chunk of all dates, as it was written then.
    for (name, length) in [("old", FIRST), ("new", DAYS.len())] {
        for level in 0..2 {
            let path = stage.dir.path().join(format!("{name}/{level}/time/c/0"));
            let bytes = fs::read(&path).unwrap();
            fs::write(&path, &bytes[..length * 8]).unwrap();
        }
    }
    let root = stage.dir.path().join("old/zarr.json");
    let text = fs::read_to_string(&root).unwrap();
    let mut document: serde_json::Value = serde_json::from_str(&text).unwrap();
    for level in 0..2 {
        let time = &mut document["consolidated_metadata"]["metadata"][format!("{level}/time")];
        time["chunk_grid"]["configuration"]["chunk_shape"] = json!([FIRST]);
        let path = stage.dir.path().join(format!("old/{level}/time/zarr.json"));
        fs::write(path, format!("{time:#}\n")).unwrap();
        let group = stage.dir.path().join(format!("old/{level}/zarr.json"));
        let mut inside: serde_json::Value =
            serde_json::from_slice(&fs::read(&group).unwrap()).unwrap();
        inside["consolidated_metadata"]["metadata"]["time"] = time.clone();
        fs::write(group, format!("{inside:#}\n")).unwrap();
    }
    fs::write(&root, format!("{document:#}\n")).unwrap();
    let before = stage.objects("old");
    // The shards of the new dates, and `time` of all of them.
    for (key, bytes) in new.iter().filter(|(key, _)| is_shard(key)) {
        stage.put("old", key, bytes);
    }
    for level in 0..2 {
        let key = format!("{level}/time/c/0");
        let bytes = fs::read(stage.dir.path().join("new").join(&key)).unwrap();
        stage.put("old", &key, &bytes);
    }
    stage.put("old", ".rss-write.json", b"{}");
    let report = stage.repaired("old", &CheckOptions::new()).await;
    let keys = ["0/time/c/0", "1/time/c/0"];
    let expected: BTreeMap<_, _> = keys.map(|key| (key.to_owned(), Damage::Damaged)).into();
    assert_eq!(found(&report), expected);
    for key in keys {
        assert_eq!(stage.objects("old")[key], before[key]);
    }
    let cube = Cube::open(session, &stage.location("old")).await.unwrap();
    assert_eq!(cube.steps().len(), FIRST);
    let red = cube.read::<i16>("red", 0..FIRST, None, 0).await.unwrap();
    assert_eq!(red[[2, 5, 5]], 13_000 + 15 + 25);
    assert!(old.len() < new.len());
}

#[tokio::test]
async fn a_listing_finds_what_is_missing_or_of_another_length() {
    let stage = Stage::new(At::Bucket, Kind::Copied);
    let name = "cube.zarr";
    let whole = stage.make(name).await;
    stage.remove(name, "0/red/c/0/0/0");
    stage.put(name, "0/nir/c/0/0/0", &whole["0/nir/c/0/0/0"][1..]);
    stage.bed.clear_log();
    let options = CheckOptions::new().with_depth(CheckDepth::Lengths);
    let location = stage.location(name);
    let report = Cube::check(&stage.session, &location, &options)
        .await
        .unwrap();
    let expected = [
        ("0/nir/c/0/0/0", Damage::Damaged),
        ("0/red/c/0/0/0", Damage::Missing),
    ];
    assert_eq!(
        found(&report),
        expected
            .map(|(key, damage)| (key.to_owned(), damage))
            .into()
    );
    let log = stage.bed.log();
    assert!(
        !log.iter().any(|one| one.path.contains("/red/c/")),
        "no shard is read"
    );
}
