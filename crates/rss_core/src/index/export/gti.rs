//! A GDAL raster tile index over the files of an index: the mosaic of one asset.
//!
//! It names each file once, and GDAL opens those that a window meets. The table of outlines is GeoJSON within the file, so that the
//! export is one file. GDAL reads it from 3.9 on. See the [format](https://gdal.org/en/stable/drivers/raster/gti.html).

use std::io::{self, Write};

use serde_json::json;

use super::{
    Exported, Failed, Out,
    mosaic::{Bands, Mosaic, Placed, SLACK, arrange, overviews},
    unsupported,
    vrt::{self, MOST_BLOCK, escaped, gdal_type},
};
use crate::{
    error::{Error, ErrorKind, Result},
    geo::{Crs, Size},
    index::Indexed,
};

pub(super) fn write(
    files: impl Iterator<Item = Result<Indexed>>,
    out: &mut Out<'_>,
) -> Result<Exported, Failed> {
    let (exported, mosaic) = arrange(files, Bands::Tiles)?;
    if let Some(mosaic) = mosaic {
        check(&mosaic)?;
        write_xml(out, &mosaic)?;
    }
    Ok(exported)
}

fn check(mosaic: &Mosaic) -> Result<()> {
    let mut assets: Vec<&str> = mosaic.layers.iter().map(|one| one.asset.as_str()).collect();
    assets.dedup();
    if assets.len() > 1 {
        let message = format!(
            "a tile index is of one asset; choose one of {}",
            assets.join(", ").escape_debug()
        );
        return Err(Error::new(ErrorKind::InvalidInput, message));
    }
    let [width, height] = [mosaic.grid.transform.0[1], mosaic.grid.transform.0[5]];
    if width <= 0.0 || height >= 0.0 {
        return Err(unsupported(
            "rows that go north, or columns that go west: a tile index has neither",
        ));
    }
    Ok(())
}

fn write_xml(out: &mut Out<'_>, mosaic: &Mosaic) -> io::Result<()> {
    let Mosaic {
        grid,
        extent,
        layers,
    } = mosaic;
    let Some(first) = layers.first() else {
        return Ok(());
    };
    writeln!(out, "<GDALTileIndexDataset>")?;
    write!(out, "  <IndexDataset>")?;
    write_table(out, mosaic, &first.placed)?;
    writeln!(out, "</IndexDataset>")?;
    writeln!(out, "  <LocationField>location</LocationField>")?;
    // The last one is on top.
    writeln!(out, "  <SortField>number</SortField>")?;
    writeln!(out, "  <SortFieldAsc>true</SortFieldAsc>")?;
    writeln!(out, "  <SRS>{}</SRS>", escaped(&grid.crs.to_string()))?;
    let Size { width, height } = extent.size;
    let [west, north] = grid.corner(extent.col, extent.row);
    let [east, south] = grid.corner(
        extent.col + i64::from(width),
        extent.row + i64::from(height),
    );
    let [pixel_width, pixel_height] = [grid.transform.0[1], -grid.transform.0[5]];
    // GDAL rounds the number of pixels up, and a rounded sum of floats may be a little larger than it should be.
    for (name, value) in [
        ("ResX", pixel_width),
        ("ResY", pixel_height),
        ("MinX", west),
        ("MinY", south + pixel_height * SLACK),
        ("MaxX", east - pixel_width * SLACK),
        ("MaxY", north),
    ] {
        writeln!(out, "  <{name}>{value}</{name}>")?;
    }
    if first.tile.width <= MOST_BLOCK && first.tile.height <= MOST_BLOCK {
        let (width, height) = (first.tile.width.min(width), first.tile.height.min(height));
        writeln!(out, "  <BlockXSize>{width}</BlockXSize>")?;
        writeln!(out, "  <BlockYSize>{height}</BlockYSize>")?;
    }
    writeln!(out, "  <BandCount>{}</BandCount>", layers.len())?;
    for (number, layer) in layers.iter().enumerate() {
        let dtype = gdal_type(layer.dtype);
        let band = number + 1;
        writeln!(out, r#"  <Band band="{band}" dataType="{dtype}">"#)?;
        vrt::write_profile(out, layer, &layer.description(Bands::Tiles, true))?;
        writeln!(out, "  </Band>")?;
    }
    for factor in overviews(layers) {
        writeln!(
            out,
            "  <Overview>\n    <Factor>{factor}</Factor>\n  </Overview>"
        )?;
    }
    writeln!(out, "</GDALTileIndexDataset>")
}

/// Writes the files and their outlines.
fn write_table(out: &mut Out<'_>, mosaic: &Mosaic, files: &[Placed]) -> io::Result<()> {
    let mut say = |text: String| out.write_all(escaped(&text).as_bytes());
    say(r#"{"type":"FeatureCollection","name":"tiles","#.to_owned())?;
    // GDAL 3.9 takes the CRS from here.
    if let Crs::Epsg(code) = mosaic.grid.crs {
        let name = format!("urn:ogc:def:crs:EPSG::{code}");
        let crs = json!({"type": "name", "properties": {"name": name}});
        say(format!(r#""crs":{crs},"#))?;
    }
    say(r#""features":["#.to_owned())?;
    for (number, file) in files.iter().enumerate() {
        let [west, north] = mosaic.grid.corner(file.col, file.row);
        let [east, south] = mosaic.grid.corner(
            file.col + i64::from(file.size.width),
            file.row + i64::from(file.size.height),
        );
        let feature = json!({
            "type": "Feature",
            "properties": {"location": file.path, "number": number},
            "geometry": {"type": "Polygon", "coordinates": [
                [[west, south], [east, south], [east, north], [west, north], [west, south]],
            ]},
        });
        let comma = if number == 0 { "" } else { "," };
        say(format!("{comma}{feature}"))?;
    }
    say("]}".to_owned())
}
