//! Operation over HTTP: the tail of the log, and restarts.

use hyper::StatusCode;

use super::server::require_node;
use crate::Error;
use crate::body;
use crate::params::Raw;
use crate::request::Request;
use crate::respond::{self, Answer};

const LOG_BYTES: u64 = 1000;

/// As in CouchDB 1, `offset` is relative to the start of the last `bytes` of the log.
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

/// Restarts the process after open requests have finished.
pub(super) async fn restart(request: Request) -> Answer {
    require_node(&request)?;
    begin_restart(&request)?;
    Ok(respond::ok(StatusCode::OK))
}

pub(super) async fn restart_as_version_1(request: Request) -> Answer {
    begin_restart(&request)?;
    Ok(respond::ok(StatusCode::ACCEPTED))
}

/// As in CouchDB 1 a content type is required that HTML forms cannot send.
fn begin_restart(request: &Request) -> Result<(), Error> {
    body::require_json(&request.headers)?;
    tracing::warn!(user = request.user.name.as_deref().unwrap_or("anonymous"), "a restart was requested");
    (request.node.operation.restart)();
    Ok(())
}
