//! Responses of handlers: [`Answer`], and errors as JSON.

use crate::Error;

use hyper::StatusCode;
use settee_model::json::{self, ObjectWriter};

pub(crate) use settee_edge::respond::{Response, json, moved, ok, set, set_etag, streamed, whole};

pub(crate) type Answer = Result<Response, Error>;

pub(crate) fn error(error: &Error) -> Response {
    let mut response = json(error.status, error_text(error));
    for (name, value) in &error.headers {
        response.headers_mut().insert(name.clone(), value.clone());
    }
    response
}

pub(crate) fn object(status: StatusCode, write: impl FnOnce(&mut ObjectWriter<'_>)) -> Response {
    json(status, json::object(write))
}

pub(crate) fn error_text(error: &Error) -> Vec<u8> {
    json::object(|object| error.write_members(object))
}
