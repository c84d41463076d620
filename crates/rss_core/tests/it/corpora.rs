//! Real GeoTIFFs of many projects, whose pixels GDAL and tifffile agree on, read by every backend.

use std::path::{Path, PathBuf};

use rss_core::{
    Backend, ErrorKind, Location, Masking, OpenRaster, Pixels, Profile, ReadRequest, Session, Size,
};
use serde_json::Value;
use sha2::{Digest, Sha256};

/// Files whose pixels differ or are refused by design: the backend, the end of the name, the reason.
const AGREED: &[(Backend, &str, &str)] = &[
    (
        Backend::Cog,
        "Pillow--crash-0da013a13571cc8eb457a39fee8db18f8a3c7127-58efa3bb.tif level 0 band 1",
        "damaged CCITT data: GDAL reports an error and returns the rows before it",
    ),
    (
        Backend::Cog,
        "gdal--test3_with_mask_1bit-85b2e424.tif mask of level 0",
        "a mask of bits for each band: GDAL makes 255 of them only where bands share one",
    ),
    (
        Backend::Cog,
        "gdal--stripbytecounts_count_not_same_as_stripoffsets_count-8a7d3a24.tif level 0 band 1",
        "two byte counts for three strips, not compressed: GDAL fills the third with zeros",
    ),
    (
        Backend::Cog,
        "gdal--ca_nrc_NAD83v70VG-f38ce776.tif: epsg",
        "a vertical key makes a CRS of three dimensions of it; we name the horizontal one",
    ),
    (
        Backend::Cog,
        "gdal--epsg4326_5030_geotiff1_1-3b258bff.tif: epsg",
        "as above",
    ),
    (
        Backend::Gdal,
        "gdal--ca_nrc_NAD83v70VG-f38ce776.tif: epsg",
        "as above",
    ),
    (
        Backend::Gdal,
        "gdal--epsg4326_5030_geotiff1_1-3b258bff.tif: epsg",
        "as above",
    ),
    (
        Backend::Cog,
        "gdal--epsg_2193_override-5edc1ccb.tif: epsg",
        "a code, and an ellipsoid that is not the code's: later versions of GDAL name no code",
    ),
    (
        Backend::Cog,
        "gdal--inconsistent_invflattening-9a0241ab.tif: epsg",
        "as above",
    ),
    (
        Backend::Gdal,
        "gdal--epsg_2193_override-5edc1ccb.tif: epsg",
        "as above; GDAL 3.6 names the code",
    ),
    (
        Backend::Gdal,
        "gdal--inconsistent_invflattening-9a0241ab.tif: epsg",
        "as above",
    ),
    (
        Backend::Gdal,
        "gdal--WGS_1984_Web_Mercator-87916d14.tif: epsg",
        "ESRI:102113, of which GDAL 3.6 has the parts of EPSG:3857: parts that are a code's are the code",
    ),
    (
        Backend::Gdal,
        "geotrellis--SBN_inc_percap-nodata-clip-b1ad6d7a.tif: epsg",
        "as above",
    ),
    (
        Backend::Gdal,
        "gdal--test3_with_mask_1bit-85b2e424.tif mask of level 0",
        "as above; the backend makes 255 of them",
    ),
];

/// The folders of files with ground truth: ours, those beside the repository where they are there,
/// and one that `scripts/conformance` names.
pub(crate) fn folders() -> Vec<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let shared = here.join("../../../shared/corpora");
    let mut found = vec![here.join("tests/data/tiff")];
    let others = [shared.clone(), shared.join("synth")]
        .into_iter()
        .chain(std::env::var_os("RSS_CORPORA").map(PathBuf::from));
    for folder in others {
        if folder.join("manifest.json").exists() {
            found.push(folder);
        } else {
            eprintln!("skipped: no manifest.json in {}", folder.display());
        }
    }
    found
}

/// How the bands of a folder were read.
#[derive(Debug, Default)]
struct Tally {
    backend: Option<Backend>,
    right: usize,
    refused: usize,
    wrong: Vec<String>,
}

#[test]
fn the_cog_backend_reads_the_right_pixels_or_refuses() {
    for folder in folders() {
        let tally = read_all(&folder, Backend::Cog);
        let Tally { right, refused, .. } = tally;
        eprintln!(
            "{}: {right} bands right, {refused} refused",
            folder.display()
        );
        assert!(tally.wrong.is_empty(), "{}", tally.wrong.join("\n"));
        assert!(right > refused, "{right} right, {refused} refused");
    }
}

#[cfg(feature = "gdal")]
#[test]
fn the_gdal_backend_reads_the_right_pixels_or_refuses() {
    for folder in folders() {
        let tally = read_all(&folder, Backend::Gdal);
        let Tally { right, refused, .. } = tally;
        eprintln!(
            "{}: {right} bands right, {refused} refused",
            folder.display()
        );
        assert!(tally.wrong.is_empty(), "{}", tally.wrong.join("\n"));
        // Older versions lack some codecs.
        assert!(right > 10 * refused, "{right} right, {refused} refused");
    }
}

/// The COG reader's answer, or GDAL's to what it refuses.
#[cfg(feature = "gdal")]
#[test]
fn the_auto_backend_reads_the_right_pixels_or_refuses() {
    for folder in folders() {
        let tally = read_all(&folder, Backend::Auto);
        let Tally { right, refused, .. } = tally;
        eprintln!(
            "{}: {right} bands right, {refused} refused",
            folder.display()
        );
        assert!(tally.wrong.is_empty(), "{}", tally.wrong.join("\n"));
        assert!(right > 10 * refused, "{right} right, {refused} refused");
    }
}

/// It reads fewer files, and says less of them: levels whose tiles it decodes are the same.
#[cfg(feature = "async-tiff")]
#[test]
fn the_async_tiff_backend_reads_the_right_pixels_or_refuses() {
    // The first two: synthetic files are of kinds that it refuses.
    for folder in folders().into_iter().take(2) {
        let tally = read_all(&folder, Backend::AsyncTiff);
        let Tally { right, refused, .. } = tally;
        eprintln!(
            "{}: {right} bands right, {refused} refused",
            folder.display()
        );
        assert!(tally.wrong.is_empty(), "{}", tally.wrong.join("\n"));
        assert!(right > 0, "{right} right, {refused} refused");
    }
}

fn read_all(folder: &Path, backend: Backend) -> Tally {
    let manifest = std::fs::read(folder.join("manifest.json")).unwrap();
    let manifest: Value = serde_json::from_slice(&manifest).unwrap();
    let session = Session::builder().read_bytes(256 << 20).build().unwrap();
    let mut tally = Tally {
        backend: Some(backend),
        ..Tally::default()
    };
    for file in manifest["files"].as_array().unwrap() {
        let name = file["file"].as_str().unwrap();
        let location = Location::Local(folder.join(name));
        match session.open(&location, backend) {
            Err(err) if file["grade"] == "A" && std::env::var_os("RSS_SAY_REFUSED").is_some() => {
                eprintln!("{err}");
                tally.refused += 1;
            }
            Ok(raster) => tally.read(file, &raster),
            Err(err) if matches!(err.kind(), ErrorKind::Unsupported | ErrorKind::Corrupt) => {
                tally.refused += 1;
            }
            Err(err) => tally.wrong.push(format!("{name}: {err:?}")),
        }
    }
    tally
}

/// Returns true for a difference that is listed.
fn agreed(backend: Option<Backend>, what: &str) -> bool {
    let is_this = |(which, end, _): &(Backend, &str, &str)| {
        (backend == Some(*which) || backend == Some(Backend::Auto)) && what.ends_with(end)
    };
    AGREED.iter().any(is_this)
}

/// Numbers that are equal but for the last digits of a text.
fn same(a: f64, b: f64) -> bool {
    a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= 1e-9 * b.abs()
}

impl Tally {
    /// Returns true if an error is a refusal. The crate tells damage from what it lacks in words alone.
    fn refuses(&self, err: &rss_core::Error) -> bool {
        let is_other = self.backend == Some(Backend::AsyncTiff) && err.kind() == ErrorKind::Corrupt;
        err.kind() == ErrorKind::Unsupported || is_other
    }

    fn read(&mut self, file: &Value, raster: &OpenRaster) {
        let name = file["file"].as_str().unwrap();
        if let Some(digests) = file["band_sha256"].as_array() {
            if file["exact"] != true {
                return;
            }
            for (b, sha) in digests.iter().enumerate() {
                let request = ReadRequest::new().with_bands([b + 1]);
                let truth = serde_json::json!({ "sha256": sha, "dtype": file["dtype"] });
                self.check(&format!("{name} band {}", b + 1), &truth, raster, &request);
            }
            return;
        }
        if file["grade"] != "A" {
            // No truth to hold it against: it must not panic, and that is all.
            let corner = "0,0,1,1".parse().unwrap();
            let _ = raster.read(&ReadRequest::new().with_window(corner));
            return;
        }
        let truth = &file["truth"]["gdal"];
        let is_pixels_only = self.backend == Some(Backend::AsyncTiff);
        if !is_pixels_only {
            self.profile(name, truth, raster.profile());
        }
        for level in truth["levels"].as_array().unwrap() {
            // Levels are told apart by their size: GDAL keeps the file's order, we the largest first.
            let side = |name: &str| u32::try_from(level[name].as_u64().unwrap()).unwrap();
            let size = Size {
                width: side("width"),
                height: side("height"),
            };
            let profile = raster.profile();
            let mut sizes = [profile.size].into_iter().chain(profile.overviews.clone());
            let Some(n) = sizes.position(|other| other == size) else {
                if is_pixels_only {
                    continue;
                }
                self.wrong.push(format!("{name}: no level of {size:?}"));
                continue;
            };
            let of_level = ReadRequest::new().with_level(n);
            let exact = file["compare"]["mode"] == "exact";
            let bands = level["bands"].as_array().into_iter().flatten();
            for (b, band) in bands.enumerate() {
                let request = of_level.clone().with_bands([b + 1]);
                let what = format!("{name} level {n} band {}", b + 1);
                match exact {
                    true => self.check(&what, band, raster, &request),
                    false => self.near(&what, band, raster, &request),
                }
            }
            if let Some(sha) = level["mask_sha256"]
                .as_str()
                .filter(|_| exact && !is_pixels_only)
            {
                let what = format!("{name} mask of level {n}");
                let read = raster.read_mask(&of_level);
                self.digest(&what, sha, read.map(|mask| mask.pixels.to_le_bytes()));
            }
        }
    }

    /// Holds what a file says of itself against what GDAL says of it.
    fn profile(&mut self, name: &str, truth: &Value, profile: &Profile) {
        let mut differ = |what: &str, ours: String, theirs: String| {
            let what_of = format!("{name}: {what}");
            if ours != theirs && !agreed(self.backend, &what_of) {
                self.wrong
                    .push(format!("{name}: {what} {ours}, GDAL says {theirs}"));
            }
        };
        let colors = profile.bands.iter().map(|band| band.color.name());
        differ("colors", format!("{:?}", colors.collect::<Vec<_>>()), {
            let names = truth["colorinterp"].as_array().unwrap().iter();
            format!(
                "{:?}",
                names.map(|name| name.as_str().unwrap()).collect::<Vec<_>>()
            )
        });
        let number = |value: &Value| match value {
            Value::String(text) => text.parse().ok(),
            value => value.as_f64(),
        };
        let nodata = number(&truth["nodatavals"][0]);
        let ours = profile.nodata.map(rss_core::Number::as_f64);
        if !ours.zip(nodata).is_some_and(|(a, b)| same(a, b)) {
            differ("nodata", format!("{ours:?}"), format!("{nodata:?}"));
        }
        let identity = [0.0, 1.0, 0.0, 0.0, 0.0, 1.0];
        let [x, a, b, y, d, e] = profile.transform.map_or(identity, |transform| transform.0);
        let transform = [a, b, x, d, e, y];
        let stated: Vec<f64> = truth["transform"]
            .as_array()
            .unwrap()
            .iter()
            .map(|v| v.as_f64().unwrap())
            .collect();
        if !transform.iter().zip(&stated).all(|(&a, &b)| same(a, b)) {
            differ("transform", format!("{transform:?}"), format!("{stated:?}"));
        }
        let pairs = [("scales", 1.0), ("offsets", 0.0)];
        for (key, default) in pairs {
            let ours: Vec<f64> = profile
                .bands
                .iter()
                .map(|band| {
                    let stated = if key == "scales" {
                        band.scale
                    } else {
                        band.offset
                    };
                    stated.unwrap_or(default)
                })
                .collect();
            let theirs: Vec<f64> = truth[key]
                .as_array()
                .unwrap()
                .iter()
                .map(|v| v.as_f64().unwrap())
                .collect();
            differ(key, format!("{ours:?}"), format!("{theirs:?}"));
        }
        let masking = match truth["mask_flags"][0].as_array() {
            Some(flags) if flags.iter().any(|flag| flag == "alpha") => Masking::Alpha,
            Some(flags) if flags.iter().any(|flag| flag == "nodata") => Masking::Nodata,
            Some(flags) if flags.iter().any(|flag| flag == "all_valid") => Masking::None,
            _ => Masking::Internal,
        };
        differ(
            "masking",
            format!("{:?}", profile.masking),
            format!("{masking:?}"),
        );
        // Where a file states its CRS in parts, versions of GDAL and PROJ find different codes.
        if let Some(ours) = profile.crs.as_ref().and_then(rss_core::Crs::epsg)
            && truth["crs_wkt"].is_string()
        {
            let theirs = truth["crs_epsg"].as_u64();
            let horizontal = truth["crs_wkt"].as_str().unwrap();
            let is_part = ["COMPD_CS", "Ellipsoidal height"]
                .iter()
                .any(|part| horizontal.contains(part));
            if !is_part {
                differ(
                    "epsg",
                    format!("{:?}", Some(u64::from(ours))),
                    format!("{theirs:?}"),
                );
            }
        }
    }

    fn check(&mut self, what: &str, truth: &Value, raster: &OpenRaster, request: &ReadRequest) {
        // NaNs have many spellings in bits.
        let canon = truth["sha256_nan_canon"].as_str();
        let Some(sha) = canon.or(truth["sha256"].as_str()) else {
            return;
        };
        let read = raster.read(request).map(|read| {
            let mut pixels = read.pixels;
            match &mut pixels {
                Pixels::F32(floats) if canon.is_some() => {
                    floats.mapv_inplace(|v| if v.is_nan() { f32::NAN } else { v })
                }
                Pixels::F64(floats) if canon.is_some() => {
                    floats.mapv_inplace(|v| if v.is_nan() { f64::NAN } else { v })
                }
                _ => {}
            }
            let bytes = pixels.to_le_bytes();
            match truth["dtype"] == "float16" {
                true => narrowed(&bytes),
                false => bytes,
            }
        });
        self.digest(what, sha, read);
    }

    fn digest(&mut self, what: &str, sha: &str, read: rss_core::Result<Vec<u8>>) {
        if agreed(self.backend, what) {
            return;
        }
        match read {
            Ok(bytes) => {
                let digest = Sha256::digest(bytes);
                let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
                if hex == sha {
                    self.right += 1;
                } else {
                    self.wrong.push(what.to_owned());
                }
            }
            Err(err) if self.refuses(&err) => self.refused += 1,
            Err(err) => self.wrong.push(format!("{what}: {err}")),
        }
    }

    /// Checks a lossy band: decoders of JPEG may differ by 4, on average by 0.2.
    fn near(&mut self, what: &str, truth: &Value, raster: &OpenRaster, request: &ReadRequest) {
        let Some(mean) = truth["mean"].as_f64() else {
            return;
        };
        let read = match raster.read(request) {
            Ok(read) => read,
            Err(err) if self.refuses(&err) => {
                self.refused += 1;
                return;
            }
            Err(err) => {
                self.wrong.push(format!("{what}: {err}"));
                return;
            }
        };
        let [_, _, width] = read.pixels.shape();
        let samples = read.pixels.to_f64();
        let ours = samples.iter().sum::<f64>() / samples.len() as f64;
        let grid = truth["samples"].as_array().unwrap().iter();
        let worst = grid
            .map(|sample| {
                let at = |n: usize| sample[n].as_u64().unwrap() as usize;
                (samples[at(0) * width + at(1)] - sample[2].as_f64().unwrap()).abs()
            })
            .fold(0.0, f64::max);
        if (ours - mean).abs() <= 0.2 && worst <= 4.0 {
            self.right += 1;
        } else {
            self.wrong
                .push(format!("{what}: mean {ours} for {mean}, off by {worst}"));
        }
    }
}

/// Half floats are widened when they are read; this takes it back. None of them is rounded.
fn narrowed(bytes: &[u8]) -> Vec<u8> {
    let (floats, _) = bytes.as_chunks::<4>();
    floats
        .iter()
        .flat_map(|float| {
            let value = f32::from_le_bytes(*float);
            let bits = value.to_bits();
            let sign = (bits >> 16) & 0x8000;
            let power = (bits >> 23 & 0xFF) as i32 - 127;
            let half = match power {
                _ if value == 0.0 => 0,
                128 => 0x7C00 | (bits >> 13 & 0x3FF),
                -14.. => ((power + 15) as u32) << 10 | (bits >> 13 & 0x3FF),
                _ => (value.abs() * 16_777_216.0) as u32,
            };
            let [low, high, ..] = (sign | half).to_le_bytes();
            [low, high]
        })
        .collect()
}
