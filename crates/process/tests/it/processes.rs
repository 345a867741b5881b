use std::sync::Barrier;
use std::time::Duration;

use settee_design::Emissions;
use settee_process::Settings;

use super::{batch, command, pid, program, run, server, server_with, settings, show};

#[test]
fn processes_are_used_again() {
    let server = server();
    let first = pid(&server);
    assert_eq!(run(&server, &["f"], &["{}"]).unwrap().len(), 1);
    assert_eq!(pid(&server), first);
    assert_eq!(server.processes(), (0, 1));
}

#[test]
fn a_process_that_refused_a_function_is_used_again() {
    let server = server();
    let first = pid(&server);
    assert!(program(&server, &["42"]).is_err());
    assert_eq!(pid(&server), first);
}

#[test]
fn idle_processes_end_on_request_or_with_the_language() {
    let server = server();
    let first = pid(&server);
    server.end_idle(Duration::from_secs(3600));
    assert_eq!(server.processes(), (0, 1));
    server.end_idle(Duration::ZERO);
    assert_eq!(server.processes(), (0, 0));
    let second = pid(&server);
    assert_ne!(first, second);
    let runs = |pid: &str| std::path::Path::new("/proc").join(pid).join("exe").exists();
    assert!(!runs(&first) && runs(&second));
    drop(server);
    assert!(!runs(&second));
}

#[test]
fn child_processes_end_with_the_server() {
    // The shell remains, because a command follows; the server is its child.
    let (server, _) = server_with(&format!("sh -c '{}; true'", command()), settings());
    let pid = pid(&server);
    let stat = || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    assert!(!stat().is_empty());
    drop(server);
    while !stat().is_empty() && !stat().contains(") Z ") {
        std::thread::yield_now();
    }
}

#[test]
fn there_are_no_more_processes_than_allowed() {
    let (server, _) = server_with(&command(), Settings { process_limit: 2, idle_limit: 1, ..settings() });
    let barrier = Barrier::new(6);
    let most = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..6)
            .map(|_| {
                scope.spawn(|| {
                    let mut program = program(&server, &["act"]).unwrap();
                    barrier.wait();
                    let mut most = 0;
                    for _ in 0..5 {
                        let mut output = Emissions::new();
                        program.map(&batch(&["{}"; 20]), &mut output).unwrap();
                        assert_eq!(output.len(), 20);
                        most = most.max(server.processes().0);
                    }
                    most
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).max().unwrap()
    });
    assert!(most <= 2, "{most} processes");
    assert_eq!(server.processes(), (0, 1));
}

#[test]
fn the_environment_equals_the_settings() {
    let mut settings = settings();
    settings.environment.push(("GIVEN".into(), "yes".into()));
    let (server, _) = server_with(&command(), settings);
    let output = run(&server, &["act"], &[r#"{"do":"environment"}"#]).unwrap();
    let keys = show(&output);
    assert!(keys.contains("\"GIVEN\"") && keys.contains("\"PATH\""), "{keys}");
    assert!(!keys.contains("CARGO") && !keys.contains("HOME"), "{keys}");
}

#[test]
fn only_the_three_pipes_are_inherited() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let file = std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
    let output = run(&server(), &["act"], &[r#"{"do":"files"}"#]).unwrap();
    drop((listener, file));
    let row = show(&output);
    assert!(row.starts_with("[[0,0,[0,1,2"), "{row}");
    assert!(!row.contains("socket"), "{row}");
    assert!(!row.contains("settee_process") && !row.contains("/deps/"), "{row}");
}

#[test]
fn memory_is_limited() {
    let (server, _) = server_with(&command(), Settings { memory_bytes: Some(300 << 20), ..settings() });
    let output =
        run(&server, &["act"], &[r#"{"do":"memory","bytes":1000000}"#, r#"{"do":"memory","bytes":400000000}"#]);
    assert_eq!(show(&output.unwrap()), r#"[[0,0,"allocated",1000000],[1,0,"refused",null]]"#);
}
