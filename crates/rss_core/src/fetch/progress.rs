//! The progress of a call, summed over its files.

use std::sync::{Mutex, PoisonError};

use super::GetOptions;

/// The progress of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Progress {
    /// Files that are finished, failed ones too.
    pub files_done: usize,
    /// All files of the call.
    pub files_total: usize,
    /// Bytes received, and those of files found in the cache or written by GDAL.
    pub bytes_done: u64,
    /// The fraction of the work that is done, 0 to 1; an unfinished file counts by its fraction.
    pub part_done: f64,
}

/// Sums the progress of all files.
pub(super) struct Tally<'a> {
    options: &'a GetOptions,
    state: Mutex<TallyState>,
}

struct TallyState {
    bytes: u64,
    done: usize,
    parts: Vec<f64>,
}

impl<'a> Tally<'a> {
    pub(super) fn new(files: usize, options: &'a GetOptions) -> Self {
        Self {
            options,
            state: Mutex::new(TallyState {
                bytes: 0,
                done: 0,
                parts: vec![0.0; files],
            }),
        }
    }

    pub(super) fn part(&self, index: usize) -> FileProgress<'_> {
        FileProgress {
            tally: self,
            index,
            seen: Mutex::default(),
        }
    }

    pub(super) fn finish(&self, index: usize) {
        self.change(|state| {
            state.done += 1;
            if let Some(part) = state.parts.get_mut(index) {
                *part = 1.0;
            }
        });
    }

    fn change(&self, change: impl FnOnce(&mut TallyState)) {
        let Some(tell) = &self.options.progress else {
            return;
        };
        // The lock is released before the callback runs, which may take long.
        let progress = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            change(&mut state);
            let total = state.parts.len();
            let parts: f64 = state.parts.iter().sum();
            Progress {
                files_done: state.done,
                files_total: total,
                bytes_done: state.bytes,
                part_done: if total == 0 {
                    1.0
                } else {
                    parts / total as f64
                },
            }
        };
        tell(progress);
    }
}

/// The progress of one file.
pub(super) struct FileProgress<'a> {
    tally: &'a Tally<'a>,
    index: usize,
    seen: Mutex<(u64, Option<u64>)>,
}

impl FileProgress<'_> {
    pub(super) fn expect(&self, bytes: Option<u64>) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        // A total of 0 has no fraction.
        seen.1 = bytes.filter(|&bytes| bytes > 0);
    }

    pub(super) fn arrived(&self, bytes: u64) {
        let part = {
            let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            seen.0 += bytes;
            seen.1.map(|total| (seen.0 as f64 / total as f64).min(1.0))
        };
        self.tally.change(|state| {
            state.bytes += bytes;
            if let (Some(part), Some(slot)) = (part, state.parts.get_mut(self.index)) {
                *slot = part;
            }
        });
    }

    pub(super) fn reached(&self, part: f64) {
        self.tally.change(|state| {
            if let Some(slot) = state.parts.get_mut(self.index) {
                *slot = part.clamp(0.0, 1.0);
            }
        });
    }
}
