//! Fixed and random bodies, whole and in pieces, valid and damaged.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

use super::{Attached, ContentType, Event, Head, MAX_HEAD_BYTES, MultipartError, Parser, Writer};

type Parts = Vec<(Head, Vec<u8>)>;

/// SplitMix64 with a new seed for each run. The seed is printed; `SETTEE_SEED=…` repeats a run.
struct Random(u64);

impl Random {
    fn new() -> Self {
        let given = std::env::var("SETTEE_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = given.unwrap_or_else(|| RandomState::new().hash_one(0));
        eprintln!("SETTEE_SEED={seed}");
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}

fn parse(boundary: &str, body: &[u8], mut piece: impl FnMut() -> usize) -> Result<Parts, MultipartError> {
    let mut parser = Parser::new(boundary);
    let mut rest = body;
    let mut parts = Parts::new();
    let (mut open, mut ended) = (false, false);
    loop {
        while let Some(event) = parser.next()? {
            assert!(!ended, "nothing comes after the end");
            match event {
                Event::Part(head) => {
                    assert!(!std::mem::replace(&mut open, true));
                    parts.push((head, Vec::new()));
                }
                Event::Data(data) => {
                    assert!(open && !data.is_empty());
                    parts.last_mut().unwrap().1.extend_from_slice(&data);
                }
                Event::PartEnd => assert!(std::mem::replace(&mut open, false)),
                Event::End => ended = true,
            }
        }
        if ended {
            assert!(!open);
            return Ok(parts);
        }
        let (now, later) = rest.split_at(piece().clamp(1, usize::MAX).min(rest.len()));
        rest = later;
        if now.is_empty() {
            parser.finish();
        } else {
            parser.feed(now);
        }
    }
}

fn data(boundary: &str, body: &str) -> Result<Vec<String>, MultipartError> {
    let whole = parse(boundary, body.as_bytes(), || usize::MAX);
    for size in 1..6 {
        assert_eq!(parse(boundary, body.as_bytes(), || size), whole, "in pieces of {size}: {body:?}");
    }
    Ok(whole?.into_iter().map(|(_, data)| String::from_utf8(data).unwrap()).collect())
}

#[test]
fn forms_of_bodies() {
    let sound: &[(&str, &[&str])] = &[
        ("--sep\r\n\r\nabc\r\n--sep--", &["abc"]),
        ("--sep\r\nA: b\r\n\r\nabc\r\n--sep\r\n\r\ndef\r\n--sep--\r\n", &["abc", "def"]),
        ("\r\n--sep\r\n\r\n\r\n--sep--", &[""]),
        ("--sep\r\nA: b\r\n\r\n--sep--", &[""]),
        ("words in front\r\n--sep  \t\r\n\r\nabc\r\n--sep--and behind", &["abc"]),
        ("--sep\r\n\r\na\r\n--se\r\n--sepp\r\n--sep x\r\n-sep\r\n--sep--", &["a\r\n--se\r\n--sepp\r\n--sep x\r\n-sep"]),
        ("--sep\r\n\r\n\r\n\r\n--sep\r\n\r\n\n--sep\r\n--sep--", &["\r\n", "\n--sep"]),
        ("--sep\r\n\r\n--sep-\r\n--sep--", &["--sep-"]),
        ("--sep--", &[]),
        ("\r\n--sep--\r\n--sep\r\n\r\nnot any more", &[]),
    ];
    for (body, expected) in sound {
        assert_eq!(data("sep", body).unwrap(), *expected, "{body:?}");
    }
    for body in
        ["", "--sep", "--sep\r\n", "--sep\r\n\r\n", "--sep\r\n\r\nabc", "--sep\r\n\r\nabc\r\n--sep", "abc\r\n--se"]
    {
        assert_eq!(data("sep", body), Err(MultipartError::EndedEarly), "{body:?}");
    }
    assert_eq!(data("sep", "--sep\r\nno header\r\n\r\n\r\n--sep--"), Err(MultipartError::MalformedHead));
    let long = format!("--sep\r\nA: {}\r\n\r\nabc\r\n--sep--", "x".repeat(MAX_HEAD_BYTES));
    assert_eq!(data("sep", &long), Err(MultipartError::HeadTooLong));
}

#[test]
fn heads() {
    let body = b"--sep\r\nContent-Disposition: attachment; filename=\"a;\\\"b\\\".png\"\r\nContent-TYPE: Image/PNG\r\nX-Long: a\r\n  b\r\n\r\n\r\n--sep--";
    let (head, _) = parse("sep", body, || usize::MAX).unwrap().remove(0);
    assert_eq!(head.filename().as_deref(), Some("a;\"b\".png"));
    assert_eq!(head.content_type().unwrap().essence, "image/png");
    assert_eq!((head.get("x-long"), head.get("x-none")), (Some("a b"), None));
}

#[test]
fn content_types() {
    for (value, essence, boundary) in [
        ("multipart/related; boundary=\"x y\"", "multipart/related", Some("x y")),
        ("Multipart/Mixed;charset=utf-8;BOUNDARY=abc", "multipart/mixed", Some("abc")),
        ("multipart/related; boundary=\"a;b\\\"c\" ; type=x", "multipart/related", Some("a;b\"c")),
        ("multipart/related", "multipart/related", None),
        ("multipart/related; boundary=", "multipart/related", None),
        ("multipart/related; boundary=\"\"", "multipart/related", None),
        ("", "", None),
    ] {
        let parsed = ContentType::parse(value);
        assert_eq!((parsed.essence.as_str(), parsed.boundary().ok()), (essence, boundary), "{value}");
    }
    let long = ContentType::parse(&format!("multipart/mixed; boundary={}", "x".repeat(71)));
    assert_eq!(long.boundary(), Err(MultipartError::NoBoundary));
}

fn random_body(random: &mut Random) -> (Vec<u8>, Vec<Vec<u8>>) {
    let writer = Writer::new("sep".to_owned());
    let mut body = Vec::new();
    writer.begin(&mut body);
    let mut parts = Vec::new();
    for number in 0..random.below(5) {
        let length = random.below(40);
        // The fragments resemble a boundary.
        let pieces: [&[u8]; 9] = [b"\r\n", b"--", b"se", b"-", b"\r", b"\n", b"p", b"\0", b"\r\n--se"];
        let part = (0..length).flat_map(|_| pieces[random.below(pieces.len())]).copied().collect::<Vec<u8>>();
        let with_lines = [b"\r\n".as_slice(), &part].concat();
        if memchr::memmem::find(&with_lines, b"\r\n--sep").is_some() {
            continue;
        }
        let attached =
            Attached { name: &format!("n\"{number}"), content_type: "a/b", length: 1, encoding: Some("gzip") };
        writer.attachment(&mut body, attached);
        body.extend_from_slice(&part);
        writer.part_end(&mut body);
        parts.push(part);
    }
    writer.end(&mut body);
    (body, parts)
}

#[test]
fn written_frames_are_read() {
    let mut random = Random::new();
    for _ in 0..3000 {
        let (body, expected) = random_body(&mut random);
        let longest = 1 + random.below(60);
        let parts = parse("sep", &body, || random.below(longest) + 1).unwrap();
        assert!(parts.iter().all(|(head, _)| head.filename().is_some_and(|name| name.starts_with("n\""))));
        assert_eq!(parts.into_iter().map(|(_, data)| data).collect::<Vec<_>>(), expected);
    }
}

#[test]
fn damaged_bodies_end_in_parts_or_errors() {
    let mut random = Random::new();
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(1) {
        let (mut body, _) = random_body(&mut random);
        for _ in 0..1 + random.below(6) {
            let at = random.below(body.len() + 1);
            match random.below(3) {
                0 => body.truncate(at),
                1 => body.insert(at, b"\r\n-sep: \xff"[random.below(9)]),
                _ => {
                    body.splice(at..at.saturating_add(random.below(8)).min(body.len()), []);
                }
            }
        }
        let whole = parse("sep", &body, || usize::MAX);
        let pieces = parse("sep", &body, || random.below(9) + 1);
        if let Ok(parts) = &whole {
            assert!(parts.iter().map(|(_, data)| data.len()).sum::<usize>() <= body.len());
        }
        assert_eq!(pieces, whole, "however it is fed: {}", body.escape_ascii());
    }
}

#[test]
fn little_is_kept() {
    let mut parser = Parser::new("sep");
    parser.feed(b"--sep\r\n\r\n");
    assert!(matches!(parser.next(), Ok(Some(Event::Part(_)))));
    let mut given = 0;
    for _ in 0..1000 {
        parser.feed(&[b'x'; 1000]);
        while let Some(event) = parser.next().unwrap() {
            let Event::Data(data) = event else { panic!("{event:?}") };
            given += data.len();
        }
    }
    assert!(given + 10 > 1_000_000);
}
