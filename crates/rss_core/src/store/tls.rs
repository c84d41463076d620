//! TLS of the HTTP clients: rustls with ring, and the certificates that the system trusts.
//!
//! The configuration is made here because rustls's default provider, aws-lc, is 13 % of a build. A provider that
//! the program has installed for its process is taken instead.

use std::sync::Arc;

use rustls::{
    ClientConfig,
    crypto::{CryptoProvider, ring},
};

use crate::error::{Error, ErrorKind, Result};

/// Which versions of HTTP a connection may agree on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Http {
    /// HTTP/1.1 alone.
    One,
    /// HTTP/2 where the server speaks it.
    Two,
}

/// Makes the TLS configuration of a client.
///
/// # Errors
///
/// [`ErrorKind::Unavailable`] if the system's certificates cannot be read.
pub(crate) fn config(http: Http) -> Result<ClientConfig> {
    let provider = CryptoProvider::get_default()
        .cloned()
        .unwrap_or_else(|| Arc::new(ring::default_provider()));
    let wrong =
        |err| Error::new(ErrorKind::Unavailable, "no trusted TLS certificates").with_source(err);
    let verifier = rustls_platform_verifier::Verifier::new(Arc::clone(&provider)).map_err(wrong)?;
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(wrong)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    config.alpn_protocols = match http {
        Http::One => vec![b"http/1.1".to_vec()],
        Http::Two => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
    };
    Ok(config)
}
