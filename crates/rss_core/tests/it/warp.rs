//! Rasters on other grids, beside what gdalwarp makes of the same files.

use std::{path::Path, process::Command, thread};

use ndarray::Array3;
use rss_core::{Bbox, Crs, GeoBox, Pixels, Raster, Resampling, Resolution, Size, WarpOptions};
use tempfile::TempDir;

/// Pairs of CRS, and a place in degrees: zones south and north, across the boundary of two, national and
/// global maps, both ways.
const PAIRS: &[(u32, u32, [f64; 2])] = &[
    (32755, 32755, [149.1, -35.3]),
    (32755, 3577, [149.1, -35.3]),
    (3577, 32755, [145.2, -17.1]),
    (32755, 32756, [149.99, -33.0]),
    (32756, 32755, [150.02, -28.4]),
    (32633, 4326, [13.4, 52.5]),
    (4326, 32633, [16.3, 48.2]),
    (32755, 3857, [144.9, -37.8]),
    (3857, 32633, [12.5, 41.9]),
    (3577, 4326, [133.9, -23.7]),
];

/// How many pixels of the source one of the target is.
const FACTORS: [f64; 5] = [0.5, 1.0, 2.0, 3.7, 10.0];

/// Metres of a pixel of the source.
const METRES: f64 = 10.0;

const SOURCE: Size = Size {
    width: 330,
    height: 310,
};

/// What a source holds.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Int16,
    Int16Whole,
    Uint8,
    Float32,
    Float32Nan,
}

const KINDS: [Kind; 5] = [
    Kind::Int16,
    Kind::Float32,
    Kind::Uint8,
    Kind::Int16Whole,
    Kind::Float32Nan,
];

impl Kind {
    fn nodata(self) -> Option<f64> {
        match self {
            Self::Int16 => Some(-999.0),
            Self::Int16Whole => None,
            Self::Uint8 => Some(255.0),
            Self::Float32 => Some(-9999.0),
            Self::Float32Nan => Some(f64::NAN),
        }
    }

    fn is_float(self) -> bool {
        matches!(self, Self::Float32 | Self::Float32Nan)
    }
}

/// Hills, fields with edges, and noise; clouds and stray pixels without data.
fn raster(geobox: GeoBox, kind: Kind, seed: u32) -> Raster {
    let Size { width, height } = geobox.size;
    let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(12345);
    let mut noise = move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f64::from(state >> 8) / f64::from(1_u32 << 24)
    };
    let shape = (1, height as usize, width as usize);
    let numbers = Array3::from_shape_fn(shape, |(_, y, x)| {
        let (fx, fy) = (x as f64, y as f64);
        let hill = (fx / 31.0).sin() * (fy / 23.0).cos() * 0.2;
        let field = if ((x / 37) + (y / 29)) % 3 == 0 {
            0.25
        } else {
            0.0
        };
        let cloud = (fx - 150.0).hypot(fy - 120.0) < 33.0 || (fx - 240.0).hypot(fy - 200.0) < 12.0;
        let value = 0.4 + hill + field + 0.1 * noise();
        let stray = noise() < 0.01;
        (!(cloud || stray)).then_some(value)
    });
    let nodata = kind.nodata();
    let number = |scale: f64, fill: f64| {
        numbers.map(|value| match (value, nodata) {
            (Some(value), _) => value * scale,
            (None, Some(nodata)) => nodata,
            (None, None) => fill,
        })
    };
    let pixels = match kind {
        Kind::Int16 | Kind::Int16Whole => {
            Pixels::I16(number(6000.0, 9000.0).map(|&value| value as i16))
        }
        Kind::Uint8 => Pixels::U8(number(200.0, 0.0).map(|&value| value as u8)),
        _ => Pixels::F32(number(1.0, 0.0).map(|&value| value as f32)),
    };
    Raster {
        pixels,
        geobox,
        nodata,
        sparse: Vec::new(),
    }
}

/// Returns a grid about a point, of pixels of about so many metres on the ground.
fn grid(code: u32, [lon, lat]: [f64; 2], metres: f64, size: Size) -> GeoBox {
    let stretch = lat.to_radians().cos();
    let side = match code {
        4326 => Resolution {
            x: metres / 111_320.0 / stretch,
            y: metres / 111_130.0,
        },
        3857 => Resolution::from(metres / stretch),
        _ => Resolution::from(metres),
    };
    let point = Bbox::new(lon, lat, lon + 1e-7, lat + 1e-7).unwrap();
    let point = GeoBox::of_bbox(
        &point,
        Crs::Epsg(code),
        Resolution {
            x: side.x / 8.0,
            y: side.y / 8.0,
        },
    );
    let [x, _, _, y] = point.unwrap().bounds().unwrap();
    // Pixels may start anywhere.
    let left = x - side.x * (f64::from(size.width) / 2.0 + 0.37);
    let top = y + side.y * (f64::from(size.height) / 2.0 + 0.11);
    GeoBox {
        size,
        crs: Some(Crs::Epsg(code)),
        transform: Some(rss_core::GeoTransform([
            left, side.x, 0.0, top, 0.0, -side.y,
        ])),
    }
}

/// Returns the target of a pair: as large as the source and half beside it, or well within it.
fn target(code: u32, at: [f64; 2], factor: f64, within: bool) -> GeoBox {
    let pixels = |length: u32| {
        let part = if within { 0.6 } else { 1.1 };
        ((f64::from(length) * part / factor) as u32).min(150)
    };
    let size = Size {
        width: pixels(SOURCE.width),
        height: pixels(SOURCE.height),
    };
    let shift = if within { 0.0 } else { 0.004 };
    grid(code, [at[0] + shift, at[1] + shift], METRES * factor, size)
}

/// Returns what gdalwarp makes of a file on a grid, as numbers.
fn gdalwarp(
    file: &Path,
    kind: Kind,
    to: &GeoBox,
    resampling: Resampling,
    error: f64,
    scale: Option<f64>,
) -> Vec<f64> {
    let out = file.with_extension(format!("{}.{resampling}.{error}.bin", to.size.width));
    let [left, bottom, right, top] = to.bounds().unwrap();
    let mut command = Command::new("gdalwarp");
    command.args(["-q", "-overwrite", "-of", "ENVI", "-ovr", "NONE"]);
    command.args(["-et", &error.to_string()]);
    command.args(["-t_srs", &to.crs.clone().unwrap().to_string()]);
    command.arg("-te");
    command.args([left, bottom, right, top].map(|edge| format!("{edge:?}")));
    command.arg("-ts");
    command.args([to.size.width, to.size.height].map(|side| side.to_string()));
    command.args([
        "-r",
        if resampling == Resampling::Nearest {
            "near"
        } else {
            resampling.name()
        },
    ]);
    if let Some(nodata) = kind.nodata() {
        command.args(["-dstnodata", &nodata.to_string().to_lowercase()]);
    }
    if let Some(scale) = scale {
        for axis in ["XSCALE", "YSCALE"] {
            command.args(["-wo", &format!("{axis}={}", 1.0 / scale)]);
        }
    }
    let said = command.arg(file).arg(&out).output().unwrap();
    assert!(
        said.status.success(),
        "{}",
        String::from_utf8_lossy(&said.stderr)
    );
    let bytes = std::fs::read(&out).unwrap();
    match kind {
        Kind::Uint8 => bytes.iter().map(|&byte| f64::from(byte)).collect(),
        Kind::Int16 | Kind::Int16Whole => {
            let (samples, _) = bytes.as_chunks::<2>();
            samples
                .iter()
                .map(|&sample| f64::from(i16::from_le_bytes(sample)))
                .collect()
        }
        _ => {
            let (samples, _) = bytes.as_chunks::<4>();
            samples
                .iter()
                .map(|&sample| f64::from(f32::from_le_bytes(sample)))
                .collect()
        }
    }
}

/// How two rasters differ.
#[derive(Debug, Default)]
struct Tally {
    pixels: usize,
    /// With data in both.
    valid: usize,
    /// With data in one of them only.
    lone: usize,
    /// That differ at all: of floats, by more than a millionth of the values' range.
    differ: usize,
    /// The largest difference.
    most: f64,
}

fn compare(ours: &[f64], theirs: &[f64], kind: Kind) -> Tally {
    assert_eq!(ours.len(), theirs.len());
    let mut tally = Tally {
        pixels: ours.len(),
        ..Tally::default()
    };
    let is_data = |number: f64| {
        let nodata = kind.nodata().unwrap_or(0.0);
        !number.is_nan() && number != nodata
    };
    let least = if kind.is_float() { 1e-6 } else { 0.0 };
    for (&a, &b) in ours.iter().zip(theirs) {
        match (is_data(a), is_data(b)) {
            (true, true) => {
                tally.valid += 1;
                tally.differ += usize::from((a - b).abs() > least);
                tally.most = tally.most.max((a - b).abs());
            }
            (false, false) => {}
            _ => tally.lone += 1,
        }
    }
    tally
}

/// Returns whether gdalwarp is there. CI must have it.
fn has_gdalwarp() -> bool {
    let is_there = Command::new("gdalwarp").arg("--version").output().is_ok();
    assert!(
        is_there || std::env::var_os("CI").is_none(),
        "CI needs gdalwarp"
    );
    if !is_there {
        eprintln!("skipped: no gdalwarp to compare with");
    }
    is_there
}

/// Returns the width of a kernel to give to gdalwarp, which estimates it from the bounds of each chunk.
fn scale_of(factor: f64, resampling: Resampling) -> Option<f64> {
    is_linear(resampling).then_some(factor.max(1.0))
}

fn is_linear(resampling: Resampling) -> bool {
    matches!(resampling, Resampling::Bilinear | Resampling::Cubic)
}

/// Returns true for what takes the pixels of an area. GDAL 3.6 also makes pixels beside the top and the left
/// edge of a source of these, which later versions and we do not: their targets lie within the source.
fn is_area(resampling: Resampling) -> bool {
    !is_linear(resampling) && resampling != Resampling::Nearest
}

/// Runs `check` with each pair on a thread of its own, and returns what is wrong.
fn each_pair(
    check: impl Fn(&Path, usize, (u32, u32, [f64; 2])) -> Vec<String> + Sync,
) -> Vec<String> {
    let folder = TempDir::new().unwrap();
    let (check, folder) = (&check, folder.path());
    let mut wrong = Vec::new();
    for pairs in PAIRS.chunks(4) {
        let first = PAIRS.iter().position(|pair| pair == &pairs[0]).unwrap();
        thread::scope(|scope| {
            let threads: Vec<_> = (first..)
                .zip(pairs)
                .map(|(number, pair)| scope.spawn(move || check(folder, number, *pair)))
                .collect();
            for thread in threads {
                wrong.extend(thread.join().unwrap());
            }
        });
    }
    wrong
}

fn source(
    folder: &Path,
    number: usize,
    code: u32,
    at: [f64; 2],
    kind: Kind,
) -> (Raster, std::path::PathBuf) {
    let raster = raster(grid(code, at, METRES, SOURCE), kind, number as u32 + 1);
    let file = folder.join(format!("{number}.{kind:?}.tif"));
    raster.save(&file).unwrap();
    (raster, file)
}

/// With exact places on both sides only rounding is left: nearest, mode, min and max are equal, and of the
/// others a few pixels are one count off where a sum lies on a half; floats agree to six digits.
#[test]
fn exact_warps_are_gdalwarps() {
    if !has_gdalwarp() {
        return;
    }
    let wrong = each_pair(|folder, number, (from, to, at)| {
        let mut wrong = Vec::new();
        let mut turn = number;
        for factor in FACTORS {
            let kind = KINDS[turn % KINDS.len()];
            turn += 1;
            let (raster, file) = source(folder, number, from, at, kind);
            for (i, resampling) in Resampling::ALL.into_iter().enumerate() {
                // Each pair by each kernel, and each factor by each kernel, but not all of all.
                if (number + i + turn) % 2 == 0 {
                    continue;
                }
                // The width of a kernel cannot be told to the last digit where scales change from place to
                // place.
                if is_linear(resampling) && from != to && factor > 2.0 {
                    continue;
                }
                let to_grid = target(to, at, factor, is_area(resampling));
                let options = WarpOptions::from(resampling).with_max_error_pixels(0.0);
                let ours = raster.warp(&to_grid, options).unwrap().pixels.to_f64();
                let scale = scale_of(factor, resampling);
                let theirs = gdalwarp(&file, kind, &to_grid, resampling, 0.0, scale);
                let tally = compare(&ours, &theirs, kind);
                let picks = matches!(
                    resampling,
                    Resampling::Nearest | Resampling::Mode | Resampling::Min | Resampling::Max
                );
                let (share, most) = match (picks, kind.is_float()) {
                    (true, _) => (0, 0.0),
                    (_, false) => (tally.valid / 200, 1.0),
                    (_, true) => (tally.valid / 1000, 1e-5),
                };
                let is_right = tally.lone == 0
                    && tally.differ <= share
                    && tally.most <= most
                    && tally.valid * 4 > tally.pixels;
                if !is_right {
                    wrong.push(format!(
                        "{from} to {to} x {factor} {kind:?} {resampling}: {tally:?}"
                    ));
                }
            }
        }
        wrong
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// With places approximated by both, each in its own way, a place may be a quarter of a pixel beside the
/// other's: nearest then takes another pixel now and then, and what is made of several differs a little.
#[test]
fn approximated_warps_are_near_gdalwarps() {
    if !has_gdalwarp() {
        return;
    }
    let wrong = each_pair(|folder, number, (from, to, at)| {
        let mut wrong = Vec::new();
        for (resampling, factor) in [
            (Resampling::Nearest, 1.0),
            (Resampling::Bilinear, 1.0),
            (Resampling::Cubic, 2.0),
            (Resampling::Average, 3.7),
        ] {
            let kind = Kind::Int16;
            let (raster, file) = source(folder, number, from, at, kind);
            let to_grid = target(to, at, factor, is_area(resampling));
            let ours = raster.warp(&to_grid, resampling).unwrap().pixels.to_f64();
            let scale = scale_of(factor, resampling);
            let theirs = gdalwarp(&file, kind, &to_grid, resampling, 0.125, scale);
            let tally = compare(&ours, &theirs, kind);
            // Samples go up to 6000, and beside the edge of a field by 1500 from one to the next.
            let is_near = match resampling {
                Resampling::Nearest => tally.differ * 50 <= tally.valid,
                _ => tally.most <= 150.0,
            };
            let is_right =
                is_near && tally.lone * 200 <= tally.pixels && tally.valid * 4 > tally.pixels;
            if !is_right {
                wrong.push(format!("{from} to {to} x {factor} {resampling}: {tally:?}"));
            }
        }
        wrong
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
