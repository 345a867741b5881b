//! [`Views`]: building many kinds of views: padding, rows per document, keys, number of views, reduces. One workload
//! per padding. Each build is timed by the first query for one row.

use crate::args::ViewsArgs;
use crate::generate::{Documents, SCORES};
use crate::index::first_answer;
use crate::measure::{Cell, Database, Figure, Measured, Metric, Target, Workload, check};
use anyhow::{Result, bail};
use hyper::Method;
use serde_json::{Value, json};
use std::time::Instant;

const WRITE: Metric = Metric::lower("insert", "ms");
const BUILD: Metric = Metric::lower("build", "ms");
const READ: Metric = Metric::lower("read", "ms");
const BATCH: u64 = 1_000;
const BAND: u64 = 100;

pub(crate) struct Views {
    pub(crate) documents: Documents,
    cells: Vec<Task>,
}

#[derive(Clone, Debug, PartialEq)]
enum Task {
    Insert,
    ReadAll,
    Rows { rows: u64, key: Key, value: Emitted },
    Several { views: u64, kind: Siblings },
    Reduce(Reduce),
    Temporary(Option<Reduce>),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Key {
    Integer,
    Compound,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Emitted {
    Number,
    Padding,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Siblings {
    Different,
    /// Views of the same text must share one index.
    Identical,
    /// All views but the first emit nothing, so their cost must be close to zero.
    Empty,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Reduce {
    Null,
    Counter,
    MinMax,
    Banded,
    BuiltIn(&'static str),
}

const REDUCES: [Reduce; 7] = [
    Reduce::Null,
    Reduce::Counter,
    Reduce::MinMax,
    Reduce::Banded,
    Reduce::BuiltIn("_count"),
    Reduce::BuiltIn("_sum"),
    Reduce::BuiltIn("_stats"),
];

impl Views {
    pub(crate) fn new(args: &ViewsArgs, documents: Documents) -> Views {
        let mut cells = vec![Task::Insert, Task::ReadAll];
        for key in [Key::Integer, Key::Compound] {
            let rows = args.rows.iter().filter(|rows| key == Key::Integer || **rows > 0);
            cells.extend(rows.map(|rows| Task::Rows { rows: *rows, key, value: Emitted::Number }));
        }
        cells.push(Task::Rows { rows: 1, key: Key::Integer, value: Emitted::Padding });
        for kind in [Siblings::Different, Siblings::Identical, Siblings::Empty] {
            cells.extend(args.views.iter().map(|views| Task::Several { views: *views, kind }));
        }
        cells.extend(REDUCES.map(Task::Reduce));
        cells.extend([None, Some(Reduce::Counter), Some(Reduce::BuiltIn("_sum"))].map(Task::Temporary));
        Views { documents, cells }
    }

    async fn build(&self, database: &mut Database, name: &str, views: &[View]) -> Result<Measured> {
        let members = views.iter().enumerate().map(|(number, view)| (format!("v{number}"), view.json()));
        let design = json!({ "views": Value::Object(members.collect()) });
        database.save_design(name, &design).await?;
        let path = |number: usize| format!("{}/_design/{name}/_view/v{number}", database.path);
        let paths: Vec<String> = (0..views.len()).map(path).collect();

        let started = Instant::now();
        for (view, path) in views.iter().zip(&paths) {
            // The other views of a design document that was just built must answer immediately.
            let off = if view.reduce.is_some() { "&reduce=false" } else { "" };
            first_answer(database, &format!("{path}?limit=1{off}")).await?;
        }
        let built = started.elapsed();

        let started = Instant::now();
        let answer = database.connection.get(&paths[0]).await?;
        let read = started.elapsed();
        self.check(&views[0], &answer.json()?)?;
        for (view, path) in views.iter().zip(&paths).skip(1) {
            self.check(view, &database.connection.get_json(path).await?)?;
        }
        let figures = vec![Figure::new(BUILD, built.as_secs_f64() * 1e3), Figure::new(READ, read.as_secs_f64() * 1e3)];
        Ok(Measured::Figures(figures, None))
    }

    fn check(&self, view: &View, answer: &Value) -> Result<()> {
        let expected_rows = self.documents.count * view.rows;
        let Some(reduce) = view.reduce else {
            let rows = answer["rows"].as_array().map_or(0, Vec::len) as u64;
            return check(rows == expected_rows && answer["total_rows"].as_u64() == Some(expected_rows), || {
                format!("{rows} rows, total_rows {}, instead of {expected_rows}", answer["total_rows"])
            });
        };
        let expected = reduce.expected(&self.documents);
        let value = &answer["rows"][0]["value"];
        check(same_numbers(value, &expected), || format!("{} answers {value} instead of {expected}", reduce.name()))
    }

    async fn insert(&self, target: &Target) -> Result<Measured> {
        let mut database = target.create_database("views-insert").await?;
        let mut bodies = Vec::new();
        for start in (0..self.documents.count).step_by(BATCH as usize) {
            let end = (start + BATCH).min(self.documents.count);
            bodies.push((self.documents.bulk_body(start..end), end - start));
        }
        let started = Instant::now();
        for (body, documents) in bodies {
            database.bulk(body, documents).await?;
        }
        let figure = Figure::new(WRITE, started.elapsed().as_secs_f64() * 1e3);
        database.check_count(self.documents.count).await?;
        target.remove(database).await?;
        Ok(Measured::Figures(vec![figure], None))
    }

    async fn read_all(&self, database: &mut Database) -> Result<Measured> {
        // Design documents of earlier cells sort before all others.
        let path = format!("{}/_all_docs?include_docs=true&startkey=%22_design0%22", database.path);
        let documents_first = format!("{}/_all_docs?include_docs=true&endkey=%22_design%22", database.path);
        let started = Instant::now();
        let before = database.connection.get(&documents_first).await?;
        let after = database.connection.get(&path).await?;
        let figure = Figure::new(READ, started.elapsed().as_secs_f64() * 1e3);
        let mut sum = 0;
        let mut count = 0;
        for answer in [before.json()?, after.json()?] {
            for row in answer["rows"].as_array().into_iter().flatten() {
                sum += row["doc"]["value"].as_u64().unwrap_or_default();
                count += 1;
            }
        }
        let expected: u64 = (0..self.documents.count).map(|index| self.documents.value(index)).sum();
        check((count, sum) == (self.documents.count, expected), || {
            format!("{count} documents with sum {sum} instead of {} with {expected}", self.documents.count)
        })?;
        Ok(Measured::Figures(vec![figure], None))
    }

    async fn temporary(&self, database: &mut Database, reduce: Option<Reduce>, mark: &str) -> Result<Measured> {
        let view = View { map: map_rows(1, Key::Integer, Emitted::Number, 0, mark), reduce, rows: 1 };
        let path = format!("{}/_temp_view", database.path);
        let started = Instant::now();
        let answer = database.connection.send(Method::POST, &path, view.json().to_string()).await?;
        let seconds = started.elapsed().as_secs_f64();
        match answer.status {
            200 => {}
            // CouchDB since 2.0 answers 410; other servers may lack or forbid the path.
            403 | 404 | 405 | 410 | 501 => return Ok(Measured::Skipped(format!("not offered: {}", answer.excerpt()))),
            status => bail!("_temp_view: status {status}: {}", answer.excerpt()),
        }
        self.check(&view, &answer.json()?)?;
        Ok(Measured::Figures(vec![Figure::new(BUILD, seconds * 1e3)], None))
    }
}

impl Workload for Views {
    type Prepared = Database;

    fn title(&self) -> String {
        format!("views: {} documents, {}", self.documents.count, self.documents.shape.name())
    }

    fn cells(&self) -> Vec<Cell> {
        self.cells.iter().map(Task::cell).collect()
    }

    async fn prepare(&self, target: &Target) -> Result<Database> {
        target.create_loaded("views", &self.documents).await
    }

    async fn measure(&self, target: &Target, database: &mut Database, cell: usize, run: u32) -> Result<Measured> {
        let mark = format!("{cell}-{run}");
        let name = format!("views-{mark}");
        let view = |map, reduce, rows| View { map, reduce, rows };
        match &self.cells[cell] {
            Task::Insert => self.insert(target).await,
            Task::ReadAll => self.read_all(database).await,
            Task::Rows { rows, key, value } => {
                let views = [view(map_rows(*rows, *key, *value, 0, &mark), None, *rows)];
                self.build(database, &name, &views).await
            }
            Task::Several { views, kind } => {
                let views: Vec<View> = (0..*views)
                    .map(|number| match kind {
                        Siblings::Different => view(map_rows(1, Key::Integer, Emitted::Number, number, &mark), None, 1),
                        Siblings::Identical => view(map_rows(1, Key::Integer, Emitted::Number, 0, &mark), None, 1),
                        Siblings::Empty => {
                            let rows = u64::from(number == 0);
                            view(map_rows(rows, Key::Integer, Emitted::Number, number, &mark), None, rows)
                        }
                    })
                    .collect();
                self.build(database, &name, &views).await
            }
            Task::Reduce(reduce) => {
                let views = [view(map_rows(1, Key::Integer, Emitted::Number, 0, &mark), Some(*reduce), 1)];
                self.build(database, &name, &views).await
            }
            Task::Temporary(reduce) => self.temporary(database, *reduce, &mark).await,
        }
    }
}

impl Task {
    fn cell(&self) -> Cell {
        match self {
            Task::Insert => Cell::new(format!("insert in batches of {BATCH}")),
            Task::ReadAll => Cell::new("read all"),
            Task::Rows { rows: 0, .. } => Cell::new("emits nothing"),
            Task::Rows { rows, key, value: Emitted::Number } => {
                let key = if *key == Key::Integer { "key i" } else { "key [null,\"x\",i]" };
                let plural = if *rows == 1 { "row" } else { "rows" };
                Cell::new(format!("{rows} {plural}, {key}"))
            }
            Task::Rows { .. } => Cell::new("1 row, padded value"),
            Task::Several { views, kind } => Cell::new(match kind {
                Siblings::Different => format!("{views} different views"),
                Siblings::Identical => format!("{views} identical views"),
                Siblings::Empty => format!("1 view and {} that emit nothing", views - 1),
            }),
            Task::Reduce(reduce) => Cell::new(format!("reduce {}", reduce.name())),
            Task::Temporary(None) => Cell::new("_temp_view"),
            Task::Temporary(Some(reduce)) => Cell::new(format!("_temp_view, reduce {}", reduce.name())),
        }
    }
}

struct View {
    map: String,
    reduce: Option<Reduce>,
    rows: u64,
}

impl View {
    fn json(&self) -> Value {
        match self.reduce {
            Some(reduce) => json!({"map": self.map, "reduce": reduce.source()}),
            None => json!({"map": self.map}),
        }
    }
}

/// `mark` and `variant` make the map function unique, because servers share indexes of equal functions.
fn map_rows(rows: u64, key: Key, value: Emitted, variant: u64, mark: &str) -> String {
    let value = if value == Emitted::Number { "doc.value" } else { "doc.padding" };
    let key = |i: u64| {
        let number = format!("doc.n * 10 + {}", i + 100 * variant);
        if key == Key::Integer { number } else { format!("[null, \"x\", {number}]") }
    };
    let body = match rows {
        0 => format!("if (doc.nothing) {{ emit({}, null); }}", key(0)),
        rows => (0..rows).map(|i| format!("emit({}, {value});", key(i))).collect::<Vec<_>>().join(" "),
    };
    format!("function (doc) {{ /* {mark} */ {body} }}")
}

impl Reduce {
    fn name(self) -> &'static str {
        match self {
            Reduce::Null => "null",
            Reduce::Counter => "counter",
            Reduce::MinMax => "min/max",
            Reduce::Banded => "banded counts",
            Reduce::BuiltIn(name) => name,
        }
    }

    fn source(self) -> String {
        match self {
            Reduce::Null => "function (keys, values, rereduce) { return null; }".into(),
            Reduce::Counter => {
                "function (keys, values, rereduce) { return rereduce ? sum(values) : values.length; }".into()
            }
            Reduce::MinMax => "function (keys, values, rereduce) {\n  var out = {min: Infinity, max: -Infinity, count: 0};\n  \
                values.forEach(function (v) {\n    var one = rereduce ? v : {min: v, max: v, count: 1};\n    \
                out.min = Math.min(out.min, one.min);\n    out.max = Math.max(out.max, one.max);\n    out.count += one.count;\n  \
                });\n  return out;\n}"
                .into(),
            Reduce::Banded => format!(
                "function (keys, values, rereduce) {{\n  var out = {{}};\n  values.forEach(function (v) {{\n    \
                if (rereduce) {{\n      for (var band in v) {{ out[band] = (out[band] || 0) + v[band]; }}\n    }} else {{\n      \
                var band = 'b' + Math.floor(v / {BAND});\n      out[band] = (out[band] || 0) + 1;\n    }}\n  }});\n  return out;\n}}"
            ),
            Reduce::BuiltIn(name) => name.into(),
        }
    }

    fn expected(self, documents: &Documents) -> Value {
        let values: Vec<u64> = (0..documents.count).map(|index| documents.value(index)).collect();
        let (count, sum) = (values.len(), values.iter().sum::<u64>());
        let (min, max) = (values.iter().min(), values.iter().max());
        match self {
            Reduce::Null => Value::Null,
            Reduce::Counter | Reduce::BuiltIn("_count") => json!(count),
            Reduce::MinMax => json!({"min": min, "max": max, "count": count}),
            Reduce::Banded => {
                let bands = (0..SCORES.div_ceil(BAND)).filter_map(|band| {
                    let inside = values.iter().filter(|value| **value / BAND == band).count();
                    (inside > 0).then(|| (format!("b{band}"), json!(inside)))
                });
                Value::Object(bands.collect())
            }
            Reduce::BuiltIn("_stats") => {
                let squares: u64 = values.iter().map(|value| value * value).sum();
                json!({"sum": sum, "count": count, "min": min, "max": max, "sumsqr": squares})
            }
            Reduce::BuiltIn(_) => json!(sum),
        }
    }
}

/// Engines print 3 or 3.0.
fn same_numbers(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => one.as_f64() == other.as_f64(),
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one.iter().all(|(name, value)| other.get(name).is_some_and(|other| same_numbers(value, other)))
        }
        _ => one == other,
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::args::defaults;
    use crate::generate::{IdOrder, Shape};

    fn views() -> Views {
        let documents =
            Documents { shape: Shape::Padded { padding: 1 }, order: IdOrder::Sequential, seed: 3, count: 1_000 };
        Views::new(&defaults(), documents)
    }

    #[test]
    fn cells_cover_the_parameters_of_the_first_benchmark() {
        let labels: Vec<String> = views().cells().into_iter().map(|cell| cell.label).collect();
        for label in [
            "emits nothing",
            "5 rows, key i",
            "10 rows, key [null,\"x\",i]",
            "1 row, padded value",
            "10 identical views",
            "1 view and 9 that emit nothing",
            "reduce banded counts",
            "_temp_view",
        ] {
            assert_eq!(labels.iter().filter(|other| *other == label).count(), 1, "{label} in {labels:?}");
        }
    }

    #[test]
    fn answers_are_checked() {
        let views = views();
        let view = |reduce, rows| View { map: String::new(), reduce, rows };
        let rows = |rows: usize| json!({"total_rows": rows, "rows": vec![json!({}); rows]});
        views.check(&view(None, 2), &rows(2_000)).unwrap();
        assert!(views.check(&view(None, 2), &rows(1_999)).is_err());
        for reduce in REDUCES {
            let expected = reduce.expected(&views.documents);
            let answer = |value: &Value| json!({"rows": [{"key": null, "value": value}]});
            views.check(&view(Some(reduce), 1), &answer(&expected)).unwrap();
            assert!(views.check(&view(Some(reduce), 1), &answer(&json!(-1))).is_err(), "{reduce:?}");
        }
        assert!(same_numbers(&json!({"a": 3}), &json!({"a": 3.0})));
        assert!(!same_numbers(&json!({"a": 3}), &json!({"a": 3, "b": 1})));
    }

    #[test]
    fn map_functions() {
        assert_eq!(
            map_rows(2, Key::Compound, Emitted::Number, 0, "m"),
            "function (doc) { /* m */ emit([null, \"x\", doc.n * 10 + 0], doc.value); emit([null, \"x\", doc.n * 10 + 1], doc.value); }"
        );
        assert_eq!(
            map_rows(0, Key::Integer, Emitted::Number, 0, "m"),
            "function (doc) { /* m */ if (doc.nothing) { emit(doc.n * 10 + 0, null); } }"
        );
    }
}
