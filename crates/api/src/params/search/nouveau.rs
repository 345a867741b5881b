//! Parameters of `_nouveau`, with CouchDB's error messages, which differ between GET and POST.

use std::ops::Bound;

use settee_model::json::{Kind, Value};
use settee_search::{
    DEFAULT_CANDIDATES, DEFAULT_LIMIT, DEFAULT_TOP_N, Freshness, MAX_CANDIDATES, MAX_TOP_N, Range, Sort,
};

use super::{Knn, SearchParams, boolean, integer, one_or_more, text, texts};
use crate::Error;
use crate::params::{Query, Raw};

/// The first of several values of a parameter applies.
pub(crate) fn from_query(query: &Query) -> Result<SearchParams, Error> {
    let mut params = of(|name| query.get(name).map(|text| Raw::Text(text.to_owned())), Place::Address)?;
    params.partition = query.get("partition").map(str::to_owned);
    Ok(params)
}

/// Parses the parameters of a POST. Of the query string only the partition is used.
pub(crate) fn from_body(body: Value<'_>, query: &Query) -> Result<SearchParams, Error> {
    if !body.is_object() {
        return Err(Error::bad_request("Request body must be a JSON object"));
    }
    let mut params = of(|name| body.get(name).map(Raw::of), Place::Body)?;
    params.partition = query.get("partition").map(str::to_owned);
    Ok(params)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Address,
    Body,
}

fn of(get: impl Fn(&str) -> Option<Raw>, place: Place) -> Result<SearchParams, Error> {
    // A null value of a list or bookmark is treated as absent.
    let optional = |name: &str| get(name).filter(|raw| !matches!(raw, Raw::Json(json) if json.value().is_null()));
    let mut params = SearchParams::new(DEFAULT_LIMIT, Some(DEFAULT_TOP_N));
    params.query = get("q").map(|raw| word("query", &raw)).transpose()?;
    let knn = optional("knn");
    if params.query.is_none() && knn.is_none() {
        return Err(Error::query_parse("q parameter is mandatory"));
    }
    params.locale = optional("locale").map(|raw| word("locale", &raw)).transpose()?;
    if let Some(raw) = get("limit") {
        params.limit = number("limit", usize::MAX, &raw, place)?;
    }
    params.knn = knn.map(|raw| self::knn(raw.json()?.value(), params.limit)).transpose()?;
    if let Some(raw) = get("top_n") {
        params.top_n = Some(number("top_n", MAX_TOP_N, &raw, place)?);
    }
    if let Some(raw) = optional("sort") {
        let sorts = one_or_more("sort", raw.json()?.value())?;
        params.sort = sorts.iter().map(|sort| Sort::parse(sort)).collect::<Result<_, _>>()?;
    }
    if let Some(raw) = optional("counts") {
        params.counts = texts("counts", raw.json()?.value())?;
        if params.counts.iter().any(String::is_empty) {
            return Err(Error::bad_request("counts must be names of fields"));
        }
    }
    if let Some(raw) = optional("ranges") {
        params.ranges = ranges(raw.json()?.value())?;
    }
    params.bookmark = optional("bookmark").map(|raw| word("bookmark", &raw)).transpose()?;
    if let Some(raw) = get("include_docs") {
        params.include_docs = boolean("include_docs", &raw)?;
    }
    if let Some(raw) = get("update")
        && !boolean("update", &raw)?
    {
        params.freshness = Freshness::Any;
    }
    Ok(params)
}

fn word(name: &str, raw: &Raw) -> Result<String, Error> {
    Ok(text(name, raw)?.into_owned())
}

/// Parses a number of at least 1. CouchDB detects too small numbers of a query string later, with another message.
fn number(name: &str, most: usize, raw: &Raw, place: Place) -> Result<usize, Error> {
    let number = integer(raw).ok_or_else(|| Error::query_parse(format!("{name} parameter must be an integer")))?;
    match usize::try_from(number) {
        Ok(number) if number > most => Err(Error::bad_request(format!("{name} must be less than or equal to {most}"))),
        Ok(number) if number > 0 => Ok(number),
        _ => Err(match place {
            Place::Address => Error::bad_request(format!("{name} must be greater than 0")),
            Place::Body => Error::query_parse(format!("{name} parameter must be greater than zero")),
        }),
    }
}

/// Parses `{"field":"embedding","vector":[0.1,…],"k":10,"candidates":50,"filter":"lang:en","boost":1}`. All
/// but the first two members are optional; the default of `k` is the limit of the search.
fn knn(value: Value<'_>, limit: usize) -> Result<Knn, Error> {
    let invalid = |subject: &str| Error::query_parse(format!("Invalid value for knn: {subject}"));
    let name = |name: &str| value.get(name).and_then(Value::as_str).map(std::borrow::Cow::into_owned);
    let count = |name: &str, default: usize, most: usize| {
        let Some(number) = value.get(name) else { return Ok(default) };
        let number = number.as_i64().and_then(|number| usize::try_from(number).ok());
        let number = number.filter(|number| (1..=most).contains(number));
        number.ok_or_else(|| match most {
            usize::MAX => invalid(&format!("{name} must be a number greater than 0")),
            most => invalid(&format!("{name} must be a number from 1 to {most}")),
        })
    };
    #[expect(clippy::cast_possible_truncation, reason = "vectors and scores have single precision")]
    let single = |value: Value<'_>| value.as_f64().map(|number| number as f32).filter(|number| number.is_finite());
    let vector = value.get("vector").filter(|vector| vector.kind() == Kind::Array);
    let vector = vector.and_then(|vector| vector.elements().map(single).collect::<Option<Vec<f32>>>());
    let boost = value.get("boost").map_or(Some(1.0), single).filter(|boost| *boost >= 0.0);
    Ok(Knn {
        field: name("field").ok_or_else(|| invalid("field must be the name of a field"))?,
        vector: vector.ok_or_else(|| invalid("vector must be an array of numbers"))?,
        k: count("k", limit, usize::MAX)?,
        candidates: count("candidates", DEFAULT_CANDIDATES, MAX_CANDIDATES)?,
        filter: match value.get("filter") {
            Some(_) => Some(name("filter").ok_or_else(|| invalid("filter must be a query"))?),
            None => None,
        },
        boost: boost.ok_or_else(|| invalid("boost must be a number that is not negative"))?,
    })
}

/// Parses `{"field":[{"label":"few","min":0,"max":10,"max_inclusive":false},…],…}`.
fn ranges(value: Value<'_>) -> Result<Vec<(String, Vec<Range>)>, Error> {
    let malformed = || Error::bad_request("ranges must be an object of lists of ranges");
    if !value.is_object() {
        return Err(malformed());
    }
    let of_field = |list: Value<'_>| match list.kind() {
        Kind::Array => list.elements().map(|one| range(one).ok_or_else(malformed)).collect(),
        _ => Err(malformed()),
    };
    value.members().map(|(name, list)| Ok((name.to_text(), of_field(list)?))).collect()
}

fn range(value: Value<'_>) -> Option<Range> {
    let label = value.get("label")?.as_str()?.into_owned();
    let bound = |name: &str, inclusive: &str| {
        let Some(number) = value.get(name) else { return Some(Bound::Unbounded) };
        let is_inclusive = value.get(inclusive).map_or(Some(true), Value::as_bool)?;
        let number = number.as_f64()?;
        Some(if is_inclusive { Bound::Included(number) } else { Bound::Excluded(number) })
    };
    Some(Range { label, lower: bound("min", "min_inclusive")?, upper: bound("max", "max_inclusive")? })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::tests::{json, query, show};

    #[test]
    fn parameters_are_read() {
        let text = "q=a+b&limit=3&sort=[%22-n%22]&update=false&include_docs=true&partition=p";
        let params = from_query(&query(text)).unwrap();
        assert_eq!((params.query.as_deref(), params.limit, params.sort.len()), (Some("a b"), 3, 1));
        assert_eq!((params.freshness, params.include_docs), (Freshness::Any, true));
        assert_eq!(params.partition.as_deref(), Some("p"));
        assert_eq!(from_query(&query("q=x&limit=200000")).unwrap().limit, 200_000, "there is no greatest one");
        assert_eq!(from_query(&query("q=x&limit=9223372036854775807")).unwrap().limit, 9_223_372_036_854_775_807);
        let body = r#"{"q":"x","sort":"n","counts":["a"],"top_n":5,"bookmark":null,
            "ranges":{"n":[{"label":"l","min":1,"max":2,"max_inclusive":false},{"label":"m"}]}}"#;
        let params = from_body(json(body).value(), &query("q=other")).unwrap();
        assert_eq!((params.query.as_deref(), params.top_n, params.bookmark), (Some("x"), Some(5), None));
        let ranges = &params.ranges[0].1;
        assert_eq!((ranges[0].lower, ranges[0].upper), (Bound::Included(1.0), Bound::Excluded(2.0)));
        assert_eq!((ranges[1].lower, ranges[1].upper), (Bound::Unbounded, Bound::Unbounded));
    }

    #[test]
    fn near_vectors_are_asked_for_with_or_without_a_query() {
        let knn = |text: &str| from_body(json(text).value(), &query("")).unwrap().knn.unwrap();
        let least = knn(r#"{"limit":7,"knn":{"field":"v","vector":[1,-0.5]}}"#);
        let defaults = Knn {
            field: "v".to_owned(),
            vector: vec![1.0, -0.5],
            k: 7,
            candidates: DEFAULT_CANDIDATES,
            filter: None,
            boost: 1.0,
        };
        assert_eq!(least, defaults);
        let all = r#"{"q":"x","knn":{"field":"v","vector":[1,-0.5],"k":3,"candidates":50,"filter":"a:b","boost":2}}"#;
        let filter = Some("a:b".to_owned());
        assert_eq!(knn(all), Knn { k: 3, candidates: 50, filter, boost: 2.0, ..defaults.clone() });
        let address = "limit=7&knn=%7B%22field%22:%22v%22,%22vector%22:[1,-0.5]%7D";
        assert_eq!(from_query(&query(address)).unwrap().knn, Some(defaults));
        for (text, expected) in [
            ("{}", "field must be the name of a field"),
            (r#"{"field":"v"}"#, "vector must be an array of numbers"),
            (r#"{"field":"v","vector":[1,"2"]}"#, "vector must be an array of numbers"),
            (r#"{"field":"v","vector":[1e99]}"#, "vector must be an array of numbers"),
            (r#"{"field":"v","vector":[],"k":0}"#, "k must be a number greater than 0"),
            (r#"{"field":"v","vector":[],"candidates":"9"}"#, "candidates must be a number from 1 to 10000"),
            (r#"{"field":"v","vector":[],"filter":{}}"#, "filter must be a query"),
            (r#"{"field":"v","vector":[],"boost":-1}"#, "boost must be a number that is not negative"),
        ] {
            let body = format!(r#"{{"knn":{text}}}"#);
            let error = from_body(json(&body).value(), &query("")).unwrap_err();
            assert_eq!(show(&error), format!("400 query_parse_error: Invalid value for knn: {expected}"), "{text}");
        }
    }

    #[test]
    fn errors_are_couchdbs() {
        let get = |text: &str, expected: &str| {
            assert_eq!(show(&from_query(&query(text)).unwrap_err()), expected, "{text}");
        };
        get("", "400 query_parse_error: q parameter is mandatory");
        get("q=x&limit=0", "400 bad_request: limit must be greater than 0");
        get("q=x&limit=x", "400 query_parse_error: limit parameter must be an integer");
        get("q=x&limit=1.5", "400 query_parse_error: limit parameter must be an integer");
        get("q=x&top_n=1001", "400 bad_request: top_n must be less than or equal to 1000");
        get("q=x&update=x", "400 query_parse_error: Invalid value for update: \"x\"");
        get("q=x&counts=k", "400 bad_request: invalid UTF-8 JSON");
        get("q=x&counts=5", "400 bad_request: counts must be a list of strings");
        get("q=x&ranges=[]", "400 bad_request: ranges must be an object of lists of ranges");
        get("q=x&sort={}", "400 bad_request: sort must be a list of strings");
        let post = |text: &str, expected: &str| {
            assert_eq!(show(&from_body(json(text).value(), &query("")).unwrap_err()), expected, "{text}");
        };
        post(r#"{"query":"x"}"#, "400 query_parse_error: q parameter is mandatory");
        post(r#"{"q":5}"#, "400 query_parse_error: Invalid value for query: 5");
        post(r#"{"q":"x","limit":0}"#, "400 query_parse_error: limit parameter must be greater than zero");
        post(r#"{"q":"x","limit":null}"#, "400 query_parse_error: limit parameter must be an integer");
        post(r#"{"q":"x","include_docs":"true"}"#, "400 query_parse_error: Invalid value for include_docs: \"true\"");
        post("[]", "400 bad_request: Request body must be a JSON object");
    }
}
