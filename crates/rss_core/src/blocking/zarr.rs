//! The blocking forms of Zarr cubes and arrays.

use std::ops::Range;

use ndarray::{Array2, Array3, ArrayD};

use crate::{
    error::Result,
    geo::Window,
    raster::{Raster, Sample},
    session::Session,
    zarr::{Array, ArraySpec, Cube, CubeOptions, Images, PixelIndex, Root, Written},
};

impl Session {
    /// Writes a new cube and waits; see [`Cube::create`].
    ///
    /// # Errors
    ///
    /// As [`Cube::create`], and [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) inside an
    /// async runtime.
    pub fn create_cube(
        &self,
        root: impl Into<Root>,
        images: impl Into<Images>,
        options: &CubeOptions,
    ) -> Result<Written> {
        self.wait(Cube::create(self, root, images, options))
    }

    /// Appends time steps to a cube and waits; see [`Cube::append`].
    ///
    /// # Errors
    ///
    /// As [`Cube::append`].
    pub fn append_cube(
        &self,
        root: impl Into<Root>,
        images: impl Into<Images>,
        options: &CubeOptions,
    ) -> Result<Written> {
        self.wait(Cube::append(self, root, images, options))
    }

    /// Opens a cube whose reads block; see [`Cube::open`].
    ///
    /// # Errors
    ///
    /// As [`Cube::open`].
    pub fn open_cube(&self, root: impl Into<Root>) -> Result<OpenCube> {
        Ok(OpenCube {
            cube: self.wait(Cube::open(self, root))?,
            session: self.clone(),
        })
    }

    /// Opens an array whose reads block; see [`Array::open`].
    ///
    /// # Errors
    ///
    /// As [`Array::open`].
    pub fn open_array(&self, root: impl Into<Root>) -> Result<OpenArray> {
        Ok(OpenArray {
            array: self.wait(Array::open(self, root))?,
            session: self.clone(),
        })
    }

    /// Creates a new array whose reads and writes block; see [`Array::create`].
    ///
    /// ```
    /// use ndarray::ArrayD;
    /// use rss_core::{DataType, Location, Session, zarr::ArraySpec};
    ///
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("volume");
    /// let location = Location::parse(&path.to_string_lossy())?;
    /// let session = Session::builder().build()?;
    /// let spec = ArraySpec::new([100, 200], DataType::U8, [32, 32]).with_shard([64, 128]);
    /// let array = session.create_array(&location, &spec)?;
    /// array.write(&[0, 0], ArrayD::from_elem(vec![100, 200], 7_u8))?;
    /// let part = session.open_array(&location)?.read::<u8>(&[90..100, 0..5])?;
    /// assert_eq!(part, ArrayD::from_elem(vec![10, 5], 7));
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Array::create`].
    pub fn create_array(&self, root: impl Into<Root>, spec: &ArraySpec) -> Result<OpenArray> {
        Ok(OpenArray {
            array: self.wait(Array::create(self, root, spec))?,
            session: self.clone(),
        })
    }
}

/// An open cube whose reads block.
#[derive(Clone, Debug)]
pub struct OpenCube {
    cube: Cube,
    session: Session,
}

impl OpenCube {
    /// Returns the cube, for its metadata and for use in async code.
    pub fn cube(&self) -> &Cube {
        &self.cube
    }

    /// Reads a window of a band at some time steps; see [`Cube::read`].
    ///
    /// # Errors
    ///
    /// As [`Cube::read`].
    pub fn read<T>(
        &self,
        band: &str,
        times: Range<usize>,
        window: Option<Window>,
        level: usize,
    ) -> Result<Array3<T>>
    where
        T: Sample + Send + Sync + 'static,
    {
        self.session
            .wait(self.cube.read(band, times, window, level))
    }

    /// Reads a window of a band as a raster; see [`Cube::read_raster`].
    ///
    /// # Errors
    ///
    /// As [`Cube::read_raster`].
    pub fn read_raster(
        &self,
        band: &str,
        times: Range<usize>,
        window: Option<Window>,
        level: usize,
    ) -> Result<Raster> {
        let read = self.cube.read_raster(band, times, window, level);
        self.session.wait(read)
    }

    /// Reads the time series of a band at pixels; see [`Cube::read_series`].
    ///
    /// # Errors
    ///
    /// As [`Cube::read_series`].
    pub fn read_series<T>(&self, band: &str, pixels: &[PixelIndex]) -> Result<Array2<T>>
    where
        T: Sample + Send + Sync + 'static,
    {
        self.session.wait(self.cube.read_series(band, pixels))
    }
}

/// An open array whose reads and writes block.
#[derive(Clone, Debug)]
pub struct OpenArray {
    array: Array,
    session: Session,
}

impl OpenArray {
    /// Returns the array, for its metadata and for use in async code.
    pub fn array(&self) -> &Array {
        &self.array
    }

    /// Reads a region; see [`Array::read`].
    ///
    /// # Errors
    ///
    /// As [`Array::read`].
    pub fn read<T>(&self, ranges: &[Range<u64>]) -> Result<ArrayD<T>>
    where
        T: Sample + Send + Sync + 'static,
    {
        self.session.wait(self.array.read(ranges))
    }

    /// Writes a region of complete shards; see [`Array::write`].
    ///
    /// # Errors
    ///
    /// As [`Array::write`].
    pub fn write<T>(&self, start: &[u64], samples: ArrayD<T>) -> Result<()>
    where
        T: Sample + Send + Sync + 'static,
    {
        self.session.wait(self.array.write(start, samples))
    }
}
