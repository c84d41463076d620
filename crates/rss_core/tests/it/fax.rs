//! The bilevel compressions of CCITT, in the forms that writers give them.

use std::path::Path;

use rss_core::{Backend, Location, ReadRequest, Session};

/// The picture, and the picture without the rows that the short strips lack.
fn pictures(folder: &Path) -> [Vec<u8>; 2] {
    let whole = std::fs::read(folder.join("picture.bin")).unwrap();
    let rows = whole.chunks(37).enumerate();
    let short = rows.flat_map(|(row, samples)| {
        let is_there = !matches!(row, 6 | 7 | 9 | 10);
        samples
            .iter()
            .map(move |&sample| sample * u8::from(is_there))
    });
    let short = short.collect();
    [whole, short]
}

#[test]
fn every_form_of_fax_is_read_without_gdal() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/fax");
    let [whole, short] = pictures(&folder);
    let session = Session::builder().build().unwrap();
    let mut read = 0;
    for file in std::fs::read_dir(&folder).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_none_or(|ending| ending != "tif") {
            continue;
        }
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let expected = match name.starts_with("short_") {
            true => &short,
            false => &whole,
        };
        let raster = session.open(&Location::Local(path), Backend::Cog).unwrap();
        let pixels = raster.read(&ReadRequest::new()).unwrap().pixels;
        assert!(pixels.to_le_bytes() == *expected, "{name}");
        // The last strip has three rows: a window of them does not touch the others.
        let window = ReadRequest::new().with_window("5,8,20,3".parse().unwrap());
        let part = raster.read(&window).unwrap().pixels.to_le_bytes();
        let rows = expected.chunks(37).skip(8);
        let cut: Vec<u8> = rows.flat_map(|row| &row[5..25]).copied().collect();
        assert!(part == cut, "{name}, last strip");
        read += 1;
    }
    assert_eq!(read, 17);
}
