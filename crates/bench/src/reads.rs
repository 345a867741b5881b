//! [`Reads`]: reading documents, `_all_docs`, view ranges, grouped queries. One client sends requests in sequence for a
//! fixed time; responses are checked after their time was taken.

use crate::args::{Language, ReadsArgs, SumReduce};
use crate::client::{Answer, encode};
use crate::generate::{Documents, Random, SCORES};
use crate::index::{check_sums, first_answer};
use crate::measure::{Cell, Database, Figure, Measured, Metric, Target, Workload, check};
use crate::progress::Progress;
use crate::statistics::{median, quantile};
use anyhow::{Context, Result};
use bytes::Bytes;
use hyper::Method;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

const RATE: Metric = Metric::higher("requests", "/s");
const ROWS: Metric = Metric::higher("rows", "/s");
const MEDIAN: Metric = Metric::lower("median", "ms");
const P99: Metric = Metric::lower("p99", "ms");
const LEAST_REQUESTS: usize = 3;

pub(crate) struct Reads {
    pub(crate) args: ReadsArgs,
    /// In sequential order, so that the rows of a page can be predicted.
    pub(crate) documents: Documents,
}

pub(crate) struct Loaded {
    database: Database,
    by_month: BTreeMap<(u32, u32), u64>,
    by_score: Vec<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Read {
    Welcome,
    Document,
    DocumentsConcurrently,
    AllDocsPage,
    AllDocsPageWithDocs,
    AllDocsKeys,
    AllDocs,
    ViewRange,
    ViewKeys,
    ViewAll,
    ReduceAll,
    ReduceRange,
    GroupedByMonth,
    FirstGroups,
    GroupedByYear,
    GroupedByScore,
}

const READS: [Read; 16] = [
    Read::Welcome,
    Read::Document,
    Read::DocumentsConcurrently,
    Read::AllDocsPage,
    Read::AllDocsPageWithDocs,
    Read::AllDocsKeys,
    Read::AllDocs,
    Read::ViewRange,
    Read::ViewKeys,
    Read::ViewAll,
    Read::ReduceAll,
    Read::ReduceRange,
    Read::GroupedByMonth,
    Read::FirstGroups,
    Read::GroupedByYear,
    Read::GroupedByScore,
];

struct Question {
    method: Method,
    path: String,
    body: Bytes,
    expected: Expected,
}

impl Question {
    fn get(path: String, expected: Expected) -> Question {
        Question { method: Method::GET, path, body: Bytes::new(), expected }
    }

    fn keys(path: String, keys: &Value, expected: Expected) -> Question {
        Question { method: Method::POST, path, body: json!({ "keys": keys }).to_string().into(), expected }
    }
}

fn score_range(random: &mut Random) -> (u64, u64) {
    let from = random.below(SCORES);
    (from, (from + 1 + random.below(SCORES / 5)).min(SCORES - 1))
}

enum Expected {
    Anything,
    Document(u64),
    Ids(Vec<u64>),
    Count(u64),
    /// At most `limit` of the rows with keys between two scores, in order.
    Scores {
        from: u64,
        to: u64,
        limit: u64,
    },
    /// One row of a reduce without groups.
    Value(u64),
    Months,
    FirstMonths(usize),
    Years,
    ScoreCounts,
}

impl Reads {
    fn question(&self, read: Read, loaded: &Loaded, random: &mut Random) -> Question {
        let (documents, page) = (&self.documents, self.page());
        let all_docs = format!("{}/_all_docs", loaded.database.path);
        let score = format!("{}/_design/reads/_view/byScore", loaded.database.path);
        let month = format!("{}/_design/scores/_view/scoresByMonth", loaded.database.path);
        match read {
            Read::Welcome => Question::get("/".into(), Expected::Anything),
            Read::Document | Read::DocumentsConcurrently => {
                let index = random.below(documents.count);
                let path = format!("{}/{}", loaded.database.path, documents.id(index));
                Question::get(path, Expected::Document(index))
            }
            Read::AllDocsPage => self.page_question(&all_docs, "", random),
            Read::AllDocsPageWithDocs => self.page_question(&all_docs, "&include_docs=true", random),
            Read::AllDocsKeys => {
                let numbers: Vec<u64> = (0..page).map(|_| random.below(documents.count)).collect();
                let ids: Vec<String> = numbers.iter().map(|number| documents.id(*number)).collect();
                Question::keys(all_docs, &json!(ids), Expected::Ids(numbers))
            }
            Read::AllDocs => Question::get(all_docs, Expected::Count(documents.count + 2)),
            Read::ViewRange => {
                let (from, to) = score_range(random);
                let path = format!("{score}?reduce=false&startkey={from}&endkey={to}&limit={page}");
                Question::get(path, Expected::Scores { from, to, limit: page })
            }
            Read::ViewKeys => {
                let keys: Vec<u64> = (0..5).map(|_| random.below(SCORES)).collect();
                let count = keys.iter().map(|key| loaded.by_score[*key as usize]).sum();
                Question::keys(format!("{score}?reduce=false"), &json!(keys), Expected::Count(count))
            }
            Read::ViewAll => Question::get(format!("{score}?reduce=false"), Expected::Count(documents.count)),
            Read::ReduceAll => Question::get(score, Expected::Value(documents.count)),
            Read::ReduceRange => {
                let (from, to) = score_range(random);
                let count = loaded.by_score[from as usize..=to as usize].iter().sum();
                Question::get(format!("{score}?startkey={from}&endkey={to}"), Expected::Value(count))
            }
            Read::GroupedByMonth => Question::get(format!("{month}?group=true"), Expected::Months),
            Read::FirstGroups => Question::get(format!("{month}?limit=11&group=true"), Expected::FirstMonths(11)),
            Read::GroupedByYear => Question::get(format!("{month}?group_level=1"), Expected::Years),
            Read::GroupedByScore => Question::get(format!("{score}?group=true"), Expected::ScoreCounts),
        }
    }

    fn page(&self) -> u64 {
        self.args.page.min(self.documents.count)
    }

    fn page_question(&self, all_docs: &str, parameters: &str, random: &mut Random) -> Question {
        let page = self.page();
        let first = random.below(self.documents.count - page + 1);
        let start = encode(&json!(self.documents.id(first)).to_string());
        let path = format!("{all_docs}?startkey={start}&limit={page}{parameters}");
        Question::get(path, Expected::Ids((first..first + page).collect()))
    }

    fn check(&self, loaded: &Loaded, expected: &Expected, answer: &Answer) -> Result<u64> {
        let body = answer.json()?;
        let rows = body["rows"].as_array().map_or(&[][..], Vec::as_slice);
        let count =
            |expected: u64| check(rows.len() as u64 == expected, || format!("{} rows, not {expected}", rows.len()));
        match expected {
            Expected::Anything => return Ok(0),
            Expected::Document(index) => {
                let right = body["_id"] == self.documents.id(*index).as_str()
                    && body["score"].as_u64() == Some(self.documents.score(*index).score);
                check(right, || format!("{body} is not document {index}"))?;
                return Ok(1);
            }
            Expected::Ids(numbers) => {
                count(numbers.len() as u64)?;
                self.check_ids(rows, numbers)?;
            }
            Expected::Count(expected) => count(*expected)?,
            Expected::Scores { from, to, limit } => {
                count(loaded.by_score[*from as usize..=*to as usize].iter().sum::<u64>().min(*limit))?;
                let keys: Vec<u64> = rows.iter().filter_map(|row| row["key"].as_u64()).collect();
                let inside = keys.iter().all(|key| (from..=to).contains(&key));
                check(keys.len() == rows.len() && inside && keys.is_sorted(), || {
                    format!("keys {keys:?} of {from} to {to}")
                })?;
            }
            Expected::Value(expected) => {
                let value = &rows.first().unwrap_or(&Value::Null)["value"];
                check(value.as_u64() == Some(*expected), || format!("{value} instead of {expected}"))?;
            }
            Expected::Months => check_sums(&body, &loaded.by_month)?,
            Expected::FirstMonths(limit) => {
                check_sums(&body, &loaded.by_month.iter().take(*limit).map(|(key, sum)| (*key, *sum)).collect())?;
            }
            Expected::Years => {
                let years = sums_by_year(&loaded.by_month).into_iter();
                check_groups(rows, years.map(|(year, sum)| (json!([year]), sum)))?;
            }
            Expected::ScoreCounts => {
                let groups = loaded.by_score.iter().enumerate().filter(|(_, count)| **count > 0);
                check_groups(rows, groups.map(|(score, count)| (json!(score), *count)))?;
            }
        }
        Ok(rows.len() as u64)
    }

    fn check_ids(&self, rows: &[Value], numbers: &[u64]) -> Result<()> {
        for (row, number) in rows.iter().zip(numbers) {
            check(row["id"] == self.documents.id(*number).as_str(), || format!("row {row} is not document {number}"))?;
            if let Some(document) = row.get("doc") {
                let score = self.documents.score(*number).score;
                check(document["score"].as_u64() == Some(score), || format!("row {row} without score {score}"))?;
            }
        }
        Ok(())
    }

    async fn concurrently(&self, target: &Target, loaded: &Loaded) -> Result<Measured> {
        let end = Instant::now() + Duration::from_secs_f64(self.args.seconds);
        let mut clients = JoinSet::new();
        let started = Instant::now();
        for number in 0..self.args.clients.max(1) as u64 {
            let mut connection = target.server.connect().await?;
            let (documents, path) = (self.documents, loaded.database.path.clone());
            let mut random = Random::of(documents.seed, 4, number);
            clients.spawn(async move {
                let mut latencies_ms = Vec::new();
                while Instant::now() < end {
                    let index = random.below(documents.count);
                    let path = format!("{path}/{}", documents.id(index));
                    let asked = Instant::now();
                    let answer = connection.get(&path).await?;
                    latencies_ms.push(asked.elapsed().as_secs_f64() * 1e3);
                    // Parsing would use processor time that the server needs, so only the end, the member `score`, is
                    // compared.
                    let score = format!("\"score\":{}}}", documents.score(index).score);
                    check(answer.body.trim_ascii_end().ends_with(score.as_bytes()), || {
                        format!("{path}: {}", answer.excerpt())
                    })?;
                }
                anyhow::Ok(latencies_ms)
            });
        }
        let mut latencies_ms = Vec::new();
        while let Some(client) = clients.join_next().await {
            latencies_ms.extend(client??);
        }
        let rate = latencies_ms.len() as f64 / started.elapsed().as_secs_f64();
        Ok(Measured::Figures(summary(&latencies_ms, rate), None))
    }
}

impl Workload for Reads {
    type Prepared = Loaded;

    fn title(&self) -> String {
        format!("reads: {} {}", self.documents.count, self.documents.shape.name())
    }

    fn cells(&self) -> Vec<Cell> {
        READS.iter().map(|read| Cell::new(read.label(&self.args))).collect()
    }

    async fn prepare(&self, target: &Target) -> Result<Loaded> {
        let mut database = target.create_loaded("reads", &self.documents).await?;
        let by_score =
            json!({"views": {"byScore": {"map": "function (doc) { emit(doc.score, null); }", "reduce": "_count"}}});
        database.save_design("scores", &Language::Javascript.design(SumReduce::Sum, "reads")).await?;
        database.save_design("reads", &by_score).await?;
        for view in ["scores/_view/scoresByMonth", "reads/_view/byScore"] {
            let path = format!("{}/_design/{view}", database.path);
            first_answer(&mut database, &path).await.with_context(|| format!("building {view}"))?;
        }
        let mut by_score = vec![0; SCORES as usize];
        for index in 0..self.documents.count {
            by_score[self.documents.score(index).score as usize] += 1;
        }
        Ok(Loaded { database, by_month: self.documents.sums_by_month(), by_score })
    }

    async fn measure(&self, target: &Target, loaded: &mut Loaded, cell: usize, run: u32) -> Result<Measured> {
        let read = READS[cell];
        if read == Read::DocumentsConcurrently {
            return self.concurrently(target, loaded).await;
        }
        let mut random = Random::of(self.documents.seed, 5 + cell as u64, u64::from(run));
        let progress = Progress::new(&read.label(&self.args), (self.args.seconds * 1e3) as u64);
        let (mut latencies_ms, mut rows) = (Vec::new(), 0);
        let started = Instant::now();
        while latencies_ms.len() < LEAST_REQUESTS || started.elapsed().as_secs_f64() < self.args.seconds {
            let Question { method, path, body, expected } = self.question(read, loaded, &mut random);
            let asked = Instant::now();
            let answer = loaded.database.connection.send(method, &path, body).await?;
            latencies_ms.push(asked.elapsed().as_secs_f64() * 1e3);
            rows += self.check(loaded, &expected, &answer.expect_status(&[200], &path)?)?;
            progress.set(started.elapsed().as_millis() as u64, (self.args.seconds * 1e3) as u64);
        }
        let seconds = latencies_ms.iter().sum::<f64>() / 1e3;
        let mut figures = summary(&latencies_ms, latencies_ms.len() as f64 / seconds);
        if rows > latencies_ms.len() as u64 {
            figures.push(Figure::new(ROWS, rows as f64 / seconds));
        }
        Ok(Measured::Figures(figures, None))
    }
}

impl Read {
    fn label(self, args: &ReadsArgs) -> String {
        let page = args.page;
        match self {
            Read::Welcome => "GET / (the floor)".into(),
            Read::Document => "GET document".into(),
            Read::DocumentsConcurrently => format!("GET document, {} clients", args.clients),
            Read::AllDocsPage => format!("_all_docs, page of {page}"),
            Read::AllDocsPageWithDocs => format!("_all_docs, page of {page} with documents"),
            Read::AllDocsKeys => format!("_all_docs, {page} keys"),
            Read::AllDocs => "_all_docs, all rows".into(),
            Read::ViewRange => format!("view, range, {page} rows"),
            Read::ViewKeys => "view, 5 keys".into(),
            Read::ViewAll => "view, all rows".into(),
            Read::ReduceAll => "reduce of all".into(),
            Read::ReduceRange => "reduce of a range".into(),
            Read::GroupedByMonth => "group=true, 72 groups".into(),
            Read::FirstGroups => "limit=11&group=true".into(),
            Read::GroupedByYear => "group_level=1, 6 groups".into(),
            Read::GroupedByScore => format!("group=true, {SCORES} groups"),
        }
    }
}

fn summary(latencies_ms: &[f64], rate: f64) -> Vec<Figure> {
    vec![
        Figure::new(MEDIAN, median(latencies_ms)),
        Figure::new(P99, quantile(latencies_ms, 0.99)),
        Figure::new(RATE, rate),
    ]
}

fn sums_by_year(by_month: &BTreeMap<(u32, u32), u64>) -> BTreeMap<u32, u64> {
    let mut sums = BTreeMap::new();
    for ((year, _), sum) in by_month {
        *sums.entry(*year).or_default() += sum;
    }
    sums
}

fn check_groups(rows: &[Value], expected: impl Iterator<Item = (Value, u64)>) -> Result<()> {
    let mut rows = rows.iter();
    for (key, value) in expected {
        let row = rows.next().unwrap_or(&Value::Null);
        check(row["key"] == key && row["value"].as_f64() == Some(value as f64), || {
            format!("row {row} instead of {key}: {value}")
        })?;
    }
    check(rows.next().is_none(), || "more groups than keys".into())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn groups_must_be_complete_and_exact() {
        let rows = [json!({"key": [2011], "value": 3}), json!({"key": [2012], "value": 4.0})];
        let check = |expected: &[(u32, u64)]| {
            check_groups(&rows, expected.iter().map(|(year, sum)| (json!([year]), *sum)))
                .map_err(|error| error.to_string())
        };
        check(&[(2011, 3), (2012, 4)]).unwrap();
        assert!(check(&[(2011, 3), (2012, 5)]).is_err());
        assert_eq!(check(&[(2011, 3)]).unwrap_err(), "wrong answer: more groups than keys");
        assert!(check(&[(2011, 3), (2012, 4), (2013, 0)]).unwrap_err().contains("row null"));
    }
}
