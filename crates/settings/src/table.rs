//! The settings that Settee supports: CouchDB's sections and keys, their defaults, valid values, the time at which a
//! change takes effect, and one line of documentation each. Readers use the [`Key`] of a setting:
//! `chttpd::MAX_CONNECTIONS.of(settings)`.

use crate::key::{Guard, Key, Kind, Number, Setting, Switch, Text, listed, setting, unset};

const PORT_NUMBER: Kind = Kind::Integer(0, 65_535);
const COUNT: Kind = Kind::Integer(1, u32::MAX as u64);
const COMMON_HEADERS: &str = "accept, accept-language, authorization, content-length, content-range, content-type, \
     destination, expires, if-match, if-none-match, last-modified, origin, pragma, x-couch-full-commit, x-couch-id, x-couch-persist, \
     x-couchdb-www-authenticate, x-http-method-override, x-requested-with, x-couchdb-vhost-path";
const UTILS_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; font-src 'self'; \
     connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'self'";
const PRIVATE_NETWORKS: &str = "127.0.0.0/8, ::1, 10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16, fc00::/7";
const COMMON_METHODS: &str = "CONNECT, COPY, DELETE, GET, HEAD, OPTIONS, POST, PUT, TRACE";

/// Declares a module for each section, with a [`Key`] for each setting, and [`SETTINGS`] in the same order.
macro_rules! table {
    ($($module:ident = $section:literal {
        $($name:ident: $type:ident = $make:ident($key:literal $(, $rest:expr)*) $(.$applies:ident())?, $doc:literal;)*
    })*) => {
        $(
            #[doc = concat!("`[", $section, "]`")]
            pub mod $module {
                use super::*;
                $(
                    #[doc = concat!("`[", $section, "] ", $key, "`")]
                    pub static $name: Key<$type> = Key::new($make($section, $key $(, $rest)*, $doc)$(.$applies())?);
                )*
            }
        )*

        /// All settings, grouped by section.
        pub static SETTINGS: &[&Setting] = &[$($($module::$name.setting(),)*)*];
    };
}

#[rustfmt::skip] // One line is one setting: it is read as a table.
table! {
    couchdb = "couchdb" {
        UUID: Text = unset("uuid", Kind::Text).at_start(), "identifies this server; made up at the first start";
        DATABASE_DIR: Text = listed("database_dir", "{data}", Kind::Text).kept(), "where the data lies; given with --data";
        VIEW_INDEX_DIR: Text = listed("view_index_dir", "{data}", Kind::Text).kept(), "indexes lie with the data";
        SINGLE_NODE: Switch = setting("single_node", "true", Kind::Bool), "create _users at start";
        DEFAULT_SECURITY: Text = setting("default_security", "admin_only", Kind::Word(&["admin_only", "admin_local", "everyone"])), "who may use a database without a security object";
        MAX_DOCUMENT_SIZE: Number = setting("max_document_size", "8000000", Kind::Limit), "bytes of a document's JSON";
        MAX_ATTACHMENT_SIZE: Number = setting("max_attachment_size", "1073741824", Kind::Limit), "bytes of one attachment";
        MAX_DOCUMENT_ID_LENGTH: Number = setting("max_document_id_length", "infinity", Kind::Limit), "bytes of a document id";
        MAX_PARTITION_SIZE: Number = setting("max_partition_size", "10737418240", Kind::Limit), "bytes from which on the documents of a partition do not grow; 0: no limit";
        MAX_BULK_DOCS_COUNT: Number = setting("max_bulk_docs_count", "infinity", Kind::Limit), "documents in one _bulk_docs request";
        MAX_BULK_GET_COUNT: Number = setting("max_bulk_get_count", "infinity", Kind::Limit), "documents in one _bulk_get request";
        MAX_DBS_OPEN: Number = setting("max_dbs_open", "5000", COUNT), "databases in memory; further ones are closed when nobody uses them, those in use never";
        OS_PROCESS_TIMEOUT: Number = setting("os_process_timeout", "5000", Kind::Milliseconds), "how long a view function may take for one batch";
        USERS_DB_SECURITY_EDITABLE: Switch = setting("users_db_security_editable", "false", Kind::Bool), "allow to change the security object of _users";
        MAINTENANCE_MODE: Text = setting("maintenance_mode", "false", Kind::Word(&["true", "false", "nolb"])), "makes /_up answer 404, so that load balancers look elsewhere";
    }
    chttpd = "chttpd" {
        PORT: Number = listed("port", "5984", PORT_NUMBER).at_start(), "where to listen; 0 for any free port";
        BIND_ADDRESS: Text = listed("bind_address", "127.0.0.1", Kind::Address).at_start(), "where to listen; beyond this machine only with an admin";
        REQUIRE_VALID_USER: Guard = setting("require_valid_user", "false", Kind::Bool), "refuse requests without credentials";
        REQUIRE_VALID_USER_EXCEPT_FOR_UP: Guard = setting("require_valid_user_except_for_up", "false", Kind::Bool), "the same, but leave /_up open";
        AUTHENTICATION_HANDLERS: Text = setting("authentication_handlers", "{chttpd_auth, cookie_authentication_handler}, {chttpd_auth, default_authentication_handler}", Kind::Text), "how requests may prove who sends them, in this order; further ones are proxy_authentication_handler and jwt_authentication_handler";
        ADMIN_ONLY_ALL_DBS: Switch = setting("admin_only_all_dbs", "true", Kind::Bool), "only admins may list the databases";
        ENABLE_CORS: Switch = setting("enable_cors", "false", Kind::Bool), "answer browsers from other origins, see [cors]";
        MAX_HTTP_REQUEST_SIZE: Number = setting("max_http_request_size", "4294967296", Kind::Limit), "bytes of a request's body";
        DECODE_PLUS_TO_SPACE: Switch = setting("decode_plus_to_space", "true", Kind::Bool), "a plus sign in a path is a space";
        MAX_URI_LENGTH: Number = setting("max_uri_length", "8000", Kind::Limit), "bytes of a request's path and query";
        MAX_DB_NUMBER_FOR_DBS_INFO_REQ: Number = setting("max_db_number_for_dbs_info_req", "100", COUNT), "databases in one _dbs_info request";
        CHANGES_TIMEOUT: Number = setting("changes_timeout", "60000", Kind::Milliseconds), "how long a feed without heartbeat waits for a change";
        MAX_CONNECTIONS: Number = setting("max_connections", "20000", COUNT).at_start(), "connections at a time, from the next start on; idle ones are closed for further ones";
        MAX_REQUEST_MEMORY: Number = unset("max_request_memory", Kind::Integer(8 << 20, u64::MAX >> 1)).at_start(), "bytes that all bodies and answers in flight may take together, from the next start on; a quarter of the memory if nothing is said. Beyond it clients are told to come back";
        MAX_LONG_ANSWERS: Number = setting("max_long_answers", "1024", Kind::Integer(1, 10_000)), "answers on their way at a time, from the next start on; further ones wait";
        MAX_LIST_ANSWERS: Number = setting("max_list_answers", "64", Kind::Integer(1, 10_000)), "the same for list functions, each of which has a process";
        MAX_FUNCTION_CALLS: Number = setting("max_function_calls", "64", Kind::Integer(1, 10_000)).at_start(), "validations, updates, shows and rewrites that run at a time; further ones wait, and one database leaves room for others";
        MAX_UPLOADS: Number = setting("max_uploads", "512", Kind::Integer(1, 10_000)), "the same for attachments on their way in";
        MAX_HEADER_BYTES: Number = setting("max_header_bytes", "131072", Kind::Integer(8192, 16_777_216)), "bytes of a request's head";
        MAX_HEADERS: Number = setting("max_headers", "100", Kind::Integer(1, 10_000)), "headers of a request";
        MAX_STREAMS_PER_CONNECTION: Number = setting("max_streams_per_connection", "100", COUNT), "requests that an HTTP/2 client may have open on a connection";
        HEADER_TIMEOUT_MS: Number = setting("header_timeout_ms", "60000", Kind::Milliseconds), "how long a handshake, or a head that has begun, may take";
        IDLE_TIMEOUT_MS: Number = setting("idle_timeout_ms", "300000", Kind::Milliseconds), "how long a connection without requests stays open";
        SEND_TIMEOUT_MS: Number = setting("send_timeout_ms", "300000", Kind::Milliseconds), "how long a client may take nothing of an answer before it is cut off";
        RECEIVE_TIMEOUT_MS: Number = setting("receive_timeout_ms", "60000", Kind::Milliseconds), "how long a client may send nothing of a body before it is refused";
        SERVER_HEADER_VERSIONS: Switch = setting("server_header_versions", "true", Kind::Bool), "show versions in the header Server";
        PREFER_MINIMAL: Text = setting("prefer_minimal", "Cache-Control, Content-Length, Content-Range, Content-Type, ETag, Server, Transfer-Encoding, Vary", Kind::Text), "headers that stay with Prefer: return=minimal";
        UNIX_SOCKET: Text = unset("unix_socket", Kind::Text).at_start(), "a path: listen on a socket in the file system as well";
        UNIX_SOCKET_MODE: Text = setting("unix_socket_mode", "660", Kind::Text).at_start(), "who may use that socket";
        ENABLE_XFRAME_OPTIONS: Guard = setting("enable_xframe_options", "false", Kind::Bool), "say which pages may show answers in a frame, see [x_frame_options]";
        SCRUB_JSON_REQUEST: Switch = setting("scrub_json_request", "true", Kind::Bool), "remove null bytes from the text of forms";
        WWW_AUTHENTICATE: Text = unset("WWW-Authenticate", Kind::Text), "sent with answers 401, so that browsers ask for a password";
        ALLOW_JSONP: Switch = setting("allow_jsonp", "false", Kind::Bool), "answer ?callback=name with a call of that function; pages of all origins can read such answers";
        X_FORWARDED_HOST: Text = setting("x_forwarded_host", "X-Forwarded-Host", Kind::Text), "the header in which a proxy tells what host it was asked for, for addresses in answers";
        X_FORWARDED_PROTO: Text = setting("x_forwarded_proto", "X-Forwarded-Proto", Kind::Text), "the same for the scheme";
        X_FORWARDED_SSL: Text = setting("x_forwarded_ssl", "X-Forwarded-Ssl", Kind::Text), "the same: on stands for https";
        TRUSTED_PROXIES: Text = setting("trusted_proxies", PRIVATE_NETWORKS, Kind::Text), "proxies whose Forwarded and X-Forwarded-For headers name the client, for the lock-out, limits and the log: addresses and ranges such as 10.0.0.0/8, separated by commas; none: the peer is the client. A Unix socket counts as 127.0.0.1";
        SECURE_REWRITES: Switch = setting("secure_rewrites", "true", Kind::Bool), "keep rewrites, rules and functions, within their database, and reads reads";
        REWRITE_LIMIT: Number = setting("rewrite_limit", "100", COUNT), "how many rewrites one request may run through";
    }
    chttpd_auth = "chttpd_auth" {
        ITERATIONS: Number = setting("iterations", "600000", COUNT), "rounds of PBKDF2 for new password hashes";
        MIN_ITERATIONS: Number = setting("min_iterations", "1", COUNT), "hashes of users with fewer rounds are not accepted";
        MAX_ITERATIONS: Number = setting("max_iterations", "1000000000", COUNT), "hashes of users with more rounds are not accepted";
        PASSWORD_SCHEME: Text = setting("password_scheme", "pbkdf2", Kind::Text), "how new passwords of users are hashed: pbkdf2 or simple; with any other value users cannot set passwords";
        PBKDF2_PRF: Text = setting("pbkdf2_prf", "sha256", Kind::Word(&["sha", "sha224", "sha256", "sha384", "sha512"])), "the hash function in it";
        UPGRADE_HASH_ON_AUTH: Switch = setting("upgrade_hash_on_auth", "true", Kind::Bool), "hash the password of a user anew at a login, if new ones are hashed in another way";
        PASSWORD_REGEXP: Text = unset("password_regexp", Kind::Text), "what new passwords of users have to match: a list of expressions, or of {expression, reason}";
        TIMEOUT: Number = setting("timeout", "600", Kind::Seconds), "how long a session lasts";
        SECRET: Text = unset("secret", Kind::Text), "signs session cookies; made up at the first login";
        HASH_ALGORITHMS: Text = setting("hash_algorithms", "sha256, sha", Kind::Text), "how cookies and tokens of proxies are signed: the first one signs, all are accepted";
        ALLOW_PERSISTENT_COOKIES: Switch = setting("allow_persistent_cookies", "true", Kind::Bool), "browsers keep sessions after they are closed";
        COOKIE_DOMAIN: Text = unset("cookie_domain", Kind::Text), "the domain of session cookies";
        SAME_SITE: Text = unset("same_site", Kind::Text), "none, lax or strict: whether pages of others may send session cookies";
        REQUIRE_VALID_USER: Guard = setting("require_valid_user", "false", Kind::Bool), "the same as in [chttpd]";
        PUBLIC_FIELDS: Text = unset("public_fields", Kind::Text), "members of user documents that everybody may see who may read the database";
        USERS_DB_PUBLIC: Switch = setting("users_db_public", "false", Kind::Bool).kept(), "kept for old configurations; public_fields alone decides";
        ALLOW_CONFLICTED_USER_DOCS: Switch = setting("allow_conflicted_user_docs", "false", Kind::Bool), "log in users whose documents have conflicts";
        PROXY_USE_SECRET: Guard = setting("proxy_use_secret", "false", Kind::Bool), "believe a proxy only if it proves to know the secret";
        X_AUTH_USERNAME: Text = setting("x_auth_username", "X-Auth-CouchDB-UserName", Kind::Text), "the header in which a proxy names the user";
        X_AUTH_ROLES: Text = setting("x_auth_roles", "X-Auth-CouchDB-Roles", Kind::Text), "the header with the roles, separated by commas";
        X_AUTH_TOKEN: Text = setting("x_auth_token", "X-Auth-CouchDB-Token", Kind::Text), "the header with the proof";
        AUTHENTICATION_DB: Text = setting("authentication_db", "_users", Kind::Text), "the database of users";
        AUTHENTICATION_REDIRECT: Text = setting("authentication_redirect", "/_utils/session.html", Kind::Text), "where browsers are sent to log in";
    }
    jwt_auth = "jwt_auth" {
        REQUIRED_CLAIMS: Text = setting("required_claims", "exp", Kind::Text), "claims that tokens need: names, and pairs such as {iss, \"https://example.com\"}; [] for none";
        ALLOWED_ALGORITHMS: Text = unset("allowed_algorithms", Kind::Text), "how tokens may be signed, such as RS256, ES256; without it in all ways";
        ROLES_CLAIM_NAME: Text = setting("roles_claim_name", "_couchdb.roles", Kind::Text), "the claim that has the roles";
        ROLES_CLAIM_PATH: Text = unset("roles_claim_path", Kind::Text), "the same for one within others: names separated by dots";
        JWKS_FILE: Text = unset("jwks_file", Kind::Text), "a file with the public keys of an identity provider; changes count at once";
        JWKS_URL: Text = unset("jwks_url", Kind::Text), "an address with such keys";
        JWKS_REFRESH: Number = setting("jwks_refresh", "3600", Kind::Seconds), "how often this address is asked";
    }
    chttpd_auth_lockout = "chttpd_auth_lockout" {
        MODE: Text = setting("mode", "enforce", Kind::Word(&["off", "warn", "enforce"])), "what becomes of logins after many failures";
        THRESHOLD: Number = setting("threshold", "5", COUNT), "how many these are, for one user and address";
        MAX_LIFETIME: Number = setting("max_lifetime", "300000", Kind::Milliseconds), "how long they count";
    }
    cors = "cors" {
        ORIGINS: Text = setting("origins", "", Kind::Text), "origins that may call, separated by commas; * for all";
        CREDENTIALS: Switch = setting("credentials", "false", Kind::Bool), "let other origins send credentials";
        HEADERS: Text = setting("headers", COMMON_HEADERS, Kind::Text), "request headers that other origins may send";
        METHODS: Text = setting("methods", COMMON_METHODS, Kind::Text), "methods that other origins may use";
        EXPOSED_HEADERS: Text = setting("exposed_headers", "accept-ranges, etag, server, x-couch-request-id, x-couch-update-newrev, x-couchdb-body-time", Kind::Text), "response headers that pages of other origins may see";
        MAX_AGE: Number = setting("max_age", "600", Kind::Seconds), "how long browsers may remember the answer";
    }
    x_frame_options = "x_frame_options" {
        SAME_ORIGIN: Switch = setting("same_origin", "false", Kind::Bool), "pages of this server may";
        HOSTS: Text = setting("hosts", "", Kind::Text), "origins under which this server may, separated by commas; * for all";
    }
    csp = "csp" {
        UTILS_ENABLE: Switch = setting("utils_enable", "true", Kind::Bool), "limit what pages under /_utils may load";
        UTILS_HEADER_VALUE: Text = setting("utils_header_value", UTILS_POLICY, Kind::Text), "to this";
        ATTACHMENTS_ENABLE: Switch = setting("attachments_enable", "true", Kind::Bool), "keep attachments from acting in the name of this server";
        ATTACHMENTS_HEADER_VALUE: Text = setting("attachments_header_value", "sandbox", Kind::Text), "by this";
        SHOWLIST_ENABLE: Switch = setting("showlist_enable", "true", Kind::Bool), "the same for what show and list functions answer";
        SHOWLIST_HEADER_VALUE: Text = setting("showlist_header_value", "sandbox", Kind::Text), "by this";
    }
    rate_limit = "rate_limit" {
        REQUESTS_PER_SECOND: Number = setting("requests_per_second", "0", Kind::Limit), "requests that one client may make, on average; 0: no limit";
        BURST: Number = setting("burst", "0", Kind::Limit), "and at once; 0: twice as many";
        BY: Text = setting("by", "ip", Kind::Word(&["ip", "user"])), "what one client is: an address, or a user (an address for who is none)";
    }
    ssl = "ssl" {
        ENABLE: Switch = setting("enable", "false", Kind::Bool).at_start(), "listen for TLS as well; the address is that of [chttpd]";
        PORT: Number = setting("port", "6984", PORT_NUMBER).at_start(), "where";
        CERT_FILE: Text = unset("cert_file", Kind::Text), "the certificate and those that lead to its root, in PEM; read again when it changes";
        KEY_FILE: Text = unset("key_file", Kind::Text), "its key, in PEM and not encrypted; read again when it changes";
        TLS_VERSIONS: Text = unset("tls_versions", Kind::Text).at_start(), "['tlsv1.2', 'tlsv1.3'] unless set";
        VERIFY_SSL_CERTIFICATES: Switch = setting("verify_ssl_certificates", "false", Kind::Bool).at_start(), "check the certificates of clients";
        CACERT_FILE: Text = unset("cacert_file", Kind::Text).at_start(), "the roots of their certificates, in PEM";
        FAIL_IF_NO_PEER_CERT: Switch = setting("fail_if_no_peer_cert", "false", Kind::Bool).at_start(), "refuse clients without a certificate";
    }
    vendor = "vendor" {
        NAME: Text = setting("name", "Settee", Kind::Text), "the name in GET /";
    }
    compaction_daemon = "compaction_daemon" {
        CHECK_INTERVAL: Number = setting("check_interval", "60", Kind::Seconds), "how often databases are looked at for automatic compaction";
    }
    smoosh_ratio_dbs = "smoosh.ratio_dbs" {
        MIN_PRIORITY: Text = setting("min_priority", "2.0", Kind::Text), "compact a database whose bodies are so many times as large as the current ones";
        MIN_SIZE: Number = setting("min_size", "16777216", Kind::Limit), "but only if so many bytes are garbage; infinity: no automatic compaction";
    }
    view_updater = "view_updater" {
        CHECKPOINT_INTERVAL: Number = setting("checkpoint_interval", "10", Kind::Seconds), "how often the first build of an index writes down how far it is, to go on from there after a crash";
        MAX_KEY_BYTES: Number = setting("max_key_bytes", "1048576", Kind::Integer(1, 1 << 30)).at_start(), "bytes of an emitted key; a document that emits a longer one has no rows of this function, which is logged";
        MAX_VALUE_BYTES: Number = setting("max_value_bytes", "16777216", Kind::Integer(1, 1 << 30)).at_start(), "the same for an emitted value";
        MAX_DOCUMENT_ROWS: Number = setting("max_document_rows", "1048576", Kind::Integer(1, u32::MAX as u64)).at_start(), "the same for the rows that one function emits for one document";
        MAX_DOCUMENT_BYTES: Number = setting("max_document_bytes", "67108864", Kind::Integer(1, 1 << 30)).at_start(), "the same for the bytes of these rows";
        MAX_REDUCTION_BYTES: Number = setting("max_reduction_bytes", "1048576", Kind::Integer(1, 1 << 30)).at_start(), "bytes of a reduction; a longer one is a reduce_overflow_error";
        SORT_MEMORY_BYTES: Number = setting("sort_memory_bytes", "134217728", Kind::Integer(1 << 20, 1 << 40)).at_start(), "memory for emitted rows of one build, which are sorted on disk beyond that";
    }
    ken = "ken" {
        ENABLED: Switch = setting("enabled", "true", Kind::Bool), "bring lagging indexes up to date in the background";
        BATCH_CHANNELS: Number = setting("batch_channels", "1", COUNT).at_start(), "how many of them at a time; in force from the next start";
        INCREMENTAL_CHANNELS: Number = setting("incremental_channels", "4", COUNT).at_start(), "how many short ones besides; in force from the next start";
        MAX_INCREMENTAL_UPDATES: Number = setting("max_incremental_updates", "1000", Kind::Limit), "changes up to which one is short";
        DELAY: Number = setting("delay", "1000", Kind::Milliseconds), "how long changes are collected before that begins";
        CPU_PERCENT: Number = setting("cpu_percent", "50", Kind::Integer(1, 100)), "the part of the time in which each thread of a background build works";
        BYTES_PER_SECOND: Number = setting("bytes_per_second", "infinity", Kind::Limit), "bytes of documents that each thread of a background build reads";
    }
    view_cleanup = "view_cleanup" {
        CHECK_INTERVAL: Number = setting("check_interval", "600", Kind::Seconds), "how often indexes are looked for that nobody needs";
        GRACE: Number = setting("grace", "3600", Kind::Seconds), "how long these are kept";
    }
    global_changes = "global_changes" {
        UPDATE_DB: Switch = setting("update_db", "true", Kind::Bool), "keep events for _db_updates, if the database _global_changes exists";
        MAX_WRITE_DELAY: Number = setting("max_write_delay", "500", Kind::Milliseconds), "how long events are collected before they are written";
    }
    backup = "backup" {
        URL: Text = unset("url", Kind::Text).at_start(), "where this server sends backups of itself: s3://bucket/prefix, a prefix for each server; nothing is sent if nothing is said";
        ENDPOINT: Text = unset("endpoint", Kind::Text).at_start(), "where the bucket is served, https://host:port; AWS if nothing is said";
        REGION: Text = unset("region", Kind::Text).at_start(), "the region of the bucket; AWS_REGION, or us-east-1";
        ACCESS_KEY_ID: Text = unset("access_key_id", Kind::Text).at_start(), "the key that the bucket is used with; AWS_ACCESS_KEY_ID if nothing is said";
        SECRET_ACCESS_KEY: Text = unset("secret_access_key", Kind::Text).at_start(), "its secret; AWS_SECRET_ACCESS_KEY if nothing is said";
        CA_FILE: Text = unset("ca_file", Kind::Text).at_start(), "a file of certificates to trust there instead of those of the web";
        KEY_FILE: Text = unset("key_file", Kind::Text).at_start(), "encrypt with the key in this file, 64 hexadecimal digits; without it nothing can be restored";
        INTERVAL: Number = setting("interval", "86400", COUNT).at_start(), "seconds from backup to backup; each sends what is new";
        FULL_INTERVAL: Number = setting("full_interval", "0", Kind::Seconds).at_start(), "seconds after which a backup sends everything anew; 0: none does";
        KEEP: Number = setting("keep", "2592000", Kind::Seconds).at_start(), "how long backups are kept, and the log that follows them; the newest backup always is";
        LOG_INTERVAL: Number = setting("log_interval", "5", Kind::Seconds).at_start(), "how often what was committed is sent, so that every moment can be restored; 0: it is not";
    }
    replicator = "replicator" {
        MAX_JOBS: Number = setting("max_jobs", "500", COUNT), "replications that run at a time";
        INTERVAL: Number = setting("interval", "60000", Kind::Milliseconds), "how often replications change places when there are more";
        MAX_CHURN: Number = setting("max_churn", "20", COUNT), "replications that change places then";
        MAX_HISTORY: Number = setting("max_history", "20", COUNT), "events of a replication that are remembered";
        HEALTH_THRESHOLD: Number = setting("health_threshold", "120", Kind::Seconds), "who has run so long without crashing is well again";
        STARTUP_JITTER: Number = setting("startup_jitter", "5000", Kind::Milliseconds), "many replications begin at different times up to this";
        UPDATE_DOCS: Switch = setting("update_docs", "false", Kind::Bool), "write states that pass into the documents too";
        WORKER_PROCESSES: Number = setting("worker_processes", "4", COUNT), "batches of a replication in flight";
        WORKER_BATCH_SIZE: Number = setting("worker_batch_size", "500", COUNT), "changes in a batch";
        HTTP_CONNECTIONS: Number = setting("http_connections", "20", COUNT), "connections of a replication to one peer";
        CONNECTION_TIMEOUT: Number = setting("connection_timeout", "30000", Kind::Milliseconds), "how long a peer may give no sign of life";
        RETRIES_PER_REQUEST: Number = setting("retries_per_request", "5", Kind::Limit), "how often a request to a peer is tried again";
        CHECKPOINT_INTERVAL: Number = setting("checkpoint_interval", "30000", Kind::Milliseconds), "how often it is recorded how far a replication came";
        USE_CHECKPOINTS: Switch = setting("use_checkpoints", "true", Kind::Bool), "whether that is recorded at all";
        USE_BULK_GET: Switch = setting("use_bulk_get", "true", Kind::Bool), "fetch many documents with one request";
        SOCKET_OPTIONS: Text = setting("socket_options", "[{keepalive, true}, {nodelay, true}]", Kind::Text), "also recbuf and sndbuf";
        PRIVATE_ADDRESSES_FOR_USERS: Switch = setting("private_addresses_for_users", "false", Kind::Bool), "let users who are no admins replicate with this machine and its network by URL";
        VERIFY_SSL_CERTIFICATES: Switch = setting("verify_ssl_certificates", "true", Kind::Bool), "refuse peers whose certificate is not trusted";
        SSL_TRUSTED_CERTIFICATES_FILE: Text = unset("ssl_trusted_certificates_file", Kind::Text), "trust these authorities (PEM) and no others";
        CERT_FILE: Text = unset("cert_file", Kind::Text), "show this certificate (PEM) to peers";
        KEY_FILE: Text = unset("key_file", Kind::Text), "its key (PEM)";
    }
    uuids = "uuids" {
        ALGORITHM: Text = setting("algorithm", "sequential", Kind::Word(&["sequential", "random", "utc_random", "utc_id", "uuid_v7"])), "how ids are made";
        UTC_ID_SUFFIX: Text = setting("utc_id_suffix", "", Kind::Text), "what utc_id appends; differs on each node";
        MAX_COUNT: Number = setting("max_count", "1000", COUNT), "ids in one _uuids request";
    }
    purge = "purge" {
        MAX_DOCUMENT_ID_NUMBER: Number = setting("max_document_id_number", "100", COUNT), "documents in one _purge request";
        MAX_REVISIONS_NUMBER: Number = setting("max_revisions_number", "1000", COUNT), "revisions in one _purge request";
    }
    storage = "storage" {
        URL: Text = unset("url", Kind::Text).at_start(), "where the data lie, if not in the data directory: postgres://user:password@host/database; docs/operation/postgresql.md";
        CONNECTIONS: Number = setting("connections", "50", Kind::Integer(8, 10_000)).at_start(), "connections to PostgreSQL at a time, at most";
    }
    cluster = "cluster" {
        Q: Number = setting("q", "1", COUNT), "shards that clients are told of a new database; one is made";
        N: Number = setting("n", "1", COUNT).kept(), "copies of a new database; one process keeps one";
        NODE: Text = unset("node", Kind::Text).at_start(), "what this node is called; nodes that share a store have different names. settee@HOST there, nonode@nohost alone";
        ADDRESS: Text = unset("address", Kind::Text).at_start(), "where other nodes reach this one, such as http://10.0.0.7:5984/; where it listens if nothing is said";
        SECRET: Text = unset("secret", Kind::Text), "what nodes that share a store prove with to each other that they are of one cluster; made up by the first";
    }
    log = "log" {
        LEVEL: Text = setting("level", "info", Kind::Word(&["debug", "info", "notice", "warning", "warn", "error", "critical", "crit", "alert", "emergency", "emerg", "none"])), "what is worth a line in the log; notice has a line for each request";
        WRITER: Text = setting("writer", "stderr", Kind::Word(&["stderr", "file", "journald", "syslog"])), "where lines go; journald is stderr with priorities for systemd";
        FILE: Text = setting("file", "{data}/settee.log", Kind::Text), "the file of the writer file; recreated when it was moved away";
        SYSLOG_HOST: Text = unset("syslog_host", Kind::Text), "the collector of the writer syslog, which gets RFC 5424 over UDP; without one lines go to stderr in that form";
        SYSLOG_PORT: Number = setting("syslog_port", "514", PORT_NUMBER), "its port";
        SYSLOG_APPID: Text = setting("syslog_appid", "settee", Kind::Text), "what this server is called there";
        SYSLOG_FACILITY: Text = setting("syslog_facility", "local2", Kind::Text), "the facility of all lines, by name or number";
        FORMAT: Text = setting("format", "text", Kind::Word(&["text", "json"])), "lines as CouchDB's, or an object of JSON each; not for syslog";
        SLOW_REQUEST_MS: Number = setting("slow_request_ms", "10000", Kind::Milliseconds), "requests that take longer are warned of; feeds that wait do not count";
    }
    tracing = "tracing" {
        ENDPOINT: Text = setting("endpoint", "", Kind::Text).at_start(), "where a collector takes OTLP over HTTP without TLS, such as http://127.0.0.1:4318";
        RATIO: Text = setting("ratio", "1.0", Kind::Text).at_start(), "which part of the requests is traced that bring no decision of their own, 0 to 1";
        SERVICE_NAME: Text = setting("service_name", "settee", Kind::Text).at_start(), "what this server is called there";
    }
    query_server_config = "query_server_config" {
        REDUCE_LIMIT: Text = setting("reduce_limit", "true", Kind::Word(&["true", "false", "log"])), "refuse reduce functions whose results grow without end";
        NATIVE_EVALUATOR: Switch = setting("native_evaluator", "true", Kind::Bool), "run map functions of the common subset without a JavaScript engine; results are the same";
        OS_PROCESS_LIMIT: Number = setting("os_process_limit", "100", COUNT), "processes of one query server that work at a time";
        OS_PROCESS_SOFT_LIMIT: Number = setting("os_process_soft_limit", "100", Kind::Limit), "idle processes of one query server that are kept";
        OS_PROCESS_IDLE_LIMIT: Number = setting("os_process_idle_limit", "300", Kind::Seconds), "how long a process may be idle before it is ended";
        OS_PROCESS_MEMORY_LIMIT: Number = setting("os_process_memory_limit", "2147483648", Kind::Limit), "bytes that one process of a query server may allocate";
        PROJECT_DOCUMENTS: Switch = setting("project_documents", "true", Kind::Bool), "send Python map functions only the members of documents that they can see; results are the same";
        CONFIGURE_OVER_HTTP: Switch = unset("configure_over_http", Kind::Bool), "let administrators change [query_servers] and [native_query_servers] over HTTP, which start programs; itself only set here. Without it only where there is no administrator";
        QUERY_LIMIT: Number = setting("query_limit", "576460752303423487", Kind::Limit), "rows that one query of a view may answer";
        PARTITION_QUERY_LIMIT: Number = setting("partition_query_limit", "576460752303423487", Kind::Limit), "rows that one query within a partition may answer";
    }
    native_query_servers = "native_query_servers" {
        ENABLE_ERLANG_QUERY_SERVER: Switch = setting("enable_erlang_query_server", "false", Kind::Bool), "run design documents in Erlang, without a sandbox";
    }
    search = "search" {
        TIMEOUT_MS: Number = setting("timeout_ms", "60000", Kind::Milliseconds), "how long one search may take; the time for which it waits for its index counts as well, whose update goes on afterwards";
        MAX_SEARCHES: Number = setting("max_searches", "8", Kind::Integer(1, 10_000)).at_start(), "searches that run at a time, from the next start on; further ones wait, and one account or address leaves permits for others";
        CACHE_BYTES: Number = setting("cache_bytes", "67108864", Kind::Limit).at_start(), "memory for parts of search indexes that are read again and again";
        VECTOR_CACHE_BYTES: Number = setting("vector_cache_bytes", "536870912", Kind::Limit).at_start(), "memory for the vectors of search indexes, taken when they are searched; vectors that take more are read from the disk, which is slow";
    }
    nouveau = "nouveau" {
        ENABLE: Switch = setting("enable", "true", Kind::Bool), "serve text search, _nouveau and indexes of that type; nothing beside this program is needed";
    }
    dreyfus = "dreyfus" {
        ENABLE: Switch = setting("enable", "true", Kind::Bool), "serve the older text search, _search and indexes of the type text";
        LIMIT: Number = setting("limit", "25", COUNT), "hits of one _search without a limit";
        LIMIT_PARTITIONS: Number = setting("limit_partitions", "2000", COUNT), "the same in a partitioned database";
        MAX_LIMIT: Number = setting("max_limit", "200", COUNT), "hits that one _search may ask for";
        MAX_LIMIT_PARTITIONS: Number = setting("max_limit_partitions", "2000", COUNT), "the same in a partitioned database";
        MAX_GROUP_LIMIT: Number = setting("max_group_limit", "200", COUNT), "groups that one _search may ask for";
    }
    attachments = "attachments" {
        COMPRESSIBLE_TYPES: Text = setting("compressible_types", "text/*, application/javascript, application/json, application/xml", Kind::Text), "types of attachments that are stored compressed";
        COMPRESSION_LEVEL: Number = setting("compression_level", "8", Kind::Integer(0, 9)), "zlib's level; 0 stores them as they are";
    }
}
