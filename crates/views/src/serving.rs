//! `"options":{"swap":"online"}`: the former definition of a view serves queries while the index of the new one is
//! built. For each design document, the database stores which definition of each view was last built; one that differs
//! from the current one serves the queries until the new build ends.

use std::sync::Arc;

use settee_design::{DesignDocument, DesignOptions, Swap, ViewDefinition};
use settee_model::collate::Collation;
use settee_storage::codec::{Reader, put_bytes, put_len, put_varint};

use crate::error::{Result, ViewError};
use crate::handle::ServingViews;
use crate::host::IndexHost;
use crate::index::Signature;
use crate::index::identity::{definitions, signature};
use crate::query::Stale;
use crate::shared::Core;

/// Longer definitions, such as large modules, are not stored: queries of their views wait after a change.
const RECORD_BYTES_MAX: usize = 4 << 20;

fn record_key(ddoc: &str) -> String {
    format!("served/{ddoc}")
}

impl Core {
    fn served(&self, host: &dyn IndexHost, ddoc: &Arc<str>) -> Result<ServingViews> {
        let indexes = self.indexes_of(host.shard());
        let elsewhere = host.changes_elsewhere();
        if let Some(served) = indexes.served.lock().get(ddoc).filter(|served| served.elsewhere == elsewhere) {
            return Ok(served.clone());
        }
        let record = host.read_records(&[&record_key(ddoc)])?.pop().flatten();
        let views = record.as_deref().map_or(Ok(Vec::new()), |record| decode(ddoc, record))?.into();
        let served = ServingViews { views, record, elsewhere };
        indexes.served.lock().insert(Arc::clone(ddoc), served.clone());
        Ok(served)
    }

    /// Records that the definitions whose indexes are `built` serve queries, and removes those of deleted views.
    pub(crate) fn record_serving(
        &self,
        host: &dyn IndexHost,
        ddoc: &DesignDocument,
        built: &[Signature],
    ) -> Result<()> {
        if !ddoc.id.starts_with("_design/") || ddoc.swap == Swap::Never {
            return Ok(());
        }
        loop {
            let before = self.served(host, &ddoc.id)?;
            let now: Vec<DesignDocument> = ddoc
                .views
                .iter()
                .filter_map(|view| match built.contains(&signature(host.layout(), ddoc, view)) {
                    true => Some(alone(ddoc, view)),
                    false => before.views.iter().find(|served| served.views[0].name == view.name).cloned(),
                })
                .collect();
            let size: usize = now.iter().map(|served| served.views[0].map.len() + library_len(served)).sum();
            if *now == *before.views || size > RECORD_BYTES_MAX {
                return Ok(());
            }
            let record = encode(&now);
            let is_replaced = host.replace_record(&record_key(&ddoc.id), before.record, record.clone())?;
            let indexes = self.indexes_of(host.shard());
            let mut served = indexes.served.lock();
            if is_replaced {
                let serving = ServingViews { views: now.into(), record: Some(record), elsewhere: before.elsewhere };
                served.insert(Arc::clone(&ddoc.id), serving);
                return Ok(());
            }
            served.remove(&ddoc.id);
        }
    }

    /// Returns the definition that serves a view until its own index is ready, if any.
    pub(crate) fn serving_definition(
        &self,
        host: &dyn IndexHost,
        ddoc: &DesignDocument,
        view: &ViewDefinition,
    ) -> Result<Option<(DesignDocument, Stale)>> {
        if ddoc.swap != Swap::Online {
            return Ok(None);
        }
        let served = self.served(host, &ddoc.id)?.views;
        let Some(serving) = served.iter().find(|served| served.views[0].name == view.name) else {
            return Ok(None);
        };
        let wanted = signature(host.layout(), ddoc, view);
        let has = signature(host.layout(), serving, &serving.views[0]);
        if has == wanted && serving.views[0].reduce == view.reduce {
            return Ok(None);
        }
        // The state of the build depends on other processes.
        host.waiting().may_block()?;
        if host.find_index(has)?.is_none() {
            return Ok(None);
        }
        let progress = self.progress(host, &ddoc.id);
        let percent = |(done, total, _): (u64, u64, _)| (done * 100).checked_div(total).unwrap_or(0).min(100);
        Ok(Some((serving.clone(), Stale { building: wanted.to_string(), progress: progress.map(percent) })))
    }

    /// Returns the indexes of former definitions that serve queries.
    pub(crate) fn serving_indexes(&self, host: &dyn IndexHost, ddocs: &[DesignDocument]) -> Result<Vec<Signature>> {
        let mut serving = Vec::new();
        for ddoc in ddocs.iter().filter(|ddoc| ddoc.swap == Swap::Online) {
            let served = self.served(host, &ddoc.id)?.views;
            let named = served.iter().filter(|served| ddoc.view(&served.views[0].name).is_some());
            serving.extend(named.flat_map(|served| definitions(host.layout(), served)).map(|index| index.signature));
        }
        Ok(serving)
    }

    pub(crate) fn forget_served(&self, host: &dyn IndexHost, ddocs: &[DesignDocument]) -> Result<()> {
        for key in host.record_keys("served/")? {
            let ddoc = &key["served/".len()..];
            if ddocs.iter().all(|known| *known.id != *ddoc) {
                host.write_record(&key, None)?;
                self.indexes_of(host.shard()).served.lock().remove(ddoc);
            }
        }
        Ok(())
    }
}

fn alone(ddoc: &DesignDocument, view: &ViewDefinition) -> DesignDocument {
    let (views, searches) = (vec![view.clone()], Vec::new());
    DesignDocument { views, searches, swap: Swap::Never, autoupdate: true, ..ddoc.clone() }
}

fn library_len(ddoc: &DesignDocument) -> usize {
    ddoc.library.as_ref().map_or(0, |library| library.len())
}

fn push_optional(out: &mut Vec<u8>, text: Option<&str>) {
    put_varint(out, u64::from(text.is_some()));
    put_bytes(out, text.unwrap_or_default().as_bytes());
}

fn encode(served: &[DesignDocument]) -> Vec<u8> {
    let mut out = Vec::new();
    put_len(&mut out, served.len());
    for ddoc in served {
        let view = &ddoc.views[0];
        let DesignOptions { include_design, local_seq } = ddoc.options;
        let raw = view.collation == Collation::Raw;
        let partitioned = ddoc.partitioned.map_or(0, |partitioned| 1 + u64::from(partitioned));
        [include_design, local_seq, raw].into_iter().for_each(|flag| put_varint(&mut out, flag.into()));
        put_varint(&mut out, partitioned);
        [&view.name, &ddoc.language, &view.map].into_iter().for_each(|text| put_bytes(&mut out, text.as_bytes()));
        push_optional(&mut out, ddoc.library.as_deref());
        push_optional(&mut out, view.reduce.as_deref());
    }
    out
}

fn decode(ddoc: &Arc<str>, bytes: &[u8]) -> Result<Vec<DesignDocument>> {
    let mut reader = Reader::new(bytes, "views that are shown");
    let count = reader.length()?;
    (0..count).map(|_| decode_one(ddoc, &mut reader)).collect()
}

fn decode_one(ddoc: &Arc<str>, reader: &mut Reader<'_>) -> Result<DesignDocument> {
    let flag = |reader: &mut Reader<'_>| Ok::<_, ViewError>(reader.varint()? == 1);
    let text = |reader: &mut Reader<'_>| Ok::<Arc<str>, ViewError>(reader.text()?.into());
    let optional = |reader: &mut Reader<'_>| {
        let is_there = flag(reader)?;
        Ok::<_, ViewError>(Some(text(reader)?).filter(|_| is_there))
    };
    let options = DesignOptions { include_design: flag(reader)?, local_seq: flag(reader)? };
    let collation = if flag(reader)? { Collation::Raw } else { Collation::Unicode };
    let partitioned = match reader.varint()? {
        0 => None,
        number => Some(number == 2),
    };
    let (name, language, map) = (text(reader)?, text(reader)?, text(reader)?);
    let (library, reduce) = (optional(reader)?, optional(reader)?);
    let views = vec![ViewDefinition { name, map, reduce, collation }];
    let id = Arc::clone(ddoc);
    let searches = Vec::new();
    let (autoupdate, swap) = (true, Swap::Never);
    Ok(DesignDocument { id, language, library, options, views, searches, partitioned, autoupdate, swap })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use settee_model::json::Json;

    use super::*;

    #[test]
    fn records_come_back() {
        let texts = [
            r#"{"views":{"v":{"map":"m"}}}"#,
            r#"{"language":"x","options":{"include_design":true,"partitioned":false},"views":{"lib":{"a":1},
                "v":{"map":"m","reduce":""}, "w":{"map":"ü","reduce":"_sum","options":{"collation":"raw"}}}}"#,
            r#"{"options":{"local_seq":true,"partitioned":true},"views":{"v":{"map":""}}}"#,
        ];
        for text in texts {
            let json = Json::parse(text.as_bytes()).unwrap();
            let ddoc = DesignDocument::parse("_design/d", json.value()).unwrap();
            let served: Vec<DesignDocument> = ddoc.views.iter().map(|view| alone(&ddoc, view)).collect();
            let bytes = encode(&served);
            assert_eq!(decode(&ddoc.id, &bytes).unwrap(), served);
            for len in 1..bytes.len() {
                assert!(decode(&ddoc.id, &bytes[..len]).is_err());
            }
        }
    }
}
