//! [`compare`]: comparison of both sides.
//! All leaves of the source are requested from the target, with their contents ([`contents`]). Additional documents of
//! the target show in a sum of hashes; only if the sums differ, the target is read a second time.

mod contents;
pub(super) mod files;

use std::collections::HashSet;

use anyhow::Context as _;
use settee_model::json::{Json, Value};
use settee_replication::{List, Peer};
use sha2::{Digest as _, Sha256};

use super::database::Setup;
use super::job::{Job, Kind};
use super::local;
use super::sites::Sites;
use crate::output::print_text;

const TOGETHER: usize = 100;

const SHOWN: usize = 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Depth {
    /// Lists of revisions only.
    Leaves,
    /// Contents too, with the digests of attachments.
    Contents,
}

#[derive(Debug, Default)]
pub(super) struct Report {
    documents: u64,
    leaves: u64,
    attachments: u64,
    local: Option<u64>,
    differing: u64,
    differences: Vec<String>,
}

impl Report {
    fn differs(&mut self, label: String) {
        self.differing += 1;
        if self.differences.len() < SHOWN {
            self.differences.push(label);
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Leaves {
    id: String,
    revs: Vec<String>,
}

impl Leaves {
    fn of(row: &[u8]) -> anyhow::Result<Self> {
        let row = Json::parse(row).context("a row of _changes is not JSON")?;
        let id = row.value().get("id").and_then(Value::as_str).context("a row of _changes has no id")?.into_owned();
        let changes = row.value().get("changes").into_iter().flat_map(Value::elements);
        let mut revs: Vec<String> = changes.filter_map(|change| change.get("rev")).map(Value::to_text).collect();
        revs.sort_unstable();
        Ok(Self { id, revs })
    }

    fn hash(&self) -> u128 {
        let mut hasher = Sha256::new();
        for part in std::iter::once(&self.id).chain(&self.revs) {
            hasher.update((part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        let digest = hasher.finalize();
        let mut half = [0; 16];
        half.copy_from_slice(&digest[..16]);
        u128::from_le_bytes(half)
    }
}

pub(super) async fn compare(sites: &Sites, job: &Job, depth: Depth, has_design: bool) -> anyhow::Result<Report> {
    let (source, target) = (sites.source.database(&job.name)?, sites.target.database(&job.to)?);
    let here = Setup::read(&source).await.context("the source")?.context("it is gone at the source")?;
    let mut report = Report::default();
    let Some(there) = Setup::read(&target).await.context("the target")? else {
        report.differs(format!("there is no database {} at the target", job.to));
        return Ok(report);
    };
    compare_setup(job, &here, &there, &mut report);
    // In system databases each server has its own design documents.
    let has_design = has_design && job.kind == Kind::Ordinary;
    let theirs = compare_leaves(&source, &target, depth, has_design, &mut report).await?;
    let sum = Feed::open(&target, has_design).await.context("the target")?.sum().await.context("the target")?;
    if sum != theirs {
        compare_rest(&source, &target, has_design, &mut report).await?;
    }
    if let Some((count, differing)) = local::compare(&source, &target).await.context("local documents")? {
        report.local = Some(count);
        differing.into_iter().for_each(|id| report.differs(format!("{id} is not the same")));
    }
    Ok(report)
}

fn compare_setup(job: &Job, here: &Setup, there: &Setup, report: &mut Report) {
    if here.is_partitioned != there.is_partitioned {
        report.differs("only one of both is partitioned".to_owned());
    }
    let mut pairs = vec![("_revs_limit", &here.revs_limit, &there.revs_limit)];
    if let (Some(here), Some(there)) = (&here.purged_infos_limit, &there.purged_infos_limit) {
        pairs.push(("_purged_infos_limit", here, there));
    }
    if job.kind == Kind::Ordinary {
        pairs.push(("_security", &here.security, &there.security));
    }
    for (name, here, there) in pairs.into_iter().filter(|(_, here, there)| here != there) {
        let [here, there] = [here, there].map(|json| String::from_utf8_lossy(json.as_bytes()).into_owned());
        report.differs(format!("{name} is {here} at the source and {there} at the target"));
    }
}

async fn compare_leaves(
    source: &Peer,
    target: &Peer,
    depth: Depth,
    has_design: bool,
    report: &mut Report,
) -> anyhow::Result<u128> {
    let mut feed = Feed::open(source, has_design).await?;
    let mut batch = Vec::new();
    while let Some(leaves) = feed.next().await? {
        report.documents += 1;
        report.leaves += leaves.revs.len() as u64;
        if depth == Depth::Contents {
            batch.push(leaves);
            if batch.len() == TOGETHER {
                contents::compare(source, target, &std::mem::take(&mut batch), report).await?;
            }
        }
    }
    contents::compare(source, target, &batch, report).await?;
    Ok(feed.sum)
}

async fn compare_rest(source: &Peer, target: &Peer, has_design: bool, report: &mut Report) -> anyhow::Result<()> {
    let mut missing = HashSet::new();
    let mut feed = Feed::open(source, has_design).await?;
    while let Some(leaves) = feed.next().await? {
        missing.insert(leaves.hash());
    }
    let mut feed = Feed::open(target, has_design).await?;
    while let Some(leaves) = feed.next().await? {
        if !missing.remove(&leaves.hash()) {
            let revs = leaves.revs.join(", ");
            report.differs(format!("{}: at the target its leaves are {revs}, and not at the source", leaves.id));
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    let mut feed = Feed::open(source, has_design).await?;
    while let Some(leaves) = feed.next().await? {
        if missing.contains(&leaves.hash()) {
            let revs = leaves.revs.join(", ");
            report.differs(format!("{}: at the source its leaves are {revs}, and not at the target", leaves.id));
        }
    }
    Ok(())
}

struct Feed {
    rows: List,
    has_design: bool,
    sum: u128,
}

impl Feed {
    async fn open(peer: &Peer, has_design: bool) -> anyhow::Result<Self> {
        Ok(Self { rows: peer.list("_changes?style=all_docs&heartbeat=10000").await?, has_design, sum: 0 })
    }

    async fn next(&mut self) -> anyhow::Result<Option<Leaves>> {
        while let Some(row) = self.rows.next().await? {
            let leaves = Leaves::of(&row)?;
            if self.has_design || !leaves.id.starts_with("_design/") {
                self.sum = self.sum.wrapping_add(leaves.hash());
                return Ok(Some(leaves));
            }
        }
        Ok(None)
    }

    async fn sum(mut self) -> anyhow::Result<u128> {
        while self.next().await?.is_some() {}
        Ok(self.sum)
    }
}

pub(super) fn show(reports: &[(Job, anyhow::Result<Report>)]) -> bool {
    let mut is_equal = true;
    let (mut documents, mut leaves) = (0, 0);
    for (job, report) in reports {
        match report {
            Ok(report) => {
                documents += report.documents;
                leaves += report.leaves;
                is_equal &= report.differing == 0;
                let verdict = if report.differing == 0 { "equal" } else { "DIFFERENT" };
                let local = match report.local {
                    Some(local) => format!("{local} local documents"),
                    None => "local documents not listed by the source".to_owned(),
                };
                let Report { documents, leaves, attachments, .. } = report;
                print_text(&format!(
                    "{verdict}  {}: {documents} documents, {leaves} leaves, {attachments} attachments, {local}\n",
                    job.name
                ));
                report.differences.iter().for_each(|difference| print_text(&format!("    {difference}\n")));
                let more = report.differing - report.differences.len() as u64;
                if more > 0 {
                    print_text(&format!("    and {more} more differences\n"));
                }
            }
            Err(error) => {
                is_equal = false;
                print_text(&format!("FAILED  {}: {error:#}\n", job.name));
            }
        }
    }
    let verdict = if is_equal { "both sides are equal" } else { "the sides are NOT equal" };
    print_text(&format!("{} databases, {documents} documents, {leaves} leaves: {verdict}\n", reports.len()));
    is_equal
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn leaves_are_the_same_in_any_order() {
        let of = |text: &str| Leaves::of(text.as_bytes()).unwrap();
        let one = of(r#"{"seq":1,"id":"a","changes":[{"rev":"1-b"},{"rev":"1-a"}]}"#);
        assert_eq!(one, of(r#"{"seq":"9-x","id":"a","changes":[{"rev":"1-a"},{"rev":"1-b"}],"deleted":true}"#));
        for other in [
            r#"{"id":"a","changes":[{"rev":"1-a"}]}"#,
            r#"{"id":"b","changes":[{"rev":"1-a"},{"rev":"1-b"}]}"#,
            r#"{"id":"a1-a","changes":[{"rev":"1-b"}]}"#,
        ] {
            assert_ne!(of(other).hash(), one.hash(), "{other}");
        }
    }
}
