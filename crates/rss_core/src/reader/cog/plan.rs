//! Which tiles a window needs. No IO.

use std::ops::Range;

use crate::geo::{Size, Window};

/// Returns the tile columns and rows that a window touches.
pub(super) fn tiles(window: &Window, tile: Size) -> (Range<u32>, Range<u32>) {
    let span = |start: u32, length: u32, side: u32| {
        let last = u64::from(start) + u64::from(length.max(1)) - 1;
        let end = last / u64::from(side) + 1;
        start / side..u32::try_from(end).unwrap_or(u32::MAX)
    };
    (
        span(window.col, window.width, tile.width),
        span(window.row, window.height, tile.height),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_touches_the_tiles_under_it() {
        let tile = Size {
            width: 512,
            height: 256,
        };
        let window = |text: &str| tiles(&text.parse().unwrap(), tile);
        assert_eq!(window("0,0,512,256"), (0..1, 0..1));
        assert_eq!(window("511,255,2,2"), (0..2, 0..2));
        assert_eq!(window("1024,0,1,1000"), (2..3, 0..4));
    }
}
