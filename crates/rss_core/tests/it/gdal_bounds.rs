//! What a file may state, and name, where GDAL reads it: memory by its own word, and other files.

use std::{fs, path::PathBuf};

use rss_core::{Backend, ErrorKind, GdalReads, GetOptions, Location, Origin, ReadRequest, Session};
use rss_testbed::{Fault, Rule, Testbed};

use super::download::of_hrefs;

/// A directory of a TIFF: tag, type, values.
type Tags<'a> = &'a [(u16, u16, Vec<u32>)];

/// Writes a little-endian TIFF with a chain of directories over 200 bytes of no image.
fn tiff(directories: &[Tags<'_>]) -> Vec<u8> {
    let mut out = b"II\x2a\0\0\0\0\0".to_vec();
    out.extend([b'x'; 200]);
    let mut link = 4;
    for tags in directories {
        let mut entries = Vec::new();
        for (tag, kind, values) in *tags {
            let size = if *kind == 3 { 2 } else { 4 };
            let bytes: Vec<u8> = values
                .iter()
                .flat_map(|value| value.to_le_bytes()[..size].to_vec())
                .collect();
            let mut field = match bytes.len() {
                0..=4 => bytes,
                _ => {
                    let at = u32::try_from(out.len()).unwrap();
                    out.extend(&bytes);
                    at.to_le_bytes().to_vec()
                }
            };
            field.resize(4, 0);
            entries.extend(tag.to_le_bytes());
            entries.extend(kind.to_le_bytes());
            entries.extend(u32::try_from(values.len()).unwrap().to_le_bytes());
            entries.extend(field);
        }
        let at = u32::try_from(out.len()).unwrap();
        out[link..link + 4].copy_from_slice(&at.to_le_bytes());
        out.extend(u16::try_from(tags.len()).unwrap().to_le_bytes());
        out.extend(entries);
        link = out.len();
        out.extend([0; 4]);
    }
    out
}

/// The tags of an image of bytes with so many bands, in tiles.
fn image(
    side: u32,
    bands: u16,
    tile: u32,
    is_planar: bool,
    is_overview: bool,
) -> Vec<(u16, u16, Vec<u32>)> {
    let many = |value: u32| vec![value; bands.into()];
    let tiles = side.div_ceil(tile).pow(2) * if is_planar { u32::from(bands) } else { 1 };
    vec![
        (254, 4, vec![u32::from(is_overview)]),
        (256, 4, vec![side]),
        (257, 4, vec![side]),
        (258, 3, many(8)),
        (259, 3, vec![8]),
        (262, 3, vec![1]),
        (277, 3, vec![u32::from(bands)]),
        (284, 3, vec![1 + u32::from(is_planar)]),
        (322, 4, vec![tile]),
        (323, 4, vec![tile]),
        (324, 4, vec![8; usize::try_from(tiles).unwrap()]),
        (325, 4, vec![200; usize::try_from(tiles).unwrap()]),
        (338, 3, vec![0; usize::from(bands) - 1]),
        (339, 3, many(1)),
    ]
}

/// Writes a JPEG 2000 codestream of one component, with code-blocks of such exponents (less 2).
fn codestream(side: u32, tile: u32, block: u8, components: u16) -> Vec<u8> {
    let mut out = b"\xff\x4f\xff\x51".to_vec();
    out.extend((38 + 3 * components).to_be_bytes());
    out.extend([0; 2]);
    for number in [side, side, 0, 0, tile, tile, 0, 0] {
        out.extend(number.to_be_bytes());
    }
    out.extend(components.to_be_bytes());
    out.extend([7, 1, 1].repeat(components.into()));
    out.extend(b"\xff\x52\0\x0c\0\0\0\x01\0\x05");
    out.extend([block, block, 0, 1]);
    out.extend(b"\xff\x5c\0\x13\x40");
    out.extend([0x40; 16]);
    out.extend(b"\xff\x90\0\x0a\0\0\0\0\0\0\0\x01\xff\x93");
    out.extend([0; 500]);
    out.extend(b"\xff\xd9");
    out
}

/// A JP2 file round a codestream.
fn jp2(codestream: &[u8]) -> Vec<u8> {
    let mut out = b"\0\0\0\x0cjP  \r\n\x87\n\0\0\0\x14ftypjp2 \0\0\0\0jp2 ".to_vec();
    out.extend(b"\0\0\0\0jp2c");
    out.extend(codestream);
    out
}

fn session() -> Session {
    Session::builder().gdal_threads(1).build().unwrap()
}

/// Returns the error of a read of the first pixel.
fn refusal(session: &Session, path: &std::path::Path, backend: Backend) -> rss_core::Error {
    let location = Location::Local(path.to_path_buf());
    let request = ReadRequest::new().with_window("0,0,1,1".parse().unwrap());
    let read = session
        .open(&location, backend)
        .and_then(|raster| raster.read(&request));
    read.unwrap_err()
}

fn files(dir: &std::path::Path, files: &[(&str, Vec<u8>)]) -> Vec<PathBuf> {
    let write = |(name, bytes): &(&str, Vec<u8>)| {
        let path = dir.join(name);
        fs::write(&path, bytes).unwrap();
        path
    };
    files.iter().map(write).collect()
}

#[test]
fn a_header_that_states_more_than_a_block_may_take_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let overview = image(16, 30_000, 16, false, true);
    let first = image(32, 30_000, 16, false, false);
    let mut chain: Vec<Tags<'_>> = vec![&first];
    chain.extend(std::iter::repeat_n(&overview[..], 20));
    let all = files(
        dir.path(),
        &[
            // Small tiles of very many bands, huge tiles, huge strips.
            ("bands.tif", tiff(&[&image(512, 4200, 512, false, false)])),
            ("tile.tif", tiff(&[&image(30_000, 1, 30_000, false, false)])),
            ("chain.tif", tiff(&chain)),
            // An overview alone is past the limit.
            (
                "level.tif",
                tiff(&[
                    &image(64, 1, 64, false, false),
                    &image(32, 1, 40_000, false, true),
                ]),
            ),
            ("blocks.j2k", codestream(30_000, 30_000, 0, 1)),
            ("blocks.jp2", jp2(&codestream(30_000, 30_000, 0, 1))),
            (
                "huge.j2k",
                codestream(i32::MAX as u32, i32::MAX as u32, 4, 1),
            ),
            ("tiles.j2k", codestream(60_000, 30_000, 4, 1)),
            ("parts.j2k", codestream(16_000, 16_000, 4, 16_384)),
        ],
    );
    let session = session();
    for path in all {
        for backend in [Backend::Gdal, Backend::Auto] {
            let level = usize::from(path.ends_with("level.tif"));
            let err = match level {
                0 => refusal(&session, &path, backend),
                _ => {
                    let location = Location::Local(path.clone());
                    let request = ReadRequest::new()
                        .with_level(level)
                        .with_window("0,0,1,1".parse().unwrap());
                    let opened = session.open(&location, backend);
                    opened.and_then(|raster| raster.read(&request)).unwrap_err()
                }
            };
            assert_eq!(
                err.kind(),
                ErrorKind::Unsupported,
                "{path:?} {backend}: {err}"
            );
            assert!(
                ["limit", "more than"]
                    .iter()
                    .any(|word| err.message().contains(word)),
                "{path:?} {backend}: {err}"
            );
        }
        let to = tempfile::tempdir().unwrap();
        let own = Session::builder()
            .cache_dir(to.path().join("cache"))
            .build()
            .unwrap();
        let items = of_hrefs(&[path.to_str().unwrap()]);
        let options = GetOptions::default();
        let got = own.get(
            &items,
            &[],
            &Origin::default(),
            &to.path().join("to"),
            &options,
        );
        match path.ends_with("level.tif") || path.ends_with("chain.tif") {
            // Their overviews are not read.
            true => drop(got),
            false => assert_eq!(got.unwrap_err().kind(), ErrorKind::Unsupported, "{path:?}"),
        }
    }
}

#[test]
fn a_larger_block_is_read_where_it_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let all = files(
        dir.path(),
        &[("bands.tif", tiff(&[&image(512, 40, 512, false, false)]))],
    );
    let with = |bytes| {
        let builder = Session::builder().gdal_threads(1).gdal_block_bytes(bytes);
        refusal(&builder.build().unwrap(), &all[0], Backend::Gdal)
    };
    assert_eq!(with(10 << 20).kind(), ErrorKind::Corrupt);
    let err = with((10 << 20) - 1);
    assert_eq!(err.kind(), ErrorKind::Unsupported);
    assert!(err.message().contains("512 x 512 x 40"), "{err}");
}

#[test]
fn images_of_ordinary_jpeg_2000_tiles_pass_the_check() {
    let dir = tempfile::tempdir().unwrap();
    let all = files(
        dir.path(),
        &[
            ("tiled.jp2", jp2(&codestream(10_980, 1024, 4, 3))),
            ("one.j2k", codestream(10_980, 10_980, 4, 1)),
        ],
    );
    for path in all {
        let opened = session().open(&Location::Local(path.clone()), Backend::Gdal);
        assert_eq!(opened.unwrap().profile().size.width, 10_980, "{path:?}");
    }
}

#[test]
fn a_file_names_no_other_file_for_its_overviews() {
    let dir = tempfile::tempdir().unwrap();
    let secret = dir.path().join("secret.tif");
    fs::write(&secret, tiff(&[&image(16, 1, 16, false, false)])).unwrap();
    let item = format!(
        "<GDALMetadata><Item name=\"OVERVIEW_FILE\" domain=\"OVERVIEWS\">{}</Item></GDALMetadata>\0",
        secret.display()
    );
    // Text is a list of bytes: four of them are one value of the writer above.
    let mut text = item.into_bytes();
    text.resize(text.len().next_multiple_of(4), 0);
    let mut tags = image(64, 1, 64, false, false);
    tags.retain(|(tag, ..)| *tag != 338);
    let words = text
        .chunks(4)
        .map(|four| u32::from_le_bytes(four.try_into().unwrap()))
        .collect();
    tags.push((42112, 4, words));
    let mut bytes = tiff(&[&tags]);
    // The type of the tag becomes text.
    let entry = [42112_u16.to_le_bytes(), 4_u16.to_le_bytes()].concat();
    let at = bytes.windows(4).position(|four| four == entry).unwrap();
    let count = u32::try_from(text.len()).unwrap();
    bytes[at + 2..at + 4].copy_from_slice(&2_u16.to_le_bytes());
    bytes[at + 4..at + 8].copy_from_slice(&count.to_le_bytes());
    let bed = Testbed::builder().start().unwrap();
    bed.put("bucket", "evil.tif", bytes);
    for reads in [GdalReads::Stores, GdalReads::Vsi] {
        let _alone = super::alone();
        let session = Session::builder()
            .s3_endpoint(&bed.s3_endpoint())
            .gdal_reads(reads)
            .build()
            .unwrap();
        let location = Location::parse("s3://bucket/evil.tif").unwrap();
        let err = session.open(&location, Backend::Gdal).unwrap_err();
        assert_eq!(err.kind(), ErrorKind::Denied, "{err}");
        assert!(err.message().contains("names another file"), "{err}");
    }
}

#[test]
fn a_list_of_tiles_that_cannot_be_read_is_an_error_and_never_blank() {
    // Tiles of 16 x 16 in lists of 64 KiB behind the first bytes: libtiff reads parts of them when it needs them.
    let mut tags = image(2048, 1, 16, false, false);
    tags.retain(|(tag, ..)| *tag != 338);
    for (tag, _, values) in &mut tags {
        match tag {
            259 => *values = vec![1],
            325 => values.fill(200),
            _ => {}
        }
    }
    tags.iter_mut()
        .filter(|(tag, ..)| *tag == 325)
        .for_each(|(_, _, values)| values.fill(256));
    let mut bytes = tiff(&[&tags]);
    bytes[8..208].fill(b'x');
    let bed = Testbed::builder().start().unwrap();
    let mut right = 0;
    for k in 1..8 {
        for (col, row) in [(0, 0), (2000, 992), (16, 2000)] {
            bed.put("bucket", "x.tif", bytes.clone());
            bed.clear_faults();
            // Another object from the k-th request on.
            bed.fault(Rule::new(Fault::status(412)).skip(k));
            let session = Session::builder()
                .s3_endpoint(&bed.s3_endpoint())
                .retries(0)
                .build()
                .unwrap();
            let location = Location::parse("s3://bucket/x.tif").unwrap();
            let request =
                ReadRequest::new().with_window(format!("{col},{row},8,8").parse().unwrap());
            let opened = session.open(&location, Backend::Gdal);
            match opened.and_then(|raster| raster.read(&request)) {
                Ok(raster) => {
                    right += 1;
                    let samples = raster.pixels.view::<u8>().unwrap();
                    assert!(
                        samples.iter().all(|&sample| sample == b'x'),
                        "{k} {col},{row}"
                    );
                }
                Err(err) => assert_eq!(err.kind(), ErrorKind::Changed, "{k} {col},{row}: {err}"),
            }
        }
    }
    assert!(right > 0);
}
