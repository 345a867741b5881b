//! [`Mapper`]: the fields of a document in a text index. As in CouchDB, every value is a field that is named by its
//! path and type, `a.b:string`; all strings together are the text `$default`, and the names of fields are strings of
//! `$fieldnames`, so that existence can be queried. Unlike in CouchDB, an index of some fields also contains existence,
//! null and lengths of arrays of the others, and every index contains empty objects and arrays.

use std::collections::BTreeSet;

use settee_model::json::{Kind, Value, write_string};

use super::clause::{BOOLEAN, LENGTH, NULL, NUMBER, STRING};
use super::definition::TextDefinition;
use super::path::{close, escape};

/// Only a prefix of this length is indexed of a longer string, which suffices to find it.
pub(crate) const MAX_STRING_BYTES: usize = 2_048;

pub(crate) const FIELD_NAMES: &str = "$fieldnames";

pub(crate) const DEFAULT: &str = "$default";

pub(crate) fn cut(text: &str) -> &str {
    let mut end = text.len().min(MAX_STRING_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Receives fields in the format of [`Language::index_program`](settee_design::Language::index_program).
pub(crate) type FieldSink<'t> = dyn FnMut(&[u8], &[u8]) + 't;

#[derive(Debug)]
pub(crate) struct Mapper {
    wanted: Option<BTreeSet<String>>,
    has_lengths: bool,
    has_default: bool,
    is_keyword: bool,
}

#[derive(Clone, Copy)]
enum Form {
    Whole,
    Text,
    Number,
}

impl Mapper {
    pub(crate) fn new(definition: &TextDefinition) -> Self {
        Self {
            wanted: definition.field_names(),
            has_lengths: definition.has_lengths,
            has_default: definition.has_default_field(),
            is_keyword: definition.is_keyword(),
        }
    }

    pub(crate) fn map(&self, document: Value<'_>, take: &mut FieldSink<'_>) {
        let mut walk = FieldWalker { mapper: self, names: BTreeSet::new(), path: String::new(), key: Vec::new(), take };
        for (name, value) in document.members() {
            walk.member(name, value);
        }
        let FieldWalker { names, mut key, take, .. } = walk;
        write_key(FIELD_NAMES, Form::Whole, &mut key);
        let mut text = Vec::new();
        for name in names {
            text.clear();
            write_string(&mut text, &name);
            take(&key, &text);
        }
    }
}

fn write_key(name: &str, form: Form, key: &mut Vec<u8>) {
    key.clear();
    key.extend_from_slice(match form {
        Form::Whole => b"[\"string\",".as_slice(),
        Form::Text => b"[\"text\",",
        Form::Number => b"[\"double\",",
    });
    write_string(key, name);
    key.push(b']');
}

struct FieldWalker<'m, 't> {
    mapper: &'m Mapper,
    names: BTreeSet<String>,
    path: String,
    key: Vec<u8>,
    take: &'t mut FieldSink<'t>,
}

impl FieldWalker<'_, '_> {
    fn member(&mut self, name: Value<'_>, value: Value<'_>) {
        let length = self.path.len();
        if length > 0 {
            self.path.push('.');
        }
        escape(&name.string_bytes().unwrap_or_default(), &mut self.path);
        self.value(value);
        self.path.truncate(length);
    }

    fn value(&mut self, value: Value<'_>) {
        match value.kind() {
            Kind::Object => {
                if value.members().next().is_none() {
                    self.name("object");
                }
                for (name, member) in value.members() {
                    self.member(name, member);
                }
            }
            Kind::Array => self.array(value),
            Kind::String => self.string(value),
            Kind::Number => {
                // A value that exceeds the range of numbers is found by its type.
                let is_finite = value.as_f64().is_some_and(f64::is_finite);
                if self.is_wanted(NUMBER) && is_finite {
                    self.emit(NUMBER, Form::Number, value.raw());
                }
                self.name(NUMBER);
            }
            Kind::Bool => {
                if self.is_wanted(BOOLEAN) {
                    let text: &[u8] = if value.as_bool() == Some(true) { b"\"true\"" } else { b"\"false\"" };
                    self.emit(BOOLEAN, Form::Whole, text);
                }
                self.name(BOOLEAN);
            }
            Kind::Null => self.name(NULL),
        }
    }

    fn array(&mut self, value: Value<'_>) {
        let length = self.path.len();
        let count = value.elements().count();
        if count == 0 {
            self.name("array");
        }
        self.path.push_str("._5b_5d");
        if self.mapper.has_lengths {
            self.emit(LENGTH, Form::Number, count.to_string().as_bytes());
            self.name(LENGTH);
        }
        for element in value.elements() {
            self.value(element);
        }
        self.path.truncate(length);
    }

    fn string(&mut self, value: Value<'_>) {
        let is_wanted = self.is_wanted(STRING);
        if is_wanted && self.mapper.is_keyword {
            let text = value.as_str().unwrap_or_default();
            let mut json = Vec::new();
            write_string(&mut json, cut(&text));
            self.emit(STRING, Form::Whole, &json);
        } else if is_wanted {
            self.emit(STRING, Form::Text, value.raw());
        }
        if is_wanted && self.mapper.has_default {
            write_key(DEFAULT, Form::Text, &mut self.key);
            (self.take)(&self.key, value.raw());
        }
        self.name(STRING);
    }

    fn is_wanted(&self, kind: &str) -> bool {
        self.mapper.wanted.as_ref().is_none_or(|wanted| wanted.contains(&self.field(kind)))
    }

    fn field(&self, kind: &str) -> String {
        let mut name = self.path.clone();
        close(&mut name, kind);
        name
    }

    fn name(&mut self, kind: &str) {
        let name = self.field(kind);
        self.names.insert(name);
    }

    fn emit(&mut self, kind: &str, form: Form, value: &[u8]) {
        let name = self.field(kind);
        write_key(&name, form, &mut self.key);
        (self.take)(&self.key, value);
    }
}
