//! [`Writes`]: clients that write single documents. Every client waits for its response before it writes again.

use crate::args::WritesArgs;
use crate::client::Connection;
use crate::generate::{Documents, IdOrder, Random, Shape};
use crate::measure::{Cell, Database, Figure, Limit, Measured, Metric, Target, Workload, check};
use crate::progress::Progress;
use crate::statistics::{median, quantile};
use anyhow::{Context, Result, bail};
use hyper::Method;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

const RATE: Metric = Metric::higher("writes", "/s");
const MEDIAN: Metric = Metric::lower("median", "ms");
const P99: Metric = Metric::lower("p99", "ms");
const TAIL: Metric = Metric::neither("p99/median", "x");
const COMMITS: Metric = Metric::higher("commits", "/s");
const GROUP: Metric = Metric::neither("writes/commit", "");
const CONFLICTS: Metric = Metric::neither("conflicts", "/s");
const POOL: u64 = 256;

pub(crate) struct Writes {
    pub(crate) args: WritesArgs,
    pub(crate) seed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    New,
    EditOwn,
    EditShared,
}

const MODES: [Mode; 3] = [Mode::New, Mode::EditOwn, Mode::EditShared];

#[derive(Default)]
struct Findings {
    latencies_ms: Vec<f64>,
    conflicts: u64,
}

struct Hot {
    path: String,
    rev: String,
}

impl Workload for Writes {
    type Prepared = ();

    fn title(&self) -> String {
        format!("writes: {} clients for {} s, one document per request", self.args.clients, self.args.seconds)
    }

    fn cells(&self) -> Vec<Cell> {
        let labels = [
            "new documents, random ids".into(),
            format!("edits, {} documents per client", self.args.hot),
            format!("edits, {} documents for all clients", self.args.hot),
        ];
        labels.into_iter().take(if self.args.shared { 3 } else { 2 }).map(Cell::new).collect()
    }

    async fn prepare(&self, _: &Target) -> Result<()> {
        Ok(())
    }

    async fn measure(&self, target: &Target, _: &mut (), cell: usize, run: u32) -> Result<Measured> {
        let mode = MODES[cell];
        let mut database = target.create_database("writes").await?;
        let documents =
            |count| Documents { shape: Shape::Score { size: 0 }, order: IdOrder::Random, seed: self.seed, count };
        let hot = match mode {
            Mode::New => 0,
            Mode::EditOwn => self.args.hot * self.args.clients,
            Mode::EditShared => self.args.hot,
        } as u64;
        let documents = documents(hot);
        let hot = prepare_hot(&mut database, &documents).await?;
        let before = synced_commits(&mut database.connection).await?;
        let (seconds, findings) = self.write(target, &database, &documents, mode, hot, run).await?;

        let after = synced_commits(&mut database.connection).await?;
        let latencies: Vec<f64> = findings.iter().flat_map(|client| client.latencies_ms.iter().copied()).collect();
        let conflicts: u64 = findings.iter().map(|client| client.conflicts).sum();
        check_written(&mut database, mode, &documents, latencies.len() as u64, conflicts).await?;
        target.remove(database).await?;
        let (median, p99) = (median(&latencies), quantile(&latencies, 0.99));
        let limit = Limit::SharedSync { clients: self.args.clients };
        let mut figures = vec![
            Figure::with_limit(RATE, latencies.len() as f64 / seconds, limit),
            Figure::new(MEDIAN, median),
            Figure::new(P99, p99),
            Figure::new(TAIL, p99 / median),
        ];
        if let (Some(before), Some(after)) = (before, after)
            && after > before
        {
            // Commits of a database are sequential, each with a sync: their rate shows the utilization of the disk.
            figures.push(Figure::with_limit(COMMITS, (after - before) / seconds, Limit::SharedSync { clients: 1 }));
            figures.push(Figure::new(GROUP, latencies.len() as f64 / (after - before)));
        }
        if mode == Mode::EditShared {
            figures.push(Figure::new(CONFLICTS, conflicts as f64 / seconds));
        }
        Ok(Measured::Figures(figures, None))
    }
}

impl Writes {
    async fn write(
        &self,
        target: &Target,
        database: &Database,
        documents: &Documents,
        mode: Mode,
        hot: Vec<Hot>,
        run: u32,
    ) -> Result<(f64, Vec<Findings>)> {
        let mut hot: Vec<Arc<Mutex<Vec<Hot>>>> = match mode {
            Mode::EditShared => {
                let shared = Arc::new(Mutex::new(hot));
                vec![shared; self.args.clients]
            }
            Mode::New | Mode::EditOwn => deal(hot, self.args.clients),
        };
        let mut clients = Vec::new();
        for number in 0..self.args.clients as u64 {
            let texts = (0..POOL).map(|text| members(documents, number * POOL + text)).collect();
            clients.push(Client {
                connection: target.server.connect().await?,
                path: database.path.clone(),
                texts,
                hot: hot.remove(0),
                random: Random::of(self.seed ^ u64::from(run), 3, number),
            });
        }
        let progress = Progress::new("writes", (self.args.seconds * 1e3) as u64);
        let length = Duration::from_secs_f64(self.args.seconds);
        let started = Instant::now();
        let mut tasks = JoinSet::new();
        for client in clients {
            tasks.spawn(client.run(mode, started + length));
        }
        let mut findings = Vec::new();
        while findings.len() < self.args.clients {
            tokio::select! {
                client = tasks.join_next() => findings.push(client.context("a client vanished")???),
                () = tokio::time::sleep(Duration::from_millis(250)) => progress.set(started.elapsed().as_millis() as u64, length.as_millis() as u64),
            }
        }
        Ok((started.elapsed().as_secs_f64(), findings))
    }
}

struct Client {
    connection: Connection,
    path: String,
    texts: Vec<Vec<u8>>,
    hot: Arc<Mutex<Vec<Hot>>>,
    random: Random,
}

impl Client {
    async fn run(mut self, mode: Mode, end: Instant) -> Result<Findings> {
        let mut findings = Findings::default();
        for turn in 0_usize.. {
            if Instant::now() >= end {
                break;
            }
            match mode {
                Mode::New => self.create(turn, &mut findings).await?,
                Mode::EditOwn | Mode::EditShared => self.edit(turn, mode, &mut findings).await?,
            }
        }
        Ok(findings)
    }

    async fn create(&mut self, turn: usize, findings: &mut Findings) -> Result<()> {
        let path = format!("{}/{:016x}{:016x}", self.path, self.random.next(), self.random.next());
        let text = &self.texts[turn % self.texts.len()];
        let body = [b"{", &text[..], b"}"].concat();
        let started = Instant::now();
        let answer = self.connection.send(Method::PUT, &path, body).await?;
        findings.latencies_ms.push(started.elapsed().as_secs_f64() * 1e3);
        answer.expect_status(&[201, 202], &path)?;
        Ok(())
    }

    async fn edit(&mut self, turn: usize, mode: Mode, findings: &mut Findings) -> Result<()> {
        let (number, path, rev) = {
            let hot = self.hot.lock().unwrap_or_else(PoisonError::into_inner);
            let number = self.random.below(hot.len() as u64) as usize;
            (number, hot[number].path.clone(), hot[number].rev.clone())
        };
        let text = &self.texts[turn % self.texts.len()];
        let body = [br#"{"_rev":""#, rev.as_bytes(), br#"","#, &text[..], b"}"].concat();
        let started = Instant::now();
        let answer = self.connection.send(Method::PUT, &path, body).await?;
        let latency = started.elapsed().as_secs_f64() * 1e3;
        if answer.status == 409 && mode == Mode::EditShared {
            findings.conflicts += 1;
            let newest = self.connection.get(&path).await?;
            let newest = member_text(&newest.body, "_rev").context("a document without _rev")?;
            self.note(number, newest);
            return Ok(());
        }
        let answer = answer.expect_status(&[201, 202], &path)?;
        findings.latencies_ms.push(latency);
        let rev = member_text(&answer.body, "rev").with_context(|| format!("no rev in {}", answer.excerpt()))?;
        self.note(number, rev);
        Ok(())
    }

    /// Responses of several clients may arrive in any order, so only a later generation replaces the recorded one.
    fn note(&self, number: usize, rev: &str) {
        let mut hot = self.hot.lock().unwrap_or_else(PoisonError::into_inner);
        if generation(rev) > generation(&hot[number].rev) {
            hot[number].rev = rev.into();
        }
    }
}

/// `None` if the server does not report its synced commits.
async fn synced_commits(connection: &mut Connection) -> Result<Option<f64>> {
    let answer = connection.get_any("/_node/_local/_prometheus").await?;
    let text = String::from_utf8_lossy(&answer.body);
    let mut values = text.lines().filter_map(|line| line.strip_prefix("settee_engine_synced_commits_total "));
    Ok(values.next().and_then(|value| value.trim().parse().ok()))
}

async fn prepare_hot(database: &mut Database, documents: &Documents) -> Result<Vec<Hot>> {
    if documents.count == 0 {
        return Ok(Vec::new());
    }
    let path = format!("{}/_bulk_docs", database.path);
    let body = documents.bulk_body(0..documents.count);
    let answer =
        database.connection.send(Method::POST, &path, body).await?.expect_status(&[201, 202], &path)?.json()?;
    let rows = answer.as_array().context("_bulk_docs answers no array")?.iter();
    rows.map(|row| match (row["id"].as_str(), row["rev"].as_str()) {
        (Some(id), Some(rev)) => Ok(Hot { path: format!("{}/{id}", database.path), rev: rev.into() }),
        _ => bail!("wrong answer: {row} of _bulk_docs"),
    })
    .collect()
}

/// Every acknowledged write must exist: as a document, or as a generation of one.
async fn check_written(
    database: &mut Database,
    mode: Mode,
    documents: &Documents,
    written: u64,
    conflicts: u64,
) -> Result<()> {
    if mode == Mode::New {
        return database.check_count(written).await;
    }
    let rows = database.connection.get_json(&format!("{}/_all_docs", database.path)).await?;
    let rows = rows["rows"].as_array().context("_all_docs has no rows")?;
    let generations = rows.iter().filter_map(|row| row["value"]["rev"].as_str()).map(generation);
    let edits = generations.sum::<u64>().saturating_sub(rows.len() as u64);
    check(rows.len() as u64 == documents.count && edits == written, || {
        format!("{} documents with {edits} edits, acknowledged were {written}, conflicts {conflicts}", rows.len())
    })
}

fn members(documents: &Documents, index: u64) -> Vec<u8> {
    let mut out = Vec::new();
    documents.write_members(index, &mut out);
    out
}

fn deal(hot: Vec<Hot>, clients: usize) -> Vec<Arc<Mutex<Vec<Hot>>>> {
    let mut hands: Vec<Vec<Hot>> = (0..clients).map(|_| Vec::new()).collect();
    for (number, document) in hot.into_iter().enumerate() {
        hands[number % clients].push(document);
    }
    hands.into_iter().map(|hand| Arc::new(Mutex::new(hand))).collect()
}

fn generation(rev: &str) -> u64 {
    rev.split_once('-').and_then(|(generation, _)| generation.parse().ok()).unwrap_or_default()
}

/// Found without parsing, because this runs once per write. The member must have no escapes.
fn member_text<'a>(body: &'a [u8], name: &str) -> Option<&'a str> {
    let body = std::str::from_utf8(body).ok()?;
    let after = body.split_once(&format!("\"{name}\":\""))?.1;
    Some(after.split_once('"')?.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_and_generations_are_found() {
        let body = br#"{"ok":true,"id":"a","rev":"12-abc"}"#;
        assert_eq!(member_text(body, "rev"), Some("12-abc"));
        assert_eq!(member_text(body, "_rev"), None);
        assert_eq!(generation("12-abc"), 12);
        assert_eq!(generation("x"), 0);
    }

    #[test]
    fn documents_are_dealt_evenly() {
        let hot = (0..10).map(|n| Hot { path: n.to_string(), rev: String::new() }).collect();
        let hands = deal(hot, 4);
        let sizes: Vec<usize> =
            hands.iter().map(|hand| hand.lock().unwrap_or_else(PoisonError::into_inner).len()).collect();
        assert_eq!(sizes, [3, 3, 2, 2]);
    }
}
