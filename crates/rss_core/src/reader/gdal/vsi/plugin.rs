//! The callbacks of GDAL for paths below the prefix.
//!
//! Each turns an error into one of GDAL's, and none lets a panic unwind into C.

#![expect(
    unsafe_code,
    reason = "a file system of GDAL is a table of C functions"
)]

use std::{
    ffi::{CStr, c_char, c_int, c_void},
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind},
    ptr, slice,
    sync::{Arc, Once},
};

use super::{PREFIX, file::VsiObject};
use crate::{
    error::{Error, ErrorKind, Result},
    reader::gdal::diagnostics,
    session::Session,
};

/// Adds the file system to GDAL, once. Older versions of GDAL do not lock their list of file systems, so
/// this runs before the first of our threads calls GDAL.
pub(in crate::reader::gdal) fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: GDAL allocates the table in its own version's size, filled with null, and copies
        // it; the prefix, whose pointer it keeps, and the functions live as long as the process.
        unsafe {
            let table = gdal_sys::VSIAllocFilesystemPluginCallbacksStruct();
            let Some(callbacks) = table.as_mut() else {
                return;
            };
            callbacks.open = Some(open);
            #[cfg(unix)]
            {
                callbacks.stat = Some(stat);
            }
            callbacks.sibling_files = Some(sibling_files);
            callbacks.seek = Some(seek);
            callbacks.tell = Some(tell);
            callbacks.read = Some(read);
            callbacks.read_multi_range = Some(read_multi_range);
            callbacks.eof = Some(eof);
            callbacks.close = Some(close);
            gdal_sys::VSIInstallPluginHandler(PREFIX.as_ptr(), table);
            gdal_sys::VSIFreeFilesystemPluginCallbacksStruct(table);
        }
    });
}

/// An open file. It keeps its session alive, whose runtime it reads on.
struct Handle {
    file: Arc<VsiObject>,
    session: Session,
    at: u64,
    is_at_end: bool,
}

/// Runs a callback's work; after an error or a panic, which is raised in GDAL, it returns `otherwise`.
fn answer<T>(otherwise: T, work: impl FnOnce() -> Result<T>) -> T {
    let answered = catch_unwind(AssertUnwindSafe(|| {
        work().map_err(|err| diagnostics::tell(&err)).ok()
    }));
    let panicked = |_| {
        quiet((), || {
            diagnostics::tell(&Error::new(
                ErrorKind::Unavailable,
                "a read of a file panicked",
            ));
        });
        None
    };
    answered.unwrap_or_else(panicked).unwrap_or(otherwise)
}

/// Runs a callback's work that has no error; after a panic it returns `otherwise`.
fn quiet<T>(otherwise: T, work: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or(otherwise)
}

/// Returns a text of GDAL's; one that is not UTF-8 is none of our paths.
///
/// # Safety
///
/// `text` is null, or ends with NUL and lives as long as what is returned.
unsafe fn text<'a>(text: *const c_char) -> &'a str {
    if text.is_null() {
        return "";
    }
    // SAFETY: as the caller promises.
    unsafe { CStr::from_ptr(text) }.to_str().unwrap_or_default()
}

unsafe extern "C" fn open(
    _: *mut c_void,
    name: *const c_char,
    access: *const c_char,
) -> *mut c_void {
    // SAFETY: GDAL passes texts that end with NUL and live as long as this call.
    let (name, access) = unsafe { (text(name), text(access)) };
    answer(ptr::null_mut(), || {
        let Some((session, entry)) = super::find(name)? else {
            return Ok(ptr::null_mut());
        };
        if access.contains(['w', 'a', '+']) {
            return Err(Error::new(ErrorKind::InvalidInput, "/vsirss/ is read-only"));
        }
        let file = entry.open(&session)?;
        let handle = Box::new(Handle {
            file,
            session,
            at: 0,
            is_at_end: false,
        });
        Ok(Box::into_raw(handle).cast::<c_void>())
    })
}

#[cfg(unix)]
unsafe extern "C" fn stat(
    _: *mut c_void,
    name: *const c_char,
    buffer: *mut gdal_sys::VSIStatBufL,
    _flags: c_int,
) -> c_int {
    #[cfg(not(target_os = "linux"))]
    use libc::stat as Stat;
    #[cfg(target_os = "linux")]
    use libc::stat64 as Stat;

    // SAFETY: GDAL passes a text that ends with NUL and lives as long as this call.
    let name = unsafe { text(name) };
    answer(-1, || {
        if buffer.is_null() {
            return Ok(-1);
        }
        let Some((session, entry)) = super::find(name)? else {
            return Ok(-1);
        };
        let Some(size) = entry.size(&session)? else {
            return Ok(-1);
        };
        // SAFETY: a `VSIStatBufL` is the system's `stat` of large files, whose numbers may be zero;
        // GDAL passes one that is good for this call.
        unsafe {
            buffer.cast::<u8>().write_bytes(0, size_of::<Stat>());
            if let Some(buffer) = buffer.cast::<Stat>().as_mut() {
                buffer.st_mode = libc::S_IFREG | 0o444;
                buffer.st_size = size.try_into().unwrap_or(i64::MAX);
            }
        }
        Ok(0)
    })
}

/// Returns an empty list of side-car files, so that GDAL probes for none; no list where it is to probe.
unsafe extern "C" fn sibling_files(_: *mut c_void, name: *const c_char) -> *mut *mut c_char {
    // SAFETY: GDAL passes a text that ends with NUL and lives as long as this call.
    let name = unsafe { text(name) };
    quiet(ptr::null_mut(), || {
        let below = name.strip_prefix("/vsirss/").unwrap_or(name);
        if super::has_side_files(below) {
            return ptr::null_mut();
        }
        // SAFETY: a list of one null, from the allocator with which GDAL frees it.
        unsafe { gdal_sys::VSICalloc(1, size_of::<*mut c_char>()) }.cast::<*mut c_char>()
    })
}

unsafe extern "C" fn seek(file: *mut c_void, offset: u64, whence: c_int) -> c_int {
    quiet(-1, || {
        // SAFETY: GDAL passes a pointer of `open`'s, in use by one thread at a time, until `close`.
        let Some(handle) = (unsafe { file.cast::<Handle>().as_mut() }) else {
            return -1;
        };
        // As in C's `stdio.h`. A negative offset arrives as an unsigned one that wraps.
        let at = match whence {
            0 => offset,
            1 => handle.at.wrapping_add(offset),
            2 => handle.file.size().wrapping_add(offset),
            _ => return -1,
        };
        handle.at = at;
        handle.is_at_end = false;
        0
    })
}

unsafe extern "C" fn tell(file: *mut c_void) -> u64 {
    quiet(0, || {
        // SAFETY: as in `seek`.
        unsafe { file.cast::<Handle>().as_ref() }.map_or(0, |handle| handle.at)
    })
}

unsafe extern "C" fn eof(file: *mut c_void) -> c_int {
    quiet(1, || {
        // SAFETY: as in `seek`.
        unsafe { file.cast::<Handle>().as_ref() }.map_or(1, |handle| c_int::from(handle.is_at_end))
    })
}

unsafe extern "C" fn read(
    file: *mut c_void,
    buffer: *mut c_void,
    size: usize,
    count: usize,
) -> usize {
    answer(0, || {
        // SAFETY: as in `seek`.
        let Some(handle) = (unsafe { file.cast::<Handle>().as_mut() }) else {
            return Ok(0);
        };
        let length = size.saturating_mul(count);
        if length == 0 || buffer.is_null() {
            return Ok(0);
        }
        // Set before the read: a caller that loops until the end of the file must also stop at an error.
        handle.is_at_end = true;
        let range = handle.at..handle.at.saturating_add(length as u64);
        let buffer = Buffer {
            start: buffer,
            length,
        };
        let got = handle
            .file
            .read(&handle.session, range, &mut |from, bytes| {
                // SAFETY: GDAL's buffer takes `size` times `count` bytes.
                unsafe { buffer.put(from, bytes) }
            })?;
        handle.at = handle.at.saturating_add(got);
        handle.is_at_end = got < length as u64;
        Ok(usize::try_from(got).unwrap_or(length) / size)
    })
}

unsafe extern "C" fn read_multi_range(
    file: *mut c_void,
    count: c_int,
    buffers: *mut *mut c_void,
    offsets: *const u64,
    sizes: *const usize,
) -> c_int {
    answer(-1, || {
        // SAFETY: as in `seek`.
        let Some(handle) = (unsafe { file.cast::<Handle>().as_ref() }) else {
            return Ok(-1);
        };
        let count = usize::try_from(count).unwrap_or(0);
        if count == 0 {
            return Ok(0);
        }
        if buffers.is_null() || offsets.is_null() || sizes.is_null() {
            return Ok(-1);
        }
        // SAFETY: GDAL passes three lists of `count` values each, good for this call.
        let (buffers, offsets, sizes) = unsafe {
            (
                slice::from_raw_parts(buffers, count),
                slice::from_raw_parts(offsets, count),
                slice::from_raw_parts(sizes, count),
            )
        };
        let ranges: Vec<Range<u64>> = offsets
            .iter()
            .zip(sizes)
            .map(|(&offset, &size)| offset..offset.saturating_add(size as u64))
            .collect();
        handle
            .file
            .read_many(&handle.session, &ranges, &mut |index, from, bytes| {
                if let (Some(&start), Some(&length)) = (buffers.get(index), sizes.get(index)) {
                    // SAFETY: each of GDAL's buffers takes as many bytes as its size says.
                    unsafe { Buffer { start, length }.put(from, bytes) }
                }
            })?;
        Ok(0)
    })
}

unsafe extern "C" fn close(file: *mut c_void) -> c_int {
    if file.is_null() {
        return -1;
    }
    answer(-1, || {
        // SAFETY: a pointer of `open`'s, which GDAL hands back once and uses no more.
        drop(unsafe { Box::from_raw(file.cast::<Handle>()) });
        Ok(0)
    })
}

/// A buffer of GDAL's to write to; it may be uninitialised.
struct Buffer {
    start: *mut c_void,
    length: usize,
}

impl Buffer {
    /// Copies bytes to an offset in the buffer, as far as they fit.
    ///
    /// # Safety
    ///
    /// `length` bytes from `start` on may be written.
    unsafe fn put(&self, from: usize, bytes: &[u8]) {
        let fits = bytes.len().min(self.length.saturating_sub(from));
        if self.start.is_null() || fits == 0 {
            return;
        }
        // SAFETY: `from + fits` is at most `length`; our bytes are not GDAL's.
        unsafe {
            let to = self.start.cast::<u8>().add(from);
            ptr::copy_nonoverlapping(bytes.as_ptr(), to, fits);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{ffi::CString, mem::MaybeUninit};

    use gdal_sys::{VSIFCloseL, VSIFEofL, VSIFOpenL, VSIFReadL, VSIFSeekL, VSIFTellL, VSIStatL};
    use rss_testbed::{Service, Testbed};

    use super::*;
    use crate::location::Location;

    /// Bytes that differ from their neighbours and from those 256 further on.
    fn content(length: u32) -> Vec<u8> {
        (0..length).map(|i| (i ^ (i >> 8)) as u8).collect()
    }

    fn stage(length: u32) -> (Testbed, Session, CString) {
        let bed = Testbed::builder().start().unwrap();
        bed.put("bucket", "k.bin", content(length));
        let session = Session::builder()
            .s3_endpoint(&bed.s3_endpoint())
            .build()
            .unwrap();
        let location = Location::parse("s3://bucket/k.bin").unwrap();
        let path = CString::new(super::super::hand_out(&session, &location)).unwrap();
        (bed, session, path)
    }

    fn sent(bed: &Testbed) -> Vec<String> {
        let log = bed.requests(Service::S3);
        log.into_iter().map(|request| request.method).collect()
    }

    #[test]
    fn a_question_and_an_open_cost_one_request() {
        let (bed, _session, path) = stage(100_000);
        // SAFETY: texts end with NUL, buffers are as large as diagnostics, the file is closed once.
        unsafe {
            let mut found = MaybeUninit::<libc::stat>::zeroed();
            let buffer = found.as_mut_ptr().cast::<gdal_sys::VSIStatBufL>();
            assert_eq!(VSIStatL(path.as_ptr(), buffer), 0);
            assert_eq!(found.assume_init().st_size, 100_000);
            let aside = CString::new(format!("{}.aux.xml", path.to_str().unwrap())).unwrap();
            assert_eq!(VSIStatL(aside.as_ptr(), buffer), -1);
            assert!(VSIFOpenL(aside.as_ptr(), c"rb".as_ptr()).is_null());
            assert!(VSIFOpenL(path.as_ptr(), c"rb+".as_ptr()).is_null());
            let file = VSIFOpenL(path.as_ptr(), c"rb".as_ptr());
            assert!(!file.is_null());
            assert_eq!(VSIFCloseL(file), 0);
        }
        assert_eq!(sent(&bed), ["GET"]);
    }

    #[test]
    fn a_callback_takes_null_where_gdal_has_nothing() {
        let (bed, _session, path) = stage(100);
        let name = path.to_str().unwrap().strip_prefix("/vsirss/").unwrap();
        let name = CString::new(name).unwrap();
        let none = ptr::null_mut();
        // SAFETY: null is what is tried; the other pointers are good.
        unsafe {
            assert_eq!(stat(none, name.as_ptr(), ptr::null_mut(), 0), -1);
            assert_eq!(stat(none, ptr::null(), ptr::null_mut(), 0), -1);
            assert!(open(none, ptr::null(), ptr::null()).is_null());
            assert_eq!(seek(none, 0, 0), -1);
            assert_eq!((tell(none), eof(none)), (0, 1));
            assert_eq!(read(none, none, 1, 1), 0);
            assert_eq!(close(none), -1);
            let file = open(none, name.as_ptr(), c"rb".as_ptr());
            assert!(!file.is_null());
            assert_eq!(read(file, none, 1, 1), 0);
            let lists = (ptr::null_mut(), ptr::null(), ptr::null());
            assert_eq!(read_multi_range(file, 2, lists.0, lists.1, lists.2), -1);
            assert_eq!(close(file), 0);
        }
        assert_eq!(sent(&bed), ["GET"]);
    }

    #[test]
    fn a_panic_stays_in_the_callback() {
        assert_eq!(answer(7, || panic!("on purpose")), 7);
        assert_eq!(quiet(7, || panic!("on purpose")), 7);
    }

    #[test]
    fn small_reads_in_a_row_cost_few_requests_and_end() {
        let truth = content(1_000_000);
        let (bed, _session, path) = stage(1_000_000);
        let mut got = Vec::new();
        // SAFETY: as above.
        unsafe {
            let file = VSIFOpenL(path.as_ptr(), c"rb".as_ptr());
            let mut some = [0_u8; 777];
            while VSIFEofL(file) == 0 {
                let n = VSIFReadL(some.as_mut_ptr().cast(), 1, some.len(), file);
                got.extend_from_slice(&some[..n]);
            }
            assert_eq!(VSIFTellL(file), 1_000_000);
            // From the end, back into what is kept, and past the end.
            assert_eq!(VSIFSeekL(file, 0, 2), 0);
            assert_eq!((VSIFTellL(file), VSIFEofL(file)), (1_000_000, 0));
            assert_eq!(VSIFReadL(some.as_mut_ptr().cast(), 1, 1, file), 0);
            assert_ne!(VSIFEofL(file), 0);
            assert_eq!(VSIFSeekL(file, 999_990, 0), 0);
            // Ten bytes are one whole block of eight.
            assert_eq!(VSIFReadL(some.as_mut_ptr().cast(), 8, 4, file), 1);
            assert_eq!(some[..10], truth[999_990..]);
            assert_eq!(VSIFCloseL(file), 0);
        }
        assert!(got == truth);
        // 32 KiB, then 32, 128, 512 KiB, and the rest.
        assert_eq!(sent(&bed).len(), 5);
    }

    #[test]
    fn ranges_come_together_in_few_requests() {
        let truth = content(8_000_000);
        let (bed, _session, path) = stage(8_000_000);
        // In memory; two near ones; one longer than a request, just after; one far away.
        let offsets = [10_u64, 100_000, 150_000, 200_000, 7_000_000];
        let sizes = [20_usize, 40_000, 5_000, 5_000_000, 100];
        let mut parts: Vec<Vec<u8>> = sizes.iter().map(|&size| vec![0; size]).collect();
        // SAFETY: as above; each list has as many values as diagnostics.
        unsafe {
            let file = VSIFOpenL(path.as_ptr(), c"rb".as_ptr());
            let mut starts: Vec<*mut c_void> = parts
                .iter_mut()
                .map(|part| part.as_mut_ptr().cast())
                .collect();
            let read = |starts: &mut [*mut c_void], offsets: &[u64]| {
                gdal_sys::VSIFReadMultiRangeL(
                    5,
                    starts.as_mut_ptr(),
                    offsets.as_ptr(),
                    sizes.as_ptr(),
                    file,
                )
            };
            assert_eq!(read(&mut starts, &offsets), 0);
            assert_eq!(sent(&bed).len(), 3);
            // A range past the end: an error and no request.
            assert_eq!(read(&mut starts, &[0, 1, 2, 3, 7_999_999]), -1);
            assert_eq!(VSIFCloseL(file), 0);
        }
        for (part, offset) in parts.iter().zip(offsets) {
            let start = usize::try_from(offset).unwrap();
            assert!(part[..] == truth[start..start + part.len()], "{offset}");
        }
        assert_eq!(sent(&bed).len(), 3);
    }
}
