//! Huge pages for large arrays.

#![expect(unsafe_code, reason = "the advice is a C function")]

/// Advises the system to back a large array with huge pages, which reduces page faults on the first write.
#[cfg(target_os = "linux")]
pub fn in_large_pages<T>(samples: &[T]) {
    const PAGE: usize = 4096;
    const LARGE: usize = 2 << 20;
    let bytes = size_of_val(samples);
    if bytes < 2 * LARGE {
        return;
    }
    let start = samples.as_ptr().cast_mut().cast::<u8>();
    let offset = start.align_offset(PAGE);
    // SAFETY: the range lies inside the slice and starts at a page; the advice changes no byte, and
    // where it is refused nothing happens.
    unsafe {
        libc::madvise(
            start.add(offset).cast(),
            bytes - offset,
            libc::MADV_HUGEPAGE,
        );
    }
}

#[cfg(not(target_os = "linux"))]
pub fn in_large_pages<T>(_: &[T]) {}
