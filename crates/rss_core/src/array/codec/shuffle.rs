//! Blosc's two filters, after which samples compress better: byte shuffle and bit shuffle.
//!
//! [Blosc's filters](https://github.com/Blosc/c-blosc/blob/main/README_CHUNK_FORMAT.rst): byte shuffle
//! puts the first bytes of all samples first, then all second bytes; bit shuffle does the same to bits.

/// Groups the bytes of samples of `size` bytes by their offset in the sample. Bytes after the last complete sample
/// stay as they are.
pub(super) fn shuffle(from: &[u8], to: &mut [u8], size: usize) {
    match size {
        2 => shuffle_of::<2>(from, to),
        4 => shuffle_of::<4>(from, to),
        8 => shuffle_of::<8>(from, to),
        16 => shuffle_of::<16>(from, to),
        1 => to.copy_from_slice(from),
        _ => {
            let count = from.len() / size.max(1);
            for (number, sample) in from.chunks_exact(size.max(1)).enumerate() {
                for (byte, &value) in sample.iter().enumerate() {
                    to[byte * count + number] = value;
                }
            }
            let rest = count * size;
            to[rest..].copy_from_slice(&from[rest..]);
        }
    }
}

fn shuffle_of<const N: usize>(from: &[u8], to: &mut [u8]) {
    let (samples, rest) = from.as_chunks::<N>();
    let (planes, tail) = to.split_at_mut(samples.len() * N);
    tail.copy_from_slice(rest);
    for (byte, plane) in planes.chunks_exact_mut(samples.len().max(1)).enumerate() {
        for (value, sample) in plane.iter_mut().zip(samples) {
            *value = sample[byte];
        }
    }
}

/// Undoes [`shuffle`].
pub(super) fn unshuffle(from: &[u8], to: &mut [u8], size: usize) {
    match size {
        2 => unshuffle_of::<2>(from, to),
        4 => unshuffle_of::<4>(from, to),
        8 => unshuffle_of::<8>(from, to),
        16 => unshuffle_of::<16>(from, to),
        1 => to.copy_from_slice(from),
        _ => {
            let count = from.len() / size.max(1);
            for (number, sample) in to.chunks_exact_mut(size.max(1)).enumerate() {
                for (byte, value) in sample.iter_mut().enumerate() {
                    *value = from[byte * count + number];
                }
            }
            let rest = count * size;
            to[rest..].copy_from_slice(&from[rest..]);
        }
    }
}

fn unshuffle_of<const N: usize>(from: &[u8], to: &mut [u8]) {
    let (samples, tail) = to.as_chunks_mut::<N>();
    let count = samples.len();
    tail.copy_from_slice(&from[count * N..]);
    let planes: [&[u8]; N] = std::array::from_fn(|byte| &from[byte * count..(byte + 1) * count]);
    for (number, sample) in samples.iter_mut().enumerate() {
        *sample = std::array::from_fn(|byte| planes[byte][number]);
    }
}

/// Groups the bits of samples of `size` bytes by their position in the sample. Needs a number of
/// samples that is a multiple of 8; otherwise, as in Blosc, the bytes stay as they are.
pub(super) fn bitshuffle(from: &[u8], to: &mut [u8], size: usize) {
    let count = from.len() / size.max(1);
    if !count.is_multiple_of(8) || count == 0 {
        return to.copy_from_slice(from);
    }
    let mut bytes = vec![0; from.len()];
    shuffle(from, &mut bytes, size);
    let rest = count * size;
    to[rest..].copy_from_slice(&bytes[rest..]);
    let planes = count / 8;
    for (plane, out) in bytes.chunks_exact(count).zip(to.chunks_exact_mut(count)) {
        let (groups, _) = plane.as_chunks::<8>();
        let mut bits = out.chunks_exact_mut(planes);
        let mut bits: [&mut [u8]; 8] = std::array::from_fn(|_| bits.next().unwrap_or_default());
        for (number, group) in groups.iter().enumerate() {
            let rows = transposed(u64::from_le_bytes(*group)).to_le_bytes();
            for (plane, value) in bits.iter_mut().zip(rows) {
                plane[number] = value;
            }
        }
    }
}

/// Undoes [`bitshuffle`].
pub(super) fn unbitshuffle(from: &[u8], to: &mut [u8], size: usize) {
    let count = from.len() / size.max(1);
    if !count.is_multiple_of(8) || count == 0 {
        return to.copy_from_slice(from);
    }
    let mut bytes = vec![0; from.len()];
    let rest = count * size;
    bytes[rest..].copy_from_slice(&from[rest..]);
    let planes = count / 8;
    for (plane, bits) in bytes.chunks_exact_mut(count).zip(from.chunks_exact(count)) {
        let (groups, _) = plane.as_chunks_mut::<8>();
        let bits: [&[u8]; 8] = std::array::from_fn(|bit| &bits[bit * planes..(bit + 1) * planes]);
        for (number, group) in groups.iter_mut().enumerate() {
            let rows: [u8; 8] = std::array::from_fn(|bit| bits[bit][number]);
            *group = transposed(u64::from_le_bytes(rows)).to_le_bytes();
        }
    }
    unshuffle(&bytes, to, size);
}

/// Transposes 8 x 8 bits: bit `b` of byte `a` becomes bit `a` of byte `b`. Hacker's Delight, 7-3.
fn transposed(mut bits: u64) -> u64 {
    for (shift, mask) in [
        (7, 0x00aa_00aa_00aa_00aa_u64),
        (14, 0x0000_cccc_0000_cccc),
        (28, 0x0000_0000_f0f0_f0f0),
    ] {
        let swap = (bits ^ (bits >> shift)) & mask;
        bits ^= swap ^ (swap << shift);
    }
    bits
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn bits_of_one_position_come_together() {
        // Eight samples of one byte: the lowest bits of all are the first byte.
        let mut out = [0; 8];
        bitshuffle(&[1, 0, 1, 0, 0, 0, 0, 0x80], &mut out, 1);
        assert_eq!(out, [0b0000_0101, 0, 0, 0, 0, 0, 0, 0b1000_0000]);
    }

    proptest! {
        #[test]
        fn shuffling_can_be_undone(bytes in prop::collection::vec(any::<u8>(), 0..300), size in 1_usize..18) {
            let mut there = vec![0; bytes.len()];
            let mut back = vec![0; bytes.len()];
            shuffle(&bytes, &mut there, size);
            unshuffle(&there, &mut back, size);
            prop_assert_eq!(&back, &bytes);
            bitshuffle(&bytes, &mut there, size);
            unbitshuffle(&there, &mut back, size);
            prop_assert_eq!(&back, &bytes);
        }
    }
}
