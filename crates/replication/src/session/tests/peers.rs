//! Peers that answer one kind of request differently. CouchDB's replicator completes all of these.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::{Request, Response};

use super::{answer, varied};
use crate::testing::{Sequences, Server, Sides, Unsupported, services, spec};
use crate::transport::{Body, BoxFuture, Transport, TransportError, full_body};

struct Special {
    inner: Arc<Server>,
    path: &'static str,
    status: u16,
    headers: &'static [(&'static str, &'static str)],
    accepted: Option<u64>,
    left: AtomicU64,
}

impl Transport for Special {
    fn call(&self, request: Request<Body>) -> BoxFuture<'_, Result<Response<Body>, TransportError>> {
        let length: Option<u64> =
            request.headers().get("content-length").and_then(|length| length.to_str().ok()?.parse().ok());
        let is_special = request.uri().path().ends_with(self.path)
            && self.accepted.is_none_or(|accepted| length.is_some_and(|length| length > accepted))
            && self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok();
        if !is_special {
            return self.inner.call(request);
        }
        let mut response = Response::builder().status(self.status);
        for (name, value) in self.headers {
            response = response.header(*name, *value);
        }
        let body = full_body("{\"error\":\"special\",\"reason\":\"as the test wants it\"}");
        let response = response.body(body).unwrap();
        Box::pin(async move { Ok(response) })
    }
}

const ALWAYS: u64 = u64::MAX;
const PLAIN: &[(&str, &str)] = &[];
const RETRY_AFTER: &[(&str, &str)] = &[("retry-after", "7")];

#[tokio::test(start_paused = true)]
async fn peers_that_answer_one_request_unlike_others() {
    for (path, status, headers, times) in [
        // The peer lacks `_bulk_get`, or a proxy blocks it.
        ("/_bulk_get", 400, PLAIN, ALWAYS),
        ("/_bulk_get", 401, PLAIN, ALWAYS),
        ("/_bulk_get", 403, PLAIN, ALWAYS),
        ("/_bulk_get", 404, PLAIN, ALWAYS),
        ("/_bulk_get", 405, PLAIN, ALWAYS),
        ("/_bulk_get", 413, PLAIN, ALWAYS),
        ("/_bulk_get", 414, PLAIN, ALWAYS),
        ("/_bulk_get", 500, PLAIN, ALWAYS),
        ("/_bulk_get", 501, PLAIN, ALWAYS),
        ("/_bulk_get", 502, PLAIN, ALWAYS),
        ("/_changes", 429, PLAIN, 8),
        ("/_changes", 429, RETRY_AFTER, 8),
        ("/_bulk_get", 429, PLAIN, 8),
        ("/_revs_diff", 429, PLAIN, 8),
        ("/_revs_diff", 429, RETRY_AFTER, 8),
        ("/_bulk_docs", 429, PLAIN, 8),
        ("/_bulk_docs", 429, RETRY_AFTER, 8),
        ("/_ensure_full_commit", 429, PLAIN, 8),
        ("/_changes", 500, PLAIN, 4),
        ("/_changes", 502, RETRY_AFTER, 4),
        ("/_revs_diff", 500, PLAIN, 4),
        ("/_revs_diff", 503, RETRY_AFTER, 4),
        ("/_bulk_docs", 500, PLAIN, 4),
        ("/_bulk_docs", 503, RETRY_AFTER, 4),
        ("/_ensure_full_commit", 408, PLAIN, 4),
    ] {
        for missing in [Unsupported::default(), Unsupported { bulk_get: true, multipart: true }] {
            let context = format!("{path} {status} {headers:?} {missing:?}");
            let server = varied(Sequences::Strings, missing);
            let special = || {
                let left = AtomicU64::new(times);
                Arc::new(Special { inner: server.clone(), path, status, headers, accepted: None, left })
            };
            let sides = Sides { source: special(), target: special() };
            let (outcome, statistics) = sides.run(&spec("a", "b", ""), &services()).await;
            answer(&outcome);
            assert_eq!(server.database("a").state(), server.database("b").state(), "{context}");
            assert_eq!((statistics.docs_written, statistics.doc_write_failures), (9, 0), "{context}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_is_always_busy_ends_the_session() {
    let server = varied(Sequences::Strings, Unsupported::default());
    let busy = Special {
        inner: server.clone(),
        path: "/_revs_diff",
        status: 429,
        headers: PLAIN,
        accepted: None,
        left: AtomicU64::new(ALWAYS),
    };
    let sides = Sides { source: server.clone(), target: Arc::new(busy) };
    let begun = tokio::time::Instant::now();
    let (outcome, _) = sides.run(&spec("a", "b", ""), &services()).await;
    assert!(matches!(outcome, crate::session::Outcome::Failed(_)), "{outcome:?}");
    assert!(begun.elapsed().as_secs() < 660, "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn peers_that_reject_long_bodies() {
    for (path, accepted) in [("/_revs_diff", 40), ("/_bulk_get", 100), ("/_bulk_docs", 400)] {
        let server = varied(Sequences::Strings, Unsupported::default());
        let special = || {
            let (status, headers, left) = (413, PLAIN, AtomicU64::new(ALWAYS));
            Arc::new(Special { inner: server.clone(), path, status, headers, accepted: Some(accepted), left })
        };
        let sides = Sides { source: special(), target: special() };
        let (outcome, statistics) = sides.run(&spec("a", "b", ""), &services()).await;
        answer(&outcome);
        assert_eq!(server.database("a").state(), server.database("b").state(), "{path}");
        assert_eq!((statistics.docs_written, statistics.doc_write_failures), (9, 0), "{path}");
    }
}
