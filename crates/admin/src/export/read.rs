//! Restore of a file into a new database.

use data_encoding::HEXLOWER;
use std::io::{self, BufRead, BufReader, Read as _, Write};
use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use settee_model::base64;
use settee_model::json::{Json, Value, write_string};
use sha2::{Digest as _, Sha256};

use crate::regular;

use super::client::Client;
use super::url::{DatabaseUrl, document};
use super::{FORMAT, LINE_BYTES, Report};

const TOGETHER: usize = 500;

const TOGETHER_BYTES: usize = 4 << 20;

/// Lengths are given, so the boundary may occur in the content.
const BOUNDARY: &str = "settee-0f9f5b0c3e6d4d5c8a1e";

/// Creates the database at `url`, which must not exist. `from` is a file, or `-` for the standard input.
pub fn read(from: &Path, url: &str) -> anyhow::Result<Report> {
    let url = DatabaseUrl::parse(url)?;
    if from == Path::new("-") {
        return Import::new(url, BufReader::new(io::stdin().lock()))?.run();
    }
    let is_checked = check(from)?;
    let file = regular::open_named(from).with_context(|| format!("{} cannot be read", from.display()))?;
    let report = Import::new(url, BufReader::new(file))?.run()?;
    Ok(Report { is_checked, ..report })
}

/// Checks that a file is complete before anything is restored from it. Returns false if it has no checksum.
fn check(from: &Path) -> anyhow::Result<bool> {
    let unreadable = || format!("{} cannot be read", from.display());
    let mut input = BufReader::new(regular::open_named(from).with_context(unreadable)?);
    let (mut hasher, mut last, mut next) = (Sha256::new(), Vec::new(), Vec::new());
    while (&mut input).take(LINE_BYTES).read_until(b'\n', &mut next).with_context(unreadable)? > 0 {
        hasher.update(&last);
        last = std::mem::take(&mut next);
    }
    let end = Json::parse(&last).ok().filter(|_| last.ends_with(b"\n"));
    let end = end.filter(|line| line.value().get("end").is_some());
    let Some(end) = end else {
        bail!("the file {} is not complete: its last line is missing. Nothing was restored", from.display());
    };
    let Some(reply) = end.value().get("sha256").and_then(Value::as_str) else { return Ok(false) };
    ensure!(
        HEXLOWER.encode(&hasher.finalize()) == reply,
        "the file {} is damaged: its content differs from what was written. Nothing was restored",
        from.display()
    );
    Ok(true)
}

struct Import<R> {
    client: Client,
    lines: Lines<R>,
    name: String,
    waiting: Vec<u8>,
    count: usize,
    /// Written last, so that their validation functions do not reject older documents.
    design: Vec<Vec<u8>>,
    report: Report,
}

struct Lines<R> {
    input: R,
    number: u64,
}

impl<R: BufRead> Lines<R> {
    fn next(&mut self) -> anyhow::Result<Option<Json>> {
        let mut line = Vec::new();
        self.number += 1;
        let number = self.number;
        (&mut self.input).take(LINE_BYTES).read_until(b'\n', &mut line).context("the file cannot be read")?;
        if line.is_empty() {
            return Ok(None);
        }
        ensure!(line.ends_with(b"\n"), "line {number} is truncated");
        Ok(Some(Json::parse(&line).with_context(|| format!("line {number} is not JSON"))?))
    }
}

impl<R: BufRead> Import<R> {
    fn new(url: DatabaseUrl, input: R) -> anyhow::Result<Self> {
        let name = url.name.clone();
        let lines = Lines { input, number: 0 };
        let (waiting, design) = (Vec::new(), Vec::new());
        Ok(Self { client: Client::connect(url)?, lines, name, waiting, count: 0, design, report: Report::default() })
    }

    fn run(mut self) -> anyhow::Result<Report> {
        let head = self.lines.next()?.context("the file is empty")?;
        let head = head.value();
        let format = head.get("settee_export").and_then(Value::as_u64);
        ensure!(format == Some(FORMAT), "this is not an export, or its version is not supported");
        self.create(head)?;
        let end = loop {
            let line = match self.lines.next() {
                Ok(Some(line)) => line,
                cut => {
                    self.finish()?;
                    let (name, Report { revisions, local, .. }) = (&self.name, self.report);
                    let why =
                        cut.err().map_or_else(|| "its last line is missing".to_owned(), |error| format!("{error:#}"));
                    bail!(
                        "the file is not complete: {why}. The database {name} contains the {revisions} revisions and {local} \
                         local documents that came before"
                    );
                }
            };
            let value = line.value();
            if let Some(doc) = value.get("doc") {
                self.revision(doc, value.get("attachments"))?;
            } else if let Some(local) = value.get("local") {
                self.local(local)?;
            } else if let Some(end) = value.get("end") {
                let number = |name: &str| end.get(name).and_then(Value::as_u64).unwrap_or_default();
                break Report {
                    documents: number("documents"),
                    revisions: number("revisions"),
                    attachments: number("attachments"),
                    local: number("local"),
                    left_out: number("left_out"),
                    is_checked: false,
                };
            }
        };
        self.finish()?;
        let limit = head.get("revs_limit").map_or(&b"1000"[..], Value::raw);
        self.client.send("PUT", "/_revs_limit", limit)?.json("its _revs_limit")?;
        if let Some(security) = head.get("security") {
            // Until here only administrators have access to the database.
            let answer = self.client.send("PUT", "/_security", security.raw())?;
            if answer.status == 400 {
                answer.discard()?;
                let security = String::from_utf8_lossy(security.raw());
                tracing::warn!(%security, "the security object is invalid: only administrators may use the database");
            } else {
                answer.json("its _security")?;
            }
        }
        ensure!(
            (self.report.revisions, self.report.local) == (end.revisions, end.local),
            "the file contains {} revisions and {} local documents, but its last line states {} and {}",
            self.report.revisions,
            self.report.local,
            end.revisions,
            end.local
        );
        Ok(end)
    }

    fn finish(&mut self) -> anyhow::Result<()> {
        self.flush()?;
        for doc in std::mem::take(&mut self.design) {
            self.waiting.push(b',');
            self.waiting.extend_from_slice(&doc);
            self.flush()?;
        }
        Ok(())
    }

    fn create(&mut self, head: Value<'_>) -> anyhow::Result<()> {
        let is_partitioned = head.get("partitioned").and_then(Value::as_bool) == Some(true);
        let answer = self.client.send("PUT", if is_partitioned { "?partitioned=true" } else { "" }, b"")?;
        if answer.status == 412 {
            bail!("the database {} already exists; restore under another name", self.name);
        }
        answer.json("creating the database").map(drop)
    }

    fn revision(&mut self, doc: Value<'_>, attachments: Option<Value<'_>>) -> anyhow::Result<()> {
        self.report.revisions += 1;
        let id = doc.get("_id").and_then(Value::as_str).context("a document has no id")?;
        if let Some(names) = attachments {
            let names: Vec<String> = names.elements().filter_map(|name| Some(name.as_str()?.into_owned())).collect();
            self.report.attachments += names.len() as u64;
            return self.large(&id, doc, &names);
        }
        self.report.attachments += doc.get("_attachments").into_iter().flat_map(Value::members).count() as u64;
        if id.starts_with("_design/") {
            self.design.push(doc.raw().to_vec());
            return Ok(());
        }
        self.waiting.push(b',');
        self.waiting.extend_from_slice(doc.raw());
        self.count += 1;
        if self.count >= TOGETHER || self.waiting.len() >= TOGETHER_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> anyhow::Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let body = [b"{\"new_edits\":false,\"docs\":[", &self.waiting[1..], b"]}"].concat();
        self.waiting.clear();
        self.count = 0;
        let failures = self.client.send("POST", "/_bulk_docs", &body)?.json("writing documents")?;
        match failures.value().elements().next() {
            Some(first) => bail!("a document was rejected: {}", String::from_utf8_lossy(first.raw())),
            None => Ok(()),
        }
    }

    fn large(&mut self, id: &str, doc: Value<'_>, names: &[String]) -> anyhow::Result<()> {
        let stubs = doc.get("_attachments").context("a document lacks its attachments")?;
        let mut text = b"{".to_vec();
        for (name, value) in doc.members().filter(|(name, _)| !name.is_string("_attachments")) {
            text.extend_from_slice(name.raw());
            text.push(b':');
            text.extend_from_slice(value.raw());
            text.push(b',');
        }
        text.extend_from_slice(b"\"_attachments\":{");
        let mut lengths = Vec::new();
        for (index, name) in names.iter().enumerate() {
            let stub = stubs.get(name).with_context(|| format!("{id} has no stub of its attachment {name}"))?;
            lengths.push(stub.get("length").and_then(Value::as_u64).context("an attachment has no length")?);
            if index > 0 {
                text.push(b',');
            }
            write_string(&mut text, name);
            text.extend_from_slice(b":{\"follows\":true");
            for member in ["content_type", "revpos", "length", "digest"] {
                if let Some(value) = stub.get(member) {
                    text.extend_from_slice(format!(",\"{member}\":").as_bytes());
                    text.extend_from_slice(value.raw());
                }
            }
            text.push(b'}');
        }
        text.extend_from_slice(b"}}");
        let first = format!("--{BOUNDARY}\r\nContent-Type: application/json\r\n\r\n");
        let (between, last) = (format!("\r\n--{BOUNDARY}\r\n\r\n"), format!("\r\n--{BOUNDARY}--"));
        let parts: u64 = lengths.iter().map(|length| length + between.len() as u64).sum();
        let length = (first.len() + text.len() + last.len()) as u64 + parts;
        let content_type = format!("multipart/related; boundary=\"{BOUNDARY}\"");
        let path = format!("/{}?new_edits=false", document(id));
        let lines = &mut self.lines;
        let write = |out: &mut dyn Write| {
            out.write_all(first.as_bytes())?;
            out.write_all(&text)?;
            for (name, length) in names.iter().zip(&lengths) {
                out.write_all(between.as_bytes())?;
                copy_attachment(lines, name, *length, out)?;
            }
            Ok(out.write_all(last.as_bytes())?)
        };
        self.client.send_stream(&path, &content_type, length, write)?.json(id).map(drop)
    }

    fn local(&mut self, doc: Value<'_>) -> anyhow::Result<()> {
        let id = doc.get("_id").and_then(Value::as_str).context("a local document has no id")?;
        let mut text = b"{".to_vec();
        let is_kept = |name: &Value<'_>| !name.is_string("_rev") && !name.is_string("_id");
        for (index, (name, value)) in doc.members().filter(|(name, _)| is_kept(name)).enumerate() {
            if index > 0 {
                text.push(b',');
            }
            text.extend_from_slice(name.raw());
            text.push(b':');
            text.extend_from_slice(value.raw());
        }
        text.push(b'}');
        self.client.send("PUT", &format!("/{}", document(&id)), &text)?.json(&id)?;
        self.report.local += 1;
        Ok(())
    }
}

fn copy_attachment<R: BufRead>(
    lines: &mut Lines<R>,
    name: &str,
    length: u64,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let head = lines.next()?.context("an attachment is missing")?;
    let reply = head.value().get("attachment").is_some_and(|reply| reply.is_string(name));
    ensure!(reply, "line {}: expected the attachment {name}", lines.number);
    let mut left = length;
    while left > 0 {
        let line = lines.next()?.with_context(|| format!("the attachment {name} is truncated"))?;
        let data = line.value().get("data").and_then(Value::as_str);
        let bytes = data.and_then(|data| base64::decode(data.as_bytes()));
        let bytes = bytes.with_context(|| format!("line {} contains no data", lines.number))?;
        left = left.checked_sub(bytes.len() as u64).context("an attachment is longer than its stub states")?;
        out.write_all(&bytes)?;
    }
    Ok(())
}
