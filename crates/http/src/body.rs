//! Reading request bodies: limits, `Content-Encoding: gzip`, and JSON.

pub(crate) mod patient;
pub(crate) mod pieces;

use std::io::Read;

use bytes::Bytes;
use hyper::body::Body;
use hyper::{HeaderMap, StatusCode, header};
use patient::Patience;
use settee_model::json::Json;

use crate::{Error, bridge};

/// Bodies beyond this are parsed on a thread that may block.
const LARGE_BODY_BYTES: usize = 256 << 10;

/// Reads a whole body of at most `limit_bytes`, after decompression too.
pub(crate) async fn read<B>(
    mut body: B,
    headers: &HeaderMap,
    limit_bytes: usize,
    mut patience: Patience,
) -> Result<Bytes, Error>
where
    B: Body<Data = Bytes, Error: std::fmt::Display> + Unpin,
{
    // A client that waits for "100 Continue" need not send what is refused anyway.
    if body.size_hint().lower() > limit_bytes as u64 {
        return Err(too_large());
    }
    let (mut pieces, mut length) = (Vec::new(), 0_usize);
    while let Some(frame) = patience.frame(&mut body).await {
        let Ok(piece) = frame?.into_data() else { continue };
        length += piece.len();
        if length > limit_bytes {
            return Err(too_large());
        }
        pieces.push(piece);
    }
    let bytes = if pieces.len() == 1 { pieces.remove(0) } else { pieces.concat().into() };
    match headers.get(header::CONTENT_ENCODING).map(header::HeaderValue::as_bytes) {
        None | Some(b"identity") => Ok(bytes),
        Some(b"gzip") => bridge::blocking(move || gunzip(&bytes, limit_bytes)).await,
        Some(encoding) => {
            let encoding = String::from_utf8_lossy(encoding);
            Err(Error::bad_encoding(format!("{encoding} is not a supported content encoding.")))
        }
    }
}

/// Parses a body as JSON.
pub(crate) async fn json(bytes: Bytes) -> Result<Json, Error> {
    if bytes.len() > LARGE_BODY_BYTES {
        return bridge::blocking(move || Ok(Json::parse(&bytes)?)).await;
    }
    Ok(Json::parse(&bytes)?)
}

/// Refuses a request whose body is not called JSON, as CouchDB does for POST.
pub(crate) fn require_json(headers: &HeaderMap) -> Result<(), Error> {
    require_type(headers, "application/json")
}

/// Refuses a request whose body has another type, to the letter: neither case nor white space are forgiven.
pub(crate) fn require_type(headers: &HeaderMap, essence: &'static str) -> Result<(), Error> {
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let named = content_type.trim_start_matches(';').split(';').next().unwrap_or_default();
    if named == essence { Ok(()) } else { Err(Error::bad_content_type(essence)) }
}

fn gunzip(bytes: &[u8], limit_bytes: usize) -> Result<Bytes, Error> {
    let mut out = Vec::new();
    let limit = (limit_bytes as u64).saturating_add(1);
    flate2::read::MultiGzDecoder::new(bytes)
        .take(limit)
        .read_to_end(&mut out)
        .map_err(|_| Error::bad_request("Request body is not properly gzipped."))?;
    if out.len() > limit_bytes { Err(too_large()) } else { Ok(out.into()) }
}

fn too_large() -> Error {
    Error::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", "the request entity is too large")
}

#[cfg(test)]
mod tests;
