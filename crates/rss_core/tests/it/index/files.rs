//! Files of every kind, read by an index as by their headers.

use std::path::{Path, PathBuf};

use rss_core::{
    Backend, Entry, Location, ReadRequest, Result, Session,
    index::{BuildSource, Builder, Index, Select},
    reader::{self, Target},
};

use crate::{corpora, tile_tables};

/// The files of the corpora that are there, the fax pictures, and files with odd tables, which are written to `dir`.
fn files(dir: &Path) -> Vec<PathBuf> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/fax");
    let corpora = corpora::folders()
        .into_iter()
        .map(|folder| folder.join("files"));
    let mut found: Vec<PathBuf> = corpora
        .chain([own])
        .flat_map(|folder| std::fs::read_dir(folder).unwrap())
        .map(|file| file.unwrap().path())
        .filter(|path| {
            let ending = path.extension().unwrap_or_default();
            ["tif", "tiff", "TIF"].iter().any(|tif| ending == *tif)
        })
        .collect();
    for (n, file) in tile_tables::odd().into_iter().enumerate() {
        let path = dir.join(format!("odd-{n}.tif"));
        std::fs::write(&path, file).unwrap();
        found.push(path);
    }
    found
}

/// Returns the samples of every level, and the masks, or why there are none.
async fn read(session: &Session, target: impl Into<Target<'_>>) -> Result<Vec<Result<Vec<u8>>>> {
    let raster = reader::open(session, target, Backend::Cog).await?;
    let mut all = Vec::new();
    for level in 0..=raster.profile().overviews.len() {
        let request = ReadRequest::new().with_level(level);
        for read in [
            raster.read(&request).await,
            raster.read_mask(&request).await,
        ] {
            all.push(read.map(|raster| raster.pixels.to_le_bytes()));
        }
    }
    Ok(all)
}

#[tokio::test]
async fn every_file_reads_by_its_entry_as_by_its_header() {
    let dir = tempfile::tempdir().unwrap();
    let session = Session::builder().read_bytes(64 << 20).build().unwrap();
    let locations = files(dir.path()).into_iter().map(Location::Local);
    let path = dir.path().join("a.parquet");
    let source = BuildSource::locations(locations);
    let report = Builder::new(&session).build(source, &path).await.unwrap();
    assert!(report.ok > 60, "{report:?}");
    let index = Index::open(&path).unwrap();
    let mut images = 0;
    for indexed in index.entries(&Select::all()).unwrap() {
        let entry: Entry = indexed.unwrap().entry;
        let by_file = read(&session, &entry.location).await.unwrap();
        let by_entry = read(&session, &entry).await.unwrap();
        for (n, (file, entry_of)) in by_file.iter().zip(&by_entry).enumerate() {
            let what = format!("{}, image {n}", entry.location);
            match (file, entry_of) {
                (Ok(file), Ok(entry_of)) => assert!(file == entry_of, "{what}"),
                (Err(file), Err(entry_of)) => assert_eq!(file.kind(), entry_of.kind(), "{what}"),
                (file, entry_of) => panic!("{what}: {file:.60?} by file, {entry_of:.60?}"),
            }
            images += 1;
        }
        assert_eq!(by_file.len(), by_entry.len(), "{}", entry.location);
    }
    assert!(images > 120, "{images}");
}
