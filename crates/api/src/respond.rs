//! Responses of handlers: [`Answer`], and errors as JSON.

use crate::Error;

pub(crate) use settee_edge::respond::{Response, json, moved, ok, set, set_etag, streamed, whole};

pub(crate) type Answer = Result<Response, Error>;

pub(crate) fn error(error: &Error) -> Response {
    let mut response = json(error.status, error_text(error));
    for (name, value) in &error.headers {
        response.headers_mut().insert(name.clone(), value.clone());
    }
    response
}

pub(crate) fn error_text(error: &Error) -> Vec<u8> {
    let mut text = b"{".to_vec();
    error.write_members(&mut text);
    text.push(b'}');
    text
}
