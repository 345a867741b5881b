//! A whole server on a local port, and an HTTP/1.1 client with control over single bytes.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use settee_edge::server::Listener;
use settee_edge::shutdown::Shutdown;
use settee_settings::{Persist, Settings, SettingsError};
use settee_storage::memory::MemoryEngine;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::NodeDependencies;
use crate::node::Node;
use crate::tests::parts::parts;

pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Default)]
pub(crate) struct Values {
    values: Mutex<BTreeMap<(String, String), String>>,
    version: AtomicU64,
}

impl Values {
    pub(crate) fn of(settings: &[&str]) -> Self {
        let values = Self::default();
        for setting in settings {
            let (path, value) = setting.split_once('=').unwrap();
            let (section, key) = path.split_once('/').unwrap();
            values.set(section, key, value, Persist::No).unwrap();
        }
        values
    }
}

impl Settings for Values {
    fn get(&self, section: &str, key: &str) -> Option<String> {
        self.values.lock().get(&(section.to_owned(), key.to_owned())).cloned()
    }

    fn section(&self, section: &str) -> Vec<(String, String)> {
        let values = self.values.lock();
        values
            .iter()
            .filter(|((own, _), _)| own == section)
            .map(|((_, key), value)| (key.clone(), value.clone()))
            .collect()
    }

    fn all(&self) -> Vec<(String, Vec<(String, String)>)> {
        Vec::new()
    }

    fn set(&self, section: &str, key: &str, value: &str, _: Persist) -> Result<Option<String>, SettingsError> {
        self.version.fetch_add(1, Ordering::Relaxed);
        Ok(self.values.lock().insert((section.to_owned(), key.to_owned()), value.to_owned()))
    }

    fn delete(&self, section: &str, key: &str, _: Persist) -> Result<String, SettingsError> {
        self.values.lock().remove(&(section.to_owned(), key.to_owned())).ok_or(SettingsError::Unknown)
    }

    fn reload(&self) -> Result<(), SettingsError> {
        Ok(())
    }

    fn version(&self) -> Option<u64> {
        Some(self.version.load(Ordering::Relaxed))
    }
}

/// A running server without administrators: all clients have all rights.
pub(crate) struct Live {
    pub(crate) address: SocketAddr,
    pub(crate) node: Arc<Node>,
    shutdown: Shutdown,
    serving: JoinHandle<()>,
}

impl Live {
    /// The form of each setting is `section/key=value`.
    pub(crate) async fn start(settings: &[&str]) -> Self {
        let settings = Arc::new(Values::of(settings));
        Self::of(NodeDependencies { settings, ..parts(Arc::new(MemoryEngine::new()), Vec::new()) }).await
    }

    pub(crate) async fn of(dependencies: NodeDependencies) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shutdown = Shutdown::new();
        let node = Node::new(dependencies);
        let connections = settee_edge::server::connections_max(&*node.settings);
        let listeners = vec![Listener::Tcp(listener)];
        let serving = tokio::spawn(crate::serve(Arc::clone(&node), listeners, connections, shutdown.clone()));
        Self { address, node, shutdown, serving }
    }

    pub(crate) async fn client(&self) -> Client<TcpStream> {
        Client::new(TcpStream::connect(self.address).await.unwrap())
    }

    pub(crate) async fn request(&self, line: &str, body: &str) -> Reply {
        self.client().await.request(line, &[], body).await
    }

    pub(crate) async fn stop(self) {
        self.shutdown.begin();
        timeout(TIMEOUT, self.serving).await.unwrap().unwrap();
    }
}

pub(crate) async fn until(label: &str, mut is_so: impl FnMut() -> bool) {
    let waiting = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    timeout(TIMEOUT, waiting).await.unwrap_or_else(|_| panic!("{label}: this does not happen"));
}

pub(crate) struct Client<S>(BufReader<S>);

#[derive(Clone, Debug, Default)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Reply {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Client<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self(BufReader::new(stream))
    }

    pub(crate) async fn request(&mut self, line: &str, headers: &[(&str, &str)], body: &str) -> Reply {
        self.send(line, headers, body).await;
        self.reply(line.starts_with("HEAD ")).await.unwrap_or_else(|| panic!("{line}: no answer"))
    }

    pub(crate) async fn send(&mut self, line: &str, headers: &[(&str, &str)], body: &str) {
        let mut text = format!("{line} HTTP/1.1\r\nHost: settee.test\r\n");
        for (name, value) in headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        if !body.is_empty() {
            text.push_str(&format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len()));
        }
        self.write(format!("{text}\r\n{body}").as_bytes()).await;
    }

    pub(crate) async fn write(&mut self, bytes: &[u8]) {
        timeout(TIMEOUT, self.0.write_all(bytes)).await.unwrap().unwrap();
    }

    pub(crate) async fn try_write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        timeout(TIMEOUT, self.0.write_all(bytes)).await.unwrap()
    }

    pub(crate) async fn reply(&mut self, is_head: bool) -> Option<Reply> {
        timeout(TIMEOUT, self.read_reply(is_head)).await.expect("no answer in time")
    }

    async fn read_reply(&mut self, is_head: bool) -> Option<Reply> {
        let line = self.line().await?;
        let status = line.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or_else(|| panic!("{line:?}"));
        let mut reply = Reply { status, ..Reply::default() };
        loop {
            let line = self.line().await?;
            let Some((name, value)) = line.split_once(": ") else { break };
            reply.headers.push((name.to_ascii_lowercase(), value.to_owned()));
        }
        if is_head || matches!(status, 204 | 304) {
            return Some(reply);
        }
        let mut body = Vec::new();
        if reply.header("transfer-encoding") == Some("chunked") {
            loop {
                let size = usize::from_str_radix(&self.line().await?, 16).unwrap();
                let mut chunk = vec![0; size + 2];
                self.0.read_exact(&mut chunk).await.ok()?;
                if size == 0 {
                    break;
                }
                body.extend_from_slice(&chunk[..size]);
            }
        } else {
            body = vec![0; reply.header("content-length").map_or(0, |length| length.parse().unwrap())];
            self.0.read_exact(&mut body).await.ok()?;
        }
        reply.body = String::from_utf8(body).unwrap();
        Some(reply)
    }

    pub(crate) async fn head(&mut self) -> String {
        let reading = async {
            let first = self.line().await.expect("the connection ends");
            while !self.line().await.expect("the connection ends").is_empty() {}
            first
        };
        timeout(TIMEOUT, reading).await.expect("the head does not come")
    }

    async fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let length = self.0.read_line(&mut line).await.ok()?;
        (length > 0).then(|| line.trim_end_matches("\r\n").to_owned())
    }

    pub(crate) async fn read_until(&mut self, text: &str) {
        let reading = async { while !self.line().await.expect("the connection ends").contains(text) {} };
        timeout(TIMEOUT, reading).await.unwrap_or_else(|_| panic!("{text} does not come"));
    }

    pub(crate) async fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        // A reset also ends the connection.
        let _ = timeout(TIMEOUT, self.0.read_to_end(&mut rest)).await.expect("the connection stays open");
        rest
    }
}
