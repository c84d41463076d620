//! A result as a Cloud Optimized GeoTIFF.

use futures::TryStreamExt;

use super::{
    report::ApplyReport,
    run::{Apply, check_bands},
};
use crate::{
    error::{Error, ErrorKind, Result},
    location::Location,
    raster::Sample,
    writer::{Band, Cog, CogOptions, CogReport},
};

impl<O: Sample + Send + Sync + 'static> Apply<O> {
    /// Computes everything into a Cloud Optimized GeoTIFF, in one pass: memory is that of the blocks under
    /// way. It is there when it is complete.
    ///
    /// Nodata and band names are those of the result where `options` state none; blocks are whole tiles.
    ///
    /// # Errors
    ///
    /// As of [`Apply::blocks`] and of [`Cog::create`].
    pub async fn cog(
        mut self,
        location: &Location,
        options: &CogOptions,
    ) -> Result<(CogReport, ApplyReport)> {
        let session = self.cube().0.session.clone();
        let grid = self.cube().grid().clone();
        let mut options = options.clone();
        self.options.nodata = options.nodata.or(self.options.nodata);
        options.nodata = self.nodata();
        if self.options.block.is_none() {
            let side = self.cube().block_side(&self.options)?;
            self.options.block = side.checked_next_multiple_of(options.tile.max(16));
        }
        if options.bands.is_empty() {
            options.bands = self.options.names.iter().map(Band::named).collect();
        }
        let mut report = self.report();
        let mut writer: Option<(Cog, usize)> = None;
        let mut blocks = std::pin::pin!(self.blocks());
        while let Some(block) = blocks.try_next().await? {
            let bands = block.samples.dim().0;
            if writer.is_none() {
                let cog = Cog::create(&session, location, grid.clone(), O::DTYPE, bands, &options)
                    .await?;
                writer = Some((cog, bands));
            }
            let Some((cog, expected)) = &mut writer else {
                continue;
            };
            check_bands(*expected, bands, &block.window)?;
            cog.write(block.window, O::wrap(block.samples)).await?;
            report.add(block.holes);
        }
        match writer {
            Some((cog, _)) => Ok((cog.finish().await?, report)),
            None => Err(Error::new(
                ErrorKind::InvalidInput,
                "a grid without pixels: nothing was computed",
            )),
        }
    }
}
