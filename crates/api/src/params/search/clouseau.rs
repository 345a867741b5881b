//! Parameters of `_search`, parsed in order; the last of several values applies.

use settee_database::Layout;
use settee_model::json::{Kind, Value};
use settee_search::{Freshness, Grouping, Highlighting, Range, Sort};
use settee_settings::{Settings, dreyfus};

use super::{SearchParams, boolean, integer, invalid, one_or_more, text, texts};
use crate::Error;
use crate::params::{Query, Raw};

const FRAGMENT_CHARACTERS: usize = 100;

const DEFAULT_GROUPS: usize = 10;

pub(crate) struct Collected<'a> {
    params: SearchParams,
    settings: &'a dyn Settings,
    limit: Option<Raw>,
    group: Grouping,
    is_grouped: bool,
    has_group_limit: bool,
    /// The fault of a malformed `counts`, `ranges` or `drilldown`, which CouchDB reports after that of a partition.
    malformed_facets: Option<Error>,
    highlight: Highlighting,
}

pub(crate) fn from_query<'a>(query: &Query, settings: &'a dyn Settings) -> Result<Collected<'a>, Error> {
    let mut collected = Collected::new(settings);
    query.raw().try_for_each(|(name, raw)| collected.set(name, raw))?;
    Ok(collected)
}

/// Collects the parameters of a POST. Of the query string only the partition is used.
pub(crate) fn from_body<'a>(
    body: Value<'_>,
    query: &Query,
    settings: &'a dyn Settings,
) -> Result<Collected<'a>, Error> {
    if !body.is_object() {
        return Err(Error::bad_request("Request body must be a JSON object"));
    }
    let mut collected = Collected::new(settings);
    if let Some(partition) = query.get("partition") {
        if body.get("partition").is_some_and(|other| !other.is_string(partition)) {
            return Err(Error::bad_request("Multiple conflicting values for `partition` provided"));
        }
        collected.params.partition = Some(partition.to_owned());
    }
    body.members().try_for_each(|(name, value)| collected.set(&name.to_text(), Raw::of(value)))?;
    Ok(collected)
}

impl<'a> Collected<'a> {
    fn new(settings: &'a dyn Settings) -> Self {
        let (pre_tag, post_tag) = ("<em>".to_owned(), "</em>".to_owned());
        Self {
            params: SearchParams::new(0, None),
            settings,
            limit: None,
            group: Grouping { field: String::new(), limit: DEFAULT_GROUPS, sort: Vec::new() },
            is_grouped: false,
            has_group_limit: false,
            malformed_facets: None,
            highlight: Highlighting { fields: Vec::new(), pre_tag, post_tag, number: 1, size: FRAGMENT_CHARACTERS },
        }
    }

    fn set(&mut self, name: &str, raw: Raw) -> Result<(), Error> {
        let Self { params, group, highlight, .. } = self;
        let owned = |raw: &Raw| Ok::<_, Error>(text(name, raw)?.into_owned());
        let size = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        match name {
            "q" | "query" => params.query = Some(owned(&raw)?),
            "partition" => params.partition = Some(owned(&raw)?),
            "bookmark" => params.bookmark = Some(owned(&raw)?).filter(|bookmark| !bookmark.is_empty()),
            "sort" => params.sort = sorts(raw.json()?.value())?,
            "limit" => self.limit = Some(raw),
            "stale" if text(name, &raw)? == "ok" => params.freshness = Freshness::Any,
            "stale" => return Err(Error::query_parse("stale only available as stale=ok")),
            "include_docs" => params.include_docs = boolean(name, &raw)?,
            "group_by" | "group_field" => {
                group.field = owned(&raw)?;
                (self.is_grouped, params.has_old_groups) = (true, name == "group_by");
            }
            "group_sort" => group.sort = sorts(raw.json()?.value())?,
            "group_limit" => {
                let (number, most) = (positive(name, &raw)?, dreyfus::MAX_GROUP_LIMIT.of(self.settings));
                if number > most {
                    let reason = format!("Value for {name} is too large, must not exceed {most}");
                    return Err(Error::query_parse(reason));
                }
                (group.limit, self.has_group_limit) = (size(number), true);
            }
            "include_fields" => params.include_fields = Some(texts(name, raw.json()?.value())?),
            "counts" | "ranges" | "drilldown" => {
                let json = raw.json()?;
                let read = match name {
                    "counts" => texts(name, json.value()).map(|counts| params.counts = counts),
                    "ranges" => ranges(json.value()).map(|ranges| params.ranges = ranges),
                    _ => drill(&mut params.drilldown, json.value()),
                };
                self.malformed_facets = self.malformed_facets.take().or(read.err());
            }
            "highlight_fields" => highlight.fields = texts(name, raw.json()?.value())?,
            "highlight_pre_tag" => highlight.pre_tag = tag(name, raw)?,
            "highlight_post_tag" => highlight.post_tag = tag(name, raw)?,
            "highlight_number" => highlight.number = size(positive(name, &raw)?),
            "highlight_size" => highlight.size = size(positive(name, &raw)?),
            _ => {}
        }
        Ok(())
    }

    pub(crate) fn check(self, database: Layout, index: Layout) -> Result<SearchParams, Error> {
        let Self { mut params, settings, limit, group, is_grouped, has_group_limit, malformed_facets, highlight } =
            self;
        if params.query.is_none() {
            return Err(Error::query_parse("Query must include a 'q' or 'query' argument"));
        }
        match (index, params.partition.is_some()) {
            (Layout::Whole, true) => return Err(Error::bad_request("`partition` not supported on this index")),
            (Layout::Partitioned, false) => {
                let reason = "`partition` parameter is mandatory for queries to this index.";
                return Err(Error::bad_request(reason));
            }
            _ => {}
        }
        let (default, most) = match database {
            Layout::Partitioned => (&dreyfus::LIMIT_PARTITIONS, &dreyfus::MAX_LIMIT_PARTITIONS),
            Layout::Whole => (&dreyfus::LIMIT, &dreyfus::MAX_LIMIT),
        };
        let limit = limit.map_or(Ok(default.of(settings)), |raw| below(&raw, most.of(settings)))?;
        params.limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let has_facets = !params.counts.is_empty() || !params.drilldown.is_empty() || !params.ranges.is_empty();
        let has_facets = has_facets || malformed_facets.is_some();
        let has_groups = is_grouped || has_group_limit || !group.sort.is_empty();
        if params.partition.is_some() && (has_facets || has_groups) {
            let reason = "`partition` and any of `drilldown`, `ranges`, `group_field`, `group_sort`, `group_limit` or \
                          `group_by` are incompatible";
            return Err(Error::bad_request(reason));
        }
        if let Some(error) = malformed_facets {
            return Err(error);
        }
        params.group = is_grouped.then_some(group);
        params.highlight = (!highlight.fields.is_empty()).then_some(highlight);
        Ok(params)
    }
}

fn below(raw: &Raw, most: u64) -> Result<u64, Error> {
    let number = integer(raw).ok_or_else(|| invalid("limit", raw))?;
    match u64::try_from(number) {
        Ok(number) if number > most => {
            Err(Error::query_parse(format!("Value for limit is too large, must not exceed {most}")))
        }
        Ok(number) => Ok(number),
        Err(_) => Err(Error::query_parse("limit must be greater than or equal to zero")),
    }
}

fn positive(name: &str, raw: &Raw) -> Result<u64, Error> {
    let number = integer(raw).ok_or_else(|| invalid(name, raw))?;
    let number = u64::try_from(number).ok().filter(|number| *number > 0);
    number.ok_or_else(|| Error::query_parse(format!("{name} must be greater than zero")))
}

fn tag(name: &str, raw: Raw) -> Result<String, Error> {
    let json = raw.json()?;
    let text = json.value().as_str().map(std::borrow::Cow::into_owned);
    text.ok_or_else(|| Error::bad_request(format!("{name} must be a string")))
}

fn sorts(value: Value<'_>) -> Result<Vec<Sort>, Error> {
    if value.is_null() || value.is_string("relevance") {
        return Ok(Vec::new());
    }
    Ok(one_or_more("sort", value)?.iter().map(|sort| Sort::parse_classic(sort)).collect::<Result<_, _>>()?)
}

/// Parses `{"field":{"few":"[0 TO 10}",…},…}`.
fn ranges(value: Value<'_>) -> Result<Vec<(String, Vec<Range>)>, Error> {
    let malformed = || Error::bad_request("ranges must be an object of objects of ranges");
    if !value.is_object() {
        return Err(malformed());
    }
    let of_field = |ranges: Value<'_>| -> Result<Vec<Range>, Error> {
        if !ranges.is_object() {
            return Err(malformed());
        }
        let one = |(label, range): (Value<'_>, Value<'_>)| {
            let text = range.as_str().ok_or_else(malformed)?;
            Ok(Range::parse_classic(&label.to_text(), &text)?)
        };
        ranges.members().map(one).collect()
    };
    value.members().map(|(name, ranges)| Ok((name.to_text(), of_field(ranges)?))).collect()
}

/// Parses `["field","value",…]`, which a query string can repeat, or a list of such lists.
fn drill(drilldown: &mut Vec<Vec<String>>, value: Value<'_>) -> Result<(), Error> {
    let is_list_of_lists = value.elements().next().is_some_and(|first| first.kind() == Kind::Array);
    if !is_list_of_lists {
        drilldown.push(texts("drilldown", value)?);
        return Ok(());
    }
    *drilldown = value.elements().map(|one| texts("drilldown", one)).collect::<Result<_, _>>()?;
    Ok(())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::tests::live::Values;
    use crate::tests::{json, query, show};

    #[test]
    fn parameters_are_read() {
        let settings = Values::default();
        let text = "q=x&query=y&limit=7&sort=[%22n%3Cnumber%3E%22]&stale=ok&drilldown=[%22a%22,%22b%22]\
                    &drilldown=[%22c%22,%22d%22]";
        let whole = Layout::Whole;
        let params = from_query(&query(text), &settings).unwrap().check(whole, whole).unwrap();
        assert_eq!((params.query.as_deref(), params.limit, params.sort.len()), (Some("y"), 7, 1));
        assert_eq!((params.freshness, params.drilldown.len()), (Freshness::Any, 2));
        let body = r#"{"q":"x","group_field":"f","group_limit":3,"counts":["a"],"drilldown":[["a","b"],["c"]],
            "highlight_fields":["t"],"highlight_pre_tag":"<b>","include_fields":[]}"#;
        let params = from_body(json(body).value(), &query(""), &settings).unwrap().check(whole, whole).unwrap();
        assert_eq!(params.group.map(|group| (group.field, group.limit)), Some(("f".to_owned(), 3)));
        assert_eq!((params.limit, params.drilldown.len(), params.include_fields), (25, 2, Some(Vec::new())));
        assert_eq!(params.highlight.map(|highlight| highlight.pre_tag), Some("<b>".to_owned()));
    }

    #[test]
    fn errors_are_couchdbs() {
        let settings = Values::default();
        let get = |layout, text: &str, expected: &str| {
            let params = from_query(&query(text), &settings).and_then(|collected| collected.check(layout, layout));
            assert_eq!(show(&params.unwrap_err()), expected, "{text}");
        };
        let (whole, partitioned) = (Layout::Whole, Layout::Partitioned);
        get(whole, "", "400 query_parse_error: Query must include a 'q' or 'query' argument");
        get(whole, "q=x&limit=201", "400 query_parse_error: Value for limit is too large, must not exceed 200");
        get(whole, "q=x&limit=-1", "400 query_parse_error: limit must be greater than or equal to zero");
        get(whole, "q=x&limit=x", "400 query_parse_error: Invalid value for limit: \"x\"");
        get(whole, "q=x&group_limit=0", "400 query_parse_error: group_limit must be greater than zero");
        let large = "400 query_parse_error: Value for group_limit is too large, must not exceed 200";
        get(whole, "q=x&group_limit=201", large);
        get(whole, "q=x&stale=yes", "400 query_parse_error: stale only available as stale=ok");
        get(whole, "q=x&include_docs=1", "400 query_parse_error: Invalid value for include_docs: \"1\"");
        get(whole, "q=x&partition=p", "400 bad_request: `partition` not supported on this index");
        get(partitioned, "q=x", "400 bad_request: `partition` parameter is mandatory for queries to this index.");
        get(
            partitioned,
            "q=x&partition=p&counts=[%22a%22]",
            "400 bad_request: `partition` and any of `drilldown`, `ranges`, `group_field`, `group_sort`, `group_limit` or \
             `group_by` are incompatible",
        );
        get(whole, "q=x&counts=1", "400 bad_request: counts must be a list of strings");
        let incompatible = "400 bad_request: `partition` and any of `drilldown`, `ranges`, `group_field`, `group_sort`, \
                            `group_limit` or `group_by` are incompatible";
        for facets in [r#""counts":"[\"a\"]""#, r#""ranges":"{}""#, r#""drilldown":"[]""#] {
            let body = json(&format!(r#"{{"q":"x","partition":"p",{facets}}}"#));
            let collected = from_body(body.value(), &query(""), &settings);
            let params = collected.and_then(|collected| collected.check(partitioned, partitioned));
            assert_eq!(show(&params.unwrap_err()), incompatible, "{facets}");
        }
        let collected = from_body(json(r#"{"q":"x","partition":"a"}"#).value(), &query("partition=b"), &settings);
        let expected = "400 bad_request: Multiple conflicting values for `partition` provided";
        assert_eq!(show(&collected.err().unwrap()), expected);
    }
}
