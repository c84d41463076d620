//! Header sizes by folder: how many bytes the first request for a file fetches, learnt from the files
//! that were read.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use crate::location::Location;

/// Bytes of the first request where no file of the folder was read yet: the header of a 10980 x 10980
/// COG several times over.
const UNKNOWN: u64 = 32 << 10;
const LEAST: u64 = 16 << 10;
const MOST: u64 = 1 << 20;
/// Requests grow in steps, so that files of like size make like requests.
const STEP: u64 = 16 << 10;
/// Folders in the table: a bound for sessions that read many buckets.
const MOST_FOLDERS: usize = 4096;

/// The bytes that headers took, by folder.
#[derive(Debug, Default)]
pub(super) struct HeaderSizes(Mutex<HashMap<String, u64>>);

impl HeaderSizes {
    /// Returns how many bytes to fetch first.
    pub(super) fn guess(&self, location: &Location) -> u64 {
        let folder = folder(location);
        let sizes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sizes.get(&folder).map_or(UNKNOWN, |size| {
            size.next_multiple_of(STEP).clamp(LEAST, MOST)
        })
    }

    /// Records the bytes that a header took. A larger one counts at once, a smaller one lowers the guess
    /// by an eighth: fetching too much costs less than a second request.
    pub(super) fn learn(&self, location: &Location, bytes: u64) {
        let (folder, bytes) = (folder(location), bytes.min(MOST));
        let mut sizes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if sizes.len() >= MOST_FOLDERS && !sizes.contains_key(&folder) {
            sizes.clear();
        }
        let size = sizes.entry(folder).or_insert(bytes);
        *size = bytes.max(*size - *size / 8);
    }
}

/// Returns the bucket or host and the first two folders of a location: producers keep their products
/// apart there.
fn folder(location: &Location) -> String {
    let text = location.to_href();
    let path = text.split(['?', '#']).next().unwrap_or_default();
    let (scheme, rest) = path.split_once("://").unwrap_or(("", path));
    let parts: Vec<&str> = rest.split('/').collect();
    let folders = parts.len().saturating_sub(1).min(3);
    format!(
        "{scheme}://{}",
        parts.get(..folders).unwrap_or_default().join("/")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_one_product_teach_each_other() {
        let at = |href: &str| Location::parse(href).unwrap();
        let sizes = HeaderSizes::default();
        let first = at("s3://dea/baseline/ga_s2/55/HFA/a.tif");
        assert_eq!(sizes.guess(&first), UNKNOWN);
        sizes.learn(&first, 100_000);
        let second = at("s3://dea/baseline/ga_s2/56/JNS/b.tif");
        assert_eq!(sizes.guess(&second), 7 * STEP);
        assert_eq!(sizes.guess(&at("s3://dea/baseline/ga_ls/b.tif")), UNKNOWN);
        // Small files bring it down slowly.
        sizes.learn(&second, 3_000);
        assert_eq!(sizes.guess(&second), 6 * STEP);
        for _ in 0..100 {
            sizes.learn(&second, 3_000);
        }
        assert_eq!(sizes.guess(&second), LEAST);
        sizes.learn(&second, u64::MAX);
        assert_eq!(sizes.guess(&second), MOST);
    }

    #[test]
    fn a_query_is_no_part_of_a_folder() {
        let plain = Location::parse("https://h.example/a/b/c.tif").unwrap();
        let signed = Location::parse("https://h.example/a/b/c.tif?sig=secret").unwrap();
        assert_eq!(folder(&plain), "https://h.example/a/b");
        assert_eq!(folder(&signed), folder(&plain));
    }
}
