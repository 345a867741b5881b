//! Partitions of a partitioned database: validation and information.

use hyper::StatusCode;
use settee_database::{Database, Layout};
use settee_model::json;
use settee_model::partition::{IllegalPartition, InvalidPartitionedId, validate_partition};

use crate::request::Request;
use crate::respond::{self, Answer};
use crate::router::require_partitioned;
use crate::{Error, bridge};

pub(super) async fn incomplete(request: Request) -> Answer {
    request.database()?;
    Err(Error::bad_request("invalid_partition_req"))
}

pub(super) async fn refuse_post(request: Request) -> Answer {
    request.database()?;
    match request.captures.get("partition").starts_with('_') {
        true => Err(IllegalPartition::Reserved.into()),
        false => Err(Error::method_not_allowed("GET")),
    }
}

/// Returns an error for an id without a partition in a partitioned database, also for reads.
pub(super) fn check_place(database: &Database, id: &str) -> Result<(), Error> {
    let is_placed = id.starts_with('_') || id.contains(':');
    match database.layout() {
        Layout::Partitioned if !is_placed => Err(InvalidPartitionedId::NoPartition.into()),
        Layout::Partitioned | Layout::Whole => Ok(()),
    }
}

pub(super) async fn info(request: Request) -> Answer {
    let partition = request.captures.get("partition").to_owned();
    validate_partition(&partition)?;
    let database = request.database()?;
    require_partitioned(&database)?;
    let out = bridge::blocking(&request.threads, move || {
        let info = database.read()?.partition_info(&partition)?;
        // The compressed size of a part of the data is unknown.
        let (active, external) = (info.external_bytes, info.external_bytes);
        Ok(json::object(|object| {
            object.string("db_name", database.name());
            object.object("sizes", |sizes| _ = sizes.value("active", active).value("external", external));
            object.string("partition", &partition);
            object.value("doc_count", info.doc_count).value("doc_del_count", info.doc_del_count);
        }))
    })
    .await?;
    Ok(respond::json(StatusCode::OK, out))
}
