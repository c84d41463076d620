//! Masks on the images' own pixels, before these are resampled.

use std::sync::Arc;

use ndarray::{Array2, s};

use super::{
    cube::{Inner, ItemImage},
    options::MaskStage,
    source::{Opened, SourceWindow},
};
use crate::{
    error::Result,
    geo::Window,
    mask::{self, Cleanup},
};

/// The masks of an image on the grid of one of its files, and the part of it that a block needs.
#[derive(Debug)]
pub(super) struct SourceMask {
    /// The window of the file's grid.
    target: Window,
    /// The same with the halo of opening and dilation, in the grid with that margin.
    around: Window,
    halo: usize,
    /// Each mask, opened for the grid with the margin, and the window to read of it, if it touches.
    pub(super) masks: Vec<(Arc<Opened>, Option<Window>)>,
}

impl SourceMask {
    /// Plans the masks of a band of an image that is read in a window. An error is that of a mask, by its number.
    pub(super) async fn plan(
        cube: &Inner,
        image: &ItemImage,
        band: &Opened,
        target: Window,
    ) -> Result<Self, (usize, crate::Error)> {
        let halo = cube.options.cleanup.halo();
        let margin = u32::try_from(halo).unwrap_or(u32::MAX);
        let mut masks = Vec::with_capacity(image.masks.len());
        let around = Window {
            width: target.width.saturating_add(margin.saturating_mul(2)),
            height: target.height.saturating_add(margin.saturating_mul(2)),
            ..target
        };
        for (number, (source, _)) in image.masks.iter().enumerate() {
            let opening = async {
                // A failure is cached here, and not of the second open.
                source.opened(&cube.session, &cube.mask_grid).await?;
                let grid = band.own.with_margin(margin)?;
                source.open(&cube.session, &grid).await
            };
            let opened = opening.await.map_err(|err| (number, err))?;
            let window = opened.window(&around);
            masks.push((Arc::new(opened), window));
        }
        Ok(Self {
            target,
            around,
            halo,
            masks,
        })
    }

    /// Returns the window of the file's grid that it is for.
    pub(super) fn target(&self) -> Window {
        self.target
    }

    /// Returns which pixels of the target are kept, from what was read of each mask.
    pub(super) fn kept(
        &self,
        image: &ItemImage,
        parts: &[Option<&SourceWindow>],
        cleanup: Cleanup,
    ) -> Result<Array2<bool>> {
        let shape = (self.around.height as usize, self.around.width as usize);
        let masks = self.masks.iter().zip(image.masks.iter()).zip(parts);
        let verdicts = masks
            .map(|(((opened, _), (_, mask)), part)| opened.verdicts(mask, *part, &self.around));
        let left_out = mask::left_out(shape, verdicts, cleanup)?;
        let (rows, cols) = (self.target.height as usize, self.target.width as usize);
        let halo = self.halo;
        let inner = left_out.slice(s![halo..halo + rows, halo..halo + cols]);
        Ok(inner.mapv(|is_out| !is_out))
    }

    /// Returns the bytes that masking takes beside the mask's pixels as they are read.
    pub(super) fn bytes(&self) -> u64 {
        // Verdicts and booleans of one byte each, before and after resampling and cleanup.
        8 * u64::from(self.around.width) * u64::from(self.around.height)
    }
}

impl Inner {
    /// Returns true if masks are applied before resampling.
    pub(super) fn masks_source(&self) -> bool {
        self.options.mask.is_some() && self.options.mask_stage == MaskStage::Source
    }
}
