//! The commands that look after data: `doctor`, `verify`, `salvage`, `backup`, `restore`. Here are their arguments and what they print.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use clap::Args;

use crate::environment::data_directory;
use crate::output::say;
use crate::{backup, doctor, export, salvage, verify};

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

/// `settee verify`
#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    /// The data directory
    #[arg(long, value_name = "DIR", default_value_os_t = data_directory())]
    data: PathBuf,
    /// Read no more than so many megabytes of files a second
    #[arg(long, value_name = "MB")]
    rate: Option<u64>,
    /// Look at the files only, not at what the databases in them hold
    #[arg(long)]
    files: bool,
}

/// `settee salvage`
#[derive(Debug, Args)]
pub(crate) struct SalvageArgs {
    /// The damaged data directory
    #[arg(long, value_name = "DIR", default_value_os_t = data_directory())]
    data: PathBuf,
    /// The data directory to make, which must be empty or not be there
    #[arg(long, value_name = "NEW")]
    to: PathBuf,
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

fn in_words(report: &export::Report) -> String {
    let export::Report { documents, revisions, attachments, local, left_out, .. } = report;
    let left_out = if *left_out == 0 { String::new() } else { format!("; {left_out} were left out") };
    format!(
        "{documents} documents in {revisions} revisions, {attachments} attachments, {local} local documents{left_out}"
    )
}

/// Who lets this run by itself must hear that something is missing.
fn code(report: &export::Report) -> ExitCode {
    if report.left_out == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

impl DoctorArgs {
    pub(crate) fn run(&self) -> ExitCode {
        doctor::run(&self.data, self.config.as_deref())
    }
}

impl VerifyArgs {
    pub(crate) fn run(&self) -> anyhow::Result<ExitCode> {
        verify::run(&self.data, self.rate, self.files)
    }
}

impl SalvageArgs {
    pub(crate) fn run(&self) -> anyhow::Result<ExitCode> {
        salvage::run(&self.data, &self.to)
    }
}

impl BackupArgs {
    pub(crate) fn run(&self) -> anyhow::Result<ExitCode> {
        if let Some(url) = &self.database {
            let report = export::write(url, &self.to)?;
            // The output may be the export itself.
            eprintln!("{}", in_words(&report));
            return Ok(code(&report));
        }
        let report = backup::run(&self.data, &self.to)?;
        let backup::Report { directory, files, bytes, copied_bytes } = report;
        say(&format!("{}\n{files} files, {bytes} bytes, of which {copied_bytes} were copied\n", directory.display()));
        Ok(ExitCode::SUCCESS)
    }
}

impl RestoreArgs {
    pub(crate) fn run(&self) -> anyhow::Result<ExitCode> {
        if let Some(url) = &self.database {
            let report = export::read(&self.from, url)?;
            say(&format!("{}\n", in_words(&report)));
            if report.left_out > 0 {
                eprintln!(
                    "what was restored is not complete: {} parts could not be read when the export was made; lines with \
                     `left_out` in it say which",
                    report.left_out
                );
            }
            if !report.is_checked {
                eprintln!("the file has no checksum: whether it is what was written cannot be verified");
            }
            return Ok(code(&report));
        }
        let (manifest, what) = match (&self.data, self.check) {
            (Some(data), false) => (backup::restore::run(&self.from, data)?, "restored"),
            (None, true) => (backup::verify(&self.from)?, "as it was written"),
            _ => bail!("say where to restore: --data DIR for a server, --database URL for a database; or --check"),
        };
        say(&format!("{what}: {} bytes of {}, by Settee {}\n", manifest.bytes(), manifest.begun, manifest.version));
        Ok(ExitCode::SUCCESS)
    }
}
