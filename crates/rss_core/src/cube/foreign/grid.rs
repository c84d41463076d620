//! The grid of arrays of others: the affine transform of their coordinates or attributes, and the CRS.

use ndarray::ArrayD;
use serde_json::Value;

use super::{
    axes::{self, Role, Variable, text},
    mapping,
};
use crate::{
    array::{Array, Hierarchy, Members, Storage, number_of},
    error::{Error, ErrorKind, Result},
    geo::{Crs, GeoBox, GeoTransform, Size},
    raster::{DataType, Number, Sample, with_type},
};

/// The part of a pixel by which coordinates may lie beside an even spacing, or beside a stated transform.
const TOLERANCE: f64 = 0.01;

/// Reads the samples of an array of one axis or none, scaled as its attributes say.
pub(super) async fn numbers(array: &Array) -> Result<Vec<Number>> {
    let ranges: Vec<_> = array.shape().iter().map(|&length| 0..length).collect();
    if ranges.iter().any(|range| range.end == 0) {
        return Ok(Vec::new());
    }
    let numbers: Vec<Number> = with_type!(array.dtype(), T => {
        exact(&array.read::<T>(&ranges).await?)
    });
    let attribute = |key: &str| array.attributes().get(key).and_then(Value::as_f64);
    let (scale, offset) = (attribute("scale_factor"), attribute("add_offset"));
    if scale.is_none() && offset.is_none() {
        return Ok(numbers);
    }
    let scaled = |number: Number| number.as_f64() * scale.unwrap_or(1.0) + offset.unwrap_or(0.0);
    Ok(numbers
        .into_iter()
        .map(|number| scaled(number).into())
        .collect())
}

fn exact<T: Sample>(samples: &ArrayD<T>) -> Vec<Number> {
    samples.iter().map(|&sample| sample.to_exact()).collect()
}

/// Returns the grid of a variable whose axes `y` and `x` are these; what is not found in it is noted.
pub(super) async fn grid_of(
    tree: &Hierarchy,
    storage: &Storage,
    variable: &Variable<'_>,
    [y, x]: [usize; 2],
    notes: &mut Vec<String>,
) -> Result<GeoBox> {
    let side = |axis: usize| {
        u32::try_from(variable.shape[axis]).map_err(|_| {
            Error::new(
                ErrorKind::Unsupported,
                format!(
                    "{} is of {} pixels along {}",
                    variable.path, variable.shape[axis], variable.dims[axis]
                ),
            )
        })
    };
    let size = Size {
        width: side(x)?,
        height: side(y)?,
    };
    let mapping = mapping_of(tree, variable);
    let stated = stated(tree, variable, mapping.as_ref());
    let columns = centres(tree, storage, variable, x).await?;
    let rows = centres(tree, storage, variable, y).await?;
    let transform = match (columns.as_deref(), rows.as_deref()) {
        (Some(columns), Some(rows)) => of_centres(columns, rows, stated, variable, notes),
        _ => {
            if stated.is_none() {
                let path = variable.path;
                notes.push(match curvilinear(tree, variable) {
                    Some(names) => format!(
                        "{path} is on a curvilinear grid: its coordinates {names} have two axes, and it has no transform"
                    ),
                    None => format!(
                        "{path} has neither coordinates of {} and {} nor a transform: its place is not known",
                        variable.dims[y], variable.dims[x]
                    ),
                });
            }
            stated
        }
    };
    let crs = match crs_of(tree, storage, variable, mapping.as_ref()).await? {
        Some(crs) => Some(crs),
        None => {
            let is_degrees = |axis: usize, role: Role| {
                let found = axes::coordinate(
                    tree,
                    variable.group,
                    &variable.dims[axis],
                    variable.shape[axis],
                );
                found.is_some_and(|found| {
                    let units = text(found.attributes, "units");
                    units.starts_with("degree")
                        && axes::of_attributes(found.attributes) == Some(role)
                })
            };
            let kind = mapping
                .as_ref()
                .map_or("", |mapping| text(mapping.attributes, "grid_mapping_name"));
            let is_plain = matches!(kind, "" | "latitude_longitude");
            if is_plain
                && (kind == "latitude_longitude"
                    || (is_degrees(y, Role::Y) && is_degrees(x, Role::X)))
            {
                notes.push(
                    "no CRS is stated for its longitudes and latitudes: EPSG:4326 is taken"
                        .to_owned(),
                );
                Some(Crs::Epsg(4326))
            } else {
                let along =
                    axes::coordinate(tree, variable.group, &variable.dims[x], variable.shape[x]);
                let units = along.map_or("", |along| text(along.attributes, "units"));
                let of_parameters = mapping
                    .as_ref()
                    .and_then(|mapping| mapping::crs_of(mapping.attributes, units, notes));
                if of_parameters.is_none() {
                    notes.push(match kind {
                        "" => "no CRS is stated".to_owned(),
                        kind => format!(
                            "its CRS is stated as grid mapping `{kind}` without WKT, whose parameters are not read"
                        ),
                    });
                }
                of_parameters
            }
        }
    };
    Ok(GeoBox {
        size,
        crs,
        transform,
    })
}

/// Names the coordinates of two axes that a variable has, if there are some.
fn curvilinear(tree: &Hierarchy, variable: &Variable<'_>) -> Option<String> {
    let mut names = axes::names(variable.attributes, "coordinates");
    names.extend(["lat", "lon", "latitude", "longitude", "XLAT", "XLONG"].map(str::to_owned));
    let of_two = |name: &String| {
        let found = axes::find(tree, variable.group, name)?;
        let is_place = matches!(
            axes::of_attributes(found.attributes),
            Some(Role::X | Role::Y)
        );
        let is_shared = found.dims.iter().all(|dim| variable.dims.contains(dim));
        (found.dims.len() == 2 && is_shared && is_place).then(|| name.clone())
    };
    let mut found: Vec<String> = names.iter().filter_map(of_two).collect();
    found.dedup();
    found.truncate(2);
    (!found.is_empty()).then(|| found.join(" and "))
}

/// Returns the positions of the pixels' centres along an axis, if it has a coordinate.
async fn centres(
    tree: &Hierarchy,
    storage: &Storage,
    variable: &Variable<'_>,
    axis: usize,
) -> Result<Option<Vec<f64>>> {
    let (dim, length) = (&variable.dims[axis], variable.shape[axis]);
    let Some(found) = axes::coordinate(tree, variable.group, dim, length) else {
        return Ok(None);
    };
    let array = found.document.open(storage, found.path)?;
    if matches!(array.dtype(), DataType::C64 | DataType::C128) {
        return Ok(None);
    }
    let numbers = numbers(&array).await?;
    Ok(Some(numbers.into_iter().map(Number::as_f64).collect()))
}

/// Returns the distance of evenly spaced centres; none if there is one only, or they are not.
fn spacing(centres: &[f64]) -> Option<f64> {
    let [first, .., last] = centres else {
        return None;
    };
    let count = f64::from(u32::try_from(centres.len() - 1).ok()?);
    let step = (last - first) / count;
    // What is lost in the decimals of the coordinates is no distance: 0.1 stays 0.1.
    let step = format!("{step:.11e}").parse().unwrap_or(step);
    // Coordinates of 32 bits lie beside by a part of their value.
    let rounding = first.abs().max(last.abs()) * f64::from(f32::EPSILON);
    let most = (TOLERANCE * step.abs()).max(rounding.min(0.25 * step.abs()));
    let is_even = centres
        .iter()
        .zip(0_u32..)
        .all(|(centre, number)| (first + f64::from(number) * step - centre).abs() <= most);
    (is_even && step != 0.0 && step.is_finite()).then_some(step)
}

fn of_centres(
    columns: &[f64],
    rows: &[f64],
    stated: Option<GeoTransform>,
    variable: &Variable<'_>,
    notes: &mut Vec<String>,
) -> Option<GeoTransform> {
    let (Some(&left), Some(&top)) = (columns.first(), rows.first()) else {
        return stated;
    };
    let (wide, high) = (spacing(columns), spacing(rows));
    if let Some(transform) = stated {
        let last = |centres: &[f64]| centres.last().copied().unwrap_or_default();
        let end = |centres: &[f64]| u32::try_from(centres.len()).map_or(f64::NAN, f64::from);
        let [x, y] = transform.apply(0.5, 0.5);
        let [far_x, far_y] = transform.apply(end(columns) - 0.5, end(rows) - 0.5);
        let GeoTransform(g) = transform;
        let near = |a: f64, b: f64, step: f64| {
            let rounding = (b.abs() * f64::from(f32::EPSILON)).min(0.25 * step.abs());
            (a - b).abs() <= (TOLERANCE * step.abs()).max(rounding)
        };
        if near(x, left, g[1])
            && near(far_x, last(columns), g[1])
            && near(y, top, g[5])
            && near(far_y, last(rows), g[5])
        {
            return Some(transform);
        }
        // Coordinates of a rotated grid are no places.
        if g[2] != 0.0 || g[4] != 0.0 {
            return Some(transform);
        }
        notes.push(format!(
            "{}: its coordinates lie elsewhere than its stated transform says, and are taken",
            variable.path
        ));
    }
    // One row or column has no distance to another: that of the stated transform is its own.
    let own = |number: usize| stated.map(|GeoTransform(g)| g[number]);
    let one = |centres: &[f64], number: usize| {
        if centres.len() == 1 {
            own(number)
        } else {
            None
        }
    };
    match (
        wide.or_else(|| one(columns, 1)),
        high.or_else(|| one(rows, 5)),
    ) {
        (Some(wide), Some(high)) => Some(GeoTransform([
            left - wide / 2.0,
            wide,
            0.0,
            top - high / 2.0,
            0.0,
            high,
        ])),
        _ => {
            notes.push(format!(
                "{}: its coordinates are not evenly spaced, or one alone: it has no transform",
                variable.path
            ));
            None
        }
    }
}

/// Returns the variable whose attributes hold the CRS.
fn mapping_of<'a>(tree: &'a Hierarchy, variable: &Variable<'a>) -> Option<Variable<'a>> {
    let named = axes::names(variable.attributes, "grid_mapping");
    // A path of another group is looked for by its last part.
    let named = named.iter().filter_map(|name| name.rsplit('/').next());
    let usual = ["spatial_ref", "crs", "epsg", "proj:epsg"];
    let found = named
        .chain(usual)
        .find_map(|name| axes::find(tree, variable.group, name));
    found.or_else(|| {
        let mut all = axes::upwards(variable.group).flat_map(|group| axes::variables(tree, group));
        all.find(|one| one.dims.is_empty() && one.attributes.contains_key("grid_mapping_name"))
    })
}

/// Returns the transform that attributes state: GDAL's, or an affine matrix.
fn stated(
    tree: &Hierarchy,
    variable: &Variable<'_>,
    mapping: Option<&Variable<'_>>,
) -> Option<GeoTransform> {
    let gdal = mapping.and_then(|mapping| six(mapping.attributes.get("GeoTransform")?));
    if let Some(numbers) = gdal {
        return Some(GeoTransform(numbers)).filter(is_invertible);
    }
    let group = tree.groups.get(variable.group);
    let mut all = std::iter::once(variable.attributes).chain(group);
    all.find_map(|attributes| {
        let keys = ["spatial:transform", "proj:transform", "transform"];
        let [a, b, c, d, e, f] = keys.iter().find_map(|key| six(attributes.get(*key)?))?;
        // Of a grid registered to its nodes the matrix leads to the centre of a pixel.
        let shift = match text(attributes, "spatial:registration") {
            "node" => 0.5,
            _ => 0.0,
        };
        Some(GeoTransform([
            c - shift * (a + b),
            a,
            b,
            f - shift * (d + e),
            d,
            e,
        ]))
    })
    .filter(is_invertible)
}

fn is_invertible(transform: &GeoTransform) -> bool {
    let GeoTransform(g) = transform;
    g.iter().all(|number| number.is_finite()) && g[1] * g[5] - g[2] * g[4] != 0.0
}

/// Reads six numbers, or the first of nine: a list, or a text with spaces or commas.
fn six(value: &Value) -> Option<[f64; 6]> {
    let numbers: Vec<f64> = match value {
        Value::String(text) => text
            .split([' ', ','])
            .filter(|part| !part.is_empty())
            .map(|part| part.parse().ok())
            .collect::<Option<_>>()?,
        Value::Array(numbers) => numbers.iter().map(Value::as_f64).collect::<Option<_>>()?,
        _ => return None,
    };
    match numbers.len() {
        6 | 9 => numbers.get(..6)?.try_into().ok(),
        _ => None,
    }
}

/// Returns the CRS that attributes state: of the grid mapping, the variable, its groups.
async fn crs_of(
    tree: &Hierarchy,
    storage: &Storage,
    variable: &Variable<'_>,
    mapping: Option<&Variable<'_>>,
) -> Result<Option<Crs>> {
    const OF_MAPPING: &[&str] = &[
        "crs_wkt",
        "spatial_ref",
        "wkt",
        "projjson",
        "epsg_code",
        "epsg",
        "EPSG",
        "proj:code",
        "proj:epsg",
        "proj4",
        "proj4text",
        "proj4_params",
        "crs",
    ];
    const OF_ARRAY: &[&str] = &[
        "proj:code",
        "proj:epsg",
        "proj:wkt2",
        "proj:projjson",
        "_CRS",
        "crs_wkt",
        "crs",
        "epsg",
        "spatial_ref",
    ];
    if let Some(mapping) = mapping {
        if let Some(crs) = of_keys(mapping.attributes, OF_MAPPING) {
            return Ok(Some(crs));
        }
        // stackstac and odc-geo state the code as the one value of the coordinate.
        if mapping.shape.is_empty()
            && let Ok(array) = mapping.document.open(storage, mapping.path)
            && let Some(code) = numbers(&array)
                .await?
                .first()
                .and_then(|code| code.as_integer())
            && let Ok(code @ 1024..=32_767) = u32::try_from(code)
        {
            return Ok(Some(Crs::Epsg(code)));
        }
    }
    let groups = axes::upwards(variable.group).filter_map(|group| tree.groups.get(group));
    let found = std::iter::once(variable.attributes)
        .chain(groups)
        .find_map(|attributes| {
            let own = of_keys(attributes, OF_ARRAY);
            let nested = |key: &str| attributes.get(key)?.as_object();
            let geo = || nested("proj").or_else(|| attributes.get("geo")?.get("proj")?.as_object());
            let own = own.or_else(|| of_keys(geo()?, &["code", "wkt2", "projjson", "epsg"]));
            // Products of EOPF hold a STAC item.
            let stac = || {
                attributes
                    .get("stac_discovery")?
                    .get("properties")?
                    .as_object()
            };
            let own = own.or_else(|| of_keys(stac()?, OF_ARRAY));
            own.or_else(|| of_keys(nested("other_metadata")?, &["horizontal_CRS_code"]))
        });
    Ok(found)
}

fn of_keys(attributes: &Members, keys: &[&str]) -> Option<Crs> {
    keys.iter().find_map(|key| crs(attributes.get(*key)?))
}

/// Reads a CRS: a code, text, PROJJSON, or an object that has one of them.
fn crs(value: &Value) -> Option<Crs> {
    match value {
        Value::Number(_) => {
            let code = number_of(value)?.as_integer()?;
            u32::try_from(code)
                .ok()
                .filter(|&code| code > 0)
                .map(Crs::Epsg)
        }
        Value::String(text) => match Crs::parse(text) {
            Ok(crs) => Some(crs),
            // Known to other readers, if not to this one.
            Err(_) if text.contains('[') => Some(Crs::Wkt(text.clone())),
            Err(_) => None,
        },
        Value::Object(object) => {
            let keys = ["code", "url", "wkt", "wkt2", "projjson"];
            let inner = keys.iter().find_map(|key| crs(object.get(*key)?));
            let text = || Crs::parse(&value.to_string()).ok();
            inner.or_else(|| object.contains_key("type").then(text).flatten())
        }
        _ => None,
    }
}
