//! Views without a design document: `_view_test` maps a few documents and reports the costs. `_temp_view` uses
//! the same parsing and compilation.

use std::sync::Arc;

use hyper::StatusCode;
use settee_database::{Database, Direction, IdRange, ReadView};
use settee_design::{DesignDocument, DesignOptions, DocumentBatch, Limits, Swap, ViewDefinition};
use settee_model::collate::Collation;
use settee_model::json::{Kind, Value, write_array, write_string};
use settee_views::{Trial, TrialLimits};

use super::all_docs::text;
use super::design;
use crate::node::Node;
use crate::request::Request;
use crate::respond::{self, Answer};
use crate::{Error, bridge};

/// Name of the only view of a temporary design document.
pub(super) const VIEW: &str = "temp";

/// Default and maximum number of mapped documents.
const SAMPLE: u64 = 100;
const SAMPLE_MAX: u64 = 1000;
/// Maximum number of bytes of these documents; the last one may exceed it.
const SAMPLE_BYTES: usize = 16 << 20;

/// Returns the limits of a test run, which is interactive and returns a limited result.
fn limits(functions: Limits) -> TrialLimits {
    let functions = Limits { timeout_ms: 2_000, ..functions };
    TrialLimits { functions, time_us: 5_000_000, answers: 1000, emitted_bytes: 32 << 20 }
}

/// `POST /{db}/_view_test`
pub(super) async fn view_test(mut request: Request) -> Answer {
    let database = request.database()?;
    let body = request.read_called_json().await?;
    let design = design(body.value())?;
    compile(&request.node, &design).await?;
    let sample = sample_size(body.value())?;
    let views = Arc::clone(&request.node.views);
    let out = bridge::blocking(move || {
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

/// Returns the design document of a body with `map`, `reduce`, `language` and `options`.
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

/// Returns an error for functions that are invalid in a design document, with the same message. The caller
/// refuses an unsupported language.
pub(super) async fn compile(node: &Arc<Node>, design: &DesignDocument) -> Result<(), Error> {
    if let Some(unknown) = design.views[0].reduce.as_deref().filter(|reduce| design::is_unknown(reduce)) {
        let reason = settee_views::unsupported_reduce(unknown);
        return Err(Error::new(StatusCode::BAD_REQUEST, "invalid_design_doc", reason));
    }
    let Some(language) = node.programs.language(&design.language) else { return Ok(()) };
    let design = design.clone();
    bridge::blocking(move || design::compile(language.as_ref(), &design)).await
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
    let total = view.counts()?.0;
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
fn conflicts(view: &ReadView, id: &str) -> Result<Vec<u8>, Error> {
    let mut out = Vec::new();
    if let Some(record) = view.record(id)? {
        record.write_conflicts(&mut out);
    }
    Ok(out)
}

fn trial_text(trial: &Trial, language: &str) -> Vec<u8> {
    let Trial { documents, document_bytes, rows, emitted_bytes, map_us, reduce_us, .. } = trial;
    let each = |sum: u64| sum as f64 / (*documents).max(1) as f64;
    let mut out = br#"{"language":"#.to_vec();
    write_string(&mut out, language);
    out.extend_from_slice(br#","engine":"#);
    write_string(&mut out, trial.engine.map_or(language, |engine| engine.name));
    if let Some(reason) = trial.engine.and_then(|engine| engine.reason) {
        out.extend_from_slice(br#","engine_reason":"#);
        write_string(&mut out, reason);
    }
    for (number, bail_out) in trial.bail_outs.iter().enumerate() {
        out.extend_from_slice(if number == 0 { br#","bail_outs":{"# } else { b"," });
        write_string(&mut out, bail_out.reason);
        out.extend_from_slice(format!(":{}", bail_out.documents).as_bytes());
    }
    if !trial.bail_outs.is_empty() {
        out.push(b'}');
    }
    out.extend_from_slice(
        format!(
            concat!(
                r#","documents":{},"total_rows":{},"map_us":{},"reduce_us":{},"per_document":{{"map_us":{:.1},"#,
                r#""bytes":{:.0},"rows":{:.2},"emitted_bytes":{:.0}}},"timed_out":{},"rows":"#
            ),
            documents,
            rows,
            map_us,
            reduce_us,
            each(*map_us),
            each(*document_bytes),
            each(*rows),
            each(*emitted_bytes),
            trial.timed_out,
        )
        .as_bytes(),
    );
    write_array(&mut out, &trial.shown, |out, (id, key, value)| {
        out.extend_from_slice(br#"{"id":"#);
        write_string(out, id);
        for (name, text) in [("key", key), ("value", value)] {
            out.extend_from_slice(format!(r#","{name}":"#).as_bytes());
            out.extend_from_slice(text);
        }
        out.push(b'}');
    });
    out.extend_from_slice(br#","reduction":"#);
    out.extend_from_slice(trial.reduction.as_deref().unwrap_or(b"null"));
    out.extend_from_slice(br#","errors":"#);
    let ended = trial.ended.as_ref().map(|(id, error)| (id.clone(), Error::from(error.clone())));
    let thrown = trial.failures.iter().map(|(id, message)| (Some(id.clone()), "exception".into(), message.clone()));
    let fatal = ended.map(|(id, error)| (id, error.name.clone(), error.reason.to_string()));
    let errors: Vec<(Option<String>, std::borrow::Cow<'static, str>, String)> = thrown.chain(fatal).collect();
    write_array(&mut out, &errors, |out, (id, name, reason)| {
        out.extend_from_slice(br#"{"id":"#);
        match id {
            Some(id) => write_string(out, id),
            None => out.extend_from_slice(b"null"),
        }
        out.extend_from_slice(br#","error":"#);
        write_string(out, name);
        out.extend_from_slice(br#","reason":"#);
        write_string(out, reason);
        out.push(b'}');
    });
    out.extend_from_slice(br#","log":"#);
    write_array(&mut out, &trial.log, |out, line| write_string(out, line));
    out.push(b'}');
    out
}
