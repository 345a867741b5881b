//! [`answer`]: a message of another node is taken, and its requests are judged at the same time, each as if it had come from its client.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::stream::{FuturesUnordered, Stream};
use http_body_util::BodyExt;
use hyper::Method;
use hyper::body::Frame;
use hyper::http::request::Parts;
use settee_wire::frames::Reader;

use crate::Error;
use crate::authentication::{self, TOKEN};
use crate::body::inbound::Inbound;
use crate::body::{self, timeout::ReceiveTimeout};
use crate::budget::{Account, Share};
use crate::handover::{Handed, MESSAGE_BYTES_MAX, REQUESTS_MAX, TARGET, WRITES, request_of, write_answer};
use crate::head::Seen;
use crate::respond::{self, Aborted, Response};
use crate::slots::Ending;
use crate::stages::Service;

/// Longer pieces of answers are not copied.
const COPIED_BYTES_MAX: usize = 4 << 10;

/// Whether a request says that it is a message.
pub(crate) fn is_message(parts: &Parts) -> bool {
    parts.method == Method::POST && parts.uri.path() == TARGET && parts.headers.contains_key(TOKEN)
}

/// The answer to a message, which goes on as long as its requests do.
pub(crate) async fn answer(service: &Arc<Service>, parts: &Parts, body: Inbound, ending: &Arc<Ending>) -> Response {
    match requests(service, parts, body, ending).await {
        Ok(requests) => {
            let judging = requests.into_iter().enumerate();
            let judging = judging.map(|(at, request)| judge(Arc::clone(service), at, request, Arc::clone(ending)));
            let answers = Answers { judging: judging.collect(), ready: VecDeque::new() };
            let mut response = Response::new(respond::Body::Composed(answers.boxed_unsync()));
            response.headers_mut().insert(WRITES, service.node().nodes.taken());
            response
        }
        Err(error) => respond::error(&error),
    }
}

/// The requests of a message. Its token is judged by what this node knows: each request is judged by what there is to know, and beside that, a message
/// decides only what their clients' addresses are.
async fn requests(
    service: &Arc<Service>,
    parts: &Parts,
    body: Inbound,
    ending: &Arc<Ending>,
) -> Result<Vec<Handed>, Error> {
    let node = service.node();
    authentication::require_node(&node.authentication, parts)?;
    let account = Account::new(&node.budget, Some(Arc::clone(ending)), Share::Admin);
    let timeout = ReceiveTimeout::new(node.policy().receive_timeout);
    let mut reader = Reader::new(MESSAGE_BYTES_MAX);
    reader.feed(&body::read(body, &parts.headers, MESSAGE_BYTES_MAX, timeout, &account).await?);
    let broken = || Error::bad_request("This is no message of a node.");
    let mut requests = Vec::new();
    while let Some(frame) = reader.frame().map_err(|_| broken())? {
        requests.push(request_of(frame).filter(|_| requests.len() < REQUESTS_MAX).ok_or_else(broken)?);
    }
    if reader.is_empty() { Ok(requests) } else { Err(broken()) }
}

/// One answer: the head of its frame, and its body in pieces. `None` if it could not be completed, which its client will hear.
async fn judge(
    service: Arc<Service>,
    at: usize,
    request: Handed,
    ending: Arc<Ending>,
) -> Option<(Vec<u8>, Vec<Bytes>)> {
    let (mut begin, mut pieces, mut bytes) = (Vec::with_capacity(512), Vec::new(), 0);
    let (seen, account) =
        (Arc::<Seen>::default(), Account::new(&service.node().budget, Some(ending), Share::Anonymous));
    let (head, mut body) = service.answer_handed(request, &seen, &account).await.into_parts();
    if !seen.is_judged() {
        // What there is to know cannot be heard now.
        write_answer(&mut begin, at, None, bytes).ok()?;
        return Some((begin, pieces));
    }
    while let Some(frame) = body.frame().await {
        let Ok(piece) = frame.ok()?.into_data() else { continue };
        bytes += piece.len();
        pieces.push(if piece.len() > COPIED_BYTES_MAX { account.unsent(piece) } else { piece });
    }
    let user = seen.user.get().map(String::as_str);
    write_answer(&mut begin, at, Some((head.status, user, &head.headers)), bytes).ok()?;
    Some((begin, pieces))
}

/// The answers as they come about. Those that do so together are given out together.
struct Answers<F> {
    judging: FuturesUnordered<F>,
    ready: VecDeque<Bytes>,
}

impl<F> hyper::body::Body for Answers<F>
where
    F: Future<Output = Option<(Vec<u8>, Vec<Bytes>)>>,
{
    type Data = Bytes;
    type Error = Aborted;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Aborted>>> {
        // What is judged is in boxes of its own.
        let this = self.get_mut();
        if let Some(piece) = this.ready.pop_front() {
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        let mut together = Vec::new();
        let is_end = loop {
            match Pin::new(&mut this.judging).poll_next(cx) {
                Poll::Ready(Some(Some((begin, pieces)))) => {
                    together.extend_from_slice(&begin);
                    for piece in pieces {
                        if piece.len() <= COPIED_BYTES_MAX {
                            together.extend_from_slice(&piece);
                        } else {
                            this.ready.push_back(std::mem::take(&mut together).into());
                            this.ready.push_back(piece);
                        }
                    }
                }
                Poll::Ready(Some(None)) => {}
                Poll::Ready(None) => break true,
                Poll::Pending => break false,
            }
        };
        if !together.is_empty() {
            this.ready.push_back(together.into());
        }
        match this.ready.pop_front() {
            Some(piece) => Poll::Ready(Some(Ok(Frame::data(piece)))),
            None if is_end => Poll::Ready(None),
            None => Poll::Pending,
        }
    }
}
