//! One connection: detects its protocol, enforces its limits, and closes it in order. HTTP/1.1 and HTTP/2 share each
//! port: with TLS the client selects the protocol in the handshake (ALPN), without it by its first bytes (prior
//! knowledge). A [`Handler`] answers the requests.

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use crate::origin::{Peer, Scheme};
use crate::request_permits::RequestPermits;
use crate::respond::Response;
use crate::shutdown::until_true;
use crate::slots::Ending;
use crate::stream::{PrefixedStream, TimeoutStream};
use crate::target::{HeadLimits, TolerantStream};
use crate::tls::Tls;
use settee_settings::{Key, Settings, chttpd, key::Number};

const H2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Additional buffer space of the HTTP library, so that [`TolerantStream`] detects a head that exceeds the limits.
const SPARE_BUFFER_BYTES: usize = 16 << 10;
const SPARE_HEADERS: usize = 8;

/// Unread request body bytes that are buffered, for each stream and for a whole connection.
const H2_WINDOW_BYTES: u32 = 256 << 10;

/// Unsent response bytes that are buffered for each stream.
const H2_SEND_BUFFER_BYTES: usize = 128 << 10;

/// A client that resets more streams before they are handled is disconnected.
const H2_RESETS_MAX: usize = 100;

/// Unsent response bytes in the socket buffer.
#[cfg(target_os = "linux")]
const UNSENT_BYTES: u32 = 128 << 10;

const H2_PING_EVERY: Duration = Duration::from_secs(75);
const H2_PING_TIMEOUT: Duration = Duration::from_secs(20);

const CLOSE_TIMEOUT: Duration = Duration::from_millis(100);

#[derive(Clone, Debug)]
pub struct Limits {
    pub head: HeadLimits,
    /// Timeout of a handshake, and of each head that the client has started to send.
    pub head_time: Duration,
    pub idle_time: Duration,
    /// Maximum time for which a client may receive nothing of a response.
    pub send_time: Duration,
    pub streams: u32,
}

impl Limits {
    pub fn of(settings: &dyn Settings) -> Self {
        let size = |key: &Key<Number>, most: u64| usize::try_from(key.of(settings).min(most)).unwrap_or(usize::MAX);
        let time = |key: &Key<Number>| Duration::from_millis(key.of(settings));
        Self {
            head: HeadLimits {
                bytes: size(&chttpd::MAX_HEADER_BYTES, 16 << 20).max(8192),
                headers: size(&chttpd::MAX_HEADERS, 10_000).max(1),
            },
            head_time: time(&chttpd::HEADER_TIMEOUT_MS),
            idle_time: time(&chttpd::IDLE_TIMEOUT_MS),
            send_time: time(&chttpd::SEND_TIMEOUT_MS),
            streams: u32::try_from(chttpd::MAX_STREAMS_PER_CONNECTION.of(settings).max(1)).unwrap_or(u32::MAX),
        }
    }
}

pub enum Accepted {
    Tcp(TcpStream, IpAddr),
    Tls(TcpStream, IpAddr, Tls),
    Unix(UnixStream),
}

pub trait Handler: Send + Sync {
    fn settings(&self) -> &dyn Settings;

    /// Returns the response to a request. `ending` disconnects its client.
    fn handle(
        self: Arc<Self>,
        request: Request<Incoming>,
        peer: Peer,
        ending: Arc<Ending>,
    ) -> Pin<Box<dyn Future<Output = Response> + Send>>;

    /// Called when the server stops and accepts no further connections. Must not block.
    fn stop(&self);
}

pub struct Service {
    pub handler: Arc<dyn Handler>,
    pub request_permits: RequestPermits,
}

pub async fn serve(service: Arc<Service>, client: Accepted, ending: Arc<Ending>, stopping: watch::Receiver<bool>) {
    let limits = Limits::of(service.handler.settings());
    // Boxed, so that each kind of connection occupies only the memory of its own future.
    let ended = match client {
        Accepted::Tcp(stream, ip) => {
            set_options(&stream);
            Box::pin(begin(service, stream, Peer { ip, scheme: Scheme::Http }, &limits, &ending, stopping)).await
        }
        Accepted::Unix(stream) => {
            let peer = Peer { ip: Ipv4Addr::LOCALHOST.into(), scheme: Scheme::Http };
            Box::pin(begin(service, stream, peer, &limits, &ending, stopping)).await
        }
        Accepted::Tls(stream, ip, tls) => {
            set_options(&stream);
            let handshake = tokio::select! {
                handshake = Box::pin(timeout(limits.head_time, tls.accept(stream))) => handshake,
                () = ending.close_requested() => return,
            };
            match handshake {
                Ok(Ok(stream)) => {
                    Box::pin(begin(service, stream, Peer { ip, scheme: Scheme::Https }, &limits, &ending, stopping))
                        .await
                }
                Ok(Err(error)) => Err(error.into()),
                Err(_) => Err(io::Error::from(io::ErrorKind::TimedOut).into()),
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended");
    }
}

fn set_options(stream: &TcpStream) {
    // Responses are written at once, so Nagle's algorithm would only add delay.
    let _ = stream.set_nodelay(true);
    // Without this limit the kernel buffers megabytes for a client that reads nothing, at the expense of other clients.
    #[cfg(target_os = "linux")]
    let _ = socket2::SockRef::from(stream).set_tcp_notsent_lowat(UNSENT_BYTES);
}

type Ended = Result<(), Box<dyn std::error::Error + Send + Sync>>;

async fn begin<S>(
    service: Arc<Service>,
    mut stream: S,
    peer: Peer,
    limits: &Limits,
    ending: &Arc<Ending>,
    mut stopping: watch::Receiver<bool>,
) -> Ended
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let preface = tokio::select! {
        preface = timeout(limits.head_time, read_preface(&mut stream)) => preface??,
        () = until_true(&mut stopping) => return Ok(()),
        () = ending.close_requested() => return Ok(()),
    };
    if preface.is_empty() {
        return Ok(());
    }
    let is_h2 = preface == H2_PREFACE;
    let stream = PrefixedStream::new(TimeoutStream::new(stream, limits.send_time), preface);
    if is_h2 {
        Box::pin(h2(service, stream, peer, limits, ending, stopping)).await
    } else {
        Box::pin(h1(service, stream, peer, limits, ending, stopping)).await
    }
}

/// Reads until the preface of HTTP/2 is recognized or excluded. Returns an empty buffer if the client disconnects.
async fn read_preface(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Vec<u8>> {
    let mut preface = Vec::with_capacity(H2_PREFACE.len());
    while preface.len() < H2_PREFACE.len() && H2_PREFACE.starts_with(&preface) {
        let room = H2_PREFACE.len() - preface.len();
        if (&mut *stream).take(room as u64).read_buf(&mut preface).await? == 0 {
            break;
        }
    }
    Ok(preface)
}

async fn h1<S>(
    service: Arc<Service>,
    stream: PrefixedStream<TimeoutStream<S>>,
    peer: Peer,
    limits: &Limits,
    ending: &Arc<Ending>,
    mut stopping: watch::Receiver<bool>,
) -> Ended
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let own = Arc::clone(ending);
    let serve = service_fn(move |request| {
        // An idle connection has no memory for a request, because the future is boxed.
        let answer = Arc::clone(&service.handler).handle(request, peer, Arc::clone(&own));
        async move { Ok::<_, Infallible>(answer.await) }
    });
    let mut builder = http1::Builder::new();
    // Pipelined responses are not flushed together, because the library would then buffer whole responses. The
    // library's timeout also runs while the connection is idle; `TolerantStream` has that of a started head.
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(limits.idle_time)
        .max_buf_size(limits.head.bytes + SPARE_BUFFER_BYTES)
        .max_headers(limits.head.headers + SPARE_HEADERS)
        // Some clients compare header names case-sensitively, in CouchDB's spelling: `Content-Type`.
        .title_case_headers(true);
    let stream = TolerantStream::new(stream, limits.head, limits.head_time);
    let connection = pin!(builder.serve_connection(TokioIo::new(stream), serve));
    let served = run(connection, until_true(&mut stopping), ending, http1::Connection::graceful_shutdown);
    until_aborted(served, ending).await
}

async fn h2<S>(
    service: Arc<Service>,
    stream: PrefixedStream<TimeoutStream<S>>,
    peer: Peer,
    limits: &Limits,
    ending: &Arc<Ending>,
    mut stopping: watch::Receiver<bool>,
) -> Ended
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let begun = Instant::now();
    let since_begun = move || u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
    let last_ms = Arc::new(AtomicU64::new(0));
    let noted_ms = Arc::clone(&last_ms);
    let own = Arc::clone(ending);
    let permits = Arc::new(service.request_permits.for_connection());
    let serve = service_fn(move |request: Request<Incoming>| {
        noted_ms.store(since_begun(), Ordering::Relaxed);
        let (handler, own, permits) = (Arc::clone(&service.handler), Arc::clone(&own), Arc::clone(&permits));
        async move {
            let permit = permits.acquire().await;
            // Waiting requests have no memory for their response, because the future is boxed.
            Ok::<_, Infallible>(permit.run(handler.handle(request, peer, own)).await)
        }
    });
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.streams)
        .max_header_list_size(u32::try_from(limits.head.bytes).unwrap_or(u32::MAX))
        .max_pending_accept_reset_streams(H2_RESETS_MAX)
        .max_local_error_reset_streams(H2_RESETS_MAX)
        .initial_stream_window_size(H2_WINDOW_BYTES)
        .initial_connection_window_size(H2_WINDOW_BYTES)
        .max_send_buf_size(H2_SEND_BUFFER_BYTES)
        .keep_alive_interval(H2_PING_EVERY)
        .keep_alive_timeout(H2_PING_TIMEOUT);
    let idle = async {
        loop {
            let last = Duration::from_millis(last_ms.load(Ordering::Relaxed));
            let end = begun + last + limits.idle_time;
            if end <= Instant::now() {
                return;
            }
            tokio::time::sleep_until(end).await;
        }
    };
    let end = async {
        tokio::select! {
            () = until_true(&mut stopping) => {}
            () = idle => {}
        }
    };
    let connection = pin!(builder.serve_connection(TokioIo::new(stream), serve));
    until_aborted(run(connection, end, ending, http2::Connection::graceful_shutdown), ending).await
}

/// The server may disconnect the client.
async fn until_aborted(served: impl Future<Output = Ended>, ending: &Ending) -> Ended {
    tokio::select! {
        ended = served => ended,
        () = ending.aborted() => Err(io::Error::new(io::ErrorKind::TimedOut, "the client was inactive for too long").into()),
    }
}

/// After `end` completes or the connection is asked to close, it accepts no further requests, and open ones may finish.
async fn run<C>(
    mut connection: Pin<&mut C>,
    end: impl Future<Output = ()>,
    ending: &Ending,
    shut_down: impl FnOnce(Pin<&mut C>),
) -> Ended
where
    C: Future<Output = hyper::Result<()>>,
{
    let leaves = tokio::select! {
        ended = connection.as_mut() => return Ok(ended?),
        () = end => false,
        () = ending.close_requested() => true,
    };
    shut_down(connection.as_mut());
    if leaves && let Ok(ended) = timeout(CLOSE_TIMEOUT, connection.as_mut()).await {
        return Ok(ended?);
    }
    if leaves && !ending.has_requests() {
        return Ok(());
    }
    Ok(connection.await?)
}
