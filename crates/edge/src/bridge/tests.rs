//! Tests of streamed responses: pieces, errors, and clients that disconnect.
#![expect(clippy::unwrap_used, reason = "tests")]

use http_body_util::BodyExt;
use hyper::body::Body as _;

use super::*;
use crate::bridge::permits::{ClientThreads, PermitCounts};
use crate::respond::Body;
use crate::tests::{account, nothing, show};

const ROW: &[u8] = &[b'x'; 1000];

fn admission() -> Admission {
    let threads = ClientThreads::new(&PermitCounts { answers: 1, lists: 1, uploads: 1 }, &nothing(), 1);
    threads.answer(&account(), Duration::from_secs(60))
}

fn write_rows(output: &mut Output, rows: usize) -> ControlFlow<()> {
    for _ in 0..rows {
        output.text().extend_from_slice(ROW);
        output.row_done()?;
    }
    ControlFlow::Continue(())
}

async fn pieces(mut body: Body) -> (Vec<Bytes>, bool) {
    let mut pieces = Vec::new();
    while let Some(frame) = body.frame().await {
        match frame {
            Ok(frame) => pieces.push(frame.into_data().unwrap()),
            Err(Aborted) => return (pieces, false),
        }
    }
    (pieces, true)
}

#[tokio::test]
async fn a_short_answer_is_whole() {
    for rows in [0, 1, 30] {
        let answer = stream(admission(), move |output| {
            assert!(write_rows(output, rows).is_continue());
            Ok(())
        });
        let body = answer.await.unwrap().into_body();
        assert_eq!(body.size_hint().exact(), Some(rows as u64 * 1000), "the body reports its length");
        let (pieces, ended) = pieces(body).await;
        assert_eq!((pieces.concat().len(), ended), (rows * 1000, true));
    }
}

#[tokio::test]
async fn only_a_short_answer_is_written_without_a_thread() {
    let written = |rows: usize, expected: usize| {
        short(&account(), |output| {
            output.expect(expected)?;
            let _ = write_rows(output, rows);
            Ok(())
        })
    };
    let body = written(30, PIECE_BYTES - 1).unwrap().unwrap().into_body();
    assert_eq!(body.size_hint().exact(), Some(30_000));
    assert!(written(33, 0).is_none() && written(0, PIECE_BYTES).is_none());
    let failed =
        short(&account(), |output| output.break_off(Box::new(Error::internal("disk"))).map_err(|error| *error));
    assert_eq!(show(&failed.unwrap().err().unwrap()), "500 internal_server_error: disk");
}

#[tokio::test]
async fn a_long_answer_comes_in_pieces() {
    let answer = stream(admission(), |output| {
        assert!(write_rows(output, 1000).is_continue());
        output.text().extend_from_slice(b"end");
        Ok(())
    });
    let body = answer.await.unwrap().into_body();
    assert_eq!(body.size_hint().exact(), None);
    let (pieces, ended) = pieces(body).await;
    assert!(ended && pieces.len() > 10, "{}", pieces.len());
    for piece in &pieces[..pieces.len() - 1] {
        assert!((PIECE_BYTES..PIECE_BYTES + 1000).contains(&piece.len()), "{}", piece.len());
    }
    assert_eq!(pieces.concat(), [ROW.repeat(1000), b"end".to_vec()].concat());
}

#[tokio::test]
async fn an_error_before_the_first_piece_is_the_answer() {
    let answer = stream(admission(), |output| {
        assert!(write_rows(output, 10).is_continue());
        Err(Error::bad_request("gone"))
    });
    assert_eq!(answer.await.map(|_| ()).map_err(|error| show(&error)), Err("400 bad_request: gone".to_owned()));
}

#[tokio::test]
async fn an_error_after_the_first_piece_breaks_the_answer() {
    let answer = stream(admission(), |output| {
        assert!(write_rows(output, 100).is_continue());
        output.fail(&Error::internal("disk"), b"the disk");
        Ok(())
    });
    let response = answer.await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    let (pieces, ended) = pieces(response.into_body()).await;
    assert!(!ended, "a client must not take it for complete");
    let text = pieces.concat();
    assert!(text.ends_with(b"the disk"));
}

#[tokio::test]
async fn a_writer_is_notified_that_its_client_disconnected() {
    let (left, hears) = oneshot::channel();
    let answer = stream(admission(), move |output| {
        let mut sent = 0_u64;
        while write_rows(output, 1).is_continue() {
            sent += 1;
        }
        left.send(sent).unwrap();
        Ok(())
    });
    let mut body = answer.await.unwrap().into_body();
    assert!(body.frame().await.unwrap().is_ok());
    drop(body);
    let sent = hears.await.unwrap();
    let most = (PIECES_WAITING + 3) * (PIECE_BYTES + 1000) / 1000;
    assert!(sent <= most as u64, "{sent} rows were written after the disconnect");
}

#[tokio::test]
async fn a_reader_that_waits_holds_the_writer() {
    let (progress, seen) = tokio::sync::watch::channel(0_usize);
    let answer = stream(admission(), move |output| {
        for row in 0..1000 {
            progress.send_replace(row);
            if write_rows(output, 1).is_break() {
                break;
            }
        }
        Ok(())
    });
    let response = answer.await.unwrap();
    let bound = (PIECES_WAITING + 2) * (PIECE_BYTES + 1000) / 1000;
    assert!(*seen.borrow() <= bound, "written far ahead of the reader");
    let (pieces, ended) = pieces(response.into_body()).await;
    assert_eq!((pieces.concat().len(), ended), (1_000_000, true));
}

#[tokio::test]
async fn a_panic_is_an_answer_too() {
    let expected = "500 internal_server_error: the request failed; the cause is in the server's log";
    let answer = stream(admission(), |_| panic!("on purpose"));
    assert_eq!(answer.await.map(|_| ()).map_err(|error| show(&error)), Err(expected.to_owned()));
    let result = settee_threads::run(|| -> Result<(), Error> { panic!("on purpose") }).await;
    assert_eq!(result.map_err(|error| show(&error)), Err(expected.to_owned()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn work_ends_with_its_request() {
    for rows in [0, 1000] {
        let account = account();
        let request = account.cancellation().on_drop();
        let threads = ClientThreads::new(&PermitCounts { answers: 1, lists: 1, uploads: 1 }, &nothing(), 1);
        let (started, start) = oneshot::channel();
        let (ended, end) = oneshot::channel();
        let answer = stream(threads.answer(&account, Duration::from_secs(60)), move |output| {
            let _ = started.send(write_rows(output, rows).is_continue());
            while output.row_done().is_continue() {}
            let _ = ended.send(output.cancellation().is_cancelled());
            Ok(())
        });
        let answer = tokio::spawn(answer);
        let body = if rows > 0 { Some(answer.await.unwrap().unwrap().into_body()) } else { None };
        let reader = body.map(|body| tokio::spawn(pieces(body)));
        assert!(start.await.unwrap());
        drop(request);
        assert!(end.await.unwrap(), "{rows} rows");
        drop(reader);
    }
}
