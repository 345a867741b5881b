//! [`Spawner`]: starts processes from a dedicated thread, because a process inherits the priority of the thread that
//! starts it, and the kernel may kill it when that thread ends. Processes outlive the requests for which they are
//! started.

use std::io;
use std::process::{Child, Command};
use std::sync::mpsc;

use parking_lot::Mutex;

#[derive(Debug)]
pub struct Spawner {
    name: &'static str,
    requests: Mutex<Option<mpsc::Sender<SpawnRequest>>>,
}

#[derive(Debug)]
struct SpawnRequest {
    command: Command,
    reply: mpsc::Sender<io::Result<Child>>,
}

impl Spawner {
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        Self { name, requests: Mutex::new(None) }
    }

    /// Starts the thread, if it is not running. Must be called by a thread with normal priority.
    pub fn ensure_started(&self) {
        let mut requests = self.requests.lock();
        if requests.is_none() {
            // A failed start is retried when the thread is needed.
            *requests = start_thread(self.name).ok();
        }
    }

    /// Fails if the process or the thread cannot be started.
    pub fn spawn(&self, command: Command) -> io::Result<Child> {
        let ended = || io::Error::other(format!("the thread {} has ended", self.name));
        let (reply, answer) = mpsc::channel();
        {
            let mut requests = self.requests.lock();
            let sender = match requests.as_ref() {
                Some(sender) => sender,
                None => requests.insert(start_thread(self.name)?),
            };
            sender.send(SpawnRequest { command, reply }).map_err(|_| ended())?;
        }
        answer.recv().map_err(|_| ended())?
    }
}

fn start_thread(name: &str) -> io::Result<mpsc::Sender<SpawnRequest>> {
    let (sender, requests) = mpsc::channel::<SpawnRequest>();
    std::thread::Builder::new().name(name.to_owned()).spawn(move || {
        for mut request in requests {
            // Fails only if the caller has panicked; the closed pipes then end the process.
            let _ = request.reply.send(request.command.spawn());
        }
    })?;
    Ok(sender)
}
