//! `settee export`: writes the documents of a database to a file for other programs. The file contains winning
//! revisions, as of the time at which each page was read. Only [`Format::Couchbackup`] contains all leaf revisions with
//! their histories, without tombstones.

mod columns;

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, ensure};
use clap::Args;
use settee_model::json::{Json, Value, write_string};
use settee_replication::{List, Peer, RequestMethod};
use settee_storage::durable::{Readers, Replacement};

use super::{Format, TrustArgs};
use crate::output::refuse_existing;
use crate::remote_server::{RemoteServer, network};
use columns::Columns;

/// No response stays open for hours.
const PAGE: usize = 10_000;

const TOGETHER: usize = 500;

/// Arguments of `settee export`
#[derive(Debug, Args)]
pub struct ExportArgs {
    /// The database, http://user:password@host:port/db
    #[arg(value_name = "URL")]
    database: String,
    /// The file; - for the output
    #[arg(long, value_name = "FILE", default_value = "-")]
    to: PathBuf,
    /// Overwrite an existing file
    #[arg(long)]
    force: bool,
    /// Format of the file
    #[arg(long, value_name = "FORMAT", default_value = "ndjson")]
    format: Format,
    /// CSV: the members that become columns, in this order [default: all; the database is then read twice]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    columns: Vec<String>,
    /// Include the content of attachments, as base64; otherwise documents are written without attachments
    #[arg(long)]
    attachments: bool,
    /// Exclude design documents
    #[arg(long)]
    without_design: bool,
    #[command(flatten)]
    trust: TrustArgs,
}

#[derive(Default)]
struct Report {
    documents: u64,
    stripped: u64,
}

impl ExportArgs {
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        let is_csv = self.format == Format::Csv;
        ensure!(self.columns.is_empty() || is_csv, "--columns requires --format csv");
        ensure!(!self.attachments || !is_csv, "CSV has no attachments");
        let runtime =
            tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start threads")?;
        let report = runtime.block_on(self.export());
        runtime.shutdown_background();
        let Report { documents, stripped } = report?;
        eprintln!("{documents} documents");
        if stripped > 0 {
            eprintln!("{stripped} of them have attachments, which are not in the file; --attachments writes them");
        }
        Ok(ExitCode::SUCCESS)
    }

    async fn export(&self) -> anyhow::Result<Report> {
        let network = network(self.trust.authorities.as_deref())?;
        let source = RemoteServer::database_at(&self.database, &network, &super::tuning())?;
        if self.to == Path::new("-") {
            let mut out = BufWriter::new(io::stdout());
            let report = self.write(&source, &mut out).await?;
            out.flush()?;
            return Ok(report);
        }
        refuse_existing(&self.to, self.force)?;
        let file = Replacement::begin(&self.to, Readers::Owner);
        let file = file.with_context(|| format!("{} cannot be written", self.to.display()))?;
        let mut out = BufWriter::new(file);
        let report = self.write(&source, &mut out).await?;
        let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.commit().context("the file cannot be renamed")?;
        Ok(report)
    }

    async fn write(&self, source: &Peer, out: &mut (dyn Write + Send)) -> anyhow::Result<Report> {
        match self.format {
            Format::Ndjson => self.objects(source, out, ["", "\n", "\n"]).await,
            Format::Json => self.objects(source, out, ["[\n", ",\n", "\n]\n"]).await,
            Format::Csv => self.csv(source, out).await,
            Format::Couchbackup => self.couchbackup(source, out).await,
        }
    }

    async fn objects(
        &self,
        source: &Peer,
        out: &mut (dyn Write + Send),
        [before, between, behind]: [&str; 3],
    ) -> anyhow::Result<Report> {
        let mut report = Report::default();
        let mut documents = self.documents(source);
        out.write_all(before.as_bytes())?;
        while let Some(document) = documents.next().await? {
            if report.documents > 0 {
                out.write_all(between.as_bytes())?;
            }
            let (text, is_stripped) = self.text(document.value());
            out.write_all(&text)?;
            report.documents += 1;
            report.stripped += u64::from(is_stripped);
        }
        if report.documents > 0 || !before.is_empty() {
            out.write_all(behind.as_bytes())?;
        }
        Ok(report)
    }

    async fn csv(&self, source: &Peer, out: &mut (dyn Write + Send)) -> anyhow::Result<Report> {
        let columns = match self.columns.is_empty() {
            false => Columns::of(self.columns.iter().cloned()),
            true => {
                let mut columns = Columns::default();
                let mut documents = self.documents(source);
                while let Some(document) = documents.next().await? {
                    columns.add(document.value())?;
                }
                columns
            }
        };
        let mut report = Report::default();
        columns.write_names(out)?;
        let mut documents = self.documents(source);
        while let Some(document) = documents.next().await? {
            columns.write(document.value(), out)?;
            report.documents += 1;
            report.stripped += u64::from(document.value().get("_attachments").is_some());
        }
        Ok(report)
    }

    async fn couchbackup(&self, source: &Peer, out: &mut (dyn Write + Send)) -> anyhow::Result<Report> {
        let attachments = self.attachments;
        // The version is that of the program that defines the format.
        writeln!(
            out,
            "{{\"name\":\"@cloudant/couchbackup\",\"version\":\"2.11.0\",\"mode\":\"full\",\"attachments\":{attachments}}}"
        )?;
        let mut report = Report::default();
        let mut ids = Documents { fields: "", ..self.documents(source) };
        loop {
            let mut body = b"{\"docs\":[".to_vec();
            let mut count = 0;
            while count < TOGETHER
                && let Some(row) = ids.next_row().await?
            {
                let Some(id) = row.value().get("id").filter(|_| row.value().get("error").is_none()) else { continue };
                body.extend_from_slice(if count > 0 { b",{\"id\":" } else { b"{\"id\":" });
                body.extend_from_slice(id.raw());
                body.push(b'}');
                count += 1;
            }
            if count == 0 {
                return Ok(report);
            }
            body.extend_from_slice(b"]}");
            let path = format!("_bulk_get?revs=true&attachments={attachments}");
            let answer = source.request(RequestMethod::Post, &path, body).await?.json()?;
            let results = answer.value().get("results").context("_bulk_get has no results")?;
            let mut line = b"[".to_vec();
            for document in results.elements().filter_map(|result| result.get("docs")).flat_map(Value::elements) {
                let is_there = |document: &Value<'_>| document.get("_deleted").is_none();
                let Some(document) = document.get("ok").filter(is_there) else { continue };
                let (text, is_stripped) = self.text(document);
                if line.len() > 1 {
                    line.push(b',');
                }
                line.extend_from_slice(&text);
                report.documents += 1;
                report.stripped += u64::from(is_stripped);
            }
            line.extend_from_slice(b"]\n");
            out.write_all(&line)?;
        }
    }

    fn documents<'a>(&self, source: &'a Peer) -> Documents<'a> {
        let fields = if self.attachments { "&include_docs=true&attachments=true" } else { "&include_docs=true" };
        Documents { source, fields, has_design: !self.without_design, page: None, behind: None, seen: 0 }
    }

    fn text(&self, document: Value<'_>) -> (Vec<u8>, bool) {
        let has_attachments = document.get("_attachments").is_some();
        if self.attachments || !has_attachments {
            return (document.raw().to_vec(), false);
        }
        let mut out = Vec::with_capacity(document.raw().len());
        for (name, value) in document.members().filter(|(name, _)| !name.is_string("_attachments")) {
            out.push(if out.is_empty() { b'{' } else { b',' });
            out.extend_from_slice(name.raw());
            out.push(b':');
            out.extend_from_slice(value.raw());
        }
        out.push(b'}');
        (out, true)
    }
}

struct Documents<'a> {
    source: &'a Peer,
    fields: &'static str,
    has_design: bool,
    page: Option<List>,
    behind: Option<String>,
    seen: usize,
}

impl Documents<'_> {
    async fn next(&mut self) -> anyhow::Result<Option<Json>> {
        while let Some(row) = self.next_row().await? {
            if let Some(document) = row.value().get("doc").filter(|document| document.is_object()) {
                return Ok(Some(Json::trusted(document.raw().to_vec())));
            }
        }
        Ok(None)
    }

    async fn next_row(&mut self) -> anyhow::Result<Option<Json>> {
        loop {
            let page = match &mut self.page {
                Some(page) => page,
                None => {
                    let mut path = format!("_all_docs?limit={PAGE}{}", self.fields);
                    if let Some(behind) = &self.behind {
                        let mut key = Vec::new();
                        write_string(&mut key, behind);
                        let key = Peer::document_path(&String::from_utf8_lossy(&key));
                        path.push_str(&format!("&start_key={key}"));
                    }
                    self.seen = 0;
                    self.page.insert(self.source.list(&path).await.context("the documents cannot be listed")?)
                }
            };
            let Some(row) = page.next().await? else {
                if self.seen < PAGE {
                    return Ok(None);
                }
                self.page = None;
                continue;
            };
            self.seen += 1;
            let row = Json::parse(&row).context("a row of _all_docs is not JSON")?;
            let id = row.value().get("id").map(Value::to_text).unwrap_or_default();
            // The last row of a page is the first of the next one, unless it was deleted.
            let is_double = self.behind.as_deref() == Some(&*id);
            let is_wanted = !is_double && (self.has_design || !id.starts_with("_design/"));
            self.behind = Some(id);
            if is_wanted {
                return Ok(Some(row));
            }
        }
    }
}
