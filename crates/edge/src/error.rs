//! [`Error`]: a refusal or a failure as status, name and reason.

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::{self, HeaderName, HeaderValue};
use settee_threads::Failed;

#[derive(Clone, Debug)]
pub struct Error {
    pub status: StatusCode,
    pub name: Cow<'static, str>,
    pub reason: Cow<'static, str>,
    /// Replaces [`Self::reason`] in the response.
    pub json_reason: Option<Bytes>,
    pub headers: Vec<(HeaderName, HeaderValue)>,
}

impl Error {
    pub fn new(status: StatusCode, name: impl Into<Cow<'static, str>>, reason: impl Into<Cow<'static, str>>) -> Self {
        Self { status, name: name.into(), reason: reason.into(), json_reason: None, headers: Vec::new() }
    }

    pub fn bad_request(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad_request", reason)
    }

    #[must_use]
    pub fn request_timeout(reason: &'static str) -> Self {
        Self::new(StatusCode::REQUEST_TIMEOUT, "request_timeout", reason)
    }

    #[must_use]
    pub fn too_large() -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", "the request entity is too large")
    }

    #[must_use]
    pub fn uri_too_long() -> Self {
        Self::new(StatusCode::URI_TOO_LONG, "too_long", "the request URI is too long")
    }

    pub fn bad_encoding(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "bad_content_type", reason)
    }

    /// The client may retry after `wait`.
    #[must_use]
    pub fn too_many_requests(wait: Duration) -> Self {
        let reason = "this client makes more requests than it may; see the header Retry-After";
        let mut error = Self::new(StatusCode::TOO_MANY_REQUESTS, "too_many_requests", reason);
        let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        error.headers.push((header::RETRY_AFTER, HeaderValue::from(seconds.max(1))));
        error
    }

    /// No client can fix the failure. The caller logs the cause.
    pub fn internal(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal_server_error", reason)
    }

    /// Temporary: the client may retry.
    pub fn for_now(reason: impl Into<Cow<'static, str>>) -> Self {
        let mut error = Self::new(StatusCode::SERVICE_UNAVAILABLE, "service_unavailable", reason);
        error.headers.push((header::RETRY_AFTER, HeaderValue::from_static("1")));
        error
    }

    #[must_use]
    pub fn short_of_memory() -> Self {
        Self::for_now("the memory for requests is in use; see the header Retry-After")
    }
}

impl From<Failed> for Error {
    fn from(failed: Failed) -> Self {
        Self::internal(failed.0)
    }
}
