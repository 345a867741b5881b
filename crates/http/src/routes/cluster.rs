//! What clients ask of clusters, answered for a cluster of one node that holds everything.

use hyper::StatusCode;
use settee_model::json::write_string;

use crate::request::Request;
use crate::respond::{self, Answer};

/// The one range of hashes that there is.
const RANGE: &str = "00000000-ffffffff";

/// `GET /_membership`
pub(super) async fn membership(request: Request) -> Answer {
    let node = node_name(&request);
    let out = format!(r#"{{"all_nodes":[{node}],"cluster_nodes":[{node}]}}"#);
    Ok(respond::json(StatusCode::OK, out.into_bytes()))
}

/// `GET /{db}/_shards`
pub(super) async fn shards(request: Request) -> Answer {
    request.database()?;
    let out = format!(r#"{{"shards":{{"{RANGE}":[{}]}}}}"#, node_name(&request));
    Ok(respond::json(StatusCode::OK, out.into_bytes()))
}

/// `GET /{db}/_shards/{doc}`
pub(super) async fn shard_of(request: Request) -> Answer {
    request.database()?;
    let out = format!(r#"{{"range":"{RANGE}","nodes":[{}]}}"#, node_name(&request));
    Ok(respond::json(StatusCode::OK, out.into_bytes()))
}

/// `POST /{db}/_sync_shards`: there is nothing to bring in step.
pub(super) async fn sync_shards(request: Request) -> Answer {
    request.database()?;
    Ok(respond::ok(StatusCode::ACCEPTED))
}

fn node_name(request: &Request) -> String {
    let mut out = Vec::new();
    write_string(&mut out, &request.node.identity.node);
    String::from_utf8_lossy(&out).into_owned()
}
