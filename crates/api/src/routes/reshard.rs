//! `_reshard`: the state of resharding, of a server whose databases have one shard each.

use std::sync::Arc;

use hyper::StatusCode;
use settee_database::Database;
use settee_model::json::Value;

use super::cluster::Range;
use crate::Error;
use crate::node::Node;
use crate::request::Request;
use crate::respond::{self, Answer};

pub(super) async fn summary(_: Request) -> Answer {
    let out = r#"{"state":"running","state_reason":null,"completed":0,"failed":0,"running":0,"stopped":0,"total":0}"#;
    Ok(respond::json(StatusCode::OK, out.as_bytes().to_vec()))
}

pub(super) async fn state(_: Request) -> Answer {
    Ok(respond::json(StatusCode::OK, br#"{"state":"running","reason":null}"#.to_vec()))
}

/// Has no effect, because there are no jobs to stop or resume.
pub(super) async fn set_state(mut request: Request) -> Answer {
    let body = request.read_called_json().await?;
    if !body.value().is_object() {
        return Err(Error::bad_request("Request body must be a JSON object"));
    }
    let state = body.value().get("state").ok_or_else(|| Error::bad_request("Expected a `state` field"))?;
    if !["running", "stopped"].iter().any(|known| state.is_string(known)) {
        return Err(Error::bad_request("State field not `running` or `stopped`"));
    }
    Ok(respond::ok(StatusCode::OK))
}

pub(super) async fn jobs(_: Request) -> Answer {
    Ok(respond::json(StatusCode::OK, br#"{"total_rows":0,"offset":0,"jobs":[]}"#.to_vec()))
}

/// Validates as in CouchDB, although no job is started.
pub(super) async fn begin(mut request: Request) -> Answer {
    let body = request.read_called_json().await?;
    if !body.value().is_object() {
        return Err(Error::bad_request("Request body must be a JSON object"));
    }
    let job = Job::parse(body.value(), &request.node)?;
    let database = match (job.database, job.shard) {
        (Some(database), None) => database,
        (None, Some(shard)) => request.node.database(database_of(&shard))?,
        (Some(_), Some(_)) => return Err(Error::bad_request("`db` and `shard` are mutually exclusive")),
        (None, None) => return Err(Error::bad_request("Must specify at least `db` or `shard`")),
    };
    let q = database.q();
    if job.range.is_some_and(|range| (0..q).all(|index| Range::of(index, q) != range)) {
        return Err(Error::not_found("missing"));
    }
    Err(Error::not_implemented("a database has one shard here, which is not divided"))
}

struct Job {
    shard: Option<String>,
    database: Option<Arc<Database>>,
    range: Option<Range>,
}

impl Job {
    /// The order of the checks is CouchDB's.
    fn parse(body: Value<'_>, node: &Node) -> Result<Self, Error> {
        if let Some(name) = body.get("node") {
            let name = name.as_str().ok_or_else(|| Error::bad_request("Invalid `node`"))?;
            if !node.nodes.names().iter().any(|live| *live == name) {
                return Err(Error::bad_request("`node` is not a valid node name"));
            }
        }
        let shard = body.get("shard").map(parse_shard).transpose()?;
        let database = body.get("db").map(|name| {
            let database = name.as_str().and_then(|name| node.database(&name).ok());
            database.ok_or_else(|| Error::bad_request("Invalid `db`"))
        });
        let database = database.transpose()?;
        let range = body.get("range").map(|range| {
            let range = range.as_str().and_then(|text| Range::parse(&text));
            range.ok_or_else(|| Error::bad_request("Invalid `range`"))
        });
        let range = range.transpose()?;
        if !body.get("type").is_some_and(|kind| kind.is_string("split")) {
            // CouchDB's message has this apostrophe.
            return Err(Error::bad_request("`job type must be `split`"));
        }
        Ok(Self { shard, database, range })
    }
}

/// Parses the name of a shard: `shards/00000000-7fffffff/db.1633044221`.
fn parse_shard(shard: Value<'_>) -> Result<String, Error> {
    let name = shard.as_str().ok_or_else(|| Error::bad_request("Invalid `shard`"))?;
    let parts = name.strip_prefix("shards/").and_then(|rest| rest.split_once('/'));
    let is_range = |range: &str| range.len() == 17 && range.as_bytes()[8] == b'-';
    match parts {
        Some((range, _)) if is_range(range) => Ok(name.into_owned()),
        _ => Err(Error::bad_request("`shard` is invalid")),
    }
}

fn database_of(shard: &str) -> &str {
    let name = shard.splitn(3, '/').nth(2).unwrap_or_default();
    name.rsplit_once('.').map_or(name, |(name, _)| name)
}

#[cfg(test)]
mod tests {
    use crate::tests::node::{Ask, World};

    #[tokio::test]
    async fn jobs_are_validated_before_they_are_refused() {
        let world = World::new();
        world.admin("PUT /db?q=2", "").await;
        let bad = |reason: &str| format!(r#"400 {{"error":"bad_request","reason":"{reason}"}}"#);
        let missing = r#"404 {"error":"not_found","reason":"missing"}"#.to_owned();
        let no_database = r#"404 {"error":"not_found","reason":"Database does not exist."}"#.to_owned();
        let reason = "a database has one shard here, which is not divided";
        let refused = format!(r#"501 {{"error":"not_implemented","reason":"{reason}"}}"#);
        for (body, expected) in [
            ("x", bad("invalid UTF-8 JSON")),
            ("[]", bad("Request body must be a JSON object")),
            ("{}", bad("`job type must be `split`")),
            (r#"{"db":"db"}"#, bad("`job type must be `split`")),
            (r#"{"type":"split"}"#, bad("Must specify at least `db` or `shard`")),
            (r#"{"type":"split","node":"node"}"#, bad("Must specify at least `db` or `shard`")),
            (r#"{"node":null}"#, bad("Invalid `node`")),
            (r#"{"node":"x@y"}"#, bad("`node` is not a valid node name")),
            (r#"{"shard":1}"#, bad("Invalid `shard`")),
            (r#"{"shard":"x"}"#, bad("`shard` is invalid")),
            (r#"{"shard":"shards/00000000-7ffffff/db.1"}"#, bad("`shard` is invalid")),
            (r#"{"type":"split","shard":"shards/00000000-7fffffff/nosuch.1"}"#, no_database),
            (r#"{"db":1}"#, bad("Invalid `db`")),
            (r#"{"db":"nosuch"}"#, bad("Invalid `db`")),
            (r#"{"db":"db","range":1}"#, bad("Invalid `range`")),
            (r#"{"db":"db","range":"7fffffff-00000002"}"#, bad("Invalid `range`")),
            (r#"{"db":"db","range":"-0000001-00000002"}"#, bad("Invalid `range`")),
            (r#"{"type":"split","db":"db","range":"00000000-ffffffff"}"#, missing),
            (
                r#"{"type":"split","db":"db","shard":"shards/00000000-7fffffff/db.1"}"#,
                bad("`db` and `shard` are mutually exclusive"),
            ),
            (r#"{"type":"split","db":"db","range":"00000000-7fffffff"}"#, refused.clone()),
            (r#"{"type":"split","shard":"shards/00000000-7fffffff/db.1"}"#, refused),
        ] {
            let ask = Ask::new("POST /_reshard/jobs").basic("admin", "pw").json(body);
            assert_eq!(world.ask(ask).await.line(), expected, "{body}");
        }
        let unlike = r#"415 {"error":"bad_content_type","reason":"Content-Type must be application/json"}"#;
        let ask = Ask::new("POST /_reshard/jobs").basic("admin", "pw").text("text/plain", "{}");
        assert_eq!(world.ask(ask).await.line(), unlike);
    }
}
