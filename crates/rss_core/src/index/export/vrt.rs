//! A GDAL virtual raster over the files of an index.
//!
//! Overviews that all sources have are overviews of the virtual raster; GDAL reads them from the sources. See the
//! [format](https://gdal.org/en/stable/drivers/raster/vrt.html).

use std::io::{self, Write};

use super::{
    Exported, Failed, Out,
    mosaic::{Bands, Extent, Layer, Mosaic, Placed, arrange, overviews},
};
use crate::{error::Result, geo::Size, index::Indexed, raster::DataType, reader::ColorInterp};

/// The largest block side that a virtual raster states, in pixels.
pub(super) const MOST_BLOCK: u32 = 4096;

pub(super) fn write(
    files: impl Iterator<Item = Result<Indexed>>,
    bands: Bands,
    out: &mut Out<'_>,
) -> Result<Exported, Failed> {
    let (exported, mosaic) = arrange(files, bands)?;
    if let Some(mosaic) = mosaic {
        write_xml(out, &mosaic, bands)?;
    }
    Ok(exported)
}

fn write_xml(out: &mut Out<'_>, mosaic: &Mosaic, bands: Bands) -> io::Result<()> {
    let Mosaic {
        grid,
        extent,
        layers,
    } = mosaic;
    let one_asset = layers.windows(2).all(|pair| match pair {
        [a, b] => a.asset == b.asset,
        _ => true,
    });
    let Size { width, height } = extent.size;
    writeln!(
        out,
        r#"<VRTDataset rasterXSize="{width}" rasterYSize="{height}">"#
    )?;
    writeln!(out, "  <SRS>{}</SRS>", escaped(&grid.crs.to_string()))?;
    let g = grid.transform.0;
    let [x, y] = grid.corner(extent.col, extent.row);
    let numbers = [x, g[1], 0.0, y, 0.0, g[5]].map(|number| number.to_string());
    writeln!(out, "  <GeoTransform>{}</GeoTransform>", numbers.join(", "))?;
    let overviews: Vec<String> = overviews(layers).iter().map(u32::to_string).collect();
    if !overviews.is_empty() {
        // Nearest where an overview of the mosaic is not exactly one of the sources: nothing is averaged that may be a class.
        let factors = overviews.join(" ");
        writeln!(
            out,
            r#"  <OverviewList resampling="nearest">{factors}</OverviewList>"#
        )?;
    }
    for (number, layer) in layers.iter().enumerate() {
        let dtype = gdal_type(layer.dtype);
        write!(
            out,
            r#"  <VRTRasterBand dataType="{dtype}" band="{}""#,
            number + 1
        )?;
        if layer.tile.width <= MOST_BLOCK && layer.tile.height <= MOST_BLOCK {
            let width = layer.tile.width.min(extent.size.width);
            let height = layer.tile.height.min(extent.size.height);
            write!(out, r#" blockXSize="{width}" blockYSize="{height}""#)?;
        }
        writeln!(out, ">")?;
        let description = layer.description(bands, one_asset);
        write_profile(out, layer, &description)?;
        if bands == Bands::Stack {
            writeln!(out, "    <Metadata>")?;
            say(out, "item", &layer.item)?;
            say(out, "asset", &layer.asset)?;
            if let Some(time) = layer.datetime {
                say(out, "datetime", &time.to_rfc3339())?;
            }
            writeln!(out, "    </Metadata>")?;
        }
        for placed in &layer.placed {
            write_source(out, extent, layer, placed, bands)?;
        }
        writeln!(out, "  </VRTRasterBand>")?;
    }
    writeln!(out, "</VRTDataset>")
}

/// Writes the elements of a band that say what its samples are.
pub(super) fn write_profile(out: &mut Out<'_>, layer: &Layer, description: &str) -> io::Result<()> {
    writeln!(
        out,
        "    <Description>{}</Description>",
        escaped(description)
    )?;
    if let Some(nodata) = layer.nodata {
        let nodata = crate::raster::tiff::nodata(layer.dtype, layer.dtype.rounded(nodata));
        writeln!(out, "    <NoDataValue>{nodata}</NoDataValue>")?;
    }
    if let Some(unit) = &layer.profile.unit {
        writeln!(out, "    <UnitType>{}</UnitType>", escaped(unit))?;
    }
    if let Some(offset) = layer.profile.offset {
        writeln!(out, "    <Offset>{}</Offset>", number_of(offset))?;
    }
    if let Some(scale) = layer.profile.scale {
        writeln!(out, "    <Scale>{}</Scale>", number_of(scale))?;
    }
    let color = color_of(layer.profile.color);
    writeln!(out, "    <ColorInterp>{color}</ColorInterp>")?;
    if let Some(palette) = layer.palette.as_ref().filter(|_| color == "Palette") {
        writeln!(out, "    <ColorTable>")?;
        for [red, green, blue] in palette {
            writeln!(
                out,
                r#"      <Entry c1="{red}" c2="{green}" c3="{blue}" c4="255"/>"#
            )?;
        }
        writeln!(out, "    </ColorTable>")?;
    }
    Ok(())
}

fn write_source(
    out: &mut Out<'_>,
    extent: &Extent,
    layer: &Layer,
    placed: &Placed,
    bands: Bands,
) -> io::Result<()> {
    let hides = bands == Bands::Mosaic && (layer.nodata.is_some() || placed.has_mask);
    let element = if hides {
        "ComplexSource"
    } else {
        "SimpleSource"
    };
    let Size { width, height } = placed.size;
    let (col, row) = (placed.col - extent.col, placed.row - extent.row);
    writeln!(out, "    <{element}>")?;
    writeln!(
        out,
        r#"      <SourceFilename relativeToVRT="0" shared="0">{}</SourceFilename>"#,
        escaped(&placed.path)
    )?;
    writeln!(out, "      <SourceBand>{}</SourceBand>", placed.band + 1)?;
    writeln!(
        out,
        r#"      <SourceProperties RasterXSize="{width}" RasterYSize="{height}" DataType="{}" BlockXSize="{}" BlockYSize="{}"/>"#,
        gdal_type(placed.dtype),
        placed.tile.width,
        placed.tile.height
    )?;
    writeln!(
        out,
        r#"      <SrcRect xOff="0" yOff="0" xSize="{width}" ySize="{height}"/>"#
    )?;
    writeln!(
        out,
        r#"      <DstRect xOff="{col}" yOff="{row}" xSize="{width}" ySize="{height}"/>"#
    )?;
    // A mask takes precedence over a nodata value.
    if hides && placed.has_mask {
        writeln!(out, "      <UseMaskBand>true</UseMaskBand>")?;
    } else if let Some(nodata) = layer.nodata.filter(|_| hides) {
        let nodata = crate::raster::tiff::nodata(layer.dtype, layer.dtype.rounded(nodata));
        writeln!(out, "      <NODATA>{nodata}</NODATA>")?;
    }
    writeln!(out, "    </{element}>")
}

fn say(out: &mut Out<'_>, key: &str, value: &str) -> io::Result<()> {
    writeln!(out, r#"      <MDI key="{key}">{}</MDI>"#, escaped(value))
}

/// Returns a number in GDAL's syntax.
fn number_of(value: f64) -> String {
    if value.is_nan() {
        "nan".to_owned()
    } else if value.is_infinite() {
        (if value > 0.0 { "inf" } else { "-inf" }).to_owned()
    } else {
        value.to_string()
    }
}

/// `Int8` needs GDAL 3.7 or later.
pub(super) fn gdal_type(dtype: DataType) -> &'static str {
    match dtype {
        DataType::U8 => "Byte",
        DataType::I8 => "Int8",
        DataType::U16 => "UInt16",
        DataType::I16 => "Int16",
        DataType::U32 => "UInt32",
        DataType::I32 => "Int32",
        DataType::U64 => "UInt64",
        DataType::I64 => "Int64",
        DataType::F32 => "Float32",
        DataType::F64 => "Float64",
        DataType::C64 => "CFloat32",
        DataType::C128 => "CFloat64",
    }
}

fn color_of(color: ColorInterp) -> String {
    let name = color.name();
    let mut letters = name.chars();
    letters.next().map_or_else(String::new, |first| {
        first.to_uppercase().chain(letters).collect()
    })
}

/// Escapes text as the content of an XML element; characters that XML cannot represent are removed.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c if c.is_control() => {}
            c => out.push(c),
        }
    }
    out
}
