//! [`Connector`]: HTTP connections to a store of objects, with the TLS and the timeouts of replications.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody, HttpService,
};
use parking_lot::Mutex;
use settee_replication::{Connect as _, Endpoint, Transport, TransportError, Tuning, foreign_body, shared_body};

use crate::remote_server;

/// First pause after which a request without a response is sent again, and the bytes that a connection takes in one millisecond.
const REPEAT_AFTER: Duration = Duration::from_secs(1);
const BYTES_PER_MS: u64 = 1_000;

/// The connections of one process to a store, which networks can lose without notice. A request without a response is
/// sent again on a new connection, after pauses that double, and the first response counts, so that a slow store still
/// responds to the first request. Puts whose order matters are conditional: a second execution changes nothing.
#[derive(Clone)]
pub(crate) struct Connector(Arc<Inner>);

struct Inner {
    endpoint: String,
    authorities: Option<PathBuf>,
    transport: Mutex<Arc<dyn Transport>>,
}

impl Connector {
    /// `authorities` is a file of certificates to trust instead of the public authorities.
    pub(crate) fn new(endpoint: &str, authorities: Option<&Path>) -> anyhow::Result<Self> {
        let transport = Mutex::new(connect(endpoint, authorities)?);
        let authorities = authorities.map(Path::to_owned);
        Ok(Self(Arc::new(Inner { endpoint: endpoint.to_owned(), authorities, transport })))
    }
}

/// Returns a transport without connections.
fn connect(endpoint: &str, authorities: Option<&Path>) -> anyhow::Result<Arc<dyn Transport>> {
    let network = remote_server::network(authorities)?;
    let remote = remote_server::parse(endpoint).context("invalid endpoint: write https://host:port")?;
    Ok(network.connect(&Endpoint::Remote(remote), &Tuning::default())?)
}

impl Inner {
    /// Replaces a transport whose connections may be lost, unless another request has done so.
    fn replace(&self, lost: &Arc<dyn Transport>) -> anyhow::Result<Arc<dyn Transport>> {
        let mut transport = self.transport.lock();
        if Arc::ptr_eq(&transport, lost) {
            *transport = connect(&self.endpoint, self.authorities.as_deref())?;
        }
        Ok(Arc::clone(&transport))
    }
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connector")
    }
}

impl HttpConnector for Connector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

#[async_trait::async_trait]
impl HttpService for Connector {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let bytes = request.body().content_length() as u64;
        let mut pause = REPEAT_AFTER + Duration::from_millis(bytes / BYTES_PER_MS);
        let mut transport = Arc::clone(&self.0.transport.lock());
        let send = |transport: &Arc<dyn Transport>| {
            let (transport, request) = (Arc::clone(transport), request.clone().map(foreign_body));
            async move { transport.call(request).await }
        };
        let mut sent = FuturesUnordered::from_iter([send(&transport)]);
        let response = loop {
            if let Ok(Some(response)) = tokio::time::timeout(pause, sent.next()).await {
                break response;
            }
            if let Ok(other) = self.0.replace(&transport) {
                transport = other;
                sent.push(send(&transport));
            }
            pause *= 2;
        };
        Ok(response.map_err(failed)?.map(|body| HttpResponseBody::new(shared_body(body, failed))))
    }
}

fn failed(error: TransportError) -> HttpError {
    let kind = match &error {
        TransportError::Timeout => HttpErrorKind::Timeout,
        TransportError::Refused(_) => HttpErrorKind::Connect,
        TransportError::Broken(_) => HttpErrorKind::Interrupted,
        TransportError::Tls(_) | TransportError::Unusable(_) => HttpErrorKind::Unknown,
    };
    HttpError::new(kind, error)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use object_store::client::HttpRequestBody;

    use super::*;

    /// Connections of the server are numbered. The first two respond once and never again, the next two never.
    #[tokio::test]
    async fn lost_connections_do_not_delay_requests_for_long() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            let made = AtomicUsize::new(0);
            for mut stream in listener.incoming().flatten() {
                let number = made.fetch_add(1, Ordering::Relaxed);
                std::thread::spawn(move || {
                    let (mut buffer, mut answered) = ([0; 1024], 0);
                    loop {
                        let count = stream.read(&mut buffer).unwrap_or(0);
                        if count == 0 {
                            return;
                        }
                        if buffer[..count].ends_with(b"content") && (number > 3 || number < 2 && answered == 0) {
                            let response = format!("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n{number}");
                            stream.write_all(response.as_bytes()).unwrap();
                            answered += 1;
                        }
                    }
                });
            }
        });
        // Some stores have endpoints with a path.
        let connector = Connector::new(&format!("{endpoint}/account"), None).unwrap();
        let ask = async || {
            let mut request = HttpRequest::new(HttpRequestBody::from("content".to_owned()));
            *request.uri_mut() = format!("{endpoint}/object").parse().unwrap();
            *request.method_mut() = "PUT".parse().unwrap();
            let body = connector.call(request).await.unwrap().into_body().bytes().await.unwrap();
            String::from_utf8(body.to_vec()).unwrap()
        };
        let (one, other) = tokio::join!(ask(), ask());
        assert_eq!([one.as_str(), other.as_str()].iter().max(), Some(&"1"), "two connections");
        let started = std::time::Instant::now();
        for _ in 0..3 {
            let (one, other) = tokio::join!(ask(), ask());
            assert!(one.as_str() > "3" && other.as_str() > "3", "{one} {other}");
        }
        assert!(started.elapsed() < 5 * REPEAT_AFTER, "{:?}", started.elapsed());
    }
}
