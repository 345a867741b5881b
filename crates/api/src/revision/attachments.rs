//! Attachments in documents: stubs, or base64 data, which is streamed.

use std::io::Read;
use std::ops::ControlFlow;

use settee_database::{Attachment, EncodingInfo, Form, ReadView, write_marked};
use settee_edge::bridge::Output;
use settee_model::base64;

use crate::params::attachments::Wanted;
use crate::{Error, revision};

pub(crate) trait Text {
    fn text(&mut self) -> &mut Vec<u8>;

    /// Reserves memory. Must be called before `bytes` bytes are appended at once.
    fn expect(&mut self, bytes: usize) -> Result<(), Error>;

    /// Must be called between pieces of a large text. Returns `Break` when the client has disconnected.
    fn piece_done(&mut self) -> ControlFlow<()>;
}

impl Text for Output {
    fn text(&mut self) -> &mut Vec<u8> {
        Output::text(self)
    }

    fn expect(&mut self, bytes: usize) -> Result<(), Error> {
        Ok(Output::expect(self, bytes)?)
    }

    fn piece_done(&mut self) -> ControlFlow<()> {
        self.row_done()
    }
}

impl Text for Vec<u8> {
    fn text(&mut self) -> &mut Vec<u8> {
        self
    }

    /// The caller has reserved the memory of the vector.
    fn expect(&mut self, _: usize) -> Result<(), Error> {
        Ok(())
    }

    fn piece_done(&mut self) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

const PIECE_BYTES: usize = 32 << 10;

/// Adds `_attachments` as the last member of the document. Without attachments the document is unchanged.
pub(crate) fn write(
    out: &mut impl Text,
    view: &ReadView<'_>,
    attachments: &[Attachment],
    wanted: Wanted,
    info: EncodingInfo,
) -> Result<(), Error> {
    if attachments.is_empty() || out.text().pop().is_none() {
        return Ok(());
    }
    out.text().extend_from_slice(b",\"_attachments\":{");
    for (index, attachment) in attachments.iter().enumerate() {
        if index > 0 {
            out.text().push(b',');
        }
        attachment.write_beginning(out.text());
        if wanted.has(attachment) {
            out.text().extend_from_slice(b",\"data\":\"");
            if write_data(out, view, attachment)?.is_break() {
                return Ok(());
            }
            out.text().push(b'"');
        } else {
            attachment.write_mark("stub", out.text());
        }
        attachment.write_end(info, out.text());
    }
    out.text().extend_from_slice(b"}}");
    Ok(())
}

/// Like [`write()`], but requested data is sent in separate parts.
pub(super) fn write_following(out: &mut Vec<u8>, attachments: &[Attachment], wanted: Wanted) {
    let mark = |attachment: &Attachment| if wanted.has(attachment) { "follows" } else { "stub" };
    write_marked(out, attachments, EncodingInfo::Shown, mark);
}

fn write_data(out: &mut impl Text, view: &ReadView<'_>, attachment: &Attachment) -> Result<ControlFlow<()>, Error> {
    let mut encoder = base64::Encoder::default();
    let mut reader = view.content(attachment)?.reader(Form::Identity);
    let flow = each_piece(&mut reader, |piece| {
        encoder.push(piece, out.text());
        out.piece_done()
    })?;
    if flow.is_continue() {
        encoder.finish(out.text());
    }
    Ok(flow)
}

pub(crate) fn each_piece(
    reader: &mut (impl Read + ?Sized),
    mut each: impl FnMut(&[u8]) -> ControlFlow<()>,
) -> Result<ControlFlow<()>, Error> {
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let length = reader.read(&mut piece).map_err(revision::unreadable)?;
        if length == 0 {
            return Ok(ControlFlow::Continue(()));
        }
        if each(&piece[..length]).is_break() {
            return Ok(ControlFlow::Break(()));
        }
    }
}
