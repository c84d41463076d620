//! The file cache: one download however many ask, whole files only, whatever dies.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

#[cfg(feature = "gdal")]
use rss_core::{Backend, ReadRequest};
use rss_core::{Delivery, ErrorKind, Existing, GetOptions, Location, Origin, Session};
use rss_testbed::{BUCKET, Band, Fault, Rule, Scenes, Testbed};
use serde::{Deserialize, Serialize};

use super::{
    download::{CANARY, copying, download, files, of_hrefs},
    store::{hasty, noise},
};

/// The variable that turns a run of this test binary into a child that downloads.
const ORDER: &str = "RSS_TEST_ORDER";

/// What a child process is told to do.
#[derive(Deserialize, Serialize)]
struct Order {
    endpoint: String,
    cache: PathBuf,
    dir: PathBuf,
    hrefs: Vec<String>,
    mode: Making,
}

/// How a child makes its files.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
enum Making {
    Copy,
    Translate,
}

impl Order {
    fn new(bed: &Testbed, cache: &Path, dir: &Path, hrefs: &[&str]) -> Self {
        Self {
            endpoint: bed.s3_endpoint(),
            cache: cache.to_owned(),
            dir: dir.to_owned(),
            hrefs: hrefs.iter().map(|href| (*href).to_owned()).collect(),
            mode: Making::Copy,
        }
    }

    /// Starts a child, which prints a line at each progress and one at its end.
    fn start(&self, mut command: Command) -> Child {
        command
            .env(ORDER, serde_json::to_string(self).unwrap())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    }
}

fn child() -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([
        "cache::a_child_does_what_it_is_told",
        "--exact",
        "--nocapture",
    ]);
    command
}

/// Not a test of its own: the body of child processes.
#[test]
fn a_child_does_what_it_is_told() {
    let Ok(order) = std::env::var(ORDER) else {
        return;
    };
    let order: Order = serde_json::from_str(&order).unwrap();
    let session = Session::builder()
        .s3_endpoint(&order.endpoint)
        .cache_dir(&order.cache)
        .retries(1)
        .build()
        .unwrap();
    let hrefs: Vec<_> = order.hrefs.iter().map(String::as_str).collect();
    let say = |text: String| {
        // The parent may be gone, or we may be about to be killed.
        let _ = writeln!(std::io::stdout(), "{text}");
    };
    let options = match order.mode {
        Making::Copy => copying(),
        Making::Translate => GetOptions::default(),
    };
    let options = options.with_progress(move |progress| say(progress.bytes_done.to_string()));
    let outcome = session.get(
        &of_hrefs(&hrefs),
        &[],
        &Origin::default(),
        &order.dir,
        &options,
    );
    match outcome {
        Ok(_) => say("outcome: done".to_owned()),
        Err(err) => say(format!("outcome: {:?}: {err}", err.kind())),
    }
}

fn outcome(mut child: Child) -> String {
    let mut text = String::new();
    child
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut text)
        .unwrap();
    child.wait().unwrap();
    let (_, outcome) = text.split_once("outcome: ").unwrap_or(("", &text));
    outcome.lines().next().unwrap_or_default().to_owned()
}

fn session(bed: &Testbed, cache: &Path) -> Session {
    hasty(bed).cache_dir(cache).build().unwrap()
}

/// The finished files of a cache.
fn data(cache: &Path) -> Vec<PathBuf> {
    let mut found = files(&cache.join("entries"));
    found.retain(|path| path.extension().is_none_or(|ending| ending != "record"));
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn many_tasks_cost_one_download() {
    let bed = Testbed::builder()
        .latency(Duration::from_millis(50))
        .start()
        .unwrap();
    bed.put("bucket", "a.tif", noise(500_000));
    let cache = tempfile::tempdir().unwrap();
    let dir = tempfile::tempdir().unwrap();
    // Two sessions, as two processes have.
    let sessions = [session(&bed, cache.path()), session(&bed, cache.path())];
    let wanted = of_hrefs(&["s3://bucket/a.tif"]);
    let mut calls = Vec::new();
    for i in 0..16 {
        let dir = dir.path().join(i.to_string());
        let session = &sessions[i % 2];
        let wanted = &wanted;
        calls.push(async move { download(session, wanted, &dir).await });
    }
    for fetched in futures::future::join_all(calls).await {
        let path = fetched.unwrap().assets[0].path.clone().unwrap();
        assert!(fs::read(path).unwrap() == noise(500_000));
    }
    assert_eq!(bed.log().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_tasks_share_one_failure() {
    let bed = Testbed::builder()
        .latency(Duration::from_millis(300))
        .start()
        .unwrap();
    let cache = tempfile::tempdir().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let session = session(&bed, cache.path());
    let wanted = of_hrefs(&["s3://bucket/none.tif"]);
    let calls = (0..16).map(|_| download(&session, &wanted, dir.path()));
    for outcome in futures::future::join_all(calls).await {
        let err = outcome.unwrap_err();
        assert_eq!(err.kind(), ErrorKind::NotFound);
        assert_eq!(err.location(), Some("s3://bucket/none.tif"));
    }
    assert_eq!(bed.log().len(), 1);
    // Not for ever: the next call asks again.
    bed.put("bucket", "none.tif", noise(10));
    download(&session, &wanted, dir.path()).await.unwrap();
}

#[test]
fn two_processes_cost_one_download() {
    let bed = Testbed::builder()
        .latency(Duration::from_millis(300))
        .start()
        .unwrap();
    let cache = tempfile::tempdir().unwrap();
    let hrefs = [
        "s3://bucket/0.tif",
        "s3://bucket/1.tif",
        "s3://bucket/2.tif",
    ];
    for i in 0..hrefs.len() {
        bed.put("bucket", &format!("{i}.tif"), noise(300_000 + i));
    }
    let dirs: Vec<_> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
    let children: Vec<_> = dirs
        .iter()
        .map(|dir| Order::new(&bed, cache.path(), dir.path(), &hrefs).start(child()))
        .collect();
    for child in children {
        assert_eq!(outcome(child), "done");
    }
    assert_eq!(bed.log().len(), hrefs.len(), "{:?}", bed.log());
    for dir in &dirs {
        for i in 0..hrefs.len() {
            let path = dir.path().join(format!("x/{i}.tif"));
            assert!(fs::read(path).unwrap() == noise(300_000 + i));
        }
    }
}

#[test]
fn a_process_killed_at_any_moment_leaves_no_half_file() {
    let bed = Testbed::builder().start().unwrap();
    let cache = tempfile::tempdir().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let names: Vec<_> = (0..4).map(|i| format!("{i}.tif")).collect();
    let hrefs: Vec<_> = names
        .iter()
        .map(|name| format!("s3://bucket/{name}"))
        .collect();
    let hrefs: Vec<_> = hrefs.iter().map(String::as_str).collect();
    let length = |i: usize| 1_000_000 + i;
    for (i, name) in names.iter().enumerate() {
        bed.put("bucket", name, noise(length(i)));
    }
    let is_whole = |bytes: &[u8]| (0..names.len()).any(|i| bytes == noise(length(i)));
    let mut killed = 0;
    for round in 0..40_usize {
        // Early in the first file, later, and around the last rename.
        let lines = 1 + (round * 7) % 120;
        if round % 10 == 0 {
            Session::builder()
                .cache_dir(cache.path())
                .build()
                .unwrap()
                .cache()
                .clear()
                .unwrap();
        }
        let mut child = Order::new(&bed, cache.path(), dir.path(), &hrefs).start(child());
        let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut seen = 0;
        while seen < lines {
            match said.next() {
                Some(Ok(line)) if line.parse::<u64>().is_ok() => seen += 1,
                Some(Ok(line)) if line.starts_with("outcome") => break,
                Some(Ok(_)) => {}
                _ => break,
            }
        }
        child.kill().unwrap();
        killed += usize::from(!child.wait().unwrap().success());

        for path in data(cache.path()) {
            assert!(
                is_whole(&fs::read(&path).unwrap()),
                "round {round}: {path:?}"
            );
        }
        for path in files(dir.path()) {
            // What is being copied has a name of its own.
            let name = path.file_name().unwrap().to_str().unwrap();
            let is_part = name.starts_with('.') && name.ends_with(".part");
            let bytes = fs::read(&path).unwrap();
            assert!(is_part || is_whole(&bytes), "round {round}: {path:?}");
        }
    }
    assert!(killed >= 10, "only {killed} of 40 were killed in time");

    let session = session(&bed, cache.path());
    let wanted = of_hrefs(&hrefs);
    let fetched = session
        .get(&wanted, &[], &Origin::default(), dir.path(), &copying())
        .unwrap();
    for (i, row) in fetched.assets.iter().enumerate() {
        assert!(fs::read(row.path.as_ref().unwrap()).unwrap() == noise(length(i)));
    }
    let removed = session.cache().cleanup().unwrap();
    assert_eq!(removed.entries, 0);
    let stats = session.cache().stats().unwrap();
    assert_eq!((stats.entries, stats.leftovers), (4, 0));
    assert_eq!(stats.bytes, (0..4).map(|i| length(i) as u64).sum::<u64>());
    // Only this session's own folder is left.
    assert_eq!(fs::read_dir(cache.path().join("tmp")).unwrap().count(), 1);
    assert_eq!(data(cache.path()).len(), 4);
}

#[cfg(feature = "gdal")]
#[test]
fn a_process_killed_in_mid_translation_leaves_no_half_file() {
    let bed = Testbed::builder().scenes(Scenes::small()).start().unwrap();
    let cache = tempfile::tempdir().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let hrefs: Vec<_> = bed.scenes()[0].files.keys().collect();
    let hrefs: Vec<_> = hrefs
        .iter()
        .map(|key| format!("s3://{BUCKET}/{key}"))
        .collect();
    let hrefs: Vec<_> = hrefs.iter().map(String::as_str).collect();
    let mut killed = 0;
    for round in 0..12_usize {
        let mut order = Order::new(&bed, cache.path(), dir.path(), &hrefs);
        order.mode = Making::Translate;
        let mut child = order.start(child());
        let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
        let told = |line: &String| line.parse::<u64>().is_ok();
        let mut seen = 0;
        while seen <= round {
            match said.next() {
                Some(Ok(line)) if told(&line) => seen += 1,
                Some(Ok(line)) if line.starts_with("outcome") => break,
                Some(Ok(_)) => {}
                _ => break,
            }
        }
        child.kill().unwrap();
        killed += usize::from(!child.wait().unwrap().success());
        let session = session(&bed, cache.path());
        for path in data(cache.path()) {
            let whole = session
                .open(&Location::Local(path), Backend::Cog)
                .and_then(|raster| raster.read(&ReadRequest::new()));
            assert!(whole.is_ok(), "round {round}: {whole:?}");
        }
        session.cache().clear().unwrap();
        assert_eq!(session.cache().stats().unwrap().leftovers, 0);
    }
    assert!(killed >= 4, "only {killed} of 12 were killed in time");
}

#[test]
fn a_full_disk_is_one_clear_error_and_leaves_nothing() {
    let bed = Testbed::builder().scenes(Scenes::small()).start().unwrap();
    bed.put("bucket", "small.tif", noise(100_000));
    bed.put("bucket", "large.tif", noise(5_000_000));
    let mount = tempfile::tempdir().unwrap();
    let dir = tempfile::tempdir().unwrap();
    // The mount lives in the child's own namespace; what it leaves is listed before it ends.
    let script = "mount -t tmpfs -o size=2m tmpfs \"$1\" || exit 77; shift; \
                  \"$@\"; find \"$0\" -type f -size +64k";
    let run = |href: &str, mode: Making| {
        let mut command = Command::new("unshare");
        command
            .args(["-m", "sh", "-c", script])
            .arg(mount.path())
            .arg(mount.path())
            .arg(std::env::current_exe().unwrap())
            .args([
                "cache::a_child_does_what_it_is_told",
                "--exact",
                "--nocapture",
            ]);
        let mut order = Order::new(&bed, mount.path(), dir.path(), &[href]);
        order.mode = mode;
        let mut child = command
            .env(ORDER, serde_json::to_string(&order).unwrap())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let mut text = String::new();
        child
            .stdout
            .take()
            .unwrap()
            .read_to_string(&mut text)
            .unwrap();
        (child.wait().unwrap().code() != Some(77)).then_some(text)
    };
    let small = run("s3://bucket/small.tif", Making::Copy);
    let Some(text) = small.filter(|text| text.contains("outcome: ")) else {
        println!("skipped: this user may not mount a small file system");
        return;
    };
    assert!(text.contains("outcome: done"), "{text}");
    let scene = bed.scenes()[0].key(Band::Red);
    let scene = format!("s3://{BUCKET}/{scene}");
    let mut cases = vec![("s3://bucket/large.tif", Making::Copy)];
    if cfg!(feature = "gdal") {
        cases.push((&scene, Making::Translate));
    }
    for (href, mode) in cases {
        let text = run(href, mode).unwrap();
        let (_, rest) = text.split_once("outcome: ").unwrap();
        let line = rest.lines().next().unwrap();
        assert!(line.starts_with("Unavailable: "), "{mode:?}: {line}");
        assert!(line.contains("no space left"), "{mode:?}: {line}");
        assert!(
            !rest.contains(mount.path().join("tmp").to_str().unwrap()),
            "{mode:?} left behind: {rest}"
        );
        assert_eq!(files(dir.path()).len(), 1, "{mode:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_past_its_time_is_asked_for_again() {
    let bed = Testbed::builder().start().unwrap();
    bed.put("bucket", "a.tif", noise(1000));
    let cache = tempfile::tempdir().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let aged = || {
        hasty(&bed)
            .cache_dir(cache.path())
            .cache_ttl(Duration::ZERO)
            .build()
            .unwrap()
    };
    let wanted = of_hrefs(&["s3://bucket/a.tif"]);
    download(&aged(), &wanted, dir.path()).await.unwrap();
    assert_eq!(aged().cache().stats().unwrap().expired, 1);

    // Unchanged: the server says so, and no byte is sent.
    let fresh = aged();
    download(&fresh, &wanted, dir.path()).await.unwrap();
    assert_eq!(bed.log().last().unwrap().status, 304);
    assert_eq!(fresh.traffic().bytes, 0);

    bed.put("bucket", "a.tif", noise(2000));
    let fetched = download(&aged(), &wanted, dir.path()).await.unwrap();
    assert!(fs::read(fetched.assets[0].path.as_ref().unwrap()).unwrap() == noise(2000));
    assert_eq!(bed.log().len(), 3);

    // Without a time to live it is good for ever.
    let session = session(&bed, cache.path());
    assert!(
        download(&session, &wanted, dir.path())
            .await
            .unwrap()
            .assets[0]
            .cached
    );
    assert_eq!(session.cache().cleanup().unwrap().entries, 0);
    assert_eq!(aged().cache().cleanup().unwrap().entries, 1);
    assert_eq!(data(cache.path()).len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_file_used_longest_ago_goes_first() {
    let bed = Testbed::builder().start().unwrap();
    let cache = tempfile::tempdir().unwrap();
    let dir = tempfile::tempdir().unwrap();
    for name in ["a", "b", "c"] {
        bed.put("bucket", &format!("{name}.tif"), noise(1000));
    }
    let session = hasty(&bed)
        .cache_dir(cache.path())
        .cache_max_bytes(2500)
        .build()
        .unwrap();
    for name in ["a", "b", "a", "c"] {
        let wanted = of_hrefs(&[&format!("s3://bucket/{name}.tif")]);
        download(&session, &wanted, dir.path()).await.unwrap();
    }
    // The user keeps all of them.
    for name in ["a", "b", "c"] {
        assert!(fs::read(dir.path().join(format!("x/{name}.tif"))).unwrap() == noise(1000));
    }
    bed.clear_log();
    for (name, cached) in [("a", true), ("c", true), ("b", false)] {
        let wanted = of_hrefs(&[&format!("s3://bucket/{name}.tif")]);
        let fetched = download(&session, &wanted, dir.path()).await.unwrap();
        assert_eq!(fetched.assets[0].cached, cached, "{name}");
    }
    assert_eq!(bed.log().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_call_loses_none_of_its_files() {
    let bed = Testbed::builder().start().unwrap();
    let cache = tempfile::tempdir().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let hrefs: Vec<_> = (0..6).map(|i| format!("s3://bucket/{i}.tif")).collect();
    for i in 0..6 {
        bed.put("bucket", &format!("{i}.tif"), noise(1000 + i));
    }
    let hrefs: Vec<_> = hrefs.iter().map(String::as_str).collect();
    let session = hasty(&bed)
        .cache_dir(cache.path())
        .cache_max_bytes(1)
        .build()
        .unwrap();
    let origin = Origin::default();
    let wanted = of_hrefs(&hrefs);
    let options = copying().with_concurrency(1);
    let fetched = session
        .get_async(&wanted, &[], &origin, dir.path(), &options)
        .await
        .unwrap();
    for (i, row) in fetched.assets.iter().enumerate() {
        assert!(
            fs::read(row.path.as_ref().unwrap()).unwrap() == noise(1000 + i),
            "{i}"
        );
    }
    // They are in use no longer.
    assert_eq!(session.cache().stats().unwrap().entries, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_entry_is_noticed() {
    let bed = Testbed::builder().start().unwrap();
    let cache = tempfile::tempdir().unwrap();
    let dir = tempfile::tempdir().unwrap();
    bed.put("bucket", "a.tif", noise(10_000));
    let wanted = of_hrefs(&["s3://bucket/a.tif"]);
    let entry = || data(cache.path())[0].clone();
    let damage: [(&str, &dyn Fn()); 6] = [
        ("cut", &|| rewrite(&entry(), &noise(5000))),
        ("empty", &|| rewrite(&entry(), &[])),
        ("one byte", &|| {
            let mut bytes = noise(10_000);
            bytes[5000] ^= 1;
            rewrite(&entry(), &bytes);
        }),
        ("gone", &|| fs::remove_file(entry()).unwrap()),
        ("no record", &|| {
            fs::remove_file(entry().with_extension("record")).unwrap()
        }),
        ("odd record", &|| {
            rewrite(&entry().with_extension("record"), b"{\"key\": 7}")
        }),
    ];
    for (name, damage) in damage {
        download(&session(&bed, cache.path()), &wanted, dir.path())
            .await
            .unwrap();
        damage();
        bed.clear_log();
        let fetched = download(&session(&bed, cache.path()), &wanted, dir.path())
            .await
            .unwrap();
        assert!(!fetched.assets[0].cached, "{name}");
        assert_eq!(bed.log().len(), 1, "{name}");
        assert!(fs::read(fetched.assets[0].path.as_ref().unwrap()).unwrap() == noise(10_000));
    }
    // Touched but not changed: the checksum says that it is good.
    let bytes = fs::read(entry()).unwrap();
    rewrite(&entry(), &bytes);
    let fetched = download(&session(&bed, cache.path()), &wanted, dir.path())
        .await
        .unwrap();
    assert!(fetched.assets[0].cached);
}

/// Writes a file anew, through its write protection.
fn rewrite(path: &Path, bytes: &[u8]) {
    fs::remove_file(path).unwrap();
    fs::write(path, bytes).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_user_does_to_a_file_reaches_nobody_else() {
    let bed = Testbed::builder().start().unwrap();
    let cache = tempfile::tempdir().unwrap();
    let dirs: Vec<_> = (0..4).map(|_| tempfile::tempdir().unwrap()).collect();
    bed.put("bucket", "a.tif", noise(1000));
    let wanted = of_hrefs(&["s3://bucket/a.tif"]);
    let own = |i: usize| dirs[i].path().join("x/a.tif");
    for dir in &dirs[..2] {
        download(&session(&bed, cache.path()), &wanted, dir.path())
            .await
            .unwrap();
    }
    // In place, of the same length, and with the mtime of before: as an editor or `touch -r` would.
    let modified = fs::metadata(own(0)).unwrap().modified().unwrap();
    let mut permissions = fs::metadata(own(0)).unwrap().permissions();
    #[expect(
        clippy::permissions_set_readonly_false,
        reason = "a file in a private folder"
    )]
    permissions.set_readonly(false);
    fs::set_permissions(own(0), permissions).unwrap();
    let mut file = fs::OpenOptions::new().write(true).open(own(0)).unwrap();
    file.write_all(b"mine").unwrap();
    file.set_modified(modified).unwrap();
    drop(file);
    for dir in &dirs[2..] {
        download(&session(&bed, cache.path()), &wanted, dir.path())
            .await
            .unwrap();
    }
    assert!(fs::read(own(0)).unwrap().starts_with(b"mine"));
    for i in 1..4 {
        assert!(fs::read(own(i)).unwrap() == noise(1000), "{i}");
    }
    // Nothing of the cache takes them away.
    session(&bed, cache.path()).cache().clear().unwrap();
    fs::remove_dir_all(cache.path()).unwrap();
    for i in 1..4 {
        assert!(fs::read(own(i)).unwrap() == noise(1000), "{i}");
    }
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn a_link_of_the_user_is_kept_like_a_file() {
    let bed = Testbed::builder().start().unwrap();
    let (cache, dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    bed.put("bucket", "a.tif", noise(1000));
    let own = dir.path().join("x/a.tif");
    fs::create_dir(dir.path().join("x")).unwrap();
    let get = async |options: &GetOptions| {
        let wanted = of_hrefs(&["s3://bucket/a.tif"]);
        let session = session(&bed, cache.path());
        session
            .get_async(&wanted, &[], &Origin::default(), dir.path(), options)
            .await
    };
    // Also one that leads nowhere now: another disk may not be mounted.
    std::os::unix::fs::symlink("/elsewhere/mine.tif", &own).unwrap();
    for options in [copying(), copying().with_delivery(Delivery::Link)] {
        let err = get(&options).await.unwrap_err();
        assert_eq!(err.kind(), ErrorKind::InvalidInput, "{err}");
        assert_eq!(
            fs::read_link(&own).unwrap(),
            Path::new("/elsewhere/mine.tif")
        );
    }
    assert!(bed.requests(rss_testbed::Service::S3).is_empty());
    let replacing = copying().with_existing(Existing::Overwrite);
    get(&replacing).await.unwrap();
    assert!(fs::read(&own).unwrap() == noise(1000));

    // A link into another cache is one that an earlier call made.
    let other = tempfile::tempdir().unwrap();
    let old = format!("entries/ab/{}.tif", "ab".repeat(32));
    fs::remove_file(&own).unwrap();
    std::os::unix::fs::symlink(other.path().join(old), &own).unwrap();
    get(&copying()).await.unwrap();
    assert!(fs::read(&own).unwrap() == noise(1000));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_is_invalidated_and_the_rest_is_kept() {
    let bed = Testbed::builder().start().unwrap();
    let cache = tempfile::tempdir().unwrap();
    let dir = tempfile::tempdir().unwrap();
    bed.put("bucket", "a.tif", noise(10));
    bed.put("bucket", "b.tif", noise(20));
    let session = session(&bed, cache.path());
    let wanted = of_hrefs(&["s3://bucket/a.tif", "s3://bucket/b.tif"]);
    download(&session, &wanted, dir.path()).await.unwrap();
    let a = Location::parse("/vsis3/bucket/a.tif").unwrap();
    let removed = session.cache().invalidate(&a).unwrap();
    assert_eq!((removed.entries, removed.bytes), (1, 10));
    assert_eq!(session.cache().stats().unwrap().entries, 1);
    let removed = session.cache().clear().unwrap();
    assert_eq!((removed.entries, removed.bytes), (1, 20));
    assert_eq!(session.cache().stats().unwrap().bytes, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_secret_is_written_to_the_cache() {
    let bed = Testbed::builder().start().unwrap();
    let cache = tempfile::tempdir().unwrap();
    let dir = tempfile::tempdir().unwrap();
    bed.put("bucket", "a.tif", noise(1000));
    let session = session(&bed, cache.path());
    let plain = bed.http_url("bucket", "a.tif");
    let host = plain.trim_start_matches("http://");
    for href in [
        format!("{plain}?sig={CANARY}&se=1"),
        format!("{plain}?X-Amz-Signature={CANARY}&X-Amz-Credential={CANARY}"),
        format!("http://me:{CANARY}@{host}#{CANARY}"),
        plain.clone(),
    ] {
        let fetched = download(&session, &of_hrefs(&[&href]), dir.path())
            .await
            .unwrap();
        let mut local = fetched.items.clone();
        local.items[0].assets.clear();
        assert!(
            !format!("{:?} {local:?}", fetched.assets).contains(CANARY),
            "{href}"
        );
    }
    // One file however it was signed.
    assert_eq!(session.cache().stats().unwrap().entries, 1);
    assert_eq!(bed.log().len(), 1);
    for path in files(cache.path()) {
        assert!(!path.to_str().unwrap().contains(CANARY));
        let bytes = fs::read(&path).unwrap();
        assert!(
            !String::from_utf8_lossy(&bytes).contains(CANARY),
            "{path:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_key_at_another_endpoint_is_another_file() {
    let cache = tempfile::tempdir().unwrap();
    let wanted = of_hrefs(&["s3://bucket/a.tif"]);
    for bytes in [10, 20] {
        let bed = Testbed::builder().start().unwrap();
        bed.put("bucket", "a.tif", noise(bytes));
        let dir = tempfile::tempdir().unwrap();
        let fetched = download(&session(&bed, cache.path()), &wanted, dir.path())
            .await
            .unwrap();
        assert_eq!(fetched.assets[0].bytes, bytes as u64);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relative_folder_of_a_cache_makes_links_that_hold() {
    let bed = Testbed::builder().start().unwrap();
    let here = std::env::current_dir().unwrap();
    let cache = tempfile::tempdir_in(&here).unwrap();
    let dir = tempfile::tempdir_in(&here).unwrap();
    bed.put("bucket", "a.tif", noise(10));
    let relative = |path: &Path| path.strip_prefix(&here).unwrap().to_owned();
    let session = session(&bed, &relative(cache.path()));
    let wanted = of_hrefs(&["s3://bucket/a.tif"]);
    let options = copying().with_delivery(Delivery::Link);
    let (origin, dir) = (Origin::default(), relative(dir.path()));
    let fetched = session
        .get_async(&wanted, &[], &origin, &dir, &options)
        .await
        .unwrap();
    let path = fetched.assets[0].path.clone().unwrap();
    assert!(path.is_absolute() && fs::read_link(&path).unwrap().is_absolute());
    assert_eq!(fs::read(path).unwrap(), noise(10));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_refresh_keeps_the_old_file() {
    let bed = Testbed::builder().start().unwrap();
    let cache = tempfile::tempdir().unwrap();
    let dir = tempfile::tempdir().unwrap();
    bed.put("bucket", "a.tif", noise(1000));
    let wanted = of_hrefs(&["s3://bucket/a.tif"]);
    download(&session(&bed, cache.path()), &wanted, dir.path())
        .await
        .unwrap();
    let aged = hasty(&bed)
        .cache_dir(cache.path())
        .cache_ttl(Duration::ZERO)
        .build()
        .unwrap();
    bed.fault(Rule::new(Fault::status(503)));
    let err = download(&aged, &wanted, dir.path()).await.unwrap_err();
    assert_eq!(err.kind(), ErrorKind::Unavailable);
    assert_eq!(fs::read(dir.path().join("x/a.tif")).unwrap(), noise(1000));
}
