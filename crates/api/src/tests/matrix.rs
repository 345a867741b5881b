//! Authorization of every route and method for all kinds of users. The file has a line for each permission and kind
//! of database; each route must be authorized by its permission alone.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use hyper::{HeaderMap, Method};

use super::check_file;
use super::node::{Ask, World};
use crate::authentication::authenticate;
use crate::head::RequestHead;
use crate::router::{Resource, Router, Served};
use crate::routes::router;
use crate::tests::show;
use settee_edge::budget::{Account, Share};
use settee_edge::origin::Scheme;
use settee_edge::shutdown::Shutdown;
use settee_service::Permission;

const CALLERS: [&str; 5] = ["anonymous", "stranger", "member", "db admin", "admin"];

const DATABASES: [(&str, &str); 3] = [("db", "a database"), ("_users", "_users"), ("_replicator", "_replicator")];

async fn world() -> World {
    let world = World::new();
    world.node.make_users_database().await.unwrap();
    world.make_database("db");
    world.make_database("_replicator");
    for name in ["stranger", "member", "db admin"] {
        let document = format!(r#"{{"name":"{name}","type":"user","roles":[],"password":"pw"}}"#);
        world.admin(&format!("PUT /_users/org.couchdb.user:{}", name.replace(' ', "%20")), &document).await;
    }
    world.set("couchdb", "users_db_security_editable", "true");
    for (database, _) in DATABASES {
        let security = r#"{"members":{"names":["member"]},"admins":{"names":["db admin"]}}"#;
        world.admin(&format!("PUT /{database}/_security"), security).await;
    }
    world
}

fn path_of(resource: &Resource, database: &str) -> String {
    let parts = resource.path.split('/').map(|part| match part {
        "{db}" => database.to_owned(),
        part => part.trim_matches(['{', '}', '*']).to_owned(),
    });
    parts.collect::<Vec<_>>().join("/").replace("{node}", "_local")
}

async fn verdict(world: &World, router: &Router, method: &Method, path: &str, headers: &HeaderMap) -> String {
    let head = RequestHead {
        method: method.clone(),
        uri: path.parse().unwrap(),
        peer: std::net::Ipv4Addr::LOCALHOST.into(),
        requested: None,
        rewrites: 0,
        scheme: Scheme::Http,
        handler: None,
        seen: std::sync::Arc::default(),
        account: Account::new(&world.node.budget, None, Share::Admin),
    };
    let judge = async {
        let found = authenticate(&world.node.authentication, &head, headers).await?;
        let (_, permission, captures) = router.find(method, path)?;
        Ok(world.node.access.authorize(permission, &found.user, captures.place()).await?)
    };
    judge.await.map_or_else(|error| show(&error), |()| "ok".to_owned())
}

fn headers_of(caller: &str) -> HeaderMap {
    match caller {
        "anonymous" => HeaderMap::new(),
        name => Ask::new("GET /").basic(name, "pw").into_headers(),
    }
}

type Table = BTreeMap<(String, String), Vec<String>>;

async fn judge_all(world: &World) -> Table {
    let router = router(&Shutdown::new());
    let mut table = Table::new();
    for resource in router.resources() {
        let databases: &[(&str, &str)] = if resource.path.starts_with("/{db}") { &DATABASES } else { &[("", "")] };
        for (database, kind) in databases {
            let path = path_of(resource, database);
            for Served { method, permission, .. } in &resource.methods {
                let mut verdicts = Vec::new();
                for caller in CALLERS {
                    verdicts.push(verdict(world, &router, method, &path, &headers_of(caller)).await);
                }
                // System databases refuse their design documents with another message; these routes are open
                // without a login.
                let exception = match resource.path {
                    "/_up" => " of /_up",
                    "/_session" if method == Method::POST => " of POST /_session",
                    path if path.contains("{ddoc}") && *kind != "a database" => " of a design document",
                    _ => "",
                };
                let key = (format!("{permission:?}{exception}"), (*kind).to_owned());
                let known = table.entry(key).or_insert_with(|| verdicts.clone());
                assert_eq!(known, &verdicts, "{method} {path} is authorized unlike other routes with {permission:?}");
            }
        }
    }
    table
}

fn write_table(text: &mut String, title: &str, table: &Table, base: &Table) {
    writeln!(text, "== {title}").unwrap();
    let mut merged: Vec<(&str, Vec<&str>, &Vec<String>)> = Vec::new();
    for ((permission, kind), verdicts) in table {
        if base.get(&(permission.clone(), kind.clone())) == Some(verdicts) {
            continue;
        }
        match merged.iter_mut().find(|(known, _, others)| known == permission && *others == verdicts) {
            Some((_, kinds, _)) => kinds.push(kind),
            None => merged.push((permission, vec![kind], verdicts)),
        }
    }
    for (permission, kinds, verdicts) in merged {
        let kinds: Vec<&str> = kinds.into_iter().filter(|kind| !kind.is_empty()).collect();
        let place = if kinds.is_empty() { String::new() } else { format!(" in {}", kinds.join(", ")) };
        writeln!(text, "{permission}{place}").unwrap();
        let mut groups: Vec<(Vec<&str>, &str)> = Vec::new();
        for (caller, verdict) in CALLERS.iter().zip(verdicts) {
            match groups.last_mut() {
                Some((callers, known)) if known == verdict => callers.push(caller),
                _ => groups.push((vec![caller], verdict)),
            }
        }
        for (callers, verdict) in groups {
            writeln!(text, "    {}: {verdict}", callers.join(", ")).unwrap();
        }
    }
    text.push('\n');
}

#[tokio::test]
async fn all_clients_request_everything() {
    let world = world().await;
    let mut text = String::new();
    let by_default = judge_all(&world).await;
    write_table(&mut text, "by default", &by_default, &Table::new());
    world.set("chttpd", "require_valid_user", "true");
    let closed = judge_all(&world).await;
    write_table(&mut text, "with require_valid_user, what is else than by default", &closed, &by_default);
    world.set("chttpd", "require_valid_user", "false");
    world.set("chttpd", "require_valid_user_except_for_up", "true");
    let but_up = judge_all(&world).await;
    write_table(
        &mut text,
        "with require_valid_user_except_for_up, what is else than with require_valid_user",
        &but_up,
        &closed,
    );
    world.set("chttpd", "require_valid_user_except_for_up", "false");
    world.set("chttpd", "admin_only_all_dbs", "false");
    let lists = judge_all(&world).await;
    write_table(&mut text, "without admin_only_all_dbs, what is else than by default", &lists, &by_default);
    check_file("matrix.txt", &text);
}

#[tokio::test]
async fn without_an_admin_all_users_are_admins_but_must_log_in_where_required() {
    let world = world().await;
    world.set_admins(&[]);
    let router = router(&Shutdown::new());
    let paths = |database: &str| router.resources().iter().map(|one| path_of(one, database)).collect::<BTreeSet<_>>();
    for path in paths("db") {
        let resource = router.resources().iter().find(|resource| path_of(resource, "db") == path).unwrap();
        for Served { method, .. } in &resource.methods {
            let verdict = verdict(&world, &router, method, &path, &HeaderMap::new()).await;
            assert_eq!(verdict, "ok", "{method} {path}");
        }
    }
    world.set("chttpd", "require_valid_user", "true");
    let verdict = verdict(&world, &router, &Method::GET, "/db", &HeaderMap::new()).await;
    assert_eq!(verdict, "401 unauthorized: Authentication required.");
}

#[test]
fn every_permission_is_used_and_judged() {
    let router = router(&Shutdown::new());
    let used: BTreeSet<String> = router
        .resources()
        .iter()
        .flat_map(|one| &one.methods)
        .map(|served| format!("{:?}", served.permission))
        .collect();
    let all = [
        Permission::Anyone,
        Permission::ServerAdmin,
        Permission::ListDatabases,
        Permission::Metrics,
        Permission::Member,
        Permission::Document,
        Permission::DatabaseAdmin,
        Permission::Maintenance,
    ];
    assert_eq!(used, all.iter().map(|permission| format!("{permission:?}")).collect());
}
