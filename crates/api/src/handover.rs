//! Write forwarding: small writes are sent from the node that received them to the preferred node.
//! [`forwarding`] combines them into messages; [`crate::handed`] handles each request of a message separately
//! and returns its answer as soon as it is complete.
//!
//! A message is a POST to [`TARGET`] with a node's token. Its body consists of [frames], one for each request,
//! with method, target and client, the headers of the client, and the body. The response has the same form, in
//! the order of completion: position in the message, status (empty if the request was not handled), user if
//! authenticated, headers, body. Its head is sent with the first frame. A node of an older version refuses
//! messages, and the writes are then made by the node that received them.

pub(crate) mod forwarding;

use bytes::Bytes;
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::{HeaderMap, Method, StatusCode, Uri};
use settee_edge::origin::{Peer, Scheme};
use settee_wire::frames::{self, Frame, NoFrame};

use crate::head::REQUEST_ID;
use crate::limits::SMALL_BODY_BYTES_MAX;
use crate::respond::{self, Response};

pub(crate) const TARGET: &str = "/_node/_local/_writes";

/// The header that confirms a message and reports the load of the node: [`TAKEN`] or [`BUSY`].
pub(crate) const WRITES: HeaderName = HeaderName::from_static("x-settee-writes");
pub(crate) const TAKEN: HeaderValue = HeaderValue::from_static("taken");

/// The message was accepted by a busy node; other nodes should write as well.
pub(crate) const BUSY: HeaderValue = HeaderValue::from_static("busy");

pub(crate) const REQUESTS_MAX: usize = 64;

/// Maximum size of the head of a forwarded request. Nearly all have less than one thousand bytes.
const HEAD_BYTES_MAX: usize = 64 << 10;

pub(crate) const MESSAGE_BYTES_MAX: usize = 512 << 10;

// Every request fits into a message.
const _: () = assert!(HEAD_BYTES_MAX + SMALL_BODY_BYTES_MAX < MESSAGE_BYTES_MAX);

const ANSWER_BYTES_MAX: usize = 64 << 20;

/// Headers that apply to a single connection only.
const OF_CONNECTION: [HeaderName; 8] = [
    header::CONNECTION,
    header::EXPECT,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

pub(crate) enum HandedOver {
    /// The node has handled the request; the response, and the user if authenticated.
    Answered(Response, Option<String>),
    /// The node has not handled the request.
    Refused,
}

/// A request that another node has forwarded.
pub(crate) struct Handed {
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    pub(crate) headers: HeaderMap,
    /// The client; the request is handled as if it came from there.
    pub(crate) client: Peer,
    pub(crate) body: Bytes,
}

/// Encodes a request as a frame. Returns `None` if its head is too long.
pub(crate) fn frame_of(
    (method, uri, headers): (&Method, &Uri, &HeaderMap),
    (client, id): (Peer, &str),
    body: &[u8],
) -> Option<Vec<u8>> {
    let target = uri.path_and_query().map_or("/", |target| target.as_str());
    let client = format!("{} {}", client.scheme.name(), client.ip);
    let start = [method.as_str(), target, &client].map(str::as_bytes);
    let passed = passed_on(headers).filter(|(name, _)| **name != REQUEST_ID);
    let headers = passed.map(|(name, value)| (name.as_str().as_bytes(), value.as_bytes()));
    let name_of_id = REQUEST_ID;
    let headers = headers.chain([(name_of_id.as_str().as_bytes(), id.as_bytes())]);
    let mut frame = Vec::with_capacity(1024 + body.len());
    frames::write_head(&mut frame, start, headers, body.len()).ok().filter(|()| frame.len() <= HEAD_BYTES_MAX)?;
    frame.extend_from_slice(body);
    Some(frame)
}

pub(crate) fn request_of(frame: Frame) -> Option<Handed> {
    let [method, target, client] = frame.start;
    let (scheme, ip) = std::str::from_utf8(&client).ok()?.split_once(' ')?;
    Some(Handed {
        method: Method::from_bytes(&method).ok()?,
        uri: Uri::from_maybe_shared(target).ok()?,
        headers: headers_of(frame.headers)?,
        client: Peer { ip: ip.parse().ok()?, scheme: Scheme::named(scheme)? },
        body: frame.body,
    })
}

/// Appends the frame of an answer without its body.
pub(crate) fn write_answer(
    out: &mut Vec<u8>,
    place: usize,
    answer: Option<(StatusCode, Option<&str>, &HeaderMap)>,
    body_bytes: usize,
) -> Result<(), NoFrame> {
    let place = place.to_string();
    let place = place.as_str();
    let status = answer.as_ref().map(|(status, ..)| status.as_str()).unwrap_or_default();
    let user = answer.and_then(|(_, user, _)| user).unwrap_or_default();
    let headers = answer.iter().flat_map(|(.., headers)| passed_on(headers));
    // The length is set again for the next connection.
    let headers = headers.filter(|(name, _)| **name != header::CONTENT_LENGTH);
    let headers = headers.map(|(name, value)| (name.as_str().as_bytes(), value.as_bytes()));
    frames::write_head(out, [place, status, user].map(str::as_bytes), headers, body_bytes)
}

/// Decodes the position and the answer of a frame.
fn answer_of(frame: Frame) -> Option<(usize, HandedOver)> {
    let [place, status, user] = frame.start;
    let place = std::str::from_utf8(&place).ok()?.parse().ok()?;
    if status.is_empty() {
        return Some((place, HandedOver::Refused));
    }
    let mut response = respond::whole(StatusCode::from_bytes(&status).ok()?, "", frame.body);
    *response.headers_mut() = headers_of(frame.headers)?;
    let user = (!user.is_empty()).then(|| String::from_utf8(user.into())).transpose().ok()?;
    Some((place, HandedOver::Answered(response, user)))
}

/// Returns the headers that are valid beyond one connection.
fn passed_on(headers: &HeaderMap) -> impl Iterator<Item = (&HeaderName, &HeaderValue)> {
    let named = headers.get(header::CONNECTION).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let is_of_connection = |name: &HeaderName| {
        OF_CONNECTION.contains(name) || named.split(',').any(|one| one.trim().eq_ignore_ascii_case(name.as_str()))
    };
    headers.iter().filter(move |(name, _)| !is_of_connection(name))
}

fn headers_of(pairs: Vec<(Bytes, Bytes)>) -> Option<HeaderMap> {
    let mut headers = HeaderMap::with_capacity(pairs.len());
    for (name, value) in pairs {
        headers.append(HeaderName::from_bytes(&name).ok()?, HeaderValue::from_maybe_shared(value).ok()?);
    }
    Some(headers)
}
