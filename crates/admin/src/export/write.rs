//! Export of a database to a file.

use data_encoding::HEXLOWER;
use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, BufWriter, Read as _, Seek as _, Write};
use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use settee_model::base64;
use settee_model::json::{Json, Value, write_array, write_string};
use settee_storage::durable::{Readers, Replacement};
use sha2::{Digest as _, Sha256};

use super::client::Client;
use super::url::{DatabaseUrl, document, segment};
use super::{FORMAT, INLINE_BYTES, Report};
use crate::bulk_get;

const TOGETHER: usize = 100;

const PIECE_BYTES: usize = 48 << 10;

const LOCAL_BATCH: usize = 200;

/// `to` is a file, or `-` for the standard output. The file exists only when it is complete.
pub fn write(url: &str, to: &Path) -> anyhow::Result<Report> {
    let url = DatabaseUrl::parse(url)?;
    if to == Path::new("-") {
        let mut out = BufWriter::new(io::stdout().lock());
        let report = Export::new(url, &mut out)?.run()?;
        out.flush()?;
        return Ok(report);
    }
    let file = Replacement::begin(to, Readers::Owner).with_context(|| format!("{} cannot be written", to.display()))?;
    let mut out = BufWriter::new(file);
    let report = Export::new(url, &mut out)?.run()?;
    out.into_inner().map_err(io::IntoInnerError::into_error)?.commit().context("the file cannot be renamed")?;
    Ok(report)
}

struct Export<'a> {
    url: DatabaseUrl,
    client: Client,
    out: Hashed<'a>,
    report: Report,
}

struct Hashed<'a> {
    out: &'a mut dyn Write,
    hasher: Sha256,
}

impl Write for Hashed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let length = self.out.write(bytes)?;
        self.hasher.update(&bytes[..length]);
        Ok(length)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

struct Wanted {
    id: String,
    rev: String,
}

impl<'a> Export<'a> {
    fn new(url: DatabaseUrl, out: &'a mut dyn Write) -> anyhow::Result<Self> {
        let client = Client::connect(url.clone())?;
        let out = Hashed { out, hasher: Sha256::new() };
        Ok(Self { url, client, out, report: Report { is_checked: true, ..Report::default() } })
    }

    fn run(mut self) -> anyhow::Result<Report> {
        self.head()?;
        let mut rows = self.spool_changes()?;
        let (mut wanted, mut line) = (Vec::new(), String::new());
        while rows.read_line(&mut line)? > 0 {
            self.report.documents += take_row(&line, &mut wanted)?;
            line.clear();
            if wanted.len() >= TOGETHER {
                self.batch(&std::mem::take(&mut wanted))?;
            }
        }
        self.batch(&wanted)?;
        if let Err(error) = self.local_documents() {
            self.leave_out(None, None, &format!("local documents: {error:#}"))?;
        }
        let Report { documents, revisions, attachments, local, left_out, .. } = self.report;
        let digest = HEXLOWER.encode(&self.out.hasher.clone().finalize());
        writeln!(
            self.out,
            "{{\"end\":{{\"documents\":{documents},\"revisions\":{revisions},\"attachments\":{attachments},\"local\":{local},\
             \"left_out\":{left_out}}},\"sha256\":\"{digest}\"}}"
        )?;
        Ok(self.report)
    }

    /// If the server cannot read some of the revisions, they are requested one by one.
    fn batch(&mut self, wanted: &[Wanted]) -> anyhow::Result<()> {
        let before = self.report;
        match self.fetch(wanted) {
            Ok(answer) => self.found(&answer, wanted),
            Err(_) => {
                self.report = before;
                // The connection may have failed in the middle of a response.
                self.client = Client::connect(self.url.clone())?;
                wanted.iter().try_for_each(|wanted| self.alone(wanted))
            }
        }
    }

    fn alone(&mut self, wanted: &Wanted) -> anyhow::Result<()> {
        let one = std::slice::from_ref(wanted);
        match self.fetch(one) {
            Ok(answer) => self.found(&answer, one),
            Err(error) => {
                self.client = Client::connect(self.url.clone())?;
                self.leave_out(Some(&wanted.id), Some(&wanted.rev), &format!("{error:#}"))
            }
        }
    }

    fn leave_out(&mut self, id: Option<&str>, rev: Option<&str>, why: &str) -> anyhow::Result<()> {
        self.report.left_out += 1;
        let mut line = b"{\"left_out\":{".to_vec();
        for (name, value) in [("id", id), ("rev", rev)] {
            if let Some(value) = value {
                line.extend_from_slice(format!("\"{name}\":").as_bytes());
                write_string(&mut line, value);
                line.push(b',');
            }
        }
        line.extend_from_slice(b"\"why\":");
        write_string(&mut line, why);
        line.extend_from_slice(b"}}\n");
        let about = id.map_or_else(String::new, |id| format!("{id} {}: ", rev.unwrap_or_default()));
        eprintln!("left out: {about}{why}");
        Ok(self.out.write_all(&line)?)
    }

    fn head(&mut self) -> anyhow::Result<()> {
        let info = self.client.send("GET", "", b"")?.json("the database")?;
        let props = info.value().get("props").and_then(|props| props.get("partitioned")?.as_bool());
        let limit = self.client.send("GET", "/_revs_limit", b"")?.json("its _revs_limit")?;
        let security = self.client.send("GET", "/_security", b"")?.json("its _security")?;
        let mut line = format!("{{\"settee_export\":{FORMAT},\"database\":").into_bytes();
        write_string(&mut line, &self.url.name);
        line.extend_from_slice(format!(",\"partitioned\":{},\"revs_limit\":", props.unwrap_or(false)).as_bytes());
        line.extend_from_slice(limit.as_bytes());
        line.extend_from_slice(b",\"security\":");
        line.extend_from_slice(security.as_bytes());
        line.extend_from_slice(b"}\n");
        Ok(self.out.write_all(&line)?)
    }

    /// Writes the rows of all changes to an unnamed temporary file, because reading the revisions takes longer than the
    /// write timeout of a server. If the update sequence is damaged, changes are read from its start and from its end,
    /// and then documents by their ids.
    fn spool_changes(&mut self) -> anyhow::Result<BufReader<File>> {
        let path = std::env::temp_dir().join(format!("settee-export-{}", std::process::id()));
        let mut options = File::options();
        let spool = options.read(true).write(true).create_new(true).open(&path);
        let mut spool = spool.with_context(|| format!("{} cannot be written", path.display()))?;
        fs::remove_file(&path)?;
        let mut seen = HashSet::new();
        if let Err(error) = self.spool("/_changes?style=all_docs", &mut spool, None) {
            let why = format!("{error:#}");
            spool.rewind()?;
            for line in BufReader::new(&spool).lines() {
                seen.extend(row_id(&line?));
            }
            spool.seek(io::SeekFrom::End(0))?;
            for path in ["/_changes?style=all_docs&descending=true", "/_all_docs"] {
                // This request fails too, at the other side of the damage.
                let _ = self.spool(path, &mut spool, Some(&mut seen));
            }
            self.leave_out(None, None, &format!("changes in an unreadable part of the update sequence: {why}"))?;
        }
        spool.rewind()?;
        Ok(BufReader::new(spool))
    }

    fn spool(&self, path: &str, spool: &mut File, mut seen: Option<&mut HashSet<String>>) -> anyhow::Result<()> {
        let mut client = Client::connect(self.url.clone())?;
        let rows = client.send("GET", path, b"")?.ok("its rows")?;
        let mut out = BufWriter::new(spool);
        for line in BufReader::new(rows).lines() {
            let line = line.context("its rows")?;
            ensure!(!line.starts_with("{\"error\""), "its rows were interrupted: {line}");
            let is_new = seen.as_mut().is_none_or(|seen| row_id(&line).is_some_and(|id| seen.insert(id)));
            if is_new {
                writeln!(out, "{line}")?;
            }
        }
        Ok(out.flush()?)
    }

    fn fetch(&mut self, wanted: &[Wanted]) -> anyhow::Result<Json> {
        let body = bulk_get::body(wanted.iter().map(|Wanted { id, rev }| (id.as_str(), rev.as_str())));
        self.client.send("POST", "/_bulk_get?revs=true", &body)?.json("documents")
    }

    fn found(&mut self, answer: &Json, wanted: &[Wanted]) -> anyhow::Result<()> {
        let results = answer.value().get("results").context("the response of _bulk_get has no results")?;
        for (result, wanted) in results.elements().zip(wanted) {
            for doc in result.get("docs").into_iter().flat_map(Value::elements) {
                if let Err(error) = self.one(wanted, doc) {
                    // An error of the output file is not an error of the document.
                    self.out.flush()?;
                    self.client = Client::connect(self.url.clone())?;
                    self.leave_out(Some(&wanted.id), Some(&wanted.rev), &format!("{error:#}"))?;
                }
            }
        }
        Ok(())
    }

    fn one(&mut self, wanted: &Wanted, doc: Value<'_>) -> anyhow::Result<()> {
        if let Some(found) = doc.get("ok") {
            return self.revision(&wanted.id, found);
        }
        let error = doc.get("error").and_then(|error| error.get("error")?.as_str());
        match error.as_deref() {
            Some("not_found") | None => self.successors(&wanted.id),
            Some(_) => bail!("{}", String::from_utf8_lossy(doc.raw())),
        }
    }

    fn successors(&mut self, id: &str) -> anyhow::Result<()> {
        let path = format!("/{}?open_revs=all&revs=true", document(id));
        let answer = self.client.send("GET", &path, b"")?;
        if answer.status == 404 {
            return answer.discard().map(drop);
        }
        let answer = answer.json(id)?;
        for leaf in answer.value().elements() {
            if let Some(found) = leaf.get("ok") {
                self.revision(id, found)?;
            }
        }
        Ok(())
    }

    fn revision(&mut self, id: &str, found: Value<'_>) -> anyhow::Result<()> {
        let attachments: Vec<(String, u64)> = found
            .get("_attachments")
            .into_iter()
            .flat_map(Value::members)
            .map(|(name, stub)| {
                (
                    name.as_str().unwrap_or_default().into_owned(),
                    stub.get("length").and_then(Value::as_u64).unwrap_or(0),
                )
            })
            .collect();
        let count = attachments.len() as u64;
        let counted = Report {
            revisions: self.report.revisions + 1,
            attachments: self.report.attachments + count,
            ..self.report
        };
        if attachments.is_empty() {
            self.report = counted;
            return self.line("doc", found.raw());
        }
        let rev = found.get("_rev").and_then(Value::as_str).context("a document has no revision")?;
        if attachments.iter().map(|(_, length)| length).sum::<u64>() > INLINE_BYTES {
            // A partly written attachment cannot be undone, so it is read twice.
            for (name, length) in &attachments {
                let path = format!("/{}/{}?rev={rev}", document(id), segment(name));
                let mut body = self.client.send("GET", &path, b"")?.ok(name)?;
                ensure!(io::copy(&mut body, &mut io::sink())? == *length, "the attachment {name} is incomplete");
            }
            self.report = counted;
            return self.large(id, &rev, found, &attachments);
        }
        let path = format!("/{}?rev={rev}&revs=true&attachments=true", document(id));
        let whole = self.client.send("GET", &path, b"")?.json(id)?;
        self.report = counted;
        self.line("doc", whole.as_bytes())
    }

    fn large(&mut self, id: &str, rev: &str, found: Value<'_>, attachments: &[(String, u64)]) -> anyhow::Result<()> {
        let mut line = b"{\"doc\":".to_vec();
        line.extend_from_slice(found.raw());
        line.extend_from_slice(b",\"attachments\":");
        write_array(&mut line, attachments, |line, (name, _)| write_string(line, name));
        line.extend_from_slice(b"}\n");
        self.out.write_all(&line)?;
        for (name, length) in attachments {
            let mut line = b"{\"attachment\":".to_vec();
            write_string(&mut line, name);
            line.extend_from_slice(format!(",\"bytes\":{length}}}\n").as_bytes());
            self.out.write_all(&line)?;
            let path = format!("/{}/{}?rev={rev}", document(id), segment(name));
            let mut body = self.client.send("GET", &path, b"")?.ok(name)?;
            let mut sent = 0;
            loop {
                let mut piece = Vec::with_capacity(PIECE_BYTES);
                io::Read::by_ref(&mut body).take(PIECE_BYTES as u64).read_to_end(&mut piece)?;
                if piece.is_empty() {
                    break;
                }
                sent += piece.len() as u64;
                let mut line = b"{\"data\":\"".to_vec();
                base64::encode(&piece, &mut line);
                line.extend_from_slice(b"\"}\n");
                self.out.write_all(&line)?;
            }
            ensure!(sent == *length, "the attachment {name} of {id} has {sent} bytes instead of {length}");
        }
        Ok(())
    }

    fn local_documents(&mut self) -> anyhow::Result<()> {
        let mut start: Option<String> = None;
        loop {
            let mut path = format!("/_local_docs?include_docs=true&limit={LOCAL_BATCH}");
            if let Some(start) = &start {
                let mut key = Vec::new();
                write_string(&mut key, start);
                path.push_str(&format!("&skip=1&startkey={}", segment(&String::from_utf8_lossy(&key))));
            }
            let answer: Json = self.client.send("GET", &path, b"")?.json("its local documents")?;
            let rows: Vec<Value<'_>> = answer.value().get("rows").into_iter().flat_map(Value::elements).collect();
            for row in &rows {
                let doc = row.get("doc").context("a row of _local_docs has no document")?;
                self.line("local", doc.raw())?;
                self.report.local += 1;
            }
            let last = rows.last().and_then(|row| row.get("id")?.as_str().map(std::borrow::Cow::into_owned));
            if rows.len() < LOCAL_BATCH || last.is_none() {
                return Ok(());
            }
            start = last;
        }
    }

    fn line(&mut self, name: &str, value: &[u8]) -> anyhow::Result<()> {
        write!(self.out, "{{\"{name}\":")?;
        // A line feed within JSON is only whitespace between members.
        let text: Vec<u8> = value.iter().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { *byte }).collect();
        self.out.write_all(text.trim_ascii_end())?;
        Ok(self.out.write_all(b"}\n")?)
    }
}

/// `None` for the lines around the rows.
fn row(line: &str) -> anyhow::Result<Option<Json>> {
    let text = line.trim().trim_end_matches(',');
    if !text.starts_with("{\"seq\"") && !text.starts_with("{\"id\"") {
        ensure!(!text.starts_with("{\"error\""), "its _changes feed was interrupted: {text}");
        return Ok(None);
    }
    Ok(Some(Json::parse(text.as_bytes()).context("a row of _changes is not JSON")?))
}

fn row_id(line: &str) -> Option<String> {
    row(line).ok()??.value().get("id")?.as_str().map(std::borrow::Cow::into_owned)
}

fn take_row(line: &str, wanted: &mut Vec<Wanted>) -> anyhow::Result<u64> {
    let Some(row) = row(line)? else { return Ok(0) };
    let row = row.value();
    let id = row.get("id").and_then(Value::as_str).context("a row of _changes has no id")?.into_owned();
    let changes = row.get("changes").into_iter().flat_map(Value::elements);
    for change in changes.chain(row.get("value")) {
        let rev = change.get("rev").and_then(Value::as_str).context("a change has no revision")?.into_owned();
        wanted.push(Wanted { id: id.clone(), rev });
    }
    Ok(1)
}
