//! The blocking forms of [`apply`](crate::apply): image cubes, samples and results.

use crate::{
    apply::{
        Apply, ApplyOptions, ApplyReport, Block, BlockSample, ImageCube, ImageCubeOptions,
        MissingInput, TypedApply,
        reduce::Reducer,
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

    /// Reduces the time axis in the type that keeps the samples and waits; see [`ImageCube::reduce_typed`].
    ///
    /// # Errors
    ///
    /// As [`ImageCube::reduce_typed`].
    pub fn reduce_typed(
        &self,
        cube: &ImageCube,
        reducer: Reducer,
        options: ApplyOptions,
    ) -> Result<TypedApply> {
        self.wait(cube.reduce_typed(reducer, options))
    }

    /// Takes each time step of each band as a band and waits; see [`ImageCube::layers`].
    ///
    /// # Errors
    ///
    /// As [`ImageCube::layers`].
    pub fn layers(&self, cube: &ImageCube, options: ApplyOptions) -> Result<TypedApply> {
        self.wait(cube.layers(options))
    }

    /// Evaluates formulas in the type that keeps the samples and waits; see [`ImageCube::express_typed`].
    ///
    /// # Errors
    ///
    /// As [`ImageCube::express_typed`].
    #[cfg(feature = "expression")]
    pub fn express_typed(
        &self,
        cube: &ImageCube,
        formulas: &[crate::apply::Expression],
        reducer: Option<Reducer>,
        options: ApplyOptions,
    ) -> Result<TypedApply> {
        self.wait(cube.express_typed(formulas, reducer, options))
    }

    /// Computes a result whose type was chosen by the files into memory and waits; see [`TypedApply::raster`].
    ///
    /// # Errors
    ///
    /// As [`TypedApply::raster`].
    pub fn compute_typed(&self, work: TypedApply) -> Result<(Raster, ApplyReport)> {
        self.wait(work.raster())
    }

    /// Computes a result whose type was chosen by the files into a COG and waits; see [`TypedApply::cog`].
    ///
    /// # Errors
    ///
    /// As [`TypedApply::cog`].
    #[cfg(feature = "cog")]
    pub fn compute_typed_cog(
        &self,
        work: TypedApply,
        location: &Location,
        options: &CogOptions,
    ) -> Result<(CogReport, ApplyReport)> {
        self.wait(work.cog(location, options))
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
