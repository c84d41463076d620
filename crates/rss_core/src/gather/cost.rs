//! The cost model: list prices of providers for requests and egress, in a small table that users may replace.

use std::path::Path;

use serde::Deserialize;

use crate::error::{Error, ErrorKind, Result};

/// The built-in table.
const BUILT_IN: &str = include_str!("../../data/prices.yaml");
const GIB: f64 = (1_u64 << 30) as f64;

/// Prices of providers for requests and egress, in US dollars.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CostModel {
    providers: Vec<Provider>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Provider {
    name: String,
    hosts: Vec<String>,
    requests: f64,
    gib_out: f64,
    gib_inside: f64,
}

impl Default for CostModel {
    /// Returns the built-in table: list prices, which change.
    fn default() -> Self {
        Self::parse(BUILT_IN).unwrap_or(Self {
            providers: Vec::new(),
        })
    }
}

impl CostModel {
    /// Parses a table in YAML; `data/prices.yaml` of the sources documents its fields.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] naming the invalid line or provider.
    pub fn parse(yaml: &str) -> Result<Self> {
        let prices: Self = serde_saphyr::from_str(yaml).map_err(|err| {
            Error::new(
                ErrorKind::InvalidInput,
                format!("not a table of prices: {err}"),
            )
        })?;
        for provider in &prices.providers {
            let all = [provider.requests, provider.gib_out, provider.gib_inside];
            if all.iter().any(|price| !price.is_finite() || *price < 0.0) {
                return Err(Error::new(
                    ErrorKind::InvalidInput,
                    format!("a price of `{}` is negative or not finite", provider.name),
                ));
            }
        }
        Ok(prices)
    }

    /// Reads a table from a YAML file.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`], [`ErrorKind::Denied`] for the file; as [`CostModel::parse`].
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let at = |err: Error| err.at(path.display());
        let yaml = std::fs::read_to_string(path).map_err(|err| at(crate::store::of_io(&err)))?;
        Self::parse(&yaml).map_err(at)
    }

    /// Returns the cost of requests and bytes from a host, read over the internet and within its region; none for a
    /// host that the table does not list.
    pub fn cost(&self, host: &str, requests: u64, bytes: u64) -> Option<Cost> {
        let fits = |provider: &&Provider| provider.hosts.iter().any(|end| host.ends_with(end));
        let provider = self.providers.iter().find(fits)?;
        let gib = bytes as f64 / GIB;
        let asked = requests as f64 / 1000.0 * provider.requests;
        Some(Cost {
            internet_usd: asked + gib * provider.gib_out,
            same_region_usd: asked + gib * provider.gib_inside,
        })
    }
}

/// A cost in US dollars.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Cost {
    /// If read over the internet.
    pub internet_usd: f64,
    /// If read from a machine in the same region.
    pub same_region_usd: f64,
}

impl std::ops::Add for Cost {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            internet_usd: self.internet_usd + other.internet_usd,
            same_region_usd: self.same_region_usd + other.same_region_usd,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_table_is_read() {
        let prices = CostModel::parse(BUILT_IN).unwrap();
        let host = "dea-public-data.s3.ap-southeast-2.amazonaws.com";
        let cost = prices.cost(host, 1_000_000, 1 << 40).unwrap();
        assert!((cost.same_region_usd - 0.4).abs() < 1e-9);
        assert!((cost.internet_usd - 0.4 - 1024.0 * 0.09).abs() < 1e-9);
        assert_eq!(prices.cost("127.0.0.1", 1, 1), None);
    }

    #[test]
    fn a_wrong_table_is_named() {
        let wrong =
            CostModel::parse("providers: [{name: A, hosts: [a], requests: 1}]").unwrap_err();
        assert_eq!(wrong.kind(), ErrorKind::InvalidInput);
        let yaml = "providers: [{name: A, hosts: [a], requests: -1, gib_out: 0, gib_inside: 0}]";
        let wrong = CostModel::parse(yaml).unwrap_err();
        assert_eq!(wrong.message(), "a price of `A` is negative or not finite");
    }
}
