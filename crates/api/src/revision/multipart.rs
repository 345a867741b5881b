//! Multipart revisions: [`Related`] is a document followed by the data of its attachments.

use std::ops::ControlFlow;

use settee_database::{Attachment, ContentEncoding, DocRecord, Form, ReadView};
use settee_wire::multipart::{Attached, Writer};

use super::attachments::{Text, each_piece, write_following};
use super::members;
use crate::Error;
use crate::params::attachments::Shown;
use crate::params::document::Extras;

pub(crate) struct Related {
    json: Vec<u8>,
    included: Vec<Attachment>,
    writer: Writer,
}

impl Related {
    /// Reads the revision at `node`. Returns `None` if a compaction has removed it.
    pub(crate) fn read(
        view: &ReadView<'_>,
        id: &str,
        record: &DocRecord,
        node: u32,
        extras: Extras,
        shown: &Shown,
        boundary: &str,
    ) -> Result<Option<Self>, Error> {
        let revision = record.tree.node(node);
        let Some(stored) = revision.value else { return Ok(None) };
        let Some(read) = view.revision(stored)? else { return Ok(None) };
        let (_, members) = members(view, record, node, extras)?;
        let wanted = shown.wanted(record, node);
        let mut json = Vec::with_capacity(read.body().len() + 256);
        read.write_without_attachments(&mut json, id, &revision.rev, stored.deleted, |out| out.extend(members));
        write_following(&mut json, &read.attachments, wanted);
        let included = read.attachments.into_iter().filter(|attachment| wanted.has(attachment)).collect();
        Ok(Some(Self { json, included, writer: Writer::new(boundary.to_owned()) }))
    }

    pub(crate) fn has_parts(&self) -> bool {
        !self.included.is_empty()
    }

    pub(crate) fn content_type(&self) -> String {
        if self.has_parts() { self.writer.content_type("multipart/related") } else { "application/json".to_owned() }
    }

    pub(crate) fn length(&self) -> u64 {
        let mut text = Vec::new();
        let mut data = 0;
        self.write_with(&mut text, |_, attachment| {
            data += attachment.stored_length;
            Ok(ControlFlow::Continue(()))
        })
        .ok();
        text.len() as u64 + data
    }

    pub(crate) fn write(&self, out: &mut impl Text, view: &ReadView<'_>) -> Result<ControlFlow<()>, Error> {
        self.write_with(out, |out, attachment| {
            let mut reader = view.content(attachment)?.reader(Form::Stored);
            each_piece(&mut reader, |piece| {
                out.text().extend_from_slice(piece);
                out.piece_done()
            })
        })
    }

    fn write_with<T: Text>(
        &self,
        out: &mut T,
        mut data: impl FnMut(&mut T, &Attachment) -> Result<ControlFlow<()>, Error>,
    ) -> Result<ControlFlow<()>, Error> {
        if !self.has_parts() {
            out.text().extend_from_slice(&self.json);
            return Ok(ControlFlow::Continue(()));
        }
        self.writer.begin(out.text());
        self.writer.part(out.text(), [("Content-Type", "application/json")]);
        out.text().extend_from_slice(&self.json);
        self.writer.part_end(out.text());
        for attachment in &self.included {
            self.writer.attachment(out.text(), attached(attachment));
            if data(out, attachment)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
            self.writer.part_end(out.text());
        }
        self.writer.end(out.text());
        Ok(ControlFlow::Continue(()))
    }
}

fn attached(attachment: &Attachment) -> Attached<'_> {
    Attached {
        name: &attachment.name,
        content_type: &attachment.content_type,
        length: attachment.stored_length,
        encoding: match attachment.encoding {
            ContentEncoding::Identity => None,
            ContentEncoding::Gzip => Some("gzip"),
        },
    }
}
