//! [`Requests`]: latency, processor time, context switches of one request of each kind, and the distance to the floor.
//! The [`Floor`] repeats the last response to as many clients without a database.

use crate::args::RequestsArgs;
use crate::client::{Answer, Connection};
use crate::cost::Costs;
use crate::floor::{Floor, FloorWork};
use crate::generate::{Documents, IdOrder, Random, SCORES, Shape};
use crate::index::first_answer;
use crate::measure::{Cell, Figure, Measured, Metric, Target, Workload};
use crate::statistics::{median, quantile};
use anyhow::{Context, Result};
use bytes::Bytes;
use hyper::Method;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

const MEDIAN: Metric = Metric::lower("median", "ms");
const P99: Metric = Metric::lower("p99", "ms");
const CPU: Metric = Metric::lower("processor", "µs");
const SWITCHES: Metric = Metric::lower("switches", "");
const FLOOR: Metric = Metric::neither("floor", "ms");
const OVER_FLOOR: Metric = Metric::lower("over floor", "x");

const TRANSFER_MAX: usize = 200 << 20;
const WARM_UP: u64 = 20;
const KB: usize = 1_000;

pub(crate) struct Requests {
    pub(crate) args: RequestsArgs,
    pub(crate) seed: u64,
    pub(crate) directory: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Get,
    Head,
    Put,
    Edit,
    Delete,
    Bulk(u64),
    AllDocsKey,
    ViewKey,
    Reduce,
    Find,
    BulkGet,
    ChangesTail,
    ChangesDocIds,
    Show,
    Update,
    ReadYourWrite,
    Upload(usize),
    Download(usize),
    CreateDatabase,
}

const KINDS: [Kind; 25] = [
    Kind::Get,
    Kind::Head,
    Kind::Put,
    Kind::Edit,
    Kind::Delete,
    Kind::Bulk(1),
    Kind::Bulk(10),
    Kind::Bulk(100),
    Kind::AllDocsKey,
    Kind::ViewKey,
    Kind::Reduce,
    Kind::Find,
    Kind::BulkGet,
    Kind::ChangesTail,
    Kind::ChangesDocIds,
    Kind::Show,
    Kind::Update,
    Kind::ReadYourWrite,
    Kind::Upload(KB),
    Kind::Upload(1_000 * KB),
    Kind::Upload(20_000 * KB),
    Kind::Download(KB),
    Kind::Download(1_000 * KB),
    Kind::Download(20_000 * KB),
    Kind::CreateDatabase,
];

impl Kind {
    fn label(self) -> String {
        match self {
            Kind::Get => "GET document".into(),
            Kind::Head => "HEAD document".into(),
            Kind::Put => "PUT a new document".into(),
            Kind::Edit => "PUT an edit".into(),
            Kind::Delete => "DELETE document".into(),
            Kind::Bulk(count) => format!("_bulk_docs of {count}"),
            Kind::AllDocsKey => "_all_docs, one key".into(),
            Kind::ViewKey => "view, one key".into(),
            Kind::Reduce => "reduce of all".into(),
            Kind::Find => "_find with an index".into(),
            Kind::BulkGet => "_bulk_get of 20".into(),
            Kind::ChangesTail => "_changes since the last".into(),
            Kind::ChangesDocIds => "_changes, _doc_ids".into(),
            Kind::Show => "show function".into(),
            Kind::Update => "update function".into(),
            Kind::ReadYourWrite => "view after a write".into(),
            Kind::Upload(bytes) => format!("attachment upload, {} kB", bytes / KB),
            Kind::Download(bytes) => format!("attachment download, {} kB", bytes / KB),
            Kind::CreateDatabase => "create a database".into(),
        }
    }

    fn writes(self) -> bool {
        match self {
            Kind::Put | Kind::Edit | Kind::Delete | Kind::Bulk(_) | Kind::Update | Kind::Upload(_) => true,
            Kind::CreateDatabase => true,
            Kind::Get | Kind::Head | Kind::AllDocsKey | Kind::ViewKey | Kind::Reduce | Kind::Find => false,
            Kind::BulkGet | Kind::ChangesTail | Kind::ChangesDocIds | Kind::Show => false,
            Kind::ReadYourWrite | Kind::Download(_) => false,
        }
    }

    fn floor_work(self) -> FloorWork {
        match self {
            Kind::Download(_) => FloorWork::Copy,
            kind if kind.writes() => FloorWork::Append,
            _ => FloorWork::Lookup,
        }
    }
}

pub(crate) struct Loaded {
    path: String,
    documents: Documents,
    /// Clients that have written: no two of them may write the same document.
    writers: u64,
}

impl Workload for Requests {
    type Prepared = Loaded;

    fn title(&self) -> String {
        format!("requests: {} documents, {} requests per client", self.args.docs, self.args.requests)
    }

    fn cells(&self) -> Vec<Cell> {
        let cells = self.kinds().map(|(kind, clients)| match clients {
            1 => Cell::new(kind.label()),
            clients => Cell::new(format!("{}, {clients} clients", kind.label())),
        });
        cells.collect()
    }

    async fn prepare(&self, target: &Target) -> Result<Loaded> {
        let shape = Shape::Score { size: 0 };
        let documents = Documents { shape, order: IdOrder::Random, seed: self.seed, count: self.args.docs };
        let mut database = target.create_loaded("requests", &documents).await?;
        database.save_design("d", &design()).await?;
        let path = database.path.clone();
        for bytes in [KB, 1_000 * KB, 20_000 * KB] {
            let file = format!("{path}/files-{bytes}/file");
            let saved = database.connection.upload(&file, random_bytes(self.seed, bytes)).await?;
            saved.expect_status(&[201, 202], &file)?;
        }
        let index = json!({"index": {"fields": ["username"]}}).to_string();
        let indexes = format!("{path}/_index");
        database.connection.send(Method::POST, &indexes, index).await?.expect_status(&[200], &indexes)?;
        first_answer(&mut database, &format!("{path}/_design/d/_view/by_score")).await?;
        Ok(Loaded { path, documents, writers: 0 })
    }

    async fn measure(&self, target: &Target, loaded: &mut Loaded, cell: usize, _run: u32) -> Result<Measured> {
        let (kind, clients) = self.kinds().nth(cell).context("no such cell")?;
        let mut ready = Vec::new();
        for _ in 0..clients {
            ready.push(self.client(target, loaded, kind).await?);
        }
        let before = target.pid.map(Costs::read);
        let (mut tasks, end) = (JoinSet::new(), self.end());
        for client in ready {
            tasks.spawn(client.run(kind, self.count(kind), end));
        }
        let (mut latencies_ms, mut last) = (Vec::new(), None);
        while let Some(finished) = tasks.join_next().await {
            let (latencies, sent, answer) = finished??;
            latencies_ms.extend(latencies);
            last = Some((sent, answer));
        }
        let (p50, p99) = (median(&latencies_ms), quantile(&latencies_ms, 0.99));
        let mut figures = vec![Figure::new(MEDIAN, p50), Figure::new(P99, p99)];
        if let (Some(pid), Some(before)) = (target.pid, before) {
            let cost = Costs::read(pid).since(&before);
            let per_request = |value: u64| value as f64 / latencies_ms.len() as f64;
            figures.push(Figure::new(CPU, per_request(cost.cpu_ns) / 1e3));
            figures.push(Figure::new(SWITCHES, per_request(cost.switches)));
        }
        if let Some((request, answer)) = last {
            let floor = self.floor((kind, clients), &request, &answer).await?;
            figures.push(Figure::new(FLOOR, floor));
            figures.push(Figure::new(OVER_FLOOR, p50 / floor));
        }
        Ok(Measured::Figures(figures, None))
    }
}

impl Requests {
    fn kinds(&self) -> impl Iterator<Item = (Kind, usize)> {
        let counts = [1, self.args.clients];
        let both = KINDS.into_iter().flat_map(move |kind| counts.map(|clients| (kind, clients)));
        // Large attachments measure the disk and the network, regardless of the number of clients.
        both.filter(|(kind, clients)| {
            *clients == 1 || !matches!(kind, Kind::Upload(bytes) | Kind::Download(bytes) if *bytes > KB)
        })
    }

    fn count(&self, kind: Kind) -> u64 {
        match kind {
            Kind::Upload(bytes) | Kind::Download(bytes) => self.args.requests.min((TRANSFER_MAX / bytes) as u64),
            Kind::CreateDatabase => self.args.requests.min(100),
            _ => self.args.requests,
        }
    }

    fn end(&self) -> Instant {
        Instant::now() + Duration::from_secs_f64(self.args.seconds)
    }

    async fn client(&self, target: &Target, loaded: &mut Loaded, kind: Kind) -> Result<Client> {
        loaded.writers += 1;
        let mut connection = target.server.connect().await?;
        let info = connection.get_json(&loaded.path).await?;
        let mut client = Client {
            connection,
            path: loaded.path.clone(),
            documents: loaded.documents,
            since: info["update_seq"].as_str().context("update_seq is no text")?.to_owned(),
            random: Random::of(self.seed, 6, loaded.writers),
            name: format!("{}-{}", target.names, loaded.writers),
            sent: 0,
            revs: Vec::new(),
            file: Bytes::new(),
        };
        match kind {
            Kind::Edit | Kind::Update => client.write_own(1).await?,
            Kind::Delete => client.write_own(self.count(kind)).await?,
            Kind::Upload(bytes) => client.file = random_bytes(self.seed, bytes),
            _ => {}
        }
        for _ in 0..if kind.writes() { 0 } else { WARM_UP.min(self.count(kind)) } {
            client.one(kind).await?;
        }
        Ok(client)
    }

    /// Returns the median latency of the floor.
    async fn floor(&self, (kind, clients): (Kind, usize), request: &Sent, answer: &Answer) -> Result<f64> {
        let floor = Floor::start(answer, kind.floor_work(), &self.directory)?;
        let (mut tasks, count, end) = (JoinSet::new(), self.count(kind), self.end());
        for _ in 0..clients {
            let (mut connection, request) = (floor.server.connect().await?, request.clone());
            tasks.spawn(async move {
                let mut latencies_ms = Vec::new();
                while (latencies_ms.len() as u64) < count && (latencies_ms.is_empty() || Instant::now() < end) {
                    let body = request.body.clone();
                    let started = Instant::now();
                    connection.send(request.method.clone(), &request.path, body).await?;
                    latencies_ms.push(started.elapsed().as_secs_f64() * 1e3);
                }
                anyhow::Ok(latencies_ms)
            });
        }
        let mut latencies_ms = Vec::new();
        while let Some(finished) = tasks.join_next().await {
            latencies_ms.extend(finished??);
        }
        Ok(median(&latencies_ms))
    }
}

#[derive(Clone)]
struct Sent {
    method: Method,
    path: String,
    body: Bytes,
}

struct Client {
    connection: Connection,
    path: String,
    documents: Documents,
    since: String,
    random: Random,
    name: String,
    sent: u64,
    /// Own documents with their revisions. Each deletion takes the last one.
    revs: Vec<(String, String)>,
    file: Bytes,
}

impl Client {
    async fn run(mut self, kind: Kind, count: u64, end: Instant) -> Result<(Vec<f64>, Sent, Answer)> {
        let mut latencies_ms = Vec::new();
        loop {
            let (elapsed_ms, request, answer) = self.one(kind).await?;
            latencies_ms.push(elapsed_ms);
            if latencies_ms.len() as u64 >= count || Instant::now() >= end {
                return Ok((latencies_ms, request, answer));
            }
        }
    }

    async fn one(&mut self, kind: Kind) -> Result<(f64, Sent, Answer)> {
        self.sent += 1;
        if kind == Kind::ReadYourWrite {
            let (id, body) = self.new_document();
            let path = format!("{}/{id}", self.path);
            self.connection.send(Method::PUT, &path, body).await?.expect_status(&[201, 202], &path)?;
        }
        let request = self.request(kind);
        let (method, path, body) = (request.method.clone(), &request.path, request.body.clone());
        let started = Instant::now();
        let answer = match kind {
            Kind::Upload(_) => self.connection.upload(path, body).await?,
            _ => self.connection.send(method, path, body).await?,
        };
        let elapsed_ms = started.elapsed().as_secs_f64() * 1e3;
        let answer = answer.expect_status(&[200, 201, 202], path)?;
        match kind {
            Kind::Edit => self.revs[0].1 = answer.json()?["rev"].as_str().context("no revision")?.to_owned(),
            Kind::CreateDatabase => {
                self.connection.send(Method::DELETE, path, Bytes::new()).await?.expect_status(&[200, 202], path)?;
            }
            _ => {}
        }
        Ok((elapsed_ms, request, answer))
    }

    fn request(&mut self, kind: Kind) -> Sent {
        let (path, id) = (self.path.clone(), self.any_id());
        let get = |rest: String| Sent { method: Method::GET, path: format!("{path}/{rest}"), body: Bytes::new() };
        let post = |rest: &str, body: Value| Sent {
            method: Method::POST,
            path: format!("{path}/{rest}"),
            body: body.to_string().into(),
        };
        match kind {
            Kind::Get => get(id),
            Kind::Head => Sent { method: Method::HEAD, ..get(id) },
            Kind::Put => {
                let (id, body) = self.new_document();
                Sent { method: Method::PUT, body: body.into(), ..get(id) }
            }
            Kind::Edit => {
                let (id, rev) = self.revs[0].clone();
                let mut body = format!(r#"{{"_rev":"{rev}","#).into_bytes();
                self.documents.write_members(self.sent, &mut body);
                body.push(b'}');
                Sent { method: Method::PUT, body: body.into(), ..get(id) }
            }
            Kind::Delete => {
                let (id, rev) = self.revs.pop().unwrap_or_default();
                Sent { method: Method::DELETE, ..get(format!("{id}?rev={rev}")) }
            }
            Kind::Bulk(count) => {
                let first = self.random.below(1 << 50);
                let documents = Documents { seed: self.random.next(), ..self.documents };
                Sent { body: documents.bulk_body(first..first + count).into(), ..post("_bulk_docs", Value::Null) }
            }
            Kind::AllDocsKey => get(format!("_all_docs?key=%22{id}%22")),
            Kind::ViewKey => {
                get(format!("_design/d/_view/by_score?reduce=false&limit=1&key={}", self.random.below(SCORES)))
            }
            Kind::Reduce | Kind::ReadYourWrite => get("_design/d/_view/by_score".into()),
            Kind::Find => {
                let user = format!("user{:05}", self.random.below(100_000));
                post("_find", json!({"selector": {"username": user}, "limit": 1}))
            }
            Kind::BulkGet => {
                let docs: Vec<Value> = (0..20).map(|_| json!({"id": self.any_id()})).collect();
                post("_bulk_get", json!({"docs": docs}))
            }
            Kind::ChangesTail => get(format!("_changes?since={}", self.since)),
            Kind::ChangesDocIds => post("_changes?filter=_doc_ids", json!({"doc_ids": [id]})),
            Kind::Show => get(format!("_design/d/_show/name/{id}")),
            Kind::Update => post(&format!("_design/d/_update/count/{}", self.revs[0].0), Value::Null),
            Kind::Upload(_) => {
                let path = format!("{}-{}/file", self.name, self.sent);
                Sent { method: Method::PUT, body: self.file.clone(), ..get(path) }
            }
            Kind::Download(bytes) => get(format!("files-{bytes}/file")),
            Kind::CreateDatabase => {
                Sent { method: Method::PUT, path: format!("/{}-{}", self.name, self.sent), body: Bytes::new() }
            }
        }
    }

    fn any_id(&mut self) -> String {
        self.documents.id(self.random.below(self.documents.count))
    }

    fn new_document(&mut self) -> (String, Vec<u8>) {
        let random = self.random.next();
        (format!("{random:016x}-{}-{}", self.name, self.sent), self.documents.body(self.sent))
    }

    /// Only this client edits or deletes the documents.
    async fn write_own(&mut self, count: u64) -> Result<()> {
        let documents = Documents { seed: self.random.next(), ..self.documents };
        let path = format!("{}/_bulk_docs", self.path);
        let saved = self.connection.send(Method::POST, &path, documents.bulk_body(0..count)).await?;
        let rows = saved.expect_status(&[201, 202], &path)?.json()?;
        for row in rows.as_array().context("the answer is no array")? {
            let text = |name: &str| row[name].as_str().map(str::to_owned).context("a document was not written");
            self.revs.push((text("id")?, text("rev")?));
        }
        Ok(())
    }
}

fn design() -> Value {
    json!({
        "views": {"by_score": {"map": "function(doc) { if (doc.metadata) emit(doc.score, null); }", "reduce": "_count"}},
        "shows": {"name": "function(doc, req) { return doc.username; }"},
        "updates": {"count": "function(doc, req) { doc.count = (doc.count || 0) + 1; return [doc, 'ok']; }"},
    })
}

fn random_bytes(seed: u64, length: usize) -> Bytes {
    let mut bytes = Vec::with_capacity(length + 8);
    let mut random = Random::new(seed);
    while bytes.len() < length {
        bytes.extend_from_slice(&random.next().to_le_bytes());
    }
    bytes.truncate(length);
    bytes.into()
}
