//! A file of this machine, under a temporary name until it is complete.

use std::{
    fs::File,
    io::{self, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use tempfile::NamedTempFile;

use crate::{
    error::{Error, ErrorKind, Result},
    raster,
    writer::tile_store::Gauge,
};

#[derive(Debug)]
pub(in crate::writer) struct FileSink {
    /// Removed when it is dropped.
    temporary: NamedTempFile,
    /// The same file, for the threads that write.
    file: Arc<File>,
    path: PathBuf,
    gauge: Arc<Gauge>,
}

impl FileSink {
    pub(super) fn create(path: &Path, header_bytes: u64, gauge: &Arc<Gauge>) -> Result<Self> {
        let at = |err: io::Error| raster::io_error(err).at(path.display());
        if path.is_dir() {
            return Err(at(io::ErrorKind::IsADirectory.into()));
        }
        let temporary = raster::temporary(path)?;
        let mut file = temporary.as_file().try_clone().map_err(at)?;
        file.seek(SeekFrom::Start(header_bytes)).map_err(at)?;
        Ok(Self {
            temporary,
            file: Arc::new(file),
            path: path.to_owned(),
            gauge: Arc::clone(gauge),
        })
    }

    pub(super) async fn append(&mut self, pieces: Vec<Bytes>) -> Result<()> {
        let (file, gauge) = (Arc::clone(&self.file), Arc::clone(&self.gauge));
        let write = move || {
            pieces.into_iter().try_for_each(|piece| {
                (&*file).write_all(&piece)?;
                gauge.remove(piece.len());
                Ok(())
            })
        };
        waiting(write)
            .await
            .map_err(|err| err.at(self.path.display()))
    }

    pub(super) async fn finish(self, header: Bytes) -> Result<()> {
        let Self {
            temporary,
            file,
            path,
            gauge,
        } = self;
        let name = path.display().to_string();
        let write = move || {
            // The rename comes after the header: a file that can be seen is complete.
            (&*file).seek(SeekFrom::Start(0))?;
            (&*file).write_all(&header)?;
            gauge.remove(header.len());
            raster::publish(temporary, &path)
        };
        waiting(write).await.map_err(|err| err.at(name))
    }
}

/// Runs file IO off the runtime's threads.
async fn waiting(work: impl FnOnce() -> io::Result<()> + Send + 'static) -> Result<()> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|_| Error::new(ErrorKind::Unavailable, "a task of the file system was lost"))?
        .map_err(raster::io_error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn bytes_are_counted_until_they_are_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.tif");
        let gauge = Arc::new(Gauge::default());
        let mut sink = FileSink::create(&path, 3, &gauge).unwrap();
        gauge.add(9);
        let pieces = vec![Bytes::from_static(b"tile"), Bytes::from_static(b"tile2")];
        sink.append(pieces).await.unwrap();
        assert_eq!((gauge.now(), gauge.peak()), (0, 9));
        gauge.add(3);
        sink.finish(Bytes::from_static(b"now")).await.unwrap();
        assert_eq!((gauge.now(), gauge.peak()), (0, 9));
        assert_eq!(std::fs::read(&path).unwrap(), b"nowtiletile2");
    }
}
