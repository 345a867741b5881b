//! [`Proxy`]: connections through a proxy, by HTTP CONNECT or SOCKS version 5.

use http::HeaderValue;
use percent_encoding::percent_decode_str;
use settee_model::base64;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::connector::BoxedIo;
use crate::transport::TransportError;

const ANSWER_BYTES_MAX: usize = 16 << 10;

pub(super) struct Proxy {
    kind: Kind,
    pub(super) host: String,
    pub(super) port: u16,
    credentials: Option<(String, String)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Http,
    Https,
    Socks5,
}

impl Proxy {
    pub(super) fn parse(url: &str) -> Result<Self, TransportError> {
        let invalid = || TransportError::Unusable("proxy has an invalid url".to_owned());
        let (kind, rest, default_port) = match url.split_once("://").ok_or_else(invalid)? {
            ("http", rest) => (Kind::Http, rest, 80),
            ("https", rest) => (Kind::Https, rest, 443),
            ("socks5", rest) => (Kind::Socks5, rest, 1080),
            _ => return Err(invalid()),
        };
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let (credentials, address) = match authority.rsplit_once('@') {
            Some((credentials, address)) => {
                let (name, password) = credentials.split_once(':').unwrap_or((credentials, ""));
                let decode = |text: &str| percent_decode_str(text).decode_utf8().map(std::borrow::Cow::into_owned);
                (Some((decode(name).map_err(|_| invalid())?, decode(password).map_err(|_| invalid())?)), address)
            }
            None => (None, authority),
        };
        let (host, port) = match address.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, port.parse().map_err(|_| invalid())?),
            _ => (address, default_port),
        };
        if host.is_empty() {
            return Err(invalid());
        }
        Ok(Self { kind, host: host.to_owned(), port, credentials })
    }

    pub(super) fn is_tls(&self) -> bool {
        self.kind == Kind::Https
    }

    /// Returns false if the proxy opens a tunnel for plain requests.
    pub(super) fn reads_requests(&self) -> bool {
        self.kind != Kind::Socks5
    }

    pub(super) fn authorization(&self) -> Option<HeaderValue> {
        let (name, password) = self.credentials.as_ref()?;
        let mut value = b"Basic ".to_vec();
        base64::encode(format!("{name}:{password}").as_bytes(), &mut value);
        let mut value = HeaderValue::from_bytes(&value).ok()?;
        value.set_sensitive(true);
        Some(value)
    }

    pub(super) async fn tunnel(&self, mut io: BoxedIo, host: &str, port: u16) -> Result<BoxedIo, TransportError> {
        match self.kind {
            Kind::Http | Kind::Https => self.connect(&mut io, host, port).await?,
            Kind::Socks5 => self.socks(&mut io, host, port).await?,
        }
        Ok(io)
    }

    fn refused(&self, label: impl std::fmt::Display) -> TransportError {
        TransportError::Refused(format!("the proxy {}:{}: {label}", self.host, self.port))
    }

    async fn connect(&self, io: &mut BoxedIo, host: &str, port: u16) -> Result<(), TransportError> {
        let mut request = format!("CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n").into_bytes();
        if let Some(authorization) = self.authorization() {
            request.extend_from_slice(b"Proxy-Authorization: ");
            request.extend_from_slice(authorization.as_bytes());
            request.extend_from_slice(b"\r\n");
        }
        request.extend_from_slice(b"\r\n");
        io.write_all(&request).await.map_err(|error| self.refused(error))?;
        io.flush().await.map_err(|error| self.refused(error))?;
        let mut answer = Vec::new();
        // The response is read byte by byte, because the bytes after it belong to the tunnel.
        while !answer.ends_with(b"\r\n\r\n") {
            if answer.len() >= ANSWER_BYTES_MAX {
                return Err(self.refused("its answer is too long"));
            }
            answer.push(io.read_u8().await.map_err(|error| self.refused(error))?);
        }
        let line = String::from_utf8_lossy(&answer);
        let line = line.lines().next().unwrap_or_default();
        let status = line.split(' ').nth(1).unwrap_or_default();
        if status.starts_with('2') { Ok(()) } else { Err(self.refused(line)) }
    }

    async fn socks(&self, io: &mut BoxedIo, host: &str, port: u16) -> Result<(), TransportError> {
        let failed = |error: std::io::Error| self.refused(error);
        let methods: &[u8] = if self.credentials.is_some() { &[5, 2, 0, 2] } else { &[5, 1, 0] };
        io.write_all(methods).await.map_err(failed)?;
        let mut chosen = [0; 2];
        io.read_exact(&mut chosen).await.map_err(failed)?;
        match (chosen, &self.credentials) {
            ([5, 0], _) => {}
            ([5, 2], Some((name, password))) => self.socks_log_in(io, name, password).await?,
            _ => return Err(self.refused("it requires an unsupported authentication method")),
        }
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let length = u8::try_from(host.len()).map_err(|_| self.refused("the name of the host is too long"))?;
        let mut request = vec![5, 1, 0];
        match host.parse::<std::net::IpAddr>() {
            Ok(std::net::IpAddr::V4(address)) => {
                request.push(1);
                request.extend_from_slice(&address.octets());
            }
            Ok(std::net::IpAddr::V6(address)) => {
                request.push(4);
                request.extend_from_slice(&address.octets());
            }
            Err(_) => {
                request.extend_from_slice(&[3, length]);
                request.extend_from_slice(host.as_bytes());
            }
        }
        request.extend_from_slice(&port.to_be_bytes());
        io.write_all(&request).await.map_err(failed)?;
        let mut answer = [0; 4];
        io.read_exact(&mut answer).await.map_err(failed)?;
        if answer[1] != 0 {
            return Err(self.refused(format!("SOCKS error {}", answer[1])));
        }
        let rest = match answer[3] {
            1 => 4,
            4 => 16,
            _ => usize::from(io.read_u8().await.map_err(failed)?),
        };
        let mut address = vec![0; rest + 2];
        io.read_exact(&mut address).await.map_err(failed)?;
        Ok(())
    }

    async fn socks_log_in(&self, io: &mut BoxedIo, name: &str, password: &str) -> Result<(), TransportError> {
        let failed = |error: std::io::Error| self.refused(error);
        let mut request = vec![1];
        for text in [name, password] {
            request.push(u8::try_from(text.len()).map_err(|_| self.refused("the credentials are too long"))?);
            request.extend_from_slice(text.as_bytes());
        }
        io.write_all(&request).await.map_err(failed)?;
        let mut answer = [0; 2];
        io.read_exact(&mut answer).await.map_err(failed)?;
        if answer[1] == 0 { Ok(()) } else { Err(self.refused("it rejected the credentials")) }
    }
}
