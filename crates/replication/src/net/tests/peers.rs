//! Peers that listen on loopback, and requests to them.

use std::future::Future;

use http::{Request, Response};
use http_body_util::BodyExt;
use settee_model::json::Json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::super::connector::{BoxedIo, Io};
use super::super::*;
use crate::endpoint::User;
use crate::transport::empty_body;

pub(super) type Seen = Arc<Mutex<Vec<String>>>;

pub(super) async fn listen<F, T>(serve: F) -> u16
where
    F: Fn(TcpStream) -> T + Send + 'static,
    T: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream));
        }
    });
    port
}

pub(super) async fn read_request<T: Io + ?Sized>(stream: &mut T) -> Option<String> {
    let mut text = Vec::new();
    while !text.ends_with(b"\r\n\r\n") {
        text.push(stream.read_u8().await.ok()?);
    }
    let head = String::from_utf8(text).unwrap().to_ascii_lowercase();
    let length = head.split("content-length: ").nth(1).and_then(|rest| rest.lines().next()?.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    Some(head + std::str::from_utf8(&body).unwrap())
}

pub(super) async fn speak(mut stream: BoxedIo, seen: Seen, answer: impl Fn(&str) -> String) {
    while let Some(request) = read_request(&mut *stream).await {
        let text = answer(&request);
        seen.lock().push(request);
        if stream.write_all(text.as_bytes()).await.is_err() {
            return;
        }
    }
}

pub(super) async fn peer(answer: impl Fn(&str) -> String + Clone + Send + Sync + 'static) -> (u16, Seen) {
    let seen = Seen::default();
    let received = Arc::clone(&seen);
    let port = listen(move |stream| speak(Box::new(stream), Arc::clone(&received), answer.clone())).await;
    (port, seen)
}

pub(super) fn answer(status: &str, headers: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {}\r\n\r\n{body}", body.len())
}

pub(super) fn tuning(timeout_ms: u64) -> Tuning {
    Tuning { connection_timeout_ms: timeout_ms, ..Tuning::default() }
}

pub(super) fn everywhere() -> ReachesPrivate {
    Arc::new(|_| true)
}

pub(super) fn transport_by(options: &Options, url: &str, proxy: Option<&str>, tuning: &Tuning) -> Arc<dyn Transport> {
    let text = Json::parse(format!("{{\"url\":\"{url}\"}}").as_bytes()).unwrap();
    let endpoint = Endpoint::parse(Some(text.value()), proxy, &User::default()).unwrap();
    Network::new(options, everywhere()).unwrap().connect(&endpoint, tuning).unwrap()
}

pub(super) fn transport(url: &str) -> Arc<dyn Transport> {
    transport_by(&Options::default(), url, None, &tuning(5000))
}

pub(super) fn get(url: &str) -> Request<Body> {
    Request::get(url).body(empty_body()).unwrap()
}

pub(super) async fn text(response: Response<Body>) -> String {
    String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

pub(super) fn first_lines(seen: &Seen) -> Vec<String> {
    seen.lock().iter().map(|request| request.lines().next().unwrap_or_default().to_owned()).collect()
}
