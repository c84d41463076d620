//! Cubes that others wrote: groups whose arrays have axes x and y, by the conventions of CF and GeoZarr.
//!
//! `axes` finds the axes, `steps` and `time` decode times, `grid` finds transform and CRS, by `mapping` where no text states it. Here groups become levels, arrays and
//! their axes beside x, y and time become bands. Samples are read as they are stored; nothing is written.

mod axes;
mod grid;
mod mapping;
mod steps;
mod time;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use self::axes::{Role, Variable};
use super::{Axes, Cube, CubeBand, CubeLevel, Slot, TimeStep, describe};
use crate::{
    array::{Arrangement, Array, Hierarchy, Storage, below, with_sign_of},
    error::{Error, ErrorKind, Result},
    geo::GeoBox,
    raster::{DataType, Number},
};

/// The most bands that the axes of one array make.
const MOST_BANDS: u64 = 4096;

fn unsupported(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::Unsupported, what.into())
}

/// An array with axes x and y.
#[derive(Clone, Debug)]
struct Image<'a> {
    variable: Variable<'a>,
    y: usize,
    x: usize,
    time: Option<usize>,
    /// The other axes.
    rest: Vec<usize>,
}

impl Image<'_> {
    /// Returns the names and lengths of its axes y and x.
    fn plane(&self) -> (String, String, u64, u64) {
        let Variable { dims, shape, .. } = &self.variable;
        (
            dims[self.y].clone(),
            dims[self.x].clone(),
            shape[self.y],
            shape[self.x],
        )
    }

    fn bands(&self) -> u64 {
        let lengths = self.rest.iter().map(|&axis| self.variable.shape[axis]);
        lengths.fold(1, u64::saturating_mul)
    }
}

/// The images of one group that share a plane, and their grid.
struct Group<'a> {
    path: &'a str,
    images: Vec<Image<'a>>,
    grid: GeoBox,
}

/// What is found while a cube is opened.
#[derive(Default)]
struct Report {
    notes: Vec<String>,
    /// Arrays that are no bands, and why.
    left_out: Vec<(String, String)>,
}

/// Opens a cube of others.
///
/// # Errors
///
/// [`ErrorKind::Unsupported`] if no group has images, or several have that are not levels of one; errors of reading
/// the coordinates.
pub(super) async fn open(storage: &Storage, tree: &Hierarchy) -> Result<Cube> {
    let mut report = Report::default();
    let images: BTreeMap<&str, Vec<Image<'_>>> = tree
        .groups
        .keys()
        .map(|group| (group.as_str(), images_of(tree, group)))
        .filter(|(_, images)| !images.is_empty())
        .collect();
    let (paths, is_stated) = chosen(tree, &images, &mut report)?;
    let mut groups = Vec::with_capacity(paths.len());
    for path in &paths {
        let Some((&path, images)) = images.get_key_value(path.as_str()) else {
            continue;
        };
        let images = on_one_plane(images, &mut report);
        let Some(first) = images.first() else {
            continue;
        };
        let found = grid::grid_of(
            tree,
            storage,
            &first.variable,
            [first.y, first.x],
            &mut report.notes,
        );
        let grid = found.await?;
        groups.push(Group { path, images, grid });
    }
    groups.sort_by_key(|group| {
        std::cmp::Reverse(u64::from(group.grid.size.width) * u64::from(group.grid.size.height))
    });
    if !is_stated && !are_levels(&groups) {
        return Err(several(&paths));
    }
    report.notes.sort();
    report.notes.dedup();
    assemble(storage, tree, groups, report).await
}

fn several<'a>(groups: impl IntoIterator<Item = &'a String>) -> Error {
    let names: Vec<&str> = groups.into_iter().map(String::as_str).collect();
    let first = names
        .iter()
        .find(|name| !name.is_empty())
        .copied()
        .unwrap_or_default();
    unsupported(format!(
        "several groups of images, which are not levels of one: {}; open one of them, as LOCATION/{first}",
        names.join(", ")
    ))
}

/// Returns the arrays of a group that have axes x and y and are no coordinates.
fn images_of<'a>(tree: &'a Hierarchy, group: &'a str) -> Vec<Image<'a>> {
    let variables: Vec<Variable<'_>> = axes::variables(tree, group).collect();
    let mut others: BTreeSet<String> = BTreeSet::new();
    let members = variables
        .iter()
        .map(|one| one.attributes)
        .chain(tree.groups.get(group));
    for attributes in members {
        for key in ["coordinates", "bounds", "grid_mapping", "cell_measures"] {
            others.extend(axes::names(attributes, key));
        }
    }
    let mut images = Vec::new();
    for variable in variables {
        let mut dims = variable.dims.clone();
        dims.sort();
        dims.dedup();
        let is_place = matches!(
            axes::of_attributes(variable.attributes),
            Some(Role::X | Role::Y)
        );
        if others.contains(variable.name)
            || variable.dims.iter().any(|dim| dim == variable.name)
            || dims.len() < variable.dims.len()
            || variable.shape.contains(&0)
            || is_place
        {
            continue;
        }
        let roles = axes::roles(tree, &variable);
        let at = |role: Role| roles.iter().position(|&one| one == role);
        let (Some(y), Some(x)) = (at(Role::Y), at(Role::X)) else {
            continue;
        };
        let rest = (0..roles.len())
            .filter(|&axis| roles[axis] == Role::Other)
            .collect();
        let time = at(Role::Time);
        images.push(Image {
            variable,
            y,
            x,
            time,
            rest,
        });
    }
    images
}

/// Returns the groups that a group's `multiscales` lists, in the forms of GeoZarr and of OME.
fn multiscales(tree: &Hierarchy, group: &str) -> Vec<String> {
    let Some(value) = tree
        .groups
        .get(group)
        .and_then(|attributes| attributes.get("multiscales"))
    else {
        return Vec::new();
    };
    let value = match value {
        Value::Array(all) => all.first().unwrap_or(value),
        value => value,
    };
    let list = value
        .get("layout")
        .or_else(|| value.get("datasets"))
        .and_then(Value::as_array);
    let of_list = list.into_iter().flatten().filter_map(|one| {
        let name = one.as_str();
        name.or_else(|| {
            ["asset", "path", "group"]
                .iter()
                .find_map(|key| one.get(*key)?.as_str())
        })
    });
    let limits = value.get("tile_matrix_limits").and_then(Value::as_object);
    let of_limits = limits.into_iter().flatten().map(|(name, _)| name.as_str());
    let names = of_list
        .chain(of_limits)
        .map(|name| match name.trim_matches(['/', '.']) {
            "" => group.to_owned(),
            name => below(group, name),
        });
    let mut names: Vec<String> = names.collect();
    names.dedup();
    names
}

/// Chooses the groups that are levels of one cube, and whether their metadata says that they are.
fn chosen(
    tree: &Hierarchy,
    images: &BTreeMap<&str, Vec<Image<'_>>>,
    report: &mut Report,
) -> Result<(Vec<String>, bool)> {
    let listed = |group: &str| {
        let names = multiscales(tree, group);
        let names = names
            .into_iter()
            .filter(|name| images.contains_key(name.as_str()));
        names.collect::<Vec<String>>()
    };
    let mut at_root = listed("");
    if images.contains_key("") {
        at_root.retain(|name| !name.is_empty());
        at_root.insert(0, String::new());
    }
    if !at_root.is_empty() {
        return Ok((at_root, true));
    }
    // Sets of groups that may be levels of one cube: those that a group lists, else those below one group.
    let mut sets: BTreeMap<String, (Vec<String>, bool)> = BTreeMap::new();
    let mut known: BTreeSet<String> = BTreeSet::new();
    for group in tree.groups.keys() {
        let names = listed(group);
        if !names.is_empty() {
            known.extend(names.iter().cloned());
            sets.insert(group.clone(), (names, true));
        }
    }
    for group in images.keys().filter(|group| !known.contains(**group)) {
        let above = axes::upwards(group).nth(1).unwrap_or_default();
        let set = sets.entry(format!("{above}/")).or_default();
        set.0.push((*group).to_owned());
    }
    if sets.len() > 1 && sets.keys().any(|name| is_measurement(name)) {
        // A product of EOPF: its conditions and quality are images too, of other grids.
        let others: Vec<String> = sets
            .iter()
            .filter(|(name, _)| !is_measurement(name))
            .flat_map(|(_, (groups, _))| groups.iter().cloned())
            .collect();
        sets.retain(|name, _| is_measurement(name));
        report.notes.push(format!(
            "its measurements are opened; other groups of images: {}",
            others.join(", ")
        ));
    }
    match sets.len() {
        0 => Err(unsupported(
            "no cube: no array of it has axes x and y, by the names, axis, standard_name or units of its coordinates",
        )),
        1 => Ok(sets.into_values().next().unwrap_or_default()),
        _ => Err(several(sets.values().flat_map(|(groups, _)| groups))),
    }
}

fn is_measurement(name: &str) -> bool {
    name.split('/').next() == Some("measurements")
}

/// Returns the images of the plane that most bands have, of several the finest.
fn on_one_plane<'a>(images: &[Image<'a>], report: &mut Report) -> Vec<Image<'a>> {
    let mut planes: BTreeMap<(String, String, u64, u64), u64> = BTreeMap::new();
    for image in images {
        *planes.entry(image.plane()).or_default() += image.bands();
    }
    let most = planes
        .iter()
        .max_by_key(|((_, _, height, width), bands)| (**bands, height.saturating_mul(*width)));
    let Some((most, _)) = most.map(|(plane, bands)| (plane.clone(), *bands)) else {
        return Vec::new();
    };
    let mut kept = Vec::new();
    for image in images {
        let (_, _, height, width) = image.plane();
        if image.plane() == most {
            kept.push(image.clone());
        } else {
            let why = format!(
                "it is of {width} x {height} pixels, other bands of {} x {}",
                most.3, most.2
            );
            report.left_out.push((image.variable.path.to_owned(), why));
        }
    }
    kept
}

/// Returns true if groups cover the same place with pixels of different sizes.
fn are_levels(groups: &[Group<'_>]) -> bool {
    let [finest, rest @ ..] = groups else {
        return true;
    };
    let mut finer = finest;
    rest.iter().all(|group| {
        let (Some(own), Some(all)) = (group.grid.bounds(), finest.grid.bounds()) else {
            return false;
        };
        let pixel = group
            .grid
            .resolution()
            .map_or(0.0, |side| side.x.max(side.y));
        let is_there = own
            .iter()
            .zip(all)
            .all(|(own, all)| (own - all).abs() <= pixel);
        let is_coarser = group.grid.size.width < finer.grid.size.width;
        finer = group;
        is_there && is_coarser && group.grid.crs == finest.grid.crs
    })
}

async fn assemble(
    storage: &Storage,
    tree: &Hierarchy,
    groups: Vec<Group<'_>>,
    mut report: Report,
) -> Result<Cube> {
    let Some(finest) = groups.first() else {
        return Err(unsupported("no cube: no array of it has axes x and y"));
    };
    let steps = steps::steps_of(storage, tree, finest, &mut report).await?;
    let root = tree.groups.get("").cloned().unwrap_or_default();
    let attributes = match tree.groups.get(finest.path) {
        Some(own) if finest.path.is_empty() => own.clone(),
        own => {
            let mut all = root;
            all.extend(own.cloned().unwrap_or_default());
            all
        }
    };
    let mut bands: Vec<CubeBand> = Vec::new();
    let mut levels = Vec::with_capacity(groups.len());
    for group in groups {
        let mut level = CubeLevel {
            grid: group.grid,
            arrays: Vec::new(),
            slots: Vec::new(),
        };
        let several = group
            .images
            .iter()
            .filter(|image| image.bands() > 1)
            .count()
            > 1;
        for image in &group.images {
            let path = image.variable.path;
            let array = match opened(storage, image, &steps) {
                Ok(array) => array,
                Err(err) => {
                    report
                        .left_out
                        .push((path.to_owned(), err.message().to_owned()));
                    continue;
                }
            };
            let names = match names_of(storage, tree, image, several).await? {
                Ok(names) => names,
                Err(why) => {
                    report.left_out.push((path.to_owned(), why));
                    continue;
                }
            };
            let position = level.arrays.len();
            for (name, fixed) in names {
                let number = match bands.iter().position(|band| band.name == name) {
                    Some(number) => number,
                    None => {
                        bands.push(band_of(&name, &array, image, &mut report));
                        bands.len() - 1
                    }
                };
                if level.slots.len() <= number {
                    level.slots.resize(number + 1, None);
                }
                level.slots[number] = Some(Slot {
                    array: position,
                    axes: Axes {
                        time: image.time,
                        y: image.y,
                        x: image.x,
                        fixed,
                    },
                });
            }
            level.arrays.push((path.to_owned(), array));
        }
        if !level.arrays.is_empty() {
            levels.push(level);
        }
    }
    if bands.is_empty() {
        let why: Vec<String> = report
            .left_out
            .iter()
            .map(|(path, why)| format!("{path}: {why}"))
            .collect();
        return Err(unsupported(format!(
            "no array of it can be read: {}",
            why.join("; ")
        )));
    }
    for level in &mut levels {
        level.slots.resize(bands.len(), None);
    }
    let left_out = report
        .left_out
        .iter()
        .map(|(path, why)| format!("{path} is no band: {why}"));
    report.notes.extend(left_out);
    Ok(Cube {
        location: storage.base.clone(),
        attributes,
        bands,
        steps,
        arrangement: Arrangement::Bands,
        levels,
        // Of an append, which there is none of.
        steps_per_chunk: 1,
        is_own: false,
        notes: report.notes,
    })
}

/// Opens the array of an image, if its times are those of the cube.
fn opened(storage: &Storage, image: &Image<'_>, steps: &[TimeStep]) -> Result<Array> {
    let Variable {
        path,
        shape,
        dims,
        document,
        ..
    } = &image.variable;
    let array = document.with_stated_sign().open(storage, path)?;
    if let Some(time) = image.time
        && shape[time] != steps.len() as u64
    {
        return Err(unsupported(format!(
            "its axis {} has {} times, the cube {}",
            dims[time],
            shape[time],
            steps.len()
        )));
    }
    Ok(array)
}

/// Returns the bands of an image: the name of each, and where it lies on the axes beside x, y and time.
#[expect(clippy::type_complexity, reason = "named where it is used")]
async fn names_of(
    storage: &Storage,
    tree: &Hierarchy,
    image: &Image<'_>,
    several: bool,
) -> Result<std::result::Result<Vec<(String, Vec<(usize, u64)>)>, String>> {
    let Variable {
        name,
        shape,
        dims,
        attributes,
        group,
        ..
    } = &image.variable;
    if image.bands() == 1 {
        let fixed = image.rest.iter().map(|&axis| (axis, 0)).collect();
        return Ok(Ok(vec![((*name).to_owned(), fixed)]));
    }
    if image.bands() > MOST_BANDS {
        return Ok(Err(format!(
            "its axes make {} bands, expected at most {MOST_BANDS}",
            image.bands()
        )));
    }
    let long = [image.rest.iter().filter(|&&axis| shape[axis] > 1).count()];
    let mut all: Vec<(Vec<String>, Vec<(usize, u64)>)> = vec![(Vec::new(), Vec::new())];
    let mut are_texts = long == [1] && !several;
    for &axis in &image.rest {
        let length = shape[axis];
        if length == 1 {
            all.iter_mut().for_each(|(_, fixed)| fixed.push((axis, 0)));
            continue;
        }
        let mut labels = None;
        if let Some(found) = axes::coordinate(tree, group, &dims[axis], length) {
            labels = found.document.texts(storage, found.path).await?;
            if labels.is_none() {
                are_texts = false;
                let array = found.document.open(storage, found.path)?;
                let numbers = grid::numbers(&array).await?;
                labels = Some(numbers.iter().map(ToString::to_string).collect());
            }
        }
        // rasterio names the bands of a file so.
        let long_names = attributes.get("long_name").and_then(Value::as_array);
        let long_names: Option<Vec<String>> = long_names.and_then(|names| {
            names
                .iter()
                .map(|name| Some(name.as_str()?.to_owned()))
                .collect()
        });
        if let Some(names) = long_names.filter(|names| names.len() as u64 == length && !are_texts) {
            labels = Some(names);
        }
        let mut labels = labels.unwrap_or_default();
        let unique: BTreeSet<&String> = labels.iter().collect();
        if labels.len() as u64 != length || unique.len() != labels.len() {
            are_texts = false;
            labels = (1..=length).map(|number| number.to_string()).collect();
        }
        all = all
            .into_iter()
            .flat_map(|(names, fixed)| {
                labels
                    .iter()
                    .zip(0_u64..)
                    .map(move |(label, at)| {
                        let (mut names, mut fixed) = (names.clone(), fixed.clone());
                        names.push(label.clone());
                        fixed.push((axis, at));
                        (names, fixed)
                    })
                    .collect::<Vec<_>>()
            })
            .collect();
    }
    // Names of the only axis of bands are those of the bands.
    let start = if are_texts {
        Vec::new()
    } else {
        vec![(*name).to_owned()]
    };
    let named = all.into_iter().map(|(names, fixed)| {
        let names: Vec<String> = start.iter().cloned().chain(names).collect();
        (names.join("."), fixed)
    });
    Ok(Ok(named.collect()))
}

fn band_of(name: &str, array: &Array, image: &Image<'_>, report: &mut Report) -> CubeBand {
    let attributes = image.variable.attributes;
    let mut band = super::band_of(name, array, false);
    let stated = ["_FillValue", "missing_value", "fill_value", "nodata"]
        .iter()
        .find_map(|key| number(attributes.get(*key)?));
    // In v2 xarray marks missing samples by the fill value of the array.
    band.nodata = stated.or_else(|| number(image.variable.document.fill_v2()?));
    // It may be that of the stored type, whose sign is the other.
    if attributes.contains_key("_Unsigned") {
        band.nodata = band.nodata.map(|nodata| with_sign_of(nodata, band.dtype));
    }
    if let Some(nodata) = band.nodata
        && !band.dtype.holds(nodata)
    {
        report.notes.push(format!(
            "{}: its nodata value {nodata} is no value of {}, and left out",
            image.variable.path, band.dtype
        ));
        band.nodata = None;
    }
    let is_float = matches!(band.dtype, DataType::F32 | DataType::F64);
    if is_float && let Some(nodata) = band.nodata {
        band.nodata = Some(band.dtype.rounded(nodata));
    }
    let flags = ["flag_values", "flag_masks"];
    band.is_class = flags.iter().any(|key| attributes.contains_key(*key));
    band
}

/// Reads a number, or what stands for one in JSON.
fn number(value: &Value) -> Option<Number> {
    match value {
        Value::String(text) => match text.as_str() {
            "NaN" | "nan" => Some(Number::NAN),
            "Infinity" => Some(f64::INFINITY.into()),
            "-Infinity" => Some(f64::NEG_INFINITY.into()),
            _ => describe::fill_of_attribute(value),
        },
        Value::Array(one) => match one.as_slice() {
            [one] => number(one),
            _ => None,
        },
        value => describe::fill_of_attribute(value),
    }
}
