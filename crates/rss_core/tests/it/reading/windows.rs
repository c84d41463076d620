//! Any window of any level is a part of the whole, however it is read.

use std::path::{Path, PathBuf};

use ndarray::s;
use proptest::{prelude::*, sample::Index, test_runner::Config};
use rss_core::{Backend, ErrorKind, Location, OpenRaster, Pixels, ReadRequest, Session, Window};
use rss_testbed::Testbed;

/// The fixtures that the COG backend reads exactly.
fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/tiff");
    let manifest = std::fs::read(folder.join("manifest.json")).unwrap();
    let manifest: serde_json::Value = serde_json::from_slice(&manifest).unwrap();
    let session = Session::builder().build().unwrap();
    let all = manifest["files"].as_array().unwrap().iter();
    let found: Vec<PathBuf> = all
        .filter(|file| file["grade"] == "A" && file["compare"]["mode"] == "exact")
        .map(|file| folder.join(file["file"].as_str().unwrap()))
        .filter(|path| {
            let location = Location::Local(path.clone());
            let raster = session.open(&location, Backend::Cog);
            raster.is_ok_and(|raster| raster.read(&ReadRequest::new()).is_ok())
        })
        .collect();
    assert!(found.len() > 40, "{} files", found.len());
    found
}

/// Chooses a window of a level.
fn window(profile: &rss_core::Profile, level: usize, at: [Index; 4]) -> Window {
    let size = profile.level_size(level).unwrap();
    let span = |start: Index, length: Index, side: u32| {
        let start = start.index(side as usize);
        let length = length.index(side as usize - start) + 1;
        (
            u32::try_from(start).unwrap(),
            u32::try_from(length).unwrap(),
        )
    };
    let [x, y, w, h] = at;
    let (col, width) = span(x, w, size.width);
    let (row, height) = span(y, h, size.height);
    Window {
        col,
        row,
        width,
        height,
    }
}

/// Cuts a window out of pixels.
fn cut(whole: &Pixels, window: &Window) -> Pixels {
    let (row, col) = (window.row as usize, window.col as usize);
    let (height, width) = (window.height as usize, window.width as usize);
    macro_rules! cut {
        ($($kind:ident),*) => {
            match whole {
                $(Pixels::$kind(array) => Pixels::$kind(
                    array.slice(s![.., row..row + height, col..col + width]).to_owned(),
                ),)*
            }
        };
    }
    cut!(U8, I8, U16, I16, U32, I32, U64, I64, F32, F64, C64, C128)
}

/// NaN equals NaN here: what is compared are bytes.
fn bytes(raster: &OpenRaster, request: &ReadRequest) -> Vec<u8> {
    raster.read(request).unwrap().pixels.to_le_bytes()
}

#[test]
fn a_window_is_a_part_of_the_whole() {
    let files = files();
    let bed = Testbed::builder().start().unwrap();
    for (n, path) in files.iter().enumerate() {
        bed.put("files", &format!("{n}.tif"), std::fs::read(path).unwrap());
    }
    let local = Session::builder().build().unwrap();
    let config = Config {
        cases: 192,
        failure_persistence: None,
        ..Config::default()
    };
    let choice = (
        any::<Index>(),
        any::<Index>(),
        any::<[Index; 4]>(),
        any::<Index>(),
        (0_u64..5_000, 1_u64..20_000),
    );
    proptest!(config, |((file, level, at, band, (gap, fetch)) in choice)| {
        let n = file.index(files.len());
        let location = Location::Local(files[n].clone());
        let raster = local.open(&location, Backend::Cog).unwrap();
        let profile = raster.profile();
        let level = level.index(profile.overviews.len() + 1);
        let band = band.index(profile.count) + 1;
        let window = window(profile, level, at);
        let of_level = ReadRequest::new().with_level(level).with_bands([band]);
        let request = of_level.clone().with_window(window);
        let whole = raster.read(&of_level).unwrap();
        let expected = cut(&whole.pixels, &window).to_le_bytes();
        prop_assert_eq!(&bytes(&raster, &request), &expected, "{}", location);

        // Requests of any size, over the network.
        let remote = Session::builder()
            .s3_endpoint(&bed.s3_endpoint())
            .gap_bytes(gap)
            .fetch_bytes(fetch)
            .build()
            .unwrap();
        let far = Location::parse(&format!("s3://files/{n}.tif")).unwrap();
        let raster = remote.open(&far, Backend::Cog).unwrap();
        prop_assert_eq!(&bytes(&raster, &request), &expected, "{}", location);
        for asked in bed.log() {
            prop_assert_eq!(asked.method, "GET");
        }
        bed.clear_log();

        if cfg!(feature = "gdal") {
            let others = local.open(&location, Backend::Gdal);
            let read = others.and_then(|others| {
                // Levels are told apart by their size.
                assert_eq!(others.profile().overviews, raster.profile().overviews);
                others.read(&request)
            });
            match read {
                Ok(read) => prop_assert_eq!(read.pixels.to_le_bytes(), expected, "{}", location),
                // Older versions lack some codecs.
                Err(err) => prop_assert_eq!(err.kind(), ErrorKind::Unsupported, "{}", err),
            }
        }
    });
}
