//! The thread that starts query servers.

use settee_threads::Spawner;

pub(crate) static SPAWNER: Spawner = Spawner::new("query-spawner");

#[cfg(all(test, target_os = "linux"))]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_process_does_not_inherit_the_priority_of_its_caller() {
        SPAWNER.ensure_started();
        let nice = std::thread::spawn(|| {
            rustix::process::setpriority_process(None, 10).unwrap();
            let mut command = Command::new("nice");
            command.stdout(Stdio::piped());
            SPAWNER.spawn(command).unwrap().wait_with_output().unwrap().stdout
        });
        assert_eq!(String::from_utf8(nice.join().unwrap()).unwrap().trim(), "0");
    }
}
