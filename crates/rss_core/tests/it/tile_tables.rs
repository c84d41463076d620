//! Files whose tables of tile offsets and byte counts say too little, or contradict themselves.

use std::path::{Path, PathBuf};

use rss_core::{Backend, ErrorKind, Location, Pixels, ReadRequest, Session};

/// A table of the first directory: where its numbers are, and their width.
struct Table {
    at: usize,
    width: usize,
    count: usize,
    little_endian: bool,
}

impl Table {
    fn of(file: &[u8], tags: [u16; 2]) -> Option<Self> {
        let little_endian = file.starts_with(b"II");
        let number = |at: usize, width: usize| number(file, at, width, little_endian);
        let big = number(2, 2) == 43;
        let (word, count_bytes, entry_bytes) = if big { (8, 8, 20) } else { (4, 2, 12) };
        let first = number(word, word);
        let entries = number(first, count_bytes);
        let at_entry = |n| first + count_bytes + n * entry_bytes;
        let entry = (0..entries)
            .map(at_entry)
            .find(|&at| tags.contains(&u16::try_from(number(at, 2)).unwrap()))?;
        let width = match number(entry + 2, 2) {
            3 => 2,
            4 => 4,
            16 => 8,
            _ => return None,
        };
        let count = number(entry + 4, word);
        let value = entry + 4 + word;
        let at = if count * width <= word {
            value
        } else {
            number(value, word)
        };
        Some(Self {
            at,
            width,
            count,
            little_endian,
        })
    }

    fn get(&self, file: &[u8], n: usize) -> usize {
        let at = self.at + n * self.width;
        number(file, at, self.width, self.little_endian)
    }

    fn clear(&self, file: &mut [u8], n: usize) {
        file[self.at + n * self.width..][..self.width].fill(0);
    }
}

fn number(file: &[u8], at: usize, width: usize, little_endian: bool) -> usize {
    let fold = |value: usize, byte: &u8| value << 8 | usize::from(*byte);
    let bytes = file[at..at + width].iter();
    match little_endian {
        true => bytes.rev().fold(0, fold),
        false => bytes.fold(0, fold),
    }
}

/// The files of the corpora's small selection.
fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/tiff/files");
    let files = std::fs::read_dir(folder).unwrap();
    files.map(|file| file.unwrap().path()).collect()
}

fn read(session: &Session, path: &Path, backend: Backend) -> rss_core::Result<Pixels> {
    let raster = session.open(&Location::Local(path.to_owned()), backend)?;
    Ok(raster.read(&ReadRequest::new())?.pixels)
}

/// Reads a file by its entry in an index, as `gather` does.
fn read_by_entry(session: &Session, path: &Path) -> rss_core::Result<Pixels> {
    let location = Location::Local(path.to_owned());
    let entry = session.open(&location, Backend::Cog)?.entry()?;
    let raster = session.open(&entry, Backend::Cog)?;
    Ok(raster.read(&ReadRequest::new())?.pixels)
}

/// A scanner that does not know the length of its strip writes 0; libtiff takes all up to the next strip, or the end of
/// the file. Blank pixels in its place are the worst answer.
#[test]
fn a_tile_with_an_offset_and_no_byte_count_is_read_and_never_blank() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("count.tif");
    let session = Session::builder().build().unwrap();
    let mut right = std::collections::BTreeMap::<Option<String>, usize>::new();
    for name in files() {
        let whole = std::fs::read(&name).unwrap();
        let Ok(expected) = read(&session, &name, Backend::Cog) else {
            continue;
        };
        let (Some(offsets), Some(counts)) =
            (Table::of(&whole, [273, 324]), Table::of(&whole, [279, 325]))
        else {
            continue;
        };
        let stored = |n: &usize| offsets.get(&whole, *n) != 0 && counts.get(&whole, *n) != 0;
        let stored: Vec<usize> = (0..counts.count).filter(stored).collect();
        let (Some(&first), Some(&last)) = (stored.first(), stored.last()) else {
            continue;
        };
        let refusals = [ErrorKind::Corrupt, ErrorKind::Unsupported];
        for cleared in [&[first][..], &[last], &stored] {
            let mut file = whole.clone();
            for &n in cleared {
                counts.clear(&mut file, n);
            }
            std::fs::write(&path, &file).unwrap();
            let what = format!("{} {cleared:?}", name.display());
            let by_file = read(&session, &path, Backend::Cog);
            let by_entry = read_by_entry(&session, &path);
            assert_eq!(by_file.is_ok(), by_entry.is_ok(), "{what}");
            for read in [by_file, by_entry, read(&session, &path, Backend::Auto)] {
                match read {
                    Ok(pixels) => assert!(same(&pixels, &expected), "{what}"),
                    Err(err) => assert!(refusals.contains(&err.kind()), "{what}: {err}"),
                }
            }
            if let Ok(raster) = session.open(&Location::Local(path.clone()), Backend::Cog) {
                if raster.read(&ReadRequest::new()).is_ok() {
                    *right
                        .entry(raster.profile().compression.clone())
                        .or_default() += 1;
                } else {
                    eprintln!("refused: {what}");
                }
            }
        }
    }
    eprintln!("{right:?}");
    // The codecs of the selection, and none.
    assert!(right.len() >= 10, "{right:?}");
}

#[test]
fn an_offset_of_zero_beside_a_byte_count_is_an_error_and_never_blank() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("offset.tif");
    let session = Session::builder().build().unwrap();
    let mut refused = 0;
    for name in files() {
        let mut file = std::fs::read(&name).unwrap();
        if read(&session, &name, Backend::Cog).is_err() {
            continue;
        }
        let (Some(offsets), Some(counts)) =
            (Table::of(&file, [273, 324]), Table::of(&file, [279, 325]))
        else {
            continue;
        };
        if counts.get(&file, 0) == 0 {
            continue;
        }
        offsets.clear(&mut file, 0);
        std::fs::write(&path, &file).unwrap();
        let what = name.display();
        let reads = [
            read(&session, &path, Backend::Cog),
            read(&session, &path, Backend::Auto),
            read_by_entry(&session, &path),
        ];
        for read in reads {
            let err = read.err().unwrap_or_else(|| panic!("{what} is read"));
            assert!(err.message().contains("offset 0"), "{what}: {err}");
        }
        refused += 1;
    }
    assert!(refused > 20, "{refused}");
}

/// Writers that leave the position of the file where a tile is empty: which tile the bytes belong to is not known.
#[test]
fn a_tile_where_another_begins_is_no_tile_of_ours() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("empty.tif");
    let session = Session::builder().build().unwrap();
    // The second: tables whose counts are all 0 say nothing.
    for (offsets, counts) in [([130, 130], [0, 4]), ([130, 134], [0, 0])] {
        std::fs::write(&path, strips(&offsets, &counts)).unwrap();
        for backend in [Backend::Cog, Backend::Auto] {
            let err = read(&session, &path, backend).unwrap_err();
            assert_eq!(err.kind(), ErrorKind::Unsupported, "{err}");
            let what = "tile 0 has offset 130 and no byte count";
            assert!(err.message().contains(what), "{err}");
        }
    }
    std::fs::write(&path, strips(&[130, 134], &[0, 4])).unwrap();
    let pixels = read(&session, &path, Backend::Cog).unwrap();
    assert_eq!(pixels.to_le_bytes(), [1, 2, 3, 4, 5, 6, 7, 8]);
    std::fs::write(&path, strips(&[1 << 20, 134], &[0, 4])).unwrap();
    let err = read(&session, &path, Backend::Auto).unwrap_err();
    assert_eq!(err.kind(), ErrorKind::Corrupt, "{err}");
}

/// Images of the samples 1 to 8 whose tables are short or say little.
pub(crate) fn odd() -> Vec<Vec<u8>> {
    let entry = 10 + 12 * 7;
    // One count, which stands in its entry.
    let mut short = strips(&[130, 134], &[4, 4]);
    short[entry + 4..entry + 8].copy_from_slice(&1_u32.to_le_bytes());
    short[entry + 8..entry + 12].copy_from_slice(&4_u32.to_le_bytes());
    // A private tag in place of the byte counts.
    let mut without = strips(&[130, 134], &[4, 4]);
    without[entry..entry + 2].copy_from_slice(&60_000_u16.to_le_bytes());
    vec![
        short,
        without,
        strips(&[130, 134], &[0, 4]),
        strips(&[130, 134], &[4, 0]),
    ]
}

/// libtiff estimates them, too, but reads the strips past the table as zeros in some versions.
#[test]
fn byte_counts_that_are_missing_are_those_of_the_rows() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("short.tif");
    let session = Session::builder().build().unwrap();
    for (n, file) in odd().into_iter().enumerate() {
        std::fs::write(&path, file).unwrap();
        let reads = [
            read(&session, &path, Backend::Cog),
            read(&session, &path, Backend::Auto),
            read_by_entry(&session, &path),
        ];
        for read in reads {
            assert_eq!(read.unwrap().to_le_bytes(), [1, 2, 3, 4, 5, 6, 7, 8], "{n}");
        }
    }
}

/// An uncompressed image of 4 x 2 bytes in two strips, with these tables; the samples 1 to 8 are at 130.
fn strips(offsets: &[u32; 2], counts: &[u32; 2]) -> Vec<u8> {
    let tags: [(u16, u32, u32); 8] = [
        (256, 1, 4),
        (257, 1, 2),
        (258, 1, 8),
        (259, 1, 1),
        (262, 1, 1),
        (273, 2, 114),
        (278, 1, 1),
        (279, 2, 122),
    ];
    let mut file = b"II*\0\x08\0\0\0".to_vec();
    file.extend(u16::try_from(tags.len()).unwrap().to_le_bytes());
    for (tag, count, value) in tags {
        file.extend(tag.to_le_bytes());
        file.extend(4_u16.to_le_bytes());
        file.extend(count.to_le_bytes());
        file.extend(value.to_le_bytes());
    }
    file.extend([0; 8]);
    assert_eq!(file.len(), 114);
    for number in offsets.iter().chain(counts) {
        file.extend(number.to_le_bytes());
    }
    file.extend(1..=8);
    file
}

/// Equal in bytes: NaN is NaN.
fn same(a: &Pixels, b: &Pixels) -> bool {
    a.shape() == b.shape() && a.to_le_bytes() == b.to_le_bytes()
}
