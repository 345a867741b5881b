//! [`TlsOptions`]: trusted certificates, and the client certificate.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use crate::transport::TransportError;

/// Options of the section `[replicator]` about TLS. The caller reads the files; the fields are their contents.
#[derive(Clone, Default)]
pub struct TlsOptions {
    pub trust: Trust,
    /// Client certificate with its chain, and its key, both PEM (`cert_file`, `key_file`).
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
}

#[derive(Clone, Default)]
pub enum Trust {
    /// Certificates of the authorities that browsers trust.
    #[default]
    Web,
    /// Certificates of the authorities in this PEM text (`ssl_trusted_certificates_file`).
    Authorities(Vec<u8>),
    /// All certificates (`verify_ssl_certificates = false`).
    AnyCertificate,
}

impl std::fmt::Debug for TlsOptions {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let trust = match self.trust {
            Trust::Web => "web",
            Trust::Authorities(_) => "authorities",
            Trust::AnyCertificate => "anybody",
        };
        out.debug_struct("TlsOptions").field("trust", &trust).finish_non_exhaustive()
    }
}

impl TlsOptions {
    pub(super) fn client_config(&self) -> Result<Arc<ClientConfig>, TransportError> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| TransportError::Tls(error.to_string()))?;
        let builder = match &self.trust {
            Trust::Web => {
                let roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
                builder.with_root_certificates(roots)
            }
            Trust::Authorities(pem) => builder.with_root_certificates(authorities(pem)?),
            Trust::AnyCertificate => {
                builder.dangerous().with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
            }
        };
        let config = match &self.identity {
            None => builder.with_no_client_auth(),
            Some((certificates, key)) => {
                let (certificates, key) = identity(certificates, key)?;
                let unusable = |error| TransportError::Tls(format!("[replicator] cert_file and key_file: {error}"));
                builder.with_client_auth_cert(certificates, key).map_err(unusable)?
            }
        };
        Ok(Arc::new(config))
    }
}

fn authorities(pem: &[u8]) -> Result<RootCertStore, TransportError> {
    let mut roots = RootCertStore::empty();
    let unusable =
        |label: String| TransportError::Tls(format!("[replicator] ssl_trusted_certificates_file contains {label}"));
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|error| unusable(format!("no PEM: {error}")))?;
        roots.add(certificate).map_err(|error| unusable(format!("a certificate that cannot be used: {error}")))?;
    }
    if roots.is_empty() { Err(unusable("no certificates".to_owned())) } else { Ok(roots) }
}

fn identity(
    certificates: &[u8],
    key: &[u8],
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), TransportError> {
    let unusable = |file: &str, error: String| TransportError::Tls(format!("[replicator] {file}: {error}"));
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificates).collect();
    let certificates = certificates.map_err(|error| unusable("cert_file", error.to_string()))?;
    if certificates.is_empty() {
        return Err(unusable("cert_file", "it contains no certificate".to_owned()));
    }
    let key = PrivateKeyDer::from_pem_slice(key)
        .map_err(|error| unusable("key_file", format!("{error}; a key must not be encrypted")))?;
    Ok((certificates, key))
}

/// Accepts all certificates; signatures of the handshake are verified nevertheless.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
