//! Whole pixels: all bands of a pixel come from one image of its time step.

use ndarray::{Array2, Array3, ArrayView3, ArrayViewMut3};

use super::{
    block::BlockSample,
    cube::Inner,
    load::Date,
    mosaic::{Fill, Gap, WithData, fill_pixels},
};
use crate::error::Result;

impl Inner {
    /// Returns true if the bands of a pixel must come from one image.
    pub(super) fn fills_pixels(&self) -> bool {
        self.options.fill == Fill::Pixel
            && self.options.mosaic.takes_first()
            && self
                .images
                .iter()
                .flatten()
                .any(|image| image.bands.len() > 1)
    }

    /// Composites images that touch a block, in their order, pixel by pixel.
    pub(super) fn lay_out_pixels<T: BlockSample>(
        &self,
        date: Date<'_>,
        touching: &[usize],
        fills: &[T],
        out: &mut ArrayViewMut3<'_, T>,
    ) -> Result<()> {
        let nodata = self.nodata::<T>();
        let Some((&first, others)) = touching.split_first() else {
            return Ok(());
        };
        // The first image is warped into the block itself, without a copy.
        self.lay_out_image(date, first, fills, out)?;
        let mut with_data = self.with_data(date, first, &out.view(), &nodata)?;
        for &image in others {
            // Images further down the order cannot win a pixel.
            if with_data.all.iter().all(|&all| all) {
                break;
            }
            let mut below = Array3::from_elem(out.dim(), T::fill(None));
            self.lay_out_image(date, image, fills, &mut below.view_mut())?;
            let below = below.view();
            let here = self.with_data(date, image, &below, &nodata)?;
            fill_pixels(out.view_mut(), &mut with_data, &below, &here);
        }
        Ok(())
    }

    /// Returns the pixels at which an image has data, also in bands that are not loaded.
    fn with_data<T: BlockSample>(
        &self,
        date: Date<'_>,
        image: usize,
        samples: &ArrayView3<'_, T>,
        nodata: &[Option<crate::raster::Number>],
    ) -> Result<WithData> {
        let (_, height, width) = samples.dim();
        let mut with_data = WithData::of(samples, nodata);
        let images = self.images.get(date.step).map_or(&[][..], Vec::as_slice);
        let of_image = images.get(image).map_or(&[][..], |of| &of.bands);
        let others = of_image.len() > self.bands.len();
        let kept = match others && self.masks_source() {
            true => self.kept(date, image)?,
            false => Vec::new(),
        };
        for (band, source) in of_image.iter().enumerate().skip(self.bands.len()) {
            let opened = source
                .as_ref()
                .and_then(|source| source.open.get()?.as_ref().ok());
            let mut plane = Array2::from_elem((height, width), f32::NAN);
            if let (Some(opened), Some(part)) = (opened, date.band(image, band)) {
                let kept = kept.iter().find(|(bands, _)| bands.contains(&band));
                let kept = kept.map(|(_, kept)| kept);
                opened.lay(part, kept, date.seen(), f32::NAN, plane.view_mut())?;
            }
            with_data.and(&plane.view(), Gap::<f32>::of(None));
        }
        Ok(with_data)
    }
}
