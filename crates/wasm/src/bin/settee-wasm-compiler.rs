//! A compiler process for this crate's tests and measurements; the server runs its own binary instead.

fn main() -> std::process::ExitCode {
    settee_wasm::compiler_main()
}
