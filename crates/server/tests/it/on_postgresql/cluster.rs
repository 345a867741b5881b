//! Tests of several servers on one PostgreSQL, which must act as one.

use std::net::SocketAddr;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use settee_model::json::Value;

use crate::scratch::Scratch;
use crate::server::{Directory, Server, program, run};
use crate::{Reply, save, wait_for};

/// `name:password` of the administrator.
pub(crate) const ADMIN: &str = "Basic YW5uOnB3";

fn text(reply: &Reply) -> String {
    String::from_utf8(reply.body.clone()).unwrap()
}

pub(crate) fn node(directory: &Directory, url: &str, name: &str) -> Command {
    node_at(0, directory, url, name)
}

pub(crate) fn node_at(port: u16, directory: &Directory, url: &str, name: &str) -> Command {
    let mut command = program(&["serve", "--port", &port.to_string(), "--data"]);
    command.arg(directory.path());
    command.args(["--storage", url, "--node-name", name]).env("COUCHDB_USER", "ann").env("COUCHDB_PASSWORD", "pw");
    command
}

struct Two {
    directories: [Directory; 2],
    servers: Vec<Server>,
    url: String,
    postgres: Scratch,
}

impl Two {
    fn start() -> Option<Self> {
        let postgres = Scratch::start("")?;
        let (directories, url) = ([Directory::new(), Directory::new()], postgres.url());
        let servers = directories.iter().zip(["one@here", "two@here"]);
        let servers = servers.map(|(directory, name)| Server::start_as(directory, &mut node(directory, &url, name)));
        let servers = servers.collect();
        Some(Self { directories, servers, url, postgres })
    }

    fn clients(&self) -> [crate::Client; 2] {
        [0, 1].map(|number: usize| self.servers[number].client().with(ADMIN))
    }
}

#[test]
fn servers_on_one_store_are_one() {
    let Some(two) = Two::start() else { return };
    assert!(
        two.servers[0].greeting.contains("\nThis is node one@here, without other nodes so far\n"),
        "{}",
        two.servers[0].greeting
    );
    let together = "\nThis is node two@here, together with one@here\n";
    assert!(two.servers[1].greeting.contains(together), "{}", two.servers[1].greeting);
    let [one, two_] = &mut two.clients();
    let nodes = "{\"all_nodes\":[\"one@here\",\"two@here\"],\"cluster_nodes\":[\"one@here\",\"two@here\"]}\n";
    wait_for("both to know of each other", || (text(&one.get("/_membership")) == nodes).then_some(()));
    assert_eq!(text(&two_.get("/_membership")), nodes);
    assert_eq!(text(&one.get("/")), text(&two_.get("/")), "one uuid");
    one.put("/db", "").expect(201);
    for number in 0..20 {
        let [writes, reads] = if number % 2 == 0 { [&mut *one, &mut *two_] } else { [&mut *two_, &mut *one] };
        save(writes, &format!("/db/{number}"), "{}");
        reads.get(&format!("/db/{number}")).expect(200);
    }
    for (path, value) in [("vendor/name", "Us"), ("admins/bob", "geheim")] {
        one.put(&format!("/_node/_local/_config/{path}"), &format!("\"{value}\"")).expect(200);
    }
    assert!(text(&two_.get("/")).contains("\"name\":\"Us\""));
    let directory = two.directories[1].path();
    let show = |url: &str| {
        let command = &mut program(&["config", "show", "--set", "vendor/name=Own", "--storage", url, "--data"]);
        String::from_utf8(run(command.arg(directory)).stdout).unwrap()
    };
    let shown = show(&two.url);
    for line in
        ["name = Us ; shared by all nodes", "bob = **** ; shared by all nodes", "bind_address = 127.0.0.1 ; default"]
    {
        assert!(shown.lines().any(|shown| shown == line), "{line} is not in\n{shown}");
    }
    assert!(shown.contains("; [vendor] name is set here but ignored: "), "{shown}");
    let shown = show("postgres://nobody@%2Fnowhere/d");
    let unknown = "; The shared settings cannot be read; they take precedence over the settings below: PostgreSQL cannot be reached";
    assert!(shown.starts_with(unknown) && shown.contains("\nname = Own ; "), "{shown}");
    for (name, password) in [("bob", "geheim"), ("ann", "pw")] {
        let login = &mut two.servers[1].client();
        let body = format!("{{\"name\":\"{name}\",\"password\":\"{password}\"}}");
        let session = login.post("/_session", &body).expect(200);
        let cookie = session.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
        let response = two.servers[0].client().request("GET", "/_session", &[("Cookie", &cookie)], b"").unwrap();
        assert!(text(&response).contains(&format!("\"name\":\"{name}\"")), "{}", text(&response));
    }
    one.put("/_node/two@here/_config/log/level", "\"debug\"").expect(200);
    assert_eq!(text(&two_.get("/_node/_local/_config/log/level")), "\"debug\"\n");
    assert_ne!(text(&one.get("/_node/_local/_config/log/level")), "\"debug\"\n");
    assert!(text(&one.get("/_node/two@here/_system").expect(200)).starts_with("{\"uptime\":"));
    one.get("/_node/three@here/_system").expect(404);
    let token = [("X-Settee-Node", "1:0")];
    assert_eq!(two.servers[0].client().request("GET", "/_active_tasks", &token, b"").unwrap().status, 401);
}

fn polls(client: &mut crate::Client) -> u64 {
    let text = text(&client.get("/_node/_local/_prometheus").expect(200));
    let line = text.lines().find(|line| line.starts_with("settee_engine_polls_total")).expect("the wait is reported");
    line.rsplit(' ').next().and_then(|number| number.parse().ok()).expect("it is a number")
}

/// Small writes do not poll for commits first.
#[test]
fn changes_by_one_server_apply_to_the_next_write_through_another() {
    let Some(two) = Two::start() else { return };
    let [one, two_] = &mut two.clients();
    let config = "/_node/_local/_config/admins/bob";
    let user = |password: &str| format!(r#"{{"name":"eve","type":"user","roles":[],"password":"{password}"}}"#);
    one.put("/db", "").expect(201);
    one.put("/db/_security", r#"{"members":{"names":["eve","bob"]}}"#).expect(200);
    // `bob:geheim` and `eve:first`.
    let [mut bob, mut eve] =
        ["Basic Ym9iOmdlaGVpbQ==", "Basic ZXZlOmZpcnN0"].map(|user| two.servers[1].client().with(user));
    for round in 0..5 {
        one.put(config, "\"geheim\"").expect(200);
        save(&mut bob, &format!("/db/bob{round}"), "{}");
        one.delete(config).expect(200);
        bob.put(&format!("/db/refused{round}"), "{}").expect(401);

        let path = "/_users/org.couchdb.user:eve";
        let rev = save(one, path, &user("first"));
        save(&mut eve, &format!("/db/eve{round}"), "{}");
        let rev = save(one, &format!("{path}?rev={rev}"), &user("second"));
        eve.put(&format!("/db/refused{round}"), "{}").expect(401);
        let rev = save(one, &format!("{path}?rev={rev}"), &user("first"));
        save(&mut eve, &format!("/db/again{round}"), "{}");

        one.put("/db/_security", r#"{"members":{"names":["bob"]}}"#).expect(200);
        eve.put(&format!("/db/refused{round}"), "{}").expect(403);
        one.put("/db/_security", r#"{"members":{"names":["eve","bob"]}}"#).expect(200);
        save(&mut eve, &format!("/db/member{round}"), "{}");

        let validation = r#"{"validate_doc_update":"function () { throw {forbidden: 'no'}; }"}"#;
        let design = save(one, "/db/_design/d", validation);
        eve.put(&format!("/db/refused{round}"), "{}").expect(403);
        one.delete(&format!("/db/_design/d?rev={design}")).expect(200);
        save(&mut eve, &format!("/db/valid{round}"), "{}");

        one.delete(&format!("{path}?rev={rev}")).expect(200);
        eve.put(&format!("/db/refused{round}"), "{}").expect(401);
    }
    let before = polls(two_);
    (0..400).for_each(|number| drop(save(two_, &format!("/db/{number}"), "{}")));
    let made = polls(two_) - before;
    assert!(made < 200, "{made} polls for 400 writes");
    one.delete("/db").expect(200);
    two_.put("/db/late", "{}").expect(404);
}

#[test]
fn other_nodes_take_over_the_replications_of_a_failed_one() {
    let Some(mut two) = Two::start() else { return };
    let [one, two_] = &mut two.clients();
    one.put("/source", "").expect(201);
    for job in 0..8 {
        let asked = format!(
            r#"{{"source":"source","target":"target{job}","create_target":true,"continuous":true,"user_ctx":{{"roles":["_admin"]}}}}"#
        );
        save(one, &format!("/_replicator/r{job}"), &asked);
    }
    let nodes = |reply: &Reply| {
        let json = reply.json();
        let docs = json.value().get("docs").into_iter().flat_map(Value::elements);
        let running = docs.filter(|doc| doc.get("state").and_then(Value::as_str).as_deref() == Some("running"));
        let nodes = running.filter_map(|doc| Some(doc.get("node")?.as_str()?.into_owned()));
        let mut nodes: Vec<String> = nodes.collect();
        nodes.sort();
        nodes
    };
    let of = |nodes: &[String], name: &str| nodes.iter().filter(|node| *node == name).count();
    wait_for("jobs on both", || {
        let found = nodes(&two_.get("/_scheduler/docs"));
        (found.len() == 8 && of(&found, "one@here") > 0 && of(&found, "two@here") > 0).then_some(())
    });
    two.servers.remove(1).kill();
    wait_for("all jobs on one", || (of(&nodes(&one.get("/_scheduler/docs")), "one@here") == 8).then_some(()));
    save(one, "/source/late", "{}");
    for job in 0..8 {
        wait_for("the replication", || (one.get(&format!("/target{job}/late")).status == 200).then_some(()));
    }
    wait_for("the dead one to be gone", || (!text(&one.get("/_membership")).contains("two@here")).then_some(()));
}

#[test]
fn a_query_does_not_wait_for_a_failed_builder() {
    const LIMIT: Duration = Duration::from_secs(2);
    let Some(mut two) = Two::start() else { return };
    let [one, two_] = &mut two.clients();
    one.put("/db", "").expect(201);
    for number in 0..40 {
        save(one, &format!("/db/{number}"), "{}");
    }
    let map = "function (doc) { var end = Date.now() + 50; while (Date.now() < end) {} emit(doc._id, 1); }";
    save(one, "/db/_design/slow", &format!(r#"{{"views":{{"all":{{"map":"{map}"}}}}}}"#));
    let schema = two.url.rsplit('=').next().unwrap();
    let holder = format!(
        "SELECT name FROM {schema}.claims JOIN {schema}.nodes ON nodes.id = claims.node WHERE key LIKE 'index/%'"
    );
    let mut killed = None;
    std::thread::scope(|scope| {
        let path = "/db/_design/slow/_view/all?limit=0";
        let queries = [one, two_].map(|client| scope.spawn(move || client.request("GET", path, &[], b"").ok()));
        let holds = |name: &str| two.postgres.run(&holder) == name;
        let builder = wait_for("a builder", || ["one@here", "two@here"].into_iter().find(|name| holds(name)));
        let number = usize::from(builder == "two@here");
        let process = two.servers.remove(number);
        let begun = Instant::now();
        process.kill();
        let other = ["two@here", "one@here"][number];
        wait_for("the other one to build", || holds(other).then_some(()));
        killed = Some((builder, begun.elapsed()));
        for (at, query) in queries.into_iter().enumerate() {
            let answer = query.join().unwrap();
            if at != number {
                assert_eq!(text(&answer.unwrap()), "{\"total_rows\":40,\"offset\":0,\"rows\":[\r\n\r\n]}\n");
                println!("answered {:?} after the end of {builder}", begun.elapsed());
            }
        }
    });
    let (builder, waited) = killed.unwrap();
    println!("{builder} was killed, and the build continued after {waited:?}");
    assert!(waited < LIMIT, "{waited:?}");
}

#[test]
fn node_names_are_unique_and_kept_after_a_restart() {
    let Some(mut two) = Two::start() else { return };
    let other = Directory::new();
    let output = run(&mut node(&other, &two.url, "a b@here"));
    let printed_text = String::from_utf8(output.stderr).unwrap();
    assert!(printed_text.contains("invalid node name \"a b@here\""), "{printed_text}");
    // One node is killed and restarted immediately: its name is free within seconds. The other one stops in order.
    let killed = two.servers.remove(1);
    killed.kill();
    let again = Server::start_as(&two.directories[1], &mut node(&two.directories[1], &two.url, "two@here"));
    assert!(again.greeting.contains("This is node two@here, together with one@here"), "{}", again.greeting);
    assert!(two.servers.remove(0).terminate().0.success());
    let client = &mut again.client().with(ADMIN);
    wait_for("the other to be gone", || (!text(&client.get("/_membership")).contains("one@here")).then_some(()));
}

/// A client that keeps its connections and retries once on the other server.
struct Retrying<'a> {
    addresses: &'a [Mutex<SocketAddr>; 2],
    connections: [Option<crate::Client>; 2],
}

impl Retrying<'_> {
    /// Returns the reason if the server does not answer with 201.
    fn put(&mut self, server: usize, path: &str) -> Result<(), String> {
        let connection = match self.connections[server].take() {
            Some(connection) => Ok(connection),
            None => crate::Client::try_connect(*self.addresses[server].lock().unwrap()),
        };
        let mut connection = connection.map_err(|error| format!("server {server}: {error}"))?.with(ADMIN);
        let reply = connection.request("PUT", path, &[], b"{}").map_err(|error| format!("server {server}: {error}"))?;
        self.connections[server] = Some(connection);
        if reply.status == 201 { Ok(()) } else { Err(format!("server {server}: {} {}", reply.status, reply.text())) }
    }

    fn save(&mut self, server: usize, path: &str) -> Result<(), String> {
        self.put(server, path).or_else(|first| {
            self.connections[1 - server] = None;
            self.put(1 - server, path).map_err(|second| format!("{first}, then {second}"))
        })
    }
}

#[test]
fn one_retry_suffices_during_a_rolling_restart() {
    let Some(mut two) = Two::start() else { return };
    two.clients()[0].put("/db", "").expect(201);
    let addresses = [0, 1].map(|number: usize| Mutex::new(two.servers[number].address));
    let (is_over, saved, begun) = (AtomicBool::new(false), AtomicU64::new(0), Instant::now());
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let (addresses, is_over, saved) = (&addresses, &is_over, &saved);
            scope.spawn(move || {
                let mut client = Retrying { addresses, connections: [None, None] };
                for number in 0.. {
                    if is_over.load(Ordering::Relaxed) || begun.elapsed() > 2 * crate::TIMEOUT {
                        return;
                    }
                    let saved_by = client.save(number % 2, &format!("/db/{writer}-{number}"));
                    assert_eq!(saved_by, Ok(()), "{writer}-{number}");
                    saved.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for (number, name) in ["one@here", "two@here"].into_iter().enumerate() {
            let before = saved.load(Ordering::Relaxed);
            wait_for("writes through both", || (saved.load(Ordering::Relaxed) > before + 50).then_some(()));
            let command = &mut node(&two.directories[number], &two.url, name);
            let old = two.servers.remove(number);
            assert!(old.terminate().0.success());
            let new = Server::start_as(&two.directories[number], command);
            *addresses[number].lock().unwrap() = new.address;
            two.servers.insert(number, new);
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let count = format!("\"doc_count\":{},", saved.into_inner());
    for client in &mut two.clients() {
        let info = text(&client.get("/db"));
        assert!(info.contains(&count), "{count}: {info}");
    }
}
