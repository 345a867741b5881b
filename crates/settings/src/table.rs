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

        pub static SETTINGS: &[&Setting] = &[$($($module::$name.setting(),)*)*];
    };
}

#[rustfmt::skip] // One line is one setting: it is read as a table.
table! {
    couchdb = "couchdb" {
        UUID: Text = unset("uuid", Kind::Text).at_start(), "identifies this server; generated at the first start";
        DATABASE_DIR: Text = listed("database_dir", "{data}", Kind::Text).kept(), "directory of the data; given with --data";
        VIEW_INDEX_DIR: Text = listed("view_index_dir", "{data}", Kind::Text).kept(), "directory of the indexes; always that of the data";
        SINGLE_NODE: Switch = setting("single_node", "true", Kind::Bool), "create the database _users at the start";
        DEFAULT_SECURITY: Text = setting("default_security", "admin_only", Kind::Word(&["admin_only", "admin_local", "everyone"])), "users that may access a database without a security object";
        MAX_DOCUMENT_SIZE: Number = setting("max_document_size", "8000000", Kind::Limit), "bytes of a document's JSON";
        MAX_ATTACHMENT_SIZE: Number = setting("max_attachment_size", "1073741824", Kind::Limit), "maximum size of an attachment in bytes";
        MAX_DOCUMENT_ID_LENGTH: Number = setting("max_document_id_length", "infinity", Kind::Limit), "maximum size of a document id in bytes";
        MAX_PARTITION_SIZE: Number = setting("max_partition_size", "10737418240", Kind::Limit), "maximum size of a partition in bytes; larger ones accept no further documents; 0: no limit";
        MAX_BULK_DOCS_COUNT: Number = setting("max_bulk_docs_count", "infinity", Kind::Limit), "maximum number of documents in a _bulk_docs request";
        MAX_BULK_GET_COUNT: Number = setting("max_bulk_get_count", "infinity", Kind::Limit), "maximum number of documents in a _bulk_get request";
        MAX_DBS_OPEN: Number = setting("max_dbs_open", "5000", COUNT), "maximum number of open databases; beyond it idle databases are closed, databases in use never";
        OS_PROCESS_TIMEOUT: Number = setting("os_process_timeout", "5000", Kind::Milliseconds), "timeout of a view function for one batch";
        USERS_DB_SECURITY_EDITABLE: Switch = setting("users_db_security_editable", "false", Kind::Bool), "allow changes of the security object of _users";
        TIME_SEQ_MIN_TIME: Number = setting("time_seq_min_time", "1754006400", Kind::Integer(0, u64::MAX >> 1)), "earliest time, in seconds since 1970, that is recorded for /{db}/_time_seq; the clock of a machine that has just started may show an earlier one";
        MAINTENANCE_MODE: Text = setting("maintenance_mode", "false", Kind::Word(&["true", "false", "nolb"])), "answer 404 to /_up, so that load balancers use other nodes";
    }
    chttpd = "chttpd" {
        PORT: Number = listed("port", "5984", PORT_NUMBER).at_start(), "port to listen on; 0 for any free port";
        BIND_ADDRESS: Text = listed("bind_address", "127.0.0.1", Kind::Address).at_start(), "address to listen on; other than loopback only with an admin";
        REQUIRE_VALID_USER: Guard = setting("require_valid_user", "false", Kind::Bool), "reject requests without credentials";
        REQUIRE_VALID_USER_EXCEPT_FOR_UP: Guard = setting("require_valid_user_except_for_up", "false", Kind::Bool), "reject requests without credentials, except to /_up";
        AUTHENTICATION_HANDLERS: Text = setting("authentication_handlers", "{chttpd_auth, cookie_authentication_handler}, {chttpd_auth, default_authentication_handler}", Kind::Text), "methods of authentication, in this order; further ones are proxy_authentication_handler and jwt_authentication_handler";
        ADMIN_ONLY_ALL_DBS: Switch = setting("admin_only_all_dbs", "true", Kind::Bool), "allow only admins to list the databases";
        ENABLE_CORS: Switch = setting("enable_cors", "false", Kind::Bool), "answer cross-origin requests of browsers, see [cors]";
        MAX_HTTP_REQUEST_SIZE: Number = setting("max_http_request_size", "4294967296", Kind::Limit), "maximum size of a request's body in bytes";
        DECODE_PLUS_TO_SPACE: Switch = setting("decode_plus_to_space", "true", Kind::Bool), "a plus sign in a path is a space";
        MAX_URI_LENGTH: Number = setting("max_uri_length", "8000", Kind::Limit), "maximum size of a request's path and query in bytes";
        MAX_DB_NUMBER_FOR_DBS_INFO_REQ: Number = setting("max_db_number_for_dbs_info_req", "100", COUNT), "maximum number of databases in a _dbs_info request";
        CHANGES_TIMEOUT: Number = setting("changes_timeout", "60000", Kind::Milliseconds), "timeout of a feed without heartbeat that waits for a change";
        MAX_CONNECTIONS: Number = setting("max_connections", "20000", COUNT).at_start(), "maximum number of concurrent connections; at the limit idle ones are closed for new ones";
        MAX_REQUEST_MEMORY: Number = unset("max_request_memory", Kind::Integer(8 << 20, u64::MAX >> 1)).at_start(), "memory limit in bytes for all request bodies and answers in flight; a quarter of the memory by default. Beyond it requests are answered 503";
        MAX_LONG_ANSWERS: Number = setting("max_long_answers", "1024", Kind::Integer(1, 10_000)), "maximum number of concurrent streamed answers, from the next start on; further ones wait";
        MAX_LIST_ANSWERS: Number = setting("max_list_answers", "64", Kind::Integer(1, 10_000)), "the same for list functions, each of which uses a process";
        MAX_FUNCTION_CALLS: Number = setting("max_function_calls", "64", Kind::Integer(1, 10_000)).at_start(), "maximum number of validations, updates, shows and rewrites that run concurrently; further ones wait, and one database cannot use all of them";
        MAX_UPLOADS: Number = setting("max_uploads", "512", Kind::Integer(1, 10_000)), "maximum number of concurrent uploads of attachments, from the next start on; further ones wait";
        MAX_HEADER_BYTES: Number = setting("max_header_bytes", "131072", Kind::Integer(8192, 16_777_216)), "maximum size of a request's head in bytes";
        MAX_HEADERS: Number = setting("max_headers", "100", Kind::Integer(1, 10_000)), "maximum number of headers of a request";
        MAX_STREAMS_PER_CONNECTION: Number = setting("max_streams_per_connection", "100", COUNT), "maximum number of concurrent requests on an HTTP/2 connection";
        HEADER_TIMEOUT_MS: Number = setting("header_timeout_ms", "60000", Kind::Milliseconds), "timeout of a handshake, and of a request head after its first byte";
        IDLE_TIMEOUT_MS: Number = setting("idle_timeout_ms", "300000", Kind::Milliseconds), "timeout of an idle connection";
        SEND_TIMEOUT_MS: Number = setting("send_timeout_ms", "300000", Kind::Milliseconds), "timeout of a client that reads nothing of an answer; its connection is closed";
        RECEIVE_TIMEOUT_MS: Number = setting("receive_timeout_ms", "60000", Kind::Milliseconds), "timeout of a client that sends nothing of a body; its request is rejected";
        SERVER_HEADER_VERSIONS: Switch = setting("server_header_versions", "true", Kind::Bool), "show versions in the header Server";
        PREFER_MINIMAL: Text = setting("prefer_minimal", "Cache-Control, Content-Length, Content-Range, Content-Type, ETag, Server, Transfer-Encoding, Vary", Kind::Text), "headers that are kept with Prefer: return=minimal";
        UNIX_SOCKET: Text = unset("unix_socket", Kind::Text).at_start(), "path of a Unix socket to listen on additionally";
        UNIX_SOCKET_MODE: Text = setting("unix_socket_mode", "660", Kind::Text).at_start(), "file mode of that socket";
        ENABLE_XFRAME_OPTIONS: Guard = setting("enable_xframe_options", "false", Kind::Bool), "send X-Frame-Options, see [x_frame_options]";
        SCRUB_JSON_REQUEST: Switch = setting("scrub_json_request", "true", Kind::Bool), "remove null bytes from the text of forms";
        WWW_AUTHENTICATE: Text = unset("WWW-Authenticate", Kind::Text), "value of this header in answers 401, with which browsers ask for a password";
        ALLOW_JSONP: Switch = setting("allow_jsonp", "false", Kind::Bool), "answer ?callback=name with a call of that function; pages of all origins can read such answers";
        X_FORWARDED_HOST: Text = setting("x_forwarded_host", "X-Forwarded-Host", Kind::Text), "header in which a proxy forwards the host of the request, for addresses in answers";
        X_FORWARDED_PROTO: Text = setting("x_forwarded_proto", "X-Forwarded-Proto", Kind::Text), "header in which a proxy forwards the scheme of the request";
        X_FORWARDED_SSL: Text = setting("x_forwarded_ssl", "X-Forwarded-Ssl", Kind::Text), "header in which a proxy signals https by the value on";
        TRUSTED_PROXIES: Text = setting("trusted_proxies", PRIVATE_NETWORKS, Kind::Text), "trusted proxies, whose Forwarded and X-Forwarded-For headers determine the client address for the lock-out, limits and the log: addresses and ranges such as 10.0.0.0/8, separated by commas; if empty, the peer is the client. A Unix socket counts as 127.0.0.1";
        SECURE_REWRITES: Switch = setting("secure_rewrites", "true", Kind::Bool), "restrict rewrites to their database, and rewrites of reads to reads";
        REWRITE_LIMIT: Number = setting("rewrite_limit", "100", COUNT), "maximum number of rewrites of one request";
    }
    chttpd_auth = "chttpd_auth" {
        ITERATIONS: Number = setting("iterations", "600000", COUNT), "rounds of PBKDF2 for new password hashes";
        MIN_ITERATIONS: Number = setting("min_iterations", "1", COUNT), "hashes of users with fewer rounds are rejected";
        MAX_ITERATIONS: Number = setting("max_iterations", "1000000000", COUNT), "hashes of users with more rounds are rejected";
        PASSWORD_SCHEME: Text = setting("password_scheme", "pbkdf2", Kind::Text), "scheme of new password hashes of users: pbkdf2 or simple; with any other value users cannot set passwords";
        PBKDF2_PRF: Text = setting("pbkdf2_prf", "sha256", Kind::Word(&["sha", "sha224", "sha256", "sha384", "sha512"])), "hash function of PBKDF2";
        UPGRADE_HASH_ON_AUTH: Switch = setting("upgrade_hash_on_auth", "true", Kind::Bool), "rehash the password of a user at a login, if the scheme or its parameters have changed";
        PASSWORD_REGEXP: Text = unset("password_regexp", Kind::Text), "expressions that new passwords of users must match: a list of expressions, or of {expression, reason}";
        TIMEOUT: Number = setting("timeout", "600", Kind::Seconds), "lifetime of a session";
        SECRET: Text = unset("secret", Kind::Text), "key that signs session cookies; generated at the first login";
        HASH_ALGORITHMS: Text = setting("hash_algorithms", "sha256, sha", Kind::Text), "hash functions of the signatures of cookies and proxy tokens: the first one signs, all are accepted";
        ALLOW_PERSISTENT_COOKIES: Switch = setting("allow_persistent_cookies", "true", Kind::Bool), "let browsers keep sessions after they are closed";
        COOKIE_DOMAIN: Text = unset("cookie_domain", Kind::Text), "domain of session cookies";
        SAME_SITE: Text = unset("same_site", Kind::Text), "SameSite attribute of session cookies: none, lax or strict";
        REQUIRE_VALID_USER: Guard = setting("require_valid_user", "false", Kind::Bool), "the same as in [chttpd]";
        PUBLIC_FIELDS: Text = unset("public_fields", Kind::Text), "members of user documents that are visible to all readers of the database";
        USERS_DB_PUBLIC: Switch = setting("users_db_public", "false", Kind::Bool).kept(), "accepted for old configurations; only public_fields has an effect";
        ALLOW_CONFLICTED_USER_DOCS: Switch = setting("allow_conflicted_user_docs", "false", Kind::Bool), "allow logins of users whose documents have conflicts";
        PROXY_USE_SECRET: Guard = setting("proxy_use_secret", "false", Kind::Bool), "accept the headers of a proxy only with a token signed with the secret";
        X_AUTH_USERNAME: Text = setting("x_auth_username", "X-Auth-CouchDB-UserName", Kind::Text), "header in which a proxy sends the name of the user";
        X_AUTH_ROLES: Text = setting("x_auth_roles", "X-Auth-CouchDB-Roles", Kind::Text), "header with the roles, separated by commas";
        X_AUTH_TOKEN: Text = setting("x_auth_token", "X-Auth-CouchDB-Token", Kind::Text), "header with the token";
        AUTHENTICATION_DB: Text = setting("authentication_db", "_users", Kind::Text), "database of user accounts";
        AUTHENTICATION_REDIRECT: Text = setting("authentication_redirect", "/_utils/session.html", Kind::Text), "path to which browsers are redirected to log in";
    }
    jwt_auth = "jwt_auth" {
        REQUIRED_CLAIMS: Text = setting("required_claims", "exp", Kind::Text), "required claims of tokens: names, and pairs such as {iss, \"https://example.com\"}; [] for none";
        ALLOWED_ALGORITHMS: Text = unset("allowed_algorithms", Kind::Text), "accepted signature algorithms of tokens, such as RS256, ES256; all by default";
        ROLES_CLAIM_NAME: Text = setting("roles_claim_name", "_couchdb.roles", Kind::Text), "claim that contains the roles";
        ROLES_CLAIM_PATH: Text = unset("roles_claim_path", Kind::Text), "the same for a nested claim: names separated by dots";
        JWKS_FILE: Text = unset("jwks_file", Kind::Text), "file with the public keys of an identity provider; changes take effect at once";
        JWKS_URL: Text = unset("jwks_url", Kind::Text), "URL of such keys";
        JWKS_REFRESH: Number = setting("jwks_refresh", "3600", Kind::Seconds), "interval between requests to this URL";
    }
    chttpd_auth_lockout = "chttpd_auth_lockout" {
        MODE: Text = setting("mode", "enforce", Kind::Word(&["off", "warn", "enforce"])), "handling of logins after too many failures";
        THRESHOLD: Number = setting("threshold", "5", COUNT), "number of failures, for one user and address";
        MAX_LIFETIME: Number = setting("max_lifetime", "300000", Kind::Milliseconds), "time for which failures count";
    }
    cors = "cors" {
        ORIGINS: Text = setting("origins", "", Kind::Text), "origins that may send requests, separated by commas; * for all";
        CREDENTIALS: Switch = setting("credentials", "false", Kind::Bool), "allow credentials of other origins";
        HEADERS: Text = setting("headers", COMMON_HEADERS, Kind::Text), "request headers that other origins may send";
        METHODS: Text = setting("methods", COMMON_METHODS, Kind::Text), "methods that other origins may use";
        EXPOSED_HEADERS: Text = setting("exposed_headers", "accept-ranges, etag, server, x-couch-request-id, x-couch-update-newrev, x-couchdb-body-time", Kind::Text), "response headers that pages of other origins may see";
        MAX_AGE: Number = setting("max_age", "600", Kind::Seconds), "time for which browsers may cache the answer";
    }
    x_frame_options = "x_frame_options" {
        SAME_ORIGIN: Switch = setting("same_origin", "false", Kind::Bool), "allow frames in all pages of the same origin";
        HOSTS: Text = setting("hosts", "", Kind::Text), "origins of this server whose own pages may show answers in a frame, separated by commas; * for all";
    }
    csp = "csp" {
        UTILS_ENABLE: Switch = setting("utils_enable", "true", Kind::Bool), "send a Content-Security-Policy with pages under /_utils";
        UTILS_HEADER_VALUE: Text = setting("utils_header_value", UTILS_POLICY, Kind::Text), "the policy of these pages";
        ATTACHMENTS_ENABLE: Switch = setting("attachments_enable", "true", Kind::Bool), "send a Content-Security-Policy with attachments, so that they cannot act in the name of this server";
        ATTACHMENTS_HEADER_VALUE: Text = setting("attachments_header_value", "sandbox", Kind::Text), "the policy of attachments";
        SHOWLIST_ENABLE: Switch = setting("showlist_enable", "true", Kind::Bool), "the same for answers of show and list functions";
        SHOWLIST_HEADER_VALUE: Text = setting("showlist_header_value", "sandbox", Kind::Text), "the policy of these answers";
    }
    rate_limit = "rate_limit" {
        REQUESTS_PER_SECOND: Number = setting("requests_per_second", "0", Kind::Limit), "average number of requests per second of one client; 0: no limit";
        BURST: Number = setting("burst", "0", Kind::Limit), "maximum number of requests at once; 0: twice the average";
        BY: Text = setting("by", "ip", Kind::Word(&["ip", "user"])), "identification of clients: by address, or by user (by address if unauthenticated)";
    }
    ssl = "ssl" {
        ENABLE: Switch = setting("enable", "false", Kind::Bool).at_start(), "listen for TLS additionally, on the address of [chttpd]";
        PORT: Number = setting("port", "6984", PORT_NUMBER).at_start(), "port to listen on for TLS";
        CERT_FILE: Text = unset("cert_file", Kind::Text), "certificate and its chain, in PEM; reloaded after changes";
        KEY_FILE: Text = unset("key_file", Kind::Text), "key of the certificate, in PEM and not encrypted; reloaded after changes";
        TLS_VERSIONS: Text = unset("tls_versions", Kind::Text).at_start(), "accepted versions; ['tlsv1.2', 'tlsv1.3'] by default";
        VERIFY_SSL_CERTIFICATES: Switch = setting("verify_ssl_certificates", "false", Kind::Bool).at_start(), "verify the certificates of clients";
        CACERT_FILE: Text = unset("cacert_file", Kind::Text).at_start(), "trusted authorities for certificates of clients, in PEM";
        FAIL_IF_NO_PEER_CERT: Switch = setting("fail_if_no_peer_cert", "false", Kind::Bool).at_start(), "reject clients without a certificate";
    }
    vendor = "vendor" {
        NAME: Text = setting("name", "Settee", Kind::Text), "name in the answer to GET /";
    }
    compaction_daemon = "compaction_daemon" {
        CHECK_INTERVAL: Number = setting("check_interval", "60", Kind::Seconds), "interval between checks of the databases for automatic compaction";
    }
    smoosh_ratio_dbs = "smoosh.ratio_dbs" {
        MIN_PRIORITY: Text = setting("min_priority", "2.0", Kind::Text), "compact a database if the ratio of all bodies to the current ones exceeds this";
        MIN_SIZE: Number = setting("min_size", "16777216", Kind::Limit), "minimum number of reclaimable bytes for a compaction; infinity: no automatic compaction";
    }
    view_updater = "view_updater" {
        CHECKPOINT_INTERVAL: Number = setting("checkpoint_interval", "10", Kind::Seconds), "interval between checkpoints of the first build of an index, from which it resumes after a crash";
        MAX_KEY_BYTES: Number = setting("max_key_bytes", "1048576", Kind::Integer(1, 1 << 30)).at_start(), "maximum size of an emitted key in bytes; a document that emits a larger one has no rows of this function, and a warning is logged";
        MAX_VALUE_BYTES: Number = setting("max_value_bytes", "16777216", Kind::Integer(1, 1 << 30)).at_start(), "the same for an emitted value";
        MAX_DOCUMENT_ROWS: Number = setting("max_document_rows", "1048576", Kind::Integer(1, u32::MAX as u64)).at_start(), "the same for the rows that one function emits for one document";
        MAX_DOCUMENT_BYTES: Number = setting("max_document_bytes", "67108864", Kind::Integer(1, 1 << 30)).at_start(), "the same for the bytes of these rows";
        MAX_REDUCTION_BYTES: Number = setting("max_reduction_bytes", "1048576", Kind::Integer(1, 1 << 30)).at_start(), "maximum size of a reduction in bytes; a larger one is a reduce_overflow_error";
        SORT_MEMORY_BYTES: Number = setting("sort_memory_bytes", "134217728", Kind::Integer(1 << 20, 1 << 40)).at_start(), "memory for emitted rows of one build; beyond it rows are sorted on disk";
    }
    ken = "ken" {
        ENABLED: Switch = setting("enabled", "true", Kind::Bool), "update indexes in the background";
        BATCH_CHANNELS: Number = setting("batch_channels", "1", COUNT).at_start(), "maximum number of concurrent updates, from the next start on";
        INCREMENTAL_CHANNELS: Number = setting("incremental_channels", "4", COUNT).at_start(), "maximum number of additional concurrent short updates, from the next start on";
        MAX_INCREMENTAL_UPDATES: Number = setting("max_incremental_updates", "1000", Kind::Limit), "maximum number of changes of a short update";
        DELAY: Number = setting("delay", "1000", Kind::Milliseconds), "delay between a change and the start of an update";
        CPU_PERCENT: Number = setting("cpu_percent", "50", Kind::Integer(1, 100)), "maximum CPU usage of each thread of a background build in percent";
        BYTES_PER_SECOND: Number = setting("bytes_per_second", "infinity", Kind::Limit), "maximum bytes of documents per second that each thread of a background build reads";
    }
    view_cleanup = "view_cleanup" {
        CHECK_INTERVAL: Number = setting("check_interval", "600", Kind::Seconds), "interval between searches for unused indexes";
        GRACE: Number = setting("grace", "3600", Kind::Seconds), "time for which unused indexes are kept";
    }
    global_changes = "global_changes" {
        UPDATE_DB: Switch = setting("update_db", "true", Kind::Bool), "store events for _db_updates, if the database _global_changes exists";
        MAX_WRITE_DELAY: Number = setting("max_write_delay", "500", Kind::Milliseconds), "maximum delay before events are written";
    }
    backup = "backup" {
        URL: Text = unset("url", Kind::Text).at_start(), "target of backups: s3://bucket/prefix, with a prefix for each server; no backups by default";
        ENDPOINT: Text = unset("endpoint", Kind::Text).at_start(), "server of the bucket, https://host:port; AWS by default";
        REGION: Text = unset("region", Kind::Text).at_start(), "region of the bucket; AWS_REGION or us-east-1 by default";
        ACCESS_KEY_ID: Text = unset("access_key_id", Kind::Text).at_start(), "access key of the bucket; AWS_ACCESS_KEY_ID by default";
        SECRET_ACCESS_KEY: Text = unset("secret_access_key", Kind::Text).at_start(), "secret of the access key; AWS_SECRET_ACCESS_KEY by default";
        CA_FILE: Text = unset("ca_file", Kind::Text).at_start(), "file of trusted certificates for the bucket, instead of the public authorities";
        KEY_FILE: Text = unset("key_file", Kind::Text).at_start(), "file of the encryption key, 64 hexadecimal digits; without the key nothing can be restored";
        INTERVAL: Number = setting("interval", "86400", COUNT).at_start(), "seconds between backups; each transfers only new data";
        FULL_INTERVAL: Number = setting("full_interval", "0", Kind::Seconds).at_start(), "seconds after which a backup transfers all data again; 0: never";
        KEEP: Number = setting("keep", "2592000", Kind::Seconds).at_start(), "time for which backups and their log are kept; the newest backup is always kept";
        LOG_INTERVAL: Number = setting("log_interval", "5", Kind::Seconds).at_start(), "interval of transfers of the commit log, for restores to a point in time; 0: no log";
    }
    replicator = "replicator" {
        MAX_JOBS: Number = setting("max_jobs", "500", COUNT), "maximum number of replications that run concurrently";
        INTERVAL: Number = setting("interval", "60000", Kind::Milliseconds), "interval of the scheduler, which exchanges running and waiting replications";
        MAX_CHURN: Number = setting("max_churn", "20", COUNT), "maximum number of replications that are exchanged in an interval";
        MAX_HISTORY: Number = setting("max_history", "20", COUNT), "number of events that are kept for a replication";
        HEALTH_THRESHOLD: Number = setting("health_threshold", "120", Kind::Seconds), "time of a run without a crash that resets the delay of retries";
        STARTUP_JITTER: Number = setting("startup_jitter", "5000", Kind::Milliseconds), "maximum random delay before a replication starts";
        UPDATE_DOCS: Switch = setting("update_docs", "false", Kind::Bool), "also store transient states in the documents";
        WORKER_PROCESSES: Number = setting("worker_processes", "4", COUNT), "maximum number of batches of a replication in flight";
        WORKER_BATCH_SIZE: Number = setting("worker_batch_size", "500", COUNT), "maximum number of changes in a batch";
        HTTP_CONNECTIONS: Number = setting("http_connections", "20", COUNT), "maximum number of connections of a replication to one peer";
        CONNECTION_TIMEOUT: Number = setting("connection_timeout", "30000", Kind::Milliseconds), "timeout of an unresponsive peer";
        RETRIES_PER_REQUEST: Number = setting("retries_per_request", "5", Kind::Limit), "maximum number of retries of a request to a peer";
        CHECKPOINT_INTERVAL: Number = setting("checkpoint_interval", "30000", Kind::Milliseconds), "interval between checkpoints of a replication";
        USE_CHECKPOINTS: Switch = setting("use_checkpoints", "true", Kind::Bool), "record checkpoints of replications";
        USE_BULK_GET: Switch = setting("use_bulk_get", "true", Kind::Bool), "fetch documents with _bulk_get";
        SOCKET_OPTIONS: Text = setting("socket_options", "[{keepalive, true}, {nodelay, true}]", Kind::Text), "options of sockets to peers; also recbuf and sndbuf";
        PRIVATE_ADDRESSES_FOR_USERS: Switch = setting("private_addresses_for_users", "false", Kind::Bool), "allow users other than admins to replicate with this machine and its network by URL";
        VERIFY_SSL_CERTIFICATES: Switch = setting("verify_ssl_certificates", "true", Kind::Bool), "reject peers with an untrusted certificate";
        SSL_TRUSTED_CERTIFICATES_FILE: Text = unset("ssl_trusted_certificates_file", Kind::Text), "trust these authorities (PEM) and no others";
        CERT_FILE: Text = unset("cert_file", Kind::Text), "client certificate for peers, in PEM";
        KEY_FILE: Text = unset("key_file", Kind::Text), "key of the client certificate, in PEM";
    }
    uuids = "uuids" {
        ALGORITHM: Text = setting("algorithm", "sequential", Kind::Word(&["sequential", "random", "utc_random", "utc_id", "uuid_v7"])), "algorithm of generated ids";
        UTC_ID_SUFFIX: Text = setting("utc_id_suffix", "", Kind::Text), "suffix of ids of utc_id; must be different on each node";
        MAX_COUNT: Number = setting("max_count", "1000", COUNT), "maximum number of ids in a _uuids request";
    }
    purge = "purge" {
        MAX_DOCUMENT_ID_NUMBER: Number = setting("max_document_id_number", "100", COUNT), "maximum number of documents in a _purge request";
        MAX_REVISIONS_NUMBER: Number = setting("max_revisions_number", "1000", COUNT), "maximum number of revisions in a _purge request";
    }
    storage = "storage" {
        URL: Text = unset("url", Kind::Text).at_start(), "location of the data, if not in the data directory: postgres://user:password@host/database (docs/operation/postgresql.md) or s3://bucket/prefix (docs/operation/object-storage.md)";
        CONNECTIONS: Number = setting("connections", "50", Kind::Integer(8, 10_000)).at_start(), "maximum number of connections to PostgreSQL";
        ENDPOINT: Text = unset("endpoint", Kind::Text).at_start(), "server of the bucket, https://host:port; that of the provider by default";
        REGION: Text = unset("region", Kind::Text).at_start(), "region of the bucket; AWS_REGION or us-east-1 by default";
        ACCESS_KEY_ID: Text = unset("access_key_id", Kind::Text).at_start(), "access key of the bucket, or account of Azure; AWS_ACCESS_KEY_ID and other variables of the provider by default";
        SECRET_ACCESS_KEY: Text = unset("secret_access_key", Kind::Text).at_start(), "secret of the access key; AWS_SECRET_ACCESS_KEY and other variables of the provider by default";
        CA_FILE: Text = unset("ca_file", Kind::Text).at_start(), "file of trusted certificates for the bucket, instead of the public authorities";
        GROUPS: Number = setting("groups", "16", Kind::Integer(1, 64)).at_start(), "number of groups of databases in a new bucket, each of which is served by one server; later changes have no effect";
        LEASE_MS: Number = setting("lease_ms", "3000", Kind::Integer(1_000, 600_000)).at_start(), "milliseconds without a heartbeat after which another server replaces the one that coordinates the servers on the bucket; three heartbeats are stored in this time";
        COMMIT_INTERVAL_MS: Number = setting("commit_interval_ms", "50", Kind::Integer(0, 10_000)).at_start(), "minimum milliseconds between two objects of the log in the bucket; limits the number of puts under continuous writes";
        FLUSH_INTERVAL_MS: Number = setting("flush_interval_ms", "1000", Kind::Integer(10, 60_000)).at_start(), "milliseconds after which writes without a sync, such as those of indexes, are stored in the bucket";
        HISTORY_HOURS: Number = setting("history_hours", "24", Kind::Integer(0, 8_784)).at_start(), "hours for which the bucket keeps replaced objects, so that `settee storage copy --at` can copy every earlier state; 0: about 15 minutes, without a guarantee";
        POLL_INTERVAL_MS: Number = setting("poll_interval_ms", "10000", Kind::Integer(100, 600_000)).at_start(), "milliseconds between two checks for compactions in the bucket; each check costs some requests, also if no data is written";
        TIMEOUT_MS: Number = setting("timeout_ms", "30000", Kind::Integer(1_000, 600_000)).at_start(), "milliseconds after which a request to the bucket is repeated, and a write that is not stored has an unknown outcome";
        CACHE_MB: Number = setting("cache_mb", "128", Kind::Integer(1, 1_000_000)).at_start(), "megabytes of memory for blocks that were read from the bucket";
        DISK_CACHE_MB: Number = setting("disk_cache_mb", "1024", Kind::Integer(0, 100_000_000)).at_start(), "megabytes of the data directory for objects that were read from the bucket; 0: none";
    }
    cluster = "cluster" {
        Q: Number = setting("q", "1", COUNT), "number of shards that is reported for a new database; a database has one";
        N: Number = setting("n", "1", COUNT).kept(), "number of copies that is reported for a new database; a database has one";
        NODE: Text = unset("node", Kind::Text).at_start(), "name of this node, different on each node of a store; by default settee@HOST, and nonode@nohost for a single node";
        ADDRESS: Text = unset("address", Kind::Text).at_start(), "URL at which other nodes reach this one, such as http://10.0.0.7:5984/; by default the address on which it listens";
        WRITER_GROUPS: Number = setting("writer_groups", "1", Kind::Integer(1, 64)).at_start(), "number of groups of databases that have a writing node of their own; nodes with another number take no writes while others with the former one run";
        SECRET: Text = unset("secret", Kind::Text), "secret with which nodes of a store authenticate to each other; generated by the first node";
    }
    log = "log" {
        LEVEL: Text = setting("level", "info", Kind::Word(&["debug", "info", "notice", "warning", "warn", "error", "critical", "crit", "alert", "emergency", "emerg", "none"])), "minimum level of log lines; notice has a line for each request";
        WRITER: Text = setting("writer", "stderr", Kind::Word(&["stderr", "file", "journald", "syslog"])), "target of log lines; journald is stderr with priorities for systemd";
        FILE: Text = setting("file", "{data}/settee.log", Kind::Text), "file of the writer file; recreated after it was moved";
        SYSLOG_HOST: Text = unset("syslog_host", Kind::Text), "collector of the writer syslog, which receives RFC 5424 over UDP; by default lines are written to stderr in that format";
        SYSLOG_PORT: Number = setting("syslog_port", "514", PORT_NUMBER), "port of the collector";
        SYSLOG_APPID: Text = setting("syslog_appid", "settee", Kind::Text), "name of this server in syslog";
        SYSLOG_FACILITY: Text = setting("syslog_facility", "local2", Kind::Text), "facility of all lines, by name or number";
        FORMAT: Text = setting("format", "text", Kind::Word(&["text", "json"])), "format of lines: CouchDB's, or a JSON object for each line; not for syslog";
        SLOW_REQUEST_MS: Number = setting("slow_request_ms", "10000", Kind::Milliseconds), "duration of a request beyond which a warning is logged; waiting feeds are exempt";
    }
    tracing = "tracing" {
        ENDPOINT: Text = setting("endpoint", "", Kind::Text).at_start(), "collector of OTLP over HTTP without TLS, such as http://127.0.0.1:4318";
        RATIO: Text = setting("ratio", "1.0", Kind::Text).at_start(), "fraction of the requests without a sampling decision that is traced, 0 to 1";
        SERVICE_NAME: Text = setting("service_name", "settee", Kind::Text).at_start(), "name of this server in traces";
    }
    query_server_config = "query_server_config" {
        REDUCE_LIMIT: Text = setting("reduce_limit", "true", Kind::Word(&["true", "false", "log"])), "reject reduce functions whose results are hardly smaller than their input";
        NATIVE_EVALUATOR: Switch = setting("native_evaluator", "true", Kind::Bool), "evaluate map functions of a common subset without a JavaScript engine; the results are the same";
        OS_PROCESS_LIMIT: Number = setting("os_process_limit", "100", COUNT), "maximum number of active processes of a query server";
        OS_PROCESS_SOFT_LIMIT: Number = setting("os_process_soft_limit", "100", Kind::Limit), "maximum number of idle processes of a query server";
        OS_PROCESS_IDLE_LIMIT: Number = setting("os_process_idle_limit", "300", Kind::Seconds), "timeout of an idle process";
        OS_PROCESS_MEMORY_LIMIT: Number = setting("os_process_memory_limit", "2147483648", Kind::Limit), "memory limit of a process of a query server in bytes";
        PROJECT_DOCUMENTS: Switch = setting("project_documents", "true", Kind::Bool), "send Python map functions only the members of documents that they read; the results are the same";
        CONFIGURE_OVER_HTTP: Switch = unset("configure_over_http", Kind::Bool), "allow administrators to change [query_servers] and [native_query_servers], which start programs, over HTTP; not settable over HTTP. By default allowed only without administrators";
        QUERY_LIMIT: Number = setting("query_limit", "576460752303423487", Kind::Limit), "maximum number of rows in the answer of a query of a view or of all documents";
        PARTITION_QUERY_LIMIT: Number = setting("partition_query_limit", "576460752303423487", Kind::Limit), "maximum number of rows in the answer of a query of a partition";
    }
    native_query_servers = "native_query_servers" {
        ENABLE_ERLANG_QUERY_SERVER: Switch = setting("enable_erlang_query_server", "false", Kind::Bool), "run design documents in Erlang, without a sandbox";
    }
    search = "search" {
        TIMEOUT_MS: Number = setting("timeout_ms", "60000", Kind::Milliseconds), "timeout of a search, including the wait for the update of its index; the update continues after the timeout";
        MAX_SEARCHES: Number = setting("max_searches", "8", Kind::Integer(1, 10_000)).at_start(), "maximum number of concurrent searches; further ones wait, and one account or address cannot use all permits";
        CACHE_BYTES: Number = setting("cache_bytes", "67108864", Kind::Limit).at_start(), "memory for the cache of search indexes in bytes";
        VECTOR_CACHE_BYTES: Number = setting("vector_cache_bytes", "536870912", Kind::Limit).at_start(), "memory for the vectors of search indexes in bytes, loaded by searches; vectors beyond it are read from the disk, which is slow";
    }
    nouveau = "nouveau" {
        ENABLE: Switch = setting("enable", "true", Kind::Bool), "enable text search, _nouveau and indexes of that type; no other program is needed";
    }
    dreyfus = "dreyfus" {
        ENABLE: Switch = setting("enable", "true", Kind::Bool), "enable the older text search, _search and indexes of the type text";
        LIMIT: Number = setting("limit", "25", COUNT), "default number of hits of a _search";
        LIMIT_PARTITIONS: Number = setting("limit_partitions", "2000", COUNT), "the same in a partitioned database";
        MAX_LIMIT: Number = setting("max_limit", "200", COUNT), "maximum number of hits of a _search";
        MAX_LIMIT_PARTITIONS: Number = setting("max_limit_partitions", "2000", COUNT), "the same in a partitioned database";
        MAX_GROUP_LIMIT: Number = setting("max_group_limit", "200", COUNT), "maximum number of groups of a _search";
    }
    per_doc_access = "per_doc_access" {
        ENABLE: Switch = setting("enable", "true", Kind::Bool), "allow the creation of databases in which lists in documents name their readers; has no effect on existing databases";
        REVEAL: Switch = setting("reveal", "false", Kind::Bool), "answer a read of an invisible document with 403 instead of 404, which reveals that it exists";
    }
    attachments = "attachments" {
        COMPRESSIBLE_TYPES: Text = setting("compressible_types", "text/*, application/javascript, application/json, application/xml", Kind::Text), "media types of attachments that are stored compressed";
        COMPRESSION_LEVEL: Number = setting("compression_level", "8", Kind::Integer(0, 9)), "zlib level of stored attachments; 0: no compression";
    }
}
