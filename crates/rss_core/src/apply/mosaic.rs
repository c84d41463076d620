//! Compositing the images of one time step: which pixel wins where several overlap.

use std::{fmt, str::FromStr};

use ndarray::{Array2, Array3, ArrayView2, ArrayView3, ArrayView4, ArrayViewMut3, Axis, Zip};

use super::{reduce::Reducer, time::MosaicOrder};
use crate::{
    error::{Error, ErrorKind, Result},
    raster::{Number, Sample, fill, nodata_sample},
};

/// How the images of one time step are composited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mosaic {
    /// The first valid sample, in the order of time.
    #[default]
    FirstValid,
    /// The first valid sample, in the order of cloud cover.
    LeastCloud,
    /// The median of the valid samples.
    Median,
    /// The mean of the valid samples.
    Mean,
    /// The minimum of the valid samples.
    Min,
    /// The maximum of the valid samples.
    Max,
    /// The number of valid samples.
    Count,
}

impl Mosaic {
    /// All mosaics.
    pub const ALL: [Self; 7] = [
        Self::FirstValid,
        Self::LeastCloud,
        Self::Median,
        Self::Mean,
        Self::Min,
        Self::Max,
        Self::Count,
    ];

    /// Returns its name, such as `least_cloud`.
    pub fn name(self) -> &'static str {
        match self {
            Self::FirstValid => "first",
            Self::LeastCloud => "least_cloud",
            Self::Median => "median",
            Self::Mean => "mean",
            Self::Min => "min",
            Self::Max => "max",
            Self::Count => "count",
        }
    }

    /// Returns the order in which the images of a time step must come.
    pub fn order(self) -> MosaicOrder {
        match self {
            Self::LeastCloud => MosaicOrder::LeastCloud,
            _ => MosaicOrder::Time,
        }
    }

    /// Returns the reducer that composites a stack of images in that order.
    pub fn reducer(self) -> Reducer {
        match self {
            Self::FirstValid | Self::LeastCloud => Reducer::First,
            Self::Median => Reducer::Median,
            Self::Mean => Reducer::Mean,
            Self::Min => Reducer::Min,
            Self::Max => Reducer::Max,
            Self::Count => Reducer::Count,
        }
    }

    /// Returns true if images can be composited one by one with [`fill_gaps`]: no stack is needed, and the remaining
    /// images can be skipped once no gap is left.
    pub fn takes_first(self) -> bool {
        self.reducer() == Reducer::First
    }

    /// Returns true if each value is one of the samples, so that their dtype holds it.
    pub fn keeps_type(self) -> bool {
        matches!(self.reducer(), Reducer::First | Reducer::Min | Reducer::Max)
    }
}

impl fmt::Display for Mosaic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Mosaic {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let name = text.replace('-', "_");
        let found = Self::ALL.into_iter().find(|one| one.name() == name);
        found.ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            let message = format!("mosaic `{}` is not one of {names}", text.escape_debug());
            Error::new(ErrorKind::InvalidInput, message)
        })
    }
}

/// What fills the gaps of an image, where a mosaic takes the first valid sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fill {
    /// Whole pixels: all bands of a pixel come from one image, so that an index of it is one that was seen. It is the
    /// first image with data in all bands; where no image has, the first with data in any of them, and what that one
    /// lacks stays nodata.
    #[default]
    Pixel,
    /// Each band by itself: bands of one pixel may come from different images.
    Band,
}

impl Fill {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Pixel, Self::Band];

    /// Returns its name, `pixel` or `band`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pixel => "pixel",
            Self::Band => "band",
        }
    }
}

impl fmt::Display for Fill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Fill {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let found = Self::ALL.into_iter().find(|one| one.name() == text);
        found.ok_or_else(|| {
            let message = format!("fill `{}` is not pixel or band", text.escape_debug());
            Error::new(ErrorKind::InvalidInput, message)
        })
    }
}

/// Tells gaps, samples that are NaN or equal to nodata, from data.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gap<T>(Option<T>);

impl<T: Sample> Gap<T> {
    pub(crate) fn of(nodata: Option<Number>) -> Self {
        Self(nodata_sample(nodata))
    }

    pub(crate) fn is(self, sample: T) -> bool {
        !sample.is_data(self.0)
    }
}

/// The pixels (y, x) of an image that have data.
#[derive(Clone, Debug)]
pub(super) struct WithData {
    /// In all bands.
    pub(super) all: Array2<bool>,
    /// In any band.
    pub(super) any: Array2<bool>,
}

impl WithData {
    /// Of an image without bands; [`and`](Self::and) adds them.
    pub(super) fn new(shape: (usize, usize)) -> Self {
        Self {
            all: Array2::from_elem(shape, true),
            any: Array2::from_elem(shape, false),
        }
    }

    /// Of an image (band, y, x).
    pub(super) fn of<T: Sample>(image: &ArrayView3<'_, T>, nodata: &[Option<Number>]) -> Self {
        let (_, height, width) = image.dim();
        let mut with_data = Self::new((height, width));
        for (plane, &nodata) in image.outer_iter().zip(nodata) {
            with_data.and(&plane, Gap::<T>::of(nodata));
        }
        with_data
    }

    /// Adds a band.
    pub(super) fn and<T: Sample>(&mut self, plane: &ArrayView2<'_, T>, gap: Gap<T>) {
        Zip::from(&mut self.all)
            .and(&mut self.any)
            .and(plane)
            .for_each(|all, any, &sample| {
                let is_data = !gap.is(sample);
                *all &= is_data;
                *any |= is_data;
            });
    }
}

/// Fills pixels of an image (band, y, x) from the next image of the mosaic as [`Fill::Pixel`] does, and returns how many
/// pixels do not have data in all bands yet.
pub(super) fn fill_pixels<T: Sample>(
    mut image: ArrayViewMut3<'_, T>,
    with_data: &mut WithData,
    below: &ArrayView3<'_, T>,
    below_with_data: &WithData,
) -> usize {
    // Only a whole pixel may replace one with data in any band.
    let mut taken = below_with_data.all.clone();
    Zip::from(&mut taken)
        .and(&below_with_data.any)
        .and(&with_data.all)
        .and(&with_data.any)
        .for_each(|taken, &any_below, &all, &any| {
            *taken = !all & (*taken | (any_below & !any));
        });
    for (mut plane, below) in image.outer_iter_mut().zip(below.outer_iter()) {
        Zip::from(&mut plane)
            .and(&below)
            .and(&taken)
            .for_each(|sample, &below, &taken| {
                *sample = if taken { below } else { *sample };
            });
    }
    with_data
        .all
        .zip_mut_with(&below_with_data.all, |all, &below| *all |= below);
    with_data
        .any
        .zip_mut_with(&below_with_data.any, |any, &below| *any |= below);
    with_data.all.iter().filter(|all| !**all).count()
}

/// Returns the first pixel of each column of a stack (time, band, y, x): that of the first image, in the order of `times`,
/// with data in all bands, or else of the first with data in any. `nodata` is that of each band.
pub(super) fn first_pixels<T: Sample>(
    stack: &ArrayView4<'_, T>,
    mut times: impl Iterator<Item = usize>,
    nodata: &[Option<Number>],
) -> Array3<T> {
    let Some(first) = times.next() else {
        let (_, bands, height, width) = stack.dim();
        return Array3::from_elem((bands, height, width), fill(None));
    };
    let mut out = stack.index_axis(Axis(0), first).to_owned();
    let mut with_data = WithData::of(&out.view(), nodata);
    if with_data.all.iter().all(|all| *all) {
        return out;
    }
    for time in times {
        let image = stack.index_axis(Axis(0), time);
        let here = WithData::of(&image, nodata);
        if fill_pixels(out.view_mut(), &mut with_data, &image, &here) == 0 {
            break;
        }
    }
    out
}

/// Fills the gaps of an image (band, y, x) from the next image of the mosaic, each band by itself ([`Fill::Band`]), and
/// returns how many gaps are left. A gap is a sample that is NaN or equal to `nodata`.
///
/// # Panics
///
/// If the shapes differ.
pub fn fill_gaps<T: Sample>(
    mut image: ArrayViewMut3<'_, T>,
    below: ArrayView3<'_, T>,
    nodata: Option<Number>,
) -> usize {
    let gap = Gap::<T>::of(nodata);
    let mut gaps = 0;
    Zip::from(&mut image)
        .and(&below)
        .for_each(|sample, &under| {
            if gap.is(*sample) {
                *sample = under;
                gaps += usize::from(gap.is(under));
            }
        });
    gaps
}

#[cfg(test)]
mod tests {
    use ndarray::array;

    use super::*;

    #[test]
    fn gaps_are_filled_from_below_and_counted() {
        let mut image = array![[[1_i16, -999, -999]], [[-999, 2, 3]]];
        let below = array![[[7, 8, -999]], [[9, 9, 9]]];
        assert_eq!(
            fill_gaps(image.view_mut(), below.view(), Some((-999.0).into())),
            1
        );
        assert_eq!(image, array![[[1, 8, -999]], [[9, 2, 3]]]);
        assert_eq!(
            fill_gaps(
                image.view_mut(),
                array![[[0, 0, 5]], [[0, 0, 0]]].view(),
                Some((-999.0).into())
            ),
            0
        );
        assert_eq!(image, array![[[1, 8, 5]], [[9, 2, 3]]]);
        // Without nodata integers have no gaps; floats have NaN.
        let mut bytes = array![[[0_u8]]];
        assert_eq!(
            fill_gaps(bytes.view_mut(), array![[[7_u8]]].view(), None),
            0
        );
        assert_eq!(bytes, array![[[0]]]);
        let mut floats = array![[[f32::NAN, -1.0, 2.0]]];
        fill_gaps(
            floats.view_mut(),
            array![[[4.0, f32::NAN, 6.0]]].view(),
            Some((-1.0).into()),
        );
        assert_eq!(floats[(0, 0, 0)], 4.0);
        assert!(floats[(0, 0, 1)].is_nan());
        assert_eq!(floats[(0, 0, 2)], 2.0);
    }

    #[test]
    fn the_bands_of_a_pixel_come_from_one_image() {
        // Two bands of five pixels: whole in the first, in the second, in none; only one band; in neither.
        let images = [
            array![[[1_i16, 1, 1, -999, -999]], [[1, -999, -999, -999, -999]]],
            array![[[2, 2, -999, 2, -999]], [[2, 2, 2, -999, -999]]],
            array![[[3, 3, 3, -999, -999]], [[3, 3, -999, 3, -999]]],
        ];
        let nodata = [Some((-999.0).into()); 2];
        let mut out = images[0].clone();
        let mut with_data = WithData::of(&out.view(), &nodata);
        let left: Vec<usize> = images[1..]
            .iter()
            .map(|below| {
                let here = WithData::of(&below.view(), &nodata);
                fill_pixels(out.view_mut(), &mut with_data, &below.view(), &here)
            })
            .collect();
        assert_eq!(left, [3, 3]);
        let expected = array![[[1, 2, 1, 2, -999]], [[1, 2, -999, -999, -999]]];
        assert_eq!(out, expected);
        // The same of a stack of floats, from the first and from the last.
        let stack = ndarray::stack(Axis(0), &images.each_ref().map(|image| image.view())).unwrap();
        let stack = stack.mapv(|sample| {
            if sample == -999 {
                f32::NAN
            } else {
                f32::from(sample)
            }
        });
        let shown =
            |made: Array3<f32>| made.mapv(|value| if value.is_nan() { -999 } else { value as i16 });
        assert_eq!(
            shown(first_pixels(&stack.view(), 0..3, &[None; 2])),
            expected
        );
        let expected = array![[[3, 3, 3, -999, -999]], [[3, 3, -999, 3, -999]]];
        assert_eq!(
            shown(first_pixels(&stack.view(), (0..3).rev(), &[None; 2])),
            expected
        );
    }

    #[test]
    fn a_mosaic_is_read_as_it_is_written() {
        for one in Fill::ALL {
            assert_eq!(one.to_string().parse::<Fill>().unwrap(), one);
        }
        let err = "image".parse::<Fill>().unwrap_err();
        assert_eq!(err.message(), "fill `image` is not pixel or band");
        for one in Mosaic::ALL {
            assert_eq!(one.to_string().parse::<Mosaic>().unwrap(), one);
            assert_eq!(
                one.takes_first(),
                matches!(one.name(), "first" | "least_cloud")
            );
        }
        assert_eq!("least-cloud".parse::<Mosaic>().unwrap(), Mosaic::LeastCloud);
        assert_eq!(Mosaic::LeastCloud.order(), MosaicOrder::LeastCloud);
        let err = "best".parse::<Mosaic>().unwrap_err();
        assert_eq!(
            err.message(),
            "mosaic `best` is not one of first, least_cloud, median, mean, min, max, count"
        );
    }
}
