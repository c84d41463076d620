//! Morphology of masks: dilation, erosion and opening by a radius in pixels.
//!
//! The time depends on the number of pixels, not on the radius. A square is two passes of distances along rows and
//! columns. A disk is exact: first the distance to the nearest true pixel of each column, then along each row the
//! pixels that a circle around that pixel covers. This is the separation of the squared distance transform of
//! [Felzenszwalb and Huttenlocher (2012)](https://doi.org/10.4086/toc.2012.v008a019); since the radius is known in
//! advance, intervals along the row replace their envelope of parabolas.

use ndarray::{Array2, ArrayView2, Axis, Zip};

/// The structuring element.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Element {
    /// Pixels whose centres are within the radius, as a circle: what odc-algo and scikit-image's `disk` do.
    #[default]
    Disk,
    /// Pixels within the radius along rows and along columns: (2 x radius + 1) squared.
    Square,
}

/// The cleanup of a mask: an opening that removes specks, then a dilation.
///
/// ```
/// use ndarray::Array2;
/// use rss_core::mask::Cleanup;
///
/// let mut clouds = Array2::from_elem((9, 9), false);
/// clouds[(4, 4)] = true;
/// let grown = Cleanup::default().with_dilation(2).of(clouds.view());
/// assert_eq!(grown.iter().filter(|&&pixel| pixel).count(), 13);
/// let gone = Cleanup::default().with_opening(1).with_dilation(2).of(clouds.view());
/// assert!(gone.iter().all(|&pixel| !pixel));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cleanup {
    /// The radius of the opening in pixels: the mask is eroded and dilated again, which removes regions that the
    /// element does not fit into. 0 removes nothing.
    pub opening: usize,
    /// The radius in pixels of the dilation that follows.
    pub dilation: usize,
    /// The structuring element of both.
    pub element: Element,
}

impl Cleanup {
    /// Sets the radius of the opening in pixels.
    #[must_use]
    pub fn with_opening(mut self, radius: usize) -> Self {
        self.opening = radius;
        self
    }

    /// Sets the radius of the dilation in pixels.
    #[must_use]
    pub fn with_dilation(mut self, radius: usize) -> Self {
        self.dilation = radius;
        self
    }

    /// Sets the structuring element.
    #[must_use]
    pub fn with_element(mut self, element: Element) -> Self {
        self.element = element;
        self
    }

    /// Returns the halo: the number of pixels around a block that its mask depends on. Read so many more on each side,
    /// and crop them afterwards.
    pub fn halo(&self) -> usize {
        let opening = self.opening.saturating_mul(2);
        opening.saturating_add(self.dilation)
    }

    /// Applies the cleanup to a mask (y, x).
    pub fn of(&self, mask: ArrayView2<'_, bool>) -> Array2<bool> {
        let none = Array2::from_elem(mask.dim(), false);
        self.of_known(mask, none.view())
    }

    /// Applies the cleanup to a mask (y, x) that may continue in unknown pixels. They are treated like those beyond the
    /// edge: the mask is neither eroded from there, nor dilated from there.
    pub(super) fn of_known(
        &self,
        mask: ArrayView2<'_, bool>,
        unknown: ArrayView2<'_, bool>,
    ) -> Array2<bool> {
        let opened = match self.opening {
            0 => mask.to_owned(),
            radius => {
                // Unknown pixels count as true for the erosion only.
                let possible = &mask | &unknown;
                let mut eroded = eroded(possible.view(), radius, self.element);
                eroded.zip_mut_with(&mask, |pixel, &is_true| *pixel &= is_true);
                dilated(eroded.view(), radius, self.element)
            }
        };
        match self.dilation {
            0 => opened,
            radius => dilated(opened.view(), radius, self.element),
        }
    }
}

/// Dilates a mask (y, x): true where a true pixel lies within `radius` pixels. Beyond the edge everything counts as
/// false.
pub fn dilated(mask: ArrayView2<'_, bool>, radius: usize, element: Element) -> Array2<bool> {
    let (height, width) = mask.dim();
    if radius == 0 || mask.is_empty() {
        return mask.to_owned();
    }
    // A larger radius gives the same result, and its square could overflow.
    let radius = radius.min(width.saturating_add(height));
    match element {
        Element::Square => {
            let rows = along_rows(mask, radius);
            column_distances(rows.view()).mapv(|distance| reaches(distance, radius))
        }
        Element::Disk => disk(mask, radius),
    }
}

/// Erodes a mask (y, x): true where all pixels within `radius` pixels are true. Beyond the edge everything counts as
/// true, so that a cloud that continues outside is not eroded from there.
pub fn eroded(mask: ArrayView2<'_, bool>, radius: usize, element: Element) -> Array2<bool> {
    let outside = mask.mapv(|pixel| !pixel);
    // Erosion is the complement of the dilated complement.
    let mut grown = dilated(outside.view(), radius, element);
    grown.mapv_inplace(|pixel| !pixel);
    grown
}

/// A distance in pixels; `u32::MAX` if there is no true pixel.
type Distance = u32;

fn reaches(distance: Distance, radius: usize) -> bool {
    usize::try_from(distance).is_ok_and(|distance| distance <= radius && distance < FAR)
}

/// Larger than any distance.
const FAR: usize = u32::MAX as usize;

/// Returns the distance to the nearest true pixel of the same column.
fn column_distances(mask: ArrayView2<'_, bool>) -> Array2<Distance> {
    let mut distances = mask.mapv(|pixel| if pixel { 0 } else { Distance::MAX });
    let (height, _) = distances.dim();
    // A pass downwards and one upwards give the distance to the nearest true pixel on either side.
    let mut follow = |row: usize, before: usize| {
        let (row, before) =
            distances.multi_slice_mut((ndarray::s![row, ..], ndarray::s![before, ..]));
        Zip::from(row).and(&before).for_each(|distance, &before| {
            *distance = (*distance).min(before.saturating_add(1));
        });
    };
    for row in 1..height {
        follow(row, row - 1);
    }
    for row in (1..height).rev() {
        follow(row - 1, row);
    }
    distances
}

/// Dilates each row.
fn along_rows(mask: ArrayView2<'_, bool>, radius: usize) -> Array2<bool> {
    let mut grown = mask.to_owned();
    for (mut grown, row) in grown.rows_mut().into_iter().zip(mask.rows()) {
        let grow = |since: &mut usize, grown: &mut bool, was: bool| {
            *since = if was { 0 } else { since.saturating_add(1) };
            *grown |= *since <= radius;
        };
        let mut since = FAR;
        for (grown, &was) in grown.iter_mut().zip(row) {
            grow(&mut since, grown, was);
        }
        let mut since = FAR;
        for (grown, &was) in grown.iter_mut().zip(row).rev() {
            grow(&mut since, grown, was);
        }
    }
    grown
}

fn disk(mask: ArrayView2<'_, bool>, radius: usize) -> Array2<bool> {
    let distances = column_distances(mask);
    let (height, width) = mask.dim();
    // Half the chord of the circle along a row, by the distance of the row from the centre.
    let spans: Vec<usize> = (0..=radius)
        .map(|distance| (radius * radius - distance * distance).isqrt())
        .collect();
    let mut grown = Array2::from_elem((height, width), false);
    // The number of intervals that start at a column, less those that end before it: a prefix sum counts the open ones.
    let mut changes = vec![0_i32; width + 1];
    for (mut row, distances) in grown
        .axis_iter_mut(Axis(0))
        .zip(distances.axis_iter(Axis(0)))
    {
        let mut some = false;
        for (col, &distance) in distances.iter().enumerate() {
            let index = usize::try_from(distance).unwrap_or(FAR);
            let Some(&span) = spans.get(index) else {
                continue;
            };
            some = true;
            changes[col.saturating_sub(span)] += 1;
            changes[(col + span + 1).min(width)] -= 1;
        }
        if !some {
            continue;
        }
        let mut open = 0;
        for (pixel, change) in row.iter_mut().zip(&changes) {
            open += change;
            *pixel = open > 0;
        }
        changes.fill(0);
    }
    grown
}

#[cfg(test)]
mod tests {
    use ndarray::Array2;
    use proptest::prelude::*;

    use super::*;

    /// Checks every pixel around every pixel.
    fn by_hand(mask: &Array2<bool>, radius: usize, element: Element, erode: bool) -> Array2<bool> {
        let (height, width) = mask.dim();
        Array2::from_shape_fn((height, width), |(y, x)| {
            let mut near = mask.indexed_iter().filter_map(|((v, u), &pixel)| {
                let (dy, dx) = (y.abs_diff(v), x.abs_diff(u));
                let within = match element {
                    Element::Disk => dy * dy + dx * dx <= radius * radius,
                    Element::Square => dy.max(dx) <= radius,
                };
                within.then_some(pixel)
            });
            match erode {
                false => near.any(|pixel| pixel),
                true => near.all(|pixel| pixel),
            }
        })
    }

    fn masks() -> impl Strategy<Value = Array2<bool>> {
        (1_usize..14, 1_usize..14, 0.02..0.98).prop_flat_map(|(height, width, share)| {
            let pixels = prop::collection::vec(prop::bool::weighted(share), height * width);
            pixels.prop_map(move |pixels| Array2::from_shape_vec((height, width), pixels).unwrap())
        })
    }

    proptest! {
        #[test]
        fn growing_and_shrinking_are_what_looking_around_says(
            mask in masks(),
            radius in 0_usize..16,
            element in prop::sample::select(vec![Element::Disk, Element::Square]),
        ) {
            let grown = dilated(mask.view(), radius, element);
            prop_assert_eq!(&grown, &by_hand(&mask, radius, element, false));
            let shrunk = eroded(mask.view(), radius, element);
            prop_assert_eq!(shrunk, by_hand(&mask, radius, element, true));
            // Column-major memory layout.
            let turned = dilated(mask.t(), radius, element);
            prop_assert_eq!(turned.t(), grown);
        }

        #[test]
        fn a_halo_makes_blocks_agree_with_the_whole(
            mask in masks(),
            opening in 0_usize..3,
            dilation in 0_usize..4,
            element in prop::sample::select(vec![Element::Disk, Element::Square]),
            at in 0_usize..14,
        ) {
            let cleanup = Cleanup::default()
                .with_opening(opening)
                .with_dilation(dilation)
                .with_element(element);
            let whole = cleanup.of(mask.view());
            let (height, _) = mask.dim();
            let row = at.min(height - 1);
            let start = row.saturating_sub(cleanup.halo());
            let end = (row + cleanup.halo() + 1).min(height);
            let part = cleanup.of(mask.slice(ndarray::s![start..end, ..]));
            prop_assert_eq!(part.row(row - start), whole.row(row));
        }
    }

    #[test]
    fn what_is_unknown_neither_eats_nor_grows() {
        // A cloud of two columns, cut by unknown pixels; and a speck elsewhere.
        let mask = Array2::from_shape_fn((9, 12), |(row, col)| {
            (2..4).contains(&col) || (row, col) == (4, 8)
        });
        let unknown = Array2::from_shape_fn((9, 12), |(_, col)| col < 2);
        let cleanup = Cleanup::default().with_opening(1);
        let cleaned = cleanup.of_known(mask.view(), unknown.view());
        for ((row, col), &pixel) in cleaned.indexed_iter() {
            assert_eq!(pixel, (1..4).contains(&col), "{row}, {col}");
        }
        // As if the image ended there; if those pixels were known to be clear, the cloud would be removed.
        let cut = cleanup.of(mask.slice(ndarray::s![.., 2..]));
        assert_eq!(cleaned.slice(ndarray::s![.., 2..]), cut);
        assert!(!cleanup.of(mask.view()).iter().any(|&pixel| pixel));
    }

    #[test]
    fn a_radius_beyond_the_picture_fills_it() {
        let mut mask = Array2::from_elem((3, 200), false);
        for element in [Element::Disk, Element::Square] {
            let none = dilated(mask.view(), usize::MAX, element);
            assert!(none.iter().all(|&pixel| !pixel));
        }
        mask[(0, 0)] = true;
        for element in [Element::Disk, Element::Square] {
            let all = dilated(mask.view(), usize::MAX, element);
            assert!(all.iter().all(|&pixel| pixel));
        }
        let empty = Array2::from_elem((0, 4), false);
        assert_eq!(dilated(empty.view(), 2, Element::Disk), empty);
    }

    #[test]
    fn the_disk_is_that_of_scikit_image() {
        let mut mask = Array2::from_elem((7, 7), false);
        mask[(3, 3)] = true;
        // skimage.morphology.disk(3), row by row.
        let rows = [
            "0001000", "0111110", "0111110", "1111111", "0111110", "0111110", "0001000",
        ];
        let grown = dilated(mask.view(), 3, Element::Disk);
        for (row, expected) in grown.rows().into_iter().zip(rows) {
            let text: String = row
                .iter()
                .map(|&pixel| if pixel { '1' } else { '0' })
                .collect();
            assert_eq!(text, expected);
        }
    }
}
