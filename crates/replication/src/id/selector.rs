//! Normal form of a selector for ids, that of CouchDB's `mango_selector:normalize` with sorted members. Implicit
//! operators become explicit, field names move to the leaves as paths, and negations move down. An invalid selector
//! stays unchanged.

use settee_model::json::{Json, Value, write_array, write_object};

#[derive(Clone, Debug, PartialEq, Eq)]
enum Tree {
    Object(Vec<(String, Tree)>),
    Array(Vec<Tree>),
    Scalar(Vec<u8>),
}

const INNER: [&str; 3] = ["$elemMatch", "$allMatch", "$keyMapMatch"];

pub(super) fn normal(selector: &Json) -> Json {
    let tree = Tree::of(selector.value());
    let normal = match &tree {
        Tree::Object(members) if members.is_empty() => tree,
        _ => negations(fields(operators(tree), "")),
    };
    let mut out = Vec::new();
    normal.write_sorted(&mut out);
    Json::trusted(out)
}

impl Tree {
    fn of(value: Value<'_>) -> Self {
        if value.is_object() {
            let name = |name: Value<'_>| name.as_str().unwrap_or_default().into_owned();
            Self::Object(value.members().map(|(key, value)| (name(key), Self::of(value))).collect())
        } else if value.is_array() {
            Self::Array(value.elements().map(Self::of).collect())
        } else {
            Self::Scalar(value.raw().to_vec())
        }
    }

    fn single(name: impl Into<String>, value: Self) -> Self {
        Self::Object(vec![(name.into(), value)])
    }

    fn into_single(self) -> Result<(String, Self), Self> {
        match self {
            Self::Object(mut members) if members.len() == 1 => members.pop().ok_or(Self::Object(Vec::new())),
            other => Err(other),
        }
    }

    fn map(self, change: impl FnMut(Self) -> Self) -> Self {
        match self {
            Self::Array(elements) => Self::Array(elements.into_iter().map(change).collect()),
            other => other,
        }
    }

    fn write_sorted(&self, out: &mut Vec<u8>) {
        match self {
            Self::Scalar(text) => out.extend_from_slice(text),
            Self::Array(elements) => write_array(out, elements, |out, element| element.write_sorted(out)),
            Self::Object(members) => {
                let mut members: Vec<&(String, Self)> = members.iter().collect();
                members.sort_by(|(name, _), (other, _)| name.cmp(other));
                let members = members.into_iter().map(|(name, value)| (name, value));
                write_object(out, members, |out, value| value.write_sorted(out));
            }
        }
    }
}

fn operators(tree: Tree) -> Tree {
    let (name, value) = match tree.into_single() {
        Ok(member) => member,
        Err(Tree::Object(members)) if !members.is_empty() => {
            let each = members.into_iter().map(|(name, value)| operators(Tree::single(name, value)));
            return Tree::single("$and", Tree::Array(each.collect()));
        }
        Err(value) => return Tree::single("$eq", value),
    };
    let value = match name.as_str() {
        "$and" | "$or" | "$nor" => value.map(operators),
        "$not" | "$elemMatch" | "$allMatch" | "$keyMapMatch" => operators(value),
        "$text" => return Tree::single("$default", Tree::single(name, value)),
        operator if operator.starts_with('$') => value,
        _field => operators(value),
    };
    Tree::single(name, value)
}

fn fields(tree: Tree, path: &str) -> Tree {
    let (name, value) = match tree.into_single() {
        Ok(member) => member,
        Err(other) => return other,
    };
    match name.as_str() {
        "$and" | "$or" | "$nor" => Tree::single(name, value.map(|tree| fields(tree, path))),
        "$not" => Tree::single(name, fields(value, path)),
        "$default" => Tree::single(name, value),
        inner if INNER.contains(&inner) => Tree::single(path, Tree::single(name, fields(value, ""))),
        operator if operator.starts_with('$') => Tree::single(path, Tree::single(name, value)),
        field if path.is_empty() => fields(value, field),
        field => fields(value, &format!("{path}.{field}")),
    }
}

fn negations(tree: Tree) -> Tree {
    let (name, value) = match tree.into_single() {
        Ok(member) => member,
        Err(other) => return other,
    };
    match name.as_str() {
        "$not" => negated(value),
        "$nor" => Tree::single("$and", value.map(negated)),
        "$and" | "$or" => Tree::single(name, value.map(negations)),
        inner if INNER.contains(&inner) => Tree::single(name, negations(value)),
        _ => Tree::single(name, value),
    }
}

fn negated(tree: Tree) -> Tree {
    let (name, value) = match tree.into_single() {
        Ok(member) => member,
        Err(other) => return other,
    };
    let opposite = match name.as_str() {
        "$not" => return negations(value),
        "$nor" => return Tree::single("$or", value.map(negations)),
        "$and" => return Tree::single("$or", value.map(negated)),
        "$or" => return Tree::single("$and", value.map(negated)),
        "$lt" => "$gte",
        "$lte" => "$gt",
        "$eq" => "$ne",
        "$ne" => "$eq",
        "$gte" => "$lt",
        "$gt" => "$lte",
        "$in" => "$nin",
        "$nin" => "$in",
        "$exists" => {
            let text: &[u8] = if value == Tree::Scalar(b"true".to_vec()) { b"false" } else { b"true" };
            return Tree::single(name, Tree::Scalar(text.to_vec()));
        }
        operator if operator.starts_with('$') => return Tree::single("$not", Tree::single(name, value)),
        _field => return Tree::single(name, negated(value)),
    };
    Tree::single(opposite, value)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use settee_model::json::Json;

    #[test]
    fn normal_forms() {
        let cases = [
            ("{}", "{}"),
            (r#"{"a":1}"#, r#"{"a":{"$eq":1}}"#),
            (r#"{"b":1,"a":{"$gt":2}}"#, r#"{"$and":[{"b":{"$eq":1}},{"a":{"$gt":2}}]}"#),
            (r#"{"a":{"b":{"c":"x"}}}"#, r#"{"a.b.c":{"$eq":"x"}}"#),
            (r#"{"a":{"$gt":5,"$lt":10}}"#, r#"{"$and":[{"a":{"$gt":5}},{"a":{"$lt":10}}]}"#),
            (r#"{"$not":{"a":{"$gt":10}}}"#, r#"{"a":{"$lte":10}}"#),
            (
                r#"{"$not":{"$and":[{"a":{"$gt":10}},{"a":{"$exists":true}}]}}"#,
                r#"{"$or":[{"a":{"$lte":10}},{"a":{"$exists":false}}]}"#,
            ),
            (
                r#"{"$nor":[{"a":1},{"b":{"$regex":"x"}}]}"#,
                r#"{"$and":[{"a":{"$ne":1}},{"b":{"$not":{"$regex":"x"}}}]}"#,
            ),
            (
                r#"{"a":{"$elemMatch":{"b":1,"c":2}}}"#,
                r#"{"a":{"$elemMatch":{"$and":[{"b":{"$eq":1}},{"c":{"$eq":2}}]}}}"#,
            ),
            (r#"{"a":{"$eq":{"z":1,"y":[{"x":1,"w":2}]}}}"#, r#"{"a":{"$eq":{"y":[{"w":2,"x":1}],"z":1}}}"#),
            (r#"{"a":{"$in":[1,2]}}"#, r#"{"a":{"$in":[1,2]}}"#),
        ];
        for (selector, expected) in cases {
            let normal = super::normal(&Json::parse(selector.as_bytes()).unwrap());
            assert_eq!(std::str::from_utf8(normal.as_bytes()).unwrap(), expected, "{selector}");
        }
    }
}
