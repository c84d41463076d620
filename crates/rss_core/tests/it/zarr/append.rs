//! Appending to a cube: whoever opens it meanwhile finds the old or the new one, whoever repeats it ends with the same.

use std::{fs, path::Path};

use rss_core::{
    Session,
    apply::time::Grouping,
    zarr::{Cube, CubeImage, CubeOptions, PixelIndex},
};
use serde_json::Value;

use super::cubes::{contents, image, place, raster, session, small};

fn images(numbers: std::ops::RangeInclusive<u32>) -> Vec<CubeImage> {
    let one = |number: u32| {
        let value = i16::try_from(number).unwrap();
        image(number, raster(value, 0, 0, 50, 40))
    };
    numbers.map(one).collect()
}

fn copy(from: &Path, to: &Path) {
    let _ = fs::remove_dir_all(to);
    for (name, bytes) in contents(from) {
        let path = to.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
}

async fn series(session: &Session, cube: &Path) -> Vec<i16> {
    let cube = Cube::open(session, &place(cube)).await.unwrap();
    let pixel = [PixelIndex { col: 9, row: 9 }];
    let series = cube.read_series::<i16>("red", &pixel).await.unwrap();
    series.into_iter().collect()
}

/// The options of groups, so that there are bounds of time too.
fn options() -> CubeOptions {
    small().with_overviews(1, None).with_grouping(Grouping::Day)
}

/// Shards, coordinates and metadata in the order in which an append replaces them.
fn order(name: &str) -> (u8, &str) {
    let rank = match name {
        "zarr.json" => 3,
        name if name.ends_with("zarr.json") => 2,
        name if name.contains("red/") => 0,
        _ => 1,
    };
    (rank, name)
}

#[tokio::test]
async fn a_cube_is_the_old_one_until_the_last_object_of_an_append() {
    let dir = tempfile::tempdir().unwrap();
    let session = session();
    let [old, new, torn] = ["old", "new", "torn"].map(|name| dir.path().join(name));
    Cube::create(&session, &place(&old), images(1..=3), &options())
        .await
        .unwrap();
    copy(&old, &new);
    Cube::append(&session, &place(&new), images(4..=6), &options())
        .await
        .unwrap();
    let before = contents(&old);
    let mut changed = contents(&new);
    changed.retain(|object| !before.contains(object));
    changed.sort_by(|(a, _), (b, _)| order(a).cmp(&order(b)));
    let root = changed.pop().unwrap();
    assert_eq!(root.0, "zarr.json");
    copy(&old, &torn);
    for (name, bytes) in changed {
        let path = torn.join(&name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
        assert_eq!(series(&session, &torn).await, [1, 2, 3], "after {name}");
    }
    Cube::append(&session, &place(&torn), images(4..=6), &options())
        .await
        .unwrap();
    assert!(contents(&torn) == contents(&new));
    assert_eq!(series(&session, &torn).await, [1, 2, 3, 4, 5, 6]);
}

/// Killed between its root and the end, an append has left its journal and the copy of the metadata of before.
#[tokio::test]
async fn an_append_whose_root_is_there_removes_what_is_left() {
    let dir = tempfile::tempdir().unwrap();
    let session = session();
    let cube = dir.path().join("cube");
    Cube::create(&session, &place(&cube), images(1..=3), &options())
        .await
        .unwrap();
    let before = contents(&cube);
    Cube::append(&session, &place(&cube), images(4..=6), &options())
        .await
        .unwrap();
    let whole = contents(&cube);
    let mut left = before
        .into_iter()
        .filter(|(name, _)| name.starts_with(".rss/metadata"));
    let (name, bytes) = left.next().unwrap();
    assert!(!cube.join(&name).exists());
    fs::write(cube.join(name), bytes).unwrap();
    fs::write(
        cube.join(".rss-write.json"),
        "{\"steps\": [1, 2, 3, 4, 5, 6]}",
    )
    .unwrap();
    Cube::append(&session, &place(&cube), images(4..=6), &options())
        .await
        .unwrap();
    assert!(contents(&cube) == whole);
}

/// Makes of a cube one of version 0.6: each coordinate along time is one chunk as long as all time steps.
fn as_of_before(cube: &Path, steps: usize) {
    let shorten = |document: &mut Value| {
        document["chunk_grid"]["configuration"]["chunk_shape"][0] = steps.into();
    };
    for level in ["0", "1"] {
        for name in ["time", "item", "time_bnds"] {
            let path = cube.join(level).join(name);
            let text = fs::read_to_string(path.join("zarr.json")).unwrap();
            let mut document: Value = serde_json::from_str(&text).unwrap();
            shorten(&mut document);
            fs::write(path.join("zarr.json"), format!("{document:#}\n")).unwrap();
            let chunk = match name {
                "time_bnds" => path.join("c/0/0"),
                _ => path.join("c/0"),
            };
            let mut bytes = fs::read(&chunk).unwrap();
            match name {
                "time" => bytes.truncate(steps * 8),
                "time_bnds" => bytes.truncate(steps * 16),
                _ => {
                    bytes[..4].copy_from_slice(&u32::try_from(steps).unwrap().to_le_bytes());
                    bytes.truncate(4 + steps * (4 + "scene-01".len()));
                }
            }
            fs::write(chunk, bytes).unwrap();
            let root = cube.join("zarr.json");
            let mut document: Value =
                serde_json::from_str(&fs::read_to_string(&root).unwrap()).unwrap();
            shorten(&mut document["consolidated_metadata"]["metadata"][format!("{level}/{name}")]);
            fs::write(root, format!("{document:#}\n")).unwrap();
        }
    }
}

/// Its append replaced the one chunk of each coordinate before the root; killed there, nobody could open the cube.
#[tokio::test]
async fn a_cube_of_before_is_read_and_appended_to_where_its_append_was_stopped_too() {
    let dir = tempfile::tempdir().unwrap();
    let session = session();
    let [old, longer, stranded] = ["old", "longer", "stranded"].map(|name| dir.path().join(name));
    for (path, last) in [(&old, 3), (&longer, 5)] {
        Cube::create(&session, &place(path), images(1..=last), &options())
            .await
            .unwrap();
        as_of_before(path, usize::try_from(last).unwrap());
    }
    copy(&old, &stranded);
    for (name, bytes) in contents(&longer) {
        let coordinate = ["time/c", "item/c", "time_bnds/c", "time/zarr.json"];
        if coordinate.iter().any(|part| name.contains(part)) {
            fs::write(stranded.join(name), bytes).unwrap();
        }
    }
    assert_eq!(series(&session, &stranded).await, [1, 2, 3]);
    for cube in [&old, &stranded] {
        let first = fs::read(old.join("0/time/c/0")).unwrap();
        Cube::append(&session, &place(cube), images(4..=5), &options())
            .await
            .unwrap();
        assert_eq!(series(&session, cube).await, [1, 2, 3, 4, 5]);
        // Its chunks keep their length, so that those of before stay as they are.
        assert_eq!(fs::read(cube.join("0/time/c/0")).unwrap(), first);
        assert_eq!(fs::read(cube.join("0/time/c/1")).unwrap().len(), 24);
    }
    assert!(contents(&old) == contents(&stranded));
    let again = Cube::create(&session, &place(&old), images(1..=5), &options()).await;
    assert_eq!(again.unwrap().known, 5, "the same write is done already");
}

#[tokio::test]
async fn an_id_with_a_comma_is_one_id() {
    let dir = tempfile::tempdir().unwrap();
    let (session, location) = (session(), place(&dir.path().join("cube")));
    let named = |id: &str, number: u32| {
        let mut image = images(number..=number).remove(0);
        id.clone_into(&mut image.id);
        image
    };
    let first = || vec![named("a,b", 1), named("c", 2)];
    Cube::create(&session, &location, first(), &small())
        .await
        .unwrap();
    let cube = Cube::open(&session, &location).await.unwrap();
    assert_eq!(cube.steps()[0].items, ["a,b"]);
    let again = Cube::create(&session, &location, first(), &small()).await;
    assert_eq!(again.unwrap().known, 2);
    let written = Cube::append(&session, &location, first(), &small()).await;
    let written = written.unwrap();
    assert_eq!((written.known, written.steps), (2, 0));
}
