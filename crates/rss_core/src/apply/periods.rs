//! Reducing within periods, such as months: each period is a part of the cube, and the parts of a block are computed
//! one after the other.

use std::{collections::BTreeMap, sync::Arc};

use ::stac::Item;
use chrono::{DateTime, NaiveDate, NaiveTime, Utc};
use futures::{StreamExt, TryStreamExt, stream};
use ndarray::{Array3, s};

use super::{
    axes::{Step, TimeBounds},
    cube::{ImageCube, Inner},
    load::BlockPlan,
    mosaic::Mosaic,
    reduce::Reducer,
    run::Apply,
    time::{Clock, Grouping, no_position},
};
use crate::{
    error::{Error, ErrorKind, Result},
    geo::Window,
    raster::Sample,
    stac,
};

/// Periods whose files are opened concurrently; each opens many at once.
const PLANS: usize = 4;

/// When and where an image was taken.
#[derive(Clone, Debug)]
pub(super) struct Moment {
    id: String,
    time: DateTime<Utc>,
    /// Its interval, where the item states one.
    pub(super) bounds: TimeBounds,
    /// The longitude of its centre in degrees, if the item has a position.
    longitude: Option<f64>,
}

impl Moment {
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] if the item has no date.
    pub(super) fn of(item: &Item) -> Result<Self> {
        let time = stac::datetime(item).ok_or_else(|| {
            let message = format!("item {} has no date", item.id);
            Error::new(ErrorKind::InvalidInput, message)
        })?;
        Ok(Self {
            id: item.id.clone(),
            time,
            bounds: TimeBounds::of_item(item, time),
            longitude: stac::longitude(item),
        })
    }
}

/// The variables of a result whose bands are time steps, and these.
#[derive(Clone, Debug)]
pub(super) struct Dated {
    #[cfg_attr(
        not(feature = "zarr"),
        expect(dead_code, reason = "arrays of a cube have them")
    )]
    pub(super) names: Vec<String>,
    pub(super) steps: Arc<[Step]>,
}

/// Returns the names of bands: all time steps of the first variable, then all of the next.
pub(super) fn names_of(names: &[String], steps: &[Step]) -> Vec<String> {
    let of_name = |name: &String| {
        let labels = steps.iter().map(|step| format!("{name} {}", step.label));
        labels.collect::<Vec<_>>()
    };
    names.iter().flat_map(of_name).collect()
}

/// A period, and the indices of the time steps in it.
struct Period {
    step: Step,
    members: Vec<usize>,
}

/// The reads of a block, part by part.
pub(super) struct Plans {
    pub(super) of_parts: Vec<(ImageCube, BlockPlan)>,
    /// Peak bytes: those of the largest part, and the result of all parts.
    pub(super) bytes: u64,
}

impl<O: Sample + Send + Sync + 'static> Apply<O> {
    /// Runs the computation within each period by itself: the median of each month, the geometric median of each
    /// season. All bands of the first name, one for each period, come first, then those of the next; they are named
    /// like `ndvi 2021-01`. Written as Zarr, each name is an array whose time steps are the periods, at 00:00 UTC of
    /// their first day.
    ///
    /// A period without images has no band. Days are those of the cube's time steps: solar days, unless these are days
    /// of UTC or the cube's [`Clock`] is UTC. A block takes the memory of the period with the most time steps.
    ///
    /// ```
    /// # use rss_core::{Cmp, Collection, DEA, ImageQueryBuilder, Intersects, Session, Source, date};
    /// use rss_core::apply::{ApplyOptions, Expression, ImageCubeOptions, reduce::Reducer, time::Grouping};
    /// # let bed = rss_testbed::Testbed::builder().scenes(rss_testbed::Scenes::small()).start()?;
    /// # let session = Session::builder().s3_endpoint(&bed.s3_endpoint()).build()?;
    /// # let dea = Source::api(&bed.stac_url())?.like(&DEA);
    /// # let found = ImageQueryBuilder::new(dea, Collection::Sentinel2, Intersects::scene("56jns"))
    /// #     .session(session.clone())
    /// #     .canonical_bands(["red", "nir"])
    /// #     .start_date(date(2021, 1, 1)).end_date(date(2021, 2, 1))
    /// #     .cloudcover((Cmp::Less, 30)).build()?.search()?;
    ///
    /// let cube = session.cube(&found, &ImageCubeOptions::new().reflectance())?;
    /// let ndvi: Expression = "ndvi=(nir-red)/(nir+red)".parse()?;
    /// let monthly = cube.express(&[ndvi], Some(Reducer::Median), ApplyOptions::new())?.every(Grouping::Month)?;
    /// let (raster, _) = session.compute(monthly)?;
    /// assert_eq!(raster.pixels.shape()[0], 1); // all images are of January
    /// # Ok::<_, anyhow::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] if each time step is a band of the result, so that nothing is reduced; if a time step
    /// has images of two periods, which is named; or if an item has no position for its solar day.
    pub fn every(mut self, by: Grouping) -> Result<Self> {
        if self.each_date.is_some() {
            let message = format!("each time step is a band: no reducer combines those of a {by}");
            return Err(Error::new(ErrorKind::InvalidInput, message));
        }
        let periods = self.cube.periods(by)?;
        let parts = periods
            .iter()
            .map(|period| ImageCube(Arc::new(self.cube.0.of_steps(&period.members))));
        self.parts = parts.collect();
        let how = self.how.as_deref().unwrap_or("a closure");
        self.how = Some(format!("{how} every {by}"));
        let names = std::mem::take(&mut self.options.names);
        let steps: Arc<[Step]> = periods.into_iter().map(|period| period.step).collect();
        let classes = self.classes.iter();
        let classes = classes.flat_map(|&is_class| std::iter::repeat_n(is_class, steps.len()));
        self.classes = classes.collect();
        // A closure whose bands have no names: their number is not known before it runs.
        if !names.is_empty() {
            self.options.names = names_of(&names, &steps);
            self.each_date = Some(Dated { names, steps });
        }
        Ok(self)
    }

    /// Returns the time steps that the bands of the result are, if they are time steps: those of the cube, or the
    /// periods of [`every`](Self::every).
    pub fn steps(&self) -> Option<&[Step]> {
        self.each_date.as_ref().map(|dated| &*dated.steps)
    }

    /// Returns the side of blocks, in pixels.
    pub(super) async fn block_side(&self) -> Result<u32> {
        let most = self.parts.iter().max_by_key(|part| part.steps().len());
        most.unwrap_or(&self.cube).block_side(&self.options).await
    }

    /// Plans the reads of a block. Borrows nothing.
    pub(super) fn plans(
        &self,
        window: Window,
    ) -> impl Future<Output = Result<Plans>> + Send + use<O> {
        let (parts, plan) = (Arc::clone(&self.parts), Arc::clone(&self.plan));
        let halo = self.options.halo;
        let pixels = u64::from(window.width) * u64::from(window.height);
        let joined = match parts.len() {
            // Smaller than the block that it is computed from, whose memory is free by then.
            ..=1 => 0,
            _ => pixels * self.options.names.len() as u64 * size_of::<O>() as u64,
        };
        async move {
            let of_part = |part: &ImageCube| {
                let planning = plan(Arc::clone(&part.0), window, halo);
                let part = part.clone();
                async move { Ok::<_, Error>((part, planning.await?)) }
            };
            let planning: Vec<_> = parts.iter().map(of_part).collect();
            let of_parts: Vec<(ImageCube, BlockPlan)> =
                stream::iter(planning).buffered(PLANS).try_collect().await?;
            let largest = of_parts.iter().map(|(_, plan)| plan.bytes).max();
            Ok(Plans {
                bytes: largest.unwrap_or(0).saturating_add(joined),
                of_parts,
            })
        }
    }
}

/// Returns the first instant of a day of UTC.
fn midnight(day: NaiveDate) -> DateTime<Utc> {
    day.and_time(NaiveTime::MIN).and_utc()
}

/// Writes the bands of a part into the result of all parts, which the first part begins: of each band all parts, then the
/// next band.
pub(super) fn join<O: Sample>(
    whole: Option<Array3<O>>,
    samples: Array3<O>,
    part: usize,
    parts: usize,
    window: &Window,
) -> Result<Array3<O>> {
    let (bands, height, width) = samples.dim();
    let shape = (bands * parts, height, width);
    let mut whole = whole.unwrap_or_else(|| Array3::from_elem(shape, O::of_number(0.0)));
    if whole.dim() != shape {
        let message = format!(
            "block {window} has {bands} bands in one period, {} in the first",
            whole.dim().0 / parts
        );
        return Err(Error::new(ErrorKind::InvalidInput, message));
    }
    whole.slice_mut(s![part..; parts, .., ..]).assign(&samples);
    Ok(whole)
}

impl ImageCube {
    /// Returns the periods of the time steps, in order.
    fn periods(&self, by: Grouping) -> Result<Vec<Period>> {
        let invalid = |message: String| Err(Error::new(ErrorKind::InvalidInput, message));
        if by == Grouping::Item {
            return invalid("periods of single items: expected one such as month".to_owned());
        }
        let moments: Vec<&Moment> = self.0.moments.iter().flatten().collect();
        let times: Vec<DateTime<Utc>> = moments.iter().map(|moment| moment.time).collect();
        let mut starts = by
            .starts(self.clock(), &times, |index| moments[index].middle())?
            .into_iter()
            .map(|start| start.unwrap_or(NaiveDate::MIN));
        let mut periods: BTreeMap<NaiveDate, Period> = BTreeMap::new();
        for (number, (step, moments)) in self.steps().iter().zip(&self.0.moments).enumerate() {
            let of_images: Vec<NaiveDate> = starts.by_ref().take(moments.len()).collect();
            let Some(&start) = of_images.first() else {
                continue;
            };
            if let Some(other) = of_images.iter().find(|other| **other != start) {
                let (start, other) = (start.min(*other), start.max(*other));
                return invalid(format!(
                    "time step {} has images of two periods, {} and {}: group images by less than a {by}",
                    step.label,
                    by.label(start),
                    by.label(other)
                ));
            }
            let period = periods.entry(start).or_insert_with(|| Period {
                step: Step {
                    label: by.label(start),
                    time: match by {
                        Grouping::All => step.time,
                        _ => midnight(start),
                    },
                    bounds: match by.end(start) {
                        Some(end) => TimeBounds::of(midnight(start), midnight(end)),
                        None => step.bounds,
                    },
                    items: Vec::new(),
                },
                members: Vec::new(),
            });
            if by == Grouping::All {
                period.step.bounds = period.step.bounds.and(step.bounds);
            }
            period.step.items.extend_from_slice(&step.items);
            period.members.push(number);
        }
        Ok(periods.into_values().collect())
    }

    /// Returns the clock by which the time steps have their days.
    fn clock(&self) -> Clock {
        let options = &self.0.options;
        options.grouping.clock(options.clock)
    }

    /// Returns a note where time steps are mosaics of several days, so that a reducer over time does not see these. Not
    /// if the mosaic is the same as the reducer, and two in a row are as good as one.
    pub(super) fn reduced_by(&self, reducer: Reducer) -> Option<String> {
        let mosaic = self.0.options.mosaic;
        let is_same = matches!(reducer, Reducer::First | Reducer::Min | Reducer::Max)
            && mosaic.reducer() == reducer;
        // One time step of all dates, whose value was asked for as a mosaic: the first of one is itself.
        let is_whole = self.0.options.grouping == Grouping::All
            && reducer == Reducer::First
            && !matches!(mosaic, Mosaic::FirstValid | Mosaic::LeastCloud);
        match is_same || is_whole {
            true => None,
            false => self.reduced(&reducer.to_string()),
        }
    }

    /// As [`reduced_by`](Self::reduced_by), for a reducer by its name.
    pub(super) fn reduced(&self, reducer: &str) -> Option<String> {
        let (by, mosaic) = (self.0.options.grouping, self.0.options.mosaic);
        let has_days = |moments: &Vec<Moment>| {
            let days = moments.iter().map(|moment| {
                let longitude = moment.longitude.unwrap_or(0.0);
                Grouping::SolarDay.starts(Clock::Solar, &[moment.time], |_| Ok(longitude))
            });
            let days: Vec<_> = days.filter_map(Result::ok).collect();
            days.iter().any(|day| Some(day) != days.first())
        };
        if matches!(by, Grouping::Item | Grouping::Day | Grouping::SolarDay)
            || !self.0.moments.iter().any(has_days)
        {
            return None;
        }
        let period = match by {
            Grouping::All => String::new(),
            by => format!(" and reduce every {by}"),
        };
        let each = match mosaic {
            Mosaic::FirstValid | Mosaic::LeastCloud => "one image",
            _ => "one value",
        };
        Some(format!(
            "images of several days were made one time step (by {by}) by the mosaic `{mosaic}` before `{reducer}`, \
             which gets {each} of each: to reduce all dates group by solar_day{period}"
        ))
    }
}

impl Moment {
    /// Returns the longitude of the image's centre.
    fn middle(&self) -> Result<f64> {
        self.longitude.ok_or_else(|| no_position(&self.id))
    }
}

impl Inner {
    /// Returns a cube of some of the time steps, which shares the open files.
    fn of_steps(&self, steps: &[usize]) -> Self {
        let picked = |index: &usize| self.steps.get(*index).cloned();
        Self {
            steps: steps.iter().filter_map(picked).collect(),
            moments: steps
                .iter()
                .filter_map(|&index| self.moments.get(index).cloned())
                .collect(),
            images: steps
                .iter()
                .filter_map(|&index| self.images.get(index).cloned())
                .collect(),
            ..self.clone()
        }
    }
}
