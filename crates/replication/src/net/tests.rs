//! Exchanges with test peers and proxies over loopback. The certificates in `certificates/` are for `localhost`.
#![expect(clippy::unwrap_used, reason = "tests")]

mod peers;

use std::sync::atomic::{AtomicUsize, Ordering};

use http::{Method, Request, Response, header};
use http_body_util::BodyExt;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use settee_model::json::Json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::endpoint::User;
use crate::transport::{empty_body, full_body};
use peers::*;

const AUTHORITY: &[u8] = include_bytes!("certificates/authority.pem");
const CERTIFICATE: &[u8] = include_bytes!("certificates/peer.pem");
const KEY: &[u8] = include_bytes!("certificates/peer.key");

#[tokio::test]
async fn a_connection_is_used_again() {
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&connections);
    let port = listen(move |stream| {
        counted.fetch_add(1, Ordering::Relaxed);
        speak(Box::new(stream), Seen::default(), |request| answer("200 OK", "", &request.len().to_string()))
    })
    .await;
    let url = format!("http://127.0.0.1:{port}/db");
    let transport = transport(&url);
    for _ in 0..3 {
        let response = transport.call(get(&url)).await.unwrap();
        assert_eq!(response.status(), 200);
        text(response).await;
    }
    assert_eq!(connections.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn redirects_are_followed_as_couchdb_does() {
    let (elsewhere, unauthenticated) = peer(|_| answer("200 OK", "", "elsewhere")).await;
    let (port, seen) = peer(move |request| {
        match request.split(' ').nth(1).unwrap() {
            "/moved" => answer("301 Moved", "Location: /here?x=1\r\n", ""),
            "/other" => answer("303 See Other", "Location: here\r\n", ""),
            "/kept" => answer("307 Kept", "Location: http://127.0.0.1:PORT/here\r\n", ""),
            "/away" => answer("302 Away", &format!("Location: http://127.0.0.1:{elsewhere}/there\r\n"), ""),
            "/loop" => answer("302 Loop", "Location: /loop\r\n", ""),
            _ => answer("200 OK", "", "here"),
        }
        .replace("PORT", &request.split("host: 127.0.0.1:").nth(1).unwrap()[..5])
    })
    .await;
    let transport = transport(&format!("http://127.0.0.1:{port}/db"));
    let cases = [
        (Method::GET, "/moved", "get /here?x=1 http/1.1"),
        (Method::POST, "/moved", "post /here?x=1 http/1.1"),
        (Method::POST, "/other", "get /here http/1.1"),
        (Method::PUT, "/kept", "put /here http/1.1"),
    ];
    for (method, path, expected) in cases {
        let body = if method == Method::GET { empty_body() } else { full_body("the body") };
        let request = Request::builder()
            .method(method.clone())
            .uri(format!("http://127.0.0.1:{port}{path}"))
            .header(header::AUTHORIZATION, "Basic c2VjcmV0");
        let response = transport.call(request.body(body).unwrap()).await.unwrap();
        assert_eq!(text(response).await, "here", "{method} {path}");
        let last = seen.lock().last().unwrap().clone();
        assert_eq!(last.lines().next().unwrap(), expected, "{method} {path}");
        assert_eq!(last.ends_with("the body"), !expected.starts_with("get"), "{method} {path}");
        assert!(last.contains("basic c2vjcmv0"), "credentials stay with their host: {method} {path}");
    }
    let request = Request::get(format!("http://127.0.0.1:{port}/away"))
        .header(header::AUTHORIZATION, "Basic c2VjcmV0")
        .header(header::COOKIE, "AuthSession=secret")
        .header("x-test", "1");
    let response = transport.call(request.body(empty_body()).unwrap()).await.unwrap();
    assert_eq!(text(response).await, "elsewhere");
    let there = unauthenticated.lock().last().unwrap().clone();
    assert!(there.contains("x-test: 1") && !there.contains("authorization") && !there.contains("cookie"), "{there}");
    let error = transport.call(get(&format!("http://127.0.0.1:{port}/loop"))).await.unwrap_err();
    assert_eq!(error, TransportError::Unusable("more than 10 redirects".to_owned()));
}

#[tokio::test]
async fn unresponsive_peers_are_dropped() {
    let port = listen(|mut stream| async move {
        let request = read_request(&mut stream).await.unwrap();
        if request.starts_with("get /started") {
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nbegun").await.unwrap();
        }
        std::future::pending::<()>().await;
    })
    .await;
    let base = format!("http://127.0.0.1:{port}");
    let transport = transport_by(&Options::default(), &format!("{base}/db"), None, &tuning(50));
    assert_eq!(transport.call(get(&format!("{base}/never"))).await.unwrap_err(), TransportError::Timeout);
    let response = transport.call(get(&format!("{base}/started"))).await.unwrap();
    let error = response.into_body().collect().await.unwrap_err();
    assert_eq!(error, TransportError::Timeout);
}

#[tokio::test]
async fn broken_connections_differ_from_failed_attempts() {
    let port = listen(|mut stream| async move {
        let request = read_request(&mut stream).await.unwrap();
        if request.starts_with("get /cut") {
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\ncut").await.unwrap();
        }
    })
    .await;
    let base = format!("http://127.0.0.1:{port}");
    let transport = transport(&format!("{base}/db"));
    let error = transport.call(get(&format!("{base}/silent"))).await.unwrap_err();
    assert!(matches!(error, TransportError::Broken(_)), "{error:?}");
    let response = transport.call(get(&format!("{base}/cut"))).await.unwrap();
    let error = response.into_body().collect().await.unwrap_err();
    assert!(matches!(error, TransportError::Broken(_)), "{error:?}");
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let error = transport.call(get(&format!("http://127.0.0.1:{free}/"))).await.unwrap_err();
    assert!(matches!(error, TransportError::Refused(_)), "{error:?}");
    let error = transport.call(get("http://no-such-host.invalid/")).await.unwrap_err();
    assert!(matches!(error, TransportError::Refused(_)), "{error:?}");
}

#[tokio::test]
async fn exchanges_at_a_time_are_limited() {
    let open = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&open);
    let port = listen(move |mut stream| {
        counted.fetch_add(1, Ordering::Relaxed);
        async move {
            read_request(&mut stream).await.unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n").await.unwrap();
            std::future::pending::<()>().await;
        }
    })
    .await;
    let url = format!("http://127.0.0.1:{port}/db");
    let limited = Tuning { http_connections: 2, ..tuning(5000) };
    let transport = transport_by(&Options::default(), &url, None, &limited);
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(transport.call(get(&url)).await.unwrap());
    }
    let next = tokio::time::timeout(Duration::from_millis(50), transport.call(get(&url))).await;
    assert!(next.is_err(), "a fourth exchange started");
    held.pop();
    transport.call(get(&url)).await.unwrap();
    assert_eq!(open.load(Ordering::Relaxed), 4);
}

fn tls(wants_certificate: bool) -> TlsAcceptor {
    let certificates = CertificateDer::pem_slice_iter(CERTIFICATE).collect::<Result<Vec<_>, _>>().unwrap();
    let key = PrivateKeyDer::from_pem_slice(KEY).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .unwrap();
    let builder = if wants_certificate {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(AUTHORITY).unwrap()).unwrap();
        let verifier = rustls::server::WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        builder.with_client_cert_verifier(verifier.build().unwrap())
    } else {
        builder.with_no_client_auth()
    };
    TlsAcceptor::from(Arc::new(builder.with_single_cert(certificates, key).unwrap()))
}

async fn secure_peer(wants_certificate: bool) -> u16 {
    let acceptor = tls(wants_certificate);
    listen(move |stream| {
        let acceptor = acceptor.clone();
        async move {
            if let Ok(stream) = acceptor.accept(stream).await {
                speak(Box::new(stream), Seen::default(), |_| answer("200 OK", "", "secure")).await;
            }
        }
    })
    .await
}

fn authority() -> Trust {
    Trust::Authorities(settee_tls::authorities(AUTHORITY).unwrap())
}

fn trusting(trust: Trust) -> Options {
    Options { trust, ..Options::default() }
}

#[tokio::test]
async fn certificates_are_verified_as_configured() {
    let port = secure_peer(false).await;
    let url = format!("https://localhost:{port}/db");
    let by_address = format!("https://127.0.0.1:{port}/db");
    for (trust, url) in [(authority(), &url), (authority(), &by_address), (Trust::AnyCertificate, &url)] {
        let transport = transport_by(&trusting(trust), url, None, &tuning(5000));
        assert_eq!(text(transport.call(get(url)).await.unwrap()).await, "secure");
    }
    let transport = transport_by(&trusting(Trust::Web), &url, None, &tuning(5000));
    let error = transport.call(get(&url)).await.unwrap_err().to_string();
    assert!(error.starts_with("TLS: localhost: ") && error.contains("ssl_trusted_certificates_file"), "{error}");
}

#[tokio::test]
async fn a_client_certificate_is_presented() {
    let port = secure_peer(true).await;
    let url = format!("https://localhost:{port}/db");
    let trust = authority();
    let without_certificate = transport_by(&trusting(trust.clone()), &url, None, &tuning(5000));
    assert!(without_certificate.call(get(&url)).await.is_err());
    let identity = Some((settee_tls::certificates(CERTIFICATE).unwrap(), settee_tls::key(KEY).unwrap()));
    let options = Options { trust, identity, ..Options::default() };
    let with_certificate = transport_by(&options, &url, None, &tuning(5000));
    assert_eq!(text(with_certificate.call(get(&url)).await.unwrap()).await, "secure");
}

async fn http_proxy() -> (u16, Seen) {
    let seen = Seen::default();
    let received = Arc::clone(&seen);
    let port = listen(move |mut stream| {
        let seen = Arc::clone(&received);
        async move {
            let Some(request) = read_request(&mut stream).await else { return };
            let first = request.lines().next().unwrap().to_owned();
            let permitted = request.contains("proxy-authorization: basic dxnlcjptrunsrvq=");
            seen.lock().push(request);
            if !permitted {
                stream.write_all(answer("407 Proxy Authentication Required", "", "").as_bytes()).await.unwrap();
                return;
            }
            if let Some(host) = first.strip_prefix("connect ") {
                let mut peer = TcpStream::connect(host.split(' ').next().unwrap()).await.unwrap();
                stream.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut stream, &mut peer).await;
            } else {
                stream.write_all(answer("200 OK", "", "by proxy").as_bytes()).await.unwrap();
            }
        }
    })
    .await;
    (port, seen)
}

#[tokio::test]
async fn an_http_proxy_is_given_requests_or_asked_for_connections() {
    let (port, seen) = http_proxy().await;
    let proxy = format!("http://user:SECRET@127.0.0.1:{port}");
    let plain = "http://peer.invalid:5984/db";
    let transport = transport_by(&Options::default(), plain, Some(&proxy), &tuning(5000));
    assert_eq!(text(transport.call(get(plain)).await.unwrap()).await, "by proxy");
    let peer_port = secure_peer(false).await;
    let url = format!("https://localhost:{peer_port}/db");
    let options = trusting(authority());
    let transport = transport_by(&options, &url, Some(&proxy), &tuning(5000));
    assert_eq!(text(transport.call(get(&url)).await.unwrap()).await, "secure");
    let expected =
        ["get http://peer.invalid:5984/db http/1.1".to_owned(), format!("connect localhost:{peer_port} http/1.1")];
    assert_eq!(first_lines(&seen), expected);
    let wrong = format!("http://user:WRONG@127.0.0.1:{port}");
    let transport = transport_by(&options, &url, Some(&wrong), &tuning(5000));
    let error = transport.call(get(&url)).await.unwrap_err().to_string();
    let expected = format!("no connection: the proxy 127.0.0.1:{port}: HTTP/1.1 407 Proxy Authentication Required");
    assert_eq!(error, expected);
}

async fn socks_proxy(credentials: Option<(&'static str, &'static str)>) -> u16 {
    listen(move |mut stream| async move {
        let mut greeting = [0; 2];
        stream.read_exact(&mut greeting).await.unwrap();
        let mut methods = vec![0; usize::from(greeting[1])];
        stream.read_exact(&mut methods).await.unwrap();
        if let Some((name, password)) = credentials {
            stream.write_all(&[5, 2]).await.unwrap();
            let mut given = Vec::new();
            stream.read_u8().await.unwrap();
            for _ in 0..2 {
                let mut text = vec![0; usize::from(stream.read_u8().await.unwrap())];
                stream.read_exact(&mut text).await.unwrap();
                given.push(String::from_utf8(text).unwrap());
            }
            let permitted = given == [name, password];
            stream.write_all(&[1, u8::from(!permitted)]).await.unwrap();
            if !permitted {
                return;
            }
        } else {
            stream.write_all(&[5, 0]).await.unwrap();
        }
        let mut request = [0; 4];
        stream.read_exact(&mut request).await.unwrap();
        let host = if request[3] == 1 {
            let mut address = [0; 4];
            stream.read_exact(&mut address).await.unwrap();
            std::net::Ipv4Addr::from(address).to_string()
        } else {
            let mut name = vec![0; usize::from(stream.read_u8().await.unwrap())];
            stream.read_exact(&mut name).await.unwrap();
            String::from_utf8(name).unwrap()
        };
        let port = stream.read_u16().await.unwrap();
        let mut peer = TcpStream::connect((host.as_str(), port)).await.unwrap();
        stream.write_all(&[5, 0, 0, 1, 127, 0, 0, 1, 0, 0]).await.unwrap();
        let _ = tokio::io::copy_bidirectional(&mut stream, &mut peer).await;
    })
    .await
}

#[tokio::test]
async fn a_socks_proxy_makes_connections() {
    let (port, seen) = peer(|_| answer("200 OK", "", "by socks")).await;
    let (open, closed) = (socks_proxy(None).await, socks_proxy(Some(("user", "SECRET"))).await);
    let cases = [
        (format!("socks5://127.0.0.1:{open}"), "127.0.0.1", Ok("by socks")),
        (format!("socks5://127.0.0.1:{open}"), "localhost", Ok("by socks")),
        (format!("socks5://user:SECRET@127.0.0.1:{closed}"), "localhost", Ok("by socks")),
        (
            format!("socks5://user:WRONG@127.0.0.1:{closed}"),
            "localhost",
            Err(format!("no connection: the proxy 127.0.0.1:{closed}: it rejected the credentials")),
        ),
    ];
    for (proxy, host, expected) in cases {
        let url = format!("http://{host}:{port}/db");
        let transport = transport_by(&Options::default(), &url, Some(&proxy), &tuning(5000));
        let outcome = match transport.call(get(&url)).await {
            Ok(response) => Ok(text(response).await),
            Err(error) => Err(error.to_string()),
        };
        assert_eq!(outcome, expected.map(str::to_owned), "{proxy} {host}");
    }
    assert_eq!(first_lines(&seen), vec!["get /db http/1.1"; 3], "the peer sees a path, as without a proxy");
}

#[test]
fn proxies_are_taken_apart() {
    let cases = [
        ("http://proxy", "proxy", 80, false),
        ("https://proxy:8443/", "proxy", 8443, true),
        ("http://a:b%40c@proxy:3128", "proxy", 3128, false),
        ("socks5://[::1]", "[::1]", 1080, false),
        ("socks5://[::1]:1081", "[::1]", 1081, false),
    ];
    for (url, host, port, is_tls) in cases {
        let proxy = Proxy::parse(url).unwrap();
        assert_eq!((proxy.host.as_str(), proxy.port, proxy.is_tls()), (host, port, is_tls), "{url}");
    }
    for url in ["proxy", "ftp://proxy", "http://", "http://proxy:x"] {
        assert!(Proxy::parse(url).is_err(), "{url}");
    }
}

#[test]
fn socket_options_are_read() {
    let default = SocketOptions::default();
    let cases = [
        ("", default),
        ("nonsense", default),
        ("[{keepalive, false}, {nodelay, false}]", SocketOptions { keepalive: false, nodelay: false, ..default }),
        (
            "[{sndbuf,65536},{recbuf, 1024},{priority, 3}]",
            SocketOptions { send_buffer_bytes: Some(65536), receive_buffer_bytes: Some(1024), ..default },
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(SocketOptions::parse(text), expected, "{text}");
    }
}

#[test]
fn connections_are_shared_where_their_options_are_the_same() {
    let network = Network::new(&Options::default(), everywhere()).unwrap();
    let slow = SocketOptions { nodelay: false, ..SocketOptions::default() };
    for sockets in [None, Some(SocketOptions::default()), Some(slow)] {
        let route = network.route(None, sockets, AllowedAddresses::All).unwrap();
        assert_eq!(route.connector.sockets, sockets.unwrap_or_default());
    }
    assert_eq!(network.state.lock().routes.len(), 2);
}

fn long_lived(url: &str) -> Request<Body> {
    let mut request = get(url);
    request.extensions_mut().insert(crate::transport::LongLived);
    request
}

async fn teller(message: &str, piece: usize) -> (String, Seen) {
    let (seen, message) = (Seen::default(), message.to_owned());
    let received = Arc::clone(&seen);
    let port = listen(move |mut stream| {
        let (received, message) = (Arc::clone(&received), message.clone());
        async move {
            stream.set_nodelay(true).unwrap();
            let Some(request) = read_request(&mut stream).await else { return };
            received.lock().push(request);
            for piece in message.as_bytes().chunks(piece) {
                if stream.write_all(piece).await.is_err() {
                    return;
                }
                tokio::task::yield_now().await;
            }
        }
    })
    .await;
    (format!("http://127.0.0.1:{port}/db/_changes?feed=continuous"), seen)
}

async fn all(response: Response<Body>) -> Result<String, TransportError> {
    Ok(String::from_utf8(response.into_body().collect().await?.to_bytes().to_vec()).unwrap())
}

#[tokio::test]
async fn answers_that_last() {
    const CHUNKED: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-A: 1\r\n\r\n";
    let broken = |label: &str| Err(TransportError::Broken(label.to_owned()));
    let middle = || broken("the connection ended before the end of the response");
    let cases = [
        (
            format!("{CHUNKED}3\r\nabc\r\n1A;x=\"y\"\r\n0123456789012345678901234\n\r\n0\r\n\r\n"),
            Ok("abc0123456789012345678901234\n"),
        ),
        (format!("{CHUNKED}01\r\na\r\n0\r\nTrailer: x\r\n\r\nnot this"), Ok("a")),
        (format!("HTTP/1.1 100 Continue\r\n\r\n{CHUNKED}0\r\n\r\n"), Ok("")),
        (format!("{CHUNKED}5\r\nabc"), middle()),
        (format!("{CHUNKED}3\r\nabc\r\n"), middle()),
        (format!("{CHUNKED}x\r\n"), broken("a chunk of the answer is malformed")),
        (format!("{CHUNKED}3\r\nabcd\r\n"), broken("a chunk of the answer is malformed")),
        (format!("{CHUNKED}00000000000000003\r\nabc"), broken("a chunk of the answer is malformed")),
        ("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcdef".to_owned(), Ok("abc")),
        ("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab".to_owned(), middle()),
        ("HTTP/1.0 200 OK\r\n\r\nabc".to_owned(), Ok("abc")),
        ("HTTP/1.1 204 No Content\r\n\r\n".to_owned(), Ok("")),
    ];
    for (message, expected) in cases {
        for piece in [1, 7, 1000] {
            let (url, seen) = teller(&message, piece).await;
            let answer = all(transport(&url).call(long_lived(&url)).await.unwrap()).await;
            assert_eq!(answer, expected.clone().map(str::to_owned), "{message:?} by {piece}");
            let asked = seen.lock()[0].clone();
            let port = url.split([':', '/']).nth(4).unwrap().to_owned();
            assert_eq!(asked, format!("get /db/_changes?feed=continuous http/1.1\r\nhost: 127.0.0.1:{port}\r\n\r\n"));
        }
    }
    let heads = [
        ("", "the connection ended before the answer".to_owned()),
        ("HTTP/1.1 2", "the connection ended before the answer".to_owned()),
        ("HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", "the length of the response is not a number".to_owned()),
        (&format!("HTTP/1.1 200 OK\r\nX: {}", "x".repeat(70_000)), "the head of the answer is too long".to_owned()),
        ("hello", "invalid HTTP version".to_owned()),
    ];
    for (message, expected) in heads {
        let (url, _) = teller(message, 1000).await;
        let answer = transport(&url).call(long_lived(&url)).await.map(|response| response.status());
        assert_eq!(answer, Err(TransportError::Broken(expected)), "{message:.30}");
    }
}

#[tokio::test]
async fn answers_that_last_are_redirected_and_proxied() {
    let (port, _) = peer(|_| answer("200 OK", "", "here")).await;
    let (moved, _) = peer(move |_| answer("302 Moved", &format!("Location: http://127.0.0.1:{port}/x\r\n"), "")).await;
    let url = format!("http://127.0.0.1:{moved}/db");
    assert_eq!(text(transport(&url).call(long_lived(&url)).await.unwrap()).await, "here");
    let (proxy, seen) = peer(|_| answer("200 OK", "", "proxied")).await;
    let proxy = format!("http://u:p@127.0.0.1:{proxy}");
    let url = "http://nosuch.invalid/db";
    let transport = transport_by(&Options::default(), url, Some(&proxy), &tuning(5000));
    let mut request = long_lived(url);
    *request.method_mut() = Method::POST;
    *request.body_mut() = full_body("{}");
    assert_eq!(text(transport.call(request).await.unwrap()).await, "proxied");
    let asked = seen.lock()[0].clone();
    assert!(asked.starts_with("post http://nosuch.invalid/db http/1.1\r\nhost: nosuch.invalid\r\n"), "{asked}");
    assert!(asked.contains("proxy-authorization: basic ") && asked.ends_with("content-length: 2\r\n\r\n{}"), "{asked}");
}

#[tokio::test]
async fn timeouts_of_long_answers() {
    let port = listen(|mut stream| async move {
        read_request(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n{}").await.unwrap();
        std::future::pending::<()>().await;
    })
    .await;
    let url = format!("http://127.0.0.1:{port}/db");
    let transport = transport_by(&Options::default(), &url, None, &tuning(50));
    let answer = all(transport.call(long_lived(&url)).await.unwrap()).await;
    assert_eq!(answer, Err(TransportError::Timeout));
}

#[tokio::test]
async fn users_reach_public_addresses_only() {
    let (port, seen) = peer(|_| answer("200 OK", "", "secret")).await;
    let network = Network::new(&Options::default(), Arc::new(|user| user.name.as_deref() == Some("admin"))).unwrap();
    let ask = async |url: &str, proxy: Option<&str>, name: &str, lasts: bool| {
        let text = Json::parse(format!("{{\"url\":\"{url}\"}}").as_bytes()).unwrap();
        let user = User { name: Some(name.to_owned()), ..User::default() };
        let endpoint = Endpoint::parse(Some(text.value()), proxy, &user).unwrap();
        let transport = network.connect(&endpoint, &tuning(5000)).unwrap();
        all(transport.call(if lasts { long_lived(url) } else { get(url) }).await?).await
    };
    let proxy = format!("http://127.0.0.1:{port}");
    let here = format!("http://127.0.0.1:{port}/db");
    for (url, proxy) in [
        (here.clone(), None),
        (format!("http://localhost:{port}/db"), None),
        (format!("http://[::ffff:127.0.0.1]:{port}/db"), None),
        (format!("http://[::1]:{port}/db"), None),
        (format!("https://127.0.0.1:{port}/db"), None),
        ("http://10.0.0.1/db".to_owned(), None),
        ("http://169.254.169.254/latest/meta-data".to_owned(), None),
        ("http://example.com/db".to_owned(), Some(proxy.as_str())),
    ] {
        assert_eq!(ask(&here, None, "admin", false).await.as_deref(), Ok("secret"));
        let received = seen.lock().len();
        for lasts in [false, true] {
            let answer = ask(&url, proxy, "user", lasts).await;
            let Err(TransportError::Unusable(reason)) = answer else { panic!("{url}: {answer:?}") };
            assert!(reason.contains("only admins may replicate with addresses that are not public"), "{reason}");
        }
        assert_eq!(seen.lock().len(), received, "{url}");
    }
}
