//! [`Tls`]: encrypted connections by rustls for the client library.

use std::fs;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use settee_tls::Trust;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::Socket;
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

use crate::options::Verification;

#[derive(Clone)]
pub(crate) struct Tls {
    connector: TlsConnector,
}

impl Tls {
    /// Fails if the file of authorities cannot be used.
    pub(crate) fn new(verification: &Verification) -> Result<Self, String> {
        let trust = match verification {
            Verification::AnyCertificate => Trust::AnyCertificate,
            Verification::Verified(None) => Trust::Web,
            Verification::Verified(Some(file)) => {
                let pem = fs::read(file).map_err(|error| error.to_string());
                let roots = pem.and_then(|pem| settee_tls::authorities(&pem));
                let unusable = |error| format!("sslrootcert {} cannot be used: {error}", file.display());
                Trust::Authorities(roots.map_err(unusable)?)
            }
        };
        Ok(Self { connector: TlsConnector::from(Arc::new(settee_tls::client_config(&trust, None)?)) })
    }
}

impl MakeTlsConnect<Socket> for Tls {
    type Stream = EncryptedStream;
    type TlsConnect = HostConnector;
    type Error = io::Error;

    fn make_tls_connect(&mut self, domain: &str) -> io::Result<HostConnector> {
        // Also called for connections without encryption, and for sockets, which have no name.
        Ok(HostConnector { connector: self.connector.clone(), name: domain.to_owned() })
    }
}

pub(crate) struct HostConnector {
    connector: TlsConnector,
    name: String,
}

impl TlsConnect<Socket> for HostConnector {
    type Stream = EncryptedStream;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<EncryptedStream>> + Send>>;

    fn connect(self, stream: Socket) -> Self::Future {
        Box::pin(async move {
            let name = ServerName::try_from(self.name).map_err(io::Error::other)?;
            Ok(EncryptedStream(Box::new(self.connector.connect(name, stream).await?)))
        })
    }
}

pub(crate) struct EncryptedStream(Box<tokio_rustls::client::TlsStream<Socket>>);

impl TlsStream for EncryptedStream {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl AsyncRead for EncryptedStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_read(cx, buffer)
    }
}

impl AsyncWrite for EncryptedStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_shutdown(cx)
    }
}
