//! Uploads by HTML forms: `POST /{db}/{doc}` as `multipart/form-data`. A form contains a whole document in the
//! field `_doc`, or in `_rev` the revision to which files are added. Files are in fields named `_attachments`.

use std::collections::HashMap;
use std::sync::Arc;

use hyper::{StatusCode, header};
use settee_database::{Database, EditMode, NewAttachment, NewAttachments, Waiting};
use settee_model::json::Json;
use settee_model::{DEFAULT_CONTENT_TYPE, Document, Rev, validate_attachment_name};
use settee_wire::multipart::{ContentType, Head};

use super::attachments::Base;
use super::documents::doc_id;
use super::write::{Edit, Incoming, check_id, save};
use crate::attachments::{Parts, resolve, upload};
use crate::params::document::replaced_rev;
use crate::policy::Policy;
use crate::request::Request;
use crate::respond::{self, Answer};
use crate::{Error, body};

pub(super) async fn post(mut request: Request) -> Answer {
    let database = request.database()?;
    require_own_referer(&request)?;
    let id = doc_id(&request);
    check_id(&request.node, &database, &id)?;
    body::require_type(&request.headers, "multipart/form-data")?;
    let content_type = ContentType::parse(request.header(header::CONTENT_TYPE).unwrap_or_default());
    let (policy, store, named) = (request.node.policy(), Arc::clone(&database), id.clone());
    let reader = request.reader.clone();
    let (query, headers) = (request.query.clone(), request.headers.clone());
    let (document, attachments) = request
        .with_pieces(move |pieces| {
            let form = Form::receive(&store, &policy, Parts::of(&content_type, pieces)?)?;
            let (document, attachments) = match (form.document, form.rev) {
                (Some(text), _) => {
                    let json = Json::parse(&text)?;
                    let mut document = Document::parse(json.value())?;
                    policy.documents.check_document(&document)?;
                    document.rev = replaced_rev(&query, &headers, document.rev.as_ref())?;
                    let mode = EditMode::Interactive;
                    let (place, waiting) = ((&store, &reader, named.as_str()), Waiting::Allowed);
                    let attachments = resolve(place, &policy.attachments, &document, mode, HashMap::new(), waiting)?;
                    (document, attachments)
                }
                (None, rev) => {
                    let rev = Rev::parse(&String::from_utf8_lossy(&rev.unwrap_or_default()))?;
                    let base = Base::read(&store.read_as(&reader, Waiting::Allowed)?, &named, Some(&rev))?;
                    let kept = base.attachments.into_iter().map(NewAttachment::kept).collect();
                    (base.document, NewAttachments::new(&store, kept)?)
                }
            };
            Ok((document, attachments.replaced(&store, form.files)?))
        })
        .await?;
    let edit = Edit { id, document, attachments: Incoming::Known(attachments), mode: EditMode::Interactive };
    let saved = save(&request, &database, edit).await?;
    let mut response = saved.answer(&request, StatusCode::CREATED);
    respond::set_etag(&mut response, &saved.rev.to_string());
    Ok(response)
}

fn require_own_referer(request: &Request) -> Result<(), Error> {
    let referer = request.header(header::REFERER).ok_or_else(|| Error::bad_request("Referer header required."))?;
    let host = referer.split_once("://").map(|(_, rest)| rest.split(['/', '?', '#']).next().unwrap_or_default());
    let own = request.node.policy().forwarded.host(&request.headers);
    if host.is_some() && host == own { Ok(()) } else { Err(Error::bad_request("Referer header must match host.")) }
}

#[derive(Default)]
struct Form {
    document: Option<Vec<u8>>,
    rev: Option<Vec<u8>>,
    files: Vec<NewAttachment>,
}

impl Form {
    fn receive(database: &Arc<Database>, policy: &Policy, mut parts: Parts<'_>) -> Result<Self, Error> {
        let mut form = Self::default();
        while let Some(head) = parts.next_part()? {
            match (field(&head).as_deref(), head.filename()) {
                (Some("_attachments"), Some(name)) => {
                    // Browsers send an empty file field as a file without a name.
                    if name.is_empty() {
                        parts.skip()?;
                        continue;
                    }
                    validate_attachment_name(&name)?;
                    let content_type = head.content_type().map(|content_type| content_type.essence);
                    let content_type = content_type.unwrap_or_else(|| DEFAULT_CONTENT_TYPE.to_owned());
                    let compression = policy.attachments.compression(&content_type);
                    let uploaded = upload(database, &policy.attachments, &name, compression, || parts.data())?;
                    form.files.push(NewAttachment::uploaded(name, content_type, None, uploaded));
                }
                (Some("_doc"), _) => form.document = Some(parts.text(policy.max_body_bytes)?),
                (Some("_rev"), _) => form.rev = Some(parts.text(REV_BYTES_MAX)?),
                _ => parts.skip()?,
            }
        }
        Ok(form)
    }
}

/// Maximum length of a revision field, which exceeds that of any revision.
const REV_BYTES_MAX: usize = 4096;

fn field(head: &Head) -> Option<String> {
    ContentType::parse(head.get("content-disposition")?).parameter("name").map(str::to_owned)
}
