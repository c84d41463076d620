//! Checking: one small request for each file, and what changed is read again.

use rss_core::{
    ErrorKind, Location,
    index::{Builder, CheckOptions, Index, Select, check},
};
use rss_testbed::{BUCKET, Band, Fault, Rule};

use super::build::{bed, session, source};

#[tokio::test]
async fn drift_is_found_and_mended() {
    let bed = bed();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.parquet");
    let session = session(&bed);
    let builder = Builder::new(&session).assets(["nbart_red"]);
    builder.build(source(&bed), &path).await.unwrap();
    bed.clear_log();
    let report = check(&session, &path, &CheckOptions::new()).await.unwrap();
    assert_eq!((report.checked, report.ok), (4, 4));
    let ranges: Vec<_> = bed.log().into_iter().map(|one| one.range).collect();
    assert_eq!(ranges, vec![Some("bytes=0-0".to_owned()); 4]);

    let key = |scene: usize| bed.scenes()[scene].key(Band::Red).to_owned();
    let other = std::fs::read(bed.scenes()[3].file(Band::Red).unwrap()).unwrap();
    bed.put(BUCKET, &key(0), other);
    bed.fault(Rule::new(Fault::status(404)).path(&key(1)));
    bed.fault(Rule::new(Fault::status(403)).path(&key(2)));
    let at = |scene| Location::parse(&format!("s3://{BUCKET}/{}", key(scene))).unwrap();
    let whole = std::fs::read(&path).unwrap();
    let report = check(&session, &path, &CheckOptions::new()).await.unwrap();
    assert_eq!((report.checked, report.ok, report.updated), (4, 1, 0));
    assert_eq!((report.changed, report.missing), (vec![at(0)], vec![at(1)]));
    assert_eq!(report.failed[0].error.kind(), ErrorKind::Denied);
    assert_eq!(std::fs::read(&path).unwrap(), whole);

    let before: Vec<_> = Index::open(&path)
        .unwrap()
        .entries(&Select::all())
        .unwrap()
        .map(Result::unwrap)
        .collect();
    let options = CheckOptions::new().with_update();
    let report = check(&session, &path, &options).await.unwrap();
    assert_eq!((report.changed.len(), report.updated), (1, 1));
    let after: Vec<_> = Index::open(&path)
        .unwrap()
        .entries(&Select::all())
        .unwrap()
        .map(Result::unwrap)
        .collect();
    for (before, after) in before.iter().zip(&after) {
        assert_eq!(before == after, before.entry.location != at(0));
    }
    bed.clear_faults();
    let report = check(&session, &path, &CheckOptions::new()).await.unwrap();
    assert_eq!((report.checked, report.ok), (4, 4));
}

#[tokio::test]
async fn a_sample_is_spread_over_the_index() {
    let bed = bed();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.parquet");
    let session = session(&bed);
    Builder::new(&session)
        .assets(["nbart_red", "nbart_nir_1"])
        .build(source(&bed), &path)
        .await
        .unwrap();
    for (sample, expected) in [(1, 1), (3, 3), (100, 8)] {
        bed.clear_log();
        let options = CheckOptions::new().with_sample(sample).with_concurrency(2);
        let report = check(&session, &path, &options).await.unwrap();
        assert_eq!((report.checked, report.ok), (expected, expected));
        assert_eq!(bed.log().len(), expected);
    }
    let none = check(&session, &path, &CheckOptions::new().with_sample(0)).await;
    assert_eq!(none.unwrap_err().kind(), ErrorKind::InvalidInput);
}
