//! Converts the output of index functions ([`settee_design::Language::index_program`]) to fields ([`field`]).

use settee_design::{Emission, SearchKind};
use settee_model::json::{Kind, Value};

use crate::{Field, FieldOptions, FieldValue, StoredValue, check_name};

type Refused = String;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Called(SearchKind),
    /// A declarative definition: as for Nouveau, with arbitrary names.
    Declared,
}

pub(super) fn field(form: Form, row: Emission<'_>) -> Result<Field, Refused> {
    let mut parts = Value::trusted(row.key).elements();
    let value = Value::trusted(row.value);
    match form {
        Form::Called(SearchKind::Nouveau) | Form::Declared => {
            let (of, name) = (text(parts.next())?, text(parts.next())?);
            if form != Form::Declared && !check_name(&name) {
                return Err(format!("{name} is not a valid field name"));
            }
            nouveau(&of, name, value, parts.next())
        }
        Form::Called(SearchKind::Clouseau) => {
            let name = text(parts.next())?;
            clouseau(name, value, parts.next())
        }
    }
}

fn text(part: Option<Value<'_>>) -> Result<String, Refused> {
    let text = part.and_then(Value::as_str).ok_or("a call of index without a name")?;
    Ok(text.into_owned())
}

fn nouveau(of: &str, name: String, value: Value<'_>, options: Option<Value<'_>>) -> Result<Field, Refused> {
    let string = || value.as_str().map(std::borrow::Cow::into_owned);
    let found = match of {
        "text" => string().map(FieldValue::Text),
        "string" => string().map(FieldValue::String),
        "double" => value.as_f64().map(FieldValue::Double),
        "stored" => stored(value).map(FieldValue::Stored),
        "vector" => vector(value).map(FieldValue::Vector),
        _ => None,
    };
    let value = found.ok_or_else(|| format!("the value of field {name} is not of type {of}"))?;
    let store = matches!(value, FieldValue::Stored(_)) || is_true(options, "store");
    Ok(Field { name, value, options: FieldOptions { store, ..FieldOptions::default() } })
}

fn clouseau(name: String, value: Value<'_>, options: Option<Value<'_>>) -> Result<Field, Refused> {
    let value = match value.kind() {
        Kind::Number => value.as_f64().map(FieldValue::Double),
        Kind::String => value.as_str().map(|text| FieldValue::Text(text.into_owned())),
        // Clouseau has no booleans.
        Kind::Bool => Some(FieldValue::Text(value.as_bool().unwrap_or_default().to_string())),
        Kind::Null | Kind::Array | Kind::Object => None,
    };
    let value =
        value.ok_or_else(|| format!("the value of field {name} is neither text nor number nor true or false"))?;
    let option = |name| options.and_then(|options| options.get(name));
    let boost = option("boost").and_then(Value::as_f64).unwrap_or(1.0);
    let index = option("index").and_then(Value::as_bool).unwrap_or(true);
    let options = FieldOptions {
        store: is_true(options, "store"),
        index,
        facet: is_true(options, "facet"),
        #[expect(clippy::cast_possible_truncation, reason = "scores have single precision")]
        boost: boost as f32,
    };
    Ok(Field { name, value, options })
}

/// Lucene and Clouseau also accept these words.
fn is_true(options: Option<Value<'_>>, name: &str) -> bool {
    let option = options.and_then(|options| options.get(name));
    option.is_some_and(|option| option.as_bool() == Some(true) || option.is_string("true") || option.is_string("yes"))
}

fn vector(value: Value<'_>) -> Option<Vec<f32>> {
    #[expect(clippy::cast_possible_truncation, reason = "vectors have single precision")]
    let number = |value: Value<'_>| value.as_f64().map(|number| number as f32);
    (value.kind() == Kind::Array).then(|| value.elements().map(number).collect()).flatten()
}

fn stored(value: Value<'_>) -> Option<StoredValue> {
    match value.as_str() {
        Some(text) => Some(StoredValue::String(text.into_owned())),
        None => value.as_f64().map(StoredValue::Double),
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn read(kind: SearchKind, key: &str, value: &str) -> Result<Field, Refused> {
        field(Form::Called(kind), Emission { document: 0, function: 0, key: key.as_bytes(), value: value.as_bytes() })
    }

    #[test]
    fn rows_are_fields() {
        let check = |kind, key: &str, value: &str, expected: (&str, FieldValue, FieldOptions)| {
            let (name, found, options) = expected;
            assert_eq!(read(kind, key, value), Ok(Field { name: name.to_owned(), value: found, options }), "{key}");
        };
        let (plain, stored) = (FieldOptions::default(), FieldOptions { store: true, ..FieldOptions::default() });
        let (new, old) = (SearchKind::Nouveau, SearchKind::Clouseau);
        check(new, r#"["text","a"]"#, r#""x y""#, ("a", FieldValue::Text("x y".to_owned()), plain));
        check(new, r#"["string","a",{"store":true}]"#, r#""x""#, ("a", FieldValue::String("x".to_owned()), stored));
        check(new, r#"["double","n",{"store":false}]"#, "1.5", ("n", FieldValue::Double(1.5), plain));
        check(new, r#"["vector","v"]"#, "[1,-2.5,0]", ("v", FieldValue::Vector(vec![1.0, -2.5, 0.0]), plain));
        let seven = FieldValue::Stored(StoredValue::Double(7.0));
        check(new, r#"["stored","n"]"#, "7", ("n", seven, stored));
        check(old, r#"["a b"]"#, "true", ("a b", FieldValue::Text("true".to_owned()), plain));
        let all = FieldOptions { store: true, index: false, facet: true, boost: 2.5 };
        let options = r#"["a",{"store":"yes","index":false,"facet":true,"boost":2.5}]"#;
        check(old, options, "3", ("a", FieldValue::Double(3.0), all));
    }

    #[test]
    fn unknown_fields_are_reported() {
        let check = |key: &str, value: &str, expected: &str| {
            assert_eq!(read(SearchKind::Nouveau, key, value).unwrap_err(), expected, "{key}");
        };
        check(r#"["text","a b"]"#, r#""x""#, "a b is not a valid field name");
        check(r#"["double","n"]"#, "null", "the value of field n is not of type double");
        check(r#"["vector","v"]"#, "[1,null]", "the value of field v is not of type vector");
        check(r#"["vector","v"]"#, "{}", "the value of field v is not of type vector");
        check("[]", "1", "a call of index without a name");
        let row = Emission { document: 0, function: 0, key: br#"["double","a.b_3anumber"]"#, value: b"1" };
        assert!(field(Form::Called(SearchKind::Nouveau), row).is_err());
        assert_eq!(field(Form::Declared, row).unwrap().name, "a.b_3anumber", "a definition names fields as it likes");
        check("null", "1", "a call of index without a name");
    }
}
