//! HTTP client ([`Server`], [`Connection`]): one keep-alive connection, without pipelining, over plain HTTP. It never
//! retries a request. Bodies are passed to the socket without a copy and nothing is parsed here, because client and
//! server share the cores.

use anyhow::{Context, Result, anyhow, bail, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, COOKIE, HOST, HeaderName, HeaderValue};
use hyper::{HeaderMap, Method, Request};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use std::fmt::Write;
use std::sync::Arc;
use tokio::net::TcpStream;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Credentials {
    None,
    Authorization(HeaderValue),
    Cookie(HeaderValue),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Server {
    /// Host and port of the connection.
    address: String,
    host: HeaderValue,
    credentials: Credentials,
    prefix: String,
    /// URL without credentials.
    pub(crate) shown: String,
}

impl Server {
    /// Parses `http://[user:password@]host[:port][/path]`.
    pub(crate) fn parse(url: &str) -> Result<Server> {
        let rest = match url.split_once("://") {
            Some(("http", rest)) => rest,
            Some(("https", _)) => {
                bail!(
                    "{url}: https is not supported, because encryption would be measured too; use the plain HTTP port"
                )
            }
            _ => bail!("{url}: a server's URL must start with http://"),
        };
        let (authority, path) = rest.split_once('/').map_or((rest, ""), |(authority, path)| (authority, path));
        let (credentials, place) = match authority.rsplit_once('@') {
            Some((credentials, place)) => (Some(credentials), place),
            None => (None, authority),
        };
        ensure!(!place.is_empty(), "{url}: the host is missing");
        let has_port = place
            .rsplit_once(':')
            .is_some_and(|(host, port)| !port.is_empty() && !host.ends_with(':') && !port.ends_with(']'));
        let address = if has_port { place.to_string() } else { format!("{}:80", place.trim_end_matches(':')) };
        let port = address.rsplit_once(':').map_or("", |(_, port)| port);
        ensure!(port.parse::<u16>().is_ok(), "{url}: {port} is no port number");
        let credentials = match credentials {
            Some(credentials) => {
                let (user, password) = credentials.split_once(':').unwrap_or((credentials, ""));
                let plain = [&percent_decode(user)?[..], b":", &percent_decode(password)?[..]].concat();
                Credentials::Authorization(basic_header(&plain)?)
            }
            None => Credentials::None,
        };
        let path = path.trim_end_matches('/');
        let prefix = if path.is_empty() { String::new() } else { format!("/{path}") };
        Ok(Server {
            host: HeaderValue::from_str(place)?,
            shown: format!("http://{place}{prefix}"),
            address,
            credentials,
            prefix,
        })
    }

    pub(crate) fn with(&self, credentials: Credentials) -> Server {
        Server { credentials, ..self.clone() }
    }

    pub(crate) async fn connect(self: &Arc<Server>) -> Result<Connection> {
        Ok(Connection { sender: self.dial().await?, server: self.clone() })
    }

    async fn dial(&self) -> Result<SendRequest<Full<Bytes>>> {
        let stream = TcpStream::connect(&self.address).await.with_context(|| format!("cannot reach {}", self.shown))?;
        stream.set_nodelay(true)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        tokio::spawn(async move {
            let _ = connection.await;
        });
        Ok(sender)
    }
}

pub(crate) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    server: Arc<Server>,
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Connection {
    /// `path` must start with a slash and be percent-encoded. Fails only without a response; any status is accepted.
    pub(crate) async fn send(&mut self, method: Method, path: &str, body: impl Into<Bytes>) -> Result<Answer> {
        self.request(method, path, body, None).await
    }

    /// Sends an attachment. Servers compress contents of other types, such as JSON.
    pub(crate) async fn upload(&mut self, path: &str, content: Bytes) -> Result<Answer> {
        let content_type = (CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
        self.request(Method::PUT, path, content, Some(content_type)).await
    }

    /// Sets a setting until the end of the server process and returns its old value. `None` is the default value.
    pub(crate) async fn configure(&mut self, section: &str, key: &str, value: Option<&str>) -> Result<Option<String>> {
        let path = format!("/_node/_local/_config/{section}/{key}");
        let (method, body) = match value {
            Some(value) => (Method::PUT, Value::from(value).to_string()),
            None => (Method::DELETE, String::new()),
        };
        let persist = (HeaderName::from_static("x-couch-persist"), HeaderValue::from_static("false"));
        let answer = self.request(method, &path, body, Some(persist)).await?.expect_status(&[200, 404], &path)?;
        // The old value of a setting with its default value is an empty text.
        Ok(answer.json()?.as_str().filter(|old| !old.is_empty()).map(str::to_owned))
    }

    pub(crate) fn authorize(&mut self, credentials: Credentials) {
        self.server = Arc::new(self.server.with(credentials));
    }

    async fn request(
        &mut self,
        method: Method,
        path: &str,
        body: impl Into<Bytes>,
        header: Option<(HeaderName, HeaderValue)>,
    ) -> Result<Answer> {
        let label = || format!("{} {}{path}", method, self.server.shown);
        let body = body.into();
        let mut request = Request::builder()
            .method(method.clone())
            .uri(format!("{}{path}", self.server.prefix))
            .header(HOST, self.server.host.clone());
        request = match &self.server.credentials {
            Credentials::None => request,
            Credentials::Authorization(value) => request.header(AUTHORIZATION, value.clone()),
            Credentials::Cookie(value) => request.header(COOKIE, value.clone()),
        };
        let has_type = header.as_ref().is_some_and(|(name, _)| *name == CONTENT_TYPE);
        if let Some((name, value)) = header {
            request = request.header(name, value);
        }
        if !has_type && (!body.is_empty() || method == Method::POST) {
            request = request.header(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        let request = request.body(Full::new(body)).with_context(label)?;
        if self.sender.ready().await.is_err() {
            // The server may close an idle connection at any time.
            self.sender = self.server.dial().await?;
        }
        let answer = self.sender.send_request(request).await.with_context(label)?;
        let status = answer.status().as_u16();
        let (parts, body) = answer.into_parts();
        let body = body.collect().await.with_context(label)?.to_bytes();
        Ok(Answer { status, headers: parts.headers, body })
    }

    pub(crate) async fn get_any(&mut self, path: &str) -> Result<Answer> {
        self.send(Method::GET, path, Bytes::new()).await
    }

    pub(crate) async fn get(&mut self, path: &str) -> Result<Answer> {
        self.send(Method::GET, path, Bytes::new()).await?.expect_status(&[200], path)
    }

    pub(crate) async fn get_json(&mut self, path: &str) -> Result<Value> {
        self.get(path).await?.json()
    }
}

impl Answer {
    pub(crate) fn expect_status(self, expected: &[u16], label: &str) -> Result<Answer> {
        if expected.contains(&self.status) {
            return Ok(self);
        }
        Err(anyhow!("{label}: status {}: {}", self.status, self.excerpt()))
    }

    pub(crate) fn json(&self) -> Result<Value> {
        serde_json::from_slice(&self.body).with_context(|| format!("the answer is no JSON: {}", self.excerpt()))
    }

    pub(crate) fn excerpt(&self) -> String {
        let text = String::from_utf8_lossy(&self.body);
        let text = text.trim();
        match text.char_indices().nth(200) {
            Some((end, _)) => format!("{}…", &text[..end]),
            None => text.into(),
        }
    }
}

pub(crate) fn basic(name: &str, password: &str) -> Result<HeaderValue> {
    basic_header(format!("{name}:{password}").as_bytes())
}

fn basic_header(plain: &[u8]) -> Result<HeaderValue> {
    let mut value = HeaderValue::from_str(&format!("Basic {}", base64(plain)))?;
    value.set_sensitive(true);
    Ok(value)
}

pub(crate) fn encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len() * 2);
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            write!(out, "%{byte:02X}").expect("writing to a string cannot fail");
        }
    }
    out
}

fn percent_decode(text: &str) -> Result<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let digit = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16));
        match (digit(bytes.next()), digit(bytes.next())) {
            (Some(high), Some(low)) => out.push((high * 16 + low) as u8),
            _ => bail!("incomplete %-escape in the credentials of the URL"),
        }
    }
    Ok(out)
}

pub(crate) fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for chunk in bytes.chunks(3) {
        let bits = chunk.iter().fold(0_u32, |bits, byte| (bits << 8) | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for place in 0..4 {
            let sextet = (bits >> (18 - 6 * place)) as usize & 63;
            out.push(if place <= chunk.len() { char::from(ALPHABET[sextet]) } else { '=' });
        }
    }
    out
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn urls() {
        let check = |url: &str, address: &str, shown: &str, authorization: Option<&str>| {
            let server = Server::parse(url).unwrap();
            assert_eq!((server.address.as_str(), server.shown.as_str()), (address, shown), "{url}");
            let expected = authorization
                .map_or(Credentials::None, |value| Credentials::Authorization(HeaderValue::from_str(value).unwrap()));
            assert_eq!(server.credentials, expected, "{url}");
        };
        check("http://127.0.0.1:5984", "127.0.0.1:5984", "http://127.0.0.1:5984", None);
        check("http://localhost/", "localhost:80", "http://localhost", None);
        check("http://h:1/a/b/", "h:1", "http://h:1/a/b", None);
        check("http://[::1]:59", "[::1]:59", "http://[::1]:59", None);
        check("http://[::1]", "[::1]:80", "http://[::1]", None);
        check("http://admin:pw@h:1", "h:1", "http://h:1", Some("Basic YWRtaW46cHc="));
        check("http://a:p%40%3A@h:1", "h:1", "http://h:1", Some("Basic YTpwQDo="));
    }

    #[test]
    fn wrong_urls() {
        for (url, text) in [
            ("https://h", "https is not supported"),
            ("h:5984", "must start with http://"),
            ("http://", "host is missing"),
            ("http://h:99999", "no port number"),
            ("http://a%4:b@h", "%-escape"),
        ] {
            let error = Server::parse(url).unwrap_err().to_string();
            assert!(error.contains(text), "{url}: {error}");
        }
    }

    #[test]
    fn base64_and_escapes() {
        for (plain, text) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")] {
            assert_eq!(base64(plain.as_bytes()), text);
        }
        assert_eq!(encode("[2016,\"x\"]"), "%5B2016%2C%22x%22%5D");
    }
}
