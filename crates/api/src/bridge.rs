//! Work of handlers on threads that may block: [`blocking`], and [`stream`] for responses of any length.

use settee_edge::bridge::Output;
use settee_edge::bridge::permits::Admission;

use crate::Error;
use crate::respond::{Answer, error_text};

pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    settee_threads::run(work).await
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
    use std::time::Duration;

    use http_body_util::BodyExt;
    use settee_edge::bridge::permits::{ClientThreads, PermitCounts};

    use super::*;
    use crate::tests::{account, nothing};

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
