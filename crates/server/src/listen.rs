//! Listeners of the server: plain HTTP, TLS, and a Unix socket. [`Reserved`] has them before the store is opened.

use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use anyhow::{Context as _, bail};
use settee_edge::server::Listener;
use settee_settings::{chttpd, ssl};
use tokio::net::{TcpListener, TcpSocket, UnixListener};

use crate::config::Configuration;
use crate::tls::Certificates;

pub(crate) struct Opened {
    pub(crate) listeners: Vec<Listener>,
    pub(crate) addresses: Vec<String>,
    pub(crate) plain: SocketAddr,
    /// Must be watched while the server runs.
    pub(crate) certificates: Option<Certificates>,
    /// Must be kept while the server runs.
    pub(crate) socket: Option<SocketFile>,
}

pub(crate) struct Reserved {
    plain: TcpSocket,
    tls: Option<(TcpSocket, Certificates)>,
    unix: Option<UnixAddress>,
}

impl Reserved {
    /// Reserves the addresses, so that a start that cannot have them fails before it opens the store.
    pub(crate) fn new(configuration: &Arc<Configuration>, plain: SocketAddr) -> anyhow::Result<Self> {
        let mut tls = None;
        if ssl::ENABLE.of(configuration.as_ref()) {
            let port = ssl::PORT.of(configuration.as_ref());
            let port = u16::try_from(port).context("[ssl] port is not a port number")?;
            let certificates = Certificates::open(Arc::clone(configuration))?;
            tls = Some((bind(SocketAddr::new(plain.ip(), port), "[ssl] port")?, certificates));
        }
        let unix = chttpd::UNIX_SOCKET.text(configuration.as_ref());
        let unix = unix.map(|path| UnixAddress::check(&path, configuration)).transpose()?;
        Ok(Self { plain: bind(plain, "--port")?, tls, unix })
    }

    pub(crate) fn open(self) -> anyhow::Result<Opened> {
        let Self { plain, tls, unix } = self;
        let listener = listen(plain)?;
        let plain = local(&listener)?;
        let mut opened =
            Opened { listeners: Vec::new(), addresses: Vec::new(), plain, certificates: None, socket: None };
        opened.addresses.push(format!("http://{plain}/"));
        opened.listeners.push(Listener::Tcp(listener));
        if let Some((socket, certificates)) = tls {
            let listener = listen(socket)?;
            opened.addresses.push(format!("https://{}/", local(&listener)?));
            opened.listeners.push(Listener::Tls(listener, certificates.tls()));
            opened.certificates = Some(certificates);
        }
        if let Some(unix) = unix {
            let (listener, file) = unix.bind()?;
            opened.addresses.push(format!("unix:{}", file.0.display()));
            opened.listeners.push(Listener::Unix(listener));
            opened.socket = Some(file);
        }
        Ok(opened)
    }
}

const BACKLOG: u32 = 1024;

fn bind(address: SocketAddr, setting: &str) -> anyhow::Result<TcpSocket> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() };
    let socket = socket.context("no socket can be created")?;
    // Connections of an earlier process that are closing do not keep the address.
    let bound = socket.set_reuseaddr(true).and_then(|()| socket.bind(address));
    bound.with_context(|| {
        format!("cannot listen on {address}; is another server running there? Choose a port with {setting}")
    })?;
    Ok(socket)
}

fn listen(socket: TcpSocket) -> anyhow::Result<TcpListener> {
    socket.listen(BACKLOG).context("the server cannot listen")
}

fn local(listener: &TcpListener) -> anyhow::Result<SocketAddr> {
    listener.local_addr().context("the listening address cannot be determined")
}

pub(crate) struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

struct UnixAddress {
    path: PathBuf,
    mode: u32,
}

impl UnixAddress {
    fn check(path: &str, configuration: &Configuration) -> anyhow::Result<Self> {
        let mode = chttpd::UNIX_SOCKET_MODE.of(configuration);
        let mode = u32::from_str_radix(&mode, 8).ok().filter(|mode| *mode <= 0o777);
        let mode = mode.context("[chttpd] unix_socket_mode must be an octal number such as 660")?;
        let path = PathBuf::from(path);
        remove_stale(&path)?;
        Ok(Self { path, mode })
    }

    fn bind(self) -> anyhow::Result<(UnixListener, SocketFile)> {
        let shown = self.path.display();
        let listener =
            UnixListener::bind(&self.path).with_context(|| format!("cannot listen on the socket {shown}"))?;
        let file = SocketFile(self.path.clone());
        fs::set_permissions(&self.path, fs::Permissions::from_mode(self.mode))
            .with_context(|| format!("the permissions of the socket {shown} cannot be set"))?;
        Ok((listener, file))
    }
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
