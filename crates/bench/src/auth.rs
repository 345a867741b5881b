//! [`Auth`]: cost of authentication. The same small document is read without credentials, with basic credentials, a
//! session cookie and a token; also during a flood of wrong passwords. Every cell also reads without credentials before
//! and after. The workload changes settings of the server in its memory only, and restores them.

use crate::args::AuthArgs;
use crate::client::{Connection, Credentials, basic};
use crate::measure::{Cell, Database, Figure, Measured, Metric, Target, Workload, check};
use anyhow::{Context, Result, anyhow};
use hyper::Method;
use hyper::header::HeaderValue;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

const RATE: Metric = Metric::higher("requests", "/s");
const SHARE: Metric = Metric::higher("of nobody's", "%");
const REFUSED: Metric = Metric::neither("wrong passwords", "/s");

const USER: &str = "settee-bench";
const PASSWORD: &str = "settee-bench-password";

/// A token for [`USER`] that is valid until the year 2100, and the key that signed it.
const TOKEN: &str = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCIsImtpZCI6InNldHRlZS1iZW5jaCJ9.eyJzdWIiOiJzZXR0ZWUtYmVuY2giLCJleHAiOjQxMDI0NDQ4MDB9.IfjG0b34oH0XGaWvC-0wnaLMFnfafro3vU_ukFVfdp4";
const TOKEN_KEY: &str = "c2V0dGVlLWJlbmNoLXNlY3JldA==";

const SETTINGS: [(&str, &str, &str); 3] = [
    (
        "chttpd",
        "authentication_handlers",
        "{chttpd_auth, cookie_authentication_handler}, {chttpd_auth, jwt_authentication_handler}, \
         {chttpd_auth, default_authentication_handler}",
    ),
    ("jwt_keys", "hmac:settee-bench", TOKEN_KEY),
    ("chttpd_auth", "timeout", "3600"),
];

const ATTACKERS: u64 = 20;

pub(crate) struct Auth {
    pub(crate) args: AuthArgs,
}

pub(crate) struct Opened {
    database: Database,
    cookie: HeaderValue,
    before: Vec<Option<String>>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Proof {
    Anonymous,
    Basic,
    Cookie,
    Token,
    BasicUnderAttack,
    AnonymousUnderAttack,
}

const PROOFS: [(Proof, &str); 6] = [
    (Proof::Anonymous, "no credentials"),
    (Proof::Basic, "basic credentials"),
    (Proof::Cookie, "session cookie"),
    (Proof::Token, "JSON web token"),
    (Proof::BasicUnderAttack, "basic credentials, while wrong passwords of others arrive"),
    (Proof::AnonymousUnderAttack, "no credentials, while wrong passwords of others arrive"),
];

impl Auth {
    fn credentials(&self, proof: Proof, opened: &Opened) -> Result<Credentials> {
        Ok(match proof {
            Proof::Anonymous | Proof::AnonymousUnderAttack => Credentials::None,
            Proof::Basic | Proof::BasicUnderAttack => Credentials::Authorization(basic(USER, PASSWORD)?),
            Proof::Cookie => Credentials::Cookie(opened.cookie.clone()),
            Proof::Token => Credentials::Authorization(HeaderValue::from_str(&format!("Bearer {TOKEN}"))?),
        })
    }

    async fn read(&self, target: &Target, path: &str, credentials: &Credentials) -> Result<f64> {
        let server = Arc::new(target.server.with(credentials.clone()));
        server.connect().await?.get(path).await?;
        let mut connections = Vec::new();
        for _ in 0..self.args.clients.max(1) {
            connections.push(server.connect().await?);
        }
        let started = Instant::now();
        let end = started + Duration::from_secs_f64(self.args.seconds);
        let mut clients = JoinSet::new();
        for mut connection in connections {
            let path = path.to_owned();
            clients.spawn(async move {
                let mut count = 0_u64;
                while Instant::now() < end {
                    let answer = connection.get(&path).await?;
                    check(answer.body.starts_with(br#"{"_id":"small""#), || answer.excerpt())?;
                    count += 1;
                }
                anyhow::Ok(count)
            });
        }
        let mut count = 0;
        while let Some(client) = clients.join_next().await {
            count += client??;
        }
        Ok(count as f64 / started.elapsed().as_secs_f64())
    }

    async fn attack(&self, target: &Target, answers: Arc<AtomicU64>) -> Result<JoinSet<Result<()>>> {
        let interval = Duration::from_secs_f64(ATTACKERS as f64 / self.args.wrong_passwords.max(1) as f64);
        let mut attackers = JoinSet::new();
        for attacker in 0..ATTACKERS {
            let (server, answers, users) = (Arc::clone(&target.server), Arc::clone(&answers), self.args.users.max(1));
            attackers.spawn(async move {
                let mut ticks = tokio::time::interval(interval);
                let mut number = attacker;
                let mut connection: Option<Connection> = None;
                loop {
                    ticks.tick().await;
                    let wrong = basic(&victim(number % users), "wrong")?;
                    number += ATTACKERS;
                    let mut asking = match connection.take() {
                        Some(connection) => connection,
                        None => Arc::new(server.with(Credentials::None)).connect().await?,
                    };
                    asking.authorize(Credentials::Authorization(wrong));
                    // A slow response, which waits for a password hash, must not delay the next request.
                    let asked = tokio::time::timeout(interval, asking.get_any("/_session"));
                    if let Ok(answer) = asked.await {
                        let status = answer?.status;
                        check([401, 403, 429].contains(&status), || format!("{status} to a wrong password"))?;
                        connection = Some(asking);
                    }
                    answers.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        Ok(attackers)
    }
}

fn victim(number: u64) -> String {
    format!("settee-bench-victim-{number}")
}

async fn save_users(connection: &mut Connection, users: Vec<Value>) -> Result<()> {
    for batch in users.chunks(500) {
        let body = json!({ "docs": batch }).to_string();
        let answer = connection.send(Method::POST, "/_users/_bulk_docs", body).await?;
        answer.expect_status(&[201, 202], "users")?;
    }
    Ok(())
}

impl Workload for Auth {
    type Prepared = Opened;

    fn title(&self) -> String {
        format!("auth: one small document, {} clients", self.args.clients)
    }

    fn cells(&self) -> Vec<Cell> {
        PROOFS.iter().map(|(_, label)| Cell::new(*label)).collect()
    }

    async fn prepare(&self, target: &Target) -> Result<Opened> {
        let mut database = target.create_database("auth").await?;
        let connection = &mut database.connection;
        let path = format!("{}/_security", database.path);
        connection.send(Method::PUT, &path, "{}").await?.expect_status(&[200, 201], &path)?;
        let path = format!("{}/small", database.path);
        connection.send(Method::PUT, &path, r#"{"n":1}"#).await?.expect_status(&[201, 202], &path)?;
        let mut before = Vec::new();
        for (section, key, value) in SETTINGS {
            before.push(connection.configure(section, key, Some(value)).await?);
        }
        let user = json!({"_id": format!("org.couchdb.user:{USER}"), "name": USER, "type": "user", "roles": [],
            "password": PASSWORD});
        save_users(connection, vec![user]).await?;
        let victims = (0..self.args.users).map(|number| {
            let name = victim(number);
            json!({"_id": format!("org.couchdb.user:{name}"), "name": name, "type": "user", "roles": [],
                "password_scheme": "pbkdf2", "pbkdf2_prf": "sha256", "iterations": 600_000, "salt": name,
                "derived_key": "00".repeat(32)})
        });
        save_users(connection, victims.collect()).await?;
        let body = json!({"name": USER, "password": PASSWORD}).to_string();
        let answer = connection.send(Method::POST, "/_session", body).await?.expect_status(&[200], "login")?;
        let cookie = answer.headers.get("set-cookie").context("the login set no cookie")?;
        let cookie = cookie.to_str()?.split(';').next().unwrap_or_default();
        Ok(Opened { cookie: HeaderValue::from_str(cookie)?, database, before })
    }

    async fn measure(&self, target: &Target, opened: &mut Opened, cell: usize, _: u32) -> Result<Measured> {
        let (proof, _) = PROOFS[cell];
        let credentials = self.credentials(proof, opened)?;
        let path = format!("{}/small", opened.database.path);
        let under_attack = matches!(proof, Proof::BasicUnderAttack | Proof::AnonymousUnderAttack);
        // Under attack the reference is the same read without an attack.
        let others = if under_attack { credentials.clone() } else { Credentials::None };
        let before = self.read(target, &path, &others).await?;
        let mut figures = Vec::new();
        let rate = if under_attack {
            let answers = Arc::<AtomicU64>::default();
            let mut attackers = self.attack(target, Arc::clone(&answers)).await?;
            let (started, sent_before) = (Instant::now(), answers.load(Ordering::Relaxed));
            let rate = self.read(target, &path, &credentials).await?;
            let sent = answers.load(Ordering::Relaxed) - sent_before;
            figures.push(Figure::new(REFUSED, sent as f64 / started.elapsed().as_secs_f64()));
            if let Some(ended) = attackers.try_join_next() {
                let error = ended?.err().unwrap_or_else(|| anyhow!("an attacker panicked"));
                return Err(error.context("wrong passwords"));
            }
            rate
        } else {
            self.read(target, &path, &credentials).await?
        };
        let after = self.read(target, &path, &others).await?;
        figures.insert(0, Figure::new(RATE, rate));
        figures.insert(1, Figure::new(SHARE, 200.0 * rate / (before + after)));
        Ok(Measured::Figures(figures, None))
    }

    async fn finish(&self, _: &Target, mut opened: Opened) -> Result<()> {
        let connection = &mut opened.database.connection;
        for ((section, key, _), before) in SETTINGS.iter().zip(opened.before) {
            connection.configure(section, key, before.as_deref()).await?;
        }
        let query =
            r#"/_users/_all_docs?startkey="org.couchdb.user:settee-bench"&endkey="org.couchdb.user:settee-bench-w""#;
        let query = query.replace('"', "%22");
        let rows = connection.get_json(&query).await?;
        let rows = rows["rows"].as_array().context("no list of users")?;
        let gone = rows.iter().map(|row| json!({"_id": row["id"], "_rev": row["value"]["rev"], "_deleted": true}));
        save_users(connection, gone.collect()).await
    }
}
