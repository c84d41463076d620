//! Warps a raster from one grid to another: finds the source window that a target window needs, and
//! resamples it.
//!
//! Scenes come on different grids, and a computation over several needs one. Kernels follow the rules of
//! [gdalwarp](https://gdal.org/en/stable/programs/gdalwarp.html). The module does no IO, and runs on the thread
//! pool it is called from. It leaves out sources without a geotransform (ground control points, rational
//! polynomial coefficients), and heights.
//!
//! A target pixel depends on the two grids and the source pixels alone, not on the window that is requested:
//! blocks computed apart join without seams.

mod case;
mod general;
#[cfg(test)]
mod globe;
mod kernel;
mod mesh;
mod plane;
mod quad;
mod raster;
mod run;
mod sample;
mod separable;
mod tile;
mod warped;

use ndarray::{ArrayView2, ArrayViewMut2};

pub use self::raster::WarpOptions;
pub use self::warped::Warped;
use self::{
    case::{Case, case},
    kernel::Kernel,
    separable::{Ruler, Rulers},
};
use crate::{
    error::{Error, ErrorKind, Result},
    geo::{GeoBox, Size, Transformer, Window},
    raster::{Number, Resampling},
};

/// The default bound on the error of a position, in source pixels: that of gdalwarp's `-et`.
pub const MAX_ERROR_PIXELS: f64 = 0.125;

/// The relative tolerance when an overview's pixel size is compared with the target's: a ratio that should be
/// exact carries rounding error.
const SAME_SCALE: f64 = 1e-6;

/// The rounding error of an interpolated position, in pixels; a source window is widened by it.
const SLACK: f64 = 1e-6;

/// A warp from a source grid to a target grid.
#[derive(Clone, Debug)]
pub struct Warp {
    from: GeoBox,
    to: GeoBox,
    kernel: Kernel,
    /// The size of a target pixel in source pixels, along the columns and rows of the source.
    scales: [f64; 2],
    max_error: f64,
    case: Case,
}

/// A window of source pixels.
#[derive(Clone, Debug)]
pub struct SourcePixels<'a, T> {
    /// One band of a window, (y, x).
    pub pixels: ArrayView2<'a, T>,
    /// The window of the warp's source that the pixels were read from.
    pub window: Window,
    /// The nodata value; NaN is always nodata.
    pub nodata: Option<Number>,
    /// True where pixels are valid, in addition to `nodata`; of the shape of `pixels`.
    pub mask: Option<ArrayView2<'a, bool>>,
}

impl Warp {
    /// Creates a warp. Positions are interpolated to within `max_error_pixels` of the source; with 0 each position
    /// is projected exactly.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] if a grid has no CRS, no pixels, or no invertible geotransform, or the bound
    /// is negative or not finite; [`ErrorKind::Unsupported`] naming a CRS that cannot be converted to degrees,
    /// unless both grids have that CRS.
    pub fn new(
        from: &GeoBox,
        to: &GeoBox,
        resampling: Resampling,
        max_error_pixels: f64,
    ) -> Result<Self> {
        if !(max_error_pixels >= 0.0 && max_error_pixels.is_finite()) {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                format!(
                    "max_error_pixels is {max_error_pixels}; expected a finite value of 0 or more"
                ),
            ));
        }
        // The transform is from target to source: each target pixel is computed once, without gaps.
        let (there, near) = Transformer::round_globe(to, from)?;
        let (case, scales) = case(there, from, &near, resampling, max_error_pixels)?;
        Ok(Self {
            from: from.clone(),
            to: to.clone(),
            kernel: Kernel::new(resampling, scales),
            scales,
            max_error: max_error_pixels,
            case,
        })
    }

    /// Returns which level of the source to read, given the sizes of all, full resolution first: the coarsest whose
    /// pixels are not larger than the target's. gdalwarp's `-ovr AUTO` selects the same, but also a level whose pixels
    /// are up to a tenth larger, which is faster and less exact; and its `-ovr NONE` is level 0. Call
    /// [`on_level`](Self::on_level) to warp from it.
    ///
    /// A sum is of the pixels of full resolution: an overview has their means.
    pub fn level(&self, levels: &[Size]) -> usize {
        if self.kernel.resampling == Resampling::Sum {
            return 0;
        }
        // The axis with the finer scale decides, so that neither loses detail.
        let most = self.scales[0].min(self.scales[1]) * (1.0 + SAME_SCALE);
        let ratio = |size: &Size| {
            let part = |whole: u32, part: u32| f64::from(whole) / f64::from(part.max(1));
            part(self.from.size.width, size.width).max(part(self.from.size.height, size.height))
        };
        let fitting = levels.iter().enumerate().skip(1);
        fitting
            .map(|(level, size)| (level, ratio(size)))
            .filter(|(_, ratio)| *ratio <= most)
            .max_by(|(_, a), (_, b)| a.total_cmp(b))
            .map_or(0, |(level, _)| level)
    }

    /// Returns the same warp from an overview level of the source, given the level's size.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] if the level has no pixels.
    pub fn on_level(&self, size: Size) -> Result<Self> {
        let from = self.from.of_level(size);
        Self::new(&from, &self.to, self.kernel.resampling, self.max_error)
    }

    /// Returns the source window that a target window covers, and the row and column of its first pixel in the
    /// target window, if both grids have the same pixels: they are then copied, not resampled.
    pub fn copied(&self, target: &Window) -> Option<(Window, [usize; 2])> {
        match &self.case {
            Case::Same {
                target: extent,
                source,
            } => extent.part(target, source),
            _ => None,
        }
    }

    /// Returns the source window that a target window is computed from; none where the two do not overlap.
    pub fn source_window(&self, target: &Window) -> Option<Window> {
        let (least, most) = match &self.case {
            Case::Same { .. } => return self.copied(target).map(|(window, _)| window),
            Case::Separable(Rulers { cols, rows }) => {
                let [first, last] = match self.kernel.offsets() {
                    [first, .., last] => [first[0], last[0]],
                    _ => [0.5, 0.5],
                };
                let ends = |ruler: &Ruler, start: u32, count: u32| {
                    let a = ruler.at(start, first);
                    let b = ruler.at(start.saturating_add(count).saturating_sub(1), last);
                    // Positions descend if one grid is north-up and the other south-up.
                    [a.min(b), a.max(b)]
                };
                let [left, right] = ends(cols, target.col, target.width);
                let [top, bottom] = ends(rows, target.row, target.height);
                ([left, top], [right, bottom])
            }
            Case::General(mesh) => {
                // With a bound of 0 each position would be projected. An approximate mesh with its error as a margin
                // gives a window that is nearly as tight.
                let rough;
                let (mesh, margin) = if self.max_error > 0.0 {
                    (&**mesh, SLACK)
                } else {
                    rough = mesh.with_max_error(MAX_ERROR_PIXELS);
                    (&rough, MAX_ERROR_PIXELS)
                };
                let offsets = self.kernel.offsets();
                let patches = mesh.patches(target);
                let bounds = patches
                    .iter()
                    .filter_map(|patch| mesh.bounds(patch, offsets));
                let [least, most] = bounds.reduce(|a, b| {
                    [
                        [a[0][0].min(b[0][0]), a[0][1].min(b[0][1])],
                        [a[1][0].max(b[1][0]), a[1][1].max(b[1][1])],
                    ]
                })?;
                (
                    least.map(|position| position - margin),
                    most.map(|position| position + margin),
                )
            }
        };
        let Size { width, height } = self.from.size;
        let cols = self.kernel.span(0, least[0], most[0], width)?;
        let rows = self.kernel.span(1, least[1], most[1], height)?;
        let number = |pixel: i64| u32::try_from(pixel).ok();
        Some(Window {
            col: number(cols.start)?,
            row: number(rows.start)?,
            width: number(cols.end - cols.start)?,
            height: number(rows.end - rows.start)?,
        })
    }

    /// Resamples a window of the target and writes the valid pixels; others in `out` are left as they are.
    /// Returns the number of valid pixels. Runs on all threads of the pool it is called from.
    ///
    /// The source must contain the [`source_window`](Self::source_window); pixels outside it count as missing. A
    /// computed value that equals nodata is replaced by an adjacent one.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] if an array does not have the shape of its window, or a window lies outside its
    /// grid; [`ErrorKind::Unsupported`] for complex samples with methods other than nearest, bilinear and
    /// average.
    pub fn resample<T: Warped>(
        &self,
        source: &SourcePixels<'_, T>,
        target: &Window,
        out: ArrayViewMut2<'_, T>,
    ) -> Result<usize> {
        target.check_inside(self.to.size)?;
        source.window.check_inside(self.from.size)?;
        check_shape("the target", out.dim(), target)?;
        check_shape("the source", source.pixels.dim(), &source.window)?;
        if let Some(mask) = &source.mask {
            check_shape("the mask", mask.dim(), &source.window)?;
        }
        T::resample(self, source, target, out)
    }
}

fn check_shape(what: &str, (height, width): (usize, usize), window: &Window) -> Result<()> {
    if height == window.height as usize && width == window.width as usize {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::InvalidInput,
        format!("{what} has {width} x {height} pixels, and its window is {window}"),
    ))
}

#[cfg(test)]
mod tests {
    use ndarray::{Array2, s};
    use proptest::prelude::*;

    use super::*;
    use crate::geo::{Bbox, Crs, GeoTransform};

    const NODATA: f64 = -999.0;

    fn grid(epsg: u32, transform: [f64; 6], width: u32, height: u32) -> GeoBox {
        GeoBox {
            size: Size { width, height },
            crs: Some(Crs::Epsg(epsg)),
            transform: Some(GeoTransform(transform)),
        }
    }

    /// Returns a grid of a CRS centred on a point in degrees.
    fn round(epsg: u32, lon: f64, lat: f64, metres: f64, size: [u32; 2]) -> GeoBox {
        let bbox = Bbox::new(lon, lat, lon + 1e-6, lat + 1e-6).unwrap();
        let side = if epsg == 4326 {
            metres / 111_000.0
        } else {
            metres
        };
        let point = GeoBox::of_bbox(&bbox, Crs::Epsg(epsg), side / 7.3).unwrap();
        let [x, _, _, y] = point.bounds().unwrap();
        let [width, height] = size;
        let left = x - side * f64::from(width) / 2.0;
        let top = y + side * f64::from(height) / 2.0;
        grid(epsg, [left, side, 0.0, top, 0.0, -side], width, height)
    }

    /// Returns hills with noise, with nodata pixels if `nodata_counts`.
    fn samples(size: Size, nodata_counts: bool) -> Array2<i16> {
        let shape = (size.height as usize, size.width as usize);
        Array2::from_shape_fn(shape, |(y, x)| {
            let noise = (x * 7919 + y * 104_729) % 211;
            let hill = ((x as f64 / 9.0).sin() + (y as f64 / 13.0).cos()) * 900.0;
            match nodata_counts && (noise < 4 || (20..26).contains(&x) && (10..30).contains(&y)) {
                true => NODATA as i16,
                false => 2000 + hill as i16 + noise as i16,
            }
        })
    }

    /// Resamples a window of the target from a window of the source.
    fn resampled<T: Warped>(
        warp: &Warp,
        pixels: &Array2<T>,
        window: Window,
        target: Window,
        fill: T,
    ) -> (Array2<T>, usize) {
        let rows = window.row as usize..(window.row + window.height) as usize;
        let cols = window.col as usize..(window.col + window.width) as usize;
        let source = SourcePixels {
            pixels: pixels.slice(s![rows, cols]),
            window,
            nodata: Some(NODATA.into()),
            mask: None,
        };
        let shape = (target.height as usize, target.width as usize);
        let mut out = Array2::from_elem(shape, fill);
        let count = warp.resample(&source, &target, out.view_mut()).unwrap();
        (out, count)
    }

    fn targets() -> impl Strategy<Value = GeoBox> {
        let scale = prop::sample::select(vec![0.4, 0.97, 1.0, 1.03, 1.8, 2.0, 3.7]);
        let separable = (
            scale.clone(),
            -80.0..80.0_f64,
            -80.0..80.0_f64,
            any::<bool>(),
        )
            .prop_map(|(scale, x, y, flipped)| {
                let side = 10.0 * scale;
                let down = if flipped { side } else { -side };
                let top = 6_100_000.0 + y + if flipped { -300.0 } else { 300.0 };
                grid(32755, [599_700.0 + x, side, 0.0, top, 0.0, down], 70, 60)
            });
        let shifted = (-40_i32..40, -40_i32..40).prop_map(|(col, row)| {
            let (x, y) = (f64::from(col) * 10.0, f64::from(row) * 10.0);
            grid(
                32755,
                [599_700.0 + x, 10.0, 0.0, 6_100_300.0 + y, 0.0, -10.0],
                70,
                60,
            )
        });
        let rotated = (scale.clone(), 0.0..6.3_f64).prop_map(|(scale, angle)| {
            let (sin, cos) = (angle.sin() * 10.0 * scale, angle.cos() * 10.0 * scale);
            let transform = [
                600_000.0 - 30.0 * cos,
                cos,
                sin,
                6_100_000.0 - 30.0 * sin,
                sin,
                -cos,
            ];
            grid(32755, transform, 70, 60)
        });
        let codes = prop::sample::select(vec![3577_u32, 4326, 3857, 32756]);
        let other = (codes, scale)
            .prop_map(|(code, scale)| round(code, 148.1, -35.2, 10.0 * scale, [70, 60]));
        prop_oneof![separable, shifted, rotated, other]
    }

    fn source(target: &GeoBox) -> GeoBox {
        match target.crs {
            Some(Crs::Epsg(32755)) => grid(
                32755,
                [599_600.0, 10.0, 0.0, 6_100_400.0, 0.0, -10.0],
                90,
                80,
            ),
            _ => round(32755, 148.1, -35.2, 10.0, [90, 80]),
        }
    }

    fn resamplings() -> impl Strategy<Value = Resampling> {
        prop::sample::select(Resampling::ALL.to_vec())
    }

    proptest! {
        #[test]
        fn the_source_window_is_all_that_a_window_of_the_target_needs(
            to in targets(),
            resampling in resamplings(),
            col in 0_u32..60,
            row in 0_u32..50,
            width in 1_u32..40,
            height in 1_u32..40,
            exact: bool,
            nodata_counts: bool,
        ) {
            let from = source(&to);
            let pixels = samples(from.size, nodata_counts);
            let warp = Warp::new(&from, &to, resampling, if exact { 0.0 } else { 0.125 }).unwrap();
            let whole = Window::whole(to.size);
            let (all, valid) = resampled(&warp, &pixels, Window::whole(from.size), whole, -1);
            let width = width.min(to.size.width - col);
            let height = height.min(to.size.height - row);
            let target = Window { col, row, width, height };
            let part = all.slice(s![
                row as usize..(row + height) as usize,
                col as usize..(col + width) as usize
            ]);
            match warp.source_window(&target) {
                Some(window) => {
                    prop_assert!(window.check_inside(from.size).is_ok(), "{}", window);
                    let (found, count) = resampled(&warp, &pixels, window, target, -1);
                    prop_assert_eq!(&found, &part);
                    prop_assert_eq!(count, found.iter().filter(|&&pixel| pixel != -1).count());
                }
                None => prop_assert!(part.iter().all(|&pixel| pixel == -1)),
            }
            prop_assert_eq!(valid, all.iter().filter(|&&pixel| pixel != -1).count());
        }

        #[test]
        fn what_is_no_data_bleeds_into_nothing(
            to in targets(),
            // A sum of parts is not their common value.
            resampling in resamplings().prop_filter("sum", |one| *one != Resampling::Sum),
            by_mask: bool,
        ) {
            let from = source(&to);
            let nodata_counts = samples(from.size, true).map(|&sample| f64::from(sample) == NODATA);
            // A nodata sample that bled into a valid pixel would move it far from 7.
            let nodata_sample = if by_mask { f32::MAX } else { NODATA as f32 };
            let pixels = nodata_counts.map(|&is_hole| if is_hole { nodata_sample } else { 7.0 });
            let mask = nodata_counts.map(|is_hole| !is_hole);
            let warp = Warp::new(&from, &to, resampling, 0.125).unwrap();
            let whole = Window::whole(to.size);
            let source = SourcePixels {
                pixels: pixels.view(),
                window: Window::whole(from.size),
                nodata: (!by_mask).then_some(NODATA.into()),
                mask: by_mask.then_some(mask.view()),
            };
            let shape = (to.size.height as usize, to.size.width as usize);
            let mut out = Array2::from_elem(shape, -1.0_f32);
            let count = warp.resample(&source, &whole, out.view_mut()).unwrap();
            let valid: Vec<f32> = out.iter().copied().filter(|&pixel| pixel != -1.0).collect();
            prop_assert_eq!(valid.len(), count);
            prop_assert!(count > 0);
            prop_assert!(valid.iter().all(|pixel| (pixel - 7.0).abs() < 1e-4), "{:?}", valid);
        }
    }

    #[test]
    fn a_window_of_the_source_is_tight() {
        let from = grid(
            32755,
            [600_000.0, 10.0, 0.0, 6_100_000.0, 0.0, -10.0],
            100,
            100,
        );
        let at = |x: f64, y: f64, side: f64| {
            grid(
                32755,
                [600_000.0 + x, side, 0.0, 6_100_000.0 - y, 0.0, -side],
                20,
                20,
            )
        };
        let cases = [
            (at(300.0, 200.0, 10.0), Resampling::Cubic, Some("32,23,4,5")),
            (
                at(305.0, 205.0, 10.0),
                Resampling::Nearest,
                Some("33,24,4,5"),
            ),
            (
                at(305.0, 205.0, 10.0),
                Resampling::Bilinear,
                Some("32,23,5,6"),
            ),
            (at(305.0, 205.0, 10.0), Resampling::Cubic, Some("31,22,7,8")),
            (
                at(305.0, 205.0, 10.0),
                Resampling::Average,
                Some("32,23,5,6"),
            ),
            (
                at(300.0, 200.0, 20.0),
                Resampling::Bilinear,
                Some("33,25,10,12"),
            ),
            (at(300.0, 200.0, 20.0), Resampling::Mode, Some("34,26,8,10")),
            (at(-1000.0, 0.0, 10.0), Resampling::Cubic, None),
            (at(2000.0, 0.0, 10.0), Resampling::Average, None),
        ];
        for (to, resampling, expected) in cases {
            let warp = Warp::new(&from, &to, resampling, 0.125).unwrap();
            let found = warp.source_window(&"2,3,4,5".parse().unwrap());
            let expected = expected.map(|window| window.parse().unwrap());
            assert_eq!(found, expected, "{resampling} {to}");
        }
    }

    /// The level that `gdalwarp -ovr AUTO` of GDAL 3.6.2 selects for a file of 10 m with overviews of factors 2, 4
    /// and 8: `CPL_DEBUG=ON` logs `Selecting overview level`.
    #[test]
    fn the_level_is_the_one_that_gdalwarp_reads() {
        let from = grid(
            32755,
            [500_000.0, 10.0, 0.0, 6_105_120.0, 0.0, -10.0],
            512,
            512,
        );
        let levels = [512, 256, 128, 64].map(|side| Size {
            width: side,
            height: side,
        });
        for (side, expected) in [
            (5.0, 0),
            (10.0, 0),
            (19.99, 0),
            (20.0, 1),
            (20.01, 1),
            (39.9, 1),
            (40.0, 2),
            (79.9, 2),
            (80.0, 3),
            (200.0, 3),
        ] {
            let to = grid(
                32755,
                [500_000.0, side, 0.0, 6_104_000.0, 0.0, -side],
                50,
                50,
            );
            let warp = Warp::new(&from, &to, Resampling::Bilinear, 0.125).unwrap();
            assert_eq!(warp.level(&levels), expected, "{side}");
        }
        let albers = round(3577, 147.02, -35.2, 42.0, [60, 60]);
        let warp = Warp::new(&from, &albers, Resampling::Bilinear, 0.125).unwrap();
        assert_eq!(warp.level(&levels), 2);
        assert_eq!(warp.level(&levels[..1]), 0);
    }

    #[test]
    fn a_level_is_warped_as_the_grid_it_is() {
        let from = grid(
            32755,
            [600_000.0, 10.0, 0.0, 6_100_000.0, 0.0, -10.0],
            100,
            100,
        );
        let to = grid(
            32755,
            [600_100.0, 40.0, 0.0, 6_099_900.0, 0.0, -40.0],
            10,
            10,
        );
        let warp = Warp::new(&from, &to, Resampling::Average, 0.125).unwrap();
        let size = Size {
            width: 50,
            height: 50,
        };
        let coarse = warp.on_level(size).unwrap();
        assert_eq!(
            coarse.source_window(&Window::whole(to.size)),
            Some("5,5,20,20".parse().unwrap())
        );
        let pixels = Array2::from_shape_fn((50, 50), |(y, x)| (x + y) as f32);
        let (out, _) = resampled(
            &coarse,
            &pixels,
            Window::whole(size),
            "0,0,1,1".parse().unwrap(),
            0.0,
        );
        assert_eq!(out[(0, 0)], 11.0);
    }

    #[test]
    fn what_does_not_fit_is_refused_by_name() {
        let from = grid(32755, [0.0, 10.0, 0.0, 100.0, 0.0, -10.0], 10, 10);
        let err = Warp::new(&from, &from, Resampling::Cubic, -1.0).unwrap_err();
        assert_eq!(
            err.message(),
            "max_error_pixels is -1; expected a finite value of 0 or more"
        );
        let warp = Warp::new(&from, &from, Resampling::Cubic, 0.125).unwrap();
        let pixels = Array2::from_elem((5, 10), 0_u8);
        let source = SourcePixels {
            pixels: pixels.view(),
            window: Window::whole(from.size),
            nodata: None,
            mask: None,
        };
        let mut out = Array2::from_elem((10, 10), 0_u8);
        let whole = Window::whole(from.size);
        let err = warp.resample(&source, &whole, out.view_mut()).unwrap_err();
        assert_eq!(
            err.message(),
            "the source has 10 x 5 pixels, and its window is 0,0,10,10"
        );
    }
}
