//! The grid of a cube: chosen by its options for the grids of its images. No IO.

use std::{collections::BTreeSet, fmt, str::FromStr};

use super::options::{Grid, ImageCubeOptions};
use crate::{
    error::{Error, ErrorKind, Result},
    geo::{Bbox, Crs, GeoBox, Lattice, Resolution, Window},
};

/// Where the edges of pixels lie in a grid whose resolution is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum Anchor {
    /// Where CRS and resolution are the images' own, at their edges; else at multiples of the resolution.
    #[default]
    Auto,
    /// Edges at multiples of the resolution, as gdalwarp's `-tap`.
    Edge,
    /// Centres at multiples of the resolution.
    Center,
    /// A corner of four pixels at this x and y, in the CRS of the grid.
    At([f64; 2]),
    /// The images' own edges, also with another resolution: the upper left corner of the first image is one of the
    /// grid's. Their CRS only.
    Native,
}

impl FromStr for Anchor {
    type Err = Error;

    /// Reads `auto`, `edge`, `center`, `native` or `X,Y`.
    fn from_str(text: &str) -> Result<Self> {
        let expected = || {
            let message =
                format!("anchor `{text}` is not one of auto, edge, center, native or X,Y");
            Error::new(ErrorKind::InvalidInput, message)
        };
        Ok(match text {
            "auto" => Self::Auto,
            "edge" => Self::Edge,
            "center" | "centre" => Self::Center,
            "native" => Self::Native,
            _ => {
                let (x, y) = text.split_once(',').ok_or_else(expected)?;
                let number = |text: &str| {
                    let number = text.trim().parse().ok();
                    number.filter(|number: &f64| number.is_finite())
                };
                Self::At([
                    number(x).ok_or_else(expected)?,
                    number(y).ok_or_else(expected)?,
                ])
            }
        })
    }
}

impl fmt::Display for Anchor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Edge => f.write_str("edge"),
            Self::Center => f.write_str("center"),
            Self::Native => f.write_str("native"),
            Self::At([x, y]) => write!(f, "{x},{y}"),
        }
    }
}

/// The part of the globe that a cube loads.
#[derive(Clone, Copy, Debug)]
pub(super) enum Part {
    Degrees(Bbox),
    /// xmin, ymin, xmax, ymax in the CRS of the grid.
    Extent([f64; 4]),
}

/// Returns the part that the options ask for; none for all of the images.
///
/// # Errors
///
/// [`ErrorKind::InvalidInput`] if they state two.
pub(super) fn part_of(options: &ImageCubeOptions) -> Result<Option<Part>> {
    Ok(match (options.bbox, options.extent, &options.clip) {
        (Some(_), Some(_), _) => {
            let message = "both a bbox and an extent are set; expected one of them";
            return Err(Error::new(ErrorKind::InvalidInput, message));
        }
        (Some(bbox), None, _) => Some(Part::Degrees(bbox)),
        (None, Some(extent), _) => Some(Part::Extent(extent)),
        (None, None, Some(zones)) => Some(Part::Degrees(zones.extent()?)),
        (None, None, None) => None,
    })
}

/// Returns true if the grid depends on the grids of the images.
pub(super) fn needs_images(options: &ImageCubeOptions, part: Option<Part>) -> bool {
    let of_images = matches!(options.anchor, Anchor::Auto | Anchor::Native);
    match (&options.grid, part) {
        (Grid::Of(_), _) => false,
        (Grid::Projected(..), Some(_)) | (Grid::Utm(_), Some(Part::Degrees(_))) => of_images,
        _ => true,
    }
}

/// Returns the grid, large enough for the part that is asked for, or else for the grids of all images.
pub(super) fn chosen(
    options: &ImageCubeOptions,
    part: Option<Part>,
    grids: &[GeoBox],
) -> Result<GeoBox> {
    let whole = match (&options.grid, part) {
        (Grid::Of(grid), _) => grid.clone(),
        (Grid::Native, _) => native(grids)?,
        (Grid::Resolution(resolution), _) => {
            one_crs(grids)?;
            let crs = grids.iter().find_map(|grid| grid.crs.clone());
            let crs =
                crs.ok_or_else(|| invalid("the images have no CRS or no geotransform".to_owned()))?;
            let anchor = anchor(options.anchor, grids, &crs, *resolution)?;
            GeoBox::covering(grids, &crs, *resolution, anchor)?
        }
        (Grid::Projected(crs, resolution), part) => {
            return projected(options, part, grids, crs, *resolution);
        }
        (Grid::Utm(resolution), part) => {
            let crs = Crs::utm_of(&match part {
                Some(Part::Degrees(bbox)) => bbox,
                _ => bbox_of(grids)?,
            })?;
            return projected(options, part, grids, &crs, *resolution);
        }
    };
    let missed = |what: String| {
        let message = format!("{what} does not touch the images' grid, {whole}");
        Error::new(ErrorKind::InvalidInput, message)
    };
    match part {
        None => Ok(whole),
        Some(Part::Degrees(bbox)) => whole
            .crop(&bbox)?
            .ok_or_else(|| missed(format!("bbox {bbox}"))),
        Some(Part::Extent(extent)) => {
            let [left, bottom, right, top] = extent;
            windows_of(&whole, extent)
                .map(|windows| whole.around(&windows))?
                .ok_or_else(|| missed(format!("extent {left},{bottom},{right},{top}")))
        }
    }
}

/// Returns a grid of a CRS and a resolution.
fn projected(
    options: &ImageCubeOptions,
    part: Option<Part>,
    grids: &[GeoBox],
    crs: &Crs,
    resolution: Resolution,
) -> Result<GeoBox> {
    let anchor = anchor(options.anchor, grids, crs, resolution)?;
    match part {
        None => GeoBox::covering(grids, crs, resolution, anchor),
        Some(Part::Degrees(bbox)) => GeoBox::of_bbox_at(&bbox, crs.clone(), resolution, anchor),
        Some(Part::Extent(extent)) => GeoBox::of_bounds_at(crs.clone(), extent, resolution, anchor),
    }
}

/// Returns a point where the corners of four pixels meet.
fn anchor(anchor: Anchor, grids: &[GeoBox], crs: &Crs, resolution: Resolution) -> Result<[f64; 2]> {
    let in_crs = |grid: &&GeoBox| grid.crs.as_ref().is_some_and(|own| own.is_same(crs));
    let corner = |grid: &GeoBox| {
        let is_upright = grid
            .transform
            .is_some_and(|transform| transform.is_axis_aligned());
        let [left, _, _, top] = grid.bounds().filter(|_| is_upright)?;
        Some([left, top])
    };
    let is_own = |grid: &&GeoBox| {
        let near = |a: f64, b: f64| (a - b).abs() <= 1e-9 * b.abs();
        grid.resolution()
            .is_some_and(|own| near(own.x, resolution.x) && near(own.y, resolution.y))
    };
    Ok(match anchor {
        Anchor::Edge => [0.0; 2],
        Anchor::Center => [resolution.x / 2.0, resolution.y / 2.0],
        Anchor::At(place) => place,
        Anchor::Auto => {
            let mut own = grids.iter().filter(in_crs).filter(is_own);
            own.find_map(corner).unwrap_or([0.0; 2])
        }
        Anchor::Native => {
            let mut own = grids.iter().filter(in_crs);
            own.find_map(corner).ok_or_else(|| {
                invalid(format!(
                    "anchor native: no image is in {crs} without rotation; expected the images' own CRS"
                ))
            })?
        }
    })
}

/// Returns the grid that the images share, north-up: that of the finest bands.
fn native(grids: &[GeoBox]) -> Result<GeoBox> {
    one_crs(grids)?;
    let area = |grid: &GeoBox| {
        let pixel = grid.resolution();
        pixel.map_or(f64::INFINITY, |pixel| pixel.x * pixel.y)
    };
    let smallest = grids.iter().map(area).fold(f64::INFINITY, f64::min);
    // Areas are products of floats: those of equal resolutions may differ in the last digits.
    let finest: Vec<GeoBox> = grids
        .iter()
        .filter(|grid| area(grid) <= smallest * (1.0 + 1e-9))
        .map(|grid| grid.north_up().unwrap_or_else(|| grid.clone()))
        .collect();
    GeoBox::united(&finest)?.ok_or_else(|| {
        invalid("the images' pixels are not aligned to one grid: choose a resolution".to_owned())
    })
}

fn one_crs(grids: &[GeoBox]) -> Result<()> {
    let mut all: Vec<Option<&Crs>> = Vec::new();
    for grid in grids {
        let crs = grid.crs.as_ref();
        let is_known = all.iter().any(|known| match (known, crs) {
            (Some(known), Some(crs)) => known.is_same(crs),
            (known, crs) => known.is_none() && crs.is_none(),
        });
        if !is_known {
            all.push(crs);
        }
    }
    if all.len() == 1 {
        return Ok(());
    }
    let names: BTreeSet<String> = all
        .into_iter()
        .map(|crs| crs.map_or("no CRS".to_owned(), Crs::to_string))
        .collect();
    Err(invalid(format!(
        "the images are in {}: choose a CRS and a resolution",
        names.into_iter().collect::<Vec<_>>().join(", ")
    )))
}

/// Returns the bounding box in degrees of all grids, on the narrow side of the globe.
fn bbox_of(grids: &[GeoBox]) -> Result<Bbox> {
    let boxes = grids.iter().map(GeoBox::bbox).collect::<Result<Vec<_>>>()?;
    Bbox::around(&boxes).ok_or_else(|| invalid("the images have no grid".to_owned()))
}

/// Returns the pixels of a grid that bounds in its CRS touch: on a map of the globe at each turn of longitude.
fn windows_of(grid: &GeoBox, extent: [f64; 4]) -> Result<Vec<Window>> {
    let pixel = grid.resolution().map_or(0.0, |pixel| pixel.x);
    let turn = Lattice::of(grid).ok().and_then(|lattice| lattice.turn());
    #[expect(clippy::cast_precision_loss, reason = "columns are within 32 bits")]
    let turn = turn.map(|columns| columns as f64 * pixel);
    let [left, bottom, right, top] = extent;
    let turns = turn.map_or(vec![0.0], |turn| vec![0.0, -turn, turn]);
    let windows = turns
        .into_iter()
        .map(|turn| window_of(grid, [left + turn, bottom, right + turn, top]));
    windows.filter_map(Result::transpose).collect()
}

/// Returns the pixels of a grid that bounds in its CRS touch; none if they touch none.
fn window_of(grid: &GeoBox, [left, bottom, right, top]: [f64; 4]) -> Result<Option<Window>> {
    let is_box = [left, bottom, right, top]
        .iter()
        .all(|edge| edge.is_finite());
    if !is_box || left >= right || bottom >= top {
        return Err(invalid(format!(
            "extent {left},{bottom},{right},{top} is empty; the order is xmin, ymin, xmax, ymax"
        )));
    }
    let corners = [[left, bottom], [left, top], [right, bottom], [right, top]];
    let places: Option<Vec<[f64; 2]>> = corners
        .into_iter()
        .map(|corner| grid.transform?.pixel_of(corner))
        .collect();
    let places = places
        .ok_or_else(|| invalid("the grid has no geotransform, so it has no extent".to_owned()))?;
    // An edge this close to that of a pixel is on it.
    const SLACK: f64 = 1e-3;
    let range = |axis: usize, length: u32| {
        let all = places.iter().map(|place| place[axis]);
        let low = all.clone().fold(f64::INFINITY, f64::min);
        let high = all.fold(f64::NEG_INFINITY, f64::max);
        let first = (low + SLACK).floor().max(0.0);
        let end = (high - SLACK).ceil().min(f64::from(length));
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "from 0 to a `u32`"
        )]
        let range = (first as u32, end as u32);
        (first < end).then_some(range)
    };
    let (cols, rows) = (range(0, grid.size.width), range(1, grid.size.height));
    Ok(cols.zip(rows).map(|((col, right), (row, bottom))| Window {
        col,
        row,
        width: right - col,
        height: bottom - row,
    }))
}

/// The fewest pixels of a grid that nobody wonders about.
const FEW_PIXELS: u64 = 16;

/// Returns what a user may not have meant by a grid.
pub(super) fn notes(options: &ImageCubeOptions, grid: &GeoBox, images: &[GeoBox]) -> Vec<String> {
    let mut notes = Vec::new();
    let is_chosen = matches!(
        options.grid,
        Grid::Resolution(_) | Grid::Projected(..) | Grid::Utm(_)
    );
    let (Some(pixel), true) = (grid.resolution(), is_chosen) else {
        return notes;
    };
    let is_geographic = grid.crs.as_ref().and_then(Crs::is_geographic);
    let pixels = |grid: &GeoBox| u64::from(grid.size.width) * u64::from(grid.size.height);
    if is_geographic == Some(true) && pixel.x.max(pixel.y) >= 1.0 {
        notes.push(format!(
            "the pixels are {pixel} degrees wide: a resolution is in units of the CRS, here degrees"
        ));
    } else if pixels(grid) <= FEW_PIXELS && images.iter().any(|image| pixels(image) > pixels(grid))
    {
        notes.push(format!("the grid has few pixels: {grid}"));
    }
    let metres = grid.crs.as_ref().and_then(Crs::linear_unit);
    if let Some(metres) = metres
        && pixel.x.min(pixel.y) * metres < 0.02
    {
        notes.push(format!(
            "the pixels are {pixel} units of the CRS wide, of {metres} m each: a resolution is in units of the CRS, not in degrees"
        ));
    }
    notes
}

fn invalid(what: String) -> Error {
    Error::new(ErrorKind::InvalidInput, what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geo::{GeoTransform, Size};

    fn landsat() -> GeoBox {
        GeoBox {
            size: Size {
                width: 200,
                height: 200,
            },
            crs: Some(Crs::Epsg(32756)),
            transform: Some(GeoTransform([
                495_285.0,
                30.0,
                0.0,
                6_960_315.0,
                0.0,
                -30.0,
            ])),
        }
    }

    fn made(options: ImageCubeOptions) -> Result<GeoBox> {
        chosen(&options, part_of(&options)?, &[landsat()])
    }

    fn origin(grid: &GeoBox) -> [f64; 2] {
        let transform = grid.transform.unwrap().0;
        [transform[0], transform[3]]
    }

    #[test]
    fn the_images_own_resolution_keeps_their_pixels() {
        let of = |grid| made(ImageCubeOptions::new().with_grid(grid)).unwrap();
        let thirty = Resolution::from(30.0);
        assert_eq!(of(Grid::Resolution(thirty)), landsat());
        // Their own CRS changes nothing.
        assert_eq!(of(Grid::Projected(Crs::Epsg(32756), thirty)), landsat());
        let bbox = "152.96,-27.5,152.97,-27.49".parse().unwrap();
        let options = ImageCubeOptions::new()
            .with_grid(Grid::Projected(Crs::Epsg(32756), thirty))
            .with_bbox(bbox);
        let [x, y] = origin(&made(options).unwrap());
        assert_eq!((x.rem_euclid(30.0), y.rem_euclid(30.0)), (15.0, 15.0));
        // Another resolution lies at its multiples.
        assert_eq!(
            origin(&of(Grid::Resolution(100.0.into()))),
            [495_200.0, 6_960_400.0]
        );
    }

    #[test]
    fn an_anchor_says_where_edges_lie() {
        let of = |anchor: &str, side: f64| {
            let options = ImageCubeOptions::new()
                .with_grid(Grid::Resolution(side.into()))
                .with_anchor(anchor.parse().unwrap());
            origin(&made(options).unwrap())
        };
        assert_eq!(of("edge", 30.0), [495_270.0, 6_960_330.0]);
        assert_eq!(of("center", 30.0), [495_285.0, 6_960_315.0]);
        assert_eq!(of("5,5", 30.0), [495_275.0, 6_960_335.0]);
        assert_eq!(of("native", 100.0), [495_285.0, 6_960_315.0]);
        let err = made(
            ImageCubeOptions::new()
                .with_grid(Grid::Projected(Crs::Epsg(3577), 30.0.into()))
                .with_anchor(Anchor::Native),
        );
        assert!(err.unwrap_err().message().contains("the images' own CRS"));
        for text in ["middle", "1", "1,x", "nan,0"] {
            assert!(text.parse::<Anchor>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_part_across_the_end_of_a_map_goes_past_it() {
        let globe = |west: f64| GeoBox {
            size: Size {
                width: 720,
                height: 360,
            },
            crs: Some(Crs::Epsg(4326)),
            transform: Some(GeoTransform([west, 0.5, 0.0, 90.0, 0.0, -0.5])),
        };
        let bounds = |west: f64, options: ImageCubeOptions| {
            let part = part_of(&options).unwrap();
            let grid = chosen(&options, part, &[globe(west)]).unwrap();
            grid.bounds().unwrap()
        };
        let bbox = |text: &str| ImageCubeOptions::new().with_bbox(text.parse().unwrap());
        let extent = |extent| ImageCubeOptions::new().with_extent(extent);
        let fiji = [177.0, -19.0, 182.0, -16.0];
        assert_eq!(bounds(-180.0, bbox("177,-19,-178,-16")), fiji);
        assert_eq!(bounds(0.0, bbox("177,-19,-178,-16")), fiji);
        assert_eq!(bounds(-180.0, extent(fiji)), fiji);
        let greenwich = [359.0, 50.0, 361.0, 51.0];
        assert_eq!(bounds(0.0, bbox("-1,50,1,51")), greenwich);
        assert_eq!(bounds(0.0, extent([-1.0, 50.0, 1.0, 51.0])), greenwich);
        assert_eq!(
            bounds(0.0, extent([-20.0, 0.0, -10.0, 1.0])),
            [340.0, 0.0, 350.0, 1.0]
        );
        assert_eq!(
            bounds(-180.0, bbox("-180,-90,180,90")),
            [-180.0, -90.0, 180.0, 90.0]
        );
    }

    #[test]
    fn an_extent_is_in_the_crs_of_the_grid() {
        let extent = [496_000.0, 6_958_000.0, 497_000.0, 6_959_000.0];
        let options = ImageCubeOptions::new().with_extent(extent);
        let grid = made(options.clone()).unwrap();
        // Whole pixels of the images.
        assert_eq!(
            grid.bounds(),
            Some([495_975.0, 6_957_975.0, 497_025.0, 6_959_025.0])
        );
        let grid = Grid::Projected(Crs::Epsg(32756), 100.0.into());
        let grid = made(options.clone().with_grid(grid)).unwrap();
        assert_eq!(grid.bounds(), Some(extent));
        let far = ImageCubeOptions::new().with_extent([0.0, 0.0, 1.0, 1.0]);
        assert!(made(far).unwrap_err().message().contains("does not touch"));
        let both = options.with_bbox("152.96,-27.5,152.97,-27.49".parse().unwrap());
        assert!(
            made(both)
                .unwrap_err()
                .message()
                .contains("expected one of them")
        );
    }

    #[test]
    fn degrees_taken_for_metres_are_noted() {
        let of = |crs: u32, side: f64| {
            let options =
                ImageCubeOptions::new().with_grid(Grid::Projected(Crs::Epsg(crs), side.into()));
            let grid = made(options.clone()).unwrap();
            notes(&options, &grid, &[landsat()])
        };
        assert!(
            of(4326, 20.0)[0].contains("20 degrees"),
            "{:?}",
            of(4326, 20.0)
        );
        assert!(of(3577, 5000.0)[0].contains("few pixels"));
        assert!(of(3577, 0.01)[0].contains("not in degrees"));
        assert_eq!(of(3577, 30.0), [""; 0]);
        assert_eq!(of(4326, 0.0003), [""; 0]);
    }

    #[test]
    fn a_south_up_image_has_a_north_up_grid() {
        let mut image = landsat();
        image.transform = Some(GeoTransform([495_285.0, 30.0, 0.0, 6_954_315.0, 0.0, 30.0]));
        let options = ImageCubeOptions::new();
        assert_eq!(chosen(&options, None, &[image]).unwrap(), landsat());
    }
}
