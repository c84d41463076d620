//! Files that lie: damaged here by a rule, or found by a fuzzer. They are refused or read; nothing
//! panics, hangs or takes memory without end.

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use rss_core::{Backend, Error, ErrorKind, Location, ReadRequest, Session};

/// Damaged copies of each file.
const ROUNDS: usize = 120;
/// No file may take longer, in a debug build on a busy machine.
const LONGEST: Duration = Duration::from_secs(10);
/// Numbers that are wrong in many places, and right in some.
const LIES: [u64; 14] = [
    0,
    1,
    2,
    3,
    7,
    16,
    255,
    257,
    65_535,
    0x0001_0000,
    0x7FFF_FFFF,
    0xFFFF_FFFF,
    1 << 61,
    u64::MAX,
];

fn files(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let entries = std::fs::read_dir(folder).unwrap();
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    found.sort();
    found
}

/// Reads every level whole, and the last pixel alone, as far as it goes.
fn read(session: &Session, path: &Path) -> Result<(), Error> {
    let started = Instant::now();
    let raster = session.open(&Location::Local(path.to_owned()), Backend::Cog)?;
    let levels = raster.profile().overviews.len() + 1;
    let mut outcome = Ok(());
    for level in 0..levels.min(4) {
        let size = raster.profile().level_size(level)?;
        let request = ReadRequest::new().with_level(level);
        let (col, row) = (size.width - 1, size.height - 1);
        let last = format!("{col},{row},1,1").parse()?;
        let corner = raster.read(&request.clone().with_window(last));
        let whole = raster.read(&request);
        outcome = outcome.and(corner.map(|_| ())).and(whole.map(|_| ()));
    }
    let took = started.elapsed();
    assert!(took < LONGEST, "{} took {took:?}", path.display());
    outcome
}

/// An error that tells what is wrong with the file; a panic on a thread of the pool would be
/// `Unavailable`.
fn check(what: &str, err: &Error) {
    let fits = [
        ErrorKind::Corrupt,
        ErrorKind::Unsupported,
        ErrorKind::InvalidInput,
    ];
    assert!(fits.contains(&err.kind()), "{what}: {err:?}");
}

fn session() -> Session {
    Session::builder().read_bytes(16 << 20).build().unwrap()
}

#[test]
fn damaged_files_are_refused_or_read_and_never_panic() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("damaged.tif");
    let session = session();
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    let (mut good, mut refused) = (0, 0);
    for name in files("tests/data/tiff/files") {
        let whole = std::fs::read(&name).unwrap();
        let entries = entries(&whole);
        assert!(!entries.is_empty(), "{}", name.display());
        for round in 0..ROUNDS {
            let mut bytes = whole.clone();
            for _ in 0..=random.below(2) {
                damage(&mut bytes, &entries, round % 8, &mut random);
            }
            std::fs::write(&path, &bytes).unwrap();
            match read(&session, &path) {
                Ok(()) => good += 1,
                Err(err) => {
                    check(&format!("{} round {round}", name.display()), &err);
                    refused += 1;
                }
            }
        }
    }
    eprintln!("{good} read, {refused} refused");
    assert!(
        good > 1000 && refused > 1000,
        "{good} read, {refused} refused"
    );
}

#[test]
fn what_a_fuzzer_made_is_refused_or_read() {
    let session = session();
    let found = files("tests/data/fuzz");
    assert!(found.len() > 1);
    for path in found.iter().filter(|path| path.extension().is_none()) {
        if let Err(err) = read(&session, path) {
            check(&path.display().to_string(), &err);
        }
    }
}

/// A directory's entry: where it stands, and how its numbers are written.
#[derive(Clone, Copy, Debug)]
struct Entry {
    at: usize,
    big: bool,
    little_endian: bool,
}

impl Entry {
    /// Bytes of a count and of a value.
    fn word(self) -> usize {
        if self.big { 8 } else { 4 }
    }

    fn write(self, bytes: &mut [u8], at: usize, length: usize, value: u64) {
        let little = value.to_le_bytes();
        let Some(place) = bytes.get_mut(at..at + length) else {
            return;
        };
        for (n, byte) in place.iter_mut().enumerate() {
            let from = if self.little_endian {
                n
            } else {
                length - 1 - n
            };
            *byte = little[from];
        }
    }
}

/// Finds the entries of all directories; some files' directories lead in a circle.
fn entries(bytes: &[u8]) -> Vec<Entry> {
    let little_endian = bytes.starts_with(b"II");
    let number = |at: usize, length: usize| -> usize {
        let field = bytes[at..at + length].iter();
        let fold = |value: usize, byte: &u8| value << 8 | usize::from(*byte);
        if little_endian {
            field.rev().fold(0, fold)
        } else {
            field.fold(0, fold)
        }
    };
    let big = number(2, 2) == 43;
    let (word, count_bytes, entry_bytes) = if big { (8, 8, 20) } else { (4, 2, 12) };
    let mut found = Vec::new();
    let mut seen = Vec::new();
    let mut at = number(word, word);
    while at != 0 && !seen.contains(&at) {
        seen.push(at);
        let count = number(at, count_bytes);
        let first = at + count_bytes;
        found.extend((0..count).map(|n| Entry {
            at: first + n * entry_bytes,
            big,
            little_endian,
        }));
        at = number(first + count * entry_bytes, word);
    }
    found
}

fn damage(bytes: &mut Vec<u8>, entries: &[Entry], way: usize, random: &mut Random) {
    let length = bytes.len().max(1);
    let entry = entries[random.below(entries.len())];
    let lie = LIES[random.below(LIES.len())];
    let word = entry.word();
    match way {
        0 => bytes.truncate(random.below(length)),
        1 => {
            let at = random.below(length);
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << random.below(8);
            }
        }
        // The header and the first directory, where a wrong number does most.
        2 => {
            let at = random.below(length.min(400));
            let value = random.below(256);
            entry.write(bytes, at, 1, value as u64);
        }
        3 => entry.write(bytes, entry.at + 2, 2, random.below(20) as u64),
        4 => entry.write(bytes, entry.at + 4, word, lie),
        5 => entry.write(bytes, entry.at + 4 + word, word, lie),
        6 => entry.write(bytes, entry.at + 4 + word, 2, lie),
        // A value, or a table, that lies elsewhere in the file.
        _ => {
            let elsewhere = random.below(length) as u64;
            entry.write(bytes, entry.at + 4 + word, word, elsewhere);
        }
    }
}

/// Numbers that look random and are the same each time.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 33) as usize % end
    }
}

/// Writes a little-endian TIFF of one directory of numbers.
fn tiff(tags: &[(u16, u32)]) -> Vec<u8> {
    let mut file = b"II*\0\x08\0\0\0".to_vec();
    file.extend(u16::try_from(tags.len()).unwrap().to_le_bytes());
    for (tag, value) in tags {
        file.extend(tag.to_le_bytes());
        file.extend(4_u16.to_le_bytes());
        file.extend(1_u32.to_le_bytes());
        file.extend(value.to_le_bytes());
    }
    file.extend([0; 4]);
    file
}

/// Reads a window of a file, in a session with no limits of its own.
fn refused(file: &[u8], window: Option<&str>) -> Error {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("made.tif");
    std::fs::write(&path, file).unwrap();
    let session = Session::builder().read_bytes(u64::MAX).build().unwrap();
    let mut request = ReadRequest::new();
    request.window = window.map(|text| text.parse().unwrap());
    session
        .open(&Location::Local(path), Backend::Cog)
        .and_then(|raster| raster.read(&request))
        .unwrap_err()
}

#[test]
fn the_number_of_a_tile_may_pass_64_bits() {
    let file = tiff(&[
        (256, u32::MAX),
        (257, u32::MAX),
        (258, 8),
        (277, 9),
        (284, 2),
        (322, 1),
        (323, 1),
        (324, 8),
        (325, 1),
    ]);
    let err = refused(&file, Some("1,0,1,1"));
    assert_eq!(err.kind(), ErrorKind::Corrupt, "{err}");
}

#[test]
fn tiles_of_one_pixel_do_not_take_all_memory() {
    let huge = tiff(&[
        (256, 1 << 30),
        (257, 1 << 20),
        (258, 8),
        (322, 1),
        (323, 1),
        (324, 8),
        (325, 1),
    ]);
    let err = refused(&huge, None);
    assert_eq!(err.kind(), ErrorKind::InvalidInput, "{err}");
    let many_bands = tiff(&[
        (256, 1 << 10),
        (257, 1 << 10),
        (258, 8),
        (277, 65_535),
        (322, 1),
        (323, 1),
        (324, 8),
        (325, 1),
    ]);
    let err = refused(&many_bands, None);
    assert_eq!(err.kind(), ErrorKind::InvalidInput, "{err}");
}

#[test]
fn a_row_of_bits_is_bounded_as_what_it_becomes() {
    let file = tiff(&[
        (256, 65_000),
        (257, 1),
        (258, 1),
        (277, 60_000),
        (278, 1),
        (273, 8),
        (279, 1),
    ]);
    let err = refused(&file, None);
    assert_eq!(err.kind(), ErrorKind::Unsupported, "{err}");
}

#[test]
fn a_tile_that_claims_a_whole_file_is_not_read() {
    let tags = |compression| {
        [
            (256, 4),
            (257, 4),
            (258, 8),
            (259, compression),
            (322, 4),
            (323, 4),
            (324, 8),
            (325, 2 << 20),
        ]
    };
    let mut file = tiff(&tags(8));
    file.resize(3 << 20, 0);
    let err = refused(&file, None);
    assert_eq!(err.kind(), ErrorKind::Corrupt, "{err}");
    assert!(
        err.message().contains("compressed bytes, more than"),
        "{err}"
    );
    // Plain samples are the first of those bytes.
    let mut file = tiff(&tags(1));
    file.resize(3 << 20, 7);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("plain.tif");
    std::fs::write(&path, &file).unwrap();
    let raster = session()
        .open(&Location::Local(path), Backend::Cog)
        .unwrap();
    let pixels = raster.read(&ReadRequest::new()).unwrap().pixels;
    assert_eq!(pixels.to_le_bytes(), file[8..24]);
}

/// An image of one band, 16 pixels square, one JPEG strip of 30 bytes at 122, and a tag for tables.
fn jpeg(tables: u32, strip: &[u8]) -> Vec<u8> {
    let mut file = tiff(&[
        (256, 16),
        (257, 16),
        (258, 8),
        (259, 7),
        (273, 122),
        (278, 16),
        (279, 30),
        (317, 1),
        (347, tables),
    ]);
    assert_eq!(file.len(), 122);
    file.extend(strip);
    file.resize(152, 0);
    file
}

#[test]
fn jpeg_tables_of_one_byte_are_corrupt() {
    let frame = [
        0xFF, 0xD8, 0xFF, 0xC0, 0, 11, 8, 0, 16, 0, 16, 1, 1, 0x11, 0,
    ];
    let mut file = jpeg(0, &frame);
    // The tables are one byte of no type.
    file[122 - 4 - 12 + 2] = 7;
    let err = refused(&file, None);
    assert_eq!(err.kind(), ErrorKind::Corrupt, "{err}");
    assert!(err.message().contains("JPEG tables"), "{err}");
}

#[test]
fn a_jpeg_frame_of_other_components_is_corrupt() {
    let frame = [
        0xFF, 0xD8, 0xFF, 0xC0, 0, 14, 8, 0, 16, 0, 16, 2, 1, 0x11, 0, 2, 0x11, 0,
    ];
    let tables = u32::from_le_bytes([0xFF, 0xD8, 0xFF, 0xD9]);
    let err = refused(&jpeg(tables, &frame), None);
    assert_eq!(err.kind(), ErrorKind::Corrupt, "{err}");
    assert!(err.message().contains("2 components"), "{err}");
}
