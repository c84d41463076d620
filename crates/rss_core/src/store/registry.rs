//! From a location to the store that holds it: one store per bucket or host, shared by all reads.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use object_store::{ObjectStore, path::Path};

use super::{Meter, StoreOptions};
use crate::{error::Result, location::Location, products::Access};

/// The stores of a session.
#[derive(Debug)]
pub struct Registry {
    options: StoreOptions,
    meter: Meter,
    access: Mutex<HashMap<String, Access>>,
}

impl Registry {
    pub(crate) fn new(options: StoreOptions, meter: Meter) -> Self {
        Self {
            options,
            meter,
            access: Mutex::default(),
        }
    }

    /// Returns the options all stores start from.
    pub fn options(&self) -> &StoreOptions {
        &self.options
    }

    /// Says how the bucket (container, host) of `location` is reached from now on.
    pub fn set_access(&self, _location: &Location, _access: Access) {
        let _ = (&self.meter, &self.access);
    }

    /// Returns how the bucket of `location` is reached.
    pub fn access(&self, _location: &Location) -> Access {
        Access::default()
    }

    /// Returns the store that holds `location`, and its path in it. Costs no request.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) if an option is wrong.
    pub fn store(&self, _location: &Location) -> Result<(Arc<dyn ObjectStore>, Path)> {
        Err(crate::error::Error::new(
            crate::ErrorKind::Unsupported,
            "stub",
        ))
    }
}
