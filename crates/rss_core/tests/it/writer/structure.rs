//! How the bytes of a file lie: what GDAL's `validate_cloud_optimized_geotiff` asks for, and that no byte is
//! lost between the tiles. The TIFF is read here, by the specification alone.

use std::{collections::BTreeMap, ops::Range, path::Path, process::Command};

use rss_core::{
    DataType, Resampling,
    writer::{CogOptions, CogReport, Compression, Overviews},
};

use super::{grid, local, raster, samples, session};

/// One directory of a TIFF.
#[derive(Debug)]
pub(super) struct Directory {
    at: u64,
    values: BTreeMap<u16, Vec<u64>>,
    /// What of the file its values take, but for those in the directory itself.
    apart: Vec<Range<u64>>,
    end: u64,
}

impl Directory {
    fn one(&self, tag: u16) -> u64 {
        self.values[&tag][0]
    }

    fn size(&self) -> [u64; 2] {
        [self.one(256), self.one(257)]
    }

    /// Where the tiles lie that are stored, in the order of the table.
    pub(super) fn tiles(&self) -> Vec<Range<u64>> {
        let tiles = self.values[&324].iter().zip(&self.values[&325]);
        tiles
            .filter(|&(&at, &length)| {
                assert_eq!(at == 0, length == 0, "half a tile");
                length > 0
            })
            .map(|(&at, &length)| at..at + length)
            .collect()
    }
}

fn number(bytes: &[u8], at: u64, size: usize) -> u64 {
    let at = usize::try_from(at).unwrap();
    let mut number = [0; 8];
    number[..size].copy_from_slice(&bytes[at..at + size]);
    u64::from_le_bytes(number)
}

/// Reads the directories of a little-endian TIFF.
pub(super) fn directories(bytes: &[u8]) -> Vec<Directory> {
    let is_big = match &bytes[..4] {
        b"II\x2a\0" => false,
        b"II\x2b\0" => true,
        other => panic!("{other:?}"),
    };
    let (offset, count, entry) = if is_big { (8, 8, 20) } else { (4, 2, 12) };
    let mut at = number(bytes, if is_big { 8 } else { 4 }, offset);
    let mut found = Vec::new();
    while at != 0 {
        let entries = number(bytes, at, count);
        let (mut values, mut apart) = (BTreeMap::new(), Vec::new());
        let mut last = 0;
        for index in 0..entries {
            let start = at + count as u64 + index * entry;
            let tag = u16::try_from(number(bytes, start, 2)).unwrap();
            assert!(tag > last, "tag {tag} after {last}");
            last = tag;
            let size = match number(bytes, start + 2, 2) {
                2 => 1,
                3 => 2,
                4 => 4,
                12 | 16 => 8,
                other => panic!("tag {tag} of type {other}"),
            };
            let length = number(bytes, start + 4, offset);
            let mut place = start + 4 + offset as u64;
            if length * size as u64 > offset as u64 {
                place = number(bytes, place, offset);
                assert_eq!(place % 2, 0, "tag {tag} at an odd place");
                apart.push(place..place + length * size as u64);
            }
            let all = (0..length).map(|index| number(bytes, place + index * size as u64, size));
            values.insert(tag, all.collect::<Vec<_>>());
        }
        let next = at + count as u64 + entries * entry;
        found.push(Directory {
            at,
            values,
            apart,
            end: next + offset as u64,
        });
        at = number(bytes, next, offset);
    }
    found
}

/// Checks that a file is laid out as a COG, and is what the report says.
pub(super) fn check(bytes: &[u8], report: &CogReport) -> Vec<Directory> {
    let found = directories(bytes);
    let first = if report.is_bigtiff { 16 } else { 8 };
    assert_eq!(
        found[0].at, first,
        "the first directory follows the first bytes"
    );
    assert!(
        found.is_sorted_by(|a, b| a.at < b.at),
        "directories in order"
    );
    assert_eq!(bytes.len() as u64, report.bytes);

    for (level, directory) in found.iter().enumerate() {
        assert_eq!(directory.one(254), u64::from(level > 0));
        assert_eq!(directory.one(322) % 16, 0);
        assert_eq!(directory.one(322), directory.one(323));
        let side = directory.one(322);
        let [width, height] = directory.size();
        let tiles = width.div_ceil(side) * height.div_ceil(side) * directory.one(277);
        assert_eq!(directory.values[&324].len() as u64, tiles);
        let itself = directory.at..directory.end;
        let all = directory.apart.iter().chain(std::iter::once(&itself));
        for part in all {
            assert!(part.end <= report.header_bytes, "{part:?} of level {level}");
        }
    }
    let overviews: Vec<_> = found[1..].iter().map(Directory::size).collect();
    let said: Vec<_> = report
        .overviews
        .iter()
        .map(|size| [u64::from(size.width), u64::from(size.height)])
        .collect();
    assert_eq!(overviews, said);
    let all: u64 = found.iter().map(|one| one.values[&324].len() as u64).sum();
    assert_eq!(all, report.tiles);

    // The first tile of a level comes after that of the next smaller one.
    let starts = found
        .iter()
        .filter_map(|one| Some(one.tiles().first()?.start));
    let starts: Vec<u64> = starts.collect();
    assert!(starts.is_sorted_by(|a, b| a > b), "{starts:?}");
    // Overviews lie in one piece each, in the order of their tables, band by band at each place.
    for directory in &found[1..] {
        let mut tiles = directory.tiles();
        tiles.sort_by_key(|tile| tile.start);
        assert!(tiles.is_sorted_by(|a, b| a.end == b.start), "{tiles:?}");
    }
    // Tiles fill the file, without missing_inputs and without overlaps.
    let mut tiles: Vec<_> = found.iter().flat_map(Directory::tiles).collect();
    tiles.sort_by_key(|tile| tile.start);
    assert_eq!(tiles.len() as u64, report.tiles - report.sparse);
    let mut end = report.header_bytes;
    for tile in tiles {
        assert_eq!(tile.start, end);
        end = tile.end;
    }
    assert_eq!(end, report.bytes);
    found
}

#[test]
fn files_are_laid_out_as_cogs() {
    let dir = tempfile::tempdir().unwrap();
    let session = session();
    let path = dir.path().join("a.tif");
    let count = |count| {
        CogOptions::new()
            .with_tile(64)
            .with_overviews(count, Resampling::Nearest)
    };
    for (width, height, bands, options, levels) in [
        (1, 1, 1, CogOptions::new(), 1),
        (513, 511, 1, CogOptions::new(), 2),
        (513, 511, 3, CogOptions::new(), 2),
        (1000, 700, 1, count(Overviews::Auto), 5),
        (1000, 700, 2, count(Overviews::None), 1),
        (100, 70, 2, count(Overviews::Count(7)), 8),
        (1000, 64, 1, count(Overviews::Auto).with_sparse(), 5),
    ] {
        let raster = raster(DataType::I16, bands, width, height);
        let report = session.save_cog(&local(&path), &raster, &options).unwrap();
        let found = check(&std::fs::read(&path).unwrap(), &report);
        assert_eq!(found.len(), levels, "{width} x {height} x {bands}");
        // One band is chunky by its nature.
        assert_eq!(found[0].one(284), if bands == 1 { 1 } else { 2 });
    }
}

/// The first stored tile comes last, also where it is not the first of all.
#[test]
fn sparse_tiles_are_not_stored() {
    let dir = tempfile::tempdir().unwrap();
    let (session, path) = (session(), dir.path().join("a.tif"));
    let mut pixels = samples(2, 320, 200);
    // The first band starts with tiles without data; the second one has none with data.
    pixels.slice_mut(ndarray::s![0, ..64, ..200]).fill(77);
    pixels.slice_mut(ndarray::s![1, .., ..]).fill(77);
    let raster = rss_core::Raster {
        pixels: rss_core::Pixels::I16(pixels.clone()),
        geobox: grid(320, 200),
        nodata: Some(77.0.into()),
        sparse: Vec::new(),
    };
    let options = CogOptions::new().with_tile(64);
    let whole = session.save_cog(&local(&path), &raster, &options).unwrap();
    assert_eq!(whole.sparse, 0);
    let options = options.with_sparse();
    let report = session.save_cog(&local(&path), &raster, &options).unwrap();
    // Of full resolution 3 and 20 tiles; of the overviews, those of the second band.
    assert_eq!(report.sparse, 3 + 20 + 6 + 2 + 1);
    assert!(report.bytes < whole.bytes);
    check(&std::fs::read(&path).unwrap(), &report);
    let read = session
        .open(&local(&path), rss_core::Backend::Cog)
        .unwrap()
        .read(&rss_core::ReadRequest::new())
        .unwrap();
    assert!(read.pixels == raster.pixels);
    assert_eq!(read.sparse.len(), 23);
}

#[test]
fn a_bigtiff_has_the_same_layout() {
    let dir = tempfile::tempdir().unwrap();
    let (session, path) = (session(), dir.path().join("a.tif"));
    // So large tiles that the file might pass 4 GiB. All but one are left out.
    let bands = 130;
    let options = CogOptions::new()
        .with_tile(2048)
        .with_compression(Compression::Zstd(1))
        .with_sparse();
    let mut samples = ndarray::Array3::zeros((bands, 40, 40));
    samples.index_axis_mut(ndarray::Axis(0), 129).fill(4096.5);
    let raster = rss_core::Raster {
        pixels: rss_core::Pixels::F64(samples),
        geobox: grid(40, 40),
        nodata: None,
        sparse: Vec::new(),
    };
    let report = session.save_cog(&local(&path), &raster, &options).unwrap();
    assert!(report.is_bigtiff);
    assert_eq!(report.sparse, 129);
    check(&std::fs::read(&path).unwrap(), &report);
    let read = session
        .open(&local(&path), rss_core::Backend::Cog)
        .unwrap()
        .read(&rss_core::ReadRequest::new())
        .unwrap();
    assert!(read.pixels == raster.pixels);
    let last = ["-valonly", "-b", "130", path.to_str().unwrap(), "39", "39"];
    if let Some(done) = super::gdal("gdallocationinfo", &last) {
        assert_eq!(String::from_utf8_lossy(&done.stdout).trim(), "4096.5");
    }
}

/// Runs the validators of others on files of ours.
#[test]
fn validators_of_others_accept_the_files() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let dir = tempfile::tempdir().unwrap();
    let session = session();
    let mut paths = Vec::new();
    let small = || CogOptions::new().with_tile(128);
    for (name, bands, options) in [
        ("one", 1, CogOptions::new()),
        ("three", 3, small().with_compression(Compression::Zstd(3))),
        ("sparse", 2, small().with_sparse()),
    ] {
        let path = dir.path().join(format!("{name}.tif"));
        let mut raster = raster(DataType::I16, bands, 1300, 900);
        if name == "sparse"
            && let rss_core::Pixels::I16(samples) = &mut raster.pixels
        {
            samples.slice_mut(ndarray::s![.., ..300, ..]).fill(77);
        }
        session.save_cog(&local(&path), &raster, &options).unwrap();
        paths.push(path);
    }
    let run = |arguments: &[&str]| {
        let mut command = Command::new(root.join("scripts/python-env"));
        command.arg("--if-there").args(arguments);
        command.stdin(std::process::Stdio::null()).output()
    };
    match run(&["-c", "import rio_cogeo"]) {
        Ok(done) if done.status.success() => {}
        other => {
            let why = other.map(|done| String::from_utf8_lossy(&done.stderr).into_owned());
            assert!(
                std::env::var_os("CI").is_none(),
                "CI needs the Python environment: {why:?}"
            );
            eprintln!("skipped: no Python environment to validate with: {why:?}");
            return;
        }
    }
    let script = root.join("scripts/check_cog.py");
    let mut arguments = vec![script.to_str().unwrap()];
    arguments.extend(paths.iter().map(|path| path.to_str().unwrap()));
    let done = run(&arguments).unwrap();
    let text = String::from_utf8_lossy(&done.stdout);
    let err = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{text}\n{err}");
    println!("{text}");
}
