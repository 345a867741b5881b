//! Bodies: limits and compression.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::io::Write;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use http_body_util::Full;
use settee_threads::Threads;
use tokio::sync::mpsc;

use super::*;
use crate::respond;
use crate::tests::{account, show};

const TOO_LARGE: &str = "413 too_large: the request entity is too large";

fn timeout() -> ReceiveTimeout {
    ReceiveTimeout::new(Duration::from_secs(60))
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn encoded(encoding: &'static str) -> HeaderMap {
    HeaderMap::from_iter([(header::CONTENT_ENCODING, header::HeaderValue::from_static(encoding))])
}

async fn read_whole(bytes: Vec<u8>, headers: &HeaderMap, limit_bytes: usize) -> Result<Vec<u8>, String> {
    let read =
        read(Full::new(Bytes::from(bytes)), headers, limit_bytes, timeout(), (&account(), &Threads::default())).await;
    read.map(|bytes| bytes.to_vec()).map_err(|error| show(&error))
}

#[tokio::test]
async fn bodies_up_to_the_limit_are_read() {
    let plain = HeaderMap::new();
    assert_eq!(read_whole(b"12345".to_vec(), &plain, 5).await, Ok(b"12345".to_vec()));
    assert_eq!(read_whole(b"123456".to_vec(), &plain, 5).await, Err(TOO_LARGE.to_owned()));
    assert_eq!(read_whole(Vec::new(), &plain, 0).await, Ok(Vec::new()));
    assert_eq!(read_whole(b"1".to_vec(), &encoded("identity"), 5).await, Ok(b"1".to_vec()));
}

#[tokio::test]
async fn bodies_of_unknown_length_are_limited_too() {
    let read_chunks = async |count: usize| {
        let (sender, receiver) = mpsc::channel(count);
        for _ in 0..count {
            sender.send(Ok(Bytes::from_static(b"abc"))).await.unwrap();
        }
        drop(sender);
        let read =
            read(respond::Body::Stream(receiver), &HeaderMap::new(), 6, timeout(), (&account(), &Threads::default()))
                .await;
        read.map(|bytes| bytes.len()).map_err(|error| show(&error))
    };
    assert_eq!(read_chunks(2).await, Ok(6));
    assert_eq!(read_chunks(3).await, Err(TOO_LARGE.to_owned()));
}

#[tokio::test]
async fn compressed_bodies_are_limited_by_their_decompressed_size() {
    let gzipped = encoded("gzip");
    let zeros = vec![0; 1 << 20];
    let bomb = gzip(&zeros);
    assert!(bomb.len() < 2048, "{}", bomb.len());
    assert_eq!(read_whole(bomb.clone(), &gzipped, 1 << 20).await, Ok(zeros));
    assert_eq!(read_whole(bomb.clone(), &gzipped, (1 << 20) - 1).await, Err(TOO_LARGE.to_owned()));
    assert_eq!(read_whole(bomb, &gzipped, 100).await, Err(TOO_LARGE.to_owned()));
    let without_limit = read_whole(gzip(b"abc"), &gzipped, usize::MAX).await;
    assert_eq!(without_limit, Ok(b"abc".to_vec()));
}

#[tokio::test]
async fn members_of_a_compressed_body_are_joined() {
    let both = [gzip(b"abc"), gzip(b"def")].concat();
    assert_eq!(read_whole(both, &encoded("gzip"), 100).await, Ok(b"abcdef".to_vec()));
}

#[tokio::test]
async fn broken_compression_is_the_clients_fault() {
    let whole = gzip(br#"{"a":1}"#);
    let cut = whole[..whole.len() - 4].to_vec();
    for bytes in [cut, b"{}".to_vec(), b"\x1f\x8b".to_vec()] {
        let error = read_whole(bytes, &encoded("gzip"), 100).await.unwrap_err();
        assert_eq!(error, "400 bad_request: Request body is not properly gzipped.");
    }
    let error = read_whole(b"{}".to_vec(), &encoded("br"), 100).await;
    assert_eq!(error, Err("415 bad_content_type: br is not a supported content encoding.".to_owned()));
}
