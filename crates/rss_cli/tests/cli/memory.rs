//! What a command takes of memory, beside the budget that it is given.

use serde_json::{Value, json};

use super::stage::{Ran, Stage, memory_of};

/// What a process takes that is given nothing to do, and more.
const BESIDE: u64 = 24_000_000;
/// A transform, in GDAL's order.
const PLACE: [f64; 6] = [300_000.0, 10.0, 0.0, 7_000_000.0, 0.0, -10.0];

/// A file of items, one for each of so many days: all of them are the same image.
fn items(stage: &Stage, path: &str, days: usize) -> String {
    let features: Vec<Value> = (0..days)
        .map(|day| {
            json!({
                "type": "Feature", "stac_version": "1.1.0", "id": format!("day-{day}"), "geometry": null,
                "links": [], "assets": {"red": {"href": path, "raster:bands": [{"nodata": -999, "scale": 2}]}},
                "properties": {"datetime": format!("2021-{:02}-{:02}T00:00:00Z", day / 28 + 1, day % 28 + 1)},
            })
        })
        .collect();
    let items = json!({"type": "FeatureCollection", "features": features}).to_string();
    stage.write("items.json", items)
}

/// Runs a command, and returns what it said and the most memory that it took, in bytes; 0 where that cannot be told.
fn run(stage: &Stage, args: &[&str]) -> (Value, u64) {
    let mut child = stage.rss().args(args).arg("--json").spawn().unwrap();
    let mut most = 0;
    while child.try_wait().unwrap().is_none() {
        most = most.max(memory_of(&child, "RssAnon:").unwrap_or(0));
        std::thread::yield_now();
    }
    (Ran::of(child.wait_with_output().unwrap()).json(), most)
}

/// Checks that a command took its budget, and little more.
fn check(most: u64, budget: u64) {
    if cfg!(target_os = "linux") {
        assert!(most > 50_000_000, "{most}");
        assert!(most < budget + BESIDE, "{most} bytes");
    }
}

#[cfg(feature = "zarr")]
#[test]
fn a_cube_of_2_gb_is_written_within_256_mb() {
    use rss_core::{Backend, Location, ReadRequest, Session, Window};

    const SIDE: u32 = 4096;
    const DATES: usize = 64;
    let stage = Stage::new();
    let path = stage.image("one.tif", SIDE, 32756, PLACE);
    let items = items(&stage, &path, DATES);
    let to = ["--to", "cube.zarr", "--codec", "blosc-lz4"];
    let write = ["zarr", "write", "--items", &items, "--budget", "256"];
    let (written, most) = run(&stage, &[&write[..], &to].concat());
    let bytes = u64::from(SIDE) * u64::from(SIDE) * 2 * DATES as u64;
    assert_eq!(written["bytes"], json!(bytes));
    assert!(bytes > 2_000_000_000);
    check(most, 256_000_000);
    let session = Session::builder().build().unwrap();
    let location = Location::parse(&path).unwrap();
    let window = Window {
        col: 1000,
        row: 3000,
        width: 50,
        height: 60,
    };
    let request = ReadRequest::new().with_window(window);
    let truth = session
        .open(&location, Backend::Cog)
        .unwrap()
        .read(&request)
        .unwrap();
    let read = [
        "zarr",
        "read",
        "cube.zarr",
        "--time",
        "63",
        "--window",
        "1000,3000,50,60",
        "-o",
        "-",
    ];
    let ran = stage.run(&read);
    assert_eq!(ran.stdout, truth.pixels.to_le_bytes(), "{ran:?}");
}

#[cfg(feature = "zarr")]
#[test]
fn a_computed_cube_is_written_within_its_budget() {
    const SIDE: u32 = 2560;
    const DATES: usize = 16;
    let stage = Stage::new();
    let path = stage.image("one.tif", SIDE, 32756, PLACE);
    let items = items(&stage, &path, DATES);
    let to = ["--to", "cube.zarr", "--codec", "blosc-lz4"];
    let how = ["--reflectance", "--resolution", "10", "--budget", "128"];
    let write = ["zarr", "write", "--items", &items];
    let (written, most) = run(&stage, &[&write[..], &to, &how].concat());
    let bytes = u64::from(SIDE) * u64::from(SIDE) * 4 * DATES as u64;
    assert_eq!(written["bytes"], json!(bytes));
    assert!(bytes > 400_000_000);
    check(most, 128_000_000);
}

#[test]
fn a_median_is_computed_within_its_budget() {
    const SIDE: u32 = 2048;
    const DATES: usize = 64;
    let stage = Stage::new();
    let path = stage.image("one.tif", SIDE, 32756, PLACE);
    let items = items(&stage, &path, DATES);
    // One block takes 112 MB of it; those that could be under way at once take 670 MB.
    let how = ["--by", "day", "--reduce", "median", "--raw"];
    let apply = ["apply", "--items", &items, "--budget", "128"];
    let to = ["-o", "median.tif"];
    let (said, most) = run(&stage, &[&apply[..], &how, &to].concat());
    assert_eq!(said["steps"].as_array().unwrap().len(), DATES);
    // And what the COG's writer holds: a row of tiles of each level, before and after they are compressed.
    check(most, 128_000_000 + 48_000_000);
    // The median of one image, again and again, is that image.
    let read = |name: &str| {
        let window = ["--window", "1000,1500,50,60", "-o", "-"];
        stage.run(&[&["read", name][..], &window].concat()).stdout
    };
    let (counts, medians) = (read("one.tif"), read("median.tif"));
    let (counts, _) = counts.as_chunks::<2>();
    let (medians, _) = medians.as_chunks::<4>();
    let counts = counts
        .iter()
        .map(|bytes| f32::from(i16::from_le_bytes(*bytes)));
    let medians = medians.iter().map(|bytes| f32::from_le_bytes(*bytes));
    assert_eq!(counts.len(), 50 * 60);
    assert!(counts.eq(medians));
}

#[test]
fn pixels_become_a_tiff_without_a_copy_of_them() {
    const SIDE: u32 = 6144;
    let stage = Stage::new();
    let path = stage.image("one.tif", SIDE, 32756, PLACE);
    let (said, most) = run(&stage, &["read", &path, "-o", "copy.tif"]);
    assert_eq!(said["width"], json!(SIDE));
    // And a strip, which is compressed.
    check(most, u64::from(SIDE) * u64::from(SIDE) * 2);
    let read = |name: &str| {
        let window = ["--window", "1000,5000,50,60", "-o", "-"];
        stage.run(&[&["read", name][..], &window].concat()).stdout
    };
    assert_eq!(read("copy.tif"), read(&path));
}
