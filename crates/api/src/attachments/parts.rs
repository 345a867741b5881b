//! [`Parts`]: incremental parser of multipart bodies.

use bytes::Bytes;
use hyper::StatusCode;
use settee_edge::body::pieces::Pieces;
use settee_wire::multipart::{ContentType, Event, Head, Parser};

use crate::Error;

pub(crate) struct Parts<'a> {
    parser: Parser,
    pieces: &'a mut Pieces,
}

impl<'a> Parts<'a> {
    pub(crate) fn of(content_type: &ContentType, pieces: &'a mut Pieces) -> Result<Self, Error> {
        Ok(Self { parser: Parser::of(content_type)?, pieces })
    }

    fn event(&mut self) -> Result<Option<Event>, Error> {
        loop {
            if let Some(event) = self.parser.next()? {
                return Ok(Some(event));
            }
            match self.pieces.next_piece()? {
                Some(piece) => self.parser.feed(&piece),
                None => {
                    self.parser.finish();
                    return Ok(self.parser.next()?);
                }
            }
        }
    }

    pub(crate) fn next_part(&mut self) -> Result<Option<Head>, Error> {
        match self.event()? {
            Some(Event::Part(head)) => Ok(Some(head)),
            _ => Ok(None),
        }
    }

    pub(crate) fn data(&mut self) -> Result<Option<Bytes>, Error> {
        match self.event()? {
            Some(Event::Data(data)) => Ok(Some(data)),
            _ => Ok(None),
        }
    }
    pub(crate) fn text(&mut self, bytes_max: usize) -> Result<Vec<u8>, Error> {
        let mut text = Vec::new();
        while let Some(data) = self.data()? {
            text.extend_from_slice(&data);
            if text.len() > bytes_max {
                return Err(Error::new(StatusCode::PAYLOAD_TOO_LARGE, "document_too_large", ""));
            }
        }
        Ok(text)
    }

    pub(crate) fn skip(&mut self) -> Result<(), Error> {
        while self.data()?.is_some() {}
        Ok(())
    }
}
