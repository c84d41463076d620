//! One object as GDAL reads it: its first bytes and its last reads are cached, the rest is fetched.
//!
//! GDAL calls on its own threads and blocks them; requests run on the session's runtime.

use std::{
    collections::VecDeque,
    future::Future,
    ops::Range,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
};

use bytes::Bytes;
use futures::{StreamExt, stream};

use crate::{
    error::{Error, ErrorKind, Result},
    location::Location,
    session::Session,
    store::{Fetch, Merge, Object, coalesce},
};

/// The smallest request after the first, and the first read-ahead of a sequential read.
const READAHEAD_BYTES: u64 = 32 * 1024;
/// Cached bytes of one file, besides its first ones.
const MOST_KEPT_BYTES: usize = 8 << 20;
/// Requests of one call that are under way at once.
const FETCHES_AT_ONCE: usize = 32;
/// How many times the session's `fetch_bytes` a request for ranges that GDAL names may be: GDAL's own file systems merge
/// without a bound.
const LONGER: u64 = 8;
/// The same for a request that reads ahead.
const AHEAD: u64 = 4;
/// Where a request begins that does not go on from the last one: GDAL reads some bytes before those that it asks for next.
const ALIGNED: u64 = 4096;

/// A version of an object, shared by all its handles.
#[derive(Debug)]
pub(super) struct VsiObject {
    object: Arc<Object>,
    merge: Merge,
    /// The longest request that reads ahead.
    ahead_bytes: u64,
    kept: Mutex<ReadBuffer>,
    failed: AtomicBool,
    failures: Arc<Failures>,
}

/// The reads of a file that failed. GDAL does not always report them: libtiff takes a list of tiles that it could not read
/// for one of tiles that are not stored, and GDAL fills them in.
#[derive(Debug, Default)]
pub(in crate::reader::gdal) struct Failures(Mutex<(u64, Option<Failure>)>);

#[derive(Clone, Debug)]
struct Failure {
    kind: ErrorKind,
    message: String,
    location: Option<String>,
}

impl Failures {
    /// Returns how many there are so far.
    pub(in crate::reader::gdal) fn count(&self) -> u64 {
        self.lock().0
    }

    /// Returns the last one, if there are more than there were: what GDAL answered meanwhile may be filled in.
    pub(in crate::reader::gdal) fn since(&self, count: u64) -> Option<Error> {
        let last = self.lock();
        let failure = last.1.clone().filter(|_| last.0 > count)?;
        let err = Error::new(failure.kind, failure.message);
        Some(match failure.location {
            Some(location) => err.at(location),
            None => err,
        })
    }

    fn add(&self, err: &Error) {
        let mut last = self.lock();
        last.0 += 1;
        last.1 = Some(Failure {
            kind: err.kind(),
            message: err.message().to_owned(),
            location: err.location().map(str::to_owned),
        });
    }

    fn lock(&self) -> MutexGuard<'_, (u64, Option<Failure>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl VsiObject {
    /// Fetches the first bytes, and with them size and ETag.
    pub(super) fn open(
        session: &Session,
        location: &Location,
        failures: &Arc<Failures>,
    ) -> Result<Self> {
        let (task, from) = (session.clone(), location.clone());
        let (object, header) = wait(session, async move {
            Object::open(task.stores(), &from, task.header_bytes(&from)).await
        })?;
        let settings = session.settings();
        Ok(Self {
            object: Arc::new(object),
            merge: Merge {
                gap_bytes: settings.gap_bytes,
                fetch_bytes: settings.fetch_bytes.saturating_mul(LONGER),
            },
            ahead_bytes: settings.fetch_bytes.saturating_mul(AHEAD),
            kept: Mutex::new(ReadBuffer::new(header)),
            failed: AtomicBool::new(false),
            failures: Arc::clone(failures),
        })
    }

    /// Returns the size in bytes.
    pub(super) fn size(&self) -> u64 {
        self.object.size()
    }

    /// Returns true if a read failed: the object may have been replaced.
    pub(super) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// Clears the cached bytes; the version stays.
    pub(super) fn forget(&self) {
        *self.kept() = ReadBuffer::new(Bytes::new());
    }

    /// Reads `range` up to the end of the file, and returns the number of bytes. `put` gets them with
    /// their offset in the range.
    pub(super) fn read(
        &self,
        session: &Session,
        range: Range<u64>,
        put: &mut dyn FnMut(usize, &[u8]),
    ) -> Result<u64> {
        let start = range.start;
        let end = range.end.min(self.size());
        let mut at = start;
        while at < end {
            if let Some(bytes) = self.kept().find(at, end) {
                put(distance(start, at)?, &bytes);
                at += bytes.len() as u64;
            // A long read goes out as parallel requests, and past the cache, which it would fill.
            } else if end - at > self.ahead_bytes {
                let from = distance(start, at)?;
                let mut put = |_, offset, bytes: &[u8]| put(from + offset, bytes);
                self.read_many(session, std::slice::from_ref(&(at..end)), &mut put)?;
                at = end;
            } else {
                let reach = self.kept().reach(at..end, self.ahead_bytes);
                let reach = reach.start..reach.end.min(self.size());
                let first = reach.start;
                let object = Arc::clone(&self.object);
                let bytes = self.noted(wait(session, async move { object.fetch(reach).await }))?;
                let wanted = distance(first, at)?..distance(first, end)?;
                let wanted = bytes.get(wanted).ok_or_else(lost)?;
                put(distance(start, at)?, wanted);
                self.kept().keep(first, bytes);
                at = end;
            }
        }
        Ok(end.saturating_sub(start))
    }

    /// Reads many ranges: adjacent ones in one request, long ones in several, all in parallel. `put` gets
    /// pieces of them: the index of the range, the offset in it, the bytes.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`] for a range that is not completely inside the file, before any request.
    pub(super) fn read_many(
        &self,
        session: &Session,
        ranges: &[Range<u64>],
        put: &mut dyn FnMut(usize, usize, &[u8]),
    ) -> Result<()> {
        for range in ranges {
            self.object.check(range)?;
        }
        let mut pieces = Vec::with_capacity(ranges.len());
        for (index, range) in ranges.iter().enumerate() {
            let mut at = range.start;
            while at < range.end {
                if let Some(bytes) = self.kept().find(at, range.end) {
                    put(index, distance(range.start, at)?, &bytes);
                    at += bytes.len() as u64;
                    continue;
                }
                let end = at.saturating_add(self.merge.fetch_bytes).min(range.end);
                pieces.push(Piece {
                    index,
                    offset: distance(range.start, at)?,
                    range: at..end,
                });
                at = end;
            }
        }
        let wanted: Vec<Range<u64>> = pieces.iter().map(|piece| piece.range.clone()).collect();
        if let Some(end) = wanted.iter().map(|range| range.end).max() {
            let bytes = wanted.iter().map(|range| range.end - range.start).sum();
            self.kept().went_on(end, bytes);
        }
        let fetches = coalesce(&wanted, self.merge);
        self.noted(self.gather(session, fetches, &mut |fetch, bytes| {
            for piece in fetch.wanted.iter().filter_map(|&i| pieces.get(i)) {
                let from = distance(fetch.range.start, piece.range.start)?;
                let to = distance(fetch.range.start, piece.range.end)?;
                if let Some(bytes) = bytes.get(from..to) {
                    put(piece.index, piece.offset, bytes);
                }
            }
            Ok(())
        }))
    }

    /// Sends requests in parallel and passes each response to `then` on this thread, as it arrives.
    fn gather(
        &self,
        session: &Session,
        fetches: Vec<Fetch>,
        then: &mut dyn FnMut(Fetch, Bytes) -> Result<()>,
    ) -> Result<()> {
        let mut left = fetches.len();
        if left == 0 {
            return Ok(());
        }
        let object = Arc::clone(&self.object);
        let (send, answers) = mpsc::channel::<Result<_>>();
        session.runtime()?.spawn(async move {
            let object = &object;
            let mut fetched = stream::iter(fetches)
                .map(|fetch| async move {
                    let bytes = object.fetch(fetch.range.clone()).await?;
                    Ok((fetch, bytes))
                })
                .buffer_unordered(FETCHES_AT_ONCE);
            while let Some(answer) = fetched.next().await {
                let is_last: bool = answer.is_err();
                // The receiver stops at the first error.
                if send.send(answer).is_err() || is_last {
                    return;
                }
            }
        });
        for answer in answers {
            let (fetch, bytes): (Fetch, Bytes) = answer?;
            then(fetch, bytes)?;
            left -= 1;
        }
        match left {
            0 => Ok(()),
            _ => Err(lost()),
        }
    }

    /// Records a failure: the next open of the path requests the object again, which may be replaced.
    fn noted<T>(&self, result: Result<T>) -> Result<T> {
        if let Err(err) = &result {
            self.failed.store(true, Ordering::Relaxed);
            self.failures.add(err);
        }
        result
    }

    fn kept(&self) -> MutexGuard<'_, ReadBuffer> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A part of a range to fetch.
struct Piece {
    index: usize,
    /// Bytes of the range before it.
    offset: usize,
    range: Range<u64>,
}

/// The cached bytes of one file, and its read-ahead.
#[derive(Debug, Default)]
struct ReadBuffer {
    header: Bytes,
    /// Chunks with their offsets; the most recently used is last.
    recent: VecDeque<(u64, Bytes)>,
    bytes: usize,
    /// The end of the last request.
    next: u64,
    ahead: u64,
}

impl ReadBuffer {
    fn new(header: Bytes) -> Self {
        Self {
            next: header.len() as u64,
            header,
            ..Self::default()
        }
    }

    /// Returns cached bytes from `at` on, at most to `end`; none if the first is not cached.
    fn find(&mut self, at: u64, end: u64) -> Option<Bytes> {
        if let Some(bytes) = part(0, &self.header, at, end) {
            return Some(bytes);
        }
        let found = self.recent.iter().enumerate().rev();
        let (index, bytes) = found
            .filter_map(|(i, (start, bytes))| Some((i, part(*start, bytes, at, end)?)))
            .next()?;
        if let Some(used) = self.recent.remove(index) {
            self.recent.push_back(used);
        }
        Some(bytes)
    }

    fn keep(&mut self, start: u64, bytes: Bytes) {
        self.bytes += bytes.len();
        self.recent.push_back((start, bytes));
        while self.bytes > MOST_KEPT_BYTES
            && self.recent.len() > 1
            && let Some((_, old)) = self.recent.pop_front()
        {
            self.bytes -= old.len();
        }
    }

    /// Records a read of ranges up to `end`: one who reads on from there reads as much at once.
    fn went_on(&mut self, end: u64, bytes: u64) {
        self.next = end;
        self.ahead = bytes / 16;
    }

    /// Returns the range to fetch for `wanted`: the read-ahead of a sequential read becomes four times as long each time,
    /// up to `most` bytes.
    fn reach(&mut self, wanted: Range<u64>, most: u64) -> Range<u64> {
        let reads_on = wanted
            .start
            .checked_sub(self.next)
            .is_some_and(|skipped| skipped <= READAHEAD_BYTES);
        let length = wanted.end.saturating_sub(wanted.start);
        let (start, ahead) = match reads_on {
            true => (
                wanted.start,
                self.ahead
                    .max(length)
                    .saturating_mul(4)
                    .clamp(READAHEAD_BYTES, most.max(READAHEAD_BYTES)),
            ),
            false => (wanted.start - wanted.start % ALIGNED, READAHEAD_BYTES),
        };
        self.ahead = ahead;
        let end = wanted.end.max(wanted.start.saturating_add(ahead));
        self.next = end;
        start..end
    }
}

/// Returns the bytes of a chunk from `at` on, at most to `end`.
fn part(start: u64, chunk: &Bytes, at: u64, end: u64) -> Option<Bytes> {
    let from = usize::try_from(at.checked_sub(start)?).ok()?;
    let to = usize::try_from(end.checked_sub(start)?).map_or(chunk.len(), |to| to.min(chunk.len()));
    (from < to).then(|| chunk.slice(from..to))
}

/// Returns the bytes from `start` to `end` as an offset in memory.
fn distance(start: u64, end: u64) -> Result<usize> {
    end.checked_sub(start)
        .and_then(|bytes| usize::try_from(bytes).ok())
        .ok_or_else(|| Error::new(ErrorKind::InvalidInput, "a range that does not fit memory"))
}

/// Runs `work` on the session's runtime and waits for it on this thread, which is one of GDAL's.
fn wait<T: Send + 'static>(
    session: &Session,
    work: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<T> {
    let (send, answer) = mpsc::sync_channel(1);
    session.runtime()?.spawn(async move {
        // Cannot fail: the thread below waits until this is sent.
        let _ = send.send(work.await);
    });
    answer.recv().map_err(|_| lost())?
}

fn lost() -> Error {
    Error::new(ErrorKind::Unavailable, "a request ended early")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(length: usize) -> Bytes {
        Bytes::from(vec![7; length])
    }

    #[test]
    fn one_who_reads_on_gets_more_and_one_who_jumps_does_not() {
        let mut kept = ReadBuffer::new(bytes(100));
        let most = 100 * 1024;
        assert_eq!(kept.reach(100..110, most), 100..100 + 32 * 1024);
        let next = kept.next;
        assert_eq!(
            kept.reach(next + 8..next + 9, most),
            next + 8..next + 8 + most
        );
        // A jump begins a little before.
        assert_eq!(kept.reach(9005..9006, most), 8192..9005 + 32 * 1024);
        // A long read is as long as it is.
        assert_eq!(kept.reach(0..1 << 20, most), 0..1 << 20);
        // One who reads on after many ranges reads a part of as much.
        kept.went_on(5000, 320 * 1024);
        assert_eq!(kept.reach(5000..5010, most).end, 5000 + 80 * 1024);
    }

    #[test]
    fn what_is_kept_is_found_and_bounded() {
        let mut kept = ReadBuffer::new(bytes(10));
        assert_eq!(kept.find(4, 100).unwrap().len(), 6);
        assert_eq!(kept.find(4, 5).unwrap().len(), 1);
        assert_eq!(kept.find(10, 20), None);
        kept.keep(1000, bytes(MOST_KEPT_BYTES - 8));
        kept.keep(50, bytes(8));
        assert_eq!(kept.find(50, 60).unwrap().len(), 8);
        assert!(kept.find(1000, 1001).is_some());
        // The least recently used one is dropped.
        kept.keep(70, bytes(8));
        assert_eq!(kept.find(50, 60), None);
        assert!(kept.find(1000, 1001).is_some() && kept.find(70, 71).is_some());
        assert_eq!(kept.bytes, MOST_KEPT_BYTES);
        assert_eq!(kept.find(0, 1).unwrap().len(), 1);
    }
}
