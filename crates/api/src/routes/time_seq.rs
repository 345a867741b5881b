//! The recorded times of update sequences, from which a feed with a date as `since` starts.

use hyper::StatusCode;
use settee_database::Work;
use settee_model::json::{write_array, write_string};
use settee_service::commits;

use super::cluster::Range;
use crate::bridge;
use crate::request::Request;
use crate::respond::{self, Answer};
use crate::sequence::date;

/// `GET /{db}/_time_seq`: the number of changes in each interval. All changes of a database are in one range,
/// whatever its `q` is.
pub(super) async fn intervals(request: Request) -> Answer {
    let database = request.database()?;
    let intervals = bridge::blocking(move || Ok(database.read()?.changes_by_time()?)).await?;
    let mut out = format!(r#"{{"time_seq":{{"{}":{{"#, Range::of(0, 1)).into_bytes();
    write_string(&mut out, &request.node.identity.node);
    out.push(b':');
    write_array(&mut out, intervals, |out, (time_s, changes)| {
        out.extend_from_slice(format!(r#"["{}",{changes}]"#, date::format(time_s)).as_bytes());
    });
    out.extend_from_slice(b"}}}");
    Ok(respond::json(StatusCode::OK, out))
}

/// `DELETE /{db}/_time_seq`
pub(super) async fn discard(request: Request) -> Answer {
    commits::commit(&request.database()?, vec![Work::ForgetTimes]).await?;
    Ok(respond::ok(StatusCode::OK))
}
