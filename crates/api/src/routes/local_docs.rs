//! Lists of local documents.

use std::ops::ControlFlow;

use settee_database::{LocalDocument, ReadView};
use settee_edge::bridge::Output;
use settee_model::json::{Json, append_object};

use super::all_docs::{asked, direction, id_range};
use super::documents::write_local;
use super::queries::Queries;
use crate::Error;
use crate::bridge;
use crate::params::view::{Source, ViewKind, ViewParams};
use crate::request::Request;
use crate::respond::Answer;

pub(super) const PREFIX: &str = "_local/";

/// Prefixes of CouchDB's internal checkpoints in migrated databases, which are listed only on request.
const SYSTEM: [&str; 2] = ["_local/shard-sync-", "_local/purge-"];

pub(super) async fn get(request: Request) -> Answer {
    let params = ViewParams::from_query(&request.query, Source::Documents)?;
    list(&request, Queries::one(params)).await
}

pub(super) async fn post(mut request: Request) -> Answer {
    let body = request.read_called_json().await?;
    let params = ViewParams::from_body(body.value(), &request.query, Source::Documents)?;
    list(&request, Queries::one(params)).await
}

pub(super) async fn no_id(request: Request) -> Answer {
    request.database()?;
    Err(Error::bad_request("Invalid _local document id."))
}

pub(super) async fn queries(mut request: Request) -> Answer {
    let queries = Queries::parse(&request.read_called_json().await?, &request.query)?;
    list(&request, queries).await
}

async fn list(request: &Request, mut queries: Queries) -> Answer {
    let database = request.database()?;
    queries.check(ViewKind::Documents(database.layout()), request)?;
    bridge::stream(request.admit_response(), move |output| {
        let view = database.read()?;
        queries.write(output, |output, params| write_list(output, &view, params))
    })
    .await
}

fn write_list(output: &mut Output, view: &ReadView<'_>, params: &ViewParams) -> Result<ControlFlow<()>, Error> {
    // Local documents have neither a count nor a sequence.
    let update_seq: &[u8] = if params.update_seq { b",\"update_seq\":null" } else { b"" };
    for text in [b"{\"total_rows\":null,\"offset\":null".as_slice(), update_seq, b",\"rows\":[\r\n"] {
        output.text().extend_from_slice(text);
    }
    let mut rows = Rows { output, params, first: true };
    let flow = match params.key_list() {
        Some(keys) => rows.by_keys(view, asked(params, &keys))?,
        None => rows.by_range(view)?,
    };
    rows.output.text().extend_from_slice(b"\r\n]}");
    Ok(flow)
}

struct Rows<'a> {
    output: &'a mut Output,
    params: &'a ViewParams,
    first: bool,
}

impl Rows<'_> {
    /// Keys that are not ids of local documents have no rows.
    fn by_keys(&mut self, view: &ReadView<'_>, keys: &[Json]) -> Result<ControlFlow<()>, Error> {
        for key in keys {
            let Some(id) = key.value().as_str().filter(|id| id.starts_with(PREFIX)) else { continue };
            let local = view.local(&id)?;
            self.separate();
            match local {
                Some(local) => write_row(self.output.text(), &id, &local, self.params),
                None => {
                    append_object(self.output.text(), |row| {
                        row.json("key", key.as_bytes()).string("error", "not_found");
                    });
                }
            }
            if self.output.row_done().is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn by_range(&mut self, view: &ReadView<'_>) -> Result<ControlFlow<()>, Error> {
        let (mut skip, mut left) = (self.params.skip, self.params.limit.unwrap_or(u64::MAX));
        let mut flow = ControlFlow::Continue(());
        view.local_docs(&id_range(self.params), direction(self.params), |id, local| {
            if !self.params.include_system && SYSTEM.iter().any(|prefix| id.starts_with(prefix)) {
                return true;
            }
            if skip > 0 {
                skip -= 1;
            } else if left > 0 {
                left -= 1;
                self.separate();
                write_row(self.output.text(), id, &local, self.params);
                flow = self.output.row_done();
            }
            flow.is_continue() && left > 0
        })?;
        Ok(flow)
    }

    fn separate(&mut self) {
        if !std::mem::take(&mut self.first) {
            self.output.text().extend_from_slice(b",\r\n");
        }
    }
}

pub(super) fn write_row(out: &mut Vec<u8>, id: &str, local: &LocalDocument, params: &ViewParams) {
    append_object(out, |row| {
        row.string("id", id).string("key", id);
        row.object("value", |value| _ = value.string("rev", &format!("0-{}", local.rev)));
        if params.include_docs {
            write_local(row.name("doc"), id, local, false);
        }
    });
}
