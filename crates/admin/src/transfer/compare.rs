//! [`compare`]: compares two stores entry by entry and checks their consistency. Equal entries of a database imply
//! equal revision trees, bodies, attachments and update sequences. The same pass checks that each revision has a body,
//! and each attachment its digest.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::ControlFlow;

use anyhow::Context as _;
use settee_database::verify::{places, shards, verify};
use settee_storage::{Cursor, Engine, Keyspace, Shard, ShardState, Snapshot, StorageError};

use super::copy::scan;
use crate::verify::{Progress, size};

const SHOWN_MAX: usize = 20;

#[derive(Debug, Default)]
pub(super) struct Compared {
    databases: u64,
    documents: u64,
    attachments: u64,
    indexes: u64,
    bytes: u64,
    differences: Vec<String>,
    more: u64,
}

impl Compared {
    pub(super) fn is_same(&self) -> bool {
        self.differences.is_empty()
    }

    pub(super) fn text(&self, from: &str, to: &str) -> String {
        let Self { databases, documents, attachments, indexes, bytes, differences, more } = self;
        let description = format!(
            "{databases} databases with {documents} documents, {attachments} attachments and {indexes} indexes, {}",
            size(*bytes)
        );
        if self.is_same() {
            return format!("the same on both sides: {description}\n");
        }
        let mut text = format!("NOT the same: {from} and {to}; compared were {description}\n");
        for line in differences {
            let _ = writeln!(text, "  {line}");
        }
        if *more > 0 {
            let _ = writeln!(text, "  and {more} more");
        }
        text
    }

    fn differ(&mut self, description: String) {
        if self.differences.len() < SHOWN_MAX {
            self.differences.push(description);
        } else {
            self.more += 1;
        }
    }
}

pub(super) fn compare(one: &dyn Engine, other: &dyn Engine) -> anyhow::Result<Compared> {
    let mut found = Compared::default();
    let mut progress = Progress::new(None);
    let (databases, error) = places(one);
    if let Some(error) = error {
        return Err(error).context("the databases cannot be listed");
    }
    let mut names = BTreeMap::from([(Shard(0), "the list of databases".to_owned())]);
    for place in &databases {
        names.insert(place.shard, format!("database {}", place.name));
        names.extend(place.indexes.iter().map(|(shard, _)| (*shard, format!("an index of database {}", place.name))));
    }
    found.databases = databases.len() as u64;
    for shard in shards(one).context("the databases cannot be listed")? {
        let name = names.get(&shard).map_or("something that belongs to no database", String::as_str);
        found.shard(one, other, shard, name, &mut progress)?;
    }
    for place in &databases {
        let verified = verify(other, place.shard, &mut |_| ControlFlow::Continue(()));
        found.documents += verified.documents;
        found.attachments += verified.attachments;
        found.indexes += place.indexes.len() as u64;
        found.more += verified.more;
        for problem in verified.problems {
            let document = problem.document.map_or(String::new(), |id| format!(", document {id}"));
            found.differ(format!("database {}{document}: {}", place.name, problem.description));
        }
    }
    progress.end();
    Ok(found)
}

impl Compared {
    fn shard(
        &mut self,
        one: &dyn Engine,
        other: &dyn Engine,
        shard: Shard,
        name: &str,
        progress: &mut Progress,
    ) -> anyhow::Result<()> {
        let (one, other) = (one.snapshot(shard)?, other.snapshot(shard)?);
        let (one_last, other_last) = (last(one.as_ref())?, last(other.as_ref())?);
        if one_last != other_last {
            self.differ(format!("{name}: its last commit differs"));
        }
        if one_last.is_none() || other_last.is_none() {
            return Ok(());
        }
        for space in Keyspace::ALL {
            let (mut ones, mut others) = (scan(one.as_ref(), space, None)?, scan(other.as_ref(), space, None)?);
            self.entries(ones.as_mut(), others.as_mut(), &format!("{name}, {}", space.name()), progress)?;
        }
        Ok(())
    }

    fn entries(
        &mut self,
        ones: &mut dyn Cursor,
        others: &mut dyn Cursor,
        place: &str,
        progress: &mut Progress,
    ) -> anyhow::Result<()> {
        let (mut one, mut other) = (ones.next()?, others.next()?);
        loop {
            let (order, key) = match (one, other) {
                (None, None) => return Ok(()),
                (Some((key, _)), None) => (std::cmp::Ordering::Less, key),
                (None, Some((key, _))) => (std::cmp::Ordering::Greater, key),
                (Some((left, _)), Some((right, _))) => (left.cmp(right), left.min(right)),
            };
            let description = match order {
                std::cmp::Ordering::Less => Some("is not in the copy"),
                std::cmp::Ordering::Greater => Some("is in the copy only"),
                std::cmp::Ordering::Equal if one != other => Some("differs"),
                std::cmp::Ordering::Equal => None,
            };
            if let Some(description) = description {
                self.differ(format!("{place} {}: {description}", key.escape_ascii()));
            }
            let bytes = one.map_or(0, |(key, value)| key.len() + value.len()) as u64;
            self.bytes += bytes;
            progress.read(bytes, 0);
            if order.is_le() {
                one = ones.next()?;
            }
            if order.is_ge() {
                other = others.next()?;
            }
        }
    }
}

type Last = (ShardState, Option<Vec<u8>>);

/// `None` if the shard was dropped.
fn last(snapshot: &dyn Snapshot) -> Result<Option<Last>, StorageError> {
    match snapshot.state() {
        Err(StorageError::Dropped) => Ok(None),
        state => Ok(Some((state?, snapshot.head()?))),
    }
}
