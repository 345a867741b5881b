//! [`Unzip`]: incremental decompression of a body, which stops at the size limit.

use std::io::{self, Write};
use std::sync::Arc;

use crate::budget::Account;
use bytes::Bytes;
use flate2::write::MultiGzDecoder;

use crate::Error;

/// Maximum ratio of decompressed to received bytes, beyond [`RATIO_EXEMPT_BYTES`]; more is assumed to be an attack on
/// memory. Documents compress to a twentieth.
const RATIO_MAX: usize = 100;
const RATIO_EXEMPT_BYTES: usize = 1 << 20;

pub(super) struct Unzip {
    decoder: MultiGzDecoder<Unpacked>,
    is_begun: bool,
}

struct Unpacked {
    bytes: Vec<u8>,
    limit: usize,
    received: usize,
    account: Arc<Account>,
    refusal: Option<Error>,
}

impl Unzip {
    pub(super) fn new(limit: usize, account: Arc<Account>) -> Self {
        let unpacked = Unpacked { bytes: Vec::new(), limit, received: 0, account, refusal: None };
        Self { decoder: MultiGzDecoder::new(unpacked), is_begun: false }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.is_begun |= !bytes.is_empty();
        self.decoder.get_mut().received += bytes.len();
        let written = self.decoder.write_all(bytes);
        written.map_err(|_| self.refusal())
    }

    pub(super) fn finish(mut self) -> Result<Bytes, Error> {
        let finished = match self.is_begun {
            true => self.decoder.try_finish(),
            false => Err(io::ErrorKind::UnexpectedEof.into()),
        };
        finished.map_err(|_| self.refusal())?;
        Ok(std::mem::take(&mut self.decoder.get_mut().bytes).into())
    }

    fn refusal(&mut self) -> Error {
        let refusal = self.decoder.get_mut().refusal.take();
        refusal.unwrap_or_else(|| Error::bad_request("Request body is not properly gzipped."))
    }
}

impl Unpacked {
    fn take(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let length = self.bytes.len() + bytes.len();
        if length > self.limit || length.saturating_sub(RATIO_EXEMPT_BYTES) / RATIO_MAX > self.received {
            return Err(Error::too_large());
        }
        self.account.keep_now(bytes.len())?;
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }
}

impl Write for Unpacked {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Err(refusal) = self.take(bytes) {
            self.refusal = Some(refusal);
            return Err(io::ErrorKind::Other.into());
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
