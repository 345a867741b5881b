//! State and control of the index builds of a design document.

use std::sync::Arc;

use hyper::StatusCode;
use settee_database::{Database, Waiting};
use settee_design::DesignDocument;
use settee_model::json::{self, Value};
use settee_search::Searches;
use settee_views::{BuildState, BuildStatus, Urgency};

use super::views::{design_document, update_later};
use crate::node::Node;
use crate::request::Request;
use crate::respond::{self, Answer};
use crate::{Error, bridge};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Start,
    Pause,
    Resume,
    Cancel,
}

impl Action {
    fn parse(body: Value<'_>) -> Result<Self, Error> {
        match body.get("action").and_then(Value::as_str).as_deref() {
            Some("start") => Ok(Self::Start),
            Some("pause") => Ok(Self::Pause),
            Some("resume") => Ok(Self::Resume),
            Some("cancel") => Ok(Self::Cancel),
            _ => Err(Error::bad_request("`action` must be one of start, pause, resume, cancel")),
        }
    }
}

pub(super) async fn state(request: Request) -> Answer {
    let database = request.database()?;
    let name = request.captures.get("ddoc").to_owned();
    let node = Arc::clone(&request.node);
    let state = bridge::blocking(&request.threads, move || {
        let design = design_document(&database, &name, Waiting::Allowed)?;
        state_of(&node, &database, &design)
    })
    .await?;
    Ok(respond::json(StatusCode::OK, state_text(&state)))
}

/// Does not wait for the build.
pub(super) async fn action(mut request: Request) -> Answer {
    let action = Action::parse(request.read_called_json().await?.value())?;
    let database = request.database()?;
    let name = request.captures.get("ddoc").to_owned();
    let node = Arc::clone(&request.node);
    bridge::blocking(&request.threads, move || {
        let design = design_document(&database, &name, Waiting::Allowed)?;
        let Node { views, searches, .. } = &*node;
        match action {
            Action::Pause => views.pause(&database, &design)?,
            Action::Cancel => {
                views.cancel(&database, &design)?;
                searches.note_cancelled(&database, &design);
            }
            Action::Resume => {
                views.resume(&database, &design)?;
                searches.note_resumed(&database, &design);
            }
            Action::Start => {}
        }
        let begins = match action {
            Action::Start | Action::Resume => {
                let status = state_of(&node, &database, &design)?.status;
                // A build that is stopping because of a pause is started after its end.
                status != BuildStatus::Current
            }
            Action::Pause | Action::Cancel => false,
        };
        if begins {
            update_later(views, &database, &design);
            update_searches_later(searches, &database, &design);
        }
        Ok(())
    })
    .await?;
    Ok(respond::ok(StatusCode::ACCEPTED))
}

fn state_of(node: &Node, database: &Arc<Database>, design: &DesignDocument) -> Result<BuildState, Error> {
    let views = node.views.build_state(database, design)?;
    if design.searches.is_empty() {
        return Ok(views);
    }
    Ok(views.and(&node.searches.build_state(database, design)?))
}

fn update_searches_later(searches: &Arc<Searches>, database: &Arc<Database>, design: &Arc<DesignDocument>) {
    if design.searches.is_empty() {
        return;
    }
    let (searches, database, design) = (Arc::clone(searches), Arc::clone(database), Arc::clone(design));
    tokio::task::spawn_blocking(move || match searches.update(&database, &design, Urgency::Background) {
        Err(error) if !error.is_end() => {
            tracing::warn!(%error, database = database.name(), ddoc = %design.id, "a search index was not updated");
        }
        // The build was stopped on request.
        Ok(()) | Err(_) => {}
    });
}

fn state_text(state: &BuildState) -> Vec<u8> {
    let BuildState { status, update_seq, checkpoint_seq, updates_pending, waiting_clients, progress } = state;
    json::object(|object| {
        object.string("status", status.name()).value("update_seq", update_seq);
        object.value_or_null("checkpoint_seq", *checkpoint_seq);
        object.value("updates_pending", updates_pending).value("waiting_clients", waiting_clients);
        if let Some((done, total, eta_s)) = *progress {
            let percent = (done * 100).checked_div(total).map_or(100, |percent| percent.min(100));
            object.value("changes_done", done).value("total_changes", total).value("progress", percent);
            object.value_or_null("eta_s", eta_s);
        }
    })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::tests::{json, show};

    #[test]
    fn orders_have_names() {
        let check = |text: &str, expected| assert_eq!(Action::parse(json(text).value()).ok(), expected, "{text}");
        check(r#"{"action":"start"}"#, Some(Action::Start));
        check(r#"{"action":"pause"}"#, Some(Action::Pause));
        check(r#"{"action":"resume"}"#, Some(Action::Resume));
        check(r#"{"action":"cancel"}"#, Some(Action::Cancel));
        check(r#"{"action":1}"#, None);
        check("[]", None);
        let refused = Action::parse(json("{}").value()).unwrap_err();
        assert_eq!(show(&refused), "400 bad_request: `action` must be one of start, pause, resume, cancel");
    }

    #[test]
    fn states_are_written() {
        let state = BuildState {
            status: BuildStatus::Building,
            update_seq: 5,
            checkpoint_seq: None,
            updates_pending: 9,
            waiting_clients: 1,
            progress: Some((3, 12, Some(7))),
        };
        let check = |state: &BuildState, expected: &str| {
            assert_eq!(String::from_utf8_lossy(&state_text(state)), expected);
        };
        check(
            &state,
            r#"{"status":"building","update_seq":5,"checkpoint_seq":null,"updates_pending":9,"waiting_clients":1,"changes_done":3,"total_changes":12,"progress":25,"eta_s":7}"#,
        );
        check(
            &BuildState { status: BuildStatus::Paused, checkpoint_seq: Some(8), progress: None, ..state },
            r#"{"status":"paused","update_seq":5,"checkpoint_seq":8,"updates_pending":9,"waiting_clients":1}"#,
        );
    }
}
