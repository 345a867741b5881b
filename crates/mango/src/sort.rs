//! [`Sort`]: the sort fields of a query or the fields of an index, in one direction.

use settee_model::json::{Kind, Value};

use crate::error::Refusal;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Order {
    #[default]
    Ascending,
    Descending,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sort {
    pub(crate) fields: Vec<String>,
    pub(crate) order: Order,
}

impl Sort {
    /// Elements are names or objects like `{"name": "desc"}`.
    pub(crate) fn parse(value: Value<'_>) -> Result<Self, Refusal> {
        if value.kind() != Kind::Array {
            return Err(Refusal::SortNotAnArray(crate::shown(value)));
        }
        let mut sort = Self::default();
        let mut orders = Vec::new();
        for field in value.elements() {
            let (name, order) = one(field).ok_or_else(|| Refusal::InvalidSortField(crate::shown(field)))?;
            sort.fields.push(name);
            orders.push(order);
        }
        if let Some(first) = orders.first() {
            sort.order = *first;
            if orders.iter().any(|order| order != first) {
                return Err(Refusal::MixedSort);
            }
        }
        Ok(sort)
    }
}

fn one(field: Value<'_>) -> Option<(String, Order)> {
    let mut members = field.members();
    let (name, order) = match (field.as_str(), members.next(), members.next()) {
        (Some(name), ..) => (name, Order::Ascending),
        (None, Some((name, direction)), None) if direction.is_string("asc") => (name.as_str()?, Order::Ascending),
        (None, Some((name, direction)), None) if direction.is_string("desc") => (name.as_str()?, Order::Descending),
        _ => return None,
    };
    (!name.is_empty()).then(|| (name.into_owned(), order))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use settee_model::json::Json;

    use super::*;

    #[test]
    fn sorts_are_names_in_one_direction() {
        let parse = |text: &str| Sort::parse(Json::parse(text.as_bytes()).unwrap().value());
        let check = |text: &str, fields: &[&str], order: Order| {
            let fields = fields.iter().map(|&name| name.to_owned()).collect();
            assert_eq!(parse(text), Ok(Sort { fields, order }), "{text}");
        };
        check("[]", &[], Order::Ascending);
        check(r#"["a",{"b":"asc"}]"#, &["a", "b"], Order::Ascending);
        check(r#"[{"a":"desc"},{"b":"desc"}]"#, &["a", "b"], Order::Descending);
        assert_eq!(parse(r#""x""#), Err(Refusal::SortNotAnArray(r#""x""#.to_owned())));
        assert_eq!(parse(r#"["a",{"b":"desc"}]"#), Err(Refusal::MixedSort));
        for wrong in ["1", r#"{"a":"up"}"#, r#""""#, r#"{"a":"asc","b":"asc"}"#, "{}", r#"{"a":1}"#] {
            assert_eq!(parse(&format!("[{wrong}]")), Err(Refusal::InvalidSortField(wrong.to_owned())));
        }
    }
}
