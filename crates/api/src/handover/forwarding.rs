//! [`ForwardQueues`]: batches forwarded requests. Requests that arrive while messages to their node are in flight
//! wait and share one message. A node that forwards many requests therefore sends few messages, and one that
//! forwards few sends each request immediately.

use std::collections::HashMap;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::{HeaderMap, Method, StatusCode};
use parking_lot::Mutex;
use settee_database::members::{Node as Member, NodeId};
use settee_replication::TransportError;
use settee_wire::frames::Reader;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::{Sleep, sleep, timeout};

use super::{ANSWER_BYTES_MAX, BUSY, HandedOver, MESSAGE_BYTES_MAX, REQUESTS_MAX, TARGET, WRITES, answer_of};
use crate::nodes::{Nodes, Question};

/// Number of messages in flight to a node from which on requests wait.
const MESSAGES_MAX: usize = 2;

/// Time after which an unanswered message does not delay others any more: the cause may be limited to one
/// database or user.
const HOLD: Duration = Duration::from_millis(5);

/// Timeout for the end of a response after its last part.
const END_TIME: Duration = Duration::from_secs(1);

type Outcome = Result<HandedOver, TransportError>;

/// The queued requests and messages in flight of each other node.
#[derive(Default)]
pub(crate) struct ForwardQueues(Mutex<HashMap<NodeId, ForwardQueue>>);

struct ForwardQueue {
    /// The last known address of the node.
    member: Member,
    waiting: Vec<QueuedRequest>,
    /// Number of messages in flight that delay further requests.
    under_way: usize,
}

struct QueuedRequest {
    frame: Vec<u8>,
    answer: oneshot::Sender<Outcome>,
}

struct Message {
    member: Member,
    frames: Vec<u8>,
    /// Waiters for the answers, in the order of the frames.
    waiting: Vec<Option<oneshot::Sender<Outcome>>>,
}

/// Forwards the request of a client to another node. `frame` contains the request.
pub(crate) async fn hand_over(nodes: &Arc<Nodes>, node: &Member, frame: Vec<u8>) -> Outcome {
    let (answer, answered) = oneshot::channel();
    let message = nodes.forwarding.take(nodes, node, QueuedRequest { frame, answer });
    if let Some(message) = message {
        tokio::spawn(carry(Arc::clone(nodes), message));
    }
    answered.await.unwrap_or_else(|_| Err(TransportError::Broken("it was abandoned".to_owned())))
}

impl ForwardQueues {
    /// Enqueues a request. Returns the message to send now, if any.
    fn take(&self, nodes: &Nodes, node: &Member, request: QueuedRequest) -> Option<Message> {
        let mut queues = self.0.lock();
        if !queues.contains_key(&node.id) {
            // A restarted node has a new id, so entries of nodes that are gone are removed.
            let live = nodes.engine.members().live();
            queues.retain(|id, queue| queue.under_way > 0 || live.iter().any(|node| node.id == *id));
        }
        let unknown = || ForwardQueue { member: node.clone(), waiting: Vec::new(), under_way: 0 };
        let queue = queues.entry(node.id).or_insert_with(unknown);
        queue.member.clone_from(node);
        queue.waiting.push(request);
        queue.next()
    }

    /// Records that a message delays others no longer. Returns the next message, if any.
    fn free(&self, id: NodeId) -> Option<Message> {
        let mut queues = self.0.lock();
        let queue = queues.get_mut(&id)?;
        queue.under_way -= 1;
        queue.next()
    }
}

impl ForwardQueue {
    /// Returns the next message, if requests are queued and few enough messages are in flight.
    fn next(&mut self) -> Option<Message> {
        if self.waiting.is_empty() || self.under_way >= MESSAGES_MAX {
            return None;
        }
        let mut bytes = 0;
        let has_room = |request: &&QueuedRequest| {
            bytes += request.frame.len();
            bytes <= MESSAGE_BYTES_MAX
        };
        let count = self.waiting.iter().take(REQUESTS_MAX).take_while(has_room).count();
        self.under_way += 1;
        let (mut frames, mut waiting) = (Vec::new(), Vec::with_capacity(count));
        for QueuedRequest { frame, answer } in self.waiting.drain(..count) {
            if frames.is_empty() {
                frames = frame;
            } else {
                frames.extend_from_slice(&frame);
            }
            waiting.push(Some(answer));
        }
        Some(Message { member: self.member.clone(), frames, waiting })
    }
}

struct Place {
    nodes: Arc<Nodes>,
    node: NodeId,
    /// The time at which the message stops delaying others.
    end: Pin<Box<Sleep>>,
    is_held: bool,
}

impl Place {
    /// Releases the slot and sends the next message.
    fn free(&mut self) {
        if std::mem::take(&mut self.is_held)
            && let Some(message) = self.nodes.forwarding.free(self.node)
            // If the runtime has ended, so have the waiters.
            && let Ok(threads) = Handle::try_current()
        {
            threads.spawn(carry(Arc::clone(&self.nodes), message));
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.free();
    }
}

/// Sends a message and passes the answers to their waiters.
fn carry(nodes: Arc<Nodes>, message: Message) -> impl Future<Output = ()> + Send {
    // Boxed, because the future can spawn itself for the next message.
    let carried: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(async move {
        let Message { member, frames, mut waiting } = message;
        let end = Box::pin(sleep(HOLD));
        let mut place = Place { nodes: Arc::clone(&nodes), node: member.id, end, is_held: true };
        let why = match exchange(&nodes, &member, frames, &mut waiting, &mut place).await {
            Ok(()) => TransportError::Broken("the answer is incomplete".to_owned()),
            Err(why) => why,
        };
        for answer in waiting.into_iter().flatten() {
            let _ = answer.send(Err(why.clone()));
        }
    });
    carried
}

/// Returns `Ok` when all requests are answered or abandoned, or when the response has ended.
async fn exchange(
    nodes: &Nodes,
    member: &Member,
    frames: Vec<u8>,
    waiting: &mut [Option<oneshot::Sender<Outcome>>],
    place: &mut Place,
) -> Result<(), TransportError> {
    let question =
        Question { method: Method::POST, target: TARGET.to_owned(), headers: HeaderMap::new(), body: frames.into() };
    let Some(response) = next(nodes.send(member, question), waiting, place).await else { return Ok(()) };
    let response = response?;
    let taken = response.headers().get(WRITES).filter(|_| response.status() == StatusCode::OK);
    let Some(taken) = taken else {
        for answer in waiting.iter_mut().filter_map(Option::take) {
            let _ = answer.send(Ok(HandedOver::Refused));
        }
        return Ok(());
    };
    if taken == BUSY {
        nodes.load.note_busy_node();
    }
    let (mut body, mut reader) = (response.into_body(), Reader::new(ANSWER_BYTES_MAX));
    let broken = |why: String| TransportError::Broken(why);
    while let Some(Some(piece)) = next(body.frame(), waiting, place).await {
        let Ok(piece) = piece.map_err(|error| broken(error.to_string()))?.into_data() else { continue };
        reader.feed(&piece);
        while let Some(frame) = reader.frame().map_err(|error| broken(error.to_string()))? {
            let Some((at, answer)) = answer_of(frame) else { return Err(broken("this is no answer".to_owned())) };
            if let Some(waits) = waiting.get_mut(at).and_then(Option::take) {
                let _ = waits.send(Ok(answer));
            }
        }
        place.free();
        if waiting.iter().all(Option::is_none) {
            // After the end of the response is read, the connection can be reused for the next message.
            let _ = timeout(END_TIME, body.frame()).await;
            return Ok(());
        }
    }
    Ok(())
}

/// Returns the result of `step`, or `None` if all waiters have gone. The slot is released after a short time.
async fn next<T>(
    step: impl Future<Output = T>,
    waiting: &mut [Option<oneshot::Sender<Outcome>>],
    place: &mut Place,
) -> Option<T> {
    let mut step = pin!(step);
    let mut abandoned = pin!(async {
        for answer in waiting.iter_mut().flatten() {
            answer.closed().await;
        }
    });
    loop {
        tokio::select! {
            biased;
            done = &mut step => return Some(done),
            () = &mut abandoned => return None,
            () = &mut place.end, if place.is_held => place.free(),
        }
    }
}
