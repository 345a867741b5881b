//! The console under `/_utils`: the files of `settee_console`. The console uses only the public API, so it has the
//! rights of its user. All clients may load it; `[csp]` restricts the resources of its pages, see [`crate::browser`].

use data_encoding::HEXLOWER;
use std::io::Read as _;

use flate2::read::GzDecoder;
use hyper::StatusCode;
use hyper::header::{self, HeaderValue};
use md5::{Digest as _, Md5};
use settee_console::File;
use settee_edge::accept;
use settee_edge::etag;

use crate::Error;
use crate::request::Request;
use crate::respond::{self, Answer};

/// One year, the maximum that caches accept. Changed content has another name.
const FOR_EVER: HeaderValue = HeaderValue::from_static("public, max-age=31536000, immutable");

const ICON_CACHING: HeaderValue = HeaderValue::from_static("public, max-age=31536000");

/// `GET /_utils/`, and `GET /_utils`, which redirects there because the page contains relative URLs.
pub(super) async fn index(request: Request) -> Answer {
    if request.head.uri.path().ends_with('/') {
        return serve(&request, "index.html");
    }
    let mut response = respond::whole(StatusCode::MOVED_PERMANENTLY, "text/html; charset=utf-8", Vec::new());
    respond::set(response.headers_mut(), header::LOCATION, &request.absolute("/_utils/"));
    Ok(response)
}

pub(super) async fn file(request: Request) -> Answer {
    match request.captures.get("path") {
        // The login page to which browsers are redirected, see `[chttpd_auth] authentication_redirect`.
        "session.html" => serve(&request, "index.html"),
        path => serve(&request, path),
    }
}

/// `GET /favicon.ico`: the console refers to its own icon, so there is none. As in CouchDB the answer is cacheable.
pub(super) async fn icon(_: Request) -> Answer {
    let mut response = respond::whole(StatusCode::NOT_FOUND, "text/plain", "Not found.");
    response.headers_mut().insert(header::CACHE_CONTROL, ICON_CACHING);
    Ok(response)
}

fn serve(request: &Request, path: &str) -> Answer {
    let file = settee_console::file(path).ok_or_else(|| Error::not_found("missing"))?;
    let tag = HEXLOWER.encode(&Md5::digest(file.gzip));
    let is_known = etag::knows(&request.headers, &tag);
    let takes_gzip = accept::accepts_gzip(&request.headers);
    let mut response = if is_known {
        etag::not_modified()
    } else if takes_gzip {
        respond::whole(StatusCode::OK, file.content_type, file.gzip)
    } else {
        respond::whole(StatusCode::OK, file.content_type, inflated(file))
    };
    respond::set_etag(&mut response, &tag);
    let headers = response.headers_mut();
    if takes_gzip && !is_known {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    headers.insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    headers
        .insert(header::CACHE_CONTROL, if file.is_immutable { FOR_EVER } else { HeaderValue::from_static("no-cache") });
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    // A foreign page with this one in an invisible frame could redirect clicks of its visitor to it.
    headers.insert(header::X_FRAME_OPTIONS, HeaderValue::from_static("SAMEORIGIN"));
    Ok(response)
}

fn inflated(file: &File) -> Vec<u8> {
    let mut out = Vec::new();
    GzDecoder::new(file.gzip).read_to_end(&mut out).expect("the build compressed it");
    out
}

#[cfg(test)]
mod tests;
