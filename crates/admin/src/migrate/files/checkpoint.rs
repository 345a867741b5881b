//! [`FileCheckpoint`]: the checkpoint of a file, a local document of the target with the last id that was written.

use anyhow::Context as _;
use settee_model::json::{Json, Value, write_string, write_u64};
use settee_replication::{Peer, RequestMethod};

const INTERVAL: u64 = 5000;

pub(super) struct CheckpointTarget {
    pub(super) id: String,
    pub(super) documents: u64,
}

pub(super) struct FileCheckpoint {
    path: String,
    rev: Option<String>,
    since: u64,
    pub(super) after: Option<String>,
    pub(super) documents: u64,
}

impl FileCheckpoint {
    pub(super) async fn find(target: &Peer, name: &str, from_start: bool) -> anyhow::Result<Self> {
        let path = Peer::document_path(&format!("_local/settee-import-files-{name}"));
        let found = target.request(RequestMethod::Get, &path, "").await?;
        if found.status == 404 {
            return Ok(Self { path, rev: None, since: 0, after: None, documents: 0 });
        }
        let json = found.json().context("the checkpoint of an earlier run")?;
        let member = |name| json.value().get(name).filter(|_| !from_start);
        let after = member("after").map(Value::to_text);
        let documents = member("documents").and_then(Value::as_u64).unwrap_or(0);
        Ok(Self { path, rev: text(&json, "_rev"), since: 0, after, documents })
    }

    /// All revisions up to the document are written. Stores the checkpoint if it is due.
    pub(super) async fn pass(&mut self, target: &Peer, through: CheckpointTarget, written: u64) -> anyhow::Result<()> {
        self.after = Some(through.id);
        self.documents += through.documents;
        self.since += written;
        if self.since < INTERVAL {
            return Ok(());
        }
        self.since = 0;
        self.store(target).await
    }

    pub(super) async fn store(&mut self, target: &Peer) -> anyhow::Result<()> {
        let Some(after) = &self.after else { return Ok(()) };
        let mut members = b"\"after\":".to_vec();
        write_string(&mut members, after);
        members.extend_from_slice(b",\"documents\":");
        write_u64(&mut members, self.documents);
        self.put(target, &members).await
    }

    pub(super) async fn clear(&mut self, target: &Peer) -> anyhow::Result<()> {
        if self.rev.is_some() { self.put(target, b"\"_deleted\":true").await } else { Ok(()) }
    }

    async fn put(&mut self, target: &Peer, members: &[u8]) -> anyhow::Result<()> {
        let rev = self.rev.as_ref().map_or_else(String::new, |rev| format!("\"_rev\":\"{rev}\","));
        let body = [b"{", rev.as_bytes(), members, b"}"].concat();
        let put = target.request(RequestMethod::Put, &self.path, body).await?;
        self.rev = if put.status == 409 {
            // An earlier attempt whose response was lost has written it.
            text(&target.request(RequestMethod::Get, &self.path, "").await?.json()?, "_rev")
        } else {
            text(&put.json().context("the checkpoint cannot be written")?, "rev")
        };
        Ok(())
    }
}

fn text(json: &Json, name: &str) -> Option<String> {
    json.value().get(name).map(Value::to_text)
}
