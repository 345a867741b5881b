//! [`Index`]: building the founding index, scores by month, over small and big documents. The rate is the number of
//! documents divided by the time from the first query until its response.

use crate::args::{IndexArgs, Language, SumReduce};
use crate::client::{Server, base64};
use crate::generate::Documents;
use crate::measure::{Cell, Database, Figure, Limit, Measured, Metric, Target, Workload, check};
use crate::memory;
use crate::progress::Progress;
use crate::results::Series;
use crate::statistics::{median, quantile};
use anyhow::{Result, anyhow, bail};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

const RATE: Metric = Metric::higher("average", "changes/s");
const SAMPLED: Metric = Metric::neither("sampled median", "changes/s");
const FASTEST: Metric = Metric::neither("sampled max", "changes/s");
const BYTES: Metric = Metric::higher("documents read", "MB/s");
const EMITTED: Metric = Metric::higher("rows", "rows/s");
const TIME: Metric = Metric::lower("time", "s");

pub(crate) struct Index {
    pub(crate) args: IndexArgs,
    pub(crate) documents: Documents,
}

pub(crate) struct Loaded {
    database: Database,
    sums: BTreeMap<(u32, u32), u64>,
    bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Build {
    Scores(Language, SumReduce),
    TenRows(Language),
    FourViews(Language),
}

const ROWS: u64 = 10;

impl Build {
    fn language(self) -> Language {
        match self {
            Build::Scores(language, _) | Build::TenRows(language) | Build::FourViews(language) => language,
        }
    }

    fn design(self, mark: &str) -> Value {
        let scores = self.language().design(SumReduce::Sum, mark);
        match self {
            Build::Scores(language, reduce) => language.design(reduce, mark),
            Build::TenRows(_) => {
                let map = format!(
                    "function (doc) {{ /* {mark} */ if (doc.metadata) for (var i = 0; i < {ROWS}; i++) emit([i, doc.score], null); }}"
                );
                json!({"language": "javascript", "views": {"tenRows": {"map": map}}})
            }
            Build::FourViews(_) => {
                let other = |condition: &str, row: &str| {
                    let map = format!("function (doc) {{ /* {mark} */ if ({condition}) emit({row}); }}");
                    json!({"map": map, "reduce": "_count"})
                };
                let mut design = scores;
                design["views"]["byUser"] = other("doc.username", "doc.username, null");
                design["views"]["byScore"] = other("doc.score !== undefined", "doc.score, doc.username");
                design["views"]["byDay"] = other("doc.metadata", "doc.metadata.createdAt.substr(0, 10), doc.score");
                design
            }
        }
    }
}

impl Index {
    fn builds(&self) -> Vec<Build> {
        let args = &self.args;
        let scores = args.languages.iter().flat_map(|language| args.reduces.iter().map(|reduce| (*language, *reduce)));
        let mut builds: Vec<Build> = scores.map(|(language, reduce)| Build::Scores(language, reduce)).collect();
        for language in args.languages.iter().filter(|language| language.is_javascript()) {
            builds.extend([Build::TenRows(*language), Build::FourViews(*language)]);
        }
        builds
    }

    /// The samples of `_active_tasks` yield rates over time.
    fn figures(&self, loaded: &Loaded, seconds: f64, samples: &[(f64, u64)]) -> (Vec<Figure>, Series) {
        let count = self.documents.count as f64;
        let mut rates = Vec::new();
        let mut last = (0.0, 0);
        for &(time, done) in samples {
            // Servers update a task only occasionally. A sample without progress says nothing about the rate.
            if done > last.1 {
                rates.push((time, (done - last.1) as f64 / (time - last.0)));
                last = (time, done);
            }
        }
        let mut figures = vec![
            Figure::with_limit(RATE, count / seconds, Limit::RustMap(self.documents)),
            Figure::new(BYTES, loaded.bytes as f64 / 1e6 / seconds),
            Figure::new(TIME, seconds),
        ];
        let values: Vec<f64> = rates.iter().map(|(_, rate)| *rate).collect();
        if !values.is_empty() {
            figures.push(Figure::new(SAMPLED, median(&values)));
            figures.push(Figure::new(FASTEST, quantile(&values, 1.0)));
        }
        (figures, Series { x: "seconds", y: "changes/s", points: rates })
    }
}

impl Workload for Index {
    type Prepared = Loaded;

    fn title(&self) -> String {
        format!("index: {} {}", self.documents.count, self.documents.shape.name())
    }

    fn cells(&self) -> Vec<Cell> {
        let name = |build: &Build| {
            let label = match build {
                Build::Scores(_, SumReduce::Sum) => "_sum",
                Build::Scores(..) => "own reduce",
                Build::TenRows(_) => "ten rows a document",
                Build::FourViews(_) => "four views",
            };
            Cell::new(format!("{}, {label}", build.language().name()))
        };
        self.builds().iter().map(name).collect()
    }

    async fn prepare(&self, target: &Target) -> Result<Loaded> {
        let database = target.create_loaded("index", &self.documents).await?;
        // Big documents differ in size, so all of them are generated; a sample would have an error of a few per cent.
        let mut body = Vec::new();
        let mut bytes = 0;
        for index in 0..self.documents.count {
            body.clear();
            self.documents.write_members(index, &mut body);
            bytes += body.len() as u64 + 2;
        }
        Ok(Loaded { database, sums: self.documents.sums_by_month(), bytes })
    }

    async fn measure(&self, target: &Target, loaded: &mut Loaded, cell: usize, run: u32) -> Result<Measured> {
        let build = self.builds()[cell];
        let language = build.language();
        let name = format!("scores-{cell}-{run}");
        let mark = format!("{cell}-{run}");
        if language != Language::Quickjs {
            return self.build(target, loaded, build, &name, &mark).await;
        }
        // Any server stores an unknown setting, so this tests the effect of the choice of engines instead.
        if javascript_engine(&mut loaded.database).await?.is_none() {
            return Ok(Measured::Skipped("one JavaScript engine".into()));
        }
        let (section, key) = NATIVE_EVALUATOR;
        let before = loaded.database.connection.configure(section, key, Some("false")).await?;
        let measured = match javascript_engine(&mut loaded.database).await {
            Ok(Some(engine)) if engine != "native" => self.build(target, loaded, build, &name, &mark).await,
            Ok(engine) => Err(anyhow!("the native evaluator is off, and what maps is {engine:?}")),
            Err(error) => Err(error),
        };
        loaded.database.connection.configure(section, key, before.as_deref()).await?;
        measured
    }
}

/// Runs map functions without a JavaScript engine.
const NATIVE_EVALUATOR: (&str, &str) = ("query_server_config", "native_evaluator");

/// `None` for servers that do not report the engine of a map function.
async fn javascript_engine(database: &mut Database) -> Result<Option<String>> {
    let path = format!("{}/_view_test", database.path);
    let body = json!({"map": "function (doc) { emit(doc.score, null); }", "documents": [{"score": 1}]});
    let answer = database.connection.send(hyper::Method::POST, &path, body.to_string()).await?;
    let engine = if answer.status == 200 { answer.json()?["engine"].take() } else { Value::Null };
    Ok(engine.as_str().map(str::to_owned))
}

impl Index {
    async fn build(
        &self,
        target: &Target,
        loaded: &mut Loaded,
        build: Build,
        name: &str,
        mark: &str,
    ) -> Result<Measured> {
        let language = build.language();
        if let Err(error) = loaded.database.save_design(name, &build.design(mark)).await {
            return skip_or_fail(language, error);
        }
        if let Some(pid) = target.pid {
            memory::forget(pid);
        }
        let samples = Arc::new(Mutex::new(Vec::new()));
        let view = if matches!(build, Build::TenRows(_)) { "tenRows?limit=1" } else { "scoresByMonth?group=true" };
        let path = format!("{}/_design/{name}/_view/{view}", loaded.database.path);
        let started = Instant::now();
        let sampler = tokio::spawn(sample_tasks(
            target.server.clone(),
            loaded.database.path.trim_start_matches('/').into(),
            Duration::from_millis(self.args.sample_ms.max(1)),
            started,
            samples.clone(),
            Progress::new(&format!("index, {}", language.name()), self.documents.count),
        ));
        let answer = first_answer(&mut loaded.database, &path).await;
        let seconds = started.elapsed().as_secs_f64();
        sampler.abort();
        let rows = match answer {
            Ok(rows) => rows,
            Err(error) => return skip_or_fail(language, error),
        };
        let mut emitted = Vec::new();
        if let Build::TenRows(_) = build {
            let count = self.documents.count * ROWS;
            check(rows["total_rows"].as_u64() == Some(count), || {
                format!("{} rows instead of {count}", rows["total_rows"])
            })?;
            emitted.push(Figure::new(EMITTED, count as f64 / seconds));
        } else {
            check_sums(&rows, &loaded.sums)?;
        }
        let samples = std::mem::take(&mut *samples.lock().unwrap_or_else(PoisonError::into_inner));
        let (mut figures, series) = self.figures(loaded, seconds, &samples);
        figures.extend(emitted);
        figures.extend(target.pid.map(memory::figures).unwrap_or_default());
        Ok(Measured::Figures(figures, Some(series)))
    }
}

/// Every server supports JavaScript. A server without another language returns an error of its own.
fn skip_or_fail(language: Language, error: anyhow::Error) -> Result<Measured> {
    if language.is_javascript() { Err(error) } else { Ok(Measured::Skipped(format!("not offered: {error:#}"))) }
}

/// Retries until the index is built: some servers answer `timeout` while the build continues.
pub(crate) async fn first_answer(database: &mut Database, path: &str) -> Result<Value> {
    loop {
        let answer = database.connection.send(hyper::Method::GET, path, bytes::Bytes::new()).await?;
        if answer.status == 200 {
            return answer.json();
        }
        let timeout = answer.json().is_ok_and(|body| body["error"] == "timeout");
        if !timeout {
            bail!("status {}: {}", answer.status, answer.excerpt());
        }
    }
}

async fn sample_tasks(
    server: Arc<Server>,
    database: String,
    period: Duration,
    started: Instant,
    samples: Arc<Mutex<Vec<(f64, u64)>>>,
    progress: Progress,
) -> Result<()> {
    let mut connection = server.connect().await?;
    loop {
        tokio::time::sleep(period).await;
        // Only administrators may read the tasks; otherwise the build has no samples.
        let tasks = connection.get_json("/_active_tasks").await?;
        if let Some((done, total)) = changes_done(&tasks, &database) {
            progress.set(done, total);
            samples.lock().unwrap_or_else(PoisonError::into_inner).push((started.elapsed().as_secs_f64(), done));
        }
    }
}

fn changes_done(tasks: &Value, database: &str) -> Option<(u64, u64)> {
    let tasks = tasks.as_array()?.iter().filter(|task| {
        // CouchDB names the shard: shards/00000000-7fffffff/name.1700000000
        task["type"] == "indexer" && task["database"].as_str().is_some_and(|name| name.contains(database))
    });
    tasks.fold(None, |sum, task| {
        let (done, total) = sum.unwrap_or((0, 0));
        Some((done + task["changes_done"].as_u64()?, total + task["total_changes"].as_u64()?))
    })
}

/// The grouped response must contain exactly the expected months in order.
pub(crate) fn check_sums(answer: &Value, sums: &BTreeMap<(u32, u32), u64>) -> Result<()> {
    let rows = answer["rows"].as_array().map_or(&[][..], Vec::as_slice);
    check(rows.len() == sums.len(), || format!("{} groups instead of {}", rows.len(), sums.len()))?;
    for (row, ((year, month), sum)) in rows.iter().zip(sums) {
        let right = row["key"] == json!([year, month]) && row["value"].as_f64() == Some(*sum as f64);
        check(right, || format!("row {row} instead of [{year},{month}] with {sum}"))?;
    }
    Ok(())
}

impl Language {
    fn is_javascript(self) -> bool {
        matches!(self, Language::Javascript | Language::Quickjs)
    }

    fn name(self) -> &'static str {
        match self {
            Language::Javascript => "javascript",
            Language::Quickjs => "quickjs",
            Language::Wasm => "wasm",
            Language::Erlang => "erlang",
            Language::Python => "python",
            Language::Simplejson => "simplejson",
            Language::Pypy => "pypy",
            Language::Coffeescript => "coffeescript",
        }
    }

    /// `mark` makes the map function unique, because servers share indexes of equal functions.
    pub(crate) fn design(self, reduce: SumReduce, mark: &str) -> Value {
        let (map, own) = match self {
            Language::Javascript | Language::Quickjs => (
                format!(
                    "function (doc) {{ /* {mark} */\n  if (doc.metadata && doc.metadata.docType === 'userscore') {{\n    var date = doc.metadata.createdAt.split('-');\n    emit([parseInt(date[0], 10), parseInt(date[1], 10)], doc.score);\n  }}\n}}"
                ),
                "function (keys, values, rereduce) { return sum(values); }",
            ),
            Language::Wasm => ("lib:scores#by_month_map".into(), "lib:scores#sum_reduce"),
            Language::Erlang => (
                format!(
                    "fun({{Doc}}) -> % {mark}\n  case proplists:get_value(<<\"metadata\">>, Doc) of\n    {{Meta}} ->\n      <<Year:4/binary, \"-\", Month:2/binary, _/binary>> = proplists:get_value(<<\"createdAt\">>, Meta),\n      Emit([list_to_integer(binary_to_list(Year)), list_to_integer(binary_to_list(Month))],\n           proplists:get_value(<<\"score\">>, Doc));\n    _ -> ok\n  end\nend."
                ),
                "fun(_Keys, Values, _ReReduce) -> lists:sum(Values) end.",
            ),
            Language::Python | Language::Simplejson | Language::Pypy => (
                format!(
                    "def scores_by_month(doc): # {mark}\n    if 'metadata' in doc:\n        date = doc['metadata']['createdAt'].split('-')\n        yield [int(date[0]), int(date[1])], doc['score']\n"
                ),
                "def total(keys, values, rereduce):\n    return sum(values)\n",
            ),
            Language::Coffeescript => (
                format!(
                    "(doc) -> # {mark}\n  if doc.metadata\n    date = doc.metadata.createdAt.split '-'\n    emit [parseInt(date[0], 10), parseInt(date[1], 10)], doc.score\n"
                ),
                "(keys, values, rereduce) -> sum values",
            ),
        };
        let reduce = if reduce == SumReduce::Sum { "_sum" } else { own };
        let name = if self.is_javascript() { "javascript" } else { self.name() };
        let mut design = json!({"language": name, "views": {"scoresByMonth": {"map": map, "reduce": reduce}}});
        if self == Language::Wasm {
            design["views"]["lib"] = json!({"scores": base64(&marked(SCORES_MODULE, mark))});
        }
        design
    }
}

const SCORES_MODULE: &[u8] = include_bytes!("../../wasm/tests/data/scores-rust.wasm");

/// Adds a custom section, which is never read, so that the module has the same behaviour and other bytes.
fn marked(module: &[u8], mark: &str) -> Vec<u8> {
    const NAME: &str = "mark";
    let byte = |length: usize| u8::try_from(length).ok().filter(|length| *length < 0x80).expect("marks are short");
    let head = [0, byte(1 + NAME.len() + mark.len()), byte(NAME.len())];
    [module, &head, NAME.as_bytes(), mark.as_bytes()].concat()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn wrong_sums_are_found() {
        let sums = BTreeMap::from([((2011, 1), 30), ((2011, 2), 7)]);
        let answer =
            |second: u64| json!({"rows": [{"key": [2011, 1], "value": 30}, {"key": [2011, 2], "value": second}]});
        check_sums(&answer(7), &sums).unwrap();
        assert!(check_sums(&answer(8), &sums).unwrap_err().to_string().starts_with("wrong answer: row"));
        assert!(check_sums(&json!({"rows": []}), &sums).is_err());
        assert!(check_sums(&json!({"error": "x"}), &sums).is_err());
    }

    #[test]
    fn tasks_of_all_shards_are_added() {
        let task = |kind: &str, database: &str, done: u64| json!({"type": kind, "database": database, "changes_done": done, "total_changes": 50});
        let tasks = json!([
            task("indexer", "shards/00000000-7fffffff/bench-1.170", 10),
            task("indexer", "shards/80000000-ffffffff/bench-1.170", 20),
            task("indexer", "other", 7),
            task("database_compaction", "bench-1", 7),
        ]);
        assert_eq!(changes_done(&tasks, "bench-1"), Some((30, 100)));
        assert_eq!(changes_done(&tasks, "bench-2"), None);
        assert_eq!(changes_done(&json!({"error": "unauthorized"}), "bench-1"), None);
    }

    #[test]
    fn every_run_has_a_map_function_of_its_own() {
        for language in <Language as clap::ValueEnum>::value_variants().iter().copied() {
            let map = |mark| language.design(SumReduce::Sum, mark)["views"].clone();
            assert_ne!(map("0-0"), map("0-1"));
            assert_eq!(map("0-0"), map("0-0"));
        }
    }
}
