//! [`Certificates`]: the files of `[ssl]`, reloaded when they change, and prepared for handshakes.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, anyhow, ensure};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ServerConfig, WebPkiClientVerifier};
use rustls::{SupportedProtocolVersion, version};
use settee_edge::tls::Tls;
use settee_settings::ssl;

use crate::config::Configuration;

const CHECK_INTERVAL: Duration = Duration::from_secs(1);

pub(crate) struct Certificates {
    configuration: Arc<Configuration>,
    tls: Tls,
    seen: LoadedFiles,
}

#[derive(Debug, PartialEq, Eq)]
struct LoadedFiles {
    version: u64,
    files: Vec<Option<(SystemTime, u64)>>,
}

impl Certificates {
    pub(crate) fn open(configuration: Arc<Configuration>) -> anyhow::Result<Self> {
        let seen = LoadedFiles::of(&configuration);
        let tls = Tls::new(read(&configuration)?);
        Ok(Self { configuration, tls, seen })
    }

    pub(crate) fn tls(&self) -> Tls {
        self.tls.clone()
    }

    /// Reloads the files whenever they or the configuration change. Invalid ones are not used.
    pub(crate) async fn watch(mut self) {
        loop {
            tokio::time::sleep(CHECK_INTERVAL).await;
            let work = tokio::task::spawn_blocking(move || {
                self.refresh();
                self
            });
            match work.await {
                Ok(certificates) => self = certificates,
                Err(error) => {
                    tracing::error!(%error, "changed certificates will not be read before the next start");
                    return;
                }
            }
        }
    }

    fn refresh(&mut self) {
        let seen = LoadedFiles::of(&self.configuration);
        if seen == self.seen {
            return;
        }
        self.seen = seen;
        match read(&self.configuration) {
            Ok(config) => {
                self.tls.replace(config);
                tracing::info!("changed certificates were read");
            }
            Err(error) => tracing::error!("the old certificates remain in use: {error:#}"),
        }
    }
}

impl LoadedFiles {
    fn of(configuration: &Configuration) -> Self {
        let files = [&ssl::CERT_FILE, &ssl::KEY_FILE, &ssl::CACERT_FILE].map(|key| {
            let metadata = fs::metadata(key.text(configuration)?).ok()?;
            Some((metadata.modified().ok()?, metadata.len()))
        });
        Self { version: configuration.version(), files: files.into() }
    }
}

fn read(configuration: &Configuration) -> anyhow::Result<ServerConfig> {
    let certificates = certificates(&ssl::CERT_FILE.text(configuration).context(
        "[ssl] enable is on, but there is no cert_file: specify a PEM file with the certificate and the intermediate certificates",
    )?)?;
    let key = key(&ssl::KEY_FILE
        .text(configuration)
        .context("[ssl] has no key_file: specify the PEM file with the key of the certificate")?)?;
    let provider = settee_tls::provider();
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&versions(ssl::TLS_VERSIONS.text(configuration).as_deref())?)
        .context("[ssl] tls_versions cannot be used")?;
    let builder = if ssl::VERIFY_SSL_CERTIFICATES.of(configuration) {
        let file = ssl::CACERT_FILE.text(configuration).context(
            "[ssl] verify_ssl_certificates is on, but there is no cacert_file: specify a PEM file with the root certificates of \
             clients",
        )?;
        let pem = fs::read(&file).with_context(|| format!("[ssl] cacert_file {file} cannot be read"))?;
        let roots = settee_tls::authorities(&pem).map_err(|error| anyhow!("[ssl] cacert_file {file}: {error}"))?;
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        let verifier =
            if ssl::FAIL_IF_NO_PEER_CERT.of(configuration) { verifier } else { verifier.allow_unauthenticated() };
        builder.with_client_cert_verifier(verifier.build().context("[ssl] cacert_file cannot be used")?)
    } else {
        builder.with_no_client_auth()
    };
    builder.with_single_cert(certificates, key).context("[ssl] cert_file and key_file do not match")
}

fn certificates(file: &str) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let pem = fs::read(file).with_context(|| format!("the certificate file {file} cannot be read"))?;
    settee_tls::certificates(&pem).map_err(|error| anyhow!("the certificate file {file}: {error}"))
}

fn key(file: &str) -> anyhow::Result<PrivateKeyDer<'static>> {
    let pem = fs::read(file).with_context(|| format!("the key file {file} cannot be read"))?;
    warn_if_readable(file.as_ref());
    settee_tls::key(&pem).map_err(|error| anyhow!("the key file {file}: {error}"))
}

/// A key that other users can read is no error, because containers often require it.
fn warn_if_readable(file: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    if fs::metadata(file).is_ok_and(|metadata| metadata.permissions().mode() & 0o004 != 0) {
        tracing::warn!(file = %file.display(), "all users of this machine can read the key of the certificate");
    }
}

/// Parses an Erlang list such as `['tlsv1.2', 'tlsv1.3']`.
fn versions(list: Option<&str>) -> anyhow::Result<Vec<&'static SupportedProtocolVersion>> {
    let Some(list) = list else { return Ok(vec![&version::TLS13, &version::TLS12]) };
    let known = [("tlsv1.3", &version::TLS13), ("tlsv1.2", &version::TLS12)];
    let words: Vec<&str> = list.split(|c: char| "[]', \"".contains(c)).filter(|word| !word.is_empty()).collect();
    let versions: Vec<_> = known.iter().filter(|(name, _)| words.contains(name)).map(|(_, version)| *version).collect();
    ensure!(
        !versions.is_empty(),
        "[ssl] tls_versions must name tlsv1.2 or tlsv1.3; older versions are not secure and not supported"
    );
    Ok(versions)
}
