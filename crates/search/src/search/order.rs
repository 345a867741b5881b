//! Order of hits. Documents of a segment are compared by numbers ([`Keys`]), hits of different segments by values.

use std::cmp::Ordering;

use tantivy::columnar::Column;
use tantivy::{DocId, Score, SegmentReader};

use crate::answer::OrderValue;
use crate::error::{Error, Result};
use crate::field::FieldKind;
use crate::index::reader::Reader;
use crate::index::strings::Strings;
use crate::limits::SearchLimits;
use crate::request::{Sort, SortBy};
use crate::store::SlotKind;

const MAX_SORTS: usize = 32;

pub(super) fn complete(sorts: &[Sort]) -> Result<Vec<Sort>> {
    if sorts.len() > MAX_SORTS {
        return Err(Error::bad_request(format!("at most {MAX_SORTS} sorts")));
    }
    let mut sorts = sorts.to_vec();
    if sorts.is_empty() {
        sorts.push(Sort { by: SortBy::Relevance, descending: false });
    }
    if sorts.last().is_none_or(|last| last.by != SortBy::Id) {
        sorts.push(Sort { by: SortBy::Id, descending: false });
    }
    Ok(sorts)
}

pub(super) fn compare(sorts: &[Sort], one: &[OrderValue], other: &[OrderValue]) -> Ordering {
    let pairs = sorts.iter().zip(one.iter().zip(other));
    pairs
        .map(|(sort, (one, other))| compare_one(sort, one, other))
        .find(|order| order.is_ne())
        .unwrap_or(Ordering::Equal)
}

fn compare_one(sort: &Sort, one: &OrderValue, other: &OrderValue) -> Ordering {
    use OrderValue::{Double, Null, Score, String};
    let order = match (one, other) {
        (Score(one), Score(other)) => other.total_cmp(one),
        (Double(one), Double(other)) => one.total_cmp(other),
        (String(one), String(other)) => one.cmp(other),
        (Null, Null) => Ordering::Equal,
        (Null, _) => Ordering::Less,
        (_, Null) => Ordering::Greater,
        _ => Ordering::Equal,
    };
    if sort.descending { order.reverse() } else { order }
}

pub(super) struct Keys {
    columns: Vec<(Key, bool)>,
}

enum Key {
    Score,
    Strings(Strings),
    Numbers(Column<f64>),
    Distance {
        longitude: Column<f64>,
        latitude: Column<f64>,
        from: (f64, f64),
        unit_per_km: f64,
    },
    /// No document of the segment has the number: it counts as 0.
    Zero,
    Nothing,
}

impl Keys {
    pub(super) fn open(reader: &Reader, segment: &SegmentReader, sorts: &[Sort]) -> Result<Self> {
        let columns = sorts.iter().map(|sort| Ok((Key::open(reader, segment, &sort.by)?, sort.descending)));
        Ok(Self { columns: columns.collect::<Result<_>>()? })
    }

    fn each(&self, doc: DocId, score: Score) -> impl Iterator<Item = u64> {
        let number = move |(key, descending): &(Key, bool)| {
            let number = key.of(doc, score);
            if *descending { !number } else { number }
        };
        self.columns.iter().map(number)
    }

    pub(super) fn of(&self, doc: DocId, score: Score) -> Vec<u64> {
        self.each(doc, score).collect()
    }

    /// Reads only as many columns as necessary.
    pub(super) fn compare(&self, doc: DocId, score: Score, to: &[u64]) -> Ordering {
        self.each(doc, score).cmp(to.iter().copied())
    }

    pub(super) fn bytes(&self) -> usize {
        self.columns.len() * size_of::<u64>() + 16
    }

    pub(super) fn charged_values(&self, doc: DocId, score: Score, limits: &SearchLimits) -> Result<Vec<OrderValue>> {
        let values: Vec<OrderValue> =
            self.columns.iter().map(|(key, _)| key.value(doc, score)).collect::<Result<_>>()?;
        let texts = values.iter().map(|value| match value {
            OrderValue::String(text) => text.len(),
            OrderValue::Score(_) | OrderValue::Double(_) | OrderValue::Null => 0,
        });
        limits.charge(size_of_val(values.as_slice()) + texts.sum::<usize>() + 64)?;
        Ok(values)
    }

    /// Converts values of another segment or an earlier result to keys; those of all later documents are greater.
    pub(super) fn after(&self, values: &[OrderValue]) -> Result<Vec<u64>> {
        let columns = self.columns.iter().zip(values);
        columns
            .map(|((key, descending), value)| {
                let number = key.number(value)?;
                Ok(if *descending { !number } else { number })
            })
            .collect()
    }
}

/// Converts a number to an integer with the same order.
fn of_float(number: f64) -> u64 {
    let bits = number.to_bits();
    if bits >> 63 == 1 { !bits } else { bits | 1 << 63 }
}

impl Key {
    fn open(reader: &Reader, segment: &SegmentReader, by: &SortBy) -> Result<Self> {
        let layout = reader.layout();
        let strings = |name: &str| -> Result<Self> {
            let column = layout.strings(name).map(|column| Strings::open(segment, &column)).transpose()?.flatten();
            Ok(column.map_or(Self::Nothing, Self::Strings))
        };
        let column = |name: &str| -> Result<Option<Column<f64>>> {
            Ok(layout.numbers(name).map(|column| segment.fast_fields().column_opt(&column)).transpose()?.flatten())
        };
        let numbers = |name: &str| -> Result<Self> { Ok(column(name)?.map_or(Self::Zero, Self::Numbers)) };
        Ok(match by {
            SortBy::Relevance => Self::Score,
            SortBy::Id => strings("_id")?,
            SortBy::StringField(name) => strings(name)?,
            SortBy::NumberField(name) => numbers(name)?,
            SortBy::Field(name) if name == "_id" => strings(name)?,
            SortBy::Field(name) => {
                let kinds: Vec<_> = layout.kinds(name).collect();
                if kinds.iter().any(|kind| matches!(kind, SlotKind::String | SlotKind::Column)) {
                    strings(name)?
                } else if kinds.contains(&SlotKind::Double) {
                    numbers(name)?
                } else if kinds.is_empty() {
                    Self::Nothing
                } else {
                    return Err(Error::bad_request(format!("can't sort on field {name}")));
                }
            }
            SortBy::Distance { longitude_field, latitude_field, longitude, latitude, unit_per_km } => {
                match (column(longitude_field)?, column(latitude_field)?) {
                    (Some(longitudes), Some(latitudes)) => Self::Distance {
                        longitude: longitudes,
                        latitude: latitudes,
                        from: (*longitude, *latitude),
                        unit_per_km: *unit_per_km,
                    },
                    _ => Self::Zero,
                }
            }
        })
    }

    fn double(&self, doc: DocId) -> f64 {
        match self {
            Self::Numbers(column) => column.values_for_doc(doc).min_by(f64::total_cmp).unwrap_or(0.0),
            Self::Distance { longitude, latitude, from, unit_per_km } => {
                let to = (longitude.first(doc).unwrap_or(0.0), latitude.first(doc).unwrap_or(0.0));
                distance_km(*from, to) * unit_per_km
            }
            Self::Score | Self::Strings(_) | Self::Zero | Self::Nothing => 0.0,
        }
    }

    fn of(&self, doc: DocId, score: Score) -> u64 {
        match self {
            Self::Score => !of_float(f64::from(score)),
            // The odd numbers represent strings that the segment does not contain.
            Self::Strings(column) => least_ord(column, doc).map_or(0, |ord| 2 * ord + 2),
            Self::Numbers(_) | Self::Distance { .. } | Self::Zero => of_float(self.double(doc)),
            Self::Nothing => 0,
        }
    }

    fn value(&self, doc: DocId, score: Score) -> Result<OrderValue> {
        Ok(match self {
            Self::Score => OrderValue::Score(score),
            Self::Strings(column) => match least_ord(column, doc) {
                Some(ord) => OrderValue::String(column.text(ord)?),
                None => OrderValue::Null,
            },
            Self::Numbers(_) | Self::Distance { .. } | Self::Zero => OrderValue::Double(self.double(doc)),
            Self::Nothing => OrderValue::Null,
        })
    }

    fn number(&self, value: &OrderValue) -> Result<u64> {
        Ok(match (self, value) {
            (Self::Score, OrderValue::Score(score)) => !of_float(f64::from(*score)),
            (Self::Strings(column), OrderValue::String(text)) => {
                let (ord, is_there) = place_of(column, text)?;
                2 * ord + 1 + u64::from(is_there)
            }
            (Self::Nothing, OrderValue::String(_)) => 1,
            (Self::Numbers(_) | Self::Distance { .. } | Self::Zero, OrderValue::Double(number)) => of_float(*number),
            (Self::Strings(_) | Self::Nothing, OrderValue::Null) => 0,
            // The field is newer than the bookmark.
            (_, OrderValue::Null) => 0,
            _ => return Err(Error::bad_request("bookmark does not belong to this sort")),
        })
    }
}

fn least_ord(column: &Strings, doc: DocId) -> Option<u64> {
    column.ords_of(doc).min()
}

fn place_of(column: &Strings, text: &str) -> Result<(u64, bool)> {
    let dictionary = column.dictionary();
    if let Some(ord) = dictionary.term_ord(text).map_err(Error::from_io)? {
        return Ok((ord, true));
    }
    let (mut low, mut high) = (0, dictionary.num_terms() as u64);
    let mut bytes = Vec::new();
    while low < high {
        let middle = u64::midpoint(low, high);
        bytes.clear();
        dictionary.ord_to_term(middle, &mut bytes).map_err(Error::from_io)?;
        if bytes.as_slice() < text.as_bytes() {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    Ok((low, false))
}

fn distance_km((from_long, from_lat): (f64, f64), (to_long, to_lat): (f64, f64)) -> f64 {
    const EARTH_KM: f64 = 6_371.008_771_4;
    let (from_lat, to_lat) = (from_lat.to_radians(), to_lat.to_radians());
    let (lat, long) = ((to_lat - from_lat) / 2.0, (to_long - from_long).to_radians() / 2.0);
    let part = lat.sin().powi(2) + from_lat.cos() * to_lat.cos() * long.sin().powi(2);
    2.0 * EARTH_KM * part.sqrt().min(1.0).asin()
}

/// Returns the column of a field that can be counted; `None` if no document has the field.
pub(super) fn countable(reader: &Reader, field: &str) -> Result<Option<String>> {
    let layout = reader.layout();
    match layout.strings(field) {
        Some(column) => Ok(Some(column)),
        None if layout.kinds(field).next().is_none() => Ok(None),
        None => Err(Error::bad_request(format!(
            "field \"{field}\" was not indexed with SortedSetDocValues: it is of type {}",
            layout.kinds(field).find_map(SlotKind::field_kind).unwrap_or(FieldKind::Stored).name()
        ))),
    }
}
