//! Which relation two grids have: the same pixels, the same axes, or neither. It selects the code path of a warp.

use super::{
    mesh::Mesh,
    separable::{Ruler, Rulers},
};
use crate::{
    error::Result,
    geo::{Extent, GeoBox, Lattice, Size, Transformer},
    raster::Resampling,
};

/// How far apart two grids may be at the ends of the source and still have the same pixels, in pixels.
const SAME_PIXELS: f64 = 0.01;

/// The relation of a target grid to a source grid.
#[derive(Clone, Debug)]
pub(super) enum Case {
    /// The pixels are the same: the extents of target and source on their common lattice.
    Same { target: Extent, source: Extent },
    /// The CRS is the same and both grids are axis-aligned: columns depend on columns, rows on rows.
    Separable(Rulers),
    /// Any other.
    General(Box<Mesh>),
}

/// Returns the case of two grids, and the size of a target pixel in source pixels.
pub(super) fn case(
    there: Transformer,
    from: &GeoBox,
    to: &GeoBox,
    resampling: Resampling,
    max_error: f64,
) -> Result<(Case, [f64; 2])> {
    // These change a pixel that covers itself: one smooths, the other has no sign.
    let keeps = !matches!(resampling, Resampling::CubicSpline | Resampling::Rms);
    if keeps && let Some((target, source)) = same(&there, from, to) {
        return Ok((Case::Same { target, source }, [1.0; 2]));
    }
    if there.is_axis_aligned() {
        let Size { width, height } = to.size;
        let ends = [
            there.place([0.0, 0.0]),
            there.place([f64::from(width), f64::from(height)]),
        ];
        if let [Some([left, top]), Some([right, bottom])] = ends {
            let rulers = Rulers {
                cols: Ruler::new(left, right, width),
                rows: Ruler::new(top, bottom, height),
            };
            let scales = [rulers.cols.scale(), rulers.rows.scale()];
            return Ok((Case::Separable(rulers), scales));
        }
    }
    let back = Transformer::new(from, to)?;
    let scales = scales(&there, &back, from.size, to.size);
    let mesh = Mesh::new(there, max_error);
    Ok((Case::General(Box::new(mesh)), scales))
}

/// Returns the extents of target and source on one lattice, if they have the same pixels.
fn same(there: &Transformer, from: &GeoBox, to: &GeoBox) -> Option<(Extent, Extent)> {
    let lattice = Lattice::of(from).ok()?;
    let target = lattice.extent(to).ok()?;
    let source = lattice.extent(from).ok()?;
    // A lattice tolerates a small difference of pixel size over the target; over a large source that
    // difference may add up to a pixel, so its corners are checked.
    let ends = [
        [0.0, 0.0],
        [f64::from(source.width), f64::from(source.height)],
    ];
    let are_same = ends.into_iter().all(|[col, row]| {
        let place = there.place([col - as_f64(target.col), row - as_f64(target.row)]);
        place.is_some_and(|[x, y]| (x - col).abs() < SAME_PIXELS && (y - row).abs() < SAME_PIXELS)
    });
    are_same.then_some((target, source))
}

#[expect(clippy::cast_precision_loss, reason = "within 32 bits")]
fn as_f64(number: i64) -> f64 {
    number as f64
}

/// The number of points along an axis at which the scale is measured.
const POINTS: u32 = 7;

/// Returns the size of a target pixel in source pixels, along the columns and rows of the source: the median
/// over points in the overlap of the two grids.
///
/// A rotated target pixel counts by the length of its sides, so that rotation alone does not change the scale.
fn scales(there: &Transformer, back: &Transformer, from: Size, to: Size) -> [f64; 2] {
    let is_on = |place: &[f64; 2], size: Size| {
        (0.0..=f64::from(size.width)).contains(&place[0])
            && (0.0..=f64::from(size.height)).contains(&place[1])
    };
    let points = |size: Size| {
        (0..POINTS * POINTS).map(move |i| {
            let part = |i: u32| (f64::from(i) + 0.5) / f64::from(POINTS);
            [
                part(i % POINTS) * f64::from(size.width),
                part(i / POINTS) * f64::from(size.height),
            ]
        })
    };
    let mut found: Vec<[f64; 2]> = points(to)
        .filter(|&point| there.place(point).is_some_and(|place| is_on(&place, from)))
        .collect();
    // One grid may be so small that no point of the other lies in it, so points of both are tried.
    let on_target = points(from).filter_map(|point| back.place(point));
    found.extend(on_target.filter(|point| is_on(point, to)));
    if found.is_empty() {
        found.extend(points(to));
    }
    let mut along = [Vec::new(), Vec::new()];
    for [col, row] in found {
        let ends = [[-0.5, 0.0], [0.5, 0.0], [0.0, -0.5], [0.0, 0.5]]
            .map(|[right, down]| there.place([col + right, row + down]));
        if let [Some(left), Some(right), Some(up), Some(down)] = ends {
            for (axis, along) in along.iter_mut().enumerate() {
                along.push((right[axis] - left[axis]).hypot(down[axis] - up[axis]));
            }
        }
    }
    along.map(|mut found| {
        found.sort_by(f64::total_cmp);
        let middle = found.get(found.len() / 2).copied();
        middle.filter(|scale| *scale > 0.0).unwrap_or(1.0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geo::{Crs, GeoTransform};

    fn grid(code: u32, transform: [f64; 6], side: u32) -> GeoBox {
        GeoBox {
            size: Size {
                width: side,
                height: side,
            },
            crs: Some(Crs::Epsg(code)),
            transform: Some(GeoTransform(transform)),
        }
    }

    fn scales_of(from: &GeoBox, to: &GeoBox) -> [f64; 2] {
        let there = Transformer::new(to, from).unwrap();
        case(there, from, to, Resampling::Nearest, 0.125).unwrap().1
    }

    /// The positions that `gdaltransform` of GDAL 3.6.2 returns for the middle of each side of the pixel at the
    /// target's centre, which is near the source's.
    #[test]
    fn a_width_is_that_of_a_pixel_on_the_source() {
        for (from, to, expected) in [
            (
                grid(32755, [600_000.0, 10.0, 0.0, 6_100_000.0, 0.0, -10.0], 400),
                grid(
                    3577,
                    [1_458_250.0, 37.0, 0.0, -3_940_978.0, 0.0, -37.0],
                    100,
                ),
                [3.706_83, 3.691_17],
            ),
            (
                grid(4326, [13.4, 1e-4, 0.0, 52.5, 0.0, -1e-4], 400),
                grid(32633, [391_450.0, 25.0, 0.0, 5_816_851.0, 0.0, -25.0], 100),
                [3.680_61, 2.247_24],
            ),
            (
                grid(3857, [1_391_000.0, 20.0, 0.0, 5_146_000.0, 0.0, -20.0], 400),
                grid(32633, [293_652.0, 30.0, 0.0, 4_640_141.0, 0.0, -30.0], 100),
                [2.011_20, 2.018_71],
            ),
            (
                grid(32633, [390_000.0, 10.0, 0.0, 5_820_000.0, 0.0, -10.0], 400),
                grid(4326, [13.389, 0.0004, 0.0, 52.521, 0.0, -0.0004], 100),
                [2.716_76, 4.449_25],
            ),
            (
                grid(32755, [770_000.0, 10.0, 0.0, 6_350_000.0, 0.0, -10.0], 400),
                grid(32756, [209_726.0, 30.0, 0.0, 6_349_022.0, 0.0, -30.0], 100),
                [2.999_65, 2.999_65],
            ),
        ] {
            let found = scales_of(&from, &to);
            for (found, expected) in found.into_iter().zip(expected) {
                assert!((found / expected - 1.0).abs() < 1e-3, "{found} {expected}");
            }
        }
    }

    #[test]
    fn a_turn_alone_is_no_change_of_scale() {
        let from = grid(32755, [600_000.0, 10.0, 0.0, 6_100_000.0, 0.0, -10.0], 400);
        // Pixels of 20 m by 50 m, rotated about the centre of the source.
        let to = |angle: f64| {
            let (sin, cos) = angle.sin_cos();
            let (right, down) = ([20.0 * cos, 20.0 * sin], [50.0 * sin, -50.0 * cos]);
            let start = |middle: f64, axis: usize| middle - 20.0 * (right[axis] + down[axis]);
            let (x, y) = (start(602_000.0, 0), start(6_098_000.0, 1));
            grid(32755, [x, right[0], down[0], y, right[1], down[1]], 40)
        };
        for angle in [0.0, 0.5, 1.0, 2.2, 4.0] {
            let found = scales_of(&from, &to(angle));
            let expected = [
                (2.0 * angle.cos()).hypot(5.0 * angle.sin()),
                (2.0 * angle.sin()).hypot(5.0 * angle.cos()),
            ];
            for (found, expected) in found.into_iter().zip(expected) {
                assert!((found - expected).abs() < 1e-6, "{found} {expected}");
            }
        }
    }
}
