//! Search of texts and vectors: the functions of Lucene in CouchDB, on `tantivy`, over the storage interface.
//!
//! An [`Index`] is stored in one shard. A [`Writer`] receives the [`Field`]s of documents and commits them atomically
//! with an opaque position. [`Index::parse`] and [`Index::parse_classic`] parse a [`Query`] by Lucene's two grammars. A
//! [`Request`] asks for hits, counts and groups; an [`Answer`] contains them. [`Searches`] manages the search indexes
//! of design documents: it runs their functions, and updates and removes indexes. All other types are independent of
//! documents.

mod analysis;
mod answer;
mod error;
mod field;
mod index;
mod indexes;
mod limits;
mod query;
mod request;
mod search;
mod store;
mod syntax;
mod vectors;

pub use analysis::{Analyzer, Analyzers, Dialect};
pub use answer::{Answer, Group, Highlight, Hit, OrderValue, Relation};
pub use error::{Error, Result};
pub use field::{Field, FieldKind, FieldOptions, FieldValue, MAX_FIELDS, MAX_TERM_BYTES, StoredValue, check_name};
pub use index::{Definition, Index, Info, Writer};
pub use indexes::{Freshness, SearchError, SearchIndex, SearchInfo, Searches, analyzer_of, visible_part};
pub use limits::{MemoryGrant, Requester, SearchLimits, Shortage};
pub use query::{Boolean, Interval, Nearest, Query, Relative};
pub use request::{
    DEFAULT_CANDIDATES, DEFAULT_LIMIT, DEFAULT_TOP_N, Grouping, Highlighting, MAX_CANDIDATES, MAX_TOP_N, Range,
    Request, Sort, SortBy,
};
pub use store::{Caches, NewToken, verify};
pub use syntax::Locale;
pub use vectors::{MAX_DIMENSIONS, Similarity, VectorField};
