//! Files that are odd and whole: read, with a note of what is odd, by the COG reader or by GDAL in its place.

use std::path::{Path, PathBuf};

use rss_core::{
    Backend, Crs, ErrorKind, Location, Masking, OpenRaster, ReadRequest, Session, Size,
};

const BYTE: u16 = 1;
const TEXT: u16 = 2;
const SHORT: u16 = 3;
const LONG: u16 = 4;
#[cfg(feature = "gdal")]
const SIGNED_SHORT: u16 = 8;

/// A directory of single numbers and of texts of four bytes, and the offset of the next.
fn directory(tags: &[(u16, u16, u32)], next: u32) -> Vec<u8> {
    let mut bytes = u16::try_from(tags.len()).unwrap().to_le_bytes().to_vec();
    for (tag, kind, value) in tags {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(kind.to_le_bytes());
        let count: u32 = if *kind == TEXT { 4 } else { 1 };
        bytes.extend(count.to_le_bytes());
        bytes.extend(value.to_le_bytes());
    }
    bytes.extend(next.to_le_bytes());
    bytes
}

/// The tags of an uncompressed image of bytes, in one strip.
fn image(side: u32, offset: u32) -> Vec<(u16, u16, u32)> {
    vec![
        (256, SHORT, side),
        (257, SHORT, side),
        (258, SHORT, 8),
        (259, SHORT, 1),
        (262, SHORT, 1),
        (273, LONG, offset),
        (277, SHORT, 1),
        (278, SHORT, side),
        (279, LONG, side * side),
    ]
}

/// A file of 4 x 4 samples from 1 to 16 at byte 8, and directories behind them.
fn file(directories: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = b"II*\0".to_vec();
    bytes.extend(24_u32.to_le_bytes());
    bytes.extend(1..=16);
    bytes.extend(directories.concat());
    bytes
}

fn open(session: &Session, path: &Path, backend: Backend) -> rss_core::Result<OpenRaster> {
    session.open(&Location::Local(path.to_owned()), backend)
}

fn pixels(raster: &OpenRaster, level: usize) -> Vec<u8> {
    let read = raster.read(&ReadRequest::new().with_level(level)).unwrap();
    read.pixels.to_le_bytes()
}

#[test]
fn what_is_cut_off_behind_the_first_directory_is_noted() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cut.tif");
    let session = Session::builder().build().unwrap();
    let far = file(&[directory(&image(4, 8), 0x7FFF_FFF0)]);
    let whole = file(&[directory(&image(4, 8), 0)]);
    let cut = whole[..whole.len() - 3].to_vec();
    for (bytes, is_odd) in [(far, true), (cut, true), (whole, false)] {
        std::fs::write(&path, bytes).unwrap();
        let raster = open(&session, &path, Backend::Auto).unwrap();
        assert_eq!(raster.backend(), Backend::Cog);
        assert_eq!(raster.profile().notes.len(), usize::from(is_odd));
        assert!(pixels(&raster, 0).into_iter().eq(1..=16));
    }
}

/// The backends of this build.
fn backends() -> impl Iterator<Item = Backend> {
    [Backend::Cog, Backend::Gdal]
        .into_iter()
        .filter(|&backend| backend == Backend::Cog || cfg!(feature = "gdal"))
}

#[test]
fn a_nodata_value_that_no_sample_can_be_is_none_and_noted() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("nodata.tif");
    let session = Session::builder().build().unwrap();
    let texts = [
        (b"-1\0\0", None),
        (b"300\0", None),
        (b"0.5\0", None),
        (b"nan\0", None),
        (b"1e9\0", None),
        (b"7 \0\0", Some(7.0)),
        (b"3.0\0", Some(3.0)),
    ];
    for backend in backends() {
        for (text, expected) in texts {
            let mut tags = image(4, 8);
            tags.push((42113, TEXT, u32::from_le_bytes(*text)));
            std::fs::write(&path, file(&[directory(&tags, 0)])).unwrap();
            let raster = open(&session, &path, backend).unwrap();
            let profile = raster.profile();
            let what = format!("{backend} {}", String::from_utf8_lossy(text));
            let nodata = profile.nodata.map(rss_core::Number::as_f64);
            assert_eq!(nodata, expected, "{what}");
            assert_eq!(profile.notes.len(), usize::from(expected.is_none()));
            let is_masked = profile.masking == Masking::Nodata;
            assert_eq!(is_masked, expected.is_some(), "{what}");
            // Nothing else is masked, and the samples are whole.
            let mask = raster.read_mask(&ReadRequest::new()).unwrap();
            let masked = mask
                .pixels
                .to_le_bytes()
                .iter()
                .filter(|&&v| v == 0)
                .count();
            assert_eq!(masked, usize::from(expected.is_some()), "{what}");
            assert!(pixels(&raster, 0).into_iter().eq(1..=16));
        }
    }
    let mut tags = image(4, 8);
    tags.push((42113, TEXT, u32::from_le_bytes(*b"no!\0")));
    std::fs::write(&path, file(&[directory(&tags, 0)])).unwrap();
    let raster = open(&session, &path, Backend::Cog).unwrap();
    assert_eq!(raster.profile().nodata, None);
    let note = "its nodata value \"no!\" is no number, so it is none";
    assert_eq!(raster.profile().notes, [note]);
    let noted = session.notes();
    let of_two = noted.iter().find(|note| note.contains("nodata value 300"));
    assert!(of_two.unwrap().contains("nodata.tif"), "{noted:?}");
}

/// GDAL makes RGBA of both, where it is not told otherwise.
#[test]
fn cmyk_and_cielab_are_samples_as_they_are_stored() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ink.tif");
    let session = Session::builder().build().unwrap();
    // Photometric interpretations 5 and 8, of four and three samples, interleaved.
    for (photometric, bands) in [(5, 4_u8), (8, 3)] {
        let mut tags = image(2, 8);
        tags[4].2 = photometric;
        tags[6].2 = bands.into();
        tags[8].2 = u32::from(bands) * 4;
        std::fs::write(&path, file(&[directory(&tags, 0)])).unwrap();
        for backend in backends() {
            let raster = open(&session, &path, backend).unwrap();
            assert_eq!(raster.profile().count, usize::from(bands));
            let expected = (1..=bands).flat_map(|band| (0..4).map(move |n| band + n * bands));
            let read = pixels(&raster, 0);
            assert!(read.iter().copied().eq(expected), "{backend}: {read:?}");
        }
    }
}

fn of_others(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/tiff/files");
    folder.join(name)
}

#[test]
fn control_points_alone_give_no_place_and_are_counted() {
    let session = Session::builder().build().unwrap();
    let path = of_others("gdal--byte_gcp-75afa5fa.tif");
    for backend in backends() {
        let raster = open(&session, &path, backend).unwrap();
        let profile = raster.profile();
        assert_eq!(
            (&profile.crs, profile.transform),
            (&None, None),
            "{backend}"
        );
        assert_eq!(profile.gcps, 2, "{backend}");
        assert!(profile.notes[0].starts_with("2 ground control points"));
    }
}

#[test]
fn heights_of_a_crs_are_left_out_with_a_note() {
    let session = Session::builder().build().unwrap();
    let path = of_others("gdal--epsg26711_3855_geotiff1_1-65acd9ed.tif");
    let dir = tempfile::tempdir().unwrap();
    let three = dir.path().join("three.tif");
    // WGS 84 with heights, by its code: 4979 in GeographicTypeGeoKey.
    let mut bytes = file(&[]);
    bytes[4..8].copy_from_slice(&64_u32.to_le_bytes());
    let keys = [1_u16, 1, 0, 2, 1024, 0, 1, 2, 2048, 0, 1, 4979];
    bytes.extend(keys.into_iter().flat_map(u16::to_le_bytes));
    bytes.resize(64, 0);
    let mut tags = directory(&image(4, 8), 0);
    tags.truncate(tags.len() - 4);
    tags[0] += 1;
    for field in [34735_u16, SHORT] {
        tags.extend(field.to_le_bytes());
    }
    for field in [keys.len() as u32, 24, 0] {
        tags.extend(field.to_le_bytes());
    }
    bytes.extend(tags);
    std::fs::write(&three, bytes).unwrap();
    for backend in backends() {
        for (path, code) in [(&path, 26711), (&three, 4326)] {
            let raster = open(&session, path, backend).unwrap();
            let profile = raster.profile();
            assert_eq!(profile.crs, Some(Crs::Epsg(code)), "{backend}");
            let note = profile.notes.first().map_or("", String::as_str);
            assert!(note.contains("are left out"), "{backend} {code}: {note}");
        }
    }
}

/// As some cameras write them: four values for the three samples of a pixel.
#[test]
fn values_past_the_samples_of_a_pixel_are_of_no_sample() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("bits.tif");
    let session = Session::builder().build().unwrap();
    let mut tags = image(2, 16);
    tags[4].2 = 2;
    tags[6].2 = 3;
    tags[8].2 = 12;
    let mut one = directory(&tags, 0);
    // BitsPerSample: four shorts, at byte 8.
    one[2 + 12 * 2 + 4..2 + 12 * 3].copy_from_slice(&[4, 0, 0, 0, 8, 0, 0, 0]);
    let mut bytes = b"II*\0".to_vec();
    bytes.extend(28_u32.to_le_bytes());
    for bits in [8_u16, 8, 8, 1] {
        bytes.extend(bits.to_le_bytes());
    }
    bytes.extend(1..=12);
    bytes.extend(one);
    std::fs::write(&path, bytes).unwrap();
    for backend in backends() {
        let raster = open(&session, &path, backend).unwrap();
        let expected = [1, 4, 7, 10, 2, 5, 8, 11, 3, 6, 9, 12];
        assert_eq!(pixels(&raster, 0), expected, "{backend}");
    }
}

#[test]
fn offsets_may_be_of_one_byte() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("byte.tif");
    let session = Session::builder().build().unwrap();
    let mut tags = image(4, 8);
    tags[5].1 = BYTE;
    tags[8].1 = BYTE;
    std::fs::write(&path, file(&[directory(&tags, 0)])).unwrap();
    for backend in backends() {
        let raster = open(&session, &path, backend).unwrap();
        assert!(pixels(&raster, 0).into_iter().eq(1..=16), "{backend}");
    }
}

/// As `tifffile.imwrite(.., subifds=1)` lays them out: tag 330 of the first directory.
#[test]
fn overviews_below_the_first_directory_are_levels() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("subifds.tif");
    let session = Session::builder().build().unwrap();
    let mut full = image(4, 8);
    let below = 24 + u32::try_from(2 + 12 * (full.len() + 1) + 4).unwrap();
    full.push((330, LONG, below));
    let mut half = vec![(254, LONG, 1)];
    half.extend(image(2, 9));
    std::fs::write(&path, file(&[directory(&full, 0), directory(&half, 0)])).unwrap();
    let raster = open(&session, &path, Backend::Cog).unwrap();
    let two = Size {
        width: 2,
        height: 2,
    };
    assert_eq!(raster.profile().overviews, [two]);
    assert_eq!(pixels(&raster, 1), [2, 3, 4, 5]);
}

#[cfg(feature = "gdal")]
#[test]
fn gdal_reads_what_the_cog_reader_refuses_and_the_session_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("signed.tif");
    let session = Session::builder().build().unwrap();
    let mut tags = image(4, 8);
    tags[0].1 = SIGNED_SHORT;
    std::fs::write(&path, file(&[directory(&tags, 0)])).unwrap();
    let err = open(&session, &path, Backend::Cog).unwrap_err();
    assert_eq!(err.kind(), ErrorKind::Corrupt, "{err}");
    assert!(session.fallbacks().is_empty());
    let raster = open(&session, &path, Backend::Auto).unwrap();
    assert_eq!(raster.backend(), Backend::Gdal);
    assert!(pixels(&raster, 0).into_iter().eq(1..=16));
    let said = session.fallbacks();
    assert_eq!(said.len(), 1);
    assert!(
        said[0].ends_with("tag 256 has type 8, expected an unsigned integer"),
        "{said:?}"
    );
}

/// GDAL has none of these bounds: a file of some bytes would take gigabytes through it.
#[test]
fn gdal_is_not_asked_past_a_bound() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("huge.tif");
    let session = Session::builder().build().unwrap();
    let mut tags = image(4, 8);
    tags[0].2 = 60_000;
    tags[1].2 = 60_000;
    tags[7].2 = 60_000;
    std::fs::write(&path, file(&[directory(&tags, 0)])).unwrap();
    let err = open(&session, &path, Backend::Auto).unwrap_err();
    assert_eq!(err.kind(), ErrorKind::Unsupported, "{err}");
    assert!(err.message().contains("past the limit of 512 MiB"), "{err}");
    assert!(session.fallbacks().is_empty());
}
