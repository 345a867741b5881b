//! Reads of one document in a database with per-document access. An invisible document is answered like a missing one,
//! or, with `[per_doc_access] reveal`, with 403, which reveals that it exists.

use std::future::Future;
use std::sync::Arc;

use hyper::StatusCode;
use settee_database::{Database, Reader, Waiting};
use settee_settings::per_doc_access;

use super::documents::doc_id;
use super::{attachments, copy, documents};
use crate::request::Request;
use crate::respond::Answer;
use crate::{Error, bridge};

pub(super) async fn document(request: Request) -> Answer {
    reveal(request, documents::get).await
}

pub(super) async fn attachment(request: Request) -> Answer {
    reveal(request, attachments::get).await
}

pub(super) async fn source(request: Request) -> Answer {
    reveal(request, copy::copy).await
}

async fn reveal<F: Future<Output = Answer>>(request: Request, read: impl FnOnce(Request) -> F) -> Answer {
    if request.reader == Reader::Administrator || !per_doc_access::REVEAL.of(&*request.node.settings) {
        return read(request).await;
    }
    let (database, id) = (request.database()?, doc_id(&request));
    let (threads, reader) = (request.threads.clone(), request.reader.clone());
    let answer = read(request).await;
    if !matches!(&answer, Err(error) if error.status == StatusCode::NOT_FOUND) {
        return answer;
    }
    let is_invisible = move || -> Result<bool, Error> {
        Ok(exists(&database, &id, &Reader::Administrator)? && !exists(&database, &id, &reader)?)
    };
    if bridge::blocking(&threads, is_invisible).await? { Err(Error::forbidden("access")) } else { answer }
}

fn exists(database: &Arc<Database>, id: &str, reader: &Reader) -> Result<bool, Error> {
    let head = database.read_as(reader, Waiting::Allowed)?.head(id)?;
    Ok(head.is_some_and(|head| !head.stored.deleted))
}
