//! Operator interfaces of a node, and [`Restart`].

use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use anyhow::Context as _;
use settee_api::{Backups, Operation, Tracer};
use settee_edge::shutdown::Shutdown;
use settee_settings::log;

use crate::config::Configuration;
use crate::log::Log;
use crate::process;
use crate::telemetry::Exporter;
use settee_admin::backup::BackupControl;

#[derive(Clone)]
pub(crate) struct Restart {
    is_wanted: Arc<AtomicBool>,
    shutdown: Shutdown,
    /// Determined at the start: a newer version may replace the file, which is then started.
    program: PathBuf,
}

impl Restart {
    pub(crate) fn new(shutdown: &Shutdown) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("the path of this program cannot be determined")?;
        Ok(Self { is_wanted: Arc::default(), shutdown: shutdown.clone(), program })
    }

    fn begin(&self) {
        self.is_wanted.store(true, Ordering::Relaxed);
        self.shutdown.begin();
    }

    /// Executes the program again if a restart was requested. The caller must have closed everything.
    pub(crate) fn run_if_wanted(&self) -> anyhow::Result<()> {
        if !self.is_wanted.load(Ordering::Relaxed) {
            return Ok(());
        }
        let error = Command::new(&self.program).args(std::env::args_os().skip(1)).exec();
        Err(error).with_context(|| format!("{} cannot be started again", self.program.display()))
    }
}

pub(crate) fn operation(
    configuration: &Arc<Configuration>,
    log: &Log,
    restart: &Restart,
    exporter: Option<Arc<Exporter>>,
    backups: Option<Arc<BackupControl>>,
) -> Operation {
    let begun = Instant::now();
    let (tail, lines, restart) = (log.clone(), log.clone(), restart.clone());
    Operation {
        monotonic_us: Box::new(move || u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX)),
        process: Box::new(process::figures),
        log_tail: Box::new(move || tail.tail()),
        log_lines: Box::new(move || lines.lines()),
        restart: Box::new(move || restart.begin()),
        backups: backups.map(|backup_control| backup_control as Arc<dyn Backups>),
        slow_request_us: slow_requests(configuration),
        tracer: exporter.map(|exporter| exporter as Arc<dyn Tracer>),
    }
}

/// Updated after each change.
fn slow_requests(configuration: &Arc<Configuration>) -> Arc<AtomicU64> {
    let read = |configuration: &Configuration| {
        let wanted_ms = log::SLOW_REQUEST_MS.of(configuration);
        wanted_ms.saturating_mul(1000)
    };
    let threshold = Arc::new(AtomicU64::new(read(configuration)));
    let (watched, updated) = (Arc::downgrade(configuration), Arc::clone(&threshold));
    configuration.on_change(move |change| {
        if let Some(configuration) = watched.upgrade().filter(|_| change.section == "log") {
            updated.store(read(&configuration), Ordering::Relaxed);
        }
    });
    threshold
}
