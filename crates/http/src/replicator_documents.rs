//! Documents of `_replicator` databases as far as requests are concerned: who may write them ([`before_update`]), and what
//! others see of them ([`mask`]). They hold passwords, and they act on behalf of their owners.
//!
//! The rules are those of CouchDB's `before_doc_update` and `after_doc_read`, but stricter where a document could act for
//! somebody else: databases of this server are reached with the rights of the owner.

use std::borrow::Cow;
use std::sync::Arc;

use http_body_util::BodyExt;
use hyper::header;
use settee_auth::UserContext;
use settee_database::{Database, EditMode};
use settee_model::Document;
use settee_model::json::{Json, Value, write_string};
use settee_replication::Tuning;
use settee_replication::documents::{self, OWNER, REPLICATOR_ROLE, is_replicator_database, write_without_credentials};

use crate::Error;
use crate::budget::Account;
use crate::params::Plus;
use crate::request::Line;
use crate::respond::{Answer, Body, Response};
use crate::router::Captures;

/// The most bytes of an answer that are looked through for what is secret.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// The parts of a `_replicator` database that show no documents, for who is no admin.
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

/// Judges a document that is about to be written into a `_replicator` database, and gives it its owner.
pub(crate) fn before_update(
    database: &Arc<Database>,
    user: &UserContext,
    id: &str,
    document: &mut Document,
    mode: EditMode,
) -> Result<(), Error> {
    let is_replicator = user.roles.iter().any(|role| role == REPLICATOR_ROLE);
    if is_replicator || id.starts_with("_design/") || id.starts_with("_local/") {
        return Ok(());
    }
    require_owner(document.body.value(), user)?;
    if !user.is_admin() {
        if !is_owner_of_old(database, id, user)? {
            return Err(not_yours());
        }
        require_own_roles(document.body.value(), user)?;
    }
    // A replicated revision is what it is.
    if mode == EditMode::Replicated {
        return Ok(());
    }
    let owner = document.body.value().get(OWNER);
    if owner.is_none_or(Value::is_null) && (owner.is_none() || user.name.is_some()) {
        document.body = with_owner(document.body.value(), user.name.as_deref());
    }
    let failed = document.body.value().get("_replication_state").is_some_and(|state| state.is_string("failed"));
    if document.deleted || failed {
        return Ok(());
    }
    match documents::parse(document.body.value(), &Tuning::default()) {
        Ok(_) => Ok(()),
        Err(error) => Err(Error::forbidden(documents::complaint(&error))),
    }
}

fn not_yours() -> Error {
    Error::forbidden("Can't update replication documents from other users.")
}

fn require_owner(document: Value<'_>, user: &UserContext) -> Result<(), Error> {
    let owner = document.get(OWNER).filter(|owner| !owner.is_null());
    let owner = owner.map(|owner| owner.as_str().map(Cow::into_owned));
    match owner {
        None => Ok(()),
        Some(owner) if owner.is_some() && owner == user.name => Ok(()),
        Some(_) if user.is_admin() => Ok(()),
        Some(_) => Err(not_yours()),
    }
}

/// Nobody gives a document more rights than there are to give.
fn require_own_roles(document: Value<'_>, user: &UserContext) -> Result<(), Error> {
    if document.get("user_ctx").is_none() {
        return Ok(());
    }
    let acts_as = documents::user(document);
    let named = acts_as.name.is_none() || acts_as.name == user.name;
    if named && acts_as.roles.given().iter().all(|role| user.roles.contains(role)) {
        return Ok(());
    }
    Err(Error::forbidden("The member `user_ctx` may name no other user and no roles that you do not have."))
}

fn is_owner_of_old(database: &Arc<Database>, id: &str, user: &UserContext) -> Result<bool, Error> {
    let view = database.read()?;
    let Some(head) = view.head(id)? else { return Ok(true) };
    let mut old = Vec::new();
    if !view.write_document(&mut old, id, &head.rev, head.stored, |_| {})? {
        return Ok(false);
    }
    let old = Json::trusted(old);
    let owner = old.value().get(OWNER).and_then(Value::as_str).map(Cow::into_owned);
    // After a deletion the id is anybody's.
    Ok(head.stored.deleted || owner == user.name)
}

fn with_owner(document: Value<'_>, name: Option<&str>) -> Json {
    let mut out = b"{".to_vec();
    for (key, value) in document.members().filter(|(key, _)| !key.is_string(OWNER)) {
        out.extend_from_slice(key.raw());
        out.push(b':');
        out.extend_from_slice(value.raw());
        out.push(b',');
    }
    write_string(&mut out, OWNER);
    out.push(b':');
    match name {
        Some(name) => write_string(&mut out, name),
        None => out.extend_from_slice(b"null"),
    }
    out.push(b'}');
    Json::trusted(out)
}

/// Covers what is secret in an answer.
pub(crate) struct Mask {
    user: Option<String>,
}

/// What has to be covered in the answer to a request. Who is no admin sees documents of `_replicator` databases one by one
/// only, and of those of others no credentials.
pub(crate) fn mask(line: &Line, captures: &Captures, user: &UserContext, plus: Plus) -> Result<Option<Mask>, Error> {
    let database = captures.get("db");
    if user.is_admin() || !is_replicator_database(database) {
        return Ok(None);
    }
    let segments = crate::router::segments(line.uri.path(), plus)?;
    let part = segments.get(1).map_or("", |part| part.as_ref());
    let reads = line.method == hyper::Method::GET;
    match part {
        "" => Ok(None),
        part if OPEN_PARTS.contains(&part) => Ok(None),
        part if part.starts_with('_') => Err(Error::forbidden("You are not a db or server admin.")),
        _ if reads => Ok(Some(Mask { user: user.name.clone() })),
        _ => Ok(None),
    }
}

impl Mask {
    /// The answer without secrets: a document, or a list of `{"ok":document}`.
    pub(crate) async fn cover(self, answer: Response, account: &Arc<Account>) -> Answer {
        let (mut parts, mut body) = answer.into_parts();
        let is_json = parts.headers.get(header::CONTENT_TYPE).is_some_and(|value| value == "application/json");
        if !is_json && parts.status != hyper::StatusCode::NOT_MODIFIED {
            return Err(Error::forbidden("Documents of others are shown as JSON only."));
        }
        let unreadable = || Error::internal("the answer could not be looked through");
        // Copied, because pieces that are kept hold up who writes them.
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
            out.push(b'[');
            for (index, element) in value.elements().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                match element.get("ok") {
                    Some(document) => {
                        out.extend_from_slice(b"{\"ok\":");
                        self.write(&mut out, document);
                        out.push(b'}');
                    }
                    None => out.extend_from_slice(element.raw()),
                }
            }
            out.push(b']');
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
