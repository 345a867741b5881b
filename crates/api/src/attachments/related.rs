//! Documents in `multipart/related` bodies: the document comes first, followed by the data of its attachments.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use hyper::StatusCode;
use settee_database::{Database, Uploaded};
use settee_edge::body::pieces::Pieces;
use settee_model::json::Json;
use settee_model::{AttachmentData, AttachmentMember, Document, Follows};
use settee_wire::multipart::ContentType;

use super::{Parts, Policy, compression_of, upload};
use crate::Error;

pub(crate) struct Related {
    pub(crate) document: Document,
    pub(crate) followed: HashMap<String, Uploaded>,
}

/// Stores a document with the attachment data that follows it. `check` can refuse the document before any data is
/// stored.
pub(crate) fn receive(
    database: &Arc<Database>,
    policy: &Policy,
    content_type: &ContentType,
    pieces: &mut Pieces,
    check: impl FnOnce(&Document) -> Result<(), Error>,
) -> Result<Related, Error> {
    let mut parts = Parts::of(content_type, pieces)?;
    let head = parts.next_part()?.ok_or_else(|| Error::bad_request("The multipart body has no document"))?;
    if head.content_type().is_none_or(|content_type| content_type.essence != "application/json") {
        return Err(Error::bad_content_type("application/json"));
    }
    let text = parts.text(MAX_TEXT_BYTES)?;
    let json = Json::parse(&text)?;
    drop(text);
    let document = Document::parse(json.value())?;
    check(&document)?;
    let members = match &document.attachments {
        Some(attachments) => AttachmentMember::parse_all(attachments.value())?,
        None => Vec::new(),
    };
    let mut awaited = members.into_iter().filter_map(Awaited::of).peekable();
    let mut followed = HashMap::new();
    let empty = |one: &Awaited| one.receive((database, policy), &mut || Ok(None));
    while parts.next_part()?.is_some() {
        // Parts are assigned to attachments by their order; the names in the part headers are ignored. As in CouchDB,
        // an empty attachment may have no part.
        let mut first = parts.data()?;
        let has_data = first.is_some();
        while has_data && let Some(one) = awaited.next_if(Awaited::is_empty) {
            followed.insert(one.name.clone(), empty(&one)?);
        }
        let one = awaited.next();
        let one = one.ok_or_else(|| Error::bad_request("More attachments follow than the document names"))?;
        let mut next = || if has_data && first.is_none() { parts.data() } else { Ok(first.take()) };
        followed.insert(one.name.clone(), one.receive((database, policy), &mut next)?);
    }
    for one in awaited.filter(Awaited::is_empty) {
        followed.insert(one.name.clone(), empty(&one)?);
    }
    Ok(Related { document, followed })
}

const MAX_TEXT_BYTES: usize = 1 << 30;

struct Awaited {
    name: String,
    content_type: String,
    follows: Follows,
}

impl Awaited {
    fn of(member: AttachmentMember) -> Option<Self> {
        let AttachmentMember { name, content_type, data, .. } = member;
        let AttachmentData::Follows(follows) = data else { return None };
        Some(Self { name, content_type, follows })
    }

    fn is_empty(&self) -> bool {
        self.follows.bytes_that_follow() == Some(0)
    }

    fn receive(
        &self,
        (database, policy): (&Arc<Database>, &Policy),
        next: &mut dyn FnMut() -> Result<Option<Bytes>, Error>,
    ) -> Result<Uploaded, Error> {
        let (compression, mut length) = (compression_of(policy, &self.content_type, &self.follows), 0);
        let counted = || next().inspect(|data| length += data.as_ref().map_or(0, |data| data.len() as u64));
        let uploaded = upload(database, policy, &self.name, compression, counted)?;
        self.check(&uploaded, length)?;
        Ok(uploaded)
    }

    fn check(&self, uploaded: &Uploaded, length: u64) -> Result<(), Error> {
        match self.follows.bytes_that_follow() {
            Some(expected) if length < expected => {
                return Err(Error::bad_request("attachment shorter than expected"));
            }
            Some(expected) if length > expected => return Err(Error::bad_request("attachment longer than expected")),
            Some(_) | None => {}
        }
        // Some clients send the digest of the data as the source stored it (possibly compressed).
        let known = [uploaded.received_md5(), uploaded.stored_md5()];
        if self.follows.md5.is_some_and(|reply| !known.contains(&reply)) {
            let reason = "Possible message corruption.";
            return Err(Error::new(StatusCode::BAD_REQUEST, "content_md5_mismatch", reason));
        }
        Ok(())
    }
}
