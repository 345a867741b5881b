//! Prints for each given file, which contains one map function, that it compiles natively, or the reason of the
//! refusal. Files whose names contain `nouveau` are compiled as functions of Nouveau search indexes.

use settee_native::{Environment, NativeFunction, Refused};

fn main() {
    let (mut natives, mut all) = (0, 0);
    for path in std::env::args().skip(1) {
        let source = match std::fs::read_to_string(&path) {
            Ok(source) => source,
            Err(error) => {
                println!("{path}: {error}");
                continue;
            }
        };
        let environment = if path.contains("nouveau") { Environment::Nouveau } else { Environment::View };
        all += 1;
        match NativeFunction::compile(source.trim().trim_end_matches(';'), environment) {
            Ok(_) => natives += 1,
            Err(Refused(reason)) => println!("{path}: {reason}"),
        }
    }
    println!("{natives} of {all} native");
}
