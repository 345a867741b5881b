//! Names of the numbers: CouchDB's paths and descriptions where a number has the same meaning.

use settee_auth::PasswordChecks;
use settee_database::{Catalog, Counters};
use settee_replication::{Counter, Replicator, Tally};

use super::{Count, METHODS, Measure, Metrics, Totals};
use crate::operation::Operation;

#[derive(Clone, Copy)]
pub(crate) enum Source {
    Requests,
    Method(usize),
    Status(u16),
    Count(Count),
    Measure(Measure),
    Databases(fn(&Counters) -> u64),
    Passwords(fn(&PasswordChecks) -> u64),
    Watching,
    OpenDatabases,
    OpenFiles,
    Replications(fn(&settee_replication::Counters) -> &Counter),
    Jobs(fn(&Tally) -> u64),
    Logged(&'static str),
}

pub(crate) struct Figures<'a> {
    pub(crate) catalog: &'a Catalog,
    pub(crate) metrics: &'a Metrics,
    pub(crate) operation: &'a Operation,
    pub(crate) passwords: &'a PasswordChecks,
    /// `None` before replication has started.
    pub(crate) replicator: Option<&'a Replicator>,
}

#[derive(Clone, Copy)]
pub(crate) struct Stat {
    pub(crate) path: [&'static str; 3],
    pub(crate) desc: &'static str,
    pub(crate) source: Source,
}

impl Stat {
    const fn new(path: [&'static str; 3], desc: &'static str, source: Source) -> Self {
        Self { path, desc, source }
    }

    pub(crate) fn segments(&self) -> impl Iterator<Item = &'static str> {
        self.path.into_iter().filter(|segment| !segment.is_empty())
    }

    pub(crate) fn is_gauge(&self) -> bool {
        matches!(self.source, Source::Watching | Source::OpenDatabases | Source::OpenFiles | Source::Jobs(_))
    }

    /// Returns the type in `_stats`. CouchDB reports other gauges as counters there.
    pub(crate) fn reported_kind(&self) -> &'static str {
        if matches!(self.source, Source::Jobs(_)) { "gauge" } else { "counter" }
    }

    pub(crate) fn measure(&self) -> Option<Measure> {
        match self.source {
            Source::Measure(measure) => Some(measure),
            _ => None,
        }
    }

    pub(crate) fn number(&self, figures: &Figures<'_>, totals: &Totals) -> u64 {
        match self.source {
            Source::Requests => totals.requests(),
            Source::Method(method) => totals.method(method),
            Source::Status(status) => totals.status(status),
            Source::Count(count) => totals.count(count),
            Source::Measure(measure) => totals.measure(measure).count(),
            Source::Databases(read) => read(figures.catalog.counters()),
            Source::Passwords(read) => read(figures.passwords),
            Source::Watching => figures.metrics.watching(),
            Source::OpenDatabases => figures.catalog.open_databases().len() as u64,
            Source::OpenFiles => (figures.operation.process)().open_files,
            Source::Replications(read) => figures.replicator.map_or(0, |replicator| read(replicator.counters()).get()),
            Source::Jobs(read) => figures.replicator.map_or(0, |replicator| read(&replicator.tally())),
            Source::Logged(level) => {
                (figures.operation.log_lines)().iter().find(|(own, _)| *own == level).map_or(0, |(_, count)| *count)
            }
        }
    }
}

const STATUSES: [(u16, &str, &str); 26] = [
    (200, "200", "number of HTTP 200 OK responses"),
    (201, "201", "number of HTTP 201 Created responses"),
    (202, "202", "number of HTTP 202 Accepted responses"),
    (204, "204", "number of HTTP 204 No Content responses"),
    (206, "206", "number of HTTP 206 Partial Content"),
    (301, "301", "number of HTTP 301 Moved Permanently responses"),
    (302, "302", "number of HTTP 302 Found responses"),
    (304, "304", "number of HTTP 304 Not Modified responses"),
    (400, "400", "number of HTTP 400 Bad Request responses"),
    (401, "401", "number of HTTP 401 Unauthorized responses"),
    (403, "403", "number of HTTP 403 Forbidden responses"),
    (404, "404", "number of HTTP 404 Not Found responses"),
    (405, "405", "number of HTTP 405 Method Not Allowed responses"),
    (406, "406", "number of HTTP 406 Not Acceptable responses"),
    (409, "409", "number of HTTP 409 Conflict responses"),
    (412, "412", "number of HTTP 412 Precondition Failed responses"),
    (413, "413", "number of HTTP 413 Request Entity Too Long responses"),
    (414, "414", "number of HTTP 414 Request URI Too Long responses"),
    (415, "415", "number of HTTP 415 Unsupported Media Type responses"),
    (416, "416", "number of HTTP 416 Requested Range Not Satisfiable responses"),
    (417, "417", "number of HTTP 417 Expectation Failed responses"),
    (429, "429", "number of HTTP 429 Too Many Requests responses"),
    (500, "500", "number of HTTP 500 Internal Server Error responses"),
    (501, "501", "number of HTTP 501 Not Implemented responses"),
    (503, "503", "number of HTTP 503 Service unavailable responses"),
    (507, "507", "number of HTTP 507 Insufficient Storage responses"),
];

const METHOD_TEXTS: [&str; METHODS.len() - 1] = [
    "number of HTTP COPY requests",
    "number of HTTP DELETE requests",
    "number of HTTP GET requests",
    "number of HTTP HEAD requests",
    "number of HTTP OPTIONS requests",
    "number of HTTP POST requests",
    "number of HTTP PUT requests",
];

#[rustfmt::skip] // One line is one number: it is read as a table.
const PLAIN: &[Stat] = &[
    Stat::new(["couchdb", "database_writes", ""], "number of times a database was changed", Source::Databases(|c| c.commits.get())),
    Stat::new(["couchdb", "database_reads", ""], "number of times a document was read from a database", Source::Databases(|c| c.reads.get())),
    Stat::new(["couchdb", "document_inserts", ""], "number of documents inserted", Source::Databases(|c| c.inserted.get())),
    Stat::new(["couchdb", "document_writes", ""], "number of document write operations", Source::Databases(|c| c.written.get())),
    Stat::new(["couchdb", "local_document_writes", ""], "number of _local document write operations", Source::Databases(|c| c.local_written.get())),
    Stat::new(["couchdb", "document_purges", "total"], "number of total document purge operations", Source::Databases(|c| c.purges.get())),
    Stat::new(["couchdb", "document_purges", "success"], "number of successful document purge operations", Source::Databases(|c| c.purged.get())),
    Stat::new(["couchdb", "document_purges", "failure"], "number of failed document purge operations", Source::Databases(|c| c.purges.get().saturating_sub(c.purged.get()))),
    Stat::new(["couchdb", "commits", ""], "number of commits performed", Source::Databases(|c| c.commits.get())),
    Stat::new(["couchdb", "auth_cache_hits", ""], "number of authentication cache hits", Source::Count(Count::AuthCacheHits)),
    Stat::new(["couchdb", "auth_cache_misses", ""], "number of authentication cache misses", Source::Count(Count::AuthCacheMisses)),
    Stat::new(["couchdb", "password_hashing_fast", ""], "number of fast password hashing operations", Source::Passwords(PasswordChecks::fast)),
    Stat::new(["couchdb", "password_hashing_slow", ""], "number of slow password hashing operations", Source::Passwords(PasswordChecks::slow)),
    Stat::new(["couchdb", "open_databases", ""], "number of open databases", Source::OpenDatabases),
    Stat::new(["couchdb", "open_os_files", ""], "number of file descriptors CouchDB has open", Source::OpenFiles),
    Stat::new(["couchdb", "request_time", ""], "length of a request inside CouchDB without MochiWeb", Source::Measure(Measure::Request)),
    Stat::new(["couchdb", "dbinfo", ""], "distribution of latencies for calls to retrieve DB info", Source::Measure(Measure::DatabaseInfo)),
    Stat::new(["couchdb", "httpd", "requests"], "number of HTTP requests", Source::Requests),
    Stat::new(["couchdb", "httpd", "bulk_docs"], "distribution of the number of docs in _bulk_docs requests", Source::Measure(Measure::BulkDocs)),
    Stat::new(["couchdb", "httpd", "bulk_requests"], "number of bulk requests", Source::Count(Count::BulkRequests)),
    Stat::new(["couchdb", "httpd", "view_reads"], "number of view reads", Source::Count(Count::ViewReads)),
    Stat::new(["couchdb", "httpd", "temporary_view_reads"], "number of temporary view reads", Source::Count(Count::TemporaryViewReads)),
    Stat::new(["couchdb", "httpd", "clients_requesting_changes"], "number of clients for continuous _changes", Source::Watching),
    Stat::new(["couchdb", "httpd", "purge_requests"], "number of purge requests", Source::Count(Count::PurgeRequests)),
    Stat::new(["couchdb", "httpd", "abandoned_streaming_requests"], "number of abandoned streaming requests", Source::Count(Count::Abandoned)),
    Stat::new(["couchdb", "httpd", "partition_view_requests"], "number of partition HTTP view requests", Source::Count(Count::PartitionViews)),
    Stat::new(["couchdb", "httpd", "partition_find_requests"], "number of partition HTTP _find requests", Source::Count(Count::PartitionFinds)),
    Stat::new(["couchdb", "httpd", "partition_explain_requests"], "number of partition HTTP _explain requests", Source::Count(Count::PartitionExplains)),
    Stat::new(["couchdb", "httpd", "partition_all_docs_requests"], "number of partition HTTP _all_docs requests", Source::Count(Count::PartitionAllDocs)),
    Stat::new(["couchdb", "query_server", "vdu_rejects"], "number of rejections by validate_doc_update function", Source::Count(Count::VduRejects)),
    Stat::new(["couch_replicator", "requests", ""], "number of HTTP requests made by the replicator", Source::Replications(|c| &c.requests)),
    Stat::new(["couch_replicator", "responses", "success"], "number of successful HTTP responses received by the replicator", Source::Replications(|c| &c.responses)),
    Stat::new(["couch_replicator", "responses", "failure"], "number of failed HTTP responses received by the replicator", Source::Replications(|c| &c.failed_responses)),
    Stat::new(["couch_replicator", "stream_responses", "success"], "number of successful streaming HTTP responses received by the replicator", Source::Replications(|c| &c.streams)),
    Stat::new(["couch_replicator", "stream_responses", "failure"], "number of failed streaming HTTP responses received by the replicator", Source::Replications(|c| &c.failed_streams)),
    Stat::new(["couch_replicator", "checkpoints", "success"], "number of checkpoints successfully saved", Source::Replications(|c| &c.checkpoints)),
    Stat::new(["couch_replicator", "checkpoints", "failure"], "number of failed checkpoint saves", Source::Replications(|c| &c.failed_checkpoints)),
    Stat::new(["couch_replicator", "failed_starts", ""], "number of replications that have failed to start", Source::Replications(|c| &c.failed_starts)),
    Stat::new(["couch_replicator", "changes_read_failures", ""], "number of failed replicator changes reads", Source::Replications(|c| &c.failed_changes)),
    Stat::new(["couch_replicator", "workers_started", ""], "number of replicator workers started", Source::Replications(|c| &c.workers)),
    Stat::new(["couch_replicator", "docs", "completed_state_updates"], "number of 'completed' state document updates", Source::Replications(|c| &c.documents_completed)),
    Stat::new(["couch_replicator", "docs", "failed_state_updates"], "number of 'failed' state document updates", Source::Replications(|c| &c.documents_failed)),
    Stat::new(["couch_replicator", "jobs", "adds"], "number of jobs added to replicator scheduler", Source::Replications(|c| &c.jobs_added)),
    Stat::new(["couch_replicator", "jobs", "duplicate_adds"], "number of duplicate jobs added to replicator scheduler", Source::Replications(|c| &c.jobs_doubled)),
    Stat::new(["couch_replicator", "jobs", "removes"], "number of jobs removed from replicator scheduler", Source::Replications(|c| &c.jobs_removed)),
    Stat::new(["couch_replicator", "jobs", "starts"], "number of jobs started by replicator scheduler", Source::Replications(|c| &c.jobs_started)),
    Stat::new(["couch_replicator", "jobs", "stops"], "number of jobs stopped by replicator scheduler", Source::Replications(|c| &c.jobs_stopped)),
    Stat::new(["couch_replicator", "jobs", "crashes"], "number of job crashes noticed by replicator scheduler", Source::Replications(|c| &c.jobs_crashed)),
    Stat::new(["couch_replicator", "jobs", "total"], "total number of replicator scheduler jobs", Source::Jobs(|jobs| jobs.total)),
    Stat::new(["couch_replicator", "jobs", "running"], "replicator scheduler running jobs", Source::Jobs(|jobs| jobs.running)),
    Stat::new(["couch_replicator", "jobs", "pending"], "replicator scheduler pending jobs", Source::Jobs(|jobs| jobs.pending)),
    Stat::new(["couch_replicator", "jobs", "crashed"], "replicator scheduler crashed jobs", Source::Jobs(|jobs| jobs.crashed)),
    Stat::new(["mango", "unindexed_queries", ""], "number of mango queries that could not use an index", Source::Count(Count::MangoUnindexed)),
    Stat::new(["mango", "too_many_docs_scanned", ""], "number of mango queries that generated an index scan warning", Source::Count(Count::MangoManyScanned)),
    Stat::new(["mango", "keys_examined", ""], "number of keys examined by mango queries coordinated by this node", Source::Count(Count::MangoKeysExamined)),
    Stat::new(["mango", "docs_examined", ""], "number of documents examined by mango queries coordinated by this node", Source::Count(Count::MangoDocsExamined)),
    Stat::new(["mango", "results_returned", ""], "number of rows returned by mango queries", Source::Count(Count::MangoResults)),
    Stat::new(["mango", "query_time", ""], "length of time processing a mango query", Source::Measure(Measure::Find)),
    Stat::new(["nouveau", "search_latency", ""], "length of a search of either form, with bringing its index up to date", Source::Measure(Measure::Search)),
    Stat::new(["settee", "view_time", ""], "length of a view query, with bringing its index up to date", Source::Measure(Measure::View)),
    Stat::new(["settee", "requests_forwarded", ""], "number of requests that were forwarded to the writer of their database", Source::Count(Count::Forwarded)),
    Stat::new(["settee", "slow_requests", ""], "number of requests that took longer than [log] slow_request_ms", Source::Count(Count::SlowRequests)),
];

const LEVELS: [(&str, &str); 8] = [
    ("debug", "number of logged debug messages"),
    ("info", "number of logged info messages"),
    ("notice", "number of logged notice messages"),
    ("warning", "number of logged warning messages"),
    ("error", "number of logged error messages"),
    ("critical", "number of logged critical messages"),
    ("alert", "number of logged alert messages"),
    ("emergency", "number of logged emergency messages"),
];

pub(crate) fn stats() -> Vec<Stat> {
    let methods = METHODS.into_iter().zip(METHOD_TEXTS).enumerate().map(|(index, (name, desc))| {
        Stat::new(["couchdb", "httpd_request_methods", name], desc, Source::Method(index))
    });
    let statuses = STATUSES
        .into_iter()
        .map(|(status, name, desc)| Stat::new(["couchdb", "httpd_status_codes", name], desc, Source::Status(status)));
    let levels =
        LEVELS.into_iter().map(|(level, desc)| Stat::new(["couch_log", "level", level], desc, Source::Logged(level)));
    let mut all: Vec<Stat> = PLAIN.iter().copied().chain(methods).chain(statuses).chain(levels).collect();
    all.sort_by_key(|stat| stat.path);
    all
}
