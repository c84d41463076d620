//! The access that an item states for its files: region, requester pays, signature.
//!
//! Every read of a catalogue's file registers it with the session's stores first.

use ::stac::{Asset, Item};
use url::Url;

use super::Registry;
use crate::{
    location::{Location, Trust},
    products::{Access, Sas, sas_of},
    stac,
};

impl Registry {
    /// Records who named a location: what a catalogue on the network names must not lead into a private network, whatever
    /// its name resolves to.
    pub(crate) fn named_by(&self, named: &Location, trust: Trust) {
        if matches!(trust, Trust::Network | Trust::PlainNetwork)
            && let Location::Http(url) = named
            && let Some(host) = url.host_str()
        {
            self.network().named_by_others(host);
        }
    }

    /// Registers the access of an item's file, and returns its location: bucket and key, where the URL is
    /// one of S3. A region that was set before stays. The tokens are those of `sas`, else of the service
    /// that the item's links name.
    pub(crate) fn reach(
        &self,
        item: &Item,
        asset: &Asset,
        named: Location,
        trust: Trust,
        sas: Option<&Sas>,
    ) -> Location {
        self.named_by(&named, trust);
        let address = named.as_s3();
        let location = match &address {
            Some(s3) => Location::S3 {
                bucket: s3.bucket.clone(),
                key: s3.key.clone(),
            },
            None => named,
        };
        if let Some(elsewhere) = self.elsewhere(item, asset, &location, trust) {
            self.named_by(&elsewhere, trust);
            return elsewhere;
        }
        let stated = stated(item, asset);
        let mut access = self.access(&location);
        if access.region.is_none() {
            access.region = address.and_then(|s3| s3.region).or(stated.region);
        }
        access.requester_pays |= stated.requester_pays;
        if matches!(location, Location::S3 { .. }) && access != self.access(&location) {
            self.set_access(&location, access);
        }
        let mut links = item.links.iter();
        let linked = || links.find_map(|link| sas_of(&link.href.to_string()));
        if let Some(sas) = sas.cloned().or_else(linked) {
            self.sign_with(&location, &sas);
        }
        location
    }
}

impl Registry {
    /// Returns the URL of an object of a bucket that an item says is on another server than Amazon's. It is read without
    /// credentials, as any URL of an item: keys go where the user says, and where the user says anything of the bucket
    /// that holds, and not the item's word.
    fn elsewhere(
        &self,
        item: &Item,
        asset: &Asset,
        location: &Location,
        trust: Trust,
    ) -> Option<Location> {
        let Location::S3 { bucket, key } = location else {
            return None;
        };
        let platform = stac::storage_platform(item, asset).filter(|_| !self.is_placed(location))?;
        let region = stac::storage_region(item, asset).filter(|region| is_region(region));
        let in_template = platform.contains("{bucket}");
        let platform = platform
            .replace("{bucket}", bucket)
            .replace("{region}", region.as_deref().unwrap_or_default());
        let mut url = Url::parse(&platform).ok()?;
        if !matches!(url.scheme(), "http" | "https") {
            return None;
        }
        let parts = key.split('/');
        let parts = (!in_template)
            .then_some(bucket.as_str())
            .into_iter()
            .chain(parts);
        url.path_segments_mut().ok()?.pop_if_empty().extend(parts);
        Location::parse_from(url.as_str(), trust).ok()
    }
}

/// Returns the access that an item states for an asset's bucket.
fn stated(item: &Item, asset: &Asset) -> Access {
    Access {
        region: stac::storage_region(item, asset).filter(|region| is_region(region)),
        requester_pays: stac::requester_pays(item, asset),
        ..Access::default()
    }
}

/// Returns true for text that may be part of a host name, as a region is: an item must not choose another
/// host by it.
fn is_region(text: &str) -> bool {
    (1..=40).contains(&text.len())
        && text
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn item(properties: Value, assets: Value) -> Item {
        serde_json::from_value(json!({
            "type": "Feature", "stac_version": "1.0.0", "id": "x", "geometry": null,
            "properties": properties, "links": [], "assets": assets,
        }))
        .unwrap()
    }

    #[test]
    fn a_bucket_of_another_server_is_read_there_without_keys_unless_the_user_says_where_it_is() {
        let of = |platform: &str| {
            item(
                json!({"datetime": "2020-01-01T00:00:00Z", "storage:schemes": {
                    "own": {"type": "custom-s3", "platform": platform, "region": "r1"}}}),
                json!({"a": {"href": "s3://b/k/x y.tif", "storage:refs": ["own"]}}),
            )
        };
        let reached = |session: &crate::Session, item: &Item, trust: Trust| {
            let asset = &item.assets["a"];
            let named = Location::parse_from(&asset.href, trust).unwrap();
            let reached = session.stores().reach(item, asset, named, trust, None);
            reached.to_string()
        };
        let build = |builder: crate::SessionBuilder| builder.build().unwrap();
        // Keys of the session are for Amazon.
        let keys = || {
            crate::Session::builder()
                .store_option("aws_access_key_id", "id")
                .store_option("aws_secret_access_key", "secret")
        };
        let session = build(keys());
        for (platform, url) in [
            (
                "https://s3.example.org",
                "https://s3.example.org/b/k/x%20y.tif",
            ),
            (
                "https://s3.example.org/api/",
                "https://s3.example.org/api/b/k/x%20y.tif",
            ),
            (
                "https://{bucket}.{region}.example.org",
                "https://b.r1.example.org/k/x%20y.tif",
            ),
            // No URL, and hosts that a catalogue on the network may not name.
            ("CREODIAS", "s3://b/k/x y.tif"),
            ("https://10.0.0.1/", "s3://b/k/x y.tif"),
            ("file:///etc", "s3://b/k/x y.tif"),
        ] {
            assert_eq!(
                reached(&session, &of(platform), Trust::Network),
                url,
                "{platform}"
            );
        }
        let item = of("https://s3.example.org");
        for session in [
            build(keys().s3_endpoint("https://other.example.org")),
            build(keys().bucket_option("s3://b", "aws_endpoint", "https://other.example.org")),
        ] {
            assert_eq!(reached(&session, &item, Trust::Network), "s3://b/k/x y.tif");
        }
    }

    #[test]
    fn the_storage_extension_is_read_in_both_versions() {
        let date = "2020-01-01T00:00:00Z";
        for (properties, asset) in [
            (
                json!({"datetime": date}),
                json!({"href": "s3://b/k", "storage:requester_pays": true, "storage:region": "us-west-2"}),
            ),
            (
                json!({"datetime": date, "storage:requester_pays": true, "storage:region": "us-west-2"}),
                json!({"href": "s3://b/k"}),
            ),
            (
                json!({"datetime": date, "storage:schemes": {
                    "aws": {"type": "aws-s3", "region": "us-west-2", "requester_pays": true}}}),
                json!({"href": "s3://b/k", "storage:refs": ["aws"]}),
            ),
        ] {
            let item = item(properties, json!({"a": asset}));
            let stated = stated(&item, &item.assets["a"]);
            assert_eq!(stated.region.as_deref(), Some("us-west-2"), "{item:?}");
            assert!(stated.requester_pays, "{item:?}");
        }
        let odd = item(
            json!({"datetime": date, "storage:requester_pays": true}),
            json!({"a": {"href": "s3://b/k", "storage:requester_pays": false,
                         "storage:region": "x.evil.example/"}}),
        );
        assert_eq!(stated(&odd, &odd.assets["a"]), Access::default());
    }
}
