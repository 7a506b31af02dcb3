//! What a server has before its first start, and right after it.

use std::fs;
use std::path::Path;
use std::sync::atomic::Ordering;

use tempfile::TempDir;

use super::config::{Passwords, Primary, literal, name};
use super::{ADMIN, DATABASE, OWNER, PostgresServer, ServerError, standby, template};

/// What must be free in `/dev/shm` (in bytes): a container may have very little.
const MEMORY: u64 = 1 << 30;

impl PostgresServer {
    /// Whether it was made as one, and nobody has promoted it.
    pub(super) fn follows(&self) -> Option<&Primary> {
        let promoted = self.promoted.load(Ordering::Relaxed);
        self.settings.primary.as_ref().filter(|_| !promoted)
    }

    /// The data of a new server, at the place of what is there.
    pub(super) fn make_data(&self) -> Result<(), ServerError> {
        let data = &self.place.data;
        if data.exists() {
            fs::remove_dir_all(data)
                .map_err(|e| ServerError::io(format!("remove {}", data.display()), e))?;
        }
        match self.follows() {
            None => template::copy_to(data, &self.programs, self.account),
            Some(primary) => standby::copy_from(primary, data, &self.programs, self.account),
        }
    }

    /// The roles of a new server; a standby has those of its primary.
    pub(super) fn make_roles(&self) -> Result<(), ServerError> {
        match self.follows() {
            None => self.sql(&self.roles()).map(drop),
            Some(_) => Ok(()),
        }
    }

    fn roles(&self) -> String {
        let Passwords { admin, owner } = &self.passwords;
        // Not by the standbys, which come later.
        let mut text = format!(
            "SET LOCAL synchronous_commit = local; ALTER ROLE {ADMIN} PASSWORD '{admin}'; \
             CREATE ROLE {OWNER} LOGIN PASSWORD '{owner}'; \
             ALTER DATABASE {DATABASE} OWNER TO {OWNER};"
        );
        for role in &self.settings.roles {
            text += &format!(
                "CREATE ROLE {} LOGIN PASSWORD {} {};",
                name(&role.name),
                literal(&role.password),
                role.attributes
            );
        }
        text
    }
}

/// A folder of the server's own. Without `fsync` nothing hangs on a disk: it is
/// in memory then, where a thousand files are copied in a tenth of the time, and
/// a busy disk slows nobody down.
pub(super) fn folder(in_memory: bool) -> Result<TempDir, ServerError> {
    let memory = Path::new("/dev/shm");
    let room = rustix::fs::statvfs(memory).map_or(0, |of| of.f_bavail * of.f_frsize);
    let parent = match in_memory && room >= MEMORY {
        true => memory.to_owned(),
        false => std::env::temp_dir(),
    };
    tempfile::Builder::new()
        .prefix("postgres-")
        .tempdir_in(parent)
        .map_err(|e| ServerError::io("make a folder for the server", e))
}
