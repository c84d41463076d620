//! COGs that are written: what GDAL and the COG reader read of them, how they are laid out, and where they go.

#![expect(clippy::panic, reason = "a failed test panics")]

mod faults;
mod pixels;
mod places;
mod said;
mod structure;

use std::{
    path::Path,
    process::{Command, Output},
};

use ndarray::{Array3, s};
use rss_core::{
    Crs, DataType, GeoBox, GeoTransform, Location, Pixels, Raster, Session, Size, Window,
};

/// Runs a program of GDAL; none where it is not there, which CI does not allow.
fn gdal(program: &str, arguments: &[&str]) -> Option<Output> {
    let mut command = Command::new(program);
    // What was computed must not be kept beside the file.
    command.env("GDAL_PAM_ENABLED", "NO").args(arguments);
    match command.output() {
        Ok(done) => {
            let err = String::from_utf8_lossy(&done.stderr).into_owned();
            assert!(done.status.success(), "{program} {arguments:?}: {err}");
            // A warning is a fault of the file.
            assert_eq!(err, "", "{program} {arguments:?}");
            Some(done)
        }
        Err(err) => {
            assert!(
                std::env::var_os("CI").is_none(),
                "CI needs {program}: {err}"
            );
            eprintln!("skipped: no {program}: {err}");
            None
        }
    }
}

fn local(path: &Path) -> Location {
    Location::Local(path.to_owned())
}

fn session() -> Session {
    Session::builder().cpu_threads(3).build().unwrap()
}

fn grid(width: u32, height: u32) -> GeoBox {
    GeoBox {
        size: Size { width, height },
        crs: Some(Crs::Epsg(32_756)),
        transform: Some(GeoTransform([
            499_980.0,
            10.0,
            0.0,
            7_200_040.0,
            0.0,
            -10.0,
        ])),
    }
}

/// A number that belongs to a place: bits that look like chance.
fn noise(band: usize, row: usize, col: usize) -> u64 {
    let mut bits = (band as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        ^ (row as u64).wrapping_mul(0xc2b2_ae3d_27d4_eb4f)
        ^ (col as u64).wrapping_mul(0x1656_67b1_9e37_79f9);
    bits ^= bits >> 29;
    bits = bits.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits ^ (bits >> 32)
}

/// The nodata of [`value`].
const NODATA: f64 = 77.0;

/// Slopes with grain, from 0 to 120, with patches and single pixels of nodata.
fn value(band: usize, row: usize, col: usize) -> u8 {
    let noise = noise(band, row, col);
    if noise.is_multiple_of(11) || (row / 40 + col / 50 + band).is_multiple_of(9) {
        return 77;
    }
    let slope = (row / 8 + col / 5 + band * 10) % 110;
    u8::try_from(slope as u64 + noise % 9).unwrap()
}

/// Returns pixels of a type: of each its numbers, wider than a byte where it is.
fn pixels(dtype: DataType, bands: usize, width: u32, height: u32) -> Pixels {
    let shape = (bands, height as usize, width as usize);
    macro_rules! of {
        ($variant:ident, $number:ident => $sample:expr) => {
            Pixels::$variant(Array3::from_shape_fn(shape, |(band, row, col)| {
                let $number = value(band, row, col);
                $sample
            }))
        };
    }
    // Nodata stays what it is in every type.
    let signed = |number: u8| match number {
        77 => 77_i64,
        number => i64::from(number) - 60,
    };
    let wide = |number: u8, factor: i64| match signed(number) {
        77 => 77,
        number => number * factor + i64::from(number % 3 == 1),
    };
    match dtype {
        DataType::U8 => of!(U8, n => n),
        DataType::I8 => of!(I8, n => i8::try_from(signed(n)).unwrap()),
        DataType::U16 => of!(U16, n => if n == 77 { 77 } else { u16::from(n) * 500 + 3 }),
        DataType::I16 => of!(I16, n => i16::try_from(wide(n, 300)).unwrap()),
        DataType::U32 => of!(U32, n => if n == 77 { 77 } else { u32::from(n) * 30_000_001 }),
        DataType::I32 => of!(I32, n => i32::try_from(wide(n, 30_000_001)).unwrap()),
        DataType::U64 => {
            of!(U64, n => if n == 77 { 77 } else { u64::from(n) * 7_000_000_000_001 })
        }
        DataType::I64 => of!(I64, n => wide(n, 7_000_000_000_001)),
        DataType::F32 => of!(F32, n => if n == 77 { 77.0 } else { f32::from(n) / 3.0 - 11.1 }),
        DataType::F64 => of!(F64, n => if n == 77 { 77.0 } else { f64::from(n) / 4.0 - 1e6 }),
        DataType::C64 => of!(C64, n => rss_core::Complex::new(f32::from(n), -0.5)),
        DataType::C128 => of!(C128, n => rss_core::Complex::new(f64::from(n), 1e-9)),
    }
}

fn raster(dtype: DataType, bands: usize, width: u32, height: u32) -> Raster {
    Raster {
        pixels: pixels(dtype, bands, width, height),
        geobox: grid(width, height),
        nodata: Some(NODATA.into()),
        sparse: Vec::new(),
    }
}

/// Cuts an image of 16 bits into blocks of so many tiles a side.
fn blocks(pixels: &Array3<i16>, tile: u32, across: u32, down: u32) -> Vec<(Window, Pixels)> {
    let (_, height, width) = pixels.dim();
    let (height, width) = (
        u32::try_from(height).unwrap(),
        u32::try_from(width).unwrap(),
    );
    let mut blocks = Vec::new();
    for row in (0..height).step_by((tile * down) as usize) {
        for col in (0..width).step_by((tile * across) as usize) {
            let window = Window {
                col,
                row,
                width: (tile * across).min(width - col),
                height: (tile * down).min(height - row),
            };
            let (x, y) = (col as usize, row as usize);
            let block = pixels.slice(s![
                ..,
                y..y + window.height as usize,
                x..x + window.width as usize
            ]);
            blocks.push((window, Pixels::I16(block.to_owned())));
        }
    }
    blocks
}

fn samples(bands: usize, width: u32, height: u32) -> Array3<i16> {
    match pixels(DataType::I16, bands, width, height) {
        Pixels::I16(samples) => samples,
        other => panic!("{}", other.dtype()),
    }
}
