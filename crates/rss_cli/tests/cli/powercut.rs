//! Power cuts: what a write had not synced is lost, and what it publishes is the old or the new, whole.
//!
//! A tracer (`powercut/trace.c`) logs what a run does to names and synced bytes. From the log and any moment of it a disk is
//! made as a power cut may leave it: files have the bytes of their last sync, or none; of the names that were given or
//! removed since their folder was synced any may be lost. File systems keep more order than that; a program that
//! survives this survives those. A few cuts in the normal tests; `scripts/powercut N` makes N of each.

use std::{
    collections::{BTreeMap, HashMap},
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
    time::UNIX_EPOCH,
};

use rss_core::{Location, Session};
use tempfile::TempDir;

use super::{
    kills::{Dice, Target, command, items, look},
    stage::{Ran, Stage},
};

/// The variable that asks for many.
const LONG: &str = "RSS_POWERCUTS";
/// Cuts of each run in the short form.
const SHORT: usize = 1;

fn cuts() -> usize {
    let long = std::env::var(LONG).ok();
    long.map_or(SHORT, |count| count.parse().unwrap())
}

/// Builds the tracer, once.
fn tracer() -> &'static Path {
    static BUILT: OnceLock<TempDir> = OnceLock::new();
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        let dir = BUILT.get_or_init(|| tempfile::tempdir().unwrap());
        let (source, path) = (dir.path().join("trace.c"), dir.path().join("trace"));
        fs::write(&source, include_str!("powercut/trace.c")).unwrap();
        let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
        let built = Command::new(compiler)
            .arg("-O1")
            .arg("-o")
            .args([&path, &source])
            .output()
            .unwrap();
        assert!(built.status.success(), "{built:?}");
        path
    })
}

#[derive(Clone, Debug, PartialEq)]
enum Node {
    /// By its number and birth.
    File(String),
    /// By its index.
    Folder(usize),
}

#[derive(Clone, Debug, Default)]
struct Folder {
    now: BTreeMap<String, Node>,
    /// As of its last sync.
    synced: BTreeMap<String, Node>,
    /// Names that were given or removed since.
    unsynced: Vec<(String, Option<Node>)>,
}

/// What is below a folder, and what of it survives a power cut.
#[derive(Clone, Debug)]
struct Disk {
    root: PathBuf,
    folders: Vec<Folder>,
    /// For each file that was synced a copy of its bytes.
    bytes: HashMap<String, PathBuf>,
}

impl Disk {
    fn new(root: &str) -> Self {
        fs::create_dir_all(root).unwrap();
        Self {
            root: fs::canonicalize(root).unwrap(),
            folders: vec![Folder::default()],
            bytes: HashMap::new(),
        }
    }

    fn folder(&self, path: &Path) -> Option<usize> {
        let mut at = 0;
        for name in path.strip_prefix(&self.root).ok()?.iter() {
            match self.folders[at].now.get(name.to_str()?)? {
                Node::Folder(index) => at = *index,
                Node::File(_) => return None,
            }
        }
        Some(at)
    }

    /// Returns the folder and the name of a path.
    fn slot(&self, path: &Path) -> Option<(usize, String)> {
        let name = path.file_name()?.to_str()?.to_owned();
        Some((self.folder(path.parent()?)?, name))
    }

    fn node(&self, path: &Path) -> Option<Node> {
        let (folder, name) = self.slot(path)?;
        self.folders[folder].now.get(&name).cloned()
    }

    fn change(&mut self, path: &Path, node: Option<Node>) {
        let slot = self.slot(path);
        // Others are above the folder.
        assert!(
            slot.is_some() || !path.starts_with(&self.root),
            "{path:?} is in no known folder"
        );
        let Some((folder, name)) = slot else { return };
        let folder = &mut self.folders[folder];
        match &node {
            Some(node) => _ = folder.now.insert(name.clone(), node.clone()),
            None => _ = folder.now.remove(&name),
        }
        folder.unsynced.push((name, node));
    }

    fn make_folder(&mut self, path: &Path) {
        self.folders.push(Folder::default());
        self.change(path, Some(Node::Folder(self.folders.len() - 1)));
    }

    /// Does what a line of a log says.
    fn apply(&mut self, line: &str) {
        let words: Vec<&str> = line.split('\t').collect();
        let path = Path::new(words[1]);
        match (words[0], words.get(2)) {
            ("make", Some(&id)) => {
                let file = Node::File(id.to_owned());
                if self.node(path).as_ref() != Some(&file) {
                    self.change(path, Some(file));
                }
            }
            ("folder", _) => self.make_folder(path),
            ("rename", Some(to)) => {
                let node = self.node(path);
                self.change(path, None);
                self.change(Path::new(to), node);
            }
            ("link", Some(to)) => {
                let node = self.node(path);
                self.change(Path::new(to), node);
            }
            ("remove", _) => self.change(path, None),
            ("sync", Some(&id)) => _ = self.bytes.insert(id.to_owned(), words[3].into()),
            ("settle", _) => {
                if let Some(folder) = self.folder(path) {
                    let folder = &mut self.folders[folder];
                    folder.synced.clone_from(&folder.now);
                    folder.unsynced.clear();
                }
            }
            (what, _) => assert_eq!(what, "", "a line of the log: {line}"),
        }
    }

    /// Takes over what a run that was killed did after the end of its log.
    fn catch_up(&mut self) {
        let mut folders = vec![self.root.clone()];
        while let Some(folder) = folders.pop() {
            let mut names = Vec::new();
            for entry in fs::read_dir(&folder).unwrap() {
                let path = entry.unwrap().path();
                let meta = fs::metadata(&path).unwrap();
                names.push(path.file_name().unwrap().to_str().unwrap().to_owned());
                if meta.is_dir() {
                    if self.folder(&path).is_none() {
                        self.make_folder(&path);
                    }
                    folders.push(path);
                    continue;
                }
                let born = meta.created().unwrap().duration_since(UNIX_EPOCH).unwrap();
                let id = format!("{}-{}-{}", meta.ino(), born.as_secs(), born.subsec_nanos());
                if self.node(&path) != Some(Node::File(id.clone())) {
                    self.change(&path, Some(Node::File(id)));
                }
            }
            let at = self.folder(&folder).unwrap();
            let known: Vec<String> = self.folders[at].now.keys().cloned().collect();
            for name in known.iter().filter(|name| !names.contains(name)) {
                self.change(&folder.join(name), None);
            }
        }
    }

    /// Makes a folder as a power cut at this moment may leave it: of what was not synced so many quarters are kept.
    fn cut(&self, to: &Path, quarters: u64, dice: &mut Dice) {
        let _ = fs::remove_dir_all(to);
        let mut folders = vec![(0, to.to_owned())];
        while let Some((index, path)) = folders.pop() {
            fs::create_dir(&path).unwrap();
            let folder = &self.folders[index];
            let mut names = folder.synced.clone();
            for (name, node) in &folder.unsynced {
                match node {
                    _ if dice.below(4) >= quarters => {}
                    Some(node) => _ = names.insert(name.clone(), node.clone()),
                    None => _ = names.remove(name),
                }
            }
            for (name, node) in names {
                let path = path.join(name);
                match node {
                    Node::Folder(index) => folders.push((index, path)),
                    Node::File(id) => match self.bytes.get(&id) {
                        Some(copy) => _ = fs::copy(copy, path).unwrap(),
                        None => fs::write(path, "").unwrap(),
                    },
                }
            }
        }
    }
}

/// Runs a command until it ends, or has done so many things, and returns the log.
fn traced(
    disk: &Disk,
    logs: &TempDir,
    most: Option<usize>,
    command: &Command,
) -> (Ran, Vec<String>) {
    let number = fs::read_dir(logs.path()).unwrap().count();
    let log = logs.path().join(format!("log-{number}"));
    let mut traced = Command::new(tracer());
    let envs = command.get_envs();
    let ran = traced
        .args([log.as_path(), disk.root.as_path()])
        .arg(most.unwrap_or(0).to_string())
        .arg(command.get_program())
        .args(command.get_args())
        .env_clear()
        .envs(envs.filter_map(|(name, value)| Some((name, value?))))
        .current_dir(command.get_current_dir().unwrap())
        .output();
    let ran = Ran::of(ran.unwrap());
    let expected = if most.is_some() { 137 } else { 0 };
    assert_eq!(ran.code, Some(expected), "{ran:?}");
    let lines = fs::read_to_string(log).unwrap();
    (ran, lines.lines().map(str::to_owned).collect())
}

/// Calls `check` with disks as power cuts at moments of a log leave them, the last one right after its end with nothing
/// kept that was not synced; then does all of the log.
fn cut(
    disk: &mut Disk,
    lines: &[String],
    to: &Path,
    dice: &mut Dice,
    mut check: impl FnMut(bool, &str),
) {
    let count = u64::try_from(lines.len()).unwrap();
    for number in 0..=cuts() {
        let is_end = number == cuts();
        let moment = match dice.below(2) {
            _ if is_end => count,
            // Most of what can go wrong does so at the end.
            0 => count - dice.below(count.min(30)),
            _ => dice.below(count),
        };
        let quarters = if is_end { 0 } else { dice.below(5) };
        let mut then = disk.clone();
        let done = &lines[..usize::try_from(moment).unwrap()];
        done.iter().for_each(|line| then.apply(line));
        then.cut(to, quarters, dice);
        let last = done.last().map_or("", String::as_str);
        check(
            is_end,
            &format!("after line {moment} of {count} ({last}), {quarters}/4 kept"),
        );
    }
    lines.iter().for_each(|line| disk.apply(line));
}

fn seen(location: &str, values: &[i16]) -> Result<bool, String> {
    let session = Session::builder().cpu_threads(1).build().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_all().build().unwrap();
    runtime.block_on(look(&session, &Location::parse(location).unwrap(), values))
}

/// Checks that two cubes hold the same objects. Unfinished files may be left, which the next write removes.
#[track_caller]
fn same(found: &Target<'_>, expected: &BTreeMap<String, Vec<u8>>, when: &str) {
    let mut found = found.objects();
    found.retain(|name, _| !name.starts_with(".partial/"));
    let names = |objects: &BTreeMap<String, Vec<u8>>| objects.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&found), names(expected), "{when}");
    let is_other = |name: &&String| found[*name] != expected[*name];
    let others: Vec<&String> = expected.keys().filter(is_other).collect();
    assert!(others.is_empty(), "{others:?} {when}");
}

fn whole(target: &Target<'_>, items: &str, is_append: bool, is_computed: bool) {
    let ran = Ran::of(
        command(target, items, is_append, is_computed)
            .output()
            .unwrap(),
    );
    assert_eq!(ran.code, Some(0), "{ran:?}");
}

#[test]
fn after_a_power_cut_a_cube_is_the_old_or_the_new_and_the_same_write_goes_on() {
    let mut counts = [0; 2];
    for is_computed in [false, true] {
        let stage = Stage::of(rss_testbed::Testbed::builder());
        let logs = tempfile::tempdir().unwrap();
        let mut dice = Dice(3 + u64::from(is_computed));
        let values: Vec<i16> = (1..=9).collect();
        let all = items(&stage, "a", &values);
        let first = stage.path("a-first.json");
        let target = |name: &str| Target {
            stage: &stage,
            in_bucket: false,
            name: name.to_owned(),
        };
        let (expected, here, torn) = (
            target("whole"),
            target("disk/deep/cube"),
            target("cut/deep/cube"),
        );
        let mut disk = Disk::new(&stage.path("disk"));
        for (is_append, items) in [(false, &first), (true, &all)] {
            whole(&expected, items, is_append, is_computed);
            let expected = expected.objects();
            // Killed twice, without a cut, and gone on with: each has to care for what the ones before have not synced.
            for killed in [true, true, false] {
                let most = killed.then(|| 2 + usize::try_from(dice.below(120)).unwrap());
                let command = command(&here, items, is_append, is_computed);
                let (_, lines) = traced(&disk, &logs, most, &command);
                let to = stage.path("cut");
                cut(
                    &mut disk,
                    &lines,
                    Path::new(&to),
                    &mut dice,
                    |is_end, when| {
                        counts[0] += 1;
                        let found = seen(&torn.location(), &values);
                        let found = found.unwrap_or_else(|why| panic!("{why} {when}"));
                        assert!(found || !is_append, "{when}");
                        if is_end && !killed {
                            same(&torn, &expected, when);
                        }
                        whole(&torn, items, is_append, is_computed);
                        same(&torn, &expected, when);
                    },
                );
                disk.catch_up();
                counts[1] += lines.iter().filter(|line| line.starts_with("sync")).count();
            }
            same(&here, &expected, "without a cut");
        }
    }
    eprintln!("{} cuts, {} syncs of files", counts[0], counts[1]);
}

/// What must not be taken for samples of the write that goes on stays removed: shards of files that were replaced, and those
/// of other images.
#[test]
fn after_a_power_cut_no_shard_comes_back_that_was_discarded() {
    for is_other in [false, true] {
        let stage = Stage::of(rss_testbed::Testbed::builder());
        let logs = tempfile::tempdir().unwrap();
        let mut dice = Dice(17);
        let mut names = ["a", "a"];
        names[1] = if is_other { "b" } else { "a" };
        let target = |name: &str| Target {
            stage: &stage,
            in_bucket: false,
            name: name.to_owned(),
        };
        let (expected, here, torn) = (target("whole"), target("disk/cube"), target("cut/cube"));
        let mut disk = Disk::new(&stage.path("disk"));
        let first = items(&stage, names[0], &[1, 2, 3, 4, 5]);
        let (_, lines) = traced(
            &disk,
            &logs,
            Some(60),
            &command(&here, &first, false, false),
        );
        lines.iter().for_each(|line| disk.apply(line));
        disk.catch_up();
        let second = items(&stage, names[1], &[6, 7, 8, 9, 10]);
        let again = |target: &Target<'_>| {
            let mut command = command(target, &second, false, false);
            command.args(is_other.then_some("--take-over"));
            command
        };
        whole(&expected, &second, false, false);
        let expected = expected.objects();
        let (_, lines) = traced(&disk, &logs, None, &again(&here));
        assert!(
            lines
                .iter()
                .any(|line| line.contains("remove") && line.contains("/red/c/"))
        );
        let to = stage.path("cut");
        cut(&mut disk, &lines, Path::new(&to), &mut dice, |_, when| {
            let ran = Ran::of(again(&torn).output().unwrap());
            assert_eq!(ran.code, Some(0), "{when}: {ran:?}");
            same(&torn, &expected, when);
        });
        same(&here, &expected, "without a cut");
    }
}

#[test]
fn after_a_power_cut_a_file_is_the_old_or_the_new() {
    let stage = Stage::of(rss_testbed::Testbed::builder());
    let logs = tempfile::tempdir().unwrap();
    let mut dice = Dice(23);
    let all = items(&stage, "a", &[1, 2, 3, 4, 5, 6, 7]);
    let first = stage.path("a-first.json");
    let reduce: &[&str] = &[
        "apply", "--bands", "red", "--reduce", "max", "--raw", "--clock", "utc", "-q",
    ];
    let sample: &[&str] = &[
        "sample",
        "--bands",
        "red",
        "--raw",
        "--point",
        "148.12,-36.15",
        "--keep-outside",
        "-q",
    ];
    let mut ways = vec![
        ("max.tif", reduce),
        ("rows.csv", sample),
        ("rows.parquet", sample),
    ];
    if cfg!(feature = "index") {
        ways.push(("all.parquet", &["index", "build", "-q"]));
    }
    for (name, words) in ways {
        let make = |folder: &str, items: &str| {
            let mut command = stage.rss();
            let path = stage.path(&format!("{folder}/{name}"));
            command.args(words).args(["--items", items, "-o", &path]);
            command
        };
        let made = |folder: &str| fs::read(stage.path(&format!("{folder}/{name}"))).ok();
        let run = |folder: &str, items: &str| {
            let ran = Ran::of(make(folder, items).output().unwrap());
            assert_eq!(ran.code, Some(0), "{name}: {ran:?}");
            made(folder).unwrap()
        };
        fs::create_dir_all(stage.path("whole")).unwrap();
        let mut disk = Disk::new(&stage.path(&format!("disk-{name}")));
        let here = format!("disk-{name}");
        let mut old = None;
        for items in [&first, &all] {
            let new = run("whole", items);
            assert!(old.as_ref() != Some(&new), "{name}");
            let (_, lines) = traced(&disk, &logs, None, &make(&here, items));
            let to = stage.path("cut");
            cut(
                &mut disk,
                &lines,
                Path::new(&to),
                &mut dice,
                |is_end, when| {
                    let found = made("cut");
                    assert!(
                        found.as_ref() == Some(&new) || (found == old && !is_end),
                        "{name} {when}"
                    );
                    assert!(run("cut", items) == new, "{name} {when}");
                },
            );
            assert!(made(&here).as_ref() == Some(&new), "{name}");
            old = Some(new);
        }
    }
}
