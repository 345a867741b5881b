use settee_design::{Language as _, Limits, Reducer, RunError};

use super::server;

fn reducer(source: &str) -> Box<dyn Reducer> {
    server().reducer(source, Limits::default()).unwrap()
}

#[test]
fn failures_name_the_function() {
    let check = |source: &str, name: &str, part: &str| {
        let error = reducer(source).rereduce(&[vec![b"1"]]).unwrap_err();
        let RunError::Fatal { name: actual, reason } = error else { panic!("{error:?}") };
        assert_eq!(actual, name);
        assert!(reason.contains(part) && reason.contains(&format!("(reduce function ({source}))")), "{reason}");
    };
    check("fail", "reduce_runtime_error", "it failed");
    check("strange", "os_process_error", "a reduction is not [true,[value]]: [true]");
}

#[test]
fn functions_that_do_not_compile_are_refused() {
    let server = server();
    for _ in 0..2 {
        assert!(server.reducer("42", Limits::default()).is_err());
    }
    assert!(server.reducer("sum", Limits::default()).is_ok());
}
