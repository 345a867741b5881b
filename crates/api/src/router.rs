//! The route table: maps paths to a [`Resource`] with its methods, permissions and handlers.
//!
//! A path is split before its segments are decoded, so that `%2F` can be part of a database name or a document
//! id. Patterns are compared with decoded segments, so that `%5Fall_docs` is not mistaken for a document. As
//! in CouchDB empty segments are ignored. Resources are tried in order.

use std::borrow::Cow;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use hyper::{HeaderMap, Method, Uri};
use settee_auth::UserContext;
use settee_database::members::Node as Member;
use settee_database::{Database, Layout, Reader};
use settee_edge::budget::Share;
use settee_model::partition::validate_partition;
use settee_service::Permission;
use settee_threads::Threads;

use crate::head::RequestHead;
use crate::node::Node;
use crate::params::{Plus, Query};
use crate::path::{Captures, Split, not_text, split};
use crate::redactor;
use crate::request::{Request, RequestBody, absolute};
use crate::respond::{self, Answer};
use crate::{Error, bridge};

type Handler = Arc<dyn Fn(Request) -> Pin<Box<dyn Future<Output = Answer> + Send>> + Send + Sync>;

pub(crate) struct Resource {
    pub(crate) path: &'static str,
    segments: Vec<Segment>,
    /// Value of the header `Allow`: the methods in CouchDB's order.
    pub(crate) allow: &'static str,
    pub(crate) methods: Vec<Served>,
    reads: bool,
    /// True if `_rewrite` replaces the request by another one.
    rewrites: bool,
    pub(crate) other_methods: Option<(Permission, BodyKind, Handler)>,
    /// As [`Served::is_per_reader`].
    pub(crate) others_are_per_reader: bool,
}

pub(crate) struct Served {
    pub(crate) method: Method,
    pub(crate) permission: Permission,
    pub(crate) takes: BodyKind,
    /// True if the handler returns only documents that the reader of the request may see.
    pub(crate) is_per_reader: bool,
    handler: Handler,
}

/// Kinds of request bodies, which determine their maximum size. `[chttpd] max_http_request_size` and the
/// available memory limit all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyKind {
    /// Names, options, settings, definitions.
    Options,
    /// Lists of keys, ids and revisions, and selectors, which can contain lists.
    Lists,
    /// Documents, which have separate limits, and input of design functions.
    Documents,
}

impl BodyKind {
    pub(crate) fn max_bytes(self) -> usize {
        match self {
            Self::Options => 1 << 20,
            Self::Lists => 64 << 20,
            Self::Documents => usize::MAX,
        }
    }

    /// Number of copies of a body in memory: the compact text and its parsed form; for documents also the input and the
    /// output of the store.
    pub(crate) fn copies(self) -> usize {
        match self {
            Self::Options | Self::Lists => 1,
            Self::Documents => 3,
        }
    }
}

/// The data that a request may change, which determines the node that handles it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    Nothing,
    Database(&'static str, String),
    /// Like `Database`, for a request that `_rewrite` replaces by another one, which may change the database.
    Rewrite(&'static str, String),
    /// Reads a database that only one node reads without a round trip.
    Read(&'static str, String),
    Server,
}

impl Effect {
    /// Returns what a request keeps until its end. A feed must not delay the end of its node.
    pub(crate) fn guard<T>(&self, write_guard: T) -> Option<T> {
        Some(write_guard).filter(|_| !matches!(self, Self::Read(..)))
    }
}

enum Segment {
    Literal(&'static str),
    Capture(&'static str),
    Rest(&'static str),
}

const ADMINISTRATORS_ONLY: &str = "In a database with per-document access only administrators can use this resource.";

pub(crate) struct Router {
    resources: Vec<Resource>,
    /// The resources that a path of a given length can match, in order. All longer paths use the last entry.
    by_length: Vec<Vec<usize>>,
}

pub(crate) struct Resolved<'a> {
    plus: Plus,
    place: Result<RouteMatch<'a>, Error>,
}

struct RouteMatch<'a> {
    resource: Option<&'a Resource>,
    captures: Captures,
    partition: Option<String>,
}

impl Resource {
    /// In `path`, `{name}` matches one segment and `{*name}` all remaining ones.
    pub(crate) fn new(path: &'static str, allow: &'static str) -> Self {
        let segments = path.split('/').skip(1).filter(|part| !part.is_empty()).map(|part| {
            match part.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) {
                None => Segment::Literal(part),
                Some(name) => match name.strip_prefix('*') {
                    Some(name) => Segment::Rest(name),
                    None => Segment::Capture(name),
                },
            }
        });
        let segments = segments.collect();
        Self {
            path,
            segments,
            allow,
            methods: Vec::new(),
            reads: false,
            rewrites: false,
            other_methods: None,
            others_are_per_reader: false,
        }
    }

    /// The kind of the body is [`BodyKind::Options`], unless [`Self::takes`] sets another one.
    pub(crate) fn on<F, T>(mut self, method: Method, permission: Permission, handler: F) -> Self
    where
        F: Fn(Request) -> T + Send + Sync + 'static,
        T: Future<Output = Answer> + Send + 'static,
    {
        let handler: Handler = Arc::new(move |request| Box::pin(handler(request)));
        self.methods.push(Served { method, permission, takes: BodyKind::Options, is_per_reader: false, handler });
        self
    }

    pub(crate) fn takes(mut self, takes: BodyKind) -> Self {
        for served in &mut self.methods {
            if matches!(served.method, Method::POST | Method::PUT) {
                served.takes = takes;
            }
        }
        if let Some((_, others, _)) = &mut self.other_methods {
            *others = takes;
        }
        self
    }

    /// Declares that the handlers of the methods so far return only documents that the reader of the request may see.
    /// In a database with per-document access all other methods are refused to users without administrator rights.
    pub(crate) fn per_reader(mut self) -> Self {
        self.methods.iter_mut().for_each(|served| served.is_per_reader = true);
        self.others_are_per_reader = self.other_methods.is_some();
        self
    }

    fn is_per_reader(&self, method: &Method) -> bool {
        let method = if method == Method::HEAD { &Method::GET } else { method };
        let served = self.methods.iter().find(|served| served.method == *method);
        served.map_or(self.others_are_per_reader, |served| served.is_per_reader)
    }

    /// Declares that no method changes documents, so that every node of a cluster serves the resource.
    pub(crate) fn reads(self) -> Self {
        Self { reads: true, ..self }
    }

    /// Declares that a request of any method may become one that changes documents.
    pub(crate) fn rewrites(self) -> Self {
        Self { rewrites: true, ..self }
    }

    pub(crate) fn any<F, T>(mut self, permission: Permission, handler: F) -> Self
    where
        F: Fn(Request) -> T + Send + Sync + 'static,
        T: Future<Output = Answer> + Send + 'static,
    {
        self.other_methods = Some((permission, BodyKind::Options, Arc::new(move |request| Box::pin(handler(request)))));
        self
    }

    pub(crate) fn get<F, T>(self, permission: Permission, handler: F) -> Self
    where
        F: Fn(Request) -> T + Send + Sync + 'static,
        T: Future<Output = Answer> + Send + 'static,
    {
        self.on(Method::GET, permission, handler)
    }

    pub(crate) fn post<F, T>(self, permission: Permission, handler: F) -> Self
    where
        F: Fn(Request) -> T + Send + Sync + 'static,
        T: Future<Output = Answer> + Send + 'static,
    {
        self.on(Method::POST, permission, handler)
    }

    pub(crate) fn put<F, T>(self, permission: Permission, handler: F) -> Self
    where
        F: Fn(Request) -> T + Send + Sync + 'static,
        T: Future<Output = Answer> + Send + 'static,
    {
        self.on(Method::PUT, permission, handler)
    }

    pub(crate) fn delete<F, T>(self, permission: Permission, handler: F) -> Self
    where
        F: Fn(Request) -> T + Send + Sync + 'static,
        T: Future<Output = Answer> + Send + 'static,
    {
        self.on(Method::DELETE, permission, handler)
    }

    /// Treats HEAD as GET.
    pub(crate) fn method(&self, method: &Method) -> Result<(Permission, BodyKind, &Handler), Error> {
        let method = if method == Method::HEAD { &Method::GET } else { method };
        match (self.methods.iter().find(|served| served.method == method), &self.other_methods) {
            (Some(served), _) => Ok((served.permission, served.takes, &served.handler)),
            (None, Some((permission, takes, handler))) => Ok((*permission, *takes, handler)),
            (None, None) => Err(Error::method_not_allowed(self.allow)),
        }
    }

    fn fits(&self, length: usize) -> bool {
        match self.segments.last() {
            Some(Segment::Rest(_)) => length >= self.segments.len(),
            _ => length == self.segments.len(),
        }
    }

    /// Returns true if the segments match. It captures nothing, because most candidates do not match.
    fn matches(&self, parts: &[Cow<'_, str>]) -> bool {
        self.segments.iter().zip(parts).all(|(segment, part)| match segment {
            Segment::Literal(literal) => part == literal,
            Segment::Capture(_) | Segment::Rest(_) => true,
        })
    }

    fn is_function(&self) -> bool {
        self.path.starts_with("/{db}/_design/{ddoc}/_")
    }

    fn captures(&self, parts: &[Cow<'_, str>]) -> Captures {
        let capture = |(index, segment): (usize, &Segment)| match segment {
            Segment::Literal(_) => None,
            Segment::Capture(name) => Some((*name, parts[index].to_string())),
            Segment::Rest(name) => Some((*name, parts[index..].join("/"))),
        };
        Captures { parts: self.segments.iter().enumerate().filter_map(capture).collect(), is_garbled: false }
    }

    fn attachment_at(&self) -> Option<usize> {
        matches!(self.segments.last(), Some(Segment::Rest("attachment"))).then(|| self.segments.len() - 1)
    }
}

impl Router {
    pub(crate) fn new(resources: Vec<Resource>) -> Self {
        let longest = resources.iter().map(|resource| resource.segments.len()).max().unwrap_or(0);
        let of_length = |length| (0..resources.len()).filter(|&index: &usize| resources[index].fits(length)).collect();
        let by_length = (0..=longest + 1).map(of_length).collect();
        Self { resources, by_length }
    }

    fn resource(&self, parts: &[Cow<'_, str>]) -> Option<&Resource> {
        let candidates = &self.by_length[parts.len().min(self.by_length.len() - 1)];
        candidates.iter().map(|&index| &self.resources[index]).find(|resource| resource.matches(parts))
    }

    #[cfg(test)]
    pub(crate) fn resources(&self) -> &[Resource] {
        &self.resources
    }

    pub(crate) async fn handle(
        self: &Arc<Self>,
        node: &Arc<Node>,
        resolved: Resolved<'_>,
        (head, headers): (RequestHead, HeaderMap),
        user: UserContext,
        body: Option<RequestBody>,
    ) -> Answer {
        let plus = node.policy().plus;
        // Another node may have changed the setting since the path was resolved.
        let place = if resolved.plus == plus { resolved.place } else { self.place(head.uri.path(), plus) }?;
        prepare_database(node, &place.captures).await;
        let found = match place.resource {
            Some(resource) => {
                let method = resource.method(&head.method);
                method.map(|(permission, takes, handler)| (resource, permission, takes, handler))
            }
            None => Err(Error::not_found("missing")),
        };
        let (mut reader, mut instance) = (Reader::Administrator, None);
        match &found {
            Ok((resource, permission, ..)) => {
                head.account.set_share(share_of(&user));
                head.seen.set_route(resource.path);
                node.access.authorize(*permission, &user, place.captures.place()).await?;
                // The database is opened first, except for requests that create or delete it.
                let is_for_database = resource.path == "/{db}" && [Method::PUT, Method::DELETE].contains(&head.method);
                if !is_for_database && let Some(database) = open_database(node, &place.captures)? {
                    (reader, instance) = (settee_service::reader(&database, &user)?, Some(database.instance()));
                    if reader != Reader::Administrator && !resource.is_per_reader(&head.method) {
                        return Err(Error::forbidden(ADMINISTRATORS_ONLY));
                    }
                }
                if head.method == Method::GET
                    && let Some(target) = with_decoded_slash(&head.uri)
                {
                    return Ok(respond::moved(&absolute(node, &head, &headers, &target)));
                }
            }
            // Unauthorized users must not learn which resources exist.
            Err(_) => {
                let Split { parts, .. } = split(head.uri.path(), plus);
                let permission = permission_of_unserved(&head.method, &parts);
                node.access.authorize(permission, &user, place.captures.place()).await?;
                if let Some(database) = open_database(node, &place.captures)? {
                    reader = settee_service::reader(&database, &user)?;
                }
            }
        }
        let mut query = Query::parse(head.uri.query())?;
        if let Some(named) = &place.partition {
            enter_partition(node, &place.captures, named, &mut query)?;
        }
        let (takes, handler) = match found {
            Ok((.., takes, handler)) => (takes, handler),
            Err(error) => {
                // As in CouchDB, the design document is opened before an unsupported method is reported.
                let is_of_design =
                    place.resource.is_some_and(Resource::is_function) || is_unknown_function(&place.captures);
                if is_of_design && reader == Reader::Administrator {
                    require_design_document(node, &place.captures).await?;
                }
                return Err(error);
            }
        };
        if is_unknown_function(&place.captures) {
            require_design_document(node, &place.captures).await?;
        }
        let (node, router, captures) = (Arc::clone(node), Arc::clone(self), place.captures);
        let redactor = redactor::redactor(&head, &captures, &user, plus)?;
        let account = Arc::clone(&head.account);
        let other = node.nodes.named(captures.get("node"), &user);
        let request = Request {
            node: Arc::clone(&node),
            router,
            head,
            headers,
            query,
            user,
            reader,
            instance,
            captures,
            body,
            takes,
            threads: Threads::default(),
        };
        let answer = match other {
            Some(other) => forward_to_node(&other, request).await,
            None if request.may_be_large() => {
                node.slow_lane.serve(|threads| handler(Request { threads, ..request })).await?
            }
            None => handler(request).await,
        };
        match redactor {
            None => answer,
            Some(redactor) => redactor.cover(answer?, &account).await,
        }
    }

    pub(crate) fn served(&self, method: &Method, path: &str, plus: Plus) -> Option<(&'static str, Permission)> {
        let resource = self.place(path, plus).ok()?.resource?;
        let (permission, ..) = resource.method(method).ok()?;
        Some((resource.path, permission))
    }

    pub(crate) fn resolve(&self, path: &str, plus: Plus) -> Resolved<'_> {
        Resolved { plus, place: self.place(path, plus) }
    }

    fn place(&self, path: &str, plus: Plus) -> Result<RouteMatch<'_>, Error> {
        let Split { mut parts, garbled } = split(path, plus);
        let partition = (parts.len() > 3 && parts[1] == "_partition").then(|| parts[2].to_string());
        if partition.is_some() {
            parts.drain(1..3);
        }
        let is_reachable = partition.is_none() || serves_partitions(&parts);
        let resource = self.resource(&parts).filter(|_| is_reachable);
        // Replacing invalid bytes would give one document several names.
        let attachment_at = resource.and_then(Resource::attachment_at).filter(|_| partition.is_none());
        if garbled.is_some_and(|at| attachment_at.is_none_or(|name| at < name)) {
            return Err(not_text());
        }
        let captures = match resource {
            Some(resource) => Captures { is_garbled: garbled.is_some(), ..resource.captures(&parts) },
            None if partition.is_some() => {
                Captures { parts: vec![("db", parts[0].to_string())], ..Captures::default() }
            }
            None => Captures::default(),
        };
        Ok(RouteMatch { resource, captures, partition })
    }

    #[cfg(test)]
    pub(crate) fn find(&self, method: &Method, path: &str) -> Result<(&Resource, Permission, Captures), Error> {
        let place = self.place(path, Plus::Space)?;
        let resource = place.resource.ok_or_else(|| Error::not_found("missing"))?;
        let (permission, ..) = resource.method(method)?;
        Ok((resource, permission, place.captures))
    }
}

impl Resolved<'_> {
    pub(crate) fn effect(&self, method: &Method) -> Effect {
        let Ok(RouteMatch { resource: Some(resource), captures, .. }) = &self.place else {
            return Effect::Nothing;
        };
        let is_safe = [Method::GET, Method::HEAD, Method::OPTIONS].contains(method);
        match captures.get("db") {
            _ if resource.reads || is_safe && !resource.rewrites => Effect::Nothing,
            "" => Effect::Server,
            name if resource.rewrites => Effect::Rewrite(resource.path, name.to_owned()),
            name => Effect::Database(resource.path, name.to_owned()),
        }
    }

    /// Returns the effect of a request that changes nothing.
    pub(crate) fn read(&self) -> Effect {
        match &self.place {
            Ok(RouteMatch { resource: Some(resource), captures, .. }) if !captures.get("db").is_empty() => {
                Effect::Read(resource.path, captures.get("db").to_owned())
            }
            _ => Effect::Nothing,
        }
    }
}

async fn forward_to_node(other: &Member, mut request: Request) -> Answer {
    let body = request.read_body().await?;
    let target = (&request.head.method, &request.head.uri);
    request.node.nodes.forward_buffered(other, target, &request.headers, body).await
}

/// Opens or refreshes the database on a thread that may block, so that a slow store blocks no thread of the runtime.
/// Errors are ignored here and reported by the next access.
async fn prepare_database(node: &Arc<Node>, captures: &Captures) {
    let name = captures.get("db");
    if name.is_empty() || node.catalog.is_cached(name) {
        return;
    }
    let (node, name) = (Arc::clone(node), name.to_owned());
    let _ = bridge::blocking(&Threads::default(), move || node.database(&name).map(|_| ())).await;
}

fn open_database(node: &Node, captures: &Captures) -> Result<Option<Arc<Database>>, Error> {
    match captures.get("db") {
        "" => Ok(None),
        name => node.database(name).map(Some),
    }
}

/// Returns the target with a plain slash. CouchDB redirects reads there, because relative URLs in attachments would
/// resolve wrongly otherwise.
fn with_decoded_slash(uri: &Uri) -> Option<String> {
    const PREFIX: &str = "_design";
    let path = uri.path();
    let start = path.match_indices('/').map(|(at, _)| at + 1).filter(|at| !path[*at..].starts_with('/')).nth(1)?;
    let rest = path[start..].strip_prefix(PREFIX)?;
    let rest = rest.strip_prefix("%2F").or_else(|| rest.strip_prefix("%2f"))?;
    let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    Some(format!("{}{PREFIX}/{rest}{query}", &path[..start]))
}

/// `parts` starts with the database.
fn serves_partitions(parts: &[Cow<'_, str>]) -> bool {
    match parts.get(1).map_or("", |part| part.as_ref()) {
        "_all_docs" | "_find" | "_explain" | "_index" => true,
        "_design" => parts.get(3).is_some_and(|part| part.starts_with('_')),
        _ => false,
    }
}

fn enter_partition(node: &Node, captures: &Captures, partition: &str, query: &mut Query) -> Result<(), Error> {
    require_partitioned(&*node.database(captures.get("db"))?)?;
    validate_partition(partition)?;
    query.set_partition(partition)
}

pub(crate) fn require_partitioned(database: &Database) -> Result<(), Error> {
    match database.layout() {
        Layout::Whole => Err(Error::bad_request("database is not partitioned")),
        Layout::Partitioned => Ok(()),
    }
}

fn is_unknown_function(captures: &Captures) -> bool {
    captures.find("ddoc").is_some() && captures.get("attachment").starts_with('_')
}

async fn require_design_document(node: &Arc<Node>, captures: &Captures) -> Result<(), Error> {
    let (database, id) = (node.database(captures.get("db"))?, format!("_design/{}", captures.get("ddoc")));
    settee_threads::run(move || match database.read()?.head(&id)? {
        None => Err(Error::not_found("missing")),
        Some(head) if head.stored.deleted => Err(Error::not_found("deleted")),
        Some(_) => Ok(()),
    })
    .await
}

/// Returns the permission that CouchDB checks before it reports an unsupported path or method, so that unauthorized
/// users do not learn which resources exist.
fn permission_of_unserved(method: &Method, path: &[Cow<'_, str>]) -> Permission {
    let path: Vec<&str> = path.iter().map(AsRef::as_ref).collect();
    let makes_or_ends = [Method::PUT, Method::DELETE].contains(method);
    match path[..] {
        [] | ["favicon.ico", ..] => Permission::Anyone,
        ["_all_dbs" | "_dbs_info", ..] => Permission::ListDatabases,
        ["_up" | "_uuids" | "_session" | "_replicate" | "_active_tasks"] => Permission::Anyone,
        ["_utils", ..] if *method == Method::GET => Permission::Anyone,
        ["_node", _, "_stats" | "_system" | "_prometheus" | "_history", ..] | ["_stats", ..] => Permission::Metrics,
        ["_users" | "_replicator", "_all_docs" | "_changes", ..] => Permission::ServerAdmin,
        [_] if makes_or_ends => Permission::ServerAdmin,
        ["_users" | "_replicator" | "_global_changes", ..] => Permission::Document,
        [first, ..] if first.starts_with('_') => Permission::ServerAdmin,
        [_, "_compact", ..] | [_, "_view_cleanup"] => Permission::Maintenance,
        [_, "_sync_shards" | "_purge" | "_purged_infos_limit"] => Permission::ServerAdmin,
        _ => Permission::Document,
    }
}

fn share_of(user: &UserContext) -> Share {
    match &user.name {
        _ if user.is_admin() => Share::Admin,
        Some(_) => Share::User,
        None => Share::Anonymous,
    }
}

#[cfg(test)]
mod tests;
