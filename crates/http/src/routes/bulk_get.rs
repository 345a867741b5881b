//! Reading many revisions in one request: `_bulk_get`, as JSON or in parts.

use std::borrow::Cow;
use std::ops::ControlFlow;
use std::sync::Arc;

use hyper::header;
use hyper::{HeaderMap, StatusCode};
use settee_database::{Bodies, DOCUMENTS_TOGETHER, DocRecord, ReadView};
use settee_model::Rev;
use settee_model::json::{Kind, Value, write_string};
use settee_wire::multipart::Writer;

use super::bulk::{check_count, write_error_members};
use super::documents::{boundaries, open_nodes};
use crate::bridge::{Head, Output};
use crate::params::attachments::{Data, Shown, revisions};
use crate::params::document::{Extras, OpenRevs};
use crate::request::Request;
use crate::respond::{self, Answer};
use crate::revision::multipart::Related;
use crate::revision::{self, Encoded};
use crate::{Error, accept, bridge, users};

/// What holds for all revisions of a request.
struct Asked {
    extras: Extras,
    latest: bool,
    shown: Shown,
    /// Refuses documents that the user may not see.
    sees: Sees,
}

type Sees = Box<dyn Fn(&str) -> Result<(), Error> + Send + Sync>;

/// `POST /{db}/_bulk_get`
pub(super) async fn get(mut request: Request) -> Answer {
    let database = request.database()?;
    let body = request.read_called_json().await?;
    let docs = body.value().get("docs").filter(|docs| docs.kind() == Kind::Array);
    let docs = docs.ok_or_else(|| Error::bad_request("Missing JSON list of 'docs'."))?;
    check_count(&request.node, docs.elements().count(), "max_bulk_get_count")?;
    let (node, user, store) = (Arc::clone(&request.node), request.user.clone(), Arc::clone(&database));
    let asked = Asked {
        extras: Extras { revs: request.query.is_true("revs"), ..Extras::default() },
        latest: request.query.is_true("latest"),
        shown: Shown::from_query(&request.query)?,
        sees: Box::new(move |id| users::Sight::of(&node, &store, &user, id)?.require_whole()),
    };
    let multipart = multipart_form(&request.headers).map(|essence| (essence, boundaries(&request)));
    bridge::stream(request.node.outward(), move |output| {
        let view = database.read()?;
        let docs: Vec<Value<'_>> = body.value().get("docs").map(Value::elements).into_iter().flatten().collect();
        match multipart {
            Some((essence, boundaries)) => send_parts(output, &view, &docs, &asked, essence, boundaries),
            None => write_list(output, &view, &docs, &asked),
        }
    })
    .await
}

/// In which parts the client wants it, if it does not take JSON.
fn multipart_form(headers: &HeaderMap) -> Option<&'static str> {
    if accept::accepts(headers, "application/json") {
        return None;
    }
    ["multipart/mixed", "multipart/related"].into_iter().find(|essence| accept::accepts(headers, essence))
}

/// One entry of the list of a request.
struct Entry<'a> {
    id: Cow<'a, str>,
    rev: Option<Cow<'a, str>>,
    shown: Cow<'a, Shown>,
}

impl<'a> Entry<'a> {
    /// `None` without an id.
    fn of(doc: Value<'a>, asked: &'a Asked) -> Result<Option<Self>, Error> {
        let Some(id) = doc.get("id").and_then(Value::as_str) else { return Ok(None) };
        let shown = match doc.get("atts_since") {
            None => Cow::Borrowed(&asked.shown),
            Some(since) => Cow::Owned(Shown { data: Data::Since(revisions(since)?), info: asked.shown.info }),
        };
        Ok(Some(Self { id, rev: doc.get("rev").and_then(Value::as_str), shown }))
    }

    fn parse_rev(&self) -> Result<Option<Rev>, Error> {
        Ok(self.rev.as_deref().map(Rev::parse).transpose()?)
    }
}

fn nodes(record: Option<&DocRecord>, rev: Option<&Rev>, latest: bool) -> Vec<u32> {
    match (record, rev) {
        (None, _) => Vec::new(),
        // CouchDB reads every leaf where no revision is named.
        (Some(record), None) => open_nodes(record, &OpenRevs::All, latest).0,
        (Some(record), Some(rev)) => match record.tree.find(rev) {
            Some(node) if latest => record.tree.leaves_of(node),
            found => found.into_iter().collect(),
        },
    }
}

/// Reads the documents from `index` on together, when those before are done with.
fn read_ahead(view: &ReadView, docs: &[Value<'_>], index: usize) -> Result<(), Error> {
    if !index.is_multiple_of(DOCUMENTS_TOGETHER) {
        return Ok(());
    }
    let together = &docs[index..docs.len().min(index + DOCUMENTS_TOGETHER)];
    let ids: Vec<_> = together.iter().filter_map(|doc| doc.get("id").and_then(Value::as_str)).collect();
    let mut ids: Vec<&str> = ids.iter().map(AsRef::as_ref).collect();
    ids.sort_unstable();
    ids.dedup();
    Ok(view.read_ahead(&ids, Bodies::Leaves)?)
}

fn write_list(output: &mut Output, view: &ReadView, docs: &[Value<'_>], asked: &Asked) -> Result<(), Error> {
    output.text().extend_from_slice(br#"{"results": ["#);
    for (index, doc) in docs.iter().enumerate() {
        read_ahead(view, docs, index)?;
        if index > 0 {
            output.text().push(b',');
        }
        write_result(output, view, *doc, asked)?;
        if output.row_done().is_break() {
            return Ok(());
        }
    }
    output.text().extend_from_slice(b"]}\n");
    Ok(())
}

fn write_result(output: &mut Output, view: &ReadView, doc: Value<'_>, asked: &Asked) -> Result<(), Error> {
    let out = output.text();
    let Some(entry) = Entry::of(doc, asked)? else {
        out.extend_from_slice(
            br#"{"id":null,"docs":[{"error":{"id":null,"rev":null,"error":"bad_request","reason":"document id missed"}}]}"#,
        );
        return Ok(());
    };
    out.extend_from_slice(br#"{"id":"#);
    write_string(out, &entry.id);
    out.extend_from_slice(br#","docs":["#);
    let seen = (asked.sees)(&entry.id).and_then(|()| entry.parse_rev());
    match seen {
        Err(error) => write_failure(out, &entry.id, entry.rev.as_deref().unwrap_or_default(), &error),
        Ok(rev) => write_revisions(output, view, &entry, rev.as_ref(), asked)?,
    }
    output.text().extend_from_slice(b"]}");
    Ok(())
}

fn write_revisions(
    output: &mut Output,
    view: &ReadView,
    entry: &Entry<'_>,
    rev: Option<&Rev>,
    asked: &Asked,
) -> Result<(), Error> {
    let record = view.record(&entry.id)?;
    let mut written = false;
    for node in nodes(record.as_ref(), rev, asked.latest) {
        let Some(record) = &record else { break };
        let start: &[u8] = if written { br#",{"ok":"# } else { br#"{"ok":"# };
        output.text().extend_from_slice(start);
        let encoded = revision::write_with(output, view, &entry.id, record, node, asked.extras, &entry.shown)?;
        if encoded == Encoded::Gone {
            let kept = output.text().len() - start.len();
            output.text().truncate(kept);
            continue;
        }
        output.text().push(b'}');
        written = true;
    }
    if !written {
        let rev = rev.map_or_else(|| "undefined".to_owned(), ToString::to_string);
        write_failure(output.text(), &entry.id, &rev, &Error::not_found("missing"));
    }
    Ok(())
}

fn write_failure(out: &mut Vec<u8>, id: &str, rev: &str, error: &Error) {
    out.extend_from_slice(br#"{"error":{"id":"#);
    write_string(out, id);
    out.extend_from_slice(br#","rev":"#);
    write_string(out, rev);
    write_error_members(out, error);
    out.extend_from_slice(b"}}");
}

/// Every revision as a part, those with attachments as parts of parts.
fn send_parts(
    output: &mut Output,
    view: &ReadView,
    docs: &[Value<'_>],
    asked: &Asked,
    essence: &str,
    [outer, inner]: [String; 2],
) -> Result<(), Error> {
    let writer = Writer::new(outer);
    let mut headers = HeaderMap::new();
    respond::set(&mut headers, header::CONTENT_TYPE, &writer.content_type(essence));
    output.set_head(Head::new(StatusCode::OK, headers));
    writer.begin(output.text());
    for (index, doc) in docs.iter().enumerate() {
        read_ahead(view, docs, index)?;
        match send_entry(output, view, *doc, asked, &writer, &inner) {
            Ok(ControlFlow::Continue(())) => {}
            Ok(ControlFlow::Break(())) => return Ok(()),
            Err(error) => return output.break_off(error),
        }
    }
    writer.end(output.text());
    Ok(())
}

fn send_entry(
    output: &mut Output,
    view: &ReadView,
    doc: Value<'_>,
    asked: &Asked,
    writer: &Writer,
    inner: &str,
) -> Result<ControlFlow<()>, Error> {
    let Some(entry) = Entry::of(doc, asked)? else {
        send_failure(output, writer, "null", &Error::bad_request("document id missed"));
        return Ok(ControlFlow::Continue(()));
    };
    let seen = (asked.sees)(&entry.id).and_then(|()| entry.parse_rev());
    let rev = match seen {
        Ok(rev) => rev,
        Err(error) => {
            send_failure(output, writer, entry.rev.as_deref().unwrap_or_default(), &error);
            return Ok(ControlFlow::Continue(()));
        }
    };
    let record = view.record(&entry.id)?;
    let shown = entry.shown.with_data();
    let mut sent = false;
    for node in nodes(record.as_ref(), rev.as_ref(), asked.latest) {
        let Some(record) = &record else { break };
        let read = Related::read(view, &entry.id, record, node, asked.extras, &shown, inner)?;
        let Some(related) = read else { continue };
        let (rev, content_type) = (record.tree.node(node).rev.to_string(), related.content_type());
        let names = [("X-Doc-Id", entry.id.as_ref()), ("X-Rev-Id", rev.as_str())];
        let names = if related.has_parts() { &names[..] } else { &[] };
        writer.part(output.text(), names.iter().copied().chain([("Content-Type", content_type.as_str())]));
        if related.write(output, view)?.is_break() {
            return Ok(ControlFlow::Break(()));
        }
        writer.part_end(output.text());
        sent = true;
    }
    if !sent {
        let rev = rev.map_or_else(|| "undefined".to_owned(), |rev| rev.to_string());
        send_failure(output, writer, &rev, &Error::not_found("missing"));
    }
    Ok(output.row_done())
}

fn send_failure(output: &mut Output, writer: &Writer, rev: &str, error: &Error) {
    writer.part(output.text(), [("Content-Type", "application/json; error=\"true\"")]);
    output.text().extend_from_slice(br#"{"rev":"#);
    write_string(output.text(), rev);
    write_error_members(output.text(), error);
    output.text().push(b'}');
    writer.part_end(output.text());
}
