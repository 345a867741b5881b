//! Measurement of workloads: cells, runs, alternation between two servers ([`Workload`], [`Figure`]). Each *cell* (one
//! row of a table) is measured `runs` times, server after server, so that drift of the machine affects both.

use crate::client::{Connection, Server};
use crate::generate::Documents;

use crate::progress::Progress;
use crate::rest::Rest;
use crate::results::{Failure, Results, Series};
use crate::yardstick::RawLoad;
use anyhow::{Result, ensure};
use bytes::Bytes;
use hyper::Method;
use std::sync::{Arc, Mutex, PoisonError};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Better {
    Higher,
    Lower,
    /// Context of the other figures, not compared.
    Neither,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Metric {
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) better: Better,
}

impl Metric {
    pub(crate) const fn higher(name: &'static str, unit: &'static str) -> Metric {
        Metric { name, unit, better: Better::Higher }
    }

    pub(crate) const fn lower(name: &'static str, unit: &'static str) -> Metric {
        Metric { name, unit, better: Better::Lower }
    }

    pub(crate) const fn neither(name: &'static str, unit: &'static str) -> Metric {
        Metric { name, unit, better: Better::Neither }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Limit {
    /// Loading the same bytes directly into the key-value store, batches of 1,000, each synced; documents/s.
    RawLoad(RawLoad, Documents),
    /// A hand-written map in Rust over the same documents in memory, on all cores; documents/s.
    RustMap(Documents),
    /// Writes/s if all waiting clients share one fsync of median latency.
    SharedSync { clients: usize },
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Figure {
    pub(crate) metric: Metric,
    pub(crate) value: f64,
    pub(crate) limit: Option<Limit>,
}

impl Figure {
    pub(crate) fn new(metric: Metric, value: f64) -> Figure {
        Figure { metric, value, limit: None }
    }

    pub(crate) fn with_limit(metric: Metric, value: f64, limit: Limit) -> Figure {
        Figure { metric, value, limit: Some(limit) }
    }
}

pub(crate) enum Measured {
    Figures(Vec<Figure>, Option<Series>),
    Skipped(String),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Cell {
    pub(crate) label: String,
    /// Name of a line in a line chart, and x.
    pub(crate) point: Option<(String, f64)>,
}

impl Cell {
    pub(crate) fn new(label: impl Into<String>) -> Cell {
        Cell { label: label.into(), point: None }
    }
}

pub(crate) trait Workload {
    /// State passed from [`Workload::prepare`] to the cells.
    type Prepared;

    fn title(&self) -> String;

    fn cells(&self) -> Vec<Cell>;

    async fn prepare(&self, target: &Target) -> Result<Self::Prepared>;

    /// A wrong response is an error.
    async fn measure(&self, target: &Target, prepared: &mut Self::Prepared, cell: usize, run: u32) -> Result<Measured>;

    /// Restores state outside of the databases of this run, which are always removed.
    async fn finish(&self, _target: &Target, _prepared: Self::Prepared) -> Result<()> {
        Ok(())
    }
}

pub(crate) type Registry = Arc<Mutex<Vec<(Arc<Server>, String)>>>;

#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) server: Arc<Server>,
    pub(crate) names: String,
    pub(crate) q: Option<u32>,
    pub(crate) pid: Option<u32>,
    pub(crate) databases: Registry,
}

impl Target {
    /// The database is removed at the latest when the program ends.
    pub(crate) async fn create_database(&self, purpose: &str) -> Result<Database> {
        let mut connection = self.server.connect().await?;
        let name = {
            let mut databases = self.databases.lock().unwrap_or_else(PoisonError::into_inner);
            let name = format!("{}-{}-{purpose}", self.names, databases.len());
            databases.push((self.server.clone(), name.clone()));
            name
        };
        let query = self.q.map_or_else(String::new, |q| format!("?q={q}"));
        let path = format!("/{name}");
        connection
            .send(Method::PUT, &format!("{path}{query}"), Bytes::new())
            .await?
            .expect_status(&[201, 202], &path)?;
        Ok(Database { path, connection })
    }

    /// The load is not measured.
    pub(crate) async fn create_loaded(&self, purpose: &str, documents: &Documents) -> Result<Database> {
        /// Big documents are sent in small batches, so that no request exceeds the limits of servers (CouchDB: 8 MB and
        /// more).
        const BATCH_BYTES: u64 = 4 << 20;
        let mut database = self.create_database(purpose).await?;
        let progress = Progress::new(&format!("loading {}", documents.shape.name()), documents.count);
        let sample = documents.bulk_body(0..documents.count.min(10)).len() as u64 / documents.count.clamp(1, 10);
        let batch = (BATCH_BYTES / sample.max(1)).clamp(1, 1_000);
        for start in (0..documents.count).step_by(batch as usize) {
            let end = (start + batch).min(documents.count);
            database.bulk(documents.bulk_body(start..end), end - start).await?;
            progress.advance(end - start);
        }
        database.check_count(documents.count).await?;
        Ok(database)
    }

    pub(crate) async fn remove(&self, mut database: Database) -> Result<()> {
        let path = database.path.clone();
        database.connection.send(Method::DELETE, &path, Bytes::new()).await?.expect_status(&[200, 202, 404], &path)?;
        Ok(())
    }
}

pub(crate) struct Database {
    pub(crate) path: String,
    pub(crate) connection: Connection,
}

impl Database {
    pub(crate) async fn bulk(&mut self, body: impl Into<Bytes>, documents: u64) -> Result<()> {
        let path = format!("{}/_bulk_docs", self.path);
        let answer = self.connection.send(Method::POST, &path, body).await?;
        check_bulk_answer(&answer.expect_status(&[201, 202], &path)?.body, documents)
    }

    pub(crate) async fn check_count(&mut self, documents: u64) -> Result<()> {
        let info = self.connection.get_json(&self.path).await?;
        check(info["doc_count"].as_u64() == Some(documents), || {
            format!("doc_count is {}, {documents} documents were acknowledged", info["doc_count"])
        })
    }

    /// The error contains the server's message if it refuses the document.
    pub(crate) async fn save_design(&mut self, name: &str, design: &serde_json::Value) -> Result<()> {
        let path = format!("{}/_design/{name}", self.path);
        self.connection
            .send(Method::PUT, &path, design.to_string())
            .await?
            .expect_status(&[201, 202], "design document")?;
        Ok(())
    }
}

pub(crate) fn check_bulk_answer(body: &[u8], documents: u64) -> Result<()> {
    let count = |needle: &[u8]| body.windows(needle.len()).filter(|window| *window == needle).count() as u64;
    let (written, failed) = (count(br#""rev":""#), count(br#""error":""#));
    check(written == documents && failed == 0, || {
        format!("{documents} documents were sent in bulk, {written} acknowledged, {failed} refused")
    })
}

pub(crate) fn check(right: bool, subject: impl FnOnce() -> String) -> Result<()> {
    ensure!(right, "wrong answer: {}", subject());
    Ok(())
}

pub(crate) async fn drive<W: Workload>(workloads: &[W], targets: &[Target], runs: u32, results: &mut Results) {
    for workload in workloads {
        drive_one(workload, targets, runs, results).await;
    }
}

async fn drive_one<W: Workload>(workload: &W, targets: &[Target], runs: u32, results: &mut Results) {
    let title = workload.title();
    eprintln!("{title}");
    let mut prepared = Vec::new();
    for (server, target) in targets.iter().enumerate() {
        match workload.prepare(target).await {
            Ok(data) => prepared.push(data),
            Err(error) => {
                results.failures.push(Failure {
                    workload: title,
                    cell: "preparation".into(),
                    server,
                    text: format!("{error:#}"),
                });
                return;
            }
        }
    }
    let cells = workload.cells();
    let table = results.table(&title, &cells);
    let mut rest = Rest::default();
    for (number, cell) in cells.iter().enumerate() {
        for run in 0..runs {
            for (server, target) in targets.iter().enumerate() {
                rest.wait().await;
                match workload.measure(target, &mut prepared[server], number, run).await {
                    Ok(Measured::Figures(figures, series)) => results.add(table, number, server, &figures, series),
                    Ok(Measured::Skipped(reason)) => results.skip(table, number, server, reason),
                    Err(error) => {
                        let failure = Failure {
                            workload: title.clone(),
                            cell: cell.label.clone(),
                            server,
                            text: format!("{error:#}"),
                        };
                        eprintln!("  {}: {}", failure.cell, failure.text);
                        results.failures.push(failure);
                    }
                }
            }
        }
    }
    for (server, (target, prepared)) in targets.iter().zip(prepared).enumerate() {
        if let Err(error) = workload.finish(target, prepared).await {
            let (workload, text) = (title.clone(), format!("{error:#}"));
            results.failures.push(Failure { workload, cell: "end".into(), server, text });
        }
    }
}

pub(crate) async fn remove_databases(registry: &Registry) {
    let databases = std::mem::take(&mut *registry.lock().unwrap_or_else(PoisonError::into_inner));
    for (server, name) in databases {
        if let Ok(mut connection) = server.connect().await {
            let _ = connection.send(Method::DELETE, &format!("/{name}"), Bytes::new()).await;
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn bulk_answers() {
        let good = br#"[{"ok":true,"id":"a","rev":"1-x"},{"ok":true,"id":"b","rev":"1-y"}]"#;
        check_bulk_answer(good, 2).unwrap();
        assert!(check_bulk_answer(good, 3).is_err());
        let bad = br#"[{"ok":true,"id":"a","rev":"1-x"},{"id":"b","error":"conflict","reason":"r"}]"#;
        let error = check_bulk_answer(bad, 2).unwrap_err().to_string();
        assert_eq!(error, "wrong answer: 2 documents were sent in bulk, 1 acknowledged, 1 refused");
    }
}
