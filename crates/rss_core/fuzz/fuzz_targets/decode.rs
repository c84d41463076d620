//! Any bytes as a file: opened and read through the public calls, as a user would.

#![no_main]

use std::{
    io::{Seek, Write},
    sync::{LazyLock, Mutex},
};

use libfuzzer_sys::fuzz_target;
use rss_core::{Backend, Location, OpenRaster, ReadRequest, Session, Window};
use tempfile::NamedTempFile;

/// Levels of one file that are read.
const MOST_LEVELS: usize = 4;

static SESSION: LazyLock<Session> = LazyLock::new(|| {
    let builder = Session::builder().read_bytes(16 << 20).cpu_threads(1);
    builder.build().expect("a session")
});
static FILE: LazyLock<Mutex<NamedTempFile>> =
    LazyLock::new(|| Mutex::new(NamedTempFile::new().expect("a temporary file")));

fuzz_target!(|bytes: &[u8]| {
    let mut file = FILE.lock().expect("one thread");
    file.rewind().expect("a file");
    file.write_all(bytes).expect("room for the file");
    file.as_file().set_len(bytes.len() as u64).expect("a file");
    let location = Location::Local(file.path().to_owned());
    if let Ok(raster) = SESSION.open(&location, Backend::Cog) {
        read(&raster);
    }
});

fn read(raster: &OpenRaster) {
    let profile = raster.profile();
    let levels = profile.overviews.len() + 1;
    for number in 0..levels.min(MOST_LEVELS) {
        let size = profile.level_size(number).expect("a level that is listed");
        let (width, height) = (size.width.min(300), size.height.min(300));
        let corner = Window {
            col: size.width - width,
            row: size.height - height,
            width,
            height,
        };
        let level = ReadRequest::new().with_level(number);
        for request in [
            level
                .clone()
                .with_window(corner)
                .with_bands([profile.count]),
            level,
        ] {
            if let Ok(read) = raster.read(&request) {
                let window = request.window.unwrap_or(Window::whole(size));
                let [_, rows, columns] = read.pixels.shape();
                assert_eq!(
                    [rows, columns],
                    [window.height as usize, window.width as usize]
                );
            }
        }
    }
}
