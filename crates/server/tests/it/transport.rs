//! Tests of TLS, Unix sockets, and changing certificates.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::server::{Directory, Server, run, serve};
use crate::{TIMEOUT, wait_for};

type TlsClient = StreamOwned<ClientConnection, TcpStream>;

fn certificate(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/it/certificates").join(name)
}

fn install(directory: &Directory, name: &str) {
    fs::copy(certificate(&format!("{name}.key")), directory.path().join("key.pem")).unwrap();
    fs::copy(certificate(&format!("{name}.pem")), directory.path().join("cert.pem")).unwrap();
}

fn configure(directory: &Directory, lines: &str) {
    let path = directory.path().display();
    directory.configure(&format!(
        "[ssl]\nenable = true\nport = 0\ncert_file = {path}/cert.pem\nkey_file = {path}/key.pem\n{lines}"
    ));
}

fn tls_address(server: &Server) -> SocketAddr {
    let rest = server.greeting.split_once("https://").expect("it listens for TLS").1;
    rest.split_once('/').unwrap().0.parse().unwrap()
}

#[derive(Clone, Copy)]
enum Identity {
    Anonymous,
    First,
}

fn connect(address: SocketAddr, name: &str, identity: Identity, protocols: &[&[u8]]) -> std::io::Result<TlsClient> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(certificate("root.pem")).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let builder = builder.with_root_certificates(roots);
    let mut config = match identity {
        Identity::Anonymous => builder.with_no_client_auth(),
        Identity::First => {
            let chain = vec![CertificateDer::from_pem_file(certificate("first.pem")).unwrap()];
            let key = PrivateKeyDer::from_pem_file(certificate("first.key")).unwrap();
            builder.with_client_auth_cert(chain, key).unwrap()
        }
    };
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let connection = ClientConnection::new(Arc::new(config), name).unwrap();
    let socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    let mut client = StreamOwned::new(connection, socket);
    while client.conn.is_handshaking() {
        client.conn.complete_io(&mut client.sock)?;
    }
    Ok(client)
}

fn ask(client: &mut (impl std::io::Read + std::io::Write), path: &str) -> std::io::Result<String> {
    let head = format!("PUT {path} HTTP/1.1\r\nHost: settee.test:1\r\nConnection: close\r\n\r\n");
    client.write_all(head.as_bytes())?;
    let mut text = String::new();
    client.read_to_string(&mut text)?;
    Ok(text)
}

#[test]
fn tls_with_certificates_that_change() {
    let directory = Directory::new();
    install(&directory, "first");
    configure(&directory, "");
    let server = Server::start(&directory);
    let address = tls_address(&server);
    let mut client = connect(address, "first.settee.test", Identity::Anonymous, &[b"http/1.1"]).unwrap();
    let created = ask(&mut client, "/db").unwrap();
    assert!(created.starts_with("HTTP/1.1 201 Created\r\n"), "{created}");
    assert!(created.contains("Location: https://settee.test:1/db\r\n"), "{created}");
    server.client().get("/db").expect(200);
    let mut plain = connect(address, "settee.test", Identity::Anonymous, &[]).unwrap();
    assert!(ask(&mut plain, "/db2").unwrap().starts_with("HTTP/1.1 201"));
    assert!(connect(address, "settee.test", Identity::Anonymous, &[b"spdy/3"]).is_err());
    let both = connect(address, "settee.test", Identity::Anonymous, &[b"http/1.1", b"h2"]).unwrap();
    assert_eq!(both.conn.alpn_protocol(), Some(&b"h2"[..]));
    assert!(
        connect(address, "second.settee.test", Identity::Anonymous, &[]).is_err(),
        "the certificate is for another name"
    );

    let mut open = connect(address, "first.settee.test", Identity::Anonymous, &[]).unwrap();
    fs::write(directory.path().join("cert.pem"), "nonsense").unwrap();
    wait_for("the server to notice", || {
        let log = fs::read_to_string(directory.path().join("log")).unwrap();
        log.contains("the old certificates remain in use").then_some(())
    });
    connect(address, "first.settee.test", Identity::Anonymous, &[]).unwrap();
    install(&directory, "second");
    wait_for("the new certificate", || connect(address, "second.settee.test", Identity::Anonymous, &[]).ok());
    assert!(ask(&mut open, "/db3").unwrap().starts_with("HTTP/1.1 201"));
}

#[test]
fn certificates_of_clients() {
    let directory = Directory::new();
    install(&directory, "first");
    let root = certificate("root.pem");
    let lines = format!(
        "verify_ssl_certificates = true\nfail_if_no_peer_cert = true\ncacert_file = {}\ntls_versions = ['tlsv1.2']\n",
        root.display()
    );
    configure(&directory, &lines);
    let server = Server::start(&directory);
    let address = tls_address(&server);
    let mut known = connect(address, "settee.test", Identity::First, &[]).unwrap();
    assert_eq!(known.conn.protocol_version(), Some(rustls::ProtocolVersion::TLSv1_2));
    assert!(ask(&mut known, "/db").unwrap().starts_with("HTTP/1.1 201"));
    assert!(connect(address, "settee.test", Identity::Anonymous, &[]).is_err());
}

#[test]
fn unreadable_files_are_reported_at_the_start() {
    let check = |files: &dyn Fn(&Directory), lines: &str, expected: &str| {
        let directory = Directory::new();
        install(&directory, "first");
        configure(&directory, lines);
        files(&directory);
        let output = run(&mut serve(&directory));
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && text.contains(expected), "{expected}: {text}");
    };
    let put = |name: &'static str, text: &'static str| {
        move |directory: &Directory| fs::write(directory.path().join(name), text).unwrap()
    };
    check(&|directory| fs::remove_file(directory.path().join("cert.pem")).unwrap(), "", "cert.pem cannot be read");
    check(&|directory| fs::remove_file(directory.path().join("key.pem")).unwrap(), "", "key.pem cannot be read");
    check(&put("cert.pem", "x"), "", "contains no certificate");
    check(&put("key.pem", "x"), "", "contains no key");
    let encrypted = |directory: &Directory| {
        fs::copy(certificate("encrypted.key"), directory.path().join("key.pem")).unwrap();
    };
    check(&encrypted, "", "openssl pkey");
    let other = |directory: &Directory| {
        fs::copy(certificate("second.key"), directory.path().join("key.pem")).unwrap();
    };
    check(&other, "", "do not match");
    check(&|_| {}, "tls_versions = [tlsv1]\n", "must name tlsv1.2 or tlsv1.3");
    check(&|_| {}, "verify_ssl_certificates = true\n", "there is no cacert_file");
    check(&|_| {}, "cert_file =\n", "specify a PEM file");
}

#[test]
fn a_socket_in_the_file_system() {
    let directory = Directory::new();
    let path = directory.path().join("settee.sock");
    drop(UnixListener::bind(&path).unwrap());
    let mut command = serve(&directory);
    command.arg("--socket").arg(&path);
    let server = Server::start_as(&directory, &mut command);
    assert!(server.greeting.contains(&format!(" and unix:{}\n", path.display())), "{}", server.greeting);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o660);
    let mut client = UnixStream::connect(&path).unwrap();
    let created = ask(&mut client, "/db").unwrap();
    assert!(created.starts_with("HTTP/1.1 201"), "{created}");
    server.client().get("/db").expect(200);

    let refused = |setting: &str, expected: &str| {
        let directory = Directory::new();
        directory.configure(&format!("[chttpd]\n{setting}\n"));
        let output = run(&mut serve(&directory));
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && text.contains(expected), "{setting}: {text}");
    };
    refused(&format!("unix_socket = {}", path.display()), "another server listens on the socket");
    let file = directory.path().join("local.ini");
    refused(&format!("unix_socket = {}", file.display()), "is not a socket");
    assert!(file.exists());
    let other = directory.path().join("other.sock");
    refused(&format!("unix_socket = {}\nunix_socket_mode = rw", other.display()), "octal number");
    server.terminate();
    assert!(!path.exists(), "the socket is removed at the end");
}
