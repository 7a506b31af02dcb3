//! A Postgres server of the test's own, its standbys, and a pooler before it.
//!
//! ```
//! use lease_conformance::servers::postgres::PostgresServer;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let server = PostgresServer::builder().start()?;
//! server.sql("CREATE TABLE colors (name text)")?;
//! server.sql("INSERT INTO colors VALUES ('blue')")?;
//! server.kill()?;
//! server.start()?;
//! assert_eq!(server.sql("SELECT name FROM colors")?.value(), Some("blue"));
//! println!("connect to {}", server.url());
//! # Ok(())
//! # }
//! ```
//!
//! The programs are those of the folder that the environment variable
//! `LEASES_POSTGRES_BIN` names, else of the `PATH`, else the newest of Debian's
//! packages (`/usr/lib/postgresql/*/bin`); a cluster or a service of such a
//! package is never asked, and need not run. `LEASES_PGBOUNCER` names another
//! `pgbouncer`.
//!
//! # As root
//! Postgres refuses to run as root. Where the test does, the server runs as the
//! user `postgres`, or as `nobody` if there is none.
//!
//! # Who may do what
//! A server has a database `postgres`, whose owner is the role
//! [`OWNER`], as an application's role would be: [`PostgresServer::url`]
//! is its. [`PostgresServer::superuser_url`] is that of a role that may do
//! everything, and [`PostgresBuilder::role`] makes others. All of them have
//! passwords (SCRAM), those of the first two drawn for each server.
//!
//! # What stays behind
//! Nothing, also when the test's own process is killed (on Linux): neither
//! processes, paused ones included, nor shared memory, nor the folder. But one
//! data folder as `initdb` makes it is kept for each version, in
//! `lease-conformance-postgres-*` in the system's temporary folder, and copied
//! for each server.

mod admin;
mod bouncer;
mod config;
mod creation;
mod guard;
mod places;
mod postmaster;
mod programs;
mod psql;
mod standby;
mod template;
mod url;

use std::fs::{self, OpenOptions, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

use tempfile::TempDir;

pub use super::error::ServerError;
pub use bouncer::{PgBouncer, PgBouncerBuilder, PoolMode};
pub use config::PostgresBuilder;
pub use psql::Rows;
pub use url::PostgresUrl;

use super::account::{Account, give};
use super::parts::{Ends, LIMIT, LOOK, PORTS, State, claim, password, port_is_taken};
use super::process::Process;
use super::tool::plainly;
use config::{Layout, Passwords};
use creation::folder;
use guard::Guard;
use postmaster::{Postmaster, Shutdown, clear_after_a_crash};
use programs::Programs;

use crate::ports::PortClaim;

/// The role that owns a server's database, and may do nothing else.
pub const OWNER: &str = "leases";
/// The superuser by whom the kit itself connects.
const ADMIN: &str = "kit";
/// The database that every server has.
const DATABASE: &str = "postgres";

/// A running server in a folder of its own; see the [module](self) for what
/// happens when it is dropped.
///
/// All calls take `&self` and may come from any thread; they block for as long
/// as what they do takes.
#[derive(Debug)]
pub struct PostgresServer {
    settings: PostgresBuilder,
    /// Settings that a test changed while it ran.
    changed: Mutex<Vec<(String, String)>>,
    passwords: Passwords,
    promoted: AtomicBool,
    programs: Programs,
    account: Option<Account>,
    place: Layout,
    // Dropped in this order: the processes, the one that waits for a kill of the
    // test, the port, the folder.
    state: Mutex<State<Postmaster>>,
    _guard: Guard,
    port: PortClaim,
    _folder: TempDir,
}

impl PostgresServer {
    /// Settings for a server.
    pub fn builder() -> PostgresBuilder {
        PostgresBuilder::default()
    }

    fn launch(settings: PostgresBuilder) -> Result<Self, ServerError> {
        let programs = Programs::find()?;
        let account = Account::unless_we_may()?;
        let folder = folder(settings.no_fsync)?;
        give(folder.path(), account)?;
        let guard = Guard::of(folder.path(), account)?;
        let place = Layout::in_folder(folder.path());
        if settings.tls {
            place.tls.create()?;
            // It takes no key that others might read.
            fs::set_permissions(&place.tls.key, Permissions::from_mode(0o600))
                .map_err(|e| ServerError::io("protect the server's key", e))?;
            give(&place.tls.key, account)?;
        }
        let passwords = match &settings.primary {
            Some(primary) => primary.passwords.clone(),
            None => Passwords {
                admin: password()?,
                owner: password()?,
            },
        };
        let mut server = Self {
            settings,
            changed: Mutex::default(),
            passwords,
            promoted: AtomicBool::new(false),
            programs,
            account,
            place,
            state: Mutex::default(),
            _guard: guard,
            port: claim()?,
            _folder: folder,
        };
        server.make_data()?;
        for _ in 1..PORTS {
            match server.start() {
                Err(error) if port_is_taken(&error) => server.port = claim()?,
                other => return other.and_then(|()| server.make_roles()).map(|()| server),
            }
        }
        server.start().and_then(|()| server.make_roles())?;
        Ok(server)
    }

    /// Starts it again with the data that it left behind, on the same port;
    /// returns when it takes connections.
    ///
    /// # Errors
    /// If it runs, or does not start.
    pub fn start(&self) -> Result<(), ServerError> {
        let mut state = self.state();
        if state.running().is_some() {
            return Err(ServerError::Running);
        }
        self.write_config(&self.changed())?;
        fs::write(&self.place.rules, self.settings.rules())
            .map_err(|e| ServerError::io("write the server's rules", e))?;
        clear_after_a_crash(&self.place.data, self.account)?;
        let mut postmaster = self.run()?;
        self.wait_until_ready(&mut postmaster)?;
        *state = State::of(postmaster);
        Ok(())
    }

    fn write_config(&self, changed: &[(String, String)]) -> Result<(), ServerError> {
        let port = self.port.port();
        let text = self.settings.text(&self.place, port, &self.name(), changed);
        fs::write(&self.place.config, text)
            .map_err(|e| ServerError::io("write the server's configuration", e))
    }

    fn run(&self) -> Result<Postmaster, ServerError> {
        let failed = |e| ServerError::io("open the server's log", e);
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.place.log)
            .map_err(failed)?;
        let also = log.try_clone().map_err(failed)?;
        let program = self.programs.path("postgres");
        let process = Process::spawn_as(self.account, &program, |command| {
            plainly(command);
            command
                .arg("-D")
                .arg(&self.place.data)
                .arg("-c")
                .arg(format!("config_file={}", self.place.config.display()))
                .stdin(Stdio::null())
                .stdout(log)
                .stderr(also);
        })?;
        Ok(Postmaster::new(process, &self.place.data, self.account))
    }

    fn wait_until_ready(&self, postmaster: &mut Postmaster) -> Result<(), ServerError> {
        let deadline = Instant::now() + LIMIT;
        let file = self.place.data.join("postmaster.pid");
        loop {
            if let Some(status) = postmaster.ended()? {
                return Err(self.not_started(format!("it ended with {status}")));
            }
            // Its eighth line, as `pg_ctl` reads it.
            let text = fs::read_to_string(&file).unwrap_or_default();
            if text
                .lines()
                .nth(7)
                .is_some_and(|line| line.trim() == "ready")
            {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(self.not_started(format!("not ready within {LIMIT:?}")));
            }
            std::thread::sleep(LOOK);
        }
    }

    fn not_started(&self, why: String) -> ServerError {
        ServerError::Start {
            why,
            log_path: self.place.log.display().to_string(),
            log: self.log(),
        }
    }

    /// Kills all its processes at once (SIGKILL), as a power cut does: nothing is
    /// saved, and no client is told. Returns when they are gone.
    ///
    /// # Errors
    /// If it does not run.
    pub fn kill(&self) -> Result<(), ServerError> {
        self.state().take()?.kill()
    }

    /// Stops it cleanly, as an administrator does (`fast`): sessions are told and
    /// cut, and everything is written. A paused one is resumed first.
    ///
    /// # Errors
    /// If it does not run, or does not end within half a minute; then it is
    /// killed.
    pub fn stop(&self) -> Result<(), ServerError> {
        self.state().take()?.shut_down(Shutdown::Fast)
    }

    /// Ends it without writing anything (`immediate`): sessions are told, and the
    /// next start recovers as after a crash. A paused one is resumed first.
    ///
    /// # Errors
    /// As of [`stop`](Self::stop).
    pub fn stop_immediately(&self) -> Result<(), ServerError> {
        self.state().take()?.shut_down(Shutdown::Immediate)
    }

    /// [`stop`](Self::stop) and [`start`](Self::start).
    ///
    /// # Errors
    /// As theirs.
    pub fn restart(&self) -> Result<(), ServerError> {
        self.stop()?;
        self.start()
    }

    /// Kills it if it runs, and starts it as it was at first, as after the loss of
    /// its disk: without any data, and a standby with those of its primary. The
    /// standbys of such a primary cannot follow it; make new ones.
    ///
    /// # Errors
    /// As of [`start`](Self::start).
    pub fn restart_empty(&self) -> Result<(), ServerError> {
        match self.kill() {
            Ok(()) | Err(ServerError::NotRunning) => {}
            Err(e) => return Err(e),
        }
        clear_after_a_crash(&self.place.data, self.account)?;
        self.make_data()?;
        self.start()?;
        self.make_roles()
    }

    /// Makes all its processes stand still (SIGSTOP) until
    /// [`resume`](Self::resume): its connections stay open, new ones may be made,
    /// and nothing is answered. Returns when they stand still.
    ///
    /// # Errors
    /// If it does not run.
    pub fn pause(&self) -> Result<(), ServerError> {
        let mut state = self.state();
        state.running().ok_or(ServerError::NotRunning)?.pause()?;
        state.paused = true;
        Ok(())
    }

    /// Lets it go on. Nothing happens if it was not paused.
    ///
    /// # Errors
    /// If it does not run.
    pub fn resume(&self) -> Result<(), ServerError> {
        let mut state = self.state();
        state.running().ok_or(ServerError::NotRunning)?.resume()?;
        state.paused = false;
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State<Postmaster>> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn changed(&self) -> MutexGuard<'_, Vec<(String, String)>> {
        self.changed.lock().unwrap_or_else(|e| e.into_inner())
    }
}
