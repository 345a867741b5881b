//! Authentication at a peer, as in CouchDB: a session cookie if the peer supports sessions, so that it verifies the
//! password once; a basic authorization otherwise.

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use parking_lot::Mutex;
use settee_model::{base64, json};

use super::{Length, Peer, PeerRequest};
use crate::endpoint::{Auth, Endpoint};
use crate::transport::{Body, TransportError, full_body};

pub(super) struct State {
    auth: Auth,
    session: Mutex<Session>,
    /// Held while a session is requested, so that concurrent requests share one login.
    login: tokio::sync::Mutex<()>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Session {
    Unknown,
    Basic,
    Cookie(String),
    Rejected,
}

pub(super) enum Login {
    /// The cookie of the request; without one it contains name and password.
    Sent(Option<String>),
    /// The peer refused the credentials. Another request would be one more failed login of the account.
    Rejected,
}

pub(super) fn refusal() -> Response<Body> {
    let mut response = Response::new(full_body("{}"));
    *response.status_mut() = StatusCode::UNAUTHORIZED;
    response
}

impl State {
    pub(super) fn of(endpoint: &Endpoint) -> Self {
        let auth = match endpoint {
            Endpoint::Remote(remote) => remote.auth.clone(),
            Endpoint::Local(_) => Auth::None,
        };
        Self { auth, session: Mutex::new(Session::Unknown), login: tokio::sync::Mutex::new(()) }
    }

    pub(super) async fn cookie(&self, peer: &Peer) -> Result<Login, TransportError> {
        if self.auth == Auth::None {
            return Ok(Login::Sent(None));
        }
        match self.session.lock().clone() {
            Session::Cookie(cookie) => return Ok(Login::Sent(Some(cookie))),
            Session::Basic => return Ok(Login::Sent(None)),
            Session::Rejected => return Ok(Login::Rejected),
            Session::Unknown => {}
        }
        let _login = self.login.lock().await;
        let session = self.session.lock().clone();
        match session {
            Session::Cookie(cookie) => Ok(Login::Sent(Some(cookie))),
            Session::Basic => Ok(Login::Sent(None)),
            Session::Rejected => Ok(Login::Rejected),
            Session::Unknown => self.begin(peer).await,
        }
    }

    /// Replaces the cookie `old`, which the peer no longer accepts.
    pub(super) async fn renew(&self, peer: &Peer, old: &str) -> Result<Login, TransportError> {
        let _login = self.login.lock().await;
        let session = self.session.lock().clone();
        match session {
            Session::Cookie(cookie) if cookie != old => Ok(Login::Sent(Some(cookie))),
            Session::Basic => Ok(Login::Sent(None)),
            Session::Rejected => Ok(Login::Rejected),
            Session::Cookie(_) | Session::Unknown => self.begin(peer).await,
        }
    }

    async fn begin(&self, peer: &Peer) -> Result<Login, TransportError> {
        let Auth::Basic { username, password } = &self.auth else { return Ok(Login::Sent(None)) };
        let body = json::object(|body| {
            body.string("name", username).string("password", password);
        });
        let uri = format!("{}/_session", peer.inner.endpoint.server_uri());
        let peer_request = PeerRequest { method: Method::POST, ..PeerRequest::get(uri) };
        let length = Length::Known(body.len());
        // The header contains name and password too, as long as no cookie exists, because some peers require it.
        let response = peer.send_once(&peer_request, Some("application/json"), full_body(body), length, None).await?;
        let status = response.status();
        drop(response);
        let mut session = self.session.lock();
        match (&*session, status) {
            (_, StatusCode::UNAUTHORIZED) => {
                *session = Session::Rejected;
                Ok(Login::Rejected)
            }
            // `update` has stored the cookie of the response.
            (Session::Cookie(cookie), status) if status.is_success() => Ok(Login::Sent(Some(cookie.clone()))),
            _ => {
                *session = Session::Basic;
                Ok(Login::Sent(None))
            }
        }
    }

    pub(super) fn update(&self, cookie: String) {
        if self.auth != Auth::None {
            *self.session.lock() = Session::Cookie(cookie);
        }
    }

    pub(super) fn authorize(&self, headers: &mut HeaderMap) {
        let Auth::Basic { username, password } = &self.auth else { return };
        let mut value = b"Basic ".to_vec();
        base64::encode(format!("{username}:{password}").as_bytes(), &mut value);
        if let Ok(mut value) = HeaderValue::from_bytes(&value) {
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
    }
}

pub(super) fn session_cookie(value: &HeaderValue) -> Option<String> {
    let cookie = value.to_str().ok()?.split(';').next()?.trim();
    let (name, token) = cookie.split_once('=')?;
    (name == "AuthSession" && !token.is_empty()).then(|| cookie.to_owned())
}
