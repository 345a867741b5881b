//! [`Tuning`]: options of a replication that do not depend on its databases.

/// The configuration contains the defaults, which members of the request override.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tuning {
    pub worker_processes: usize,
    pub worker_batch_size: usize,
    pub http_connections: usize,
    pub connection_timeout_ms: u64,
    pub retries_per_request: u32,
    pub checkpoint_interval_ms: u64,
    pub use_checkpoints: bool,
    pub use_bulk_get: bool,
    pub socket_options: Option<SocketOptions>,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            worker_processes: 4,
            worker_batch_size: 500,
            http_connections: 20,
            connection_timeout_ms: 30_000,
            retries_per_request: 5,
            checkpoint_interval_ms: 30_000,
            use_checkpoints: true,
            use_bulk_get: true,
            socket_options: None,
        }
    }
}

/// As in the member `socket_options` of `[replicator]` and of documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SocketOptions {
    /// True if the system checks periodically that the peer is reachable.
    pub keepalive: bool,
    pub nodelay: bool,
    pub receive_buffer_bytes: Option<u32>,
    pub send_buffer_bytes: Option<u32>,
}

impl Default for SocketOptions {
    fn default() -> Self {
        Self { keepalive: true, nodelay: true, receive_buffer_bytes: None, send_buffer_bytes: None }
    }
}

impl SocketOptions {
    /// Parses CouchDB's format `[{keepalive, true}, {nodelay, false}]`. Unknown options are ignored.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut options = Self::default();
        for pair in text.split('{').skip(1).filter_map(|rest| rest.split('}').next()) {
            let Some((name, value)) = pair.split_once(',') else { continue };
            let value = value.trim();
            match name.trim() {
                "keepalive" => options.keepalive = value == "true",
                "nodelay" => options.nodelay = value == "true",
                "recbuf" => options.receive_buffer_bytes = value.parse().ok(),
                "sndbuf" => options.send_buffer_bytes = value.parse().ok(),
                _ => {}
            }
        }
        options
    }
}
