//! [`Connector`]: connections to hosts, optionally through a proxy and under TLS.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpSocket, TcpStream, lookup_host};
use tokio_rustls::TlsConnector;

use super::addresses::AllowedAddresses;
use super::proxy::Proxy;
use crate::transport::{BoxFuture, TransportError};
use crate::tuning::SocketOptions;

const CONNECT_ATTEMPT_TIMEOUT: Duration = Duration::from_secs(300);

#[derive(Clone)]
pub(super) struct Connector {
    pub(super) tls: Arc<rustls::ClientConfig>,
    pub(super) sockets: SocketOptions,
    pub(super) proxy: Option<Arc<Proxy>>,
    pub(super) allowed: AllowedAddresses,
}

pub(super) trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

pub(super) type BoxedIo = Box<dyn Io>;

impl tower_service::Service<Uri> for Connector {
    type Response = Stream;
    type Error = TransportError;
    type Future = BoxFuture<'static, Result<Stream, TransportError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), TransportError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connector = self.clone();
        Box::pin(async move {
            // The HTTP client may continue a connection attempt after its request, which has a timeout of its own.
            let opened = tokio::time::timeout(CONNECT_ATTEMPT_TIMEOUT, connector.open(&uri)).await;
            let (io, proxied) = opened.map_err(|_| TransportError::Timeout)??;
            Ok(Stream { io: TokioIo::new(io), proxied })
        })
    }
}

impl Connector {
    /// Also returns true if a proxy reads the requests, which must then contain the host.
    pub(super) async fn open(&self, uri: &Uri) -> Result<(BoxedIo, bool), TransportError> {
        let host = uri.host().ok_or_else(|| TransportError::Unusable("the URL names no host".to_owned()))?;
        let is_https = uri.scheme_str() == Some("https");
        let port = uri.port_u16().unwrap_or(if is_https { 443 } else { 80 });
        let mut proxied = false;
        let io: BoxedIo = match &self.proxy {
            None => Box::new(self.socket(host, port).await?),
            Some(proxy) => {
                let socket: BoxedIo = Box::new(self.socket(&proxy.host, proxy.port).await?);
                let socket = if proxy.is_tls() { self.secure(socket, &proxy.host).await? } else { socket };
                proxied = proxy.reads_requests() && !is_https;
                if proxied { socket } else { proxy.tunnel(socket, host, port).await? }
            }
        };
        let io = if is_https { self.secure(io, host).await? } else { io };
        Ok((io, proxied))
    }

    async fn socket(&self, host: &str, port: u16) -> Result<TcpStream, TransportError> {
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let refused = |error: io::Error| TransportError::Refused(format!("{host}:{port}: {error}"));
        let mut last = io::Error::other("the name has no address");
        for address in lookup_host((host, port)).await.map_err(refused)? {
            // The check follows name resolution and redirects, so it applies to the address that is connected to.
            if !self.allowed.includes(address.ip()) {
                return Err(TransportError::Unusable(format!(
                    "{host}:{port}: only admins may replicate with addresses that are not public, see [replicator] \
                     private_addresses_for_users"
                )));
            }
            match self.open_socket(address).await {
                Ok(stream) => return Ok(stream),
                Err(error) => last = error,
            }
        }
        Err(refused(last))
    }

    async fn open_socket(&self, address: SocketAddr) -> io::Result<TcpStream> {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        socket.set_keepalive(self.sockets.keepalive)?;
        if let Some(bytes) = self.sockets.receive_buffer_bytes {
            socket.set_recv_buffer_size(bytes)?;
        }
        if let Some(bytes) = self.sockets.send_buffer_bytes {
            socket.set_send_buffer_size(bytes)?;
        }
        let stream = socket.connect(address).await?;
        stream.set_nodelay(self.sockets.nodelay)?;
        Ok(stream)
    }

    async fn secure(&self, io: BoxedIo, host: &str) -> Result<BoxedIo, TransportError> {
        let name = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let server = ServerName::try_from(name).map_err(|error| TransportError::Tls(format!("{host}: {error}")))?;
        let secured = TlsConnector::from(Arc::clone(&self.tls)).connect(server, io).await;
        let stream = secured.map_err(|error| {
            let is_certificate = error
                .get_ref()
                .and_then(|error| error.downcast_ref::<rustls::Error>())
                .is_some_and(|error| matches!(error, rustls::Error::InvalidCertificate(_)));
            let hint = match is_certificate {
                true => "; name its authority in [replicator] ssl_trusted_certificates_file, or switch verify_ssl_certificates off",
                false => "",
            };
            TransportError::Tls(format!("{host}: {error}{hint}"))
        })?;
        Ok(Box::new(stream))
    }
}

pub(super) struct Stream {
    io: TokioIo<BoxedIo>,
    /// True if a proxy reads the requests, which must then contain the host.
    proxied: bool,
}

impl Connection for Stream {
    fn connected(&self) -> Connected {
        Connected::new().proxy(self.proxied)
    }
}

impl Read for Stream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buffer)
    }
}

impl Write for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, slices)
    }
}
