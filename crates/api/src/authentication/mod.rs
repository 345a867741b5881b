//! Authentication of requests: [`authenticate`] tries the configured handlers in order. Each handler returns
//! the user, passes the request to the next handler, or refuses it. The module `access` authorizes the user.

mod cookie;
pub(crate) mod fetch;
pub(crate) mod jwt;
pub(crate) mod login;
mod node;
mod proxy;
mod secrets;
mod state;
#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests;

use hyper::header::{self, HeaderValue};
use hyper::{HeaderMap, Method, StatusCode};
use percent_encoding::{percent_decode, percent_decode_str};
use settee_auth::{BasicCredentials, NodeToken, UserContext};
use settee_edge::accept;
use settee_edge::origin::Forwarded;
use settee_edge::origin::Scheme;

pub(crate) use cookie::{clear, is_session_cookie, issue};
pub(crate) use node::{COVERED, NODE_ROLE, NodeTokens, TOKEN, covered, covered_text, require_body, require_node};
pub(crate) use secrets::Secrets;
pub(crate) use state::Authentication;

use crate::Error;
use crate::auth_policy::{Anonymous, AuthPolicy, Handler};
use crate::head::RequestHead;
use crate::path::encode_path;
use crate::respond::{self, Response};

/// Header with the percent-encoded name of another user.
const ACTING_USER: &str = "x-settee-user";

#[derive(Clone, Debug)]
pub(crate) struct Authenticated {
    pub(crate) user: UserContext,
    pub(crate) handler: Option<Handler>,
    pub(crate) renewed: Option<HeaderValue>,
    /// The token of a node, against which the body is still to be verified.
    pub(crate) token: Option<NodeToken>,
}

pub(crate) async fn authenticate(
    parts: &Authentication,
    head: &RequestHead,
    headers: &HeaderMap,
) -> Result<Authenticated, Error> {
    if let Some((user, token)) = node::user(parts, head, headers)? {
        return Ok(Authenticated { user, handler: None, renewed: None, token: Some(token) });
    }
    let policy = parts.policy();
    for handler in &policy.handlers {
        let found = match handler {
            Handler::Cookie => cookie::user(parts, &policy, head, headers).await?,
            Handler::Default => default_user(parts, &policy, head, headers).await?.map(|user| (user, None)),
            Handler::Proxy => proxy::user(parts, &policy, headers).map(|user| (user, None)),
            Handler::Jwt => jwt::user(parts, &policy, headers).await?.map(|user| (user, None)),
        };
        if let Some((user, renewed)) = found {
            let user = acting_user(parts, headers, user).await?;
            return Ok(Authenticated { user, handler: Some(*handler), renewed, token: None });
        }
    }
    if refuses_anonymous(policy.anonymous, head) {
        return Err(Error::unauthorized("Authentication required."));
    }
    let user = acting_user(parts, headers, UserContext::anonymous()).await?;
    Ok(Authenticated { user, handler: None, renewed: None, token: None })
}

/// Returns the user that [`ACTING_USER`] names. Only administrators may name one.
async fn acting_user(parts: &Authentication, headers: &HeaderMap, user: UserContext) -> Result<UserContext, Error> {
    let Some(name) = headers.get(ACTING_USER) else { return Ok(user) };
    if !user.is_admin() {
        return Err(Error::forbidden("Only administrators may act as another user."));
    }
    let name = percent_decode(name.as_bytes()).decode_utf8_lossy();
    let account = parts.users.account(&name).await?.ok_or_else(|| Error::not_found("The user does not exist."))?;
    Ok(account.context())
}

/// Returns the user of basic credentials. While no administrator exists, every client is an administrator,
/// also under a name that no user has: set-up scripts send the credentials of the administrator that they are
/// about to create.
async fn default_user(
    parts: &Authentication,
    policy: &AuthPolicy,
    head: &RequestHead,
    headers: &HeaderMap,
) -> Result<Option<UserContext>, Error> {
    let header = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let party = policy.anonymous == Anonymous::Accepted && !parts.authenticator.has_admins();
    let Some(credentials) = header.map(BasicCredentials::parse).transpose()?.flatten() else {
        return Ok(party.then(UserContext::admin_party));
    };
    if party && login::is_unknown(parts, &credentials).await? {
        return Ok(Some(UserContext::admin_party()));
    }
    login::basic(parts, policy, head.peer, credentials).await.map(Some)
}

/// Logins are never refused by this setting.
fn refuses_anonymous(anonymous: Anonymous, head: &RequestHead) -> bool {
    let path = head.uri.path().trim_matches('/');
    match anonymous {
        Anonymous::Accepted => false,
        Anonymous::RefusedExceptUp if path == "_up" => false,
        Anonymous::Refused | Anonymous::RefusedExceptUp => (&head.method, path) != (&Method::POST, "_session"),
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Caller {
    challenge: Option<HeaderValue>,
    page: Option<Page>,
}

#[derive(Clone, Debug)]
struct Page {
    path: String,
    headers: HeaderMap,
    scheme: Scheme,
}

impl Caller {
    pub(crate) fn of(head: &RequestHead, headers: &HeaderMap) -> Self {
        let browses = !accept::accepts(headers, "application/json") && accept::accepts(headers, "text/html");
        let page = || Page {
            path: with_single_slashes(&percent_decode_str(head.uri.path()).decode_utf8_lossy()),
            headers: headers.clone(),
            scheme: head.scheme,
        };
        Self { challenge: headers.get("x-couchdb-www-authenticate").cloned(), page: browses.then(page) }
    }

    /// A challenge is sent only if the client or the configuration requests it, or if all requests need credentials.
    pub(crate) fn refuse(&self, policy: &AuthPolicy, forwarded: &Forwarded, error: &Error) -> Response {
        let mut response = respond::error(error);
        if error.status != StatusCode::UNAUTHORIZED {
            return response;
        }
        let configured = policy.challenge.as_deref().and_then(|value| HeaderValue::from_str(value).ok());
        let closed =
            || (policy.anonymous != Anonymous::Accepted).then(|| HeaderValue::from_static("Basic realm=\"server\""));
        if let Some(challenge) = self.challenge.clone().or(configured).or_else(closed) {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
        } else if let Some(page) = &self.page {
            let redirect = &policy.redirect;
            let origin = || forwarded.origin(&page.headers, page.scheme);
            let base = if redirect.contains("://") { String::new() } else { origin() };
            let (page, reason) = (encode_path(&page.path), encode_path(&error.reason));
            *response.status_mut() = StatusCode::FOUND;
            let location = format!("{base}{redirect}?return={page}&reason={reason}");
            respond::set(response.headers_mut(), header::LOCATION, &location);
        }
        response
    }
}

fn with_single_slashes(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    for character in path.chars() {
        if character != '/' || !out.ends_with('/') {
            out.push(character);
        }
    }
    out
}

/// Adds the cookie that extends a session, unless the response starts or ends a session itself.
pub(crate) fn renew(response: &mut Response, renewed: Option<HeaderValue>) {
    if let Some(cookie) = renewed
        && !response.headers().get_all(header::SET_COOKIE).iter().any(is_session_cookie)
    {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
}
