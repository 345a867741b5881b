//! Worker process of this crate's tests and measurements; the server starts its own binary instead.

fn main() -> std::process::ExitCode {
    settee_js::worker_main()
}
