//! Lists of local documents.

use std::ops::ControlFlow;

use settee_database::{LocalDocument, ReadView};
use settee_model::json::{Json, write_string};

use super::all_docs::{direction, id_range};
use super::documents::write_local;
use super::queries::Queries;
use crate::Error;
use crate::bridge::{self, Output};
use crate::params::view::{Source, ViewKind, ViewParams};
use crate::request::Request;
use crate::respond::Answer;

/// `GET /{db}/_local_docs`
pub(super) async fn get(request: Request) -> Answer {
    let params = ViewParams::from_query(&request.query, Source::Documents)?;
    list(&request, Queries::one(params)).await
}

/// `POST /{db}/_local_docs`
pub(super) async fn post(mut request: Request) -> Answer {
    let body = request.read_called_json().await?;
    let params = ViewParams::from_body(body.value(), &request.query, Source::Documents)?;
    list(&request, Queries::one(params)).await
}

/// `POST /{db}/_local_docs/queries`
pub(super) async fn queries(mut request: Request) -> Answer {
    let queries = Queries::parse(&request.read_called_json().await?, &request.query)?;
    list(&request, queries).await
}

async fn list(request: &Request, mut queries: Queries) -> Answer {
    let database = request.database()?;
    queries.check(ViewKind::Documents(database.layout()), request)?;
    bridge::stream(request.outward(), move |output| {
        let view = database.read()?;
        queries.write(output, |output, params| write_list(output, &view, params))
    })
    .await
}

fn write_list(output: &mut Output, view: &ReadView, params: &ViewParams) -> Result<ControlFlow<()>, Error> {
    output.text().extend_from_slice(b"{\"total_rows\":null,\"offset\":null,\"rows\":[\r\n");
    let mut rows = Rows { output, params, skip: params.skip, left: params.limit.unwrap_or(u64::MAX), first: true };
    let mut flow = ControlFlow::Continue(());
    if let Some(keys) = params.key_list() {
        for key in keys {
            let id = key.value().as_str().unwrap_or_default();
            flow = rows.row(&key, &id, view.local(&id)?);
            if flow.is_break() {
                break;
            }
        }
    } else {
        view.local_docs(&id_range(params), direction(params), |id, local| {
            let mut key = Vec::new();
            write_string(&mut key, id);
            flow = rows.row(&Json::trusted(key), id, Some(local));
            flow.is_continue() && rows.left > 0
        })?;
    }
    rows.output.text().extend_from_slice(b"\r\n]}");
    Ok(flow)
}

struct Rows<'a> {
    output: &'a mut Output,
    params: &'a ViewParams,
    skip: u64,
    left: u64,
    first: bool,
}

impl Rows<'_> {
    fn row(&mut self, key: &Json, id: &str, local: Option<LocalDocument>) -> ControlFlow<()> {
        if self.skip > 0 {
            self.skip -= 1;
            return ControlFlow::Continue(());
        }
        if self.left == 0 {
            return ControlFlow::Continue(());
        }
        self.left -= 1;
        let out = self.output.text();
        if !std::mem::take(&mut self.first) {
            out.extend_from_slice(b",\r\n");
        }
        match local {
            None => {
                out.extend_from_slice(br#"{"key":"#);
                out.extend_from_slice(key.as_bytes());
                out.extend_from_slice(br#","error":"not_found"}"#);
            }
            Some(local) => {
                for (name, value) in [("{\"id\":", id), (",\"key\":", id)] {
                    out.extend_from_slice(name.as_bytes());
                    write_string(out, value);
                }
                out.extend_from_slice(format!(r#","value":{{"rev":"0-{}"}}"#, local.rev).as_bytes());
                if self.params.include_docs {
                    out.extend_from_slice(br#","doc":"#);
                    write_local(out, id, &local, false);
                }
                out.push(b'}');
            }
        }
        self.output.row_done()
    }
}
