//! Connections: too many, too slow, and with bodies that are refused.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use crate::attack::client::head;
use crate::attack::entry::{Attack, attack};
use crate::attack::target::Target;

pub(super) const ALL: &[Attack] = &[
    Attack { settings: &["chttpd/max_connections=1000"], act: Some(idle_connections), ..attack("idle-connections", 1) },
    Attack { act: Some(slow_senders), ..attack("slow-senders", 1) },
    Attack { act: Some(refused_bodies), ..attack("refused-bodies", 8) },
    // The valid writes of the attackers share a queue with those of the second client.
    Attack { slower_max: 20.0, act: Some(pool_of_writers), ..attack("pool-of-writers", POOL) },
];

const POOL: usize = 100;

fn idle_connections(target: &Target) {
    let wanted = target.count(1200, 5000);
    let mut connections: Vec<_> = (0..wanted).map_while(|_| target.connect().ok()).collect();
    for round in 0.. {
        let line = if round == 0 { "PUT /another" } else { "GET /another" };
        let answer = target.connect().and_then(|open| {
            let mut open = open.with_timeout(Duration::from_secs(5));
            open.ask(line, &target.admin, b"")
        });
        match answer {
            _ if target.is_over() => return,
            Ok((200 | 201, _)) => {}
            failed => target.fail(format!("a client that came later: {:?}", failed.map(|(status, _)| status))),
        }
        let closed = round % connections.len().max(1);
        if let (Some(place), Ok(open)) = (connections.get_mut(closed), target.connect()) {
            *place = open;
        }
        thread::sleep(Duration::from_millis(10));
    }
}

fn slow_senders(target: &Target) {
    let body = vec![b' '; 4_000_000];
    let mut connections = Vec::new();
    while connections.len() < target.count(300, 2000) && !target.is_over() {
        let Ok(connection) = target.connect() else { continue };
        let mut connection = connection.with_timeout(Duration::from_millis(200));
        let begun = connection.write(&head("PUT /public/doc", "", body.len() + 1));
        let _ = begun.and_then(|()| connection.write(&body));
        connections.push(connection);
    }
    target.wait();
}

fn refused_bodies(target: &Target) {
    let chunk = [&b"10000\r\n"[..], &vec![b'x'; 1 << 16], b"\r\n"].concat();
    for (path, authorization) in
        [("/nothing/doc/a", ""), ("/probe/doc/a", ""), ("/public/d/a", "Authorization: Basic eDp5\r\n")]
    {
        let Ok(mut connection) = target.connect() else { return };
        let begin = format!("PUT {path} HTTP/1.1\r\nHost: x\r\n{authorization}Transfer-Encoding: chunked\r\n\r\n");
        let sent = connection.write(begin.as_bytes());
        let _ = sent.and_then(|()| (0..64).try_for_each(|_| connection.write(&chunk)));
        let _ = connection.write(b"0\r\n\r\n").and_then(|()| connection.answer());
    }
}

/// The server must not interpret the unread rest of a refused body as the next request, and no valid write may fail.
fn pool_of_writers(target: &Target) {
    let writes = target.count(10, 100);
    let number = target.next.fetch_add(1, Ordering::Relaxed);
    if number >= POOL as u64 {
        return target.wait();
    }
    target.unfinished.fetch_add(writes as u64, Ordering::Relaxed);
    let chunk = [&b"10000\r\n"[..], &vec![b'x'; 1 << 16], b"\r\n"].concat();
    let mut connection = target.connect();
    for write in 0..writes {
        let answer = connection.as_mut().map(|open| open.ask(&format!("PUT /public/p{number}-{write}"), "", b"{}"));
        match answer {
            _ if target.is_over() => return,
            Ok(Ok((201, _))) => {}
            failed => {
                target.fail(format!("a valid write: {:?}", failed.map(|answer| answer.map(|(status, _)| status))));
            }
        }
        target.unfinished.fetch_sub(1, Ordering::Relaxed);
        let mut goes_on = connection.as_ref().is_ok_and(|open| !open.is_closing());
        if goes_on && write % 5 == 4 {
            let Ok(open) = connection.as_mut() else { continue };
            let (path, authorization) =
                [("/nothing/d/a", ""), ("/public/d/a", "Authorization: Basic eDp5\r\n")][write / 5 % 2];
            let begin = format!("PUT {path} HTTP/1.1\r\nHost: x\r\n{authorization}Transfer-Encoding: chunked\r\n\r\n");
            let sent = open.write(begin.as_bytes());
            let sent = sent.and_then(|()| (0..64).try_for_each(|_| open.write(&chunk)));
            let answer = sent.and_then(|()| open.write(b"0\r\n\r\n")).and_then(|()| open.answer());
            match answer {
                Ok((401 | 404, _)) => {}
                Ok((status, _)) => target.fail(format!("a refused upload: {status}")),
                Err(_) => goes_on = false,
            }
            goes_on &= !open.is_closing();
        }
        if !goes_on {
            connection = target.connect();
        }
    }
    target.wait();
}
