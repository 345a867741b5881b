//! [`Redactor`]: hides credentials in documents of `_replicator` databases from users other than their owners,
//! with the rules of CouchDB's `after_doc_read`.

use std::borrow::Cow;
use std::sync::Arc;

use http_body_util::BodyExt;
use hyper::header;
use settee_auth::UserContext;
use settee_edge::budget::Account;
use settee_edge::respond::Body;
use settee_model::json::{Json, Value, append_object, write_array};
use settee_replication::documents::{OWNER, is_replicator_database, write_without_credentials};

use crate::Error;
use crate::head::RequestHead;
use crate::params::Plus;
use crate::path::{self, Captures};
use crate::respond::{Answer, Response};

const ANSWER_BYTES_MAX: usize = 64 << 20;

/// Resources that return no documents and are open to users without administrator rights.
const OPEN_PARTS: [&str; 8] = [
    "_bulk_docs",
    "_revs_diff",
    "_missing_revs",
    "_security",
    "_ensure_full_commit",
    "_local",
    "_revs_limit",
    "_purged_infos_limit",
];

pub(crate) struct Redactor {
    user: Option<String>,
}

/// Users without administrator rights can read documents only individually, without the credentials of other owners.
pub(crate) fn redactor(
    head: &RequestHead,
    captures: &Captures,
    user: &UserContext,
    plus: Plus,
) -> Result<Option<Redactor>, Error> {
    let database = captures.get("db");
    if user.is_admin() || !is_replicator_database(database) {
        return Ok(None);
    }
    let segments = path::segments(head.uri.path(), plus)?;
    let part = segments.get(1).map_or("", |part| part.as_ref());
    let reads = head.method == hyper::Method::GET;
    match part {
        "" => Ok(None),
        part if OPEN_PARTS.contains(&part) => Ok(None),
        part if part.starts_with('_') => Err(Error::forbidden("You are not a db or server admin.")),
        _ if reads => Ok(Some(Redactor { user: user.name.clone() })),
        _ => Ok(None),
    }
}

impl Redactor {
    pub(crate) async fn cover(self, answer: Response, account: &Arc<Account>) -> Answer {
        let (mut parts, mut body) = answer.into_parts();
        let is_json = parts.headers.get(header::CONTENT_TYPE).is_some_and(|value| value == "application/json");
        if !is_json && parts.status != hyper::StatusCode::NOT_MODIFIED {
            return Err(Error::forbidden("Documents of others are shown as JSON only."));
        }
        let unreadable = || Error::internal("the answer could not be looked through");
        // The pieces are copied, because retained pieces would block their writer.
        let mut text = Vec::new();
        while let Some(piece) = body.frame().await {
            let piece = piece.map_err(|_| unreadable())?.into_data().unwrap_or_default();
            if text.len() + piece.len() > ANSWER_BYTES_MAX {
                return Err(unreadable());
            }
            account.keep(piece.len()).await?;
            text.extend_from_slice(&piece);
        }
        let Ok(json) = Json::parse(&text) else {
            return Ok(Response::from_parts(parts, Body::Whole((!text.is_empty()).then(|| text.into()))));
        };
        let mut out = Vec::with_capacity(text.len());
        let value = json.value();
        if value.is_array() {
            write_array(&mut out, value.elements(), |out, element| match element.get("ok") {
                Some(document) => {
                    append_object(out, |object| self.write(object.name("ok"), document));
                }
                None => out.extend_from_slice(element.raw()),
            });
        } else {
            self.write(&mut out, value);
        }
        out.push(b'\n');
        parts.headers.remove(header::CONTENT_LENGTH);
        Ok(Response::from_parts(parts, Body::Whole(Some(out.into()))))
    }

    fn write(&self, out: &mut Vec<u8>, document: Value<'_>) {
        let owner = document.get(OWNER).and_then(Value::as_str).map(Cow::into_owned);
        if self.user.is_some() && owner == self.user {
            out.extend_from_slice(document.raw());
        } else {
            write_without_credentials(out, document);
        }
    }
}
