//! Arrays that zarr-python, tensorstore and zarrita wrote: every sample is what they say, or the array is
//! refused by the name of what is not known.

use std::{collections::HashMap, ops::Range, path::PathBuf};

use ndarray::ArrayD;
use rss_core::{Complex, DataType, ErrorKind, Location, Result, Sample, Session, zarr::Array};
use serde::Deserialize;

#[derive(Deserialize)]
struct Truth {
    path: String,
    says: String,
    dtype: String,
    shape: Vec<u64>,
    crc32: u32,
    window: Option<Window>,
}

#[derive(Deserialize)]
struct Window {
    offset: Vec<u64>,
    shape: Vec<u64>,
    crc32: u32,
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/zarr/others")
}

/// Returns each 16-bit float by the bits of its value, which is exact: IEEE 754's definition of binary16.
fn halves() -> HashMap<u32, u16> {
    let value = |bits: u16| {
        let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
        let (exponent, fraction) = (i32::from(bits >> 10 & 31), f32::from(bits & 1023));
        match exponent {
            0 => sign * fraction * 2_f32.powi(-24),
            31 if fraction == 0.0 => sign * f32::INFINITY,
            31 => f32::NAN,
            _ => sign * (1.0 + fraction / 1024.0) * 2_f32.powi(exponent - 15),
        }
    };
    let all = (0..=u16::MAX)
        .rev()
        .map(|bits| (value(bits).to_bits(), bits));
    // NumPy's NaN, which all NaNs are one of here.
    all.chain([(f32::NAN.to_bits(), 0x7e00)]).collect()
}

/// Reads a box as little-endian bytes in C order.
async fn bytes(array: &Array, ranges: &[Range<u64>]) -> Result<Vec<u8>> {
    async fn of<T, const N: usize>(
        array: &Array,
        ranges: &[Range<u64>],
        bytes: impl Fn(T) -> [u8; N],
    ) -> Result<Vec<u8>>
    where
        T: Sample + Send + Sync + 'static,
    {
        let samples: ArrayD<T> = array.read(ranges).await?;
        Ok(samples.iter().flat_map(|&sample| bytes(sample)).collect())
    }
    match array.dtype() {
        DataType::U8 => of(array, ranges, u8::to_le_bytes).await,
        DataType::I8 => of(array, ranges, i8::to_le_bytes).await,
        DataType::U16 => of(array, ranges, u16::to_le_bytes).await,
        DataType::I16 => of(array, ranges, i16::to_le_bytes).await,
        DataType::U32 => of(array, ranges, u32::to_le_bytes).await,
        DataType::I32 => of(array, ranges, i32::to_le_bytes).await,
        DataType::U64 => of(array, ranges, u64::to_le_bytes).await,
        DataType::I64 => of(array, ranges, i64::to_le_bytes).await,
        DataType::F32 if array.is_float16() => {
            let halves = halves();
            of(array, ranges, |sample: f32| {
                halves[&sample.to_bits()].to_le_bytes()
            })
            .await
        }
        DataType::F32 => of(array, ranges, f32::to_le_bytes).await,
        DataType::F64 => of(array, ranges, f64::to_le_bytes).await,
        DataType::C64 => {
            let bytes = |sample: Complex<f32>| {
                let (re, im) = (sample.re.to_le_bytes(), sample.im.to_le_bytes());
                [re[0], re[1], re[2], re[3], im[0], im[1], im[2], im[3]]
            };
            of(array, ranges, bytes).await
        }
        DataType::C128 => {
            let bytes = |sample: Complex<f64>| {
                let bits =
                    (u128::from(sample.im.to_bits()) << 64) | u128::from(sample.re.to_bits());
                bits.to_le_bytes()
            };
            of(array, ranges, bytes).await
        }
    }
}

#[tokio::test]
async fn arrays_of_others_are_read_right_or_refused_by_name() {
    let text = std::fs::read_to_string(folder().join("truth.json")).unwrap();
    let truths: Vec<Truth> = serde_json::from_str(&text).unwrap();
    let session = Session::builder().build().unwrap();
    let mut refused = Vec::new();
    let mut wrong = Vec::new();
    for truth in &truths {
        let path = folder().join(&truth.path);
        let location = Location::parse(path.to_str().unwrap()).unwrap();
        let array = match Array::open(&session, &location).await {
            Ok(array) => array,
            Err(err) => {
                assert_eq!(err.kind(), ErrorKind::Unsupported, "{}: {err}", truth.path);
                refused.push((truth.says.as_str(), err.message().to_owned()));
                continue;
            }
        };
        let name = match truth.dtype.as_str() {
            "bool" => "uint8",
            "float16" => "float32",
            other => other,
        };
        assert_eq!(
            (array.dtype().name(), array.shape()),
            (name, &truth.shape[..]),
            "{}",
            truth.path
        );
        let whole: Vec<_> = truth.shape.iter().map(|&length| 0..length).collect();
        let mut boxes = vec![(whole, truth.crc32)];
        if let Some(window) = &truth.window {
            let ranges = window.offset.iter().zip(&window.shape);
            boxes.push((
                ranges.map(|(&at, &length)| at..at + length).collect(),
                window.crc32,
            ));
        }
        for (ranges, crc32) in boxes {
            match bytes(&array, &ranges).await {
                Ok(bytes) if crc32fast::hash(&bytes) == crc32 => {}
                Ok(_) => wrong.push(format!("{} ({}): wrong samples", truth.path, truth.says)),
                Err(err) => wrong.push(format!("{} ({}): {err}", truth.path, truth.says)),
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    assert!(refused.is_empty(), "{refused:?}");
    assert!(truths.iter().any(|truth| truth.dtype == "float16"));
    assert!(truths.len() > 100);
}

/// What others laid out in another way would be written wrong: it is refused.
#[tokio::test]
async fn an_array_that_others_laid_out_otherwise_is_not_written() {
    let session = Session::builder().build().unwrap();
    let dir = tempfile::tempdir().unwrap();
    for (name, is_written) in [
        ("index_end_crc32c", true),
        ("index_end_no_crc32c", false),
        ("index_end_big_endian", false),
        ("index_start_crc32c", false),
    ] {
        let path = dir.path().join(name);
        std::fs::create_dir(&path).unwrap();
        let from = folder().join("zarr-python").join(name);
        std::fs::copy(from.join("zarr.json"), path.join("zarr.json")).unwrap();
        let location = Location::parse(path.to_str().unwrap()).unwrap();
        let array = Array::open(&session, &location).await.unwrap();
        let samples =
            ArrayD::from_shape_fn(vec![20, 24], |at| i16::try_from(at[0] * at[1]).unwrap());
        match array.write(&[0, 0], samples.clone()).await {
            Ok(()) => {
                assert!(is_written, "{name}");
                let read: ArrayD<i16> = array.read(&[0..20, 0..24]).await.unwrap();
                assert!(read == samples, "{name}");
            }
            Err(err) => {
                assert!(!is_written, "{name}: {err}");
                assert_eq!(err.kind(), ErrorKind::Unsupported);
            }
        }
    }
}
