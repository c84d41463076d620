//! Files that are odd and whole: read, with a note of what is odd, by the COG reader or by GDAL in its place.

use std::path::Path;

use rss_core::{Backend, ErrorKind, Location, OpenRaster, ReadRequest, Session, Size};

const SHORT: u16 = 3;
const LONG: u16 = 4;
#[cfg(feature = "gdal")]
const SIGNED_SHORT: u16 = 8;

/// A directory of single numbers, at `at`, and the offset of the next.
fn directory(tags: &[(u16, u16, u32)], next: u32) -> Vec<u8> {
    let mut bytes = u16::try_from(tags.len()).unwrap().to_le_bytes().to_vec();
    for (tag, kind, value) in tags {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(kind.to_le_bytes());
        bytes.extend(1_u32.to_le_bytes());
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
