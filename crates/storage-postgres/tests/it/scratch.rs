//! [`Scratch`]: a PostgreSQL for tests, from the packages of the machine, that ends with the process that started it,
//! for any reason. Tests of other crates include this file, so it depends on the standard library only.

use std::ffi::OsString;
use std::fs::Permissions;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// Creates a database directory in `$1`, serves it on a socket there, and removes everything when standard input is
/// closed. Nothing is kept, so nothing is synced.
const SCRIPT: &str = r#"
cd "$1" || exit 1
PATH="$2:$PATH"
{ initdb -D data -U settee -A trust -E UTF8 --locale=C --no-sync >log 2>&1 &&
  pg_ctl -D data -w -l server.log -o "-k $1 -c listen_addresses= -c fsync=off -c synchronous_commit=off -c full_page_writes=off \
    -c max_connections=400 -c shared_buffers=64MB $3" start >>log 2>&1 </dev/null; } || { cat log server.log; cd /; rm -rf "$1"; exit 1; }
echo ready
cat >/dev/null
pg_ctl -D data -m immediate -w stop >/dev/null 2>&1
cd /
rm -rf "$1"
"#;

pub const MISSING: &str = "PostgreSQL is missing: install the Debian package postgresql";

/// Reports that a test is skipped because a package is missing. Panics unless the variable `SETTEE_ALLOW_MISSING` is
/// set: a test that cannot run must not pass.
pub fn skip(missing: &str) {
    let allowed = std::env::var_os("SETTEE_ALLOW_MISSING").is_some();
    assert!(allowed, "{missing}, or set SETTEE_ALLOW_MISSING=1 to skip the tests that need it");
    println!("skipped: {missing}");
}

pub struct Scratch {
    directory: PathBuf,
    child: Child,
    schemas: AtomicU32,
}

impl Scratch {
    pub fn is_there() -> bool {
        programs().is_some()
    }

    /// `settings` are options of the command line of the server. Returns `None` if PostgreSQL is missing and the
    /// environment allows that (see [`skip`]). Panics if it must not be missing, or does not start.
    pub fn start(settings: &str) -> Option<Self> {
        Self::start_with(settings, &[])
    }

    /// As [`Self::start`], with additional files such as `server.key`, readable only by the server.
    pub fn start_with(settings: &str, files: &[(&str, &[u8])]) -> Option<Self> {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let Some(programs) = programs() else {
            skip(MISSING);
            return None;
        };
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        // The path of a socket must be short.
        let directory = PathBuf::from(format!("/tmp/settee-postgres-{}-{number}", std::process::id()));
        std::fs::create_dir(&directory).expect("a directory can be made");
        let mut command = Command::new("sh");
        command.args(["-c", SCRIPT, "sh"]).arg(&directory).arg(&programs).arg(settings);
        let mut paths = vec![directory.clone()];
        for (name, contents) in files {
            let path = directory.join(name);
            std::fs::write(&path, contents).expect("a file can be written");
            std::fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("it is ours");
            paths.push(path);
        }
        if let Some((user, group)) = other_user(&directory) {
            for path in paths {
                chown(path, Some(user), Some(group)).expect("a file can be given away");
            }
            command.uid(user).gid(group);
        }
        // An interrupt at the terminal must not reach the server.
        command.process_group(0);
        let mut child =
            command.current_dir("/").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("there is a shell");
        let mut output = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut line = String::new();
        output.read_line(&mut line).expect("it says something");
        if line != "ready\n" {
            output.read_to_string(&mut line).expect("it says more");
            panic!("PostgreSQL does not start: {line}");
        }
        Some(Self { directory, child, schemas: AtomicU32::new(0) })
    }

    pub fn url_of_server(&self) -> String {
        let host = self.directory.display().to_string().replace('/', "%2F");
        format!("postgres://settee@{host}/postgres")
    }

    pub fn url(&self) -> String {
        let schema = format!("t{}", self.schemas.fetch_add(1, Ordering::Relaxed));
        self.url_as("settee", "postgres", &schema)
    }

    pub fn url_as(&self, role: &str, database: &str, schema: &str) -> String {
        let host = self.directory.display().to_string().replace('/', "%2F");
        format!("postgres://{role}@{host}/{database}?schema={schema}")
    }

    pub fn socket(&self) -> PathBuf {
        self.directory.join(".s.PGSQL.5432")
    }

    /// Executes statements with the client of PostgreSQL. Panics if they fail.
    pub fn run(&self, statements: &str) -> String {
        self.try_run(statements).unwrap_or_else(|said| panic!("{statements}: {said}"))
    }

    /// As [`Self::run`], but returns the message of the client if they fail.
    pub fn try_run(&self, statements: &str) -> Result<String, String> {
        let programs = programs().expect("it is there");
        let mut command = Command::new(Path::new(&programs).join("psql"));
        command.arg("-h").arg(&self.directory).args([
            "-U",
            "settee",
            "-d",
            "postgres",
            "-v",
            "ON_ERROR_STOP=1",
            "-qAtc",
        ]);
        let output = command.arg(statements).output().expect("psql runs");
        let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        if output.status.success() { Ok(said(&output.stdout)) } else { Err(said(&output.stderr)) }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

pub fn programs() -> Option<OsString> {
    let mut found: Vec<(u32, PathBuf)> = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin"))))
        .filter(|(_, path)| path.join("initdb").exists())
        .collect();
    found.sort();
    found.pop().map(|(_, path)| path.into_os_string())
}

/// The user and group that run the server instead of root, which PostgreSQL does not accept.
pub fn other_user(directory: &Path) -> Option<(u32, u32)> {
    if std::fs::metadata(directory).expect("it was made").uid() != 0 {
        return None;
    }
    let users = std::fs::read_to_string("/etc/passwd").expect("there are users");
    let numbers = |name: &str| {
        let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
        let mut fields = line.split(':').skip(2);
        Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    };
    numbers("postgres").or_else(|| numbers("nobody"))
}
