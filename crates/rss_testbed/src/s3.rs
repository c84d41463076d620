//! The objects over the S3 protocol: what a public bucket answers, to writers too.
//!
//! A bucket is there once an object was put into it; the protocol makes none.

use std::{collections::BTreeSet, sync::Arc};

use bytes::Bytes;
use futures::{TryStreamExt, stream};
use s3s::{
    S3, S3Request, S3Response, S3Result,
    access::{S3Access, S3AccessContext},
    auth::SimpleAuth,
    dto::{
        AbortMultipartUploadInput, AbortMultipartUploadOutput, CommonPrefix,
        CompleteMultipartUploadInput, CompleteMultipartUploadOutput, CreateMultipartUploadInput,
        CreateMultipartUploadOutput, DeleteObjectInput, DeleteObjectOutput, DeleteObjectsInput,
        DeleteObjectsOutput, DeletedObject, ETag, ETagCondition, GetObjectInput, GetObjectOutput,
        HeadObjectInput, HeadObjectOutput, ListObjectsInput, ListObjectsOutput, ListObjectsV2Input,
        ListObjectsV2Output, Metadata, Object as Listed, PutObjectInput, PutObjectOutput,
        StreamingBlob, Timestamp, UploadPartInput, UploadPartOutput,
    },
    s3_error,
    service::{S3Service, S3ServiceBuilder},
};

use crate::{
    ACCESS_KEY, SECRET_KEY,
    objects::{Object, Objects},
    uploads::{Refusal, Uploads},
};

/// Keys that one listing holds at most.
const MAX_KEYS: i32 = 1000;

/// Returns the service; it reads signed, presigned and unsigned requests.
pub(crate) fn service(objects: Arc<Objects>, uploads: Arc<Uploads>) -> S3Service {
    let mut builder = S3ServiceBuilder::new(Bucket(objects, uploads));
    builder.set_auth(SimpleAuth::from_single(ACCESS_KEY, SECRET_KEY));
    builder.set_access(Public);
    builder.build()
}

/// Lets everybody in; a signature that is there is still checked.
struct Public;

#[async_trait::async_trait]
impl S3Access for Public {
    async fn check(&self, _context: &mut S3AccessContext<'_>) -> S3Result<()> {
        Ok(())
    }
}

struct Bucket(Arc<Objects>, Arc<Uploads>);

impl From<Refusal> for s3s::S3Error {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::NoSuchUpload => s3_error!(NoSuchUpload),
            Refusal::InvalidArgument => s3_error!(InvalidArgument),
            Refusal::MalformedXml => s3_error!(MalformedXML),
            Refusal::InvalidPart => s3_error!(InvalidPart),
            Refusal::InvalidPartOrder => s3_error!(InvalidPartOrder),
            Refusal::EntityTooSmall => s3_error!(EntityTooSmall),
        }
    }
}

impl Bucket {
    fn object(&self, bucket: &str, key: &str) -> S3Result<Object> {
        if !self.0.has_bucket(bucket) {
            return Err(s3_error!(NoSuchBucket));
        }
        self.0.get(bucket, key).ok_or_else(|| s3_error!(NoSuchKey))
    }

    /// Lists keys after `after`: the keys, the common prefixes, and where the next page starts.
    fn page(
        &self,
        bucket: &str,
        prefix: &str,
        delimiter: Option<&str>,
        after: &str,
        max_keys: i32,
    ) -> S3Result<(Vec<Listed>, Vec<CommonPrefix>, Option<String>)> {
        if !self.0.has_bucket(bucket) {
            return Err(s3_error!(NoSuchBucket));
        }
        let limit = usize::try_from(max_keys).unwrap_or(0);
        let (mut keys, mut prefixes, mut last) = (Vec::new(), BTreeSet::new(), None);
        for (key, object) in self.0.list(bucket, prefix) {
            if key.as_str() <= after {
                continue;
            }
            if keys.len() + prefixes.len() >= limit {
                return Ok((keys, common(prefixes), last));
            }
            last = Some(key.clone());
            let rest = key.get(prefix.len()..).unwrap_or_default();
            match delimiter.and_then(|delimiter| Some((delimiter, rest.find(delimiter)?))) {
                Some((delimiter, at)) => {
                    let end = prefix.len() + at + delimiter.len();
                    prefixes.insert(key.get(..end).unwrap_or_default().to_owned());
                }
                None => keys.push(Listed {
                    key: Some(key),
                    size: i64::try_from(object.bytes.len()).ok(),
                    e_tag: Some(ETag::Strong(object.etag)),
                    last_modified: Some(Timestamp::from(object.modified)),
                    ..Listed::default()
                }),
            }
        }
        Ok((keys, common(prefixes), None))
    }
}

fn common(prefixes: BTreeSet<String>) -> Vec<CommonPrefix> {
    prefixes
        .into_iter()
        .map(|prefix| CommonPrefix {
            prefix: Some(prefix),
        })
        .collect()
}

fn check_conditions(
    object: &Object,
    if_match: Option<&ETagCondition>,
    if_none_match: Option<&ETagCondition>,
) -> S3Result<()> {
    let is = |condition: &ETagCondition| match condition {
        ETagCondition::Any => true,
        ETagCondition::ETag(etag) => etag.value() == object.etag,
    };
    if if_match.is_some_and(|condition| !is(condition)) {
        return Err(s3_error!(PreconditionFailed));
    }
    if if_none_match.is_some_and(is) {
        return Err(s3_error!(NotModified));
    }
    Ok(())
}

#[async_trait::async_trait]
impl S3 for Bucket {
    async fn get_object(
        &self,
        request: S3Request<GetObjectInput>,
    ) -> S3Result<S3Response<GetObjectOutput>> {
        let input = request.input;
        let object = self.object(&input.bucket, &input.key)?;
        check_conditions(
            &object,
            input.if_match.as_ref(),
            input.if_none_match.as_ref(),
        )?;
        let total = object.bytes.len() as u64;
        let (bytes, content_range) = match input.range {
            None => (object.bytes.clone(), None),
            Some(range) => {
                let range = range.check(total).map_err(|_| s3_error!(InvalidRange))?;
                let text = format!("bytes {}-{}/{total}", range.start, range.end - 1);
                let cut = usize::try_from(range.start)
                    .ok()
                    .zip(usize::try_from(range.end).ok());
                let (start, end) = cut.ok_or_else(|| s3_error!(InvalidRange))?;
                (object.bytes.slice(start..end), Some(text))
            }
        };
        Ok(S3Response::new(GetObjectOutput {
            accept_ranges: Some("bytes".to_owned()),
            content_length: i64::try_from(bytes.len()).ok(),
            content_range,
            content_type: Some("image/tiff".to_owned()),
            e_tag: Some(ETag::Strong(object.etag)),
            last_modified: Some(Timestamp::from(object.modified)),
            metadata: metadata_of(object.metadata),
            body: Some(blob(bytes)),
            ..GetObjectOutput::default()
        }))
    }

    async fn head_object(
        &self,
        request: S3Request<HeadObjectInput>,
    ) -> S3Result<S3Response<HeadObjectOutput>> {
        let input = request.input;
        let object = self.object(&input.bucket, &input.key)?;
        check_conditions(
            &object,
            input.if_match.as_ref(),
            input.if_none_match.as_ref(),
        )?;
        Ok(S3Response::new(HeadObjectOutput {
            accept_ranges: Some("bytes".to_owned()),
            content_length: i64::try_from(object.bytes.len()).ok(),
            content_type: Some("image/tiff".to_owned()),
            e_tag: Some(ETag::Strong(object.etag)),
            last_modified: Some(Timestamp::from(object.modified)),
            metadata: metadata_of(object.metadata),
            ..HeadObjectOutput::default()
        }))
    }

    async fn put_object(
        &self,
        request: S3Request<PutObjectInput>,
    ) -> S3Result<S3Response<PutObjectOutput>> {
        let input = request.input;
        if !self.0.has_bucket(&input.bucket) {
            return Err(s3_error!(NoSuchBucket));
        }
        let bytes = match input.body {
            Some(body) => collect(body).await?,
            None => Bytes::new(),
        };
        let (if_match, if_none_match) = (input.if_match, input.if_none_match);
        let is = |condition: &ETagCondition, there: &Object| match condition {
            ETagCondition::Any => true,
            ETagCondition::ETag(etag) => etag.value() == there.etag,
        };
        let put = self.0.put_if(
            &input.bucket,
            &input.key,
            bytes,
            input.metadata.unwrap_or_default().into_iter().collect(),
            |there| {
                let matches = if_match
                    .as_ref()
                    .is_none_or(|condition| there.is_some_and(|there| is(condition, there)));
                let is_new = if_none_match
                    .as_ref()
                    .is_none_or(|condition| !there.is_some_and(|there| is(condition, there)));
                matches && is_new
            },
        );
        let etag = put.ok_or_else(|| s3_error!(PreconditionFailed))?;
        Ok(S3Response::new(PutObjectOutput {
            e_tag: Some(ETag::Strong(etag)),
            ..PutObjectOutput::default()
        }))
    }

    async fn create_multipart_upload(
        &self,
        request: S3Request<CreateMultipartUploadInput>,
    ) -> S3Result<S3Response<CreateMultipartUploadOutput>> {
        let input = request.input;
        if !self.0.has_bucket(&input.bucket) {
            return Err(s3_error!(NoSuchBucket));
        }
        let metadata = input.metadata.unwrap_or_default().into_iter().collect();
        let id = self.1.begin(&input.bucket, &input.key, metadata);
        Ok(S3Response::new(CreateMultipartUploadOutput {
            bucket: Some(input.bucket),
            key: Some(input.key),
            upload_id: Some(id),
            ..CreateMultipartUploadOutput::default()
        }))
    }

    async fn upload_part(
        &self,
        request: S3Request<UploadPartInput>,
    ) -> S3Result<S3Response<UploadPartOutput>> {
        let input = request.input;
        let bytes = match input.body {
            Some(body) => collect(body).await?,
            None => Bytes::new(),
        };
        let place = (input.bucket.as_str(), input.key.as_str());
        let etag = self
            .1
            .put(place, &input.upload_id, input.part_number, bytes)?;
        Ok(S3Response::new(UploadPartOutput {
            e_tag: Some(ETag::Strong(etag)),
            ..UploadPartOutput::default()
        }))
    }

    async fn complete_multipart_upload(
        &self,
        request: S3Request<CompleteMultipartUploadInput>,
    ) -> S3Result<S3Response<CompleteMultipartUploadOutput>> {
        let input = request.input;
        let parts = input.multipart_upload.and_then(|upload| upload.parts);
        let named: Option<Vec<(i32, String)>> = parts
            .unwrap_or_default()
            .into_iter()
            .map(|part| Some((part.part_number?, part.e_tag?.into_value())))
            .collect();
        let named = named.ok_or_else(|| s3_error!(MalformedXML))?;
        let place = (input.bucket.as_str(), input.key.as_str());
        let whole = self.1.complete(place, &input.upload_id, &named)?;
        self.0.put_whole(&input.bucket, &input.key, whole.clone());
        Ok(S3Response::new(CompleteMultipartUploadOutput {
            bucket: Some(input.bucket),
            key: Some(input.key),
            e_tag: Some(ETag::Strong(whole.etag)),
            ..CompleteMultipartUploadOutput::default()
        }))
    }

    async fn abort_multipart_upload(
        &self,
        request: S3Request<AbortMultipartUploadInput>,
    ) -> S3Result<S3Response<AbortMultipartUploadOutput>> {
        let input = request.input;
        let place = (input.bucket.as_str(), input.key.as_str());
        self.1.abort(place, &input.upload_id)?;
        Ok(S3Response::new(AbortMultipartUploadOutput::default()))
    }

    async fn delete_object(
        &self,
        request: S3Request<DeleteObjectInput>,
    ) -> S3Result<S3Response<DeleteObjectOutput>> {
        let input = request.input;
        if !self.0.has_bucket(&input.bucket) {
            return Err(s3_error!(NoSuchBucket));
        }
        self.0.remove(&input.bucket, &input.key);
        Ok(S3Response::new(DeleteObjectOutput::default()))
    }

    async fn delete_objects(
        &self,
        request: S3Request<DeleteObjectsInput>,
    ) -> S3Result<S3Response<DeleteObjectsOutput>> {
        let input = request.input;
        if !self.0.has_bucket(&input.bucket) {
            return Err(s3_error!(NoSuchBucket));
        }
        let mut deleted = Vec::new();
        for object in input.delete.objects {
            self.0.remove(&input.bucket, &object.key);
            deleted.push(DeletedObject {
                key: Some(object.key),
                ..DeletedObject::default()
            });
        }
        Ok(S3Response::new(DeleteObjectsOutput {
            deleted: Some(deleted),
            ..DeleteObjectsOutput::default()
        }))
    }

    async fn list_objects(
        &self,
        request: S3Request<ListObjectsInput>,
    ) -> S3Result<S3Response<ListObjectsOutput>> {
        let input = request.input;
        let prefix = input.prefix.unwrap_or_default();
        let (keys, prefixes, next) = self.page(
            &input.bucket,
            &prefix,
            input.delimiter.as_deref(),
            input.marker.as_deref().unwrap_or_default(),
            input.max_keys.unwrap_or(MAX_KEYS),
        )?;
        Ok(S3Response::new(ListObjectsOutput {
            name: Some(input.bucket),
            prefix: Some(prefix),
            delimiter: input.delimiter,
            is_truncated: Some(next.is_some()),
            next_marker: next,
            contents: Some(keys),
            common_prefixes: Some(prefixes),
            ..ListObjectsOutput::default()
        }))
    }

    async fn list_objects_v2(
        &self,
        request: S3Request<ListObjectsV2Input>,
    ) -> S3Result<S3Response<ListObjectsV2Output>> {
        let input = request.input;
        let prefix = input.prefix.unwrap_or_default();
        let after = input.continuation_token.clone().or(input.start_after);
        let (keys, prefixes, next) = self.page(
            &input.bucket,
            &prefix,
            input.delimiter.as_deref(),
            after.as_deref().unwrap_or_default(),
            input.max_keys.unwrap_or(MAX_KEYS),
        )?;
        Ok(S3Response::new(ListObjectsV2Output {
            name: Some(input.bucket),
            prefix: Some(prefix),
            delimiter: input.delimiter,
            key_count: i32::try_from(keys.len() + prefixes.len()).ok(),
            is_truncated: Some(next.is_some()),
            continuation_token: input.continuation_token,
            next_continuation_token: next,
            contents: Some(keys),
            common_prefixes: Some(prefixes),
            ..ListObjectsV2Output::default()
        }))
    }
}

fn blob(bytes: Bytes) -> StreamingBlob {
    StreamingBlob::wrap(stream::iter([Ok::<_, std::io::Error>(bytes)]))
}

async fn collect(body: StreamingBlob) -> S3Result<Bytes> {
    let body: Vec<Bytes> = body
        .try_collect()
        .await
        .map_err(|_| s3_error!(IncompleteBody))?;
    Ok(body.concat().into())
}

/// Returns what is told of an object's metadata: nothing where there is none.
fn metadata_of(metadata: Vec<(String, String)>) -> Option<Metadata> {
    (!metadata.is_empty()).then(|| metadata.into_iter().collect())
}
