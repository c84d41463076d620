//! Items with hrefs for remote reads: VSI paths, plain or presigned URLs.

use std::time::Duration;

use stac::ItemCollection;

use super::{Origin, select::choose};
use crate::{
    error::{ErrorKind, Result},
    location::Location,
    reader::gdal,
    session::Session,
    stac::Selection,
};

/// The form of the hrefs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum RemoteVariant {
    /// Paths of GDAL's virtual file systems: `/vsis3/`, `/vsigs/`, `/vsiaz/`, else `/vsicurl/`.
    #[default]
    Vsi,
    /// Paths for GDAL in this process that read through this session's stores: `/vsirss/`. One request
    /// opens a file, later ones are conditional requests for the same version, nothing is listed, and
    /// two sessions share no state. No path holds a secret. A path is valid while a clone of the session
    /// or an open dataset exists; files of this machine keep their own path. Feature `gdal`.
    Stores,
    /// Plain `https` URLs.
    Https,
    /// `https` URLs that carry a signature and need no credentials: no listing, no key in the
    /// client.
    Presigned {
        /// How long they are valid; S3 allows seven days at most.
        expires: Duration,
    },
}

/// Returns the items with hrefs for remote reads of the selected assets; other assets are left out, as are those whose hrefs
/// are of no scheme that is known, unless all are.
///
/// Costs no request, except for tokens: one per container of the Planetary Computer.
///
/// # Errors
///
/// [`ErrorKind::NotFound`](crate::ErrorKind::NotFound) for an asset that no item has;
/// [`ErrorKind::Denied`](crate::ErrorKind::Denied),
/// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) for an href that its catalogue may
/// not name; those of the token service.
pub(crate) async fn remote(
    session: &Session,
    origin: &Origin,
    items: &ItemCollection,
    assets: &Selection,
    variant: RemoteVariant,
) -> Result<ItemCollection> {
    let mut found = items.clone();
    for item in &mut found.items {
        item.assets.clear();
    }
    let mut refused = None;
    for chosen in choose(items, assets) {
        let Some(asset) = chosen.asset else {
            // An item may lack an asset that others have; if all lack it, the key is misspelt.
            if items
                .items
                .iter()
                .any(|item| item.assets.contains_key(&chosen.key))
            {
                continue;
            }
            chosen.locate(session, origin)?;
            continue;
        };
        let location = match chosen.locate(session, origin) {
            // What nothing here can read is no reason to keep the others back.
            Err(err) if err.kind() == ErrorKind::InvalidInput => {
                refused.get_or_insert(err);
                continue;
            }
            located => located?,
        };
        let href = href_of(session, &location, variant).await?;
        if let Some(item) = found.items.get_mut(chosen.index) {
            let mut asset = asset.clone();
            asset.href = href;
            item.assets.insert(chosen.key, asset);
        }
    }
    match refused {
        Some(err) if found.items.iter().all(|item| item.assets.is_empty()) => Err(err),
        _ => Ok(found),
    }
}

async fn href_of(session: &Session, location: &Location, variant: RemoteVariant) -> Result<String> {
    let stores = session.stores();
    let location = match variant {
        RemoteVariant::Stores => return gdal::hand_out(session, location),
        RemoteVariant::Vsi => stores.signed(location).await?,
        RemoteVariant::Https => stores.signed(&stores.https(location)?).await?,
        RemoteVariant::Presigned { expires } => stores.presigned(location, expires).await?,
    };
    gdal::configure_path(session, &location)?;
    Ok(match variant {
        RemoteVariant::Vsi | RemoteVariant::Stores => location.to_vsi(),
        RemoteVariant::Https | RemoteVariant::Presigned { .. } => location.to_href(),
    })
}
