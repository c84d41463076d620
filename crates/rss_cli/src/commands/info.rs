//! `rss info`: the metadata of a raster.

use anyhow::Result;
use rss_core::{Backend, Crs, Location, Masking, Number, Profile, reader};
use serde_json::{Value, json};

use crate::{Found, args::InfoArgs, output};

pub(crate) async fn run(args: &InfoArgs) -> Result<Found> {
    let session = super::session::open()?;
    let location = Location::parse(&args.location)?;
    let backend: Backend = args.backend.parse()?;
    let raster = reader::open(&session, &location, backend).await?;
    let facts = facts(raster.profile());
    output::fallback(raster.as_ref());
    if args.json {
        output::json(&facts)?;
    } else {
        let rows = facts
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, value)| {
                let text = match value {
                    Value::String(text) => text.clone(),
                    Value::Null => "-".to_owned(),
                    value => value.to_string(),
                };
                format!("{name:<12} {text}")
            });
        output::lines(rows)?;
    }
    Ok(Found::Something)
}

fn facts(profile: &Profile) -> Value {
    let overviews: Vec<_> = profile
        .overviews
        .iter()
        .map(|size| [size.width, size.height])
        .collect();
    let first = profile.bands.first();
    let colors: Vec<_> = profile.bands.iter().map(|band| band.color.name()).collect();
    let masking = match profile.masking {
        Masking::Nodata => "nodata",
        Masking::Alpha => "alpha",
        Masking::Internal => "internal",
        _ => "none",
    };
    let wkt = match &profile.crs {
        Some(Crs::Wkt(wkt)) => Some(wkt.as_str()),
        _ => None,
    };
    json!({
        "width": profile.size.width,
        "height": profile.size.height,
        "count": profile.count,
        "dtype": profile.dtype.name(),
        "nodata": profile.nodata.map(number),
        "epsg": profile.crs.as_ref().and_then(Crs::epsg),
        "wkt": wkt,
        "transform": profile.transform.map(|transform| transform.0),
        "tile": [profile.tile.width, profile.tile.height],
        "compression": profile.compression,
        "predictor": profile.predictor,
        "overviews": overviews,
        "scale": first.and_then(|band| band.scale),
        "offset": first.and_then(|band| band.offset),
        "colors": colors,
        "masking": masking,
        "gcps": (profile.gcps > 0).then_some(profile.gcps),
    })
}

/// Returns a number as JSON, an integer with all its digits. JSON has no NaN or infinity: they are written as GDAL
/// spells them.
pub(super) fn number(value: Number) -> Value {
    let integer = value.as_integer().map(|integer| {
        let unsigned = u64::try_from(integer).map(Value::from);
        unsigned.or_else(|_| i64::try_from(integer).map(Value::from))
    });
    match (integer, value.as_f64()) {
        (Some(Ok(integer)), _) => integer,
        (_, float) if float.is_nan() => json!("nan"),
        (_, f64::INFINITY) => json!("inf"),
        (_, f64::NEG_INFINITY) => json!("-inf"),
        (_, float) => json!(float),
    }
}
