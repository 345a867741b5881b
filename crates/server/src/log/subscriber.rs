//! [`Collector`]: receives the events of the crate `tracing`. Spans are ignored.

use std::fmt;

use tracing::field::{Field, Visit};
use tracing::metadata::LevelFilter;
use tracing::span::{Attributes, Id, Record as SpanRecord};
use tracing::subscriber::Interest;
use tracing::{Event, Level, Metadata, Subscriber};

use super::format::{Kind, Record};
use super::{Log, Severity};

pub(super) struct Collector(pub(super) Log);

fn severity(metadata: &Metadata<'_>) -> Severity {
    match *metadata.level() {
        Level::ERROR => Severity::Error,
        Level::WARN => Severity::Warning,
        Level::INFO if metadata.target() == settee_api::ACCESS_LOG => Severity::Notice,
        Level::INFO => Severity::Info,
        Level::DEBUG | Level::TRACE => Severity::Debug,
    }
}

/// Information of libraries is dropped.
fn is_ours(metadata: &Metadata<'_>) -> bool {
    metadata.target().starts_with("settee") || *metadata.level() <= Level::WARN
}

impl Subscriber for Collector {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if self.enabled(metadata) { Interest::always() } else { Interest::never() }
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && is_ours(metadata) && self.0.is_wanted(severity(metadata))
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        let wanted = |severity| self.0.is_wanted(severity);
        Some(if wanted(Severity::Debug) {
            LevelFilter::DEBUG
        } else if wanted(Severity::Notice) {
            LevelFilter::INFO
        } else if wanted(Severity::Warning) {
            LevelFilter::WARN
        } else if wanted(Severity::Error) {
            LevelFilter::ERROR
        } else {
            LevelFilter::OFF
        })
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &SpanRecord<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let metadata = event.metadata();
        let is_access = metadata.target() == settee_api::ACCESS_LOG;
        let mut record = Record::new(severity(metadata), is_access);
        event.record(&mut Visitor(&mut record));
        self.0.write(&record);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Visitor<'a>(&'a mut Record);

impl Visit for Visitor<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.add(field.name(), Kind::Quoted, |text| text.push_str(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.0.add(field.name(), Kind::Plain, |text| display(text, value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.0.add(field.name(), Kind::Plain, |text| display(text, value));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.0.add(field.name(), Kind::Plain, |text| display(text, value));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.add(field.name(), Kind::Quoted, |text| display(text, format_args!("{value:?}")));
    }
}

fn display(text: &mut String, value: impl fmt::Display) {
    fmt::write(text, format_args!("{value}")).expect("writing to a String cannot fail");
}
