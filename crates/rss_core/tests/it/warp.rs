//! Rasters on other grids, beside what gdalwarp makes of the same files.

#![expect(clippy::panic, reason = "a failed test panics")]

use std::{
    io::Write,
    path::Path,
    process::{Command, Stdio},
    thread,
};

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
        nodata: nodata.map(Into::into),
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
    scale: Option<[f64; 2]>,
) -> Vec<f64> {
    let out = file.with_extension(format!("{}.{resampling}.{error}.bin", to.size.width));
    let [left, bottom, right, top] = to.bounds().unwrap();
    let mut command = command(kind, resampling, error, scale);
    command.args(["-overwrite", "-of", "ENVI"]);
    command.args(["-t_srs", &to.crs.clone().unwrap().to_string()]);
    command.arg("-te");
    command.args([left, bottom, right, top].map(|edge| format!("{edge:?}")));
    command.arg("-ts");
    command.args([to.size.width, to.size.height].map(|side| side.to_string()));
    run(command.arg(file).arg(&out));
    numbers(&out, kind)
}

/// Returns what gdalwarp makes of a file where a target lies that is there, and holds nodata.
fn gdalwarp_onto(
    file: &Path,
    kind: Kind,
    target: &Path,
    resampling: Resampling,
    scale: Option<[f64; 2]>,
) -> Vec<f64> {
    run(command(kind, resampling, 0.0, scale).arg(file).arg(target));
    let out = target.with_extension("bin");
    let mut plain = Command::new("gdal_translate");
    run(plain.args(["-q", "-of", "ENVI"]).arg(target).arg(&out));
    numbers(&out, kind)
}

/// Returns the arguments of gdalwarp that say how, and not from where to where.
fn command(kind: Kind, resampling: Resampling, error: f64, scale: Option<[f64; 2]>) -> Command {
    let mut command = Command::new("gdalwarp");
    command.args(["-q", "-ovr", "NONE"]);
    command.args(["-et", &error.to_string()]);
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
        for (axis, scale) in ["XSCALE", "YSCALE"].into_iter().zip(scale) {
            command.args(["-wo", &format!("{axis}={}", 1.0 / scale)]);
        }
    }
    command
}

fn run(command: &mut Command) {
    let said = command.output().unwrap();
    let err = String::from_utf8_lossy(&said.stderr);
    assert!(said.status.success(), "{command:?}: {err}");
}

fn numbers(file: &Path, kind: Kind) -> Vec<f64> {
    let bytes = std::fs::read(file).unwrap();
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
fn scale_of(factor: f64, resampling: Resampling) -> Option<[f64; 2]> {
    is_linear(resampling).then_some([factor.max(1.0); 2])
}

/// Returns the width of a kernel between two CRS: the size, on the source, of the pixel about the middle of the
/// target, whose places are `gdaltransform`'s. One that is nearly whole is, as in gdalwarp.
fn scale_between(from: &GeoBox, to: &GeoBox) -> [f64; 2] {
    let (f, t) = (from.transform.unwrap().0, to.transform.unwrap().0);
    let middle = [to.size.width, to.size.height].map(|side| f64::from(side) / 2.0);
    let ends = [[-0.5, 0.0], [0.5, 0.0], [0.0, -0.5], [0.0, 0.5]].map(|[right, down]| {
        let x = t[0] + (middle[0] + right) * t[1];
        let y = t[3] + (middle[1] + down) * t[5];
        format!("{x:?} {y:?}\n")
    });
    let name = |grid: &GeoBox| grid.crs.clone().unwrap().to_string();
    let mut command = Command::new("gdaltransform");
    command.args(["-output_xy", "-s_srs", &name(to), "-t_srs", &name(from)]);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(ends.concat().as_bytes()).unwrap();
    drop(input);
    let said = child.wait_with_output().unwrap();
    let text = String::from_utf8(said.stdout).unwrap();
    let places: Vec<[f64; 2]> = text
        .lines()
        .map(|line| {
            let mut both = line
                .split_whitespace()
                .map(|one| one.parse::<f64>().unwrap());
            let (x, y) = (both.next().unwrap(), both.next().unwrap());
            [(x - f[0]) / f[1], (y - f[3]) / f[5]]
        })
        .collect();
    let [left, right, up, down] = places[..] else {
        panic!("{text}")
    };
    [0, 1].map(|axis| {
        let scale = (right[axis] - left[axis]).hypot(down[axis] - up[axis]);
        let whole = scale.round();
        let is_whole = scale > 1.0 && (scale - whole).abs() < 0.05;
        if is_whole { whole } else { scale.max(1.0) }
    })
}

fn is_linear(resampling: Resampling) -> bool {
    use Resampling::{Bilinear, Cubic, CubicSpline, Lanczos};
    matches!(resampling, Bilinear | Cubic | CubicSpline | Lanczos)
}

/// Returns true for what GDAL 3.6 does wrongly: it widens Lanczos by other weights, up to 0.6 of the range off. GDAL 3.10 is
/// within rounding of the definition, which the oracle table (docs/CORRECTNESS.md) shows. Where the width is not whole, all
/// versions give weights beyond the reach of the spline, a ten-thousandth of the sum.
fn is_wrong_in_gdal(resampling: Resampling, factor: f64) -> bool {
    resampling == Resampling::Lanczos && factor > 1.0
}

/// Returns how many pixels may have data in one of two only: of a sum those that reach beside data by a sliver, and of
/// Lanczos, where half of the pixels must be valid, those whose position lies on the centre of one.
fn lone_of(resampling: Resampling, tally: &Tally) -> usize {
    match resampling {
        Resampling::Sum => tally.pixels / 100,
        Resampling::Lanczos => tally.pixels / 1000,
        _ => 0,
    }
}

/// Returns true for what takes one of the samples as it is.
fn is_pick(resampling: Resampling) -> bool {
    use Resampling::{Max, Median, Min, Mode, Nearest, Q1, Q3};
    matches!(resampling, Nearest | Mode | Min | Max | Median | Q1 | Q3)
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
                if (number + i + turn) % 2 == 0 || is_wrong_in_gdal(resampling, factor) {
                    continue;
                }
                let to_grid = target(to, at, factor, is_area(resampling));
                let options = WarpOptions::from(resampling).with_max_error_pixels(0.0);
                let ours = raster.warp(&to_grid, options).unwrap().pixels.to_f64();
                let is_told = is_linear(resampling) && from != to && factor > 2.0;
                let scale = match is_told {
                    true => Some(scale_between(&raster.geobox, &to_grid)),
                    false => scale_of(factor, resampling),
                };
                let theirs = gdalwarp(&file, kind, &to_grid, resampling, 0.0, scale);
                let tally = compare(&ours, &theirs, kind);
                let picks = is_pick(resampling);
                // Where scales change from place to place, a width is told to some digits only.
                let (share, most) = match (picks, kind.is_float()) {
                    (true, _) => (0, 0.0),
                    _ if resampling == Resampling::CubicSpline && factor == 3.7 => {
                        (tally.valid, if kind.is_float() { 3e-4 } else { 2.0 })
                    }
                    (_, false) if is_told => (tally.valid / 50, 1.0),
                    (_, false) => (tally.valid / 200, 1.0),
                    (_, true) if is_told => (tally.valid, 1e-5),
                    // A sum is as much larger as it has pixels.
                    (_, true) if resampling == Resampling::Sum => {
                        (tally.valid, 1e-5 * factor.max(1.0).powi(2))
                    }
                    (_, true) => (tally.valid / 1000, 1e-5),
                };
                let is_right = tally.lone <= lone_of(resampling, &tally)
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

/// Returns a grid about the middle of another one, turned against the clock. No corner lies on one of theirs.
fn turned(from: &GeoBox, angle: f64, metres: f64, side: u32) -> GeoBox {
    let middle = from.size;
    let [x, y] = from.transform.unwrap().apply(
        f64::from(middle.width) / 2.0 + 0.3,
        f64::from(middle.height) / 2.0 + 0.1,
    );
    let (sin, cos) = angle.sin_cos();
    let (right, down) = ([metres * cos, metres * sin], [metres * sin, -metres * cos]);
    let half = f64::from(side) / 2.0;
    GeoBox {
        size: Size {
            width: side,
            height: side,
        },
        crs: from.crs.clone(),
        transform: Some(rss_core::GeoTransform([
            x - half * (right[0] + down[0]),
            right[0],
            down[0],
            y - half * (right[1] + down[1]),
            right[1],
            down[1],
        ])),
    }
}

/// gdalwarp turns onto a file that is there. What is made of an area is of the box between two corners, by both.
#[test]
fn turned_targets_are_gdalwarps() {
    if !has_gdalwarp() {
        return;
    }
    let folder = TempDir::new().unwrap();
    let mut wrong = Vec::new();
    for (number, (kind, factor, angle)) in [
        (Kind::Int16, 1.0, 0.35),
        (Kind::Float32, 3.7, 0.35),
        (Kind::Uint8, 2.0, 2.4),
        (Kind::Float32Nan, 1.0, -1.2),
    ]
    .into_iter()
    .enumerate()
    {
        let (raster, file) = source(folder.path(), number, 32755, [149.1, -35.3], kind);
        let side = (200.0 / factor) as u32;
        let to_grid = turned(&raster.geobox, angle, METRES * factor, side);
        for resampling in Resampling::ALL {
            if is_wrong_in_gdal(resampling, factor) {
                continue;
            }
            let options = WarpOptions::from(resampling).with_max_error_pixels(0.0);
            let warped = raster.warp(&to_grid, options).unwrap();
            let nodata = kind.nodata().unwrap();
            let shape = (1, side as usize, side as usize);
            let pixels = match kind {
                Kind::Int16 => Pixels::I16(Array3::from_elem(shape, nodata as i16)),
                Kind::Uint8 => Pixels::U8(Array3::from_elem(shape, nodata as u8)),
                _ => Pixels::F32(Array3::from_elem(shape, nodata as f32)),
            };
            let empty = Raster {
                pixels,
                ..warped.clone()
            };
            let target = folder
                .path()
                .join(format!("{number}.{resampling}.onto.tif"));
            empty.save(&target).unwrap();
            let scale = scale_of(factor, resampling);
            let theirs = gdalwarp_onto(&file, kind, &target, resampling, scale);
            let tally = compare(&warped.pixels.to_f64(), &theirs, kind);
            let picks = is_pick(resampling);
            let (share, most) = match (picks, kind.is_float()) {
                (true, _) => (0, 0.0),
                (_, true) if resampling == Resampling::Sum => (tally.valid, 1e-3 * factor * factor),
                (_, false) if resampling == Resampling::Sum => (tally.valid / 100, 20.0),
                _ if resampling == Resampling::CubicSpline && factor == 3.7 => (tally.valid, 3e-4),
                (_, false) => (tally.valid / 200, 1.0),
                (_, true) => (tally.valid / 1000, 1e-5),
            };
            let is_right = tally.lone <= lone_of(resampling, &tally)
                && tally.differ <= share
                && tally.most <= most
                && tally.valid * 2 > tally.pixels;
            if !is_right {
                wrong.push(format!(
                    "x {factor} {angle} {kind:?} {resampling}: {tally:?}"
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
