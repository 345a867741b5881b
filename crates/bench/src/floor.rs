//! [`Floor`]: a server without logic that returns a recorded response with the HTTP library of the measured server.

use crate::client::{Answer, Server};
use anyhow::{Context, Result};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use std::fs::File;
use std::io::Write;
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use tokio::sync::oneshot;

pub(crate) struct Floor {
    pub(crate) server: Arc<Server>,
    _end: oneshot::Sender<()>,
}

impl Floor {
    /// With `directory`, each request appends its body to a file there, with a sync of its own. Meant for one client.
    pub(crate) fn start(answer: &Answer, directory: Option<&Path>) -> Result<Floor> {
        let listener = TcpListener::bind("127.0.0.1:0").context("cannot listen")?;
        listener.set_nonblocking(true)?;
        let url = format!("http://{}", listener.local_addr()?);
        let mut response = Response::new(answer.body.clone());
        *response.status_mut() = StatusCode::from_u16(answer.status)?;
        *response.headers_mut() = answer.headers.clone();
        for name in [CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING] {
            response.headers_mut().remove(name);
        }
        let log = directory.map(|directory| tempfile::tempfile_in(directory).context("cannot create a file"));
        let shared = Arc::new(Recorded { response, log: log.transpose()? });
        let (end, ended) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        std::thread::Builder::new().name("floor".into()).spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    _ = serve(listener, shared) => (),
                    _ = ended => (),
                }
            });
        })?;
        Ok(Floor { server: Arc::new(Server::parse(&url)?), _end: end })
    }
}

struct Recorded {
    response: Response<Bytes>,
    log: Option<File>,
}

impl Recorded {
    async fn answer(&self, request: Request<Incoming>) -> Result<Response<Full<Bytes>>> {
        let body = request.into_body().collect().await?.to_bytes();
        if let Some(mut log) = self.log.as_ref() {
            log.write_all(&body)?;
            log.sync_data()?;
        }
        Ok(self.response.clone().map(Full::new))
    }
}

async fn serve(listener: TcpListener, recorded: Arc<Recorded>) -> Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let recorded = recorded.clone();
        tokio::spawn(async move {
            let service = service_fn(|request| {
                let recorded = recorded.clone();
                async move { recorded.answer(request).await }
            });
            let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use hyper::{HeaderMap, Method};

    #[tokio::test]
    async fn the_floor_repeats_a_response() {
        let headers = HeaderMap::from_iter([(hyper::header::ETAG, "\"1-x\"".parse().unwrap())]);
        let answer = Answer { status: 201, headers, body: Bytes::from_static(b"{\"ok\":true}") };
        let floor = Floor::start(&answer, Some(&std::env::temp_dir())).unwrap();
        let mut connection = floor.server.connect().await.unwrap();
        for _ in 0..2 {
            let found = connection.send(Method::PUT, "/db/doc", "{}").await.unwrap();
            assert_eq!((found.status, &found.body[..]), (201, &b"{\"ok\":true}"[..]));
            assert_eq!(found.headers["etag"], "\"1-x\"");
        }
    }
}
