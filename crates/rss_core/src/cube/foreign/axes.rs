//! Which axes of an array are x, y and time: by the attributes of their coordinates, else by their names.

use serde_json::Value;

use crate::array::{Document, Hierarchy, Members, below};

/// An array of a hierarchy with the names of its axes.
#[derive(Clone, Debug)]
pub(super) struct Variable<'a> {
    pub(super) path: &'a str,
    pub(super) group: &'a str,
    pub(super) name: &'a str,
    pub(super) shape: Vec<u64>,
    pub(super) dims: Vec<String>,
    pub(super) attributes: &'a Members,
    pub(super) document: &'a Document,
}

/// What an axis is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    X,
    Y,
    Time,
    /// Bands, and whatever else.
    Other,
}

/// Splits a path into that of its group and its name.
fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

/// Returns a group and those above it, the root last.
pub(super) fn upwards(group: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(group), |group| {
        (!group.is_empty()).then(|| split(group).0)
    })
}

/// Returns the variable at a path; none if its axes have no names.
pub(super) fn variable<'a>(tree: &'a Hierarchy, path: &str) -> Option<Variable<'a>> {
    let (path, document) = tree.arrays.get_key_value(path)?;
    let shape = document.shape().ok()?;
    let dims = match shape.is_empty() {
        true => Vec::new(),
        false => document.dimensions()?,
    };
    let (group, name) = split(path);
    Some(Variable {
        path,
        group,
        name,
        shape,
        dims,
        attributes: document.attributes(),
        document,
    })
}

/// Returns the variable of a name in a group, or in one above it.
pub(super) fn find<'a>(tree: &'a Hierarchy, group: &str, name: &str) -> Option<Variable<'a>> {
    upwards(group).find_map(|group| variable(tree, &below(group, name)))
}

/// Returns the coordinate of an axis: the variable of one axis of its name.
pub(super) fn coordinate<'a>(
    tree: &'a Hierarchy,
    group: &str,
    dim: &str,
    length: u64,
) -> Option<Variable<'a>> {
    find(tree, group, dim).filter(|found| found.dims == [dim] && found.shape == [length])
}

/// Returns the variables of a group.
pub(super) fn variables<'a>(
    tree: &'a Hierarchy,
    group: &'a str,
) -> impl Iterator<Item = Variable<'a>> {
    tree.arrays
        .keys()
        .filter(move |path| split(path).0 == group)
        .filter_map(|path| variable(tree, path))
}

/// Returns the names that an attribute lists: words, or a list of texts. `crs: x y` of an extended `grid_mapping` are three.
pub(super) fn names(attributes: &Members, key: &str) -> Vec<String> {
    let words = |text: &str| {
        let words = text.split_ascii_whitespace();
        let words = words.map(|word| word.trim_end_matches(':').to_owned());
        words.collect::<Vec<_>>()
    };
    match attributes.get(key) {
        Some(Value::String(text)) => words(text),
        Some(Value::Array(texts)) => texts
            .iter()
            .filter_map(Value::as_str)
            .flat_map(words)
            .collect(),
        _ => Vec::new(),
    }
}

pub(super) fn text<'a>(attributes: &'a Members, key: &str) -> &'a str {
    attributes
        .get(key)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// Returns the role of each axis of a variable. Of several of one role the last has it.
pub(super) fn roles(tree: &Hierarchy, variable: &Variable<'_>) -> Vec<Role> {
    // GeoZarr names the two axes, y first.
    let stated = std::iter::once(variable.attributes)
        .chain(upwards(variable.group).filter_map(|group| tree.groups.get(group)))
        .map(|attributes| names(attributes, "spatial:dimensions"))
        .find(|names| names.len() == 2 && names.iter().all(|name| variable.dims.contains(name)));
    let mut roles: Vec<Role> = variable
        .dims
        .iter()
        .zip(&variable.shape)
        .map(|(dim, &length)| {
            if let Some([y, x]) = stated.as_deref() {
                if dim == y {
                    return Role::Y;
                }
                if dim == x {
                    return Role::X;
                }
            }
            let found = coordinate(tree, variable.group, dim, length);
            let role = found.and_then(|found| of_attributes(found.attributes));
            let role = role.unwrap_or_else(|| of_name(dim));
            match (role, &stated) {
                (Role::X | Role::Y, Some(_)) => Role::Other,
                _ => role,
            }
        })
        .collect();
    for wanted in [Role::X, Role::Y, Role::Time] {
        let last = roles.iter().rposition(|&role| role == wanted);
        for (at, role) in roles.iter_mut().enumerate() {
            if *role == wanted && Some(at) != last {
                *role = Role::Other;
            }
        }
    }
    roles
}

/// Returns the role that the attributes of a coordinate state.
pub(super) fn of_attributes(attributes: &Members) -> Option<Role> {
    let by_axis = match text(attributes, "axis") {
        "X" | "x" => Some(Role::X),
        "Y" | "y" => Some(Role::Y),
        "T" | "t" => Some(Role::Time),
        "Z" | "z" => Some(Role::Other),
        _ => None,
    };
    let by_standard_name = || match text(attributes, "standard_name") {
        "projection_x_coordinate"
        | "longitude"
        | "grid_longitude"
        | "projection_x_angular_coordinate" => Some(Role::X),
        "projection_y_coordinate"
        | "latitude"
        | "grid_latitude"
        | "projection_y_angular_coordinate" => Some(Role::Y),
        "time" => Some(Role::Time),
        _ => None,
    };
    let by_units = || match text(attributes, "units") {
        "degrees_east" | "degree_east" | "degree_E" | "degrees_E" | "degreeE" | "degreesE" => {
            Some(Role::X)
        }
        "degrees_north" | "degree_north" | "degree_N" | "degrees_N" | "degreeN" | "degreesN" => {
            Some(Role::Y)
        }
        units if units.contains(" since ") => Some(Role::Time),
        _ => None,
    };
    let by_type = || match text(attributes, "_CoordinateAxisType") {
        "GeoX" | "Lon" => Some(Role::X),
        "GeoY" | "Lat" => Some(Role::Y),
        "Time" => Some(Role::Time),
        _ => None,
    };
    by_axis
        .or_else(by_standard_name)
        .or_else(by_units)
        .or_else(by_type)
}

fn of_name(dim: &str) -> Role {
    match dim.to_ascii_lowercase().as_str() {
        "x" | "lon" | "long" | "longitude" | "easting" | "eastings" | "projection_x_coordinate" => {
            Role::X
        }
        "y" | "lat" | "latitude" | "northing" | "northings" | "projection_y_coordinate" => Role::Y,
        "time" | "t" | "times" | "date" | "dates" | "datetime" | "valid_time" | "timestamp"
        | "acquisition_time" => Role::Time,
        _ => Role::Other,
    }
}
