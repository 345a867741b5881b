//! [`answer`]: receives a message of another node and handles its requests concurrently, each as if its client
//! had sent it to this node.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_util::stream::{FuturesUnordered, Stream};
use http_body_util::BodyExt;
use hyper::Method;
use hyper::body::Frame;
use hyper::http::request::Parts;
use settee_edge::body::inbound::Inbound;
use settee_edge::body::{self, timeout::ReceiveTimeout};
use settee_edge::budget::{Account, Share};
use settee_edge::respond::{Aborted, Body};
use settee_edge::slots::Ending;
use settee_wire::frames::Reader;

use crate::Error;
use crate::authentication::{self, TOKEN};
use crate::handover::{Handed, MESSAGE_BYTES_MAX, REQUESTS_MAX, TARGET, WRITES, request_of, write_answer};
use crate::head::Seen;
use crate::respond::{self, Response};
use crate::stages::Service;

/// Pieces of responses up to this size are copied into the message.
const COPIED_BYTES_MAX: usize = 4 << 10;

/// Returns true if a request is a message.
pub(crate) fn is_message(parts: &Parts) -> bool {
    parts.method == Method::POST && parts.uri.path() == TARGET && parts.headers.contains_key(TOKEN)
}

/// Returns the response to a message, which ends after its last request.
pub(crate) async fn answer(service: &Arc<Service>, parts: &Parts, body: Inbound, ending: &Arc<Ending>) -> Response {
    match requests(service, parts, body, ending).await {
        Ok(requests) => {
            let judging = requests.into_iter().enumerate();
            let judging = judging.map(|(at, request)| judge(Arc::clone(service), at, request, Arc::clone(ending)));
            let mut answers = Answers::new(judging);
            // The first answers are sent with the head, because a separate part would wake the other node
            // again.
            poll_fn(|cx| answers.poll_ready(cx)).await;
            let mut response = Response::new(Body::Composed(answers.boxed_unsync()));
            response.headers_mut().insert(WRITES, service.node().nodes.taken());
            response
        }
        Err(error) => respond::error(&error),
    }
}

/// Returns the requests of a message. The token is verified with the cached secret, without a catch-up. This
/// is sufficient because each request is authorized by itself; the message only determines the addresses of
/// the clients.
async fn requests(
    service: &Arc<Service>,
    parts: &Parts,
    body: Inbound,
    ending: &Arc<Ending>,
) -> Result<Vec<Handed>, Error> {
    let node = service.node();
    let token = authentication::require_node(&node.authentication, parts)?;
    let account = Account::new(&node.budget, Some(Arc::clone(ending)), Share::Admin);
    let timeout = ReceiveTimeout::new(node.policy().receive_timeout);
    let mut reader = Reader::new(MESSAGE_BYTES_MAX);
    let body = body::read(body, &parts.headers, MESSAGE_BYTES_MAX, timeout, &account).await?;
    authentication::require_body(&token, &body)?;
    reader.feed(&body);
    let broken = || Error::bad_request("This is no message of a node.");
    let mut requests = Vec::new();
    while let Some(frame) = reader.frame().map_err(|_| broken())? {
        requests.push(request_of(frame).filter(|_| requests.len() < REQUESTS_MAX).ok_or_else(broken)?);
    }
    if reader.is_empty() { Ok(requests) } else { Err(broken()) }
}

/// Handles one request. Returns the head of its frame, and its body in pieces. Returns `None` if the response
/// could not be completed, which is reported to its client.
async fn judge(
    service: Arc<Service>,
    at: usize,
    request: Handed,
    ending: Arc<Ending>,
) -> Option<(Vec<u8>, Vec<Bytes>)> {
    let (mut begin, mut pieces, mut bytes) = (Vec::with_capacity(512), Vec::new(), 0);
    let (seen, account) =
        (Arc::<Seen>::default(), Account::new(&service.node().budget, Some(ending), Share::Anonymous));
    let _work = account.cancellation().on_drop();
    let (head, mut body) = service.answer_handed(request, &seen, &account).await.into_parts();
    if !seen.is_handled() {
        // The catch-up failed, so the request was not handled.
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

/// The answers in the order of their completion. Answers that complete together are sent together.
struct Answers<F> {
    judging: FuturesUnordered<F>,
    /// Answers since the last part was sent: complete parts, and the start of the next one.
    parts: Vec<Bytes>,
    last: Vec<u8>,
    /// True if the answers have already waited for others.
    is_due: bool,
    ready: VecDeque<Bytes>,
}

impl<F> Answers<F>
where
    F: Future<Output = Option<(Vec<u8>, Vec<Bytes>)>>,
{
    fn new(judging: impl Iterator<Item = F>) -> Self {
        Self { judging: judging.collect(), parts: Vec::new(), last: Vec::new(), is_due: false, ready: VecDeque::new() }
    }

    /// Polls the requests until a part is ready or all requests have finished. The requests of one commit are
    /// answered by several threads in quick succession, so the first answer waits for one more poll of this
    /// task.
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        // The futures are boxed, so they can be pinned.
        while let Poll::Ready(Some(answer)) = Pin::new(&mut self.judging).poll_next(cx) {
            answer.into_iter().for_each(|(begin, pieces)| self.put(&begin, pieces));
        }
        let is_empty = self.parts.is_empty() && self.last.is_empty();
        if !self.judging.is_empty() && (is_empty || !self.is_due) {
            self.is_due = !is_empty;
            if self.is_due {
                cx.waker().wake_by_ref();
            }
            return Poll::Pending;
        }
        self.is_due = false;
        self.ready.extend(self.parts.drain(..));
        if !self.last.is_empty() {
            self.ready.push_back(std::mem::take(&mut self.last).into());
        }
        Poll::Ready(())
    }

    fn put(&mut self, begin: &[u8], pieces: Vec<Bytes>) {
        self.last.extend_from_slice(begin);
        for piece in pieces {
            if piece.len() <= COPIED_BYTES_MAX {
                self.last.extend_from_slice(&piece);
            } else {
                self.parts.extend([std::mem::take(&mut self.last).into(), piece]);
            }
        }
    }
}

impl<F> hyper::body::Body for Answers<F>
where
    F: Future<Output = Option<(Vec<u8>, Vec<Bytes>)>>,
{
    type Data = Bytes;
    type Error = Aborted;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Aborted>>> {
        let this = self.get_mut();
        if this.ready.is_empty() {
            ready!(this.poll_ready(cx));
        }
        Poll::Ready(this.ready.pop_front().map(|piece| Ok(Frame::data(piece))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::{Wake, Waker};
    use tokio::sync::oneshot;

    type Answer = (Vec<u8>, Vec<Bytes>);

    #[derive(Default)]
    struct Woken(AtomicBool);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    fn answers(count: usize) -> (Vec<oneshot::Sender<Answer>>, Answers<impl Future<Output = Option<Answer>>>) {
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..count).map(|_| oneshot::channel::<Answer>()).unzip();
        // Boxed, because they are polled in any order.
        let judging = receivers.into_iter().map(|receiver| Box::pin(async { receiver.await.ok() }));
        (senders, Answers::new(judging))
    }

    /// Returns the next part, or `None` if none is ready.
    fn poll(answers: &mut Answers<impl Future<Output = Option<Answer>>>) -> Option<Option<Bytes>> {
        let mut cx = Context::from_waker(Waker::noop());
        match hyper::body::Body::poll_frame(Pin::new(answers), &mut cx) {
            Poll::Ready(part) => Some(part.map(|part| part.expect("whole").into_data().expect("data"))),
            Poll::Pending => None,
        }
    }

    fn give(sender: Option<oneshot::Sender<Answer>>, begin: &str, body: &[u8]) {
        let body = Bytes::copy_from_slice(body);
        sender.expect("not given yet").send((begin.into(), vec![body])).expect("waited for");
    }

    #[test]
    fn requests_just_behind_the_first_answer_are_sent_with_it() {
        let (mut senders, mut answers) = answers(4);
        assert_eq!(poll(&mut answers), None);
        give(senders.pop(), "d:", b"4");
        assert_eq!(poll(&mut answers), None, "it waits for one poll");
        give(senders.pop(), "c:", b"3");
        assert_eq!(poll(&mut answers), Some(Some("d:4c:3".into())));
        // An answer waits for one poll only, and the last answer for none.
        give(senders.pop(), "b:", b"2");
        assert_eq!([poll(&mut answers), poll(&mut answers)], [None, Some(Some("b:2".into()))]);
        assert_eq!([poll(&mut answers), poll(&mut answers)], [None, None], "nothing is there");
        give(senders.pop(), "a:", b"1");
        assert_eq!([poll(&mut answers), poll(&mut answers)], [Some(Some("a:1".into())), Some(None)]);
    }

    /// An answer waits for the next poll of its task, not for other answers.
    #[test]
    fn the_first_answer_has_its_task_polled_again() {
        let (mut senders, mut answers) = answers(2);
        give(senders.pop(), "b:", b"2");
        let woken = Arc::<Woken>::default();
        let waker = Waker::from(Arc::clone(&woken));
        assert!(answers.poll_ready(&mut Context::from_waker(&waker)).is_pending());
        assert!(woken.0.load(Ordering::Relaxed), "no other event would wake it");
        assert!(answers.poll_ready(&mut Context::from_waker(&waker)).is_ready());
    }

    #[test]
    fn long_pieces_are_parts_of_their_own() {
        let (mut senders, mut answers) = answers(2);
        let long = vec![b'x'; COPIED_BYTES_MAX + 1];
        give(senders.pop(), "b:", &long);
        give(senders.pop(), "a:", b"1");
        let parts: Vec<Bytes> = std::iter::from_fn(|| poll(&mut answers).expect("all is there")).collect();
        assert_eq!(parts, [Bytes::from("a:1b:"), long.into()]);
    }
}
