//! Runs the configurations of docs/operation/cluster.md and packaging/cluster.yaml: three nodes behind each proxy.

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::cluster::{ADMIN, node, node_at};
use crate::scratch::{Scratch, skip};
use crate::server::{Directory, Server, program, run};
use crate::{Client, TIMEOUT, number, save, wait_for};

const MANUAL: &str = include_str!("../../../../../docs/operation/cluster.md");
const CLUSTER: &str = include_str!("../../../../../packaging/cluster.yaml");
const IMAGE: &str = include_str!("../../../../../packaging/Dockerfile");

const NAMES: [&str; 3] = ["one@here", "two@here", "three@here"];

struct Kind {
    program: &'static str,
    package: &'static str,
    /// Start of the line of the manual before its configuration.
    title: &'static str,
    /// The listening address in the manual, and its replacement for `{port}` of this machine.
    listens: [&'static str; 2],
    /// Text before and after the manual's part. `{dir}` is a directory.
    around: [&'static str; 2],
    arguments: &'static [&'static str],
    /// True if the proxy polls `/_up`.
    checks: bool,
    /// Number of retries after which every write succeeds when a node was killed. Caddy does not repeat writes itself.
    retries: u32,
}

const KINDS: [Kind; 3] = [
    Kind {
        program: "nginx",
        package: "nginx-light",
        title: "For nginx",
        listens: ["listen 443 ssl;", "listen 127.0.0.1:{port};"],
        around: [
            "daemon off; master_process off; user root; pid {dir}/pid; error_log stderr;\nevents {}\nhttp {\naccess_log off;\n\
             client_body_temp_path {dir}/1; proxy_temp_path {dir}/2; fastcgi_temp_path {dir}/3; uwsgi_temp_path {dir}/4;\n\
             scgi_temp_path {dir}/5;\n",
            "}\n",
        ],
        arguments: &["-e", "stderr", "-c"],
        checks: false,
        retries: 1,
    },
    Kind {
        program: "haproxy",
        package: "haproxy",
        title: "For HAProxy",
        listens: ["bind :5984", "bind 127.0.0.1:{port}"],
        around: ["", ""],
        arguments: &["-db", "-f"],
        checks: true,
        retries: 1,
    },
    Kind {
        program: "caddy",
        package: "caddy",
        title: "For Caddy",
        listens: ["couch.example.org {", "http://:{port} {\n bind 127.0.0.1"],
        around: ["{\n admin off\n}\n", ""],
        arguments: &["run", "--adapter", "caddyfile", "--config"],
        checks: true,
        retries: 2,
    },
];

fn installed(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into()]);
    folders.map(|folder| folder.join(program)).find(|file| file.is_file())
}

fn of_manual(title: &str) -> &'static str {
    let (_, rest) = MANUAL.split_once(&format!("\n{title}")).or_else(|| MANUAL.split_once(title)).unwrap();
    let (_, rest) = rest.split_once("\n```").unwrap();
    let (_, rest) = rest.split_once('\n').unwrap();
    rest.split_once("```").unwrap().0
}

#[track_caller]
fn replaced(text: &str, label: &str, by: &str) -> String {
    assert!(text.contains(label), "{label} is not in {text}");
    text.replace(label, by)
}

struct Proxy {
    address: SocketAddr,
    child: Child,
    _directory: Directory,
}

impl Proxy {
    fn start(kind: &Kind, file: PathBuf, nodes: &[Server]) -> Self {
        let directory = Directory::new();
        // No other process takes a port that was just released, because the system assigns ports in sequence.
        let address = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).unwrap();
        let [listens, instead] = kind.listens;
        let mut text =
            replaced(of_manual(kind.title), listens, &instead.replace("{port}", &address.port().to_string()));
        for (number, node) in (1..).zip(nodes) {
            text = replaced(&text, &format!("node{number}:5984"), &node.address.to_string());
        }
        let [before, after] = kind.around;
        let text = format!("{before}{text}{after}").replace("{dir}", &directory.path().display().to_string());
        let configuration = directory.path().join("configuration");
        fs::write(&configuration, text).unwrap();
        let log = fs::File::create(directory.path().join("log")).unwrap();
        let mut command = Command::new(file);
        command.args(kind.arguments).arg(&configuration).env("HOME", directory.path()).stdin(Stdio::null());
        let mut child = command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap();
        wait_for("the proxy", || {
            let log = || fs::read_to_string(directory.path().join("log")).unwrap();
            assert!(child.try_wait().unwrap().is_none(), "{} ended: {}", kind.program, log());
            TcpStream::connect(address).ok()
        });
        Self { address, child, _directory: directory }
    }

    fn client(&self) -> Client {
        Client::connect(self.address).with(ADMIN)
    }

    fn all(&self, servers: &[Server]) -> Vec<String> {
        let answered = || servers.iter().map(missed).collect::<Vec<_>>();
        let before = answered();
        (0..30).for_each(|number| drop(self.client().get(&format!("/absent{number}")).expect(404)));
        let more = || -> Vec<i64> { answered().iter().zip(&before).map(|(after, before)| after - before).collect() };
        let more = wait_for("the counts", || Some(more()).filter(|more| more.iter().sum::<i64>() >= 30));
        let reached = servers.iter().zip(more).filter(|(_, more)| *more > 0);
        let mut names: Vec<String> = reached.map(|(server, _)| own_name(server)).collect();
        names.sort();
        names
    }
}

fn own_name(server: &Server) -> String {
    let reply = server.client().with(ADMIN).get("/_node/_local/_config/cluster/node").expect(200);
    reply.text().trim().trim_matches('"').to_owned()
}

fn missed(server: &Server) -> i64 {
    let path = "/_node/_local/_stats/couchdb/httpd_status_codes/404";
    let reply = server.client().with(ADMIN).get(path).expect(200).json();
    number(reply.value(), "value")
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn sorted(names: &[&str]) -> Vec<String> {
    let mut names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    names.sort();
    names
}

struct Cluster {
    servers: Vec<Server>,
    directories: [Directory; 3],
    url: String,
    _postgres: Scratch,
}

impl Cluster {
    fn start() -> Option<Self> {
        let postgres = Scratch::start("")?;
        let directories = NAMES.map(|_| Directory::new());
        let url = postgres.url();
        let started = directories.iter().zip(NAMES);
        let started = started.map(|(directory, name)| Server::start_as(directory, &mut node(directory, &url, name)));
        Some(Self { servers: started.collect(), directories, url, _postgres: postgres })
    }

    /// Stops a node in order, and starts it again at its address.
    fn restart(&mut self, number: usize) {
        let old = self.servers.remove(number);
        let (port, directory) = (old.address.port(), &self.directories[number]);
        assert!(old.terminate().0.success());
        let command = &mut node_at(port, directory, &self.url, NAMES[number]);
        self.servers.insert(number, Server::start_as(directory, command));
    }
}

fn behind(kinds: &[Kind], test: impl Fn(&Kind, &Proxy, &mut Cluster, &str)) {
    for kind in kinds {
        let Some(file) = installed(kind.program) else {
            skip(&format!("{0} is missing: install the Debian package {1}", kind.program, kind.package));
            continue;
        };
        let Some(mut cluster) = Cluster::start() else { return };
        let proxy = Proxy::start(kind, file, &cluster.servers);
        test(kind, &proxy, &mut cluster, kind.program);
    }
}

#[test]
fn requests_go_to_all_nodes_whole_and_unbuffered() {
    behind(&KINDS, |kind, proxy, cluster, name| {
        let servers = &cluster.servers;
        assert_eq!(proxy.all(servers), sorted(&NAMES), "{name}");
        let client = &mut proxy.client();
        client.put("/db", "").expect(201);
        let reply = client.put("/db/a%2Fb%20%2B", "{}").expect(201);
        assert_eq!(reply.header("location"), Some("http://settee.test/db/a%2Fb%20%2B"), "{name}");
        assert!(client.get("/db/a%2Fb%20%2B").expect(200).text().starts_with(r#"{"_id":"a/b +","#), "{name}");
        let mut feed = proxy.client();
        feed.send("GET", "/db/_changes?feed=continuous&since=now&heartbeat=1000", &[], b"").unwrap();
        assert_eq!(feed.reply_head().unwrap().status, 200);
        for number in 0..5 {
            save(client, &format!("/db/change{number}"), "{}");
            let line = feed.chunks_until("}\n");
            assert!(line.contains(&format!("\"change{number}\"")), "{name}: {line}");
        }
        let bytes: Vec<u8> = (0..20 << 20).map(|at: u32| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let kind_of_bytes = [("Content-Type", "application/octet-stream")];
        client.request("PUT", "/db/long/bytes", &kind_of_bytes, &bytes).unwrap().expect(201);
        assert!(client.get("/db/long/bytes").expect(200).body == bytes, "{name}");
        if kind.checks {
            let mode = "/_node/_local/_config/couchdb/maintenance_mode";
            servers[1].client().with(ADMIN).put(mode, "\"true\"").expect(200);
            wait_for("the proxy to notice", || (proxy.all(servers) == sorted(&[NAMES[0], NAMES[2]])).then_some(()));
            servers[1].client().with(ADMIN).put(mode, "\"false\"").expect(200);
            wait_for("the proxy to notice", || (proxy.all(servers) == sorted(&NAMES)).then_some(()));
        }
    });
}

/// Writes through the proxy, and retries after a missing response or a server error. Returns the longest time.
fn write(proxy: &Proxy, writer: usize, retries: u32, (is_over, saved): (&AtomicBool, &AtomicU64)) -> Duration {
    let (mut connection, mut longest, begun) = (None, Duration::ZERO, Instant::now());
    for number in 0.. {
        if is_over.load(Ordering::Relaxed) || begun.elapsed() > 2 * TIMEOUT {
            break;
        }
        let path = format!("/db{writer}/{number}");
        let mut put = || {
            let mut client = connection.take().unwrap_or_else(|| proxy.client());
            let begun = Instant::now();
            let answer = client.request("PUT", &path, &[], b"{}");
            longest = longest.max(begun.elapsed());
            let status = answer.ok().map(|reply| reply.status).filter(|status| *status < 500);
            connection = status.is_some().then_some(client);
            status
        };
        let status = (0..=retries).find_map(|_| put());
        // An earlier attempt of the proxy or of this client may have written it.
        assert!(matches!(status, Some(201 | 409)), "{path}: {status:?}");
        saved.fetch_add(1, Ordering::Relaxed);
    }
    longest
}

/// Runs `disturb` while four clients write, each into its own database. Every write must succeed, and exist.
fn write_during(proxy: &Proxy, (name, retries): (&str, u32), disturb: impl FnOnce(&dyn Fn(u64))) {
    let databases = [0, 1, 2, 3];
    databases.iter().for_each(|number| drop(proxy.client().put(&format!("/db{number}"), "").expect(201)));
    let (is_over, saved) = (AtomicBool::new(false), AtomicU64::new(0));
    let longest = std::thread::scope(|scope| {
        let writers = databases.map(|number| {
            let (is_over, saved) = (&is_over, &saved);
            scope.spawn(move || write(proxy, number, retries, (is_over, saved)))
        });
        disturb(&|count| {
            let before = saved.load(Ordering::Relaxed);
            wait_for("writes", || (saved.load(Ordering::Relaxed) >= before + count).then_some(()));
        });
        is_over.store(true, Ordering::Relaxed);
        writers.map(|writer| writer.join().unwrap()).into_iter().max().unwrap()
    });
    let saved = i64::try_from(saved.into_inner()).unwrap();
    println!("{name}: {saved} writes, the longest took {longest:?}");
    let count =
        |database| number(proxy.client().get(&format!("/db{database}")).expect(200).json().value(), "doc_count");
    assert_eq!(databases.map(count).iter().sum::<i64>(), saved, "{name}");
}

#[test]
fn few_retries_suffice_after_a_node_was_killed() {
    behind(&KINDS, |kind, proxy, cluster, name| {
        write_during(proxy, (name, kind.retries), |more| {
            more(100);
            cluster.servers.remove(0).kill();
            more(400);
        });
        assert_eq!(proxy.all(&cluster.servers), sorted(&NAMES[1..]), "{name}");
    });
}

#[test]
fn one_retry_suffices_during_a_rolling_restart_of_three_nodes() {
    // The others send no requests to a restarted node for 5 or 10 s, during which there is nothing to test.
    behind(&KINDS[1..2], |_, proxy, cluster, name| {
        write_during(proxy, (name, 1), |more| {
            for number in 0..NAMES.len() {
                more(200);
                cluster.restart(number);
                // The proxy may not send requests to the node before it has checked it.
                wait_for("all nodes", || (proxy.all(&cluster.servers) == sorted(&NAMES)).then_some(()));
            }
            more(200);
        });
    });
}

fn value(text: &str) -> String {
    let Some((before, rest)) = text.split_once("${") else { return text.to_owned() };
    let (variable, after) = rest.split_once('}').unwrap();
    let default = variable.split_once(":-").map_or("pw", |(_, default)| default);
    format!("{before}{default}{after}")
}

/// The arguments of the first line of the image's description that starts with `line`, in the form `CMD ["…", …]`.
fn arguments(line: &str) -> Vec<&'static str> {
    let line = IMAGE.lines().find(|found| found.starts_with(line)).unwrap();
    let list = line.split_once("CMD [").unwrap().1.trim_end_matches(']');
    list.split(", ").map(|argument| argument.trim_matches('"')).collect()
}

/// The first node as its container starts it, on a PostgreSQL with the settings of the primary, with its health check.
#[test]
fn a_container_reads_its_start_parameters() {
    let primary = CLUSTER.split_once("      postgres ").unwrap().1.split_once("    environment:").unwrap().0;
    let Some(postgres) = Scratch::start(&primary.split_whitespace().collect::<Vec<_>>().join(" ")) else { return };
    assert_eq!(postgres.run("SHOW max_connections"), "250");
    let (node, _) = CLUSTER.split_once("  node2:").unwrap();
    let lines = node.lines().filter_map(|line| line.trim().split_once(": "));
    let is_variable = |name: &str| name.chars().all(|c| c.is_ascii_uppercase() || c == '_');
    let mut variables: Vec<(String, String)> =
        lines.filter(|(name, _)| is_variable(name)).map(|(name, text)| (name.to_owned(), value(text))).collect();
    let of_volume = "ENV SETTEE_DATA=/opt/couchdb/data/settee SETTEE_CONFIG=/opt/couchdb/etc SETTEE_USER=5984:5984 ";
    let image = IMAGE.lines().find_map(|line| line.strip_prefix(of_volume)).unwrap();
    let of_image = image.split_whitespace().filter_map(|variable| variable.split_once('='));
    variables.extend(of_image.map(|(name, value)| (name.to_owned(), value.to_owned())));
    let directory = Directory::new();
    for (name, value) in &mut variables {
        match name.as_str() {
            "SETTEE_STORAGE" => {
                assert!(settee_storage_postgres::Options::parse(value).is_ok(), "{value}");
                *value = postgres.url();
            }
            "SETTEE_CHTTPD__BIND_ADDRESS" => *value = replaced(value, "0.0.0.0", "127.0.0.1"),
            _ => {}
        }
    }
    variables.push(("SETTEE_CHTTPD__PORT".to_owned(), "0".to_owned()));
    variables.push(("SETTEE_DATA".to_owned(), directory.path().display().to_string()));
    let of_image = |line: &str| {
        let (settee, rest) = arguments(line).split_first().map(|(name, rest)| (*name, rest.to_vec())).unwrap();
        assert_eq!(settee, "settee");
        let mut command = program(&rest);
        command.envs(variables.iter().map(|(name, value)| (name, value)));
        command
    };
    let server = Server::start_as(&directory, &mut of_image("CMD"));
    assert!(server.greeting.contains("This is node settee@node1, without other nodes so far"), "{}", server.greeting);
    let client = &mut server.client().with("Basic YWRtaW46cHc=");
    client.get("/_all_dbs").expect(200);
    let address = client.get("/_node/_local/_config/cluster/address").expect(200).text();
    assert_eq!(address, "\"http://node1:5984/\"\n");
    let output = run(&mut of_image("HEALTHCHECK"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let mut command = program(&["config", "show"]);
    let shown = run(command.envs(variables.iter().map(|(name, value)| (name, value))));
    let notices = String::from_utf8(shown.stderr).unwrap();
    assert!(shown.status.success() && !notices.contains("SETTEE_"), "{notices}");
    let shown = String::from_utf8(shown.stdout).unwrap();
    for (name, _) in variables.iter().filter(|(name, _)| name.contains("__")) {
        assert!(shown.lines().any(|line| line.ends_with(&format!("; {name}"))), "{name} is not in {shown}");
    }
}

#[test]
fn the_proxy_of_containers_is_that_of_the_manual() {
    let trimmed = |text: &str| text.lines().map(str::trim).map(str::to_owned).collect::<Vec<_>>();
    let (_, rest) = CLUSTER.split_once("      :5984 {\n").unwrap();
    let (block, _) = rest.split_once("  # ").unwrap();
    assert_eq!(trimmed(block), trimmed(of_manual("For Caddy").trim_start_matches("couch.example.org {\n")));
}
