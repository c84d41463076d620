//! Arrays of texts, which coordinates may be: names of bands, times, ids.
//!
//! Zarr v3: `string` by the codec `vlen-utf8`, `fixed_length_utf32`, `null_terminated_bytes`. v2: objects by the filter
//! `vlen-utf8`, and numpy's `U` and `S`. Their chunks are read whole.

use serde_json::Value;

use super::{
    Document, Storage, below,
    codec::Chain,
    extension::{self, Extension},
    metadata::{Keys, filters_of, grid_of, grid_of_v2, shape_of},
    vlen,
};
use crate::error::{Error, ErrorKind, Result};

/// Bytes of a chunk of texts.
const MOST_BYTES: usize = 16 << 20;
/// Texts of an array.
const MOST_TEXTS: u64 = 1 << 20;

/// How texts are stored.
#[derive(Clone, Copy, Debug)]
enum Form {
    /// Their number, then the length and the bytes of each.
    Lengths,
    /// So many bytes each, padded by zeros: UTF-32, or single bytes.
    Utf32 {
        bytes: usize,
        big_endian: bool,
    },
    Bytes {
        bytes: usize,
    },
}

struct Texts {
    form: Form,
    grid: Vec<u64>,
    keys: Keys,
    chain: Chain,
    fill: String,
}

/// Reads an array of texts; none if its elements are no texts.
pub(super) async fn read(
    document: &Document,
    storage: &Storage,
    path: &str,
) -> Result<Option<Vec<String>>> {
    let texts = match document {
        Document::V3(document) => Texts::parse(document)?,
        Document::V2(document, _) => Texts::parse_v2(document)?,
    };
    let Some(texts) = texts else { return Ok(None) };
    let shape = document.shape()?;
    let length = match shape.as_slice() {
        [] => 1,
        [length] if *length <= MOST_TEXTS => *length,
        _ => {
            let message =
                format!("texts of shape {shape:?}, expected one axis of at most {MOST_TEXTS}");
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
    };
    let step = texts.grid.first().copied().unwrap_or(1).max(1);
    let mut all = Vec::new();
    for (number, start) in (0..length)
        .step_by(usize::try_from(step).unwrap_or(usize::MAX))
        .enumerate()
    {
        let count = step.min(length - start);
        let chunk: Vec<u64> = shape.iter().map(|_| number as u64).collect();
        let key = below(path, &texts.keys.key(&chunk));
        match storage.read(&key).await? {
            None => all.extend((0..count).map(|_| texts.fill.clone())),
            Some(bytes) => {
                let bytes = texts.chain.undo(&bytes, MOST_BYTES)?;
                let found = texts
                    .form
                    .decode(&bytes)
                    .filter(|found| found.len() as u64 >= count);
                let found = found.ok_or_else(|| {
                    Error::new(
                        ErrorKind::Corrupt,
                        "a chunk of texts that cannot be decoded",
                    )
                    .at(storage.locate(&key))
                })?;
                let count = usize::try_from(count).unwrap_or(usize::MAX);
                all.extend(found.into_iter().take(count));
            }
        }
    }
    Ok(Some(all))
}

impl Texts {
    fn parse(document: &Value) -> Result<Option<Self>> {
        let Ok(dtype) =
            Extension::parse(document.get("data_type").unwrap_or(&Value::Null), "dtype")
        else {
            return Ok(None);
        };
        let codecs = extension::list(document.get("codecs").unwrap_or(&Value::Null), "codecs")?;
        let [first, rest @ ..] = codecs.as_slice() else {
            return Err(Error::new(ErrorKind::Corrupt, "`codecs` is empty"));
        };
        let bytes = dtype
            .configuration
            .get("length_bytes")
            .and_then(Value::as_u64);
        let bytes = bytes
            .and_then(|bytes| usize::try_from(bytes).ok())
            .unwrap_or(0);
        let form = match (dtype.name, first.name) {
            ("string", "vlen-utf8") => Form::Lengths,
            ("fixed_length_utf32", "bytes") => Form::Utf32 {
                bytes,
                big_endian: first.text("endian") == Some("big"),
            },
            ("null_terminated_bytes", "bytes") => Form::Bytes { bytes },
            ("string" | "fixed_length_utf32" | "null_terminated_bytes", codec) => {
                let message = format!("codec `{codec}` of texts");
                return Err(Error::new(ErrorKind::Unsupported, message));
            }
            _ => return Ok(None),
        };
        let rank = shape_of(document)?.len();
        Ok(Some(Self {
            form,
            grid: grid_of(document, rank)?,
            keys: Keys::parse(document)?,
            chain: Chain::of_texts(rest.iter())?,
            fill: fill_of(document),
        }))
    }

    fn parse_v2(document: &Value) -> Result<Option<Self>> {
        let dtype = document
            .get("dtype")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let filters = filters_of(document)?;
        let Some((order, kind)) = dtype.split_at_checked(1) else {
            return Ok(None);
        };
        let width = |digits: &str, size: usize| {
            digits
                .parse::<usize>()
                .ok()
                .and_then(|count| count.checked_mul(size))
        };
        let id = |filter: &Value| filter.get("id").and_then(Value::as_str).map(str::to_owned);
        let form = match kind.split_at_checked(1) {
            Some(("O", "")) => match filters.first().and_then(id).as_deref() {
                Some("vlen-utf8") => Some(Form::Lengths),
                other => {
                    let message = format!("objects by the filter {other:?}, expected vlen-utf8");
                    return Err(Error::new(ErrorKind::Unsupported, message));
                }
            },
            Some(("U", digits)) => width(digits, 4).map(|bytes| Form::Utf32 {
                bytes,
                big_endian: order == ">",
            }),
            Some(("S", digits)) => width(digits, 1).map(|bytes| Form::Bytes { bytes }),
            _ => None,
        };
        let Some(form) = form else { return Ok(None) };
        let rank = shape_of(document)?.len();
        let filters = match form {
            Form::Lengths => filters.get(1..).unwrap_or_default(),
            _ => filters,
        };
        let compressor = document.get("compressor").unwrap_or(&Value::Null);
        Ok(Some(Self {
            form,
            grid: grid_of_v2(document, rank)?,
            keys: Keys::parse_v2(document)?,
            chain: Chain::of_v2(filters, compressor, false, false, rank, 1)?,
            fill: fill_of(document),
        }))
    }
}

fn fill_of(document: &Value) -> String {
    let fill = document.get("fill_value").and_then(Value::as_str);
    fill.unwrap_or_default().to_owned()
}

impl Form {
    fn decode(self, bytes: &[u8]) -> Option<Vec<String>> {
        match self {
            Self::Lengths => vlen::decode(bytes, usize::MAX),
            Self::Bytes { bytes: 0 } | Self::Utf32 { bytes: 0, .. } => None,
            Self::Bytes { bytes: size } => {
                let texts = bytes.chunks_exact(size).map(|text| {
                    let text = str::from_utf8(text).ok()?;
                    Some(text.trim_end_matches('\0').to_owned())
                });
                texts.collect()
            }
            Self::Utf32 {
                bytes: size,
                big_endian,
            } => {
                let letter = |word: &[u8; 4]| {
                    char::from_u32(match big_endian {
                        true => u32::from_be_bytes(*word),
                        false => u32::from_le_bytes(*word),
                    })
                };
                let texts = bytes.chunks_exact(size).map(|text| {
                    let text: Option<String> = text.as_chunks::<4>().0.iter().map(letter).collect();
                    Some(text?.trim_end_matches('\0').to_owned())
                });
                texts.collect()
            }
        }
    }
}
