//! Merging of byte ranges into requests. No IO.
//!
//! A cloud read pays per request, so tiles that are close together in the file are fetched as one
//! range, gap included.

use std::ops::Range;

/// How ranges are merged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Merge {
    /// The largest gap between two tiles of a request, which is fetched and discarded.
    pub(crate) gap_bytes: u64,
    /// The largest request, unless one tile alone is larger.
    pub(crate) fetch_bytes: u64,
}

/// One GET: its byte range, and the wanted ranges inside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fetch {
    pub(crate) range: Range<u64>,
    /// Indices into the wanted ranges, in file order.
    pub(crate) wanted: Vec<usize>,
}

/// Coalesces ranges into few requests.
///
/// An empty range is a sparse tile, which the file does not store: nothing is fetched for it.
pub(crate) fn coalesce(wanted: &[Range<u64>], merge: Merge) -> Vec<Fetch> {
    let mut order: Vec<usize> = (0..wanted.len())
        .filter(|&i| wanted.get(i).is_some_and(|range| !range.is_empty()))
        .collect();
    order.sort_unstable_by_key(|&i| wanted.get(i).map(|range| (range.start, range.end)));

    let mut fetches: Vec<Fetch> = Vec::new();
    for i in order {
        let Some(tile) = wanted.get(i) else { continue };
        match fetches.last_mut() {
            Some(fetch)
                if tile.start <= fetch.range.end.saturating_add(merge.gap_bytes)
                    && tile.end.max(fetch.range.end) - fetch.range.start <= merge.fetch_bytes =>
            {
                fetch.range.end = fetch.range.end.max(tile.end);
                fetch.wanted.push(i);
            }
            _ => fetches.push(Fetch {
                range: tile.clone(),
                wanted: vec![i],
            }),
        }
    }
    fetches
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MERGE: Merge = Merge {
        gap_bytes: 4,
        fetch_bytes: 100,
    };

    #[test]
    fn merges_across_a_small_gap_only() {
        let fetches = coalesce(&[0..10, 12..20, 40..50], MERGE);
        assert_eq!(fetches.len(), 2);
        assert_eq!(
            (fetches[0].range.clone(), &fetches[0].wanted[..]),
            (0..20, &[0, 1][..])
        );
    }

    #[test]
    fn a_fetch_stays_below_its_limit() {
        let fetches = coalesce(&[0..60, 60..120, 120..400], MERGE);
        let ranges: Vec<_> = fetches.into_iter().map(|fetch| fetch.range).collect();
        assert_eq!(ranges, [0..60, 60..120, 120..400]);
    }

    #[test]
    fn a_sparse_tile_costs_no_request() {
        assert_eq!(coalesce(&[0..0, 8..24], MERGE).len(), 1);
        assert_eq!(coalesce(std::slice::from_ref(&(0..0)), MERGE), []);
    }

    proptest! {
        #[test]
        fn every_tile_is_in_exactly_one_fetch(
            tiles in prop::collection::vec((0u64..10_000, 0u64..500), 0..64),
            gap_bytes in 0u64..2_000,
            fetch_bytes in 1u64..4_000,
        ) {
            let wanted: Vec<_> = tiles.iter().map(|&(start, length)| start..start + length).collect();
            let fetches = coalesce(&wanted, Merge { gap_bytes, fetch_bytes });
            for (i, tile) in wanted.iter().enumerate() {
                let holders: Vec<_> = fetches.iter().filter(|f| f.wanted.contains(&i)).collect();
                prop_assert_eq!(holders.len(), usize::from(!tile.is_empty()));
                for fetch in holders {
                    prop_assert!(fetch.range.start <= tile.start && tile.end <= fetch.range.end);
                    let length = fetch.range.end - fetch.range.start;
                    prop_assert!(length <= fetch_bytes || fetch.wanted.len() == 1);
                }
            }
        }
    }
}
