//! [`Sites`]: the two servers of a migration, and their [`Identity`].

use anyhow::{Context as _, ensure};
use settee_model::json::Value;
use settee_replication::RequestMethod;

use crate::remote_server::RemoteServer;

/// Old servers need long for the first row of a feed.
pub(super) const TIMEOUT_MS: u64 = 120_000;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Identity {
    product: String,
    version: String,
    uuid: String,
}

impl Identity {
    pub(super) async fn read(remote_server: &RemoteServer, label: &str) -> anyhow::Result<Self> {
        let reply =
            remote_server.root().request(RequestMethod::Get, "", "").await.with_context(|| format!("the {label}"))?;
        let json = reply.json().with_context(|| format!("the {label} does not respond like CouchDB"))?;
        let identity = Self::of(json.value());
        eprintln!("{label}: {} {} at {}", identity.product, identity.version, remote_server.root().endpoint());
        Ok(identity)
    }

    fn of(welcome: Value<'_>) -> Self {
        let text = |value: Option<Value<'_>>| value.map(Value::to_text).unwrap_or_default();
        let vendor = welcome.get("vendor");
        let is_settee = text(vendor.and_then(|vendor| vendor.get("name"))) == SETTEE;
        let version = if is_settee { vendor.and_then(|vendor| vendor.get("version")) } else { welcome.get("version") };
        let product = if is_settee { SETTEE } else { "CouchDB" }.to_owned();
        Self { product, version: text(version), uuid: text(welcome.get("uuid")) }
    }

    /// Fails if the target is not Settee, unless that is forced.
    pub(super) fn check_settee(&self, is_forced: bool) -> anyhow::Result<()> {
        ensure!(
            self.product == SETTEE || is_forced,
            "the target (--to) is not Settee but {} {}: nothing was done. --force migrates to it",
            self.product,
            self.version
        );
        Ok(())
    }

    /// Fails if both servers are the same, or if the target is not Settee, unless that is forced.
    pub(super) fn check_target(&self, target: &Self, is_forced: bool) -> anyhow::Result<()> {
        let is_same = !self.uuid.is_empty() && self.uuid == target.uuid;
        ensure!(
            !is_same,
            "the source and the target (--to) are the same server, with the uuid {}: nothing was done",
            self.uuid
        );
        target.check_settee(is_forced)
    }
}

const SETTEE: &str = "Settee";

pub(crate) struct Sites {
    pub(super) source: RemoteServer,
    pub(super) target: RemoteServer,
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use settee_model::json::Json;

    use super::*;

    #[test]
    fn a_server_is_not_migrated_to_itself_or_to_another_product() {
        let identity = |text: &str| Identity::of(Json::parse(text.as_bytes()).unwrap().value());
        let couchdb = identity(
            r#"{"couchdb":"Welcome","version":"3.5.2","uuid":"a","vendor":{"name":"The Apache Software Foundation"}}"#,
        );
        let old = identity(r#"{"couchdb":"Welcome","version":"1.2.0"}"#);
        let settee = identity(
            r#"{"couchdb":"Welcome","version":"3.5.2","uuid":"b","vendor":{"name":"Settee","version":"0.1.0"}}"#,
        );
        assert_eq!((settee.product.as_str(), settee.version.as_str()), ("Settee", "0.1.0"));
        assert_eq!((couchdb.product.as_str(), couchdb.version.as_str()), ("CouchDB", "3.5.2"));
        for (source, target, is_forced, is_good) in [
            (&couchdb, &settee, false, true),
            (&old, &settee, false, true),
            (&settee, &settee, false, false),
            (&settee, &settee, true, false),
            (&settee, &couchdb, false, false),
            (&settee, &couchdb, true, true),
            (&old, &old, false, false),
            (&old, &old, true, true),
        ] {
            assert_eq!(source.check_target(target, is_forced).is_ok(), is_good, "{source:?} {target:?} {is_forced}");
        }
    }
}
