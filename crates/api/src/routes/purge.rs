//! Purges: removal of revisions without a tombstone.

use hyper::StatusCode;
use settee_database::{Purge, UpdateOutcome, Work};
use settee_model::json::{Json, Kind, Value, append_object};
use settee_service::commits;
use settee_settings::purge;

use super::partition::check_place;
use super::write::{copies, wants_more_copies};
use crate::node::Node;
use crate::params::attachments::revisions;
use crate::reads::reader;
use crate::request::Request;
use crate::respond::{self, Answer};
use crate::{Error, bridge};
use settee_service::revisions::rev_list;

const PURGES_PER_COMMIT: usize = 100;

pub(super) async fn purge(mut request: Request) -> Answer {
    let database = request.database()?;
    let mut purges = parse(&request.read_called_json().await?)?;
    check_amount(&request.node, &purges)?;
    for purge in &mut purges {
        purge.revs.sort();
        purge.revs.dedup();
    }
    purges.iter().try_for_each(|purge| check_place(&database, &purge.id))?;
    let works = purges.chunks(PURGES_PER_COMMIT).map(|some| Work::Purge(some.to_vec())).collect();
    let outcomes = commits::commit(&database, works).await?;
    let purged = outcomes.into_iter().map(|outcome| match outcome {
        UpdateOutcome::Purged(revs) => Ok(revs),
        _ => Err(Error::internal("the purge was not answered")),
    });
    let purged = purged.collect::<Result<Vec<_>, _>>()?;
    let is_short = !purges.is_empty() && wants_more_copies(copies(&request.query));
    let status = if is_short { StatusCode::ACCEPTED } else { StatusCode::CREATED };
    Ok(respond::object(status, |object| {
        // A clustered CouchDB also returns null here.
        object.json("purge_seq", b"null").object("purged", |object| {
            purges.iter().zip(purged).for_each(|(purge, revs)| rev_list(object.name(&purge.id), revs.into_iter()));
        });
    }))
}

fn check_amount(node: &Node, purges: &[Purge]) -> Result<(), Error> {
    if purges.len() as u64 > purge::MAX_DOCUMENT_ID_NUMBER.of(&*node.settings) {
        return Err(Error::bad_request("Exceeded maximum number of documents."));
    }
    let revs: usize = purges.iter().map(|purge| purge.revs.len()).sum();
    if revs as u64 > purge::MAX_REVISIONS_NUMBER.of(&*node.settings) {
        return Err(Error::bad_request("Exceeded maximum number of revisions."));
    }
    Ok(())
}

fn parse(body: &Json) -> Result<Vec<Purge>, Error> {
    if body.value().kind() != Kind::Object {
        return Err(Error::bad_request("Request body must be a JSON object"));
    }
    let purge = |(id, revs): (Value<'_>, Value<'_>)| {
        let id = id.as_str().map(std::borrow::Cow::into_owned).unwrap_or_default();
        Ok(Purge { id, revs: revisions(revs)? })
    };
    body.value().members().map(purge).collect()
}

pub(super) async fn infos(request: Request) -> Answer {
    let database = request.database()?;
    bridge::stream(request.admit_response(), move |output| {
        let view = database.read()?.for_client(&reader(output.account()));
        let mut separator: &[u8] = br#"{"purged_infos":["#;
        let mut flow = std::ops::ControlFlow::Continue(());
        view.purges(0, |_, purge| {
            if flow.is_break() {
                return;
            }
            let out = output.text();
            out.extend_from_slice(separator);
            separator = b",";
            append_object(out, |object| {
                rev_list(object.string("id", &purge.id).name("revs"), purge.revs.into_iter());
            });
            flow = output.row_done();
        })?;
        output.text().extend_from_slice(if separator == b"," { b"]}\n" } else { b"{\"purged_infos\":[]}\n" });
        Ok(())
    })
    .await
}

pub(super) async fn limit(request: Request) -> Answer {
    let database = request.database()?;
    let limit = bridge::blocking(&request.threads, move || Ok(database.purged_infos_limit()?)).await?;
    Ok(respond::json(StatusCode::OK, limit.to_string().into_bytes()))
}

pub(super) async fn set_limit(mut request: Request) -> Answer {
    let database = request.database()?;
    let body = request.read_json().await?;
    let limit = body.value().as_u64().filter(|limit| *limit > 0);
    let limit = limit.ok_or_else(|| Error::bad_request("`purged_infos_limit` must be positive integer"))?;
    commits::commit(&database, vec![Work::SetPurgedInfosLimit(limit)]).await?;
    Ok(respond::ok(StatusCode::OK))
}
