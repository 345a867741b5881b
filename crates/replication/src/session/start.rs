//! Start of a session: opens both databases and compares their checkpoints.

use std::borrow::Cow;

use settee_model::calendar::http_date;
use settee_model::json::{Json, Value};

use super::context::{Context, Failure};
use crate::checkpoint::{self, Entry};
use crate::id::ReplicationId;
use crate::peer::{Peer, PeerError};
use crate::spec::{Filter, Spec};

pub(super) struct Started {
    pub(super) since: Json,
    pub(super) instance: Option<Json>,
    pub(super) checkpoints: Checkpoints,
}

pub(super) async fn start(spec: &Spec, id: &ReplicationId, context: &Context) -> Result<Started, Failure> {
    let (source, target) = if spec.create_target {
        // Without a source, no target is created.
        let source = context.source.info().await.map_err(Failure::Source)?;
        context.target.create(&spec.create_target_params).await.map_err(Failure::Target)?;
        (source, context.target.info().await.map_err(Failure::Target)?)
    } else {
        both(context.source.info(), context.target.info()).await?
    };
    let (source_log, target_log) = match spec.tuning.use_checkpoints {
        true => both(CheckpointLog::find(&context.source, id), CheckpointLog::find(&context.target, id)).await?,
        false => (CheckpointLog::default(), CheckpointLog::default()),
    };
    let compared = checkpoint::compare(source_log.document.as_ref(), target_log.document.as_ref());
    // As in 3.5.2, `since_seq` applies to the first run only; later runs continue from their checkpoints.
    let since = match &spec.since_seq {
        Some(since) if compared.since == checkpoint::zero() => since.clone(),
        Some(_) | None => compared.since,
    };
    let counted = compared.history.first().map(|newest| checkpoint::counted(newest.value())).unwrap_or_default();
    context.progress.update(|statistics| {
        statistics.go_on_from(&counted);
        statistics.through_seq = Some(since.clone());
        statistics.checkpointed_source_seq = Some(since.clone());
        statistics.source_seq = Some(since.clone());
    });
    let instance = source.instance_start_time.clone();
    let checkpoints = Checkpoints {
        name: id.base.clone(),
        used: spec.tuning.use_checkpoints,
        by_doc_ids: matches!(spec.filter, Filter::DocIds(_)),
        session_id: (context.services.new_uuid)(),
        start_time: http_date((context.services.now_s)()),
        start_seq: since.clone(),
        recorded: since.clone(),
        history: compared.history,
        answer: checkpoint::no_changes(source_log.document.as_ref()),
        source: Side { rev: source_log.rev, instance: source.instance_start_time },
        target: Side { rev: target_log.rev, instance: target.instance_start_time },
    };
    Ok(Started { since, instance, checkpoints })
}

/// Runs requests to both sides concurrently. Reports the error of the source first.
async fn both<T>(
    source: impl Future<Output = Result<T, PeerError>>,
    target: impl Future<Output = Result<T, PeerError>>,
) -> Result<(T, T), Failure> {
    let (source, target) = tokio::join!(source, target);
    Ok((source.map_err(Failure::Source)?, target.map_err(Failure::Target)?))
}

#[derive(Clone, Debug, Default)]
struct CheckpointLog {
    document: Option<Json>,
    rev: Option<String>,
}

impl CheckpointLog {
    /// Reads the checkpoint under the current id. One under an older id is copied to the current id.
    async fn find(peer: &Peer, id: &ReplicationId) -> Result<Self, PeerError> {
        if let Some(document) = peer.local_document(&id.base).await? {
            let rev = document.value().get("_rev").and_then(Value::as_str).map(Cow::into_owned);
            return Ok(Self { document: Some(document), rev });
        }
        for name in &id.older {
            if let Some(document) = peer.local_document(name).await? {
                let document = checkpoint::stripped(&document);
                let body = checkpoint::local_document(&id.base, None, &document);
                let rev = peer.put_local_document(&id.base, body).await?;
                return Ok(Self { document: Some(document), rev });
            }
        }
        Ok(Self::default())
    }
}

struct Side {
    rev: Option<String>,
    instance: Option<Json>,
}

pub(super) struct Checkpoints {
    name: String,
    used: bool,
    by_doc_ids: bool,
    session_id: String,
    start_time: String,
    start_seq: Json,
    recorded: Json,
    history: Vec<Json>,
    answer: Json,
    source: Side,
    target: Side,
}

impl Checkpoints {
    pub(super) fn answer(&self) -> Json {
        if self.used { self.answer.clone() } else { Json::trusted(b"{\"use_checkpoints\":false}".to_vec()) }
    }

    /// Makes both sides durable and records `through` on both.
    pub(super) async fn record(&mut self, context: &Context, through: &Json) -> Result<(), Failure> {
        if !self.used || *through == self.recorded {
            return Ok(());
        }
        let written = self.write(context, through).await;
        let counters = &context.services.counters;
        if written.is_ok() {
            counters.checkpoints.increment();
        } else {
            counters.failed_checkpoints.increment();
        }
        written
    }

    async fn write(&mut self, context: &Context, through: &Json) -> Result<(), Failure> {
        self.commit(context).await?;
        let statistics = context.progress.statistics();
        let entry = Entry {
            session_id: &self.session_id,
            start_time: &self.start_time,
            end_time: &http_date((context.services.now_s)()),
            start_last_seq: &self.start_seq,
            recorded_seq: through,
            statistics: &statistics,
            by_doc_ids: self.by_doc_ids,
        };
        let document = checkpoint::document(&entry, &self.history);
        // An entry that only one side has is not common.
        let (source, target) = tokio::join!(
            write(&context.source, "source", &self.name, &self.source, &document),
            write(&context.target, "target", &self.name, &self.target, &document)
        );
        let source = source.map(|rev| self.source.rev = Some(rev));
        source.and(target.map(|rev| self.target.rev = Some(rev)))?;
        self.answer = document;
        self.recorded = through.clone();
        context.progress.update(|statistics| statistics.checkpointed_source_seq = Some(through.clone()));
        Ok(())
    }

    /// Makes both sides durable, and verifies that neither database was recreated.
    async fn commit(&self, context: &Context) -> Result<(), Failure> {
        let (source, target) = tokio::join!(context.source.ensure_full_commit(), context.target.ensure_full_commit());
        let failed = |side: &str, error: PeerError| Failure::Checkpoint(format!("Failure on {side} commit: {error}"));
        let source = source.map_err(|error| failed("source", error))?;
        let target = target.map_err(|error| failed("target", error))?;
        let changed = |before: &Option<Json>, now: &Option<Json>| before.is_some() && now.is_some() && before != now;
        let side = match (changed(&self.source.instance, &source), changed(&self.target.instance, &target)) {
            (false, false) => return Ok(()),
            (true, false) => "Source database",
            (false, true) => "Target database",
            (true, true) => "Source and target databases",
        };
        Err(recreated(side))
    }
}

pub(super) fn recreated(side: &str) -> Failure {
    Failure::Checkpoint(format!("{side} out of sync: recreated since the replication started."))
}

async fn write(peer: &Peer, which: &str, name: &str, side: &Side, document: &Json) -> Result<String, Failure> {
    let failed =
        |detail: String| Failure::Checkpoint(format!("Error updating the {which} checkpoint document: {detail}"));
    let body = checkpoint::local_document(name, side.rev.as_deref(), document);
    match peer.put_local_document(name, body).await.map_err(|error| failed(error.to_string()))? {
        Some(rev) => Ok(rev),
        None => {
            // An earlier attempt whose response was lost may have written it.
            let there = peer.local_document(name).await.map_err(|error| failed(error.to_string()))?;
            there
                .filter(|there| checkpoint::stripped(there) == *document)
                .and_then(|there| there.value().get("_rev").and_then(Value::as_str).map(Cow::into_owned))
                .ok_or_else(|| failed("conflict".to_owned()))
        }
    }
}
