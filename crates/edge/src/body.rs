//! Request bodies: limits, memory and `Content-Encoding: gzip`.

pub mod inbound;
pub mod pieces;
pub mod timeout;
mod unzip;

use std::sync::Arc;

use crate::budget::Account;
use bytes::Bytes;
use hyper::body::Body;
use hyper::{HeaderMap, header};
use settee_threads::Threads;
use timeout::ReceiveTimeout;
use unzip::Unzip;

use crate::Error;

const UNZIP_BYTES: usize = 16 << 10;

/// Reads at most `limit_bytes`, also after decompression, which runs on `threads`. The memory of the body belongs to
/// `account`.
pub async fn read<B>(
    body: B,
    headers: &HeaderMap,
    limit_bytes: usize,
    timeout: ReceiveTimeout,
    (account, threads): (&Arc<Account>, &Threads),
) -> Result<Bytes, Error>
where
    B: Body<Data = Bytes, Error: std::fmt::Display> + Unpin,
{
    let limit = limit_bytes.min(account.limit());
    // A refused client that waits for "100 Continue" does not have to send its body.
    if body.size_hint().lower() > limit as u64 {
        return Err(Error::too_large());
    }
    account.set_receiving(true);
    let read = match headers.get(header::CONTENT_ENCODING).map(header::HeaderValue::as_bytes) {
        None | Some(b"identity") => read_plain(body, limit, timeout, account).await,
        Some(b"gzip") => read_gzipped(body, limit, timeout, (account, threads)).await,
        Some(encoding) => {
            let encoding = String::from_utf8_lossy(encoding);
            Err(Error::bad_encoding(format!("{encoding} is not a supported content encoding.")))
        }
    };
    account.set_receiving(false);
    read
}

async fn read_plain<B>(
    mut body: B,
    limit: usize,
    mut timeout: ReceiveTimeout,
    account: &Arc<Account>,
) -> Result<Bytes, Error>
where
    B: Body<Data = Bytes, Error: std::fmt::Display> + Unpin,
{
    let (mut first, mut all) = (Bytes::new(), Vec::new());
    while let Some(frame) = timeout.frame(&mut body).await {
        let Ok(piece) = frame?.into_data() else { continue };
        if first.len() + all.len() + piece.len() > limit {
            return Err(Error::too_large());
        }
        account.keep(piece.len()).await?;
        account.moved(piece.len());
        if first.is_empty() && all.is_empty() {
            first = piece;
        } else {
            all.extend_from_slice(&std::mem::take(&mut first));
            all.extend_from_slice(&piece);
        }
    }
    Ok(if all.is_empty() { first } else { all.into() })
}

async fn read_gzipped<B>(
    mut body: B,
    limit: usize,
    mut timeout: ReceiveTimeout,
    (account, threads): (&Arc<Account>, &Threads),
) -> Result<Bytes, Error>
where
    B: Body<Data = Bytes, Error: std::fmt::Display> + Unpin,
{
    let (mut unzip, mut gathered, mut received) = (Unzip::new(limit, Arc::clone(account)), Vec::new(), 0);
    while let Some(frame) = timeout.frame(&mut body).await {
        let Ok(piece) = frame?.into_data() else { continue };
        received += piece.len();
        if received > limit {
            return Err(Error::too_large());
        }
        account.moved(piece.len());
        gathered.extend_from_slice(&piece);
        if gathered.len() >= UNZIP_BYTES {
            let bytes = std::mem::take(&mut gathered);
            unzip = threads.run(move || unzip.push(&bytes).map(|()| unzip)).await?;
        }
    }
    let rest = move || {
        unzip.push(&gathered)?;
        unzip.finish()
    };
    threads.run(rest).await
}

#[cfg(test)]
mod tests;
