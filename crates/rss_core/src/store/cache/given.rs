//! Which files of users came from this cache: files of their own (`root/given/`), and symbolic links into it
//! (`root/links/`).
//!
//! A link is recorded before it is made, so that an eviction never misses one. A record says nothing that is not looked at
//! again: a link that is gone, or leads elsewhere, keeps nothing in the cache. See `docs/decisions/004-file-cache.md`.

use std::{
    collections::HashSet,
    ffi::OsString,
    fs::{self, File, Metadata},
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};

use super::{entry::nanoseconds, key::hex};

const FILES: &str = "given";
const LINKS: &str = "links";
/// Bytes that are read of a record: no path is longer.
const LONGEST_RECORD: u64 = 64 << 10;

/// How a file was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GivenAs {
    /// A file of the user's own.
    File,
    /// A symbolic link into the cache.
    Link,
}

/// A file that was given to a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Given {
    /// The key of the entry.
    pub(super) digest: String,
    /// The SHA-256 of the bytes that were given, in hexadecimal digits.
    pub(super) sha256: String,
    /// Its length and mtime, in nanoseconds since 1970.
    pub(super) stamp: (u64, u64),
    /// Where the user has it.
    pub(super) path: PathBuf,
}

impl Given {
    fn record_of(root: &Path, given: GivenAs, path: &Path) -> PathBuf {
        let folder = match given {
            GivenAs::File => FILES,
            GivenAs::Link => LINKS,
        };
        let name = hex(&Sha256::digest(path.as_os_str().as_encoded_bytes()));
        root.join(folder).join(name)
    }

    /// Writes the record, and has it on the disk if it is of a link.
    pub(super) fn record(&self, root: &Path, given: GivenAs) -> io::Result<()> {
        let record = Self::record_of(root, given, &self.path);
        let folder = record.parent().unwrap_or(root);
        fs::create_dir_all(folder)?;
        let mut file = tempfile::Builder::new()
            .prefix(".new")
            .tempfile_in(folder)?;
        let (bytes, modified_ns) = self.stamp;
        writeln!(
            file,
            "{}\n{}\n{bytes}\n{modified_ns}",
            self.digest, self.sha256
        )?;
        file.write_all(self.path.as_os_str().as_encoded_bytes())?;
        if given == GivenAs::Link {
            file.as_file().sync_all()?;
        }
        file.persist(record).map_err(|err| err.error)?;
        Ok(())
    }

    /// Returns what is recorded of a path; none if it was not given, or the record is damaged.
    pub(super) fn of_path(root: &Path, given: GivenAs, path: &Path) -> Option<Self> {
        let found = Self::read(&Self::record_of(root, given, path))?;
        (found.path == path).then_some(found)
    }

    fn read(record: &Path) -> Option<Self> {
        let mut bytes = Vec::new();
        let file = File::open(record).ok()?;
        file.take(LONGEST_RECORD).read_to_end(&mut bytes).ok()?;
        let mut parts = bytes.splitn(5, |byte| *byte == b'\n');
        let mut text = || String::from_utf8(parts.next()?.to_vec()).ok();
        let (digest, sha256) = (text()?, text()?);
        let stamp = (text()?.parse().ok()?, text()?.parse().ok()?);
        Some(Self {
            digest,
            sha256,
            stamp,
            path: path_of(parts.next()?)?,
        })
    }

    /// Returns true if the file at the path is as it was given, as far as length and mtime tell.
    pub(super) fn is_there(&self) -> bool {
        let meta = fs::symlink_metadata(&self.path);
        meta.is_ok_and(|meta| meta.is_file() && stamp(&meta) == self.stamp)
    }

    fn is_link_into(&self, entries: &Path) -> bool {
        fs::read_link(&self.path).is_ok_and(|target| {
            let name = target.file_stem().map(|stem| stem.to_string_lossy());
            target.starts_with(entries) && name.is_some_and(|name| name == self.digest)
        })
    }
}

/// Returns the length and mtime of a file.
pub(super) fn stamp(meta: &Metadata) -> (u64, u64) {
    (meta.len(), nanoseconds(meta.modified().ok()))
}

#[cfg(unix)]
fn path_of(bytes: &[u8]) -> Option<PathBuf> {
    use std::os::unix::ffi::OsStringExt;

    Some(OsString::from_vec(bytes.to_vec()).into())
}

#[cfg(not(unix))]
fn path_of(bytes: &[u8]) -> Option<PathBuf> {
    Some(OsString::from(String::from_utf8(bytes.to_vec()).ok()?).into())
}

/// Returns the keys of the entries that symbolic links of users point to.
pub(super) fn linked(root: &Path, entries: &Path) -> HashSet<String> {
    records(&root.join(LINKS))
        .filter_map(|record| Given::read(&record))
        .filter(|given| given.is_link_into(entries))
        .map(|given| given.digest)
        .collect()
}

/// Removes the records of files and links that are gone. Those of entries in use stay: what is delivered now is recorded
/// before it is there. The caller holds the cache's lock alone, so that no record is half written.
pub(super) fn sweep(root: &Path, entries: &Path, in_use: &HashSet<String>) {
    let sweep = |folder: &str, is_there: fn(&Given, &Path) -> bool| {
        for record in records(&root.join(folder)) {
            let given = Given::read(&record);
            let keep = |given: &Given| in_use.contains(&given.digest) || is_there(given, entries);
            if !given.as_ref().is_some_and(keep) {
                let _ = fs::remove_file(record);
            }
        }
    };
    // A folder that is not mounted now looks like one that is gone: then a later `get` says that the file is not its own.
    sweep(FILES, |given, _| fs::symlink_metadata(&given.path).is_ok());
    sweep(LINKS, Given::is_link_into);
}

fn records(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let found = fs::read_dir(folder).into_iter().flatten().flatten();
    found.map(|entry| entry.path())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_of_any_content_is_no_panic_and_keeps_nothing() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("out/a.tif");
        let given = Given {
            digest: "aa".to_owned(),
            sha256: "bb".to_owned(),
            stamp: (1, 2),
            path: path.clone(),
        };
        given.record(root.path(), GivenAs::File).unwrap();
        let read = || Given::of_path(root.path(), GivenAs::File, &path);
        assert_eq!(read(), Some(given));
        let record = Given::record_of(root.path(), GivenAs::File, &path);
        for bytes in [
            &b""[..],
            b"\n",
            b"\n\n",
            b"\xff\n\xff\n\xff",
            b"aa\nbb\n1\n2\nelsewhere",
            b"aa\nbb\n99999999999999999999\n2\nx",
        ] {
            fs::write(&record, bytes).unwrap();
            assert_eq!(read(), None, "{bytes:?}");
            sweep(root.path(), root.path(), &HashSet::new());
            assert!(!record.exists(), "{bytes:?}");
        }
    }

    #[test]
    fn what_is_recorded_before_it_is_there_is_not_swept() {
        let root = tempfile::tempdir().unwrap();
        let given = |name: &str| Given {
            digest: name.to_owned(),
            sha256: String::new(),
            stamp: (1, 2),
            path: root.path().join("out").join(name),
        };
        let (now, gone) = (given("now"), given("gone"));
        for kind in [GivenAs::File, GivenAs::Link] {
            now.record(root.path(), kind).unwrap();
            gone.record(root.path(), kind).unwrap();
            let in_use = HashSet::from(["now".to_owned()]);
            sweep(root.path(), root.path(), &in_use);
            let of = |given: &Given| Given::of_path(root.path(), kind, &given.path);
            assert_eq!((of(&now), of(&gone)), (Some(now.clone()), None));
        }
    }
}
