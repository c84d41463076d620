//! Any bytes as an array and its first object, or as a group with consolidated metadata: opened and read through the
//! public calls.
//!
//! The input is the length of `zarr.json` (two bytes, the lower first), `zarr.json`, and the object. Of a group the
//! object is the first of each of some arrays.

#![no_main]

use std::{fs, path::Path, sync::LazyLock};

use libfuzzer_sys::fuzz_target;
use rss_core::{Complex, DataType, Location, OpenArray, Sample, Session};
use tempfile::TempDir;

static SESSION: LazyLock<Session> = LazyLock::new(|| {
    let builder = Session::builder().read_bytes(16 << 20).cpu_threads(1);
    builder.build().expect("a session")
});
static FOLDER: LazyLock<TempDir> = LazyLock::new(|| tempfile::tempdir().expect("a folder"));
/// Where the first object of an array of so many axes lies.
const OBJECTS: [&str; 5] = ["c", "c/0", "c/0/0", "c/0/0/0", "c/0/0/0/0"];
/// Where those of the arrays of a group lie.
const OF_GROUP: [&str; 6] = [
    "x/c/0", "y/c/0", "time/c/0", "band/c/0", "a/c/0/0", "spatial_ref/c",
];

fuzz_target!(|input: &[u8]| {
    let Some((length, rest)) = input.split_first_chunk::<2>() else {
        return;
    };
    let Some((document, object)) = rest.split_at_checked(u16::from_le_bytes(*length).into()) else {
        return;
    };
    let folder = FOLDER.path();
    fs::write(folder.join("zarr.json"), document).expect("room for the file");
    let location = Location::Local(folder.to_owned());
    let Ok(array) = SESSION.open_array(&location) else {
        for key in OF_GROUP {
            put(folder, key, object);
        }
        if let Ok(cube) = SESSION.open_cube(&location) {
            for band in cube.cube().bands() {
                for level in cube.cube().levels_of(&band.name) {
                    let _ = cube.read_raster(&band.name, 0..1, None, level);
                }
            }
        }
        return;
    };
    let Some(key) = OBJECTS.get(array.array().shape().len()) else {
        return;
    };
    let _ = fs::remove_dir_all(folder.join("c"));
    let _ = fs::remove_file(folder.join("c"));
    put(folder, key, object);
    match array.array().dtype() {
        DataType::U8 => read::<u8>(&array),
        DataType::I8 => read::<i8>(&array),
        DataType::U16 => read::<u16>(&array),
        DataType::I16 => read::<i16>(&array),
        DataType::U32 => read::<u32>(&array),
        DataType::I32 => read::<i32>(&array),
        DataType::U64 => read::<u64>(&array),
        DataType::I64 => read::<i64>(&array),
        DataType::F32 => read::<f32>(&array),
        DataType::F64 => read::<f64>(&array),
        DataType::C64 => read::<Complex<f32>>(&array),
        _ => read::<Complex<f64>>(&array),
    }
});

fn put(folder: &Path, key: &str, object: &[u8]) {
    let path = folder.join(key);
    fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
    fs::write(path, object).expect("room for the file");
}

fn read<T: Sample + Send + Sync + 'static>(array: &OpenArray) {
    let shape = array.array().shape();
    let whole: Vec<_> = shape.iter().map(|&length| 0..length).collect();
    let _ = array.read::<T>(&whole);
    let part: Vec<_> = shape.iter().map(|&length| length / 3..length).collect();
    let _ = array.read::<T>(&part);
}
