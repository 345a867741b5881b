//! `_search` and related resources, compatible with CouchDB with Clouseau and with Cloudant.

use hyper::StatusCode;
use settee_design::SearchKind;
use settee_edge::bridge::Output;
use settee_model::json::{self, Json, Kind, ObjectWriter, Value, write_array, write_string};
use settee_search::{Dialect, Group, Hit, OrderValue, analyzer_of};
use settee_settings::dreyfus;
use settee_views::layout_of;

use super::{Asked, Documents, Found, analyzed, clean_up, write_counts, write_double, write_fields};
use crate::Error;
use crate::bridge;
use crate::node::Node;
use crate::params::search::{SearchParams, clouseau as params};
use crate::request::Request;
use crate::respond::{self, Answer};
use crate::routes::views::write_build_error;

pub(crate) async fn get(request: Request) -> Answer {
    let asked = open(&request).await?;
    let params = params::from_query(&request.query, request.node.settings.as_ref())?;
    let params = params.check(asked.database.layout(), layout_of(asked.database.layout(), &asked.design))?;
    answer(&request, asked, params).await
}

pub(crate) async fn post(mut request: Request) -> Answer {
    let asked = open(&request).await?;
    let body = request.read_json().await?;
    let params = params::from_body(body.value(), &request.query, request.node.settings.as_ref())?;
    let params = params.check(asked.database.layout(), layout_of(asked.database.layout(), &asked.design))?;
    answer(&request, asked, params).await
}

pub(crate) async fn info(request: Request) -> Answer {
    described(&request, |object, info, pending_seq| {
        object.value("pending_seq", pending_seq).value("doc_del_count", info.deleted_docs);
        object.value("doc_count", info.docs).value("disk_size", info.disk_bytes);
        object.value("committed_seq", info.update_seq).string("signature", &info.signature);
    })
    .await
}

pub(crate) async fn disk_size(request: Request) -> Answer {
    described(&request, |object, info, _| _ = object.value("disk_size", info.disk_bytes)).await
}

pub(crate) async fn incomplete(request: Request) -> Answer {
    open(&request).await?;
    Err(Error::bad_request("path not recognized"))
}

/// As in CouchDB it has no effect while search is disabled.
pub(crate) async fn cleanup(request: Request) -> Answer {
    if dreyfus::ENABLE.of(request.node.settings.as_ref()) {
        clean_up(&request).await?;
    }
    Ok(respond::ok(StatusCode::ACCEPTED))
}

pub(crate) async fn get_analysis(request: Request) -> Answer {
    require_enabled(&request.node)?;
    let analyzer = request.query.get("analyzer").map(|name| {
        let mut text = Vec::new();
        write_string(&mut text, name);
        Json::trusted(text)
    });
    let text = request.query.get("text").map(str::to_owned);
    analyze(&request, analyzer, text).await
}

pub(crate) async fn post_analysis(mut request: Request) -> Answer {
    require_enabled(&request.node)?;
    let body = request.read_called_json().await?;
    let copy = |value: Value<'_>| Json::trusted(value.raw().to_vec());
    let text = match body.value().get("text") {
        None => None,
        Some(text) => {
            let text = text.as_str().ok_or_else(|| Error::bad_request("text parameter must be a string"))?;
            Some(text.into_owned())
        }
    };
    analyze(&request, body.value().get("analyzer").map(copy), text).await
}

async fn analyze(request: &Request, analyzer: Option<Json>, text: Option<String>) -> Answer {
    let analyzer = analyzer.ok_or_else(|| Error::bad_request("analyzer parameter is mandatory"))?;
    if !matches!(analyzer.value().kind(), Kind::String | Kind::Object) {
        return Err(Error::bad_request("analyzer parameter must be a string or an object"));
    }
    let text = text.ok_or_else(|| Error::bad_request("text parameter is mandatory"))?;
    analyzed(request, text, move || Ok(analyzer_of(Dialect::Clouseau, analyzer.value())?)).await
}

async fn open(request: &Request) -> Result<Asked, Error> {
    let asked = Asked::open(request, SearchKind::Clouseau).await?;
    require_enabled(&request.node)?;
    Ok(asked)
}

/// Returns the error of CouchDB without Clouseau if search is disabled.
fn require_enabled(node: &Node) -> Result<(), Error> {
    if dreyfus::ENABLE.of(node.settings.as_ref()) {
        return Ok(());
    }
    Err(Error::new(StatusCode::SERVICE_UNAVAILABLE, "service unavailable", "Search is not available"))
}

async fn described(
    request: &Request,
    write: impl FnOnce(&mut ObjectWriter<'_>, &settee_search::SearchInfo, u64) + Send + 'static,
) -> Answer {
    let asked = open(request).await?;
    let out = bridge::blocking(&request.threads, move || {
        let Asked { node, database, design, index, .. } = &asked;
        let info = node.searches.info(database, design, SearchKind::Clouseau, index)?;
        let pending_seq = database.read()?.update_seq()?;
        Ok(json::object(|object| {
            object.string("name", &format!("{}/{index}", design.id));
            object.object("search_index", |object| write(object, &info, pending_seq));
            write_build_error(info.failure, object);
        }))
    })
    .await?;
    Ok(respond::json(StatusCode::OK, out))
}

async fn answer(request: &Request, asked: Asked, params: SearchParams) -> Answer {
    let write = |output: &mut Output, asked: &Asked, params: &SearchParams, found: &Found| match &found.answer.groups {
        Some(groups) => write_groups(output, asked, params, found, groups),
        None => write(output, asked, params, found),
    };
    asked.answer(request, params, write).await
}

fn write(output: &mut Output, asked: &Asked, params: &SearchParams, found: &Found) -> Result<(), Error> {
    let Found { answer, .. } = found;
    let out = output.text();
    out.extend_from_slice(format!("{{\"total_rows\":{},\"bookmark\":", answer.total_hits).as_bytes());
    write_string(out, &answer.bookmark);
    out.extend_from_slice(b",\"rows\":[");
    let mut documents = Documents::of(asked);
    documents.write_hits(output, &answer.hits, params.include_docs, write_hit)?;
    output.text().push(b']');
    if !params.counts.is_empty() {
        output.text().extend_from_slice(b",\"counts\":");
        write_counts(output, &answer.counts)?;
    }
    if !params.ranges.is_empty() {
        output.text().extend_from_slice(b",\"ranges\":");
        write_counts(output, &answer.ranges)?;
    }
    output.text().extend_from_slice(b"}\n");
    Ok(())
}

fn write_groups(
    output: &mut Output,
    asked: &Asked,
    params: &SearchParams,
    found: &Found,
    groups: &[Group],
) -> Result<(), Error> {
    let (total, hits) = if params.has_old_groups { ("total_hits", "hits") } else { ("total_rows", "rows") };
    let out = output.text();
    out.extend_from_slice(format!("{{\"{total}\":{}", found.answer.total_hits).as_bytes());
    if params.has_old_groups {
        let grouped: u64 = groups.iter().map(|group| group.total_hits).sum();
        out.extend_from_slice(format!(",\"total_grouped_hits\":{grouped}").as_bytes());
    }
    out.extend_from_slice(b",\"groups\":[");
    let mut documents = Documents::of(asked);
    for (number, group) in groups.iter().enumerate() {
        let out = output.text();
        out.extend_from_slice(if number == 0 { b"{\"by\":" } else { b",{\"by\":" });
        match &group.by {
            Some(value) => write_string(out, value),
            None => out.extend_from_slice(b"null"),
        }
        out.extend_from_slice(format!(",\"{total}\":{},\"{hits}\":[", group.total_hits).as_bytes());
        documents.write_hits(output, &group.hits, params.include_docs, write_hit)?;
        output.text().extend_from_slice(b"]}");
    }
    output.text().extend_from_slice(b"]}\n");
    Ok(())
}

fn write_hit(object: &mut ObjectWriter<'_>, hit: &Hit) {
    object.string("id", &hit.id);
    write_array(object.name("order"), &hit.order, |out, value| match value {
        OrderValue::Score(score) => write_double(out, f64::from(*score)),
        OrderValue::Double(number) => write_double(out, *number),
        OrderValue::String(text) => write_string(out, text),
        OrderValue::Null => out.extend_from_slice(b"null"),
    });
    write_fields(object, hit);
}
