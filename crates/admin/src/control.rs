//! Interface between a running server and the commands that work on its data directory: the socket `control.sock`,
//! which only the owner of the data can open. A request is a line with its name, a response a line of JSON.
//!
//! - `status`: the address of the server, its start time, the reason if writes are refused, and recent slow requests.
//! - `checkpoint`: a consistent copy of all data, made of hard links, until the connection ends.
//! - `verify`: reads the contents of all databases and recounts the counters, with a line for each database.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use settee_model::json::{Json, Value};
use settee_storage::{Engine, durable};

pub const SOCKET: &str = "control.sock";

pub const CHECKPOINTS: &str = "checkpoints";

pub const LINE_BYTES: u64 = 1 << 20;

/// Time limit for the server to make a checkpoint, and for a command to send its request.
pub const TIMEOUT: Duration = Duration::from_secs(600);

pub struct Checkpoint(pub PathBuf);

impl Checkpoint {
    /// Numbers must not repeat while the data directory is locked.
    pub fn make(data: &Path, engine: &dyn Engine, number: u64) -> anyhow::Result<Self> {
        let directory = data.join(CHECKPOINTS);
        durable::create_directories(&directory)
            .with_context(|| format!("{} cannot be created", directory.display()))?;
        let checkpoint = Self(directory.join(number.to_string()));
        engine.checkpoint(&checkpoint.0).context("the engine created no checkpoint")?;
        Ok(checkpoint)
    }
}

impl Drop for Checkpoint {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            tracing::warn!(%error, directory = %self.0.display(), "a checkpoint was not removed; the next start removes it");
        }
    }
}

pub fn remove_checkpoints(data: &Path) -> anyhow::Result<()> {
    match fs::remove_dir_all(data.join(CHECKPOINTS)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).context("old checkpoints were not removed")
        }
        _ => Ok(()),
    }
}

/// `None` if no server listens. A checkpoint exists while the connection is open.
pub fn ask(data: &Path, command: &str) -> anyhow::Result<Option<(Json, UnixStream)>> {
    let Ok(mut stream) = UnixStream::connect(data.join(SOCKET)) else { return Ok(None) };
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.write_all(format!("{command}\n").as_bytes()).context("the server does not listen")?;
    let mut line = String::new();
    BufReader::new(stream.try_clone()?.take(LINE_BYTES)).read_line(&mut line).context("the server does not respond")?;
    let answer = Json::parse(line.as_bytes()).context("the server sent no response; see its log")?;
    if answer.value().get("ok").and_then(Value::as_bool) != Some(true) {
        let reason = answer.value().get("reason").and_then(|reason| reason.as_str().map(std::borrow::Cow::into_owned));
        bail!("the server rejected the command: {}", reason.unwrap_or_default());
    }
    Ok(Some((answer, stream)))
}

/// Calls `each` with every line of the response. Returns false if no server listens.
pub fn listen(data: &Path, command: &str, each: &mut dyn FnMut(Json)) -> anyhow::Result<bool> {
    let Ok(mut stream) = UnixStream::connect(data.join(SOCKET)) else { return Ok(false) };
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.write_all(format!("{command}\n").as_bytes()).context("the server does not listen")?;
    for line in BufReader::new(stream).lines() {
        let line = line.context("the server no longer responds")?;
        each(Json::parse(line.as_bytes()).context("the server sent no response; see its log")?);
    }
    Ok(true)
}
