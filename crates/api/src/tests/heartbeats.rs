//! Heartbeats of feeds whose filter finds nothing for a long time.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use settee_design::{
    CallError, CompileError, DesignProgram, DesignSource, DocumentBatch, Language, Limits, ListSession, ListSink,
    MapSource, Program,
};
use settee_mango::MangoLanguage;
use settee_storage::memory::MemoryEngine;

use super::live::Live;
use super::node::EmptyView;
use super::parts::parts;

/// JavaScript whose filters wait for the gate and then reject every document.
#[derive(Clone, Default)]
struct Gated(Arc<Gate>);

#[derive(Default)]
struct Gate {
    is_open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn set(&self, is_open: bool) {
        *self.is_open.lock() = is_open;
        self.opened.notify_all();
    }
}

impl Language for Gated {
    fn name(&self) -> &str {
        "javascript"
    }

    fn program(&self, _: &MapSource, _: Limits) -> Result<Box<dyn Program>, CompileError> {
        Ok(Box::new(EmptyView))
    }

    fn design_program(&self, _: &DesignSource, _: Limits) -> Result<Box<dyn DesignProgram>, CompileError> {
        Ok(Box::new(self.clone()))
    }
}

impl DesignProgram for Gated {
    fn call(&mut self, _: &[&str], _: &[&[u8]]) -> Result<Vec<u8>, CallError> {
        Err(CallError::NotFound("no functions".to_owned()))
    }

    fn filter(&mut self, _: &[&str], batch: &DocumentBatch, _: Option<&[u8]>) -> Result<Vec<bool>, CallError> {
        let mut is_open = self.0.is_open.lock();
        self.0.opened.wait_while(&mut is_open, |is_open| !*is_open);
        Ok(vec![false; batch.len()])
    }

    fn list<'a>(
        &'a mut self,
        _: &str,
        _: &[u8],
        _: &[u8],
        _: &mut dyn ListSink,
    ) -> Result<Box<dyn ListSession + 'a>, CallError> {
        Err(CallError::NotFound("no lists".to_owned()))
    }

    fn take_log(&mut self) -> Vec<String> {
        Vec::new()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_feed_shows_that_it_lives_while_its_filter_rejects_everything() {
    let language = Gated::default();
    let languages: Vec<Arc<dyn Language>> = vec![Arc::new(language.clone()), Arc::new(MangoLanguage)];
    let server = Live::of(parts(Arc::new(MemoryEngine::new()), languages)).await;
    assert_eq!(server.request("PUT /db", "").await.status, 201);
    let design = r#"{"filters":{"f":"x"},"views":{"v":{"map":"x"}}}"#;
    assert_eq!(server.request("PUT /db/_design/d", design).await.status, 201);
    for id in 0..9 {
        assert_eq!(server.request(&format!("PUT /db/{id}"), "{}").await.status, 201);
    }
    // The heartbeat of most feeds is a chunk of one byte.
    for (feed, beat, end) in [
        ("feed=normal", "1", "\"pending\":0}"),
        ("feed=longpoll&limit=1", "1", "\"pending\":0}"),
        ("feed=continuous", "1", "\"pending\":0}"),
        ("feed=eventsource", "event: heartbeat", ""),
    ] {
        for filter in ["filter=d/f", "filter=_view&view=d/v"] {
            for rest in ["", "&include_docs=true", "&style=all_docs"] {
                // Feeds without `heartbeat` send one after each `timeout`, which finally ends the feed.
                for quiet in ["heartbeat=20", "timeout=20"] {
                    language.0.set(false);
                    let mut client = server.client().await;
                    let line = format!("GET /db/_changes?{feed}&{filter}&{quiet}{rest}");
                    client.send(&line, &[("Connection", "close")], "").await;
                    assert_eq!(client.head().await, "HTTP/1.1 200 OK", "{line}");
                    for _ in 0..2 {
                        client.read_until(beat).await;
                    }
                    language.0.set(true);
                    if quiet == "timeout=20" || feed == "feed=normal" {
                        let rest = String::from_utf8(client.rest().await).unwrap();
                        assert!(rest.contains(end), "{line}: {rest}");
                    }
                }
            }
        }
    }
    language.0.set(true);
    server.stop().await;
}
