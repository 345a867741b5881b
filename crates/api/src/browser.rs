//! [`BrowserPolicy`]: security headers for browsers and checks of cross-site requests. It covers requests from pages of
//! other origins (CORS, with the rules of CouchDB's `chttpd_cors`), frames around responses (`X-Frame-Options`) and the
//! resources that pages under `/_utils` may load (`Content-Security-Policy`; the handlers of attachments and design
//! functions set their own). Requests that a foreign page can send without a preflight are refused if they would have
//! more rights than an anonymous request. Authentication and authorization are done elsewhere.

mod cors;

use hyper::header::{self, HeaderName, HeaderValue};
use hyper::{HeaderMap, Method};

use settee_edge::origin::Scheme;
use settee_settings::{Settings, chttpd, csp, x_frame_options};

use crate::Error;
use crate::respond::{self, Response};

use cors::Cors;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

pub(crate) struct BrowserPolicy {
    cors: Option<Cors>,
    frames: Option<Frames>,
    utils: Option<HeaderValue>,
}

enum Frames {
    SameOrigin,
    From(Vec<String>),
}

pub(crate) struct Viewer {
    origin: Option<HeaderValue>,
    host: Option<HeaderValue>,
    scheme: Scheme,
}

impl Viewer {
    pub(crate) fn of(headers: &HeaderMap, scheme: Scheme) -> Self {
        Self { origin: headers.get(header::ORIGIN).cloned(), host: headers.get(header::HOST).cloned(), scheme }
    }
}

impl BrowserPolicy {
    pub(crate) fn of(settings: &dyn Settings) -> Self {
        let frames = chttpd::ENABLE_XFRAME_OPTIONS.of(settings).then(|| {
            if x_frame_options::SAME_ORIGIN.of(settings) {
                Frames::SameOrigin
            } else {
                Frames::From(cors::list(&x_frame_options::HOSTS.of(settings)))
            }
        });
        let utils =
            csp::UTILS_ENABLE.of(settings).then(|| HeaderValue::from_str(&csp::UTILS_HEADER_VALUE.of(settings)).ok());
        Self { cors: Cors::of(settings), frames, utils: utils.flatten() }
    }

    pub(crate) fn preflight(&self, method: &Method, headers: &HeaderMap) -> Option<Response> {
        self.cors.as_ref().filter(|_| method == Method::OPTIONS)?.preflight(headers)
    }

    /// Refuses requests that a page of another origin can send with the user's credentials and without a preflight.
    pub(crate) fn refuse_forged(
        &self,
        method: &Method,
        headers: &HeaderMap,
        all_users_are_admins: bool,
    ) -> Result<(), Error> {
        if method != Method::POST || text(headers, SEC_FETCH_SITE) != Some("cross-site") {
            return Ok(());
        }
        let counts = all_users_are_admins
            || [header::COOKIE, header::AUTHORIZATION].iter().any(|name| headers.contains_key(name));
        let origin = text(headers, header::ORIGIN);
        let is_known = self.cors.as_ref().is_some_and(|cors| origin.is_some_and(|origin| cors.knows(origin)));
        if !counts || is_known || !is_simple_type(text(headers, header::CONTENT_TYPE)) {
            return Ok(());
        }
        let reason = "a page of another site may not send this for its visitor; list its origin in [cors] origins";
        Err(Error::forbidden(reason))
    }

    pub(crate) fn mark(&self, viewer: &Viewer, path: &str, response: &mut Response) {
        if let Some(cors) = &self.cors {
            let origin = viewer.origin.as_ref().and_then(|origin| origin.to_str().ok());
            cors.mark(origin, response.headers_mut());
        }
        if let Some(frames) = &self.frames {
            let (option, ancestors) = frames.options(viewer);
            let headers = response.headers_mut();
            respond::set(headers, header::X_FRAME_OPTIONS, &option);
            // Browsers ignore `X-Frame-Options` if a policy names `frame-ancestors`, which the policy of a
            // design function can. Browsers enforce all policies, so an additional one restricts further.
            if let Some(ancestors) = ancestors.filter(|_| names_frames(headers)) {
                headers.append(header::CONTENT_SECURITY_POLICY, ancestors);
            }
        }
        if let Some(policy) = self.utils.as_ref().filter(|_| is_utils(path)) {
            response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, policy.clone());
        }
    }
}

/// Refuses public host names while no administrator exists, because every client that reaches the server then
/// has all rights. By DNS rebinding a page can reach this machine under its own name, so only names that
/// cannot be registered on the internet are accepted.
pub(crate) fn refuse_public_name(headers: &HeaderMap) -> Result<(), Error> {
    let host = text(headers, header::HOST).unwrap_or_default();
    let name = if host.starts_with('[') { "" } else { host.rsplit_once(':').map_or(host, |(name, _)| name) };
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    let Some((_, last)) = name.rsplit_once('.') else { return Ok(()) };
    let is_address = name.parse::<std::net::Ipv4Addr>().is_ok();
    let is_private = ["localhost", "test", "local", "internal", "lan", "arpa"].contains(&last);
    if is_address || is_private {
        return Ok(());
    }
    let reason = "without an administrator this server answers under names of this machine only, such as localhost; \
                  make one in [admins], or with COUCHDB_USER and COUCHDB_PASSWORD";
    Err(Error::forbidden(reason))
}

fn text(headers: &HeaderMap, name: impl header::AsHeaderName) -> Option<&str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

fn names_frames(headers: &HeaderMap) -> bool {
    const DIRECTIVE: &[u8] = b"frame-ancestors";
    let names = |policy: &HeaderValue| {
        policy.as_bytes().windows(DIRECTIVE.len()).any(|part| part.eq_ignore_ascii_case(DIRECTIVE))
    };
    headers.get_all(header::CONTENT_SECURITY_POLICY).iter().any(names)
}

fn is_utils(path: &str) -> bool {
    path.strip_prefix("/_utils").is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn is_simple_type(content_type: Option<&str>) -> bool {
    let essence = content_type.unwrap_or_default().split(';').next().unwrap_or_default().trim();
    let simple = ["", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data"];
    simple.iter().any(|known| essence.eq_ignore_ascii_case(known))
}

impl Frames {
    fn options(&self, viewer: &Viewer) -> (String, Option<HeaderValue>) {
        let (option, ancestors) = match self {
            Self::SameOrigin => ("SAMEORIGIN".to_owned(), "'self'".to_owned()),
            Self::From(hosts) => {
                let host = viewer.host.as_ref().and_then(|host| host.to_str().ok()).unwrap_or_default();
                let own = format!("{}://{host}", viewer.scheme.name());
                let is_listed = hosts.contains(&own) || hosts[..] == ["*"];
                if is_listed { (format!("ALLOW-FROM {own}"), own) } else { ("DENY".to_owned(), "'none'".to_owned()) }
            }
        };
        let ancestors = if ancestors.contains([';', ',', ' ']) { "'none'".to_owned() } else { ancestors };
        (option, HeaderValue::try_from(format!("frame-ancestors {ancestors}")).ok())
    }
}

#[cfg(test)]
mod tests;
