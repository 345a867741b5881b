//! Partitions of a partitioned database: what a path names, and what is told of one.

use hyper::StatusCode;
use settee_database::{Database, Layout};
use settee_model::json::write_string;
use settee_model::partition::{InvalidPartitionedId, validate_partition, validate_partitioned_id};

use crate::request::Request;
use crate::respond::{self, Answer};
use crate::{Error, bridge};

/// The partition that the path names; `None` for paths without one.
///
/// # Errors
/// When the database is not partitioned, or the name is none.
pub(super) fn named(request: &Request) -> Result<Option<String>, Error> {
    let partition = request.captures.get("partition");
    if partition.is_empty() {
        return Ok(None);
    }
    if request.database()?.layout() == Layout::Whole {
        return Err(Error::bad_request("database is not partitioned"));
    }
    validate_partition(partition)?;
    Ok(Some(partition.to_owned()))
}

/// Refuses an id that no document of the database can have because of its partitions.
pub(super) fn check_id(database: &Database, id: &str) -> Result<(), Error> {
    match database.layout() {
        Layout::Whole => Ok(()),
        Layout::Partitioned => Ok(validate_partitioned_id(id)?),
    }
}

/// Refuses an id that tells no partition, which nobody can be asked for: reads of it fail as well.
pub(super) fn check_place(database: &Database, id: &str) -> Result<(), Error> {
    let is_placed = id.starts_with("_design/") || id.starts_with("_local/") || id.contains(':');
    match database.layout() {
        Layout::Partitioned if !is_placed => Err(InvalidPartitionedId::NoPartition.into()),
        Layout::Partitioned | Layout::Whole => Ok(()),
    }
}

/// `GET /{db}/_partition/{partition}`
pub(super) async fn info(request: Request) -> Answer {
    let partition = named(&request)?.ok_or_else(|| Error::not_found("missing"))?;
    let database = request.database()?;
    let out = bridge::blocking(move || {
        let info = database.read()?.partition_info(&partition)?;
        let whole = database.info()?;
        // The bodies of a partition take their share of what the database takes.
        let share = |bytes: u64| {
            let active = u128::from(whole.active_bytes) * u128::from(bytes) / u128::from(whole.external_bytes.max(1));
            u64::try_from(active).unwrap_or(u64::MAX)
        };
        let active = share(info.external_bytes);
        let mut out = br#"{"db_name":"#.to_vec();
        write_string(&mut out, database.name());
        let (external, live, deleted) = (info.external_bytes, info.doc_count, info.doc_del_count);
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
