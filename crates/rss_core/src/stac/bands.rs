//! The bands of an asset with several: their names by the catalogue, and the choice of one of them.
//!
//! A selection names an asset by its key, or one band of it as `key:2` (counted from 1, as GDAL counts) or `key:red`.
//! Keys may have colons themselves: the key of an asset always comes before a band of another.

use serde_json::Value;
use stac::{Asset, Item};

use crate::error::{Error, ErrorKind, Result};

/// The names that a catalogue gives to one band of an asset.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct BandNames {
    /// The common name, such as `red`.
    pub(crate) common: Option<String>,
    /// The provider's name, such as `B04`.
    pub(crate) name: Option<String>,
    pub(crate) description: Option<String>,
}

impl BandNames {
    pub(crate) fn all(&self) -> impl Iterator<Item = &str> {
        let names = [&self.name, &self.common, &self.description];
        names.into_iter().flatten().map(String::as_str)
    }

    fn is_empty(&self) -> bool {
        self.all().next().is_none()
    }

    fn or(self, other: Self) -> Self {
        Self {
            common: self.common.or(other.common),
            name: self.name.or(other.name),
            description: self.description.or(other.description),
        }
    }
}

/// Returns the bands that an asset states, in the order of its file: `bands` of STAC 1.1, `eo:bands` and
/// `raster:bands`, merged. Empty if it states none.
pub(crate) fn band_names(item: &Item, asset: &Asset) -> Vec<BandNames> {
    let of_1_1 = asset.bands.iter().map(|band| BandNames {
        name: band.name.clone(),
        common: text(&band.additional_fields, "eo:common_name"),
        description: band.description.clone(),
    });
    let mut found: Vec<BandNames> = of_1_1.collect();
    for field in ["eo:bands", "raster:bands"] {
        let list = asset.additional_fields.get(field).and_then(Value::as_array);
        for (index, band) in list.into_iter().flatten().enumerate() {
            // Before STAC 0.9 an asset had the indices of the item's bands.
            let of_item = || {
                let all = item.properties.additional_fields.get(field)?.as_array()?;
                all.get(usize::try_from(band.as_u64()?).ok()?)?.as_object()
            };
            let names = match band.as_object().or_else(of_item) {
                Some(band) => BandNames {
                    name: text(band, "name"),
                    common: text(band, "common_name").or_else(|| text(band, "eo:common_name")),
                    description: text(band, "description"),
                },
                None => BandNames::default(),
            };
            match found.get_mut(index) {
                Some(known) => *known = std::mem::take(known).or(names),
                None => found.push(names),
            }
        }
    }
    found
}

fn text(map: &serde_json::Map<String, Value>, name: &str) -> Option<String> {
    let text = map.get(name)?.as_str()?.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// Returns the key of the asset that a selection names, and the band of it; the whole name if the item has no such
/// asset.
pub(crate) fn split<'a>(item: &Item, name: &'a str) -> (&'a str, Option<&'a str>) {
    if item.assets.contains_key(name) {
        return (name, None);
    }
    let parts = name.rmatch_indices(':').filter_map(|(at, _)| {
        let (key, band) = (name.get(..at)?, name.get(at + 1..)?);
        (!band.is_empty() && item.assets.contains_key(key)).then_some((key, Some(band)))
    });
    let mut parts = parts;
    parts.next().unwrap_or((name, None))
}

/// Returns the labels of the bands of a file with several: what follows the asset's key in the names of its bands. The
/// first of these that names all bands, each by another name: common names, the provider's names, the catalogue's
/// descriptions, those of the file; else their numbers, counted from 1. Bands that the catalogue does not list, such as
/// alpha, have their numbers.
pub(crate) fn labels(stated: &[BandNames], of_file: &[Option<String>]) -> Vec<String> {
    let numbers = (1..=of_file.len()).map(|number| number.to_string());
    let of = |pick: fn(&BandNames) -> &Option<String>| -> Vec<Option<&str>> {
        stated.iter().map(|names| pick(names).as_deref()).collect()
    };
    // A list of more bands than the file has is not a list of its bands.
    let fits = !stated.is_empty() && stated.len() <= of_file.len();
    let mut tiers = Vec::new();
    if fits {
        tiers.push(of(|names| &names.common));
        tiers.push(of(|names| &names.name));
        tiers.push(of(|names| &names.description));
    }
    tiers.push(of_file.iter().map(Option::as_deref).collect());
    let chosen = tiers.into_iter().find(|tier| names_all(tier));
    let chosen = chosen.unwrap_or_default();
    numbers
        .enumerate()
        .map(|(index, number)| match chosen.get(index) {
            Some(Some(name)) => (*name).to_owned(),
            _ => number,
        })
        .collect()
}

/// Returns true if each of the names is there, plain, no number, and of no other.
fn names_all(names: &[Option<&str>]) -> bool {
    // Numbers are positions. Other characters would end a name in a list or a formula.
    let is_plain = |name: &str| {
        name.chars()
            .all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c))
            && !name.chars().all(|c| c.is_ascii_digit())
    };
    !names.is_empty()
        && names.iter().enumerate().all(|(index, name)| {
            let Some(name) = name else { return false };
            let same =
                |other: &Option<&str>| other.is_some_and(|other| other.eq_ignore_ascii_case(name));
            is_plain(name) && !names[..index].iter().any(same)
        })
}

/// Returns the band that a choice names, counted from 1: a number, or a name that the catalogue gives; none if that has
/// no such name.
///
/// # Errors
///
/// [`ErrorKind::InvalidInput`] if several bands have the name, or the number is 0.
pub(crate) fn number_of(choice: &str, stated: &[BandNames]) -> Result<Option<usize>> {
    if choice.chars().all(|c| c.is_ascii_digit()) {
        return match choice.parse::<usize>() {
            Ok(number) if number > 0 => Ok(Some(number)),
            _ => Err(invalid(format!(
                "band `{choice}`: bands are counted from 1"
            ))),
        };
    }
    let tiers: [fn(&BandNames, &str) -> bool; 4] = [
        |names, choice| names.name.as_deref() == Some(choice),
        |names, choice| names.common.as_deref() == Some(choice),
        |names, choice| names.description.as_deref() == Some(choice),
        |names, choice| names.all().any(|name| name.eq_ignore_ascii_case(choice)),
    ];
    for has in tiers {
        let mut holders = stated
            .iter()
            .enumerate()
            .filter(|(_, names)| has(names, choice));
        if let Some((index, _)) = holders.next() {
            return match holders.next() {
                None => Ok(Some(index + 1)),
                Some(_) => Err(invalid(format!(
                    "several bands are named `{choice}`: choose one by its number"
                ))),
            };
        }
    }
    Ok(None)
}

/// Returns the band of a file that a choice names, counted from 1, by the file's own descriptions.
///
/// # Errors
///
/// [`ErrorKind::InvalidInput`] naming the bands that there are.
pub(crate) fn number_in_file(choice: &str, of_file: &[Option<String>]) -> Result<usize> {
    let described = of_file.iter().map(|description| BandNames {
        description: description.clone(),
        ..BandNames::default()
    });
    let described: Vec<BandNames> = described.collect();
    number_of(choice, &described)?.ok_or_else(|| {
        let known = labels(&[], of_file).join(", ");
        invalid(format!("band `{choice}` is not one of {known}"))
    })
}

/// Returns true if the catalogue names any of the bands.
pub(crate) fn are_named(stated: &[BandNames]) -> bool {
    stated.iter().any(|names| !names.is_empty())
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidInput, message)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn item(assets: Value) -> Item {
        serde_json::from_value(json!({
            "type": "Feature", "stac_version": "1.0.0", "id": "x", "geometry": null, "links": [], "assets": assets,
            "properties": { "datetime": null, "eo:bands": [{"name": "B1"}, {"name": "B2"}] },
        }))
        .unwrap()
    }

    fn labelled(asset: Value, of_file: &[Option<&str>]) -> Vec<String> {
        let item = item(json!({ "a": asset }));
        let stated = band_names(&item, &item.assets["a"]);
        let of_file: Vec<_> = of_file.iter().map(|text| text.map(str::to_owned)).collect();
        labels(&stated, &of_file)
    }

    #[test]
    fn bands_are_labelled_by_the_first_names_that_tell_them_apart() {
        let none = [None; 3];
        for (asset, of_file, expected) in [
            (json!({"href": "a"}), none, ["1", "2", "3"]),
            (
                json!({"href": "a", "eo:bands": [{"name": "B04", "common_name": "red"},
                    {"name": "B03", "common_name": "green"}, {"name": "B02", "common_name": "blue"}]}),
                none,
                ["red", "green", "blue"],
            ),
            (
                json!({"href": "a", "eo:bands": [{"name": "B5", "common_name": "swir22"},
                    {"name": "B6", "common_name": "swir22"}, {"name": "B7"}]}),
                none,
                ["B5", "B6", "B7"],
            ),
            // The catalogue lists no alpha band.
            (
                json!({"href": "a", "bands": [{"name": "vv"}, {"name": "vh"}]}),
                none,
                ["vv", "vh", "3"],
            ),
            (
                json!({"href": "a", "bands": [{"eo:common_name": "red"}, {"eo:common_name": "nir"},
                    {"eo:common_name": "blue"}], "raster:bands": [{"nodata": 0}, {}, {}]}),
                none,
                ["red", "nir", "blue"],
            ),
            // More bands than the file has; names that are numbers, or not names.
            (
                json!({"href": "a", "eo:bands": [{"name": "a"}, {"name": "b"}, {"name": "c"}, {"name": "d"}]}),
                [Some("x"), Some("y"), Some("z")],
                ["x", "y", "z"],
            ),
            (
                json!({"href": "a", "eo:bands": [{"name": "3"}, {"name": "2"}, {"name": "1"}]}),
                [Some("band 1, of three"), None, None],
                ["1", "2", "3"],
            ),
        ] {
            assert_eq!(labelled(asset, &of_file), expected);
        }
        assert_eq!(
            labelled(json!({"href": "a", "eo:bands": [1, 0]}), &[None, None]),
            ["B2", "B1"]
        );
    }

    #[test]
    fn a_band_is_chosen_by_number_or_any_of_its_names() {
        let item = item(json!({
            "image": {"href": "a", "eo:bands": [{"name": "Red", "common_name": "red"},
                {"name": "NIR", "common_name": "nir", "description": "near-infrared"}, {"name": "nir2"},
                {"name": "x", "common_name": "swir"}, {"name": "y", "common_name": "swir"}]},
            "a:b": {"href": "a"}, "a": {"href": "a"},
        }));
        let stated = band_names(&item, &item.assets["image"]);
        for (choice, expected) in [
            ("2", Some(2)),
            ("64", Some(64)),
            ("nir", Some(2)),
            ("NIR", Some(2)),
            ("near-infrared", Some(2)),
            ("RED", Some(1)),
            ("blue", None),
        ] {
            assert_eq!(number_of(choice, &stated).unwrap(), expected, "{choice}");
        }
        assert!(number_of("0", &stated).is_err());
        let err = number_of("swir", &stated).unwrap_err();
        assert!(err.to_string().contains("several bands"), "{err}");
        for (name, expected) in [
            ("image", ("image", None)),
            ("image:2", ("image", Some("2"))),
            ("a:b", ("a:b", None)),
            ("a:b:1", ("a:b", Some("1"))),
            ("a:c", ("a", Some("c"))),
            ("absent:1", ("absent:1", None)),
            ("a:", ("a:", None)),
        ] {
            assert_eq!(split(&item, name), expected, "{name}");
        }
        let of_file = [Some("vv".to_owned()), None, Some("VH".to_owned())];
        assert_eq!(number_in_file("vh", &of_file).unwrap(), 3);
        let err = number_in_file("hh", &of_file).unwrap_err();
        assert_eq!(err.to_string(), "band `hh` is not one of 1, 2, 3");
    }
}
