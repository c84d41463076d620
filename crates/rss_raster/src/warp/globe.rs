//! Tests of warps between maps of the globe that begin at different longitudes.

use ndarray::{Array2, s};

use super::{SourcePixels, Warp};
use crate::{
    geo::{Crs, GeoBox, GeoTransform, Size, Window},
    raster::Resampling,
};

const COLS: u32 = 180;
const ROWS: u32 = 90;
/// Half the width of the map of EPSG:3857, in metres.
const HALF: f64 = 20_037_508.342_789_244;

fn grid(epsg: u32, bounds: [f64; 4], side: f64) -> GeoBox {
    let [left, bottom, right, top] = bounds;
    let pixels = |length: f64| (length / side).round() as u32;
    GeoBox {
        size: Size {
            width: pixels(right - left),
            height: pixels(top - bottom),
        },
        crs: Some(Crs::Epsg(epsg)),
        transform: Some(GeoTransform([left, side, 0.0, top, 0.0, -side])),
    }
}

/// A map of the globe with pixels of two degrees that begins at a longitude.
fn globe(west: f64) -> GeoBox {
    grid(4326, [west, -90.0, west + 360.0, 90.0], 2.0)
}

/// Warps a whole source, in blocks of the target, each from its own window of the source.
fn warped(
    pixels: &Array2<f64>,
    from: &GeoBox,
    to: &GeoBox,
    resampling: Resampling,
    block: u32,
) -> Array2<f64> {
    let warp = Warp::new(from, to, resampling, 0.125).unwrap();
    let shape = (to.size.height as usize, to.size.width as usize);
    let mut out = Array2::from_elem(shape, f64::NAN);
    for row in (0..to.size.height).step_by(block as usize) {
        for col in (0..to.size.width).step_by(block as usize) {
            let target = Window {
                col,
                row,
                width: block.min(to.size.width - col),
                height: block.min(to.size.height - row),
            };
            let Some(window) = warp.source_window(&target) else {
                continue;
            };
            let part = |window: &Window| {
                let (row, col) = (window.row as usize, window.col as usize);
                s![
                    row..row + window.height as usize,
                    col..col + window.width as usize
                ]
            };
            let source = SourcePixels {
                pixels: pixels.slice(part(&window)),
                window,
                nodata: None,
                mask: None,
            };
            let out = out.slice_mut(part(&target));
            warp.resample(&source, &target, out).unwrap();
        }
    }
    out
}

/// Numbers the pixels of a source.
fn numbers(size: Size) -> Array2<f64> {
    let shape = (size.height as usize, size.width as usize);
    Array2::from_shape_fn(shape, |(y, x)| (y * 1000 + x) as f64)
}

#[test]
fn a_pixel_is_found_at_whichever_turn_of_longitude_it_lies() {
    for west in [0.0, -180.0, -178.0, -1.0, -181.0] {
        let from = globe(west);
        let pixels = numbers(from.size);
        for bounds in [
            [-100.0, -20.0, -60.0, 0.0],
            [-20.0, -20.0, 20.0, 0.0],
            [170.0, -20.0, 190.0, 0.0],
            [-190.0, -20.0, -170.0, 0.0],
            [-180.0, -90.0, 180.0, 90.0],
            [0.0, -90.0, 360.0, 90.0],
            [-540.0, -20.0, -500.0, 0.0],
        ] {
            for (epsg, side) in [(4326, 2.0), (4326, 0.4), (4283, 0.4), (4269, 5.0)] {
                let to = grid(epsg, bounds, side);
                for block in [64, 1024] {
                    let out = warped(&pixels, &from, &to, Resampling::Nearest, block);
                    let [left, _, _, top] = bounds;
                    for ((y, x), &found) in out.indexed_iter() {
                        let lon = left + (x as f64 + 0.5) * side;
                        let lat = top - (y as f64 + 0.5) * side;
                        let col =
                            ((lon - west).rem_euclid(360.0) / 2.0 + 1e-9).floor() % f64::from(COLS);
                        let row = ((90.0 - lat) / 2.0 + 1e-9).floor();
                        assert_eq!(
                            found,
                            row * 1000.0 + col,
                            "{west} {bounds:?} {epsg} {side}: {lon} {lat}"
                        );
                    }
                }
            }
        }
    }
}

/// A datum shift moves positions by some 100 m, far less than a pixel.
#[test]
fn a_map_of_an_old_datum_goes_round_the_globe_too() {
    for west in [0.0, -180.0, -181.0] {
        let from = GeoBox {
            crs: Some(Crs::Epsg(4289)),
            ..globe(west)
        };
        let pixels = numbers(from.size);
        for (zone, middle) in [(32601, -177.0), (32630, -3.0), (32631, 3.0), (32660, 177.0)] {
            let to = grid(
                zone,
                [400_000.0, 5_000_000.0, 600_000.0, 5_100_000.0],
                50_000.0,
            );
            let out = warped(&pixels, &from, &to, Resampling::Nearest, 64);
            for ((_, x), &found) in out.indexed_iter() {
                // A degree is 78 km there.
                let lon: f64 = middle + (x as f64 - 1.5) * 50.0 / 78.0;
                let col = ((lon - west).rem_euclid(360.0) / 2.0).floor();
                assert_eq!(found.rem_euclid(1000.0), col, "{west} {zone}: {lon}");
            }
        }
        for bounds in [[-20.1, -20.0, 19.9, 0.0], [170.1, -20.0, 190.1, 0.0]] {
            let to = grid(4326, bounds, 0.4);
            let out = warped(&pixels, &from, &to, Resampling::Nearest, 64);
            for ((_, x), &found) in out.indexed_iter() {
                let lon = bounds[0] + (x as f64 + 0.5) * 0.4;
                let col = ((lon - west).rem_euclid(360.0) / 2.0).floor();
                assert_eq!(found.rem_euclid(1000.0), col, "{west}: {lon}");
            }
        }
    }
}

#[test]
fn the_same_pixels_a_turn_apart_are_copied() {
    let to = grid(4326, [-100.0, -20.0, -60.0, 0.0], 2.0);
    let warp = Warp::new(&globe(0.0), &to, Resampling::Cubic, 0.125).unwrap();
    let copied = warp.copied(&Window::whole(to.size));
    assert_eq!(copied, Some(("130,45,20,10".parse().unwrap(), [0, 0])));
    // Neither map is resampled from afar where the target lies on it as it is.
    let to = grid(4326, [100.0, -20.0, 140.0, 0.0], 2.0);
    let warp = Warp::new(&globe(0.0), &to, Resampling::Cubic, 0.125).unwrap();
    let copied = warp.copied(&Window::whole(to.size));
    assert_eq!(copied, Some(("50,45,20,10".parse().unwrap(), [0, 0])));
}

#[test]
fn a_mercator_map_goes_round_the_globe_too() {
    let side = 2.0 * HALF / 128.0;
    let from = grid(3857, [-HALF, -HALF, HALF, HALF], side);
    let pixels = numbers(from.size);
    for left in [-HALF, 100.0 * side, 60.0 * side, -70.0 * side] {
        let to = grid(3857, [left, -HALF, left + 20.0 * side, HALF], side);
        let out = warped(&pixels, &from, &to, Resampling::Nearest, 16);
        for ((y, x), &found) in out.indexed_iter() {
            let col = ((left + HALF) / side + x as f64).round().rem_euclid(128.0);
            assert_eq!(found, y as f64 * 1000.0 + col, "{left}");
        }
    }
}

/// A pixel across the seam of a map has corners at both of its ends, and nothing of what lies between them.
#[test]
fn what_lies_far_from_the_seam_of_a_map_does_not_bleed_into_it() {
    // How far from Greenwich, in degrees.
    let from = globe(0.0);
    let shape = (ROWS as usize, COLS as usize);
    let pixels = Array2::from_shape_fn(shape, |(_, x)| {
        let lon = x as f64 * 2.0 + 1.0;
        lon.min(360.0 - lon)
    });
    for to in [
        grid(4326, [-10.0, -20.0, 10.0, 0.0], 0.8),
        grid(4326, [-10.5, -20.0, 10.5, 0.0], 3.0),
        grid(4326, [-180.0, -90.0, 180.0, 90.0], 6.0),
        grid(
            32631,
            [-200_000.0, 100_000.0, 800_000.0, 900_000.0],
            30_000.0,
        ),
        grid(
            32631,
            [-200_000.0, 100_000.0, 800_000.0, 900_000.0],
            300_000.0,
        ),
        grid(3857, [-1e6, -1e6, 1e6, 1e6], 70_000.0),
    ] {
        for resampling in [
            Resampling::Bilinear,
            Resampling::Cubic,
            Resampling::Average,
            Resampling::Max,
            Resampling::Min,
            Resampling::Mode,
            Resampling::Rms,
        ] {
            let exact = warped(&pixels, &from, &to, Resampling::Nearest, 1024);
            let out = warped(&pixels, &from, &to, resampling, 8);
            let side = to.resolution().unwrap().x;
            let degrees = if side > 360.0 { side / 111_000.0 } else { side };
            for ((at, &found), &near) in out.indexed_iter().zip(&exact) {
                assert!(
                    (found - near).abs() <= 3.0 + degrees * 1.1,
                    "{to} {resampling}: {found} at {at:?}, {near}"
                );
            }
        }
    }
}

/// Each pixel of the target holds two columns of the source, as on any other part of the map.
#[test]
fn areas_that_end_at_the_seam_of_a_map_are_whole() {
    for west in [0.0, -180.0] {
        let from = globe(west);
        let shape = (ROWS as usize, COLS as usize);
        let pixels = Array2::from_shape_fn(shape, |(_, x)| x as f64);
        for left in [west - 20.0, west + 340.0] {
            let to = grid(4326, [left, -20.0, left + 40.0, 0.0], 4.0);
            for (resampling, of_two) in [
                (Resampling::Average, 0.5),
                (Resampling::Max, 1.0),
                (Resampling::Min, 0.0),
            ] {
                for block in [2, 1024] {
                    let out = warped(&pixels, &from, &to, resampling, block);
                    for ((y, x), &found) in out.indexed_iter() {
                        let first = (170.0 + 2.0 * x as f64).rem_euclid(180.0);
                        assert_eq!(found, first + of_two, "{west} {left} {resampling}: {y} {x}");
                    }
                }
            }
            let out = warped(&pixels, &from, &to, Resampling::Sum, 2);
            for ((_, x), &found) in out.indexed_iter() {
                let first = (170.0 + 2.0 * x as f64).rem_euclid(180.0);
                assert!(
                    (found - (4.0 * first + 2.0)).abs() < 1e-6,
                    "{west} {left}: {found}"
                );
            }
        }
    }
}

/// A sum has each pixel of a source once at most.
#[test]
fn a_sum_across_the_seam_of_a_map_is_of_what_a_pixel_covers() {
    let from = globe(0.0);
    let pixels = Array2::from_elem((ROWS as usize, COLS as usize), 1.0);
    let to = grid(
        32631,
        [-200_000.0, 100_000.0, 800_000.0, 900_000.0],
        50_000.0,
    );
    let out = warped(&pixels, &from, &to, Resampling::Sum, 8);
    // A pixel of the source is 222 km wide.
    assert!(out.iter().all(|sum| *sum < 0.06), "{out}");
}
