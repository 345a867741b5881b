//! [`Grow`]: the cost of operations while a database grows. Each cell is one size of the same database. A cost that
//! depends on it shows as a growing column.

use crate::args::GrowArgs;
use crate::generate::{Documents, Random, SCORES, Shape};
use crate::index::first_answer;
use crate::measure::{Cell, Database, Figure, Measured, Metric, Target, Workload, check};
use crate::memory;
use crate::progress::Progress;
use crate::statistics::{median, quantile};
use anyhow::{Context, Result};
use bytes::Bytes;
use hyper::Method;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const BATCH: u64 = 1_000;
const SAMPLES: usize = 100;
const POLL: Duration = Duration::from_millis(100);
/// Sorts after all generated ids, which are hexadecimal digits.
const DELETED_PREFIX: &str = "x";

const LOAD: Metric = Metric::higher("load", "docs/s");
const BUILD: Metric = Metric::higher("full build", "changes/s");
const REFRESH: Metric = Metric::higher("refresh of the step", "changes/s");
const MANY: Metric = Metric::lower("refresh of 10,000", "ms");
const HUNDRED: Metric = Metric::lower("refresh of 100", "ms");
const ONE: Metric = Metric::lower("refresh of 1", "ms");
const ONE_P99: Metric = Metric::lower("refresh of 1, p99", "ms");
const GET: Metric = Metric::lower("document", "ms");
const RANGE: Metric = Metric::lower("100 rows", "ms");
const GROUPS: Metric = Metric::lower("groups", "ms");
const CHANGES: Metric = Metric::lower("_changes tail", "ms");
const DELETED: Metric = Metric::lower("_all_docs in deleted range", "ms");
const SEARCH: Metric = Metric::lower("write, then search", "ms");
const COMPACTION: Metric = Metric::lower("compaction", "s");
const DISK: Metric = Metric::lower("on disk", "B/doc");

pub(crate) struct Grow {
    pub(crate) args: GrowArgs,
    pub(crate) seed: u64,
}

pub(crate) struct Grown {
    database: Database,
    documents: Documents,
    deleted: u64,
    has_search: bool,
}

impl Grow {
    fn steps(&self) -> Vec<u64> {
        let step = self.args.step.max(1);
        let mut steps: Vec<u64> = (1..=self.args.docs / step).map(|number| number * step).collect();
        if steps.last() != Some(&self.args.docs) && self.args.docs > 0 {
            steps.push(self.args.docs);
        }
        steps
    }
}

impl Workload for Grow {
    type Prepared = Grown;

    fn title(&self) -> String {
        format!("grow: {} {}, {} ids", self.args.docs, self.shape().name(), self.args.ids.name())
    }

    fn cells(&self) -> Vec<Cell> {
        let cell = |docs: u64| Cell { label: format!("{docs} documents"), point: Some(("grow".into(), docs as f64)) };
        self.steps().into_iter().map(cell).collect()
    }

    async fn prepare(&self, target: &Target) -> Result<Grown> {
        let mut database = target.create_database("grow").await?;
        database.save_design("grow", &view("grow")).await?;
        let index = json!({"nouveau": {"names": {"default_analyzer": "standard",
            "index": "function(doc) { if (doc.username) index('text', 'name', doc.username); }"}}});
        database.save_design("search", &index).await?;
        let has_search = database.connection.get_any(&search(&database, "none")).await?.status == 200;
        let documents = Documents { shape: self.shape(), order: self.args.ids, seed: self.seed, count: 0 };
        Ok(Grown { database, documents, deleted: 0, has_search })
    }

    async fn measure(&self, target: &Target, grown: &mut Grown, cell: usize, run: u32) -> Result<Measured> {
        if run > 0 {
            return Ok(Measured::Figures(Vec::new(), None));
        }
        if let Some(pid) = target.pid {
            memory::forget(pid);
        }
        let size = self.steps()[cell];
        let added = size.saturating_sub(grown.documents.count);
        let load = grown.load(added).await?;
        let refresh = grown.refresh().await?;
        let mut figures = Vec::new();
        if added > 0 {
            let rate = |elapsed: Duration| added as f64 / elapsed.as_secs_f64();
            figures = vec![Figure::new(LOAD, rate(load)), Figure::new(REFRESH, rate(refresh))];
        }
        figures.extend(grown.measure_refreshes().await?);
        figures.extend(grown.measure_reads(self.seed).await?);
        figures.extend(grown.measure_deleted(self.args.deleted).await?);
        figures.extend(grown.measure_search().await?);
        if self.args.full_build {
            figures.push(grown.measure_build(cell).await?);
        }
        if self.args.compact {
            figures.push(grown.measure_compaction().await?);
        }
        let info = grown.database.connection.get_json(&grown.database.path).await?;
        if let Some(bytes) = info["sizes"]["file"].as_u64().filter(|bytes| *bytes > 0) {
            figures.push(Figure::new(DISK, bytes as f64 / grown.documents.count as f64));
        }
        figures.extend(target.pid.map(memory::figures).unwrap_or_default());
        Ok(Measured::Figures(figures, None))
    }
}

impl Grow {
    fn shape(&self) -> Shape {
        Shape::Score { size: 0 }
    }
}

impl Grown {
    /// Only the requests are timed; bodies are generated between them.
    async fn load(&mut self, added: u64) -> Result<Duration> {
        let mut elapsed = Duration::ZERO;
        let progress = Progress::new("grow: load", added);
        let end = self.documents.count + added;
        while self.documents.count < end {
            let next = (self.documents.count + BATCH).min(end);
            let body = self.documents.bulk_body(self.documents.count..next);
            let started = Instant::now();
            self.database.bulk(body, next - self.documents.count).await?;
            elapsed += started.elapsed();
            progress.advance(next - self.documents.count);
            self.documents.count = next;
        }
        Ok(elapsed)
    }

    async fn refresh(&mut self) -> Result<Duration> {
        self.refresh_of("grow").await
    }

    async fn refresh_of(&mut self, design: &str) -> Result<Duration> {
        let path = format!("{}/_design/{design}/_view/by_score", self.database.path);
        let started = Instant::now();
        let answer = first_answer(&mut self.database, &path).await?;
        let elapsed = started.elapsed();
        let count = self.documents.count;
        let value = answer["rows"][0]["value"].as_u64();
        check(value == Some(count), || format!("the view counts {value:?} of {count} documents"))?;
        Ok(elapsed)
    }

    async fn measure_refreshes(&mut self) -> Result<Vec<Figure>> {
        let mut ones = Vec::new();
        for _ in 0..SAMPLES {
            self.load(1).await?;
            ones.push(ms(self.refresh().await?));
        }
        self.load(100).await?;
        let hundred = self.refresh().await?;
        self.load(10_000).await?;
        let many = self.refresh().await?;
        Ok(vec![
            Figure::new(ONE, median(&ones)),
            Figure::new(ONE_P99, quantile(&ones, 0.99)),
            Figure::new(HUNDRED, ms(hundred)),
            Figure::new(MANY, ms(many)),
        ])
    }

    async fn measure_reads(&mut self, seed: u64) -> Result<Vec<Figure>> {
        let mut random = Random::new(seed ^ self.documents.count);
        let view = format!("{}/_design/grow/_view/by_score", self.database.path);
        let [mut documents, mut ranges, mut groups, mut tails] = [const { Vec::new() }; 4];
        for _ in 0..SAMPLES {
            let id = self.documents.id(random.below(self.documents.count));
            let (elapsed, document) = self.get(&format!("{}/{id}", self.database.path)).await?;
            check(document["_id"] == id, || format!("document {id} is {document}"))?;
            documents.push(elapsed);
            let start = random.below(SCORES / 2);
            let (elapsed, rows) = self.get(&format!("{view}?reduce=false&limit=100&startkey={start}")).await?;
            let found = rows["rows"].as_array().map_or(0, Vec::len);
            check(found == 100, || format!("{found} of 100 rows from key {start}"))?;
            ranges.push(elapsed);
        }
        for _ in 0..SAMPLES / 10 {
            let (elapsed, rows) = self.get(&format!("{view}?group=true")).await?;
            check(rows["rows"].as_array().is_some_and(|rows| !rows.is_empty()), || "no group".into())?;
            groups.push(elapsed);
            let (_, before) = self.get(&self.database.path.clone()).await?;
            let since = before["update_seq"].as_str().context("update_seq is no text")?.to_owned();
            self.load(1).await?;
            let (elapsed, tail) = self.get(&format!("{}/_changes?since={since}", self.database.path)).await?;
            let found = tail["results"].as_array().map_or(0, Vec::len);
            check(found == 1, || format!("{found} changes after one write"))?;
            tails.push(elapsed);
        }
        let figures = [(GET, documents), (RANGE, ranges), (GROUPS, groups), (CHANGES, tails)];
        Ok(figures.into_iter().map(|(metric, times)| Figure::new(metric, median(&times))).collect())
    }

    /// Deletes a range of documents once, and reads the first document after the middle of it, in both directions.
    async fn measure_deleted(&mut self, wanted: u64) -> Result<Vec<Figure>> {
        while self.deleted < wanted {
            let end = (self.deleted + BATCH).min(wanted);
            let docs: Vec<Value> = (self.deleted..end).map(|number| json!({"_id": deleted_id(number)})).collect();
            let path = format!("{}/_bulk_docs", self.database.path);
            let saved = self.database.connection.send(Method::POST, &path, json!({"docs": docs}).to_string()).await?;
            let saved = saved.expect_status(&[201, 202], &path)?.json()?;
            let deletion = |row: &Value| json!({"_id": row["id"], "_rev": row["rev"], "_deleted": true});
            let deletions: Vec<Value> = saved.as_array().into_iter().flatten().map(deletion).collect();
            self.database.bulk(json!({"docs": deletions}).to_string(), end - self.deleted).await?;
            self.deleted = end;
        }
        if wanted == 0 {
            return Ok(Vec::new());
        }
        let middle = deleted_id(self.deleted / 2);
        let mut times = Vec::new();
        for _ in 0..SAMPLES / 10 {
            for (parameters, expected) in [("", 0), ("&descending=true", 1)] {
                let path = format!("{}/_all_docs?limit=1&startkey=%22{middle}%22{parameters}", self.database.path);
                let (elapsed, rows) = self.get(&path).await?;
                let found = rows["rows"].as_array().map_or(0, Vec::len);
                check(found == expected, || format!("{found} rows in addition to deleted documents"))?;
                times.push(elapsed);
            }
        }
        Ok(vec![Figure::new(DELETED, median(&times))])
    }

    async fn measure_search(&mut self) -> Result<Option<Figure>> {
        if !self.has_search {
            return Ok(None);
        }
        let path = search(&self.database, "user00001");
        first_answer(&mut self.database, &path).await?;
        let mut times = Vec::new();
        for _ in 0..SAMPLES / 5 {
            self.load(1).await?;
            times.push(self.get(&path).await?.0);
        }
        Ok(Some(Figure::new(SEARCH, median(&times))))
    }

    /// No other cell uses the function of the index.
    async fn measure_build(&mut self, cell: usize) -> Result<Figure> {
        let name = format!("build-{cell}");
        self.database.save_design(&name, &view(&name)).await?;
        let elapsed = self.refresh_of(&name).await?;
        let rate = self.documents.count as f64 / elapsed.as_secs_f64();
        let path = format!("{}/_design/{name}", self.database.path);
        let (_, design) = self.get(&path).await?;
        let rev = design["_rev"].as_str().context("a design document has no revision")?;
        let removed = self.database.connection.send(Method::DELETE, &format!("{path}?rev={rev}"), Bytes::new()).await?;
        removed.expect_status(&[200, 202], &path)?;
        let path = format!("{}/_view_cleanup", self.database.path);
        self.database.connection.send(Method::POST, &path, "{}").await?.expect_status(&[200, 202], &path)?;
        Ok(Figure::new(BUILD, rate))
    }

    async fn measure_compaction(&mut self) -> Result<Figure> {
        let path = format!("{}/_compact", self.database.path);
        let started = Instant::now();
        self.database.connection.send(Method::POST, &path, "{}").await?.expect_status(&[200, 202], &path)?;
        loop {
            let info = self.database.connection.get_json(&self.database.path).await?;
            if info["compact_running"] != true {
                return Ok(Figure::new(COMPACTION, started.elapsed().as_secs_f64()));
            }
            tokio::time::sleep(POLL).await;
        }
    }

    async fn get(&mut self, path: &str) -> Result<(f64, Value)> {
        let started = Instant::now();
        let answer = self.database.connection.get(path).await?;
        let elapsed = ms(started.elapsed());
        Ok((elapsed, answer.json()?))
    }
}

/// Each `name` has a unique map function, so that no two design documents share an index.
fn view(name: &str) -> Value {
    let map = format!("function(doc) {{ if (doc.metadata) emit(doc.score, '{name}'); }}");
    json!({"views": {"by_score": {"map": map, "reduce": "_count"}}})
}

fn search(database: &Database, name: &str) -> String {
    format!("{}/_design/search/_nouveau/names?q=name:{name}&limit=10", database.path)
}

fn deleted_id(number: u64) -> String {
    format!("{DELETED_PREFIX}{number:08}")
}

fn ms(elapsed: Duration) -> f64 {
    elapsed.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::defaults;

    #[test]
    fn the_last_step_is_the_whole_database() {
        let steps = |docs, step| Grow { args: GrowArgs { docs, step, ..defaults() }, seed: 1 }.steps();
        assert_eq!(steps(20, 5), [5, 10, 15, 20]);
        assert_eq!(steps(12, 5), [5, 10, 12]);
        assert_eq!(steps(3, 5), [3]);
        assert_eq!(steps(2, 0), [1, 2]);
        assert!(steps(0, 5).is_empty());
    }

    #[test]
    fn deleted_documents_are_behind_all_others() {
        let documents =
            Documents { shape: Shape::Score { size: 0 }, order: defaults::<GrowArgs>().ids, seed: 1, count: 9 };
        assert!((0..9).all(|index| documents.id(index) < deleted_id(0)));
        assert!(deleted_id(9) < deleted_id(10));
        assert_ne!(view("a"), view("b"));
    }
}
