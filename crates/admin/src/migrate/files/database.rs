//! Import of one database: [`import`].

use std::sync::Arc;

use anyhow::Context as _;
use futures_util::StreamExt as _;
use settee_couch_files::directory::DatabaseFiles;
use settee_couch_files::{DocInfo, Header, Lost};
use settee_model::json::Json;
use settee_replication::Peer;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::checkpoint::{CheckpointTarget, FileCheckpoint};
use super::options::Options;
use super::progress::ProgressDisplay;
use super::purges;
use super::send::{self, Written};
use super::shard::{Leaf, Shard};
use crate::migrate::database::{CLOSED, Setup, set_up};
use crate::migrate::job::{Job, Kind};
use crate::migrate::local;
use crate::migrate::totals::Imported;
use crate::remote_server::RemoteServer;

const BATCH: usize = 500;

const BATCH_BYTES: usize = 1 << 20;

const IN_FLIGHT: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pass {
    Documents,
    /// Design documents are written last, so that their validation functions reject no documents.
    Design,
    /// Documents that only the tree by sequence still lists.
    Recovered {
        has_design: bool,
    },
}

impl Pass {
    fn contains(self, id: &str) -> bool {
        match self {
            Self::Documents => !id.starts_with("_design/"),
            Self::Design => id.starts_with("_design/"),
            Self::Recovered { has_design } => has_design || !id.starts_with("_design/"),
        }
    }
}

pub(super) async fn import(
    target: &RemoteServer,
    job: &Job,
    files: &DatabaseFiles,
    options: &Arc<Options>,
    progress_display: &Arc<ProgressDisplay>,
) -> anyhow::Result<Imported> {
    let _permit = options.databases.acquire().await?;
    let mut imported = Imported::default();
    let shards = open(files, &mut imported)?;
    let setup = setup(files, &shards, &mut imported.notes);
    let peer = target.database(&job.to)?;
    set_up(&peer, job, &setup, &mut imported.notes).await?;
    if job.kind == Kind::Ordinary {
        purges::write(&peer, &shards, &mut imported.notes).await?;
    }
    let mut running = JoinSet::new();
    for shard in &shards {
        let (shard, peer) = (Arc::clone(shard), peer.clone());
        let (options, progress_display) = (Arc::clone(options), Arc::clone(progress_display));
        running.spawn(async move { import_shard(&peer, &shard, &options, &progress_display).await });
    }
    let mut checkpoints = Vec::new();
    let mut damaged = Vec::new();
    while let Some(ended) = running.join_next().await {
        let (shard, checkpoint, found, is_damaged) = ended??;
        checkpoints.push(checkpoint);
        imported.merge(found);
        if is_damaged {
            damaged.push(shard);
        }
    }
    let has_design = job.kind == Kind::Ordinary && options.has_design;
    for shard in &damaged {
        let written = imported.written;
        pass(&peer, shard, Pass::Recovered { has_design }, None, progress_display, &mut imported).await?;
        let recovered = imported.written - written;
        let shown = shard.path.display();
        imported.notes.push(format!("{shown}: {recovered} revisions were recovered from the tree by sequence"));
    }
    if has_design {
        for shard in &shards {
            pass(&peer, shard, Pass::Design, None, progress_display, &mut imported).await?;
        }
    }
    for shard in &shards {
        local_documents(&peer, shard, &mut imported).await?;
    }
    for checkpoint in &mut checkpoints {
        checkpoint.clear(&peer).await?;
    }
    Ok(imported)
}

fn open(files: &DatabaseFiles, imported: &mut Imported) -> anyhow::Result<Vec<Arc<Shard>>> {
    for range in &files.missing {
        imported.lost.add(format!("the shard {range}: the directory does not contain its file"));
    }
    let mut shards = Vec::new();
    for path in &files.files {
        match Shard::open(path) {
            Ok(shard) => {
                let tail = shard.database.header().tail;
                if tail > 0 {
                    let shown = path.display();
                    imported.notes.push(format!(
                        "{shown}: {tail} bytes follow the last valid header; they were not committed and are ignored"
                    ));
                }
                shards.push(shard);
            }
            Err(error) => imported.lost.add(format!("{error:#}")),
        }
    }
    anyhow::ensure!(!shards.is_empty(), "none of its files can be read: {}", imported.lost.first.join("; "));
    Ok(shards)
}

pub(crate) fn setup(files: &DatabaseFiles, shards: &[Arc<Shard>], notes: &mut Vec<String>) -> Setup {
    let mut is_partitioned = files.is_partitioned;
    let mut security = None;
    for shard in shards {
        is_partitioned |= shard.database.is_partitioned().unwrap_or(false);
        match shard.database.security() {
            Ok(found) => security = security.or(found.and_then(|text| Json::parse(&text).ok())),
            Err(error) => notes.push(format!("{}: its _security cannot be read: {error}", shard.path.display())),
        }
    }
    // CouchDB 3 serves such a database, which earlier versions served to all clients, to administrators only.
    let security = security.unwrap_or_else(|| {
        notes.push("it has no readable _security: only administrators may use it".to_owned());
        Json::trusted(CLOSED.as_bytes().to_vec())
    });
    let limit = |of: fn(&Header) -> u64| {
        let limit = shards.iter().map(|shard| of(shard.database.header())).max().unwrap_or(1000);
        Json::trusted(limit.to_string().into_bytes())
    };
    let (revs_limit, purged_infos_limit) =
        (limit(|header| header.revs_limit), limit(|header| header.purge_infos_limit));
    let purged_infos_limit = Some(purged_infos_limit);
    Setup { is_partitioned, update_seq: Json::trusted(b"0".to_vec()), security, revs_limit, purged_infos_limit }
}

type ShardResult = (Arc<Shard>, FileCheckpoint, Imported, bool);

async fn import_shard(
    target: &Peer,
    shard: &Arc<Shard>,
    options: &Options,
    progress_display: &Arc<ProgressDisplay>,
) -> anyhow::Result<ShardResult> {
    let _permit = options.readers.acquire().await?;
    let mut imported = Imported::default();
    let mut checkpoint = FileCheckpoint::find(target, &shard.state(), options.from_start).await?;
    if checkpoint.after.is_some() {
        progress_display.skip(checkpoint.documents);
        imported.notes.push(format!("{}: an earlier run was interrupted and is resumed", shard.path.display()));
    }
    let is_damaged =
        pass(target, shard, Pass::Documents, Some(&mut checkpoint), progress_display, &mut imported).await?;
    // Kept until the database is complete, so that a later run skips this file.
    checkpoint.store(target).await?;
    Ok((Arc::clone(shard), checkpoint, imported, is_damaged))
}

enum Work {
    Batch(Vec<Leaf>),
    Related(Arc<Leaf>),
    Lost(String),
    /// A part of the tree by id that cannot be read. Its documents may be in the tree by sequence.
    Damaged(String),
    CheckpointTarget(CheckpointTarget),
}

async fn pass(
    target: &Peer,
    shard: &Arc<Shard>,
    pass: Pass,
    mut checkpoint: Option<&mut FileCheckpoint>,
    progress_display: &Arc<ProgressDisplay>,
    imported: &mut Imported,
) -> anyhow::Result<bool> {
    let (sender, receiver) = mpsc::channel(IN_FLIGHT);
    let reading = {
        let (shard, progress_display) = (Arc::clone(shard), Arc::clone(progress_display));
        let after = checkpoint.as_ref().and_then(|checkpoint| checkpoint.after.clone());
        tokio::task::spawn_blocking(move || read(&shard, pass, after.as_deref(), &progress_display, &sender))
    };
    let works = futures_util::stream::unfold(receiver, |mut receiver| async move {
        let work: Work = receiver.recv().await?;
        Some((work, receiver))
    });
    let results = works.map(|work| {
        let (target, shard) = (target.clone(), Arc::clone(shard));
        write(target, shard, work)
    });
    let mut results = std::pin::pin!(results.buffered(IN_FLIGHT));
    let (mut is_damaged, mut since) = (false, 0);
    while let Some(result) = results.next().await {
        let (written, through, damage) = result?;
        since += written.count;
        is_damaged |= damage.is_some();
        imported.notes.extend(damage);
        add(imported, written);
        if let (Some(through), Some(checkpoint)) = (through, checkpoint.as_deref_mut()) {
            checkpoint.pass(target, through, std::mem::take(&mut since)).await?;
        }
    }
    reading.await.context("the reader of a file failed")?;
    Ok(is_damaged)
}

/// Written leaves, the documents of which everything was sent, and damage.
type Done = (Written, Option<CheckpointTarget>, Option<String>);

async fn write(target: Peer, shard: Arc<Shard>, work: Work) -> anyhow::Result<Done> {
    Ok(match work {
        Work::Batch(leaves) => (send::batch(&target, &leaves).await?, None, None),
        Work::Related(leaf) => (send::related(&target, &shard, &leaf).await?, None, None),
        Work::Lost(what) => (Written { lost: vec![what], ..Written::default() }, None, None),
        Work::Damaged(what) => (Written::default(), None, Some(what)),
        Work::CheckpointTarget(through) => (Written::default(), Some(through), None),
    })
}

fn read(
    shard: &Shard,
    pass: Pass,
    after: Option<&str>,
    progress_display: &ProgressDisplay,
    works: &mpsc::Sender<Work>,
) {
    let documents: Box<dyn Iterator<Item = Result<DocInfo, Lost>> + '_> = match pass {
        Pass::Documents => Box::new(shard.database.documents(after)),
        Pass::Design => Box::new(shard.database.documents(Some("_design/"))),
        Pass::Recovered { .. } => Box::new(shard.database.recover()),
    };
    let (mut batch, mut since) = (Batch::default(), 0);
    for document in documents {
        let document = match document {
            Ok(document) => document,
            // Design documents are part of the first pass over the tree.
            Err(_) if pass == Pass::Design => continue,
            Err(lost) => {
                let text = format!("{}: {lost}", shard.path.display());
                let is_recoverable = matches!(lost, Lost::Range(_)) && pass == Pass::Documents;
                let work = if is_recoverable { Work::Damaged(text) } else { Work::Lost(text) };
                if works.blocking_send(work).is_err() {
                    return;
                }
                continue;
            }
        };
        if !pass.contains(&document.id) {
            if pass == Pass::Design {
                break;
            }
            continue;
        }
        progress_display.pass(1);
        for leaf in shard.leaves(&document) {
            let work = match leaf {
                Ok(leaf) if leaf.attachments.is_empty() => {
                    batch.push(leaf);
                    continue;
                }
                Ok(leaf) => Work::Related(Arc::new(leaf)),
                Err(lost) => Work::Lost(format!("{}: {lost}", shard.path.display())),
            };
            if works.blocking_send(work).is_err() {
                return;
            }
        }
        since += 1;
        if batch.is_full() || since >= BATCH {
            let through = CheckpointTarget { id: document.id, documents: std::mem::take(&mut since) as u64 };
            if batch.send(works, Some(through)).is_err() {
                return;
            }
        }
    }
    let _ = batch.send(works, None);
}

#[derive(Default)]
struct Batch {
    leaves: Vec<Leaf>,
    bytes: usize,
}

struct Closed;

impl Batch {
    fn push(&mut self, leaf: Leaf) {
        self.bytes += leaf.text.len();
        self.leaves.push(leaf);
    }

    fn is_full(&self) -> bool {
        self.leaves.len() >= BATCH || self.bytes >= BATCH_BYTES
    }

    fn send(&mut self, works: &mpsc::Sender<Work>, through: Option<CheckpointTarget>) -> Result<(), Closed> {
        let Self { leaves, .. } = std::mem::take(self);
        works.blocking_send(Work::Batch(leaves)).map_err(|_| Closed)?;
        match through {
            Some(through) => works.blocking_send(Work::CheckpointTarget(through)).map_err(|_| Closed),
            None => Ok(()),
        }
    }
}

async fn local_documents(target: &Peer, shard: &Shard, imported: &mut Imported) -> anyhow::Result<()> {
    let (found, lost) = read_local(shard);
    lost.into_iter().for_each(|lost| imported.lost.add(lost));
    for batch in found.chunks(local::TOGETHER) {
        imported.local += local::write(batch, target).await.context("its local documents")?;
    }
    Ok(())
}

/// Omits checkpoints. Returns also descriptions of the lost documents.
pub(crate) fn read_local(shard: &Shard) -> (Vec<local::Local>, Vec<String>) {
    let (mut found, mut lost) = (Vec::new(), Vec::new());
    for document in shard.database.local_documents() {
        match document {
            Ok(document) => {
                let Ok(body) = Json::parse(&document.body) else {
                    lost.push(format!("{}: {}: its body is not JSON", shard.path.display(), document.id));
                    continue;
                };
                found.extend(local::Local::of(document.id, body));
            }
            Err(error) => lost.push(format!("{}: local documents: {error}", shard.path.display())),
        }
    }
    (found, lost)
}

fn add(imported: &mut Imported, written: Written) {
    imported.written += written.count;
    written.refused.into_iter().for_each(|item| imported.refused.add(item));
    written.lost.into_iter().for_each(|item| imported.lost.add(item));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_without_a_security_object_is_closed_as_in_couchdb_3() {
        let (name, is_partitioned) = ("db".to_owned(), false);
        let files = DatabaseFiles { name, files: Vec::new(), missing: Vec::new(), q: None, is_partitioned };
        let mut notes = Vec::new();
        let setup = setup(&files, &[], &mut notes);
        assert_eq!(setup.security.value().raw(), CLOSED.as_bytes());
        assert_eq!(notes.len(), 1, "{notes:?}");
    }
}
