//! A NATS server with JetStream of the test's own, and a cluster of three.
//!
//! ```
//! use lease_conformance::servers::nats::NatsServer;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let server = NatsServer::builder().start()?;
//! server.request("$JS.API.STREAM.CREATE.colors", r#"{"name":"colors","subjects":["color"]}"#)?;
//! server.request("color", "blue")?;
//! server.kill()?;
//! server.start()?;
//! assert!(server.request("$JS.API.STREAM.INFO.colors", "")?.contains(r#""messages":1"#));
//! println!("connect to {}", server.url());
//! # Ok(())
//! # }
//! ```
//!
//! The program is `nats-server` from the `PATH`, or what the environment
//! variable `LEASES_NATS_SERVER` names.

pub mod cluster;

mod client;
mod config;
mod hooks;
mod monitor;

use std::ffi::OsString;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

use tempfile::TempDir;

pub use super::error::ServerError;
pub use config::NatsBuilder;

use super::parts::{LIMIT, LOOK, PORTS, State, claim, encoded, last_lines, password};
use super::process::{Process, find};
use super::tls::TlsFiles;
use crate::ports::PortClaim;
use config::Layout;

/// A running server in a folder of its own; see the [module](super) for what
/// happens when it is dropped.
///
/// All calls take `&self` and may come from any thread; they block for as long
/// as what they do takes.
#[derive(Debug)]
pub struct NatsServer {
    settings: NatsBuilder,
    place: Layout,
    /// Nobody else's: a client must not connect by luck.
    password: String,
    // Dropped in this order: the process, its ports, its folder.
    state: Mutex<State<Process>>,
    ports: Ports,
    folder: TempDir,
}

/// Of clients, and of the monitor.
#[derive(Debug)]
struct Ports {
    clients: PortClaim,
    monitor: PortClaim,
}

impl Ports {
    fn new() -> Result<Self, ServerError> {
        Ok(Self {
            clients: claim()?,
            monitor: claim()?,
        })
    }
}

impl NatsServer {
    /// Settings for a server.
    pub fn builder() -> NatsBuilder {
        NatsBuilder::default()
    }

    pub(self) fn launch(settings: NatsBuilder) -> Result<Self, ServerError> {
        let mut server = Self::prepare(settings)?;
        for _ in 1..PORTS {
            match server.start() {
                Err(error) if port_is_taken(&error) => server.ports = Ports::new()?,
                other => return other.map(|()| server),
            }
        }
        server.start().map(|()| server)
    }

    /// Everything that a start needs, without one.
    pub(self) fn prepare(settings: NatsBuilder) -> Result<Self, ServerError> {
        let folder = tempfile::Builder::new()
            .prefix("nats-")
            .tempdir()
            .map_err(|e| ServerError::io("make a folder for the server", e))?;
        let root = folder.path();
        let place = Layout {
            config: root.join("nats.conf"),
            data: root.join("data"),
            log: root.join("log"),
            output: root.join("output"),
            tls: TlsFiles::in_folder(root),
        };
        if settings.tls {
            place.tls.create()?;
        }
        fs::create_dir(&place.data).map_err(|e| ServerError::io("make the data folder", e))?;
        Ok(Self {
            password: password()?,
            ports: Ports::new()?,
            state: Mutex::default(),
            settings,
            place,
            folder,
        })
    }

    /// Starts it again with the data that it left behind, on the same ports;
    /// returns when JetStream serves. Of a node of a cluster: see
    /// [`NatsCluster::start`](cluster::NatsCluster::start).
    ///
    /// # Errors
    /// If it runs, or does not start.
    pub fn start(&self) -> Result<(), ServerError> {
        self.start_until(|server| server.is_healthy())
    }

    pub(self) fn start_until(
        &self,
        ready: impl Fn(&Self) -> Result<bool, ServerError>,
    ) -> Result<(), ServerError> {
        let mut state = self.state();
        if state.running().is_some() {
            return Err(ServerError::Running);
        }
        // What the last run said must not be taken for this one's.
        let _ = fs::remove_file(&self.place.log);
        let mut process = self.run()?;
        let deadline = Instant::now() + LIMIT;
        loop {
            if let Some(status) = process.ended()? {
                return Err(self.not_started(format!("it ended with {status}")));
            }
            let seen = match ready(self) {
                Ok(true) => break,
                Ok(false) => "it is not healthy".to_owned(),
                Err(e) => e.to_string(),
            };
            if Instant::now() > deadline {
                return Err(self.not_started(format!("not ready within {LIMIT:?}: {seen}")));
            }
            std::thread::sleep(LOOK);
        }
        *state = State::of(process);
        Ok(())
    }

    fn run(&self) -> Result<Process, ServerError> {
        let text = self.settings.text(
            &self.place,
            self.ports.clients.port(),
            self.ports.monitor.port(),
            &self.password,
        );
        fs::write(&self.place.config, text)
            .map_err(|e| ServerError::io("write the server's configuration", e))?;
        let output = fs::File::create(&self.place.output)
            .map_err(|e| ServerError::io("make a file for the server's output", e))?;
        let also = output
            .try_clone()
            .map_err(|e| ServerError::io("share the file of the server's output", e))?;
        Process::spawn(&program()?, |command| {
            command
                .arg("--config")
                .arg(&self.place.config)
                .stdin(Stdio::null())
                .stdout(output)
                .stderr(also);
        })
    }

    fn not_started(&self, why: String) -> ServerError {
        ServerError::Start {
            why,
            log_path: self.place.log.display().to_string(),
            log: self.log(),
        }
    }

    /// Kills it (SIGKILL): nothing is saved, and no client hears of it.
    ///
    /// # Errors
    /// If it does not run.
    pub fn kill(&self) -> Result<(), ServerError> {
        self.state().take()?.kill()
    }

    /// Stops it cleanly (SIGTERM), as an administrator does. A paused one is
    /// resumed first.
    ///
    /// # Errors
    /// If it does not run, or does not end within half a minute; then it is
    /// killed.
    pub fn stop(&self) -> Result<(), ServerError> {
        let process = self.state().take()?;
        process.resume()?;
        process.terminate(LIMIT)
    }

    /// [`stop`](Self::stop) and [`start`](Self::start).
    ///
    /// # Errors
    /// As theirs.
    pub fn restart(&self) -> Result<(), ServerError> {
        self.stop()?;
        self.start()
    }

    /// Kills it if it runs, and starts it without any data, as after the loss
    /// of its disk.
    ///
    /// # Errors
    /// As of [`start`](Self::start).
    pub fn restart_empty(&self) -> Result<(), ServerError> {
        match self.kill() {
            Ok(()) | Err(ServerError::NotRunning) => {}
            Err(e) => return Err(e),
        }
        fs::remove_dir_all(&self.place.data)
            .and_then(|()| fs::create_dir(&self.place.data))
            .map_err(|e| ServerError::io("empty the data folder", e))?;
        self.start()
    }

    /// Makes it stand still (SIGSTOP) until [`resume`](Self::resume): its
    /// connections stay open, new ones may be made, and nothing is answered.
    /// Returns when it stands still.
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

    /// Where it listens for clients.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.ports.clients.port()).into()
    }

    /// How to connect.
    #[must_use]
    pub fn url(&self) -> NatsUrl {
        NatsUrl {
            tls: self.settings.tls,
            login: self.settings.login(&self.password),
            addresses: vec![self.address()],
        }
    }

    /// The certificate, in a PEM file, that a client must trust; `None` without
    /// TLS.
    #[must_use]
    pub fn authority_pem(&self) -> Option<&Path> {
        self.settings.tls.then_some(&*self.place.tls.authority)
    }

    /// The server's folder, with its data, its configuration and its log.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The number of the server's process, while it runs.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.state().running().map(Process::id)
    }

    /// The end of what it said in its last run.
    #[must_use]
    pub fn log(&self) -> String {
        let read = |path: &PathBuf| fs::read_to_string(path).unwrap_or_default();
        last_lines(&(read(&self.place.output) + &read(&self.place.log)))
    }

    fn monitor(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.ports.monitor.port()).into()
    }

    fn state(&self) -> MutexGuard<'_, State<Process>> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }
}

/// The URL of a server or of a cluster; `to_string` gives the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NatsUrl {
    tls: bool,
    login: Option<(String, String)>,
    addresses: Vec<SocketAddr>,
}

impl NatsUrl {
    /// By another address, such as a proxy's.
    #[must_use]
    pub fn through(mut self, address: SocketAddr) -> Self {
        self.addresses = vec![address];
        self
    }

    /// The name and the password in it, for a driver that does not read them.
    #[must_use]
    pub fn login(&self) -> Option<(&str, &str)> {
        let (name, password) = self.login.as_ref()?;
        Some((name, password))
    }

    /// As this user.
    #[must_use]
    pub fn user(mut self, name: &str, password: &str) -> Self {
        self.login = Some((name.to_owned(), password.to_owned()));
        self
    }
}

impl std::fmt::Display for NatsUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.tls { "tls://" } else { "nats://" })?;
        if let Some((name, password)) = &self.login {
            write!(f, "{}:{}@", encoded(name), encoded(password))?;
        }
        let addresses: Vec<_> = self.addresses.iter().map(SocketAddr::to_string).collect();
        f.write_str(&addresses.join(","))
    }
}

/// Whether a server did not start for that alone.
fn port_is_taken(error: &ServerError) -> bool {
    matches!(error, ServerError::Start { log, .. } if log.contains("address already in use"))
}

fn program() -> Result<PathBuf, ServerError> {
    const VARIABLE: &str = "LEASES_NATS_SERVER";
    let named = std::env::var_os(VARIABLE);
    let wanted = named
        .clone()
        .unwrap_or_else(|| OsString::from("nats-server"));
    find(&wanted).ok_or_else(|| ServerError::MissingProgram {
        program: wanted.to_string_lossy().into_owned(),
        advice: if named.is_some() {
            format!("{VARIABLE} names it; correct that or take it away")
        } else {
            format!(
                "install it, on Debian with `apt-get install nats-server` (in the workspace of \
                 leases, `cargo xtask test` does), or name a server in {VARIABLE}"
            )
        },
    })
}
