//! [`Tls`]: connections that nobody can listen to. Certificates are the server's part: this one is given them, and others
//! when they change.

use std::io;
use std::sync::Arc;

use parking_lot::RwLock;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::server::TlsStream;

/// The protocols that clients may choose from, the best first.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// How handshakes are made: shared by all that accept connections.
#[derive(Clone)]
pub struct Tls(Arc<RwLock<Arc<ServerConfig>>>);

impl Tls {
    /// Handshakes by `config`, which need not name protocols.
    #[must_use]
    pub fn new(config: ServerConfig) -> Self {
        Self(Arc::new(RwLock::new(with_protocols(config))))
    }

    /// From now on handshakes are made by `config`; open connections go on.
    pub fn replace(&self, config: ServerConfig) {
        *self.0.write() = with_protocols(config);
    }

    pub(crate) async fn accept(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let config = Arc::clone(&self.0.read());
        TlsAcceptor::from(config).accept(stream).await
    }
}

fn with_protocols(mut config: ServerConfig) -> Arc<ServerConfig> {
    config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).into();
    Arc::new(config)
}
