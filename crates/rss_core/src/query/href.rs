//! Resolution of relative hrefs.

use std::path::{Component, Path, PathBuf};

use serde_json::Value;
use stac::Item;
use url::Url;

use super::QueryResult;
use crate::{
    error::{ErrorKind, Result},
    location::Location,
    stac::Skipped,
};

/// The location of a document, against which its hrefs are resolved.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Base {
    Url(Url),
    File(PathBuf),
    /// Unknown: relative hrefs are not resolved.
    Unknown,
}

impl Base {
    /// Resolves an href of a document at this location.
    pub(super) fn resolve(&self, href: &str) -> String {
        // Text before a colon is a scheme, also a GDAL prefix: `file:`, `GTIFF_DIR:`.
        let scheme = href.split(['/', '?', '#']).next().unwrap_or_default();
        if scheme.contains(':') || href.starts_with("/vsi") {
            return href.to_owned();
        }
        match self {
            Self::Url(url) => match url.join(href) {
                Ok(url) => url.into(),
                Err(_) => href.to_owned(),
            },
            Self::File(path) => {
                let folder = path.parent().unwrap_or(Path::new(""));
                normal(&folder.join(href)).to_string_lossy().into_owned()
            }
            Self::Unknown => href.to_owned(),
        }
    }

    /// Returns the base of an item in a document at this location: its `self` link, else the document. An item of a
    /// local file stays at the file, whatever its link states.
    fn of_item(&self, item: &Item) -> Self {
        let own = item
            .links
            .iter()
            .find(|link| link.rel == "self")
            .and_then(|link| Url::parse(link.href.as_str()).ok())
            .filter(|url| matches!(url.scheme(), "http" | "https" | "s3" | "gs" | "az"));
        match (own, self) {
            (Some(url), Self::Url(_)) => Self::Url(url),
            _ => self.clone(),
        }
    }
}

/// Removes `.` and `x/..` from a path, without accessing the file system.
fn normal(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir
                if matches!(out.components().next_back(), Some(Component::Normal(_))) =>
            {
                out.pop();
            }
            part => out.push(part),
        }
    }
    out
}

/// Makes the hrefs of an item's assets absolute, including alternates.
pub(super) fn make_absolute(item: &mut Item, base: &Base) {
    let base = base.of_item(item);
    for asset in item.assets.values_mut() {
        asset.href = base.resolve(&asset.href);
        let alternates = asset
            .additional_fields
            .get_mut("alternate")
            .and_then(Value::as_object_mut);
        for alternate in alternates.into_iter().flat_map(|all| all.values_mut()) {
            if let Some(Value::String(href)) = alternate.get_mut("href") {
                *href = base.resolve(href);
            }
        }
    }
}

/// Removes the assets and alternates whose hrefs are denied, and returns the assets as skipped. What is no location at all
/// stays: it is an error where it is used.
pub(super) fn keep_allowed(
    item: &mut Item,
    parse: impl Fn(&str) -> Result<Location>,
) -> Vec<Skipped> {
    let refusal = |href: &str| {
        let parsed = parse(href).err();
        parsed.filter(|err| err.kind() == ErrorKind::Denied)
    };
    let mut skipped = Vec::new();
    let id = item.id.clone();
    item.assets.retain(|key, asset| {
        let alternates = asset.additional_fields.get_mut("alternate");
        if let Some(alternates) = alternates.and_then(Value::as_object_mut) {
            alternates.retain(|_, alternate| {
                let href = alternate.get("href").and_then(Value::as_str);
                href.is_none_or(|href| refusal(href).is_none())
            });
        }
        match refusal(&asset.href) {
            None => true,
            Some(err) => {
                skipped.push(Skipped {
                    item: id.clone(),
                    asset: Some(key.clone()),
                    reason: err.message().to_owned(),
                });
                false
            }
        }
    });
    skipped
}

impl QueryResult {
    /// Removes the assets whose hrefs their catalogue may not name (a local file, a private host), and lists them in the
    /// report's `skipped`: what is printed or written of these items is read later without knowing whose they are.
    #[must_use]
    pub fn without_refused(mut self) -> Self {
        let trust = self.trust;
        self.retain(|href| Location::parse_from(href, trust));
        self
    }

    /// Removes the assets that items of a file or a pipe may not name, whoever made them: files of this machine of which
    /// `is_own` is not true, link-local hosts, virtual rasters elsewhere. They are listed in the report's `skipped`.
    #[must_use]
    pub fn as_handed_over(mut self, is_own: impl Fn(&Path) -> bool) -> Self {
        self.retain(|href| Location::parse_handed_over(href, &is_own));
        self
    }

    fn retain(&mut self, parse: impl Fn(&str) -> Result<Location>) {
        for item in &mut self.items.items {
            self.report.skipped.extend(keep_allowed(item, &parse));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn hrefs_are_resolved_against_their_document() {
        let web = Base::Url("https://h/a/b/item.json?sig=1".parse().unwrap());
        let bucket = Base::Url("s3://bucket/a/b/item.json".parse().unwrap());
        let file = Base::File(PathBuf::from("/d/a/b/item.json"));
        for (href, on_web, in_bucket, on_disk) in [
            (
                "./x.tif",
                "https://h/a/b/x.tif",
                "s3://bucket/a/b/x.tif",
                "/d/a/b/x.tif",
            ),
            (
                "../x.tif",
                "https://h/a/x.tif",
                "s3://bucket/a/x.tif",
                "/d/a/x.tif",
            ),
            ("/x.tif", "https://h/x.tif", "s3://bucket/x.tif", "/x.tif"),
            (
                "s3://o/x.tif",
                "s3://o/x.tif",
                "s3://o/x.tif",
                "s3://o/x.tif",
            ),
            (
                "/vsis3/o/x.tif",
                "/vsis3/o/x.tif",
                "/vsis3/o/x.tif",
                "/vsis3/o/x.tif",
            ),
            ("file:/x.tif", "file:/x.tif", "file:/x.tif", "file:/x.tif"),
        ] {
            assert_eq!(web.resolve(href), on_web);
            assert_eq!(bucket.resolve(href), in_bucket);
            assert_eq!(file.resolve(href), on_disk);
        }
    }

    #[test]
    fn an_items_own_address_comes_before_its_pages() {
        let mut item = Item::new("x");
        item.links
            .push(stac::Link::self_("s3://bucket/a/item.json"));
        item.assets
            .insert("red".to_owned(), stac::Asset::new("red.tif"));
        make_absolute(&mut item, &Base::Url("https://h/search".parse().unwrap()));
        assert_eq!(item.assets["red"].href, "s3://bucket/a/red.tif");
    }

    proptest! {
        #[test]
        fn resolving_twice_changes_nothing(href in "\\PC{0,20}") {
            let base = Base::Url("https://h/a/b/item.json".parse().unwrap());
            let once = base.resolve(&href);
            prop_assert_eq!(base.resolve(&once), once.clone());
        }
    }
}
