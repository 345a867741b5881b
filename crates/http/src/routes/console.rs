//! The console under `/_utils`: one page with its style and its script, which are parts of the program.
//!
//! It asks the server by the public interface only, so it may do what its user may do; everybody may load it. What it may load is
//! limited by `[csp]`, see [`crate::browser`].

use hyper::StatusCode;
use hyper::header::{self, HeaderValue};
use md5::{Digest as _, Md5};

use crate::request::Request;
use crate::respond::{self, Answer, Response};
use crate::{Error, etag};

/// A file of the console.
struct Asset {
    content_type: &'static str,
    text: &'static str,
}

static PAGE: Asset = Asset { content_type: "text/html; charset=utf-8", text: include_str!("console/page.html") };
static STYLE: Asset = Asset { content_type: "text/css; charset=utf-8", text: include_str!("console/style.css") };
static SCRIPT: Asset =
    Asset { content_type: "text/javascript; charset=utf-8", text: include_str!("console/script.js") };

/// `GET /_utils/`, and `GET /_utils`, which leads there: names within the page are relative to it.
pub(super) async fn index(request: Request) -> Answer {
    if request.line.uri.path().ends_with('/') {
        return Ok(serve(&request, &PAGE));
    }
    let mut response = respond::whole(StatusCode::MOVED_PERMANENTLY, PAGE.content_type, Vec::new());
    respond::set(response.headers_mut(), header::LOCATION, &request.absolute("/_utils/"));
    Ok(response)
}

/// `GET /_utils/{*path}`
pub(super) async fn file(request: Request) -> Answer {
    let asset = match request.captures.get("path") {
        // Where browsers are sent that have to log in, see `[chttpd_auth] authentication_redirect`.
        "index.html" | "session.html" => &PAGE,
        "style.css" => &STYLE,
        "script.js" => &SCRIPT,
        _ => return Err(Error::not_found("missing")),
    };
    Ok(serve(&request, asset))
}

fn serve(request: &Request, asset: &Asset) -> Response {
    let tag: String = Md5::digest(asset.text).iter().map(|byte| format!("{byte:02x}")).collect();
    let mut response = if etag::knows(&request.headers, &tag) {
        etag::not_modified()
    } else {
        respond::whole(StatusCode::OK, asset.content_type, asset.text)
    };
    respond::set_etag(&mut response, &tag);
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("private, must-revalidate"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    // A page of others that shows this one could have its visitor click on what is not seen.
    headers.insert(header::X_FRAME_OPTIONS, HeaderValue::from_static("SAMEORIGIN"));
    response
}

#[cfg(test)]
mod tests;
