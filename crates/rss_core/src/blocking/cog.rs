//! The blocking forms of writing COGs.

use std::sync::Arc;

use crate::{
    error::Result,
    geo::{GeoBox, Window},
    location::Location,
    raster::{DataType, Pixels, Raster},
    session::Session,
    writer::{self, Cog, CogOptions, CogReport},
};

impl Session {
    /// Writes a raster as a COG and waits; see [`writer::save`].
    ///
    /// # Errors
    ///
    /// As [`writer::save`], and [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) inside an async
    /// runtime.
    pub fn save_cog(
        &self,
        location: &Location,
        raster: &Raster,
        options: &CogOptions,
    ) -> Result<CogReport> {
        self.wait(writer::save(self, location, raster, options))
    }

    /// Creates a COG whose writes block; see [`Cog::create`].
    ///
    /// ```
    /// use rss_core::{
    ///     DataType, GeoBox, Location, Pixels, Session, Size, Window,
    ///     writer::{CogOptions, Compression},
    /// };
    ///
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("count.tif");
    /// let location = Location::parse(&path.to_string_lossy())?;
    /// let size = Size { width: 1000, height: 700 };
    /// let grid = GeoBox { size, crs: None, transform: None };
    /// let options = CogOptions::new().with_compression(Compression::Zstd(9));
    /// let session = Session::builder().build()?;
    /// let mut cog = session.create_cog(&location, grid, DataType::U8, 1, &options)?;
    /// for (row, height) in [(0, 512), (512, 188)] {
    ///     let window = Window { col: 0, row, width: 1000, height };
    ///     cog.write(window, Pixels::zeros(DataType::U8, 1, window.size())?)?;
    /// }
    /// assert_eq!(cog.finish()?.tiles, 5);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Cog::create`].
    pub fn create_cog(
        &self,
        location: &Location,
        grid: GeoBox,
        dtype: DataType,
        bands: usize,
        options: &CogOptions,
    ) -> Result<OpenCog> {
        let cog = Cog::create(self, location, grid, dtype, bands, options);
        Ok(OpenCog {
            cog: self.wait(cog)?,
            session: self.clone(),
        })
    }
}

/// A COG under way, whose writes block.
#[derive(Debug)]
pub struct OpenCog {
    cog: Cog,
    session: Session,
}

impl OpenCog {
    /// Writes a block; see [`Cog::write`].
    ///
    /// # Errors
    ///
    /// As [`Cog::write`].
    pub fn write(&mut self, window: Window, pixels: impl Into<Arc<Pixels>>) -> Result<()> {
        self.session.wait(self.cog.write(window, pixels))
    }

    /// Writes the remaining tiles and overviews, and moves the file to its final name; see [`Cog::finish`].
    ///
    /// # Errors
    ///
    /// As [`Cog::finish`].
    pub fn finish(self) -> Result<CogReport> {
        self.session.wait(self.cog.finish())
    }

    /// Aborts the write; see [`Cog::abort`].
    ///
    /// # Errors
    ///
    /// As [`Cog::abort`].
    pub fn abort(self) -> Result<()> {
        self.session.wait(self.cog.abort())
    }
}
