//! Arguments and output of the commands `settee backup` and `settee restore`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::bail;
use clap::Args;

use super::log;
use super::log::replay::{self, RestorePlan, RestoreTime};
use super::manifest::{MANIFEST, Manifest};
use super::one::Serve;
use super::remote::{self, Effort, Store, s3};
use super::{Report, one, restore, verify};
use crate::environment::data_directory;
use crate::export;
use crate::output::{print_text, refuse_existing};
use crate::time;

/// Arguments of `settee backup`
#[derive(Debug, Args)]
pub struct BackupArgs {
    /// The data directory of the server to back up
    #[arg(long, value_name = "DIR", default_value_os_t = data_directory(), conflicts_with = "database")]
    data: PathBuf,
    /// Back up one database instead: its URL, http://user:password@host:port/db
    #[arg(long, value_name = "URL")]
    database: Option<String>,
    /// Destination: a directory or s3://bucket/prefix that holds all backups of the server; for one database a file, or
    /// - for the output
    #[arg(long, value_name = "PATH", verbatim_doc_comment)]
    to: PathBuf,
    /// For a bucket: read and send everything, including objects that are already stored
    #[arg(long, conflicts_with = "database")]
    full: bool,
    /// For one database: overwrite an existing file
    #[arg(long)]
    force: bool,
    /// For a bucket: only list the stored backups
    #[arg(long, conflicts_with_all = ["database", "full"])]
    list: bool,
    #[command(flatten)]
    bucket: BucketArgs,
}

/// Arguments of `settee restore`
#[derive(Debug, Args)]
pub struct RestoreArgs {
    /// Source: the directory of one backup, or s3://bucket/prefix; for one database also its file, or - for the input
    #[arg(long, value_name = "PATH")]
    from: PathBuf,
    /// For a bucket: the name of the backup [default: the newest]
    #[arg(long, value_name = "NAME")]
    backup: Option<String>,
    /// For a bucket with a log: restore the state at this time, 2026-11-20T15:04:05Z or seconds of the Unix epoch, or
    /// `newest`
    #[arg(long, value_name = "TIME", value_parser = RestoreTime::parse, conflicts_with = "backup")]
    at: Option<RestoreTime>,
    /// The data directory to create, which must be empty or missing
    #[arg(long, value_name = "DIR", conflicts_with_all = ["database", "check"])]
    data: Option<PathBuf>,
    /// Restore one database: the URL of a new one, http://user:password@host:port/db
    #[arg(long, value_name = "URL", conflicts_with = "check")]
    database: Option<String>,
    /// Name of that database in the backup of a server [default: as the new one]
    #[arg(long, value_name = "DB", requires = "database")]
    name: Option<String>,
    /// Directory for the temporary copy of the server
    #[arg(long, value_name = "DIR", requires = "database", default_value_os_t = std::env::temp_dir())]
    scratch: PathBuf,
    /// Only compare the backup with its checksums
    #[arg(long)]
    check: bool,
    #[command(flatten)]
    bucket: BucketArgs,
}

/// Access to a bucket. The access key is in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.
#[derive(Debug, Args)]
struct BucketArgs {
    /// For a bucket: its endpoint, https://host:port [default: AWS_ENDPOINT_URL, or AWS]
    #[arg(long, value_name = "URL")]
    endpoint: Option<String>,
    /// For a bucket: its region [default: AWS_REGION, or us-east-1]
    #[arg(long, value_name = "NAME")]
    region: Option<String>,
    /// For a bucket: a file of certificates to trust instead of the public authorities
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// For a bucket: the file with the key that encrypts backups, 64 hexadecimal digits
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
}

impl BucketArgs {
    fn open(&self, path: &Path) -> anyhow::Result<Option<Store>> {
        let Some(url) = path.to_str().filter(|path| s3::is_url(path)) else {
            let is_given = self.endpoint.is_some() || self.region.is_some() || self.ca_file.is_some();
            if is_given || self.key_file.is_some() {
                bail!("--endpoint, --region, --ca-file and --key-file require a bucket: s3://bucket/prefix");
            }
            return Ok(None);
        };
        let place = s3::Place {
            url: url.to_owned(),
            endpoint: self.endpoint.clone(),
            region: self.region.clone(),
            access_key: None,
            authorities: self.ca_file.clone(),
            key_file: self.key_file.clone(),
        };
        s3::open(&place).map(Some)
    }
}

fn summary(report: &export::Report) -> String {
    let export::Report { documents, revisions, attachments, local, left_out, .. } = report;
    let left_out = if *left_out == 0 { String::new() } else { format!("; {left_out} were left out") };
    format!(
        "{documents} documents in {revisions} revisions, {attachments} attachments, {local} local documents{left_out}"
    )
}

/// Unattended runs must notice that something was left out.
fn code(report: &export::Report) -> ExitCode {
    if report.left_out == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

impl BackupArgs {
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        if let Some(url) = &self.database {
            if self.to != Path::new("-") {
                refuse_existing(&self.to, self.force)?;
            }
            let report = export::write(url, &self.to)?;
            // The report goes to stderr, because stdout may carry the export itself.
            eprintln!("{}", summary(&report));
            return Ok(code(&report));
        }
        let store = self.bucket.open(&self.to)?;
        let report = match &store {
            Some(store) if self.list => return list(store),
            Some(store) => remote::run(store, &self.data, if self.full { Effort::Full } else { Effort::New })?,
            None if self.full || self.list => bail!("--full and --list require a bucket: s3://bucket/prefix"),
            None => super::run(&self.data, &self.to)?,
        };
        let Report { directory, files, bytes, copied_bytes } = report;
        print_text(&format!(
            "{}\n{files} files, {bytes} bytes, of which {copied_bytes} were copied\n",
            directory.display()
        ));
        Ok(ExitCode::SUCCESS)
    }
}

fn list(store: &Store) -> anyhow::Result<ExitCode> {
    store.check()?;
    for name in remote::names(store)? {
        let manifest = remote::manifest(store, &name)?;
        let log = manifest.log.as_ref().map_or("", |_| ", with a log");
        print_text(&format!("{name}  {} bytes, by Settee {}{log}\n", manifest.bytes(), manifest.version));
    }
    for (from_us, to_us) in log::covered(store)? {
        print_text(&format!("any time from {} to {}\n", time::rfc3339(from_us), time::rfc3339(to_us)));
    }
    Ok(ExitCode::SUCCESS)
}

enum From {
    Directory(PathBuf),
    Bucket(Store, String),
    RestoreTime(Store, RestorePlan),
}

impl From {
    fn fill(&self, data: &Path) -> anyhow::Result<Manifest> {
        match self {
            Self::Directory(directory) => restore::run(directory, data),
            Self::Bucket(store, name) => remote::restore(store, name, data, &mut |_| Ok(())),
            Self::RestoreTime(store, route) => route.run(store, data),
        }
    }

    fn verify(&self) -> anyhow::Result<Manifest> {
        match self {
            Self::Directory(directory) => verify(directory),
            Self::Bucket(store, name) => remote::verify(store, name),
            Self::RestoreTime(store, route) => route.verify(store),
        }
    }
}

impl RestoreArgs {
    /// `serve` serves a restored server while one of its databases is read.
    pub fn run(&self, serve: &Serve) -> anyhow::Result<ExitCode> {
        let from = self.source()?;
        if let Some(url) = &self.database {
            let is_server = !matches!(&from, From::Directory(path) if !path.join(MANIFEST).is_file());
            if !is_server && self.name.is_some() {
                bail!("{} contains one database: --name applies only to backups of servers", self.from.display());
            }
            let report = if is_server {
                let wanted = self.name.clone().map_or_else(|| export::name_in(url), Ok)?;
                one::restore(&self.scratch, &wanted, url, serve, &mut |data| from.fill(data).map(drop))?
            } else {
                export::read(&self.from, url)?
            };
            return Ok(print_report(&report));
        }
        let (manifest, label) = match (&self.data, self.check) {
            (Some(data), false) => (from.fill(data)?, "restored"),
            (None, true) => (from.verify()?, "verified"),
            _ => bail!("specify the target: --data DIR for a server, --database URL for a database; or --check"),
        };
        print_text(&format!(
            "{label}: {} bytes of {}, by Settee {}\n",
            manifest.bytes(),
            manifest.begun,
            manifest.version
        ));
        Ok(ExitCode::SUCCESS)
    }

    fn source(&self) -> anyhow::Result<From> {
        let Some(store) = self.bucket.open(&self.from)? else {
            if self.backup.is_some() || self.at.is_some() {
                bail!("--backup and --at require a bucket; specify the directory of the backup with --from");
            }
            return Ok(From::Directory(self.from.clone()));
        };
        if let Some(moment) = self.at {
            let route = replay::find(&store, moment)?;
            return Ok(From::RestoreTime(store, route));
        }
        let newest = remote::newest(&store)?;
        let name = self.backup.clone().unwrap_or(newest);
        Ok(From::Bucket(store, name))
    }
}

fn print_report(report: &export::Report) -> ExitCode {
    print_text(&format!("{}\n", summary(report)));
    if report.left_out > 0 {
        eprintln!(
            "the restored data are incomplete: {} parts could not be read by the export; lines with \
             `left_out` in the file list them",
            report.left_out
        );
    }
    if !report.is_checked {
        eprintln!("the file has no checksum, so its content cannot be verified");
    }
    code(report)
}
