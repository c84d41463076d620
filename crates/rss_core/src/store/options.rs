//! Options of stores, by name.

use std::{collections::BTreeMap, fmt};

/// Settings of object stores, by `object_store`'s names in lower case: `aws_endpoint`,
/// `aws_region`, `aws_access_key_id`, `azure_storage_account_name`, `google_service_account`, ...
///
/// Both backends are configured from these. Printing shows the names and hides the values.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct StoreOptions(BTreeMap<String, String>);

impl StoreOptions {
    /// Sets an option; the name is lower-cased.
    pub fn set(&mut self, name: &str, value: impl Into<String>) {
        self.0.insert(name.to_ascii_lowercase(), value.into());
    }

    /// Returns an option's value.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Returns the value of the first of `names` that is set.
    pub(crate) fn first(&self, names: &[&str]) -> Option<&str> {
        names.iter().find_map(|name| self.get(name))
    }

    /// Returns true if one of `names` is set to yes, true, on or 1.
    pub(crate) fn is_on(&self, names: &[&str]) -> bool {
        self.first(names).is_some_and(|value| {
            matches!(
                value.to_ascii_lowercase().as_str(),
                "1" | "true" | "yes" | "on"
            )
        })
    }

    /// Returns names and values in the order of the names.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

impl fmt::Debug for StoreOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}
