//! Coordinate transformations of GDAL, each used by the thread that made it.

#![expect(unsafe_code, reason = "GDAL's error handlers are C functions")]

use std::{
    cell::RefCell,
    collections::{HashMap, hash_map::Entry},
    marker::PhantomData,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use gdal::spatial_ref::{AxisMappingStrategy, CoordTransform, SpatialRef};

use crate::{
    error::{Error, ErrorKind, Result},
    geo::{Crs, ForeignProjection, ProjectionEngine, set_projection_engine},
};

/// CRSs that are kept; more begin anew. A process has a handful.
const MOST_KEPT: usize = 256;

/// Lends PROJ to `rss_raster`, once for the process.
pub(crate) fn lend() {
    set_projection_engine(Arc::new(Engine::default()));
}

/// PROJ, and the CRSs that were asked for.
#[derive(Debug, Default)]
struct Engine {
    known: Mutex<HashMap<Crs, Arc<Projected>>>,
}

impl ProjectionEngine for Engine {
    fn projection(&self, crs: &Crs) -> Result<Arc<dyn ForeignProjection>> {
        // A panic while the lock is held leaves a whole map.
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(projected) = known.get(crs) {
            return Ok(Arc::<Projected>::clone(projected));
        }
        let made = Arc::new(Projected::of(crs)?);
        if known.len() >= MOST_KEPT {
            known.clear();
        }
        known.insert(crs.clone(), Arc::clone(&made));
        Ok(made)
    }

    fn crs(&self, text: &str) -> Result<Crs> {
        let _quiet = Quiet::start();
        let invalid = |err| {
            let message = format!("`{text}` is not a CRS that PROJ knows");
            Error::new(ErrorKind::InvalidInput, message).with_source(err)
        };
        let reference = SpatialRef::from_definition(text).map_err(invalid)?;
        let is_epsg = reference
            .auth_name()
            .is_some_and(|name| name.eq_ignore_ascii_case("EPSG"));
        if is_epsg && let Ok(Ok(code)) = reference.auth_code().map(u32::try_from) {
            return Ok(Crs::Epsg(code));
        }
        if !reference.is_projected() && !reference.is_geographic() {
            let message = format!("`{text}` is not a geographic or projected CRS");
            return Err(Error::new(ErrorKind::InvalidInput, message));
        }
        Ok(match reference.to_wkt() {
            Ok(wkt) if !wkt.is_empty() => Crs::of_wkt(wkt),
            // What WKT 1 cannot express stays as it was written.
            _ => Crs::Wkt(text.to_owned()),
        })
    }
}

/// A CRS that PROJ evaluates.
#[derive(Debug)]
struct Projected {
    crs: Crs,
    /// The key of its transformations on each thread.
    id: u64,
    metres: Option<f64>,
    middle: f64,
}

/// Transformations from degrees to a CRS and back.
type Pair = (CoordTransform, CoordTransform);

thread_local! {
    /// The transformations of this thread by [`Projected::id`]: PROJ's must not be shared.
    static PAIRS: RefCell<HashMap<u64, Pair>> = RefCell::new(HashMap::new());
}

impl Projected {
    fn of(crs: &Crs) -> Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let _quiet = Quiet::start();
        let reference = reference(crs).map_err(|err| unknown(crs, err))?;
        if !reference.is_projected() && !reference.is_geographic() {
            let message = format!("{crs} is neither geographic nor a map projection");
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        // Made once here, so that a CRS that PROJ cannot convert is an error and not a hole.
        pair(crs).map_err(|err| unknown(crs, err))?;
        let parameter = |name| reference.get_proj_param(name).ok().flatten();
        let middle = parameter("central_meridian").or_else(|| parameter("longitude_of_center"));
        Ok(Self {
            crs: crs.clone(),
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            metres: reference.is_projected().then(|| reference.linear_units()),
            middle: middle.unwrap_or(0.0),
        })
    }

    /// Converts a point by this thread's transformation; none outside the domain.
    fn convert(
        &self,
        [x, y]: [f64; 2],
        which: impl Fn(&Pair) -> &CoordTransform,
    ) -> Option<[f64; 2]> {
        let _quiet = Quiet::start();
        PAIRS.with_borrow_mut(|pairs| {
            if pairs.len() >= MOST_KEPT {
                pairs.clear();
            }
            let made = match pairs.entry(self.id) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(free) => free.insert(pair(&self.crs).ok()?),
            };
            let (mut x, mut y) = ([x], [y]);
            which(made).transform_coords(&mut x, &mut y, &mut []).ok()?;
            let place = [x[0], y[0]];
            place.iter().all(|part| part.is_finite()).then_some(place)
        })
    }
}

impl ForeignProjection for Projected {
    fn to_crs(&self, lon_lat: [f64; 2]) -> Option<[f64; 2]> {
        self.convert(lon_lat, |pair| &pair.0)
    }

    fn to_lon_lat(&self, coords: [f64; 2]) -> Option<[f64; 2]> {
        self.convert(coords, |pair| &pair.1)
    }

    fn metres(&self) -> Option<f64> {
        self.metres
    }

    fn middle(&self) -> f64 {
        self.middle
    }
}

fn unknown(crs: &Crs, err: gdal::errors::GdalError) -> Error {
    let crs: String = crs.to_string().chars().take(60).collect();
    let message = format!("PROJ cannot convert {crs} to degrees");
    Error::new(ErrorKind::Unsupported, message).with_source(err)
}

/// Returns the CRS with longitude before latitude, and east before north.
fn reference(crs: &Crs) -> gdal::errors::Result<SpatialRef> {
    let mut reference = match crs {
        Crs::Epsg(code) => SpatialRef::from_epsg(*code)?,
        Crs::Wkt(text) if text.trim_start().starts_with('{') => SpatialRef::from_definition(text)?,
        Crs::Wkt(text) => SpatialRef::from_wkt(text)?,
    };
    reference.set_axis_mapping_strategy(AxisMappingStrategy::TraditionalGisOrder);
    Ok(reference)
}

fn pair(crs: &Crs) -> gdal::errors::Result<Pair> {
    let (degrees, own) = (reference(&Crs::Epsg(4326))?, reference(crs)?);
    Ok((
        CoordTransform::new(&degrees, &own)?,
        CoordTransform::new(&own, &degrees)?,
    ))
}

/// Keeps GDAL from printing errors of this thread while it lives: a point outside a domain is one.
struct Quiet(PhantomData<*const ()>);

impl Quiet {
    fn start() -> Self {
        // SAFETY: the handler is GDAL's own, takes no data, and is removed on this thread when `self` is dropped,
        // which cannot move to another.
        unsafe { gdal_sys::CPLPushErrorHandler(Some(gdal_sys::CPLQuietErrorHandler)) };
        Self(PhantomData)
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        // SAFETY: as many handlers were pushed on this thread.
        unsafe { gdal_sys::CPLPopErrorHandler() };
    }
}
