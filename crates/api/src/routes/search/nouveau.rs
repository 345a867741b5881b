//! `_nouveau` and related resources, compatible with CouchDB with its Nouveau server.

use hyper::StatusCode;
use settee_design::SearchKind;
use settee_edge::bridge::Output;
use settee_model::json::{self, Json, ObjectWriter, Value, append_object, write_array, write_string};
use settee_search::{Analyzer, Dialect, Hit, OrderValue, Relation};
use settee_settings::nouveau;

use super::{Asked, Documents, Found, analyzed, clean_up, write_counts, write_double, write_fields};
use crate::Error;
use crate::body;
use crate::bridge;
use crate::node::Node;
use crate::params::search::{SearchParams, nouveau as params};
use crate::request::Request;
use crate::respond::{self, Answer};
use crate::routes::views::write_build_error;

pub(crate) async fn get(request: Request) -> Answer {
    let asked = open(&request).await?;
    let params = params::from_query(&request.query)?;
    answer(&request, asked, params).await
}

pub(crate) async fn post(mut request: Request) -> Answer {
    let asked = open(&request).await?;
    let body = request.read_called_json().await?;
    let params = params::from_body(body.value(), &request.query)?;
    answer(&request, asked, params).await
}

pub(crate) async fn info(request: Request) -> Answer {
    let asked = open(&request).await?;
    let out = bridge::blocking(&request.threads, move || {
        let Asked { node, database, design, index, .. } = &asked;
        let info = node.searches.info(database, design, SearchKind::Nouveau, index)?;
        Ok(json::object(|object| {
            object.string("name", &format!("{}/{index}", design.id));
            object.object("search_index", |object| {
                object.value("update_seq", info.update_seq).value("purge_seq", info.purge_seq);
                object.value("num_docs", info.docs).value("disk_size", info.disk_bytes);
                object.string("signature", &info.signature);
            });
            write_build_error(info.failure, object);
        }))
    })
    .await?;
    Ok(respond::json(StatusCode::OK, out))
}

pub(crate) async fn incomplete_info(request: Request) -> Answer {
    open(&request).await?;
    Err(Error::bad_request("path not recognized"))
}

pub(crate) async fn cleanup(request: Request) -> Answer {
    body::require_json(&request.headers)?;
    require_enabled(&request.node)?;
    clean_up(&request).await?;
    Ok(respond::ok(StatusCode::ACCEPTED))
}

pub(crate) async fn analyze(mut request: Request) -> Answer {
    require_enabled(&request.node)?;
    let body = request.read_called_json().await?;
    let (analyzer, text) = analysis(&body)?;
    analyzed(&request, text, move || Ok(Analyzer::named(Dialect::Nouveau, &analyzer, None)?)).await
}

fn analysis(body: &Json) -> Result<(String, String), Error> {
    if !body.value().is_object() {
        return Err(Error::bad_request("Request body must be a JSON object"));
    }
    let part = |name| body.value().get(name).and_then(Value::as_str).map(std::borrow::Cow::into_owned);
    let (Some(analyzer), Some(text)) = (part("analyzer"), part("text")) else {
        return Err(Error::bad_request("'text' and 'analyzer' fields must be non-empty strings"));
    };
    for (name, value) in [("text", &text), ("analyzer", &analyzer)] {
        if value.is_empty() {
            return Err(Error::bad_request(format!("{name} must not be empty")));
        }
    }
    Ok((analyzer, text))
}

async fn open(request: &Request) -> Result<Asked, Error> {
    let asked = Asked::open(request, SearchKind::Nouveau).await?;
    require_enabled(&request.node)?;
    Ok(asked)
}

/// The resources do not exist if Nouveau is disabled.
fn require_enabled(node: &Node) -> Result<(), Error> {
    if nouveau::ENABLE.of(node.settings.as_ref()) { Ok(()) } else { Err(Error::not_found("missing")) }
}

async fn answer(request: &Request, asked: Asked, params: SearchParams) -> Answer {
    asked.answer(request, params, write).await
}

fn write(output: &mut Output, asked: &Asked, params: &SearchParams, found: &Found) -> Result<(), Error> {
    let Found { answer, update_latency_ms } = found;
    let relation = match answer.relation {
        Relation::EqualTo => "EQUAL_TO",
        Relation::GreaterThanOrEqualTo => "GREATER_THAN_OR_EQUAL_TO",
    };
    let total_hits = answer.total_hits;
    let head = format!("{{\"total_hits_relation\":\"{relation}\",\"total_hits\":{total_hits},\"hits\":[");
    output.text().extend_from_slice(head.as_bytes());
    let mut documents = Documents::of(asked);
    documents.write_hits(output, &answer.hits, params.include_docs, write_hit)?;
    output.text().extend_from_slice(b"],\"counts\":");
    write_counts(output, &answer.counts)?;
    output.text().extend_from_slice(b",\"ranges\":");
    write_counts(output, &answer.ranges)?;
    let out = output.text();
    out.extend_from_slice(b",\"bookmark\":");
    write_string(out, &answer.bookmark);
    out.extend_from_slice(b",\"update_latency\":");
    json::write_u64(out, *update_latency_ms);
    out.extend_from_slice(b"}\n");
    Ok(())
}

fn write_hit(object: &mut ObjectWriter<'_>, hit: &Hit) {
    write_array(object.name("order"), &hit.order, write_order);
    object.string("id", &hit.id);
    write_fields(object, hit);
}

fn write_order(out: &mut Vec<u8>, value: &OrderValue) {
    let mut write = |kind: &str, write: &dyn Fn(&mut Vec<u8>)| {
        append_object(out, |object| write(object.string("@type", kind).name("value")));
    };
    match value {
        OrderValue::Score(score) => write("float", &|out| write_double(out, f64::from(*score))),
        OrderValue::Double(number) => write("double", &|out| write_double(out, *number)),
        OrderValue::String(text) => write("string", &|out| write_string(out, text)),
        OrderValue::Null => write("null", &|out| out.extend_from_slice(b"null")),
    }
}
