//! What a gather will ask for, before it asks for anything.

use std::collections::BTreeMap;

use super::{
    File, Options, Request,
    cost::{Cost, CostModel},
};
use crate::{
    error::{Error, Result},
    location::Location,
    reader::{self, Backend, ReadPlan},
    session::Session,
};

/// What a gather will ask for, had all gone well.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Plan {
    /// Files asked of.
    pub files: u64,
    /// Tiles that are stored, of the files that an entry tells of.
    pub tiles: u64,
    /// Tiles that are not stored and cost nothing, of these files.
    pub sparse_tiles: u64,
    /// Requests: exact for files with an entry, two for each of the others, whose header is not known.
    pub requests: u64,
    /// Bytes of the answers: exact for files with an entry; for each of the others a header's and the
    /// median of the tiles that are known, or nothing where none is.
    pub bytes: u64,
    /// Files without an entry: what is said of them is a guess.
    pub guessed: u64,
    /// The same by host; files of this machine are under `local`.
    pub hosts: BTreeMap<String, HostPlan>,
    /// Requests that will fail, with the reason: a tile that does not exist, an entry that makes no sense.
    pub refused: Vec<(usize, Error)>,
}

/// What one host will be asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HostPlan {
    /// Requests.
    pub requests: u64,
    /// Bytes of the answers.
    pub bytes: u64,
}

impl Plan {
    /// Returns what it costs by a table of prices, over the hosts that the table names; none if it names
    /// none of them.
    pub fn cost(&self, prices: &CostModel) -> Option<Cost> {
        let costs = self
            .hosts
            .iter()
            .filter_map(|(host, plan)| prices.cost(host, plan.requests, plan.bytes));
        costs.reduce(|one, other| one + other)
    }
}

/// Says what a gather of these requests will ask for. Asks for nothing.
///
/// Entries of an index say exactly which bytes are needed. Of a bare location only the size of the first
/// request is known.
///
/// ```
/// use rss_core::{Location, Session, gather};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> rss_core::Result<()> {
/// let session = Session::builder().build()?;
/// let requests = [gather::Request::new(Location::parse("s3://bucket/a.tif")?)];
/// let plan = gather::explain(&session, &requests, &gather::Options::new()).await?;
/// assert_eq!((plan.requests, plan.guessed), (2, 1));
/// assert!(plan.hosts.contains_key("bucket.s3.us-east-1.amazonaws.com"));
/// assert!(plan.cost(&gather::CostModel::default()).is_some());
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// [`InvalidInput`](crate::ErrorKind::InvalidInput) for an option that makes no sense.
pub async fn explain(session: &Session, requests: &[Request], options: &Options) -> Result<Plan> {
    options.check()?;
    let mut plan = Plan::default();
    let mut unknown: Vec<&Location> = Vec::new();
    let mut tile_bytes = Vec::new();
    for (number, request) in requests.iter().enumerate() {
        plan.files += 1;
        let location = request.file.location();
        match known(session, request, options).await {
            Ok(Some(read)) => {
                plan.tiles += read.tiles;
                plan.sparse_tiles += read.sparse_tiles;
                if read.tiles > 0 {
                    tile_bytes.push(read.bytes);
                }
                plan.add(session, location, read.requests, read.bytes);
            }
            Ok(None) => unknown.push(location),
            Err(err) => plan.refused.push((number, err.at(location))),
        }
    }
    tile_bytes.sort_unstable();
    let likely = tile_bytes.get(tile_bytes.len() / 2).copied().unwrap_or(0);
    plan.guessed = unknown.len() as u64;
    for location in unknown {
        match location.as_local() {
            Some(_) => plan.add(session, location, 0, 0),
            None => {
                let header = session.header_bytes(location);
                plan.add(session, location, 2, header + likely);
            }
        }
    }
    Ok(plan)
}

/// Returns what is known of a read without asking for anything.
async fn known(
    session: &Session,
    request: &Request,
    options: &Options,
) -> Result<Option<ReadPlan>> {
    let File::Entry(entry) = &request.file else {
        return Ok(None);
    };
    // GDAL makes no use of an entry.
    if options.backend == Backend::Gdal {
        return Ok(None);
    }
    let raster = reader::open(session, entry, Backend::Cog).await?;
    raster.plan(&request.resolve(raster.profile())?)
}

impl Plan {
    fn add(&mut self, session: &Session, location: &Location, requests: u64, bytes: u64) {
        self.requests += requests;
        self.bytes += bytes;
        let host = self.hosts.entry(host(session, location)).or_default();
        host.requests += requests;
        host.bytes += bytes;
    }
}

/// Returns the host that is asked for a file.
fn host(session: &Session, location: &Location) -> String {
    match session.stores().https(location) {
        Ok(Location::Http(url)) => url.host_str().unwrap_or_default().to_owned(),
        Ok(_) => "local".to_owned(),
        Err(_) => "unknown".to_owned(),
    }
}
