//! Certificates, keys and trust of TLS connections, from PEM text. Main function: [`client_config`].
//!
//! Error texts name neither the file nor the setting, because only the callers can name these.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

pub type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

#[derive(Clone, Debug, Default)]
pub enum Trust {
    #[default]
    Web,
    Authorities(RootCertStore),
    /// Any server. The connection is encrypted, but the peer is not authenticated.
    AnyCertificate,
}

#[must_use]
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// Uses `identity` as the client certificate. Fails if its key does not match the certificate.
pub fn client_config(trust: &Trust, identity: Option<&Identity>) -> Result<ClientConfig, String> {
    let provider = provider();
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let builder = match trust {
        Trust::Web => {
            let roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
            builder.with_root_certificates(roots)
        }
        Trust::Authorities(roots) => builder.with_root_certificates(roots.clone()),
        Trust::AnyCertificate => {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
        }
    };
    match identity {
        None => Ok(builder.with_no_client_auth()),
        Some((certificates, key)) => {
            let key = key.clone_key();
            builder.with_client_auth_cert(certificates.clone(), key).map_err(|error| error.to_string())
        }
    }
}

/// Reads at least one certificate. Fails if the text is not PEM or has no certificate.
pub fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let certificates = certificates.map_err(|error| format!("it is not PEM: {error}"))?;
    if certificates.is_empty() { Err("it contains no certificate".to_owned()) } else { Ok(certificates) }
}

/// Reads at least one certificate. Fails as [`certificates`], or if a certificate is not that of an authority.
pub fn authorities(pem: &[u8]) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(pem)? {
        roots.add(certificate).map_err(|error| format!("it contains an unusable certificate: {error}"))?;
    }
    Ok(roots)
}

/// Fails if the text has no key, or an encrypted one.
pub fn key(pem: &[u8]) -> Result<PrivateKeyDer<'static>, String> {
    let has = |mark: &[u8]| pem.windows(mark.len()).any(|window| window == mark);
    if has(b"BEGIN ENCRYPTED PRIVATE KEY") || has(b"Proc-Type: 4,ENCRYPTED") {
        return Err("the key is encrypted, which is not supported: write it without a password \
                    (openssl pkey -in KEY -out NEW) into a file that only the server's user can read"
            .to_owned());
    }
    PrivateKeyDer::from_pem_slice(pem).map_err(|error| format!("it contains no key: {error}"))
}

/// Signatures of the handshake are still verified, so the server has the key of its certificate.
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

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn unusable_texts_are_explained() {
        assert_eq!(certificates(b"").unwrap_err(), "it contains no certificate");
        assert_eq!(authorities(b"nonsense").unwrap_err(), "it contains no certificate");
        let encrypted = b"-----BEGIN ENCRYPTED PRIVATE KEY-----\nAA==\n-----END ENCRYPTED PRIVATE KEY-----\n";
        assert!(key(encrypted).unwrap_err().starts_with("the key is encrypted"));
        assert!(key(b"nonsense").unwrap_err().starts_with("it contains no key"));
    }
}
