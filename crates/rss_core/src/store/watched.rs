//! A store that explains its errors by the HTTP responses, and finds its bucket's region.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use async_trait::async_trait;
use futures::{StreamExt, stream::BoxStream};
use object_store::{
    CopyOptions, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, path::Path,
};

use super::fault::Probe;

/// Builds the store again for another region.
pub(super) type Rebuild =
    Box<dyn Fn(&str) -> crate::error::Result<Arc<dyn ObjectStore>> + Send + Sync>;

/// Gives each call a probe that records its attempts, and explains its errors by the record.
pub(super) struct Watched {
    inner: Mutex<Arc<dyn ObjectStore>>,
    rebuild: Option<Rebuild>,
}

impl Watched {
    pub(super) fn new(inner: Arc<dyn ObjectStore>, rebuild: Option<Rebuild>) -> Self {
        Self {
            inner: Mutex::new(inner),
            rebuild,
        }
    }

    fn inner(&self) -> Arc<dyn ObjectStore> {
        Arc::clone(&self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Switches to the region that a response stated. Returns false if there is none.
    fn moves(&self, probe: &Probe) -> bool {
        let (Some(region), Some(rebuild)) = (probe.region(), &self.rebuild) else {
            return false;
        };
        let Ok(store) = rebuild(&region) else {
            return false;
        };
        *self.inner.lock().unwrap_or_else(PoisonError::into_inner) = store;
        true
    }

    async fn get(
        &self,
        path: &Path,
        options: &GetOptions,
    ) -> std::result::Result<(GetResult, Probe), (object_store::Error, Probe)> {
        let probe = Probe::default();
        let mut options = options.clone();
        options.extensions.insert(probe.clone());
        match self.inner().get_opts(path, options).await {
            Ok(found) => Ok((found, probe)),
            Err(err) => Err((err, probe)),
        }
    }
}

impl fmt::Debug for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Watched({})", self.inner())
    }
}

impl fmt::Display for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.inner(), f)
    }
}

#[async_trait]
impl ObjectStore for Watched {
    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        // S3 states a bucket's region in the error of the first request (x-amz-bucket-region): one more
        // request finds it, where a lookup before would cost one for each bucket.
        let mut found = self.get(path, &options).await;
        if let Err((_, probe)) = &found
            && self.moves(probe)
        {
            found = self.get(path, &options).await;
        }
        let (mut found, probe) = found.map_err(|(err, probe)| probe.explain(err))?;
        if let GetResultPayload::Stream(stream) = found.payload {
            let stream = stream.map(move |chunk| chunk.map_err(|err| probe.explain(err)));
            found.payload = GetResultPayload::Stream(stream.boxed());
        }
        Ok(found)
    }

    async fn put_opts(
        &self,
        path: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        self.inner().put_opts(path, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        path: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.inner().put_multipart_opts(path, options).await
    }

    fn delete_stream(
        &self,
        paths: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.inner().delete_stream(paths)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner().list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner().list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner().copy_opts(from, to, options).await
    }
}
