//! The few calls of GDAL's C interface that have no safe form.

#![expect(unsafe_code, reason = "these functions are C functions")]

use std::{
    any::Any,
    ffi::{CStr, CString, c_char, c_int, c_void},
    panic::{AssertUnwindSafe, catch_unwind},
    ptr,
    sync::Once,
};

use gdal::{
    Dataset,
    raster::RasterBand,
    spatial_ref::{CoordTransform, SpatialRef},
};

use super::diagnostics::{self, Doing};
use crate::{
    error::{Error, ErrorKind, Result},
    geo::Window,
    store::Traffic,
};

fn text(text: &str) -> Result<CString> {
    CString::new(text)
        .map_err(|err| Error::new(ErrorKind::InvalidInput, "a text with a NUL").with_source(err))
}

/// Sets the options of paths below `prefix`, replacing those set before.
pub(super) fn set_path_options(prefix: &str, options: &[(String, String)]) -> Result<()> {
    let prefix = text(prefix)?;
    // SAFETY: GDAL copies the texts, which end with NUL.
    unsafe { gdal_sys::VSIClearPathSpecificOptions(prefix.as_ptr()) };
    for (name, value) in options {
        let (name, value) = (text(name)?, text(value)?);
        // SAFETY: as above.
        unsafe {
            gdal_sys::VSISetPathSpecificOption(prefix.as_ptr(), name.as_ptr(), value.as_ptr());
        }
    }
    Ok(())
}

/// Clears GDAL's cache of remote files below `prefix`.
pub(super) fn forget_remote(prefix: &str) -> Result<()> {
    let prefix = text(prefix)?;
    // SAFETY: the text ends with NUL and is not kept.
    unsafe { gdal_sys::VSICurlPartialClearCache(prefix.as_ptr()) };
    Ok(())
}

/// Clears GDAL's cache of all remote files.
pub(super) fn forget_all_remote() {
    // SAFETY: takes nothing; GDAL locks its own caches.
    unsafe { gdal_sys::VSICurlClearCache() };
}

/// Makes GDAL read again whether it should count its requests: it reads the option once, which may have
/// been before the options of our threads were set.
pub(super) fn reset_traffic_once() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: takes nothing; GDAL locks its own counters.
        unsafe { gdal_sys::VSINetworkStatsReset() };
    });
}

/// Returns GDAL's requests and bytes in this process, since the first of our threads started.
pub(super) fn traffic() -> Traffic {
    // SAFETY: the text is ours once it is returned, and is freed below by GDAL's own function.
    let json = unsafe { gdal_sys::VSINetworkStatsGetAsSerializedJSON(ptr::null_mut()) };
    if json.is_null() {
        return Traffic::default();
    }
    // SAFETY: GDAL returns a text that ends with NUL.
    let parsed =
        serde_json::from_slice::<serde_json::Value>(unsafe { CStr::from_ptr(json) }.to_bytes());
    // SAFETY: the text came from GDAL's allocator and is used no more.
    unsafe { gdal_sys::VSIFree(json.cast::<c_void>()) };
    let Ok(parsed) = parsed else {
        return Traffic::default();
    };
    let mut total = Traffic::default();
    for method in parsed
        .get("methods")
        .and_then(serde_json::Value::as_object)
        .into_iter()
        .flat_map(serde_json::Map::values)
    {
        let number = |name: &str| method.get(name).and_then(serde_json::Value::as_u64);
        total.requests += number("count").unwrap_or(0);
        total.bytes += number("downloaded_bytes").unwrap_or(0);
    }
    total
}

/// A file that is open for reading through GDAL's file systems.
pub(super) struct VsiFile(*mut gdal_sys::VSILFILE);

impl VsiFile {
    /// Opens a file; none if GDAL does not say why it cannot be opened.
    ///
    /// # Errors
    ///
    /// Those of the network.
    pub(super) fn open(path: &str) -> Result<Option<Self>> {
        let path = text(path)?;
        // SAFETY: both texts end with NUL and are not kept.
        let file = unsafe { gdal_sys::VSIFOpenL(path.as_ptr(), c"rb".as_ptr()) };
        if file.is_null() {
            return match diagnostics::failure(Doing::Open) {
                Some(err) => Err(err),
                None => Ok(None),
            };
        }
        Ok(Some(Self(file)))
    }

    /// Reads bytes from an offset on; none if the file ends before.
    pub(super) fn read<const N: usize>(&mut self, at: u64) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        self.fill(at, &mut bytes).then_some(bytes)
    }

    /// As [`read`](Self::read). The caller bounds `length`.
    pub(super) fn read_vec(&mut self, at: u64, length: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.fill(at, &mut bytes).then_some(bytes)
    }

    fn fill(&mut self, at: u64, bytes: &mut [u8]) -> bool {
        // SAFETY: the handle is open until `drop`; as many bytes are written as the buffer has; 0 is `SEEK_SET`.
        unsafe {
            gdal_sys::VSIFSeekL(self.0, at, 0) == 0
                && gdal_sys::VSIFReadL(bytes.as_mut_ptr().cast(), 1, bytes.len(), self.0)
                    == bytes.len()
        }
    }
}

impl Drop for VsiFile {
    fn drop(&mut self) {
        // SAFETY: the handle came from `VSIFOpenL` and is closed once.
        unsafe { gdal_sys::VSIFCloseL(self.0) };
    }
}

/// What GDAL decodes at once to read one pixel of a band.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    pub(super) width: u64,
    pub(super) height: u64,
    pub(super) bands: u64,
    pub(super) sample_bytes: u64,
}

impl Block {
    pub(super) fn bytes(&self) -> u64 {
        self.width
            .saturating_mul(self.height)
            .saturating_mul(self.bands)
            .saturating_mul(self.sample_bytes)
    }
}

/// Returns the block of a band: with all bands of its file, unless the file says that each has blocks of its own.
pub(super) fn block(band: &RasterBand<'_>) -> Block {
    let number = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
    let (code, _) = type_of(band);
    // SAFETY: takes any number.
    let sample_bytes = unsafe { gdal_sys::GDALGetDataTypeSizeBytes(code) };
    // SAFETY: the handle is good while `band` lives; a band has a dataset, or none (null).
    let dataset = unsafe { gdal_sys::GDALGetBandDataset(band.c_rasterband()) };
    let mut bands = 1;
    let (mut width, mut height) = band.block_size();
    if !dataset.is_null() {
        // SAFETY: the dataset lives as long as its band; the texts end with NUL. What comes back is null, or a text that
        // lives until the next call.
        let (count, is_apart, is_whole) = unsafe {
            let said = gdal_sys::GDALGetMetadataItem(
                dataset,
                c"INTERLEAVE".as_ptr(),
                c"IMAGE_STRUCTURE".as_ptr(),
            );
            let is_apart = !said.is_null() && CStr::from_ptr(said) == c"BAND";
            let driver = gdal_sys::GDALGetDatasetDriver(dataset);
            let name = match driver.is_null() {
                true => ptr::null(),
                false => gdal_sys::GDALGetDriverShortName(driver),
            };
            let is_whole = !name.is_null() && CStr::from_ptr(name) == c"WEBP";
            (gdal_sys::GDALGetRasterCount(dataset), is_apart, is_whole)
        };
        if !is_apart {
            bands = u64::try_from(count).unwrap_or(1).max(1);
        }
        // This driver decodes all of an image for any block of it.
        if is_whole {
            (width, height) = band.size();
        }
    }
    Block {
        width: number(width),
        height: number(height),
        bands,
        sample_bytes: u64::try_from(sample_bytes).unwrap_or(0),
    }
}

/// Returns the code of a band's GDAL data type and its name, such as `UInt16`.
pub(super) fn type_of(band: &RasterBand<'_>) -> (u32, String) {
    // SAFETY: the handle is good while `band` lives.
    let code = unsafe { gdal_sys::GDALGetRasterDataType(band.c_rasterband()) };
    // SAFETY: takes any number; returns a text that lives as long as the process, or null.
    let name = unsafe { gdal_sys::GDALGetDataTypeName(code) };
    let name = if name.is_null() {
        String::new()
    } else {
        // SAFETY: not null, ends with NUL.
        unsafe { CStr::from_ptr(name) }
            .to_string_lossy()
            .into_owned()
    };
    (code, name)
}

/// Returns GDAL's name of a band's colour interpretation.
pub(super) fn color_name(band: &RasterBand<'_>) -> String {
    // SAFETY: the handle is good while `band` lives.
    let code = unsafe { gdal_sys::GDALGetRasterColorInterpretation(band.c_rasterband()) };
    // SAFETY: takes any code that GDAL gave; returns a text of the process's life, or null.
    let name = unsafe { gdal_sys::GDALGetColorInterpretationName(code) };
    if name.is_null() {
        return String::new();
    }
    // SAFETY: not null, ends with NUL.
    unsafe { CStr::from_ptr(name) }
        .to_string_lossy()
        .into_owned()
}

/// Reduces a compound CRS, or one of three dimensions, to its horizontal part; it stays as it is where GDAL cannot.
pub(super) fn without_heights(reference: &mut SpatialRef) {
    // SAFETY: the handle is good while `reference` lives, and nobody else has it.
    unsafe {
        gdal_sys::OSRStripVertical(reference.to_c_hsrs());
        // A name of its own is kept where it is null.
        gdal_sys::OSRDemoteTo2D(reference.to_c_hsrs(), ptr::null());
    }
}

/// Returns a dataset's transform, if it has one.
pub(super) fn transform(dataset: &Dataset) -> Option<[f64; 6]> {
    let mut found = [0.0; 6];
    // SAFETY: the handle is good while `dataset` lives; six numbers are written.
    let result = unsafe { gdal_sys::GDALGetGeoTransform(dataset.c_dataset(), found.as_mut_ptr()) };
    (result == gdal_sys::CPLErr::CE_None).then_some(found)
}

/// Returns true if all of a window is stored in the file, or the driver does not report it.
pub(super) fn is_stored(band: &RasterBand<'_>, window: &Window) -> bool {
    let (empty, unknown) = (COVERAGE_EMPTY, COVERAGE_UNIMPLEMENTED);
    coverage(band, window).is_none_or(|status| status & empty == 0 || status & unknown != 0)
}

/// Returns true if nothing of a window is stored in the file.
pub(super) fn is_empty(band: &RasterBand<'_>, window: &Window) -> bool {
    coverage(band, window).is_some_and(|status| status == COVERAGE_EMPTY)
}

/// The flags of `GDALGetDataCoverageStatus`, which are macros in C.
const COVERAGE_UNIMPLEMENTED: c_int = 1;
const COVERAGE_EMPTY: c_int = 4;

fn coverage(band: &RasterBand<'_>, window: &Window) -> Option<c_int> {
    let number = |n: u32| c_int::try_from(n).ok();
    let (col, row) = (number(window.col)?, number(window.row)?);
    let (width, height) = (number(window.width)?, number(window.height)?);
    // SAFETY: the handle is good while `band` lives; GDAL looks at no pixel, and the percentage may
    // be left out.
    let status = unsafe {
        gdal_sys::GDALGetDataCoverageStatus(
            band.c_rasterband(),
            col,
            row,
            width,
            height,
            0,
            ptr::null_mut(),
        )
    };
    Some(status)
}

/// Reads a window of one band into `samples`, in samples of GDAL's type `code`.
pub(super) fn read<T>(
    band: &RasterBand<'_>,
    window: &Window,
    code: u32,
    samples: &mut [T],
) -> Result<()> {
    let wanted = (window.width as usize).saturating_mul(window.height as usize);
    // SAFETY: takes any number.
    let bytes = unsafe { gdal_sys::GDALGetDataTypeSizeBytes(code) };
    if samples.len() != wanted || usize::try_from(bytes) != Ok(size_of::<T>()) {
        return Err(Error::new(
            ErrorKind::InvalidInput,
            "a buffer of another size than its window",
        ));
    }
    let number = |n: u32| {
        c_int::try_from(n).map_err(|_| Error::new(ErrorKind::InvalidInput, "a window past 2^31"))
    };
    let (col, row) = (number(window.col)?, number(window.row)?);
    let (width, height) = (number(window.width)?, number(window.height)?);
    // SAFETY: the buffer holds exactly width x height samples of the size of `code`, as checked
    // above; spacings of 0 mean that they lie side by side.
    let result = unsafe {
        gdal_sys::GDALRasterIOEx(
            band.c_rasterband(),
            gdal_sys::GDALRWFlag::GF_Read,
            col,
            row,
            width,
            height,
            samples.as_mut_ptr().cast::<c_void>(),
            width,
            height,
            code,
            0,
            0,
            ptr::null_mut(),
        )
    };
    if result == gdal_sys::CPLErr::CE_None {
        Ok(())
    } else {
        Err(diagnostics::error(Doing::Read))
    }
}

/// Transforms a bounding box (xmin, ymin, xmax, ymax), with points along its edges: straight edges may
/// become curves, whose extremes are not at the corners.
pub(super) fn transform_bounds(by: &CoordTransform, bounds: [f64; 4]) -> Option<[f64; 4]> {
    let [left, bottom, right, top] = bounds;
    let mut out = [0.0_f64; 4];
    let [a, b, c, d] = &mut out;
    // SAFETY: the transform is good while `by` lives; four numbers are written.
    let done = unsafe {
        gdal_sys::OCTTransformBounds(by.to_c_hct(), left, bottom, right, top, a, b, c, d, 21)
    };
    (done != 0 && out.iter().all(|edge| edge.is_finite())).then_some(out)
}

/// Runs `gdal_translate` with its own arguments. `progress` gets the fraction done, 0 to 1, and cancels
/// the work by returning false.
pub(super) fn translate(
    from: &Dataset,
    to: &str,
    arguments: &[String],
    progress: &mut dyn FnMut(f64) -> bool,
) -> Result<()> {
    struct Call<'a> {
        progress: &'a mut dyn FnMut(f64) -> bool,
        panic: Option<Box<dyn Any + Send>>,
    }
    unsafe extern "C" fn tell(part: f64, _text: *const c_char, data: *mut c_void) -> c_int {
        // SAFETY: `data` is the `Call` below, which outlives the translation; GDAL calls from one
        // thread at a time.
        let call = unsafe { &mut *data.cast::<Call<'_>>() };
        // A panic must not unwind through C.
        match catch_unwind(AssertUnwindSafe(|| (call.progress)(part))) {
            Ok(go_on) => c_int::from(go_on),
            Err(panic) => {
                call.panic = Some(panic);
                0
            }
        }
    }

    let to = text(to)?;
    let arguments = arguments
        .iter()
        .map(|argument| text(argument))
        .collect::<Result<Vec<_>>>()?;
    let mut pointers: Vec<*mut c_char> = arguments
        .iter()
        .map(|argument| argument.as_ptr().cast_mut())
        .collect();
    pointers.push(ptr::null_mut());
    // SAFETY: a list of texts that ends with null; GDAL copies what it keeps.
    let options =
        unsafe { gdal_sys::GDALTranslateOptionsNew(pointers.as_mut_ptr(), ptr::null_mut()) };
    if options.is_null() {
        return Err(diagnostics::error(Doing::Write));
    }
    let mut call = Call {
        progress,
        panic: None,
    };
    let mut usage = 0;
    // SAFETY: `options` is freed once, after its last use; `call` outlives the translation; the
    // dataset that comes back is closed once, which writes the rest of the file.
    let made = unsafe {
        gdal_sys::GDALTranslateOptionsSetProgress(
            options,
            Some(tell),
            (&raw mut call).cast::<c_void>(),
        );
        let made = gdal_sys::GDALTranslate(to.as_ptr(), from.c_dataset(), options, &raw mut usage);
        if !made.is_null() {
            gdal_sys::GDALClose(made);
        }
        gdal_sys::GDALTranslateOptionsFree(options);
        !made.is_null()
    };
    if let Some(panic) = call.panic {
        std::panic::resume_unwind(panic);
    }
    // GDAL before 3.7 does not return the error of closing a dataset: the diagnostics have it.
    match diagnostics::failure(Doing::Write) {
        None if made => Ok(()),
        Some(err) => Err(err),
        None => Err(diagnostics::error(Doing::Write)),
    }
}
