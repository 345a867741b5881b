//! Indexes: their identity ([`identity`]), the record that describes one ([`Meta`]), and access to its shard
//! ([`IndexStore`]).
//!
//! An index has a shard of its own, and a new one when it is rebuilt. The head of the shard is the [`Meta`]; if that is
//! too long it is in `Catalog`, which also contains a [`Checkpoint`] while the index is loaded. `IndexNodes` contains
//! the nodes of two trees: the rows, and the back-pointers that the last load wrote, from document ids to the sort keys
//! of their rows; `IndexEntries` contains back-pointers that changed since.

mod checkpoint;
pub(crate) mod identity;
mod meta;
mod store;

pub(crate) use checkpoint::{Checkpoint, RunFile};
pub(crate) use identity::{IndexDefinition, Signature};
pub(crate) use meta::{Leftovers, Meta};
pub use store::Tokens;
pub(crate) use store::{IndexStore, IndexWriter, Opened, Record};
