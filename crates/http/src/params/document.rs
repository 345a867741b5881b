//! Parameters of reading and writing one document.

use hyper::HeaderMap;
use hyper::header;
use settee_model::Rev;
use settee_model::json::Json;

use super::Query;
use super::attachments::{Shown, revisions};
use crate::Error;

/// What to add to a document that is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extras {
    pub(crate) revs: bool,
    pub(crate) revs_info: bool,
    pub(crate) conflicts: bool,
    pub(crate) deleted_conflicts: bool,
    pub(crate) local_seq: bool,
}

/// Which revisions to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    /// The winner; a deleted one only if asked for.
    Winner {
        /// `deleted=true`
        deleted: bool,
    },
    /// One revision.
    Rev(Rev),
    /// Several, as a list: `open_revs`.
    Open(OpenRevs),
}

/// The value of `open_revs`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OpenRevs {
    /// All leaves.
    All,
    /// These.
    Some(Vec<Rev>),
}

/// A read of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReadParams {
    pub(crate) which: Which,
    /// With a revision: the leaves that descend from it instead.
    pub(crate) latest: bool,
    pub(crate) extras: Extras,
    pub(crate) attachments: Shown,
}

impl ReadParams {
    /// Resolves the parameters of a GET.
    pub(crate) fn resolve(query: &Query) -> Result<Self, Error> {
        let meta = query.is_true("meta");
        let open = query.get("open_revs").map(open_revs).transpose()?.flatten();
        let which = match (open, query.get("rev")) {
            (Some(open), _) => Which::Open(open),
            (None, Some(rev)) => Which::Rev(Rev::parse(rev)?),
            (None, None) => Which::Winner { deleted: query.is_true("deleted") },
        };
        Ok(Self {
            which,
            latest: query.is_true("latest"),
            attachments: Shown::from_query(query)?,
            extras: Extras {
                revs: query.is_true("revs"),
                revs_info: meta || query.is_true("revs_info"),
                conflicts: meta || query.is_true("conflicts"),
                deleted_conflicts: meta || query.is_true("deleted_conflicts"),
                local_seq: query.is_true("local_seq"),
            },
        })
    }
}

/// The revision that a write replaces, from `rev` and `If-Match`, which must not disagree with each other or
/// with `in_body`.
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

/// `all`, or a JSON array of revisions; an empty one asks nothing.
fn open_revs(text: &str) -> Result<Option<OpenRevs>, Error> {
    if text == "all" {
        return Ok(Some(OpenRevs::All));
    }
    let revs = revisions(Json::parse(text.as_bytes())?.value())?;
    Ok((!revs.is_empty()).then_some(OpenRevs::Some(revs)))
}

#[cfg(test)]
mod tests;
