//! Rasters of one shape, stacked into one numpy file.

use std::{
    io::{BufWriter, Write},
    path::{Path, PathBuf},
};

use tempfile::NamedTempFile;

use super::{Format, io_error, npy, publish, temporary};
use crate::{
    error::{Error, ErrorKind, Result},
    raster::{DataType, Pixels, Raster, Sample, Sealed as _, with_type},
};

/// Writes rasters of one shape and dtype as one numpy array, (raster, band, y, x), with at most one of them in memory.
/// The file is renamed to its path when it is complete.
#[derive(Debug)]
pub struct NpyStack {
    path: PathBuf,
    count: usize,
    out: BufWriter<NamedTempFile>,
    first: Option<First>,
    /// Rasters that were added or skipped.
    done: usize,
}

/// The properties that all rasters share, from the first one.
#[derive(Debug)]
struct First {
    dtype: DataType,
    shape: [usize; 3],
    /// The bytes written for a missing raster: nodata, or zeros.
    filler: Vec<u8>,
}

impl NpyStack {
    /// Starts a file for `count` rasters. Its extension is `.npy`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] for another extension or a missing folder; [`ErrorKind::Denied`] if the folder is
    /// not writable.
    pub fn create(path: impl Into<PathBuf>, count: usize) -> Result<Self> {
        let path = path.into();
        if Format::of_path(&path).ok() != Some(Format::Npy) {
            let message = "the extension of a file of many rasters must be .npy";
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
    /// [`ErrorKind::InvalidInput`] for a raster of another shape or dtype than the first: it is filled as
    /// [`NpyStack::skip`] does. [`ErrorKind::Unavailable`] if the disk is full.
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
        raster
            .pixels
            .write_le(&mut self.out)
            .map_err(|err| io_error(err).at(self.path.display()))
    }

    /// Skips the next raster: it is filled with the nodata value of the first one, or zero.
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

    /// Completes the file and renames it to its path. Rasters neither added nor skipped are filled.
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
        publish(file, &self.path).map_err(|err| at(io_error(err)))
    }

    /// Writes the header, fillers for rasters skipped so far, and the first raster.
    fn begin(&mut self, raster: &Raster) -> Result<()> {
        let (dtype, shape) = (raster.pixels.dtype(), raster.pixels.shape());
        let [bands, height, width] = shape;
        let filler = with_type!(dtype, T => {
            let nodata = raster.nodata.and_then(T::exact).unwrap_or(T::of_number(0.0));
            let pixels = ndarray::Array3::from_elem((bands, height, width), nodata);
            let pixels: Pixels = T::wrap(pixels);
            pixels.to_le_bytes()
        });
        // The header needs dtype and shape, so it waits for the first raster; those skipped before it are written here.
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
        raster
            .pixels
            .write_le(&mut self.out)
            .map_err(|err| io_error(err).at(self.path.display()))
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let written = self.out.write_all(bytes);
        written.map_err(|err| io_error(err).at(self.path.display()))
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}
