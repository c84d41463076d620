//! Delta encoding of tile offsets in an index: byte counts, and the gaps between tiles. No IO.
//!
//! Tiles are mostly contiguous in a file, so that the gaps repeat one number and compress to almost nothing. A gap is
//! the offset of a tile minus the end of the stored tile before it in the list; of the
//! first stored tile it is the offset itself. A sparse tile has size 0 and gap 0. The
//! offset of a stored tile is thus the sum of all gaps up to it and of all sizes before it.
//!
//! A tile whose byte count alone is 0 has size -1, which keeps it apart from a sparse one, and the sums as they are;
//! one whose offset alone is 0 has the gap that leads there.

use crate::reader::Tiles;

/// The size of a tile that has an offset, and byte count 0.
const NO_COUNT: i64 = -1;

/// Appends the sizes and gaps of tiles.
///
/// # Errors
///
/// What was expected: lists of equal length, and numbers below 2^63.
pub(super) fn pack(
    tiles: &Tiles,
    byte_counts: &mut Vec<i64>,
    gaps: &mut Vec<i64>,
) -> Result<(), &'static str> {
    if tiles.offsets.len() != tiles.byte_counts.len() {
        return Err("as many tile offsets as byte counts");
    }
    let large = "tile offsets and byte counts below 2^63";
    let mut end = 0_i64;
    for (&offset, &bytes) in tiles.offsets.iter().zip(&tiles.byte_counts) {
        if offset == 0 && bytes == 0 {
            byte_counts.push(0);
            gaps.push(0);
            continue;
        }
        let offset = i64::try_from(offset).map_err(|_| large)?;
        let bytes = match bytes {
            0 => NO_COUNT,
            bytes => i64::try_from(bytes).map_err(|_| large)?,
        };
        // Both are at least 0, so the difference cannot overflow. It is negative where tiles are not in file order.
        gaps.push(offset - end);
        byte_counts.push(bytes);
        end = offset.checked_add(bytes).ok_or(large)?;
    }
    Ok(())
}

/// Decodes byte counts and gaps. An index may come from anyone: each sum is checked.
///
/// # Errors
///
/// What was expected of the lists.
pub(super) fn unpack(byte_counts: &[i64], gaps: &[i64]) -> Result<Tiles, &'static str> {
    if byte_counts.len() != gaps.len() {
        return Err("as many `gaps` as `byte_counts`");
    }
    let mut end = 0_u64;
    let mut offsets = Vec::with_capacity(gaps.len());
    let mut sizes = Vec::with_capacity(gaps.len());
    for (&bytes, &gap) in byte_counts.iter().zip(gaps) {
        if bytes < NO_COUNT {
            return Err("`byte_counts` of -1 or more");
        }
        if bytes == 0 {
            if gap != 0 {
                return Err("a gap of 0 where `byte_counts` is 0");
            }
            offsets.push(0);
            sizes.push(0);
            continue;
        }
        let offset = end
            .checked_add_signed(gap)
            .filter(|&offset| offset > 0 || bytes > 0)
            .ok_or("`gaps` that lead to positive offsets")?;
        end = offset
            .checked_add_signed(bytes)
            .filter(|&end| i64::try_from(end).is_ok())
            .ok_or("tiles that end below 2^63")?;
        offsets.push(offset);
        sizes.push(u64::try_from(bytes).unwrap_or(0));
    }
    Ok(Tiles::new(offsets, sizes))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn packed(tiles: &Tiles) -> (Vec<i64>, Vec<i64>) {
        let (mut sizes, mut gaps) = (Vec::new(), Vec::new());
        pack(tiles, &mut sizes, &mut gaps).unwrap();
        (sizes, gaps)
    }

    #[test]
    fn a_sparse_tile_does_not_move_the_end() {
        let tiles = Tiles::new(vec![100, 0, 118, 50], vec![10, 0, 5, 7]);
        let (sizes, gaps) = packed(&tiles);
        assert_eq!(sizes, [10, 0, 5, 7]);
        assert_eq!(gaps, [100, 0, 8, -73]);
        assert_eq!(unpack(&sizes, &gaps).unwrap(), tiles);
        // As in SQL (`docs/INDEX.md`): running sums of the gaps so far and of the sizes before.
        let offset = |n: usize| gaps[..=n].iter().sum::<i64>() + sizes[..n].iter().sum::<i64>();
        assert_eq!((offset(0), offset(2), offset(3)), (100, 118, 50));
    }

    /// Where one of the two is 0 the file contradicts itself: no sparse tile may come of it.
    #[test]
    fn a_tile_that_contradicts_itself_is_not_sparse() {
        let tiles = Tiles::new(vec![100, 110, 110, 0, 50], vec![10, 0, 5, 7, 0]);
        let (sizes, gaps) = packed(&tiles);
        assert_eq!(sizes, [10, -1, 5, 7, -1]);
        assert_eq!(unpack(&sizes, &gaps).unwrap(), tiles);
        let offset = |n: usize| gaps[..=n].iter().sum::<i64>() + sizes[..n].iter().sum::<i64>();
        assert_eq!([1, 2, 3, 4].map(offset), [110, 110, 0, 50]);
        let ranges = [0, 1, 2, 3, 4, 5].map(|number| tiles.range(number));
        assert_eq!(
            ranges,
            [Some(100..110), None, Some(110..115), None, None, None]
        );
    }

    #[test]
    fn what_is_no_list_of_tiles_is_refused() {
        for (sizes, gaps) in [
            (&[1][..], &[][..]),
            (&[-2], &[5]),
            (&[-1], &[0]),
            (&[0], &[5]),
            (&[5], &[-9]),
            (&[i64::MAX], &[i64::MAX]),
            (&[1, 1], &[i64::MAX, i64::MAX]),
            (&[1, 1], &[8, i64::MIN]),
        ] {
            assert!(unpack(sizes, gaps).is_err(), "{sizes:?} {gaps:?}");
        }
        let far = Tiles::new(vec![u64::MAX], vec![1]);
        assert!(pack(&far, &mut Vec::new(), &mut Vec::new()).is_err());
    }

    proptest! {
        #[test]
        fn tiles_come_back(list in prop::collection::vec((1_u64..1 << 62, 0_u64..1 << 40), 0..50)) {
            let (offsets, sizes): (Vec<_>, Vec<_>) = list
                .into_iter()
                .map(|(offset, size)| match size % 7 {
                    0 => (0, 0),
                    1 => (offset, 0),
                    2 => (0, size),
                    _ => (offset, size),
                })
                .unzip();
            let tiles = Tiles::new(offsets, sizes);
            let (sizes, gaps) = packed(&tiles);
            prop_assert_eq!(unpack(&sizes, &gaps).unwrap(), tiles);
        }

        #[test]
        fn no_lists_panic(
            sizes in prop::collection::vec(any::<i64>(), 0..6),
            gaps in prop::collection::vec(any::<i64>(), 0..6),
        ) {
            let _ = unpack(&sizes, &gaps);
        }
    }
}
