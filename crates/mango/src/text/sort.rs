//! [`keys`] converts the sort of a query. The type of a field is the suffix of its name (`name:number`), or the only
//! type with which the selector compares the field.

use settee_model::json::{Kind, Value};

use super::clause::{BOOLEAN, NUMBER, STRING};
use super::path::Path;
use crate::error::Refusal;
use crate::options::FindOptions;
use crate::selector::Node;
use crate::sort::Order;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SortKey {
    pub(crate) field: String,
    pub(crate) is_number: bool,
}

pub(crate) fn keys(options: &FindOptions) -> Result<Vec<SortKey>, Refusal> {
    options.sort.fields.iter().map(|name| key(name, options.selector.node())).collect()
}

fn key(name: &str, node: &Node) -> Result<SortKey, Refusal> {
    let typed = [STRING, NUMBER, BOOLEAN].into_iter().find_map(|kind| {
        let path = name.strip_suffix(kind)?.strip_suffix(':')?;
        Some((path, kind))
    });
    let (name, kind) = match typed {
        Some(typed) => typed,
        None => (name, inferred_kind(name, node).ok_or_else(|| Refusal::TextSort(name.to_owned()))?),
    };
    Ok(SortKey { field: Path::parse(name)?.field(kind), is_number: kind == NUMBER })
}

fn inferred_kind(name: &str, node: &Node) -> Option<&'static str> {
    let mut kinds = Vec::new();
    collect_compared_kinds(name, node, &mut kinds);
    kinds.dedup();
    match kinds[..] {
        [kind] => Some(kind),
        _ => None,
    }
}

fn collect_compared_kinds(field: &str, node: &Node, kinds: &mut Vec<&'static str>) {
    match node {
        Node::And(nodes) | Node::Or(nodes) | Node::Nor(nodes) => {
            nodes.iter().for_each(|node| collect_compared_kinds(field, node, kinds));
        }
        Node::Not(node) => collect_compared_kinds(field, node, kinds),
        Node::Field(name, node) if name == field => {
            if let Node::Leaf(_, argument) = &**node {
                kinds.extend(kind(argument.value()));
            }
        }
        Node::Everything
        | Node::Field(..)
        | Node::ElemMatch(_)
        | Node::AllMatch(_)
        | Node::KeyMapMatch(_)
        | Node::Text(_)
        | Node::Leaf(..) => {}
    }
    kinds.sort_unstable();
}

fn kind(value: Value<'_>) -> Option<&'static str> {
    match value.kind() {
        Kind::String => Some(STRING),
        Kind::Number => Some(NUMBER),
        Kind::Null | Kind::Bool | Kind::Array | Kind::Object => None,
    }
}

pub(crate) fn explained(keys: &[SortKey], order: Order) -> Vec<String> {
    let sign = match order {
        Order::Ascending => "",
        Order::Descending => "-",
    };
    let kind = |key: &SortKey| if key.is_number { NUMBER } else { STRING };
    keys.iter().map(|key| format!("{sign}{}<{}>", key.field, kind(key))).collect()
}
