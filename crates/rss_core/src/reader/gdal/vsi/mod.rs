//! `/vsirss/`: paths that GDAL reads through this library's stores.
//!
//! GDAL's own network file systems do not share a session's connections and limits, and their settings
//! belong to the process. Below this prefix a path names a session and one of its registered files,
//! `/vsirss/1/s3/bucket/key.tif`, so two sessions share no state.
//!
//! Only registered files exist, and directories have no listing. Side-car files that GDAL probes for by name
//! (`.aux.xml`, `.ovr`, `.msk`) are not found, without a request, unless the user's GDAL options say that GDAL is to look
//! for them: then those beside a registered file exist too.

mod file;
mod plugin;

use std::{
    collections::BTreeMap,
    ffi::CStr,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::{Duration, Instant},
};

use sha2::{Digest, Sha256};
use url::Url;

pub(super) use self::file::Failures;
use self::file::VsiObject;
pub(super) use self::plugin::install;
use crate::{
    error::{Error, ErrorKind, Result},
    location::Location,
    session::{Session, WeakSession},
    store::hex,
};

/// The prefix of the file system. Static, because GDAL keeps the pointer.
const PREFIX: &CStr = c"/vsirss/";

/// How long the result of a `stat` serves the next open: GDAL calls both, one after the other.
const ANSWER_LIFE: Duration = Duration::from_secs(10);

/// The registered files of this process. Global, because GDAL's callbacks get a path and nothing else.
static TABLE: Mutex<Handles> = Mutex::new(Handles {
    last: 0,
    mounts: BTreeMap::new(),
});

struct Handles {
    /// The last number given to a session.
    last: u64,
    mounts: BTreeMap<u64, Mount>,
}

/// The files of one session. It does not keep the session alive: an open file does.
struct Mount {
    session: WeakSession,
    entries: BTreeMap<String, Arc<SharedFile>>,
}

/// The endings of side-car files that GDAL adds to a file's name.
const SIDE_FILES: [&str; 3] = [".aux.xml", ".ovr", ".msk"];

/// Returns true if the user's options have GDAL look for side-car files: by default it does not.
fn looks_for_side_files(session: &Session) -> bool {
    let mut options = session.settings().gdal_options.iter().rev();
    let chosen =
        options.find(|(name, _)| name.eq_ignore_ascii_case("GDAL_DISABLE_READDIR_ON_OPEN"));
    chosen.is_some_and(|(_, value)| !value.eq_ignore_ascii_case("EMPTY_DIR"))
}

/// Returns true if GDAL is to probe for the side-car files of a path below the prefix.
fn has_side_files(name: &str) -> bool {
    let id = name
        .trim_start_matches('/')
        .split('/')
        .next()
        .and_then(|id| id.parse().ok());
    let session = id.and_then(|id: u64| table().mounts.get(&id)?.session.upgrade());
    session.is_some_and(|session| looks_for_side_files(&session))
}

impl Mount {
    /// Registers a side-car file of a registered file, where GDAL is to look for it.
    fn side_file(&mut self, name: &str, session: &Session) -> Option<Arc<SharedFile>> {
        let (of, ending) = SIDE_FILES
            .iter()
            .find_map(|ending| Some((name.strip_suffix(ending)?, *ending)))?;
        let main = self
            .entries
            .get(of)
            .filter(|_| looks_for_side_files(session))?;
        let file = Arc::new(SharedFile {
            location: main.location.with_ending(ending),
            owner: main.owner,
            known: Mutex::default(),
            failures: Arc::clone(&main.failures),
        });
        self.entries.insert(name.to_owned(), Arc::clone(&file));
        Some(file)
    }
}

/// Registers a file, and returns a path for GDAL that is valid while the session lives. Costs no request.
/// A local file keeps its own path.
pub(super) fn hand_out(session: &Session, location: &Location) -> String {
    if location.as_local().is_some() {
        return location.to_vsi();
    }
    let name = name(location);
    let id = add(session, &name, location, Owner::Anyone);
    path(id, &name)
}

/// Registers a path for one reader, all of whose datasets read the same version of the file.
pub(super) fn lend(session: &Session, location: &Location, reader: u64) -> Loan {
    let name = format!("reader-{reader}/{}", location.file_name());
    let failures = Arc::default();
    let id = add_with(
        session,
        &name,
        location,
        Owner::Reader,
        Arc::clone(&failures),
    );
    Loan { id, name, failures }
}

/// A path that is valid until this is dropped.
#[derive(Debug)]
pub(super) struct Loan {
    id: u64,
    name: String,
    failures: Arc<Failures>,
}

impl Loan {
    pub(super) fn path(&self) -> String {
        path(self.id, &self.name)
    }

    /// Returns the failed reads of the file and of its side-car files.
    pub(super) fn failures(&self) -> Arc<Failures> {
        Arc::clone(&self.failures)
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        if let Some(mount) = table().mounts.get_mut(&self.id) {
            // Its side-car files, too.
            mount
                .entries
                .retain(|name, _| !name.starts_with(&self.name));
        }
    }
}

/// Clears the cached bytes of a session's files.
pub(super) fn forget(session: &Session) {
    let entries: Vec<Arc<SharedFile>> = table()
        .mounts
        .values()
        .filter(|mount| mount.session.is(session))
        .flat_map(|mount| mount.entries.values().cloned())
        .collect();
    for entry in entries {
        entry.forget();
    }
}

/// Finds a file by its path below the prefix; none if it is not registered.
///
/// # Errors
///
/// [`ErrorKind::InvalidInput`] if the session of the path was dropped.
fn find(name: &str) -> Result<Option<(Session, Arc<SharedFile>)>> {
    let parts = name
        .split_once('/')
        .and_then(|(id, rest)| Some((id.parse::<u64>().ok()?, rest)));
    let Some((id, rest)) = parts else {
        return Ok(None);
    };
    let gone = || {
        Error::new(
            ErrorKind::InvalidInput,
            format!("the session of /vsirss/{id}/ was dropped: keep it while its paths are in use"),
        )
    };
    let mut table = table();
    let last = table.last;
    let Some(mount) = table.mounts.get_mut(&id) else {
        // Numbers are never reused, so a number up to the last one was a session's.
        return match (1..=last).contains(&id) {
            true => Err(gone()),
            false => Ok(None),
        };
    };
    let session = mount.session.upgrade().ok_or_else(gone)?;
    let known = mount.entries.get(rest).cloned();
    let entry = known.or_else(|| mount.side_file(rest, &session));
    drop(table);
    Ok(entry.map(|entry| (session, entry)))
}

/// Adds a file to the session's mount, and returns the mount's number.
fn add(session: &Session, name: &str, location: &Location, owner: Owner) -> u64 {
    add_with(session, name, location, owner, Arc::default())
}

fn add_with(
    session: &Session,
    name: &str,
    location: &Location,
    owner: Owner,
    failures: Arc<Failures>,
) -> u64 {
    install();
    let mut table = table();
    table.mounts.retain(|_, mount| mount.session.is_there());
    let known = table
        .mounts
        .iter()
        .find_map(|(&id, mount)| mount.session.is(session).then_some(id));
    let id = known.unwrap_or(table.last + 1);
    table.last = table.last.max(id);
    let mount = table.mounts.entry(id).or_insert_with(|| Mount {
        session: session.downgrade(),
        entries: BTreeMap::new(),
    });
    mount.entries.entry(name.to_owned()).or_insert_with(|| {
        Arc::new(SharedFile {
            location: location.clone(),
            owner,
            known: Mutex::default(),
            failures,
        })
    });
    id
}

fn table() -> MutexGuard<'static, Handles> {
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn path(id: u64, name: &str) -> String {
    format!("{}{id}/{name}", PREFIX.to_string_lossy())
}

/// Returns the name of a location in a mount. Parts of a URL that may be secret are left out; a hash of
/// the URL keeps two apart that differ only in those.
fn name(location: &Location) -> String {
    match location {
        Location::S3 { bucket, key } => format!("s3/{bucket}/{key}"),
        Location::Gcs { bucket, key } => format!("gs/{bucket}/{key}"),
        Location::Azure { container, key } => format!("az/{container}/{key}"),
        Location::Local(path) => path.to_string_lossy().into_owned(),
        Location::Http(url) => {
            let plain = location.to_string();
            let rest = plain.split_once("://").map_or(&*plain, |(_, rest)| rest);
            match is_plain(url) {
                true => format!("{}/{rest}", url.scheme()),
                false => {
                    let hash = hex(&Sha256::digest(url.as_str()));
                    let short = hash.get(..16).unwrap_or(&hash);
                    format!("{}-{short}/{rest}", url.scheme())
                }
            }
        }
    }
}

fn is_plain(url: &Url) -> bool {
    url.query().is_none()
        && url.fragment().is_none()
        && url.username().is_empty()
        && url.password().is_none()
}

/// The owner of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    /// Code of the user: handles that are open at the same time read the same version of the file; a later
    /// open gets the version of that time.
    Anyone,
    /// One reader: the version of its first open, as long as the reader lives.
    Reader,
}

/// A registered file.
#[derive(Debug)]
struct SharedFile {
    location: Location,
    owner: Owner,
    known: Mutex<Known>,
    failures: Arc<Failures>,
}

/// The state of a registered file.
#[derive(Debug, Default)]
struct Known {
    /// The object, while a handle has it open.
    shared: Weak<VsiObject>,
    /// The object, retained without a handle: for its reader, or for the next open.
    kept: Option<(Arc<VsiObject>, Instant)>,
    /// When it was last not found.
    missed: Option<Instant>,
}

impl SharedFile {
    /// Returns the object, fetching its first bytes if it is not open.
    fn open(&self, session: &Session) -> Result<Arc<VsiObject>> {
        let mut known = self.known();
        let file = self.current(&mut known, session)?;
        if self.owner == Owner::Anyone {
            known.kept = None;
        }
        Ok(file)
    }

    /// Returns the file's size, none if it does not exist. The next open costs no request then, and after
    /// an open that found no file this costs no request: GDAL calls them in both orders.
    fn size(&self, session: &Session) -> Result<Option<u64>> {
        let mut known = self.known();
        let missed = known.missed;
        if missed.is_some_and(|since| since.elapsed() <= ANSWER_LIFE) {
            return Ok(None);
        }
        match self.current(&mut known, session) {
            Ok(file) => Ok(Some(file.size())),
            Err(err) if err.kind() == ErrorKind::NotFound => Ok(None),
            Err(err) => Err(err),
        }
    }

    /// The caller holds the lock during the request, so that two threads that open at once send one.
    fn current(&self, known: &mut Known, session: &Session) -> Result<Arc<VsiObject>> {
        if self.owner == Owner::Anyone {
            known
                .kept
                .take_if(|(_, since)| since.elapsed() > ANSWER_LIFE);
        }
        // After a failed read the object may have been replaced: a new open reads the new version. A
        // reader's datasets must not mix two versions, so they keep the first one.
        let is_usable = |file: &Arc<VsiObject>| self.owner == Owner::Reader || !file.has_failed();
        if let Some(file) = known.shared.upgrade().filter(is_usable) {
            return Ok(file);
        }
        let opened = VsiObject::open(session, &self.location, &self.failures);
        let is_missing = matches!(&opened, Err(err) if err.kind() == ErrorKind::NotFound);
        known.missed = is_missing.then(Instant::now);
        let file = Arc::new(opened?);
        known.shared = Arc::downgrade(&file);
        known.kept = Some((Arc::clone(&file), Instant::now()));
        Ok(file)
    }

    fn forget(&self) {
        let mut known = self.known();
        if let Some(file) = known.shared.upgrade() {
            file.forget();
        }
        if self.owner == Owner::Anyone {
            known.kept = None;
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn location(text: &str) -> Location {
        Location::parse(text).unwrap()
    }

    #[test]
    fn a_path_reads_back_and_holds_no_secret() {
        let session = Session::builder().build().unwrap();
        for href in [
            "s3://b/k/x.tif",
            "gs://b/k/x.tif",
            "az://c/k/x.tif",
            "https://h:8080/a%20b/x.tif",
        ] {
            let path = hand_out(&session, &location(href));
            assert_eq!(Location::parse(&path).unwrap(), location(href), "{path}");
        }
        let one = hand_out(&session, &location("https://u:pw@h/x.tif?sig=SECRET"));
        let other = hand_out(&session, &location("https://h/x.tif?sig=OTHER"));
        assert!(one.ends_with("/h/x.tif") && other.ends_with("/h/x.tif"));
        assert_ne!(one, other);
        assert!(!one.contains("SECRET") && !one.contains("pw"), "{one}");
        assert!(Location::parse(&one).is_err());
    }

    #[test]
    fn only_what_was_handed_out_is_there() {
        let session = Session::builder().build().unwrap();
        let path = hand_out(&session, &location("s3://b/x.tif"));
        assert_eq!(hand_out(&session, &location("s3://b/x.tif")), path);
        let name = path.strip_prefix("/vsirss/").unwrap().to_owned();
        assert!(find(&name).unwrap().is_some());
        for other in [
            format!("{name}.aux.xml"),
            "0/s3/b/x.tif".to_owned(),
            "18446744073709551615/s3/b/x.tif".to_owned(),
            "s3/b/x.tif".to_owned(),
            String::new(),
        ] {
            assert!(find(&other).unwrap().is_none(), "{other}");
        }
        drop(session);
        let err = find(&name).unwrap_err();
        assert_eq!(err.kind(), ErrorKind::InvalidInput);
        assert!(err.message().contains("was dropped"), "{err}");
    }

    #[test]
    fn a_loan_ends() {
        let session = Session::builder().build().unwrap();
        let loan = lend(&session, &location("s3://b/x.tif"), 7);
        let path = loan.path();
        let name = path.strip_prefix("/vsirss/").unwrap();
        assert!(name.ends_with("/reader-7/x.tif"), "{name}");
        assert!(find(name).unwrap().is_some());
        drop(loan);
        assert!(find(name).unwrap().is_none());
    }
}
