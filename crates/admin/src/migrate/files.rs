//! `settee import-files`: migrates the data directory of a CouchDB that does not run. A thread per file reads documents
//! ([`shard`]), and a task writes them into the target with `new_edits=false` ([`send`]). Each file has a checkpoint in
//! the target ([`checkpoint`]), so that an interrupted run is resumed. Writing a revision again is idempotent.

mod checkpoint;
mod config;
pub(super) mod database;
pub(super) mod options;
pub(super) mod progress;
mod purges;
mod send;
pub(super) mod shard;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use settee_couch_files::DataDirectory;
use settee_couch_files::directory::DatabaseFiles;
use settee_replication::Tuning;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::job::Job;
use super::sites::{Identity, TIMEOUT_MS};
use super::totals::Totals;
use super::verify;
use crate::output::print_text;
use crate::remote_server::{self, RemoteServer};
use options::Options;
use progress::ProgressDisplay;
use shard::Shard;

/// Arguments of `settee import-files`
#[derive(Debug, Args)]
pub struct ImportFilesArgs {
    /// CouchDB's data directory, such as /opt/couchdb/data; no CouchDB should write to it
    #[arg(value_name = "DATA_DIR")]
    directory: PathBuf,
    /// Its configuration directory, such as /opt/couchdb/etc, or a file: administrators and settings are copied
    #[arg(long, value_name = "ETC")]
    config: Option<PathBuf>,
    /// The running Settee to move to, with an administrator
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:5984")]
    to: String,
    /// Compare the files with the target instead of copying; the exit code is 0 if they are equal
    #[arg(long)]
    verify: bool,
    /// Only this database; can be given several times. Administrators and settings are then not copied
    #[arg(long, value_name = "NAME")]
    database: Vec<String>,
    /// Number of files that are read concurrently
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=64))]
    parallel: u32,
    /// Leave design documents for a later run, so that no validate_doc_update function rejects documents until then
    #[arg(long)]
    without_design: bool,
    /// Start at the first document, not at the checkpoint of an interrupted run
    #[arg(long, alias = "anew", conflicts_with = "verify")]
    from_start: bool,
    /// Import even if the target is not Settee
    #[arg(long)]
    force: bool,
    /// A file of certificates to trust instead of the public authorities
    #[arg(long, value_name = "FILE")]
    authorities: Option<PathBuf>,
}

async fn survey(jobs: &[(Job, DatabaseFiles)], progress_display: &Arc<ProgressDisplay>) -> anyhow::Result<()> {
    let paths: Vec<PathBuf> = jobs.iter().flat_map(|(_, files)| files.files.iter().cloned()).collect();
    let progress_display = Arc::clone(progress_display);
    let read = move || {
        paths.iter().filter_map(|path| Shard::open(path).ok()).for_each(|shard| progress_display.expect(shard.count()));
    };
    tokio::task::spawn_blocking(read).await.context("the files cannot be counted")
}

impl ImportFilesArgs {
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("no threads")?;
        let is_complete =
            runtime.block_on(async { if self.verify { self.compare().await } else { self.import().await } });
        runtime.shutdown_background();
        Ok(if is_complete? { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    async fn target(&self) -> anyhow::Result<Arc<RemoteServer>> {
        let network = remote_server::network(self.authorities.as_deref())?;
        let tuning = Tuning { connection_timeout_ms: TIMEOUT_MS, ..Tuning::default() };
        let target = RemoteServer::new(&self.to, &network, &tuning).context("the target (--to)")?;
        Identity::read(&target, "target").await?.check_settee(self.force)?;
        Ok(Arc::new(target))
    }

    /// Notes everything in the directory that is not a database.
    fn jobs(&self, notes: &mut Vec<String>) -> anyhow::Result<Vec<(Job, DatabaseFiles)>> {
        let shown = self.directory.display();
        let directory = DataDirectory::open(&self.directory).with_context(|| format!("{shown} cannot be read"))?;
        if directory.databases.is_empty() {
            bail!("{shown} contains no databases: files with names ending in .couch, or a directory named shards");
        }
        for wanted in &self.database {
            let is_found = directory.databases.iter().any(|database| database.name == *wanted);
            ensure!(is_found, "{shown} has no database {wanted}");
        }
        notes.extend(directory.notes.into_iter().map(|note| format!("ignored: {note}")));
        let is_wanted = |name: &String| self.database.is_empty() || self.database.contains(name);
        let wanted = directory.databases.into_iter().filter(|database| is_wanted(&database.name));
        Ok(wanted.filter_map(|files| Some((Job::of(&files.name)?, files))).collect())
    }

    fn options(&self) -> Arc<Options> {
        let [databases, readers] = [(); 2].map(|()| Semaphore::new(self.parallel as usize));
        Arc::new(Options { has_design: !self.without_design, from_start: self.from_start, databases, readers })
    }

    async fn import(&self) -> anyhow::Result<bool> {
        let mut notes = Vec::new();
        let jobs = self.jobs(&mut notes)?;
        let target = self.target().await?;
        let found = match &self.config {
            Some(path) if self.database.is_empty() => Some(config::read(path)?),
            _ => None,
        };
        if let Some(found) = &found {
            // Settings come first, because limits of the source apply to its documents.
            super::config::apply_settings(found, &target, &mut notes).await?;
        }
        let progress_display = ProgressDisplay::new(jobs.len());
        survey(&jobs, &progress_display).await?;
        let ticker = tokio::spawn(Arc::clone(&progress_display).print());
        let options = self.options();
        let mut running = JoinSet::new();
        for (job, files) in jobs {
            let (target, progress_display, options) =
                (Arc::clone(&target), Arc::clone(&progress_display), Arc::clone(&options));
            running.spawn(async move {
                let imported = database::import(&target, &job, &files, &options, &progress_display).await;
                progress_display.done();
                (job, imported)
            });
        }
        let mut totals = Totals::default();
        while let Some(ended) = running.join_next().await {
            let (job, imported) = ended?;
            totals.add(&job.name, imported, &mut notes);
        }
        ticker.abort();
        progress_display.end();
        if let Some(found) = &found {
            // Administrators come last, because the first one excludes unauthenticated clients.
            super::config::apply_admins(found, &target, &mut notes).await?;
        }
        notes.iter().for_each(|note| print_text(&format!("{note}\n")));
        print_text(&totals.summary("written", progress_display.seconds()));
        Ok(totals.is_complete())
    }

    async fn compare(&self) -> anyhow::Result<bool> {
        let mut notes = Vec::new();
        let jobs = self.jobs(&mut notes)?;
        let target = self.target().await?;
        let options = self.options();
        let progress_display = ProgressDisplay::new(jobs.len());
        survey(&jobs, &progress_display).await?;
        let ticker = tokio::spawn(Arc::clone(&progress_display).print());
        let mut running = JoinSet::new();
        for (job, files) in jobs {
            let (target, options, progress_display) =
                (Arc::clone(&target), Arc::clone(&options), Arc::clone(&progress_display));
            running.spawn(async move {
                let report = verify::files::compare(&target, &job, &files, &options, &progress_display).await;
                progress_display.done();
                (job, report)
            });
        }
        let mut reports = Vec::new();
        while let Some(ended) = running.join_next().await {
            reports.push(ended?);
        }
        ticker.abort();
        progress_display.end();
        reports.sort_by(|(one, _), (other, _)| one.name.cmp(&other.name));
        notes.iter().for_each(|note| print_text(&format!("{note}\n")));
        Ok(verify::show(&reports))
    }
}
