//! [`Queries`]: the queries of a request to a list or a view.

use std::ops::ControlFlow;
use std::slice;

use settee_edge::bridge::Output;
use settee_model::json::{Json, Kind};

use crate::Error;
use crate::params::Query;
use crate::params::view::{ViewKind, ViewParams};
use crate::request::Request;

#[derive(Debug)]
pub(super) enum Queries {
    One(Box<ViewParams>),
    Several(Vec<ViewParams>),
}

impl Queries {
    pub(super) fn one(params: ViewParams) -> Self {
        Self::One(Box::new(params))
    }

    pub(super) fn parse(body: &Json, query: &Query) -> Result<Self, Error> {
        if body.value().kind() != Kind::Object {
            return Err(Error::bad_request("Request body must be a JSON object"));
        }
        let queries = body.value().get("queries");
        let queries = queries.ok_or_else(|| Error::bad_request("POST body must include `queries` parameter."))?;
        if queries.kind() != Kind::Array {
            return Err(Error::bad_request("`queries` member must be an array."));
        }
        ViewParams::of_queries(queries, query).map(Self::Several)
    }

    pub(super) fn check(&mut self, kind: ViewKind, request: &Request) -> Result<(), Error> {
        self.as_mut_slice().iter_mut().try_for_each(|params| params.check(kind, request.node.settings.as_ref()))
    }

    pub(super) fn as_slice(&self) -> &[ViewParams] {
        match self {
            Self::One(params) => slice::from_ref(params),
            Self::Several(queries) => queries,
        }
    }

    fn as_mut_slice(&mut self) -> &mut [ViewParams] {
        match self {
            Self::One(params) => slice::from_mut(params),
            Self::Several(queries) => queries,
        }
    }

    /// Several results are the elements of an array.
    pub(super) fn write(
        &self,
        output: &mut Output,
        mut answer: impl FnMut(&mut Output, &ViewParams) -> Result<ControlFlow<()>, Error>,
    ) -> Result<(), Error> {
        let (begin, end): (&[u8], &[u8]) = match self {
            Self::One(_) => (b"", b"\n"),
            Self::Several(_) => (b"{\"results\":[", b"\r\n]}\n"),
        };
        output.text().extend_from_slice(begin);
        for (index, params) in self.as_slice().iter().enumerate() {
            if let Self::Several(_) = self {
                output.text().extend_from_slice(if index == 0 { b"\r\n" } else { b",\r\n" });
            }
            if answer(output, params)?.is_break() {
                return Ok(());
            }
        }
        output.text().extend_from_slice(end);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{json, query, show};

    #[test]
    fn lists_of_queries() {
        let check = |body: &str, expected: Result<usize, &str>| {
            let queries = Queries::parse(&json(body), &query(""));
            let found = queries.map(|queries| queries.as_slice().len()).map_err(|error| show(&error));
            assert_eq!(found, expected.map_err(str::to_owned), "{body}");
        };
        check(r#"{"queries":[]}"#, Ok(0));
        check(r#"{"queries":[{},{"limit":1}]}"#, Ok(2));
        check("{}", Err("400 bad_request: POST body must include `queries` parameter."));
        check("[]", Err("400 bad_request: Request body must be a JSON object"));
        check(r#"{"queries":{}}"#, Err("400 bad_request: `queries` member must be an array."));
        check(r#"{"queries":[1]}"#, Err("400 bad_request: Request body must be a JSON object"));
        check(r#"{"queries":[{"limit":-1}]}"#, Err("400 query_parse_error: Invalid value for positive integer: -1"));
    }
}
