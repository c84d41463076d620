//! The blocking forms of [`apply`](crate::apply): image cubes, samples and results.

use crate::{
    apply::{
        Apply, ApplyReport, Block, BlockSample, ImageCube, ImageCubeOptions, MissingInput,
        sample::{self, Points, SampleOptions, SampleReport, Statistics, Table, Zones},
    },
    error::Result,
    geo::Window,
    query::QueryResult,
    raster::{Raster, Sample},
    session::Session,
};
#[cfg(feature = "cog")]
use crate::{
    location::Location,
    writer::{CogOptions, CogReport},
};

impl Session {
    /// Opens the images of a search as a cube on one grid and waits; see [`ImageCube::of`].
    ///
    /// # Errors
    ///
    /// As [`ImageCube::of`], and [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) inside an async
    /// runtime.
    pub fn cube(&self, found: &QueryResult, options: &ImageCubeOptions) -> Result<ImageCube> {
        self.wait(ImageCube::of(found, options))
    }

    /// Reads a window of a cube and waits; see [`ImageCube::read`].
    ///
    /// # Errors
    ///
    /// As [`ImageCube::read`].
    pub fn read_cube<T: BlockSample>(
        &self,
        cube: &ImageCube,
        window: Window,
    ) -> Result<(Block<T>, Vec<MissingInput>)> {
        self.wait(cube.read(window))
    }

    /// Samples images at points and waits; see [`sample::points`].
    ///
    /// # Errors
    ///
    /// As [`sample::points`], and [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) inside an async
    /// runtime.
    pub fn sample_points(
        &self,
        found: &QueryResult,
        points: Points,
        options: &SampleOptions,
    ) -> Result<(Table, SampleReport)> {
        self.wait(sample::points(found, points, options))
    }

    /// Computes zonal statistics of images and waits; see [`sample::zones`].
    ///
    /// # Errors
    ///
    /// As [`sample::zones`], and [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) inside an async
    /// runtime.
    pub fn sample_zones(
        &self,
        found: &QueryResult,
        zones: Zones,
        statistics: &Statistics,
        options: &SampleOptions,
    ) -> Result<(Table, SampleReport)> {
        self.wait(sample::zones(found, zones, statistics, options))
    }

    /// Computes a result into memory and waits; see [`Apply::raster`].
    ///
    /// # Errors
    ///
    /// As [`Apply::raster`].
    pub fn compute<O>(&self, work: Apply<O>) -> Result<(Raster, ApplyReport)>
    where
        O: Sample + Send + Sync + 'static,
    {
        self.wait(work.raster())
    }

    /// Computes a result into a COG and waits; see [`Apply::cog`].
    ///
    /// # Errors
    ///
    /// As [`Apply::cog`].
    #[cfg(feature = "cog")]
    pub fn compute_cog<O>(
        &self,
        work: Apply<O>,
        location: &Location,
        options: &CogOptions,
    ) -> Result<(CogReport, ApplyReport)>
    where
        O: Sample + Send + Sync + 'static,
    {
        self.wait(work.cog(location, options))
    }
}
