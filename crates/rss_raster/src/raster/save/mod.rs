//! A raster as a file: GeoTIFF, numpy array, plain samples, or a picture to look at.
//!
//! A file appears whole under its name or not at all. Grids, scales and pyramids of a product to
//! publish are not the business here.

mod npy;
mod npy_stack;
mod png;
mod tiff;

use std::{
    io::{self, BufWriter, Write},
    path::Path,
};

use tempfile::NamedTempFile;

pub use self::{npy_stack::NpyStack, png::Stretch};
use super::Raster;
use crate::error::{Error, ErrorKind, Result};

/// How a raster is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// GeoTIFF: strips, DEFLATE, with CRS (by EPSG code), transform and nodata. Ending `.tif`.
    GeoTiff,
    /// A numpy array of shape (band, y, x). Ending `.npy`.
    Npy,
    /// Little-endian samples, band then row then column. Ending `.bin`.
    Bin,
    /// A picture stretched from the 2nd to the 98th percentile; nodata is transparent: the first
    /// three bands as red, green and blue, or the first band as grey. Ending `.png`.
    Png,
}

impl Format {
    /// Returns the format that a file's ending names.
    ///
    /// ```
    /// use rss_raster::Format;
    ///
    /// assert_eq!(Format::of_path("ndvi.tif".as_ref())?, Format::GeoTiff);
    /// # Ok::<_, rss_raster::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] naming the endings there are.
    pub fn of_path(path: &Path) -> Result<Self> {
        let ending = path.extension().and_then(|ending| ending.to_str());
        match ending.map(str::to_ascii_lowercase).as_deref() {
            Some("tif" | "tiff") => Ok(Self::GeoTiff),
            Some("npy") => Ok(Self::Npy),
            Some("bin") => Ok(Self::Bin),
            Some("png") => Ok(Self::Png),
            _ => Err(Error::new(
                ErrorKind::InvalidInput,
                "the ending of an output file is one of .tif, .npy, .bin, .png",
            )
            .at(path.display())),
        }
    }
}

impl Raster {
    /// Writes a file in the format its ending names. An existing file is replaced when the new one
    /// is whole.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] for an unknown ending or a folder that is not there;
    /// [`ErrorKind::Denied`] if the folder cannot be written; [`ErrorKind::Unavailable`] if the
    /// disk is full. Nothing is left behind.
    pub fn save(&self, path: &Path) -> Result<()> {
        let format = Format::of_path(path)?;
        whole(path, |out| self.write_as(out, format))
    }

    /// Writes a picture with a stretch of your own; see [`Format::Png`]. Returns what is black and white in each
    /// band that shows.
    ///
    /// # Errors
    ///
    /// As [`Raster::save`]; [`ErrorKind::InvalidInput`] if the stretch has no width.
    pub fn save_png(&self, path: &Path, stretch: Stretch) -> Result<Vec<[f64; 2]>> {
        whole(path, |out| png::write(self, stretch, out))
    }

    /// Writes this raster to `out` in a format.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`] or [`ErrorKind::Denied`] as the writer says;
    /// [`ErrorKind::Unsupported`] for a GeoTIFF past 4 GiB.
    pub fn write_as(&self, out: &mut impl Write, format: Format) -> Result<()> {
        match format {
            Format::GeoTiff => tiff::write(self, out),
            Format::Npy => npy::write(self, out),
            Format::Bin => out.write_all(&self.pixels.to_le_bytes()).map_err(io_error),
            Format::Png => png::write(self, Stretch::default(), out).map(|_| ()),
        }
    }
}

/// Writes a file that has its name when it is whole.
fn whole<T>(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<&mut std::fs::File>) -> Result<T>,
) -> Result<T> {
    let at = |err: io::Error| io_error(err).at(path.display());
    let mut file = temporary(path)?;
    let mut out = BufWriter::new(file.as_file_mut());
    let written = write(&mut out).map_err(|err| err.at(path.display()))?;
    out.flush().map_err(at)?;
    drop(out);
    file.persist(path).map_err(|err| at(err.error))?;
    Ok(written)
}

/// Makes a file beside `path` that may take its name.
pub fn temporary(path: &Path) -> Result<NamedTempFile> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let made = ordinary_file().prefix(".rss-").tempfile_in(folder);
    made.map_err(|err| io_error(err).at(path.display()))
}

/// Makes temporary files that become ordinary ones: not their owner's alone, as temporary files are.
pub fn ordinary_file<'prefix, 'suffix>() -> tempfile::Builder<'prefix, 'suffix> {
    let mut builder = tempfile::Builder::new();
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    builder
}

/// Maps what went wrong while writing.
pub fn io_error(err: io::Error) -> Error {
    let (kind, message) = match err.kind() {
        io::ErrorKind::NotFound => (ErrorKind::InvalidInput, "the folder does not exist"),
        io::ErrorKind::NotADirectory => (ErrorKind::InvalidInput, "not a folder"),
        io::ErrorKind::IsADirectory => (ErrorKind::InvalidInput, "a folder is in the way"),
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            (ErrorKind::Denied, "no permission to write here")
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            (ErrorKind::Unavailable, "no space left on the disk")
        }
        _ => (ErrorKind::Unavailable, "cannot be written"),
    };
    Error::new(kind, message).with_source(err)
}
