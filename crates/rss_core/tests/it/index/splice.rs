//! Joining indexes: what is large and stays as it is, is copied by its bytes.

use std::fs;

use rss_core::{
    Entry,
    index::{self, Index, Info, Select},
};

use super::{entry, item, written};

fn entries(index: &Index) -> Vec<(String, Entry)> {
    let all = index.entries(&Select::all()).unwrap();
    all.map(|file| file.unwrap())
        .map(|file| (file.item, file.entry))
        .collect()
}

fn counts(info: &Info) -> (u64, u64, u64) {
    (info.items, info.files, info.assets[0].tiles)
}

#[tokio::test]
async fn large_row_groups_are_copied_and_small_ones_written_anew() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    // Two row groups, one of them small.
    written(&path("old"), &[2; 9000]);
    let old = Index::open(path("old")).unwrap();
    assert_eq!(old.info().row_groups, 2);
    let mut two = item("new", &["red"]);
    two.bbox = Some(vec![-170.0, -80.0, -160.0, -70.0].try_into().unwrap());
    let new = entry("new", "red", 3);
    let mut writer = index::Writer::create(path("new"), [&two], ["red"]).unwrap();
    writer.push(&two, &[("red", &new)]).unwrap();
    writer.finish().unwrap();

    let out = path("out");
    let info = index::merge([path("old"), path("new")], &out)
        .await
        .unwrap();
    assert_eq!(counts(&info), (9001, 9001, 18_003));
    assert_eq!(info.row_groups, 2);
    // Row groups come first in a file, and the first is the large one.
    let [before, after] = [path("old"), out.clone()].map(|path| fs::read(path).unwrap());
    let same = before.iter().zip(&after).take_while(|(a, b)| a == b);
    assert!(same.count() > before.len() / 2, "{}", before.len());
    let joined = Index::open(&out).unwrap();
    let mut expected = entries(&old);
    expected.push(("new".to_owned(), new.clone()));
    assert!(entries(&joined) == expected);
    // By the Bloom filter and the offsets of pages.
    for id in ["item-000000", "item-008191", "item-008192", "item-008999"] {
        let found = joined.entry(id, "red").unwrap();
        assert!(
            found.is_some() && found == old.entry(id, "red").unwrap(),
            "{id}"
        );
    }
    assert_eq!(joined.entry("new", "red").unwrap(), Some(new));
    assert_eq!(joined.entry("other", "red").unwrap(), None);
    let text = String::from_utf8_lossy(&after);
    assert!(text.contains(r#""bbox":[-170.0,-80.0,10.0,20.0]"#));

    // Many appends do not leave many small row groups; and the output may be the input.
    for number in 0..3 {
        let id = format!("more-{number}");
        let one = item(&id, &["red"]);
        let mut writer = index::Writer::create(path("new"), [&one], ["red"]).unwrap();
        writer
            .push(&one, &[("red", &entry(&id, "red", 1))])
            .unwrap();
        writer.finish().unwrap();
        index::merge([&out, &path("new")], &out).await.unwrap();
    }
    let info = Index::open(&out).unwrap().info();
    assert_eq!((counts(&info), info.row_groups), ((9004, 9004, 18_006), 2));

    // An item of the large row group is replaced: no row of the group may be as it was.
    let again = item("item-000007", &["red"]);
    let mut writer = index::Writer::create(path("new"), [&again], ["red"]).unwrap();
    let newer = entry("item-000007", "red", 5);
    writer.push(&again, &[("red", &newer)]).unwrap();
    writer.finish().unwrap();
    let info = index::merge([&out, &path("new")], &out).await.unwrap();
    assert_eq!(counts(&info), (9004, 9004, 18_009));
    let joined = Index::open(&out).unwrap();
    assert_eq!(joined.entry("item-000007", "red").unwrap(), Some(newer));
}
