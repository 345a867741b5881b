//! [`Tuning`]: options of a replication that do not depend on its databases.

/// Tuning options of a replication: the defaults come from the configuration, members of the request override them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tuning {
    pub worker_processes: usize,
    pub worker_batch_size: usize,
    pub http_connections: usize,
    /// Timeout of an exchange without progress, in milliseconds.
    pub connection_timeout_ms: u64,
    pub retries_per_request: u32,
    pub checkpoint_interval_ms: u64,
    /// True if checkpoints are read and written.
    pub use_checkpoints: bool,
    pub use_bulk_get: bool,
    /// Socket options; those of the server if `None`.
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

/// Socket options, as `socket_options` of `[replicator]` and of documents contains them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SocketOptions {
    /// True if the system checks periodically that the peer is reachable.
    pub keepalive: bool,
    /// True if small pieces are sent without delay.
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
    /// Parses `[{keepalive, true}, {nodelay, false}]`, in CouchDB's format. Unknown options are ignored.
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
