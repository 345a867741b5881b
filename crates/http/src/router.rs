//! The route table: which path is which [`Resource`], what its methods need, and who handles them.
//!
//! A path is split before its segments are decoded, so that `%2F` stays inside a database name or a document
//! id; patterns are compared with decoded segments, so that `%5Fall_docs` cannot pass for a document. As in
//! CouchDB empty segments count for nothing. Resources stand in the order in which they are tried.

use std::borrow::Cow;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use hyper::{HeaderMap, Method, StatusCode, Uri};
use percent_encoding::percent_decode_str;
use settee_auth::UserContext;

use crate::Error;
use crate::access::{self, Permission};
use crate::node::Node;
use crate::params::{Query, decode};
use crate::replicator_documents;
use crate::request::{Line, Request, Unread, absolute};
use crate::respond::{self, Answer};

type Handler = Arc<dyn Fn(Request) -> Pin<Box<dyn Future<Output = Answer> + Send>> + Send + Sync>;

/// What a path stands for.
pub(crate) struct Resource {
    /// The pattern.
    pub(crate) path: &'static str,
    segments: Vec<Segment>,
    /// The methods in the order in which CouchDB lists them.
    pub(crate) allow: &'static str,
    /// What each method needs, and its handler.
    pub(crate) methods: Vec<(Method, Permission, Handler)>,
    /// What all other methods need, and their handler, if they are served.
    pub(crate) other_methods: Option<(Permission, Handler)>,
}

enum Segment {
    Literal(&'static str),
    Capture(&'static str),
    Rest(&'static str),
}

/// The decoded parts of a path, by their names in the pattern.
#[derive(Clone, Debug, Default)]
pub(crate) struct Captures {
    parts: Vec<(&'static str, String)>,
    /// Whether the name of an attachment is no text: what stands in its place is nobody's name.
    is_garbled: bool,
}

/// All resources.
pub(crate) struct Router {
    resources: Vec<Resource>,
    /// The resources that a path of so many segments can match, in order. Longer paths match what those of the last
    /// number of segments do.
    by_length: Vec<Vec<usize>>,
}

/// A resource and method that match a request.
pub(crate) struct Matched<'a> {
    pub(crate) path: &'static str,
    pub(crate) permission: Permission,
    pub(crate) handler: &'a Handler,
    pub(crate) captures: Captures,
}

impl Captures {
    /// The part of this name; empty if the pattern has none.
    pub(crate) fn get(&self, name: &str) -> &str {
        self.parts.iter().find(|(key, _)| *key == name).map_or("", |(_, value)| value)
    }

    /// Refuses a name of an attachment that is no text. Who reads finds nothing under it.
    pub(crate) fn require_text(&self) -> Result<(), Error> {
        if self.is_garbled { Err(Error::bad_request("Attachment name is not UTF-8 encoded")) } else { Ok(()) }
    }
}

impl Resource {
    /// A resource without methods. In `path`, `{name}` stands for a segment and `{*name}` for all further ones.
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
        Self { path, segments: segments.collect(), allow, methods: Vec::new(), other_methods: None }
    }

    /// Adds a method.
    pub(crate) fn on<F, T>(mut self, method: Method, permission: Permission, handler: F) -> Self
    where
        F: Fn(Request) -> T + Send + Sync + 'static,
        T: Future<Output = Answer> + Send + 'static,
    {
        self.methods.push((method, permission, Arc::new(move |request| Box::pin(handler(request)))));
        self
    }

    /// Serves all methods that were not added.
    pub(crate) fn any<F, T>(mut self, permission: Permission, handler: F) -> Self
    where
        F: Fn(Request) -> T + Send + Sync + 'static,
        T: Future<Output = Answer> + Send + 'static,
    {
        self.other_methods = Some((permission, Arc::new(move |request| Box::pin(handler(request)))));
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

    /// Whether a path of so many segments may match.
    fn fits(&self, length: usize) -> bool {
        match self.segments.last() {
            Some(Segment::Rest(_)) => length >= self.segments.len(),
            _ => length == self.segments.len(),
        }
    }

    /// Whether the segments of a path that fits match. Most resources are asked in vain, so this takes nothing along.
    fn matches(&self, parts: &[Cow<'_, str>]) -> bool {
        self.segments.iter().zip(parts).all(|(segment, part)| match segment {
            Segment::Literal(literal) => part == literal,
            Segment::Capture(_) | Segment::Rest(_) => true,
        })
    }

    /// The parts of a path that matches.
    fn captures(&self, parts: &[Cow<'_, str>]) -> Captures {
        let capture = |(index, segment): (usize, &Segment)| match segment {
            Segment::Literal(_) => None,
            Segment::Capture(name) => Some((*name, parts[index].to_string())),
            Segment::Rest(name) => Some((*name, parts[index..].join("/"))),
        };
        Captures { parts: self.segments.iter().enumerate().filter_map(capture).collect(), is_garbled: false }
    }

    /// How many segments stand before the name of an attachment, if that is what the path ends with.
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

    /// The first resource that a path is for.
    fn resource(&self, parts: &[Cow<'_, str>]) -> Option<&Resource> {
        let candidates = &self.by_length[parts.len().min(self.by_length.len() - 1)];
        candidates.iter().map(|&index| &self.resources[index]).find(|resource| resource.matches(parts))
    }

    /// All resources, for those who list them.
    #[cfg(test)]
    pub(crate) fn resources(&self) -> &[Resource] {
        &self.resources
    }

    /// Has a request served by whom it is for, if it may be.
    pub(crate) async fn dispatch(
        self: &Arc<Self>,
        node: &Arc<Node>,
        line: Line,
        headers: HeaderMap,
        user: UserContext,
        body: Option<Unread>,
    ) -> Answer {
        let matched = match self.find(&line.method, line.uri.path()) {
            Err(error) if [StatusCode::METHOD_NOT_ALLOWED, StatusCode::NOT_FOUND].contains(&error.status) => {
                self.enter(node, &line, &user).await?;
                return Err(error);
            }
            found => found?,
        };
        line.seen.set_route(matched.path);
        access::authorize(node, matched.permission, &user, &matched.captures).await?;
        // A database is opened before anything else of a request is looked at, unless it is made or ended by it.
        let is_for_database = matched.path == "/{db}" && [Method::PUT, Method::DELETE].contains(&line.method);
        if !is_for_database {
            open_database(node, &matched.captures)?;
        }
        if line.method == Method::GET
            && let Some(target) = with_plain_slash(&line.uri)
        {
            return Ok(respond::moved(&absolute(node, &line, &headers, &target)));
        }
        let query = Query::parse(line.uri.query())?;
        let (node, router, captures) = (Arc::clone(node), Arc::clone(self), matched.captures);
        let mask = replicator_documents::mask(&line, &captures, &user)?;
        let answer = (matched.handler)(Request { node, router, line, headers, query, user, captures, body }).await;
        match mask {
            None => answer,
            Some(mask) => mask.cover(answer?).await,
        }
    }

    /// What is served is known to those only who may ask for something of its kind: others hear that they may not, whatever
    /// they ask.
    async fn enter(&self, node: &Arc<Node>, line: &Line, user: &UserContext) -> Result<(), Error> {
        let parts = segments(line.uri.path())?;
        let captures = self.resource(&parts).map(|resource| resource.captures(&parts)).unwrap_or_default();
        access::authorize(node, access::of_unserved(&line.method, &parts), user, &captures).await?;
        open_database(node, &captures)
    }

    /// Finds who serves `method` on `path`. HEAD is served as GET.
    pub(crate) fn find(&self, method: &Method, path: &str) -> Result<Matched<'_>, Error> {
        let Split { parts, garbled } = split(path);
        let method = if method == Method::HEAD { &Method::GET } else { method };
        let resource = self.resource(&parts);
        // Replacing bytes that are no text would give several names to one document.
        if garbled.is_some_and(|at| resource.and_then(Resource::attachment_at).is_none_or(|name| at < name)) {
            return Err(not_text());
        }
        let resource = resource.ok_or_else(|| Error::not_found("missing"))?;
        let found = resource.methods.iter().find(|(served, ..)| served == method);
        let found = found.map(|(_, permission, handler)| (permission, handler));
        let other = resource.other_methods.as_ref().map(|(permission, handler)| (permission, handler));
        let (permission, handler) = found.or(other).ok_or_else(|| Error::method_not_allowed(resource.allow))?;
        let captures = Captures { is_garbled: garbled.is_some(), ..resource.captures(&parts) };
        Ok(Matched { path: resource.path, permission: *permission, handler, captures })
    }
}

/// The database that a path names, if it names one, has to be there.
fn open_database(node: &Node, captures: &Captures) -> Result<(), Error> {
    match captures.get("db") {
        "" => Ok(()),
        name => node.database(name).map(|_| ()),
    }
}

/// The target of a read below a design document whose slash is escaped, with a plain slash: CouchDB sends readers there, for
/// whom relative addresses in attachments would lead elsewhere otherwise.
fn with_plain_slash(uri: &Uri) -> Option<String> {
    const ESCAPED: &str = "_design%2f";
    let path = uri.path();
    let start = path.match_indices('/').map(|(at, _)| at + 1).filter(|at| !path[*at..].starts_with('/')).nth(1)?;
    let name = path.get(start..start + ESCAPED.len()).filter(|name| name.eq_ignore_ascii_case(ESCAPED))?;
    let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    Some(format!("{}_design/{}{query}", &path[..start], &path[start + name.len()..]))
}

/// The decoded segments of a path. `/db/_design%2Fx` is `/db/_design/x`, likewise `_local`.
pub(crate) fn segments(path: &str) -> Result<Vec<Cow<'_, str>>, Error> {
    let Split { parts, garbled } = split(path);
    if garbled.is_some() { Err(not_text()) } else { Ok(parts) }
}

fn not_text() -> Error {
    Error::new(StatusCode::BAD_REQUEST, "illegal_docid", "Document id must be valid UTF-8")
}

/// The segments of a path, and the first of them that is no text. It is replaced by what text there is.
struct Split<'p> {
    parts: Vec<Cow<'p, str>>,
    garbled: Option<usize>,
}

fn split(path: &str) -> Split<'_> {
    let (mut parts, mut garbled) = (Vec::new(), None);
    for raw in path.split('/').filter(|raw| !raw.is_empty()) {
        let segment = decode(raw).unwrap_or_else(|| {
            garbled.get_or_insert(parts.len());
            Cow::Owned(percent_decode_str(raw).decode_utf8_lossy().into_owned())
        });
        let prefix = ["_design", "_local"]
            .into_iter()
            .find(|prefix| parts.len() == 1 && segment.strip_prefix(prefix).is_some_and(|name| name.starts_with('/')));
        match prefix {
            Some(prefix) => {
                parts.push(Cow::Borrowed(prefix));
                parts.push(Cow::Owned(segment[prefix.len() + 1..].to_owned()));
            }
            None => parts.push(segment),
        }
    }
    Split { parts, garbled }
}

#[cfg(test)]
mod tests;
