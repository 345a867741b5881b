//! [`Definition`]: the fields of an index and its filter.

use std::borrow::Cow;

use settee_model::json::{Json, Value, append_object, write_array};

use crate::error::Refusal;
use crate::field::FieldPath;
use crate::selector::Selector;
use crate::sort::{Order, Sort};

#[derive(Debug)]
pub struct Definition {
    pub(crate) columns: Vec<(String, FieldPath)>,
    order: Order,
    /// `partial_filter_selector`; `None` if the index contains all documents.
    pub(crate) filter: Option<Selector>,
    filter_text: Option<Json>,
}

impl Definition {
    pub(crate) fn parse(value: Value<'_>) -> Result<Self, Refusal> {
        if !value.is_object() {
            return Err(Refusal::IndexNotAnObject(crate::shown(value)));
        }
        let fields = value.get("fields").ok_or(Refusal::MissingKey("fields"))?;
        let sort = Sort::parse(fields)?;
        let filter = value.get("partial_filter_selector").map(Selector::parse_unchecked).transpose()?;
        let known = |name: &str| ["fields", "partial_filter_selector"].contains(&name);
        if let Some(name) = value.members().filter_map(|(name, _)| name.as_str()).find(|name| !known(name)) {
            return Err(Refusal::InvalidKey(name.into_owned()));
        }
        Self::new(sort.fields, sort.order, filter)
    }

    pub(crate) fn of_view(map: Value<'_>) -> Option<Self> {
        let mut order = Order::Ascending;
        let fields = map.get("fields").filter(|fields| fields.is_object())?;
        let names = fields.members().map(|(name, direction)| {
            if direction.is_string("desc") {
                order = Order::Descending;
            }
            name.as_str().map(Cow::into_owned)
        });
        let names = names.collect::<Option<Vec<_>>>()?;
        let filter = map.get("partial_filter_selector").map(Selector::parse_unchecked).transpose().ok()?;
        Self::new(names, order, filter).ok()
    }

    fn new(names: Vec<String>, order: Order, filter: Option<Selector>) -> Result<Self, Refusal> {
        let mut columns: Vec<(String, FieldPath)> = Vec::with_capacity(names.len());
        for name in names {
            if columns.iter().all(|(known, _)| *known != name) {
                let path = FieldPath::parse(&name)?;
                columns.push((name, path));
            }
        }
        let filter_text = filter.as_ref().map(Selector::to_json).filter(|text| text.as_bytes() != b"{}");
        let filter = filter.filter(|_| filter_text.is_some());
        Ok(Self { columns, order, filter, filter_text })
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.columns.iter().map(|(name, _)| name.as_str())
    }

    fn direction(&self) -> &'static str {
        match self.order {
            Order::Ascending => "asc",
            Order::Descending => "desc",
        }
    }

    pub(crate) fn write_map(&self, out: &mut Vec<u8>) {
        append_object(out, |object| {
            object.object("fields", |fields| {
                for name in self.names() {
                    fields.string(name, self.direction());
                }
            });
            object.json("partial_filter_selector", self.filter_text.as_ref().map_or(b"{}", |text| text.as_bytes()));
        });
    }

    pub(crate) fn write_listed(&self, out: &mut Vec<u8>) {
        append_object(out, |object| {
            write_array(object.name("fields"), self.names(), |out, name| {
                append_object(out, |field| {
                    field.string(name, self.direction());
                });
            });
            if let Some(filter) = &self.filter_text {
                object.json("partial_filter_selector", filter.as_bytes());
            }
        });
    }
}
