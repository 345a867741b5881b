//! Indexes: what one is keyed by ([`identity`]), the record that describes it ([`Meta`]), and access to its shard
//! ([`IndexStore`]).
//!
//! An index has a shard of its own, and another one when it starts over. Its head is the [`Meta`], unless that is too long;
//! then `Catalog` holds it, as it holds a [`Checkpoint`] while the index is loaded. `IndexNodes` holds the nodes of two trees: the rows, and the back-pointers that the last load wrote, from document ids to the sort keys of their rows; `IndexEntries`
//! holds back-pointers that changed since.

mod checkpoint;
pub(crate) mod identity;
mod meta;
mod store;

pub(crate) use checkpoint::{Checkpoint, RunFile};
pub(crate) use identity::{IndexDefinition, Signature};
pub(crate) use meta::{Leftovers, Meta};
pub use store::Tokens;
pub(crate) use store::{IndexStore, IndexWriter, Opened, Record};
