//! Identity ([`identity`]), record ([`Meta`]) and storage ([`IndexStore`]) of indexes. Each index has a shard, and a
//! new one after a rebuild. The head of the shard contains the [`Meta`]; `Catalog` a long one, and the [`Checkpoint`]
//! of a load. `IndexNodes` contains two trees: the rows, and the back-pointers of the last load from document ids to
//! the sort keys of their rows. `IndexEntries` contains the back-pointers that changed since.

mod checkpoint;
pub(crate) mod identity;
mod meta;
mod store;

pub(crate) use checkpoint::{Checkpoint, RunFile};
pub(crate) use identity::{IndexDefinition, Signature};
pub(crate) use meta::{Leftovers, Meta};
pub use store::Tokens;
pub(crate) use store::{IndexStore, IndexWriter, Opened, Record};
