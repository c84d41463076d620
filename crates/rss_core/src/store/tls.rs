//! TLS of the HTTP clients: rustls with ring, and the certificates that the system trusts.
//!
//! The configuration is made here because rustls's default provider, aws-lc, is 13 % of a build. A provider that
//! the program has installed for its process is taken instead. The certificates are read at the first connection that
//! needs them, once for a session: plain HTTP and local files need none, and there are hundreds of files to read.

use std::sync::{Arc, OnceLock};

use rustls::{
    ClientConfig, DigitallySignedStruct, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
};
use rustls_platform_verifier::Verifier;

use crate::error::{Error, ErrorKind, Result};

/// Makes the TLS configuration of the clients: HTTP/1.1 alone.
///
/// # Errors
///
/// [`ErrorKind::Unavailable`] if the provider knows no version of TLS.
pub(super) fn config() -> Result<ClientConfig> {
    let provider = CryptoProvider::get_default()
        .cloned()
        .unwrap_or_else(|| Arc::new(ring::default_provider()));
    let verifier = Trusted {
        provider: Arc::clone(&provider),
        system: OnceLock::new(),
    };
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|err| Error::new(ErrorKind::Unavailable, "no version of TLS").with_source(err))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// What the system trusts, read when it is asked first.
#[derive(Debug)]
struct Trusted {
    provider: Arc<CryptoProvider>,
    system: OnceLock<std::result::Result<Verifier, rustls::Error>>,
}

impl ServerCertVerifier for Trusted {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> std::result::Result<ServerCertVerified, rustls::Error> {
        let system = self
            .system
            .get_or_init(|| Verifier::new(Arc::clone(&self.provider)));
        let system = system.as_ref().map_err(Clone::clone)?;
        system.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, cert, dss, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, cert, dss, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let known = &self.provider.signature_verification_algorithms;
        known.supported_schemes()
    }
}
