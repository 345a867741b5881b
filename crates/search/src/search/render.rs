//! [`HitRenderer`]: converts found documents to hits.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use super::highlight::Highlighter;
use super::top::Candidate;
use crate::answer::{Hit, OrderValue};
use crate::error::{Error, Result};
use crate::field::StoredValue;
use crate::index::definition::Definition;
use crate::index::reader::{Reader, SegmentValues};
use crate::limits::SearchLimits;
use crate::request::Request;

const HIT_BYTES: usize = 256;

pub(super) struct HitRenderer<'a> {
    reader: &'a Reader,
    request: &'a Request,
    limits: &'a SearchLimits,
    highlighter: Option<Highlighter<'a>>,
    opened: RefCell<HashMap<usize, Rc<SegmentValues>>>,
}

impl<'a> HitRenderer<'a> {
    pub(super) fn new(
        reader: &'a Reader,
        definition: &'a Definition,
        request: &'a Request,
        limits: &'a SearchLimits,
    ) -> Result<Self> {
        let highlighter = request
            .highlight
            .as_ref()
            .map(|how| Highlighter::new(&definition.analyzers, &request.query, how, limits))
            .transpose()?;
        Ok(Self { reader, request, limits, highlighter, opened: RefCell::default() })
    }

    pub(super) fn hits(&self, found: Vec<Candidate>) -> Result<Vec<Hit>> {
        found.into_iter().map(|candidate| self.hit(candidate)).collect()
    }

    fn values(&self, segment: usize) -> Result<Rc<SegmentValues>> {
        if let Some(opened) = self.opened.borrow().get(&segment) {
            return Ok(Rc::clone(opened));
        }
        let opened = Rc::new(self.reader.values(segment)?);
        self.opened.borrow_mut().insert(segment, Rc::clone(&opened));
        Ok(opened)
    }

    fn hit(&self, candidate: Candidate) -> Result<Hit> {
        self.limits.check()?;
        let Candidate { segment, doc, order } = candidate;
        let values = self.values(segment)?;
        let id = values.id(doc)?;
        let stored = self.reader.stored(&values, doc)?;
        self.limits.charge(HIT_BYTES + id.len() + order.len() * size_of::<OrderValue>() + bytes_of(&stored))?;
        let highlights = match &self.highlighter {
            Some(highlighter) => highlighter.highlights(&stored)?,
            None => Vec::new(),
        };
        Ok(Hit { id, order, fields: self.grouped(stored), highlights })
    }

    fn grouped(&self, stored: Vec<(String, StoredValue)>) -> Vec<(String, Vec<StoredValue>)> {
        let mut fields: Vec<(String, Vec<StoredValue>)> = Vec::new();
        let mut numbers: HashMap<String, usize> = HashMap::new();
        let wanted = self.request.include_fields.as_ref();
        for (name, value) in stored.into_iter().filter(|(name, _)| wanted.is_none_or(|wanted| wanted.contains(name))) {
            match numbers.get(&name) {
                Some(number) => fields[*number].1.push(value),
                None => {
                    numbers.insert(name.clone(), fields.len());
                    fields.push((name, vec![value]));
                }
            }
        }
        fields
    }
}

fn bytes_of(stored: &[(String, StoredValue)]) -> usize {
    let bytes = |(name, value): &(String, StoredValue)| {
        let text = match value {
            StoredValue::String(text) => text.len(),
            StoredValue::Double(_) | StoredValue::Bool(_) => 0,
        };
        96 + 2 * name.len() + text
    };
    stored.iter().map(bytes).sum()
}

impl SegmentValues {
    fn id(&self, doc: tantivy::DocId) -> Result<String> {
        let ord = self.ids.ords().first(doc).ok_or_else(|| Error::Corrupt("a document without id".to_owned()))?;
        self.ids.text(ord)
    }
}
