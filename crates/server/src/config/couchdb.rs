//! Names of CouchDB's settings that have no effect here and are not mistakes.

const COUCHDB_SETTINGS: &[(&str, &str)] = &[
    (
        "couchdb",
        "util_driver_dir plugin_dir file_compression attachment_stream_buffer_size btree_chunk_size \
         maintenance_mode stem_interactive_updates uri_file changes_doc_ids_optimization_threshold \
         max_database_name_length update_lru_on_read default_engine enable_database_recovery \
         single_node delayed_commits fsync_options js_engine write_xxhash_checksums cfile_skip_ioq \
         max_dbs_open_soft_limit backup_dir os_process_limit query_server_config \
         attachment_upload_timeout hash_algorithms",
    ),
    ("purge", "max_document_id_number max_revisions_number index_lag_warn_seconds"),
    ("cluster", "q n placement seedlist reconnect_interval_sec"),
    (
        "chttpd",
        "backlog socket_options server_options require_valid_user_except_for_up prefer_minimal \
         max_db_number_for_dbs_info_req buffer_response admin_only_all_dbs authentication_handlers docroot \
         server_header_versions disconnect_check_msec disconnect_check_jitter_msec changes_timeout \
         bulk_get_use_batches decode_plus_to_space secure_rewrites max_uri_length x_forwarded_host \
         x_forwarded_proto x_forwarded_ssl rewrite_limit allow_jsonp changes_stats_interval enable_cors \
         enable_xframe_options WWW-Authenticate max_http_request_size redirect_vhost_handler",
    ),
    (
        "httpd",
        "port bind_address authentication_handlers secure_rewrites allow_jsonp server_options socket_options \
         enable_cors enable_xframe_options max_uri_length changes_timeout config_whitelist rewrite_limit \
         x_forwarded_host x_forwarded_proto x_forwarded_ssl max_http_request_size WWW-Authenticate \
         default_handler vhost_global_handlers backlog log_max_chunk_size nodelay redirect_vhost_handler",
    ),
    ("chttpd_auth_cache", "max_lifetime max_objects max_size"),
    (
        "chttpd_auth",
        "authentication_db authentication_redirect auth_cache_size min_iterations max_iterations password_scheme \
         hash_algorithms pbkdf2_prf password_regexp upgrade_hash_on_auth cookie_domain same_site timeout secret \
         public_fields users_db_public",
    ),
    ("couch_httpd_auth", "auth_cache_size authentication_db authentication_redirect timeout secret iterations"),
    ("couch_peruser", "enable delete_dbs q database_prefix"),
    (
        "ssl",
        "ciphers secure_renegotiate cacert_file cert_file key_file password verify_fun ssl_certificate_max_depth \
         fail_if_no_peer_cert signature_algs ecc_curves",
    ),
    ("mem3", "nodes_db shard_cache_size shards_db sync_concurrency sync_delay sync_frequency"),
    (
        "fabric",
        "all_docs_concurrency changes_duration shard_timeout_factor shard_timeout_min_msec uuid_prefix_len \
         request_timeout all_docs_timeout attachments_timeout view_timeout partition_view_timeout",
    ),
    ("rexi", "buffer_count server_per_node stream_limit use_kill_all"),
    ("global_changes", "max_event_delay max_write_delay update_db"),
    ("view_updater", "min_writer_items min_writer_size"),
    ("view_compaction", "keyvalue_buffer_size"),
    ("database_compaction", "doc_buffer_size checkpoint_after"),
    ("compactions", "_default"),
    ("compaction_daemon", "check_interval min_file_size snooze_period_ms"),
    ("csp", "enable header_value utils_enable utils_header_value"),
    ("cors", "credentials origins headers methods exposed_headers max_age"),
    ("ddoc_cache", "max_size refresh_timeout"),
    ("x_frame_options", "same_origin hosts"),
    (
        "query_server_config",
        "commit_freq reduce_limit reduce_limit_threshold reduce_limit_ratio os_process_limit os_process_idle_limit \
         os_process_soft_limit group_info_timeout query_limit partition_query_limit rev_chunk_size \
         db_tag query_timeout",
    ),
    ("mango", "index_all_disabled default_limit index_scan_warning_threshold"),
    ("uuids", "algorithm utc_id_suffix max_count"),
    ("attachments", "compression_level compressible_types"),
    (
        "replicator",
        "max_jobs interval interval_sec max_churn max_acceptors accept_jitter min_run_time_sec \
         health_threshold_sec min_backoff_penalty_sec max_backoff_penalty_sec max_history update_docs \
         worker_processes worker_batch_size http_connections connection_timeout request_timeout \
         retries_per_request use_checkpoints checkpoint_interval socket_options valid_socket_options \
         valid_endpoint_protocols valid_proxy_protocols cert_file key_file password verify_ssl_certificates \
         ssl_trusted_certificates_file ssl_certificate_max_depth max_document_id_length missing_doc_retry_msec \
         auth_plugins session_refresh_interval_sec startup_jitter cluster_start_period cluster_quiet_period \
         usage_coeff priority_coeff use_bulk_get stats_update_interval_sec valid_endpoint_protocols_log",
    ),
    ("replicator.shares", "_default _replicator"),
    (
        "log",
        "level writer max_message_size file write_buffer write_delay syslog_host syslog_port syslog_appid \
         syslog_facility syslog_enterprise_number report_level error_level stacktrace_depth strip_last_msg \
         filter_fields include_sasl",
    ),
    ("stats", "interval"),
    ("ioq", "concurrency ratio"),
    ("dreyfus", "name retry_limit limit limit_partitions max_limit max_limit_partitions"),
    ("nouveau", "enable url max_sessions max_pipeline_size"),
    (
        "reshard",
        "max_jobs max_history max_retries retry_interval_sec delete_source update_shard_map_timeout_sec \
         source_close_timeout_sec require_node_param require_range_param state_dir",
    ),
    ("prometheus", "additional_port bind_address port"),
    ("ken", "batch_channels incremental_channels limit max_incremental_updates prioritize_bypass"),
    ("smoosh", "db_channels view_channels cleanup_channels persist staleness cleanup_index_files wait_secs"),
    ("couchdb_engines", "couch"),
    ("vendor", "name version"),
    ("couch_stats", "interval"),
    ("custodian", "use_custodian"),
    ("disk_monitor", "enable background_view_indexing_threshold interactive_database_writes_threshold"),
    ("feature_flags", ""),
];

/// Sections whose keys are user-defined names, or that belong to features this server lacks.
const USER_NAMED_SECTIONS: &[&str] = &[
    "admins",
    "jwt_keys",
    "query_servers",
    "native_query_servers",
    "vhosts",
    "daemons",
    "os_daemons",
    "os_daemon_settings",
    "external",
    "httpd_global_handlers",
    "httpd_db_handlers",
    "httpd_design_handlers",
    "update_notification",
    "couchdb_engines",
    "feature_flags",
    "process_priority",
    "indexers",
    "couch_eval.languages",
    "user_agents",
    "stats.descriptions",
    "compactions",
];

const USER_NAMED_PREFIXES: &[&str] =
    &["cors:", "smoosh.", "ioq.", "tracing.", "ioq2", "couch_scanner", "nouveau.", "replicator."];

pub(super) fn is_known(section: &str, key: &str) -> bool {
    is_user_named(section) || keys(section).any(|known| known == key)
}

pub(super) fn is_user_named(section: &str) -> bool {
    USER_NAMED_SECTIONS.contains(&section) || USER_NAMED_PREFIXES.iter().any(|part| section.starts_with(part))
}

pub(super) fn sections() -> impl Iterator<Item = &'static str> {
    COUCHDB_SETTINGS.iter().map(|(section, _)| *section).chain(USER_NAMED_SECTIONS.iter().copied())
}

pub(super) fn keys(section: &str) -> impl Iterator<Item = &'static str> + use<> {
    let keys = COUCHDB_SETTINGS.iter().find(|(known, _)| *known == section).map_or("", |(_, keys)| keys);
    keys.split_ascii_whitespace()
}
