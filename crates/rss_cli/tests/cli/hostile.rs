//! Every fault of a server on every command that reads the network: the right bytes or an error, in time, in bounds.
//!
//! A part of all pairs of fault and command runs with the tests; `scripts/faults` runs all, and makes a table of them.

use std::{
    fs,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use rss_testbed::{BUCKET, Band, Fault, Rule, Service};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::stage::{CANARY, Ran, Stage, files, memory_of};

/// No run takes more memory, whatever the server sends.
const MOST_BYTES: u64 = 512 << 20;
/// Runs end by their own limits long before.
const MOST_TIME: Duration = Duration::from_secs(90);
/// How long an outage is waited for.
const RETRY_FOR: &str = "1s";

/// A fault by its name.
const OTHER_LENGTH: &str = "a range of an object of another length";

struct Deed {
    name: &'static str,
    service: Service,
    args: fn(&Stage) -> Vec<String>,
}

fn red(stage: &Stage) -> String {
    format!("s3://{BUCKET}/{}", stage.bed.scenes()[0].key(Band::Red))
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// The commands; each writes what it makes to the folder `made`.
const DEEDS: &[Deed] = &[
    Deed {
        name: "search",
        service: Service::Stac,
        args: |stage| {
            words(&format!(
                "search {} sentinel2 --like dea --scene 56jns --json",
                stage.bed.stac_url()
            ))
        },
    },
    Deed {
        name: "info",
        service: Service::S3,
        args: |stage| words(&format!("info {} --json", red(stage))),
    },
    Deed {
        name: "read",
        service: Service::S3,
        args: |stage| {
            words(&format!(
                "read {} --window 500,500,100,100 -o made/out.npy",
                red(stage)
            ))
        },
    },
    #[cfg(feature = "gdal")]
    Deed {
        name: "read by GDAL",
        service: Service::S3,
        args: |stage| {
            let red = red(stage);
            words(&format!(
                "read {red} --window 500,500,100,100 --backend gdal -o made/out.npy"
            ))
        },
    },
    Deed {
        name: "get --mode copy",
        service: Service::S3,
        args: |_| words("get --items items.json --to made --mode copy"),
    },
    #[cfg(feature = "gdal")]
    Deed {
        name: "get --mode translate",
        service: Service::S3,
        args: |_| words("get --items items.json --to made --mode translate"),
    },
    Deed {
        name: "gather",
        service: Service::S3,
        args: |_| words("gather list.txt -o made/tiles.npy"),
    },
    Deed {
        name: "apply",
        service: Service::S3,
        args: |_| words("apply --items items.json --raw --reduce max -o made/max.npy"),
    },
    Deed {
        name: "sample",
        service: Service::S3,
        args: |_| words("sample --items items.json --raw --point 153.05,-25.38 -o made/table.csv"),
    },
    #[cfg(feature = "zarr")]
    Deed {
        name: "zarr write",
        service: Service::S3,
        args: |_| words("zarr write --items items.json --to made/cube.zarr"),
    },
    #[cfg(feature = "index")]
    Deed {
        name: "index build",
        service: Service::S3,
        args: |_| words("index build list.txt -o made/index.parquet"),
    },
];

/// The faults, by the name that the table has.
fn faults(service: Service) -> Vec<(&'static str, Fault)> {
    let all = [
        ("503", Fault::status(503)),
        ("429 with Retry-After", Fault::retry_after(429, 1)),
        (
            "Retry-After past all clocks",
            Fault::retry_after(503, u64::MAX),
        ),
        ("SlowDown of S3", Fault::slow_down()),
        ("500", Fault::status(500)),
        ("408", Fault::status(408)),
        ("403", Fault::status(403)),
        ("404", Fault::status(404)),
        ("no answer", Fault::Hang),
        ("silence in the body", Fault::HangInBody),
        ("a connection cut in the body", Fault::Cut),
        ("a byte now and then", Fault::Drip(20)),
        ("a page of HTML", Fault::Html),
        (
            "a redirect to nowhere",
            Fault::Redirect {
                code: 302,
                location: None,
                region: None,
            },
        ),
        (
            "a redirect to a file",
            Fault::Redirect {
                code: 302,
                location: Some("file:///etc/passwd".to_owned()),
                region: None,
            },
        ),
    ];
    let of_ranges = [
        ("a short body", Fault::Short),
        (
            "a range that starts late, as its header says",
            Fault::ShiftedHeader,
        ),
        (
            "bytes and header of a range that start late",
            Fault::ShiftedBody,
        ),
        (OTHER_LENGTH, Fault::Total(1000)),
        ("no Content-Range", Fault::NoContentRange),
        ("the whole object for a range", Fault::WholeObject),
        ("200 with an error of S3", Fault::ErrorInOk),
        ("more bytes than asked for", Fault::Longer),
        ("wrong bytes", Fault::Garbage),
        (
            "another object in its place",
            Fault::Replace(vec![7; 5000].into()),
        ),
    ];
    let more = (service == Service::S3)
        .then_some(of_ranges)
        .into_iter()
        .flatten();
    all.into_iter().chain(more).collect()
}

fn prepare() -> Stage {
    let stage = Stage::new();
    let scenes = stage.bed.scenes();
    let list: Vec<String> = scenes
        .iter()
        .map(|scene| format!("s3://{BUCKET}/{}", scene.key(Band::Red)))
        .collect();
    let features: Vec<Value> = scenes
        .iter()
        .zip(&list)
        .take(2)
        .map(|(scene, href)| {
            json!({
                "type": "Feature", "stac_version": "1.1.0", "id": scene.id, "links": [],
                "geometry": scene.item["geometry"], "bbox": scene.item["bbox"],
                "properties": {"datetime": scene.item["properties"]["datetime"]},
                "assets": {"red": {
                    "href": href, "type": "image/tiff; application=geotiff",
                    "file:checksum": checksum(&stage, scene.key(Band::Red)),
                }},
            })
        })
        .collect();
    let items = json!({"type": "FeatureCollection", "features": features});
    stage.write("items.json", items.to_string());
    stage.write("list.txt", list.join("\n"));
    stage
}

/// Returns the multihash of an object: SHA-256, 32 bytes.
fn checksum(stage: &Stage, key: &str) -> String {
    let object = stage.bed.object(BUCKET, key).unwrap();
    let digest = Sha256::digest(&object);
    digest
        .iter()
        .fold("1220".to_owned(), |text, byte| format!("{text}{byte:02x}"))
}

/// How a run ended, and what it made: names and bytes, without those that tell the time.
struct Outcome {
    ran: Ran,
    made: Vec<(PathBuf, Vec<u8>)>,
}

/// Runs a command with an empty cache, in time and in bounds.
fn run(stage: &Stage, deed: &Deed) -> Outcome {
    let made = stage.dir.path().join("made");
    for folder in [&made, &stage.cache()] {
        if folder.exists() {
            fs::remove_dir_all(folder).unwrap();
        }
    }
    fs::create_dir(&made).unwrap();
    let limits = ["--retry-for", RETRY_FOR, "--timeout", "60s"];
    let mut command = stage.rss();
    command
        .args((deed.args)(stage))
        .args(limits)
        .env("AWS_ACCESS_KEY_ID", "anybody")
        .env("AWS_SECRET_ACCESS_KEY", CANARY);
    let mut child = command.spawn().unwrap();
    let begun = Instant::now();
    let mut most = 0;
    while child.try_wait().unwrap().is_none() {
        most = most.max(memory_of(&child, "VmHWM:").unwrap_or(0));
        if begun.elapsed() > MOST_TIME {
            child.kill().unwrap();
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    assert!(begun.elapsed() < MOST_TIME, "{} does not end", deed.name);
    assert!(most < MOST_BYTES, "{} took {most} bytes", deed.name);
    let ran = Ran::of(child.wait_with_output().unwrap());
    assert!(
        !ran.stderr.contains(CANARY)
            && !ran
                .stdout
                .windows(CANARY.len())
                .any(|part| part == CANARY.as_bytes())
    );
    let made = files(&made)
        .into_iter()
        .filter(|path| path.is_file())
        .map(|path| (path.clone(), fs::read(path).unwrap()))
        .collect();
    Outcome { ran, made }
}

/// Returns what a table says of an outcome.
///
/// # Panics
///
/// If it is neither the right bytes nor an error that leaves nothing.
fn word(outcome: &Outcome, right: &Outcome, what: &str) -> String {
    let Outcome { ran, made } = outcome;
    match ran.code {
        Some(0) => {
            // What makes files prints how long that took.
            if right.made.is_empty() {
                assert_eq!(ran.stdout, right.ran.stdout, "{what}");
            }
            let names = |made: &[(PathBuf, Vec<u8>)]| -> Vec<PathBuf> {
                made.iter().map(|(path, _)| path.clone()).collect()
            };
            assert_eq!(names(made), names(&right.made), "{what}");
            for ((path, bytes), (_, expected)) in made.iter().zip(&right.made) {
                let is_same = bytes == expected || is_timed(path) || tells_lengths(path, what);
                assert!(is_same, "{what}: {} differs", path.display());
            }
            "right".to_owned()
        }
        // Done in part: what is missing is said, and what is there is right.
        Some(3) => {
            assert!(!ran.stderr.is_empty(), "{what}");
            "part".to_owned()
        }
        Some(code @ (2 | 75)) => {
            assert!(ran.stderr.starts_with("rss: "), "{what}: {}", ran.stderr);
            // What goes on from where it was is no half output.
            let left: Vec<&PathBuf> = made
                .iter()
                .map(|(path, _)| path)
                .filter(|path| !is_kept(path))
                .collect();
            let whole = left.iter().all(|path| {
                right.made.iter().any(|(other, bytes)| {
                    other == *path && fs::read(path).is_ok_and(|here| here == *bytes)
                })
            });
            assert!(whole, "{what}: {left:?} is half written");
            format!("error {code}")
        }
        other => unreachable!("{what}: exit {other:?}, {}", ran.stderr),
    }
}

/// Returns true for files that hold the time when they were made.
fn is_timed(path: &Path) -> bool {
    path.ends_with("zarr.json") || path.extension().is_some_and(|ending| ending == "parquet")
}

/// Returns true for what records the lengths of objects, where a server states wrong ones.
fn tells_lengths(path: &Path, what: &str) -> bool {
    what.contains(OTHER_LENGTH) && path.to_string_lossy().contains("cube.zarr/.rss/")
}

/// Returns true for what a command that failed keeps: a write that goes on, and an index of the files that could be read.
fn is_kept(path: &Path) -> bool {
    let text = path.to_string_lossy();
    ["cube.zarr", ".part", "index.parquet"]
        .iter()
        .any(|part| text.contains(part))
}

/// Runs one command with one fault: once, in the middle of its requests, and for ever.
fn cell(stage: &Stage, deed: &Deed, fault: &Fault, name: &str) -> [String; 2] {
    stage.bed.clear_faults();
    stage.bed.clear_log();
    let right = run(stage, deed);
    assert_eq!(
        right.ran.code,
        Some(0),
        "{}: {}",
        deed.name,
        right.ran.stderr
    );
    let asked = stage.bed.requests(deed.service).len() as u64;
    [(asked / 2, 1), (0, u64::MAX)].map(|(skip, times)| {
        // An object that was replaced stays so for the testbed's other answers: a stage of its own.
        let fresh;
        let stage = match fault {
            Fault::Replace(_) => {
                fresh = prepare();
                &fresh
            }
            _ => stage,
        };
        stage.bed.clear_faults();
        stage.bed.fault(
            Rule::new(fault.clone())
                .on(deed.service)
                .skip(skip)
                .times(times),
        );
        let what = format!("{}, {name}, {times} times", deed.name);
        word(&run(stage, deed), &right, &what)
    })
}

/// Returns the table: a row for each fault, a column for each command. Most of a run is waiting: commands run beside each
/// other, each against a testbed of its own.
fn table(takes: impl Fn(&str, usize, usize) -> bool + Sync) -> Vec<(String, String, [String; 2])> {
    let takes = &takes;
    let column = |(column, deed): (usize, &'static Deed)| {
        let chosen = faults(deed.service).into_iter().enumerate();
        let chosen = chosen.filter(|(row, (name, _))| takes(name, *row, column));
        let stage = prepare();
        let cells = chosen.map(|(_, (name, fault))| {
            if std::env::var_os("RSS_FAULTS").is_some() {
                eprintln!("{}: {name}", deed.name);
            }
            let words = cell(&stage, deed, &fault, name);
            (name.to_owned(), deed.name.to_owned(), words)
        });
        cells.collect::<Vec<_>>()
    };
    thread::scope(|scope| {
        let columns = DEEDS.iter().enumerate();
        let columns: Vec<_> = columns
            .map(|one| scope.spawn(move || column(one)))
            .collect();
        let columns = columns.into_iter();
        columns.flat_map(|column| column.join().unwrap()).collect()
    })
}

/// Faults that are found by waiting.
const SLOW: [&str; 3] = ["no answer", "silence in the body", "a byte now and then"];

#[test]
fn a_fault_gives_the_right_bytes_or_an_error_in_time_and_in_bounds() {
    let all = std::env::var_os("RSS_FAULTS").is_some();
    let cells =
        table(|name, row, column| all || (row + 5 * column) % 29 == 0 && !SLOW.contains(&name));
    if all {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/FAULTS.md");
        fs::write(page, rendered(&cells)).unwrap();
    }
    for (fault, deed, [once, _]) in &cells {
        assert!(
            comes_again(fault, deed) || once == "right",
            "{deed}, {fault}: {once}"
        );
    }
}

/// Returns true for what is an error although it happened once.
fn comes_again(fault: &str, deed: &str) -> bool {
    match fault {
        // An answer, and no fault of the way.
        "403" | "404" | "another object in its place" => true,
        "Retry-After past all clocks" | "a redirect to nowhere" | "a redirect to a file" => true,
        // What an address answers that is no API: said at once.
        "a page of HTML" => deed == "search",
        // GDAL fails where it decodes, far from the request.
        "wrong bytes" => matches!(deed, "read by GDAL" | "get --mode translate"),
        _ => false,
    }
}

/// Returns the page: a row for each fault, a column for each command.
fn rendered(cells: &[(String, String, [String; 2])]) -> String {
    let mut page = String::from(HEAD);
    let deeds: Vec<&str> = DEEDS.iter().map(|deed| deed.name).collect();
    page += &format!(
        "| fault | {} |\n|---|{}\n",
        deeds.join(" | "),
        "---|".repeat(deeds.len())
    );
    for (name, _) in faults(Service::S3) {
        let of = |deed: &&str| {
            let cell = cells
                .iter()
                .find(|(fault, other, _)| fault == name && other == *deed);
            cell.map_or_else(
                || "-".to_owned(),
                |(_, _, [once, always])| format!("{once}, {always}"),
            )
        };
        let row: Vec<String> = deeds.iter().map(of).collect();
        page += &format!("| {name} | {} |\n", row.join(" | "));
    }
    page
}

const HEAD: &str = "\
# Faults of servers, and what each command makes of them

Each command read from a server on loopback that did something wrong: once, in the middle of the command's requests, and
always. A cell has both outcomes. *right*: exit code 0, and the bytes of an undisturbed run. *part*: exit code 3, what is
missing is said. *error N*: that exit code with one line that names the place and what is wrong, and nothing half written.
Every run stayed below 512 MiB, ended by itself, and said no secret; an outage was waited for 1 s (`--retry-for`), a run
60 s (`--timeout`). The items state `file:checksum`: where a server says the same wrong length in its headers and its body,
nothing else tells a copy from the object. Errors although it happened once: what comes again by its own word, a page of HTML
in place of a catalogue, which is what an address answers that is no API, and wrong bytes where GDAL decodes them.

`scripts/faults` makes this page; a part of it is checked with the tests. docs/decisions/008-network.md says why.

";
