//! Reducers compared with numpy, and with sorting the samples of each pixel.

use std::fmt::Debug;

use ndarray::{Array3, Axis, s};
use proptest::prelude::*;

use super::*;
use crate::raster::Number;

/// Seven dates of eight pixels, one of which never has data.
const STACK: [[i16; 8]; 7] = [
    [8493, 5550, 6094, -999, -999, -999, -999, -999],
    [310, -999, 2422, -999, -999, -152, -999, -999],
    [1009, 7133, -999, 4105, 7311, 2587, -999, -999],
    [-999, 2144, 8912, -999, 4198, 4441, -999, 4892],
    [4486, 8958, 7230, -999, 6242, -999, -999, -999],
    [4089, -999, 7574, 1273, 7688, 5435, -999, -999],
    [3891, 128, 1102, -999, -999, 4089, -999, -999],
];

#[test]
fn the_numbers_are_those_of_numpy() {
    // numpy 2.4.6: nanmedian, nanmean, nanmin, nanmax, nanstd, nansum (but nothing of nothing), a count, and
    // nanpercentile, of the stack as float64 with nan for -999.
    let expected: [(&str, [f64; 8]); 15] = [
        (
            "median",
            [
                3990.0,
                5550.0,
                6662.0,
                2689.0,
                6776.5,
                4089.0,
                f64::NAN,
                4892.0,
            ],
        ),
        (
            "mean",
            [
                3713.0,
                4782.6,
                5555.666666666667,
                2689.0,
                6359.75,
                3280.0,
                f64::NAN,
                4892.0,
            ],
        ),
        (
            "min",
            [
                310.0,
                128.0,
                1102.0,
                1273.0,
                4198.0,
                -152.0,
                f64::NAN,
                4892.0,
            ],
        ),
        (
            "max",
            [
                8493.0,
                8958.0,
                8912.0,
                4105.0,
                7688.0,
                5435.0,
                f64::NAN,
                4892.0,
            ],
        ),
        (
            "std",
            [
                2661.7980764888985,
                3230.3176066758515,
                2830.984850228313,
                1416.0,
                1356.1114214916117,
                1944.4947929989423,
                f64::NAN,
                0.0,
            ],
        ),
        (
            "sum",
            [
                22278.0,
                23913.0,
                33334.0,
                5378.0,
                25439.0,
                16400.0,
                f64::NAN,
                4892.0,
            ],
        ),
        ("count", [6.0, 5.0, 6.0, 2.0, 4.0, 5.0, 0.0, 1.0]),
        (
            "p0",
            [
                310.0,
                128.0,
                1102.0,
                1273.0,
                4198.0,
                -152.0,
                f64::NAN,
                4892.0,
            ],
        ),
        (
            "p10",
            [
                659.5,
                934.4000000000001,
                1762.0,
                1556.2,
                4811.2,
                943.6000000000001,
                f64::NAN,
                4892.0,
            ],
        ),
        (
            "p25",
            [
                1729.5,
                2144.0,
                3340.0,
                1981.0,
                5731.0,
                2587.0,
                f64::NAN,
                4892.0,
            ],
        ),
        (
            "p33.3",
            [
                2925.5299999999997,
                3274.7919999999995,
                4863.879999999999,
                2216.056,
                6239.956,
                3085.6639999999998,
                f64::NAN,
                4892.0,
            ],
        ),
        (
            "p50",
            [
                3990.0,
                5550.0,
                6662.0,
                2689.0,
                6776.5,
                4089.0,
                f64::NAN,
                4892.0,
            ],
        ),
        (
            "p90",
            [
                6489.5,
                8228.0,
                8243.0,
                3821.8,
                7574.9,
                5037.4,
                f64::NAN,
                4892.0,
            ],
        ),
        (
            "p97.5",
            [
                7992.125,
                8775.5,
                8744.75,
                4034.2,
                7659.725,
                5335.6,
                f64::NAN,
                4892.0,
            ],
        ),
        (
            "p100",
            [
                8493.0,
                8958.0,
                8912.0,
                4105.0,
                7688.0,
                5435.0,
                f64::NAN,
                4892.0,
            ],
        ),
    ];
    let stack = Array3::from_shape_fn((7, 2, 4), |(date, y, x)| STACK[date][y * 4 + x]);
    for (name, values) in expected {
        let reducer: Reducer = name.parse().unwrap();
        let shorts = reduce(&Pixels::I16(stack.clone()), Some((-999.0).into()), reducer).unwrap();
        let wide = stack.mapv(|sample| match sample {
            -999 => f64::NAN,
            sample => f64::from(sample),
        });
        let doubles = reduce(&Pixels::F64(wide.clone()), None, reducer).unwrap();
        let floats = reduce_f32(wide.mapv(|value| value as f32).view(), reducer).unwrap();
        for ((pixel, value), float) in values.into_iter().enumerate().zip(&floats) {
            // Reducers that return integers return their nodata value.
            let keeps = matches!(reducer, Reducer::Min | Reducer::Max);
            let short = match shorts.to_f64()[pixel] {
                -999.0 if keeps => f64::NAN,
                short => short,
            };
            let near = |found: f64, slack: f64| {
                let close = (found - value).abs() <= value.abs() * slack;
                assert!(
                    close || found.is_nan() && value.is_nan(),
                    "{name} {pixel}: {found} {value}"
                );
            };
            near(doubles.to_f64()[pixel], 1e-15);
            near(short, 1e-7);
            near(f64::from(*float), 1e-7);
        }
    }
}

#[test]
fn types_follow_the_table() {
    let stack = Pixels::zeros(
        DataType::U8,
        2,
        crate::geo::Size {
            width: 3,
            height: 1,
        },
    )
    .unwrap();
    for reducer in Reducer::NAMED {
        for dtype in DataType::ALL {
            let Ok(output) = reducer.output(dtype) else {
                assert!(matches!(dtype, DataType::C64 | DataType::C128));
                continue;
            };
            let size = crate::geo::Size {
                width: 3,
                height: 1,
            };
            let stack = Pixels::zeros(dtype, 2, size).unwrap();
            let image = reduce(&stack, Some(0.0.into()), reducer).unwrap();
            assert_eq!(
                (image.dtype(), image.shape()),
                (output, [1, 1, 3]),
                "{reducer} {dtype}"
            );
            // No valid sample: all pixels are the result's nodata.
            match reducer.output_nodata(dtype, Some(0.0.into())) {
                Some(nodata) if nodata.is_nan() => {
                    assert!(image.to_f64().iter().all(|v| v.is_nan()))
                }
                nodata => assert_eq!(image.to_f64(), [nodata.map_or(0.0, Number::as_f64); 3]),
            }
        }
    }
    // A nodata value that the dtype cannot hold masks nothing.
    let count = reduce(&stack, Some((-1.0).into()), Reducer::Count).unwrap();
    assert_eq!(count.to_f64(), [2.0; 3]);
    assert_eq!(
        Reducer::Min.output_nodata(DataType::U8, Some((-1.0).into())),
        None
    );
    assert!(
        Reducer::Min
            .output_nodata(DataType::F32, None)
            .unwrap()
            .is_nan()
    );
}

#[test]
fn names_are_read_as_they_are_written() {
    let some = [0.0, 2.5, 90.0, 100.0].map(|percent| Reducer::percentile(percent).unwrap());
    for reducer in Reducer::NAMED.into_iter().chain(some) {
        assert_eq!(reducer.to_string().parse::<Reducer>().unwrap(), reducer);
    }
    for text in ["p101", "p1e9"] {
        let err = text.parse::<Reducer>().unwrap_err();
        assert!(err.message().ends_with("is not within 0 to 100"), "{err}");
    }
    for text in ["p", "pinf", "pnan", "p-1", "mode", "", "Median"] {
        let err = text.parse::<Reducer>().unwrap_err();
        assert_eq!(
            err.message(),
            format!(
                "reducer `{text}` is not one of median, mean, min, max, sum, std, count, first, last, or a \
                 percentile such as p90"
            )
        );
    }
    assert!(Percentile::new(f64::NAN).is_err());
}

#[test]
fn what_cannot_be_reduced_says_why() {
    let size = crate::geo::Size {
        width: 2,
        height: 2,
    };
    let complex = Pixels::zeros(DataType::C64, 2, size).unwrap();
    let err = reduce(&complex, None, Reducer::Median).unwrap_err();
    assert_eq!(err.kind(), ErrorKind::Unsupported);
    assert_eq!(
        err.message(),
        "median of complex64 samples, which have no order"
    );
    let none = Pixels::zeros(DataType::U8, 0, size).unwrap();
    let err = reduce(&none, None, Reducer::percentile(90.0).unwrap()).unwrap_err();
    assert_eq!(err.kind(), ErrorKind::InvalidInput);
    assert_eq!(err.message(), "p90 of no time steps; expected at least one");
    let empty = Pixels::F32(Array3::zeros((3, 0, 5)));
    let image = reduce(&empty, None, Reducer::Std).unwrap();
    assert_eq!(image.shape(), [1, 0, 5]);
}

#[test]
fn the_greatest_samples_of_a_type_are_samples() {
    // The value that replaces invalid samples in the network is one that valid samples may have, too.
    let stack = Array3::from_shape_vec((3, 1, 2), vec![255_u8, 0, 255, 255, 7, 0]).unwrap();
    let median = reduce(&Pixels::U8(stack), Some(0.0.into()), Reducer::Median).unwrap();
    assert_eq!(median.to_f64(), [255.0, 255.0]);
    let wide = Array3::from_shape_vec((3, 1, 1), vec![f32::INFINITY, f32::NAN, 1.0]).unwrap();
    let max = reduce_f32(wide.view(), Reducer::percentile(100.0).unwrap()).unwrap();
    assert_eq!(max[(0, 0)], f32::INFINITY);
}

/// Reduces one pixel by sorting its valid samples.
fn by_hand(samples: &[f64], reducer: Reducer) -> Option<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1);
    if reducer == Reducer::Count {
        return Some(samples.len() as f64);
    }
    let last = last?;
    let mean = samples.iter().sum::<f64>() / samples.len() as f64;
    let between = |percent: f64| {
        let exact = percent / 100.0 * last as f64;
        let (low, high) = (
            sorted[exact.floor() as usize],
            sorted[exact.ceil() as usize],
        );
        low + (high - low) * exact.fract()
    };
    Some(match reducer {
        Reducer::Median => f64::midpoint(sorted[last / 2], sorted[samples.len() / 2]),
        Reducer::Mean => mean,
        Reducer::Min => sorted[0],
        Reducer::Max => sorted[last],
        Reducer::Sum => samples.iter().sum(),
        Reducer::Std => {
            let squares = samples.iter().map(|sample| (sample - mean).powi(2));
            (squares.sum::<f64>() / samples.len() as f64).sqrt()
        }
        Reducer::First => samples[0],
        Reducer::Last => samples[last],
        Reducer::Percentile(percentile) => between(percentile.percent()),
        Reducer::Count => samples.len() as f64,
    })
}

/// Checks every reducer on a stack, which may be a view of a part of another.
fn check<T: Real + Debug>(stack: ArrayView3<'_, T>, nodata: Option<Number>, percent: f64) {
    let percentile = Reducer::percentile(percent).unwrap();
    for reducer in Reducer::NAMED.into_iter().chain([percentile]) {
        let image = reduced(stack, nodata, reducer).unwrap();
        let fill = reducer
            .output_nodata(T::DTYPE, nodata)
            .map_or(0.0, Number::as_f64);
        let pixels = stack.lanes(Axis(0));
        for (pixel, found) in pixels.into_iter().zip(image.to_f64()) {
            let valid: Vec<f64> = pixel
                .iter()
                .map(|sample| sample.number())
                .filter(|sample| !sample.is_nan() && nodata != Some(Number::from(*sample)))
                .collect();
            let expected = by_hand(&valid, reducer).unwrap_or(fill);
            let exact = T::of_number(expected).number();
            let keeps = reducer.output(T::DTYPE).unwrap() == T::DTYPE;
            let expected = if keeps { exact } else { expected };
            let close = (found - expected).abs() <= 1e-6 * (1.0 + expected.abs());
            assert!(
                close || found.is_nan() && expected.is_nan(),
                "{reducer} of {valid:?}: {found}, expected {expected}"
            );
        }
    }
}

/// Makes stacks: few values, so that some are equal, and a nodata value among them or not.
fn stacks<T: Debug + Copy>(
    dates: impl Strategy<Value = usize>,
    sample: impl Strategy<Value = T> + Clone,
) -> impl Strategy<Value = Array3<T>> {
    (dates, 1_usize..4, 1_usize..150).prop_flat_map(move |(dates, height, width)| {
        let samples = prop::collection::vec(sample.clone(), dates * height * width);
        samples.prop_map(move |samples| {
            Array3::from_shape_vec((dates, height, width), samples).unwrap()
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn shorts_are_what_sorting_says(
        stack in stacks(1_usize..40, prop_oneof![2 => Just(-999_i16), 5 => -50_i16..50, 1 => any::<i16>()]),
        nodata in prop::sample::select(vec![Some(-999.0), None, Some(0.5), Some(f64::NAN)]),
        percent in 0.0..=100.0,
    ) {
        check(stack.view(), nodata.map(Number::from), percent);
    }

    #[test]
    fn bytes_are_what_sorting_says(
        stack in stacks(1_usize..20, prop_oneof![Just(0_u8), Just(255), any::<u8>()]),
        nodata in prop::sample::select(vec![Some(0.0), Some(255.0), None]),
        percent in 0.0..=100.0,
    ) {
        check(stack.view(), nodata.map(Number::from), percent);
    }

    #[test]
    fn floats_are_what_sorting_says(
        stack in stacks(1_usize..20, prop_oneof![2 => Just(f32::NAN), 1 => Just(-9999.0), 5 => -1.0_f32..2.0]),
        nodata in prop::sample::select(vec![Some(-9999.0), None, Some(f64::NAN)]),
        percent in 0.0..=100.0,
    ) {
        check(stack.view(), nodata.map(Number::from), percent);
    }

    #[test]
    fn wide_numbers_are_what_sorting_says(
        stack in stacks(1_usize..12, any::<i32>()),
        percent in 0.0..=100.0,
    ) {
        check(stack.view(), Some(0.0.into()), percent);
        check(stack.mapv(f64::from).view(), None, percent);
    }

    #[test]
    fn views_of_any_strides_give_the_same(
        stack in stacks(1_usize..9, prop_oneof![Just(-999_i16), -50_i16..50]),
    ) {
        check(stack.view().permuted_axes([0, 2, 1]), Some((-999.0).into()), 25.0);
        check(stack.slice(s![..;-1, .., ..;2]), Some((-999.0).into()), 25.0);
        check(stack.slice(s![.., ..1, ..]), Some((-999.0).into()), 25.0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4))]

    #[test]
    fn more_dates_than_a_network_sorts_are_selected(
        stack in stacks(125_usize..140, prop_oneof![Just(-999_i16), -50_i16..50]),
        percent in 0.0..=100.0,
    ) {
        check(stack.view(), Some((-999.0).into()), percent);
    }
}
