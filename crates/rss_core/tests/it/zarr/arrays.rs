//! Arrays of our own: what is written is read, whole and in part, and damage is an error.

use std::{fs, ops::Range};

use ndarray::{ArrayD, IxDyn};
use proptest::prelude::*;
use rss_core::{
    DataType, ErrorKind, Location, Session,
    zarr::{Array, ArraySpec, Codec},
};

fn session() -> Session {
    Session::builder().cpu_threads(2).build().unwrap()
}

fn place(dir: &tempfile::TempDir) -> Location {
    Location::parse(dir.path().join("array").to_str().unwrap()).unwrap()
}

/// Samples that compress, with a part that is all fill value.
fn samples(shape: &[usize]) -> ArrayD<i16> {
    let mut number = 0_i16;
    ArrayD::from_shape_fn(IxDyn(shape), |index| {
        number = number.wrapping_mul(31).wrapping_add(7);
        match index[0] < 3 {
            true => -999,
            false => 100 + number % 50 + i16::try_from(index[1]).unwrap(),
        }
    })
}

async fn written(location: &Location, spec: &ArraySpec, samples: &ArrayD<i16>) -> Array {
    let array = Array::create(&session(), location, spec).await.unwrap();
    array
        .write(&vec![0; samples.ndim()], samples.clone())
        .await
        .unwrap();
    Array::open(&session(), location).await.unwrap()
}

fn all(array: &Array) -> Vec<Range<u64>> {
    array.shape().iter().map(|&length| 0..length).collect()
}

#[tokio::test]
async fn what_is_written_is_read_by_every_codec() {
    for codec in [
        "none",
        "zstd:3",
        "gzip:1",
        "blosc-lz4",
        "blosc-zstd:1:byte",
        "blosc-zstd:3:bit",
    ] {
        for shard in [None, Some([8, 32, 32])] {
            let dir = tempfile::tempdir().unwrap();
            let samples = samples(&[10, 50, 70]);
            let mut spec = ArraySpec::new([10, 50, 70], DataType::I16, [4, 16, 16])
                .with_codec(codec.parse::<Codec>().unwrap())
                .with_fill(-999.0);
            spec.shard = shard.map(Vec::from);
            let array = written(&place(&dir), &spec, &samples).await;
            assert_eq!(array.shard(), shard.as_ref().map(|shard| &shard[..]));
            assert_eq!(array.chunk(), [4, 16, 16]);
            let read: ArrayD<i16> = array.read(&all(&array)).await.unwrap();
            assert!(read == samples, "{codec} {shard:?}");
        }
    }
}

#[tokio::test]
async fn a_shard_of_the_fill_value_alone_is_not_stored() {
    let dir = tempfile::tempdir().unwrap();
    let spec = ArraySpec::new([4, 40], DataType::I16, [2, 10])
        .with_shard([2, 20])
        .with_fill(-999.0);
    let mut samples = ArrayD::from_elem(IxDyn(&[4, 40]), -999_i16);
    samples[[3, 39]] = 5;
    let array = written(&place(&dir), &spec, &samples).await;
    let chunks = dir.path().join("array/c");
    let found: Vec<_> = ["0/0", "0/1", "1/0", "1/1"]
        .map(|key| chunks.join(key).exists())
        .into();
    assert_eq!(found, [false, false, false, true]);
    assert!(array.read::<i16>(&all(&array)).await.unwrap() == samples);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn any_box_is_read_as_it_was_written(
        shape in prop::collection::vec(1_usize..20, 2..4),
        chunk in prop::collection::vec(1_u64..7, 3),
        times in prop::collection::vec(1_u64..4, 3),
        cuts in prop::collection::vec((0.0..1.0, 0.0..1.0), 3),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let rank = shape.len();
            let data = samples(&shape);
            let shard: Vec<u64> = chunk.iter().zip(&times).map(|(a, b)| a * b).collect();
            let long: Vec<u64> = shape.iter().map(|&length| length as u64).collect();
            let spec = ArraySpec::new(long, DataType::I16, &chunk[..rank])
                .with_shard(&shard[..rank])
                .with_fill(-999.0);
            let array = written(&place(&dir), &spec, &data).await;
            let ranges: Vec<Range<u64>> = shape.iter().zip(&cuts).map(|(&length, &(a, b))| {
                let at = |part: f64| (part * length as f64) as u64;
                let (low, high) = (at(a).min(at(b)), at(a).max(at(b)));
                low..(high + 1).min(length as u64)
            }).collect();
            let read: ArrayD<i16> = array.read(&ranges).await.unwrap();
            let cut = data.slice_each_axis(|axis| {
                let range = &ranges[axis.axis.index()];
                ndarray::Slice::from(range.start as usize..range.end as usize)
            });
            assert!(read == cut);
        });
    }
}

#[tokio::test]
async fn a_box_that_cannot_be_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let spec = ArraySpec::new([8, 8], DataType::I16, [4, 4]).with_shard([4, 8]);
    let array = written(&place(&dir), &spec, &samples(&[8, 8])).await;
    for (ranges, said) in [
        (vec![0..8; 1], "1 ranges for an array of 2 axes"),
        (
            vec![0..8, 0..9],
            "0..9 of axis 1 is empty or outside of its 8 samples",
        ),
        (vec![3..3, 0..8], "3..3 of axis 0"),
    ] {
        let err = array.read::<i16>(&ranges).await.unwrap_err();
        assert_eq!(err.kind(), ErrorKind::InvalidInput);
        assert!(err.message().contains(said), "{err}");
    }
    let err = array.read::<u8>(&all(&array)).await.unwrap_err();
    assert!(
        err.message()
            .contains("its samples are int16, requested as uint8"),
        "{err}"
    );
    let err = array.write(&[2, 0], samples(&[4, 8])).await.unwrap_err();
    assert!(
        err.message()
            .contains("samples 2..6 of axis 0 are not complete shards of 4"),
        "{err}"
    );
    let err = Array::create(&session(), &place(&dir), &spec)
        .await
        .unwrap_err();
    assert!(
        err.message().contains("an array or group exists already"),
        "{err}"
    );
    let small = Session::builder().read_bytes(100).build().unwrap();
    let limited = Array::open(&small, &place(&dir)).await.unwrap();
    let err = limited.read::<i16>(&all(&limited)).await.unwrap_err();
    let said = "a read of 8 x 8 int16 samples exceeds the session's limit of 100 bytes";
    assert!(err.message().contains(said), "{err}");
    let bad = ArraySpec::new([8], DataType::U8, [3]).with_shard([4]);
    let err = Array::create(&session(), &place(&dir), &bad)
        .await
        .unwrap_err();
    assert!(
        err.message()
            .contains("a shard of 4 along axis 0 is not a whole number of chunks of 3"),
        "{err}"
    );
    let bad = ArraySpec::new([8], DataType::U8, [3]).with_fill(-1.0);
    let err = Array::create(&session(), &place(&dir), &bad)
        .await
        .unwrap_err();
    let expected = "fill value -1 is not a value of uint8";
    assert!(err.message().contains(expected), "{err}");
}

/// Every byte of a shard, flipped: an error that names shard and chunk, or the right samples, never
/// others.
#[tokio::test]
async fn a_flipped_bit_is_an_error_and_never_another_sample() {
    for codec in ["none", "blosc-lz4", "blosc-zstd", "zstd:1", "gzip:6"] {
        let dir = tempfile::tempdir().unwrap();
        let spec = ArraySpec::new([4, 12, 12], DataType::I16, [2, 6, 6])
            .with_shard([4, 12, 12])
            .with_codec(codec.parse::<Codec>().unwrap());
        let samples = samples(&[4, 12, 12]);
        written(&place(&dir), &spec, &samples).await;
        let path = dir.path().join("array/c/0/0/0");
        let whole = fs::read(&path).unwrap();
        let session = session();
        let mut refused = 0;
        for at in 0..whole.len() {
            let mut torn = whole.clone();
            torn[at] ^= 1 << (at % 8);
            fs::write(&path, &torn).unwrap();
            let array = Array::open(&session, &place(&dir)).await.unwrap();
            match array.read::<i16>(&all(&array)).await {
                Ok(read) => assert!(read == samples, "{codec}, byte {at}"),
                Err(err) => {
                    refused += 1;
                    assert_eq!(err.kind(), ErrorKind::Corrupt, "{err}");
                    let place = err.location().unwrap();
                    assert!(place.ends_with("array/c/0/0/0"), "{place}");
                    let named =
                        err.message().contains("chunk ") || err.message().contains("shard 0,0,0");
                    assert!(named, "{err}");
                }
            }
        }
        assert_eq!(refused, whole.len(), "{codec}");
    }
}

#[tokio::test]
async fn a_shard_that_is_cut_short_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let spec = ArraySpec::new([4, 12, 12], DataType::I16, [2, 6, 6]).with_shard([4, 12, 12]);
    written(&place(&dir), &spec, &samples(&[4, 12, 12])).await;
    let path = dir.path().join("array/c/0/0/0");
    let whole = fs::read(&path).unwrap();
    for length in [0, 1, 50, 131, 132, whole.len() / 2, whole.len() - 1] {
        fs::write(&path, &whole[..length]).unwrap();
        let array = Array::open(&session(), &place(&dir)).await.unwrap();
        let err = array.read::<i16>(&all(&array)).await.unwrap_err();
        assert_eq!(err.kind(), ErrorKind::Corrupt, "{length}: {err}");
        assert!(err.message().starts_with("shard 0,0,0: "), "{err}");
    }
}

#[tokio::test]
async fn metadata_that_is_torn_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let spec = ArraySpec::new([4, 12], DataType::I16, [2, 6]).with_shard([4, 12]);
    written(&place(&dir), &spec, &samples(&[4, 12])).await;
    let path = dir.path().join("array/zarr.json");
    let whole = fs::read_to_string(&path).unwrap();
    let with = |from: &str, to: &str| {
        assert!(whole.contains(from), "{from}");
        whole.replacen(from, to, 1)
    };
    for (text, said) in [
        (whole[..whole.len() / 2].to_owned(), "metadata is not JSON"),
        (
            with("\"zarr_format\": 3", "\"zarr_format\": 4"),
            "`zarr_format` is not 3",
        ),
        (with("int16", "int17"), "dtype \"int17\""),
        (with("\"regular\"", "\"other\""), "chunk grid `other`"),
        (with("sharding_indexed", "sharding"), "codec `sharding`"),
        (with("\"blosc\"", "\"zfp\""), "codec `zfp`"),
        (
            with("\"fill_value\": 0", "\"fill_value\": 1.5"),
            "fill value 1.5 is not a value of int16",
        ),
    ] {
        fs::write(&path, text).unwrap();
        let err = Array::open(&session(), &place(&dir)).await.unwrap_err();
        assert!(err.message().contains(said), "{said}: {err}");
        assert!(err.location().unwrap().ends_with("array"), "{err}");
    }
    fs::remove_file(&path).unwrap();
    let err = Array::open(&session(), &place(&dir)).await.unwrap_err();
    assert_eq!(err.kind(), ErrorKind::NotFound);
}

#[tokio::test]
async fn samples_of_float16_are_read_and_written_as_float32() {
    let dir = tempfile::tempdir().unwrap();
    for shard in [None, Some([4, 8])] {
        let mut spec = ArraySpec::new([5, 9], DataType::F32, [2, 4])
            .with_float16()
            .with_codec(Codec::None)
            .with_fill(f64::NAN);
        spec.shard = shard.map(Into::into);
        let dir = tempfile::tempdir_in(dir.path()).unwrap();
        let array = Array::create(&session(), &place(&dir), &spec)
            .await
            .unwrap();
        let given = ArrayD::from_shape_fn(vec![5, 9], |at| match at[0] {
            4 => f32::NAN,
            // 2^-24 and its multiples are the subnormal ones.
            0 => f32::from(u16::try_from(at[1]).unwrap()) * 2_f32.powi(-24),
            _ => f32::from(u16::try_from(at[0] * 9 + at[1]).unwrap()) * 0.125 - 2.0,
        });
        array.write(&[0, 0], given.clone()).await.unwrap();
        let array = Array::open(&session(), &place(&dir)).await.unwrap();
        assert!(array.is_float16());
        assert_eq!(array.dtype(), DataType::F32);
        let read: ArrayD<f32> = array.read(&[0..5, 0..9]).await.unwrap();
        let bits = |samples: &ArrayD<f32>| samples.mapv(f32::to_bits);
        assert_eq!(bits(&read), bits(&given));
        let part: ArrayD<f32> = array.read(&[1..3, 3..9]).await.unwrap();
        assert_eq!(part, given.slice(ndarray::s![1..3, 3..9]).into_dyn());
        let text = fs::read_to_string(dir.path().join("array/zarr.json")).unwrap();
        assert!(text.contains("\"data_type\": \"float16\""), "{text}");
    }
    let spec = ArraySpec::new([5], DataType::I16, [5]).with_float16();
    let err = Array::create(&session(), &place(&dir), &spec)
        .await
        .unwrap_err();
    assert!(err.message().contains("stored as float16"), "{err}");
}

#[tokio::test]
async fn an_array_without_axes_is_one_sample() {
    let dir = tempfile::tempdir().unwrap();
    let spec = ArraySpec::new([], DataType::I16, []).with_fill(-7);
    let array = Array::create(&session(), &place(&dir), &spec)
        .await
        .unwrap();
    let read: ArrayD<i16> = array.read(&[]).await.unwrap();
    assert_eq!((read.ndim(), read.iter().copied().collect()), (0, vec![-7]));
    let one = ArrayD::from_elem(Vec::new(), 12_i16);
    array.write(&[], one.clone()).await.unwrap();
    assert!(dir.path().join("array/c").is_file());
    let array = Array::open(&session(), &place(&dir)).await.unwrap();
    assert_eq!(array.read::<i16>(&[]).await.unwrap(), one);
    assert_eq!(array.read_pixels(&[]).await.unwrap().shape(), [1, 1, 1]);
}
