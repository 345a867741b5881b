//! Parameters of reads and writes of one document.

use hyper::HeaderMap;
use hyper::header;
use settee_database::EditMode;
use settee_model::json::Json;
use settee_model::{InvalidRev, Rev};

use super::Query;
use super::attachments::{Shown, revisions};
use crate::Error;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extras {
    pub(crate) revs: bool,
    pub(crate) revs_info: bool,
    pub(crate) conflicts: bool,
    pub(crate) deleted_conflicts: bool,
    pub(crate) local_seq: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RevisionSelection {
    Winner { deleted: bool },
    Rev(Rev),
    Open(OpenRevs),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OpenRevs {
    All,
    Some(Vec<Rev>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DocParams {
    pub(crate) which: RevisionSelection,
    /// `rev` and `deleted`, for requests that support neither lists of revisions nor `latest`.
    pub(crate) rev: Option<Rev>,
    pub(crate) deleted: bool,
    /// Replaces the listed revisions by the leaves that descend from them.
    pub(crate) latest: bool,
    pub(crate) extras: Extras,
    pub(crate) attachments: Shown,
    pub(crate) mode: EditMode,
}

impl DocParams {
    /// Resolves the parameters of a GET or a PUT. As in CouchDB, all parameters are parsed in order, so the
    /// first invalid value is reported even if it has no effect. The last of several values applies; a switch
    /// is on if any value is `true`.
    pub(crate) fn resolve(query: &Query) -> Result<Self, Error> {
        let (mut rev, mut open, mut since, mut mode) = (None, None, None, EditMode::Interactive);
        for (name, value) in query.pairs() {
            match (name, value) {
                ("rev", rev_text) => rev = Some(asked_rev(rev_text)?),
                ("open_revs", "all") => open = Some(OpenRevs::All),
                ("open_revs", list) => open = some_revs(list)?,
                ("atts_since", list) => since = Some(revisions(Json::parse(list.as_bytes())?.value())?),
                ("new_edits", "false") => mode = EditMode::Replicated,
                ("new_edits", "true") => mode = EditMode::Interactive,
                _ => {}
            }
        }
        let (meta, latest) = (query.is_true("meta"), query.is_true("latest"));
        let which = match (open, &rev) {
            (Some(open), _) => RevisionSelection::Open(open),
            (None, Some(rev)) if !latest => RevisionSelection::Rev(rev.clone()),
            // With `latest` and without a list CouchDB reads the winner, whatever the revision is.
            (None, _) => RevisionSelection::Winner { deleted: query.is_true("deleted") },
        };
        Ok(Self {
            which,
            rev,
            deleted: query.is_true("deleted"),
            latest,
            attachments: Shown::new(since, query),
            extras: Extras {
                revs: query.is_true("revs"),
                revs_info: meta || query.is_true("revs_info"),
                conflicts: meta || query.is_true("conflicts"),
                deleted_conflicts: meta || query.is_true("deleted_conflicts"),
                local_seq: query.is_true("local_seq"),
            },
            mode,
        })
    }
}

/// Parses the revision of a read. A revision that exceeds the limits is reported as missing.
fn asked_rev(text: &str) -> Result<Rev, Error> {
    Rev::parse(text).map_err(|error| match error {
        InvalidRev::Format => error.into(),
        InvalidRev::TooLarge => Error::not_found("missing"),
    })
}

/// Returns an error if `rev` and `If-Match` differ from each other or from `in_body`.
pub(crate) fn replaced_rev(query: &Query, headers: &HeaderMap, in_body: Option<&Rev>) -> Result<Option<Rev>, Error> {
    let in_query = query.get("rev").map(Rev::parse).transpose()?;
    let in_header = headers.get(header::IF_MATCH).and_then(|value| value.to_str().ok());
    let in_header = in_header.map(|value| Rev::parse(value.trim().trim_matches('"'))).transpose()?;
    if let (Some(query), Some(body)) = (&in_query, in_body)
        && query != body
    {
        return Err(Error::bad_request("Document rev from request body and query string have different values"));
    }
    let named = in_query.or_else(|| in_body.cloned());
    match (named, in_header) {
        (Some(named), Some(header)) if named != header => {
            Err(Error::bad_request("Document rev and etag have different values"))
        }
        (named, header) => Ok(named.or(header)),
    }
}

/// Parses a JSON array of revisions. An empty array is ignored.
fn some_revs(text: &str) -> Result<Option<OpenRevs>, Error> {
    let revs = revisions(Json::parse(text.as_bytes())?.value())?;
    Ok((!revs.is_empty()).then_some(OpenRevs::Some(revs)))
}

#[cfg(test)]
mod tests;
