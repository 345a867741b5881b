//! Listeners of the server: plain HTTP, TLS, and a Unix socket.

use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use anyhow::{Context as _, bail};
use settee_http::Listener;
use settee_settings::{chttpd, ssl};
use tokio::net::{TcpListener, UnixListener};

use crate::config::Configuration;
use crate::tls::Certificates;

/// The open listeners.
pub(crate) struct Opened {
    pub(crate) listeners: Vec<Listener>,
    /// URLs for messages.
    pub(crate) addresses: Vec<String>,
    /// Address of plain HTTP.
    pub(crate) plain: SocketAddr,
    /// Certificates that must be watched while the server runs.
    pub(crate) certificates: Option<Certificates>,
    /// Must be kept while the server runs.
    pub(crate) socket: Option<SocketFile>,
}

/// Opens all configured listeners. `plain` is the address of plain HTTP; TLS uses the same IP address.
pub(crate) async fn open(configuration: &Arc<Configuration>, plain: SocketAddr) -> anyhow::Result<Opened> {
    let listener = bind(plain, "--port").await?;
    let plain = local(&listener)?;
    let mut opened = Opened { listeners: Vec::new(), addresses: Vec::new(), plain, certificates: None, socket: None };
    opened.addresses.push(format!("http://{plain}/"));
    opened.listeners.push(Listener::Tcp(listener));
    if ssl::ENABLE.of(configuration.as_ref()) {
        let certificates = Certificates::open(Arc::clone(configuration))?;
        let port = ssl::PORT.of(configuration.as_ref());
        let port = u16::try_from(port).context("[ssl] port is not a port number")?;
        let listener = bind(SocketAddr::new(plain.ip(), port), "[ssl] port").await?;
        opened.addresses.push(format!("https://{}/", local(&listener)?));
        opened.listeners.push(Listener::Tls(listener, certificates.tls()));
        opened.certificates = Some(certificates);
    }
    if let Some(path) = chttpd::UNIX_SOCKET.text(configuration.as_ref()) {
        let mode = chttpd::UNIX_SOCKET_MODE.of(configuration.as_ref());
        let mode = u32::from_str_radix(&mode, 8).ok().filter(|mode| *mode <= 0o777);
        let mode = mode.context("[chttpd] unix_socket_mode must be an octal number such as 660")?;
        let (listener, file) = bind_socket(Path::new(&path), mode)?;
        opened.addresses.push(format!("unix:{path}"));
        opened.listeners.push(Listener::Unix(listener));
        opened.socket = Some(file);
    }
    Ok(opened)
}

async fn bind(address: SocketAddr, setting: &str) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| {
        format!("cannot listen on {address}; is another server running there? Choose a port with {setting}")
    })
}

fn local(listener: &TcpListener) -> anyhow::Result<SocketAddr> {
    listener.local_addr().context("the listening address cannot be determined")
}

/// A Unix socket, removed when this is dropped.
pub(crate) struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Another process may have removed it already.
        let _ = fs::remove_file(&self.0);
    }
}

fn bind_socket(path: &Path, mode: u32) -> anyhow::Result<(UnixListener, SocketFile)> {
    remove_stale(path)?;
    let shown = path.display();
    let listener = UnixListener::bind(path).with_context(|| format!("cannot listen on the socket {shown}"))?;
    let file = SocketFile(path.to_owned());
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
        .with_context(|| format!("the permissions of the socket {shown} cannot be set"))?;
    Ok((listener, file))
}

/// Removes the socket of a server that ended without removing it. Refuses to remove anything else.
fn remove_stale(path: &Path) -> anyhow::Result<()> {
    let shown = path.display();
    let metadata = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => found.with_context(|| format!("the socket {shown} cannot be examined"))?,
    };
    if !metadata.file_type().is_socket() {
        bail!("[chttpd] unix_socket: {shown} exists and is not a socket; choose another path");
    }
    match std::os::unix::net::UnixStream::connect(path) {
        Ok(_) => bail!("another server listens on the socket {shown}"),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path).with_context(|| format!("the old socket {shown} cannot be removed"))
        }
        Err(error) => Err(error).with_context(|| format!("the socket {shown} cannot be examined")),
    }
}
