//! Small writes on their way from the node that they came to to the one that writes: [`couriers`] gather them into messages, and [`crate::handed`] judges
//! each of a message by itself and gives its answer as soon as it is there.
//!
//! A message is a POST to [`TARGET`] with a node's token. Its body is [frames], one for each request: method, target and client, the
//! client's headers, the body. So is that of its answer, in the order in which they come about: place in the message, status (none if the request was not
//! looked at), the user if there is one, headers, body. Its head comes with the first of them. A node that does not know this takes no message, and the
//! writes are made where they came to.

pub(crate) mod couriers;

use bytes::Bytes;
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::{HeaderMap, Method, StatusCode, Uri};
use settee_wire::frames::{self, Frame, NoFrame};

use crate::head::REQUEST_ID;
use crate::limits::SMALL_BODY_BYTES_MAX;
use crate::origin::{Peer, Scheme};
use crate::respond::{self, Response};

/// The target of messages.
pub(crate) const TARGET: &str = "/_node/_local/_writes";

/// The header that tells that a message was taken, and how the node is: [`TAKEN`] or [`BUSY`].
pub(crate) const WRITES: HeaderName = HeaderName::from_static("x-settee-writes");
pub(crate) const TAKEN: HeaderValue = HeaderValue::from_static("taken");

/// It was taken by a node that has much to do: others should write as well.
pub(crate) const BUSY: HeaderValue = HeaderValue::from_static("busy");

/// The most requests of a message.
pub(crate) const REQUESTS_MAX: usize = 64;

/// The most bytes of the head of a request that is handed over. Nearly all have less than one thousand.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// The most bytes of a message.
pub(crate) const MESSAGE_BYTES_MAX: usize = 512 << 10;

// Each request has room in one.
const _: () = assert!(HEAD_BYTES_MAX + SMALL_BODY_BYTES_MAX < MESSAGE_BYTES_MAX);

/// The most bytes of the answer to one request.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// The headers that tell of one connection.
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

/// What another node did with a request that was handed to it.
pub(crate) enum HandedOver {
    /// It has answered, whatever, to this user.
    Answered(Response, Option<String>),
    /// It has not looked at it.
    Refused,
}

/// A request that another node has handed over.
pub(crate) struct Handed {
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    pub(crate) headers: HeaderMap,
    /// Who is judged as if the request had come from there.
    pub(crate) client: Peer,
    pub(crate) body: Bytes,
}

/// The frame of a request; `None` if its head is too long.
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

/// The request of a frame.
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

/// Appends the frame of an answer but for its body.
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
    // The next connection tells the length anew.
    let headers = headers.filter(|(name, _)| **name != header::CONTENT_LENGTH);
    let headers = headers.map(|(name, value)| (name.as_str().as_bytes(), value.as_bytes()));
    frames::write_head(out, [place, status, user].map(str::as_bytes), headers, body_bytes)
}

/// The place and the answer of a frame.
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

/// The headers that hold for the next connection as well.
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
