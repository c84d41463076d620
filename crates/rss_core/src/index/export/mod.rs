//! Exporting an index as Zarr references, or as a virtual raster or tile index of GDAL. No pixel is read or copied: an export refers to
//! byte ranges of the files.
//!
//! A file that a format cannot represent exactly is left out, with the reason: readers of an export never get other
//! pixels than those of the file. Signatures and tokens are removed from addresses. Writing the export is the only IO.

mod address;
mod cube;
mod encoding;
mod gti;
mod mosaic;
mod records;
mod references;
mod vrt;
mod zarr;

use std::{
    fmt,
    fs::{self, File},
    io::{self, BufWriter, Write},
    path::Path,
    str::FromStr,
};

use self::{records::Records, references::Document};
use super::{
    Index, Indexed, Select,
    disk::{Stop, folder_of, on_disk},
    file::{keep, temporary},
};
use crate::{
    error::{Error, ErrorKind, Result},
    location::Location,
    raster::sync_folder,
    store::of_io,
};

/// The format of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ExportFormat {
    /// [Kerchunk references](https://fsspec.github.io/kerchunk/spec.html) to Zarr v2: a group
    /// `<item>/<asset>/<level>` for each level of each file.
    Kerchunk,
    /// The same with a time axis: a group `<asset>/<grid>/<level>` for the files of an asset that share
    /// grid, type and compression; grids are numbered from 0 in the order of the index.
    KerchunkCube,
    /// [`ExportFormat::Kerchunk`] as a folder of Parquet files, of which a reader reads what it needs: one file and more for
    /// each level of each file of the index.
    KerchunkParquet,
    /// [`ExportFormat::KerchunkCube`] as a folder of Parquet files, each of 100,000 chunks at most.
    KerchunkCubeParquet,
    /// A [GDAL virtual raster](https://gdal.org/en/stable/drivers/raster/vrt.html): one mosaic for each
    /// asset and band, the newest item on top.
    Vrt,
    /// The same with a band for each item, asset and band, the oldest item first.
    VrtStack,
    /// A [GDAL raster tile index](https://gdal.org/en/stable/drivers/raster/gti.html): the mosaic of one asset, the newest item
    /// on top. For GDAL 3.9 and later.
    Gti,
}

impl ExportFormat {
    /// All formats.
    pub const ALL: [Self; 7] = [
        Self::Kerchunk,
        Self::KerchunkCube,
        Self::KerchunkParquet,
        Self::KerchunkCubeParquet,
        Self::Vrt,
        Self::VrtStack,
        Self::Gti,
    ];

    /// Returns the name that the command line uses.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kerchunk => "kerchunk",
            Self::KerchunkCube => "kerchunk-cube",
            Self::KerchunkParquet => "kerchunk-parquet",
            Self::KerchunkCubeParquet => "kerchunk-cube-parquet",
            Self::Vrt => "vrt",
            Self::VrtStack => "vrt-stack",
            Self::Gti => "gti",
        }
    }
}

impl fmt::Display for ExportFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for ExportFormat {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL
            .into_iter()
            .find(|format| format.name() == text)
            .ok_or_else(|| {
                let names = Self::ALL.map(Self::name).join(", ");
                let message = format!("format `{}` is not one of {names}", text.escape_debug());
                Error::new(ErrorKind::InvalidInput, message)
            })
    }
}

/// The report of an export.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Exported {
    /// Files that were exported.
    pub written: usize,
    /// Files and levels that were not, in the order of the index.
    pub left_out: Vec<Omitted>,
}

/// A file, or one level of a file, that is not in an export.
#[derive(Debug)]
#[non_exhaustive]
pub struct Omitted {
    /// The item's id.
    pub item: String,
    /// The asset's key.
    pub asset: String,
    /// The level; none if it is the complete file.
    pub level: Option<usize>,
    /// The location of the file.
    pub location: Location,
    /// The reason.
    pub error: Error,
}

impl Exported {
    fn leave_out(&mut self, file: &Indexed, level: Option<usize>, error: Error) {
        self.left_out.push(Omitted {
            item: file.item.clone(),
            asset: file.asset.clone(),
            level,
            location: file.entry.location.clone(),
            error: error.at(&file.entry.location),
        });
    }
}

/// Writes files of an index in a format; `output` is replaced completely or not at all. A folder, which formats of Parquet
/// write, must not be there before, or be empty.
///
/// References of [`ExportFormat::Kerchunk`] and [`ExportFormat::KerchunkParquet`] are written as the files come; the other
/// formats hold all headers in memory.
///
/// ```
/// use rss_core::{DataType, Entry, Location, Size, index, reader::{Header, Image, Tiles, Version}};
/// # let item: stac::Item = serde_json::from_value(serde_json::json!({
/// #     "type": "Feature", "stac_version": "1.1.0", "id": "a", "geometry": null, "links": [],
/// #     "properties": {"datetime": "2021-01-01T00:00:00Z"},
/// #     "assets": {"red": {"href": "s3://bucket/a/red.tif"}},
/// # }))?;
/// # let side = Size { width: 512, height: 512 };
/// # let image = Image::new(side, side, 16, 1, Tiles::new(vec![1024], vec![524_288]));
/// # let location = Location::parse("s3://bucket/a/red.tif")?;
/// # let entry = Entry::new(location, Version::of_size(600_000), Header::new(DataType::U16, vec![image]));
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("index.parquet");
/// # let mut writer = index::Writer::create(&path, [&item], ["red"])?;
/// # writer.push(&item, &[("red", &entry)])?;
/// # writer.finish()?;
///
/// let index = index::Index::open(&path)?;
/// let files = index.entries(&index::Select::all())?;
/// let out = dir.path().join("references.json");
/// let exported = index::export(files, index::ExportFormat::Kerchunk, &out)?;
/// assert_eq!((exported.written, exported.left_out.len()), (1, 0));
/// let text = std::fs::read_to_string(&out)?;
/// assert!(text.contains(r#""a/red/0/red/0.0":["s3://bucket/a/red.tif",1024,524288]"#));
/// # Ok::<_, anyhow::Error>(())
/// ```
///
/// # Errors
///
/// [`ErrorKind::NotFound`] if there is no file; [`ErrorKind::Unsupported`] if none can be written, with
/// the first reason; [`ErrorKind::InvalidInput`] for files of several assets in a format of one, and for an output that is
/// there and cannot be replaced; those of `files`; errors of the file system.
pub fn export(
    files: impl IntoIterator<Item = Result<Indexed>>,
    format: ExportFormat,
    output: impl AsRef<Path>,
) -> Result<Exported> {
    write(files, format, output.as_ref(), &Stop::default())
}

/// Writes the selected files of an index, as [`export`] does, on a blocking thread. If
/// the future is dropped, no file is left.
///
/// # Errors
///
/// As [`Index::entries`] and [`export`].
pub async fn export_index(
    index: Index,
    select: Select,
    format: ExportFormat,
    output: impl AsRef<Path>,
) -> Result<Exported> {
    let output = output.as_ref().to_owned();
    on_disk(move |stop| write(index.entries(&select)?, format, &output, stop)).await
}

fn write(
    files: impl IntoIterator<Item = Result<Indexed>>,
    format: ExportFormat,
    output: &Path,
    stop: &Stop,
) -> Result<Exported> {
    let files = files.into_iter().map(|file| {
        stop.check()?;
        file
    });
    let written = match format {
        ExportFormat::KerchunkParquet => {
            write_folder(output, stop, |refs| zarr::write(files, refs))
        }
        ExportFormat::KerchunkCubeParquet => {
            write_folder(output, stop, |refs| cube::write(files, refs))
        }
        ExportFormat::Kerchunk => write_file(output, stop, |out| {
            let mut refs = Document::new(out)?;
            let exported = zarr::write(files, &mut refs)?;
            refs.finish()?;
            Ok(exported)
        }),
        ExportFormat::KerchunkCube => write_file(output, stop, |out| {
            let mut refs = Document::new(out)?;
            let exported = cube::write(files, &mut refs)?;
            refs.finish()?;
            Ok(exported)
        }),
        ExportFormat::Vrt => write_file(output, stop, |out| {
            vrt::write(files, mosaic::Bands::Mosaic, out)
        }),
        ExportFormat::VrtStack => write_file(output, stop, |out| {
            vrt::write(files, mosaic::Bands::Stack, out)
        }),
        ExportFormat::Gti => write_file(output, stop, |out| gti::write(files, out)),
    };
    written.map_err(|err| match err {
        Failed::Write(err) => of_io(&err).at(output.display()),
        Failed::Read(err) => err,
    })
}

/// Writes a file beside the output, and renames it to the output when it is complete.
fn write_file(
    output: &Path,
    stop: &Stop,
    write: impl FnOnce(&mut Out<'_>) -> Result<Exported, Failed>,
) -> Result<Exported, Failed> {
    let temp = temporary(output)?;
    let file = Stoppable {
        file: temp.as_file(),
        stop,
    };
    let mut out = BufWriter::with_capacity(1 << 20, file);
    let exported = write(&mut out)?;
    out.flush()?;
    drop(out);
    check(&exported)?;
    stop.check()?;
    keep(temp, output)?;
    Ok(exported)
}

/// Writes a folder beside the output, and renames it to the output when it is complete.
fn write_folder(
    output: &Path,
    stop: &Stop,
    write: impl FnOnce(&mut Records<'_>) -> Result<Exported, Failed>,
) -> Result<Exported, Failed> {
    let is_free = match fs::read_dir(output) {
        Ok(mut entries) => entries.next().is_none(),
        Err(err) => err.kind() == io::ErrorKind::NotFound,
    };
    let taken = || {
        let message = "is there already, expected no file and no folder, or an empty one";
        Error::new(ErrorKind::InvalidInput, message).at(output.display())
    };
    if !is_free {
        return Err(taken().into());
    }
    let mut builder = tempfile::Builder::new();
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        // What the umask leaves of it.
        builder.permissions(fs::Permissions::from_mode(0o777));
    }
    let beside = folder_of(output);
    let name = output.file_name().unwrap_or_default().to_string_lossy();
    let temp = builder
        .prefix(&format!(".{name}."))
        .suffix(".tmp")
        .tempdir_in(beside)?;
    let stopped = || stop.check().map_err(io::Error::other);
    let mut refs = Records::new(temp.path(), &stopped)?;
    let exported = write(&mut refs)?;
    refs.finish()?;
    check(&exported)?;
    stop.check()?;
    sync_all(temp.path())?;
    fs::rename(temp.path(), output).map_err(|err| match err.kind() {
        // It came meanwhile.
        io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::NotADirectory => Failed::from(taken()),
        _ => err.into(),
    })?;
    let _ = temp.keep();
    sync_folder(beside);
    Ok(exported)
}

/// Checks that an export holds something.
fn check(exported: &Exported) -> Result<()> {
    if exported.written > 0 {
        return Ok(());
    }
    Err(match exported.left_out.first() {
        Some(first) => unsupported(format!(
            "none of {} files can be exported: {}",
            exported.left_out.len(),
            first.error.message()
        )),
        None => Error::new(ErrorKind::NotFound, "no file to export"),
    })
}

/// Has all files of a folder on the disk: there may be very many of them.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn sync_all(folder: &Path) -> io::Result<()> {
    Ok(rustix::fs::syncfs(File::open(folder)?)?)
}

/// Has all files of a folder on the disk.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn sync_all(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            sync_all(&entry.path())?;
        } else {
            fs::OpenOptions::new()
                .write(true)
                .open(entry.path())?
                .sync_all()?;
        }
    }
    sync_folder(folder);
    Ok(())
}

/// The error of an export: of reading the index, or of writing the output.
#[derive(Debug)]
enum Failed {
    Read(Error),
    Write(std::io::Error),
}

impl From<Error> for Failed {
    fn from(err: Error) -> Self {
        Self::Read(err)
    }
}

impl From<std::io::Error> for Failed {
    fn from(err: std::io::Error) -> Self {
        Self::Write(err)
    }
}

/// The buffered output of all formats.
type Out<'a> = BufWriter<Stoppable<'a>>;

/// A file whose writes fail once the export is cancelled.
struct Stoppable<'a> {
    file: &'a File,
    stop: &'a Stop,
}

impl Write for Stoppable<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stop.check().map_err(io::Error::other)?;
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

fn unsupported(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Unsupported, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reader::{Entry, Header, Image, Tiles, Version};

    fn file(number: usize) -> Indexed {
        let side = crate::geo::Size {
            width: 512,
            height: 512,
        };
        let image = Image::new(side, side, 16, 1, Tiles::new(vec![1024], vec![524_288]));
        let location = Location::parse(&format!("s3://bucket/{number}.tif")).unwrap();
        let header = Header::new(crate::raster::DataType::U16, vec![image]);
        Indexed {
            item: number.to_string(),
            collection: None,
            asset: "data".to_owned(),
            datetime: None,
            entry: Entry::new(location, Version::of_size(600_000), header),
        }
    }

    #[cfg(unix)]
    #[test]
    fn an_export_is_as_readable_as_any_file_and_replaces_nothing_else() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode();
        let (plain, out) = (folder.path().join("plain"), folder.path().join("out"));
        std::fs::write(&plain, "").unwrap();
        export([Ok(file(0))], ExportFormat::Kerchunk, &out).unwrap();
        assert_eq!(mode(&out), mode(&plain));
        for odd in [folder.path(), Path::new("/dev/null")] {
            let err = export([Ok(file(0))], ExportFormat::Kerchunk, odd).unwrap_err();
            assert_eq!(err.kind(), ErrorKind::InvalidInput, "{err}");
        }
    }

    #[test]
    fn an_export_that_is_stopped_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("out.json");
        // In the middle of reading, and when all is read and nothing is written yet.
        for (format, read) in [
            (ExportFormat::Kerchunk, 5),
            (ExportFormat::KerchunkCube, 5),
            (ExportFormat::KerchunkCube, 10),
            (ExportFormat::KerchunkParquet, 5),
            (ExportFormat::KerchunkParquet, 10),
            (ExportFormat::Gti, 5),
        ] {
            let stop = Stop::default();
            let mut numbers = 0..10;
            let files = std::iter::from_fn(|| {
                if numbers.start == read {
                    stop.set();
                }
                numbers.next().map(file).map(Ok)
            });
            let err = write(files, format, &out, &stop).unwrap_err();
            assert_eq!(err.kind(), ErrorKind::Unavailable, "{err}");
            assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        }
        write(
            (0..10).map(|n| Ok(file(n))),
            ExportFormat::Kerchunk,
            &out,
            &Stop::default(),
        )
        .unwrap();
        assert!(out.is_file());
    }

    #[test]
    fn a_folder_is_as_readable_as_any_and_replaces_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let (plain, out) = (folder.path().join("plain"), folder.path().join("out"));
        fs::create_dir(&plain).unwrap();
        let write = |out: &Path| export([Ok(file(0))], ExportFormat::KerchunkParquet, out);
        write(&out).unwrap();
        assert!(out.join("0/data/0/data/refs.0.parq").is_file());
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = |path: &Path| path.metadata().unwrap().permissions().mode();
            assert_eq!(mode(&out), mode(&plain));
        }
        // Empty: it may be taken.
        write(&plain).unwrap();
        fs::write(folder.path().join("file"), "mine").unwrap();
        for taken in ["out", "file"] {
            let err = write(&folder.path().join(taken)).unwrap_err();
            assert_eq!(err.kind(), ErrorKind::InvalidInput, "{err}");
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
    }
}
