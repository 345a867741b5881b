//! Work of handlers on threads that may block: [`blocking`], and [`stream`] for responses of any length. [`read`] and
//! [`answer`] first [attempt](nonblocking::attempt) idempotent work on the calling thread. The work must open databases
//! with its [`Waiting`] and write nothing.

use settee_database::{Waiting, nonblocking};
use settee_edge::bridge::permits::Admission;
use settee_edge::bridge::{Output, short};
use settee_edge::budget::Share;
use settee_threads::{Threads, scoped};

use crate::Error;
use crate::respond::{Answer, error_text};

pub(crate) async fn blocking<T: Send + 'static>(
    threads: &Threads,
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    threads.run(work).await
}

pub(crate) async fn read<T: Send + 'static>(
    threads: &Threads,
    work: impl Fn(Waiting<'_>) -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let attempted = nonblocking::attempt(|waiting| scoped(|| work(waiting))());
    match attempted {
        Some(done) => done,
        None => blocking(threads, move || work(Waiting::Allowed)).await,
    }
}

pub(crate) async fn answer(
    admission: Admission,
    write: impl Fn(&mut Output, Waiting<'_>) -> Result<(), Error> + Send + 'static,
) -> Answer {
    answer_if(true, admission, write).await
}

/// Attempts the work on the calling thread only if it is expected to be short.
pub(crate) async fn answer_if(
    is_short: bool,
    admission: Admission,
    write: impl Fn(&mut Output, Waiting<'_>) -> Result<(), Error> + Send + 'static,
) -> Answer {
    // Unauthenticated clients have threads of low priority.
    if is_short && admission.account().share() != Share::Anonymous {
        let attempted = nonblocking::attempt(|waiting| {
            scoped(|| short(admission.account(), |output| write(output, waiting).map_err(Into::into)))()
        });
        if let Some(Some(answer)) = attempted {
            return Ok(answer?);
        }
    }
    stream(admission, move |output| write(output, Waiting::Allowed)).await
}

/// Like [`settee_edge::bridge::stream`]. An error after the first piece is appended to the incomplete body.
pub(crate) async fn stream(
    admission: Admission,
    write: impl FnOnce(&mut Output) -> Result<(), Error> + Send + 'static,
) -> Answer {
    let write = move |output: &mut Output| match write(output) {
        Err(error) if output.is_begun() => {
            output.fail(&error, &error_text(&error));
            Ok(())
        }
        written => written.map_err(Into::into),
    };
    Ok(settee_edge::bridge::stream(admission, write).await?)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use http_body_util::BodyExt;
    use parking_lot::Mutex;
    use settee_edge::bridge::permits::{ClientThreads, PermitCounts};

    use super::*;
    use crate::tests::{account, nothing};

    fn place() -> String {
        std::thread::current().name().unwrap_or_default().to_owned()
    }

    fn place_of_blocking_work(waiting: Waiting<'_>) -> Result<String, Error> {
        waiting.may_block()?;
        Ok(place())
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn work_that_may_block_leaves_the_thread_of_the_request() {
        let threads = Threads::default();
        let places = tokio::spawn(async move {
            (read(&threads, |_| Ok(place())).await, read(&threads, place_of_blocking_work).await)
        });
        let (short, blocking) = places.await.unwrap();
        assert_eq!((short.unwrap().as_str(), blocking.unwrap().as_str()), ("tokio-rt-worker", "settee-short"));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn long_answers_leave_the_thread_of_the_request() {
        for (share, rows, expected) in [
            (Share::Admin, 1, "tokio-rt-worker"),
            (Share::Admin, 1_000, "settee-client"),
            (Share::Anonymous, 1, "settee-anon"),
        ] {
            let threads = ClientThreads::new(&PermitCounts { answers: 1, lists: 1, uploads: 1 }, &nothing(), 1);
            let account = account();
            account.set_share(share);
            let places = Arc::new(Mutex::new(String::new()));
            let last = Arc::clone(&places);
            let answered = tokio::spawn(answer(threads.answer(&account, Duration::from_secs(60)), move |output, _| {
                *last.lock() = place();
                for _ in 0..rows {
                    output.text().extend_from_slice(&[b'x'; 100]);
                    if output.row_done().is_break() {
                        break;
                    }
                }
                Ok(())
            }));
            let mut body = answered.await.unwrap().unwrap().into_body();
            let mut length = 0;
            while let Some(Ok(frame)) = body.frame().await {
                length += frame.into_data().unwrap().len();
            }
            assert_eq!((length, places.lock().as_str()), (100 * rows, expected));
        }
    }

    #[tokio::test]
    async fn an_error_after_the_first_piece_is_the_end_of_the_body() {
        let threads = ClientThreads::new(&PermitCounts { answers: 1, lists: 1, uploads: 1 }, &nothing(), 1);
        let answer = stream(threads.answer(&account(), Duration::from_secs(60)), |output| {
            output.text().extend_from_slice(b"[");
            assert!(output.begin().is_continue());
            Err(Error::internal("disk"))
        });
        let mut body = answer.await.unwrap().into_body();
        let mut text = Vec::new();
        while let Some(Ok(frame)) = body.frame().await {
            text.extend_from_slice(&frame.into_data().unwrap());
        }
        assert_eq!(text, br#"[{"error":"internal_server_error","reason":"disk"}"#);
    }
}
