//! [`KeyFetcher`]: client that reads the published keys of identity providers.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http1;
use hyper::{Request, StatusCode, Uri, header};
use hyper_util::rt::TokioIo;
use settee_tls::Trust;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

const LENGTH_MAX_BYTES: usize = 1 << 20;

#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    #[error("this is no address of a server")]
    Address,
    #[error("the server cannot be reached: {0}")]
    Connect(#[from] std::io::Error),
    #[error("the answer is {0}; redirections are not followed")]
    Status(u16),
    #[error("the answer broke off: {0}")]
    Answer(String),
}

impl From<hyper::Error> for FetchError {
    fn from(error: hyper::Error) -> Self {
        Self::Answer(error.to_string())
    }
}

#[derive(Clone)]
pub struct KeyFetcher {
    tls: TlsConnector,
}

impl KeyFetcher {
    pub fn new() -> Result<Self, String> {
        let config = settee_tls::client_config(&Trust::Web, None)?;
        Ok(Self { tls: TlsConnector::from(Arc::new(config)) })
    }

    /// Returns the body of the resource at an `http` or `https` address. This method has no timeout.
    pub async fn fetch(&self, address: &str) -> Result<Vec<u8>, FetchError> {
        let uri: Uri = address.parse().map_err(|_| FetchError::Address)?;
        let host = uri.host().ok_or(FetchError::Address)?.trim_matches(['[', ']']).to_owned();
        let encrypted = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(FetchError::Address),
        };
        let port = uri.port_u16().unwrap_or(if encrypted { 443 } else { 80 });
        let stream = TcpStream::connect((host.as_str(), port)).await?;
        if encrypted {
            let name = ServerName::try_from(host).map_err(|_| FetchError::Address)?;
            get(self.tls.connect(name, stream).await?, &uri).await
        } else {
            get(stream, &uri).await
        }
    }
}

impl std::fmt::Debug for KeyFetcher {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("KeyFetcher").finish_non_exhaustive()
    }
}

async fn get(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, uri: &Uri) -> Result<Vec<u8>, FetchError> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let connection = tokio::spawn(connection);
    let target = uri.path_and_query().map_or("/", |target| target.as_str());
    let host = uri.authority().map_or("", |authority| authority.as_str().rsplit('@').next().unwrap_or_default());
    let request = Request::get(target)
        .header(header::HOST, host)
        .header(header::ACCEPT, "application/json")
        .header(header::CONNECTION, "close")
        .body(Empty::<Bytes>::new())
        .map_err(|_| FetchError::Address)?;
    let response = sender.send_request(request).await?;
    let status = response.status();
    if status != StatusCode::OK {
        return Err(FetchError::Status(status.as_u16()));
    }
    let body = Limited::new(response.into_body(), LENGTH_MAX_BYTES).collect().await;
    connection.abort();
    Ok(body.map_err(|error| FetchError::Answer(error.to_string()))?.to_bytes().to_vec())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    async fn serve(answer: &'static str) -> (String, tokio::task::JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}/keys?x=1", listener.local_addr().unwrap());
        let asked = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                match stream.read_u8().await {
                    Ok(byte) if byte.is_ascii() && (byte >= b' ' || byte.is_ascii_whitespace()) => request.push(byte),
                    Ok(_) | Err(_) => break,
                }
            }
            drop(stream.write_all(answer.as_bytes()).await);
            String::from_utf8_lossy(&request).into_owned()
        });
        (address, asked)
    }

    const FINE: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";

    #[tokio::test]
    async fn an_answer_is_read() {
        let (address, asked) = serve(FINE).await;
        assert_eq!(KeyFetcher::new().unwrap().fetch(&address).await.unwrap(), b"{}");
        let host = address.trim_start_matches("http://").trim_end_matches("/keys?x=1");
        let asked = asked.await.unwrap();
        let expected =
            format!("GET /keys?x=1 HTTP/1.1\r\nhost: {host}\r\naccept: application/json\r\nconnection: close\r\n\r\n");
        assert_eq!(asked, expected);
    }

    #[tokio::test]
    async fn problems_have_names() {
        let fetcher = KeyFetcher::new().unwrap();
        for (answer, problem) in [
            (
                "HTTP/1.1 302 Found\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n",
                "the answer is 302; redirections are not followed",
            ),
            ("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}", "the answer broke off: "),
            ("HTTP/1.1 200 OK\r\nContent-Length: 2000000\r\n\r\n{}", "the answer broke off: "),
            ("nonsense\r\n\r\n", "the answer broke off: "),
        ] {
            let (address, _) = serve(answer).await;
            let error = fetcher.fetch(&address).await.unwrap_err().to_string();
            assert!(error.starts_with(problem), "{answer}: {error}");
        }
        let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        assert!(matches!(fetcher.fetch(&format!("http://{closed}/")).await, Err(FetchError::Connect(_))));
        for address in ["http:///", "ftp://localhost/", "/path", "nonsense"] {
            assert!(matches!(fetcher.fetch(address).await, Err(FetchError::Address)), "{address}");
        }
        let (address, _) = serve(FINE).await;
        assert!(matches!(fetcher.fetch(&address.replace("http:", "https:")).await, Err(FetchError::Connect(_))));
    }
}
