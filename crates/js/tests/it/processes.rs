//! Worker processes: the sandbox, failures on either side, reuse.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Command, Stdio};

use settee_design::{CompileError, Emissions, Language as _, Limits, MapSource};
use settee_js::{Evaluator, JavaScript, PoolSettings, WorkerCommand};

use super::{batch, check_fatal, command, language};

fn source(function: &str) -> MapSource {
    MapSource { functions: vec![function.into()], library: None }
}

pub(crate) fn processes_with(mark: &str) -> Vec<u32> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(process) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        if line.split(|byte| *byte == 0).any(|part| part == mark.as_bytes()) {
            found.push(process);
        }
    }
    found
}

pub(crate) fn kill(process: u32) {
    signal(process, 9);
}

pub(crate) fn signal(process: u32, number: u32) {
    let arguments = [format!("-{number}"), process.to_string()];
    assert!(Command::new("kill").args(arguments).status().unwrap().success());
}

pub(crate) fn wait_until_busy(process: u32, more_ticks: u64) {
    let ticks = || {
        let line = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
        line.rsplit(')').next().unwrap().split_whitespace().nth(11).unwrap().parse::<u64>().unwrap()
    };
    let idle = ticks();
    while ticks() < idle + more_ticks {
        std::thread::yield_now();
    }
}

pub(crate) fn marked(mark: &str) -> JavaScript {
    let command = WorkerCommand { args: vec![mark.to_owned()], ..command() };
    JavaScript::new(command, PoolSettings::default()).with_evaluator(Evaluator::Workers)
}

#[test]
#[cfg(target_os = "linux")]
fn the_sandbox_holds() {
    let report = language().test_sandbox().unwrap();
    if report.missing.is_empty() {
        assert!(report.attempts.len() > 8);
        for (attempt, refused) in report.attempts {
            assert!(refused, "a worker could {attempt}");
        }
    } else {
        assert!(report.missing.contains("landlock") || report.missing.contains("seccomp"), "{}", report.missing);
    }
}

#[test]
fn no_process_is_started_before_it_is_needed_and_idle_ones_are_reused() {
    let language = marked("reuse");
    assert_eq!(processes_with("reuse").len(), 0);
    let first = language.program(&source("function(doc) {}"), Limits::default()).unwrap();
    let before = processes_with("reuse");
    assert_eq!(before.len(), 1);
    drop(first);
    let second = language.program(&source("function(doc) {}"), Limits::default()).unwrap();
    assert_eq!(processes_with("reuse"), before);
    let third = language.program(&source("function(doc) {}"), Limits::default()).unwrap();
    assert_eq!(processes_with("reuse").len(), 2);
    drop(second);
    language.end_idle_workers();
    assert_eq!(processes_with("reuse").len(), 1);
    drop((third, language));
    assert_eq!(processes_with("reuse").len(), 0);
}

#[test]
fn an_idle_worker_that_died_is_replaced() {
    let language = marked("idle-death");
    drop(language.program(&source("function(doc) {}"), Limits::default()).unwrap());
    let idle = processes_with("idle-death");
    kill(idle[0]);
    let mut program = language.program(&source("function(doc) { emit(1, 1); }"), Limits::default()).unwrap();
    let mut output = Emissions::new();
    program.map(&batch(&["{}"]), &mut output).unwrap();
    assert_eq!(output.len(), 1);
}

#[test]
fn a_worker_killed_at_work_blames_its_function_and_document() {
    let language = marked("victim");
    let limits = Limits { timeout_ms: 60_000, ..Limits::default() };
    let mut program =
        language.program(&source("function(doc) { if (doc.n == 2) for (;;); emit(doc.n, 1); }"), limits).unwrap();
    let victim = processes_with("victim")[0];
    let killer = std::thread::spawn(move || {
        wait_until_busy(victim, 5);
        kill(victim);
    });
    let mut output = Emissions::new();
    let result = program.map(&batch(&["{\"n\":1}", "{\"n\":2}"]), &mut output);
    killer.join().unwrap();
    check_fatal(result.map(|()| output), "os_process_error", &["map function 1", "on document \"doc2\"", "signal 9"]);
    let mut output = Emissions::new();
    program.map(&batch(&["{\"n\":1}"]), &mut output).unwrap();
    assert_eq!(output.len(), 1);
}

#[test]
fn a_worker_ends_with_its_server() {
    const ROLE: &str = "SETTEE_JS_TEST_SERVER";
    if std::env::var_os(ROLE).is_some() {
        let limits = Limits { timeout_ms: 600_000, ..Limits::default() };
        let mut program = language().program(&source("function(doc) { for (;;); }"), limits).unwrap();
        eprintln!("started");
        let _ = program.map(&batch(&["{}"]), &mut Emissions::new());
        return;
    }
    let mut server = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "processes::a_worker_ends_with_its_server", "--nocapture"])
        .env(ROLE, "1")
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(server.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("started") {
        line.clear();
        assert_ne!(lines.read_line(&mut line).unwrap(), 0, "the server did not start its worker");
    }
    server.kill().unwrap();
    server.wait().unwrap();
    lines.read_to_end(&mut Vec::new()).unwrap();
}

#[test]
fn programs_that_are_no_workers_are_reported() {
    let settings = PoolSettings { start_timeout_ms: 2_000, ..PoolSettings::default() };
    for program in ["/does/not/exist", "/bin/true"] {
        let language = JavaScript::new(WorkerCommand { program: program.into(), args: Vec::new() }, settings)
            .with_evaluator(Evaluator::Workers);
        let refused = language.program(&source("function(doc) {}"), Limits::default()).err();
        assert!(matches!(refused, Some(CompileError::Unavailable(_))), "{program}: {refused:?}");
    }
}

#[test]
fn the_worker_program_explains_itself_when_started_by_hand() {
    let output = Command::new(command().program).stdin(Stdio::null()).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("this command is for the server"));
}

#[test]
fn programs_run_side_by_side() {
    let threads: Vec<_> = (0..4)
        .map(|thread| {
            std::thread::spawn(move || {
                let function = format!("function(doc) {{ emit(doc.n, {thread}); }}");
                let mut program = language().program(&source(&function), Limits::default()).unwrap();
                let mut output = Emissions::new();
                for _ in 0..20 {
                    output.clear();
                    program.map(&batch(&["{\"n\":1}"; 50]), &mut output).unwrap();
                    assert_eq!(output.len(), 50);
                    assert!(output.rows().all(|row| row.value == thread.to_string().as_bytes()));
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
}
