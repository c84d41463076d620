//! The plan of a gather: its requests and bytes, computed without IO.

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

/// The requests and bytes of a gather without retries.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Plan {
    /// Files, one for each request of the caller.
    pub files: u64,
    /// Stored tiles, of files with an entry.
    pub tiles: u64,
    /// Sparse tiles of these files, which cost no request.
    pub sparse_tiles: u64,
    /// Requests: exact for files with an entry; of the others two for each remote file (header and tile), none for
    /// a local one.
    pub requests: u64,
    /// Bytes of the responses: exact for files with an entry; for each remote one of the others those of a header
    /// and of the median tile of files with an entry.
    pub bytes: u64,
    /// Files without an entry: their requests and bytes are estimates.
    pub guessed: u64,
    /// The same by host; local files are under `local`.
    pub hosts: BTreeMap<String, HostPlan>,
    /// Requests that will fail, by index, with the reason: a tile that does not exist, an invalid entry.
    pub refused: Vec<(usize, Error)>,
}

/// The planned traffic of one host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HostPlan {
    /// Requests.
    pub requests: u64,
    /// Bytes of the responses.
    pub bytes: u64,
}

impl Plan {
    /// Returns the cost by a cost model, over the hosts that it lists; none if it lists none of them.
    pub fn cost(&self, prices: &CostModel) -> Option<Cost> {
        let costs = self
            .hosts
            .iter()
            .filter_map(|(host, plan)| prices.cost(host, plan.requests, plan.bytes));
        costs.reduce(|one, other| one + other)
    }
}

/// Plans a gather of these requests. Costs no request.
///
/// An entry of an index holds the byte ranges of all tiles, so its plan is exact. Of a bare location only the size
/// of the header request is known.
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
/// [`InvalidInput`](crate::ErrorKind::InvalidInput) for an invalid option.
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

/// Returns the plan of a read if it can be computed without a request.
async fn known(
    session: &Session,
    request: &Request,
    options: &Options,
) -> Result<Option<ReadPlan>> {
    let File::Entry(entry) = &request.file else {
        return Ok(None);
    };
    // GDAL cannot use an entry: it reads the header itself.
    if options.backend == Backend::Gdal {
        return Ok(None);
    }
    let raster = reader::open(session, entry, Backend::Cog).await?;
    raster.plan(&request.resolve(raster.profile())?.0)
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

/// Returns the host that serves a file.
fn host(session: &Session, location: &Location) -> String {
    match session.stores().https(location) {
        Ok(Location::Http(url)) => url.host_str().unwrap_or_default().to_owned(),
        Ok(_) => "local".to_owned(),
        Err(_) => "unknown".to_owned(),
    }
}
