//! The recorded times of update sequences, from which a feed with a date as `since` starts.

use hyper::StatusCode;
use settee_database::Work;
use settee_model::json::write_array;
use settee_service::commits;

use super::cluster::Range;
use crate::bridge;
use crate::request::Request;
use crate::respond::{self, Answer};
use crate::sequence::date;

/// All changes of a database are in one range, whatever its `q` is.
pub(super) async fn intervals(request: Request) -> Answer {
    let database = request.database()?;
    let intervals = bridge::blocking(&request.threads, move || Ok(database.read()?.changes_by_time()?)).await?;
    Ok(respond::object(StatusCode::OK, |object| {
        object.object("time_seq", |ranges| {
            ranges.object(&Range::of(0, 1).to_string(), |nodes| {
                write_array(nodes.name(&request.node.identity.node), intervals, |out, (time_s, changes)| {
                    out.extend_from_slice(format!(r#"["{}",{changes}]"#, date::format(time_s)).as_bytes());
                });
            });
        });
    }))
}

pub(super) async fn discard(request: Request) -> Answer {
    commits::commit(&request.database()?, vec![Work::ForgetTimes]).await?;
    Ok(respond::ok(StatusCode::OK))
}
