//! The programs of Postgres on this machine.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use crate::servers::ServerError;
use crate::servers::process::find;

/// Names the folder of the programs.
const FOLDER: &str = "LEASES_POSTGRES_BIN";
const PGBOUNCER: &str = "LEASES_PGBOUNCER";
const NEEDED: [&str; 4] = ["postgres", "initdb", "pg_basebackup", "psql"];

/// A folder that has all of them, of one version.
#[derive(Clone, Debug)]
pub(super) struct Programs {
    folder: PathBuf,
}

impl Programs {
    /// Those that the environment names, else those of the `PATH`, else the
    /// newest that a Debian package has put where the `PATH` does not lead.
    pub(super) fn find() -> Result<Self, ServerError> {
        if let Some(named) = std::env::var_os(FOLDER) {
            let named = Self {
                folder: PathBuf::from(named),
            };
            return match named.missing() {
                None => Ok(named),
                Some(program) => Err(ServerError::MissingProgram {
                    program: named.path(program).display().to_string(),
                    advice: format!("{FOLDER} names its folder; correct that or take it away"),
                }),
            };
        }
        let on_path = find(OsStr::new("postgres"))
            // What is on the `PATH` is often a link to one of them.
            .and_then(|program| program.canonicalize().ok())
            .and_then(|program| program.parent().map(Path::to_owned));
        on_path
            .into_iter()
            .chain(debian())
            .map(|folder| Self { folder })
            .find(|programs| programs.missing().is_none())
            .ok_or_else(|| ServerError::MissingProgram {
                program: "postgres".into(),
                advice: format!(
                    "install it, on Debian with `apt-get install postgresql` (in the workspace \
                     of leases, `cargo xtask test` does), or name the folder that has {} in \
                     {FOLDER}",
                    NEEDED.join(", ")
                ),
            })
    }

    pub(super) fn path(&self, program: &str) -> PathBuf {
        self.folder.join(program)
    }

    fn missing(&self) -> Option<&'static str> {
        NEEDED
            .into_iter()
            .find(|program| !self.path(program).is_file())
    }
}

/// The folders of Debian's packages, the newest version first.
fn debian() -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir("/usr/lib/postgresql") else {
        return Vec::new();
    };
    let mut versions: Vec<(u32, PathBuf)> = entries
        .flatten()
        .filter_map(|entry| {
            let version = entry.file_name().to_str()?.parse().ok()?;
            Some((version, entry.path().join("bin")))
        })
        .collect();
    versions.sort_by_key(|(version, _)| std::cmp::Reverse(*version));
    versions.into_iter().map(|(_, folder)| folder).collect()
}

/// Debian has it where only root's `PATH` leads.
pub(super) fn pgbouncer() -> Result<PathBuf, ServerError> {
    if let Some(named) = std::env::var_os(PGBOUNCER) {
        return find(&named).ok_or_else(|| ServerError::MissingProgram {
            program: named.to_string_lossy().into_owned(),
            advice: format!("{PGBOUNCER} names it; correct that or take it away"),
        });
    }
    find(OsStr::new("pgbouncer"))
        .or_else(|| find(OsStr::new("/usr/sbin/pgbouncer")))
        .ok_or_else(|| ServerError::MissingProgram {
            program: "pgbouncer".into(),
            advice: format!(
                "install it, on Debian with `apt-get install pgbouncer` (in the workspace of \
                 leases, `cargo xtask test` does), or name it in {PGBOUNCER}"
            ),
        })
}
