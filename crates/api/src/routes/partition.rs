//! Partitions of a partitioned database: validation and information.

use hyper::StatusCode;
use settee_database::{Database, Layout};
use settee_model::json::write_string;
use settee_model::partition::{IllegalPartition, InvalidPartitionedId, validate_partition};

use crate::request::Request;
use crate::respond::{self, Answer};
use crate::router::require_partitioned;
use crate::{Error, bridge};

/// `/{db}/_partition` without a partition.
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

/// `GET /{db}/_partition/{partition}`
pub(super) async fn info(request: Request) -> Answer {
    let partition = request.captures.get("partition").to_owned();
    validate_partition(&partition)?;
    let database = request.database()?;
    require_partitioned(&database)?;
    let out = bridge::blocking(move || {
        let info = database.read()?.partition_info(&partition)?;
        let mut out = br#"{"db_name":"#.to_vec();
        write_string(&mut out, database.name());
        // The compressed size of a part of the data is unknown.
        let (active, external) = (info.external_bytes, info.external_bytes);
        let (live, deleted) = (info.doc_count, info.doc_del_count);
        out.extend_from_slice(
            format!(r#","sizes":{{"active":{active},"external":{external}}},"partition":"#).as_bytes(),
        );
        write_string(&mut out, &partition);
        out.extend_from_slice(format!(r#","doc_count":{live},"doc_del_count":{deleted}}}"#).as_bytes());
        Ok(out)
    })
    .await?;
    Ok(respond::json(StatusCode::OK, out))
}
