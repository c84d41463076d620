//! TIFF's LZW decoder.
//!
//! See TIFF 6.0, section 13. The variant of the first writers is read too, as in libtiff: codes start
//! at the lowest bit, and are widened one code later. Every string of the table, except the single bytes,
//! is already in the output, where the code before it was decoded. So an entry is an offset and a length,
//! and decoding is copying inside the output.

use super::damaged;
use crate::error::Result;

const CLEAR: usize = 256;
const END: usize = 257;
const FIRST_FREE: usize = 258;
const LEAST_BITS: u32 = 9;
const MOST_BITS: u32 = 12;
const ENTRIES: usize = 1 << MOST_BITS;
/// The largest expansion of LZW: a string has at most 4096 bytes, and a code at least nine bits.
const MOST_OF_LZW: usize = 3641;
/// Bytes that are copied at once. The buffer has as many after the output, so that a copy may run past its
/// end without a check for each byte.
const CHUNK: usize = 16;
/// A string longer than this is copied by one `memmove`.
const LONG: usize = 4 * CHUNK;

/// Decodes `bytes` into `out`, up to `length` bytes; `out` is truncated to the decoded bytes.
///
/// Bytes of the last code past `length` are dropped. Data that ends early is not an error here: the caller
/// checks the length.
pub(super) fn unpack(bytes: &[u8], length: usize, out: &mut Vec<u8>) -> Result<()> {
    let length = length.min(bytes.len().saturating_mul(MOST_OF_LZW));
    let singles = length.saturating_add(CHUNK);
    out.resize(singles.saturating_add(CLEAR + CHUNK), 0);
    let tail = out.get_mut(singles..).unwrap_or_default();
    for (slot, byte) in tail.iter_mut().zip(0..=u8::MAX) {
        *slot = byte;
    }
    // Every stream starts with the code 256 in nine bits. Highest bit first that is 0x80 and a byte below
    // 0x80; lowest bit first it is 0x00 and an odd byte. libtiff tells the variants apart by this, too.
    let is_old = matches!(bytes, [0, second, ..] if second & 1 == 1);
    let written = if is_old {
        decode::<LowFirst>(bytes, length, singles, out)
    } else {
        decode::<HighFirst>(bytes, length, singles, out)
    };
    out.truncate(written.ok_or_else(|| damaged("LZW"))?);
    Ok(())
}

/// A string of the table: its offset in the buffer, and its length.
#[derive(Clone, Copy, Default)]
struct Code {
    from: u32,
    length: u32,
}

/// The order of a code's bits in bytes.
trait BitOrder {
    /// How many codes later than in TIFF 6.0 codes are widened.
    const LATE: usize;
    /// Adds eight bytes after the first `count` bits.
    fn add(buffer: u64, count: u32, bytes: [u8; 8]) -> u64;
    /// Returns the first `width` bits, 1 to 63.
    fn first(buffer: u64, width: u32) -> u64;
    /// Drops the first `width` bits.
    fn skip(buffer: u64, width: u32) -> u64;
}

struct HighFirst;
struct LowFirst;

impl BitOrder for HighFirst {
    const LATE: usize = 0;

    fn add(buffer: u64, count: u32, bytes: [u8; 8]) -> u64 {
        buffer | u64::from_be_bytes(bytes) >> count
    }

    fn first(buffer: u64, width: u32) -> u64 {
        buffer >> (64 - width)
    }

    fn skip(buffer: u64, width: u32) -> u64 {
        buffer << width
    }
}

impl BitOrder for LowFirst {
    const LATE: usize = 1;

    fn add(buffer: u64, count: u32, bytes: [u8; 8]) -> u64 {
        buffer | u64::from_le_bytes(bytes) << count
    }

    fn first(buffer: u64, width: u32) -> u64 {
        buffer & ((1 << width) - 1)
    }

    fn skip(buffer: u64, width: u32) -> u64 {
        buffer >> width
    }
}

/// Returns the number of bytes written to `out`, at most `length`; none for a code without a string.
///
/// The single bytes are in `out` from `singles` on, and a chunk follows them.
fn decode<O: BitOrder>(
    bytes: &[u8],
    length: usize,
    singles: usize,
    out: &mut [u8],
) -> Option<usize> {
    let mut table = [Code::default(); ENTRIES];
    for (from, entry) in (u32::try_from(singles).ok()?..).zip(table.iter_mut().take(CLEAR)) {
        *entry = Code { from, length: 1 };
    }
    let length = u32::try_from(length).ok()?;
    // The first code must clear the table: until then no code has a string.
    let mut next = 0;
    let mut width = LEAST_BITS;
    let mut written = 0;
    let (mut buffer, mut count, mut at) = (0, 0, 0);
    while written < length {
        if count < width {
            if let Some(more) = bytes.get(at..).and_then(|rest| rest.first_chunk()) {
                // The buffer may get bits past `count`. They are those of the next bytes, which are
                // or-ed in again with the same value.
                buffer = O::add(buffer, count, *more);
                at += (63 - count as usize) / 8;
                count |= 56;
            } else {
                while let Some(&byte) = bytes.get(at).filter(|_| count <= 56) {
                    buffer = O::add(buffer, count, [byte, 0, 0, 0, 0, 0, 0, 0]);
                    at += 1;
                    count += 8;
                }
                if count < width {
                    break;
                }
            }
        }
        let code = usize::try_from(O::first(buffer, width)).ok()?;
        buffer = O::skip(buffer, width);
        count -= width;
        match code {
            CLEAR => {
                next = FIRST_FREE;
                width = LEAST_BITS;
                continue;
            }
            END => break,
            _ if code >= next => return None,
            _ => {}
        }
        let entry = *table.get(code)?;
        let end = written + entry.length;
        if end > length {
            let (from, to) = (entry.from as usize, written as usize);
            for n in 0..(length - written) as usize {
                *out.get_mut(to + n)? = *out.get(from + n)?;
            }
            return usize::try_from(length).ok();
        }
        copy(
            out,
            entry.from as usize,
            written as usize,
            entry.length as usize,
        )?;
        if code + 1 == next {
            // The newest string may be used before its last byte is known (K-omega-K): its last byte is
            // the first byte of this copy, which is written only now.
            let last = *out.get(entry.from as usize + entry.length as usize - 1)?;
            *out.get_mut(end as usize - 1)? = last;
        }
        // The new string is this one and the byte that the next code will write after it.
        if let Some(free) = table.get_mut(next) {
            *free = Code {
                from: written,
                length: entry.length + 1,
            };
            next += 1;
            if next == (1 << width) + O::LATE && width < MOST_BITS {
                width += 1;
            }
        }
        written = end;
    }
    usize::try_from(written).ok()
}

/// Copies bytes of the buffer to a later offset; up to a chunk is written past their end.
fn copy(out: &mut [u8], from: usize, to: usize, length: usize) -> Option<()> {
    let chunk: [u8; CHUNK] = *out.get(from..)?.first_chunk()?;
    *out.get_mut(to..)?.first_chunk_mut()? = chunk;
    if length <= CHUNK {
        return Some(());
    }
    if length > LONG {
        out.get(from..from + length)?;
        out.get(to..to + length)?;
        out.copy_within(from..from + length, to);
        return Some(());
    }
    let mut done = CHUNK;
    while done < length {
        let chunk: [u8; CHUNK] = *out.get(from + done..)?.first_chunk()?;
        *out.get_mut(to + done..)?.first_chunk_mut()? = chunk;
        done += CHUNK;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use weezl::{BitOrder, LzwStatus, decode::Decoder, encode::Encoder};

    use super::*;

    fn encoder(is_old: bool) -> Encoder {
        match is_old {
            true => Encoder::new(BitOrder::Lsb, 8),
            false => Encoder::with_tiff_size_switch(BitOrder::Msb, 8),
        }
    }

    /// Decodes with weezl, up to `length` bytes or the end code; none if it finds damage, or neither.
    fn by_weezl(bytes: &[u8], length: usize) -> Option<Vec<u8>> {
        let mut decoder = Decoder::with_tiff_size_switch(BitOrder::Msb, 8);
        let mut out = vec![0; length];
        let (mut read, mut written) = (0, 0);
        while written < length {
            let result = decoder.decode_bytes(&bytes[read..], &mut out[written..]);
            read += result.consumed_in;
            written += result.consumed_out;
            match result.status {
                Ok(LzwStatus::Ok) if result.consumed_in + result.consumed_out > 0 => {}
                Ok(LzwStatus::Done) => break,
                _ => return None,
            }
        }
        out.truncate(written);
        Some(out)
    }

    fn unpacked(bytes: &[u8], length: usize) -> Option<Vec<u8>> {
        // Bytes of an earlier tile must not appear in the output.
        let mut out = vec![0xA5; length / 2];
        unpack(bytes, length, &mut out).ok().map(|()| out)
    }

    /// Noise, runs, a few values, and a text that repeats.
    fn data() -> impl Strategy<Value = Vec<u8>> {
        let runs = prop::collection::vec((any::<u8>(), 1usize..3000), 0..12).prop_map(|runs| {
            runs.into_iter()
                .flat_map(|(byte, count)| std::iter::repeat_n(byte, count))
                .collect()
        });
        let repeated = (prop::collection::vec(any::<u8>(), 1..90), 1usize..400)
            .prop_map(|(text, times)| text.repeat(times));
        prop_oneof![
            prop::collection::vec(any::<u8>(), 0..20_000),
            prop::collection::vec(0u8..3, 0..40_000),
            runs,
            repeated,
        ]
    }

    proptest! {
        #[test]
        fn what_was_encoded_is_read_up_to_any_length(
            data in data(),
            is_old: bool,
            cut in 0.0..1.0,
        ) {
            let bytes = encoder(is_old).encode(&data).unwrap();
            let length = (data.len() as f64 * cut) as usize;
            for length in [length, data.len(), data.len() + 100] {
                let read = unpacked(&bytes, length);
                prop_assert_eq!(read.as_deref(), Some(&data[..length.min(data.len())]));
            }
        }

        #[test]
        fn what_is_cut_is_read_up_to_there(data in data(), is_old: bool, cut in 0.0..1.0) {
            let bytes = encoder(is_old).encode(&data).unwrap();
            let bytes = &bytes[..(bytes.len() as f64 * cut) as usize];
            let read = unpacked(bytes, data.len()).unwrap();
            prop_assert!(data.starts_with(&read));
        }

        #[test]
        fn damaged_data_is_read_as_weezl_does_or_refused(
            data in data(),
            is_old: bool,
            damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        ) {
            let mut bytes = encoder(is_old).encode(&data).unwrap();
            for (place, byte) in damage {
                let place = place.index(bytes.len());
                bytes[place] = byte;
            }
            let read = unpacked(&bytes, data.len());
            let starts_clear = bytes.len() >= 2 && bytes[0] == 0x80 && bytes[1] & 0x80 == 0;
            if let Some(right) = by_weezl(&bytes, data.len()).filter(|_| starts_clear) {
                prop_assert_eq!(read, Some(right));
            }
        }

        #[test]
        fn noise_is_no_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..3000), is_old: bool) {
            if let [first, second, ..] = &mut bytes[..] {
                (*first, *second) = if is_old { (0, *second | 1) } else { (0x80, *second & 0x7F) };
            }
            let read = unpacked(&bytes, 5000);
            if let Some(right) = by_weezl(&bytes, 5000).filter(|_| !is_old) {
                prop_assert_eq!(read, Some(right));
            }
        }
    }

    /// Packs codes of nine bits, highest first.
    fn codes(codes: &[u16]) -> Vec<u8> {
        let bits: Vec<u8> = codes
            .iter()
            .flat_map(|code| (0..9).rev().map(move |bit| (code >> bit & 1) as u8))
            .collect();
        bits.chunks(8)
            .map(|bits| (0..8).fold(0, |byte, n| byte << 1 | bits.get(n).unwrap_or(&0)))
            .collect()
    }

    #[test]
    fn the_example_of_the_specification() {
        let bytes = codes(&[256, 7, 258, 8, 8, 258, 6, 6, 257]);
        assert_eq!(unpacked(&bytes, 100).unwrap(), [7, 7, 7, 8, 8, 7, 7, 6, 6]);
    }

    #[test]
    fn a_code_before_its_string_is_damage_as_is_one_before_the_table_is_cleared() {
        assert_eq!(unpacked(&codes(&[256, 7, 259]), 10), None);
        assert_eq!(unpacked(&codes(&[256, 258]), 10), None);
        assert_eq!(unpacked(&codes(&[7, 7]), 10), None);
        assert_eq!(unpacked(&codes(&[257]), 10), Some(vec![]));
        assert_eq!(unpacked(&[], 10), Some(vec![]));
    }

    #[test]
    fn a_last_code_may_reach_past_the_tile() {
        let bytes = codes(&[256, 7, 258, 259, 260]);
        for length in 0..11 {
            assert_eq!(unpacked(&bytes, length), Some(vec![7; length.min(10)]));
        }
    }
}
