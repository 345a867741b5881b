//! Indexes of Mango: what a JSON index is ([`Index`]), and finding those of a database ([`all`]).
//!
//! An index is a view of a design document in the language `query`; its map is a [`Definition`] instead of a function.
//! Building and reading it is the views' work, creating and deleting it that of [`edit`].

mod definition;
pub mod edit;
mod name;

use std::sync::Arc;

use settee_database::{Bodies, DOCUMENTS_TOGETHER, Database, Direction, IdRange, Layout, ReadView};
use settee_design::DesignDocument;
use settee_model::json::{Json, Value, write_string};

use crate::error::Result;
pub(crate) use definition::Definition;

/// The language of design documents that hold indexes.
pub const LANGUAGE: &str = "query";

/// A JSON index.
#[derive(Clone, Debug)]
pub struct Index {
    /// The design document, as views need it.
    pub(crate) design: Arc<DesignDocument>,
    /// The name of the view.
    pub(crate) name: String,
    pub(crate) definition: Arc<Definition>,
    /// Whether it is read by partitions.
    pub(crate) is_partitioned: bool,
}

impl Index {
    /// The id of its design document.
    #[must_use]
    pub fn design_id(&self) -> &str {
        &self.design.id
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Appends the index as `_index` lists it.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"ddoc\":");
        write_string(out, &self.design.id);
        out.extend_from_slice(b",\"name\":");
        write_string(out, &self.name);
        out.extend_from_slice(
            format!(",\"type\":\"json\",\"partitioned\":{},\"def\":", self.is_partitioned).as_bytes(),
        );
        self.definition.write_listed(out);
        out.push(b'}');
    }
}

/// Appends the primary index, which every database has, as `_index` lists it.
pub fn write_primary(out: &mut Vec<u8>) {
    out.extend_from_slice(br#"{"ddoc":null,"name":"_all_docs","type":"special","def":{"fields":[{"_id":"asc"}]}}"#);
}

/// All JSON indexes of a database, by design document and name.
///
/// # Errors
/// When the database could not be read.
pub fn all(database: &Arc<Database>) -> Result<Arc<Vec<Index>>> {
    database.of_designs("", read)
}

/// The indexes, and about how many bytes they have.
fn read(view: &ReadView) -> Result<(Vec<Index>, usize)> {
    let range = IdRange { start: Some(b"_design/".to_vec()), end: Some(b"_design0".to_vec()) };
    let mut rows = view.all_docs(&range, Direction::Forward)?;
    let (mut indexes, mut bytes) = (Vec::new(), 0);
    loop {
        let together = rows.together(DOCUMENTS_TOGETHER, Bodies::Winners)?;
        if together.is_empty() {
            return Ok((indexes, bytes));
        }
        for (id, head) in together {
            let mut body = Vec::with_capacity(head.stored.size as usize);
            if view.read_body(head.stored, &mut body)? {
                let found = of_design_document(&id, &Json::trusted(body), view.database().layout());
                bytes += if found.is_empty() { 0 } else { 2 * head.stored.size as usize };
                indexes.extend(found);
            }
        }
    }
}

/// The indexes of a design document, by name. One that was brought in and makes no sense has none.
fn of_design_document(id: &str, body: &Json, layout: Layout) -> Vec<Index> {
    let body = body.value();
    if !body.get("language").is_some_and(|language| language.is_string(LANGUAGE)) {
        return Vec::new();
    }
    let Ok(design) = DesignDocument::parse(id, body).map(Arc::new) else {
        return Vec::new();
    };
    // In a partitioned database, indexes are unless they say otherwise.
    let is_partitioned = layout == Layout::Partitioned && design.partitioned.unwrap_or(true);
    let views = body.get("views").into_iter().flat_map(Value::members);
    let mut indexes: Vec<Index> = views
        .filter(|(_, view)| view.get("options").is_some_and(Value::is_object))
        .filter_map(|(name, view)| {
            let definition = Definition::of_view(view.get("map")?)?;
            let name = name.as_str()?.into_owned();
            Some(Index { design: Arc::clone(&design), name, definition: Arc::new(definition), is_partitioned })
        })
        .collect();
    indexes.sort_by(|a, b| a.name.cmp(&b.name));
    indexes
}
