//! `settee storage`: prepares stores, and copies all data from one store to another.

mod compare;
mod copy;
mod location;
#[cfg(test)]
mod tests;

use std::process::ExitCode;

use anyhow::{Context as _, ensure};
use clap::{Args, Subcommand};
use settee_storage_postgres::Tables;

pub use copy::refuse_unfinished;
use location::{Opened, StoreLocation};

use crate::backup::RestoreTime;
use crate::output::print_text;
use crate::storage;
use crate::verify::size;

/// Arguments of `settee storage`
#[derive(Debug, Args)]
pub struct StorageArgs {
    #[command(subcommand)]
    command: StorageCommand,
}

/// Subcommands of `settee storage`.
#[derive(Debug, Subcommand)]
enum StorageCommand {
    /// Create the tables of a server in a PostgreSQL; a server with that privilege creates them at its first start
    Init {
        /// The database: postgres://user@host/database. The password may be in PGPASSWORD
        url: String,
        /// The role that will own the tables; it needs no other privilege than to log in
        #[arg(long, value_name = "ROLE")]
        owner: Option<String>,
    },
    /// Copy all data of a stopped server between a data directory, a PostgreSQL and a bucket
    ///
    /// Databases keep their revisions, update sequences, local documents and indexes. Finally both sides are compared
    /// entry by entry, and each attachment with its digest. No server may run on either side:
    ///
    ///   settee storage copy ./data postgres://couch@db1,db2/couch
    ///   settee storage copy postgres://couch@db1,db2/couch ./data2
    ///   settee storage copy ./data s3://bucket/prefix
    ///
    /// --at copies an earlier state of a bucket while servers use it:
    ///
    ///   settee storage copy --at newest s3://bucket/prefix s3://backups/monday
    #[command(verbatim_doc_comment)]
    Copy(CopyArgs),
}

/// Arguments of `settee storage copy`
#[derive(Debug, Args)]
struct CopyArgs {
    /// A data directory, a database, postgres://user@host/database, or a bucket, s3://bucket/prefix
    from: String,
    /// The target in the same form; it must be empty
    to: String,
    /// Copy the state of the bucket FROM at this time, 2026-11-20T15:04:05Z or seconds of the Unix epoch, or `newest`;
    /// its servers may run
    #[arg(long, value_name = "TIME", value_parser = RestoreTime::parse)]
    at: Option<RestoreTime>,
    /// Resume an interrupted copy
    #[arg(long)]
    resume: bool,
    /// Compare both sides without copying
    #[arg(long, conflicts_with = "resume")]
    verify: bool,
}

impl StorageArgs {
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        let is_done = match &self.command {
            StorageCommand::Init { url, owner } => init(url, owner.as_deref())?,
            StorageCommand::Copy(args) => args.run()?,
        };
        Ok(if is_done { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

fn init(url: &str, owner: Option<&str>) -> anyhow::Result<bool> {
    let options = storage::options(url)?;
    let made = settee_storage_postgres::init(&options, owner)?;
    let place = options.location();
    print_text(&match made {
        Tables::Created => format!("created the tables: {place}\n"),
        Tables::Upgraded => format!("upgraded the tables: {place}\n"),
        Tables::Existing => format!("the tables already exist: {place}\n"),
    });
    Ok(true)
}

impl CopyArgs {
    fn run(&self) -> anyhow::Result<bool> {
        let (from, to) = (StoreLocation::parse(&self.from)?, StoreLocation::parse(&self.to)?);
        ensure!(!from.is(&to), "{} cannot be copied to itself", from.in_words());
        let source = match self.at {
            None => from.open(),
            Some(time) => from.open_at(time),
        };
        let source = source.context("the source of the copy cannot be used")?;
        if self.verify {
            let copy = to.open().context("the copy cannot be used")?;
            refuse_unfinished(copy.engine.as_ref())?;
            return compared(&from, &source, &to, &copy);
        }
        let target = to.open_to_write().context("the target of the copy cannot be used")?;
        let copied = copy::copy(source.engine.as_ref(), target.engine.as_ref(), self.resume)?;
        print_text(&format!(
            "copied {} entries of {} shards with {}\n",
            copied.entries,
            copied.shards,
            size(copied.bytes)
        ));
        if !compared(&from, &source, &to, &target)? {
            return Ok(false);
        }
        copy::finish(target.engine.as_ref())?;
        to.complete(target.engine.as_ref());
        print_text(&to.advice(&from));
        Ok(true)
    }
}

fn compared(from: &StoreLocation, source: &Opened, to: &StoreLocation, copy: &Opened) -> anyhow::Result<bool> {
    let found = compare::compare(source.engine.as_ref(), copy.engine.as_ref())?;
    print_text(&found.text(&from.in_words(), &to.in_words()));
    Ok(found.is_same())
}
