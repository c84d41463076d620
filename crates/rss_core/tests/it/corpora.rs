//! Real GeoTIFFs of many projects, whose pixels GDAL and tifffile agree on, read by every backend.

use std::path::{Path, PathBuf};

use rss_core::{Backend, ErrorKind, Location, OpenRaster, ReadRequest, Session, Size};
use serde_json::Value;
use sha2::{Digest, Sha256};

/// Files whose pixels differ or are refused by design: the backend, the end of the name, the reason.
const AGREED: &[(Backend, &str, &str)] = &[(
    Backend::AsyncTiff,
    "gdal--stripbytecounts_count_not_same_as_stripoffsets_count-8a7d3a24.tif",
    "fewer byte counts than offsets; GDAL guesses the rest from the distance of the offsets",
)];

/// The folders of files with ground truth: ours, those beside the repository where they are there,
/// and one that `scripts/conformance` names.
fn folders() -> Vec<PathBuf> {
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
    right: usize,
    refused: usize,
    wrong: Vec<String>,
}

#[test]
fn the_cog_backend_reads_the_right_pixels_or_refuses() {
    for folder in folders() {
        let tally = read_all(&folder, Backend::AsyncTiff);
        let Tally { right, refused, .. } = tally;
        eprintln!(
            "{}: {right} bands right, {refused} refused",
            folder.display()
        );
        assert_eq!(tally.wrong, [""; 0]);
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
        assert_eq!(tally.wrong, [""; 0]);
        // Older versions lack some codecs.
        assert!(right > 10 * refused, "{right} right, {refused} refused");
    }
}

fn read_all(folder: &Path, backend: Backend) -> Tally {
    let manifest = std::fs::read(folder.join("manifest.json")).unwrap();
    let manifest: Value = serde_json::from_slice(&manifest).unwrap();
    let session = Session::builder().read_bytes(256 << 20).build().unwrap();
    let mut tally = Tally::default();
    for file in manifest["files"].as_array().unwrap() {
        let name = file["file"].as_str().unwrap();
        if AGREED
            .iter()
            .any(|(which, end, _)| *which == backend && name.ends_with(end))
        {
            continue;
        }
        let location = Location::Local(folder.join(name));
        match session.open(&location, backend) {
            Ok(raster) => tally.read(file, &raster),
            Err(err) if matches!(err.kind(), ErrorKind::Unsupported | ErrorKind::Corrupt) => {
                tally.refused += 1;
            }
            Err(err) => tally.wrong.push(format!("{name}: {err:?}")),
        }
    }
    tally
}

impl Tally {
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
        if file["grade"] != "A" || file["compare"]["mode"] != "exact" {
            // No truth to hold it against: it must not panic, and that is all.
            let corner = "0,0,1,1".parse().unwrap();
            let _ = raster.read(&ReadRequest::new().with_window(corner));
            return;
        }
        for level in file["truth"]["gdal"]["levels"].as_array().unwrap() {
            // Levels are told apart by their size: GDAL keeps the file's order, we the largest first.
            let side = |name: &str| u32::try_from(level[name].as_u64().unwrap()).unwrap();
            let size = Size {
                width: side("width"),
                height: side("height"),
            };
            let profile = raster.profile();
            let mut sizes = [profile.size].into_iter().chain(profile.overviews.clone());
            let Some(n) = sizes.position(|other| other == size) else {
                self.wrong.push(format!("{name}: no level of {size:?}"));
                continue;
            };
            let bands = level["bands"].as_array().into_iter().flatten();
            for (b, band) in bands.enumerate() {
                let request = ReadRequest::new().with_level(n).with_bands([b + 1]);
                self.check(
                    &format!("{name} level {n} band {}", b + 1),
                    band,
                    raster,
                    &request,
                );
            }
        }
    }

    fn check(&mut self, what: &str, truth: &Value, raster: &OpenRaster, request: &ReadRequest) {
        // NaNs have many spellings in bits.
        let has_nan = truth
            .get("sha256_nan_canon")
            .is_some_and(|value| !value.is_null());
        let Some(sha) = truth["sha256"].as_str().filter(|_| !has_nan) else {
            return;
        };
        match raster.read(request) {
            Ok(read) => {
                let mut bytes = read.pixels.to_le_bytes();
                if truth["dtype"] == "float16" {
                    bytes = narrowed(&bytes);
                }
                let digest = Sha256::digest(bytes);
                let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
                if hex == sha {
                    self.right += 1;
                } else {
                    self.wrong.push(what.to_owned());
                }
            }
            Err(err) if err.kind() == ErrorKind::Unsupported => self.refused += 1,
            Err(err) => self.wrong.push(format!("{what}: {err}")),
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
