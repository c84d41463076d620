//! Names of hosts, resolved: which are public, and which lead into a private network.
//!
//! What a catalogue on the network names, and where a public server redirects, is looked up by a resolver that knows no
//! private address: the address that is checked is the one that is connected to, so that a name that resolves
//! differently the second time gains nothing.

use std::{
    collections::HashSet,
    net::{IpAddr, SocketAddr, ToSocketAddrs},
    sync::{Arc, Mutex, PoisonError},
};

use http::Uri;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::Host;

use super::fault::Fault;
use crate::location::is_private_ip;

/// Names that resolved to private addresses in this session.
#[derive(Clone, Debug, Default)]
pub(super) struct PrivateNames(Arc<Mutex<HashSet<String>>>);

impl PrivateNames {
    fn with<T>(&self, look: impl FnOnce(&mut HashSet<String>) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns true if the host of `uri` is a private address, or a name that resolved to one.
    pub(super) fn holds(&self, uri: &Uri) -> bool {
        let Some(host) = uri.host() else {
            return true;
        };
        match Host::parse(host) {
            Ok(Host::Ipv4(ip)) => is_private_ip(ip.into()),
            Ok(Host::Ipv6(ip)) => is_private_ip(ip.into()),
            Ok(Host::Domain(name)) => self.with(|names| names.contains(&name)),
            Err(_) => true,
        }
    }
}

/// Looks names up as the system does.
#[derive(Clone, Debug)]
pub(super) struct Resolver {
    pub(super) private: PrivateNames,
    /// True if private addresses are left out.
    pub(super) public_only: bool,
}

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let this = self.clone();
        Box::pin(async move {
            let name = name.as_str().to_ascii_lowercase();
            let asked = name.clone();
            let found = tokio::task::spawn_blocking(move || {
                // The port is set by the caller.
                (asked.as_str(), 0).to_socket_addrs().map(Vec::from_iter)
            });
            let addresses = match found.await {
                Ok(Ok(addresses)) => addresses,
                Ok(Err(err)) => return Err(unknown(&err).into()),
                Err(err) => return Err(err.into()),
            };
            let is_private = |address: &SocketAddr| is_private_ip(address.ip());
            if addresses.iter().any(is_private) {
                this.private.with(|names| names.insert(name));
                if this.public_only {
                    return Err(Fault::Private.into());
                }
            }
            let addresses: Addrs = Box::new(addresses.into_iter());
            Ok(addresses)
        })
    }
}

/// Returns the fault of a name that was not found. A resolver that cannot be asked now is a server that is away.
fn unknown(err: &std::io::Error) -> Fault {
    // The code of getaddrinfo (EAI_AGAIN) is in the text alone.
    match err.to_string().contains("emporary failure") {
        true => Fault::Transport(object_store::client::HttpErrorKind::Connect),
        false => Fault::NoHost,
    }
}

/// Returns true if an address is a private one, for hosts that are given by address.
pub(super) fn is_private_host(host: &str) -> bool {
    let ip = host.trim_start_matches('[').trim_end_matches(']');
    ip.parse::<IpAddr>().is_ok_and(is_private_ip)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn look_up(name: &str, public_only: bool) -> (Option<Fault>, bool) {
        let resolver = Resolver {
            private: PrivateNames::default(),
            public_only,
        };
        let found = resolver.resolve(name.parse().unwrap()).await;
        let fault = found
            .err()
            .and_then(|err| err.downcast_ref::<Fault>().cloned());
        let uri = format!("http://{name}/").parse().unwrap();
        (fault, resolver.private.holds(&uri))
    }

    #[tokio::test]
    async fn a_name_is_as_private_as_its_addresses() {
        assert_eq!(look_up("localhost", false).await, (None, true));
        assert_eq!(
            look_up("localhost", true).await,
            (Some(Fault::Private), true)
        );
    }

    #[test]
    fn an_address_needs_no_name() {
        let names = PrivateNames::default();
        let holds = |text: &str| names.holds(&text.parse().unwrap());
        for private in [
            "http://127.0.0.1:1/a",
            "http://[::1]/a",
            "https://169.254.169.254/a",
            "http://100.100.100.200/a",
            "http://[64:ff9b::a00:1]/a",
            "http://[::ffff:192.168.0.1]/a",
        ] {
            assert!(holds(private), "{private}");
        }
        for public in [
            "https://h.example/a",
            "http://8.8.8.8/a",
            "http://[2001:db9::1]/a",
        ] {
            assert!(!holds(public), "{public}");
        }
        assert!(is_private_host("[::1]") && is_private_host("10.0.0.1"));
        assert!(!is_private_host("h.example"));
    }
}
