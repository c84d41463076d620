//! Tiles of many files in one array.

use futures::StreamExt;
use ndarray::{Array4, Axis, s};

use super::{Options, Report, Request, RowOrder, gather};
use crate::{
    error::{Error, ErrorKind, Result},
    geo::GeoBox,
    location::Location,
    raster::{Number, Sample},
    session::Session,
};

/// Tiles of many files in one array.
#[derive(Debug)]
#[non_exhaustive]
pub struct Stack<T> {
    /// Samples in (request, band, y, x) order.
    pub samples: Array4<T>,
    /// The grid of each request's pixels; none if it failed.
    pub grids: Vec<Option<GeoBox>>,
    /// The nodata value of the files that were read, if all of them state the same.
    pub nodata: Option<Number>,
    /// Requests without pixels, with the reason. Their samples are the nodata value, or zero if there is none.
    pub failed: Vec<(usize, Location, Error)>,
    /// The report of the gather.
    pub report: Report,
}

/// Gathers tiles of one shape and dtype into one array, in the order of the requests.
///
/// The first request with a tile, in the order of the requests, sets the shape: a tile of another shape is a failure
/// in [`Stack::failed`], as is one of another dtype. Memory is that of
/// the array, and [`Options::buffer_bytes`]. [`Options::order`] is ignored.
///
/// ```
/// use rss_core::{Location, Session, gather};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> rss_core::Result<()> {
/// let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/tiff/files/");
/// let names = ["gdal--byte_LZMA-edd011ed.tif", "missing.tif", "gdal--byte_zstd-70892132.tif"];
/// let mut requests = Vec::new();
/// for name in names {
///     requests.push(gather::Request::new(Location::parse(&format!("{folder}{name}"))?));
/// }
/// let session = Session::builder().build()?;
/// let stack = gather::stack::<u8>(&session, requests, gather::Options::new()).await?;
/// assert_eq!(stack.samples.dim(), (3, 1, 20, 20));
/// assert_eq!(stack.failed[0].0, 1);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// As [`gather`]; the first file's error if no file has a tile; [`ErrorKind::InvalidInput`] if there is
/// no request or the array does not fit in memory.
pub async fn stack<T: Sample>(
    session: &Session,
    requests: Vec<Request>,
    options: Options,
) -> Result<Stack<T>> {
    let count = requests.len();
    let mut rows = gather(session, requests, options.with_order(RowOrder::Requests))?;
    let mut samples: Option<Array4<T>> = None;
    let mut grids = vec![None; count];
    let mut nodata: Option<Option<Number>> = None;
    let mut failed = Vec::new();
    while let Some(row) = rows.next().await {
        let tile = match row.tile {
            Ok(tile) => tile,
            Err(err) => {
                failed.push((row.number, row.location, err));
                continue;
            }
        };
        let wrong =
            |message: String| Error::new(ErrorKind::InvalidInput, message).at(&row.location);
        let Some(view) = tile.pixels.view::<T>() else {
            let message = format!(
                "its samples are {}, expected {}",
                tile.pixels.dtype().name(),
                T::DTYPE.name()
            );
            failed.push((row.number, row.location.clone(), wrong(message)));
            continue;
        };
        let (bands, height, width) = view.dim();
        let samples = match &mut samples {
            Some(samples) => samples,
            none => none.insert(empty(count, [bands, height, width])?),
        };
        let shape = samples.dim();
        if (shape.1, shape.2, shape.3) != (bands, height, width) {
            let message = format!(
                "its tile is {bands} x {height} x {width}, expected {} x {} x {}",
                shape.1, shape.2, shape.3
            );
            failed.push((row.number, row.location.clone(), wrong(message)));
            continue;
        }
        samples.slice_mut(s![row.number, .., .., ..]).assign(&view);
        nodata = match nodata {
            None => Some(tile.nodata),
            Some(known) if known == tile.nodata => Some(known),
            Some(_) => Some(None),
        };
        if let Some(grid) = grids.get_mut(row.number) {
            *grid = Some(tile.geobox);
        }
    }
    let Some(mut samples) = samples else {
        let first = failed.into_iter().next().map(|(.., err)| err);
        return Err(
            first.unwrap_or_else(|| Error::new(ErrorKind::InvalidInput, "no requests to gather"))
        );
    };
    let nodata = nodata.flatten();
    // Filled last: the common nodata value is known only when all files were read.
    if let Some(value) = nodata.and_then(T::exact) {
        for (number, ..) in &failed {
            samples.index_axis_mut(Axis(0), *number).fill(value);
        }
    }
    Ok(Stack {
        samples,
        grids,
        nodata,
        failed,
        report: rows.report(),
    })
}

fn empty<T: Sample>(count: usize, [bands, height, width]: [usize; 3]) -> Result<Array4<T>> {
    let shape = [count, bands, height, width];
    let all = || {
        let length = shape.into_iter().try_fold(1_usize, usize::checked_mul)?;
        // Reserved on trial: a failed allocation of the array itself would abort the process.
        Vec::<T>::new().try_reserve_exact(length).ok()?;
        let shape = (count, bands, height, width);
        Some(Array4::from_elem(shape, T::of_number(0.0)))
    };
    all().ok_or_else(|| {
        Error::new(
            ErrorKind::InvalidInput,
            format!("{count} x {bands} x {height} x {width} samples do not fit in memory"),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_array_that_no_memory_holds_is_an_error() {
        let err = empty::<f64>(1 << 30, [1, 1 << 12, 1 << 12]).unwrap_err();
        assert_eq!(err.kind(), ErrorKind::InvalidInput);
        assert_eq!(
            err.message(),
            "1073741824 x 1 x 4096 x 4096 samples do not fit in memory"
        );
    }
}
