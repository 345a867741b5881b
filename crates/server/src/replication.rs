//! Configured replication: the network with the options of `[replicator]`, and the start of the replicator.

use std::sync::Arc;

use anyhow::Context as _;
use settee_api::{Node, Replication, ReplicationDependencies};
use settee_edge::shutdown::Shutdown;
use settee_replication::SocketOptions;
use settee_replication::net::{Network, Options, ReachesPrivate};
use settee_settings::{Key, key::Text, replicator};
use settee_tls::Trust;

use crate::config::Configuration;
use crate::environment;

/// Changed options of TLS and sockets apply to later connections.
pub(crate) async fn start(
    node: &Arc<Node>,
    configuration: &Arc<Configuration>,
    port: u16,
    shutdown: &Shutdown,
) -> anyhow::Result<Replication> {
    let asked = Arc::downgrade(node);
    let reaches_private: ReachesPrivate =
        Arc::new(move |user| asked.upgrade().is_some_and(|node| node.reaches_private_addresses(user)));
    let network = Network::new(&options(configuration)?, reaches_private).context("replication cannot start")?;
    let network = Arc::new(network);
    let (watched, updated) = (Arc::downgrade(configuration), Arc::clone(&network));
    configuration.on_change(move |change| {
        let Some(configuration) = watched.upgrade().filter(|_| concerns_network(change.section, change.key)) else {
            return;
        };
        let configured = options(&configuration).and_then(|options| Ok(updated.configure(&options)?));
        if let Err(error) = configured {
            tracing::warn!("the options of replication are unchanged: {error:#}");
        }
    });
    let dependencies = ReplicationDependencies { network, hostname: environment::hostname(), port };
    let started = Replication::start(node, dependencies, shutdown).await;
    started.map_err(|error| anyhow::anyhow!("replication cannot start: {}", error.reason))
}

/// Client for other nodes.
pub(crate) fn node_network(configuration: &Configuration) -> anyhow::Result<Arc<Network>> {
    Ok(Arc::new(Network::new(&options(configuration)?, Arc::new(|_| true))?))
}

fn concerns_network(section: &str, key: &str) -> bool {
    let keys = ["verify_ssl_certificates", "ssl_trusted_certificates_file", "cert_file", "key_file", "socket_options"];
    section == "replicator" && keys.contains(&key)
}

fn options(configuration: &Configuration) -> anyhow::Result<Options> {
    let read = |key: &Key<Text>| -> anyhow::Result<Option<Vec<u8>>> {
        let Some(path) = key.text(configuration) else { return Ok(None) };
        let text = std::fs::read(path.trim());
        Ok(Some(text.with_context(|| format!("[replicator] {} = {path} cannot be read", key.name()))?))
    };
    let is_checked = replicator::VERIFY_SSL_CERTIFICATES.of(configuration);
    let trust = match (is_checked, read(&replicator::SSL_TRUSTED_CERTIFICATES_FILE)?) {
        (false, _) => Trust::AnyCertificate,
        (true, Some(pem)) => {
            let roots = settee_tls::authorities(&pem);
            Trust::Authorities(roots.map_err(|error| unusable(&replicator::SSL_TRUSTED_CERTIFICATES_FILE, &error))?)
        }
        (true, None) => Trust::Web,
    };
    let identity = match (read(&replicator::CERT_FILE)?, read(&replicator::KEY_FILE)?) {
        (Some(certificates), Some(key)) => Some((
            settee_tls::certificates(&certificates).map_err(|error| unusable(&replicator::CERT_FILE, &error))?,
            settee_tls::key(&key).map_err(|error| unusable(&replicator::KEY_FILE, &error))?,
        )),
        _ => None,
    };
    let sockets = SocketOptions::parse(&replicator::SOCKET_OPTIONS.of(configuration));
    Ok(Options { trust, identity, sockets })
}

fn unusable(key: &Key<Text>, error: &str) -> anyhow::Error {
    anyhow::anyhow!("[replicator] {}: {error}", key.name())
}
