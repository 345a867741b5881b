//! Observation of requests: an [`Observation`] starts with the head of a request and ends with the last byte of its
//! response. At the end it updates the metrics, writes the access log, reports slow requests and passes the span to the
//! tracer. Of the request headers only `Host` is logged; bodies are never logged.

use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Frame;
use hyper::header::{self, HeaderValue};
use hyper::{HeaderMap, Method, StatusCode, Uri};
use settee_edge::budget::{Account, SLICE_BYTES};
use settee_edge::respond::{Aborted, Body, Sliced};
use settee_threads::{CancelOnDrop, Cancellation};
use tokio::sync::mpsc;

use crate::head::Seen;
use crate::metrics::{Count, Measure, Metrics, SlowRequest};
use crate::operation::{Attribute, Operation, Parent, Span};
use crate::respond::Response;

/// The target of the lines of the access log, which the server formats like CouchDB.
pub const ACCESS_LOG: &str = "settee::access";

pub(crate) struct Observation {
    metrics: Arc<Metrics>,
    operation: Arc<Operation>,
    pub(crate) seen: Arc<Seen>,
    method: Method,
    uri: Uri,
    host: Option<HeaderValue>,
    peer: IpAddr,
    id: String,
    begun_us: u64,
    trace: Option<RequestSpan>,
    is_feed: bool,
    status: Option<StatusCode>,
    bytes: u64,
    /// Declared by the response. hyper reads no further, so it does not see the end of the stream.
    length: Option<u64>,
    is_complete: bool,
    work: Option<CancelOnDrop>,
}

struct RequestSpan {
    trace: u128,
    span: u64,
    parent: Option<u64>,
}

impl Observation {
    pub(crate) fn begin(
        (metrics, operation): (&Arc<Metrics>, &Arc<Operation>),
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
        peer: IpAddr,
        id: &str,
    ) -> Self {
        let is_feed = is_feed(uri);
        if is_feed {
            metrics.begin_watching();
        }
        let trace = operation.tracer.as_ref().and_then(|tracer| {
            let parent = headers.get("traceparent").and_then(|value| parse_parent(value.to_str().ok()?));
            let (trace, span) = tracer.begin(parent)?;
            Some(RequestSpan { trace, span, parent: parent.map(|parent| parent.span) })
        });
        Self {
            metrics: Arc::clone(metrics),
            operation: Arc::clone(operation),
            seen: Arc::default(),
            method: method.clone(),
            uri: uri.clone(),
            host: headers.get(header::HOST).cloned(),
            peer,
            id: id.to_owned(),
            begun_us: (operation.monotonic_us)(),
            trace,
            is_feed,
            status: None,
            bytes: 0,
            length: None,
            is_complete: true,
            work: None,
        }
    }

    pub(crate) fn ends(&mut self, work: &Cancellation) {
        self.work = Some(work.on_drop());
    }

    /// Records the response. A streamed response owns the observation until its end.
    pub(crate) fn answered(mut self, response: Response, account: Arc<Account>) -> Response {
        self.status = Some(response.status());
        let (parts, body) = response.into_parts();
        let body = match body {
            Body::Stream(pieces) => {
                let length = parts.headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok());
                self.length = length.and_then(|length| length.parse().ok());
                self.is_complete = self.method == Method::HEAD || self.length == Some(0);
                let piece = Sliced::new(Bytes::new(), account);
                Body::Composed(ObservedBody { pieces, piece, observation: self }.boxed_unsync())
            }
            Body::Whole(bytes) => {
                self.bytes = bytes.as_ref().map_or(0, |bytes| bytes.len() as u64);
                match bytes {
                    Some(bytes) if bytes.len() > SLICE_BYTES => {
                        Body::Sliced(Box::new(Sliced::new(account.unsent(bytes), account)))
                    }
                    bytes => Body::Whole(bytes.map(|bytes| account.unsent(bytes))),
                }
            }
            other @ (Body::Sliced(_) | Body::Composed(_)) => other,
        };
        Response::from_parts(parts, body)
    }

    fn end(&mut self, status: StatusCode) {
        let now_us = (self.operation.monotonic_us)();
        let duration_us = now_us.saturating_sub(self.begun_us);
        let route = self.seen.route.get().copied().unwrap_or_default();
        let metrics = &self.metrics;
        metrics.answered(&self.method, status, now_us);
        if !self.is_complete {
            metrics.count(Count::Abandoned);
        }
        if !self.is_feed {
            metrics.measure(Measure::Request, duration_us);
            if duration_us >= self.operation.slow_request_us.load(Ordering::Relaxed) {
                let request = format!("{} {}", self.method, self.target());
                let reads = self.seen.tally.reads();
                let is_view = matches!(route.rsplit('/').next(), Some("{view}" | "_temp_view"));
                metrics
                    .slow(SlowRequest { request, is_view, duration_ms: duration_us / 1000, reads, ago_ms: 0 }, now_us);
                tracing::warn!(request = self.id, method = %self.method, target = self.target(), duration_ms = duration_us / 1000,
                    route, reads = reads.calls, entries = reads.entries, read_bytes = reads.bytes, "a slow request");
            }
        }
        self.count_route(route, duration_us);
        self.log(status, duration_us);
        self.trace(status, route, duration_us);
    }

    fn count_route(&self, route: &str, duration_us: u64) {
        let metrics = &self.metrics;
        let last = route.rsplit('/').next().unwrap_or_default();
        let in_partition = route.starts_with("/{db}/_partition/");
        match (last, in_partition) {
            ("{db}", _) if self.method == Method::GET => metrics.measure(Measure::DatabaseInfo, duration_us),
            ("{view}", _) => {
                metrics.measure(Measure::View, duration_us);
                metrics.count(if in_partition { Count::PartitionViews } else { Count::ViewReads });
            }
            ("{index}", _) if is_search(route) => metrics.measure(Measure::Search, duration_us),
            ("_temp_view", _) => metrics.count(Count::TemporaryViewReads),
            ("_bulk_docs", _) => metrics.count(Count::BulkRequests),
            ("_purge", _) => metrics.count(Count::PurgeRequests),
            ("_find", _) => {
                metrics.measure(Measure::Find, duration_us);
                if in_partition {
                    metrics.count(Count::PartitionFinds);
                }
            }
            ("_explain", true) => metrics.count(Count::PartitionExplains),
            ("_all_docs", true) => metrics.count(Count::PartitionAllDocs),
            _ => {}
        }
    }

    /// Writes CouchDB's log line: host, client, user, method, target, status, completeness of the response,
    /// milliseconds.
    fn log(&self, status: StatusCode, duration_us: u64) {
        tracing::info!(
            target: ACCESS_LOG,
            request = self.id,
            host = self.host.as_ref().and_then(|host| host.to_str().ok()).unwrap_or("-"),
            peer = %self.peer,
            user = self.seen.user.get().map_or("undefined", String::as_str),
            method = self.method.as_str(),
            target = self.target(),
            status = status.as_u16(),
            outcome = if self.is_complete { "ok" } else { "aborted" },
            duration_ms = duration_us / 1000,
            bytes = self.bytes,
        );
    }

    fn trace(&self, status: StatusCode, route: &str, duration_us: u64) {
        let (Some(traced), Some(tracer)) = (&self.trace, &self.operation.tracer) else { return };
        let text = |text: &str| Attribute::Text(text.to_owned());
        let mut attributes = vec![
            ("http.request.method", text(self.method.as_str())),
            ("http.route", text(route)),
            ("url.path", text(self.uri.path())),
            ("http.response.status_code", Attribute::Number(status.as_u16().into())),
            ("http.response.body.size", Attribute::Number(self.bytes)),
            ("client.address", Attribute::Text(self.peer.to_string())),
            ("couchdb.request_id", text(&self.id)),
        ];
        if route.starts_with("/{db}") {
            let database = self.uri.path().split('/').find(|part| !part.is_empty()).unwrap_or_default();
            attributes.push(("db.namespace", text(database)));
        }
        tracer.end(Span {
            trace: traced.trace,
            id: traced.span,
            parent: traced.parent,
            name: format!("{} {route}", self.method),
            duration_us,
            is_failed: status.is_server_error(),
            attributes,
        });
    }

    fn target(&self) -> &str {
        self.uri.path_and_query().map_or("/", |target| target.as_str())
    }
}

impl Drop for Observation {
    fn drop(&mut self) {
        if self.is_feed {
            self.metrics.end_watching();
        }
        if let Some(status) = self.status {
            self.end(status);
        }
    }
}

struct ObservedBody {
    pieces: mpsc::Receiver<Result<Bytes, Aborted>>,
    piece: Sliced,
    observation: Observation,
}

impl hyper::body::Body for ObservedBody {
    type Data = Bytes;
    type Error = Aborted;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Aborted>>> {
        let this = self.get_mut();
        let slice = match this.piece.next_slice() {
            Some(slice) => slice,
            None => match ready!(this.pieces.poll_recv(cx)) {
                Some(Ok(piece)) if piece.len() > SLICE_BYTES => this.piece.refill(piece),
                Some(Ok(piece)) => piece,
                None => {
                    this.observation.is_complete = true;
                    return Poll::Ready(None);
                }
                Some(Err(aborted)) => return Poll::Ready(Some(Err(aborted))),
            },
        };
        this.observation.bytes += slice.len() as u64;
        this.observation.is_complete |= this.observation.length == Some(this.observation.bytes);
        Poll::Ready(Some(Ok(Frame::data(slice))))
    }
}

pub(crate) fn is_feed(uri: &Uri) -> bool {
    let path = uri.path();
    let of_changes = path.ends_with("/_changes") || path == "/_db_updates";
    let waits = |pair: &str| pair.strip_prefix("feed=").is_some_and(|feed| feed != "normal");
    of_changes && uri.query().is_some_and(|query| query.split('&').any(waits))
}

/// Parses `00-TRACE-SPAN-FLAGS`, the format of W3C Trace Context.
fn parse_parent(text: &str) -> Option<Parent> {
    let mut parts = text.split('-');
    let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    if version.len() != 2 || version == "ff" || trace.len() != 32 || span.len() != 16 || flags.len() != 2 {
        return None;
    }
    let parent = Parent {
        trace: u128::from_str_radix(trace, 16).ok()?,
        span: u64::from_str_radix(span, 16).ok()?,
        is_sampled: u8::from_str_radix(flags, 16).ok()? & 1 == 1,
    };
    (parent.trace != 0 && parent.span != 0).then_some(parent)
}

fn is_search(route: &str) -> bool {
    route.ends_with("/_nouveau/{index}") || route.ends_with("/_search/{index}")
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn feeds_that_wait() {
        let check = |target: &str, expected| assert_eq!(is_feed(&target.parse().unwrap()), expected, "{target}");
        check("/db/_changes", false);
        check("/db/_changes?since=1&feed=normal", false);
        check("/db/_changes?since=1&feed=longpoll", true);
        check("/_db_updates?feed=continuous", true);
        check("/db/doc?feed=continuous", false);
    }

    #[test]
    fn parents_of_traces() {
        let check = |text: &str, expected: Option<(u128, u64, bool)>| {
            let found = parse_parent(text).map(|parent| (parent.trace, parent.span, parent.is_sampled));
            assert_eq!(found, expected, "{text}");
        };
        check("00-0000000000000000000000000000000a-000000000000000b-01", Some((10, 11, true)));
        check("cc-0000000000000000000000000000000a-000000000000000b-00-more", Some((10, 11, false)));
        for wrong in ["", "00-a-b-01", "00-00000000000000000000000000000000-000000000000000b-01", "00-zz-b-01"] {
            check(wrong, None);
        }
        check("ff-0000000000000000000000000000000a-000000000000000b-01", None);
    }
}
