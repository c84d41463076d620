//! How long does it take from items to an index of each date, or to the median of all?
//!
//! `cargo bench -p rss_core --bench apply`. 8 dates of one scene of 4096 x 4096 pixels, red and near infrared,
//! on the testbed in this process, 0 and 30 ms away: 16 files of which nothing is known. `array` is float32 in
//! memory, `COG` a file with overviews and statistics. What is made is checked against the numbers that the
//! scenes were made from. `scripts/peers/apply` puts the same work beside odc-stac and stackstac. In test mode
//! the scenes are small.

#![expect(clippy::unwrap_used, reason = "a failed bench panics")]

use std::time::Duration;

use criterion::{Criterion, SamplingMode, Throughput};
use ndarray::{Zip, s};
use rss_bench::harness;
use rss_core::{
    Backend, Location, QueryResult, Raster, ReadRequest, Session, Trust,
    apply::{Apply, ApplyOptions, Block, ImageCubeOptions, reduce::Reducer},
    writer::CogOptions,
};
use rss_testbed::{Band, Scenes, Testbed};
use stac::ItemCollection;

const BANDS: [Band; 2] = [Band::Red, Band::Nir];

#[derive(Clone, Copy)]
enum Picture {
    Ndvi,
    Median,
}

fn main() {
    let is_test = harness::is_test();
    let (side, dates) = if is_test { (600, 3) } else { (4096, 8) };
    let mut criterion = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(5))
        .configure_from_args();
    let series = Scenes::Series { side, dates };
    let bed = Testbed::builder().scenes(series).start().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = Location::Local(folder.path().join("picture.tif"));
    for (name, picture) in [("ndvi", Picture::Ndvi), ("median", Picture::Median)] {
        check(&bed, picture, &array(&bed, picture));
        cog(&bed, picture, &file);
        check(&bed, picture, &read(&file));
        let mut group = criterion.benchmark_group(format!("apply/{name}"));
        group.sampling_mode(SamplingMode::Flat);
        let samples = u64::from(side).pow(2) * u64::from(dates) * BANDS.len() as u64;
        group.throughput(Throughput::Elements(samples));
        for latency in [0, 30] {
            bed.set_latency(Duration::from_millis(if is_test { 0 } else { latency }));
            group.bench_function(format!("array/{latency} ms"), |bencher| {
                bencher.iter(|| array(&bed, picture));
            });
            group.bench_function(format!("COG/{latency} ms"), |bencher| {
                bencher.iter(|| cog(&bed, picture, &file));
            });
        }
        bed.set_latency(Duration::ZERO);
        group.finish();
    }
    criterion.final_summary();
}

fn array(bed: &Testbed, picture: Picture) -> Raster {
    let session = session(bed);
    session.compute(work(bed, &session, picture)).unwrap().0
}

fn cog(bed: &Testbed, picture: Picture, file: &Location) {
    let session = session(bed);
    let work = work(bed, &session, picture);
    session.compute_cog(work, file, &CogOptions::new()).unwrap();
}

fn read(file: &Location) -> Raster {
    let session = Session::builder().build().unwrap();
    let open = session.open(file, Backend::Cog).unwrap();
    open.read(&ReadRequest::new()).unwrap()
}

/// A new one: it knows no file.
fn session(bed: &Testbed) -> Session {
    let builder = Session::builder().s3_endpoint(&bed.s3_endpoint());
    builder.build().unwrap()
}

fn work(bed: &Testbed, session: &Session, picture: Picture) -> Apply<f32> {
    let items = bed.scenes().iter().map(|scene| scene.item.clone());
    let items: Vec<stac::Item> = items
        .map(|item| serde_json::from_value(item).unwrap())
        .collect();
    let found = QueryResult::from_items(session, ItemCollection::from(items), Trust::User)
        .with_bands(BANDS.map(Band::asset));
    let cube = session.cube(&found, &ImageCubeOptions::new()).unwrap();
    match picture {
        Picture::Ndvi => cube.apply(ApplyOptions::new(), |block: &Block<f32>| {
            let (red, nir) = (block.band("red")?, block.band("nir")?);
            let index = |&red: &f32, &nir: &f32| (nir - red) / (nir + red);
            Ok(Zip::from(red).and(nir).map_collect(index))
        }),
        Picture::Median => cube.reduce(Reducer::Median, ApplyOptions::new()),
    }
}

/// Checks a window in the middle, which four blocks meet in, against the truth.
fn check(bed: &Testbed, picture: Picture, made: &Raster) {
    let scenes = bed.scenes();
    let side = scenes[0].side;
    let (first, count) = (side / 4 - 20, side / 3 * 2);
    let truth = |band| -> Vec<Vec<i16>> {
        let windows = scenes.iter();
        windows
            .map(|scene| scene.window(band, first, first, count, count))
            .collect()
    };
    let [red, nir] = BANDS.map(truth);
    let valid = |sample: i16| (sample != -999).then(|| f32::from(sample));
    let pixels = (count as usize).pow(2);
    let expected: Vec<Vec<Option<f32>>> = match picture {
        Picture::Ndvi => red
            .iter()
            .zip(&nir)
            .map(|(red, nir)| {
                let pairs = red.iter().zip(nir);
                pairs
                    .map(|(&red, &nir)| {
                        let (red, nir) = (valid(red)?, valid(nir)?);
                        let index = (nir - red) / (nir + red);
                        (!index.is_nan()).then_some(index)
                    })
                    .collect()
            })
            .collect(),
        Picture::Median => [red, nir]
            .iter()
            .map(|dates| {
                let at = |pixel: usize| {
                    let samples = dates.iter().filter_map(|date| valid(date[pixel]));
                    let mut samples: Vec<f32> = samples.collect();
                    samples.sort_by(f32::total_cmp);
                    let upper = *samples.get(samples.len() / 2)?;
                    let lower = samples[(samples.len() - 1) / 2];
                    Some(f32::midpoint(lower, upper))
                };
                (0..pixels).map(at).collect()
            })
            .collect(),
    };
    let all = made.pixels.view::<f32>().unwrap();
    assert_eq!(all.dim(), (expected.len(), side as usize, side as usize));
    let range = first as usize..(first + count) as usize;
    let seen = all.slice(s![.., range.clone(), range]);
    for (made, expected) in seen.outer_iter().zip(&expected) {
        let same = made.iter().zip(expected).all(|(&made, expected)| {
            expected.map_or(made.is_nan(), |expected| {
                made.to_bits() == expected.to_bits()
            })
        });
        assert!(same, "the samples are not those of the scenes");
    }
}
