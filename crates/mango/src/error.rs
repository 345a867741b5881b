//! [`Refusal`]: rejection of a query or an index; [`MangoError`]: failure. Names and texts are CouchDB's. Where CouchDB
//! prints a value in Erlang's notation, the texts contain JSON.

use settee_database::DatabaseError;
use settee_model::partition::IllegalPartition;
use settee_search::SearchError;
use settee_views::ViewError;

use crate::limits::{MAX_CONDITIONS, MAX_DEPTH, MAX_EXPRESSIONS, MAX_NAME_BYTES};

/// [`Refusal::name`] is CouchDB's `error`, the text its `reason`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Also an operator with an argument for which CouchDB reports an unknown operator.
    #[error("Invalid operator: {0}")]
    InvalidOperator(String),
    /// CouchDB recognizes these operators of MongoDB, but does not support them.
    #[error("Unsupported operator: {0}")]
    NotSupported(String),
    #[error("Bad argument for operator {operator}: {argument}")]
    BadArgument {
        operator: &'static str,
        /// JSON text, with the defect if it is not obvious.
        argument: String,
    },
    #[error("One or more conditions is missing a field name.")]
    MissingFieldName,
    #[error("Invalid field normalization on selector: {0}")]
    BadField(String),
    #[error("Invalid field name: {0}")]
    InvalidFieldName(String),
    #[error("The selector is nested deeper than {MAX_DEPTH} levels.")]
    TooDeep,
    #[error("The selector has more than {MAX_CONDITIONS} conditions.")]
    TooManyConditions,
    #[error("The selector has more than {MAX_EXPRESSIONS} regular expressions.")]
    TooManyExpressions,
    #[error("The field names of the selector have more than {MAX_NAME_BYTES} bytes together.")]
    NamesTooLong,
    #[error("Selector must be a JSON object, not: {0}")]
    SelectorNotAnObject(String),
    #[error("Fields must be an array of strings, not: {0}")]
    FieldsNotAnArray(String),
    #[error("Invalid JSON for field spec: {0}")]
    InvalidField(String),
    #[error("Sort must be an array of sort specs, not: {0}")]
    SortNotAnArray(String),
    /// An element of `sort`, or of the fields of an index, is invalid.
    #[error("Invalid sort field: {0}")]
    InvalidSortField(String),
    #[error("Sorts currently only support a single direction for all fields.")]
    MixedSort,
    #[error("Invalid key {0} for this request.")]
    InvalidKey(String),
    #[error("Missing required key: {0}")]
    MissingKey(&'static str),
    #[error("Invalid string: {0}")]
    InvalidString(String),
    #[error("Invalid boolean value: {0}")]
    InvalidBoolean(String),
    #[error("{0} is not an integer greater than zero")]
    NotPositive(String),
    #[error("{0} is not an integer greater than or equal to zero")]
    Negative(String),
    #[error("Invalid value for stale: {0}")]
    InvalidStale(String),
    #[error("Invalid index name: {0}")]
    InvalidIndexName(String),
    #[error("Invalid bookmark value: {0}")]
    InvalidBookmark(String),
    #[error("No index exists for this sort, try indexing by the sort fields.")]
    NoSortIndex,
    #[error("No partitioned index exists for this sort, try indexing by the sort fields.")]
    NoPartitionedSortIndex,
    #[error("No global index exists for this sort, try indexing by the sort fields.")]
    NoGlobalSortIndex,
    #[error("The operator $text needs a text index, and there is none.")]
    NoTextIndex,
    /// `allow_fallback` is false and `use_index` is absent.
    #[error("You must specify an index with the `use_index` parameter.")]
    NoFallbackWithoutIndex,
    /// `allow_fallback` is false and the index is unsuitable; the text describes the index.
    #[error("{0} specified by `use_index` could not be found or it is not suitable.")]
    UnsuitableIndex(String),
    #[error("`partition` parameter is not supported on this db")]
    NotPartitioned,
    #[error(transparent)]
    IllegalPartition(#[from] IllegalPartition),
    #[error("Partition in the path and in the body differ: {0}")]
    BadPartition(String),
    #[error("`partitioned` option cannot be true in a non-partitioned database.")]
    PartitionedIndex,
    #[error("JSON indexes must be an object, not: {0}")]
    IndexNotAnObject(String),
    #[error("Text indexes must be an object, not: {0}")]
    TextIndexNotAnObject(String),
    #[error(
        "Text Index field definitions must be of the form \
         {{\"name\": \"non-empty fieldname\", \"type\": \"boolean,number, or string\"}}. Def: {0}"
    )]
    InvalidTextFields(String),
    #[error("Invalid text operator: {0}")]
    InvalidTextOperator(&'static str),
    #[error("You must specify an index with the `use_index` parameter.")]
    MultipleTextIndexes,
    #[error("Unspecified or ambiguous sort type. Try appending :number or :string to the sort field. {0}")]
    TextSort(String),
    #[error("{0}")]
    TextSearch(String),
    #[error("Index name or ddoc cannot be empty string")]
    EmptyName,
    #[error("Illegal document id `{0}`")]
    IllegalDesign(String),
    #[error("Invalid type for index: {0}")]
    InvalidIndexType(String),
    #[error("Existing design doc has an invalid language: {0}")]
    InvalidDesignLanguage(String),
    #[error("Requested partitioned option does not match existing value on design document {0}")]
    PartitionedMismatch(String),
    #[error("Bulk Delete requires an array of non-null docids. Docids: {0}")]
    InvalidBulkDocs(String),
}

impl Refusal {
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::InvalidOperator(_) | Self::InvalidTextOperator(_) => "invalid_operator",
            Self::NotSupported(_) => "not_supported",
            Self::BadArgument { .. } => "bad_arg",
            Self::MissingFieldName
            | Self::TooDeep
            | Self::TooManyConditions
            | Self::TooManyExpressions
            | Self::NamesTooLong => "invalid_selector",
            Self::BadField(_) => "bad_field",
            Self::InvalidFieldName(_) => "invalid_field_name",
            Self::SelectorNotAnObject(_) => "invalid_selector_json",
            Self::FieldsNotAnArray(_) => "invalid_fields",
            Self::InvalidField(_) => "invalid_field",
            Self::SortNotAnArray(_) => "invalid_sort_json",
            Self::InvalidSortField(_) => "invalid_sort_field",
            Self::MixedSort => "unsupported_mixed_sort",
            Self::InvalidKey(_) => "invalid_key",
            Self::MissingKey(_) => "missing_required_key",
            Self::InvalidString(_) => "invalid_string",
            Self::InvalidBoolean(_) => "invalid_boolean",
            Self::NotPositive(_) => "invalid_pos_integer",
            Self::Negative(_) => "invalid_non_neg_integer",
            Self::InvalidStale(_) => "invalid_ok_or_false_value",
            Self::InvalidIndexName(_) => "invalid_index_name",
            Self::InvalidBookmark(_) => "invalid_bookmark",
            Self::NoSortIndex | Self::NoPartitionedSortIndex | Self::NoGlobalSortIndex | Self::NoTextIndex => {
                "no_usable_index"
            }
            Self::IllegalPartition(_) => "illegal_partition",
            Self::BadPartition(_) => "bad_partition",
            Self::NoFallbackWithoutIndex
            | Self::UnsuitableIndex(_)
            | Self::IndexNotAnObject(_)
            | Self::TextIndexNotAnObject(_)
            | Self::InvalidIndexType(_) => "invalid_index",
            Self::InvalidTextFields(_) => "invalid_index_fields_definition",
            Self::MultipleTextIndexes => "multiple_text_indexes",
            Self::TextSort(_) => "text_sort_error",
            Self::TextSearch(_) => "text_search_error",
            Self::NotPartitioned => "query_parse_error",
            Self::PartitionedIndex => "bad_request",
            Self::EmptyName => "invalid_empty_string",
            Self::IllegalDesign(_) => "illegal_docid",
            Self::InvalidDesignLanguage(_) => "invalid_ddoc_lang",
            Self::PartitionedMismatch(_) => "invalid_partitioned_option",
            Self::InvalidBulkDocs(_) => "invalid_bulk_docs",
        }
    }
}

#[derive(Clone, Debug, thiserror::Error)]
pub enum MangoError {
    /// The request is invalid. CouchDB: 400.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// CouchDB: 404 `not_found`.
    #[error("missing")]
    NoSuchIndex,
    /// CouchDB: 503 `required index service unavailable` with the type as reason.
    #[error("{0}")]
    ServiceUnavailable(String),
    /// The design document was changed concurrently. CouchDB: 500 `error_saving_ddoc`.
    #[error("Encountered a conflict while saving the design document.")]
    DesignConflict,
    #[error(transparent)]
    Database(#[from] DatabaseError),
    #[error(transparent)]
    View(#[from] ViewError),
    #[error(transparent)]
    Search(#[from] SearchError),
}

pub(crate) type Result<T, E = MangoError> = std::result::Result<T, E>;
