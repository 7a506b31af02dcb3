//! A pooler between clients and a server.

mod config;

use std::fs::{self, OpenOptions, Permissions};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

use tempfile::TempDir;

use super::guard::Guard;
use super::programs::{Programs, pgbouncer};
use super::psql::{Rows, ask};
use super::url::{Place, PostgresUrl};
use super::{PostgresServer, ServerError};
use crate::ports::PortClaim;
use crate::servers::account::{Account, give};
use crate::servers::parts::{LIMIT, LOOK, PORTS, State, claim, last_lines};
use crate::servers::process::Process;
use crate::servers::tls::TlsFiles;
use crate::servers::tool::plainly;
pub use config::{PgBouncerBuilder, PoolMode};
use config::{Secret, USERS};

/// A running PgBouncer before a server, in a folder of its own. It knows the
/// roles that the server was built with, and their passwords.
///
/// Dropping it kills it and removes its folder, as does the end of the test's own
/// process.
#[derive(Debug)]
pub struct PgBouncer {
    settings: PgBouncerBuilder,
    programs: Programs,
    account: Option<Account>,
    tls: TlsFiles,
    log: PathBuf,
    // Dropped in this order: the process, the one that waits for a kill of the
    // test, the port, the folder.
    state: Mutex<State<Process>>,
    _guard: Guard,
    port: PortClaim,
    folder: TempDir,
}

impl PgBouncer {
    /// Settings for a pooler before this server.
    pub fn before(server: &PostgresServer) -> PgBouncerBuilder {
        let admin = server.superuser_url();
        let owner = server.url();
        let of = |url: &PostgresUrl| (url.user.clone(), Secret(url.password.clone()));
        let mut users = vec![of(&admin), of(&owner)];
        let roles = server.settings.roles.iter();
        users.extend(roles.map(|role| (role.name.clone(), Secret(role.password.clone()))));
        PgBouncerBuilder {
            server: server.address(),
            authority: server.authority_pem().map(Path::to_owned),
            owner,
            admin,
            users,
            mode: PoolMode::default(),
            tls: false,
            settings: Vec::new(),
        }
    }

    fn launch(settings: PgBouncerBuilder) -> Result<Self, ServerError> {
        let account = Account::unless_we_may()?;
        let folder = tempfile::Builder::new()
            .prefix("pgbouncer-")
            .tempdir()
            .map_err(|e| ServerError::io("make a folder for the pooler", e))?;
        give(folder.path(), account)?;
        let guard = Guard::of(folder.path(), account)?;
        let tls = TlsFiles::in_folder(folder.path());
        if settings.tls {
            tls.create()?;
            fs::set_permissions(&tls.key, Permissions::from_mode(0o600))
                .map_err(|e| ServerError::io("protect the pooler's key", e))?;
            give(&tls.key, account)?;
        }
        let mut pooler = Self {
            settings,
            programs: Programs::find()?,
            account,
            tls,
            log: folder.path().join("log"),
            state: Mutex::default(),
            _guard: guard,
            port: claim()?,
            folder,
        };
        for _ in 1..PORTS {
            match pooler.start() {
                Err(ServerError::Start { log, .. }) if log.contains(TAKEN) => {
                    pooler.port = claim()?;
                }
                other => return other.map(|()| pooler),
            }
        }
        pooler.start().map(|()| pooler)
    }

    /// Starts it again, on the same port.
    ///
    /// # Errors
    /// If it runs, or does not start.
    pub fn start(&self) -> Result<(), ServerError> {
        let mut state = self.state();
        if state.running().is_some() {
            return Err(ServerError::Running);
        }
        let folder = self.folder();
        let config = folder.join("pgbouncer.ini");
        let text = self.settings.text(folder, self.port.port(), &self.tls);
        let written = fs::write(&config, text)
            .and_then(|()| fs::write(folder.join(USERS), self.settings.user_list()));
        written.map_err(|e| ServerError::io("write the pooler's configuration", e))?;
        // What the last one left there must not be taken for the new one's.
        let socket = folder.join(format!(".s.PGSQL.{}", self.port.port()));
        let _ = fs::remove_file(&socket);
        let before = fs::read_to_string(&self.log).unwrap_or_default().len();
        let mut process = self.run(&config)?;
        let deadline = Instant::now() + LIMIT;
        // It listens on its port first.
        while UnixStream::connect(&socket).is_err() {
            if let Some(status) = process.ended()? {
                return Err(self.not_started(format!("it ended with {status}")));
            }
            if Instant::now() > deadline {
                return Err(self.not_started(format!("not ready within {LIMIT:?}")));
            }
            std::thread::sleep(LOOK);
        }
        // It goes on without it.
        let said = fs::read_to_string(&self.log).unwrap_or_default();
        if said.get(before..).is_some_and(|said| said.contains(TAKEN)) {
            return Err(self.not_started("its port is taken".into()));
        }
        *state = State::of(process);
        Ok(())
    }

    fn run(&self, config: &Path) -> Result<Process, ServerError> {
        let failed = |e| ServerError::io("open the pooler's log", e);
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.log)
            .map_err(failed)?;
        let also = log.try_clone().map_err(failed)?;
        Process::spawn_as(self.account, &pgbouncer()?, |command| {
            plainly(command);
            command
                .arg(config)
                .stdin(Stdio::null())
                .stdout(log)
                .stderr(also);
        })
    }

    fn not_started(&self, why: String) -> ServerError {
        ServerError::Start {
            why,
            log_path: self.log.display().to_string(),
            log: self.log(),
        }
    }

    /// Kills it (SIGKILL); its connections are cut on both sides.
    ///
    /// # Errors
    /// If it does not run.
    pub fn kill(&self) -> Result<(), ServerError> {
        self.state().take()?.kill()
    }

    /// Kills it, and starts it again.
    ///
    /// # Errors
    /// If it does not run, or does not start.
    pub fn restart(&self) -> Result<(), ServerError> {
        self.kill()?;
        self.start()
    }

    /// Makes it stand still (SIGSTOP) until [`resume`](Self::resume).
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

    /// A command of its own console, such as `SHOW POOLS`.
    ///
    /// # Errors
    /// What it answers, or that it runs not or is paused.
    pub fn command(&self, text: &str) -> Result<Rows, ServerError> {
        self.state().answers()?;
        let place = Place::Unix {
            folder: self.folder().to_owned(),
            port: self.port.port(),
        };
        let console = PostgresUrl {
            place,
            ..self.settings.admin.clone().database("pgbouncer")
        };
        ask(&self.programs.path("psql"), &console, text)
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port.port()).into()
    }

    /// How to connect by it to the server, as the owner of the database there.
    #[must_use]
    pub fn url(&self) -> PostgresUrl {
        let authority = self.settings.tls.then(|| self.tls.authority.clone());
        PostgresUrl {
            place: Place::Tcp {
                address: self.address(),
                authority,
            },
            ..self.settings.owner.clone()
        }
    }

    /// Its folder, with its configuration, its log and its socket.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The number of its process, while it runs.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.state().running().map(Process::id)
    }

    /// The end of what it said, of all its runs.
    #[must_use]
    pub fn log(&self) -> String {
        last_lines(&fs::read_to_string(&self.log).unwrap_or_default())
    }

    fn state(&self) -> MutexGuard<'_, State<Process>> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }
}

/// What it says of a port that somebody else has.
const TAKEN: &str = "Address already in use";
