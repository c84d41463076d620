//! Icechunk repositories: a write is one commit, seen whole or not at all, and what others read of it.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use chrono::{DateTime, Utc};
use ndarray::{Array3, ArrayD, IxDyn};
use rss_core::{
    Crs, DataType, ErrorKind, GeoBox, GeoTransform, Location, Pixels, Raster, Resampling, Session,
    Size,
    zarr::{Array, ArraySpec, Cube, CubeImage, CubeOptions, Icechunk, Layout, Use, Written},
};
use rss_testbed::{ACCESS_KEY, Fault, Rule, SECRET_KEY, Service, Testbed};
use serde_json::json;

/// Bands of a date are `DOWN` times `RIGHT` shards of one date.
const RIGHT: u64 = 6;
const DOWN: u64 = 5;

/// Where repositories are: a folder, or the testbed's bucket.
struct Stage {
    session: Session,
    repository: Icechunk,
    dir: tempfile::TempDir,
    bed: Option<Testbed>,
}

impl Stage {
    fn folder() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let location = Location::parse(dir.path().join("repository").to_str().unwrap()).unwrap();
        Self {
            session: Session::builder().cpu_threads(2).build().unwrap(),
            repository: Icechunk::new(&location),
            dir,
            bed: None,
        }
    }

    fn bucket() -> Self {
        let bed = Testbed::builder().start().unwrap();
        bed.add_bucket("cubes");
        let location = Location::parse("s3://cubes/a/repository").unwrap();
        Self {
            session: session_of(&bed, SECRET_KEY),
            repository: Icechunk::new(&location),
            dir: tempfile::tempdir().unwrap(),
            bed: Some(bed),
        }
    }

    fn both() -> [Self; 2] {
        [Self::folder(), Self::bucket()]
    }

    async fn commits(&self) -> usize {
        self.repository.history(&self.session).await.unwrap().len()
    }

    async fn steps(&self) -> usize {
        let cube = Cube::open(&self.session, &self.repository).await.unwrap();
        cube.steps().len()
    }

    /// Writes some dates, and stops after so many shards.
    async fn append(&self, days: std::ops::RangeInclusive<u32>, stop: u64) -> Option<Written> {
        let (enough, mut stopped) = tokio::sync::watch::channel(false);
        let options = options().with_progress(move |progress| {
            if progress.shards_done >= stop {
                let _ = enough.send(true);
            }
        });
        tokio::select! {
            biased;
            _ = stopped.wait_for(|enough| *enough) => None,
            written = Cube::append(&self.session, &self.repository, images(days), &options) => {
                Some(written.unwrap())
            }
        }
    }
}

fn session_of(bed: &Testbed, secret: &str) -> Session {
    Session::builder()
        .cpu_threads(2)
        .retries(1)
        .s3_endpoint(&bed.s3_endpoint())
        .store_option("aws_access_key_id", ACCESS_KEY)
        .store_option("aws_secret_access_key", secret)
        .build()
        .unwrap()
}

fn day(day: u32) -> DateTime<Utc> {
    format!("2021-01-{day:02}T23:50:00.024Z").parse().unwrap()
}

fn images(days: std::ops::RangeInclusive<u32>) -> Vec<CubeImage> {
    let image = |number: u32| {
        let first = i16::try_from(number * 100).unwrap();
        let pixels = Array3::from_shape_fn((1, 70, 90), |(_, row, col)| {
            first + i16::try_from(row + col).unwrap() % 90
        });
        let raster = Raster {
            pixels: Pixels::I16(pixels),
            geobox: GeoBox {
                size: Size {
                    width: 90,
                    height: 70,
                },
                crs: Some(Crs::Epsg(32755)),
                transform: Some(GeoTransform([
                    600_000.0,
                    30.0,
                    0.0,
                    6_000_000.0,
                    0.0,
                    -30.0,
                ])),
            },
            nodata: Some((-999.0).into()),
            sparse: Vec::new(),
        };
        CubeImage::new(format!("scene-{number:02}"), day(number)).with_band("nbart_coastal", raster)
    };
    days.map(image).collect()
}

fn options() -> CubeOptions {
    let block = || "1,16,16".parse().unwrap();
    let layout = Layout::new(Use::Balanced)
        .with_chunk(block())
        .with_shard(block());
    CubeOptions::new().with_layout(layout)
}

async fn samples(stage: &Stage, level: usize) -> Array3<i16> {
    let cube = Cube::open(&stage.session, &stage.repository).await.unwrap();
    let times = 0..cube.steps().len();
    cube.read::<i16>("nbart_coastal", times, None, level)
        .await
        .unwrap()
}

fn truth(days: std::ops::RangeInclusive<u32>) -> Array3<i16> {
    let days: Vec<u32> = days.collect();
    Array3::from_shape_fn((days.len(), 70, 90), |(time, row, col)| {
        i16::try_from(days[time] * 100).unwrap() + i16::try_from(row + col).unwrap() % 90
    })
}

#[tokio::test]
async fn each_write_of_an_array_is_a_commit() {
    for stage in Stage::both() {
        let (session, repository) = (&stage.session, &stage.repository);
        let mut number = 0_i32;
        let samples = ArrayD::from_shape_fn(IxDyn(&[10, 50, 70]), |_| {
            number = number.wrapping_mul(31).wrapping_add(7) % 1000;
            number
        });
        let spec = ArraySpec::new([20, 50, 70], DataType::I32, [5, 16, 16]).with_shard([5, 32, 32]);
        let array = Array::create(session, repository, &spec).await.unwrap();
        assert_eq!(stage.commits().await, 2);
        array.write(&[0, 0, 0], samples.clone()).await.unwrap();
        assert_eq!(stage.commits().await, 3);
        let other = Array::open(session, repository).await.unwrap();
        // Two at once, of one handle: one after the other.
        let (one, two) = tokio::join!(
            array.write(
                &[10, 0, 0],
                samples
                    .slice(ndarray::s![..5, .., ..])
                    .to_owned()
                    .into_dyn()
            ),
            array.write(
                &[15, 0, 0],
                samples
                    .slice(ndarray::s![5.., .., ..])
                    .to_owned()
                    .into_dyn()
            ),
        );
        one.unwrap();
        two.unwrap();
        let history = repository.history(session).await.unwrap();
        assert_eq!(history.len(), 5);
        assert_eq!(history[2].message, "Write samples 0..10, 0..50, 0..70");
        let all = [0..20, 0..50, 0..70];
        for array in [array, Array::open(session, repository).await.unwrap()] {
            let found = array.read::<i32>(&all).await.unwrap();
            assert!(found.slice(ndarray::s![..10, .., ..]).into_dyn() == samples.view());
            assert!(found.slice(ndarray::s![10.., .., ..]).into_dyn() == samples.view());
            let part = array.read::<i32>(&[3..4, 30..50, 1..2]).await.unwrap();
            assert!(part == samples.slice(ndarray::s![3..4, 30..50, 1..2]).into_dyn());
        }
        // A reader of before sees what it saw.
        let found = other.read::<i32>(&all).await.unwrap();
        assert!(found.slice(ndarray::s![..10, .., ..]).into_dyn() == samples.view());
        assert!(found.iter().skip(10 * 50 * 70).all(|&sample| sample == 0));
        // Nothing written is no commit, and what is written again is another version.
        let err = Array::create(session, repository, &spec).await.unwrap_err();
        assert_eq!(err.kind(), ErrorKind::InvalidInput);
        assert_eq!(stage.commits().await, 5);
    }
}

#[tokio::test]
async fn a_cube_is_one_commit_and_an_append_one_more() {
    for stage in Stage::both() {
        let (session, repository) = (&stage.session, &stage.repository);
        let options = options().with_overviews(1, Resampling::Nearest);
        let written = Cube::create(session, repository, images(1..=3), &options).await;
        assert_eq!(written.unwrap().steps, 3);
        assert_eq!(stage.commits().await, 2);
        let before = Cube::open(session, repository).await.unwrap();
        let written = Cube::append(session, repository, images(3..=5), &options)
            .await
            .unwrap();
        assert_eq!((written.steps, written.known), (2, 1));
        let history = repository.history(session).await.unwrap();
        let said: Vec<_> = history
            .iter()
            .map(|commit| commit.message.as_str())
            .collect();
        assert_eq!(
            said[..2],
            [
                "Append 2 dates, 2021-01-04 to 2021-01-05",
                "Write a cube of nbart_coastal: 3 dates, 2021-01-01 to 2021-01-03"
            ]
        );
        assert_eq!(said.len(), 3);
        assert!(samples(&stage, 0).await == truth(1..=5));
        let coarse = samples(&stage, 1).await;
        assert!(coarse == truth(1..=5).slice(ndarray::s![.., ..;2, ..;2]));
        let old = before.read::<i16>("nbart_coastal", 0..3, None, 0).await;
        assert!(old.unwrap() == truth(1..=3));

        let first = repository.clone().with_snapshot(&history[1].snapshot);
        let cube = Cube::open(session, &first).await.unwrap();
        assert_eq!(cube.steps().len(), 3);
        let err = Cube::append(session, &first, images(9..=9), &options)
            .await
            .unwrap_err();
        assert_eq!(err.kind(), ErrorKind::InvalidInput);
        let again = Cube::append(session, repository, images(1..=5), &options).await;
        assert_eq!(again.unwrap().known, 5);
        assert_eq!(stage.commits().await, 3);
        let err = Cube::create(session, repository, images(1..=1), &options)
            .await
            .unwrap_err();
        assert!(err.message().contains("exists already"), "{err}");
    }
}

#[tokio::test]
async fn what_is_not_there_is_not_found() {
    for stage in Stage::both() {
        let (session, repository) = (&stage.session, &stage.repository);
        let kind = |err: rss_core::Error| (err.kind(), err.location().is_some());
        let err = Cube::open(session, repository).await.unwrap_err();
        assert_eq!(kind(err), (ErrorKind::NotFound, true));
        let err = Cube::append(session, repository, images(1..=1), &options())
            .await
            .unwrap_err();
        assert_eq!(kind(err), (ErrorKind::NotFound, true));
        let written = Cube::create(session, repository, images(1..=1), &options()).await;
        written.unwrap();
        for other in [
            repository.clone().with_branch("other"),
            repository.clone().with_tag("v1"),
            repository
                .clone()
                .with_snapshot("1CECHNKREP0F1RSTCMT1")
                .with_group("x"),
            repository.clone().with_snapshot("0CECHNKREP0F1RSTCMT0"),
            repository.clone().with_group("elsewhere"),
        ] {
            let err = Cube::open(session, &other).await.unwrap_err();
            assert_eq!(kind(err), (ErrorKind::NotFound, true), "{other:?}");
        }
        let odd = repository.clone().with_snapshot("no id");
        let err = Cube::open(session, &odd).await.unwrap_err();
        assert_eq!(kind(err), (ErrorKind::InvalidInput, true));
    }
}

#[tokio::test]
async fn a_reader_sees_nothing_of_a_write_that_is_under_way() {
    for stage in Stage::both() {
        let (session, repository) = (&stage.session, &stage.repository);
        let (per_date, stop) = (RIGHT * DOWN, RIGHT * DOWN + 10);
        let (enough, mut stopped) = tokio::sync::watch::channel(false);
        let watched = options().with_progress(move |progress| {
            let _ = enough.send(progress.shards_done >= stop);
        });
        tokio::select! {
            biased;
            _ = stopped.wait_for(|enough| *enough) => {}
            written = Cube::create(session, repository, images(1..=2), &watched) => {
                panic!("{written:?}")
            }
        }
        let err = Cube::open(session, repository).await.unwrap_err();
        assert_eq!(err.kind(), ErrorKind::NotFound);
        let written = Cube::create(session, repository, images(1..=2), &options())
            .await
            .unwrap();
        assert!(written.resumed >= 32, "{written:?}");
        assert_eq!((written.shards, stage.commits().await), (per_date * 2, 2));

        let mut resumed = 0;
        for stop in [5, 40, 70, u64::MAX] {
            // The future is dropped after so many shards.
            if let Some(written) = stage.append(3..=6, stop).await {
                resumed = written.resumed;
                assert_eq!((written.steps, written.shards), (4, per_date * 4));
                break;
            }
            assert_eq!((stage.steps().await, stage.commits().await), (2, 2));
        }
        assert!(resumed >= 64, "{resumed}");
        assert_eq!((stage.steps().await, stage.commits().await), (6, 3));
        assert!(samples(&stage, 0).await == truth(1..=6));
        let work = repository.clone().with_branch("rss-write-main");
        let err = work.history(session).await.unwrap_err();
        assert_eq!(err.kind(), ErrorKind::NotFound);
    }
}

#[tokio::test]
async fn a_stopped_write_is_not_gone_on_with_by_other_images() {
    let stage = Stage::folder();
    let (session, repository) = (&stage.session, &stage.repository);
    let written = Cube::create(session, repository, images(1..=1), &options()).await;
    written.unwrap();
    assert_eq!(stage.append(2..=3, 5).await, None);
    let err = Cube::append(session, repository, images(4..=4), &options())
        .await
        .unwrap_err();
    assert!(err.message().contains("branch `rss-write-main`"), "{err}");
    assert_eq!(stage.append(2..=3, u64::MAX).await.unwrap().steps, 2);
}

#[tokio::test]
async fn a_branch_that_moved_is_an_error_and_nothing_is_lost() {
    for stage in Stage::both() {
        let (session, repository) = (&stage.session, &stage.repository);
        let written = Cube::create(session, repository, images(1..=1), &options()).await;
        written.unwrap();
        let spec = ArraySpec::new([4, 4], DataType::U8, [4, 4]);
        assert_eq!(stage.append(2..=4, 50).await, None);
        let other = repository.clone().with_group("other");
        Array::create(session, &other, &spec).await.unwrap();
        let err = Cube::append(session, repository, images(2..=4), &options())
            .await
            .unwrap_err();
        assert_eq!(err.kind(), ErrorKind::Changed, "{err}");
        assert!(err.message().contains("branch `main` moved"), "{err}");
        assert_eq!(stage.steps().await, 1);
        let work = repository.clone().with_branch("rss-write-main");
        let history = work.history(session).await.unwrap();
        assert_eq!((history.len(), stage.commits().await), (3, 3));
    }
}

#[tokio::test]
async fn a_branch_that_moves_while_it_is_written_is_an_error() {
    let stage = Stage::bucket();
    let (session, repository) = (&stage.session, &stage.repository);
    let written = Cube::create(session, repository, images(1..=1), &options()).await;
    written.unwrap();
    let (some, mut started) = tokio::sync::watch::channel(false);
    let watched = options().with_progress(move |progress| {
        let _ = some.send(progress.shards_done >= 3);
    });
    let spec = ArraySpec::new([4, 4], DataType::U8, [4, 4]);
    let other = repository.clone().with_group("other");
    let (written, created) = tokio::join!(
        Cube::append(session, repository, images(2..=9), &watched),
        async {
            let _ = started.wait_for(|started| *started).await;
            Array::create(session, &other, &spec).await
        }
    );
    created.unwrap();
    let err = written.unwrap_err();
    assert_eq!(err.kind(), ErrorKind::Changed, "{err}");
    assert_eq!((stage.steps().await, stage.commits().await), (1, 3));
}

#[tokio::test]
async fn a_server_that_fails_is_named_and_no_secret_is() {
    let stage = Stage::bucket();
    let (session, repository) = (&stage.session, &stage.repository);
    let written = Cube::create(session, repository, images(1..=1), &options()).await;
    written.unwrap();
    let bed = stage.bed.as_ref().unwrap();
    let wrong = session_of(bed, "CANARY-SECRET");
    let err = Cube::open(&wrong, repository).await.unwrap_err();
    assert_eq!(err.kind(), ErrorKind::Denied, "{err:?}");
    let text = format!("{err} {err:?}");
    assert!(
        !text.contains("CANARY") && !text.contains(ACCESS_KEY),
        "{text}"
    );
    // Chunks are put under names of Icechunk's own: one that fails is tried again, then an error.
    bed.fault(
        Rule::new(Fault::slow_down())
            .on(Service::S3)
            .method("PUT")
            .path("/chunks/"),
    );
    let err = Cube::append(session, repository, images(2..=2), &options())
        .await
        .unwrap_err();
    assert_eq!(err.kind(), ErrorKind::Unavailable, "{err:?}");
    bed.clear_faults();
    let written = Cube::append(session, repository, images(2..=2), &options()).await;
    assert_eq!(written.unwrap().steps, 1);
    assert_eq!((stage.steps().await, stage.commits().await), (2, 3));
    assert!(samples(&stage, 0).await == truth(1..=2));
}

#[tokio::test]
async fn a_write_of_an_array_that_fails_is_not_seen() {
    let stage = Stage::bucket();
    let (session, repository) = (&stage.session, &stage.repository);
    let bed = stage.bed.as_ref().unwrap();
    let spec = ArraySpec::new([20, 50, 70], DataType::I32, [5, 16, 16]).with_shard([5, 32, 32]);
    let array = Array::create(session, repository, &spec).await.unwrap();
    let samples = ArrayD::from_shape_fn(IxDyn(&[20, 50, 70]), |at| {
        i32::try_from(at[0] * 7919 + at[1] * 131 + at[2] * at[2]).unwrap() + 1
    });
    let broken = Rule::new(Fault::status(403)).on(Service::S3).method("PUT");
    bed.fault(broken.path("/chunks/").skip(4));
    let err = array.write(&[0, 0, 0], samples.clone()).await.unwrap_err();
    assert_eq!(err.kind(), ErrorKind::Denied, "{err:?}");
    let all = [0..20, 0..50, 0..70];
    let found = array.read::<i32>(&all).await.unwrap();
    assert!(found.iter().all(|&sample| sample == 0));
    assert_eq!(stage.commits().await, 2);
    bed.clear_faults();
    array.write(&[0, 0, 0], samples.clone()).await.unwrap();
    assert!(array.read::<i32>(&all).await.unwrap() == samples);
    assert_eq!(stage.commits().await, 3);
}

#[tokio::test]
async fn others_read_the_same_samples() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let python = |args: &[&str]| {
        Command::new(root.join("scripts/python-env"))
            .arg("--if-there")
            .args(args)
            .stdin(Stdio::null())
            .output()
    };
    match python(&["-c", "import icechunk"]) {
        Ok(done) if done.status.success() => {}
        other => {
            let why = other.map(|done| String::from_utf8_lossy(&done.stderr).into_owned());
            // There is no wheel for an older Python.
            let new = "import sys; sys.exit(sys.version_info < (3, 12))";
            let is_old = python(&["-c", new]).is_ok_and(|done| done.status.code() == Some(1));
            assert!(
                is_old || std::env::var_os("CI").is_none(),
                "CI needs the Python environment: {why:?}"
            );
            eprintln!("skipped: no Python environment to read repositories with: {why:?}");
            return;
        }
    }
    let stage = Stage::folder();
    let (session, repository) = (&stage.session, &stage.repository);
    let options = options().with_overviews(1, Resampling::Nearest);
    Cube::create(session, repository, images(1..=3), &options)
        .await
        .unwrap();
    Cube::append(session, repository, images(4..=5), &options)
        .await
        .unwrap();
    let times: Vec<String> = (1..=5)
        .map(|number| format!("2021-01-{number:02}T23:50:00.024Z"))
        .collect();
    let items: Vec<String> = (1..=5).map(|number| format!("scene-{number:02}")).collect();
    let group = |shape: [usize; 3], step: f64, samples: &Array3<i16>| {
        let bytes: Vec<u8> = samples.iter().flat_map(|one| one.to_le_bytes()).collect();
        json!({
            "crs": "EPSG:32755",
            "transform": [step, 0, 600_000, 0, -step, 6_000_000],
            "coordinates": {"time": times, "item": items},
            "arrays": {"nbart_coastal": {
                "dims": ["time", "y", "x"], "shape": shape, "dtype": "int16",
                "crc32": crc32fast::hash(&bytes), "nodata": -999,
            }},
        })
    };
    let fine = truth(1..=5);
    let coarse = fine.slice(ndarray::s![.., ..;2, ..;2]).to_owned();
    let said = json!({
        "groups": {
            "0": group([5, 70, 90], 30.0, &fine),
            "1": group([5, 35, 45], 60.0, &coarse),
        },
        "levels": ["0", "1"],
    });
    let expect = stage.dir.path().join("expect.json");
    fs::write(&expect, said.to_string()).unwrap();
    let folder = stage.dir.path().join("repository");
    let script = root.join("scripts/check_cubes.py");
    let done = python(&[
        script.to_str().unwrap(),
        folder.to_str().unwrap(),
        expect.to_str().unwrap(),
        "--icechunk",
        "main",
    ])
    .unwrap();
    let text = String::from_utf8_lossy(&done.stdout);
    let err = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{text}\n{err}");
    println!("{text}");
}
