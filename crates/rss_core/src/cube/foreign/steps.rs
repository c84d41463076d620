//! The time steps of cubes of others: along an axis, or of a coordinate without axes, or of attributes.

use std::collections::BTreeMap;

use super::{
    Group, Report,
    axes::{self, Role, Variable},
    grid,
    time::{self, Units},
    unsupported,
};
use crate::{
    array::{Hierarchy, Members, Storage, below},
    cube::{TimeBounds, TimeStep},
    error::{Error, ErrorKind, Result},
};

/// Reads the times of a group's images.
pub(super) async fn steps_of(
    storage: &Storage,
    tree: &Hierarchy,
    group: &Group<'_>,
    report: &mut Report,
) -> Result<Vec<TimeStep>> {
    // Of several axes of time the one of most images.
    let mut counts: BTreeMap<(&str, u64), usize> = BTreeMap::new();
    for image in &group.images {
        if let Some(axis) = image.time {
            let variable = &image.variable;
            *counts
                .entry((&variable.dims[axis], variable.shape[axis]))
                .or_default() += 1;
        }
    }
    let most = counts
        .iter()
        .max_by_key(|(_, count)| **count)
        .map(|(axis, _)| *axis);
    let step = |time| TimeStep {
        time,
        bounds: None,
        items: Vec::new(),
    };
    let Some((dim, length)) = most else {
        let time = time_of_attributes(storage, tree, group).await?;
        return Ok(vec![step(time.unwrap_or_else(|| {
            report
                .notes
                .push("it states no time: its one time step is shown as 1970-01-01".to_owned());
            chrono::DateTime::UNIX_EPOCH
        }))]);
    };
    let found = axes::coordinate(tree, group.path, dim, length).or_else(|| {
        let mut along = axes::variables(tree, group.path);
        along.find(|one| {
            one.dims == [dim] && axes::of_attributes(one.attributes) == Some(Role::Time)
        })
    });
    let found =
        found.ok_or_else(|| unsupported(format!("its axis `{dim}` of times has no coordinate")))?;
    let named = |err: Error| match err.location() {
        Some(_) => err,
        None => err.at(storage.locate(found.path)),
    };
    let times = times_of(storage, &found).await.map_err(named)?;
    let mut steps: Vec<TimeStep> = times.into_iter().map(step).collect();
    if let Err(err) = put_bounds(storage, tree, &found, &mut steps).await {
        report.notes.push(format!(
            "the bounds of its times are not read: {}",
            err.message()
        ));
    }
    for name in ["item", "items", "id"] {
        let ids = axes::variable(tree, &below(group.path, name));
        let Some(ids) = ids.filter(|ids| ids.dims == [dim] && ids.shape == [length]) else {
            continue;
        };
        if let Ok(Some(ids)) = ids.document.texts(storage, ids.path).await {
            for (step, id) in steps.iter_mut().zip(ids) {
                step.items = Some(id).filter(|id| !id.is_empty()).into_iter().collect();
            }
            break;
        }
    }
    Ok(steps)
}

/// Decodes the values of a variable of times.
async fn times_of(
    storage: &Storage,
    variable: &Variable<'_>,
) -> Result<Vec<chrono::DateTime<chrono::Utc>>> {
    if let Some(texts) = variable.document.texts(storage, variable.path).await? {
        let times = texts.iter().map(|text| {
            time::instant_of(text).ok_or_else(|| {
                unsupported(format!(
                    "time `{text}`, expected such as 2021-01-03T00:00:00Z"
                ))
            })
        });
        return times.collect();
    }
    let units = Units::of(variable.attributes)?;
    let array = variable.document.open(storage, variable.path)?;
    let numbers = grid::numbers(&array).await?;
    let times = numbers.iter().zip(0..).map(|(&number, at): (_, u64)| {
        units.instant(number).ok_or_else(|| {
            let message = format!("time {at} is {number}, which is no instant that is read");
            Error::new(ErrorKind::Unsupported, message)
        })
    });
    times.collect()
}

/// Reads the first and last instant of each time step, where times have bounds.
async fn put_bounds(
    storage: &Storage,
    tree: &Hierarchy,
    times: &Variable<'_>,
    steps: &mut [TimeStep],
) -> Result<()> {
    let names = axes::names(times.attributes, "bounds");
    let Some(bounds) = names
        .first()
        .and_then(|name| axes::find(tree, times.group, name))
    else {
        return Ok(());
    };
    if bounds.shape != [steps.len() as u64, 2] {
        return Err(unsupported(format!(
            "{} is of shape {:?}",
            bounds.path, bounds.shape
        )));
    }
    // By CF they have the units of their coordinate, unless they repeat them.
    let units = Units::of(bounds.attributes).or_else(|_| Units::of(times.attributes))?;
    let array = bounds.document.open(storage, bounds.path)?;
    let numbers = grid::numbers(&array).await?;
    let ends: Option<Vec<_>> = numbers
        .iter()
        .map(|&number| units.instant(number))
        .collect();
    let ends = ends.ok_or_else(|| unsupported("an instant is none"))?;
    for (step, ends) in steps.iter_mut().zip(ends.chunks_exact(2)) {
        step.bounds = Some(TimeBounds::of(ends[0], ends[1]));
    }
    Ok(())
}

/// Returns the time of images without an axis of time: of a coordinate without axes, or of attributes.
async fn time_of_attributes(
    storage: &Storage,
    tree: &Hierarchy,
    group: &Group<'_>,
) -> Result<Option<chrono::DateTime<chrono::Utc>>> {
    for path in axes::upwards(group.path) {
        let mut all = axes::variables(tree, path);
        let scalar = all.find(|one| {
            one.dims.is_empty()
                && (one.name == "time" || axes::of_attributes(one.attributes) == Some(Role::Time))
        });
        if let Some(scalar) = scalar
            && let Ok(times) = times_of(storage, &scalar).await
        {
            return Ok(times.first().copied());
        }
    }
    let of = |attributes: &Members| {
        let keys = [
            "datetime",
            "start_datetime",
            "time_coverage_start",
            "acquisition_time",
        ];
        keys.iter()
            .find_map(|key| time::instant_of(attributes.get(*key)?.as_str()?))
    };
    let images = group.images.iter().map(|image| image.variable.attributes);
    let groups = axes::upwards(group.path).filter_map(|path| tree.groups.get(path));
    Ok(images.chain(groups).find_map(|attributes| {
        let item = || {
            attributes
                .get("stac_discovery")?
                .get("properties")?
                .as_object()
        };
        of(attributes).or_else(|| of(item()?))
    }))
}
