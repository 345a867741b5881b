//! Functions of design documents that take too long, return too much, or never return.

use std::time::Duration;

use anyhow::Result;

use crate::attack::client::{base64, head};
use crate::attack::entry::{Attack, Expect, HostileRequest, Text, ask, attack, sixteen_documents};
use crate::attack::target::Target;

pub(super) const ALL: &[Attack] = &[
    Attack { prepare: huge_emits, act: Some(query_view), ..attack("huge-emits", 4) },
    Attack { act: Some(slow_compilation), ..attack("slow-compilation", 4) },
    Attack { prepare: hanging_functions, act: Some(query_view), ..attack("hanging-functions", 60) },
    Attack { prepare: endless_lists, act: Some(endless_list), ..attack("endless-lists", 100) },
    Attack { setup: ENDLESS, requests: ENDLESS_CALLS, ..attack("endless-functions", 8) },
    Attack { prepare: slow_filters, requests: SLOW_FILTERS, act: None, ..attack("slow-filters", 30) },
];

const ENDLESS: &[(&str, &str)] = &[
    ("PUT /public/x", "{}"),
    (
        "PUT /public/_design/d",
        r#"{"views":{"loops":{"map":"function(doc){for(;;);}"},"emits":{"map":"function(doc){for(;;)emit(1,1)}"},
        "grows":{"map":"function(doc){for(var a=[];;)a.push(a.slice())}"},
        "recurs":{"map":"function(doc){(function f(){f()})()}"}},
        "shows":{"s":"function(){for(;;);}"},"filters":{"f":"function(){for(;;);}"},
        "updates":{"u":"function(){for(;;);}"}}"#,
    ),
];

/// Each returns an error, as with CouchDB's timeout of processes.
const ENDLESS_CALLS: &[HostileRequest] = &[
    ask("GET /public/_design/d/_view/loops", Text::Is("")).expects(Expect::Answer(500, "\"error\"")),
    ask("GET /public/_design/d/_view/emits", Text::Is("")).expects(Expect::Answer(500, "\"error\"")),
    ask("GET /public/_design/d/_view/grows", Text::Is("")).expects(Expect::Answer(500, "\"error\"")),
    ask("GET /public/_design/d/_view/recurs", Text::Is("")).expects(Expect::Answer(500, "\"error\"")),
    ask("GET /public/_design/d/_show/s", Text::Is("")).expects(Expect::Answer(500, "os_process_error")),
    ask("GET /public/_changes?filter=d/f", Text::Is("")).expects(Expect::Answer(500, "os_process_error")),
    ask("POST /public/_design/d/_update/u", Text::Is("")).expects(Expect::Answer(500, "os_process_error")),
];

const SLOW_FILTERS: &[HostileRequest] = &[ask("GET /public/_changes?feed=continuous&filter=d/slow", Text::Is(""))
    .expects(Expect::LeavesAfter(Duration::from_secs(2)))];

fn slow_filters(target: &Target) -> Result<()> {
    let docs: Vec<String> = (0..300).map(|number| format!("{{\"_id\":\"{number}\"}}")).collect();
    target.make("POST /public/_bulk_docs", format!("{{\"docs\":[{}]}}", docs.join(",")).as_bytes())?;
    let filter = "function(doc){var end=Date.now()+100;while(Date.now()<end);return false}";
    target.make("PUT /public/_design/d", format!("{{\"filters\":{{\"slow\":\"{filter}\"}}}}").as_bytes())
}

fn view(target: &Target, map: &str) -> Result<()> {
    sixteen_documents(target)?;
    target.make("PUT /public/_design/d", format!("{{\"views\":{{\"v\":{{\"map\":\"{map}\"}}}}}}").as_bytes())
}

fn huge_emits(target: &Target) -> Result<()> {
    view(target, "function(doc){var s='x';while(s.length<60000000){s+=s}emit(s,null)}")
}

fn hanging_functions(target: &Target) -> Result<()> {
    view(target, "function(doc){while(true){}}")
}

fn query_view(target: &Target) {
    let Ok(connection) = target.connect() else { return };
    let _ = connection.with_timeout(Duration::from_secs(10)).ask("GET /public/_design/d/_view/v?limit=1", "", b"");
}

fn endless_lists(target: &Target) -> Result<()> {
    sixteen_documents(target)?;
    let list = "function(head,req){start({});while(true){send('xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx')}}";
    let text =
        format!("{{\"views\":{{\"v\":{{\"map\":\"function(doc){{emit(1)}}\"}}}},\"lists\":{{\"l\":\"{list}\"}}}}");
    target.make("PUT /public/_design/d", text.as_bytes())
}

fn endless_list(target: &Target) {
    let Ok(mut connection) = target.connect() else { return };
    let asked = connection.write(&head("GET /public/_design/d/_list/l/v", "", 0));
    let _ = asked.and_then(|()| connection.drain());
}

/// Each module has one large function. Saving it requires an administrator.
fn slow_compilation(target: &Target) {
    let module = base64(&module(target.count(200_000, 1_300_000)));
    let text = format!("{{\"language\":\"wasm\",\"views\":{{\"v\":{{\"map\":\"{module}\"}}}}}}");
    let Ok(mut connection) = target.connect() else { return };
    let _ = connection.ask("PUT /public/_design/w", &target.admin, text.as_bytes());
}

/// A module with the required exports, whose map function has this number of instructions.
fn module(instructions: usize) -> Vec<u8> {
    let mut out = b"\0asm\x01\0\0\0".to_vec();
    // (i32) -> i32 and (i32, i32) -> i32, a function of each, a memory of one page.
    section(&mut out, 1, b"\x02\x60\x01\x7f\x01\x7f\x60\x02\x7f\x7f\x01\x7f");
    section(&mut out, 3, b"\x02\0\x01");
    section(&mut out, 5, b"\x01\0\x01");
    section(&mut out, 7, b"\x03\x06memory\x02\0\x0csettee_alloc\0\0\x03map\0\x01");
    // Dependent additions, and no locals in addition to the arguments.
    let mut body = vec![0, 0x20, 0];
    for _ in 0..instructions / 2 {
        body.extend_from_slice(b"\x20\x01\x6a\x20\x00\x6c");
    }
    body.push(0x0b);
    let mut code = vec![2, 4, 0, 0x41, 0, 0x0b];
    leb(&mut code, body.len());
    code.extend_from_slice(&body);
    section(&mut out, 10, &code);
    out
}

fn section(out: &mut Vec<u8>, id: u8, content: &[u8]) {
    out.push(id);
    leb(out, content.len());
    out.extend_from_slice(content);
}

fn leb(out: &mut Vec<u8>, mut value: usize) {
    while value >= 0x80 {
        out.push((value & 0x7f | 0x80) as u8);
        value >>= 7;
    }
    out.push(value as u8);
}
