//! The backups that the server writes: their state, and a request for one.

use hyper::StatusCode;
use settee_model::json::{self, ObjectWriter, append_object, write_array};

use super::server::require_node;
use crate::Error;
use crate::body;
use crate::operation::{BackupAttempt, BackupProgress, BackupSize, BackupState};
use crate::request::Request;
use crate::respond::{self, Answer};

pub(super) async fn state(request: Request) -> Answer {
    require_node(&request)?;
    let state = request.node.operation.backups.as_ref().map(|backups| backups.state());
    Ok(respond::json(StatusCode::OK, text(state.as_ref())))
}

/// `POST /_node/{node}/_backup`: does not wait for the backup. HTML forms cannot send the required content type.
pub(super) async fn start(request: Request) -> Answer {
    require_node(&request)?;
    body::require_json(&request.headers)?;
    let Some(backups) = &request.node.operation.backups else {
        return Err(Error::bad_request("no backups are configured: set `[backup] url` and restart the server"));
    };
    backups.start();
    Ok(respond::ok(StatusCode::ACCEPTED))
}

fn text(state: Option<&BackupState>) -> Vec<u8> {
    let Some(BackupState { location, interval_ms, next_ms, running, attempts, stored }) = state else {
        return br#"{"configured":false}"#.to_vec();
    };
    json::object(|object| {
        object.value("configured", true).string("location", location).value("interval_ms", interval_ms);
        object.value_or_null("next_ms", *next_ms);
        match running {
            Some(progress) => object.object("running", |object| write_progress(object, progress)),
            None => object.json("running", b"null"),
        };
        write_array(object.name("attempts"), attempts, write_attempt);
        object.strings("stored", stored);
    })
}

fn write_progress(object: &mut ObjectWriter<'_>, progress: &BackupProgress) {
    let BackupProgress { started_ms, total_files, files, sent_bytes } = progress;
    object.value("started_ms", started_ms).value("total_files", total_files);
    object.value("files", files).value("sent_bytes", sent_bytes);
}

fn write_attempt(out: &mut Vec<u8>, attempt: &BackupAttempt) {
    let BackupAttempt { started_ms, ended_ms, outcome } = attempt;
    append_object(out, |object| {
        object.value("started_ms", started_ms).value("ended_ms", ended_ms);
        match outcome {
            Ok(BackupSize { bytes, sent_bytes }) => object.value("bytes", bytes).value("sent_bytes", sent_bytes),
            Err(error) => object.string("error", error),
        };
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::node::{Ask, World};

    #[test]
    fn the_state_is_json() {
        assert_eq!(text(None), br#"{"configured":false}"#);
        let size = BackupSize { bytes: 9, sent_bytes: 4 };
        let attempts = [(1, Ok(size)), (3, Err("no \"bucket\"".to_owned()))]
            .map(|(started_ms, outcome)| BackupAttempt { started_ms, ended_ms: started_ms + 1, outcome });
        let running = Some(BackupProgress { started_ms: 5, total_files: 3, files: 1, sent_bytes: 2 });
        let state = BackupState {
            location: "s3://b/p".to_owned(),
            interval_ms: 7,
            next_ms: None,
            running,
            attempts: attempts.to_vec(),
            stored: vec!["a".to_owned()],
        };
        let expected = r#"{"configured":true,"location":"s3://b/p","interval_ms":7,"next_ms":null,"#.to_owned()
            + r#""running":{"started_ms":5,"total_files":3,"files":1,"sent_bytes":2},"attempts":["#
            + r#"{"started_ms":1,"ended_ms":2,"bytes":9,"sent_bytes":4},"#
            + r#"{"started_ms":3,"ended_ms":4,"error":"no \"bucket\""}],"stored":["a"]}"#;
        assert_eq!(String::from_utf8_lossy(&text(Some(&state))), expected);
    }

    #[tokio::test]
    async fn only_administrators_of_the_server_have_backups() {
        let world = World::new();
        let (get, post) = ("GET /_node/_local/_backup", "POST /_node/_local/_backup");
        assert_eq!(world.ask(Ask::new(get)).await.status, 401);
        assert_eq!(world.ask(Ask::new(post).json("{}")).await.status, 401);
        assert_eq!(world.admin(get, "").await.body.trim(), "{\"configured\":false}");
        let by_admin = || Ask::new(post).basic("admin", "pw");
        assert_eq!(world.ask(by_admin().json("{}")).await.status, 400);
        assert_eq!(world.ask(by_admin().text("text/plain", "{}")).await.status, 415);
    }
}
