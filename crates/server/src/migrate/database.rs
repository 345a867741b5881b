//! One database: made, set up, filled by replication, and completed by its local documents.
//!
//! Documents come in two replications with checkpoints of their own. Design documents come second: their functions are not to judge
//! what was accepted long ago, and indexes are not to be built while documents arrive.

use std::sync::Arc;

use anyhow::{Context as _, bail, ensure};
use settee_model::json::{Json, Value};
use settee_replication::{
    Control, Counters, Filter, Identity, Outcome, Peer, Places, Progress, ReplicationId, Services, Session, Spec,
    Statistics, Tuning, User, Verb,
};
use tokio::sync::watch;

use super::progress::Board;
use super::{Job, Kind, Sites, local};
use crate::environment;

/// A replication that failed begins again this often; each of its requests has been tried again before.
const SESSIONS_MAX: usize = 3;

/// For administrators only.
const CLOSED: &str = r#"{"admins":{"roles":["_admin"]},"members":{"roles":["_admin"]}}"#;

/// How databases are moved.
pub(super) struct Options {
    /// Whether design documents come too.
    pub(super) has_design: bool,
    pub(super) tuning: Tuning,
}

/// What became of a database.
#[derive(Debug, Default)]
pub(super) struct Moved {
    /// Revisions that the target took in this run.
    pub(super) written: u64,
    pub(super) refused: u64,
    /// The first of those.
    pub(super) refusals: Vec<String>,
    /// Local documents that were copied.
    pub(super) local: u64,
    pub(super) notes: Vec<String>,
}

/// What is known of a database before its documents are looked at.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Setup {
    pub(super) is_partitioned: bool,
    pub(super) update_seq: Json,
    pub(super) security: Json,
    pub(super) revs_limit: Json,
}

impl Setup {
    /// That of a database; `None` if it is not there.
    pub(super) async fn read(peer: &Peer) -> anyhow::Result<Option<Self>> {
        let info = peer.request(Verb::Get, "", "").await?;
        if info.status == 404 {
            return Ok(None);
        }
        let info = info.json()?;
        let partitioned = info.value().get("props").and_then(|props| props.get("partitioned"));
        let update_seq = info.value().get("update_seq").map_or(&b"0"[..], Value::raw);
        Ok(Some(Self {
            is_partitioned: partitioned.and_then(Value::as_bool) == Some(true),
            update_seq: Json::trusted(update_seq.to_vec()),
            security: peer.request(Verb::Get, "_security", "").await?.json().context("its _security")?,
            revs_limit: peer.request(Verb::Get, "_revs_limit", "").await?.json().context("its _revs_limit")?,
        }))
    }
}

/// Moves a database, or what changed in it since the last time.
pub(super) async fn copy(
    sites: &Sites,
    job: &Job,
    options: &Options,
    board: &Board,
    index: usize,
) -> anyhow::Result<Moved> {
    let (source, target) = (sites.source.database(&job.name)?, sites.target.database(&job.to)?);
    let mut moved = Moved::default();
    let setup = Setup::read(&source).await.context("it cannot be read")?.context("it is gone")?;
    set_up(&target, job, &setup, &mut moved.notes).await?;
    board.expect(index, &setup.update_seq);
    let mut filters = vec![Filter::AllButDesign];
    if job.kind == Kind::Ordinary && options.has_design {
        filters.push(Filter::BuiltIn("_design".to_owned()));
    }
    for filter in filters {
        let copied = replicate(&source, &target, filter, &options.tuning, board, index).await?;
        moved.written += copied.written;
        moved.refused += copied.refused;
        moved.refusals.extend(copied.refusals);
    }
    match local::copy(&source, &target).await.context("its local documents")? {
        Some(copied) => moved.local = copied,
        None if job.kind == Kind::Ordinary => {
            moved.notes.push("the source does not list local documents, so none were copied".to_owned());
        }
        None => {}
    }
    Ok(moved)
}

/// Makes the target what the source is, apart from documents. Before there are any: nobody is to read meanwhile what they may not.
async fn set_up(target: &Peer, job: &Job, wanted: &Setup, notes: &mut Vec<String>) -> anyhow::Result<()> {
    if Setup::read(target).await?.is_none() {
        let query = if wanted.is_partitioned { "?partitioned=true" } else { "" };
        let made = target.request(Verb::Put, query, "").await?;
        // Another run may have made it.
        ensure!(made.is_success() || made.status == 412, "it cannot be made: {}", made.error());
    }
    let found = Setup::read(target).await?.context("it cannot be made")?;
    if found.is_partitioned != wanted.is_partitioned {
        bail!("the target has a database {} that is partitioned otherwise", job.to);
    }
    if found.revs_limit != wanted.revs_limit {
        let put = target.request(Verb::Put, "_revs_limit", wanted.revs_limit.as_bytes().to_vec()).await?;
        put.json().context("its _revs_limit")?;
    }
    let security = match job.kind {
        Kind::Ordinary => wanted.security.as_bytes(),
        Kind::Replicator => CLOSED.as_bytes(),
        Kind::Users => return Ok(()),
    };
    if found.security.as_bytes() != security {
        let put = target.request(Verb::Put, "_security", security.to_vec()).await?;
        if put.status == 400 {
            notes.push(format!("its _security makes no sense: only administrators may use it: {}", put.error()));
            target.request(Verb::Put, "_security", CLOSED).await?.json().context("its _security")?;
        } else {
            put.json().context("its _security")?;
        }
    }
    Ok(())
}

/// What a replication did.
struct Copied {
    written: u64,
    refused: u64,
    refusals: Vec<String>,
}

async fn replicate(
    source: &Peer,
    target: &Peer,
    filter: Filter,
    tuning: &Tuning,
    board: &Board,
    index: usize,
) -> anyhow::Result<Copied> {
    let spec = Arc::new(Spec {
        source: source.endpoint().clone(),
        target: target.endpoint().clone(),
        continuous: false,
        create_target: false,
        create_target_params: Vec::new(),
        filter,
        query_params: None,
        since_seq: None,
        winning_revs_only: false,
        user: User::default(),
        tuning: tuning.clone(),
    });
    // Whatever machine a run is started on, it goes on where the last one ended.
    let identity = Identity { uuid: "settee migrate".to_owned(), hostname: String::new(), port: 0 };
    let id = ReplicationId::compute(&spec, &identity, source).await?;
    let mut copied = Copied { written: 0, refused: 0, refusals: Vec::new() };
    let mut failure = None;
    for _ in 0..SESSIONS_MAX {
        let progress = Arc::new(Progress::default());
        board.watch(index, &progress);
        let session = Session::new(
            Arc::clone(&spec),
            id.clone(),
            source.clone(),
            target.clone(),
            services(),
            Arc::clone(&progress),
        );
        let (_control, controlled) = watch::channel(Control::Run);
        let outcome = session.run(controlled).await;
        let Statistics { docs_written, docs_written_before, doc_write_failures, doc_write_failures_before, .. } =
            progress.statistics();
        copied.written += docs_written - docs_written_before;
        copied.refused += doc_write_failures - doc_write_failures_before;
        copied.refusals.extend(progress.refusals());
        match outcome {
            Outcome::Completed(_) => return Ok(copied),
            Outcome::Stopped => bail!("it was stopped"),
            Outcome::Failed(why) => failure = Some(why),
        }
    }
    Err(failure.map_or_else(|| anyhow::anyhow!("it was not tried"), anyhow::Error::from))
}

fn services() -> Services {
    Services {
        now_s: Arc::new(|| environment::now_ms() / 1000),
        new_uuid: Arc::new(|| format!("{:016x}{:016x}", environment::random_u64(), environment::random_u64())),
        places: Places::default(),
        counters: Arc::new(Counters::default()),
    }
}
