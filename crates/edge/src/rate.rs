//! [`Rates`]: rate limit of requests per client, disabled by default. A client is an address, or by configuration a
//! user. The number of requests is limited, not their cost.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use settee_settings::{Settings, rate_limit};

use crate::Error;

/// Beyond this number, full buckets are evicted first, then any.
const CLIENTS_MAX: usize = 100_000;

#[derive(Clone, Copy, Debug)]
pub struct RateLimit {
    per_second: f64,
    burst: f64,
    pub by: ClientKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientKind {
    Address,
    User,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Client {
    Address(IpAddr),
    User(String),
}

impl Client {
    /// The /64 network of an IPv6 address is one client.
    pub fn of_address(ip: IpAddr) -> Self {
        Self::Address(match ip.to_canonical() {
            IpAddr::V6(ip) => IpAddr::V6((ip.to_bits() & !u128::from(u64::MAX)).into()),
            v4 => v4,
        })
    }
}

impl RateLimit {
    /// `None` if no limit is configured.
    pub fn of(settings: &dyn Settings) -> Option<Self> {
        let per_second = rate_limit::REQUESTS_PER_SECOND.of(settings);
        if per_second == 0 {
            return None;
        }
        let burst = rate_limit::BURST.of(settings);
        let burst = if burst == 0 { per_second.saturating_mul(2) } else { burst };
        let by = match rate_limit::BY.of(settings).as_str() {
            "user" => ClientKind::User,
            _ => ClientKind::Address,
        };
        Some(Self { per_second: per_second as f64, burst: burst as f64, by })
    }
}

#[derive(Default)]
pub struct Rates(Mutex<HashMap<Client, Bucket>>);

struct Bucket {
    left: f64,
    filled: Instant,
}

impl Bucket {
    fn fill(&mut self, limit: &RateLimit, now: Instant) {
        let elapsed = now.saturating_duration_since(self.filled).as_secs_f64();
        self.left = (self.left + elapsed * limit.per_second).min(limit.burst);
        self.filled = now;
    }
}

impl Rates {
    /// Takes a token. Fails with the time of a retry if the bucket of `client` is empty.
    pub fn take(&self, limit: &RateLimit, client: Client) -> Result<(), Error> {
        let now = Instant::now();
        let mut buckets = self.0.lock();
        if buckets.len() >= CLIENTS_MAX && !buckets.contains_key(&client) {
            forget(&mut buckets, limit, now);
        }
        let bucket = buckets.entry(client).or_insert(Bucket { left: limit.burst, filled: now });
        bucket.fill(limit, now);
        if bucket.left >= 1.0 {
            bucket.left -= 1.0;
            return Ok(());
        }
        let wait = Duration::from_secs_f64((1.0 - bucket.left) / limit.per_second);
        Err(Error::too_many_requests(wait))
    }
}

fn forget(buckets: &mut HashMap<Client, Bucket>, limit: &RateLimit, now: Instant) {
    buckets.retain(|_, bucket| {
        bucket.fill(limit, now);
        bucket.left < limit.burst
    });
    if buckets.len() >= CLIENTS_MAX {
        buckets.clear();
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use tokio::time::advance;

    use super::*;
    use crate::tests::Values;

    fn limit(settings: &[&str]) -> Option<RateLimit> {
        RateLimit::of(&Values::of(settings))
    }

    fn client(ip: &str) -> Client {
        Client::of_address(ip.parse().unwrap())
    }

    fn drain(rates: &Rates, limit: &RateLimit, client: &Client) -> usize {
        (0..1000).take_while(|_| rates.take(limit, client.clone()).is_ok()).count()
    }

    #[tokio::test(start_paused = true)]
    async fn requests_are_counted_for_each_client() {
        assert!(limit(&[]).is_none());
        assert!(limit(&["rate_limit/requests_per_second=0", "rate_limit/burst=5"]).is_none());
        let limit = limit(&["rate_limit/requests_per_second=10", "rate_limit/burst=30"]).unwrap();
        let (rates, one, other) = (Rates::default(), client("10.0.0.1"), client("10.0.0.2"));
        assert_eq!(drain(&rates, &limit, &one), 30);
        assert_eq!(drain(&rates, &limit, &other), 30);
        let error = rates.take(&limit, one.clone()).unwrap_err();
        assert_eq!((error.status.as_u16(), error.headers[0].1.to_str().unwrap()), (429, "1"));
        advance(Duration::from_millis(500)).await;
        assert_eq!(drain(&rates, &limit, &one), 5);
        advance(Duration::from_secs(3600)).await;
        assert_eq!(drain(&rates, &limit, &one), 30);
    }

    #[tokio::test(start_paused = true)]
    async fn clients_that_are_quiet_are_forgotten() {
        let limit = limit(&["rate_limit/requests_per_second=1", "rate_limit/burst=2"]).unwrap();
        let rates = Rates::default();
        for number in 0..u32::try_from(CLIENTS_MAX).unwrap() {
            rates.take(&limit, Client::Address(IpAddr::V4(number.into()))).unwrap();
        }
        advance(Duration::from_secs(10)).await;
        let busy = Client::User("busy".to_owned());
        assert_eq!(drain(&rates, &limit, &busy), 2);
        assert_eq!(rates.0.lock().len(), 1);
        assert!(rates.take(&limit, busy).is_err());
    }

    #[test]
    fn networks_count_as_one_client() {
        assert_eq!(client("2001:db8::1"), client("2001:db8::2:3"));
        assert_ne!(client("2001:db8::1"), client("2001:db8:0:1::1"));
        assert_eq!(client("::ffff:10.0.0.1"), client("10.0.0.1"));
    }
}
