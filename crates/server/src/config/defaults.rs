//! The table of settings Settee honours: CouchDB's section and key names, default values, what a value may be, and a line of
//! documentation each. Keys that are not in it are stored and otherwise ignored.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

/// One setting.
#[derive(Debug)]
pub(crate) struct Setting {
    /// CouchDB's section.
    pub(crate) section: &'static str,
    /// CouchDB's key.
    pub(crate) key: &'static str,
    /// The default; `None`: nothing, or made up at the first start. `{data}` stands for the data directory.
    pub(crate) default: Option<&'static str>,
    /// What a value may be.
    pub(crate) kind: Kind,
    /// Whether the configuration shows the default.
    pub(crate) visibility: Visibility,
    /// One line for `settee config --defaults`.
    pub(crate) doc: &'static str,
}

/// CouchDB's `default.ini` states some values and has others only in comments: those are in force, but reading them gives
/// `unknown_config_value`, and the old value of the first change is `""`. Scripts can see that, so it is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Visibility {
    /// Part of the configuration from the start.
    Listed,
    /// In force, but not part of the configuration until somebody sets it.
    Implied,
}

/// What a value may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Any text.
    Text,
    /// `true` or `false`.
    Bool,
    /// An integer in this range.
    Integer(u64, u64),
    /// An integer or `infinity`.
    Limit,
    /// A time in milliseconds, or `infinity`.
    Milliseconds,
    /// A time in seconds.
    Seconds,
    /// An IP address to listen on.
    Address,
    /// One of these words.
    Word(&'static [&'static str]),
}

impl Kind {
    /// What a value has to be, if `value` is not: the end of a sentence that begins with "must be". An empty value is always
    /// right: it takes a setting back.
    pub(crate) fn violation(self, value: &str) -> Option<String> {
        let number = value.parse::<u64>().ok();
        let (fits, wanted) = match self {
            Kind::Text => return None,
            Kind::Bool => (matches!(value, "true" | "false"), "true or false".to_owned()),
            Kind::Integer(min, max) => {
                (number.is_some_and(|n| (min..=max).contains(&n)), format!("an integer from {min} to {max}"))
            }
            Kind::Limit => (number.is_some() || value == INFINITY, "an integer or infinity".to_owned()),
            Kind::Milliseconds => (number.is_some() || value == INFINITY, "milliseconds or infinity".to_owned()),
            Kind::Seconds => (number.is_some(), "a number of seconds".to_owned()),
            Kind::Address => (address(value).is_some(), "an IP address, localhost or any".to_owned()),
            Kind::Word(words) => (words.contains(&value), format!("one of {}", words.join(", "))),
        };
        (!fits && !value.is_empty()).then_some(wanted)
    }
}

/// The address that `[chttpd] bind_address` names.
pub(crate) fn address(value: &str) -> Option<IpAddr> {
    match value.trim() {
        "" | "localhost" => Some(Ipv4Addr::LOCALHOST.into()),
        "any" => Some(Ipv4Addr::UNSPECIFIED.into()),
        text => text.parse().ok(),
    }
}

/// CouchDB's word for no limit.
pub(crate) const INFINITY: &str = "infinity";

const PORT: Kind = Kind::Integer(0, 65_535);
const COUNT: Kind = Kind::Integer(1, u32::MAX as u64);
const COMMON_HEADERS: &str = "accept, accept-language, authorization, content-length, content-range, content-type, \
     destination, expires, if-match, if-none-match, last-modified, origin, pragma, x-couch-full-commit, x-couch-id, x-couch-persist, \
     x-couchdb-www-authenticate, x-http-method-override, x-requested-with, x-couchdb-vhost-path";
const UTILS_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; font-src 'self'; \
     connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'self'";
const COMMON_METHODS: &str = "CONNECT, COPY, DELETE, GET, HEAD, OPTIONS, POST, PUT, TRACE";

const fn setting(
    section: &'static str,
    key: &'static str,
    default: &'static str,
    kind: Kind,
    doc: &'static str,
) -> Setting {
    Setting { section, key, default: Some(default), kind, visibility: Visibility::Implied, doc }
}

const fn listed(
    section: &'static str,
    key: &'static str,
    default: &'static str,
    kind: Kind,
    doc: &'static str,
) -> Setting {
    Setting { section, key, default: Some(default), kind, visibility: Visibility::Listed, doc }
}

const fn unset(section: &'static str, key: &'static str, kind: Kind, doc: &'static str) -> Setting {
    Setting { section, key, default: None, kind, visibility: Visibility::Implied, doc }
}

/// All settings, grouped by section.
#[rustfmt::skip] // One line is one setting: it is read as a table.
pub(crate) const SETTINGS: &[Setting] = &[
    unset("couchdb", "uuid", Kind::Text, "identifies this server; made up at the first start"),
    listed("couchdb", "database_dir", "{data}", Kind::Text, "where the data lies; given with --data"),
    listed("couchdb", "view_index_dir", "{data}", Kind::Text, "indexes lie with the data"),
    setting("couchdb", "single_node", "true", Kind::Bool, "create _users at start"),
    setting("couchdb", "default_security", "admin_only", Kind::Word(&["admin_only", "admin_local", "everyone"]), "who may use a database without a security object"),
    setting("couchdb", "max_document_size", "8000000", Kind::Limit, "bytes of a document's JSON"),
    setting("couchdb", "max_dbs_open", "5000", COUNT, "databases in memory; further ones are closed when nobody uses them, those in use never"),
    setting("couchdb", "max_attachment_size", "1073741824", Kind::Limit, "bytes of one attachment"),
    setting("couchdb", "max_document_id_length", "infinity", Kind::Limit, "bytes of a document id"),
    setting("couchdb", "max_bulk_docs_count", "10000", Kind::Limit, "documents in one _bulk_docs request"),
    setting("couchdb", "max_bulk_get_count", "10000", Kind::Limit, "documents in one _bulk_get request"),
    setting("couchdb", "os_process_timeout", "5000", Kind::Milliseconds, "how long a view function may take for one batch"),
    setting("couchdb", "users_db_security_editable", "false", Kind::Bool, "allow to change the security object of _users"),
    setting("couchdb", "maintenance_mode", "false", Kind::Word(&["true", "false", "nolb"]), "makes /_up answer 404, so that load balancers look elsewhere"),

    listed("chttpd", "port", "5984", PORT, "where to listen; 0 for any free port"),
    listed("chttpd", "bind_address", "127.0.0.1", Kind::Address, "where to listen; beyond this machine only with an admin"),
    setting("chttpd", "require_valid_user", "false", Kind::Bool, "refuse requests without credentials"),
    setting("chttpd", "require_valid_user_except_for_up", "false", Kind::Bool, "the same, but leave /_up open"),
    setting("chttpd", "authentication_handlers", "{chttpd_auth, cookie_authentication_handler}, {chttpd_auth, default_authentication_handler}", Kind::Text, "how requests may prove who sends them, in this order; further ones are proxy_authentication_handler and jwt_authentication_handler"),
    setting("chttpd", "admin_only_all_dbs", "true", Kind::Bool, "only admins may list the databases"),
    setting("chttpd", "enable_cors", "false", Kind::Bool, "answer browsers from other origins, see [cors]"),
    setting("chttpd", "max_http_request_size", "4294967296", Kind::Limit, "bytes of a request's body"),
    setting("chttpd", "decode_plus_to_space", "true", Kind::Bool, "a plus sign in a path is a space"),
    setting("chttpd", "max_uri_length", "8000", Kind::Limit, "bytes of a request's path and query"),
    setting("chttpd", "max_db_number_for_dbs_info_req", "100", COUNT, "databases in one _dbs_info request"),
    setting("chttpd", "changes_timeout", "60000", Kind::Milliseconds, "how long a feed without heartbeat waits for a change"),
    setting("chttpd", "max_connections", "20000", COUNT, "connections at a time, from the next start on; further ones wait"),
    unset("chttpd", "max_request_memory", Kind::Integer(8 << 20, u64::MAX >> 1), "bytes that all bodies and answers in flight may take together, from the next start on; a quarter of the memory if nothing is said. Beyond it clients are told to come back"),
    setting("chttpd", "max_long_answers", "1024", Kind::Integer(1, 10_000), "answers on their way at a time, from the next start on; further ones wait"),
    setting("chttpd", "max_list_answers", "64", Kind::Integer(1, 10_000), "the same for list functions, each of which has a process"),
    setting("chttpd", "max_function_calls", "64", Kind::Integer(1, 10_000), "validations, updates, shows and rewrites that run at a time; further ones wait, and one database leaves room for others"),
    setting("chttpd", "max_uploads", "512", Kind::Integer(1, 10_000), "the same for attachments on their way in"),
    setting("chttpd", "max_header_bytes", "131072", Kind::Integer(8192, 16_777_216), "bytes of a request's head"),
    setting("chttpd", "max_headers", "100", Kind::Integer(1, 10_000), "headers of a request"),
    setting("chttpd", "max_streams_per_connection", "100", COUNT, "requests that an HTTP/2 client may have open on a connection"),
    setting("chttpd", "header_timeout_ms", "60000", Kind::Milliseconds, "how long a handshake, or a head that has begun, may take"),
    setting("chttpd", "idle_timeout_ms", "300000", Kind::Milliseconds, "how long a connection without requests stays open"),
    setting("chttpd", "send_timeout_ms", "300000", Kind::Milliseconds, "how long a client may take nothing of an answer before it is cut off"),
    setting("chttpd", "receive_timeout_ms", "60000", Kind::Milliseconds, "how long a client may send nothing of a body before it is refused"),
    setting("chttpd", "server_header_versions", "true", Kind::Bool, "show versions in the header Server"),
    setting("chttpd", "prefer_minimal", "Cache-Control, Content-Length, Content-Range, Content-Type, ETag, Server, Transfer-Encoding, Vary", Kind::Text, "headers that stay with Prefer: return=minimal"),
    unset("chttpd", "unix_socket", Kind::Text, "a path: listen on a socket in the file system as well"),
    setting("chttpd", "unix_socket_mode", "660", Kind::Text, "who may use that socket"),
    setting("chttpd", "enable_xframe_options", "false", Kind::Bool, "say which pages may show answers in a frame, see [x_frame_options]"),
    setting("chttpd", "scrub_json_request", "true", Kind::Bool, "remove null bytes from the text of forms"),
    unset("chttpd", "WWW-Authenticate", Kind::Text, "sent with answers 401, so that browsers ask for a password"),
    setting("chttpd", "allow_jsonp", "false", Kind::Bool, "answer ?callback=name with a call of that function; pages of all origins can read such answers"),
    setting("chttpd", "x_forwarded_host", "X-Forwarded-Host", Kind::Text, "the header in which a proxy tells what host it was asked for, for addresses in answers"),
    setting("chttpd", "x_forwarded_proto", "X-Forwarded-Proto", Kind::Text, "the same for the scheme"),
    setting("chttpd", "x_forwarded_ssl", "X-Forwarded-Ssl", Kind::Text, "the same: on stands for https"),
    setting("chttpd", "secure_rewrites", "true", Kind::Bool, "keep rewrites within their database"),
    setting("chttpd", "rewrite_limit", "100", COUNT, "how many rewrites one request may run through"),

    setting("chttpd_auth", "iterations", "600000", COUNT, "rounds of PBKDF2 for new password hashes"),
    setting("chttpd_auth", "min_iterations", "1", COUNT, "hashes of users with fewer rounds are not accepted"),
    setting("chttpd_auth", "max_iterations", "1000000000", COUNT, "hashes of users with more rounds are not accepted"),
    setting("chttpd_auth", "password_scheme", "pbkdf2", Kind::Word(&["pbkdf2", "simple"]), "how new passwords of users are hashed"),
    setting("chttpd_auth", "pbkdf2_prf", "sha256", Kind::Word(&["sha", "sha224", "sha256", "sha384", "sha512"]), "the hash function in it"),
    setting("chttpd_auth", "upgrade_hash_on_auth", "true", Kind::Bool, "hash the password of a user anew at a login, if new ones are hashed in another way"),
    unset("chttpd_auth", "password_regexp", Kind::Text, "what new passwords of users have to match: a list of expressions, or of {expression, reason}"),
    setting("chttpd_auth", "timeout", "600", Kind::Seconds, "how long a session lasts"),
    unset("chttpd_auth", "secret", Kind::Text, "signs session cookies; made up at the first login"),
    setting("chttpd_auth", "hash_algorithms", "sha256, sha", Kind::Text, "how cookies and tokens of proxies are signed: the first one signs, all are accepted"),
    setting("chttpd_auth", "allow_persistent_cookies", "true", Kind::Bool, "browsers keep sessions after they are closed"),
    unset("chttpd_auth", "cookie_domain", Kind::Text, "the domain of session cookies"),
    unset("chttpd_auth", "same_site", Kind::Text, "none, lax or strict: whether pages of others may send session cookies"),
    setting("chttpd_auth", "require_valid_user", "false", Kind::Bool, "the same as in [chttpd]"),
    unset("chttpd_auth", "public_fields", Kind::Text, "members of user documents that everybody may see who may read the database"),
    setting("chttpd_auth", "users_db_public", "false", Kind::Bool, "kept for old configurations; public_fields alone decides"),
    setting("chttpd_auth", "allow_conflicted_user_docs", "false", Kind::Bool, "log in users whose documents have conflicts"),
    setting("chttpd_auth", "proxy_use_secret", "false", Kind::Bool, "believe a proxy only if it proves to know the secret"),
    setting("chttpd_auth", "x_auth_username", "X-Auth-CouchDB-UserName", Kind::Text, "the header in which a proxy names the user"),
    setting("chttpd_auth", "x_auth_roles", "X-Auth-CouchDB-Roles", Kind::Text, "the header with the roles, separated by commas"),
    setting("chttpd_auth", "x_auth_token", "X-Auth-CouchDB-Token", Kind::Text, "the header with the proof"),
    setting("chttpd_auth", "authentication_db", "_users", Kind::Text, "the database of users"),
    setting("chttpd_auth", "authentication_redirect", "/_utils/session.html", Kind::Text, "where browsers are sent to log in"),

    setting("jwt_auth", "required_claims", "exp", Kind::Text, "claims that tokens need: names, and pairs such as {iss, \"https://example.com\"}; [] for none"),
    unset("jwt_auth", "allowed_algorithms", Kind::Text, "how tokens may be signed, such as RS256, ES256; without it in all ways"),
    setting("jwt_auth", "roles_claim_name", "_couchdb.roles", Kind::Text, "the claim that has the roles"),
    unset("jwt_auth", "roles_claim_path", Kind::Text, "the same for one within others: names separated by dots"),
    unset("jwt_auth", "jwks_file", Kind::Text, "a file with the public keys of an identity provider; changes count at once"),
    unset("jwt_auth", "jwks_url", Kind::Text, "an address with such keys"),
    setting("jwt_auth", "jwks_refresh", "3600", Kind::Seconds, "how often this address is asked"),

    setting("chttpd_auth_lockout", "mode", "enforce", Kind::Word(&["off", "warn", "enforce"]), "what becomes of logins after many failures"),
    setting("chttpd_auth_lockout", "threshold", "5", COUNT, "how many these are, for one user and address"),
    setting("chttpd_auth_lockout", "max_lifetime", "300000", Kind::Milliseconds, "how long they count"),

    setting("cors", "origins", "", Kind::Text, "origins that may call, separated by commas; * for all"),
    setting("cors", "credentials", "false", Kind::Bool, "let other origins send credentials"),
    setting("cors", "headers", COMMON_HEADERS, Kind::Text, "request headers that other origins may send"),
    setting("cors", "methods", COMMON_METHODS, Kind::Text, "methods that other origins may use"),
    setting("cors", "exposed_headers", "accept-ranges, etag, server, x-couch-request-id, x-couch-update-newrev, x-couchdb-body-time", Kind::Text, "response headers that pages of other origins may see"),
    setting("cors", "max_age", "600", Kind::Seconds, "how long browsers may remember the answer"),

    setting("x_frame_options", "same_origin", "false", Kind::Bool, "pages of this server may"),
    setting("x_frame_options", "hosts", "", Kind::Text, "origins under which this server may, separated by commas; * for all"),

    setting("csp", "utils_enable", "true", Kind::Bool, "limit what pages under /_utils may load"),
    setting("csp", "utils_header_value", UTILS_POLICY, Kind::Text, "to this"),
    setting("csp", "attachments_enable", "true", Kind::Bool, "keep attachments from acting in the name of this server"),
    setting("csp", "attachments_header_value", "sandbox", Kind::Text, "by this"),
    setting("csp", "showlist_enable", "true", Kind::Bool, "the same for what show and list functions answer"),
    setting("csp", "showlist_header_value", "sandbox", Kind::Text, "by this"),

    setting("rate_limit", "requests_per_second", "0", Kind::Limit, "requests that one client may make, on average; 0: no limit"),
    setting("rate_limit", "burst", "0", Kind::Limit, "and at once; 0: twice as many"),
    setting("rate_limit", "by", "ip", Kind::Word(&["ip", "user"]), "what one client is: an address, or a user (an address for who is none)"),

    setting("ssl", "enable", "false", Kind::Bool, "listen for TLS as well; the address is that of [chttpd]"),
    setting("ssl", "port", "6984", PORT, "where"),
    unset("ssl", "cert_file", Kind::Text, "the certificate and those that lead to its root, in PEM; read again when it changes"),
    unset("ssl", "key_file", Kind::Text, "its key, in PEM and not encrypted; read again when it changes"),
    unset("ssl", "tls_versions", Kind::Text, "['tlsv1.2', 'tlsv1.3'] unless set"),
    setting("ssl", "verify_ssl_certificates", "false", Kind::Bool, "check the certificates of clients"),
    unset("ssl", "cacert_file", Kind::Text, "the roots of their certificates, in PEM"),
    setting("ssl", "fail_if_no_peer_cert", "false", Kind::Bool, "refuse clients without a certificate"),
    setting("vendor", "name", "Settee", Kind::Text, "the name in GET /"),

    setting("compaction_daemon", "check_interval", "60", Kind::Seconds, "how often databases are looked at for automatic compaction"),

    setting("smoosh.ratio_dbs", "min_priority", "2.0", Kind::Text, "compact a database whose bodies are so many times as large as the current ones"),
    setting("smoosh.ratio_dbs", "min_size", "16777216", Kind::Limit, "but only if so many bytes are garbage; infinity: no automatic compaction"),

    setting("view_updater", "checkpoint_interval", "10", Kind::Seconds, "how often the first build of an index writes down how far it is, to go on from there after a crash"),
    setting("view_updater", "max_key_bytes", "1048576", Kind::Integer(1, 1 << 30), "bytes of an emitted key; a document that emits a longer one has no rows of this function, which is logged"),
    setting("view_updater", "max_value_bytes", "16777216", Kind::Integer(1, 1 << 30), "the same for an emitted value"),
    setting("view_updater", "max_document_rows", "1048576", Kind::Integer(1, u32::MAX as u64), "the same for the rows that one function emits for one document"),
    setting("view_updater", "max_document_bytes", "67108864", Kind::Integer(1, 1 << 30), "the same for the bytes of these rows"),
    setting("view_updater", "max_reduction_bytes", "1048576", Kind::Integer(1, 1 << 30), "bytes of a reduction; a longer one is a reduce_overflow_error"),
    setting("view_updater", "sort_memory_bytes", "134217728", Kind::Integer(1 << 20, 1 << 40), "memory for emitted rows of one build, which are sorted on disk beyond that"),

    setting("ken", "enabled", "true", Kind::Bool, "bring lagging indexes up to date in the background"),
    setting("ken", "batch_channels", "1", COUNT, "how many of them at a time; in force from the next start"),
    setting("ken", "incremental_channels", "4", COUNT, "how many short ones besides; in force from the next start"),
    setting("ken", "max_incremental_updates", "1000", Kind::Limit, "changes up to which one is short"),
    setting("ken", "delay", "1000", Kind::Milliseconds, "how long changes are collected before that begins"),
    setting("ken", "cpu_percent", "50", Kind::Integer(1, 100), "the part of the time in which each thread of a background build works"),
    setting("ken", "bytes_per_second", "infinity", Kind::Limit, "bytes of documents that each thread of a background build reads"),

    setting("view_cleanup", "check_interval", "600", Kind::Seconds, "how often indexes are looked for that nobody needs"),
    setting("view_cleanup", "grace", "3600", Kind::Seconds, "how long these are kept"),

    setting("global_changes", "update_db", "true", Kind::Bool, "keep events for _db_updates, if the database _global_changes exists"),
    setting("global_changes", "max_write_delay", "500", Kind::Milliseconds, "how long events are collected before they are written"),

    setting("replicator", "max_jobs", "500", COUNT, "replications that run at a time"),
    setting("replicator", "interval", "60000", Kind::Milliseconds, "how often replications change places when there are more"),
    setting("replicator", "max_churn", "20", COUNT, "replications that change places then"),
    setting("replicator", "max_history", "20", COUNT, "events of a replication that are remembered"),
    setting("replicator", "health_threshold", "120", Kind::Seconds, "who has run so long without crashing is well again"),
    setting("replicator", "startup_jitter", "5000", Kind::Milliseconds, "many replications begin at different times up to this"),
    setting("replicator", "update_docs", "false", Kind::Bool, "write states that pass into the documents too"),
    setting("replicator", "worker_processes", "4", COUNT, "batches of a replication in flight"),
    setting("replicator", "worker_batch_size", "500", COUNT, "changes in a batch"),
    setting("replicator", "http_connections", "20", COUNT, "connections of a replication to one peer"),
    setting("replicator", "connection_timeout", "30000", Kind::Milliseconds, "how long a peer may give no sign of life"),
    setting("replicator", "retries_per_request", "5", Kind::Limit, "how often a request to a peer is tried again"),
    setting("replicator", "checkpoint_interval", "30000", Kind::Milliseconds, "how often it is recorded how far a replication came"),
    setting("replicator", "use_checkpoints", "true", Kind::Bool, "whether that is recorded at all"),
    setting("replicator", "use_bulk_get", "true", Kind::Bool, "fetch many documents with one request"),
    setting("replicator", "socket_options", "[{keepalive, true}, {nodelay, true}]", Kind::Text, "also recbuf and sndbuf"),
    setting("replicator", "private_addresses_for_users", "false", Kind::Bool, "let users who are no admins replicate with this machine and its network by URL"),
    setting("replicator", "verify_ssl_certificates", "true", Kind::Bool, "refuse peers whose certificate is not trusted"),
    unset("replicator", "ssl_trusted_certificates_file", Kind::Text, "trust these authorities (PEM) and no others"),
    unset("replicator", "cert_file", Kind::Text, "show this certificate (PEM) to peers"),
    unset("replicator", "key_file", Kind::Text, "its key (PEM)"),

    setting("uuids", "algorithm", "sequential", Kind::Word(&["sequential", "random", "utc_random", "utc_id", "uuid_v7"]), "how ids are made"),
    setting("uuids", "utc_id_suffix", "", Kind::Text, "what utc_id appends; differs on each node"),
    setting("uuids", "max_count", "1000", COUNT, "ids in one _uuids request"),

    setting("cluster", "q", "1", COUNT, "shards that clients are told of a new database; one is made"),
    setting("cluster", "n", "1", COUNT, "copies of a new database; one process keeps one"),

    setting("log", "level", "info", Kind::Word(&["debug", "info", "notice", "warning", "warn", "error", "critical", "crit", "alert", "emergency", "emerg", "none"]), "what is worth a line in the log; notice has a line for each request"),
    setting("log", "writer", "stderr", Kind::Word(&["stderr", "file", "journald", "syslog"]), "where lines go; journald is stderr with priorities for systemd"),
    setting("log", "file", "{data}/settee.log", Kind::Text, "the file of the writer file; begun anew when it was moved away"),
    unset("log", "syslog_host", Kind::Text, "the collector of the writer syslog, which gets RFC 5424 over UDP; without one lines go to stderr in that form"),
    setting("log", "syslog_port", "514", PORT, "its port"),
    setting("log", "syslog_appid", "settee", Kind::Text, "what this server is called there"),
    setting("log", "syslog_facility", "local2", Kind::Text, "the facility of all lines, by name or number"),
    setting("log", "format", "text", Kind::Word(&["text", "json"]), "lines as CouchDB's, or an object of JSON each; not for syslog"),
    setting("log", "slow_request_ms", "10000", Kind::Milliseconds, "requests that take longer are warned of; feeds that wait do not count"),

    setting("tracing", "endpoint", "", Kind::Text, "where a collector takes OTLP over HTTP without TLS, such as http://127.0.0.1:4318"),
    setting("tracing", "ratio", "1.0", Kind::Text, "which part of the requests is traced that bring no decision of their own, 0 to 1"),
    setting("tracing", "service_name", "settee", Kind::Text, "what this server is called there"),

    setting("query_server_config", "reduce_limit", "true", Kind::Word(&["true", "false", "log"]), "refuse reduce functions whose results grow without end"),
    setting("query_server_config", "native_evaluator", "true", Kind::Bool, "run map functions of the common subset without a JavaScript engine; results are the same"),
    setting("query_server_config", "os_process_limit", "100", COUNT, "processes of one query server that work at a time"),
    setting("query_server_config", "os_process_soft_limit", "100", Kind::Limit, "idle processes of one query server that are kept"),
    setting("query_server_config", "os_process_idle_limit", "300", Kind::Seconds, "how long a process may be idle before it is ended"),
    setting("query_server_config", "os_process_memory_limit", "2147483648", Kind::Limit, "bytes that one process of a query server may allocate"),
    setting("query_server_config", "project_documents", "true", Kind::Bool, "send Python map functions only the members of documents that they can see; results are the same"),
    unset("query_server_config", "configure_over_http", Kind::Bool, "let administrators change [query_servers] and [native_query_servers] over HTTP, which start programs; itself only set here. Without it only where there is no administrator"),
    setting("query_server_config", "query_limit", "576460752303423487", Kind::Limit, "rows that one query of a view may answer"),
    setting("query_server_config", "partition_query_limit", "576460752303423487", Kind::Limit, "rows that one query within a partition may answer"),
    setting("native_query_servers", "enable_erlang_query_server", "false", Kind::Bool, "run design documents in Erlang, without a sandbox"),

    setting("attachments", "compressible_types", "text/*, application/javascript, application/json, application/xml", Kind::Text, "types of attachments that are stored compressed"),
    setting("attachments", "compression_level", "8", Kind::Integer(0, 9), "zlib's level; 0 stores them as they are"),
];

/// The setting of this name. CouchDB's old names of sections find what they became.
pub(crate) fn find(section: &str, key: &str) -> Option<&'static Setting> {
    let exact = |section: &str| SETTINGS.iter().find(|setting| setting.section == section && setting.key == key);
    exact(section).or_else(|| exact(modern_section(section, key)?))
}

/// Where CouchDB 3 looks for `key` if `section` does not say anything: the name the section had before.
pub(crate) fn old_section(section: &str, key: &str) -> Option<&'static str> {
    SECTION_NAMES.into_iter().find(|(new, _)| *new == section && is_shared(section, key)).map(|(_, old)| old)
}

fn modern_section(section: &str, key: &str) -> Option<&'static str> {
    SECTION_NAMES.into_iter().find(|(new, old)| *old == section && is_shared(new, key)).map(|(new, _)| new)
}

const SECTION_NAMES: [(&str, &str); 2] = [("chttpd", "httpd"), ("chttpd_auth", "couch_httpd_auth")];

/// The old `[httpd] port` was that of another interface in CouchDB 2: it must not move this one.
fn is_shared(section: &str, key: &str) -> bool {
    section != "chttpd" || !matches!(key, "port" | "bind_address")
}

/// Whether a value must not be shown in logs.
pub(crate) fn is_sensitive(section: &str, key: &str) -> bool {
    let named_so = |word| key.to_ascii_lowercase().contains(word);
    matches!(section, "admins" | "jwt_keys") || ["secret", "password", "token"].into_iter().any(named_so)
}

impl Setting {
    /// The default for a server with this data directory.
    pub(crate) fn default_for(&self, data_dir: &Path) -> Option<String> {
        self.default.map(|text| text.replace("{data}", &data_dir.display().to_string()))
    }
}
