//! Exporting an index as Zarr references or as a GDAL virtual raster. No pixel is read or copied: an export refers to
//! byte ranges of the files.
//!
//! A file that a format cannot represent exactly is left out, with the reason: readers of an export never get other
//! pixels than those of the file. Signatures and tokens are removed from addresses. Writing the export is the only IO.

mod address;
mod cube;
mod encoding;
mod references;
mod vrt;
mod zarr;

use std::{
    fmt,
    fs::File,
    io::{self, BufWriter, Write},
    path::Path,
    str::FromStr,
};

use super::{
    Index, Indexed, Select,
    disk::{Stop, on_disk},
    file::{keep, temporary},
};
use crate::{
    error::{Error, ErrorKind, Result},
    location::Location,
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
    /// A [GDAL virtual raster](https://gdal.org/en/stable/drivers/raster/vrt.html): one mosaic for each
    /// asset and band, the newest item on top.
    Vrt,
    /// The same with a band for each item, asset and band, the oldest item first.
    VrtStack,
}

impl ExportFormat {
    /// All formats.
    pub const ALL: [Self; 4] = [
        Self::Kerchunk,
        Self::KerchunkCube,
        Self::Vrt,
        Self::VrtStack,
    ];

    /// Returns the name that the command line uses.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kerchunk => "kerchunk",
            Self::KerchunkCube => "kerchunk-cube",
            Self::Vrt => "vrt",
            Self::VrtStack => "vrt-stack",
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

/// Writes files of an index in a format; `output` is replaced completely or not at all.
///
/// References of [`ExportFormat::Kerchunk`] are written as the files come; the other formats hold all headers
/// in memory.
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
/// the first reason; those of `files`; errors of the file system.
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
    let wrong = |err: std::io::Error| of_io(&err).at(output.display());
    let temp = temporary(output)?;
    let file = Stoppable {
        file: temp.as_file(),
        stop,
    };
    let mut out = BufWriter::with_capacity(1 << 20, file);
    let files = files.into_iter().map(|file| {
        stop.check()?;
        file
    });
    let exported = match format {
        ExportFormat::Kerchunk => zarr::write(files, &mut out),
        ExportFormat::KerchunkCube => cube::write(files, &mut out),
        ExportFormat::Vrt => vrt::write(files, vrt::Bands::Mosaic, &mut out),
        ExportFormat::VrtStack => vrt::write(files, vrt::Bands::Stack, &mut out),
    };
    let exported = exported.map_err(|err| match err {
        Failed::Write(err) => wrong(err),
        Failed::Read(err) => err,
    })?;
    out.flush().map_err(wrong)?;
    drop(out);
    if exported.written == 0 {
        let first = exported.left_out.first();
        return Err(match first.map(|one| one.error.message()) {
            Some(reason) => unsupported(format!(
                "none of {} files can be exported: {reason}",
                exported.left_out.len()
            )),
            None => Error::new(ErrorKind::NotFound, "no file to export"),
        });
    }
    stop.check()?;
    keep(temp, output)?;
    Ok(exported)
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
}
