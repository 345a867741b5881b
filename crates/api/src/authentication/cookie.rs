//! Session cookies: reading them from requests, and writing their attributes as CouchDB does.

use hyper::HeaderMap;
use hyper::header::{self, HeaderValue};
use settee_auth::{Account, SESSION_COOKIE, SessionCookie, UserContext};
use settee_edge::origin::Scheme;
use settee_model::calendar::http_date;

use super::state::Authentication;
use crate::Error;
use crate::auth_policy::{AuthPolicy, CookiePolicy};
use crate::head::RequestHead;

pub(super) async fn user(
    parts: &Authentication,
    policy: &AuthPolicy,
    head: &RequestHead,
    headers: &HeaderMap,
) -> Result<Option<(UserContext, Option<HeaderValue>)>, Error> {
    let Some(value) = value(headers).filter(|value| !value.is_empty()) else { return Ok(None) };
    let cookie = SessionCookie::parse(value)?;
    let Some(secret) = &policy.secret else { return Ok(None) };
    let Some(account) = parts.users.account(cookie.name()).await? else { return Ok(None) };
    let now_s = (parts.clock_ms)() / 1000;
    let timeout_s = policy.cookie.timeout_s;
    let left_s = |secret: &[u8]| cookie.verify(secret, account.salt(), &policy.algorithms, now_s, timeout_s);
    Ok(parts.secrets.find(policy, now_s, left_s).map(|left_s| {
        let is_old = u128::from(left_s) * 10 < u128::from(timeout_s) * 9;
        (account.context(), is_old.then(|| issue(parts, policy, head, secret, &account)).flatten())
    }))
}

/// Returns true also for cookies without a name, because browsers send them back as the session cookie.
pub(crate) fn is_session_cookie(value: &HeaderValue) -> bool {
    let text = String::from_utf8_lossy(value.as_bytes());
    let name = text.trim_start_matches(['=', ' ', '\t']).split(['=', ';']).next().unwrap_or_default();
    name.trim().eq_ignore_ascii_case(SESSION_COOKIE)
}

fn value(headers: &HeaderMap) -> Option<&str> {
    let pairs = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = pairs.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(name, _)| *name == SESSION_COOKIE).map(|(_, value)| value.trim_matches('"'))
}

pub(crate) fn issue(
    parts: &Authentication,
    policy: &AuthPolicy,
    head: &RequestHead,
    secret: &str,
    account: &Account,
) -> Option<HeaderValue> {
    let algorithm = *policy.algorithms.first()?;
    let now_s = (parts.clock_ms)() / 1000;
    parts.secrets.note(policy, now_s);
    let value = SessionCookie::issue(account.name(), secret.as_bytes(), account.salt(), algorithm, now_s);
    header(&value, &policy.cookie, head, now_s)
}

pub(crate) fn clear(parts: &Authentication, policy: &AuthPolicy, head: &RequestHead) -> Option<HeaderValue> {
    header("", &policy.cookie, head, (parts.clock_ms)() / 1000)
}

fn header(value: &str, policy: &CookiePolicy, head: &RequestHead, now_s: u64) -> Option<HeaderValue> {
    let mut text = format!("{SESSION_COOKIE}={value}; Version=1");
    if policy.persistent {
        let expires = http_date(now_s.saturating_add(policy.timeout_s));
        text.push_str(&format!("; Expires={expires}; Max-Age={}", policy.timeout_s));
    }
    if let Some(domain) = &policy.domain {
        text.push_str(&format!("; Domain={domain}"));
    }
    text.push_str("; Path=/");
    if head.scheme == Scheme::Https {
        text.push_str("; Secure");
    }
    text.push_str("; HttpOnly");
    if let Some(same_site) = policy.same_site {
        text.push_str(&format!("; SameSite={same_site}"));
    }
    HeaderValue::from_str(&text).ok()
}
