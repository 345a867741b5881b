//! Comparison of the files of a database with the target: [`compare`].

use std::collections::HashSet;
use std::sync::Arc;

use anyhow::Context as _;
use settee_couch_files::directory::DatabaseFiles;
use settee_couch_files::{DocInfo, Lost};
use settee_model::json::Json;
use settee_replication::Peer;
use tokio::sync::mpsc;

use super::contents::{self, Content};
use super::{Feed, Leaves, Report, TOGETHER, compare_setup};
use crate::migrate::database::Setup;
use crate::migrate::files::database::{read_local, setup};
use crate::migrate::files::options::Options;
use crate::migrate::files::progress::ProgressDisplay;
use crate::migrate::files::shard::{Leaf, Shard};
use crate::migrate::job::{Job, Kind};
use crate::migrate::local;
use crate::remote_server::RemoteServer;

struct Found {
    leaves: Leaves,
    contents: Vec<(String, Content)>,
    lost: Vec<String>,
}

pub(crate) async fn compare(
    target: &RemoteServer,
    job: &Job,
    files: &DatabaseFiles,
    options: &Options,
    progress_display: &Arc<ProgressDisplay>,
) -> anyhow::Result<Report> {
    let _permit = options.readers.acquire().await?;
    let peer = target.database(&job.to)?;
    let mut report = Report { local: Some(0), ..Report::default() };
    let Some(there) = Setup::read(&peer).await.context("the target")? else {
        report.differs(format!("there is no database {} at the target", job.to));
        return Ok(report);
    };
    files.missing.iter().for_each(|range| report.differs(format!("the shard {range} has no file")));
    let mut shards = Vec::new();
    for path in &files.files {
        match Shard::open(path) {
            Ok(shard) => shards.push(shard),
            Err(error) => report.differs(format!("{error:#}")),
        }
    }
    let mut notes = Vec::new();
    compare_setup(job, &setup(files, &shards, &mut notes), &there, &mut report);
    let has_design = options.has_design && job.kind == Kind::Ordinary;
    let mut sum = 0_u128;
    for shard in &shards {
        sum = sum.wrapping_add(compare_shard(&peer, shard, has_design, progress_display, &mut report).await?);
        let (found, lost) = read_local(shard);
        lost.into_iter().for_each(|lost| report.differs(lost));
        report.local = report.local.map(|local| local + found.len() as u64);
        for batch in found.chunks(local::TOGETHER) {
            for (index, _) in local::differing(batch, &peer).await.context("local documents")? {
                report.differs(format!("{} is not the same", batch[index].id));
            }
        }
    }
    let feed = Feed::open(&peer, has_design).await.context("the target")?;
    if feed.sum().await.context("the target")? != sum {
        compare_rest(&peer, &shards, has_design, &mut report).await?;
    }
    Ok(report)
}

async fn compare_shard(
    target: &Peer,
    shard: &Arc<Shard>,
    has_design: bool,
    progress_display: &Arc<ProgressDisplay>,
    report: &mut Report,
) -> anyhow::Result<u128> {
    let (sender, mut receiver) = mpsc::channel(2);
    let reading = {
        let (shard, progress_display) = (Arc::clone(shard), Arc::clone(progress_display));
        tokio::task::spawn_blocking(move || read(&shard, has_design, &progress_display, &sender))
    };
    let mut sum = 0_u128;
    while let Some(batch) = receiver.recv().await {
        let batch = match batch {
            Ok(batch) => batch,
            Err(lost) => {
                report.differs(lost);
                continue;
            }
        };
        let leaves: Vec<Leaves> = batch.iter().map(|found| found.leaves.clone()).collect();
        let mut there = contents::read(target, &leaves).await.context("the target")?;
        for found in batch {
            sum = sum.wrapping_add(found.leaves.hash());
            report.documents += 1;
            report.leaves += found.leaves.revs.len() as u64;
            found.lost.into_iter().for_each(|lost| report.differs(lost));
            for (rev, here) in found.contents {
                let id = &found.leaves.id;
                report.attachments += here.attachments.len() as u64;
                match there.remove(&(id.clone(), rev.clone())) {
                    None => report.differs(format!("{id} {rev} is not at the target")),
                    Some(there) => {
                        if let Some(what) = difference(&here, &there) {
                            report.differs(format!("{id} {rev}: {what}"));
                        }
                    }
                }
            }
        }
    }
    reading.await.context("the reader of a file failed")?;
    Ok(sum)
}

fn difference(here: &Content, there: &Content) -> Option<String> {
    if !here.has_members_of(there) {
        return Some("its members are not the same".to_owned());
    }
    if here.attachments.len() != there.attachments.len() {
        return Some("it does not have the same attachments".to_owned());
    }
    for (one, other) in here.attachments.iter().zip(&there.attachments) {
        let is_named = (&one.name, &one.content_type) == (&other.name, &other.content_type);
        if !is_named || (one.digest != other.digest && !one.digest.is_empty()) {
            return Some(format!("the attachment {} is not the same", one.name));
        }
    }
    None
}

type Batches = mpsc::Sender<Result<Vec<Found>, String>>;

fn read(shard: &Shard, has_design: bool, progress_display: &ProgressDisplay, batches: &Batches) {
    let mut batch = Vec::new();
    let mut is_damaged = false;
    let mut take = |document: Result<DocInfo, Lost>, is_damaged: &mut bool| match document {
        Ok(document) if document.id.starts_with("_design/") && !has_design => Ok(()),
        Ok(document) => {
            progress_display.pass(1);
            batch.push(Found::of(shard, &document));
            match batch.len() < TOGETHER {
                true => Ok(()),
                false => batches.blocking_send(Ok(std::mem::take(&mut batch))),
            }
        }
        Err(Lost::Range(_)) if !*is_damaged => {
            *is_damaged = true;
            Ok(())
        }
        Err(lost) => batches.blocking_send(Err(format!("{}: {lost}", shard.path.display()))),
    };
    for document in shard.database.documents(None) {
        let is_known = is_damaged && matches!(document, Err(Lost::Range(_)));
        if !is_known && take(document, &mut is_damaged).is_err() {
            return;
        }
    }
    if is_damaged {
        for document in shard.database.recover() {
            if take(document, &mut true).is_err() {
                return;
            }
        }
    }
    let _ = batches.blocking_send(Ok(batch));
}

impl Found {
    fn of(shard: &Shard, document: &DocInfo) -> Self {
        let mut revs: Vec<String> = document.leaves().map(|leaf| leaf.rev.to_string()).collect();
        revs.sort_unstable();
        let (mut contents, mut lost) = (Vec::new(), Vec::new());
        for leaf in shard.leaves(document) {
            match leaf {
                Ok(Leaf { id, rev, text, .. }) => match Json::parse(&text) {
                    Ok(json) => contents.push((rev, Content::of(json.value()))),
                    Err(error) => lost.push(format!("{id} {rev}: {error}")),
                },
                Err(error) => lost.push(error.to_string()),
            }
        }
        Self { leaves: Leaves { id: document.id.clone(), revs }, contents, lost }
    }
}

async fn compare_rest(
    target: &Peer,
    shards: &[Arc<Shard>],
    has_design: bool,
    report: &mut Report,
) -> anyhow::Result<()> {
    let mut missing = HashSet::new();
    for shard in shards {
        for document in shard.database.documents(None).chain(shard.database.changes()).flatten() {
            let mut revs: Vec<String> = document.leaves().map(|leaf| leaf.rev.to_string()).collect();
            revs.sort_unstable();
            missing.insert(Leaves { id: document.id, revs }.hash());
        }
    }
    let mut feed = Feed::open(target, has_design).await?;
    while let Some(leaves) = feed.next().await? {
        if !missing.contains(&leaves.hash()) {
            let revs = leaves.revs.join(", ");
            report.differs(format!("{}: at the target its leaves are {revs}, and not in the files", leaves.id));
        }
    }
    Ok(())
}
