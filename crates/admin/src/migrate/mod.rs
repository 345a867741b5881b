//! `settee migrate`: copies a whole CouchDB, or another Settee, over HTTP to a running server. Runs are repeatable, and
//! both sides can be compared. Documents are copied by replication ([`database`]), whose checkpoints make it resumable
//! and later runs short. Everything else is copied separately ([`local`], [`config`]). [`verify`] compares both sides.

mod config;
mod database;
mod files;
mod job;
mod local;
mod progress;
mod sites;
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
use job::Job;
use progress::ProgressDisplay;
use sites::{Identity, Sites, TIMEOUT_MS};
use totals::Totals;

/// A crash repeats at most this much work.
const CHECKPOINT_MS: u64 = 5000;

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
    #[arg(long, alias = "anew", conflicts_with = "verify")]
    from_start: bool,
    /// Migrate even if the target is not Settee
    #[arg(long)]
    force: bool,
    /// A file of certificates to trust instead of the public authorities
    #[arg(long, value_name = "FILE")]
    authorities: Option<PathBuf>,
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
