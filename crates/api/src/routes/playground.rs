//! Views without a design document: `_view_test` maps a few documents and reports the costs.

use std::sync::Arc;

use hyper::StatusCode;
use settee_database::{Database, Direction, IdRange, ReadView};
use settee_design::{DesignDocument, DesignOptions, DocumentBatch, Limits, Swap, ViewDefinition};
use settee_model::collate::Collation;
use settee_model::json::{self, Kind, Value, append_object, write_array};
use settee_views::{Trial, TrialLimits};

use super::all_docs::text;
use super::design;
use crate::request::Request;
use crate::respond::{self, Answer};
use crate::{Error, bridge};

pub(super) const VIEW: &str = "temp";

/// Default and maximum number of mapped documents.
const SAMPLE: u64 = 100;
const SAMPLE_MAX: u64 = 1000;
/// Maximum number of bytes of these documents; the last one may exceed it.
const SAMPLE_BYTES: usize = 16 << 20;

/// A test run is interactive and returns a limited result.
fn limits(functions: Limits) -> TrialLimits {
    let functions = Limits { timeout_ms: 2_000, ..functions };
    TrialLimits { functions, time_us: 5_000_000, answers: 1000, emitted_bytes: 32 << 20 }
}

pub(super) async fn view_test(mut request: Request) -> Answer {
    let database = request.database()?;
    let body = request.read_called_json().await?;
    let design = design(body.value())?;
    compile(&request, &design).await?;
    let sample = sample_size(body.value())?;
    let views = Arc::clone(&request.node.views);
    let out = bridge::blocking(&request.threads, move || {
        let documents = match body.value().get("documents") {
            Some(documents) => given(documents)?,
            None => sampled(&database, sample, design.options)?,
        };
        let trial = views.try_out(&design, &documents, limits(views.limits()))?;
        Ok(trial_text(&trial, &design.language))
    })
    .await?;
    Ok(respond::json(StatusCode::OK, out))
}

pub(super) fn design(body: Value<'_>) -> Result<DesignDocument, Error> {
    if body.kind() != Kind::Object {
        return Err(Error::bad_request("Request body must be a JSON object"));
    }
    let map = body.get("map").and_then(text);
    let map = map.ok_or_else(|| Error::bad_request("A temporary view needs a `map` function."))?;
    let options = body.get("options");
    let option = |name: &str| options.and_then(|options| options.get(name));
    let is_true = |name: &str| option(name).and_then(Value::as_bool).unwrap_or(false);
    let raw = option("collation").and_then(text).as_deref() == Some("raw");
    let view = ViewDefinition {
        name: VIEW.into(),
        map: map.into(),
        reduce: body.get("reduce").and_then(text).map(Arc::from),
        collation: if raw { Collation::Raw } else { Collation::Unicode },
    };
    let mut design = DesignDocument {
        id: "_design/_temp_view".into(),
        language: body.get("language").and_then(text).unwrap_or_else(|| "javascript".to_owned()).into(),
        library: None,
        options: DesignOptions { include_design: is_true("include_design"), local_seq: is_true("local_seq") },
        views: vec![view],
        searches: Vec::new(),
        partitioned: Some(false),
        autoupdate: false,
        swap: Swap::Never,
    };
    // The design document has no attachments.
    design.embed_modules(|_| Ok::<_, Error>(None))?;
    Ok(design)
}

/// The messages are those of a design document. The caller refuses an unsupported language.
pub(super) async fn compile(request: &Request, design: &DesignDocument) -> Result<(), Error> {
    if let Some(unknown) = design.views[0].reduce.as_deref().filter(|reduce| design::is_unknown(reduce)) {
        let reason = settee_views::unsupported_reduce(unknown);
        return Err(Error::new(StatusCode::BAD_REQUEST, "invalid_design_doc", reason));
    }
    let Some(language) = request.node.programs.language(&design.language) else { return Ok(()) };
    let design = design.clone();
    bridge::blocking(&request.threads, move || design::compile(language.as_ref(), &design)).await
}

fn sample_size(body: Value<'_>) -> Result<u64, Error> {
    match body.get("sample") {
        None => Ok(SAMPLE),
        Some(sample) => sample
            .as_u64()
            .filter(|&sample| sample <= SAMPLE_MAX)
            .ok_or_else(|| Error::bad_request(format!("`sample` must be a number of documents up to {SAMPLE_MAX}"))),
    }
}

fn given(documents: Value<'_>) -> Result<DocumentBatch, Error> {
    if documents.kind() != Kind::Array || documents.elements().count() as u64 > SAMPLE_MAX {
        return Err(Error::bad_request(format!("`documents` must be an array of up to {SAMPLE_MAX} documents")));
    }
    let mut batch = DocumentBatch::new();
    for (number, document) in (1..).zip(documents.elements()) {
        if document.kind() != Kind::Object {
            return Err(Error::bad_request("`documents` must hold objects"));
        }
        let id = document.get("_id").and_then(text).unwrap_or_else(|| format!("document {number}"));
        push(&mut batch, number, &id, document.raw());
    }
    Ok(batch)
}

fn push(batch: &mut DocumentBatch, seq: u64, id: &str, json: &[u8]) {
    let pushed = batch.push_with(seq, id, |out| {
        out.extend_from_slice(json);
        Ok::<_, std::convert::Infallible>(())
    });
    pushed.unwrap_or_else(|never| match never {});
}

/// Returns documents of the database at equal distances in the order of their ids.
fn sampled(database: &Arc<Database>, sample: u64, options: DesignOptions) -> Result<DocumentBatch, Error> {
    let view = database.read()?;
    let total = view.doc_count()?;
    let step = total.checked_div(sample).unwrap_or(0).max(1);
    let mut batch = DocumentBatch::new();
    let (mut at, mut json) = (0, Vec::new());
    while at < total && (batch.len() as u64) < sample && batch.size_bytes() < SAMPLE_BYTES {
        let mut rows = view.all_docs(&IdRange { start: None, end: None }, Direction::Forward)?;
        rows.skip(at)?;
        // Without distances one scan is sufficient.
        while let Some(row) = rows.next()? {
            at += step;
            json.clear();
            let is_seen = options.include_design || !row.id.starts_with("_design/");
            let conflicts = if row.head.has_conflicts { conflicts(&view, row.id)? } else { Vec::new() };
            let members = |out: &mut Vec<u8>| out.extend_from_slice(&conflicts);
            if is_seen && view.write_document(&mut json, row.id, &row.head.rev, row.head.stored, members)? {
                push(&mut batch, at, row.id, &json);
            }
            if step > 1 || batch.len() as u64 == sample || batch.size_bytes() >= SAMPLE_BYTES {
                break;
            }
        }
    }
    Ok(batch)
}

/// Returns the members with the other leaves of a document, which map functions receive.
fn conflicts(view: &ReadView<'_>, id: &str) -> Result<Vec<u8>, Error> {
    let mut out = Vec::new();
    if let Some(record) = view.record(id)? {
        record.write_conflicts(&mut out);
    }
    Ok(out)
}

fn trial_text(trial: &Trial, language: &str) -> Vec<u8> {
    let Trial { documents, document_bytes, rows, emitted_bytes, map_us, reduce_us, .. } = trial;
    let each = |sum: u64| sum as f64 / (*documents).max(1) as f64;
    let ended = trial.ended.as_ref().map(|(id, error)| (id.clone(), Error::from(error.clone())));
    let thrown = trial.failures.iter().map(|(id, message)| (Some(id.clone()), "exception".into(), message.clone()));
    let fatal = ended.map(|(id, error)| (id, error.name.clone(), error.reason.to_string()));
    let errors: Vec<(Option<String>, std::borrow::Cow<'static, str>, String)> = thrown.chain(fatal).collect();
    json::object(|object| {
        object.string("language", language);
        object.string("engine", trial.engine.map_or(language, |engine| engine.name));
        if let Some(reason) = trial.engine.and_then(|engine| engine.reason) {
            object.string("engine_reason", reason);
        }
        if !trial.bail_outs.is_empty() {
            object.object("bail_outs", |reasons| {
                trial.bail_outs.iter().for_each(|bail_out| _ = reasons.value(bail_out.reason, bail_out.documents));
            });
        }
        object.value("documents", documents).value("total_rows", rows);
        object.value("map_us", map_us).value("reduce_us", reduce_us);
        object.object("per_document", |means| {
            means.value("map_us", format_args!("{:.1}", each(*map_us)));
            means.value("bytes", format_args!("{:.0}", each(*document_bytes)));
            means.value("rows", format_args!("{:.2}", each(*rows)));
            means.value("emitted_bytes", format_args!("{:.0}", each(*emitted_bytes)));
        });
        object.value("timed_out", trial.timed_out);
        write_array(object.name("rows"), &trial.first_rows, |out, (id, key, value)| {
            append_object(out, |row| _ = row.string("id", id).json("key", key).json("value", value));
        });
        object.json("reduction", trial.reduction.as_deref().unwrap_or(b"null"));
        write_array(object.name("errors"), &errors, |out, (id, name, reason)| {
            append_object(out, |error| {
                error.string_or_null("id", id.as_deref()).string("error", name).string("reason", reason);
            });
        });
        object.strings("log", &trial.log);
    })
}
