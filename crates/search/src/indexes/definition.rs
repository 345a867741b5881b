//! [`SearchIndex`]: definition and identity of an index. Equal definitions share an index, also under different names
//! and in different design documents.

use std::sync::Arc;

use settee_design::{DesignDocument, SearchDefinition, SearchKind};
use settee_model::json::{Json, Kind, Value};
use settee_views::Signature;

use super::fields::Form;
use super::{Result, SearchError};
use crate::{Analyzer, Analyzers, Definition, Dialect, Error, MAX_DIMENSIONS, Similarity, VectorField};

#[derive(Clone, Debug)]
pub struct SearchIndex {
    pub(super) signature: Signature,
    pub(super) kind: SearchKind,
    pub(super) form: Form,
    pub(super) name: Arc<str>,
    pub(super) function: Arc<str>,
    pub(super) definition: Definition,
}

const MAX_VECTOR_FIELDS: usize = 16;

const STANDARD: &str = "\"standard\"";

impl SearchIndex {
    pub(super) fn find(ddoc: &DesignDocument, kind: SearchKind, name: &str) -> Result<Self> {
        let search = ddoc.search(kind, name).ok_or_else(|| SearchError::MissingIndex(name.to_owned()))?;
        Self::new(ddoc, search)
    }

    pub(super) fn all(ddoc: &DesignDocument) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        for index in ddoc.searches.iter().filter_map(|search| Self::new(ddoc, search).ok()) {
            if all.iter().all(|known| known.signature != index.signature) {
                all.push(index);
            }
        }
        all
    }

    fn new(ddoc: &DesignDocument, search: &SearchDefinition) -> Result<Self> {
        let SearchDefinition { kind, name, index, is_declared, analyzer, field_analyzers, vectors } = search;
        let form = if *is_declared { Form::Declared } else { Form::Called(*kind) };
        let function = index.clone().ok_or_else(|| SearchError::NoFunction(name.to_string()))?;
        let dialect = dialect(*kind);
        let analyzer = analyzer.as_deref().unwrap_or(STANDARD);
        let field_analyzers = field_analyzers.as_deref().unwrap_or("{}");
        let vectors = vectors.as_deref().unwrap_or("{}");
        let signature = Signature::of(
            ["search", kind.member(), &*ddoc.language, &*function, analyzer, field_analyzers, vectors]
                .map(str::as_bytes),
        );
        let analyzers = analyzers(dialect, form, json(analyzer).value(), json(field_analyzers).value())?;
        let vectors = vector_fields(json(vectors).value())?;
        let definition = Definition { dialect, analyzers, vectors };
        Ok(Self { signature, kind: *kind, form, name: Arc::clone(name), function, definition })
    }
}

fn dialect(kind: SearchKind) -> Dialect {
    match kind {
        SearchKind::Nouveau => Dialect::Nouveau,
        SearchKind::Clouseau => Dialect::Clouseau,
    }
}

fn json(text: &str) -> Json {
    Json::trusted(text.as_bytes().to_vec())
}

fn analyzers(dialect: Dialect, form: Form, analyzer: Value<'_>, fields: Value<'_>) -> Result<Analyzers, Error> {
    let may_differ = dialect == Dialect::Clouseau || form == Form::Declared;
    if may_differ && analyzer.get("name").is_some_and(|name| name.is_string("perfield")) {
        let default = analyzer
            .get("default")
            .map_or_else(|| Analyzer::named(dialect, "standard", None), |default| analyzer_of(dialect, default))?;
        return Ok(Analyzers { default, fields: by_field(dialect, analyzer.get("fields"))? });
    }
    Ok(Analyzers { default: analyzer_of(dialect, analyzer)?, fields: by_field(dialect, Some(fields))? })
}

fn by_field(dialect: Dialect, fields: Option<Value<'_>>) -> Result<Vec<(String, Analyzer)>, Error> {
    let fields = fields.into_iter().flat_map(Value::members);
    fields.map(|(name, analyzer)| Ok((name.to_text(), analyzer_of(dialect, analyzer)?))).collect()
}

/// Parses `{"name": {"dimensions": 384, "similarity": "cosine"}}`; `cosine` is the default.
fn vector_fields(fields: Value<'_>) -> Result<Vec<VectorField>, Error> {
    let field = |(name, field): (Value<'_>, Value<'_>)| {
        let name = name.to_text();
        let refuse = |label: &str| Error::BadRequest(format!("the vectors of field {name} have no valid {label}"));
        let dimensions = field.get("dimensions").and_then(Value::as_i64).and_then(|count| usize::try_from(count).ok());
        let dimensions = dimensions.filter(|count| (1..=MAX_DIMENSIONS).contains(count));
        let dimensions = dimensions.ok_or_else(|| refuse("dimensions"))?;
        let similarity = match field.get("similarity") {
            Some(named) => Similarity::ALL.into_iter().find(|known| named.is_string(known.name())),
            None => Some(Similarity::Cosine),
        };
        let similarity = similarity.ok_or_else(|| refuse("similarity: cosine, dot or l2"))?;
        Ok(VectorField { name, dimensions, similarity })
    };
    let fields: Vec<VectorField> = fields.members().map(field).collect::<Result<_, Error>>()?;
    match fields.len() > MAX_VECTOR_FIELDS {
        true => Err(Error::BadRequest(format!("an index has at most {MAX_VECTOR_FIELDS} fields of vectors"))),
        false => Ok(fields),
    }
}

/// Parses the name of an analyzer, or an object with a name and optional stop words, as older indexes have.
pub fn analyzer_of(dialect: Dialect, analyzer: Value<'_>) -> Result<Analyzer, Error> {
    if let Some(name) = analyzer.as_str() {
        return Analyzer::named(dialect, &name, None);
    }
    let name = analyzer.get("name").and_then(Value::as_str).filter(|_| dialect == Dialect::Clouseau);
    let Some(name) = name else {
        let text = String::from_utf8_lossy(analyzer.raw()).into_owned();
        return Err(Error::BadRequest(format!("{text} is not a valid analyzer")));
    };
    let words = analyzer.get("stopwords").filter(|words| words.kind() == Kind::Array);
    let words: Option<Vec<String>> =
        words.map(|words| words.elements().filter_map(Value::as_str).map(std::borrow::Cow::into_owned).collect());
    Analyzer::named(dialect, &name, words.as_deref())
}
