//! Missing revisions, which replicators request before they send documents.

use std::borrow::Cow;

use settee_database::{Bodies, DOCUMENTS_TOGETHER, DocRecord, ReadView, Waiting};
use settee_model::Rev;
use settee_model::json::{Kind, Value, append_object, write_string};

use super::bulk;
use super::partition::check_place;
use crate::params::attachments::revisions;
use crate::reads::reader;
use crate::request::Request;
use crate::respond::Answer;
use crate::{Error, bridge};
use settee_edge::bridge::Output;
use settee_service::revisions::rev_list;

pub(super) async fn diff(request: Request) -> Answer {
    compare(request, b"{", b"}\n", |out, record, missing| {
        append_object(out, |object| {
            rev_list(object.name("missing"), missing.iter().cloned());
            let ancestors = record.map(|record| possible_ancestors(record, missing)).unwrap_or_default();
            if !ancestors.is_empty() {
                rev_list(object.name("possible_ancestors"), ancestors.into_iter());
            }
        });
    })
    .await
}

pub(super) async fn missing(request: Request) -> Answer {
    compare(request, br#"{"missing_revs":{"#, b"}}\n", |out, _, missing| {
        rev_list(out, missing.iter().cloned());
    })
    .await
}

async fn compare(
    mut request: Request,
    head: &'static [u8],
    tail: &'static [u8],
    write_missing: impl Fn(&mut Vec<u8>, Option<&DocRecord>, &[Rev]) + Send + 'static,
) -> Answer {
    let database = request.database()?;
    let body = request.read_called_json().await?;
    if body.value().kind() != Kind::Object {
        return Err(Error::bad_request("Request body must be a JSON object"));
    }
    let user = request.reader.clone();
    let is_small = bulk::is_small(&body);
    let write = move |output: &mut Output, waiting: Waiting<'_>| -> Result<(), Error> {
        let view = database.read_as(&user, waiting)?.for_client(&reader(output.account()));
        let mut first = true;
        output.text().extend_from_slice(head);
        let members: Vec<(Cow<'_, str>, Value<'_>)> =
            body.value().members().map(|(id, revs)| (id.as_str().unwrap_or_default(), revs)).collect();
        for (index, (id, revs)) in members.iter().enumerate() {
            if index % DOCUMENTS_TOGETHER == 0 {
                let together = &members[index..members.len().min(index + DOCUMENTS_TOGETHER)];
                let ids: Vec<&str> = together.iter().map(|(id, _)| id.as_ref()).collect();
                view.read_ahead(&ids, Bodies::None)?;
            }
            let asked = revisions(*revs)?;
            check_place(&database, id)?;
            let record = view.record(id)?;
            let missing = missing_revs(&view, record.as_deref(), asked);
            if missing.is_empty() {
                continue;
            }
            if !std::mem::take(&mut first) {
                output.text().push(b',');
            }
            write_string(output.text(), id);
            output.text().push(b':');
            write_missing(output.text(), record.as_deref(), &missing);
            if output.row_done().is_break() {
                return Ok(());
            }
        }
        output.text().extend_from_slice(tail);
        Ok(())
    };
    bridge::answer_if(is_small, request.admit_response(), write).await
}

/// As in CouchDB the result is sorted only if the document exists.
fn missing_revs(view: &ReadView<'_>, record: Option<&DocRecord>, mut asked: Vec<Rev>) -> Vec<Rev> {
    if let Some(record) = record {
        asked.retain(|rev| !view.knows(record, rev));
        asked.sort();
    }
    asked
}

/// Returns leaves older than the newest missing revision, which can be its ancestors: the winner first, as in CouchDB.
fn possible_ancestors(record: &DocRecord, missing: &[Rev]) -> Vec<Rev> {
    let newest = missing.iter().map(|rev| rev.generation).max().unwrap_or_default();
    let leaves = record.tree.leaves_by_rank(|stored| stored.deleted).into_iter();
    leaves.map(|leaf| record.tree.node(leaf).rev.clone()).filter(|rev| rev.generation < newest).collect()
}
