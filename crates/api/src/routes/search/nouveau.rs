//! `_nouveau` and related resources, compatible with CouchDB with its Nouveau server.

use hyper::StatusCode;
use settee_design::SearchKind;
use settee_edge::bridge::Output;
use settee_model::json::{self, Json, Value, write_array, write_object, write_string};
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

/// `GET /{db}/_design/{ddoc}/_nouveau/{index}`
pub(crate) async fn get(request: Request) -> Answer {
    let asked = open(&request).await?;
    let params = params::from_query(&request.query)?;
    answer(&request, asked, params).await
}

/// `POST /{db}/_design/{ddoc}/_nouveau/{index}`
pub(crate) async fn post(mut request: Request) -> Answer {
    let asked = open(&request).await?;
    let body = request.read_called_json().await?;
    let params = params::from_body(body.value(), &request.query)?;
    answer(&request, asked, params).await
}

/// `GET /{db}/_design/{ddoc}/_nouveau_info/{index}`
pub(crate) async fn info(request: Request) -> Answer {
    let asked = open(&request).await?;
    let out = bridge::blocking(move || {
        let Asked { node, database, design, index, .. } = &asked;
        let info = node.searches.info(database, design, SearchKind::Nouveau, index)?;
        let mut out = b"{\"name\":".to_vec();
        write_string(&mut out, &format!("{}/{index}", design.id));
        let (seq, purge_seq, docs, bytes) = (info.update_seq, info.purge_seq, info.docs, info.disk_bytes);
        let numbers = format!(
            ",\"search_index\":{{\"update_seq\":{seq},\"purge_seq\":{purge_seq},\"num_docs\":{docs},\"disk_size\":{bytes}"
        );
        out.extend_from_slice(numbers.as_bytes());
        out.extend_from_slice(b",\"signature\":");
        write_string(&mut out, &info.signature);
        out.push(b'}');
        write_build_error(info.failure, &mut out);
        out.push(b'}');
        Ok(out)
    })
    .await?;
    Ok(respond::json(StatusCode::OK, out))
}

/// `_nouveau_info` without an index, or with further segments.
pub(crate) async fn incomplete_info(request: Request) -> Answer {
    open(&request).await?;
    Err(Error::bad_request("path not recognized"))
}

/// `POST /{db}/_nouveau_cleanup`
pub(crate) async fn cleanup(request: Request) -> Answer {
    body::require_json(&request.headers)?;
    require_enabled(&request.node)?;
    clean_up(&request).await?;
    Ok(respond::ok(StatusCode::ACCEPTED))
}

/// `POST /_nouveau_analyze`
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

/// Returns an error if Nouveau is disabled; its resources then do not exist.
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
    let mut documents = Documents { database: &asked.database, opened: None };
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

/// Appends a hit without its closing brace.
fn write_hit(out: &mut Vec<u8>, hit: &Hit) {
    out.extend_from_slice(b"{\"order\":");
    write_array(out, &hit.order, write_order);
    out.extend_from_slice(b",\"id\":");
    write_string(out, &hit.id);
    out.extend_from_slice(b",\"fields\":");
    write_fields(out, &hit.fields);
    if !hit.highlights.is_empty() {
        out.extend_from_slice(b",\"highlights\":");
        super::write_highlights(out, &hit.highlights);
    }
}

fn write_order(out: &mut Vec<u8>, value: &OrderValue) {
    let mut write = |kind: &str, write: &dyn Fn(&mut Vec<u8>)| {
        let members = [("@type", None), ("value", Some(write))];
        write_object(out, members, |out, value| match value {
            Some(write) => write(out),
            None => write_string(out, kind),
        });
    };
    match value {
        OrderValue::Score(score) => write("float", &|out| write_double(out, f64::from(*score))),
        OrderValue::Double(number) => write("double", &|out| write_double(out, *number)),
        OrderValue::String(text) => write("string", &|out| write_string(out, text)),
        OrderValue::Null => write("null", &|out| out.extend_from_slice(b"null")),
    }
}
