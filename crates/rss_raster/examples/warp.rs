//! A scene in UTM onto Australian Albers: `cargo run --release -p rss_raster --example warp -- warped.tif`.
//!
//! The scene is rings, so that what a kernel does can be seen: `warped.png` in place of `warped.tif` is a picture.

#![expect(clippy::print_stdout, reason = "an example talks")]

use std::path::PathBuf;

use ndarray::Array3;
use rss_raster::{Crs, GeoBox, Pixels, Raster, Resampling, Result};

fn main() -> Result<()> {
    let args = std::env::args_os().nth(1);
    let output = args.map_or_else(|| PathBuf::from("warped.tif"), PathBuf::from);

    let bounds = [600_000.0, 6_080_000.0, 610_240.0, 6_090_240.0];
    let utm = GeoBox::of_bounds(Crs::Epsg(32755), bounds, 10.0)?;
    let scene = Raster {
        pixels: Pixels::I16(rings(utm.size.height as usize, utm.size.width as usize)),
        geobox: utm,
        nodata: Some((-999.0).into()),
        sparse: Vec::new(),
    };

    // gdalwarp -t_srs EPSG:3577 -tr 10 10 -tap -r cubic
    let grid = GeoBox::of_bbox(&scene.geobox.bbox()?, Crs::Epsg(3577), 10.0)?;
    let warped = scene.warp(&grid, Resampling::Cubic)?;
    warped.save(&output)?;
    println!(
        "{} -> {}: {}",
        scene.geobox,
        warped.geobox,
        output.display()
    );
    Ok(())
}

/// Rings of 64 pixels, (band, y, x).
fn rings(height: usize, width: usize) -> Array3<i16> {
    let middle = |length: usize| length as f64 / 2.0;
    Array3::from_shape_fn((1, height, width), |(_, y, x)| {
        let radius = (x as f64 - middle(width)).hypot(y as f64 - middle(height));
        #[expect(clippy::cast_possible_truncation, reason = "between 0 and 2000")]
        let value = (1000.0 + 1000.0 * (radius / 64.0).sin()) as i16;
        value
    })
}
