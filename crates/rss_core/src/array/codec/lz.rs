//! The compressors, one call each. Their contexts are cached for each thread, since creating one takes time and
//! memory.

use std::cell::RefCell;

use libdeflater::{CompressionLvl, Compressor, Decompressor};

use crate::error::{Error, ErrorKind, Result};

thread_local! {
    static ROOM: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    static ZSTD_IN: RefCell<Option<(i32, zstd::bulk::Compressor<'static>)>> = const { RefCell::new(None) };
    static ZSTD_OUT: RefCell<Option<zstd::bulk::Decompressor<'static>>> = const { RefCell::new(None) };
    static DEFLATE_IN: RefCell<Option<(i32, Compressor)>> = const { RefCell::new(None) };
    static DEFLATE_OUT: RefCell<Option<Decompressor>> = const { RefCell::new(None) };
}

fn wrong(what: &str, err: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::new(ErrorKind::Corrupt, format!("{what} that cannot be decoded")).with_source(err)
}

fn length(what: &str, got: usize, expected: usize) -> Result<()> {
    if got == expected {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Corrupt,
        format!("{what} of {got} bytes, expected {expected}"),
    ))
}

/// A compressor of [c-blosc](https://github.com/Blosc/c-blosc): its `cname`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cname {
    BloscLz,
    Lz4,
    Snappy,
    Zlib,
    Zstd,
}

/// Decodes a stream of a Blosc frame that must fill `out`.
pub(super) fn decode(cname: Cname, bytes: &[u8], out: &mut [u8]) -> Result<()> {
    match cname {
        Cname::Lz4 => {
            let most = i32::try_from(out.len()).ok();
            let got = lz4::block::decompress_to_buffer(bytes, most, out)
                .map_err(|err| wrong("LZ4 data", err))?;
            length("LZ4 data", got, out.len())
        }
        Cname::Zstd => length("Zstandard data", unzstd(bytes, out)?, out.len()),
        Cname::Zlib => {
            let got = inflate(bytes, out, Wrapping::Zlib)?
                .ok_or_else(|| Error::new(ErrorKind::Corrupt, "zlib data that is too long"))?;
            length("zlib data", got, out.len())
        }
        Cname::BloscLz => {
            let got = blosclz(bytes, out).ok_or_else(|| {
                Error::new(ErrorKind::Corrupt, "BloscLZ data that cannot be decoded")
            })?;
            length("BloscLZ data", got, out.len())
        }
        Cname::Snappy => Err(Error::new(
            ErrorKind::Unsupported,
            "Blosc with Snappy, which its authors no longer build by default",
        )),
    }
}

/// Appends a compressed stream to `out`, or returns none where it would be as long as the bytes.
pub(super) fn encode(
    cname: Cname,
    level: i32,
    bytes: &[u8],
    out: &mut Vec<u8>,
) -> Result<Option<usize>> {
    let failed =
        |err| Error::new(ErrorKind::InvalidInput, "a chunk cannot be compressed").with_source(err);
    let most = match cname {
        Cname::Lz4 => lz4::block::compress_bound(bytes.len()).map_err(failed)?,
        Cname::Zstd => zstd::zstd_safe::compress_bound(bytes.len()),
        Cname::BloscLz | Cname::Snappy | Cname::Zlib => {
            return Err(Error::new(
                ErrorKind::Unsupported,
                "Blosc is written with lz4 or zstd",
            ));
        }
    };
    with_room(most, |room| {
        let written = match cname {
            Cname::Lz4 => {
                let mode =
                    (level > 1).then_some(lz4::block::CompressionMode::HIGHCOMPRESSION(level));
                lz4::block::compress_to_buffer(bytes, mode, false, room).map_err(failed)?
            }
            _ => to_zstd(level, bytes, room)?,
        };
        if written >= bytes.len() {
            return Ok(None);
        }
        out.extend_from_slice(room.get(..written).unwrap_or_default());
        Ok(Some(written))
    })
}

/// Lends a buffer that is cached for each thread: a compressor needs capacity for the worst case, and uses little of
/// it.
pub(super) fn with_room<R>(length: usize, work: impl FnOnce(&mut [u8]) -> Result<R>) -> Result<R> {
    /// The largest buffer that a thread keeps.
    const MOST_KEPT_BYTES: usize = 8 << 20;
    ROOM.with_borrow_mut(|room| {
        if room.len() < length {
            room.resize(length, 0);
        }
        let done = work(room.get_mut(..length).unwrap_or_default());
        if room.len() > MOST_KEPT_BYTES {
            *room = Vec::new();
        }
        done
    })
}

/// Compresses into `out`, which must hold the worst case, and returns the compressed length.
pub(super) fn to_zstd(level: i32, bytes: &[u8], out: &mut [u8]) -> Result<usize> {
    let failed =
        |err| Error::new(ErrorKind::InvalidInput, "a chunk cannot be compressed").with_source(err);
    ZSTD_IN.with_borrow_mut(|kept| {
        if kept.as_ref().is_none_or(|(known, _)| *known != level) {
            let compressor = zstd::bulk::Compressor::new(level).map_err(failed)?;
            *kept = Some((level, compressor));
        }
        match kept {
            Some((_, compressor)) => compressor.compress_to_buffer(bytes, out).map_err(failed),
            None => Ok(0),
        }
    })
}

/// Decodes Zstandard frames and returns the decoded length; more bytes than `out` holds are an error.
pub(super) fn unzstd(bytes: &[u8], out: &mut [u8]) -> Result<usize> {
    ZSTD_OUT.with_borrow_mut(|kept| {
        let decompressor = match kept {
            Some(decompressor) => decompressor,
            None => {
                let made = zstd::bulk::Decompressor::new();
                kept.insert(made.map_err(|err| wrong("Zstandard data", err))?)
            }
        };
        decompressor
            .decompress_to_buffer(bytes, out)
            .map_err(|err| wrong("Zstandard data", err))
    })
}

/// The container of a DEFLATE stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wrapping {
    Gzip,
    Zlib,
}

/// Inflates one stream and returns its decoded length; none where it does not fit `out`.
pub(super) fn inflate(bytes: &[u8], out: &mut [u8], wrapping: Wrapping) -> Result<Option<usize>> {
    use libdeflater::DecompressionError::{BadData, InsufficientSpace};
    DEFLATE_OUT.with_borrow_mut(|kept| {
        let decompressor = kept.get_or_insert_with(Decompressor::new);
        let done = match wrapping {
            Wrapping::Gzip => decompressor.gzip_decompress(bytes, out),
            Wrapping::Zlib => decompressor.zlib_decompress(bytes, out),
        };
        match done {
            Ok(length) => Ok(Some(length)),
            Err(InsufficientSpace) => Ok(None),
            Err(BadData) => Err(Error::new(
                ErrorKind::Corrupt,
                "DEFLATE data that cannot be decoded",
            )),
        }
    })
}

/// Appends a gzip stream.
pub(super) fn to_gzip(level: i32, bytes: &[u8], out: &mut Vec<u8>) -> Result<()> {
    let failed = |what: String| Error::new(ErrorKind::InvalidInput, what);
    DEFLATE_IN.with_borrow_mut(|kept| {
        if kept.as_ref().is_none_or(|(known, _)| *known != level) {
            let made = CompressionLvl::new(level)
                .map_err(|_| failed(format!("gzip level {level} is not one of 0 to 9")))?;
            *kept = Some((level, Compressor::new(made)));
        }
        let Some((_, compressor)) = kept else {
            return Ok(());
        };
        let start = out.len();
        out.resize(start + compressor.gzip_compress_bound(bytes.len()), 0);
        let written = compressor
            .gzip_compress(bytes, &mut out[start..])
            .map_err(|err| failed(format!("a chunk cannot be compressed: {err}")))?;
        out.truncate(start + written);
        Ok(())
    })
}

/// Decodes BloscLZ, which is [FastLZ](https://github.com/ariya/FastLZ)'s second level with other limits:
/// a control byte states the number of literals that follow, or the length and distance of a match.
fn blosclz(bytes: &[u8], out: &mut [u8]) -> Option<usize> {
    // The longest distance of the short form; the long form counts from it.
    const FAR: usize = 8191;
    let mut next = 0;
    let byte = |next: &mut usize| {
        let byte = bytes.get(*next).copied().map(usize::from);
        *next += 1;
        byte
    };
    let mut at = 0;
    let mut control = byte(&mut next)? & 31;
    loop {
        if control < 32 {
            let count = control + 1;
            let literals = bytes.get(next..next + count)?;
            out.get_mut(at..at + count)?.copy_from_slice(literals);
            next += count;
            at += count;
        } else {
            let mut length = (control >> 5) + 2;
            if length == 9 {
                loop {
                    let more = byte(&mut next)?;
                    length += more;
                    if more != 255 {
                        break;
                    }
                }
            }
            let high = (control & 31) << 8;
            let mut back = high + byte(&mut next)?;
            if back == (31 << 8) + 255 {
                let high = byte(&mut next)?;
                back = (high << 8) + byte(&mut next)? + FAR;
            }
            let from = at.checked_sub(back + 1)?;
            if length > out.len() - at {
                return None;
            }
            // Byte by byte: a match may overlap the bytes that it produces.
            for step in 0..length {
                out[at + step] = out[from + step];
            }
            at += length;
        }
        match byte(&mut next) {
            Some(more) => control = more,
            None => return Some(at),
        }
    }
}
