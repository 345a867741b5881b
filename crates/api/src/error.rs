//! [`Error`]: the single mapping of errors to status, name and reason.

use std::borrow::Cow;
use std::ops::Deref;

use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::HeaderValue;
use settee_auth::jwt::{JwtError, KeyError};
use settee_auth::user_document::PasswordRefused;
use settee_auth::{AuthError, InvalidHeader, MalformedCookie};
use settee_database::{DatabaseError, StorageError};
use settee_design::{CallError, CompileError, RunError};
use settee_mango::{MangoError, Refusal};
use settee_model::json::{Json, JsonError, ObjectWriter};
use settee_model::partition::{IllegalPartition, InvalidPartitionedId};
use settee_model::{AttachmentError, DocumentError, DocumentErrorKind, InvalidRev};
use settee_replication::{EndpointError, Failure, PeerError, ReplicateError, SpecError};
use settee_search::SearchError;
use settee_service::MalformedSecurity;
use settee_settings::SettingsError;
use settee_threads::Failed;
use settee_views::ViewError;
use settee_wire::multipart::MultipartError;

#[derive(Clone, Debug)]
pub struct Error(settee_edge::Error);

impl Error {
    pub fn new(status: StatusCode, name: impl Into<Cow<'static, str>>, reason: impl Into<Cow<'static, str>>) -> Self {
        Self(settee_edge::Error::new(status, name, reason))
    }

    pub(crate) fn write_members(&self, object: &mut ObjectWriter<'_>) {
        object.string("error", &self.name);
        match &self.json_reason {
            Some(value) => object.json("reason", value),
            None => object.string("reason", &self.reason),
        };
    }

    fn with_json_reason(mut self, reason: &Json) -> Self {
        self.0.json_reason = Some(Bytes::copy_from_slice(reason.as_bytes()));
        self
    }

    pub fn bad_request(reason: impl Into<Cow<'static, str>>) -> Self {
        Self(settee_edge::Error::bad_request(reason))
    }

    pub fn query_parse(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "query_parse_error", reason)
    }

    pub fn not_found(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", reason)
    }

    pub fn conflict() -> Self {
        Self::new(StatusCode::CONFLICT, "conflict", "Document update conflict.")
    }

    pub fn unauthorized(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "unauthorized", reason)
    }

    pub fn forbidden(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "forbidden", reason)
    }

    /// Returns 405; `allow` lists the methods in CouchDB's order.
    pub fn method_not_allowed(allow: &'static str) -> Self {
        let mut error =
            Self::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", format!("Only {allow} allowed"));
        error.0.headers.push((hyper::header::ALLOW, HeaderValue::from_static(allow)));
        error
    }

    pub(crate) fn not_acceptable(reason: &'static str) -> Self {
        Self::new(StatusCode::NOT_ACCEPTABLE, "not_acceptable", reason)
    }

    pub fn bad_content_type(expected: &str) -> Self {
        settee_edge::Error::bad_encoding(format!("Content-Type must be {expected}")).into()
    }

    /// Returns 503 because the storage server does not respond. Another node may reach it.
    pub(crate) fn no_store(why: &str) -> Self {
        Self::for_now(format!("the store cannot be reached: {why}"))
    }

    /// Returns 503 because no node is the writer of the database at the moment. Nothing was written.
    pub(crate) fn no_writer() -> Self {
        Self::for_now("no node is the writer of this database at the moment".to_owned())
    }

    /// Returns 503 because the node to which a write was forwarded has failed, possibly after the commit.
    pub(crate) fn in_doubt(node: &str) -> Self {
        Self::for_now(format!("node {node} does not answer: the outcome of the write is unknown"))
    }

    fn for_now(reason: String) -> Self {
        Self(settee_edge::Error::for_now(reason))
    }

    pub fn not_implemented(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::NOT_IMPLEMENTED, "not_implemented", reason)
    }

    /// Returns 500 for corrupt data, under CouchDB's name.
    fn damaged(reason: String) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "file_corruption", reason)
    }

    /// Returns 500 for failures that no client can fix. The caller logs the cause.
    pub fn internal(reason: impl Into<Cow<'static, str>>) -> Self {
        Self(settee_edge::Error::internal(reason))
    }
}

impl Deref for Error {
    type Target = settee_edge::Error;

    fn deref(&self) -> &settee_edge::Error {
        &self.0
    }
}

impl From<settee_edge::Error> for Error {
    fn from(error: settee_edge::Error) -> Self {
        Self(error)
    }
}

impl From<Error> for settee_edge::Error {
    fn from(error: Error) -> Self {
        error.0
    }
}

impl From<StorageError> for Error {
    fn from(error: StorageError) -> Self {
        match error {
            StorageError::Full(_) => {
                Self::new(StatusCode::INSUFFICIENT_STORAGE, "insufficient_storage", error.to_string())
            }
            StorageError::TooLarge(_) => {
                Self::new(StatusCode::PAYLOAD_TOO_LARGE, "document_too_large", error.to_string())
            }
            StorageError::Corrupt(_) | StorageError::Present(_) => Self::damaged(error.to_string()),
            StorageError::Unreached(why) => Self::no_store(&why),
            // The request is valid: the client reads the current state and retries it.
            StorageError::InDoubt(_) | StorageError::Interrupted(_) => Self::for_now(error.to_string()),
            StorageError::Deposed => Self::no_writer(),
            StorageError::Io(_) | StorageError::Poisoned(_) | StorageError::Dropped | StorageError::WouldBlock => {
                Self::internal(error.to_string())
            }
        }
    }
}

impl From<DatabaseError> for Error {
    fn from(error: DatabaseError) -> Self {
        let reason = error.to_string();
        match error {
            DatabaseError::NotFound => Self::not_found(reason),
            DatabaseError::Exists => Self::new(StatusCode::PRECONDITION_FAILED, "file_exists", reason),
            DatabaseError::IllegalName(_) => Self::new(StatusCode::BAD_REQUEST, "illegal_database_name", reason),
            DatabaseError::NameTooLong(_) => Self::new(StatusCode::BAD_REQUEST, "database_name_too_long", reason),
            DatabaseError::Storage(error) => error.into(),
            DatabaseError::Corrupt(_) => Self::damaged(reason),
            DatabaseError::Cancelled(_) => Self::new(StatusCode::SERVICE_UNAVAILABLE, "service_unavailable", reason),
        }
    }
}

impl From<JsonError> for Error {
    fn from(_: JsonError) -> Self {
        // CouchDB returns the same reason for every text that it cannot parse.
        Self::bad_request("invalid UTF-8 JSON")
    }
}

impl From<Failed> for Error {
    fn from(failed: Failed) -> Self {
        Self(failed.into())
    }
}

impl From<settee_service::Error> for Error {
    fn from(error: settee_service::Error) -> Self {
        use settee_service::Error as Cause;
        let reason = error.to_string();
        match error {
            Cause::Database(error) => error.into(),
            Cause::Attachment(error) => error.into(),
            Cause::Rev(error) => error.into(),
            Cause::AccessList(_) => Self::new(StatusCode::BAD_REQUEST, "doc_validation", reason),
            Cause::Compile(error) => error.into(),
            Cause::Call(error) => error.into(),
            Cause::Password(error) => error.into(),
            Cause::Unauthorized(_) => Self::unauthorized(reason),
            Cause::Forbidden(_) => Self::forbidden(reason),
            Cause::Conflict => Self::conflict(),
            Cause::PartitionOverflow(_) => Self::new(StatusCode::FORBIDDEN, "partition_overflow", reason),
            Cause::Missing | Cause::Deleted | Cause::MissingFunction(_) => Self::not_found(reason),
            Cause::UnknownLanguage(_) => Self::new(StatusCode::INTERNAL_SERVER_ERROR, "unknown_query_language", reason),
            Cause::TooManyCalls => Self::new(StatusCode::SERVICE_UNAVAILABLE, "service_unavailable", reason),
            Cause::TooManyLogins => Self::new(StatusCode::TOO_MANY_REQUESTS, "too_many_requests", reason),
            Cause::Internal(_) => Self::internal(reason),
        }
    }
}

impl From<InvalidRev> for Error {
    fn from(error: InvalidRev) -> Self {
        Self::bad_request(error.to_string())
    }
}

impl From<DocumentError> for Error {
    fn from(error: DocumentError) -> Self {
        let name = match error.kind() {
            DocumentErrorKind::BadRequest => "bad_request",
            DocumentErrorKind::IllegalDocid => "illegal_docid",
            DocumentErrorKind::DocValidation => "doc_validation",
        };
        Self::new(StatusCode::BAD_REQUEST, name, error.to_string())
    }
}

impl From<AttachmentError> for Error {
    fn from(error: AttachmentError) -> Self {
        Self::bad_request(error.to_string())
    }
}

impl From<MultipartError> for Error {
    fn from(error: MultipartError) -> Self {
        Self::bad_request(error.to_string())
    }
}

impl From<IllegalPartition> for Error {
    fn from(error: IllegalPartition) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "illegal_partition", error.to_string())
    }
}

impl From<InvalidPartitionedId> for Error {
    fn from(error: InvalidPartitionedId) -> Self {
        match error {
            InvalidPartitionedId::NoPartition => Self::new(StatusCode::BAD_REQUEST, "illegal_docid", error.to_string()),
            InvalidPartitionedId::Partition(error) => error.into(),
            InvalidPartitionedId::Id(error) => error.into(),
        }
    }
}

impl From<AuthError> for Error {
    fn from(error: AuthError) -> Self {
        let reason = error.to_string();
        match error {
            AuthError::Incorrect => Self::unauthorized(reason),
            AuthError::LockedOut
            | AuthError::IterationsTooLow
            | AuthError::IterationsTooHigh
            | AuthError::InvalidPrf => Self::forbidden(reason),
        }
    }
}

impl From<MalformedSecurity> for Error {
    fn from(error: MalformedSecurity) -> Self {
        match error {
            MalformedSecurity::NoObject => Self::bad_request(error.to_string()),
            // CouchDB's shards refuse the object without a reason.
            MalformedSecurity::NoGroup(_) | MalformedSecurity::NoList(_) => {
                Self::new(StatusCode::INTERNAL_SERVER_ERROR, "error", error.to_string())
            }
        }
    }
}

impl From<InvalidHeader> for Error {
    fn from(error: InvalidHeader) -> Self {
        Self::bad_request(error.to_string())
    }
}

impl From<MalformedCookie> for Error {
    fn from(error: MalformedCookie) -> Self {
        Self::bad_request(error.to_string())
    }
}

impl From<JwtError> for Error {
    fn from(error: JwtError) -> Self {
        match error {
            JwtError::BadRequest(reason) => Self::bad_request(reason),
            JwtError::Unauthorized(reason) => Self::unauthorized(reason),
            JwtError::NotFound(reason) => Self::not_found(reason),
        }
    }
}

impl From<KeyError> for Error {
    fn from(error: KeyError) -> Self {
        Self::bad_request(error.to_string())
    }
}

impl From<PasswordRefused> for Error {
    fn from(error: PasswordRefused) -> Self {
        let reason = error.to_string();
        match error {
            PasswordRefused::NoText(_) | PasswordRefused::Misconfigured => Self::forbidden(reason),
            PasswordRefused::Unfit(_) => Self::bad_request(reason),
        }
    }
}

impl From<SettingsError> for Error {
    fn from(error: SettingsError) -> Self {
        let reason = error.to_string();
        match error {
            SettingsError::Unknown => Self::not_found(reason),
            SettingsError::Invalid(_) => Self::bad_request(reason),
            SettingsError::File(_) => Self::internal(reason),
            SettingsError::Unavailable(_) => Self::for_now(reason),
        }
    }
}

impl From<CompileError> for Error {
    fn from(error: CompileError) -> Self {
        match error {
            CompileError::Source(reason) => Self::new(StatusCode::BAD_REQUEST, "compilation_error", reason),
            CompileError::Unavailable(reason) => Self::internal(reason),
        }
    }
}

impl From<RunError> for Error {
    fn from(error: RunError) -> Self {
        match error {
            RunError::Fatal { name, reason } => Self::new(StatusCode::INTERNAL_SERVER_ERROR, name, reason),
            RunError::Machinery(reason) => Self::new(StatusCode::INTERNAL_SERVER_ERROR, "os_process_error", reason),
        }
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        Self::new(StatusCode::BAD_REQUEST, refusal.name(), refusal.to_string())
    }
}

impl From<MangoError> for Error {
    fn from(error: MangoError) -> Self {
        let reason = error.to_string();
        match error {
            MangoError::Refused(refusal) => refusal.into(),
            MangoError::NoSuchIndex => Self::not_found(reason),
            MangoError::ServiceUnavailable(_) => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "required index service unavailable", reason)
            }
            MangoError::DesignConflict => Self::new(StatusCode::INTERNAL_SERVER_ERROR, "error_saving_ddoc", reason),
            MangoError::Database(error) => error.into(),
            MangoError::View(error) => error.into(),
            MangoError::Search(error) => error.into(),
        }
    }
}

impl From<ReplicateError> for Error {
    fn from(error: ReplicateError) -> Self {
        let reason = error.to_string();
        match error {
            ReplicateError::Spec(SpecError::Endpoint(EndpointError::InvalidUrl | EndpointError::InvalidProxy)) => {
                Self::new(StatusCode::BAD_REQUEST, "invalid_replication", reason)
            }
            ReplicateError::Spec(_) | ReplicateError::Transport(_) => Self::bad_request(reason),
            ReplicateError::Id(_) | ReplicateError::NotFound => Self::not_found(reason),
            ReplicateError::NotYours => Self::unauthorized(reason),
            ReplicateError::Failed(failure) => failure.into(),
            ReplicateError::Cancelled => Self::new(StatusCode::INTERNAL_SERVER_ERROR, "cancelled", reason),
        }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        let reason = failure.to_string();
        match failure {
            Failure::Source(PeerError::DbNotFound(url)) | Failure::Target(PeerError::DbNotFound(url)) => {
                Self::new(StatusCode::NOT_FOUND, "db_not_found", format!("could not open {url}"))
            }
            Failure::Source(PeerError::Unauthorized(url) | PeerError::Unauthenticated(url))
            | Failure::Target(PeerError::Unauthorized(url) | PeerError::Unauthenticated(url)) => {
                Self::unauthorized(format!("unauthorized to access or create database {url}"))
            }
            _ => Self::new(StatusCode::INTERNAL_SERVER_ERROR, "replication_error", reason),
        }
    }
}

impl From<CallError> for Error {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Forbidden(reason) => Self::forbidden(reason.to_string()).with_json_reason(reason.json()),
            CallError::Unauthorized(reason) => Self::unauthorized(reason.to_string()).with_json_reason(reason.json()),
            CallError::NotFound(reason) => Self::not_found(reason),
            CallError::Failed { name, reason } => Self::new(thrown_status(&name), name, reason),
            CallError::Run(error) => error.into(),
        }
    }
}

fn thrown_status(name: &str) -> StatusCode {
    match name {
        "bad_request" | "compilation_error" => StatusCode::BAD_REQUEST,
        "method_not_allowed" => StatusCode::METHOD_NOT_ALLOWED,
        "not_acceptable" => StatusCode::NOT_ACCEPTABLE,
        "conflict" => StatusCode::CONFLICT,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

impl From<ViewError> for Error {
    fn from(error: ViewError) -> Self {
        let reason = error.to_string();
        match error {
            ViewError::MissingView => Self::not_found(reason),
            ViewError::Query(_) => Self::query_parse(reason),
            ViewError::Compile(error) => error.into(),
            ViewError::UnknownLanguage(_) => {
                Self::new(StatusCode::INTERNAL_SERVER_ERROR, "unknown_query_language", reason)
            }
            ViewError::Run(error) => error.into(),
            ViewError::Storage(error) => error.into(),
            ViewError::Paused => Self::new(StatusCode::SERVICE_UNAVAILABLE, "index_paused", reason),
            ViewError::Cancelled => Self::new(StatusCode::SERVICE_UNAVAILABLE, "index_cancelled", reason),
            ViewError::Stopped | ViewError::Disconnected(_) => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "service_unavailable", reason)
            }
            ViewError::Corrupt(_) | ViewError::MissingNode { .. } => Self::damaged(reason),
            ViewError::Contended | ViewError::Memory => Self::for_now(reason),
            ViewError::Spill(_) | ViewError::Source(_) => Self::internal(reason),
        }
    }
}

impl From<SearchError> for Error {
    fn from(error: SearchError) -> Self {
        let reason = error.to_string();
        match error {
            SearchError::MissingIndex(_) => Self::not_found(reason),
            SearchError::NoFunction(_) => Self::new(StatusCode::BAD_REQUEST, "invalid_design_doc", reason),
            SearchError::Index(error) => error.into(),
            SearchError::Build(error) => error.into(),
        }
    }
}

impl From<settee_search::Error> for Error {
    fn from(error: settee_search::Error) -> Self {
        use settee_search::Error as Cause;
        let reason = error.to_string();
        match error {
            Cause::Syntax { .. }
            | Cause::BadRequest(_)
            | Cause::TypeConflict { .. }
            | Cause::BadField(_)
            | Cause::TooLarge(_) => Self::bad_request(reason),
            Cause::OutOfMemory => settee_edge::Error::short_of_memory().into(),
            Cause::TimedOut => Self::new(StatusCode::INTERNAL_SERVER_ERROR, "timeout", reason),
            Cause::Disconnected => Self::new(StatusCode::SERVICE_UNAVAILABLE, "service_unavailable", reason),
            Cause::Storage(error) => error.into(),
            Cause::Contended => Self::for_now(reason),
            Cause::Corrupt(_) => Self::damaged(reason),
        }
    }
}

#[cfg(test)]
mod tests;
