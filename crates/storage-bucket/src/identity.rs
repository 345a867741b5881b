//! The identity object of a store: which cluster the objects belong to, and which format they have. It is created by a
//! conditional put, so two clusters never share a prefix.

use std::num::NonZeroU32;

use futures_util::StreamExt as _;
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt as _, PutMode, PutOptions};
use settee_storage::{Result, StorageError};

use crate::error::{explain, is_missing_bucket};
use crate::location::LOCK;

/// Identifier of a cluster: the nodes that serve one store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClusterId(pub u128);

pub(crate) const OBJECT: &str = "settee-cluster";

/// Format of the objects. A program refuses stores with a greater number.
const FORMAT: u64 = 2;

/// An identity object is shorter.
const OBJECT_BYTES_MAX: u64 = 4096;

/// The properties of a store that all its processes share.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    format: u64,
    pub(crate) cluster: ClusterId,
    /// Number of groups of shards. It never changes.
    pub(crate) groups: NonZeroU32,
    /// Secret by which the processes authenticate each other. Access to the bucket gives access to all data anyway.
    pub(crate) secret: [u8; 32],
}

impl Identity {
    /// Creates the identity of a new store.
    pub(crate) fn new(cluster: ClusterId, groups: NonZeroU32, secret: [u8; 32]) -> Self {
        Self { format: FORMAT, cluster, groups, secret }
    }

    fn encode(&self) -> String {
        let secret: String = self.secret.iter().map(|byte| format!("{byte:02x}")).collect();
        let Self { format, cluster, groups, .. } = self;
        format!("settee bucket\nformat {format}\ncluster {:032x}\ngroups {groups}\nsecret {secret}\n", cluster.0)
    }

    fn decode(text: &str) -> Option<Self> {
        let mut lines = text.strip_prefix("settee bucket\n")?.lines();
        let format = lines.next()?.strip_prefix("format ")?.parse().ok()?;
        let cluster = lines.next()?.strip_prefix("cluster ")?;
        let cluster = ClusterId(u128::from_str_radix(cluster, 16).ok()?);
        if format != FORMAT {
            return Some(Self { format, cluster, groups: NonZeroU32::MIN, secret: [0; 32] });
        }
        let groups = lines.next()?.strip_prefix("groups ")?.parse().ok()?;
        let text = lines.next()?.strip_prefix("secret ")?;
        let mut secret = [0; 32];
        for (byte, at) in secret.iter_mut().zip((0..).step_by(2)) {
            *byte = u8::from_str_radix(text.get(at..at + 2)?, 16).ok()?;
        }
        Some(Self { format, cluster, groups, secret })
    }
}

/// Returns the identity of the store, after creating that of an empty one as `new`. Fails, and writes
/// nothing, if the store cannot be accessed, has another format, contains other objects, or belongs to a cluster other
/// than `expected`.
pub(crate) async fn establish(
    objects: &dyn ObjectStore,
    shown: &str,
    expected: Option<ClusterId>,
    new: Identity,
) -> Result<Identity> {
    if let Some(found) = read(objects, shown).await? {
        return check(found, shown, expected);
    }
    if let Some(expected) = expected {
        return Err(StorageError::Io(format!(
            "{shown} contains no data, and this node belongs to cluster {:032x}: check the bucket and the prefix. \
             Nothing was written",
            expected.0
        )));
    }
    let mut others = objects.list(None);
    while let Some(object) = others.next().await {
        let object = object.map_err(|error| explain(shown, OBJECT, &error))?;
        if object.location.as_ref() == LOCK {
            continue;
        }
        return Err(StorageError::Io(format!(
            "{shown} contains other objects, such as {}, but no data of a cluster: choose another prefix. Nothing was \
             written",
            object.location
        )));
    }
    let identity = new;
    let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
    match objects.put_opts(&Path::from(OBJECT), identity.encode().into(), options).await {
        Ok(_) => Ok(identity),
        // Another node created it, or the response to an earlier attempt of this one was lost.
        Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => match read(objects, shown).await? {
            Some(found) => check(found, shown, expected),
            None => Err(StorageError::Unreached(format!("{OBJECT} in {shown} was removed during the start"))),
        },
        Err(error) => Err(explain(shown, OBJECT, &error)),
    }
}

/// Returns the identity of a store that contains data.
pub(crate) async fn existing(objects: &dyn ObjectStore, shown: &str) -> Result<Identity> {
    match read(objects, shown).await? {
        Some(found) => check(found, shown, None),
        None => Err(StorageError::Io(format!("{shown} contains no data, or did not at that time"))),
    }
}

async fn read(objects: &dyn ObjectStore, shown: &str) -> Result<Option<Identity>> {
    let found = match objects.get(&Path::from(OBJECT)).await {
        Ok(found) => found,
        Err(error) if is_missing_bucket(&error) => return Err(explain(shown, OBJECT, &error)),
        Err(Error::NotFound { .. }) => return Ok(None),
        Err(error) => return Err(explain(shown, OBJECT, &error)),
    };
    let unknown = || StorageError::Io(format!("{OBJECT} in {shown} is not the identity of a cluster"));
    if found.meta.size > OBJECT_BYTES_MAX {
        return Err(unknown());
    }
    let bytes = found.bytes().await.map_err(|error| explain(shown, OBJECT, &error))?;
    let identity = std::str::from_utf8(&bytes).ok().and_then(Identity::decode).ok_or_else(unknown)?;
    Ok(Some(identity))
}

fn check(found: Identity, shown: &str, expected: Option<ClusterId>) -> Result<Identity> {
    if found.format > FORMAT {
        return Err(StorageError::Io(format!(
            "the data in {shown} have format {}, and this program supports {FORMAT} at most: use a newer version. \
             Nothing was written",
            found.format
        )));
    }
    if found.format < FORMAT {
        return Err(StorageError::Io(format!(
            "the data in {shown} have format {}, which an earlier version wrote and this one cannot read: copy them with \
             `settee storage copy` of that version. Nothing was written",
            found.format
        )));
    }
    match expected {
        Some(expected) if expected != found.cluster => Err(StorageError::Io(format!(
            "the data in {shown} belong to cluster {:032x}, and this node to cluster {:032x}: check the bucket and the \
             prefix. Nothing was written",
            found.cluster.0, expected.0
        ))),
        _ => Ok(found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_are_decoded_as_they_were_encoded() {
        let secret = std::array::from_fn(|at| at as u8 * 8);
        let identity = Identity::new(ClusterId(77), NonZeroU32::new(16).expect("positive"), secret);
        assert!(Identity::decode(&identity.encode()) == Some(identity), "it was encoded");
        for text in ["", "settee bucket\n", "settee bucket\nformat x\n", "other\nformat 1\ncluster 0\n"] {
            assert!(Identity::decode(text).is_none(), "{text}");
        }
    }
}
