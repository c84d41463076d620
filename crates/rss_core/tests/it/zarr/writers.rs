//! Writers of one cube: one at a time, what others left is checked, and one that comes back too late changes nothing.

use std::{
    fs::{self, File},
    path::Path,
    sync::{
        Arc, Mutex,
        mpsc::{Receiver, Sender, channel},
    },
    time::Duration,
};

use rss_core::{
    ErrorKind, Location, Session,
    zarr::{Cube, CubeImage, CubeOptions, PixelIndex, Written},
};
use rss_testbed::Testbed;

use super::cubes::{contents, day, image, place, raster, session, small};

fn images(numbers: std::ops::RangeInclusive<u32>) -> Vec<CubeImage> {
    let one = |number: u32| {
        let value = i16::try_from(number).unwrap();
        image(number, raster(value, 0, 0, 90, 70))
    };
    numbers.map(one).collect()
}

async fn series(session: &Session, location: &Location) -> Vec<i16> {
    let cube = Cube::open(session, location).await.unwrap();
    let pixel = [PixelIndex { col: 9, row: 9 }];
    let series = cube.read_series::<i16>("red", &pixel).await.unwrap();
    series.into_iter().collect()
}

/// Options of a write that stops after its first shard until it is told to go on.
fn paused() -> (CubeOptions, Receiver<()>, Sender<()>) {
    let (begun, has_begun) = channel();
    let (go, told) = channel::<()>();
    let told = Mutex::new(Some(told));
    let options = small().with_progress(move |progress| {
        if progress.shards_done > 0
            && let Some(told) = told.lock().unwrap().take()
        {
            let _ = begun.send(());
            let _ = told.recv();
        }
    });
    (options, has_begun, go)
}

/// Runs `meanwhile` while a write of the images 1 to 4 is paused, and returns how that ended.
async fn while_paused(
    session: &Session,
    location: &Location,
    meanwhile: impl AsyncFnOnce(),
) -> rss_core::Result<Written> {
    let (options, begun, go) = paused();
    let (session, location) = (session.clone(), location.clone());
    let write =
        tokio::spawn(
            async move { Cube::create(&session, &location, images(1..=4), &options).await },
        );
    tokio::task::spawn_blocking(move || begun.recv().unwrap())
        .await
        .unwrap();
    meanwhile().await;
    drop(go);
    write.await.unwrap()
}

fn bucket(bed: &Testbed) -> (Session, Location) {
    bed.put("cubes", "here", "a bucket");
    let session = Session::builder().s3_endpoint(&bed.s3_endpoint());
    let location = Location::parse("s3://cubes/cube.zarr").unwrap();
    (session.build().unwrap(), location)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn in_a_bucket_a_writer_that_was_overtaken_changes_nothing() {
    let bed = Testbed::builder().start().unwrap();
    let (session, location) = bucket(&bed);
    let late = while_paused(&session, &location, async || {
        let written = Cube::create(&session, &location, images(1..=4), &small()).await;
        let notes = written.unwrap().notes;
        assert!(
            notes.iter().any(|note| note.contains("is taken over")),
            "{notes:?}"
        );
        Cube::append(&session, &location, images(5..=6), &small())
            .await
            .unwrap();
    })
    .await;
    let err = late.unwrap_err();
    assert_eq!(err.kind(), ErrorKind::Changed);
    assert!(err.message().contains("was overtaken"), "{err}");
    assert_eq!(series(&session, &location).await, [1, 2, 3, 4, 5, 6]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn in_a_folder_a_second_writer_is_refused_until_it_takes_over() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cube");
    let (session, location) = (session(), place(&path));
    let late = while_paused(&session, &location, async || {
        let refused = Cube::create(&session, &location, images(1..=4), &small()).await;
        let err = refused.unwrap_err();
        assert_eq!(err.kind(), ErrorKind::Unavailable);
        let expected = format!("is being written by process {} on ", std::process::id());
        assert!(err.message().contains(&expected), "{err}");
        Cube::create(&session, &location, images(1..=4), &small().take_over())
            .await
            .unwrap();
        Cube::append(&session, &location, images(5..=6), &small())
            .await
            .unwrap();
    })
    .await;
    assert_eq!(late.unwrap_err().kind(), ErrorKind::Changed);
    assert_eq!(series(&session, &location).await, [1, 2, 3, 4, 5, 6]);
    assert!(!path.join(".partial").exists() && !path.join(".rss-write.json").exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_writer_of_other_images_is_told_who_writes() {
    let bed = Testbed::builder().start().unwrap();
    let (session, location) = bucket(&bed);
    let first = while_paused(&session, &location, async || {
        let other = Cube::create(&session, &location, images(3..=6), &small()).await;
        let err = other.unwrap_err();
        assert_eq!(err.kind(), ErrorKind::Unavailable);
        let expected = format!("(process {} on ", std::process::id());
        assert!(err.message().contains(&expected), "{err}");
    })
    .await;
    assert_eq!(first.unwrap().steps, 4);
    assert_eq!(series(&session, &location).await, [1, 2, 3, 4]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_another_wrote_of_other_images_is_discarded_on_request() {
    let dir = tempfile::tempdir().unwrap();
    let (torn, whole) = (dir.path().join("torn"), dir.path().join("whole"));
    let session = session();
    let late = while_paused(&session, &place(&torn), async || {
        Cube::create(&session, &place(&torn), images(3..=6), &small().take_over())
            .await
            .unwrap();
    })
    .await;
    assert_eq!(late.unwrap_err().kind(), ErrorKind::Changed);
    Cube::create(&session, &place(&whole), images(3..=6), &small())
        .await
        .unwrap();
    assert!(contents(&torn) == contents(&whole));
}

/// Stops a write after some shards, as a kill does.
async fn stopped(session: &Session, cube: &Path, images: Vec<CubeImage>, shards: u64) {
    let (enough, mut stopped) = tokio::sync::watch::channel(false);
    let options = small().with_progress(move |progress| {
        if progress.shards_done >= shards {
            let _ = enough.send(true);
        }
    });
    let location = place(cube);
    tokio::select! {
        biased;
        _ = stopped.wait_for(|enough| *enough) => {}
        written = Cube::create(session, &location, images, &options) => panic!("{written:?}"),
    }
    ended(cube).await;
}

/// Waits for the threads of a write that was dropped: they end the file that they write, and hold the lock until then.
pub(super) async fn ended(cube: &Path) {
    let lock = cube.join(".partial/lock");
    while File::open(&lock).is_ok_and(|lock| lock.try_lock().is_err()) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

fn shards(cube: &Path) -> Vec<String> {
    let all = contents(cube).into_iter().map(|(name, _)| name);
    all.filter(|name| name.starts_with("red/c/")).collect()
}

#[tokio::test]
async fn a_shard_that_is_not_whole_is_made_anew() {
    let dir = tempfile::tempdir().unwrap();
    let (torn, whole) = (dir.path().join("torn"), dir.path().join("whole"));
    let session = session();
    Cube::create(&session, &place(&whole), images(1..=8), &small())
        .await
        .unwrap();
    stopped(&session, &torn, images(1..=8), 8).await;
    let there = shards(&torn);
    assert!(there.len() >= 3, "{there:?}");
    // Empty, cut, and with a byte of its index changed.
    fs::write(torn.join(&there[0]), "").unwrap();
    let bytes = fs::read(torn.join(&there[1])).unwrap();
    fs::write(torn.join(&there[1]), &bytes[..bytes.len() / 2]).unwrap();
    let mut bytes = fs::read(torn.join(&there[2])).unwrap();
    let at = bytes.len() - 9;
    bytes[at] ^= 1;
    fs::write(torn.join(&there[2]), bytes).unwrap();
    let written = Cube::create(&session, &place(&torn), images(1..=8), &small())
        .await
        .unwrap();
    assert!(written.resumed as usize <= written.shards as usize - 3);
    assert!(written.notes[0].contains("are damaged"), "{written:?}");
    assert!(contents(&torn) == contents(&whole));
}

#[tokio::test]
async fn shards_of_a_file_that_was_replaced_are_made_anew() {
    let dir = tempfile::tempdir().unwrap();
    let (torn, whole) = (dir.path().join("torn"), dir.path().join("whole"));
    let session = session();
    let files = |add: i16| {
        let one = |number: u32| {
            let file = dir.path().join(format!("{number}.tif"));
            if add == 0 || number == 2 {
                let value = i16::try_from(number).unwrap() + add;
                raster(value, 0, 0, 90, 70).save(&file).unwrap();
            }
            CubeImage::new(format!("scene-{number}"), day(number)).with_band("red", place(&file))
        };
        (1..=8).map(one).collect::<Vec<_>>()
    };
    // More than the nine shards of the first four time steps.
    stopped(&session, &torn, files(0), 14).await;
    assert!(!shards(&torn).is_empty());
    let second = dir.path().join("2.tif");
    let before = fs::metadata(&second).unwrap().modified().unwrap();
    let images = files(100);
    // A clock of whole milliseconds, and none of the machine's is waited for.
    let later = before + std::time::Duration::from_secs(3);
    fs::File::options()
        .write(true)
        .open(&second)
        .unwrap()
        .set_modified(later)
        .unwrap();
    let written = Cube::create(&session, &place(&torn), images.clone(), &small())
        .await
        .unwrap();
    let notes = &written.notes;
    assert!(
        notes.iter().any(|note| note.contains("were replaced")),
        "{notes:?}"
    );
    assert!(written.resumed > 0, "those of other time steps are kept");
    assert_eq!(
        series(&session, &place(&torn)).await,
        [1, 102, 3, 4, 5, 6, 7, 8]
    );
    Cube::create(&session, &place(&whole), images, &small())
        .await
        .unwrap();
    let pixels = |cube: &Path| {
        let all = contents(cube).into_iter();
        all.filter(|(name, _)| name.starts_with("red/"))
            .collect::<Vec<_>>()
    };
    assert!(pixels(&torn) == pixels(&whole));
}

#[tokio::test]
async fn a_place_that_holds_other_things_is_refused_before_anything_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let session = session();
    let file = dir.path().join("file");
    fs::write(&file, "text").unwrap();
    let old = dir.path().join("old");
    fs::create_dir(&old).unwrap();
    fs::write(old.join(".zgroup"), "{}").unwrap();
    let foreign = dir.path().join("foreign");
    fs::create_dir(&foreign).unwrap();
    fs::write(foreign.join("a.txt"), "text").unwrap();
    let before = contents(dir.path());
    for (path, said) in [
        (file.clone(), "a file, or below one"),
        (file.join("below"), "a file, or below one"),
        (old, "a hierarchy of Zarr 2"),
        (foreign, "not empty and holds no cube (a.txt is there)"),
    ] {
        let err = Cube::create(&session, &place(&path), images(1..=1), &small())
            .await
            .unwrap_err();
        assert_eq!(err.kind(), ErrorKind::InvalidInput);
        assert!(err.message().contains(said), "{err}");
    }
    assert!(contents(dir.path()) == before);
    let bed = Testbed::builder().start().unwrap();
    let (session, location) = bucket(&bed);
    bed.put("cubes", "cube.zarr/a.txt", "text");
    let err = Cube::create(&session, &location, images(1..=1), &small())
        .await
        .unwrap_err();
    assert!(err.message().contains("a.txt is there"), "{err}");
    let empty = Arc::new(dir.path().join("empty"));
    fs::create_dir(&*empty).unwrap();
    let session = super::cubes::session();
    Cube::create(&session, &place(&empty), images(1..=1), &small())
        .await
        .unwrap();
}
