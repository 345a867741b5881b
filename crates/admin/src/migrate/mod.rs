//! `settee migrate`: copies a whole CouchDB, or another Settee, over HTTP to a running server. Runs are repeatable, and
//! both sides can be compared.
//!
//! Documents are copied by replication ([`database`]), whose checkpoints on both sides make it resumable and later runs
//! short. Everything that replication does not copy is copied separately: settings of databases, local documents
//! ([`local`]), administrators and settings of the server ([`config`]). [`verify`] compares both sides.

mod config;
mod database;
mod files;
mod local;
mod progress;
mod totals;
mod verify;

use std::path::Path;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use settee_model::json::{Json, Value};
use settee_replication::{RequestMethod, Tuning};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::output::print_text;
use crate::remote_server::{self, RemoteServer};
pub use files::ImportFilesArgs;
use progress::ProgressDisplay;
use totals::Totals;

/// A crash repeats at most this much work.
const CHECKPOINT_MS: u64 = 5000;

/// Old servers need long for the first row of a feed.
const TIMEOUT_MS: u64 = 120_000;

const CONCURRENT_SURVEYS: usize = 32;

/// Arguments of `settee migrate`
#[derive(Debug, Args)]
pub struct MigrateArgs {
    /// The server to move from, with an administrator: http://user:password@old:5984
    #[arg(value_name = "URL")]
    source: String,
    /// The running Settee to move to, with an administrator
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:5984")]
    to: String,
    /// Compare both sides instead of copying; the exit code is 0 if they are equal
    #[arg(long)]
    verify: bool,
    /// With --verify: compare the lists of revisions only, not their contents
    #[arg(long, requires = "verify")]
    leaves_only: bool,
    /// Only this database; can be given several times. Administrators and settings are then not copied
    #[arg(long, value_name = "NAME")]
    database: Vec<String>,
    /// Number of databases that are copied concurrently
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=64))]
    parallel: u32,
    /// Leave design documents for a later run, so that no validate_doc_update function rejects documents until then
    #[arg(long)]
    without_design: bool,
    /// Do not copy administrators and settings
    #[arg(long)]
    without_config: bool,
    /// Start at the first change, not at the last checkpoint
    #[arg(long = "anew", conflicts_with = "verify")]
    from_start: bool,
    /// Migrate even if the target is not Settee
    #[arg(long)]
    force: bool,
    /// A file of certificates to trust instead of the public authorities
    #[arg(long, value_name = "FILE")]
    authorities: Option<PathBuf>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Job {
    name: String,
    to: String,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Ordinary,
    /// `_users`: the target keeps its own security object and design document.
    Users,
    /// Documents of a `_replicator` database are copied to a database that no scheduler reads.
    Replicator,
}

const PAUSED: &str = "replicator_paused";

impl Job {
    /// `None` for an internal database of the source.
    fn of(name: &str) -> Option<Self> {
        let (to, kind) = match name {
            "_users" => (name.to_owned(), Kind::Users),
            "_replicator" => (PAUSED.to_owned(), Kind::Replicator),
            _ if name.starts_with('_') => return None,
            _ => match name.strip_suffix("/_replicator") {
                Some(prefix) => (format!("{prefix}/{PAUSED}"), Kind::Replicator),
                None => (name.to_owned(), Kind::Ordinary),
            },
        };
        Some(Self { name: name.to_owned(), to, kind })
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Identity {
    product: String,
    version: String,
    uuid: String,
}

impl Identity {
    async fn read(remote_server: &RemoteServer, label: &str) -> anyhow::Result<Self> {
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
    fn check_settee(&self, is_forced: bool) -> anyhow::Result<()> {
        ensure!(
            self.product == SETTEE || is_forced,
            "the target (--to) is not Settee but {} {}: nothing was done. --force migrates to it",
            self.product,
            self.version
        );
        Ok(())
    }

    /// Fails if both servers are the same, or if the target is not Settee, unless that is forced.
    fn check_target(&self, target: &Self, is_forced: bool) -> anyhow::Result<()> {
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

pub(super) struct Sites {
    source: RemoteServer,
    target: RemoteServer,
}

impl MigrateArgs {
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start threads")?;
        let is_complete =
            runtime.block_on(async { if self.verify { self.compare().await } else { self.copy().await } });
        runtime.shutdown_background();
        Ok(if is_complete? { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn tuning(&self) -> Tuning {
        Tuning {
            checkpoint_interval_ms: CHECKPOINT_MS,
            connection_timeout_ms: TIMEOUT_MS,
            use_checkpoints: !self.from_start,
            ..Tuning::default()
        }
    }

    async fn sites(&self) -> anyhow::Result<Arc<Sites>> {
        let network = remote_server::network(self.authorities.as_deref())?;
        let source = RemoteServer::new(&self.source, &network, &self.tuning()).context("the source")?;
        let target = RemoteServer::new(&self.to, &network, &self.tuning()).context("the target (--to)")?;
        let identity = Identity::read(&source, "source").await?;
        identity.check_target(&Identity::read(&target, "target").await?, self.force)?;
        Ok(Arc::new(Sites { source, target }))
    }

    async fn jobs(&self, sites: &Sites) -> anyhow::Result<Vec<Job>> {
        let reply = sites.source.root().request(RequestMethod::Get, "_all_dbs", "").await?;
        let json = reply.json().context("the databases of the source cannot be listed")?;
        let names: Vec<String> = json.value().elements().map(Value::to_text).collect();
        for wanted in &self.database {
            ensure!(names.contains(wanted), "the source has no database {wanted}");
        }
        let is_wanted = |name: &&String| self.database.is_empty() || self.database.contains(name);
        let jobs: Vec<Job> = names.iter().filter(is_wanted).filter_map(|name| Job::of(name)).collect();
        if let Some(double) = jobs.iter().find(|job| jobs.iter().any(|other| other.to == job.to && other != *job)) {
            bail!(
                "two databases of the source would have the name {} here; migrate them one by one with --database",
                double.to
            );
        }
        Ok(jobs)
    }

    async fn copy(&self) -> anyhow::Result<bool> {
        let sites = self.sites().await?;
        let jobs = self.jobs(&sites).await?;
        let has_config = self.database.is_empty() && !self.without_config;
        let mut notes = Vec::new();
        let found = if has_config { config::read(&sites.source, &mut notes).await? } else { None };
        if let Some(found) = &found {
            // Settings come first, because limits of the source apply to its documents.
            config::apply_settings(found, &sites.target, &mut notes).await?;
        }
        let options = database::Options { has_design: !self.without_design, tuning: self.tuning() };
        let progress_display = ProgressDisplay::new(jobs.len());
        survey(&sites, &jobs, &progress_display).await?;
        let ticker = tokio::spawn(Arc::clone(&progress_display).print());
        let (places, options) = (Arc::new(Semaphore::new(self.parallel as usize)), Arc::new(options));
        let mut running = JoinSet::new();
        for (index, job) in jobs.iter().cloned().enumerate() {
            let (sites, places, options) = (Arc::clone(&sites), Arc::clone(&places), Arc::clone(&options));
            let progress_display = Arc::clone(&progress_display);
            running.spawn(async move {
                let _place = places.acquire_owned().await;
                let moved = database::copy(&sites, &job, &options, &progress_display, index).await;
                progress_display.done(index);
                (job, moved)
            });
        }
        let mut totals = Totals::default();
        while let Some(ended) = running.join_next().await {
            let (job, moved) = ended?;
            totals.add(&job.name, moved, &mut notes);
        }
        ticker.abort();
        progress_display.end();
        if let Some(found) = &found {
            // Administrators come last, because the first one excludes unauthenticated clients.
            config::apply_admins(found, &sites.target, &mut notes).await?;
        }
        notes.iter().for_each(|note| print_text(&format!("{note}\n")));
        print_text(&totals.summary("copied", progress_display.seconds()));
        Ok(totals.is_complete())
    }

    async fn compare(&self) -> anyhow::Result<bool> {
        let sites = self.sites().await?;
        let jobs = self.jobs(&sites).await?;
        let depth = if self.leaves_only { verify::Depth::Leaves } else { verify::Depth::Contents };
        let places = Arc::new(Semaphore::new(self.parallel as usize));
        let mut running = JoinSet::new();
        let has_design = !self.without_design;
        for job in jobs {
            let (sites, places) = (Arc::clone(&sites), Arc::clone(&places));
            running.spawn(async move {
                let _place = places.acquire_owned().await;
                let report = verify::compare(&sites, &job, depth, has_design).await;
                (job, report)
            });
        }
        let mut reports = Vec::new();
        while let Some(ended) = running.join_next().await {
            reports.push(ended?);
            eprintln!("compared {} databases, {} left", reports.len(), running.len());
        }
        reports.sort_by(|(one, _), (other, _)| one.name.cmp(&other.name));
        Ok(verify::show(&reports))
    }
}

async fn survey(sites: &Arc<Sites>, jobs: &[Job], progress_display: &Arc<ProgressDisplay>) -> anyhow::Result<()> {
    for (batch, first) in jobs.chunks(CONCURRENT_SURVEYS).zip((0..).step_by(CONCURRENT_SURVEYS)) {
        let mut asked = JoinSet::new();
        for (job, index) in batch.iter().zip(first..) {
            let (source, progress_display) = (sites.source.database(&job.name)?, Arc::clone(progress_display));
            asked.spawn(async move {
                let Ok(reply) = source.request(RequestMethod::Get, "", "").await else { return };
                let info = reply.json().ok();
                if let Some(seq) = info.as_ref().and_then(|info| info.value().get("update_seq")) {
                    progress_display.expect(index, &Json::trusted(seq.raw().to_vec()));
                }
            });
        }
        asked.join_all().await;
    }
    Ok(())
}

/// Port of a CouchDB without a setting.
pub const DEFAULT_PORT: u16 = 5984;

pub fn import_command(files: &Path, config: Option<&Path>, port: u16) -> String {
    let config = config.filter(|path| path.is_dir());
    let config = config.map(|path| format!(" --config {}", path.display())).unwrap_or_default();
    format!("settee import-files {}{config} --to http://USER:PASSWORD@127.0.0.1:{port}", files.display())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
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

    #[test]
    fn names_of_databases() {
        let check = |name: &str, to: &str, kind: Kind| {
            assert_eq!(Job::of(name).unwrap(), Job { name: name.to_owned(), to: to.to_owned(), kind });
        };
        check("a", "a", Kind::Ordinary);
        check("a/_users", "a/_users", Kind::Ordinary);
        check("_users", "_users", Kind::Users);
        check("_replicator", "replicator_paused", Kind::Replicator);
        check("a/b/_replicator", "a/b/replicator_paused", Kind::Replicator);
        for own in ["_global_changes", "_dbs", "_nodes", "_metadata"] {
            assert_eq!(Job::of(own), None, "{own}");
        }
    }
}
