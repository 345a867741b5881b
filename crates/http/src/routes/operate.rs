//! What operators do over HTTP: look at the end of the log, and restart the server.

use hyper::StatusCode;

use super::server::require_node;
use crate::Error;
use crate::body;
use crate::params::Raw;
use crate::request::Request;
use crate::respond::{self, Answer};

/// How much of the log is shown if nobody says.
const LOG_BYTES: u64 = 1000;

/// `GET /_log?bytes=N&offset=N` and `GET /_node/{node}/_log`. As in version 1, `offset` counts from where the last
/// `bytes` of the log begin.
pub(super) async fn log(request: Request) -> Answer {
    require_node(&request)?;
    let number = |name: &str, default: u64| match request.query.get(name) {
        None => Ok(default),
        Some(text) => Raw::Text(text.to_owned()).natural(),
    };
    let (bytes, offset) = (number("bytes", LOG_BYTES)?, number("offset", 0)?);
    let tail = (request.node.operation.log_tail)();
    let length = tail.len() as u64;
    let start = length.saturating_sub(bytes).saturating_add(offset).min(length);
    let end = start.saturating_add(bytes).min(length);
    let shown = tail[start as usize..end as usize].to_vec();
    Ok(respond::whole(StatusCode::OK, "text/plain; charset=utf-8", shown))
}

/// `POST /_node/{node}/_restart`: open requests finish, then the process restarts.
pub(super) async fn restart(request: Request) -> Answer {
    require_node(&request)?;
    begin_restart(&request)?;
    Ok(respond::ok(StatusCode::OK))
}

/// `POST /_restart`
pub(super) async fn restart_as_version_1(request: Request) -> Answer {
    begin_restart(&request)?;
    Ok(respond::ok(StatusCode::ACCEPTED))
}

/// As version 1 did, it insists on a content type, so that no form of a web page can do it.
fn begin_restart(request: &Request) -> Result<(), Error> {
    body::require_json(&request.headers)?;
    tracing::warn!(user = request.user.name.as_deref().unwrap_or("nobody"), "told to restart");
    (request.node.operation.restart)();
    Ok(())
}
