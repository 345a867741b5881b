//! Parameters for the attachments of documents in responses.

use settee_database::{Attachment, DocRecord, EncodingInfo};
use settee_model::Rev;
use settee_model::json::{Kind, Value};

use super::Query;
use crate::Error;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shown {
    pub(crate) data: Data,
    pub(crate) info: EncodingInfo,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Data {
    #[default]
    None,
    All,
    /// Attachments that are newer than the latest ancestor among these revisions (`atts_since`).
    Since(Vec<Rev>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    None,
    All,
    /// Attachments that were added after this generation.
    Beyond(u64),
}

impl Wanted {
    pub(crate) fn has(self, attachment: &Attachment) -> bool {
        match self {
            Self::None => false,
            Self::All => true,
            Self::Beyond(generation) => attachment.revpos > generation,
        }
    }
}

impl Shown {
    pub(crate) fn new(since: Option<Vec<Rev>>, query: &Query) -> Self {
        let shown = Self::switches(query.is_true("attachments"), query.is_true("att_encoding_info"));
        Self { data: since.map_or(shown.data, Data::Since), info: shown.info }
    }

    pub(crate) fn switches(attachments: bool, att_encoding_info: bool) -> Self {
        let data = if attachments { Data::All } else { Data::None };
        Self { data, info: info(att_encoding_info) }
    }

    pub(crate) fn with_data(&self) -> Self {
        let data = if self.data == Data::None { Data::All } else { self.data.clone() };
        Self { data, info: self.info }
    }

    pub(crate) fn is_plain(&self) -> bool {
        self.data == Data::None && self.info == EncodingInfo::Hidden
    }

    pub(crate) fn wanted(&self, record: &DocRecord, node: u32) -> Wanted {
        match &self.data {
            Data::None => Wanted::None,
            Data::All => Wanted::All,
            Data::Since(revs) if revs.is_empty() => Wanted::All,
            Data::Since(revs) => {
                let mut history = record.tree.history(node).map(|ancestor| &record.tree.node(ancestor).rev);
                Wanted::Beyond(history.find(|rev| revs.contains(rev)).map_or(0, |rev| rev.generation))
            }
        }
    }
}

fn info(shown: bool) -> EncodingInfo {
    if shown { EncodingInfo::Shown } else { EncodingInfo::Hidden }
}

pub(crate) fn revisions(list: Value<'_>) -> Result<Vec<Rev>, Error> {
    if list.kind() != Kind::Array {
        return Err(Error::bad_request("Invalid list of revisions"));
    }
    list.elements().map(|rev| Ok(Rev::parse(rev.as_str().as_deref().unwrap_or_default())?)).collect()
}
