//! [`ReceiveTimeout`]: timeout for data that a client has yet to send.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body, Frame};
use tokio::time::Instant;

use crate::Error;

/// A client that stays below this rate is disconnected, even if it sends some bytes regularly.
const BYTES_PER_SECOND: u64 = 500;

#[derive(Debug)]
pub struct ReceiveTimeout {
    pause: Duration,
    waited: Duration,
    received: u64,
}

impl ReceiveTimeout {
    pub fn new(pause: Duration) -> Self {
        Self { pause, waited: Duration::ZERO, received: 0 }
    }

    /// `None` at the end. Only the time within this call is counted.
    pub async fn frame<B>(&mut self, body: &mut B) -> Option<Result<Frame<Bytes>, Error>>
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

pub fn timed_out() -> Error {
    Error::request_timeout("the request body did not come in time")
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;
    use tokio::time::sleep;

    use super::*;
    use crate::respond::Body as Stream;

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
        assert_eq!(read(10_000, 20, 180).await, 180);
        assert_eq!(read(10_000_000, 59, 10).await, 10);
        assert_eq!(read(10_000_000, 61, 10).await, 0);
        assert_eq!(read(1, 25, 100).await, 2);
        let trickled = read(100, 1, 1000).await;
        assert!((70..80).contains(&trickled), "{trickled}");
    }
}
