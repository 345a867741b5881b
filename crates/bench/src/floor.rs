//! [`Floor`]: a server without logic that returns a recorded response with the HTTP library of the measured server. It
//! has one thread, so that no request waits for another thread.

use crate::client::{Answer, Server};
use anyhow::{Context, Result};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use settee_storage_rocksdb::raw::RawEntry;
use std::fs::File;
use std::io::Write;
use std::net::TcpListener;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use tempfile::TempDir;
use tokio::sync::oneshot;

pub(crate) struct Floor {
    pub(crate) server: Arc<Server>,
    _end: oneshot::Sender<()>,
}

/// Work of the floor for each request, in addition to reading the request and sending the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FloorWork {
    /// Copies the body of the response.
    Copy,
    /// Reads the body of the response from a key-value store.
    Lookup,
    /// Appends the body of the request to a file, with one sync for all requests that have arrived.
    Append,
}

impl Floor {
    /// The files of the floor are in `directory`.
    pub(crate) fn start(answer: &Answer, work: FloorWork, directory: &Path) -> Result<Floor> {
        let listener = TcpListener::bind("127.0.0.1:0").context("cannot listen")?;
        listener.set_nonblocking(true)?;
        let url = format!("http://{}", listener.local_addr()?);
        let mut response = Response::new(answer.body.clone());
        *response.status_mut() = StatusCode::from_u16(answer.status)?;
        *response.headers_mut() = answer.headers.clone();
        for name in [CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING] {
            response.headers_mut().remove(name);
        }
        let shared = Arc::new(Recorded { response, data: Data::create(work, &answer.body, directory)? });
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
    data: Data,
}

enum Data {
    Memory,
    /// The store is closed before its directory is removed.
    Store {
        entry: RawEntry,
        _directory: TempDir,
    },
    Log(Log),
}

struct Log {
    file: File,
    group: Mutex<Vec<oneshot::Sender<()>>>,
}

impl Data {
    fn create(work: FloorWork, body: &[u8], directory: &Path) -> Result<Data> {
        Ok(match work {
            FloorWork::Copy => Data::Memory,
            FloorWork::Lookup => {
                let directory = tempfile::tempdir_in(directory).context("cannot create a directory")?;
                Data::Store { entry: RawEntry::create(directory.path(), body)?, _directory: directory }
            }
            FloorWork::Append => {
                let file = tempfile::tempfile_in(directory).context("cannot create a file")?;
                Data::Log(Log { file, group: Mutex::default() })
            }
        })
    }
}

impl Log {
    /// The first request of a group syncs the file after the runtime has polled all sockets once.
    async fn append(&self, body: &[u8]) -> Result<()> {
        (&self.file).write_all(body)?;
        let (done, synced) = oneshot::channel();
        let is_first = {
            let mut group = self.group.lock().unwrap_or_else(PoisonError::into_inner);
            group.push(done);
            group.len() == 1
        };
        if is_first {
            tokio::task::yield_now().await;
            let group = std::mem::take(&mut *self.group.lock().unwrap_or_else(PoisonError::into_inner));
            self.file.sync_data()?;
            group.into_iter().for_each(|done| _ = done.send(()));
        }
        synced.await.context("the sync failed")
    }
}

impl Recorded {
    async fn answer(&self, request: Request<Incoming>) -> Result<Response<Full<Bytes>>> {
        let sent = request.into_body().collect().await?.to_bytes();
        let body = match &self.data {
            Data::Memory => self.response.body().to_vec(),
            Data::Store { entry, .. } => entry.get()?,
            Data::Log(log) => {
                log.append(&sent).await?;
                self.response.body().to_vec()
            }
        };
        Ok(self.response.clone().map(|_| Full::from(body)))
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
    use tokio::task::JoinSet;

    async fn repeat(work: FloorWork, clients: usize) {
        let headers = HeaderMap::from_iter([(hyper::header::ETAG, "\"1-x\"".parse().unwrap())]);
        let answer = Answer { status: 201, headers, body: Bytes::from_static(b"{\"ok\":true}") };
        let floor = Floor::start(&answer, work, &std::env::temp_dir()).unwrap();
        let mut tasks = JoinSet::new();
        for _ in 0..clients {
            let mut connection = floor.server.connect().await.unwrap();
            tasks.spawn(async move {
                for _ in 0..3 {
                    let found = connection.send(Method::PUT, "/db/doc", "{}").await.unwrap();
                    assert_eq!((found.status, &found.body[..]), (201, &b"{\"ok\":true}"[..]), "{work:?}");
                    assert_eq!(found.headers["etag"], "\"1-x\"");
                }
            });
        }
        while let Some(ended) = tasks.join_next().await {
            ended.unwrap();
        }
    }

    #[tokio::test]
    async fn the_floor_repeats_a_response() {
        for work in [FloorWork::Copy, FloorWork::Lookup, FloorWork::Append] {
            for clients in [1, 10] {
                repeat(work, clients).await;
            }
        }
    }
}
