//! The commands that look after data: `doctor`, `backup`, `restore`. Here are their arguments and what they print.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use clap::Args;

use crate::cli::data_directory;
use crate::{backup, doctor, export};

/// `settee doctor`
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// The data directory
    #[arg(long, value_name = "DIR", default_value_os_t = data_directory())]
    data: PathBuf,
    /// The configuration file [default: local.ini in the data directory]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// `settee backup`
#[derive(Debug, Args)]
pub(crate) struct BackupArgs {
    /// The data directory of the server to back up
    #[arg(long, value_name = "DIR", default_value_os_t = data_directory(), conflicts_with = "database")]
    data: PathBuf,
    /// Back up one database instead: its URL, http://user:password@host:port/db
    #[arg(long, value_name = "URL")]
    database: Option<String>,
    /// Where to: a directory that holds all backups of the server; for one database a file, or - for the output
    #[arg(long, value_name = "PATH")]
    to: PathBuf,
}

/// `settee restore`
#[derive(Debug, Args)]
pub(crate) struct RestoreArgs {
    /// Where from: the directory of one backup; for one database a file, or - for the input
    #[arg(long, value_name = "PATH")]
    from: PathBuf,
    /// The data directory to make, which must be empty or not be there
    #[arg(long, value_name = "DIR", conflicts_with_all = ["database", "check"])]
    data: Option<PathBuf>,
    /// Restore one database: the URL of a new one, http://user:password@host:port/db
    #[arg(long, value_name = "URL", conflicts_with = "check")]
    database: Option<String>,
    /// Only compare the backup with its checksums
    #[arg(long)]
    check: bool,
}

/// Prints, also to somebody who has heard enough, such as `head`.
pub(crate) fn say(text: &str) {
    let mut stdout = std::io::stdout().lock();
    let _ = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
}

fn in_words(report: &export::Report) -> String {
    let export::Report { documents, revisions, attachments, local } = report;
    format!("{documents} documents in {revisions} revisions, {attachments} attachments, {local} local documents")
}

impl DoctorArgs {
    pub(crate) fn run(&self) -> ExitCode {
        doctor::run(&self.data, self.config.as_deref())
    }
}

impl BackupArgs {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        if let Some(url) = &self.database {
            let report = export::write(url, &self.to)?;
            // The output may be the export itself.
            eprintln!("{}", in_words(&report));
            return Ok(());
        }
        let report = backup::run(&self.data, &self.to)?;
        let backup::Report { directory, files, bytes, copied_bytes } = report;
        say(&format!("{}\n{files} files, {bytes} bytes, of which {copied_bytes} were copied\n", directory.display()));
        Ok(())
    }
}

impl RestoreArgs {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        if let Some(url) = &self.database {
            let report = export::read(&self.from, url)?;
            say(&format!("{}\n", in_words(&report)));
            return Ok(());
        }
        let (manifest, what) = match (&self.data, self.check) {
            (Some(data), false) => (backup::restore::run(&self.from, data)?, "restored"),
            (None, true) => (backup::verify(&self.from)?, "as it was written"),
            _ => bail!("say where to restore: --data DIR for a server, --database URL for a database; or --check"),
        };
        say(&format!("{what}: {} bytes of {}, by Settee {}\n", manifest.bytes(), manifest.begun, manifest.version));
        Ok(())
    }
}
