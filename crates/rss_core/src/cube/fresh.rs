//! The samples that a write adds: all of a new cube, or the time steps that an append finds new.

use std::{collections::HashSet, sync::Arc};

use chrono::SubsecRound;
use serde_json::Value;

use super::{
    Cube,
    describe::{CubeBand, MADE, TimeStep},
    images::CubeImage,
    options::CubeOptions,
    plan::CubePlan,
    samples::{Images, Nodata, Samples, SamplesKind},
};
use crate::{
    apply::{TimeBounds, time::Duplicates},
    error::{Error, ErrorKind, Result},
    geo::Lattice,
    session::Session,
};

/// The source of a write, of which an append skips the first time steps.
pub(super) struct Fresh {
    pub(super) source: Arc<dyn Samples>,
    /// Time steps of the source that the cube has already.
    pub(super) skipped: usize,
}

impl Fresh {
    /// Opens the images and checks that they fit the existing cube. Returns the source, none if the cube has all of it
    /// already, the number of images that the cube has, and the duplicates that were left out.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`], which states what does not fit; errors of opening the images.
    pub(super) async fn of(
        session: &Session,
        images: Images,
        cube: Option<&Cube>,
        options: &CubeOptions,
    ) -> Result<(Option<Self>, usize, Vec<String>)> {
        let mut left_out = Vec::new();
        let items = cube.into_iter().flat_map(|cube| cube.steps());
        let there: HashSet<&str> = items
            .flat_map(|step| step.items.iter().map(String::as_str))
            .collect();
        let (source, skipped, known): (Arc<dyn Samples>, _, _) = match images.0 {
            SamplesKind::Copied(images) => {
                let all = images.len();
                let images: Vec<_> = images
                    .into_iter()
                    .filter(|image| !there.contains(image.id.as_str()))
                    .collect();
                let known = all - images.len();
                if images.is_empty() && known > 0 {
                    return Ok((None, known, left_out));
                }
                let images = match options.duplicates {
                    Duplicates::LeaveOut => best_of(images, &there, &mut left_out),
                    Duplicates::Keep => images,
                };
                if images.is_empty() && !left_out.is_empty() {
                    return Ok((None, known, left_out));
                }
                let existing = cube.map(|cube| (cube.grid(), cube.bands()));
                let plan = CubePlan::new(session, images, existing, options).await?;
                (Arc::new(plan), 0, known)
            }
            SamplesKind::Computed(open) => {
                let nodata = match cube {
                    Some(cube) => Nodata::Of(cube.bands().to_vec(), options.nodata),
                    None => Nodata::Chosen(options.nodata),
                };
                let source = open(nodata).await?;
                if let Some(cube) = cube {
                    check_alike(source.as_ref(), cube)?;
                }
                let (skipped, known) = known_of(&source.steps(), &there)?;
                (source, skipped, known)
            }
        };
        if skipped == source.steps().len() {
            return Ok((None, known, left_out));
        }
        if let Some(cube) = cube {
            let there = cube.attributes().get(MADE).unwrap_or(&Value::Null);
            let made = source.made();
            if *there != made {
                let message = format!(
                    "the cube's samples were computed by {there}, those to append by {made}"
                );
                return Err(Error::new(ErrorKind::InvalidInput, message));
            }
        }
        Ok((Some(Self { source, skipped }), known, left_out))
    }

    /// Returns the time steps to write. A cube stores milliseconds: without the truncation a resumed write would not
    /// match its journal, nor an append the time steps of the cube.
    pub(super) fn steps(&self) -> Vec<TimeStep> {
        let steps = self.source.steps().into_iter().skip(self.skipped);
        let truncated = |step: TimeStep| TimeStep {
            time: step.time.trunc_subsecs(3),
            bounds: step.bounds.map(|bounds| {
                let [start, end] = [bounds.start, bounds.end].map(|end| end.trunc_subsecs(3));
                TimeBounds::of(start, end)
            }),
            items: step.items,
        };
        steps.map(truncated).collect()
    }
}

/// Returns the images without those of which a better one is written, or in the cube already.
fn best_of(
    images: Vec<CubeImage>,
    there: &HashSet<&str>,
    left_out: &mut Vec<String>,
) -> Vec<CubeImage> {
    let ids: HashSet<String> = images.iter().map(|image| image.id.clone()).collect();
    let is_best = |image: &CubeImage| {
        let better = image.duplicate.as_ref();
        let better =
            better.filter(|better| ids.contains(&better.of) || there.contains(&*better.of));
        left_out.extend(better.map(|better| format!("item {}: {}", image.id, better.reason)));
        better.is_none()
    };
    images.into_iter().filter(is_best).collect()
}

/// Returns how many of the first time steps the cube has already, and how many images these have. New time steps may
/// only follow them: a cube grows at its end.
fn known_of(steps: &[TimeStep], there: &HashSet<&str>) -> Result<(usize, usize)> {
    let invalid = |what: String| Err(Error::new(ErrorKind::InvalidInput, what));
    let (mut skipped, mut known) = (0, 0);
    for (number, step) in steps.iter().enumerate() {
        let (old, new): (Vec<&String>, Vec<&String>) = step
            .items
            .iter()
            .partition(|item| there.contains(item.as_str()));
        match (old.first(), new.first()) {
            (Some(old), Some(new)) => {
                return invalid(format!(
                    "time step {} has item {old}, which is in the cube, and {new}, which is not: a time \
                     step is written at once",
                    step.time
                ));
            }
            (Some(_), None) if number > skipped => {
                return invalid(format!(
                    "time step {} is in the cube already, an earlier one is not",
                    step.time
                ));
            }
            (Some(_), None) => {
                skipped += 1;
                known += old.len();
            }
            (None, _) => {}
        }
    }
    Ok((skipped, known))
}

/// Checks that computed samples have the grid and the bands of the cube they are appended to.
fn check_alike(source: &dyn Samples, cube: &Cube) -> Result<()> {
    let invalid = |what: String| Err(Error::new(ErrorKind::InvalidInput, what));
    let (grid, expected) = (source.grid(), cube.grid());
    if Lattice::of(expected)?.extent(&grid).ok() != Some(Lattice::of(expected)?.extent(expected)?) {
        return invalid(format!(
            "the images are on the grid {grid}, the cube is on {expected}"
        ));
    }
    let described = |bands: &[CubeBand]| {
        let bands = bands.iter().map(|band| match band.nodata {
            Some(nodata) => format!("{} ({}, nodata {nodata})", band.name, band.dtype),
            None => format!("{} ({})", band.name, band.dtype),
        });
        bands.collect::<Vec<_>>().join(", ")
    };
    let values = |bands: &[CubeBand]| {
        let values = bands.iter();
        values
            .map(|band| (band.scale, band.offset))
            .collect::<Vec<_>>()
    };
    let (bands, there) = (source.bands(), cube.bands());
    if described(bands) != described(there) || values(bands) != values(there) {
        return invalid(format!(
            "the bands of the images are {}, those of the cube {}",
            described(bands),
            described(there)
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_dates_behind_those_of_the_cube_are_added() {
        let step = |day: u32, items: &[&str]| TimeStep {
            time: format!("2021-01-{day:02}T00:00:00Z").parse().unwrap(),
            bounds: None,
            items: items.iter().map(|&item| item.to_owned()).collect(),
        };
        let there = HashSet::from(["a", "b", "c"]);
        let known = |steps: &[TimeStep]| known_of(steps, &there);
        let (old, new) = (step(1, &["b", "a"]), step(3, &["d"]));
        assert_eq!(known(&[old.clone(), new.clone()]).unwrap(), (1, 2));
        assert_eq!(known(std::slice::from_ref(&new)).unwrap(), (0, 0));
        assert_eq!(known(&[old.clone(), step(2, &["c"])]).unwrap(), (2, 3));
        let err = known(&[step(2, &["c", "d"])]).unwrap_err();
        assert!(
            err.message()
                .contains("has item c, which is in the cube, and d"),
            "{err}"
        );
        let err = known(&[new, step(4, &["c"])]).unwrap_err();
        assert!(err.message().contains("an earlier one is not"), "{err}");
    }
}
