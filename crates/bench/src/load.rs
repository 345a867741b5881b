//! [`Load`]: bulk loading with different batch sizes, sequential and random ids.
//! Only requests are timed: bodies are built in rounds between them.

use crate::args::LoadArgs;
use crate::client::{Connection, encode};
use crate::generate::{Documents, IdOrder, Shape};
use crate::measure::{Cell, Database, Figure, Limit, Measured, Metric, Target, Workload, check, check_bulk_answer};
use crate::memory;
use crate::progress::Progress;
use crate::results::Series;
use crate::yardstick::RawLoad;
use anyhow::Result;
use bytes::Bytes;
use hyper::Method;
use serde_json::Value;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use tokio::task::JoinSet;

/// Memory limit of request bodies that wait to be sent.
const ROUND_BYTES: usize = 64 << 20;
const SAMPLES: u64 = 20;
const RATE: Metric = Metric::higher("rate", "docs/s");
const FIRST: Metric = Metric::neither("first 10 %", "docs/s");
const LAST: Metric = Metric::neither("last 10 %", "docs/s");
const DISK: Metric = Metric::lower("on disk", "B/doc");

pub(crate) struct Load {
    pub(crate) args: LoadArgs,
    pub(crate) seed: u64,
}

#[derive(Debug, Default)]
struct Clock {
    seconds: f64,
    documents: u64,
    marks: Vec<(f64, u64)>,
}

impl Load {
    pub(crate) fn limits(&self) -> Vec<Limit> {
        let loads = [RawLoad::Pairs, RawLoad::Documents];
        let limits = |order| loads.map(|load| Limit::RawLoad(load, self.documents(order)));
        self.args.ids.iter().flat_map(|order| limits(*order)).collect()
    }

    fn cell(&self, number: usize) -> (IdOrder, u64) {
        let batches = self.args.batches.len();
        (self.args.ids[number / batches], self.args.batches[number % batches])
    }

    fn documents(&self, order: IdOrder) -> Documents {
        Documents { shape: Shape::Score { size: self.args.size }, order, seed: self.seed, count: self.args.docs }
    }

    fn count(&self, batch: u64) -> u64 {
        match self.args.most_requests {
            0 => self.args.docs,
            most => self.args.docs.min(most.saturating_mul(batch)),
        }
    }
}

impl Workload for Load {
    type Prepared = ();

    fn title(&self) -> String {
        let clients = if self.args.clients == 1 { String::new() } else { format!(", {} clients", self.args.clients) };
        format!("load: {} {}{clients}", self.args.docs, Shape::Score { size: self.args.size }.name())
    }

    fn cells(&self) -> Vec<Cell> {
        let mut cells = Vec::new();
        for order in &self.args.ids {
            for batch in &self.args.batches {
                let fewer = match self.count(*batch) {
                    count if count < self.args.docs => format!(" ({count} docs)"),
                    _ => String::new(),
                };
                cells.push(Cell {
                    label: format!("{} ids, batches of {batch}{fewer}", order.name()),
                    point: Some((format!("{} ids", order.name()), *batch as f64)),
                });
            }
        }
        cells
    }

    async fn prepare(&self, _: &Target) -> Result<()> {
        Ok(())
    }

    async fn measure(&self, target: &Target, _: &mut (), cell: usize, _: u32) -> Result<Measured> {
        let (order, batch) = self.cell(cell);
        let limit = Limit::RawLoad(RawLoad::Pairs, self.documents(order));
        let documents = Documents { count: self.count(batch), ..self.documents(order) };
        if let Some(pid) = target.pid {
            memory::forget(pid);
        }
        let mut database = target.create_database("load").await?;
        let clock = load(target, &database, &documents, batch, self.args.clients).await?;
        database.check_count(documents.count).await?;
        check_samples(&mut database, &documents).await?;

        let mut figures = vec![
            Figure::with_limit(RATE, documents.count as f64 / clock.seconds, limit),
            Figure::new(FIRST, clock.rate(0.0, 0.1)),
            Figure::new(LAST, clock.rate(0.9, 1.0)),
        ];
        let info = database.connection.get_json(&database.path).await?;
        if let Some(bytes) = info["sizes"]["file"].as_u64().filter(|bytes| *bytes > 0) {
            figures.push(Figure::new(DISK, bytes as f64 / documents.count as f64));
        }
        figures.extend(target.pid.map(memory::figures).unwrap_or_default());
        target.remove(database).await?;
        Ok(Measured::Figures(figures, Some(clock.series())))
    }
}

/// With `batch` 1 each document is written by a PUT.
async fn load(
    target: &Target,
    database: &Database,
    documents: &Documents,
    batch: u64,
    clients: usize,
) -> Result<Clock> {
    let mut clock = Clock::default();
    let mut connections = Vec::new();
    for _ in 0..clients.max(1) {
        connections.push(target.server.connect().await?);
    }
    let progress = Arc::new(Progress::new(&format!("load, batches of {batch}"), documents.count));
    let mut next = 0;
    while next < documents.count {
        let (round, end) = build_round(&database.path, documents, batch, next);
        next = end;
        connections = send_round(round, connections, &mut clock, &progress).await?;
    }
    Ok(clock)
}

struct BatchRequest {
    method: Method,
    path: String,
    body: Bytes,
    documents: u64,
}

fn build_round(path: &str, documents: &Documents, batch: u64, start: u64) -> (VecDeque<BatchRequest>, u64) {
    let mut round = VecDeque::new();
    let (mut bytes, mut next) = (0, start);
    while next < documents.count && bytes < ROUND_BYTES {
        let end = (next + batch.max(1)).min(documents.count);
        let request = build_batch(path, documents, next..end, batch);
        bytes += request.body.len();
        round.push_back(request);
        next = end;
    }
    (round, next)
}

fn build_batch(path: &str, documents: &Documents, range: Range<u64>, batch: u64) -> BatchRequest {
    if batch <= 1 {
        let path = format!("{path}/{}", documents.id(range.start));
        return BatchRequest { method: Method::PUT, path, body: documents.body(range.start).into(), documents: 1 };
    }
    let count = range.end - range.start;
    let body = documents.bulk_body(range).into();
    BatchRequest { method: Method::POST, path: format!("{path}/_bulk_docs"), body, documents: count }
}

async fn send_round(
    round: VecDeque<BatchRequest>,
    connections: Vec<Connection>,
    clock: &mut Clock,
    progress: &Arc<Progress>,
) -> Result<Vec<Connection>> {
    let queue = Arc::new(Mutex::new(round));
    let mut clients = JoinSet::new();
    let started = Instant::now();
    for mut connection in connections {
        let (queue, progress) = (queue.clone(), progress.clone());
        clients.spawn(async move {
            let mut answers = Vec::new();
            loop {
                let next = queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
                let Some(request) = next else { break };
                let BatchRequest { method, path, body, documents } = request;
                let answer = connection.send(method, &path, body).await?.expect_status(&[201, 202], &path)?;
                answers.push((started.elapsed().as_secs_f64(), documents, answer));
                progress.advance(documents);
            }
            anyhow::Ok((connection, answers))
        });
    }
    let mut connections = Vec::new();
    let mut all = Vec::new();
    while let Some(client) = clients.join_next().await {
        let (connection, answers) = client??;
        connections.push(connection);
        all.extend(answers);
    }
    let base = clock.seconds;
    clock.seconds += started.elapsed().as_secs_f64();
    all.sort_by(|(one, ..), (other, ..)| one.total_cmp(other));
    for (seconds, documents, answer) in all {
        check_bulk_answer(&answer.body, documents)?;
        clock.documents += documents;
        clock.marks.push((base + seconds, clock.documents));
    }
    Ok(connections)
}

async fn check_samples(database: &mut Database, documents: &Documents) -> Result<()> {
    let samples = SAMPLES.min(documents.count);
    for sample in 0..samples {
        let index = sample * (documents.count - 1) / (samples - 1).max(1);
        let id = documents.id(index);
        let mut stored = database.connection.get_json(&format!("{}/{}", database.path, encode(&id))).await?;
        if let Some(members) = stored.as_object_mut() {
            members.remove("_rev");
            members.remove("_id");
        }
        let sent: Value = serde_json::from_slice(&documents.body(index))?;
        check(stored == sent, || format!("document {id} is {stored}, sent was {sent}"))?;
    }
    Ok(())
}

impl Clock {
    /// Returns documents per second from the last batch that ends before the share `from` to the first that reaches
    /// `to`, and the documents written by then.
    fn part(&self, from: f64, to: f64) -> (u64, f64) {
        let share = |documents: u64| documents as f64 / self.documents as f64;
        let start = self.marks.iter().rev().find(|(_, documents)| share(*documents) <= from);
        let end = self.marks.iter().find(|(_, documents)| share(*documents) >= to).or(self.marks.last());
        let (start, end) = (start.copied().unwrap_or_default(), end.copied().unwrap_or_default());
        (end.1, (end.1 - start.1) as f64 / (end.0 - start.0))
    }

    fn rate(&self, from: f64, to: f64) -> f64 {
        self.part(from, to).1
    }

    fn series(&self) -> Series {
        let mut parts: Vec<(u64, f64)> =
            (0..50).map(|part| self.part(f64::from(part) / 50.0, f64::from(part + 1) / 50.0)).collect();
        parts.dedup_by_key(|(documents, _)| *documents);
        let points = parts.into_iter().map(|(documents, rate)| (documents as f64, rate)).collect();
        Series { x: "documents", y: "docs/s", points }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_of_parts() {
        let marks: Vec<(f64, u64)> = (1..=10).map(|n| (f64::from(n * n), u64::from(n as u32) * 10)).collect();
        let clock = Clock { seconds: 100.0, documents: 100, marks };
        assert_eq!(clock.rate(0.0, 0.1), 10.0);
        assert_eq!(clock.rate(0.9, 1.0), 10.0 / 19.0);
        assert_eq!(clock.series().points.first(), Some(&(10.0, 10.0)));
        let single = Clock { seconds: 2.0, documents: 100, marks: vec![(2.0, 100)] };
        assert_eq!((single.rate(0.0, 0.1), single.rate(0.9, 1.0)), (50.0, 50.0));
        assert_eq!(single.series().points, [(100.0, 50.0)]);
    }
}
