//! The log: [`Log`] receives the events of all crates and writes them according to CouchDB's settings `[log]`.
//! A logging thread only appends to a buffer; [`writer`] redacts secrets and writes in the background. If it is too
//! slow, lines are dropped and counted: the server never waits for its log.

mod format;
mod redact;
mod subscriber;
mod syslog;
#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests;
mod writer;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use anyhow::Context as _;

use crate::config::Configuration;
use format::Format;
pub(crate) use redact::redact;
use settee_settings::log;
use subscriber::Collector;
use writer::{Target, Urgency, Writer};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Severity {
    Debug,
    Info,
    Notice,
    Warning,
    Error,
}

impl Severity {
    const ALL: [Self; 5] = [Self::Debug, Self::Info, Self::Notice, Self::Warning, Self::Error];

    fn name(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Notice => "notice",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }

    fn priority(self) -> u8 {
        match self {
            Self::Debug => 7,
            Self::Info => 6,
            Self::Notice => 5,
            Self::Warning => 4,
            Self::Error => 3,
        }
    }
}

/// The number for `none` exceeds all severities.
fn threshold(level: &str) -> u8 {
    match level {
        "debug" => Severity::Debug as u8,
        "notice" => Severity::Notice as u8,
        "warning" | "warn" => Severity::Warning as u8,
        "error" | "err" | "critical" | "crit" | "alert" | "emergency" | "emerg" => Severity::Error as u8,
        "none" => u8::MAX,
        _ => Severity::Info as u8,
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct LogSettings {
    threshold: u8,
    format: Format,
    target: Target,
}

impl LogSettings {
    fn of(configuration: &Configuration) -> Self {
        let target = match log::WRITER.of(configuration).as_str() {
            "file" => Target::File(PathBuf::from(log::FILE.of(configuration))),
            "journald" => Target::Journal,
            "syslog" => Target::Syslog(syslog::SyslogSettings::of(configuration)),
            _ => Target::Stderr,
        };
        let format = match (log::FORMAT.of(configuration).as_str(), &target) {
            (_, Target::Syslog(_)) => Format::Syslog,
            ("json", _) => Format::Json,
            (_, Target::Journal) => Format::Journal,
            _ => Format::Text,
        };
        Self { threshold: threshold(&log::LEVEL.of(configuration)), format, target }
    }
}

#[derive(Clone)]
pub(crate) struct Log(Arc<Shared>);

struct Shared {
    threshold: AtomicU8,
    counts: [AtomicU64; Severity::ALL.len()],
    format: AtomicU8,
    writer: Writer,
    node: String,
}

impl Log {
    pub(crate) fn start(configuration: &Arc<Configuration>, node: String) -> anyhow::Result<Self> {
        let log = Self::unregistered(LogSettings::of(configuration), node)?;
        tracing::dispatcher::set_global_default(tracing::Dispatch::new(Collector(log.clone())))
            .context("the log cannot be started twice")?;
        let (watched, updated) = (Arc::downgrade(configuration), log.clone());
        configuration.on_change(move |change| {
            if let Some(configuration) = watched.upgrade().filter(|_| change.section == "log") {
                updated.apply(LogSettings::of(&configuration));
            }
        });
        Ok(log)
    }

    fn unregistered(settings: LogSettings, node: String) -> anyhow::Result<Self> {
        let writer = Writer::start(settings.target).context("the log cannot be started")?;
        Ok(Self(Arc::new(Shared {
            threshold: AtomicU8::new(settings.threshold),
            counts: Default::default(),
            format: AtomicU8::new(settings.format as u8),
            writer,
            node,
        })))
    }

    fn apply(&self, settings: LogSettings) {
        self.0.threshold.store(settings.threshold, Ordering::Relaxed);
        self.0.format.store(settings.format as u8, Ordering::Relaxed);
        self.0.writer.set_target(settings.target);
        tracing::callsite::rebuild_interest_cache();
    }

    pub(crate) fn tail(&self) -> Vec<u8> {
        self.0.writer.flush();
        self.0.writer.tail()
    }

    pub(crate) fn lines(&self) -> Vec<(&'static str, u64)> {
        let count = |severity: Severity| self.0.counts[severity as usize].load(Ordering::Relaxed);
        Severity::ALL.iter().map(|severity| (severity.name(), count(*severity))).collect()
    }

    pub(crate) fn flush(&self) {
        self.0.writer.flush();
    }

    fn is_wanted(&self, severity: Severity) -> bool {
        severity as u8 >= self.0.threshold.load(Ordering::Relaxed)
    }

    fn write(&self, record: &format::Record) {
        self.0.counts[record.severity as usize].fetch_add(1, Ordering::Relaxed);
        let format = Format::from_number(self.0.format.load(Ordering::Relaxed));
        let now_us = crate::environment::now_us();
        let urgency = if record.severity >= Severity::Warning { Urgency::Now } else { Urgency::Soon };
        self.0.writer.append(urgency, |out| record.write(out, format, &self.0.node, now_us));
    }
}
