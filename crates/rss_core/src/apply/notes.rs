//! Notes on the inputs: where catalogue and file differ, and which of them is taken.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

/// Notes on the inputs of a cube, each once however many files it is about.
#[derive(Debug, Default)]
pub(crate) struct Notes(Mutex<BTreeMap<String, (String, usize)>>);

impl Notes {
    /// Adds a note about a file of an item.
    pub(crate) fn add(&self, note: String, item: &str) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (first, count) = all.entry(note).or_insert_with(|| (item.to_owned(), 0));
        *count += 1;
        // Files are opened concurrently: which comes first must not show.
        if item < first.as_str() {
            item.clone_into(first);
        }
    }

    /// Returns the notes in alphabetical order, each with the first of its items by id.
    pub(crate) fn all(&self) -> Vec<String> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter()
            .map(|(note, (item, count))| match count {
                1 => format!("{note} (item {item})"),
                count => format!("{note} (item {item}, and {} more)", count - 1),
            })
            .collect()
    }
}
