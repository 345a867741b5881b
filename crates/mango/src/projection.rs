//! [`Projection`]: the member `fields` of a query.

use settee_model::json::{Json, Kind, Value, write_array, write_string};

use crate::error::Refusal;
use crate::field::FieldPath;

#[derive(Clone, Debug, Default)]
pub struct Projection {
    /// Names as written, with their paths; `None` for all fields.
    fields: Option<Vec<(String, FieldPath)>>,
    wrong_name: Option<Refusal>,
}

#[derive(Default)]
struct Tree<'a> {
    members: Vec<(&'a str, Branch<'a>)>,
}

enum Branch<'a> {
    Value(Value<'a>),
    Object(Tree<'a>),
}

impl Projection {
    /// As in CouchDB, an empty list means all fields. [`Self::check_names`] validates the names.
    pub fn parse(value: Value<'_>) -> Result<Self, Refusal> {
        if value.kind() != Kind::Array {
            return Err(Refusal::FieldsNotAnArray(crate::shown(value)));
        }
        let (mut fields, mut wrong_name) = (Vec::new(), None);
        for field in value.elements() {
            let name = field.as_str().ok_or_else(|| Refusal::InvalidField(crate::shown(field)))?;
            let path =
                if name.is_empty() { Err(Refusal::InvalidFieldName(String::new())) } else { FieldPath::parse(&name) };
            let path = path.unwrap_or_else(|wrong| {
                wrong_name.get_or_insert(wrong);
                FieldPath::default()
            });
            fields.push((name.as_ref().to_owned(), path));
        }
        Ok(Self { fields: (!fields.is_empty()).then_some(fields), wrong_name })
    }

    /// Rejects the first name that is not a path. CouchDB detects it when it projects a document.
    pub(crate) fn check_names(&self) -> Result<(), Refusal> {
        self.wrong_name.clone().map_or(Ok(()), Err)
    }

    pub(crate) fn names(&self) -> Option<impl Iterator<Item = &str>> {
        self.fields.as_ref().map(|fields| fields.iter().map(|(name, _)| name.as_str()))
    }

    /// Absent fields are omitted. As in CouchDB, a position in an array becomes the member of an object.
    pub fn write(&self, document: Value<'_>, out: &mut Vec<u8>) {
        let Some(fields) = &self.fields else {
            out.extend_from_slice(document.raw());
            return;
        };
        let mut tree = Tree::default();
        for (_, path) in fields {
            if let Some(value) = path.find(document).value() {
                tree.set(path.parts(), value);
            }
        }
        tree.write(out);
    }
}

pub(crate) fn write_object<'a>(entries: impl Iterator<Item = (&'a FieldPath, Value<'a>)>, out: &mut Vec<u8>) {
    let mut tree = Tree::default();
    for (path, value) in entries {
        tree.set(path.parts(), value);
    }
    tree.write(out);
}

impl<'a> Tree<'a> {
    fn set(&mut self, path: &'a [String], value: Value<'a>) {
        let Some((name, rest)) = path.split_first() else { return };
        let index = match self.members.iter().position(|(member, _)| member == name) {
            Some(index) => index,
            None => {
                let branch = if rest.is_empty() { Branch::Value(value) } else { Branch::Object(Tree::default()) };
                self.members.push((name, branch));
                self.members.len() - 1
            }
        };
        let branch = &mut self.members[index].1;
        match branch {
            _ if rest.is_empty() => *branch = Branch::Value(value),
            Branch::Value(_) => {}
            Branch::Object(tree) => tree.set(rest, value),
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        let members = self.members.iter().map(|(name, branch)| (name, branch));
        settee_model::json::write_object(out, members, |out, branch| match branch {
            Branch::Value(value) => out.extend_from_slice(value.raw()),
            Branch::Object(tree) => tree.write(out),
        });
    }
}

impl Projection {
    pub(crate) fn to_json(&self) -> Json {
        let mut out = Vec::new();
        write_array(&mut out, self.names().into_iter().flatten(), write_string);
        Json::trusted(out)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn documents_are_cut_below_the_surface() {
        let document = br#"{"_id":"a","n":1,"o":{"x":1,"y":{"z":"deep"}},"l":[1,2],"a.b":5}"#;
        let check = |fields: &str, expected: &str| {
            let fields = Json::parse(fields.as_bytes()).unwrap();
            let mut out = Vec::new();
            Projection::parse(fields.value()).unwrap().write(Value::trusted(document), &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        };
        check("[]", std::str::from_utf8(document).unwrap());
        check(r#"["n","_id"]"#, r#"{"n":1,"_id":"a"}"#);
        check(r#"["o.y.z"]"#, r#"{"o":{"y":{"z":"deep"}}}"#);
        check(r#"["o.x","o.y"]"#, r#"{"o":{"x":1,"y":{"z":"deep"}}}"#);
        check(r#"["o","o.x"]"#, r#"{"o":{"x":1,"y":{"z":"deep"}}}"#);
        check(r#"["o.x","o"]"#, r#"{"o":{"x":1,"y":{"z":"deep"}}}"#);
        check(r#"["l.0"]"#, r#"{"l":{"0":1}}"#);
        check(r#"["a\\.b","none","n.x","l.9"]"#, r#"{"a.b":5}"#);
        check(r#"["none"]"#, "{}");
    }

    #[test]
    fn fields_must_be_strings() {
        let check = |fields: &str, expected: Refusal| {
            let fields = Json::parse(fields.as_bytes()).unwrap();
            assert_eq!(Projection::parse(fields.value()).unwrap_err(), expected);
        };
        check(r#""x""#, Refusal::FieldsNotAnArray(r#""x""#.to_owned()));
        check("[1]", Refusal::InvalidField("1".to_owned()));
    }
}
