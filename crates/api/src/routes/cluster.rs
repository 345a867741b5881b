//! Resources that describe a cluster. All nodes share one store, so each of them holds all data.

use hyper::StatusCode;
use settee_auth::Suspect;
use settee_database::Layout;
use settee_model::json::{Value, write_array, write_string, write_u64};

use crate::Error;
use crate::bridge;
use crate::failures::FAILURES_PER_MESSAGE_MAX;
use crate::nodes::is_node;
use crate::request::Request;
use crate::respond::{self, Answer};
use crate::routes::partition::check_place;

pub(super) async fn membership(request: Request) -> Answer {
    let nodes = request.node.nodes.names();
    let groups = request.node.nodes.owned_groups();
    Ok(respond::object(StatusCode::OK, |object| {
        object.strings("all_nodes", nodes.iter()).strings("cluster_nodes", nodes.iter());
        let Some(groups) = groups else { return };
        object.object("groups", |object| {
            for (name, numbers) in &groups {
                write_array(object.name(name), numbers, |out, number| write_u64(out, u64::from(*number)));
            }
        });
        let coordinator = groups.iter().find(|(_, numbers)| numbers.contains(&0));
        object.string_or_null("coordinator", coordinator.map(|(name, _)| name.as_str()));
    }))
}

/// Accepts reports of other nodes only; clients are refused.
pub(super) async fn failed_logins(mut request: Request) -> Answer {
    if !is_node(&request.user) {
        return Err(Error::not_found("missing"));
    }
    let body = request.read_object().await?;
    let node = &request.node;
    let (policy, now_ms) = (node.authentication.policy(), (node.clock_ms)());
    let reply = body.value().get("failed").into_iter().flat_map(Value::elements).take(FAILURES_PER_MESSAGE_MAX);
    for suspect in reply.filter_map(|text| Suspect::parse(&text.as_str()?)) {
        node.authenticator.note_reported(&suspect, &policy.login.lockout, now_ms);
    }
    Ok(respond::ok(StatusCode::OK))
}

pub(super) async fn shards(request: Request) -> Answer {
    let q = request.database()?.q();
    let node = node_name(&request);
    bridge::stream(request.admit_response(), move |output| {
        output.text().extend_from_slice(b"{\"shards\":{");
        for index in 0..q {
            let separator = if index > 0 { "," } else { "" };
            output.text().extend_from_slice(format!(r#"{separator}"{}":[{node}]"#, Range::of(index, q)).as_bytes());
            if output.row_done().is_break() {
                return Ok(());
            }
        }
        output.text().extend_from_slice(b"}}\n");
        Ok(())
    })
    .await
}

pub(super) async fn shard_of(request: Request) -> Answer {
    let database = request.database()?;
    let id = request.captures.get("doc");
    check_place(&database, id)?;
    let hashed = match database.layout() {
        Layout::Whole => id,
        Layout::Partitioned => id.split_once(':').map_or(id, |(partition, _)| partition),
    };
    let mut hash = flate2::Crc::new();
    hash.update(hashed.as_bytes());
    let range = Range::around(hash.sum(), database.q());
    Ok(respond::object(StatusCode::OK, |object| {
        object.string("range", &range.to_string()).strings("nodes", [&request.node.identity.node]);
    }))
}

/// CouchDB divides the hashes of ids into `q` ranges of equal length, except for the last.
#[derive(PartialEq, Eq)]
pub(super) struct Range {
    first: u32,
    last: u32,
}

impl Range {
    pub(super) fn of(index: u32, q: u32) -> Self {
        let length = (1 << 32) / u64::from(q.max(1));
        let first = u64::from(index) * length;
        let last = if index + 1 >= q { u64::from(u32::MAX) } else { first + length - 1 };
        let clamped = |hash: u64| u32::try_from(hash).unwrap_or(u32::MAX);
        Self { first: clamped(first), last: clamped(last) }
    }

    /// Parses two hexadecimal numbers of eight digits, the second of which is greater.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let number = |digits: &str| {
            let is_number = digits.len() == 8 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
            is_number.then(|| u32::from_str_radix(digits, 16).ok()).flatten()
        };
        let (first, last) = text.split_once('-')?;
        let range = Self { first: number(first)?, last: number(last)? };
        (range.first < range.last).then_some(range)
    }

    fn around(hash: u32, q: u32) -> Self {
        let length = (1 << 32) / u64::from(q.max(1));
        let index = u32::try_from(u64::from(hash) / length).unwrap_or(u32::MAX);
        Self::of(index.min(q.saturating_sub(1)), q)
    }
}

impl std::fmt::Display for Range {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{:08x}-{:08x}", self.first, self.last)
    }
}

/// Has no effect, because there are no replicas of shards.
pub(super) async fn sync_shards(request: Request) -> Answer {
    request.database()?;
    Ok(respond::ok(StatusCode::ACCEPTED))
}

fn node_name(request: &Request) -> String {
    let mut out = Vec::new();
    write_string(&mut out, &request.node.identity.node);
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::Range;
    use crate::tests::node::World;

    #[test]
    fn ranges_of_shards_cover_all_hashes() {
        for (index, q, expected) in [
            (0, 1, "00000000-ffffffff"),
            (0, 2, "00000000-7fffffff"),
            (1, 2, "80000000-ffffffff"),
            (0, 3, "00000000-55555554"),
            (2, 3, "aaaaaaaa-ffffffff"),
            (7, 8, "e0000000-ffffffff"),
            (u32::MAX - 1, u32::MAX, "fffffffe-ffffffff"),
        ] {
            let range = Range::of(index, q);
            assert_eq!(range.to_string(), expected, "{index} of {q}");
            for hash in [range.first, range.last] {
                assert_eq!(Range::around(hash, q).to_string(), expected, "{hash:x} of {q}");
            }
        }
    }

    #[tokio::test]
    async fn the_number_of_shards_is_reported_as_requested() {
        let world = World::new();
        world.set("cluster", "q", "3");
        for (path, q) in [("/db?q=2&n=5&placement=metro:1,x:2", 2), ("/other", 3)] {
            world.admin(&format!("PUT {path}"), "").await;
            let name = path.split('?').next().unwrap_or_default();
            let info = world.admin(&format!("GET {name}"), "").await;
            assert!(info.body.contains(&format!(r#""cluster":{{"q":{q},"n":1,"w":1,"r":1}}"#)), "{}", info.body);
            let shards = world.admin(&format!("GET {name}/_shards"), "").await;
            assert_eq!(shards.body.matches(r#"["node"]"#).count(), q, "{}", shards.body);
        }
        let shards = world.admin("GET /db/_shards", "").await;
        let expected = r#"200 {"shards":{"00000000-7fffffff":["node"],"80000000-ffffffff":["node"]}}"#;
        assert_eq!(shards.line(), expected);
        let shard = world.admin("GET /db/_shards/a", "").await;
        assert_eq!(shard.line(), r#"200 {"range":"80000000-ffffffff","nodes":["node"]}"#);
    }
}
