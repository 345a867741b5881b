//! Tests of waiting changes feeds: notification, heartbeats, and clients that do not read.

use std::time::{Duration, Instant};

use crate::server::{Directory, Server};
use crate::{Client, TIMEOUT, load, number, rows, save, text};

fn start(directory: &Directory) -> Server {
    let server = Server::start(directory);
    server.client().put("/db", "").expect(201);
    server
}

fn follow(server: &Server, parameters: &str) -> Client {
    let mut client = server.client();
    client.send("GET", &format!("/db/_changes?{parameters}"), &[], b"").unwrap();
    client.reply_head().unwrap().expect(200);
    client
}

#[test]
fn a_longpoll_ends_with_the_first_change() {
    let directory = Directory::new();
    let server = start(&directory);
    save(&mut server.client(), "/db/before", "{}");
    let mut feed = follow(&server, "feed=longpoll&since=now&heartbeat=600000");
    assert_eq!(feed.chunks_until("\n"), "{\"results\":[\n\n");
    let rev = save(&mut server.client(), "/db/after", "{}");
    let rest = feed.chunks_until("}\n\n");
    let seq = text(server.client().get("/db").json().value(), "update_seq");
    let row = format!("{{\"seq\":\"{seq}\",\"id\":\"after\",\"changes\":[{{\"rev\":\"{rev}\"}}]}}");
    assert_eq!(rest, format!("{row}\n],\n\"last_seq\":\"{seq}\",\"pending\":0}}\n\n"));
    assert_eq!(feed.chunk().unwrap(), None);
    let at_once = feed.get("/db/_changes?feed=longpoll").expect(200).json();
    assert_eq!(at_once.value().get("results").unwrap().elements().count(), 2);
    let seq = text(at_once.value(), "last_seq");
    let begun = Instant::now();
    let nothing = feed.get(&format!("/db/_changes?feed=longpoll&since={seq}&timeout=50")).expect(200).json();
    assert_eq!(nothing.value().get("results").unwrap().elements().count(), 0);
    assert_eq!(text(nothing.value(), "last_seq"), seq);
    assert!(begun.elapsed() >= Duration::from_millis(50));
}

#[test]
fn a_continuous_feed_sends_every_change() {
    let directory = Directory::new();
    let server = start(&directory);
    let mut writer = server.client();
    save(&mut writer, "/db/first", "{}");
    let mut feed = follow(&server, "feed=continuous&include_docs=true&heartbeat=600000");
    assert!(feed.chunks_until("\n").contains("\"id\":\"first\""));
    for n in 0..20 {
        let rev = save(&mut writer, &format!("/db/d{n}"), &format!("{{\"n\":{n}}}"));
        let line = feed.chunks_until("\n");
        assert!(line.contains(&format!("\"id\":\"d{n}\"")), "{line}");
        assert!(line.ends_with(&format!("\"doc\":{{\"_id\":\"d{n}\",\"_rev\":\"{rev}\",\"n\":{n}}}}}\n")), "{line}");
        writer.delete(&format!("/db/d{n}?rev={rev}")).expect(200);
        assert!(feed.chunks_until("\n").contains("\"deleted\":true"));
    }
    let mut limited = follow(&server, "feed=continuous&limit=2");
    let end = limited.chunks_until("}\n");
    let mut all = end;
    while let Some(chunk) = limited.chunk().unwrap() {
        all.push_str(&String::from_utf8(chunk).unwrap());
    }
    assert_eq!(all.lines().filter(|line| !line.is_empty()).count(), 3, "{all}");
    let last = all.strip_suffix("\n\n").and_then(|all| all.lines().last());
    assert!(last.is_some_and(|last| last.starts_with("{\"last_seq\":\"")), "{all}");
}

#[test]
fn an_idle_feed_sends_heartbeats() {
    let directory = Directory::new();
    let server = start(&directory);
    let begun = Instant::now();
    let mut continuous = follow(&server, "feed=continuous&heartbeat=20");
    let mut longpoll = follow(&server, "feed=longpoll&since=now&heartbeat=20");
    let mut events = follow(&server, "feed=eventsource&heartbeat=20");
    assert_eq!(longpoll.chunks_until("\n"), "{\"results\":[\n\n");
    for feed in [&mut continuous, &mut events] {
        assert_eq!(feed.chunk().unwrap(), Some(b"\n".to_vec()));
    }
    for _ in 0..5 {
        assert_eq!(continuous.chunk().unwrap(), Some(b"\n".to_vec()));
        assert_eq!(longpoll.chunk().unwrap(), Some(b"\n".to_vec()));
        assert_eq!(events.chunk().unwrap(), Some(b"event: heartbeat\ndata: \n\n".to_vec()));
    }
    assert!(begun.elapsed() >= Duration::from_millis(100), "heartbeats come when they are due");
    save(&mut server.client(), "/db/doc", "{}");
    let reply = longpoll.chunks_until("}\n\n");
    assert!(reply.contains("\"id\":\"doc\"") && reply.trim_start().starts_with('{'), "{reply}");
    let mut reply = String::new();
    while !reply.contains("\n\n") || !reply.contains("id: ") {
        reply.push_str(&String::from_utf8(events.chunk().unwrap().unwrap()).unwrap());
    }
    assert!(reply.contains("data: {\"seq\":"), "{reply}");
}

#[test]
fn a_feed_ends_with_its_database() {
    let directory = Directory::new();
    let server = start(&directory);
    let mut continuous = follow(&server, "feed=continuous&heartbeat=600000");
    let mut longpoll = follow(&server, "feed=longpoll&heartbeat=600000&since=now");
    let mut client = server.client();
    client.delete("/db").expect(200);
    client.put("/db", "").expect(201);
    save(&mut client, "/db/another", "{}");
    for feed in [&mut continuous, &mut longpoll] {
        let mut all = Vec::new();
        while let Ok(Some(chunk)) = feed.chunk() {
            all.extend_from_slice(&chunk);
        }
        assert!(!String::from_utf8_lossy(&all).contains("another"));
    }
}

#[test]
fn one_write_wakes_five_hundred_feeds() {
    let directory = Directory::new();
    let server = start(&directory);
    let mut feeds: Vec<Client> = (0..500)
        .map(|n| {
            let kind = if n % 2 == 0 { "continuous" } else { "longpoll" };
            follow(&server, &format!("feed={kind}&since=now&heartbeat=600000"))
        })
        .collect();
    let begun = Instant::now();
    save(&mut server.client(), "/db/doc", "{}");
    let written = begun.elapsed();
    for (n, feed) in feeds.iter_mut().enumerate() {
        let reply = feed.chunks_until(if n % 2 == 0 { "}\n" } else { "}\n\n" });
        assert!(reply.contains("\"id\":\"doc\""), "{reply}");
    }
    eprintln!("500 feeds: the write took {written:?}, all feeds had sent it after {:?}", begun.elapsed());
}

#[test]
fn readers_that_do_not_read_delay_no_writer() {
    let directory = Directory::new();
    let server = start(&directory);
    load(&mut server.client(), "/db", 10_000, 2000);
    let mut lazy = Vec::new();
    for _ in 0..8 {
        lazy.push(follow(&server, "feed=continuous&include_docs=true&heartbeat=600000"));
        lazy.push(follow(&server, "include_docs=true"));
        let mut list = server.client();
        list.send("GET", "/db/_all_docs?include_docs=true", &[], b"").unwrap();
        list.reply_head().unwrap().expect(200);
        lazy.push(list);
    }
    let mut writer = server.client();
    let mut slowest = Duration::ZERO;
    for n in 0..300 {
        let begun = Instant::now();
        save(&mut writer, &format!("/db/new{n}"), "{}");
        slowest = slowest.max(begun.elapsed());
    }
    eprintln!("the slowest of 300 writes with 24 readers that do not read: {slowest:?}");
    assert!(slowest < TIMEOUT / 3);
    let mut list = lazy.swap_remove(2);
    let mut body = Vec::new();
    while let Some(chunk) = list.chunk().unwrap() {
        body.extend_from_slice(&chunk);
    }
    let json = settee_model::json::Json::parse(&body).unwrap();
    assert_eq!((number(json.value(), "total_rows"), rows(&json).len()), (10_000, 10_000));
    let mut feed = lazy.swap_remove(0);
    let mut seen = 0;
    let mut line = Vec::new();
    while seen < 10_300 {
        for byte in feed.chunk().unwrap().unwrap() {
            if byte == b'\n' {
                seen += usize::from(!line.is_empty());
                line.clear();
            } else {
                line.push(byte);
            }
        }
    }
}
