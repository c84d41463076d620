//! How fast does a stack of dates become one picture on one thread, and on all?
//!
//! 8 dates of 1024 x 1024 pixels, a fifth of the samples without data, in memory.

#![expect(clippy::unwrap_used, reason = "a failed bench panics")]

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use ndarray::{Array3, Array4};
use rss_core::{
    Pixels,
    apply::reduce::{Geomedian, Reducer, reduce},
    mask::{Cleanup, Element},
};

const DATES: usize = 8;
const SIDE: usize = 1024;

/// Makes numbers from a seed; the same in every run.
fn numbers() -> impl FnMut() -> u64 {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    }
}

fn shorts() -> Array3<i16> {
    let mut next = numbers();
    Array3::from_shape_simple_fn((DATES, SIDE, SIDE), || {
        let number = next();
        match number % 5 {
            0 => -999,
            _ => i16::try_from(number >> 16 & 0x1fff).unwrap_or_default(),
        }
    })
}

fn floats(shorts: &Array3<i16>) -> Array3<f32> {
    shorts.mapv(|sample| match sample {
        -999 => f32::NAN,
        sample => f32::from(sample) * 1e-4,
    })
}

fn run(c: &mut Criterion) {
    let shorts = shorts();
    let floats = floats(&shorts);
    let whole = Pixels::I16(shorts.mapv(|sample| sample.max(0)));
    let stacks = [
        ("int16", Pixels::I16(shorts.clone())),
        ("int16-no-gaps", whole),
        ("float32", Pixels::F32(floats.clone())),
    ];
    // What it makes is right before it is timed.
    let median = reduce(&stacks[0].1, Some((-999.0).into()), Reducer::Median).unwrap();
    let mut first: Vec<i16> = shorts.slice(ndarray::s![.., 0, 0]).to_vec();
    first.retain(|&sample| sample != -999);
    first.sort_unstable();
    let middle = |rank: usize| f64::from(first[rank]);
    let expected = f64::midpoint(middle((first.len() - 1) / 2), middle(first.len() / 2));
    assert!((median.to_f64()[0] - expected).abs() < 1e-3);

    let one = rayon::ThreadPoolBuilder::new()
        .num_threads(1)
        .build()
        .unwrap();
    let pixels = (SIDE * SIDE) as u64;
    let mut group = c.benchmark_group("reduce");
    group.throughput(Throughput::Elements(pixels));
    for (name, stack) in &stacks {
        for reducer in ["median", "p90", "mean", "std", "max", "first"] {
            let reducer: Reducer = reducer.parse().unwrap();
            group.bench_function(format!("{reducer}/{name}/1-thread"), |b| {
                b.iter(|| one.install(|| reduce(black_box(stack), Some((-999.0).into()), reducer)));
            });
        }
        group.bench_function(format!("median/{name}/all-threads"), |b| {
            b.iter(|| reduce(black_box(stack), Some((-999.0).into()), Reducer::Median));
        });
    }
    group.finish();

    let mut group = c.benchmark_group("geomedian");
    let side = 256;
    group.throughput(Throughput::Elements((side * side) as u64));
    let bands = Array4::from_shape_fn((DATES, 6, side, side), |(date, band, y, x)| {
        floats[(date, y * 4 + band / 4, x * 4 + band % 4)]
    });
    group.bench_function("6-bands/1-thread", |b| {
        b.iter(|| one.install(|| Geomedian::default().of(black_box(bands.view()))));
    });
    group.finish();

    let mut group = c.benchmark_group("dilate");
    group.throughput(Throughput::Elements(pixels));
    let mask = shorts
        .index_axis(ndarray::Axis(0), 0)
        .mapv(|sample| sample > 8000);
    for (name, element) in [("disk", Element::Disk), ("square", Element::Square)] {
        for radius in [3, 30] {
            let cleanup = Cleanup::default()
                .with_dilation(radius)
                .with_element(element);
            group.bench_function(format!("{name}/{radius}"), |b| {
                b.iter(|| cleanup.of(black_box(mask.view())));
            });
        }
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(10);
    targets = run
}
criterion_main!(benches);
