//! `/vsirss/`: paths that GDAL reads through this library's stores.
//!
//! GDAL's own network file systems know nothing of a session: they have other connections, other
//! limits, and settings that belong to the process. Below this prefix a path names a session and one
//! of the files that it handed out, `/vsirss/1/s3/bucket/key.tif`, so two sessions never meet.
//!
//! Only what was handed out is there. Side-car files that GDAL looks for by name (`.aux.xml`, `.ovr`,
//! `.msk`) are "not there" without a request, and there is nothing to list.

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

use self::file::VsiObject;
pub(super) use self::plugin::install;
use crate::{
    error::{Error, ErrorKind, Result},
    location::Location,
    session::{Session, WeakSession},
    store::hex,
};

/// Where the file system is. GDAL keeps the pointer.
const PREFIX: &CStr = c"/vsirss/";

/// How long what was learned by a question about a file serves the next open.
const ANSWER_LIFE: Duration = Duration::from_secs(10);

/// What is handed out in this process: GDAL calls us with a path and nothing else.
static TABLE: Mutex<Handles> = Mutex::new(Handles {
    last: 0,
    mounts: BTreeMap::new(),
});

struct Handles {
    /// The number of the last session that came here.
    last: u64,
    mounts: BTreeMap<u64, Mount>,
}

/// What one session handed out. It does not keep the session: an open file does.
struct Mount {
    session: WeakSession,
    entries: BTreeMap<String, Arc<SharedFile>>,
}

/// Returns a path for GDAL that is good, and remembered, while the session lives. Costs no request. A
/// local file's is its own.
pub(super) fn hand_out(session: &Session, location: &Location) -> String {
    if location.as_local().is_some() {
        return location.to_vsi();
    }
    let name = name(location);
    let id = add(session, &name, location, Owner::Anyone);
    path(id, &name)
}

/// Makes a path for one reader, all of whose datasets read the same version of the file.
pub(super) fn lend(session: &Session, location: &Location, reader: u64) -> Loan {
    let name = format!("reader-{reader}/{}", location.file_name());
    let id = add(session, &name, location, Owner::Reader);
    Loan { id, name }
}

/// A path that is good until this is dropped.
#[derive(Debug)]
pub(super) struct Loan {
    id: u64,
    name: String,
}

impl Loan {
    pub(super) fn path(&self) -> String {
        path(self.id, &self.name)
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        if let Some(mount) = table().mounts.get_mut(&self.id) {
            mount.entries.remove(&self.name);
        }
    }
}

/// Forgets the bytes that are kept of a session's files.
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

/// Finds a file by its path below the prefix; none is a file that was not handed out.
///
/// # Errors
///
/// [`ErrorKind::InvalidInput`] if the session of the path is gone.
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
            format!("the session of /vsirss/{id}/ is gone: keep it while its paths are in use"),
        )
    };
    let table = table();
    let Some(mount) = table.mounts.get(&id) else {
        return match (1..=table.last).contains(&id) {
            true => Err(gone()),
            false => Ok(None),
        };
    };
    let entry = mount.entries.get(rest).cloned();
    let session = mount.session.upgrade().ok_or_else(gone)?;
    drop(table);
    Ok(entry.map(|entry| (session, entry)))
}

/// Enters a file into the session's mount, whose number comes back.
fn add(session: &Session, name: &str, location: &Location, owner: Owner) -> u64 {
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

/// Returns the name of a location in a mount. What may be secret in a URL is not part of it: two
/// that differ in that alone are told apart by a hash.
fn name(location: &Location) -> String {
    match location {
        Location::S3 { bucket, key } => format!("s3/{bucket}/{key}"),
        Location::Gcs { bucket, key } => format!("gs/{bucket}/{key}"),
        Location::Azure { container, key } => format!("az/{container}/{key}"),
        Location::Local(path) => path.to_string_lossy().into_owned(),
        Location::Http(url) => {
            let plain = location.to_string();
            let place = plain.split_once("://").map_or(&*plain, |(_, place)| place);
            match is_plain(url) {
                true => format!("{}/{place}", url.scheme()),
                false => {
                    let hash = hex(&Sha256::digest(url.as_str()));
                    let short = hash.get(..16).unwrap_or(&hash);
                    format!("{}-{short}/{place}", url.scheme())
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

/// Whose a path is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    /// Handed out: what is open at the same time is the same version of the file; an open after that
    /// sees the file as it is then.
    Anyone,
    /// One reader's: the file is what it was at first, as long as the reader lives.
    Reader,
}

/// A file that was handed out.
#[derive(Debug)]
struct SharedFile {
    location: Location,
    owner: Owner,
    known: Mutex<Known>,
}

/// What is known of a file.
#[derive(Debug, Default)]
struct Known {
    /// The file while anyone has it open.
    shared: Weak<VsiObject>,
    /// The file while nobody has, for its reader or for the next to open it.
    kept: Option<(Arc<VsiObject>, Instant)>,
    /// When it was not there.
    missed: Option<Instant>,
}

impl SharedFile {
    /// Returns the file, asking for its first bytes if they are not known.
    fn open(&self, session: &Session) -> Result<Arc<VsiObject>> {
        let mut known = self.known();
        let file = self.current(&mut known, session)?;
        if self.owner == Owner::Anyone {
            known.kept = None;
        }
        Ok(file)
    }

    /// Returns the file's size, none if it is not there. The next open costs nothing then, and after
    /// an open that found no file this costs nothing: GDAL asks in both orders.
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

    /// The lock is held while the network is waited for, so that two who open at once ask once.
    fn current(&self, known: &mut Known, session: &Session) -> Result<Arc<VsiObject>> {
        if self.owner == Owner::Anyone {
            known
                .kept
                .take_if(|(_, since)| since.elapsed() > ANSWER_LIFE);
        }
        let is_usable = |file: &Arc<VsiObject>| self.owner == Owner::Reader || !file.has_failed();
        if let Some(file) = known.shared.upgrade().filter(is_usable) {
            return Ok(file);
        }
        let opened = VsiObject::open(session, &self.location);
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
        assert!(err.message().contains("is gone"), "{err}");
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
