//! Any ranges and limits: every tile in one fetch, no fetch past its limit; any window: its tiles.

#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use rss_core::{Size, Window, reader::fuzzing};

#[derive(Arbitrary, Debug)]
struct Input {
    /// Start and length.
    tiles: Vec<(u64, u32)>,
    gap_bytes: u64,
    fetch_bytes: u64,
    window: (u32, u32, u32, u32),
    tile: (u32, u32),
}

fuzz_target!(|input: Input| {
    coalesce(&input);
    tiles(&input);
});

fn coalesce(input: &Input) {
    let wanted: Vec<_> = input
        .tiles
        .iter()
        .map(|&(start, length)| start..start.saturating_add(u64::from(length)))
        .collect();
    let fetches = fuzzing::coalesce(&wanted, input.gap_bytes, input.fetch_bytes);
    let mut seen = vec![0; wanted.len()];
    for (range, inside) in &fetches {
        assert!(!inside.is_empty());
        assert!(range.end - range.start <= input.fetch_bytes || inside.len() == 1);
        let mut end = range.start;
        for &i in inside {
            let tile = &wanted[i];
            assert!(range.start <= tile.start && tile.end <= range.end);
            assert!(tile.start <= end.saturating_add(input.gap_bytes));
            end = end.max(tile.end);
            seen[i] += 1;
        }
        // No byte before the first tile or after the last is asked for.
        assert_eq!((range.start, range.end), (wanted[inside[0]].start, end));
    }
    for (tile, seen) in wanted.iter().zip(seen) {
        assert_eq!(seen, u32::from(!tile.is_empty()));
    }
}

fn tiles(input: &Input) {
    let (col, row, width, height) = input.window;
    let tile = Size {
        width: input.tile.0.max(1),
        height: input.tile.1.max(1),
    };
    // A window is checked against its level first: it is not empty and ends inside 32 bits.
    let window = Window {
        col,
        row,
        width: width.clamp(1, (u32::MAX - col).max(1)),
        height: height.clamp(1, (u32::MAX - row).max(1)),
    };
    if window.col == u32::MAX || window.row == u32::MAX {
        return;
    }
    let (columns, rows) = fuzzing::tiles(&window, tile);
    for (tiles, start, length, side) in [
        (columns, window.col, window.width, tile.width),
        (rows, window.row, window.height, tile.height),
    ] {
        let (start, side) = (u64::from(start), u64::from(side));
        let last = start + u64::from(length) - 1;
        assert!(u64::from(tiles.start) * side <= start);
        assert!(start < (u64::from(tiles.start) + 1) * side);
        assert!((u64::from(tiles.end) - 1) * side <= last);
        assert!(last < u64::from(tiles.end) * side);
    }
}
