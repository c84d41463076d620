//! The origin of items: which hrefs it may name, and which service signs them.

use url::Url;

use crate::{
    location::{Trust, is_private},
    products::{Sas, Source},
};

/// The origin of items.
#[derive(Clone, Debug)]
pub struct Origin {
    pub(crate) trust: Trust,
    /// The token service that signs their files; none takes the one that an item's links name.
    pub(super) sas: Option<Sas>,
}

impl Default for Origin {
    fn default() -> Self {
        Self::new(Trust::User)
    }
}

impl Origin {
    /// Returns an origin of this trust. Items that link to a built-in source are signed as that source
    /// requires.
    pub fn new(trust: Trust) -> Self {
        Self { trust, sas: None }
    }

    /// Returns the origin of items that a source returned.
    pub fn of(source: &Source) -> Self {
        let url = Url::parse(source.url()).ok();
        let sas = source.dialect().sas.clone().map(|sas| match &url {
            // A mirror on this machine or network issues its own tokens.
            Some(url) if is_private(url) => Sas {
                token_url: moved(&sas.token_url, url),
                ..sas
            },
            _ => sas,
        });
        Self {
            trust: url.as_ref().map_or(Trust::Network, Trust::of_catalogue),
            sas,
        }
    }
}

/// Returns `template` with the origin of `url`. Not through [`Url`], which would escape the braces.
fn moved(template: &str, url: &Url) -> String {
    let path = template
        .split_once("://")
        .and_then(|(_, rest)| rest.split_once('/'))
        .map_or("", |(_, path)| path);
    format!("{}/{path}", url.origin().ascii_serialization())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::products::PLANETARY_COMPUTER;

    #[test]
    fn a_mirror_lends_its_own_tokens() {
        let origin = Origin::of(&PLANETARY_COMPUTER);
        assert_eq!(origin.trust, Trust::Network);
        let mirror = Source::api("http://127.0.0.1:8080/stac")
            .unwrap()
            .like(&PLANETARY_COMPUTER);
        let origin = Origin::of(&mirror);
        assert_eq!(origin.trust, Trust::PrivateNetwork);
        assert_eq!(
            origin.sas.unwrap().token_url,
            "http://127.0.0.1:8080/api/sas/v1/token/{account}/{container}"
        );
    }
}
