//! Serves the socket of [`settee_admin::control`].

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::ops::ControlFlow;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context as _;
use settee_admin::control::{Checkpoint, LINE_BYTES, SOCKET, TIMEOUT};
use settee_api::Node;
use settee_model::json::{write_array, write_string};
use settee_storage::Engine;

pub(crate) struct Control {
    path: PathBuf,
}

struct Served {
    data: PathBuf,
    node: Arc<Node>,
    engine: Arc<dyn Engine>,
    url: String,
    checkpoint_lock: Mutex<u64>,
}

impl Control {
    pub(crate) fn start(data: &Path, url: String, node: Arc<Node>, engine: Arc<dyn Engine>) -> anyhow::Result<Self> {
        let path = data.join(SOCKET);
        let _ = fs::remove_file(&path);
        let listener = UnixListener::bind(&path).with_context(|| {
            format!("{} cannot be created; the path of the data directory may be too long", path.display())
        })?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600))
            .context("the permissions of the control socket cannot be set")?;
        let served = Arc::new(Served { data: data.to_owned(), node, engine, url, checkpoint_lock: Mutex::default() });
        let listen = move || {
            for stream in listener.incoming().flatten() {
                let served = Arc::clone(&served);
                let answer = move || {
                    if let Err(error) = served.answer(stream) {
                        tracing::warn!(error = format!("{error:#}"), "a command on the data directory failed");
                    }
                };
                // If no thread can be started, the client observes the end of the connection.
                let _ = std::thread::Builder::new().name("control".to_owned()).spawn(answer);
            }
        };
        std::thread::Builder::new().name("control".to_owned()).spawn(listen).context("cannot start a thread")?;
        Ok(Self { path })
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

impl Served {
    fn answer(&self, stream: UnixStream) -> anyhow::Result<()> {
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        let mut reader = BufReader::new(stream.try_clone()?.take(LINE_BYTES));
        let (mut writer, mut line) = (stream, String::new());
        reader.read_line(&mut line)?;
        match line.trim() {
            "status" => write_line(&mut writer, self.status()),
            "checkpoint" => self.hold_checkpoint(reader, &mut writer),
            "verify" => self.verify(&mut writer),
            other => write_line(&mut writer, refusal(&format!("unknown command {other}"))),
        }
    }

    fn status(&self) -> Vec<u8> {
        let mut out = format!("{{\"ok\":true,\"version\":\"{}\",\"url\":", env!("CARGO_PKG_VERSION")).into_bytes();
        write_string(&mut out, &self.url);
        if let Err(error) = self.engine.health() {
            out.extend_from_slice(b",\"refused\":");
            write_string(&mut out, &error.to_string());
        }
        if let Some(damage) = self.engine.damage() {
            out.extend_from_slice(b",\"damage\":");
            write_string(&mut out, &damage);
        }
        out.extend_from_slice(format!(",\"uptime_s\":{},\"slow\":", self.node.uptime_s()).as_bytes());
        write_array(&mut out, &self.node.slow_requests(), |out, slow| {
            out.extend_from_slice(b"{\"request\":");
            write_string(out, &crate::log::redact(&slow.request));
            let ago_s = slow.ago_ms / 1000;
            out.extend_from_slice(
                format!(
                    ",\"is_view\":{},\"duration_ms\":{},\"reads\":{},\"entries\":{},\"read_bytes\":{},\"ago_s\":{ago_s}}}",
                    slow.is_view, slow.duration_ms, slow.reads.calls, slow.reads.entries, slow.reads.bytes
                )
                .as_bytes(),
            );
        });
        out.push(b'}');
        out
    }

    fn verify(&self, writer: &mut UnixStream) -> anyhow::Result<()> {
        let mut written = Ok(());
        settee_admin::verify::databases(self.engine.as_ref(), &mut |line| {
            written = write_line(writer, line);
            if written.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        written
    }

    /// Keeps the checkpoint until the client disconnects.
    fn hold_checkpoint(&self, mut reader: impl std::io::Read, writer: &mut UnixStream) -> anyhow::Result<()> {
        let lent = match self.checkpoint() {
            Ok(lent) => lent,
            Err(error) => {
                write_line(writer, refusal(&format!("{error:#}")))?;
                return Err(error);
            }
        };
        let mut out = b"{\"ok\":true,\"directory\":".to_vec();
        write_string(&mut out, &lent.0.display().to_string());
        out.push(b'}');
        write_line(writer, out)?;
        // Copying may take hours.
        writer.set_read_timeout(None)?;
        let _ = reader.read(&mut [0]);
        Ok(())
    }

    fn checkpoint(&self) -> anyhow::Result<Checkpoint> {
        let mut number = self.checkpoint_lock.lock().unwrap_or_else(PoisonError::into_inner);
        *number += 1;
        Checkpoint::make(&self.data, &*self.engine, *number)
    }
}

fn write_line(writer: &mut UnixStream, mut line: Vec<u8>) -> anyhow::Result<()> {
    line.push(b'\n');
    Ok(writer.write_all(&line)?)
}

fn refusal(reason: &str) -> Vec<u8> {
    let mut out = b"{\"ok\":false,\"reason\":".to_vec();
    write_string(&mut out, reason);
    out.push(b'}');
    out
}
