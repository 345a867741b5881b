//! [`Signature`]: identity of an index. Names of views and reduce functions are not part of it, so views with the same
//! map function share an index.

use std::fmt;
use std::sync::Arc;

use md5::{Digest, Md5};
use settee_database::Layout;
use settee_design::{DesignDocument, DesignOptions, ViewDefinition};
use settee_model::collate::Collation;

/// Hash that identifies an index: equal for equal map functions, languages, libraries and options.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Signature([u8; 16]);

impl Signature {
    /// Returns the signature of these parts, whose boundaries are significant.
    #[must_use]
    pub fn of<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Self {
        Self(hash(parts).finalize().into())
    }

    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok().filter(|text| text.len() == 32 && text.is_ascii())?;
        let mut bytes = [0; 16];
        for (index, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(text.get(2 * index..2 * index + 2)?, 16).ok()?;
        }
        Some(Self(bytes))
    }

    pub(crate) fn of_all(definitions: &[IndexDefinition]) -> Self {
        let mut parts: Vec<&[u8]> = Vec::new();
        for definition in definitions {
            parts.push(&definition.signature.0);
            parts.extend(definition.reduces.iter().map(|reduce| reduce.as_bytes()));
        }
        Self::of(parts)
    }
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// Returns the layout of the views of a design document in a database of this layout.
#[must_use]
pub fn layout_of(database: Layout, ddoc: &DesignDocument) -> Layout {
    match (database, ddoc.partitioned) {
        (Layout::Partitioned, None | Some(true)) => Layout::Partitioned,
        (Layout::Whole, _) | (Layout::Partitioned, Some(false)) => Layout::Whole,
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IndexDefinition {
    pub(crate) signature: Signature,
    pub(crate) map: Arc<str>,
    pub(crate) collation: Collation,
    pub(crate) layout: Layout,
    pub(crate) reduces: Vec<Arc<str>>,
}

pub(crate) fn definitions(database: Layout, ddoc: &DesignDocument) -> Vec<IndexDefinition> {
    let layout = layout_of(database, ddoc);
    let common = common_hash(layout, ddoc);
    let mut definitions: Vec<IndexDefinition> = Vec::new();
    for view in &ddoc.views {
        let signature = view_signature(common.clone(), view);
        let known = definitions.iter().position(|definition| definition.signature == signature);
        let known = known.unwrap_or_else(|| {
            let (map, collation) = (Arc::clone(&view.map), view.collation);
            definitions.push(IndexDefinition { signature, map, collation, layout, reduces: Vec::new() });
            definitions.len() - 1
        });
        let reduces = &mut definitions[known].reduces;
        if let Some(reduce) = view.reduce.as_ref().filter(|reduce| !reduces.contains(reduce)) {
            reduces.push(Arc::clone(reduce));
        }
    }
    definitions
}

pub(crate) fn signature(database: Layout, ddoc: &DesignDocument, view: &ViewDefinition) -> Signature {
    view_signature(common_hash(layout_of(database, ddoc), ddoc), view)
}

/// The common part is hashed once per design document, because a library may be large.
fn common_hash(layout: Layout, ddoc: &DesignDocument) -> Md5 {
    let DesignOptions { include_design, local_seq } = ddoc.options;
    let library = ddoc.library.as_deref().unwrap_or_default();
    let options = [u8::from(include_design), u8::from(local_seq), u8::from(layout == Layout::Partitioned)];
    hash([ddoc.language.as_bytes(), library.as_bytes(), &options])
}

fn view_signature(mut common: Md5, view: &ViewDefinition) -> Signature {
    common.update([u8::from(view.collation == Collation::Raw)]);
    common.update(view.map.as_bytes());
    Signature(common.finalize().into())
}

/// The lengths delimit the parts unambiguously.
fn hash<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Md5 {
    let mut hash = Md5::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use settee_model::json::Json;

    use super::*;

    fn parse(text: &str) -> DesignDocument {
        DesignDocument::parse("_design/d", Json::parse(text.as_bytes()).unwrap().value()).unwrap()
    }

    #[test]
    fn only_members_that_affect_the_rows_matter() {
        let view = r#""views":{"a":{"map":"m"}}"#;
        let of = |text: &str| definitions(Layout::Whole, &parse(text))[0].signature;
        let plain = of(&format!("{{{view}}}"));
        let same = [
            r#"{"views":{"b":{"map":"m","reduce":"_sum"}}}"#.to_owned(),
            format!(r#"{{{view},"filters":{{"f":"x"}},"autoupdate":false}}"#),
            format!(r#"{{{view},"language":"javascript","options":{{"local_seq":false}}}}"#),
        ];
        for text in &same {
            assert_eq!(of(text), plain, "{text}");
        }
        let different = [
            r#"{"views":{"a":{"map":"n"}}}"#.to_owned(),
            r#"{"views":{"a":{"map":"m","options":{"collation":"raw"}}}}"#.to_owned(),
            r#"{"views":{"lib":{"x":"y"},"a":{"map":"m"}}}"#.to_owned(),
            format!(r#"{{{view},"language":"python"}}"#),
            format!(r#"{{{view},"options":{{"local_seq":true}}}}"#),
            format!(r#"{{{view},"options":{{"include_design":true}}}}"#),
        ];
        let mut signatures: Vec<_> = different.iter().map(|text| of(text)).chain([plain]).collect();
        signatures.sort();
        signatures.dedup();
        assert_eq!(signatures.len(), different.len() + 1);
        assert_eq!(Signature::parse(plain.to_string().as_bytes()), Some(plain));
        assert_eq!(Signature::parse(b"0123"), None);
    }

    #[test]
    fn partitioned_indexes_are_others() {
        let of = |database: Layout, options: &str| {
            let text = format!(r#"{{"views":{{"a":{{"map":"m"}}}}{options}}}"#);
            definitions(database, &parse(&text))[0].signature
        };
        let global = of(Layout::Whole, "");
        let partitioned = of(Layout::Partitioned, "");
        assert_ne!(global, partitioned);
        assert_eq!(of(Layout::Partitioned, r#","options":{"partitioned":true}"#), partitioned);
        assert_eq!(of(Layout::Partitioned, r#","options":{"partitioned":false}"#), global);
        assert_eq!(of(Layout::Whole, r#","options":{"partitioned":true}"#), global);
    }

    #[test]
    fn views_with_one_map_function_share_an_index() {
        let ddoc = parse(
            r#"{"views":{"a":{"map":"m","reduce":"_sum"},"b":{"map":"n"},"c":{"map":"m"},
                "d":{"map":"m","reduce":"_count"},"e":{"map":"m","reduce":"_sum"}}}"#,
        );
        let definitions = definitions(Layout::Whole, &ddoc);
        assert_eq!(definitions.len(), 2);
        assert_eq!(definitions[0].reduces, ["_sum".into(), "_count".into()]);
        assert!(definitions[1].reduces.is_empty());
        assert_eq!(signature(Layout::Whole, &ddoc, &ddoc.views[3]), definitions[0].signature);
    }
}
