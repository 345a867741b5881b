//! Indexes on the memory engine.
#![expect(clippy::unwrap_used, reason = "tests")]

mod crashes;
mod golden;
mod limits;
mod model;
mod searches;
mod vectors;
mod visible;

use std::sync::atomic::{AtomicU64, Ordering};

use settee_storage::CommitToken;
use settee_storage_testing::engine;

use super::*;
use crate::analysis::{Analyzer, Analyzers, Dialect};
use crate::field::{Field, FieldOptions, FieldValue, StoredValue};

pub(super) const SHARD: Shard = Shard(7);

pub(super) fn definition(default: &str, fields: &[(&str, &str)]) -> Definition {
    let named = |name| Analyzer::named(Dialect::Nouveau, name, None).unwrap();
    let fields = fields.iter().map(|(field, name)| ((*field).to_owned(), named(name))).collect();
    let analyzers = Analyzers { default: named(default), fields };
    Definition { dialect: Dialect::Nouveau, analyzers, vectors: Vec::new() }
}

pub(super) fn index_on(engine: Arc<dyn Engine>, definition: Definition) -> Index {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let new_token = || CommitToken(u128::from(NEXT.fetch_add(1, Ordering::Relaxed)));
    Index::new(engine, SHARD, definition, Arc::new(new_token), Arc::new(Caches::new(1 << 20, 1 << 20)))
}

pub(super) fn verified(index: &Index) -> Result<()> {
    crate::verify(index.inner.file_store.engine(), SHARD)
}

pub(super) fn new_index(definition: Definition) -> Index {
    index_on(engine(), definition)
}

fn field(name: &str, value: FieldValue) -> Field {
    Field { name: name.to_owned(), value, options: FieldOptions::default() }
}

pub(super) fn text(name: &str, value: &str) -> Field {
    field(name, FieldValue::Text(value.to_owned()))
}

pub(super) fn string(name: &str, value: &str) -> Field {
    field(name, FieldValue::String(value.to_owned()))
}

pub(super) fn double(name: &str, value: f64) -> Field {
    field(name, FieldValue::Double(value))
}

pub(super) fn kept(field: Field) -> Field {
    Field { options: FieldOptions { store: true, ..field.options }, ..field }
}

pub(super) fn write(index: &Index, documents: &[(&str, Vec<Field>)]) {
    let mut writer = index.writer(0).unwrap().unwrap();
    for (id, fields) in documents {
        writer.update(id, id.split_once(':').map(|(partition, _)| partition), fields.clone()).unwrap();
    }
    writer.commit(b"position").unwrap();
}

pub(super) fn request(index: &Index, query: &str, sort: &str) -> Result<Request> {
    let mut request = Request::new(index.parse(query, Locale::default(), &SearchLimits::none())?);
    request.sort = sort.split_whitespace().map(crate::Sort::parse).collect::<Result<_>>()?;
    Ok(request)
}

pub(super) fn ids(answer: &Answer) -> String {
    answer.hits.iter().map(|hit| hit.id.as_str()).collect::<Vec<_>>().join(" ")
}

pub(super) fn find(index: &Index, query: &str) -> String {
    match request(index, query, "_id").and_then(|request| index.search(&request, &SearchLimits::none())) {
        Ok(answer) => ids(&answer),
        Err(error) => format!("! {error}"),
    }
}

pub(super) fn vector(name: &str, value: &[f32]) -> Field {
    field(name, FieldValue::Vector(value.to_vec()))
}

fn number(number: f64) -> Field {
    field("x", FieldValue::Stored(StoredValue::Double(number)))
}

pub(super) fn animals() -> Index {
    let index = new_index(definition("standard", &[("s", "keyword"), ("k", "keyword"), ("e", "english")]));
    let both = |words: &str| vec![text("default", words), text("e", words)];
    let rest = |s: &str, n: f64, k: &str| vec![string("s", s), kept(string("k", k)), double("n", n)];
    let x = field("x", FieldValue::Stored(StoredValue::String("foo".to_owned())));
    write(
        &index,
        &[
            (
                "a",
                [both("The quick brown fox jumps over the lazy dog"), rest("Alpha", 1.0, "animal"), vec![x]].concat(),
            ),
            ("b", [both("quick brown cats and dogs"), rest("beta gamma", 2.5, "animal"), vec![number(7.0)]].concat()),
            ("c", [both("A slow fox"), rest("Gamma", -3.0, "animal")].concat()),
            (
                "d",
                [both("user@example.com wrote 3.14 times: naïve Été, x-y"), rest("Éa", 10_000_000_000.0, "text")]
                    .concat(),
            ),
            ("e", vec![double("n", 0.0), kept(string("k", "none"))]),
            ("f", [both("database date dates data"), rest("alpha", 42.0, "text")].concat()),
        ],
    );
    index
}
