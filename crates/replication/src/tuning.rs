//! [`Tuning`]: the way in which a replication is carried out, whatever it is of.

/// The way in which a replication is carried out: the defaults come from the configuration, members of the request go before them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// Batches in flight.
    pub worker_processes: usize,
    /// Changes in a batch.
    pub worker_batch_size: usize,
    /// Connections to one peer at the same time.
    pub http_connections: usize,
    /// Milliseconds without a sign of life after which an exchange is given up.
    pub connection_timeout_ms: u64,
    /// The number of times that an exchange is tried again.
    pub retries_per_request: u32,
    /// Milliseconds between checkpoints.
    pub checkpoint_interval_ms: u64,
    /// Whether checkpoints are read and written.
    pub use_checkpoints: bool,
    /// Whether `_bulk_get` is tried.
    pub use_bulk_get: bool,
    /// Options of sockets; those of the server without.
    pub socket_options: Option<SocketOptions>,
}

impl Default for Tuning {
    /// CouchDB's defaults.
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

/// Options of sockets, as `socket_options` of `[replicator]` and of documents names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SocketOptions {
    /// Whether the system looks from time to time if the other side is still there.
    pub keepalive: bool,
    /// Whether small pieces are sent at once.
    pub nodelay: bool,
    /// The size of the buffer for what comes in.
    pub receive_buffer_bytes: Option<u32>,
    /// The size of the buffer for what goes out.
    pub send_buffer_bytes: Option<u32>,
}

impl Default for SocketOptions {
    fn default() -> Self {
        Self { keepalive: true, nodelay: true, receive_buffer_bytes: None, send_buffer_bytes: None }
    }
}

impl SocketOptions {
    /// Reads `[{keepalive, true}, {nodelay, false}]`, as CouchDB writes it. What is not known is passed over.
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
