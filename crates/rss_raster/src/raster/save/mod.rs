//! Writes a raster to a file: GeoTIFF, numpy array, raw samples, or a PNG for viewing.
//!
//! A file is written under a temporary name and renamed when it is complete, so that readers never see a part of it.
//! Tiling, overviews and scaling are the business of `rss_core`'s writer.

mod npy;
mod npy_stack;
mod png;
mod tiff;

use std::{
    io::{self, BufWriter, Cursor, Write},
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
    /// GeoTIFF: strips, DEFLATE, with CRS (by EPSG code), geotransform and nodata. Extension `.tif`.
    GeoTiff,
    /// A numpy array of shape (band, y, x). Extension `.npy`.
    Npy,
    /// Little-endian samples, band then row then column. Extension `.bin`.
    Bin,
    /// An image stretched from the 2nd to the 98th percentile, with nodata transparent: the first three bands as
    /// red, green and blue, or the first band as grey. Extension `.png`.
    Png,
}

impl Format {
    /// Returns the format of a file's extension.
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
    /// [`ErrorKind::InvalidInput`] naming the supported extensions.
    pub fn of_path(path: &Path) -> Result<Self> {
        let ending = path.extension().and_then(|ending| ending.to_str());
        match ending.map(str::to_ascii_lowercase).as_deref() {
            Some("tif" | "tiff") => Ok(Self::GeoTiff),
            Some("npy") => Ok(Self::Npy),
            Some("bin") => Ok(Self::Bin),
            Some("png") => Ok(Self::Png),
            _ => Err(Error::new(
                ErrorKind::InvalidInput,
                "the extension of an output file must be one of .tif, .npy, .bin, .png",
            )
            .at(path.display())),
        }
    }
}

impl Raster {
    /// Writes a file in the format of its extension. An existing file is replaced when the new one is complete.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] for an unknown extension or a missing folder; [`ErrorKind::Denied`] if the folder is
    /// not writable; [`ErrorKind::Unavailable`] if the disk is full. No temporary file remains.
    pub fn save(&self, path: &Path) -> Result<()> {
        match Format::of_path(path)? {
            Format::GeoTiff => whole(path, |out| tiff::write(self, out)),
            format => whole(path, |out| self.write_as(out, format)),
        }
    }

    /// Writes a PNG with a given stretch; see [`Format::Png`]. Returns the values of black and white for each band of
    /// the image.
    ///
    /// # Errors
    ///
    /// Those of [`Raster::save`]; also [`ErrorKind::InvalidInput`] if the stretch has no width.
    pub fn save_png(&self, path: &Path, stretch: Stretch) -> Result<Vec<[f64; 2]>> {
        whole(path, |out| png::write(self, stretch, out))
    }

    /// Writes this raster to `out` in a format. A GeoTIFF is held in memory until it is whole: its header, which comes
    /// first, states where all strips are. [`Raster::save`] holds one strip.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`] or [`ErrorKind::Denied`] from the error of `out`; [`ErrorKind::Unsupported`] for a
    /// GeoTIFF past 4 GiB.
    pub fn write_as(&self, out: &mut impl Write, format: Format) -> Result<()> {
        match format {
            Format::GeoTiff => {
                let mut file = Cursor::new(Vec::new());
                tiff::write(self, &mut file)?;
                out.write_all(file.get_ref()).map_err(io_error)
            }
            Format::Npy => npy::write(self, out),
            Format::Bin => self.pixels.write_le(out).map_err(io_error),
            Format::Png => png::write(self, Stretch::default(), out).map(|_| ()),
        }
    }
}

/// Writes a temporary file and renames it to `path` when it is complete.
fn whole<T>(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<&mut std::fs::File>) -> Result<T>,
) -> Result<T> {
    let at = |err: io::Error| io_error(err).at(path.display());
    let mut file = temporary(path)?;
    let mut out = BufWriter::new(file.as_file_mut());
    let written = write(&mut out).map_err(|err| err.at(path.display()))?;
    // A drop would flush too, but ignore the error of the last write.
    out.flush().map_err(at)?;
    drop(out);
    publish(file, path).map_err(at)?;
    Ok(written)
}

/// Gives a complete temporary file its name, so that a power cut leaves it whole, or what was there before: its bytes
/// are synced, then it is renamed, then its folder is synced.
///
/// # Errors
///
/// Errors of the file system; the temporary file is removed.
pub fn publish(file: NamedTempFile, path: &Path) -> io::Result<()> {
    file.as_file().sync_data()?;
    file.persist(path).map_err(|err| err.error)?;
    if let Some(folder) = path.parent() {
        sync_folder(folder);
    }
    Ok(())
}

/// Makes the names in a folder survive a power cut. Not every system can sync a folder: errors are ignored.
pub fn sync_folder(folder: &Path) {
    let folder = match folder.as_os_str().is_empty() {
        true => Path::new("."),
        false => folder,
    };
    if let Ok(folder) = std::fs::File::open(folder) {
        let _ = folder.sync_all();
    }
}

/// Creates a temporary file in the folder of `path`: a rename is atomic only within one file system.
///
/// # Errors
///
/// As [`io_error`]: the folder is missing, or cannot be written.
pub fn temporary(path: &Path) -> Result<NamedTempFile> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let file = ordinary_file().prefix(".rss-").tempfile_in(folder);
    file.map_err(|err| io_error(err).at(path.display()))
}

/// Returns a builder of temporary files with the permissions of ordinary ones; by default they are 0600, and the
/// rename would keep that.
pub fn ordinary_file<'prefix, 'suffix>() -> tempfile::Builder<'prefix, 'suffix> {
    let mut builder = tempfile::Builder::new();
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    builder
}

/// Maps an IO error of a write.
pub fn io_error(err: io::Error) -> Error {
    let (kind, message) = match err.kind() {
        io::ErrorKind::NotFound => (ErrorKind::InvalidInput, "the folder does not exist"),
        io::ErrorKind::NotADirectory => (ErrorKind::InvalidInput, "not a folder"),
        io::ErrorKind::IsADirectory => (ErrorKind::InvalidInput, "a folder has this name"),
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
