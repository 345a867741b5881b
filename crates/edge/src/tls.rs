//! [`Tls`]: encrypted connections. The server loads the certificates, and replaces them when they change.

use std::io;
use std::sync::Arc;

use parking_lot::RwLock;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::server::TlsStream;

const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

#[derive(Clone)]
pub struct Tls(Arc<RwLock<Arc<ServerConfig>>>);

impl Tls {
    /// `config` need not name protocols.
    #[must_use]
    pub fn new(config: ServerConfig) -> Self {
        Self(Arc::new(RwLock::new(with_protocols(config))))
    }

    /// Applies to new handshakes only.
    pub fn replace(&self, config: ServerConfig) {
        *self.0.write() = with_protocols(config);
    }

    pub async fn accept(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let config = Arc::clone(&self.0.read());
        TlsAcceptor::from(config).accept(stream).await
    }
}

fn with_protocols(mut config: ServerConfig) -> Arc<ServerConfig> {
    config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).into();
    Arc::new(config)
}
