//! Membership of this server in the nodes on one store: its name, its address, and its join and leave.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use settee_settings::{cluster, storage};
use settee_storage::Engine;

use crate::config::Configuration;
use crate::environment;

const SINGLE: &str = "nonode@nohost";

/// Attempts to join under a name that another node holds. A killed node is removed only after a few seconds.
const ATTEMPTS_MAX: u32 = 4;

const RETRY_INTERVAL: Duration = Duration::from_secs(1);

pub(crate) fn name(configuration: &Configuration) -> anyhow::Result<String> {
    let is_sole = storage::URL.of(configuration).is_empty();
    let default = || if is_sole { SINGLE.to_owned() } else { format!("settee@{}", environment::hostname()) };
    let name = cluster::NODE.text(configuration).unwrap_or_else(default);
    let fits = |symbol: char| symbol.is_ascii_alphanumeric() || "@._:-".contains(symbol);
    if name.ends_with('@') || !name.chars().all(fits) {
        bail!("invalid node name {name:?}: use letters, digits and @._:- for --node-name, as in settee@10.0.0.7");
    }
    Ok(name)
}

/// Address at which other nodes reach this one by default.
fn address(listens: SocketAddr, hostname: &str) -> String {
    if listens.ip().is_unspecified() {
        format!("http://{hostname}:{}/", listens.port())
    } else {
        format!("http://{listens}/")
    }
}

pub(crate) struct Membership {
    engine: Arc<dyn Engine>,
    name: String,
}

impl Membership {
    /// Announces to the other nodes, if any, that this node serves requests at `listens`.
    pub(crate) async fn begin(
        engine: &Arc<dyn Engine>,
        name: &str,
        configuration: &Configuration,
        listens: SocketAddr,
    ) -> anyhow::Result<Self> {
        let membership = Self { engine: Arc::clone(engine), name: name.to_owned() };
        if engine.members().is_sole() {
            return Ok(membership);
        }
        let reply = || address(listens, &environment::hostname());
        let address = cluster::ADDRESS.text(configuration).unwrap_or_else(reply);
        let mut attempts = 1;
        loop {
            let (engine, name, address) = (Arc::clone(engine), name.to_owned(), address.clone());
            let announced = tokio::task::spawn_blocking(move || engine.members().announce(&name, &address));
            match announced.await.context("joining the other nodes panicked")? {
                Ok(()) => return Ok(membership),
                Err(error) if attempts < ATTEMPTS_MAX => {
                    tracing::warn!(name = membership.name, %error, "cannot join the other nodes yet");
                    attempts += 1;
                    tokio::time::sleep(RETRY_INTERVAL).await;
                }
                Err(error) => {
                    bail!(
                        "cannot join the other nodes as {}: {error}\nNode names must be unique: --node-name NAME@HOST",
                        membership.name
                    )
                }
            }
        }
    }

    pub(crate) fn notice(&self) -> Option<String> {
        if self.engine.members().is_sole() {
            return None;
        }
        let live = self.engine.members().live();
        let others: Vec<&str> = live.iter().map(|node| node.name.as_str()).filter(|name| *name != self.name).collect();
        Some(match others.as_slice() {
            [] => format!("This is node {}, without other nodes so far", self.name),
            others => format!("This is node {}, together with {}", self.name, others.join(", ")),
        })
    }

    /// The only process of a store leaves it later, after its last writes.
    pub(crate) async fn end(&self) {
        if self.engine.members().is_sole() {
            return;
        }
        let engine = Arc::clone(&self.engine);
        let left = tokio::task::spawn_blocking(move || engine.members().leave()).await;
        if let Ok(Err(error)) = left {
            tracing::warn!(%error, "the other nodes were not notified that this node ends; they detect it after a timeout");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::address;

    #[test]
    fn nodes_are_reached_where_they_listen() {
        for (listens, expected) in [
            ("127.0.0.1:5984", "http://127.0.0.1:5984/"),
            ("[::1]:80", "http://[::1]:80/"),
            ("0.0.0.0:5985", "http://here:5985/"),
            ("[::]:5985", "http://here:5985/"),
        ] {
            assert_eq!(address(listens.parse().expect("an address"), "here"), expected);
        }
    }
}
