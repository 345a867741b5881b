//! Validation of design documents before they are saved.

use std::sync::Arc;

use hyper::StatusCode;
use settee_database::{Database, DocUpdate, EditMode, Layout};
use settee_design::{CompileError, DesignDocument, Language, Limits, MapSource, validate_members, with_lucene_version};
use settee_model::Document;
use settee_model::json::Json;
use settee_threads::Threads;

use crate::node::Node;
use crate::{Error, bridge};

/// As in CouchDB an unsupported language is accepted, and queries of its views report it.
pub(crate) async fn validate(
    (node, threads): (&Node, &Threads),
    database: &Database,
    body: &Json,
) -> Result<(), Error> {
    let invalid = |reason: String| Error::new(StatusCode::BAD_REQUEST, "invalid_design_doc", reason);
    validate_members(body.value()).map_err(|member| invalid(member.to_string()))?;
    let mut design = DesignDocument::parse("", body.value()).map_err(|member| invalid(member.to_string()))?;
    if design.partitioned == Some(true) && database.layout() == Layout::Whole {
        return Err(invalid("partitioned option cannot be true in a non-partitioned database.".to_owned()));
    }
    if let Some(unknown) =
        design.views.iter().filter_map(|view| view.reduce.as_deref()).find(|reduce| is_unknown(reduce))
    {
        return Err(invalid(settee_views::unsupported_reduce(unknown)));
    }
    let Some(language) = node.programs.language(&design.language) else {
        return Ok(());
    };
    if let Some(function) = body.value().get("validate_doc_update") {
        language.check_validation(function).map_err(|error| not_compiled("validate_doc_update function", &error))?;
    }
    if design.views.is_empty() {
        return Ok(());
    }
    design.embed_modules(|_| Ok::<_, Error>(None))?;
    bridge::blocking(threads, move || compile(language.as_ref(), &design)).await
}

/// CouchDB neither authorizes nor validates a stored revision.
pub(super) async fn is_stored(
    threads: &Threads,
    database: &Arc<Database>,
    update: &DocUpdate,
    mode: EditMode,
) -> Result<bool, Error> {
    let EditMode::Replicated = mode else { return Ok(false) };
    let Some(rev) = update.path().first().cloned() else { return Ok(false) };
    let (database, id) = (Arc::clone(database), update.id().to_owned());
    bridge::blocking(threads, move || {
        let record = database.read()?.record(&id)?;
        let found = record.as_ref().and_then(|record| Some(record.tree.node(record.tree.find(&rev)?)));
        Ok(found.is_some_and(|node| node.value.is_some()))
    })
    .await
}

/// Adds CouchDB's additional members to a new design document.
pub(crate) fn complete(id: &str, document: &mut Document, mode: EditMode) {
    let is_new = document.rev.is_none() && !document.deleted && mode == EditMode::Interactive;
    if is_new
        && id.starts_with("_design/")
        && let Some(body) = with_lucene_version(document.body.value())
    {
        document.body = Json::trusted(body);
    }
}

/// Returns true if a reduce function has the form of a built-in one but does not exist.
pub(super) fn is_unknown(reduce: &str) -> bool {
    is_builtin(reduce) && !settee_views::is_builtin_reduce(reduce)
}

pub(super) fn compile(language: &dyn Language, design: &DesignDocument) -> Result<(), Error> {
    let limits = Limits::default();
    // Functions in attachments may not be stored yet; the first query compiles them.
    for view in &design.views {
        if view.map.is_empty() || view.reduce.as_deref() == Some("") {
            return Err(Error::not_found("missing function"));
        }
        let source = MapSource { functions: vec![Arc::clone(&view.map)], library: design.library.clone() };
        if !design.awaits_attachment(&view.map) {
            language.program(&source, limits).map_err(|error| failed("map", &view.name, &error))?;
        }
        if let Some(reduce) = view.reduce.as_deref().filter(|reduce| !is_builtin(reduce)) {
            if design.awaits_attachment(reduce) {
                continue;
            }
            language.reducer(reduce, limits).map_err(|error| failed("reduce", &view.name, &error))?;
        }
    }
    Ok(())
}

fn is_builtin(reduce: &str) -> bool {
    reduce.starts_with('_')
}

fn failed(kind: &str, view: &str, error: &CompileError) -> Error {
    not_compiled(&format!("{kind} function in the '{view}' view"), error)
}

fn not_compiled(function: &str, error: &CompileError) -> Error {
    match error {
        CompileError::Source(reason) => Error::new(
            StatusCode::BAD_REQUEST,
            "compilation_error",
            format!("Compilation of the {function} failed: {reason}"),
        ),
        CompileError::Unavailable(reason) => Error::internal(reason.clone()),
    }
}

#[cfg(test)]
mod tests;
