//! A result as a Cloud Optimized GeoTIFF.

use futures::TryStreamExt;

use super::{
    provenance::{SOFTWARE, metadata_of},
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
    /// Returns the columns and rows of a block of a COG: the option, else what fits the session's threads and memory. The
    /// order of tiles in the file depends on it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] for a block that is not a multiple of 16.
    pub async fn cog_block(&self, options: &CogOptions) -> Result<u32> {
        let side = self.block_side().await?;
        match self.options.block {
            Some(_) => Ok(side),
            None => Ok(side.next_multiple_of(options.tile.max(16))),
        }
    }

    /// Computes the result into a Cloud Optimized GeoTIFF, in one pass: memory is that of the blocks under way. The
    /// file appears when it is complete.
    ///
    /// The file states where it comes from ([`Apply::provenance`]) as GDAL metadata named `RSS_..`.
    ///
    /// Nodata and band names are those of the result where `options` state none; a block is a multiple of a tile. The
    /// overviews of bands of classes are by nearest, if `options` choose no resampling.
    ///
    /// # Errors
    ///
    /// As of [`Apply::blocks`], [`Cog::create`], [`Cog::write`] and [`Cog::finish`]. Nothing is left behind: an
    /// upload is aborted before the error is returned.
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
        self.options.block = Some(self.cog_block(&options).await?);
        if options.bands.is_empty() {
            options.bands = self.options.names.iter().map(Band::named).collect();
        }
        for (number, &is_class) in self.classes.iter().enumerate() {
            if is_class {
                options
                    .bands
                    .resize_with(options.bands.len().max(number + 1), Band::new);
                options.bands[number].is_class = true;
            }
        }
        // The first block would open them, too.
        self.cube().open_files().await;
        let provenance = self.provenance();
        options.software.get_or_insert_with(|| SOFTWARE.to_owned());
        options.metadata.extend(metadata_of(&provenance));
        let mut report = self.report();
        let mut blocks = std::pin::pin!(self.blocks());
        // The header needs the number of bands, which only the first computed block tells.
        let Some(first) = blocks.try_next().await? else {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                "the grid has no pixels: nothing was computed",
            ));
        };
        let bands = first.samples.dim().0;
        let mut cog = Cog::create(&session, location, grid, O::DTYPE, bands, &options).await?;
        let writing = async {
            let mut next = Some(first);
            while let Some(block) = next {
                check_bands(bands, block.samples.dim().0, &block.window)?;
                cog.write(block.window, O::wrap(block.samples)).await?;
                report.add(block.missing_inputs);
                next = blocks.try_next().await?;
            }
            Ok(())
        };
        let written = writing.await;
        Ok((cog.end(written).await?, report))
    }
}
