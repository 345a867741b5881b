//! Mango: queries with selectors, and their indexes.

use std::ops::ControlFlow;
use std::sync::Arc;

use hyper::StatusCode;
use settee_database::Waiting;
use settee_edge::bridge::Output;
use settee_mango::index::edit::{self, NewIndex};
use settee_mango::{
    DocumentSink, FindOptions, Found, Outcome, Readers, TextSearch, explain as explain_plan, find as find_documents,
};
use settee_model::json::{self, Json, write_array, write_string};
use settee_settings::{dreyfus, nouveau};

use crate::Error;
use crate::bridge;
use crate::metrics::{Count, Metrics};
use crate::node::Node;
use crate::reads::reader;
use crate::request::Request;
use crate::respond::{self, Answer};
use crate::searching::Searches;

pub(super) async fn find(mut request: Request) -> Answer {
    let partition = asked_partition(&request);
    let body = read_object(&mut request).await?;
    let database = request.database()?;
    let node = Arc::clone(&request.node);
    let searching = Searches::of(&request);
    let (account, user) = (Arc::clone(&request.head.account), request.reader.clone());
    let is_small = is_small(&body);
    let write = move |output: &mut Output, waiting: Waiting<'_>| {
        let options = options(&body, partition.clone())?;
        let limits = searching.limits(&account);
        let begun_us = (node.operation.monotonic_us)();
        output.text().extend_from_slice(b"{\"docs\":[");
        let client = reader(output.account());
        let mut documents = Documents { output, first: true, flow: ControlFlow::Continue(()) };
        let (views, searches, client, search) = (&node.views, &node.searches, &client, served(&node));
        let readers = Readers { views, searches, limits: &limits, client, search, reader: &user, waiting };
        let outcome = find_documents(readers, &database, &options, &mut documents)?;
        if documents.flow.is_break() {
            return Ok(());
        }
        output.text().extend_from_slice(b"\r\n]");
        if let Outcome::Found(found) = outcome {
            count(&node.metrics, &found);
            let time_us = options.execution_stats.then(|| (node.operation.monotonic_us)().saturating_sub(begun_us));
            write_end(&found, time_us, output.text());
        }
        output.text().extend_from_slice(b"}\r\n\n");
        Ok(())
    };
    bridge::answer_if(is_small, request.admit_response(), write).await
}

/// Other queries may compute for long.
fn is_small(body: &Json) -> bool {
    let text = body.as_bytes();
    // A backslash could hide the operator.
    text.len() <= SMALL_BODY_BYTES && !text.contains(&b'\\') && !text.windows(REGEX.len()).any(|part| part == REGEX)
}

const SMALL_BODY_BYTES: usize = 4 << 10;
const REGEX: &[u8] = b"$regex";

pub(super) async fn explain(mut request: Request) -> Answer {
    let partition = asked_partition(&request);
    let body = read_object(&mut request).await?;
    let (database, search, user) = (request.database()?, served(&request.node), request.reader.clone());
    let write = move || Ok(explain_plan(&database, search, &options(&body, partition)?, &user)?);
    let text = bridge::blocking(&request.threads, write).await?;
    Ok(respond::json(StatusCode::OK, text))
}

pub(super) async fn list(request: Request) -> Answer {
    let (database, search) = (request.database()?, served(&request.node));
    let page = edit::page(request.query.get("limit"), request.query.get("skip")).ok_or_else(|| {
        let reason = "Index parameter ranges: limit > 1, skip > 0";
        Error::new(StatusCode::INTERNAL_SERVER_ERROR, "invalid_list_index_params", reason)
    })?;
    let text = bridge::blocking(&request.threads, move || {
        let mut out = Vec::new();
        edit::write_list(&database, search, page, &mut out)?;
        Ok(out)
    })
    .await?;
    Ok(respond::json(StatusCode::OK, text))
}

/// As in CouchDB the definition is validated before the user is authorized.
pub(super) async fn create(mut request: Request) -> Answer {
    let body = read_object(&mut request).await?;
    let (database, search) = (request.database()?, served(&request.node));
    let index = bridge::blocking(&request.threads, move || Ok(NewIndex::parse(body.value(), search)?)).await?;
    request.require_database_admin().await?;
    let created = bridge::blocking(&request.threads, move || Ok(edit::create(&database, &index)?)).await?;
    let result = if created.existed { "exists" } else { "created" };
    Ok(respond::object(StatusCode::OK, |object| {
        object.string("result", result).string("id", &created.id).string("name", &created.name);
    }))
}

/// The prefix of the design document is optional.
pub(super) async fn delete(request: Request) -> Answer {
    let (database, search) = (request.database()?, served(&request.node));
    let part = |name: &str| request.captures.get(name).to_owned();
    let (design, kind, name) = (part("ddoc"), part("type"), part("name"));
    bridge::blocking(&request.threads, move || Ok(edit::delete(&database, search, &design, &kind, &name)?)).await?;
    Ok(respond::ok(StatusCode::OK))
}

pub(super) async fn no_index(request: Request) -> Answer {
    request.database()?;
    Err(Error::not_found("missing"))
}

pub(super) async fn bulk_delete(mut request: Request) -> Answer {
    let body = read_object(&mut request).await?;
    let (database, search) = (request.database()?, served(&request.node));
    let ids = edit::parse_bulk_delete(body.value())?;
    let text = bridge::blocking(&request.threads, move || {
        let (mut success, mut fail) = (Vec::new(), Vec::new());
        for id in ids {
            match edit::delete_all_of(&database, search, &id).map_err(Error::from) {
                Ok(()) => success.push(json::object(|object| _ = object.string("id", &id).value("ok", true))),
                Err(error) => {
                    fail.push(json::object(|object| _ = object.string("id", &id).string("error", &error.name)));
                }
            }
        }
        Ok(json::object(|object| {
            for (name, list) in [("success", &success), ("fail", &fail)] {
                write_array(object.name(name), list, |out, item| out.extend_from_slice(item));
            }
        }))
    })
    .await?;
    Ok(respond::json(StatusCode::OK, text))
}

fn served(node: &Node) -> TextSearch {
    let settings = node.settings.as_ref();
    TextSearch { text: dreyfus::ENABLE.of(settings), nouveau: nouveau::ENABLE.of(settings) }
}

/// Returns the partition of the path or the query string. As in CouchDB other parameters are ignored.
fn asked_partition(request: &Request) -> Option<String> {
    request.query.get("partition").map(str::to_owned)
}

fn options(body: &Json, partition: Option<String>) -> Result<FindOptions, Error> {
    let options = FindOptions::parse(body.value())?;
    Ok(match partition {
        Some(partition) => options.within(partition)?,
        None => options,
    })
}

async fn read_object(request: &mut Request) -> Result<Json, Error> {
    let body = request.read_called_json().await?;
    if body.value().is_object() { Ok(body) } else { Err(Error::bad_request("Request body must be a JSON object")) }
}

struct Documents<'a> {
    output: &'a mut Output,
    first: bool,
    flow: ControlFlow<()>,
}

impl DocumentSink for Documents<'_> {
    fn document(&mut self, json: &[u8]) -> ControlFlow<()> {
        let out = self.output.text();
        out.extend_from_slice(if std::mem::take(&mut self.first) { b"\r\n" } else { b",\r\n" });
        out.extend_from_slice(json);
        self.flow = self.output.row_done();
        self.flow
    }
}

fn count(metrics: &Metrics, found: &Found) {
    metrics.add(Count::MangoKeysExamined, found.stats.keys_examined);
    metrics.add(Count::MangoDocsExamined, found.stats.docs_examined + found.stats.quorum_docs_examined);
    metrics.add(Count::MangoResults, found.stats.results_returned);
    for warning in found.warning.iter().flat_map(|warning| warning.lines()) {
        let unindexed = warning.starts_with("No matching index");
        metrics.count(if unindexed { Count::MangoUnindexed } else { Count::MangoManyScanned });
    }
}

fn write_end(found: &Found, time_us: Option<u64>, out: &mut Vec<u8>) {
    out.extend_from_slice(b",\r\n\"bookmark\": ");
    write_string(out, &found.bookmark);
    if let Some(time_us) = time_us {
        let stats = &found.stats;
        // The test suites of some clients require a value above 0.
        let (ms, fraction) = (time_us / 1000, time_us % 1000);
        let fraction = if time_us == 0 { 1 } else { fraction };
        out.extend_from_slice(
            format!(
                concat!(
                    ",\r\n\"execution_stats\": {{\"total_keys_examined\":{},\"total_docs_examined\":{},",
                    "\"total_quorum_docs_examined\":{},\"results_returned\":{},\"execution_time_ms\":{}.{:03}}}"
                ),
                stats.keys_examined,
                stats.docs_examined,
                stats.quorum_docs_examined,
                stats.results_returned,
                ms,
                fraction
            )
            .as_bytes(),
        );
    }
    if let Some(warning) = &found.warning {
        out.extend_from_slice(b",\r\n\"warning\": ");
        write_string(out, warning);
    }
}
