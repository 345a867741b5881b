//! Starts processes from a dedicated thread, because a process inherits the priority of the thread that starts it.
//! Query servers outlive the requests for which they are started, which may have a low priority.

use std::io;
use std::process::{Child, Command};
use std::sync::mpsc;

use parking_lot::Mutex;

static STARTER: Mutex<Option<mpsc::Sender<Order>>> = Mutex::new(None);

struct Order {
    command: Command,
    reply: mpsc::Sender<io::Result<Child>>,
}

/// Starts the thread, if it is not running. Must be called by a thread with normal priority.
pub(crate) fn get_ready() {
    let mut starter = STARTER.lock();
    if starter.is_none() {
        // If it fails now, it is retried when the thread is needed.
        *starter = begin().ok();
    }
}

pub(crate) fn start(command: Command) -> io::Result<Child> {
    let gone = |_| io::Error::other("the thread that starts query servers has ended");
    let (reply, answer) = mpsc::channel();
    {
        let mut starter = STARTER.lock();
        let orders = match starter.as_ref() {
            Some(orders) => orders,
            None => starter.insert(begin()?),
        };
        orders.send(Order { command, reply }).map_err(|_| gone(mpsc::RecvError))?;
    }
    answer.recv().map_err(gone)?
}

fn begin() -> io::Result<mpsc::Sender<Order>> {
    let (sender, orders) = mpsc::channel::<Order>();
    let serve = move || {
        for mut order in orders {
            // If the caller has timed out, the pipes of the process are closed, which ends it.
            let _ = order.reply.send(order.command.spawn());
        }
    };
    std::thread::Builder::new().name("query-spawner".to_owned()).spawn(serve)?;
    Ok(sender)
}

#[cfg(all(test, target_os = "linux"))]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::process::Stdio;

    use super::*;

    #[test]
    fn a_process_does_not_inherit_the_priority_of_its_caller() {
        get_ready();
        let nice = std::thread::spawn(|| {
            rustix::process::setpriority_process(None, 10).unwrap();
            let mut command = Command::new("nice");
            command.stdout(Stdio::piped());
            start(command).unwrap().wait_with_output().unwrap().stdout
        });
        assert_eq!(String::from_utf8(nice.join().unwrap()).unwrap().trim(), "0");
    }
}
