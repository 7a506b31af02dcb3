//! A Redis (or Valkey) server of the test's own.
//!
//! The program is `redis-server` from the `PATH`, or what the environment
//! variable `LEASES_REDIS_SERVER` names, such as `/usr/bin/valkey-server`.

pub mod cluster;

mod admin;
mod config;
mod nodes;
mod reply;
pub mod sentinel;
mod url;

use std::ffi::OsString;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Stdio;
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

use tempfile::TempDir;

pub use super::error::ServerError;
pub use config::{Persistence, RedisBuilder};
pub use nodes::{NodesWay, RedisNodes};
pub use reply::Reply;
pub use url::RedisUrl;

#[cfg(feature = "containers")]
use super::container::Container;
use super::parts::{LIMIT, LOOK, PORTS, State, claim, last_lines, password, port_is_taken};
use super::process::{Process, find};
use super::running::Running;
use super::tls::TlsFiles;
use config::{ADMIN, DefaultUser, Layout};
use url::Place;

use crate::ports::PortClaim;

/// A running server in a folder of its own; see the [module](super) for what
/// happens when it is dropped.
///
/// All calls take `&self` and may come from any thread; they block for as long
/// as what they do takes.
#[derive(Debug)]
pub struct RedisServer {
    settings: RedisBuilder,
    place: Layout,
    admin_password: String,
    // Dropped in this order: the process, its port, its folder.
    state: Mutex<State<Running>>,
    port: PortClaim,
    folder: TempDir,
}

impl RedisServer {
    /// Settings for a server.
    pub fn builder() -> RedisBuilder {
        RedisBuilder::default()
    }

    pub(self) fn launch(settings: RedisBuilder) -> Result<Self, ServerError> {
        let mut server = Self::prepare(settings, claim()?)?;
        for _ in 1..PORTS {
            match server.start() {
                Err(error) if port_is_taken(&error) => {
                    server.port = claim()?;
                    // It is of another port.
                    let _ = fs::remove_file(&server.place.config);
                }
                other => return other.map(|()| server),
            }
        }
        server.start().map(|()| server)
    }

    /// Everything that a start needs, without one.
    pub(self) fn prepare(settings: RedisBuilder, port: PortClaim) -> Result<Self, ServerError> {
        let folder = tempfile::Builder::new()
            .prefix("redis-")
            .tempdir()
            .map_err(|e| ServerError::io("make a folder for the server", e))?;
        let root = folder.path();
        let tls = match &settings.member {
            Some(member) => member.tls.clone(),
            None => TlsFiles::in_folder(root),
        };
        if settings.tls && settings.member.is_none() {
            tls.create()?;
        }
        let admin_password = match &settings.member {
            Some(member) => member.admin_password.clone(),
            None => password()?,
        };
        let place = Layout {
            config: root.join("redis.conf"),
            data: root.join("data"),
            log: root.join("log"),
            output: root.join("output"),
            socket: root.join("socket"),
            tls,
        };
        fs::create_dir(&place.data).map_err(|e| ServerError::io("make the data folder", e))?;
        Ok(Self {
            settings,
            place,
            admin_password,
            state: Mutex::default(),
            port,
            folder,
        })
    }

    /// Starts it again with the data that it left behind, on the same port.
    ///
    /// # Errors
    /// If it runs, or does not start.
    pub fn start(&self) -> Result<(), ServerError> {
        let mut state = self.state();
        if state.running().is_some() {
            return Err(ServerError::Running);
        }
        if !(self.settings.writes_its_config() && self.place.config.exists()) {
            let text = self
                .settings
                .text(&self.place, self.port.port(), &self.admin_password);
            fs::write(&self.place.config, text)
                .map_err(|e| ServerError::io("write the server's configuration", e))?;
        }
        // What the last one left there must not be taken for the new one's.
        let _ = fs::remove_file(&self.place.socket);
        let mut running = self.run()?;
        self.wait_until_ready(&mut running)?;
        *state = State::of(running);
        Ok(())
    }

    #[cfg(feature = "containers")]
    fn run(&self) -> Result<Running, ServerError> {
        let Some(image) = &self.settings.image else {
            return self.run_here();
        };
        let arguments = vec![self.place.config.display().to_string()];
        // By name: the image has it somewhere.
        let program = if image.name.contains("valkey") {
            "valkey-server"
        } else {
            "redis-server"
        };
        Container::start(image, program, arguments, self.folder()).map(Running::Container)
    }

    #[cfg(not(feature = "containers"))]
    fn run(&self) -> Result<Running, ServerError> {
        self.run_here()
    }

    fn run_here(&self) -> Result<Running, ServerError> {
        let output = fs::File::create(&self.place.output)
            .map_err(|e| ServerError::io("make a file for the server's output", e))?;
        let also = output
            .try_clone()
            .map_err(|e| ServerError::io("share the file of the server's output", e))?;
        let process = Process::spawn(&program()?, |command| {
            command
                .arg(&self.place.config)
                .args(self.settings.sentinel().map(|_| "--sentinel"))
                .stdin(Stdio::null())
                .stdout(output)
                .stderr(also);
        })?;
        Ok(Running::Process(process))
    }

    fn wait_until_ready(&self, running: &mut Running) -> Result<(), ServerError> {
        let deadline = Instant::now() + LIMIT;
        loop {
            if let Some(status) = running.ended()? {
                return Err(self.not_started(format!("it ended with {status}")));
            }
            match self.ask(&["PING"]) {
                Ok(_) => return Ok(()),
                Err(e) if Instant::now() > deadline => {
                    return Err(self.not_started(format!("no answer within {LIMIT:?}: {e}")));
                }
                Err(_) => std::thread::sleep(LOOK),
            }
        }
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

    /// Stops it cleanly (SIGTERM), as an administrator does: it saves, where
    /// its persistence says so. A paused one is resumed first.
    ///
    /// # Errors
    /// If it does not run, or does not end within half a minute; then it is
    /// killed.
    pub fn stop(&self) -> Result<(), ServerError> {
        let running = self.state().take()?;
        running.resume()?;
        running.terminate(LIMIT)
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
        self.end()?;
        remake(&self.place.data)?;
        self.start()
    }

    /// A copy of the data as it is on disk now, to come back to with
    /// [`restart_from`](Self::restart_from). To have all of it there,
    /// [`save`](Self::save) first, or use [`Persistence::AofAlways`].
    ///
    /// # Errors
    /// If the files cannot be copied.
    pub fn backup(&self) -> Result<RedisBackup, ServerError> {
        let folder = tempfile::Builder::new()
            .prefix("redis-backup-")
            .tempdir()
            .map_err(|e| ServerError::io("make a folder for a backup", e))?;
        copy(&self.place.data, folder.path())?;
        Ok(RedisBackup { folder })
    }

    /// Kills it if it runs, and starts it with older data: what was written
    /// since is lost.
    ///
    /// # Errors
    /// If the files cannot be copied, or as of [`start`](Self::start).
    pub fn restart_from(&self, backup: &RedisBackup) -> Result<(), ServerError> {
        self.end()?;
        remake(&self.place.data)?;
        copy(backup.folder.path(), &self.place.data)?;
        self.start()
    }

    fn end(&self) -> Result<(), ServerError> {
        match self.kill() {
            Ok(()) | Err(ServerError::NotRunning) => Ok(()),
            Err(e) => Err(e),
        }
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

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port.port()).into()
    }

    /// How to connect: by its port, in the default user's name; where that is
    /// off, as a user who may do everything.
    #[must_use]
    pub fn url(&self) -> RedisUrl {
        let (user, password) = match &self.settings.default_user {
            DefaultUser::Open => (None, None),
            DefaultUser::Password(password) => (None, Some(password.clone())),
            DefaultUser::Off => (Some(ADMIN.into()), Some(self.admin_password.clone())),
        };
        RedisUrl {
            place: Place::Tcp {
                address: self.address(),
                tls: self.settings.tls,
            },
            user,
            password,
            db: None,
        }
    }

    /// As [`url`](Self::url), by the server's unix socket.
    #[must_use]
    pub fn unix_url(&self) -> RedisUrl {
        RedisUrl {
            place: Place::Unix(self.place.socket.clone()),
            ..self.url()
        }
    }

    /// The unix socket, which every server has.
    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.place.socket
    }

    /// The certificate, in a PEM file, that a client must trust; `None` without
    /// TLS.
    #[must_use]
    pub fn authority_pem(&self) -> Option<&Path> {
        self.settings.tls.then_some(&self.place.tls.authority)
    }

    /// The server's folder, with its data, its configuration and its log.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The number of the server's process, while it runs; `None` in a
    /// container.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.state().running().and_then(|running| running.id())
    }

    /// The end of what it said, of all its runs.
    #[must_use]
    pub fn log(&self) -> String {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        last_lines(&(read(&self.place.output) + &read(&self.place.log)))
    }

    pub(self) fn admin_password(&self) -> &str {
        &self.admin_password
    }

    fn state(&self) -> MutexGuard<'_, State<Running>> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }
}

/// The data of a server at some time; removed when dropped.
#[derive(Debug)]
pub struct RedisBackup {
    folder: TempDir,
}

fn program() -> Result<std::path::PathBuf, ServerError> {
    const VARIABLE: &str = "LEASES_REDIS_SERVER";
    let named = std::env::var_os(VARIABLE);
    let wanted = named
        .clone()
        .unwrap_or_else(|| OsString::from("redis-server"));
    find(&wanted).ok_or_else(|| ServerError::MissingProgram {
        program: wanted.to_string_lossy().into_owned(),
        advice: if named.is_some() {
            format!("{VARIABLE} names it; correct that or take it away")
        } else {
            format!(
                "install it, on Debian with `apt-get install redis-server` (in the workspace of \
                 leases, `cargo xtask test` does), or name a server in {VARIABLE}"
            )
        },
    })
}

/// Leaves an empty folder.
fn remake(folder: &Path) -> Result<(), ServerError> {
    fs::remove_dir_all(folder)
        .and_then(|()| fs::create_dir(folder))
        .map_err(|e| ServerError::io(format!("empty {}", folder.display()), e))
}

fn copy(from: &Path, to: &Path) -> Result<(), ServerError> {
    copied(from, to).map_err(|e| ServerError::io(format!("copy {}", from.display()), e))
}

fn copied(from: &Path, to: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            fs::create_dir(&target)?;
            copied(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), &target)?;
        }
    }
    Ok(())
}
