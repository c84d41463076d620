//! The selection of an item's assets: those named by the user, those of the manifest, or all that look like rasters
//! of measurements.

use stac::{Asset, Item};

use super::bands::split;

/// A selection of an item's assets, by their keys. A name may be of one band of an asset: `key:2` or `key:red`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Selection {
    /// Those the user named: one that an item lacks is reported.
    Named(Vec<String>),
    /// Those of the manifest; some items lack some of them.
    Default(Vec<String>),
    /// All that look like rasters of measurements.
    Guess,
}

impl Selection {
    /// Returns the selection of keys; without keys it is a guess.
    pub(crate) fn of_keys(keys: &[String]) -> Self {
        match keys {
            [] => Self::Guess,
            keys => Self::Named(keys.to_vec()),
        }
    }

    /// Returns the keys that are known without an item.
    pub(crate) fn keys(&self) -> &[String] {
        match self {
            Self::Named(keys) | Self::Default(keys) => keys,
            Self::Guess => &[],
        }
    }

    /// Returns the selected assets of an item, with their keys, each once; a named one that it lacks has no
    /// asset.
    pub(crate) fn of<'a>(&'a self, item: &'a Item) -> Vec<(&'a str, Option<&'a Asset>)> {
        let mut found: Vec<(&str, Option<&Asset>)> = Vec::new();
        for Choice { key, asset, .. } in self.choices(item) {
            if found.iter().all(|(known, _)| *known != key) {
                found.push((key, asset));
            }
        }
        found
    }

    /// Returns the selected assets of an item, and bands of assets; a named one that it lacks has no asset.
    pub(crate) fn choices<'a>(&'a self, item: &'a Item) -> Vec<Choice<'a>> {
        let asked = |name: &'a String| {
            let (key, band) = split(item, name);
            Choice {
                name,
                key,
                band,
                asset: item.assets.get(key),
            }
        };
        match self {
            Self::Named(names) => names.iter().map(asked).collect(),
            Self::Default(names) => names
                .iter()
                .map(asked)
                .filter(|choice| choice.asset.is_some())
                .collect(),
            Self::Guess => guess(item)
                .into_iter()
                .map(|(key, asset)| Choice {
                    name: key,
                    key,
                    band: None,
                    asset,
                })
                .collect(),
        }
    }
}

/// A selected asset of an item, or a band of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Choice<'a> {
    /// As it was selected: `key`, or `key:band`.
    pub(crate) name: &'a str,
    /// The asset's key.
    pub(crate) key: &'a str,
    /// The band, by its number or a name; none for all.
    pub(crate) band: Option<&'a str>,
    /// None if the item has no such asset.
    pub(crate) asset: Option<&'a Asset>,
}

/// Returns the assets that look like measurements; if some have the role `data`, only those.
fn guess(item: &Item) -> Vec<(&str, Option<&Asset>)> {
    let mut found: Vec<(&str, &Asset)> = item
        .assets
        .iter()
        .map(|(key, asset)| (key.as_str(), asset))
        .filter(|(key, asset)| is_data(key, asset))
        .collect();
    if found.iter().any(|(_, asset)| has_role(asset, "data")) {
        found.retain(|(_, asset)| has_role(asset, "data"));
    }
    found
        .into_iter()
        .map(|(key, asset)| (key, Some(asset)))
        .collect()
}

/// Returns the assets that look like measurements and are not selected, as they have no role and others have `data`.
pub(crate) fn without_role(item: &Item) -> Vec<&str> {
    let chosen = guess(item);
    let is_left = |key: &str, asset: &Asset| {
        asset.roles.is_empty()
            && is_data(key, asset)
            && chosen.iter().all(|(known, _)| *known != key)
    };
    let all = item.assets.iter();
    all.filter(|(key, asset)| is_left(key, asset))
        .map(|(key, _)| key.as_str())
        .collect()
}

/// Says why no asset of these items is selected, where nothing was: rasters are there, and are left out as masks, classes
/// or pictures. None where an item has an asset that looks like measurements.
pub(crate) fn nothing_guessed(items: &[Item]) -> Option<String> {
    if items.iter().any(|item| !guess(item).is_empty()) {
        return None;
    }
    let mut left: Vec<&str> = Vec::new();
    for (key, asset) in items.iter().flat_map(|item| &item.assets) {
        if is_raster(asset) && !left.contains(&key.as_str()) {
            left.push(key);
        }
    }
    let no_data = "no bands are named, and no asset of the items looks like measurements";
    Some(match left.as_slice() {
        [] => format!("{no_data}: expected an asset with the role data, or a TIFF"),
        left => {
            let named: Vec<String> = left
                .iter()
                .map(|key| key.escape_debug().to_string())
                .collect();
            let named = named.join(", ");
            format!(
                "{no_data}: {named} are left out as masks, classes or pictures; name the bands to take them"
            )
        }
    })
}

fn has_role(asset: &Asset, role: &str) -> bool {
    asset.roles.iter().any(|one| one == role)
}

fn is_data(key: &str, asset: &Asset) -> bool {
    const NOT_DATA: [&str; 14] = [
        "thumbnail",
        "overview",
        "visual",
        "metadata",
        "tiles",
        "cloud",
        "cloud-shadow",
        "snow-ice",
        "water-mask",
        "land-water",
        "data-mask",
        "saturation",
        "quality-mask",
        "mask",
    ];
    const NOT_DATA_KEYS: [&str; 8] = [
        "qa",
        "fmask",
        "mask",
        "scl",
        "thumbnail",
        "overview",
        "preview",
        "visual",
    ];
    if NOT_DATA.iter().any(|role| has_role(asset, role)) {
        return false;
    }
    let key = key.to_lowercase();
    let parts = || key.split(['_', '-', '.', ':']);
    if NOT_DATA_KEYS
        .iter()
        .any(|word| parts().any(|part| part == *word))
    {
        return false;
    }
    has_role(asset, "data") || is_raster(asset)
}

/// Returns true if an asset is a TIFF or a JPEG 2000 by its media type, or by its name where it has none.
fn is_raster(asset: &Asset) -> bool {
    let kind = asset.r#type.as_deref().unwrap_or_default().to_lowercase();
    let path = asset.href.split(['?', '#']).next().unwrap_or_default();
    let ending = path.rsplit('.').next().unwrap_or_default().to_lowercase();
    kind.contains("tiff")
        || kind.contains("jp2")
        || kind.is_empty() && matches!(ending.as_str(), "tif" | "tiff" | "jp2")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn guessed(assets: Value) -> Vec<String> {
        let item: Item = serde_json::from_value(json!({
            "type": "Feature", "stac_version": "1.0.0", "id": "x", "geometry": null,
            "properties": { "datetime": null }, "links": [], "assets": assets,
        }))
        .unwrap();
        let found = Selection::Guess.of(&item);
        found.into_iter().map(|(key, _)| key.to_owned()).collect()
    }

    #[test]
    fn without_names_rasters_of_measurements_are_meant() {
        let keys = guessed(json!({
            "red": { "href": "a/red.tif", "type": "image/tiff; application=geotiff" },
            "nir": { "href": "a/nir.TIF?sig=1" },
            "swir": { "href": "swir", "type": "image/tiff" },
            "oa_fmask": { "href": "a/fmask.tif" },
            "qa_pixel": { "href": "a/qa.tif", "type": "image/tiff" },
            "shadow": { "href": "a/s.tif", "roles": ["data", "cloud-shadow"] },
            "thumbnail": { "href": "a/t.tif" },
            "doc": { "href": "a/doc.json" },
        }));
        assert_eq!(keys, ["red", "nir", "swir"]);
    }

    #[test]
    fn rasters_that_are_left_out_are_named_where_there_is_nothing_else() {
        let item = |assets: Value| -> Item {
            serde_json::from_value(json!({
                "type": "Feature", "stac_version": "1.0.0", "id": "x", "geometry": null,
                "properties": { "datetime": null }, "links": [], "assets": assets,
            }))
            .unwrap()
        };
        let pictures = item(json!({
            "scl": { "href": "scl.tif" }, "visual": { "href": "v.tif", "roles": ["visual"] },
            "doc": { "href": "doc.json" },
        }));
        let why = nothing_guessed(std::slice::from_ref(&pictures)).unwrap();
        assert_eq!(
            why,
            "no bands are named, and no asset of the items looks like measurements: scl, visual are left out as masks, \
             classes or pictures; name the bands to take them"
        );
        let nothing = nothing_guessed(&[item(json!({}))]).unwrap();
        assert!(
            nothing.ends_with("expected an asset with the role data, or a TIFF"),
            "{nothing}"
        );
        let data = item(json!({ "red": { "href": "r.tif" } }));
        assert_eq!(nothing_guessed(&[pictures, data]), None);
    }

    #[test]
    fn where_some_are_said_to_be_data_only_those_are_meant() {
        let keys = guessed(json!({
            "red": { "href": "r", "roles": ["data"] },
            "thumbnail": { "href": "t.tif", "roles": ["thumbnail"] },
            "odd": { "href": "o.tif" },
        }));
        assert_eq!(keys, ["red"]);
        let item: Item = serde_json::from_value(json!({
            "type": "Feature", "stac_version": "1.0.0", "id": "x", "geometry": null,
            "properties": { "datetime": null }, "links": [],
            "assets": {
                "red": { "href": "r", "roles": ["data"] },
                "odd": { "href": "o.tif" },
                "doc": { "href": "o.json" },
            },
        }))
        .unwrap();
        assert_eq!(without_role(&item), ["odd"]);
    }
}
