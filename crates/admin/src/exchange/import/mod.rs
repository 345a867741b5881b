//! `settee import`: writes the documents of a file into a database, in batches that are sent concurrently. A local
//! document of the target stores the row up to which everything is written ([`Tally`]), so that an interrupted run can
//! be resumed. Writing a row again is idempotent, because ids that a file lacks are derived from a hash of its first
//! 4 kB and the number of the row.

mod progress;
mod reader;
mod refused;
mod send;
mod tally;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use clap::Args;
use settee_model::json::{Json, Value};
use settee_replication::{Peer, RequestMethod};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;

use super::{Format, TrustArgs, csv};
use crate::output::print_text;
use crate::remote_server::{RemoteServer, network};
use reader::Batch;
use refused::RejectedRows;
use tally::Tally;

const CHECKPOINT_BATCHES: u64 = 20;

/// Arguments of `settee import`
#[derive(Debug, Args)]
pub struct ImportArgs {
    /// The file, which may be compressed by gzip or zstd; - for the input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The database, http://user:password@host:port/db; it is created if it is missing
    #[arg(long, value_name = "URL")]
    to: String,
    /// Format of the file, if it cannot be detected from its start
    #[arg(long, value_name = "FORMAT")]
    format: Option<Format>,
    /// CSV: the column of the _id
    #[arg(long, value_name = "COLUMN")]
    id: Option<String>,
    /// CSV: types of columns: COLUMN:string (the default), :number, :boolean, :json, :auto
    #[arg(long, value_name = "COLUMN:TYPE", value_delimiter = ',')]
    types: Vec<String>,
    /// CSV: the separator of values
    #[arg(long, value_name = "CHAR", value_parser = delimiter)]
    delimiter: Option<u8>,
    /// Write documents as new ones and ignore the revisions of the file
    #[arg(long)]
    drop_revisions: bool,
    /// Write refused rows to this file, as JSON lines with line, reason and document
    #[arg(long, value_name = "FILE")]
    refused: Option<PathBuf>,
    /// Start at the first row, even if an earlier run with this file was interrupted
    #[arg(long, alias = "anew")]
    from_start: bool,
    /// Documents in a batch
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    batch: u32,
    /// Number of batches that are sent concurrently
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=16))]
    parallel: u32,
    #[command(flatten)]
    trust: TrustArgs,
}

fn delimiter(text: &str) -> Result<u8, String> {
    match text.as_bytes() {
        b"\\t" => Ok(b'\t'),
        [byte] if byte.is_ascii() && !b"\"\r\n".contains(byte) => Ok(*byte),
        _ => Err("the delimiter must be one character, or \\t".to_owned()),
    }
}

impl ImportArgs {
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start threads")?;
        let is_complete = runtime.block_on(self.import());
        runtime.shutdown_background();
        Ok(if is_complete? { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    async fn import(&self) -> anyhow::Result<bool> {
        let network = network(self.trust.authorities.as_deref())?;
        let target = RemoteServer::database_at(&self.to, &network, &super::tuning())?;
        let rejected_rows = Arc::new(RejectedRows::open(self.refused.as_deref())?);
        let options = reader::Options {
            format: self.format,
            columns: csv::Options { id: self.id.clone(), types: self.types.clone(), delimiter: self.delimiter },
            drops_revisions: self.drop_revisions,
            batch: self.batch as usize,
        };
        let opened = reader::open(&self.file, options)?;
        make(&target).await?;
        let (checkpoint, past) = ImportCheckpoint::find(&target, &opened.name, self.from_start).await?;
        if past > 0 {
            eprintln!("an earlier run was interrupted: resuming after row {past}");
        }
        let tally = Arc::new(Tally::new(past));
        let ticker = tokio::spawn(progress::report_progress(Arc::clone(&tally), opened.read.clone(), opened.length));
        let (sender, batches) = mpsc::channel(1);
        let reading = {
            let (tally, rejected_rows) = (Arc::clone(&tally), Arc::clone(&rejected_rows));
            tokio::task::spawn_blocking(move || opened.read_all(past, &tally, &rejected_rows, &sender))
        };
        let written = self.write(&target, batches, &tally, &rejected_rows, checkpoint).await;
        ticker.abort();
        let read = reading.await?;
        let mut checkpoint = written?;
        if let Err(error) = read {
            checkpoint.set(&target, tally.done_through()).await?;
            return Err(error);
        }
        checkpoint.clear(&target).await?;
        progress::end();
        rejected_rows.finish()?;
        print_text(&tally.summary());
        Ok(tally.refused() == 0)
    }

    async fn write(
        &self,
        target: &Peer,
        mut batches: mpsc::Receiver<Batch>,
        tally: &Arc<Tally>,
        rejected_rows: &Arc<RejectedRows>,
        mut checkpoint: ImportCheckpoint,
    ) -> anyhow::Result<ImportCheckpoint> {
        let permits = Arc::new(Semaphore::new(self.parallel as usize));
        let mut running: JoinSet<anyhow::Result<()>> = JoinSet::new();
        let mut ended_batches = 0u64;
        loop {
            // A batch is received only when it can be sent, which bounds the memory of waiting batches.
            let next = async {
                let permit = Arc::clone(&permits).acquire_owned().await.ok()?;
                Some((batches.recv().await?, permit))
            };
            tokio::select! {
                biased;
                Some(ended) = running.join_next() => {
                    ended??;
                    ended_batches += 1;
                    if ended_batches.is_multiple_of(CHECKPOINT_BATCHES) {
                        checkpoint.set(target, tally.done_through()).await?;
                    }
                }
                next = next => {
                    let Some((batch, permit)) = next else { break };
                    let (target, tally, rejected_rows) = (target.clone(), Arc::clone(tally), Arc::clone(rejected_rows));
                    running.spawn(async move {
                        let _permit = permit;
                        send::write(&target, batch, &tally, &rejected_rows).await
                    });
                }
            }
        }
        while let Some(ended) = running.join_next().await {
            ended??;
        }
        Ok(checkpoint)
    }
}

async fn make(target: &Peer) -> anyhow::Result<()> {
    let found = target.request(RequestMethod::Get, "", "").await?;
    match found.status {
        200 => Ok(()),
        404 => {
            let made = target.request(RequestMethod::Put, "", "").await?;
            if made.is_success() || made.status == 412 {
                Ok(())
            } else {
                bail!("the database cannot be created: {}", made.error())
            }
        }
        _ => bail!("the database cannot be read: {}", found.error()),
    }
}

struct ImportCheckpoint {
    path: String,
    rev: Option<String>,
    rows: u64,
}

impl ImportCheckpoint {
    async fn find(target: &Peer, name: &str, from_start: bool) -> anyhow::Result<(Self, u64)> {
        let path = Peer::document_path(&format!("_local/settee-import-{name}"));
        let found = target.request(RequestMethod::Get, &path, "").await?;
        if found.status == 404 {
            return Ok((Self { path, rev: None, rows: 0 }, 0));
        }
        let json = found.json().context("the progress of an earlier run cannot be read")?;
        let rows = if from_start { 0 } else { json.value().get("rows").and_then(Value::as_u64).unwrap_or(0) };
        Ok((Self { path, rev: rev(&json, "_rev"), rows }, rows))
    }

    async fn set(&mut self, target: &Peer, rows: u64) -> anyhow::Result<()> {
        if rows != self.rows {
            self.put(target, &format!("\"rows\":{rows}")).await?;
            self.rows = rows;
        }
        Ok(())
    }

    /// Must be called after a complete run.
    async fn clear(&mut self, target: &Peer) -> anyhow::Result<()> {
        if self.rev.is_some() { self.put(target, "\"_deleted\":true").await } else { Ok(()) }
    }

    async fn put(&mut self, target: &Peer, members: &str) -> anyhow::Result<()> {
        let rev = self.rev.as_ref().map_or_else(String::new, |rev| format!("\"_rev\":\"{rev}\","));
        let body = format!("{{{rev}{members}}}");
        let put = target.request(RequestMethod::Put, &self.path, body).await?;
        self.rev = if put.status == 409 {
            // An earlier attempt whose response was lost has written it.
            self::rev(&target.request(RequestMethod::Get, &self.path, "").await?.json()?, "_rev")
        } else {
            self::rev(&put.json().context("the progress cannot be written")?, "rev")
        };
        Ok(())
    }
}

fn rev(json: &Json, name: &str) -> Option<String> {
    json.value().get(name).map(Value::to_text)
}
