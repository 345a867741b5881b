//! [`Filter`]: selects the documents of a changes feed.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use settee_design::Caller;
use settee_mango::{Projection, Refusal, Selector};
use settee_model::json::{Json, Value};

use super::{Plus, Query, decode};
use crate::Error;
use settee_service::{Functions, Programs};

#[derive(Clone, Debug, Default)]
pub(crate) enum Filter {
    #[default]
    None,
    Selector(Arc<SelectorFilter>),
    DocIds(Arc<BTreeSet<String>>),
    Design,
    Function(Arc<FunctionFilter>),
}

pub(crate) struct FunctionFilter {
    pub(crate) programs: Arc<Programs>,
    pub(crate) caller: Caller,
    pub(crate) functions: Arc<Functions>,
    pub(crate) path: FunctionPath,
    /// The request object that the function receives.
    pub(crate) request: Vec<u8>,
    /// All inputs other than documents, for the `ETag`, which is computed from the `Debug` text of parameters.
    pub(crate) inputs: String,
}

impl fmt::Debug for FunctionFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FunctionFilter").field("path", &self.path).field("inputs", &self.inputs).finish_non_exhaustive()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FunctionPath {
    /// `filter=ddoc/name`
    Filter {
        /// Without `_design/`.
        ddoc: String,
        name: String,
    },
    /// `filter=_view&view=ddoc/name`
    View {
        /// Without `_design/`.
        ddoc: String,
        name: String,
    },
}

impl FunctionPath {
    pub(crate) fn of(filter: &str, query: &Query) -> Result<Option<Self>, Error> {
        if filter == "_view" {
            let view = query.get("view").unwrap_or_default();
            if view.is_empty() {
                return Err(Error::bad_request("`view` filter parameter is not provided."));
            }
            let [ddoc, name] = <[String; 2]>::try_from(names(view))
                .map_err(|_| Error::bad_request("`view` must be of the form `designname/viewname`"))?;
            return Ok(Some(Self::View { ddoc, name }));
        }
        let names = if filter.starts_with('_') { Vec::new() } else { names(filter) };
        if names.is_empty() {
            return Ok(None);
        }
        let [ddoc, name] = <[String; 2]>::try_from(names)
            .map_err(|_| Error::bad_request("`filter` must be of the form `designname/filtername`"))?;
        Ok(Some(Self::Filter { ddoc, name }))
    }

    pub(crate) fn ddoc(&self) -> &str {
        match self {
            Self::Filter { ddoc, .. } | Self::View { ddoc, .. } => ddoc,
        }
    }

    pub(crate) fn names(&self) -> Vec<&str> {
        match self {
            Self::Filter { name, .. } => vec!["filters", name],
            Self::View { name, .. } => vec!["views", name, "map"],
        }
    }
}

/// Splits a path into names, which are percent-decoded again. The caller checks their number.
fn names(text: &str) -> Vec<String> {
    let parts = text.split('/').filter(|part| !part.is_empty());
    parts.map(|part| decode(part, Plus::Space).map_or_else(|| part.to_owned(), Cow::into_owned)).collect()
}

#[derive(Debug)]
pub(crate) struct SelectorFilter {
    pub(crate) selector: Selector,
    pub(crate) fields: Projection,
}

impl Filter {
    /// Resolves built-in filters; [`FunctionPath::of`] parses others. `body` is the body of a POST.
    pub(crate) fn resolve(name: &str, query: &Query, body: Option<&Json>) -> Result<Self, Error> {
        match name {
            "_design" => Ok(Self::Design),
            "_doc_ids" => doc_ids(query, body),
            "_selector" => selector(body),
            name if name.starts_with('_') => Err(unknown()),
            _ => Ok(Self::None),
        }
    }

    /// Returns an error for an unknown filter, because a feed without one would return all documents.
    pub(crate) fn check_name(name: &str, query: &Query) -> Result<(), Error> {
        match name {
            "_design" | "_doc_ids" | "_selector" => Ok(()),
            name if FunctionPath::of(name, query)?.is_some() => Ok(()),
            name if name.starts_with('_') => Err(unknown()),
            _ => Ok(()),
        }
    }
}

fn unknown() -> Error {
    Error::bad_request("unknown builtin filter name")
}

fn doc_ids(query: &Query, body: Option<&Json>) -> Result<Filter, Error> {
    let invalid = || Error::bad_request("`doc_ids` filter parameter is not a list of doc ids.");
    let of_query = query.get("doc_ids").map(|text| Json::parse(text.as_bytes())).transpose()?;
    let ids = match (body, &of_query) {
        (Some(body), _) => body.value().get("doc_ids"),
        (None, of_query) => of_query.as_ref().map(Json::value),
    };
    let ids = ids.filter(|ids| ids.is_array()).ok_or_else(invalid)?;
    let ids: Option<BTreeSet<String>> = ids.elements().map(|id| Some(id.as_str()?.into_owned())).collect();
    Ok(Filter::DocIds(Arc::new(ids.ok_or_else(invalid)?)))
}

fn selector(body: Option<&Json>) -> Result<Filter, Error> {
    let body = body.ok_or_else(|| Error::bad_request("Selector must be specified in POST payload"))?.value();
    let selector = body.get("selector").filter(|selector| selector.is_object());
    let selector = selector.ok_or_else(|| Error::bad_request("Selector error: expected a JSON object"))?;
    let fields = match body.get("fields") {
        None => Projection::default(),
        Some(fields) if fields.is_array() => Projection::parse(fields).map_err(|error| refused(&error))?,
        Some(_) => return Err(Error::bad_request("Selector error: fields must be JSON array")),
    };
    Ok(Filter::Selector(Arc::new(SelectorFilter {
        selector: Selector::parse(selector).map_err(|error| refused(&error))?,
        fields,
    })))
}

/// As in CouchDB, `_changes` reports each error of a selector as `bad_request`.
fn refused(refusal: &Refusal) -> Error {
    Error::bad_request(refusal.to_string())
}

impl SelectorFilter {
    pub(crate) fn passes(&self, document: &[u8]) -> bool {
        self.selector.matches(Value::trusted(document))
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn resolve(query: &str, body: Option<&str>) -> Result<Filter, Error> {
        let body = body.map(|text| Json::parse(text.as_bytes()).unwrap());
        let query = Query::parse(Some(query)).unwrap();
        Filter::resolve(query.get("filter").unwrap_or_default(), &query, body.as_ref())
    }

    #[test]
    fn filters_by_their_names() {
        assert!(matches!(resolve("", None), Ok(Filter::None)));
        assert!(matches!(resolve("filter=", None), Ok(Filter::None)));
        assert!(matches!(resolve("filter=_design", None), Ok(Filter::Design)));
        let ids = |filter| match filter {
            Ok(Filter::DocIds(ids)) => ids.iter().cloned().collect::<Vec<_>>().join(","),
            other => panic!("{other:?}"),
        };
        assert_eq!(ids(resolve(r#"filter=_doc_ids&doc_ids=["b","a"]"#, None)), "a,b");
        assert_eq!(ids(resolve("filter=_doc_ids", Some(r#"{"doc_ids":["x"]}"#))), "x");
        let filter = resolve("filter=_selector", Some(r#"{"selector":{"n":{"$gt":1}},"fields":["n"]}"#));
        let Ok(Filter::Selector(filter)) = filter else { panic!("{filter:?}") };
        assert!(filter.passes(br#"{"n":2}"#) && !filter.passes(br#"{"n":1}"#));
    }

    #[test]
    fn arguments_that_make_no_sense_are_refused() {
        let check = |query: &str, body: Option<&str>, reason: &str| {
            let error = resolve(query, body).unwrap_err();
            assert_eq!(error.reason, reason, "{query}");
        };
        let no_list = "`doc_ids` filter parameter is not a list of doc ids.";
        check("filter=_doc_ids", None, no_list);
        check("filter=_doc_ids&doc_ids=5", None, no_list);
        check("filter=_doc_ids", Some(r#"{"doc_ids":[1]}"#), no_list);
        check("filter=_selector", None, "Selector must be specified in POST payload");
        check("filter=_selector", Some("{}"), "Selector error: expected a JSON object");
        for fields in [r#""n""#, "null", "{}", "0", "false"] {
            let body = format!(r#"{{"selector":{{}},"fields":{fields}}}"#);
            check("filter=_selector", Some(&body), "Selector error: fields must be JSON array");
        }
        check("filter=_selector", Some(r#"{"selector":{"$x":1}}"#), "Invalid operator: $x");
        check("filter=_nosuch", None, "unknown builtin filter name");
    }
}
