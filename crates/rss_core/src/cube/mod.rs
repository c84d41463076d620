//! Cubes: images on one grid at many times, as arrays (time, y, x) with coordinates and CF and GeoZarr metadata.
//!
//! `write` holds the protocol of a write, `fresh` finds what it adds, `resume` what an interrupted one has left, `samples` is
//! the source of its samples (`copied` from aligned images or `computed` by `apply`), `shards` computes and encodes shards,
//! `describe` makes the metadata, `publish` writes it. `foreign` opens the cubes of other writers.

mod check;
mod computed;
mod coordinates;
mod copied;
mod cut;
mod describe;
mod foreign;
mod fresh;
mod images;
mod known;
mod manifest;
mod options;
mod plan;
mod publish;
mod repair;
mod report;
mod resume;
mod samples;
mod shards;
mod write;

use std::ops::Range;

use ndarray::{Array2, Array3, ArrayD, Axis, Ix2, Ix3};
use serde_json::{Map, Value};

pub use self::{
    check::{CheckDepth, CheckOptions},
    describe::{CubeBand, TimeStep},
    images::{CubeImage, Duplicate, ImageAsset, ImagePixels},
    options::{CubeOptions, WriteProgress},
    repair::Remake,
    report::{CheckReport, Damage, Finding, Holds},
    samples::Images,
    write::Written,
};
pub use crate::apply::TimeBounds;
use crate::{
    array::{Arrangement, Array, Hierarchy, Root, Storage, below, check_group, parse},
    error::{Error, ErrorKind, Result},
    geo::{Crs, GeoBox, GeoTransform, Size, Window},
    location::Location,
    raster::{Pixels as Values, Raster, Sample, with_type},
    session::Session,
};

/// An open cube. Cheap to clone; clones share the cache of shard indexes.
#[derive(Clone, Debug)]
pub struct Cube {
    location: Location,
    attributes: Map<String, Value>,
    bands: Vec<CubeBand>,
    steps: Vec<TimeStep>,
    arrangement: Arrangement,
    levels: Vec<CubeLevel>,
    /// Time steps in a chunk of the coordinates along time, which an append keeps.
    steps_per_chunk: usize,
    /// Whether this library wrote it.
    is_own: bool,
    notes: Vec<String>,
}

#[derive(Clone, Debug)]
struct CubeLevel {
    grid: GeoBox,
    /// For each band its array, or one of all bands; of a cube of others its arrays by their paths.
    arrays: Vec<(String, Array)>,
    /// For each band where it lies; none where the level lacks it.
    slots: Vec<Option<Slot>>,
}

/// Where a band lies: its array, and its axes there.
#[derive(Clone, Debug)]
struct Slot {
    array: usize,
    axes: Axes,
}

/// The axes of a band's array.
#[derive(Clone, Debug)]
struct Axes {
    /// None where all time steps have the same samples.
    time: Option<usize>,
    y: usize,
    x: usize,
    /// The other axes, and the place of the band on each.
    fixed: Vec<(usize, u64)>,
}

impl Axes {
    /// Returns the axes of a cube of this library.
    fn of(arrangement: Arrangement, band: usize) -> Self {
        match arrangement {
            Arrangement::Bands => Self {
                time: Some(0),
                y: 1,
                x: 2,
                fixed: Vec::new(),
            },
            Arrangement::Stacked => Self {
                time: Some(0),
                y: 2,
                x: 3,
                fixed: vec![(1, band as u64)],
            },
        }
    }

    /// Returns the ranges of the array's axes that hold the band's samples.
    fn ranges(&self, times: &Range<usize>, window: &Window) -> Vec<Range<u64>> {
        let along =
            |start: u32, length: u32| u64::from(start)..u64::from(start) + u64::from(length);
        let rank = 2 + self.fixed.len() + usize::from(self.time.is_some());
        (0..rank)
            .map(|axis| {
                if axis == self.y {
                    return along(window.row, window.height);
                }
                if axis == self.x {
                    return along(window.col, window.width);
                }
                let fixed = self.fixed.iter().find(|(other, _)| *other == axis);
                fixed.map_or(times.start as u64..times.end as u64, |&(_, at)| at..at + 1)
            })
            .collect()
    }

    /// Returns samples as (time, y, x).
    fn arranged<T: Clone>(&self, samples: ArrayD<T>, times: usize) -> Result<Array3<T>> {
        let mut order: Vec<usize> = self.time.into_iter().chain([self.y, self.x]).collect();
        order.extend(self.fixed.iter().map(|(axis, _)| *axis));
        let wrong = |err: ndarray::ShapeError| {
            Error::new(ErrorKind::Corrupt, "an array whose axes are not time, y, x")
                .with_source(err)
        };
        let mut sorted = order.clone();
        sorted.sort_unstable();
        if !sorted.into_iter().eq(0..samples.ndim()) {
            let message = "an array whose axes are not time, y, x";
            return Err(Error::new(ErrorKind::Corrupt, message));
        }
        let mut samples = samples.permuted_axes(order);
        for _ in &self.fixed {
            let last = Axis(samples.ndim() - 1);
            samples = samples.index_axis_move(last, 0);
        }
        if self.time.is_some() {
            return samples.into_dimensionality::<Ix3>().map_err(wrong);
        }
        let plane = samples.into_dimensionality::<Ix2>().map_err(wrong)?;
        let (height, width) = plane.dim();
        let all = plane.broadcast((times, height, width));
        let all = all.ok_or_else(|| Error::new(ErrorKind::Corrupt, "a plane of another shape"))?;
        Ok(all.to_owned())
    }
}

/// Returns the ranges of an array's axes that hold a band's samples.
fn ranges(
    arrangement: Arrangement,
    band: usize,
    times: &Range<usize>,
    window: &Window,
) -> Vec<Range<u64>> {
    Axes::of(arrangement, band).ranges(times, window)
}

/// Drops the band axis of samples of one band.
fn without_band<T: Clone>(samples: ArrayD<T>, arrangement: Arrangement) -> Result<Array3<T>> {
    Axes::of(arrangement, 0).arranged(samples, 0)
}

impl Cube {
    /// Writes a new cube, shard by shard. An interrupted write, a killed process too, resumes when it is called
    /// again with the same images and options: shards that exist and are whole are kept, and the others written. Those
    /// of copied images whose files were replaced meanwhile are made anew, which [`Written::notes`] says. The cube cannot
    /// be opened until the write is complete.
    ///
    /// [`CubeImage`]s are copied, so they must be aligned to one grid. A cube or a result of [`apply`](crate::apply)
    /// may be on any grid, and is computed shard by shard with all of its time steps. A result becomes one time step
    /// with the time of its first image and the items of all, unless its bands are time steps by
    /// [`Apply::each_date`](crate::apply::Apply::each_date).
    ///
    /// Costs one request for each file's header and those of its tiles; each shard is written once.
    /// Shards are computed concurrently within the session's
    /// [`budget_bytes`](crate::SessionBuilder::budget_bytes). Only one write may run at a location at a time: a second
    /// one is refused, and one that was paused while another finished its work changes nothing.
    ///
    /// ```
    /// use rss_core::{Location, Session, zarr::{Cube, CubeOptions, CubeImage}};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let session = Session::builder().build()?;
    /// let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/tiff/files/");
    /// let file = Location::parse(&format!("{folder}gdal--byte_zstd-70892132.tif"))?;
    /// let images = ["2021-01-03T00:00:00Z", "2021-01-08T00:00:00Z"]
    ///     .map(|time| Ok(CubeImage::new(time, time.parse()?).with_band("grey", file.clone())));
    /// let images = images.into_iter().collect::<Result<Vec<_>, Box<dyn std::error::Error>>>()?;
    ///
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("cube.zarr");
    /// let location = Location::parse(&path.to_string_lossy())?;
    /// Cube::create(&session, &location, images, &CubeOptions::new()).await?;
    /// let cube = Cube::open(&session, &location).await?;
    /// let grey = cube.read::<u8>("grey", 0..2, None, 0).await?;
    /// assert_eq!(grey.dim(), (2, 20, 20));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] if images do not fit together, naming the image and the difference, if an
    /// option is invalid, or if another group, other files or an interrupted write of other images exist at the
    /// location; [`ErrorKind::Unavailable`] if another process writes there; [`ErrorKind::Changed`] if another has taken
    /// this write over; errors of reading the files, computing and writing the shards.
    pub async fn create(
        session: &Session,
        root: impl Into<Root>,
        images: impl Into<Images>,
        options: &CubeOptions,
    ) -> Result<Written> {
        write::create(session, &root.into(), images.into(), options).await
    }

    /// Appends images to a cube as later time steps. Images that are in it already are left out. Layout and grid are
    /// the cube's; of `options` only the grouping and the progress callback apply. Computed samples must have the
    /// cube's provenance: its grid, with the same mask, values and formula.
    ///
    /// Readers see the cube as it was until the root's `zarr.json` is replaced, at the end, and all of the new one from
    /// then on. In an Icechunk repository an append is one commit.
    ///
    /// An interrupted append resumes like [`Cube::create`].
    ///
    /// # Errors
    ///
    /// As [`Cube::create`]; [`ErrorKind::NotFound`] if there is no cube; [`ErrorKind::InvalidInput`] if an
    /// image is not later than the cube's last time step, or has another provenance.
    pub async fn append(
        session: &Session,
        root: impl Into<Root>,
        images: impl Into<Images>,
        options: &CubeOptions,
    ) -> Result<Written> {
        write::append(session, &root.into(), images.into(), options).await
    }

    /// Opens a cube that [`Cube::create`] has written, or one of others: a group of Zarr v3 or v2 whose arrays have axes
    /// x and y by the conventions of CF or GeoZarr, as xarray, rioxarray, odc-geo and GDAL write them. `docs/CUBES.md`
    /// tells what is read. Costs four requests, five where time steps are groups; of others one for the
    /// metadata where it is consolidated, else one for each group and array, and those of the coordinates.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`] if nothing is there, [`ErrorKind::Unsupported`] if no array of it has axes x and y, or
    /// several groups have that are not levels of one: [`Array::open`] opens its arrays.
    pub async fn open(session: &Session, root: impl Into<Root>) -> Result<Self> {
        let storage = Storage::at(session, &root.into()).await?;
        let opened = async {
            match storage.read("zarr.json").await? {
                Some(document) => {
                    let document = parse(&document)?;
                    let is_own = document
                        .pointer("/attributes")
                        .is_some_and(|attributes| attributes.get(describe::LAYOUT).is_some());
                    if is_own || !is_group(&document) {
                        return Self::of(&storage, &document).await;
                    }
                    let tree = Hierarchy::of(&storage, &document).await?;
                    foreign::open(&storage, &tree).await
                }
                None => match Hierarchy::of_v2(&storage).await? {
                    Some(tree) => foreign::open(&storage, &tree).await,
                    None => Err(none()),
                },
            }
        };
        opened.await.map_err(|err| located(err, &storage))
    }

    /// Opens a cube that this library has written.
    async fn open_in(storage: &Storage) -> Result<Self> {
        let document = storage.read("zarr.json").await?;
        Self::open_document(storage, document.as_deref()).await
    }

    /// Opens the cube of a root's `zarr.json`.
    async fn open_document(storage: &Storage, document: Option<&[u8]>) -> Result<Self> {
        let opened = async {
            match document {
                Some(document) => Self::of(storage, &parse(document)?).await,
                None if storage.read(".zgroup").await?.is_some() => Err(of_others()),
                None => Err(none()),
            }
        };
        opened.await.map_err(|err| located(err, storage))
    }

    async fn of(storage: &Storage, document: &Value) -> Result<Self> {
        let foreign = |what: &str| {
            Error::new(
                ErrorKind::Unsupported,
                format!("a group that is not a cube of this library: {what}"),
            )
        };
        if !is_group(document) {
            return Err(foreign("it is an array"));
        }
        check_group(document)?;
        let attributes = match document.get("attributes") {
            Some(Value::Object(attributes)) => attributes.clone(),
            _ => Map::new(),
        };
        let layout = attributes.get(describe::LAYOUT).ok_or_else(of_others)?;
        let overviews = layout.get("overviews").and_then(Value::as_u64).unwrap_or(0);
        let overviews = usize::try_from(overviews).unwrap_or(0);
        let arrangement = match layout.get("stacked").and_then(Value::as_bool) {
            Some(true) => Arrangement::Stacked,
            _ => Arrangement::Bands,
        };
        let names = layout.get("bands").and_then(Value::as_array);
        let names: Option<Vec<String>> = names.map(|names| {
            let names = names.iter().filter_map(Value::as_str);
            names.map(str::to_owned).collect()
        });
        let names = names.ok_or_else(|| foreign("its rss:layout has no bands"))?;
        // All metadata comes from the root's document, not from the arrays' own: it is one request, and an append
        // replaces the arrays' documents before the root.
        let metadata = document
            .pointer("/consolidated_metadata/metadata")
            .ok_or_else(|| foreign("it has no consolidated metadata"))?;
        let find = |path: &str| {
            metadata
                .get(path)
                .ok_or_else(|| foreign(&format!("it has no array {path}")))
        };
        let mut levels = Vec::with_capacity(overviews + 1);
        // A side of 32 bits can be halved 32 times, so a larger number is damaged metadata.
        for number in 0..=overviews.min(64) {
            let path = cut::level_path(number, overviews);
            let arrays = match arrangement {
                Arrangement::Bands => names.clone(),
                Arrangement::Stacked => vec![describe::STACK.to_owned()],
            };
            let mut opened = Vec::with_capacity(arrays.len());
            for name in arrays {
                let at = below(&path, &name);
                let array = Array::of_document(storage.clone(), &at, find(&at)?)?;
                opened.push((name, array));
            }
            let grid = find(&below(&path, describe::GRID))?;
            let shape = opened.first().map(|(_, array)| array.shape().to_vec());
            levels.push(CubeLevel {
                grid: grid_of(grid, shape.as_deref().unwrap_or_default())
                    .ok_or_else(|| foreign("its grid cannot be read"))?,
                arrays: opened,
                slots: (0..names.len())
                    .map(|band| {
                        let array = match arrangement {
                            Arrangement::Bands => band,
                            Arrangement::Stacked => 0,
                        };
                        let axes = Axes::of(arrangement, band);
                        Some(Slot { array, axes })
                    })
                    .collect(),
            });
        }
        let classes = layout.get(cut::CLASSES).and_then(Value::as_array);
        let classes = classes.into_iter().flatten().filter_map(Value::as_str);
        let classes: Vec<&str> = classes.collect();
        let first = levels.first().map(|level| level.arrays.as_slice());
        let bands = names
            .iter()
            .enumerate()
            .filter_map(|(number, name)| {
                let position = match arrangement {
                    Arrangement::Bands => number,
                    Arrangement::Stacked => 0,
                };
                let (_, array) = first?.get(position)?;
                Some(band_of(name, array, classes.contains(&name.as_str())))
            })
            .collect();
        let level = cut::level_path(0, overviews);
        let (steps, steps_per_chunk) = coordinates::read(storage, &level, metadata).await?;
        Ok(Self {
            location: storage.base.clone(),
            attributes,
            bands,
            steps,
            arrangement,
            levels,
            steps_per_chunk,
            is_own: true,
            notes: Vec::new(),
        })
    }

    /// Returns true if this library wrote the cube, so that [`Cube::append`] goes on with it.
    pub fn is_own(&self) -> bool {
        self.is_own
    }

    /// Returns what a user should know of a cube of others: arrays that are no bands, and why; what its metadata does not
    /// state.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Returns the cube with its first time steps only.
    fn with_first(&self, steps: usize) -> Self {
        let mut cube = self.clone();
        cube.steps.truncate(steps);
        cube
    }

    /// Returns the bands.
    pub fn bands(&self) -> &[CubeBand] {
        &self.bands
    }

    /// Returns the time steps.
    pub fn steps(&self) -> &[TimeStep] {
        &self.steps
    }

    /// Returns the grid at full resolution.
    pub fn grid(&self) -> &GeoBox {
        &self.levels[0].grid
    }

    /// Returns the grid of each level: full resolution, then overviews.
    pub fn levels(&self) -> Vec<&GeoBox> {
        self.levels.iter().map(|level| &level.grid).collect()
    }

    /// Returns the attributes of the root group.
    pub fn attributes(&self) -> &Map<String, Value> {
        &self.attributes
    }

    /// Returns the array of a band at a level: (time, y, x), or (time, band, y, x) where bands share it; of a cube of
    /// others its axes are in any order.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] if there is no such level or band.
    pub fn array(&self, level: usize, band: &str) -> Result<&Array> {
        if self.is_own
            && self.arrangement == Arrangement::Stacked
            && band == describe::STACK
            && let Some((_, array)) = self.level(level)?.arrays.first()
        {
            return Ok(array);
        }
        let (array, _) = self.slot(level, band)?;
        Ok(array)
    }

    /// Returns the levels that have a band: all, but of cubes of others.
    pub fn levels_of(&self, band: &str) -> Vec<usize> {
        let number = self.number(band);
        let has = |level: &CubeLevel| {
            number.is_some_and(|band| matches!(level.slots.get(band), Some(Some(_))))
        };
        let levels = self.levels.iter().enumerate();
        levels
            .filter(|(_, level)| has(level))
            .map(|(number, _)| number)
            .collect()
    }

    fn wrong(&self, what: String) -> Error {
        Error::new(ErrorKind::InvalidInput, what).at(&self.location)
    }

    fn level(&self, level: usize) -> Result<&CubeLevel> {
        self.levels.get(level).ok_or_else(|| {
            let last = self.levels.len() - 1;
            self.wrong(format!("level {level} is not one of 0 to {last}"))
        })
    }

    /// Returns the array of a band at a level, and its axes there.
    fn slot(&self, level: usize, band: &str) -> Result<(&Array, &Axes)> {
        let found = self.level(level)?;
        let number = self.number(band).ok_or_else(|| {
            let names: Vec<&str> = self.bands.iter().map(|band| band.name.as_str()).collect();
            self.wrong(format!("band `{band}` is not one of {}", names.join(", ")))
        })?;
        let slot = found.slots.get(number).and_then(Option::as_ref);
        let place = slot.and_then(|slot| Some((&found.arrays.get(slot.array)?.1, &slot.axes)));
        place.ok_or_else(|| {
            let levels: Vec<String> = self.levels_of(band).iter().map(usize::to_string).collect();
            self.wrong(format!(
                "band `{band}` is not at level {level}, but at {}",
                levels.join(", ")
            ))
        })
    }

    fn number(&self, band: &str) -> Option<usize> {
        let find = |name: &str| self.bands.iter().position(|one| one.name == name);
        // A selection names a band of an asset with several `key:red`, its array is `key.red`.
        if let Some(number) = find(band).or_else(|| find(&band.replace(':', "."))) {
            return Some(number);
        }
        // Bands of an axis of others are `array.label`, of which the label is enough where it is unique.
        let mut ends = self.bands.iter().enumerate().filter(|(_, one)| {
            let start = one.name.strip_suffix(band).filter(|_| !self.is_own);
            start.is_some_and(|start| start.ends_with('.'))
        });
        ends.next()
            .filter(|_| ends.next().is_none())
            .map(|(number, _)| number)
    }

    /// Reads a window of a band at some time steps: (time, y, x). Without a window it reads the complete level.
    ///
    /// # Errors
    ///
    /// As [`Array::read`], and [`ErrorKind::InvalidInput`] if there is no such level, band, time step or window.
    pub async fn read<T>(
        &self,
        band: &str,
        times: Range<usize>,
        window: Option<Window>,
        level: usize,
    ) -> Result<Array3<T>>
    where
        T: Sample + Send + Sync + 'static,
    {
        let (array, axes) = self.slot(level, band)?;
        let size = self.levels[level].grid.size;
        let window = window.unwrap_or_else(|| Window::whole(size));
        window
            .check_inside(size)
            .map_err(|err| err.at(&self.location))?;
        if axes.time.is_none() && (times.is_empty() || times.end > self.steps.len()) {
            let message = format!(
                "{}..{} is empty or outside of the {} time steps",
                times.start,
                times.end,
                self.steps.len()
            );
            return Err(self.wrong(message));
        }
        let samples = array.read(&axes.ranges(&times, &window)).await?;
        axes.arranged(samples, times.len())
    }

    /// Reads a window of a band as a raster, with its grid and nodata value: each time step is a band of it.
    ///
    /// # Errors
    ///
    /// As [`Cube::read`].
    pub async fn read_raster(
        &self,
        band: &str,
        times: Range<usize>,
        window: Option<Window>,
        level: usize,
    ) -> Result<Raster> {
        let array = self.array(level, band)?;
        let grid = &self.levels[level].grid;
        let pixels: Values = with_type!(array.dtype(), T => {
            T::wrap(self.read::<T>(band, times, window, level).await?)
        });
        let found = self.number(band).and_then(|number| self.bands.get(number));
        Ok(Raster {
            pixels,
            geobox: match window {
                Some(window) => grid.of_window(&window),
                None => grid.clone(),
            },
            nodata: found.and_then(|band| band.nodata),
            sparse: Vec::new(),
        })
    }

    /// Reads the time series of a band at pixels: (pixel, time). A chunk that holds several of the pixels is read
    /// once for each.
    ///
    /// # Errors
    ///
    /// As [`Cube::read`].
    pub async fn read_series<T>(&self, band: &str, pixels: &[PixelIndex]) -> Result<Array2<T>>
    where
        T: Sample + Send + Sync + 'static,
    {
        use futures::{StreamExt, TryStreamExt, stream};
        let times = self.steps.len();
        let series: Vec<Array3<T>> = stream::iter(pixels)
            .map(|pixel| {
                let window = Window {
                    col: pixel.col,
                    row: pixel.row,
                    width: 1,
                    height: 1,
                };
                self.read::<T>(band, 0..times, Some(window), 0)
            })
            .buffered(16)
            .try_collect()
            .await?;
        let samples: Vec<T> = series.iter().flat_map(|one| one.iter().copied()).collect();
        Array2::from_shape_vec((pixels.len(), times), samples).map_err(|err| {
            Error::new(ErrorKind::Corrupt, "time series of different lengths").with_source(err)
        })
    }
}

fn is_group(document: &Value) -> bool {
    document.get("node_type").and_then(Value::as_str) == Some("group")
}

fn none() -> Error {
    Error::new(
        ErrorKind::NotFound,
        "no cube: neither zarr.json nor .zgroup exists",
    )
}

fn of_others() -> Error {
    Error::new(
        ErrorKind::Unsupported,
        "a cube of another writer: it is read, but not written or appended to",
    )
}

fn located(err: Error, storage: &Storage) -> Error {
    match err.location() {
        Some(_) => err,
        None => err.at(&storage.base),
    }
}

/// A pixel of a grid, counted from 0 at its top left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PixelIndex {
    /// The column.
    pub col: u32,
    /// The row.
    pub row: u32,
}

/// Reads a grid from the attributes of `spatial_ref` and the shape of an array.
fn grid_of(document: &Value, shape: &[u64]) -> Option<GeoBox> {
    let attributes = document.get("attributes")?;
    let numbers: Vec<f64> = attributes
        .get("GeoTransform")?
        .as_str()?
        .split_ascii_whitespace()
        .map(|number| number.parse().ok())
        .collect::<Option<_>>()?;
    let [.., height, width] = shape else {
        return None;
    };
    let wkt = attributes.get("crs_wkt")?.as_str()?;
    Some(GeoBox {
        size: Size {
            width: u32::try_from(*width).ok()?,
            height: u32::try_from(*height).ok()?,
        },
        crs: Some(match epsg_of(wkt) {
            Some(code) => Crs::Epsg(code),
            None => Crs::Wkt(wkt.to_owned()),
        }),
        transform: Some(GeoTransform(numbers.try_into().ok()?)),
    })
}

/// Returns the EPSG code of well-known text from its final `AUTHORITY`, or of `EPSG:CODE`, which is stored for a CRS
/// whose WKT is not known.
fn epsg_of(wkt: &str) -> Option<u32> {
    let code = match wkt.strip_prefix("EPSG:") {
        Some(code) => code,
        None => {
            let (_, end) = wkt.trim_end().rsplit_once("AUTHORITY[\"EPSG\",\"")?;
            end.strip_suffix("\"]]")?
        }
    };
    code.parse().ok()
}

fn band_of(name: &str, array: &Array, is_class: bool) -> CubeBand {
    let attributes = array.attributes();
    let number = |key: &str| attributes.get(key).and_then(Value::as_f64);
    CubeBand {
        name: name.to_owned(),
        dtype: array.dtype(),
        nodata: attributes
            .get("_FillValue")
            .and_then(describe::fill_of_attribute),
        scale: number("scale_factor"),
        offset: number("add_offset"),
        unit: attributes
            .get("units")
            .and_then(Value::as_str)
            .map(str::to_owned),
        is_class,
    }
}
