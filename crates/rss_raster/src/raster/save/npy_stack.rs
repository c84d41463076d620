//! Rasters of one shape, one after another, in one numpy file.

use std::{
    io::{BufWriter, Write},
    path::{Path, PathBuf},
};

use tempfile::NamedTempFile;

use super::{Format, io_error, npy, temporary};
use crate::{
    error::{Error, ErrorKind, Result},
    raster::{DataType, Pixels, Raster, Sample, Sealed as _, with_type},
};

/// Writes rasters of one shape and type as one numpy array, (raster, band, y, x), without holding more
/// than one of them. The file appears whole under its name, or not at all.
#[derive(Debug)]
pub struct NpyStack {
    path: PathBuf,
    count: usize,
    out: BufWriter<NamedTempFile>,
    first: Option<First>,
    /// Rasters that were added or skipped.
    done: usize,
}

/// What the first raster says of all.
#[derive(Debug)]
struct First {
    dtype: DataType,
    shape: [usize; 3],
    /// What stands in the place of a raster that is not there.
    filler: Vec<u8>,
}

impl NpyStack {
    /// Begins a file for `count` rasters. Its name ends in `.npy`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] for another ending or a folder that is not there;
    /// [`ErrorKind::Denied`] if the folder cannot be written.
    pub fn create(path: impl Into<PathBuf>, count: usize) -> Result<Self> {
        let path = path.into();
        if Format::of_path(&path).ok() != Some(Format::Npy) {
            let message = "the ending of a file of many rasters is .npy";
            return Err(Error::new(ErrorKind::InvalidInput, message).at(path.display()));
        }
        Ok(Self {
            out: BufWriter::new(temporary(&path)?),
            path,
            count,
            first: None,
            done: 0,
        })
    }

    /// Adds the next raster.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] for a raster of another shape or type than the first: its place is
    /// filled as [`NpyStack::skip`] does. [`ErrorKind::Unavailable`] if the disk is full.
    pub fn add(&mut self, raster: &Raster) -> Result<()> {
        let (dtype, shape) = (raster.pixels.dtype(), raster.pixels.shape());
        let Some(first) = &self.first else {
            return self.begin(raster);
        };
        if (first.dtype, first.shape) != (dtype, shape) {
            let describe = |dtype: DataType, [bands, height, width]: [usize; 3]| {
                format!("{bands} x {height} x {width} {}", dtype.name())
            };
            let message = format!(
                "its pixels are {}, expected {}",
                describe(dtype, shape),
                describe(first.dtype, first.shape)
            );
            self.skip()?;
            return Err(Error::new(ErrorKind::InvalidInput, message));
        }
        self.done += 1;
        self.write(&raster.pixels.to_le_bytes())
    }

    /// Leaves out the next raster: its place holds the nodata value of the first one, or zero.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`] if the disk is full.
    pub fn skip(&mut self) -> Result<()> {
        self.done += 1;
        let Some(First { filler, .. }) = &self.first else {
            return Ok(());
        };
        let written = self.out.write_all(filler);
        written.map_err(|err| io_error(err).at(self.path.display()))
    }

    /// Gives the file its name. What was neither added nor skipped is left out.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] if no raster was added; [`ErrorKind::Unavailable`] if the disk is full.
    pub fn finish(mut self) -> Result<()> {
        while self.done < self.count {
            self.skip()?;
        }
        let at = |err: Error| err.at(self.path.display());
        if self.first.is_none() {
            return Err(at(Error::new(
                ErrorKind::InvalidInput,
                "no raster to write",
            )));
        }
        let file = self.out.into_inner();
        let file = file.map_err(|err| at(io_error(err.into_error())))?;
        let kept = file.persist(&self.path);
        kept.map_err(|err| at(io_error(err.error)))?;
        Ok(())
    }

    /// Writes what stands before the first raster, and it.
    fn begin(&mut self, raster: &Raster) -> Result<()> {
        let (dtype, shape) = (raster.pixels.dtype(), raster.pixels.shape());
        let [bands, height, width] = shape;
        let filler = with_type!(dtype, T => {
            let nodata = raster.nodata.filter(|&nodata| dtype.holds(nodata)).unwrap_or(0.0);
            let pixels = ndarray::Array3::from_elem((bands, height, width), T::of_number(nodata));
            let pixels: Pixels = T::wrap(pixels);
            pixels.to_le_bytes()
        });
        self.write(&npy::header(dtype, &[self.count, bands, height, width]))?;
        for _ in 0..self.done {
            self.write(&filler)?;
        }
        self.first = Some(First {
            dtype,
            shape,
            filler,
        });
        self.done += 1;
        self.write(&raster.pixels.to_le_bytes())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let written = self.out.write_all(bytes);
        written.map_err(|err| io_error(err).at(self.path.display()))
    }

    /// Returns where the file will be.
    pub fn path(&self) -> &Path {
        &self.path
    }
}
