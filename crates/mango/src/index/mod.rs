//! Indexes of Mango. A JSON index is a view of a design document in the language `query`, with a [`Definition`] instead
//! of a map function. A text index is a search index of such a document. [`edit`] creates and deletes them.

mod definition;
pub mod edit;
mod name;

use std::sync::Arc;

use settee_database::{Bodies, DOCUMENTS_TOGETHER, Database, Direction, IdRange, Layout, ReadView, Waiting};
use settee_design::{DesignDocument, SearchKind};
use settee_model::json::{Json, Value, append_object};

use crate::error::Result;
use crate::text::definition::{TextDefinition, type_name};
pub(crate) use definition::Definition;

pub const LANGUAGE: &str = "query";

#[derive(Clone, Debug)]
pub struct Index<D = Definition> {
    /// The design document in the form that views and searches need.
    pub(crate) design: Arc<DesignDocument>,
    pub(crate) name: String,
    pub(crate) definition: Arc<D>,
    pub(crate) is_partitioned: bool,
}

pub type TextIndex = Index<TextDefinition>;

type WriteDefinition<'a> = &'a dyn Fn(&mut Vec<u8>);

impl<D> Index<D> {
    #[must_use]
    pub fn design_id(&self) -> &str {
        &self.design.id
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    fn write_as(&self, kind: &str, definition: Option<WriteDefinition<'_>>, out: &mut Vec<u8>) {
        append_object(out, |object| {
            object.string("ddoc", &self.design.id).string("name", &self.name).string("type", kind);
            object.value("partitioned", self.is_partitioned);
            if let Some(definition) = definition {
                definition(object.name("def"));
            }
        });
    }
}

impl Index {
    pub fn write(&self, out: &mut Vec<u8>) {
        self.write_as("json", Some(&|out: &mut Vec<u8>| self.definition.write_listed(out)), out);
    }

    pub(crate) fn write_name(&self, out: &mut Vec<u8>) {
        self.write_as("json", None, out);
    }
}

impl TextIndex {
    pub fn write(&self, out: &mut Vec<u8>) {
        self.write_as(
            type_name(self.definition.kind),
            Some(&|out: &mut Vec<u8>| self.definition.write_listed(out)),
            out,
        );
    }

    pub(crate) fn write_name(&self, out: &mut Vec<u8>) {
        self.write_as(type_name(self.definition.kind), None, out);
    }
}

/// Enabled types of text indexes. Indexes of other types are ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextSearch {
    pub text: bool,
    pub nouveau: bool,
}

impl TextSearch {
    pub(crate) fn has(self, kind: SearchKind) -> bool {
        match kind {
            SearchKind::Clouseau => self.text,
            SearchKind::Nouveau => self.nouveau,
        }
    }
}

/// Ordered by design document and name.
#[derive(Debug, Default)]
pub(crate) struct Indexes {
    pub(crate) json: Vec<Index>,
    pub(crate) text: Vec<TextIndex>,
}

impl Indexes {
    pub(crate) fn text(&self, search: TextSearch) -> impl Iterator<Item = &TextIndex> {
        self.text.iter().filter(move |index| search.has(index.definition.kind))
    }
}

pub fn write_primary(out: &mut Vec<u8>) {
    out.extend_from_slice(br#"{"ddoc":null,"name":"_all_docs","type":"special","def":{"fields":[{"_id":"asc"}]}}"#);
}

/// Returns all indexes of a database except the primary one, from a cache.
pub(crate) fn all(database: &Arc<Database>, waiting: Waiting<'_>) -> Result<Arc<Indexes>> {
    database.of_designs("", waiting, read)
}

fn read(view: &ReadView<'_>) -> Result<(Indexes, usize)> {
    let range = IdRange { start: Some(b"_design/".to_vec()), end: Some(b"_design0".to_vec()) };
    let mut rows = view.all_docs(&range, Direction::Forward)?;
    let (mut indexes, mut bytes) = (Indexes::default(), 0);
    loop {
        let together = rows.together(DOCUMENTS_TOGETHER, Bodies::Winners)?;
        if together.is_empty() {
            return Ok((indexes, bytes));
        }
        for (id, head) in together {
            let mut body = Vec::with_capacity(head.stored.size as usize);
            if view.read_body(head.stored, &mut body)? {
                let before = indexes.json.len() + indexes.text.len();
                of_design_document(&id, &Json::trusted(body), view.database().layout(), &mut indexes);
                let is_new = indexes.json.len() + indexes.text.len() > before;
                bytes += if is_new { 2 * head.stored.size as usize } else { 0 };
            }
        }
    }
}

/// An invalid design document, for example from a replication, has no indexes.
fn of_design_document(id: &str, body: &Json, layout: Layout, indexes: &mut Indexes) {
    let body = body.value();
    if !body.get("language").is_some_and(|language| language.is_string(LANGUAGE)) {
        return;
    }
    let Ok(design) = DesignDocument::parse(id, body).map(Arc::new) else {
        return;
    };
    // In a partitioned database, indexes are partitioned by default.
    let is_partitioned = layout == Layout::Partitioned && design.partitioned.unwrap_or(true);
    let views = body.get("views").into_iter().flat_map(Value::members);
    let mut json: Vec<Index> = views
        .filter(|(_, view)| view.get("options").is_some_and(Value::is_object))
        .filter_map(|(name, view)| {
            let definition = Definition::of_view(view.get("map")?)?;
            let name = name.as_str()?.into_owned();
            Some(Index { design: Arc::clone(&design), name, definition: Arc::new(definition), is_partitioned })
        })
        .collect();
    json.sort_by(|a, b| a.name.cmp(&b.name));
    indexes.json.extend(json);
    let of_kind =
        |kind: SearchKind| body.get(kind.member()).into_iter().flat_map(Value::members).map(move |it| (kind, it));
    let mut text: Vec<TextIndex> = SearchKind::ALL
        .into_iter()
        .flat_map(of_kind)
        .filter_map(|(kind, (name, index))| {
            let definition = TextDefinition::parse(kind, index.get("index")?).ok()?;
            let name = name.as_str()?.into_owned();
            Some(TextIndex { design: Arc::clone(&design), name, definition: Arc::new(definition), is_partitioned })
        })
        .collect();
    text.sort_by(|a, b| a.name.cmp(&b.name));
    indexes.text.extend(text);
}
