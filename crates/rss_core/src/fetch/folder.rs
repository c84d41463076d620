//! The user's folder: files of the cache become files of the user, or links to those of the cache.
//!
//! A file is the user's own: a reflink (shared blocks, copied when one side is written), else a second name of the
//! cache's file, else a copy. What the user does with it changes nothing that a later call gives to somebody: see
//! `docs/decisions/004-file-cache.md`, "Files of users".

use std::{
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
};

use tempfile::NamedTempFile;

use super::{
    checksum::Digests,
    target::{TargetPath, marked},
};
use crate::{
    error::{Error, ErrorKind, Result},
    raster::{ordinary_file, sync_folder},
    store::{CachedFile, FileCache, GivenAs, is_same, of_io},
};

/// How a file of the cache gets into the user's folder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Delivery {
    /// As a file of the user's own, which nothing of the cache removes: a reflink where the file system has them, else a
    /// hard link (read-only, as the file in the cache is; one for each file of the cache), else a copy.
    #[default]
    File,
    /// As a symbolic link into the cache, which keeps the file there for as long as the link exists. A hard link or a copy
    /// where there are no symbolic links.
    Link,
}

/// Whether a file of the user is replaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Existing {
    /// A file that was not given by the cache, or was changed since, is an error, and so is a link to anywhere else. One as it
    /// was given is replaced by what is newer.
    #[default]
    Keep,
    /// Any file is replaced.
    Overwrite,
}

/// The user's folder.
#[derive(Clone, Debug)]
pub(super) struct Folder {
    dir: PathBuf,
    delivery: Delivery,
    existing: Existing,
}

/// What has the name of a file that is to be delivered.
enum There {
    Nothing,
    /// A link; its target.
    Link(PathBuf),
    File(u64),
}

impl Folder {
    /// Creates the folder if it does not exist, and checks that it can be written.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] if it is a file; [`ErrorKind::Denied`] if it cannot be written.
    pub(super) fn open(dir: &Path, delivery: Delivery, existing: Existing) -> Result<Self> {
        let wrong = |err: io::Error| match err.kind() {
            io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory => {
                Error::new(ErrorKind::InvalidInput, "a file, expected a directory")
                    .at(dir.display())
            }
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                Error::new(ErrorKind::Denied, "the directory cannot be written").at(dir.display())
            }
            io::ErrorKind::NotFound => {
                Error::new(ErrorKind::NotFound, "cannot create the directory").at(dir.display())
            }
            _ => of_io(&err).at(dir.display()),
        };
        let dir = std::path::absolute(dir).map_err(wrong)?;
        fs::create_dir_all(&dir).map_err(wrong)?;
        // Permission bits do not show read-only mounts or root's rights: a file is written to find out.
        tempfile::tempfile_in(&dir).map_err(wrong)?;
        Ok(Self {
            dir,
            delivery,
            existing,
        })
    }

    /// Checks that a file can be delivered, before it is fetched.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] if the user has a file of this name that is not from the cache, or a link that does not
    /// lead into one.
    pub(super) fn check(&self, target: &TargetPath, cache: &FileCache) -> Result<()> {
        let path = self.path(target)?;
        let what = match there(&path)? {
            There::File(_) if cache.given_sha256(&path).is_none() => {
                "file that is not from the cache"
            }
            There::Link(to) if !leads_into_a_cache(&to) => "link that does not lead into a cache",
            There::Nothing | There::File(_) | There::Link(_) => return Ok(()),
        };
        if self.existing == Existing::Overwrite {
            return Ok(());
        }
        let message = format!("a {what} has this name; it is kept unless overwriting is asked for");
        Err(Error::new(ErrorKind::InvalidInput, message).at(path.display()))
    }

    fn path(&self, target: &TargetPath) -> Result<PathBuf> {
        let folder = self.dir.join(&target.folder);
        match fs::symlink_metadata(&folder) {
            Ok(meta) if !meta.is_dir() => Err(Error::new(
                ErrorKind::InvalidInput,
                "a file or link, expected the item's directory",
            )
            .at(folder.display())),
            _ => Ok(folder.join(&target.name)),
        }
    }

    /// Puts a file of the cache at its place. A reader finds what was there, or the whole new file.
    ///
    /// # Errors
    ///
    /// As [`Folder::check`]; [`ErrorKind::InvalidInput`] for a file that was changed since it was delivered;
    /// [`ErrorKind::Denied`], [`ErrorKind::Unavailable`] for the directory.
    pub(super) fn deliver(
        &self,
        target: &TargetPath,
        cache: &FileCache,
        file: &CachedFile,
    ) -> Result<PathBuf> {
        self.check(target, cache)?;
        let path = self.path(target)?;
        let folder = self.dir.join(&target.folder);
        let made = match fs::create_dir(&folder) {
            Ok(()) => true,
            Err(err) if err.kind() == io::ErrorKind::AlreadyExists => false,
            Err(err) => return Err(of_io(&err).at(path.display())),
        };
        let placed = match self.delivery {
            Delivery::File => self.place_file(target, cache, file, &path),
            Delivery::Link => self.place_link(target, cache, file, &path),
        };
        // Two assets may be one file, and another call may have put it there meanwhile.
        let is_there = |bytes| is_copy_of(&path, bytes, file).unwrap_or(false);
        if placed.is_err() && matches!(there(&path), Ok(There::File(bytes)) if is_there(bytes)) {
            return Ok(path);
        }
        if placed.is_err() && made {
            // Only an empty directory is removed: another task may have put a file there.
            let _ = fs::remove_dir(&folder);
        }
        placed?;
        Ok(path)
    }

    /// Checks that a file of the user may be replaced: it is as it was delivered.
    fn may_replace(&self, cache: &FileCache, path: &Path) -> Result<()> {
        if self.existing == Existing::Overwrite {
            return Ok(());
        }
        let now = sha256_of(path).map_err(|err| of_io(&err).at(path.display()))?;
        if cache.given_sha256(path) == Some(now) {
            return Ok(());
        }
        let message = "this file was changed since it was made from the cache, and differs from what is there now; it is \
                       kept unless overwriting is asked for";
        Err(Error::new(ErrorKind::InvalidInput, message).at(path.display()))
    }

    fn place_file(
        &self,
        target: &TargetPath,
        cache: &FileCache,
        file: &CachedFile,
        path: &Path,
    ) -> Result<()> {
        let wrong = |err: io::Error| of_io(&err).at(path.display());
        let there = there(path)?;
        if let There::File(bytes) = there {
            if is_copy_of(path, bytes, file).map_err(wrong)? {
                return cache.give(file, GivenAs::File, path);
            }
            self.may_replace(cache, path)?;
        }
        let folder = path.parent().unwrap_or(&self.dir);
        let prefix = format!(".{}.", marked("new", &target.name));
        remove_abandoned(folder, &prefix);
        let mut builder = ordinary_file();
        let builder = builder.prefix(&prefix).suffix(".part");
        // Locked while it is written, so that the next call can tell what a killed one left.
        let new = builder.tempfile_in(folder).map_err(wrong)?;
        let _ = new.as_file().try_lock();
        cache.give(file, GivenAs::File, path)?;
        if reflink(&file.path, new.as_file()) {
            finish(&new, file).map_err(wrong)?;
            return put(new, path, &there).map_err(wrong);
        }
        // A second name of the file in the cache, put beside the place first where something is replaced.
        let beside = match there {
            There::Nothing => path.to_owned(),
            There::Link(_) | There::File(_) => new.path().with_extension("link.part"),
        };
        if cache.hard_link(file, &beside).map_err(wrong)? {
            if beside != path {
                fs::rename(&beside, path).map_err(wrong)?;
            }
            sync_folder(folder);
            return Ok(());
        }
        let mut from = File::open(&file.path).map_err(wrong)?;
        io::copy(&mut from, &mut new.as_file()).map_err(wrong)?;
        finish(&new, file).map_err(wrong)?;
        put(new, path, &there).map_err(wrong)
    }

    fn place_link(
        &self,
        target: &TargetPath,
        cache: &FileCache,
        file: &CachedFile,
        path: &Path,
    ) -> Result<()> {
        let wrong = |err: io::Error| match err.kind() {
            io::ErrorKind::AlreadyExists => {
                let message =
                    "a file that is not from the cache has this name; it is not overwritten";
                Error::new(ErrorKind::InvalidInput, message).at(path.display())
            }
            _ => of_io(&err).at(path.display()),
        };
        // Recorded first: from here on the file that it leads to is not evicted.
        cache.give(file, GivenAs::Link, path)?;
        match there(path)? {
            // `symlink` fails if the name exists meanwhile: a file of the user is never replaced.
            There::Nothing => return symlink(&file.path, path).map_err(wrong),
            There::Link(to) if to == file.path => return Ok(()),
            There::Link(_) => {}
            There::File(_) => self.may_replace(cache, path)?,
        }
        // A rename replaces what is there in one step: a reader always finds one of the two.
        let folder = path.parent().unwrap_or(&self.dir);
        let aside = folder.join(format!(".{}.link", marked("new", &target.name)));
        match fs::remove_file(&aside) {
            Err(err) if err.kind() != io::ErrorKind::NotFound => return Err(wrong(err)),
            _ => {}
        }
        symlink(&file.path, &aside).map_err(wrong)?;
        fs::rename(&aside, path).map_err(wrong)
    }
}

fn there(path: &Path) -> Result<There> {
    match fs::symlink_metadata(path) {
        Ok(meta) if meta.is_symlink() => {
            let to = fs::read_link(path).map_err(|err| of_io(&err).at(path.display()))?;
            Ok(There::Link(to))
        }
        Ok(meta) if meta.is_file() => Ok(There::File(meta.len())),
        Ok(_) => {
            let message = "a directory or device has the name of a file that is to be made";
            Err(Error::new(ErrorKind::InvalidInput, message).at(path.display()))
        }
        Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(There::Nothing),
        Err(err) => Err(of_io(&err).at(path.display())),
    }
}

/// Returns true if a link has the target of those that `get` makes: `entries/ab/<SHA-256>.tif` of this cache, or of another
/// one that was used before.
fn leads_into_a_cache(target: &Path) -> bool {
    let is_key = |stem: &str| stem.len() == 64 && stem.bytes().all(|byte| byte.is_ascii_hexdigit());
    let stem = target.file_stem().and_then(|stem| stem.to_str());
    let folder = target.ancestors().nth(2).and_then(Path::file_name);
    target.is_absolute()
        && stem.is_some_and(is_key)
        && folder.is_some_and(|folder| folder == "entries")
}

/// Returns true if a file of the user is the one of the cache, or has its bytes. A copy has its mtime, too; without that the
/// checksum decides.
fn is_copy_of(path: &Path, bytes: u64, file: &CachedFile) -> io::Result<bool> {
    if bytes != file.bytes {
        return Ok(false);
    }
    let own = File::open(path)?;
    let modified = own.metadata()?.modified()?;
    Ok(is_same(&own, &file.path)
        || fs::metadata(&file.path)?.modified()? == modified
        || sha256_of(path)? == file.sha256)
}

fn sha256_of(path: &Path) -> io::Result<String> {
    let mut digests = Digests::for_checksum(None);
    read_all(path, |bytes| digests.update(bytes))?;
    Ok(digests.finish().sha256)
}

/// Reads a file in pieces.
pub(super) fn read_all(path: &Path, mut piece: impl FnMut(&[u8])) -> io::Result<()> {
    let mut file = File::open(path)?;
    let mut buffer = vec![0; 1 << 20];
    loop {
        let got = file.read(&mut buffer)?;
        match buffer.get(..got) {
            None | Some([]) => return Ok(()),
            Some(bytes) => piece(bytes),
        }
    }
}

/// Shares the blocks of a file with another, if the file system can. Either is copied where it is written.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn reflink(from: &Path, to: &File) -> bool {
    File::open(from).is_ok_and(|from| rustix::fs::ioctl_ficlone(to, &from).is_ok())
}

/// Other systems share blocks in a copy, where they can.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn reflink(_: &Path, _: &File) -> bool {
    false
}

/// Gives a new file the mtime of the one in the cache, and has it on the disk.
fn finish(new: &NamedTempFile, file: &CachedFile) -> io::Result<()> {
    let length = new.as_file().metadata()?.len();
    if length != file.bytes {
        return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
    }
    let modified = fs::metadata(&file.path)?.modified()?;
    new.as_file().set_modified(modified)?;
    new.as_file().sync_all()
}

/// Gives a finished file its name.
fn put(new: NamedTempFile, path: &Path, there: &There) -> io::Result<()> {
    let put = match there {
        There::Nothing => new.persist_noclobber(path),
        There::Link(_) | There::File(_) => new.persist(path),
    };
    put.map_err(|err| err.error)?;
    if let Some(folder) = path.parent() {
        sync_folder(folder);
    }
    Ok(())
}

/// Removes what a killed call left of a file: its lock ended with the call.
fn remove_abandoned(folder: &Path, prefix: &str) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        if name.starts_with(prefix)
            && name.ends_with(".part")
            && File::open(entry.path()).is_ok_and(|file| file.try_lock().is_ok())
        {
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[cfg(unix)]
fn symlink(file: &Path, link: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(file, link)
}

/// Symbolic links need a privilege on Windows: a hard link, else a copy.
#[cfg(not(unix))]
fn symlink(file: &Path, link: &Path) -> io::Result<()> {
    fs::hard_link(file, link).or_else(|_| fs::copy(file, link).map(|_| ()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_is_a_file_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("f");
        fs::write(&file, "").unwrap();
        for path in [file.clone(), file.join("below")] {
            let err = Folder::open(&path, Delivery::File, Existing::Keep).unwrap_err();
            assert_eq!(err.kind(), ErrorKind::InvalidInput, "{err}");
            assert!(err.to_string().contains("expected a directory"), "{err}");
        }
    }
}
