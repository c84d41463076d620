//! Kills at random moments of a write, readers meanwhile, and races of two writers: in a folder and in a bucket.
//!
//! A few of each in the normal tests; `scripts/kills N` makes at least N kills, reads and races and prints the counts.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    process::{Child, Command},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use rss_core::{
    Crs, ErrorKind, GeoBox, GeoTransform, Location, Pixels, Raster, Session, Size,
    zarr::{Cube, PixelIndex},
};
use rss_testbed::Testbed;
use serde_json::json;

use super::stage::{Ran, Stage, files};

/// Dates of the first write, and of all.
const FIRST: usize = 5;
const ALL: usize = 9;
const SIDE: u32 = 192;
/// The variable that asks for many.
const LONG: &str = "RSS_KILLS";
/// What the kills of each way of writing may take in the short form.
const SHORT: Duration = Duration::from_secs(5);

/// Numbers that are the same in each run with the same seed.
pub(super) struct Dice(pub(super) u64);

impl Dice {
    pub(super) fn below(&mut self, most: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % most.max(1)
    }
}

/// A cube's location, and how others look at it.
pub(super) struct Target<'a> {
    pub(super) stage: &'a Stage,
    pub(super) in_bucket: bool,
    pub(super) name: String,
}

impl Target<'_> {
    pub(super) fn location(&self) -> String {
        match self.in_bucket {
            true => format!("s3://cubes/{}", self.name),
            false => self.stage.path(&self.name),
        }
    }

    /// Returns every object with its bytes, but for unfinished files and locks.
    pub(super) fn objects(&self) -> BTreeMap<String, Vec<u8>> {
        if self.in_bucket {
            let keys = self.stage.bed.keys("cubes", &format!("{}/", self.name));
            let object = |key: String| {
                let bytes = self.stage.bed.object("cubes", &key)?.to_vec();
                Some((key[self.name.len() + 1..].to_owned(), bytes))
            };
            return keys.into_iter().filter_map(object).collect();
        }
        let base = self.location();
        let object = |path: std::path::PathBuf| {
            let name = path.strip_prefix(&base).unwrap().to_str()?.to_owned();
            Some((name, fs::read(&path).ok()?))
        };
        files(Path::new(&base))
            .into_iter()
            .filter_map(object)
            .collect()
    }

    /// Returns true if a write has begun here, and has not ended.
    fn is_under_way(&self) -> bool {
        match self.in_bucket {
            true => {
                let key = format!("{}/.rss-write.json", self.name);
                self.stage.bed.object("cubes", &key).is_some()
            }
            false => Path::new(&self.location()).join(".rss-write.json").exists(),
        }
    }
}

/// Writes images of one value each, and the items of some of them.
pub(super) fn items(stage: &Stage, name: &str, values: &[i16]) -> String {
    let feature = |(number, &value): (usize, &i16)| {
        let file = format!("{name}-{number}.tif");
        let raster = Raster {
            pixels: Pixels::I16(ndarray_of(value)),
            geobox: GeoBox {
                size: Size {
                    width: SIDE,
                    height: SIDE,
                },
                crs: Some(Crs::Epsg(32755)),
                transform: Some(GeoTransform([6e5, 10.0, 0.0, 6e6, 0.0, -10.0])),
            },
            nodata: Some((-999.0).into()),
            sparse: Vec::new(),
        };
        raster.save(Path::new(&stage.path(&file))).unwrap();
        json!({
            "type": "Feature", "stac_version": "1.1.0", "id": format!("{name}-{number}"), "geometry": null,
            "links": [], "properties": {"datetime": format!("2021-01-{:02}T00:00:00Z", number + 1)},
            "assets": {"red": {"href": stage.path(&file), "roles": ["data"], "type": "image/tiff; application=geotiff"}}
        })
    };
    let features: Vec<_> = values.iter().enumerate().map(feature).collect();
    let all = |features: &[serde_json::Value]| {
        json!({"type": "FeatureCollection", "features": features}).to_string()
    };
    stage.write(
        &format!("{name}-first.json"),
        all(&features[..FIRST.min(features.len())]),
    );
    stage.write(&format!("{name}-all.json"), all(&features))
}

/// Samples that differ from pixel to pixel about a value.
fn ndarray_of(value: i16) -> ndarray::Array3<i16> {
    ndarray::Array3::from_shape_fn((1, SIDE as usize, SIDE as usize), |(_, row, col)| {
        value * 100 + i16::try_from((row * 7 + col * 3) % 50).unwrap()
    })
}

/// Returns the sample that a pixel of an image of a value has.
fn sample(value: i16, pixel: PixelIndex) -> i16 {
    value * 100 + i16::try_from((pixel.row * 7 + pixel.col * 3) % 50).unwrap()
}

fn write(target: &Target<'_>, items: &str, is_append: bool, is_computed: bool) -> Child {
    let mut command = command(target, items, is_append, is_computed);
    command.spawn().unwrap()
}

/// Returns the command that writes or appends to a cube.
pub(super) fn command(
    target: &Target<'_>,
    items: &str,
    is_append: bool,
    is_computed: bool,
) -> Command {
    let mut command = target.stage.rss();
    command.args(["zarr", "write", "--items", items, "--bands", "red", "-q"]);
    command.args(["--to", &target.location()]);
    if is_append {
        command.arg("--append");
    } else {
        command.args([
            "--shard",
            "4,64,64",
            "--chunk",
            "2,32,32",
            "--overviews",
            "1",
        ]);
    }
    if is_computed {
        command.args([
            "--crs",
            "32755",
            "--resolution",
            "10",
            "--resampling",
            "bilinear",
        ]);
    }
    command
}

fn done(child: Child) -> Ran {
    Ran::of(child.wait_with_output().unwrap())
}

/// What a run has counted.
#[derive(Debug, Default)]
struct Counts {
    kills: usize,
    reads: usize,
    races: usize,
}

/// Opens a cube again and again until it is told to stop, and checks what it finds.
struct Readers {
    stop: Arc<AtomicBool>,
    count: Arc<AtomicUsize>,
    wrong: Arc<Mutex<Vec<String>>>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Readers {
    fn start(bed: &Testbed, location: &str, values: &[i16]) -> Self {
        let (stop, count) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let wrong = Arc::<Mutex<Vec<String>>>::default();
        let thread = || {
            let session = Session::builder()
                .s3_endpoint(&bed.s3_endpoint())
                .cpu_threads(1);
            let session = session.build().unwrap();
            let location = Location::parse(location).unwrap();
            let (stop, count, wrong) = (Arc::clone(&stop), Arc::clone(&count), Arc::clone(&wrong));
            let values = values.to_vec();
            std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread();
                let runtime = { runtime }.enable_all().build().unwrap();
                while !stop.load(Ordering::Relaxed) {
                    match runtime.block_on(look(&session, &location, &values)) {
                        Ok(seen) => _ = count.fetch_add(usize::from(seen), Ordering::Relaxed),
                        Err(why) => wrong.lock().unwrap().push(why),
                    }
                }
            })
        };
        let threads = (0..2).map(|_| thread()).collect();
        Self {
            stop,
            count,
            wrong,
            threads,
        }
    }

    /// Returns how many cubes were read.
    fn end(self) -> usize {
        self.stop.store(true, Ordering::Relaxed);
        self.threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        let wrong = self.wrong.lock().unwrap();
        assert!(
            wrong.is_empty(),
            "{} readers failed: {:?}",
            wrong.len(),
            wrong.first()
        );
        self.count.load(Ordering::Relaxed)
    }
}

/// Reads a cube; false if there is none yet.
pub(super) async fn look(
    session: &Session,
    location: &Location,
    values: &[i16],
) -> Result<bool, String> {
    let cube = match Cube::open(session, location).await {
        Ok(cube) => cube,
        Err(err) if err.kind() == ErrorKind::NotFound => return Ok(false),
        Err(err) => return Err(format!("open: {err}")),
    };
    let steps = cube.steps().len();
    if ![FIRST, ALL].contains(&steps) {
        return Err(format!("{steps} time steps"));
    }
    let pixels = [
        PixelIndex { col: 3, row: 5 },
        PixelIndex { col: 190, row: 120 },
    ];
    let found = cube.read_series::<i16>("red", &pixels).await;
    let found = found.map_err(|err| format!("read: {err}"))?;
    for (pixel, series) in pixels.into_iter().zip(found.outer_iter()) {
        let expected = values.iter().take(steps).map(|&value| sample(value, pixel));
        if !series.iter().copied().eq(expected) {
            return Err(format!("{series} at {pixel:?}"));
        }
    }
    Ok(true)
}

/// Kills writes of one kind, and goes on with them, until there were enough.
fn kill(
    stage: &Stage,
    in_bucket: bool,
    is_computed: bool,
    enough: usize,
    dice: &mut Dice,
) -> Counts {
    let values: Vec<i16> = (1..=9).collect();
    let all = items(stage, "a", &values);
    let first = stage.path("a-first.json");
    let target = |name: String| Target {
        stage,
        in_bucket,
        name,
    };
    let kind = format!("{}-{}", u8::from(in_bucket), u8::from(is_computed));
    let whole = target(format!("whole-{kind}"));
    let mut took = [Duration::ZERO; 2];
    for (is_append, items) in [(false, &first), (true, &all)] {
        let start = Instant::now();
        let ran = done(write(&whole, items, is_append, is_computed));
        assert_eq!(ran.code, Some(0), "{ran:?}");
        took[usize::from(is_append)] = start.elapsed();
    }
    let expected = whole.objects();
    let mut counts = Counts::default();
    let begun = Instant::now();
    let is_long = std::env::var_os(LONG).is_some();
    let mut round = 0;
    while counts.kills < enough && (is_long || counts.kills == 0 || begun.elapsed() < SHORT) {
        round += 1;
        let torn = target(format!("torn-{kind}-{round}"));
        let readers = Readers::start(&stage.bed, &torn.location(), &values);
        for (is_append, items) in [(false, &first), (true, &all)] {
            for _ in 0..1 + dice.below(3) {
                let mut child = write(&torn, items, is_append, is_computed);
                // Two thirds of the kills once the write has begun to change something: before that is most of its time.
                let waits = dice.below(3) > 0;
                while waits && !torn.is_under_way() && child.try_wait().unwrap().is_none() {
                    std::thread::sleep(Duration::from_micros(200));
                }
                let most = took[usize::from(is_append)].as_micros() / if waits { 2 } else { 1 };
                let most = u64::try_from(most).unwrap();
                std::thread::sleep(Duration::from_micros(dice.below(most)));
                child.kill().unwrap();
                child.wait().unwrap();
                counts.kills += usize::from(torn.is_under_way());
            }
            let ran = done(write(&torn, items, is_append, is_computed));
            assert_eq!(ran.code, Some(0), "round {round}: {ran:?}");
        }
        counts.reads += readers.end();
        let found = torn.objects();
        let names =
            |objects: &BTreeMap<String, Vec<u8>>| objects.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&found), names(&expected), "round {round}");
        for (name, bytes) in &expected {
            assert!(found[name] == *bytes, "round {round}: {name}");
        }
        remove(&torn);
    }
    counts
}

fn remove(target: &Target<'_>) {
    if !target.in_bucket {
        fs::remove_dir_all(target.location()).unwrap();
    }
}

/// Starts two writers of other images at one cube, until there were enough races.
fn race(stage: &Stage, in_bucket: bool, enough: usize, dice: &mut Dice) -> Counts {
    let [one, two] = [vec![1, 2, 3, 4, 5], vec![6, 7, 8, 9, 10]];
    let both = [("a", &one), ("b", &two)].map(|(name, values)| items(stage, name, values));
    let mut counts = Counts::default();
    while counts.races < enough {
        let target = Target {
            stage,
            in_bucket,
            name: format!("race-{}", counts.races),
        };
        let writers = both.each_ref().map(|items| {
            std::thread::sleep(Duration::from_micros(dice.below(20_000)));
            write(&target, items, false, false)
        });
        let codes = writers.map(|writer| done(writer).code);
        let won = codes.iter().filter(|code| **code == Some(0)).count();
        assert_eq!(won, 1, "race {}: {codes:?}", counts.races);
        let values = match codes[0] {
            Some(0) => &one,
            _ => &two,
        };
        let session = Session::builder()
            .s3_endpoint(&stage.bed.s3_endpoint())
            .build()
            .unwrap();
        let location = Location::parse(&target.location()).unwrap();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let seen = runtime.block_on(look(&session, &location, values));
        assert_eq!(seen, Ok(true), "race {}", counts.races);
        counts.races += 1;
        remove(&target);
    }
    counts
}

/// Returns how many kills, reads and races are wanted of all kinds: few, or what `scripts/kills` asks for.
fn wanted(short: usize) -> usize {
    let long = std::env::var(LONG).ok();
    long.map_or(short, |count| count.parse().unwrap())
}

fn stage(in_bucket: bool) -> Stage {
    let mut bed = Testbed::builder();
    if in_bucket {
        bed = bed.latency(Duration::from_millis(30));
    }
    let stage = Stage::of(bed);
    stage.bed.add_bucket("cubes");
    stage
}

#[test]
fn a_killed_write_ends_with_the_same_bytes_and_readers_see_it_whole() {
    let enough = wanted(12).div_ceil(4);
    for in_bucket in [false, true] {
        let stage = stage(in_bucket);
        for is_computed in [false, true] {
            let mut dice = Dice(7 + u64::from(in_bucket) * 2 + u64::from(is_computed));
            let counts = kill(&stage, in_bucket, is_computed, enough, &mut dice);
            eprintln!("bucket {in_bucket}, computed {is_computed}: {counts:?}");
            assert!(counts.kills > 0);
        }
    }
}

#[test]
fn of_two_writers_of_one_cube_one_wins() {
    let enough = wanted(4).div_ceil(2);
    for in_bucket in [false, true] {
        let counts = race(&stage(in_bucket), in_bucket, enough, &mut Dice(11));
        eprintln!("bucket {in_bucket}: {counts:?}");
    }
}
