//! How fast is a scene put on another grid, beside gdalwarp?
//!
//! `cargo bench -p rss_core --bench warp`. A scene of 4096 x 4096 int16 in UTM, warped onto EPSG:3577 at the
//! same resolution and onto a grid of its own CRS half a pixel beside it; once with clouds and stray pixels
//! of nodata, once without a nodata value. Input and output lie in memory. GDAL's library call of gdalwarp,
//! with the `MEM` driver, `-multi`, its error threshold of 0.125 pixels, and memory for one chunk, beside
//! `Raster::warp`; both on the same number of threads (all, or `WARP_THREADS`). Results are compared first.

#![expect(clippy::print_stdout, reason = "a bench reports")]
#![expect(clippy::unwrap_used, reason = "a failed bench panics")]
#![expect(unsafe_code, reason = "gdalwarp is a C function")]

use std::{
    ffi::{CString, c_char},
    ptr::{null, null_mut},
    thread::available_parallelism,
    time::Duration,
};

use criterion::{Criterion, SamplingMode, Throughput};
use gdal::{Dataset, DriverManager, raster::Buffer, spatial_ref::SpatialRef};
use ndarray::Array3;
use rayon::ThreadPoolBuilder;
use rss_bench::harness;
use rss_core::{Crs, GeoBox, GeoTransform, Pixels, Raster, Resampling, Size, Window};

const NODATA: f64 = -999.0;

const RESAMPLINGS: [Resampling; 4] = [
    Resampling::Nearest,
    Resampling::Bilinear,
    Resampling::Cubic,
    Resampling::Average,
];

fn main() {
    let side = if harness::is_test() { 512 } else { 4096 };
    let threads = std::env::var("WARP_THREADS").map_or_else(
        |_| available_parallelism().unwrap().get(),
        |threads| threads.parse().unwrap(),
    );
    let pool = ThreadPoolBuilder::new()
        .num_threads(threads)
        .build()
        .unwrap();
    let mut criterion = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(2))
        .configure_from_args();
    println!("warp: {side} x {side} int16, {threads} threads each");
    let from = grid(32755, 600_000.0, 6_100_000.0, side);
    let targets = [
        ("albers", albers(&from, side)),
        (
            "half a pixel beside",
            grid(32755, 600_005.0, 6_099_995.0, side),
        ),
    ];
    for (name, has_nodata) in [("whole", false), ("nodata", true)] {
        let scene = scene(&from, has_nodata);
        let source = dataset(&scene.geobox, Some(&scene));
        for (target, to) in &targets {
            for resampling in RESAMPLINGS {
                let mut group =
                    criterion.benchmark_group(format!("warp/{target}/{name}/{resampling}"));
                group.sampling_mode(SamplingMode::Flat);
                let pixels = u64::from(side) * u64::from(side);
                group.throughput(Throughput::Elements(pixels));
                let out = dataset(to, None);
                let options = Options::new(resampling, threads, has_nodata);
                options.warp(&source, &out);
                let ours = pool.install(|| scene.warp(to, resampling)).unwrap();
                let said = check(&ours, &out, resampling);
                println!("{target}, {name}, {resampling}: {said}");
                group.bench_function("gdalwarp", |bencher| {
                    bencher.iter(|| options.warp(&source, &out));
                });
                group.bench_function("ours", |bencher| {
                    bencher.iter(|| pool.install(|| scene.warp(to, resampling)).unwrap());
                });
                group.finish();
            }
        }
    }
    criterion.final_summary();
}

fn grid(code: u32, left: f64, top: f64, side: u32) -> GeoBox {
    GeoBox {
        size: Size {
            width: side,
            height: side,
        },
        crs: Some(Crs::Epsg(code)),
        transform: Some(GeoTransform([left, 10.0, 0.0, top, 0.0, -10.0])),
    }
}

/// Returns the middle of what a grid covers in Australian Albers.
fn albers(from: &GeoBox, side: u32) -> GeoBox {
    let bbox = from.bbox().unwrap();
    let whole = GeoBox::of_bbox(&bbox, Crs::Epsg(3577), 10.0).unwrap();
    whole.of_window(&Window {
        col: (whole.size.width - side) / 2,
        row: (whole.size.height - side) / 2,
        width: side,
        height: side,
    })
}

/// A number between 0 and 1 that belongs to a pixel.
fn noise(x: u64, y: u64, seed: u64) -> f64 {
    let mut bits = x.wrapping_mul(0x9e37_79b9_7f4a_7c15)
        ^ y.wrapping_mul(0xc2b2_ae3d_27d4_eb4f)
        ^ seed.wrapping_mul(0x1656_67b1_9e37_79f9);
    bits ^= bits >> 29;
    bits = bits.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits ^= bits >> 32;
    (bits >> 40) as f64 / (1_u64 << 24) as f64
}

/// Reflectances over hills and fields, with clouds and stray pixels without data.
fn scene(grid: &GeoBox, has_nodata: bool) -> Raster {
    let Size { width, height } = grid.size;
    let samples = Array3::from_shape_fn((1, height as usize, width as usize), |(_, row, col)| {
        let (x, y) = (col as u64, row as u64);
        let cloud = noise(x / 300, y / 300, 3) < 0.15 || noise(x, y, 5) < 1e-4;
        if has_nodata && cloud {
            return -999;
        }
        let hills = (x as f64 / 90.0).sin() * (y as f64 / 70.0).cos() * 400.0;
        let field = noise(x / 23, y / 17, 1) * 600.0;
        #[expect(clippy::cast_possible_truncation, reason = "the sum is below 2000")]
        let sample = (900.0 + hills + field + noise(x, y, 7) * 40.0) as i16;
        sample
    });
    Raster {
        pixels: Pixels::I16(samples),
        geobox: grid.clone(),
        nodata: has_nodata.then_some(NODATA.into()),
        sparse: Vec::new(),
    }
}

/// Makes a dataset in memory, of a raster's samples or of nodata.
fn dataset(grid: &GeoBox, raster: Option<&Raster>) -> Dataset {
    let Size { width, height } = grid.size;
    let (width, height) = (width as usize, height as usize);
    let driver = DriverManager::get_driver_by_name("MEM").unwrap();
    let mut dataset = driver
        .create_with_band_type::<i16, _>("", width, height, 1)
        .unwrap();
    dataset
        .set_geo_transform(&grid.transform.unwrap().0)
        .unwrap();
    let code = grid.crs.as_ref().and_then(Crs::epsg).unwrap();
    dataset
        .set_spatial_ref(&SpatialRef::from_epsg(code).unwrap())
        .unwrap();
    let mut band = dataset.rasterband(1).unwrap();
    let samples = match raster {
        Some(raster) => {
            band.set_no_data_value(raster.nodata.map(|nodata| nodata.as_f64()))
                .unwrap();
            raster
                .pixels
                .view::<i16>()
                .unwrap()
                .iter()
                .copied()
                .collect()
        }
        None => vec![0; width * height],
    };
    let mut buffer = Buffer::new((width, height), samples);
    band.write((0, 0), (width, height), &mut buffer).unwrap();
    dataset
}

/// The arguments of gdalwarp.
struct Options(*mut gdal_sys::GDALWarpAppOptions);

impl Options {
    fn new(resampling: Resampling, threads: usize, has_nodata: bool) -> Self {
        let name = match resampling {
            Resampling::Nearest => "near",
            other => other.name(),
        };
        let threads = format!("NUM_THREADS={threads}");
        let mut words = vec!["-q", "-r", name, "-et", "0.125", "-multi", "-wo", &threads];
        words.extend(["-wm", "2000", "-ovr", "NONE"]);
        if has_nodata {
            words.extend(["-dstnodata", "-999", "-wo", "INIT_DEST=NO_DATA"]);
        }
        let words: Vec<CString> = words
            .into_iter()
            .map(|word| CString::new(word).unwrap())
            .collect();
        let mut list: Vec<*mut c_char> =
            words.iter().map(|word| word.as_ptr().cast_mut()).collect();
        list.push(null_mut());
        // SAFETY: the list is of strings and ends with null; the call copies what it needs.
        let options = unsafe { gdal_sys::GDALWarpAppOptionsNew(list.as_mut_ptr(), null_mut()) };
        assert!(!options.is_null(), "gdalwarp takes no such arguments");
        Self(options)
    }

    fn warp(&self, from: &Dataset, to: &Dataset) {
        let mut sources = [from.c_dataset()];
        let mut usage = 0;
        // SAFETY: both datasets are open and outlive the call, which is given one source.
        let made = unsafe {
            gdal_sys::GDALWarp(
                null(),
                to.c_dataset(),
                1,
                sources.as_mut_ptr(),
                self.0,
                &mut usage,
            )
        };
        assert!(!made.is_null(), "gdalwarp failed");
    }
}

impl Drop for Options {
    fn drop(&mut self) {
        // SAFETY: made by `GDALWarpAppOptionsNew`, and freed once.
        unsafe { gdal_sys::GDALWarpAppOptionsFree(self.0) };
    }
}

/// How far nearly all samples may be apart: fields differ by up to 600, and positions by a part of a pixel.
const NEAR: u16 = 80;
/// How far any may be: nearest may take the pixel beside, of another field, other noise, and elsewhere on
/// the hills.
const FAR: u16 = 700;

/// Checks that both made the same pixels, and says how nearly. Positions are approximated by both, each in its
/// own way, so that nearest now and then takes the pixel beside; `tests/it/warp.rs` compares exact ones.
fn check(ours: &Raster, theirs: &Dataset, resampling: Resampling) -> String {
    let Size { width, height } = ours.geobox.size;
    let (width, height) = (width as usize, height as usize);
    let band = theirs.rasterband(1).unwrap();
    let theirs = band
        .read_as::<i16>((0, 0), (width, height), (width, height), None)
        .unwrap();
    let ours = ours.pixels.view::<i16>().unwrap();
    let (mut same, mut near, mut valid, mut lone) = (0_usize, 0_usize, 0_usize, 0_usize);
    let mut most = 0;
    // No sample of the scene is 0, which the target holds where nothing is written.
    let is_data = |sample: i16| sample != 0 && f64::from(sample) != NODATA;
    for (&a, &b) in ours.iter().zip(theirs.data()) {
        same += usize::from(a == b);
        near += usize::from(a.abs_diff(b) <= NEAR);
        valid += usize::from(is_data(b));
        match (is_data(a), is_data(b)) {
            (true, true) => most = most.max(a.abs_diff(b)),
            (false, false) => {}
            _ => lone += 1,
        }
    }
    let all = ours.len();
    let share = |count: usize| count as f64 / all as f64;
    assert!(
        most <= FAR,
        "{resampling}: a pixel is {most} beside gdalwarp's"
    );
    assert!(
        share(lone) < 0.01,
        "{resampling}: {} of the pixels are there in one of both",
        share(lone)
    );
    assert!(
        share(near) > 0.95,
        "{resampling}: {} of the pixels are not gdalwarp's",
        1.0 - share(near)
    );
    assert!(share(valid) > 0.4, "{resampling}: the target is empty");
    format!(
        "{:.2} % the same, {:.2} % within {NEAR}, all within {most}",
        100.0 * share(same),
        100.0 * share(near)
    )
}
