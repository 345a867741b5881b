//! [`ReplicationId`]: the id of a replication, equal to the id that CouchDB computes (`couch_replicator_ids`). The id
//! is an MD5 hash of the server that runs the replication, both endpoints without passwords, and the filter. A server
//! with the uuid of a CouchDB continues from CouchDB's checkpoints, also under ids of older versions.

mod selector;
#[cfg(test)]
mod tests;

use data_encoding::HEXLOWER;
use std::fmt;

use settee_model::json::{Json, Value};
use settee_model::term::Term;

use crate::endpoint::{Auth, Endpoint, Remote};
use crate::peer::Peer;
use crate::spec::{Filter, Spec};

/// Checkpoints are stored under `base`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReplicationId {
    /// 32 hexadecimal digits, by version 4 of the algorithm.
    pub base: String,
    /// `+continuous`, `+create_target`, both or nothing.
    pub extension: String,
    /// Ids of versions 3, 2 and 1, in this order.
    pub older: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    pub uuid: String,
    pub hostname: String,
    pub port: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// The code of the filter function is part of the id and could not be read from the source. A retry may succeed.
    #[error("{0}")]
    FilterFetch(String),
}

impl ReplicationId {
    /// Computes the id of `spec`. Reads `source` only for the code of a filter function.
    pub async fn compute(spec: &Spec, identity: &Identity, source: &Peer) -> Result<Self, IdError> {
        let code = match &spec.filter {
            Filter::Function { design, name } => Some(fetch(source, design, name).await?),
            Filter::All | Filter::AllButDesign | Filter::BuiltIn(_) | Filter::DocIds(_) | Filter::Selector(_) => None,
        };
        Ok(Self::of(spec, identity, code.as_deref().unwrap_or_default()))
    }

    fn of(spec: &Spec, identity: &Identity, code: &str) -> Self {
        let version = |version: Version| {
            let md5 = version.term(spec, identity, code).md5();
            HEXLOWER.encode(&md5)
        };
        let mut extension = String::new();
        for (set, name) in [(spec.continuous, "+continuous"), (spec.create_target, "+create_target")] {
            if set {
                extension.push_str(name);
            }
        }
        let base = version(Version::Four);
        let older = [Version::Three, Version::Two, Version::One].map(version);
        let older = older.into_iter().filter(|older| *older != base).collect();
        Self { base, extension, older }
    }
}

impl fmt::Display for ReplicationId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}{}", self.base, self.extension)
    }
}

async fn fetch(source: &Peer, design: &str, name: &str) -> Result<String, IdError> {
    let shown = source.endpoint();
    let document = source.document(&format!("_design/{design}")).await.map_err(|error| {
        IdError::FilterFetch(format!(
            "Couldn't open document `_design/{design}` from source database `{shown}`: {error}"
        ))
    })?;
    let code = document.value().get("filters").and_then(|filters| filters.get(name)).and_then(Value::as_str);
    code.map(|code| trimmed(&code)).ok_or_else(|| {
        IdError::FilterFetch(format!(
            "Couldn't parse filter code from document _design/{design} on `{shown}`: there is no function `{name}`"
        ))
    })
}

/// CouchDB trims white space with a pattern whose dot matches no line end, so code of several lines is not trimmed.
fn trimmed(code: &str) -> String {
    let (line, end) = code.strip_suffix('\n').map_or((code, ""), |line| (line, "\n"));
    if line.contains('\n') { code.to_owned() } else { format!("{}{end}", line.trim_matches(' ')) }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
    Three,
    Four,
}

impl Version {
    fn term(self, spec: &Spec, identity: &Identity, code: &str) -> Term {
        let mut term = Term::default();
        let own = if self == Self::Two { 2 } else { 1 };
        let behind = usize::from(spec.winning_revs_only) + usize::from(spec.since_seq.is_some());
        term.list(own + 2 + filter_elements(spec) + behind);
        match self {
            Self::Four | Self::Three => term.binary(identity.uuid.as_bytes()),
            Self::Two | Self::One => term.string(identity.hostname.as_bytes()),
        }
        if self == Self::Two {
            term.integer(identity.port.into());
        }
        for endpoint in [&spec.source, &spec.target] {
            match (endpoint, self) {
                (Endpoint::Remote(remote), Self::Four) => write_remote(&mut term, remote),
                (Endpoint::Remote(remote), _) => write_url(&mut term, remote),
                (Endpoint::Local(local), _) => {
                    term.tuple(2);
                    term.atom("local");
                    term.binary(local.name.as_bytes());
                }
            }
        }
        write_filter(&mut term, spec, code);
        // Separate checkpoints, so that a later replication without the option copies the conflicts.
        if spec.winning_revs_only {
            term.binary(b"winning_revs_only");
        }
        // Since CouchDB 3.5.2 `since_seq`, which omits earlier changes, has separate checkpoints too.
        if let Some(since) = &spec.since_seq {
            term.json(since.value());
        }
        term.end();
        term
    }
}

/// Format: `{remote, User, Host, Port, Path, Headers, undefined}`; the last element was used for OAuth.
fn write_remote(term: &mut Term, remote: &Remote) {
    term.tuple(7);
    term.atom("remote");
    match &remote.auth {
        Auth::Basic { username, .. } => term.string(username.as_bytes()),
        Auth::None => term.atom("undefined"),
    }
    term.string(remote.host.trim_matches(['[', ']']).as_bytes());
    match (remote.scheme, remote.port) {
        ("https", 443) | ("http", 80 | 5984) => term.atom("default"),
        (_, port) => term.integer(port.into()),
    }
    term.string(remote.path.as_bytes());
    write_headers(term, remote);
    term.atom("undefined");
}

/// Format: `{remote, Url, Headers}`.
fn write_url(term: &mut Term, remote: &Remote) {
    term.tuple(3);
    term.atom("remote");
    term.string(remote.url.as_bytes());
    write_headers(term, remote);
}

fn write_headers(term: &mut Term, remote: &Remote) {
    term.list(remote.headers.len());
    for (name, value) in &remote.headers {
        term.tuple(2);
        term.string(name.as_bytes());
        term.string(value.as_bytes());
    }
    if !remote.headers.is_empty() {
        term.end();
    }
}

fn filter_elements(spec: &Spec) -> usize {
    match &spec.filter {
        Filter::All => 0,
        Filter::AllButDesign | Filter::DocIds(_) | Filter::Selector(_) => 1,
        Filter::Function { .. } | Filter::BuiltIn(_) => 2,
    }
}

fn write_filter(term: &mut Term, spec: &Spec, code: &str) {
    let parameters = spec.query_params.clone().unwrap_or_else(Json::empty_object);
    match &spec.filter {
        Filter::All => {}
        Filter::AllButDesign => term.binary(b"all_but_design"),
        Filter::Function { .. } => {
            term.binary(code.as_bytes());
            term.json(parameters.value());
        }
        Filter::BuiltIn(name) => {
            term.binary(name.as_bytes());
            term.json(parameters.value());
        }
        Filter::DocIds(ids) => {
            term.list(ids.len());
            ids.iter().for_each(|id| term.binary(id.as_bytes()));
            if !ids.is_empty() {
                term.end();
            }
        }
        Filter::Selector(selector) => term.json(selector::normal(selector).value()),
    }
}
