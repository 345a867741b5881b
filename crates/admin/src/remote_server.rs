//! [`RemoteServer`]: a remote server of a command, CouchDB or Settee, with the retries, sessions and TLS of
//! replications.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, anyhow, bail};
use settee_model::json::{Json, write_string};
use settee_replication::net::{Network, Options};
use settee_replication::{Connect as _, Endpoint, Peer, Remote, Tuning, User};
use settee_tls::Trust;

pub(crate) struct RemoteServer {
    remote: Remote,
    network: Arc<Network>,
    tuning: Tuning,
    root: Peer,
}

/// `authorities` is a file of certificates to trust instead of the public authorities.
pub(crate) fn network(authorities: Option<&Path>) -> anyhow::Result<Arc<Network>> {
    let trust = match authorities {
        None => Trust::Web,
        Some(path) => {
            let pem = std::fs::read(path).with_context(|| format!("{} cannot be read", path.display()))?;
            let roots = settee_tls::authorities(&pem).map_err(|error| anyhow!("{}: {error}", path.display()))?;
            Trust::Authorities(roots)
        }
    };
    let options = Options { trust, ..Options::default() };
    Ok(Arc::new(Network::new(&options, Arc::new(|_| true))?))
}

impl RemoteServer {
    /// `url` is `http://user:password@host:5984`, optionally with a path before the names of databases.
    pub(crate) fn new(url: &str, network: &Arc<Network>, tuning: &Tuning) -> anyhow::Result<Self> {
        let remote = parse(url)?;
        let root = connect(&remote, network, tuning)?;
        Ok(Self { remote, network: Arc::clone(network), tuning: tuning.clone(), root })
    }

    /// `url` is `http://user:password@host:5984/database`.
    pub(crate) fn database_at(url: &str, network: &Arc<Network>, tuning: &Tuning) -> anyhow::Result<Peer> {
        let remote = parse(url)?;
        if remote.path.trim_matches('/').is_empty() {
            bail!("the URL contains no database: http://host:port/database");
        }
        connect(&remote, network, tuning)
    }

    pub(crate) fn root(&self) -> &Peer {
        &self.root
    }

    pub(crate) fn database(&self, name: &str) -> anyhow::Result<Peer> {
        connect(&self.remote.database(name), &self.network, &self.tuning)
    }
}

pub(crate) fn parse(url: &str) -> anyhow::Result<Remote> {
    let mut text = Vec::new();
    write_string(&mut text, url);
    let json = Json::trusted(text);
    match Endpoint::parse(Some(json.value()), None, &User::default()) {
        Ok(Endpoint::Remote(remote)) if !remote.path.contains('?') => Ok(remote),
        _ => bail!(
            "invalid URL: write http://user:password@host:5984, or https; in passwords write %40 %3A %2F for @ : /"
        ),
    }
}

fn connect(remote: &Remote, network: &Arc<Network>, tuning: &Tuning) -> anyhow::Result<Peer> {
    let endpoint = Endpoint::Remote(remote.clone());
    let transport = network.connect(&endpoint, tuning)?;
    Ok(Peer::new(endpoint, transport, tuning))
}
