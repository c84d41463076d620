//! Files of one asset that share a grid as one Zarr array with a time axis: `<asset>/<grid>/<level>`.
//!
//! Files share an array if their Zarr metadata is equal: size, dtype, compression, nodata, scale
//! and geotransform. Each asset has its own array, so that no array has a time step without a file.

use std::{collections::HashMap, io};

use chrono::{DateTime, Utc};
use serde_json::{Value, json};

use super::{
    Exported, Failed,
    references::References,
    unsupported,
    zarr::{self, FileArrays, LevelArray},
};
use crate::{error::Result, geo::GeoTransform, index::Indexed};

/// The longest id of an item, in characters: `item` is a fixed-length string array, padded to the longest id.
const MOST_LETTERS: usize = 1024;
/// The longest axis whose coordinates are written out.
const MOST_PIXELS: u32 = 1 << 24;

/// Files on one grid.
struct Cube {
    asset: String,
    files: Vec<Slice>,
}

/// A file, at its time.
struct Slice {
    time: DateTime<Utc>,
    item: String,
    url: String,
    levels: Vec<LevelArray>,
}

pub(super) fn write(
    files: impl Iterator<Item = Result<Indexed>>,
    refs: &mut dyn References,
) -> Result<Exported, Failed> {
    let mut exported = Exported::default();
    let mut cubes: Vec<Cube> = Vec::new();
    let mut numbers: HashMap<String, usize> = HashMap::new();
    for file in files {
        let file = file?;
        let slice = match slice(&file) {
            Ok((slice, bad)) => {
                exported.written += 1;
                for (level, err) in bad {
                    exported.leave_out(&file, Some(level), err);
                }
                slice
            }
            Err(err) => {
                exported.leave_out(&file, None, err);
                continue;
            }
        };
        let key = key(&file.asset, &slice.levels);
        let number = *numbers.entry(key).or_insert_with(|| {
            cubes.push(Cube {
                asset: file.asset.clone(),
                files: Vec::new(),
            });
            cubes.len() - 1
        });
        if let Some(cube) = cubes.get_mut(number) {
            cube.files.push(slice);
        }
    }
    refs.json(".zgroup", &zarr::zgroup())?;
    let mut grids: HashMap<&str, usize> = HashMap::new();
    for cube in &mut cubes {
        // A stable sort: at equal times the order of the index remains.
        cube.files.sort_by_key(|slice| slice.time);
    }
    for cube in &cubes {
        let asset = zarr::segment(&cube.asset);
        let grid = grids.entry(&cube.asset).or_default();
        if *grid == 0 {
            refs.json(&format!("{asset}/.zgroup"), &zarr::zgroup())?;
        }
        let group = format!("{asset}/{grid}");
        *grid += 1;
        refs.json(&format!("{group}/.zgroup"), &zarr::zgroup())?;
        refs.json(
            &format!("{group}/.zattrs"),
            &json!({"asset": cube.asset, "items": cube.files.len()}),
        )?;
        write_cube(refs, &group, cube)?;
    }
    Ok(exported)
}

/// Returns a file at its time, and the levels that Zarr cannot represent.
fn slice(file: &Indexed) -> Result<(Slice, Vec<(usize, crate::Error)>)> {
    let arrays = FileArrays::of(file)?;
    let time = file
        .datetime
        .ok_or_else(|| unsupported("its item has no time, and a cube needs one"))?;
    let letters = file.item.chars().count();
    if letters > MOST_LETTERS {
        return Err(unsupported(format!(
            "its id has {letters} characters, expected at most {MOST_LETTERS}"
        )));
    }
    let (mut levels, mut bad) = (Vec::new(), Vec::new());
    for (number, level) in arrays.levels.into_iter().enumerate() {
        match level {
            Ok(level) => levels.push(level),
            Err(err) => bad.push((number, err)),
        }
    }
    let slice = Slice {
        time,
        item: file.item.clone(),
        url: arrays.url,
        levels,
    };
    Ok((slice, bad))
}

/// Returns the metadata that all files of an array share, as the key of the array.
fn key(asset: &str, levels: &[LevelArray]) -> String {
    let said = levels.iter().map(|level| {
        json!([
            level.number,
            level.zarray(None),
            level.zattrs(None),
            level.grid
        ])
    });
    json!([asset, said.collect::<Value>()]).to_string()
}

fn write_cube(refs: &mut dyn References, group: &str, cube: &Cube) -> io::Result<()> {
    let Some(first) = cube.files.first() else {
        return Ok(());
    };
    for (place, level) in first.levels.iter().enumerate() {
        let group = format!("{group}/{}", level.number);
        refs.json(&format!("{group}/.zgroup"), &zarr::zgroup())?;
        zarr::write_grid(refs, &group, level)?;
        write_axes(refs, &group, cube, level)?;
        let array = format!("{group}/{}", zarr::name_of(&cube.asset));
        refs.json(
            &format!("{array}/.zarray"),
            &level.zarray(Some(cube.files.len())),
        )?;
        refs.json(&format!("{array}/.zattrs"), &level.zattrs(Some("item")))?;
        for (time, slice) in cube.files.iter().enumerate() {
            if let Some(level) = slice.levels.get(place) {
                zarr::write_chunks(refs, &format!("{array}/{time}."), &slice.url, level)?;
            }
        }
    }
    Ok(())
}

/// Writes the coordinates: `time`, `item` along it, and `x` and `y`, the centres of pixels, if the grid
/// is not rotated and not larger than real images.
fn write_axes(
    refs: &mut dyn References,
    group: &str,
    cube: &Cube,
    level: &LevelArray,
) -> io::Result<()> {
    let times = cube.files.iter().map(|slice| slice.time.timestamp_micros());
    let bytes: Vec<u8> = times.flat_map(i64::to_le_bytes).collect();
    let attributes = json!({
        "_ARRAY_DIMENSIONS": ["time"], "standard_name": "time", "calendar": "proleptic_gregorian",
        "units": "microseconds since 1970-01-01T00:00:00",
    });
    write_axis(
        refs,
        group,
        "time",
        "<i8",
        cube.files.len(),
        attributes,
        &bytes,
    )?;

    let items = cube.files.iter().map(|slice| slice.item.as_str());
    let width = items.clone().map(|item| item.chars().count()).max();
    let width = width.unwrap_or(0).max(1);
    let padded = items.flat_map(|item| item.chars().chain(std::iter::repeat('\0')).take(width));
    let bytes: Vec<u8> = padded.flat_map(|c| u32::from(c).to_le_bytes()).collect();
    let attributes = json!({"_ARRAY_DIMENSIONS": ["time"], "long_name": "id of the item"});
    let dtype = format!("<U{width}");
    write_axis(
        refs,
        group,
        "item",
        &dtype,
        cube.files.len(),
        attributes,
        &bytes,
    )?;

    let Some(transform) = level.transform.filter(GeoTransform::is_axis_aligned) else {
        return Ok(());
    };
    let size = level.size;
    if size.width.max(size.height) > MOST_PIXELS {
        return Ok(());
    }
    let xs = (0..size.width).map(|col| transform.apply(f64::from(col) + 0.5, 0.0)[0]);
    let ys = (0..size.height).map(|row| transform.apply(0.0, f64::from(row) + 0.5)[1]);
    let axes: [(&str, Vec<f64>); 2] = [("x", xs.collect()), ("y", ys.collect())];
    for (name, places) in axes {
        let bytes: Vec<u8> = places
            .iter()
            .flat_map(|place| place.to_le_bytes())
            .collect();
        let attributes = json!({"_ARRAY_DIMENSIONS": [name], "axis": name.to_uppercase()});
        write_axis(refs, group, name, "<f8", places.len(), attributes, &bytes)?;
    }
    Ok(())
}

fn write_axis(
    refs: &mut dyn References,
    group: &str,
    name: &str,
    dtype: &str,
    length: usize,
    attributes: Value,
    bytes: &[u8],
) -> io::Result<()> {
    refs.json(
        &format!("{group}/{name}/.zarray"),
        &json!({
            "zarr_format": 2, "shape": [length], "chunks": [length], "dtype": dtype, "order": "C",
            "compressor": null, "filters": null, "fill_value": null,
        }),
    )?;
    refs.json(&format!("{group}/{name}/.zattrs"), &attributes)?;
    refs.bytes(&format!("{group}/{name}/0"), bytes)
}
