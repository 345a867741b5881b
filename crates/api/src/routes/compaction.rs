//! Compactions on request, which run in the background after the response.

use std::sync::Arc;

use hyper::StatusCode;
use settee_database::{Compaction, Waiting, pause_between_pieces};
use tokio::sync::watch;

use super::views::design_document;
use crate::request::Request;
use crate::respond::{self, Answer};
use crate::{Error, body, bridge};

pub(super) async fn database(request: Request, stopping: watch::Receiver<bool>) -> Answer {
    body::require_json(&request.headers)?;
    let database = request.database()?;
    let tasks = request.node.tasks.clone();
    tokio::task::spawn_blocking(move || {
        let name = database.name();
        match database.compact(&tasks, &mut pause_between_pieces(|| *stopping.borrow())) {
            Ok(Compaction::Done) => tracing::info!(database = name, "compacted"),
            Ok(Compaction::Stopped | Compaction::Running) => {}
            Err(error) => tracing::warn!(%error, database = name, "a compaction ended early"),
        }
    });
    Ok(respond::ok(StatusCode::ACCEPTED))
}

pub(super) async fn view(request: Request) -> Answer {
    body::require_json(&request.headers)?;
    let database = request.database()?;
    let name = request.captures.get("ddoc").to_owned();
    let reader = Arc::clone(&database);
    let read = move || design_document(&reader, &name, Waiting::Allowed);
    let design = bridge::blocking(&request.threads, read).await?;
    // From here on `compact_running` is true; clients poll it.
    let compaction = request.node.views.begin_compaction(&database, design);
    let node = Arc::clone(&request.node);
    tokio::task::spawn_blocking(move || {
        let views = compaction.run().map_err(Error::from);
        let searches = node.searches.compact(&database, compaction.ddoc()).map_err(Error::from);
        if let Err(error) = views.and(searches) {
            tracing::warn!(reason = %error.reason, database = database.name(), ddoc = %compaction.ddoc().id, "an index was not compacted");
        }
    });
    Ok(respond::ok(StatusCode::ACCEPTED))
}
