//! Items whose hrefs are read in place: VSI paths, plain or presigned URLs.

use std::time::Duration;

use stac::ItemCollection;

use super::{Origin, select::choose};
use crate::{error::Result, location::Location, reader::gdal, session::Session, stac::Selection};

/// What the hrefs become.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum RemoteVariant {
    /// What GDAL opens: `/vsis3/`, `/vsigs/`, `/vsiaz/`, else `/vsicurl/`.
    #[default]
    Vsi,
    /// What GDAL opens in this process, through this session's stores: `/vsirss/`. One request opens
    /// a file, later ones ask for the same version of it, nothing is listed, and two sessions never
    /// meet. No path holds a secret. A path is good while a clone of the session lives, and an open
    /// dataset keeps it; files of this machine keep their own path. Feature `gdal`.
    Stores,
    /// Plain `https` URLs.
    Https,
    /// `https` URLs that carry a signature and need no credentials: no listing, no key in the
    /// client.
    Presigned {
        /// How long they are good; S3 allows seven days at most.
        expires: Duration,
    },
}

/// Returns the items with the chosen assets' hrefs made remote; other assets are left out.
///
/// Costs no request, but for tokens: one per container of the Planetary Computer.
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
    for chosen in choose(items, assets) {
        let Some(asset) = chosen.asset else {
            // One item may lack what the others have; no item having it is a wrong name.
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
        let location = chosen.locate(session, origin)?;
        let href = href_of(session, &location, variant).await?;
        if let Some(item) = found.items.get_mut(chosen.index) {
            let mut asset = asset.clone();
            asset.href = href;
            item.assets.insert(chosen.key, asset);
        }
    }
    Ok(found)
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
