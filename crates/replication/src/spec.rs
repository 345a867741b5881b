//! [`Spec`]: the description of a replication. Members and error messages are CouchDB's (`couch_replicator_parse`).

#[cfg(test)]
mod tests;

use percent_encoding::percent_decode_str;
use settee_model::json::{Json, Value};

use crate::endpoint::{Endpoint, EndpointError, User};
use crate::tuning::{SocketOptions, Tuning};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    Replicate(Box<Spec>),
    Cancel(CancelTarget),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CancelTarget {
    /// The id may omit its extension (`+continuous`).
    Id(String),
    Like(Box<Spec>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    pub source: Endpoint,
    pub target: Endpoint,
    pub continuous: bool,
    pub create_target: bool,
    pub create_target_params: Vec<(String, String)>,
    pub filter: Filter,
    /// Parameters of the filter function or of `_view`, an object.
    pub query_params: Option<Json>,
    /// Sequence after which the replication starts if no checkpoint exists. Any JSON value.
    pub since_seq: Option<Json>,
    /// True if only winning revisions are replicated instead of all leaves.
    pub winning_revs_only: bool,
    pub user: User,
    pub tuning: Tuning,
}

impl Spec {
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        self.without_credentials() == other.without_credentials()
    }

    fn without_credentials(&self) -> Self {
        let mut spec = Self { user: User::default(), ..self.clone() };
        for endpoint in [&mut spec.source, &mut spec.target] {
            *endpoint.user_mut() = User::default();
        }
        spec
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Filter {
    #[default]
    All,
    /// All documents except design documents, which the reader of the feed skips. It has separate checkpoints, so that
    /// `_design` can copy design documents later, when their functions no longer validate old documents.
    AllButDesign,
    Function {
        /// Without `_design/`.
        design: String,
        name: String,
    },
    BuiltIn(String),
    /// Sorted and without duplicates.
    DocIds(Vec<String>),
    Selector(Json),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    #[error("{0}")]
    BadRequest(String),
    #[error("{0}")]
    Endpoint(#[from] EndpointError),
}

impl Request {
    pub fn parse(body: Value<'_>, user: &User, defaults: &Tuning) -> Result<Self, SpecError> {
        if !body.is_object() {
            return Err(bad("Request body must be a JSON object"));
        }
        check_options(body)?;
        let cancel = boolean(body, "cancel")?.unwrap_or(false);
        let id = ["_local_id", "replication_id", "id"].iter().find_map(|name| body.get(name).and_then(Value::as_str));
        match (cancel, id) {
            // In many ids a plus sign of the URL was decoded to a space.
            (true, Some(id)) => Ok(Self::Cancel(CancelTarget::Id(id.replace(' ', "+")))),
            (true, None) => {
                Spec::parse(body, user, defaults).map(|spec| Self::Cancel(CancelTarget::Like(Box::new(spec))))
            }
            (false, _) => Spec::parse(body, user, defaults).map(|spec| Self::Replicate(Box::new(spec))),
        }
    }
}

impl Spec {
    /// Parses a body of `_replicate`, or a document of `_replicator`. Errors have CouchDB's text.
    pub fn parse(body: Value<'_>, user: &User, defaults: &Tuning) -> Result<Self, SpecError> {
        let (source_proxy, target_proxy) = proxies(body)?;
        check_options(body)?;
        let source = endpoint(body, "source", source_proxy.as_deref(), user)?;
        let target = endpoint(body, "target", target_proxy.as_deref(), user)?;
        let continuous = boolean(body, "continuous")?.unwrap_or(false);
        let create_target = boolean(body, "create_target")?.unwrap_or(false);
        let winning_revs_only = boolean(body, "winning_revs_only")?.unwrap_or(false);
        let create_target_params = object(body, "create_target_params", "a JSON object")?;
        let query_params = object(body, "query_params", "an object")?;
        let tuning = Tuning::parse(body, defaults)?;
        let filter = Filter::parse(body)?;
        if filter == Filter::BuiltIn("_view".to_owned()) {
            let view = query_params.and_then(|params| params.get("view")).and_then(Value::as_str);
            if view.is_none_or(|view| view.split('/').count() != 2) {
                return Err(bad("Invalid `view` parameter."));
            }
        }
        Ok(Self {
            source,
            target,
            continuous,
            create_target,
            create_target_params: create_target_params.map(parameters).unwrap_or_default(),
            filter,
            query_params: query_params.map(owned),
            since_seq: body.get("since_seq").filter(|since| !since.is_null()).map(owned),
            winning_revs_only,
            user: user.clone(),
            tuning,
        })
    }
}

impl Filter {
    fn parse(body: Value<'_>) -> Result<Self, SpecError> {
        let doc_ids = array(body, "doc_ids")?;
        let selector = object(body, "selector", "a JSON object")?;
        let filter = body.get("filter").filter(|filter| !filter.is_null());
        match (doc_ids, filter, selector) {
            (None, None, None) => Ok(Self::All),
            (Some(ids), None, None) => {
                let ids: Option<Vec<String>> = ids.elements().map(|id| id.as_str().map(|id| unquote(&id))).collect();
                let mut ids = ids.ok_or_else(|| bad("parameter `doc_ids` must be an array of strings"))?;
                ids.sort_unstable();
                ids.dedup();
                Ok(Self::DocIds(ids))
            }
            (None, None, Some(selector)) => Ok(Self::Selector(owned(selector))),
            (None, Some(filter), None) => {
                let invalid = || bad("Invalid filter. Must match `ddocname/filtername`.");
                let text = filter.as_str().ok_or_else(invalid)?;
                if text.starts_with('_') {
                    return Ok(Self::BuiltIn(text.into_owned()));
                }
                let (design, name) = text.split_once('/').ok_or_else(invalid)?;
                Ok(Self::Function { design: design.to_owned(), name: name.to_owned() })
            }
            _ => Err(exclusive()),
        }
    }
}

impl Tuning {
    /// Maximum of a request for the batches in flight and the connections.
    pub const MAX_WORKERS: usize = 64;
    pub const MAX_BATCH_SIZE: usize = 10_000;

    fn parse(body: Value<'_>, defaults: &Self) -> Result<Self, SpecError> {
        let number = |name, default: u64| integer(body, name).map(|value| value.unwrap_or(default));
        let count = |name, default: usize, most: usize| {
            let asked = integer(body, name)?.map(|value| usize::try_from(value).unwrap_or(usize::MAX));
            Ok::<_, SpecError>(asked.unwrap_or(default).clamp(1, most))
        };
        Ok(Self {
            worker_processes: count("worker_processes", defaults.worker_processes, Self::MAX_WORKERS)?,
            worker_batch_size: count("worker_batch_size", defaults.worker_batch_size, Self::MAX_BATCH_SIZE)?,
            http_connections: count("http_connections", defaults.http_connections, Self::MAX_WORKERS)?,
            connection_timeout_ms: number("connection_timeout", defaults.connection_timeout_ms)?.max(1),
            retries_per_request: u32::try_from(number("retries_per_request", defaults.retries_per_request.into())?)
                .unwrap_or(u32::MAX),
            checkpoint_interval_ms: number("checkpoint_interval", defaults.checkpoint_interval_ms)?.max(1),
            use_checkpoints: boolean(body, "use_checkpoints")?.unwrap_or(defaults.use_checkpoints),
            use_bulk_get: boolean(body, "use_bulk_get")?.unwrap_or(defaults.use_bulk_get),
            // As in CouchDB, invalid text means no options and is not an error.
            socket_options: body.get("socket_options").and_then(Value::as_str).map(|text| SocketOptions::parse(&text)),
        })
    }
}

/// As in CouchDB, checks the types of options in the order of the body, before the endpoints are parsed.
fn check_options(body: Value<'_>) -> Result<(), SpecError> {
    for (name, _) in body.members() {
        let name = name.to_text();
        match name.as_str() {
            "cancel" | "create_target" | "winning_revs_only" | "continuous" | "use_bulk_get" => {
                boolean(body, &name)?;
            }
            "create_target_params" | "selector" => {
                object(body, &name, "a JSON object")?;
            }
            "query_params" => {
                object(body, &name, "an object")?;
            }
            "doc_ids" => {
                array(body, &name)?;
            }
            "worker_processes"
            | "worker_batch_size"
            | "http_connections"
            | "connection_timeout"
            | "retries_per_request"
            | "checkpoint_interval" => {
                integer(body, &name)?;
            }
            _ => {}
        }
    }
    let filters = ["doc_ids", "filter", "selector"].iter().filter_map(|name| body.get(name));
    if filters.filter(|value| !value.is_null()).count() > 1 { Err(exclusive()) } else { Ok(()) }
}

fn exclusive() -> SpecError {
    bad("`doc_ids`,`filter`,`selector` are mutually exclusive")
}

fn endpoint(body: Value<'_>, name: &str, proxy: Option<&str>, user: &User) -> Result<Endpoint, SpecError> {
    let endpoint = Endpoint::parse(body.get(name), proxy, user)?;
    // The proxy of a local database is not used, but must be a URL as well.
    match proxy {
        Some(proxy) if !proxy.contains("://") => Err(EndpointError::InvalidProxy.into()),
        Some(_) | None => Ok(endpoint),
    }
}

fn bad(reason: impl Into<String>) -> SpecError {
    SpecError::BadRequest(reason.into())
}

fn owned(value: Value<'_>) -> Json {
    Json::trusted(value.raw().to_vec())
}

fn boolean(body: Value<'_>, name: &str) -> Result<Option<bool>, SpecError> {
    let Some(value) = body.get(name) else { return Ok(None) };
    value.as_bool().map(Some).ok_or_else(|| bad(format!("parameter `{name}` must be a boolean")))
}

fn object<'a>(body: Value<'a>, name: &str, label: &str) -> Result<Option<Value<'a>>, SpecError> {
    match body.get(name) {
        Some(value) if !value.is_object() => Err(bad(format!("parameter `{name}` must be {label}"))),
        value => Ok(value),
    }
}

fn array<'a>(body: Value<'a>, name: &str) -> Result<Option<Value<'a>>, SpecError> {
    match body.get(name).filter(|value| !value.is_null()) {
        Some(value) if !value.is_array() => Err(bad(format!("parameter `{name}` must be an array"))),
        value => Ok(value),
    }
}

fn integer(body: Value<'_>, name: &str) -> Result<Option<u64>, SpecError> {
    let Some(value) = body.get(name) else { return Ok(None) };
    let number = value.as_u64().or_else(|| value.as_str()?.parse().ok());
    number.map(Some).ok_or_else(|| bad(format!("parameter `{name}` must be an integer")))
}

/// CouchDB accepts percent-encoded and plain ids.
fn unquote(id: &str) -> String {
    percent_decode_str(id).decode_utf8().map_or_else(|_| id.to_owned(), std::borrow::Cow::into_owned)
}

fn parameters(object: Value<'_>) -> Vec<(String, String)> {
    object.members().map(|(name, value)| (name.to_text(), value.to_text())).collect()
}

/// Returns the proxies of source and target. Other values than strings become JSON text, which is no URL.
fn proxies(body: Value<'_>) -> Result<(Option<String>, Option<String>), SpecError> {
    let text = |name| {
        let value = body.get(name).filter(|value| !value.is_null())?;
        Some(value.to_text()).filter(|text| !text.is_empty())
    };
    match (text("proxy"), text("source_proxy"), text("target_proxy")) {
        (Some(_), Some(_), _) => Err(bad("`proxy` is mutually exclusive with `source_proxy`")),
        (Some(_), None, Some(_)) => Err(bad("`proxy` is mutually exclusive with `target_proxy`")),
        (Some(proxy), None, None) => Ok((Some(proxy.clone()), Some(proxy))),
        (None, source, target) => Ok((source, target)),
    }
}
