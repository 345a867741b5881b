//! `_reshard`: the state of resharding, of a server whose databases have one shard each.

use hyper::StatusCode;

use crate::Error;
use crate::request::Request;
use crate::respond::{self, Answer};

/// `GET /_reshard`
pub(super) async fn summary(_: Request) -> Answer {
    let out = r#"{"state":"running","state_reason":null,"completed":0,"failed":0,"running":0,"stopped":0,"total":0}"#;
    Ok(respond::json(StatusCode::OK, out.as_bytes().to_vec()))
}

/// `GET /_reshard/state`
pub(super) async fn state(_: Request) -> Answer {
    Ok(respond::json(StatusCode::OK, br#"{"state":"running","reason":null}"#.to_vec()))
}

/// `PUT /_reshard/state`: has no effect, because there are no jobs to stop or resume.
pub(super) async fn set_state(mut request: Request) -> Answer {
    let body = request.read_called_json().await?;
    if !body.value().is_object() {
        return Err(Error::bad_request("Request body must be a JSON object"));
    }
    let state = body.value().get("state").ok_or_else(|| Error::bad_request("Expected a `state` field"))?;
    if !["running", "stopped"].iter().any(|known| state.is_string(known)) {
        return Err(Error::bad_request("State field not `running` or `stopped`"));
    }
    Ok(respond::ok(StatusCode::OK))
}

/// `GET /_reshard/jobs`
pub(super) async fn jobs(_: Request) -> Answer {
    Ok(respond::json(StatusCode::OK, br#"{"total_rows":0,"offset":0,"jobs":[]}"#.to_vec()))
}

/// `POST /_reshard/jobs`
pub(super) async fn begin(_: Request) -> Answer {
    Err(Error::not_implemented("a database has one shard here, which is not divided"))
}
