//! Requests for a whole database: information, creation, local documents.

use settee_model::json::{Json, Value};

use super::changes::since_parameter;
use super::{Peer, PeerError, PeerRequest, document_path, encoded};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Info {
    /// Any JSON value.
    pub(crate) update_seq: Json,
    /// Distinguishes a database from a later one with the same name. Any JSON.
    pub(crate) instance_start_time: Option<Json>,
}

impl Peer {
    pub(crate) async fn info(&self) -> Result<Info, PeerError> {
        let peer_request = PeerRequest::get(self.uri(""));
        let shown = || self.endpoint().to_string();
        let answer = self.exchange(&peer_request).await?;
        match answer.status {
            200 => {
                let json = answer.json(&peer_request).map_err(|_| PeerError::DbNotFound(shown()))?;
                let update_seq = json.value().get("update_seq").ok_or_else(|| PeerError::DbNotFound(shown()))?;
                Ok(Info {
                    update_seq: owned(update_seq),
                    instance_start_time: json.value().get("instance_start_time").map(owned),
                })
            }
            401 => Err(PeerError::Unauthenticated(shown())),
            403 => Err(PeerError::Unauthorized(shown())),
            _ => Err(PeerError::DbNotFound(shown())),
        }
    }

    pub(crate) async fn create(&self, parameters: &[(String, String)]) -> Result<(), PeerError> {
        let query: Vec<String> =
            parameters.iter().map(|(name, value)| format!("{}={}", encoded(name), encoded(value))).collect();
        let query = if query.is_empty() { String::new() } else { format!("?{}", query.join("&")) };
        let peer_request = PeerRequest::put(format!("{}{query}", self.uri("")), "");
        let answer = self.exchange(&peer_request).await?;
        match answer.status {
            401 => Err(PeerError::Unauthenticated(self.endpoint().to_string())),
            403 => Err(PeerError::Unauthorized(self.endpoint().to_string())),
            // The database may exist; any other problem is reported when it is opened.
            _ => Ok(()),
        }
    }

    /// Makes all writes durable. Returns the `instance_start_time`.
    pub(crate) async fn ensure_full_commit(&self) -> Result<Option<Json>, PeerError> {
        let peer_request = PeerRequest::post(self.uri("_ensure_full_commit"), "{}");
        let answer = self.exchange(&peer_request).await?;
        if !answer.is_success() {
            return Err(peer_request.status(answer.status, &answer.body));
        }
        Ok(answer.json(&peer_request)?.value().get("instance_start_time").map(owned))
    }

    pub(crate) async fn local_document(&self, name: &str) -> Result<Option<Json>, PeerError> {
        let peer_request = PeerRequest::get(self.uri(&document_path(&format!("_local/{name}"))));
        let answer = self.exchange(&peer_request).await?;
        match answer.status {
            200 => answer.json(&peer_request).map(Some),
            404 => Ok(None),
            status => Err(peer_request.status(status, &answer.body)),
        }
    }

    /// `body` contains `_id` and `_rev`. Returns the new revision, or `None` after a conflict.
    pub(crate) async fn put_local_document(&self, name: &str, body: Vec<u8>) -> Result<Option<String>, PeerError> {
        let peer_request = PeerRequest::put(self.uri(&document_path(&format!("_local/{name}"))), body);
        let answer = self.exchange(&peer_request).await?;
        match answer.status {
            200..300 => {
                let json = answer.json(&peer_request)?;
                let rev = json.value().get("rev").and_then(Value::as_str);
                rev.map(|rev| Some(rev.into_owned())).ok_or_else(|| peer_request.protocol("it contains no `rev`"))
            }
            409 => Ok(None),
            status => Err(peer_request.status(status, &answer.body)),
        }
    }

    pub(crate) async fn document(&self, id: &str) -> Result<Json, PeerError> {
        let peer_request = PeerRequest::get(self.uri(&document_path(id)));
        let answer = self.exchange(&peer_request).await?;
        match answer.status {
            200 => answer.json(&peer_request),
            status => Err(peer_request.status(status, &answer.body)),
        }
    }

    /// Returns the number of changes after `since`; `None` if the peer does not report it.
    pub(crate) async fn pending(&self, since: &Json) -> Result<Option<u64>, PeerError> {
        let peer_request = PeerRequest::get(self.uri(&format!("_changes?since={}&limit=0", since_parameter(since))));
        let answer = self.exchange(&peer_request).await?;
        match answer.status {
            200 => Ok(answer.json(&peer_request)?.value().get("pending").and_then(Value::as_u64)),
            status => Err(peer_request.status(status, &answer.body)),
        }
    }
}

fn owned(value: Value<'_>) -> Json {
    Json::trusted(value.raw().to_vec())
}
