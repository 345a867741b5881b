//! Migration of one database: creation, settings, replication, and local documents. Design documents are copied second,
//! so that their validation functions do not reject older documents, and no index is built during the copy.

use std::sync::Arc;

use anyhow::{Context as _, bail, ensure};
use settee_model::json::{Json, Value};
use settee_replication::{
    Control, Counters, Filter, Identity, Outcome, Peer, Places, Progress, ReplicationId, RequestMethod, Services,
    Session, Spec, Statistics, Tuning, User,
};
use tokio::sync::watch;

use super::job::{Job, Kind};
use super::local;
use super::progress::ProgressDisplay;
use super::sites::Sites;
use super::totals::Imported;
use crate::environment;

/// Single requests of a replication have retries of their own.
const SESSIONS_MAX: usize = 3;

/// Equal, byte for byte, to CouchDB's security object of a database that has none.
pub(super) const CLOSED: &str = r#"{"members":{"roles":["_admin"]},"admins":{"roles":["_admin"]}}"#;

pub(super) struct Options {
    pub(super) has_design: bool,
    pub(super) tuning: Tuning,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Setup {
    pub(super) is_partitioned: bool,
    pub(super) update_seq: Json,
    pub(super) security: Json,
    pub(super) revs_limit: Json,
    /// CouchDB has it since version 2.3.
    pub(super) purged_infos_limit: Option<Json>,
}

impl Setup {
    pub(super) async fn read(peer: &Peer) -> anyhow::Result<Option<Self>> {
        let info = peer.request(RequestMethod::Get, "", "").await?;
        if info.status == 404 {
            return Ok(None);
        }
        let info = info.json()?;
        let partitioned = info.value().get("props").and_then(|props| props.get("partitioned"));
        let update_seq = info.value().get("update_seq").map_or(&b"0"[..], Value::raw);
        Ok(Some(Self {
            is_partitioned: partitioned.and_then(Value::as_bool) == Some(true),
            update_seq: Json::trusted(update_seq.to_vec()),
            security: peer.request(RequestMethod::Get, "_security", "").await?.json().context("its _security")?,
            revs_limit: peer.request(RequestMethod::Get, "_revs_limit", "").await?.json().context("its _revs_limit")?,
            purged_infos_limit: peer.request(RequestMethod::Get, "_purged_infos_limit", "").await?.json().ok(),
        }))
    }
}

pub(super) async fn copy(
    sites: &Sites,
    job: &Job,
    options: &Options,
    progress_display: &ProgressDisplay,
    index: usize,
) -> anyhow::Result<Imported> {
    let (source, target) = (sites.source.database(&job.name)?, sites.target.database(&job.to)?);
    let mut moved = Imported::default();
    let setup = Setup::read(&source).await.context("it cannot be read")?.context("it is gone")?;
    set_up(&target, job, &setup, &mut moved.notes).await?;
    progress_display.expect(index, &setup.update_seq);
    let mut filters = vec![Filter::AllButDesign];
    if job.kind == Kind::Ordinary && options.has_design {
        filters.push(Filter::BuiltIn("_design".to_owned()));
    }
    for filter in filters {
        let copied = replicate(&source, &target, filter, &options.tuning, progress_display, index).await?;
        moved.written += copied.written;
        moved.refused.count += copied.refused;
        moved.refused.first.extend(copied.refusals);
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

/// Creates the target and copies everything except documents first, so that no unauthorized client can read them.
pub(super) async fn set_up(target: &Peer, job: &Job, wanted: &Setup, notes: &mut Vec<String>) -> anyhow::Result<()> {
    if Setup::read(target).await?.is_none() {
        let query = if wanted.is_partitioned { "?partitioned=true" } else { "" };
        let made = target.request(RequestMethod::Put, query, "").await?;
        ensure!(made.is_success() || made.status == 412, "it cannot be created: {}", made.error());
    }
    let found = Setup::read(target).await?.context("it cannot be created")?;
    if found.is_partitioned != wanted.is_partitioned {
        bail!("the target has a database {} with another partitioning", job.to);
    }
    if found.revs_limit != wanted.revs_limit {
        let put = target.request(RequestMethod::Put, "_revs_limit", wanted.revs_limit.as_bytes().to_vec()).await?;
        put.json().context("its _revs_limit")?;
    }
    if let Some(limit) =
        wanted.purged_infos_limit.as_ref().filter(|limit| found.purged_infos_limit.as_ref() != Some(limit))
    {
        let put = target.request(RequestMethod::Put, "_purged_infos_limit", limit.as_bytes().to_vec()).await?;
        put.json().context("its _purged_infos_limit")?;
    }
    let security = match job.kind {
        Kind::Ordinary => wanted.security.as_bytes(),
        Kind::Replicator => CLOSED.as_bytes(),
        Kind::Users => return Ok(()),
    };
    if found.security.as_bytes() != security {
        let put = target.request(RequestMethod::Put, "_security", security.to_vec()).await?;
        if put.status == 400 {
            notes.push(format!("its _security is invalid: only administrators may use the database: {}", put.error()));
            target.request(RequestMethod::Put, "_security", CLOSED).await?.json().context("its _security")?;
        } else {
            put.json().context("its _security")?;
        }
    }
    Ok(())
}

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
    progress_display: &ProgressDisplay,
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
    let identity = Identity { uuid: "settee migrate".to_owned(), hostname: String::new(), port: 0 };
    let id = ReplicationId::compute(&spec, &identity, source).await?;
    let mut copied = Copied { written: 0, refused: 0, refusals: Vec::new() };
    let mut failure = None;
    for _ in 0..SESSIONS_MAX {
        let progress = Arc::new(Progress::default());
        progress_display.watch(index, &progress);
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
