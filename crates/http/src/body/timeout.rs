//! [`ReceiveTimeout`]: how long the server waits for what a client still has to send.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body, Frame};
use tokio::time::Instant;

use crate::Error;

/// A client that sends less than this for long is cut off, even if something comes now and then.
const BYTES_PER_SECOND: u64 = 500;

/// The rest of the time that the server waits.
#[derive(Debug)]
pub(crate) struct ReceiveTimeout {
    /// The time for which the client may send nothing.
    pause: Duration,
    waited: Duration,
    received: u64,
}

impl ReceiveTimeout {
    /// For a client that may send nothing for `pause`.
    pub(crate) fn new(pause: Duration) -> Self {
        Self { pause, waited: Duration::ZERO, received: 0 }
    }

    /// The next frame of `body`; `None` at the end. Time in which nobody asks for a frame does not count.
    pub(crate) async fn frame<B>(&mut self, body: &mut B) -> Option<Result<Frame<Bytes>, Error>>
    where
        B: Body<Data = Bytes, Error: std::fmt::Display> + Unpin,
    {
        let begun = Instant::now();
        let Ok(frame) = tokio::time::timeout(self.left(), body.frame()).await else {
            return Some(Err(timed_out()));
        };
        self.waited += begun.elapsed();
        if let Some(Ok(frame)) = &frame {
            self.received += frame.data_ref().map_or(0, Bytes::len) as u64;
        }
        Some(frame?.map_err(|error| Error::bad_request(format!("the request body ended early: {error}"))))
    }

    fn left(&self) -> Duration {
        let earned = Duration::from_secs(self.received / BYTES_PER_SECOND);
        self.pause.saturating_add(earned).saturating_sub(self.waited).min(self.pause)
    }
}

/// The answer to a client whose body did not come.
pub(crate) fn timed_out() -> Error {
    Error::request_timeout("the request body did not come in time")
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;
    use tokio::time::sleep;

    use super::*;
    use crate::respond::Body as Stream;

    /// Sends pieces of `size` bytes every `every_s` seconds. Answers how many were read before the reader gave up.
    async fn read(size: usize, every_s: u64, pieces: usize) -> usize {
        let (sender, receiver) = mpsc::channel(1);
        tokio::spawn(async move {
            for _ in 0..pieces {
                sleep(Duration::from_secs(every_s)).await;
                if sender.send(Ok(Bytes::from(vec![b'x'; size]))).await.is_err() {
                    return;
                }
            }
        });
        let (mut body, mut timeout, mut read) =
            (Stream::Stream(receiver), ReceiveTimeout::new(Duration::from_secs(60)), 0);
        while let Some(frame) = timeout.frame(&mut body).await {
            match frame {
                Ok(_) => read += 1,
                Err(error) => {
                    assert_eq!(error.status.as_u16(), 408);
                    return read;
                }
            }
        }
        read
    }

    #[tokio::test(start_paused = true)]
    async fn slow_clients_are_waited_for_and_idle_ones_are_not() {
        // 500 bytes a second for an hour.
        assert_eq!(read(10_000, 20, 180).await, 180);
        assert_eq!(read(10_000_000, 59, 10).await, 10);
        assert_eq!(read(10_000_000, 61, 10).await, 0);
        // A byte now and then is no progress.
        assert_eq!(read(1, 25, 100).await, 2);
        let trickled = read(100, 1, 1000).await;
        assert!((70..80).contains(&trickled), "{trickled}");
    }
}
