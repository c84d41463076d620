//! The bands of a cube: of each selected asset all bands of its files, or the one that was chosen.
//!
//! The catalogue need not tell how many bands a file has, and may be wrong, so a file of each asset is opened where no
//! product of the library says that it has one. Its reader is kept: reading costs no further request for its header.

use std::{collections::BTreeMap, sync::Arc};

use ::stac::{Asset, Item};
use futures::{StreamExt, stream};
use tokio::sync::OnceCell;

use super::{axes::ImageCubeBand, source::described};
use crate::{
    error::{Error, ErrorKind, Result},
    location::Location,
    products::{Kind, Manifest},
    query::QueryResult,
    reader::{self, KnownHeaders, OpenOptions, Profile, RasterReader},
    session::Session,
    stac::{self, BandNames, Choice, are_named, band_names, labels, number_of},
};

/// The most distinct lists of bands that items of one asset state and that are looked at: usually there is one.
const LISTS: usize = 8;
/// The files that are tried for each list, where one cannot be opened.
const TRIES: usize = 2;

/// The reader of a file, opened when it is first needed and shared by all of its bands.
pub(super) type SharedReader = Arc<OnceCell<Arc<dyn RasterReader>>>;

/// The files of the items, by the item's index and the asset's key.
#[derive(Debug, Default)]
pub(super) struct Files(BTreeMap<(usize, String), SharedReader>);

impl Files {
    pub(super) fn of(&mut self, item: usize, key: &str) -> SharedReader {
        Arc::clone(self.0.entry((item, key.to_owned())).or_default())
    }
}

/// Returns the location of an asset's file, and how it is reached.
pub(super) fn location_of(found: &QueryResult, item: &Item, asset: &Asset) -> Result<Location> {
    let named = Location::parse_from(&asset.href, found.trust)?;
    let stores = found.session().stores();
    Ok(stores.reach(item, asset, named, found.trust, None))
}

/// Opens the files whose headers are known, without a request.
///
/// # Errors
///
/// [`ErrorKind::Corrupt`] if a header, or what holds them, is damaged.
pub(super) async fn open_known(
    session: &Session,
    headers: &Arc<dyn KnownHeaders>,
    files: Vec<(Location, SharedReader)>,
) -> Result<()> {
    let (locations, shared): (Vec<_>, Vec<_>) = files.into_iter().unzip();
    let headers = Arc::clone(headers);
    let finding = tokio::task::spawn_blocking(move || headers.find(&locations)).await;
    let found = finding.map_err(|_| {
        let message = "the search for headers panicked or was cancelled";
        Error::new(ErrorKind::Unavailable, message)
    })?;
    for (entry, shared) in found?.into_iter().zip(shared) {
        if let Some(entry) = entry {
            let open = || reader::open(session, &entry, OpenOptions::new());
            shared.get_or_try_init(open).await?;
        }
    }
    Ok(())
}

/// A band of a cube, and which band of an item's file it is.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    pub(super) band: ImageCubeBand,
    /// As it was selected: an asset's key, or `key:band`.
    pub(super) selected: String,
    which: Which,
}

#[derive(Clone, Debug)]
enum Which {
    /// The only band of the asset.
    Only,
    /// The one that was chosen, by number or name.
    Chosen(String),
    /// One of all bands of the asset.
    OneOf {
        label: String,
        /// Its number in the first file that has it, counted from 1.
        number: usize,
        /// True if the label is a name by the catalogue, not by the file.
        is_stated: bool,
        /// The most bands that a file of the asset has.
        count: usize,
    },
}

/// Which band of its file a source is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FileBand {
    /// By its number, counted from 1.
    Number(usize),
    /// By the file's own descriptions; if it has none, by the number if there is one.
    Named { name: String, or: Option<usize> },
}

impl Slot {
    /// Returns the name of the band in messages: the asset's key, with the band where it has several.
    pub(super) fn shown(&self) -> String {
        match &self.which {
            Which::Only => self.band.asset.clone(),
            Which::Chosen(_) => self.selected.clone(),
            Which::OneOf { label, .. } => format!("{}:{label}", self.band.asset),
        }
    }

    /// Returns the most bands that its files may have, where all of them are taken.
    pub(super) fn count(&self) -> Option<usize> {
        match self.which {
            Which::Only => Some(1),
            Which::Chosen(_) => None,
            Which::OneOf { count, .. } => Some(count),
        }
    }

    /// Returns which band of an item's file it is; none if the item names its bands, and none of them so.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] if several bands have the name.
    pub(super) fn of(&self, stated: &[BandNames]) -> Result<Option<FileBand>> {
        Ok(match &self.which {
            Which::Only => Some(FileBand::Number(1)),
            Which::Chosen(choice) => Some(of_choice(choice, stated)?),
            Which::OneOf { label, number, .. } if is_number(label) => {
                Some(FileBand::Number(*number))
            }
            Which::OneOf {
                label,
                number,
                is_stated,
                ..
            } => match (number_of(label, stated)?, is_stated) {
                (Some(here), true) => Some(FileBand::Number(here)),
                (None, true) if are_named(stated) => None,
                (None, true) => Some(FileBand::Number(*number)),
                (_, false) => Some(FileBand::Named {
                    name: label.clone(),
                    or: Some(*number),
                }),
            },
        })
    }
}

/// Returns which band of an item's file a choice is.
pub(crate) fn of_choice(choice: &str, stated: &[BandNames]) -> Result<FileBand> {
    Ok(match number_of(choice, stated)? {
        Some(number) => FileBand::Number(number),
        None => FileBand::Named {
            name: choice.to_owned(),
            or: None,
        },
    })
}

fn is_number(label: &str) -> bool {
    label.chars().all(|c| c.is_ascii_digit())
}

impl FileBand {
    /// Returns the band of an open file, counted from 1.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] if the file has no such band.
    pub(crate) fn in_file(&self, profile: &Profile) -> Result<usize> {
        let number = match self {
            Self::Number(number) => *number,
            Self::Named { name, or } => {
                let of_file = described(profile);
                match or {
                    Some(number) if of_file.iter().all(Option::is_none) => *number,
                    _ => in_file(name, profile, &of_file)?,
                }
            }
        };
        match number <= profile.count {
            true => Ok(number),
            false => Err(Error::new(
                ErrorKind::InvalidInput,
                format!("band {number} is not one of 1 to {}", profile.count),
            )),
        }
    }
}

/// Returns the band of a name in a file's descriptions, or else in its colours.
fn in_file(name: &str, profile: &Profile, of_file: &[Option<String>]) -> Result<usize> {
    stac::number_in_file(name, of_file).or_else(|err| {
        let colours = profile
            .bands
            .iter()
            .map(|band| Some(band.color.name().to_owned()));
        let colours: Vec<Option<String>> = colours.collect();
        stac::number_in_file(name, &colours).map_err(|_| err)
    })
}

/// A selected asset, or band of one, and the items that have the asset.
struct Wanted<'a> {
    choice: Choice<'a>,
    /// Its canonical name.
    canonical: Option<String>,
    /// Whether its samples are classes or flags.
    is_class: bool,
    /// True if a product of the library says that the asset is one band.
    is_known: bool,
    /// The lists of bands that the items state, each with the first items that state it.
    lists: Vec<(Vec<BandNames>, Vec<usize>)>,
}

/// Returns the bands of a cube: the selected assets of all items, with all bands of their files, and the selected bands
/// of assets. `used` are the items whose files are read. Opens a file of each asset of unknown content.
///
/// # Errors
///
/// [`ErrorKind::InvalidInput`] if no item has any of the selected bands, or a name is ambiguous.
pub(super) async fn slots_of(
    found: &QueryResult,
    manifests: &[Option<&Manifest>],
    is_builtin: bool,
    used: &[usize],
    files: &mut Files,
) -> Result<Vec<Slot>> {
    let items = &found.items().items;
    let mut wanted: Vec<Wanted<'_>> = Vec::new();
    for (index, (item, manifest)) in items.iter().zip(manifests).enumerate() {
        for choice in found.selection.choices(item) {
            let Some(asset) = choice.asset else { continue };
            let def = manifest
                .as_ref()
                .and_then(|manifest| manifest.band(choice.name));
            let stated = band_names(item, asset);
            if wanted.iter().all(|one| one.choice.name != choice.name) {
                wanted.push(Wanted {
                    choice,
                    canonical: def.and_then(|def| def.canonical.clone()),
                    is_class: is_class(&choice, *manifest),
                    is_known: true,
                    lists: Vec::new(),
                });
            }
            let Some(one) = wanted.iter_mut().find(|one| one.choice.name == choice.name) else {
                continue;
            };
            one.is_known &= is_builtin && def.is_some() && stated.len() <= 1;
            let is_used = used.binary_search(&index).is_ok();
            if one.lists.len() < LISTS && one.lists.iter().all(|(list, _)| *list != stated) {
                one.lists.push((stated.clone(), Vec::new()));
            }
            let list = one.lists.iter_mut().find(|(list, _)| *list == stated);
            if let Some((_, of)) = list.filter(|(_, of)| of.len() < TRIES && is_used) {
                of.push(index);
            }
        }
    }
    // In the order of the selection: the assets of an item come in the order of its JSON.
    let rank = |one: &Wanted<'_>| {
        found
            .bands()
            .iter()
            .position(|name| *name == one.choice.name)
    };
    wanted.sort_by_key(|one| rank(one).unwrap_or(usize::MAX));
    let mut opening = Vec::new();
    for (number, one) in wanted.iter().enumerate() {
        if one.is_known || one.choice.band.is_some() {
            continue;
        }
        for (list, of) in &one.lists {
            let of: Vec<_> = of
                .iter()
                .filter_map(|&index| Some((items.get(index)?, files.of(index, one.choice.key))))
                .collect();
            opening.push(async move { (number, list, opened(found, one.choice.key, of).await) });
        }
    }
    let at_once = found.session().settings().requests_per_host.clamp(1, 64);
    let opened: Vec<_> = stream::iter(opening).buffered(at_once).collect().await;
    let mut slots: Vec<Slot> = Vec::new();
    for (number, one) in wanted.iter().enumerate() {
        let of_files = opened.iter().filter(|(of, ..)| *of == number);
        let of_files = of_files.map(|(_, list, reader)| (list.as_slice(), reader.as_ref()));
        for slot in one.slots(of_files)? {
            // `visual,visual:2` names band 2 twice.
            if slots.iter().any(|known| known.band.name == slot.band.name)
                && one.choice.band.is_some()
            {
                continue;
            }
            slots.push(slot);
        }
    }
    // Two assets may have one canonical name; the second keeps its key, so that names are unique.
    for at in 1..slots.len() {
        let (before, rest) = slots.split_at_mut(at);
        if let Some(slot) = rest.first_mut()
            && before.iter().any(|one| one.band.name == slot.band.name)
        {
            slot.band.name = slot.shown();
        }
    }
    if slots.is_empty() {
        found.check_guess()?;
        let message = "no item has any of the selected bands";
        return Err(Error::new(ErrorKind::InvalidInput, message));
    }
    Ok(slots)
}

/// Returns whether a selected asset holds classes or flags, which have no mean.
pub(crate) fn is_class(choice: &Choice<'_>, manifest: Option<&Manifest>) -> bool {
    let of = |name: &str| manifest?.band(name);
    match (of(choice.name).or_else(|| of(choice.key)), choice.asset) {
        // Probabilities and the like are floats, or have a scale.
        (Some(def), _) if def.kind == Kind::Qa => !def.dtype.is_float() && def.scale.is_none(),
        (Some(_), _) | (None, None) => false,
        (None, Some(asset)) => stac::is_class(choice.key, asset),
    }
}

/// Opens the first of the files that can be opened.
async fn opened(
    found: &QueryResult,
    key: &str,
    of: Vec<(&Item, SharedReader)>,
) -> Option<Arc<dyn RasterReader>> {
    for (item, shared) in of {
        // A file that cannot be opened is reported when it is read.
        let open = || async {
            let asset = item.assets.get(key);
            let asset = asset.ok_or_else(|| Error::new(ErrorKind::NotFound, "no such asset"))?;
            let location = location_of(found, item, asset)?;
            let options = OpenOptions {
                header_bytes: stac::header_bytes(asset),
                ..OpenOptions::new()
            };
            reader::open(found.session(), &location, options).await
        };
        if let Ok(reader) = shared.get_or_try_init(open).await {
            return Some(Arc::clone(reader));
        }
    }
    None
}

impl Wanted<'_> {
    /// Returns the bands of the cube that it stands for.
    fn slots<'s>(
        &self,
        of_files: impl Iterator<Item = (&'s [BandNames], Option<&'s Arc<dyn RasterReader>>)>,
    ) -> Result<Vec<Slot>> {
        let Choice {
            name, key, band, ..
        } = self.choice;
        let slot = |shown: String, aliases: Vec<String>, which: Which| Slot {
            band: ImageCubeBand {
                name: shown,
                asset: key.to_owned(),
                nodata: None,
                is_class: self.is_class,
                aliases,
            },
            selected: name.to_owned(),
            which,
        };
        let canonical = self.canonical.as_deref();
        if let Some(choice) = band {
            let stated = self.lists.first().map_or(&[][..], |(list, _)| list);
            let number = number_of(choice, stated).map_err(|err| {
                Error::new(err.kind(), format!("band `{name}`: {}", err.message()))
            })?;
            let mut aliases = aliases_of(&[key], number, stated);
            aliases.push(name.to_owned());
            let shown = canonical.unwrap_or(name).to_owned();
            return Ok(vec![slot(shown, aliases, Which::Chosen(choice.to_owned()))]);
        }
        // (label, number, by the catalogue, the list that it is from)
        let mut all: Vec<(String, usize, bool, &[BandNames])> = Vec::new();
        let mut count = 1;
        for (stated, reader) in of_files {
            let of_file = match reader {
                Some(reader) => described(reader.profile()),
                None => vec![None; stated.len().max(1)],
            };
            count = count.max(of_file.len());
            for (index, label) in labels(stated, &of_file).into_iter().enumerate() {
                if all.iter().all(|(known, ..)| *known != label) {
                    let is_stated = matches!(number_of(&label, stated), Ok(Some(_)));
                    all.push((label, index + 1, is_stated, stated));
                }
            }
        }
        let base = canonical.unwrap_or(key);
        if count == 1 {
            return Ok(vec![slot(base.to_owned(), Vec::new(), Which::Only)]);
        }
        Ok(all
            .into_iter()
            .map(|(label, number, is_stated, stated)| {
                let aliases = aliases_of(&[key, base], Some(number), stated);
                let which = Which::OneOf {
                    label: label.clone(),
                    number,
                    is_stated,
                    count,
                };
                slot(format!("{base}:{label}"), aliases, which)
            })
            .collect())
    }
}

/// Returns the other names of a band: with its number, and with each name that the catalogue gives.
fn aliases_of(bases: &[&str], number: Option<usize>, stated: &[BandNames]) -> Vec<String> {
    let Some(number) = number else {
        return Vec::new();
    };
    let names = number.checked_sub(1).and_then(|index| stated.get(index));
    let names = names
        .into_iter()
        .flat_map(BandNames::all)
        .map(str::to_owned);
    let labels: Vec<String> = std::iter::once(number.to_string()).chain(names).collect();
    bases
        .iter()
        .flat_map(|base| labels.iter().map(move |label| format!("{base}:{label}")))
        .collect()
}
