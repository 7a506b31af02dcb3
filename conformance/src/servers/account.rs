//! As whom a server runs that refuses to run as root.

use std::os::unix::fs::chown;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use super::ServerError;

/// A user of this machine who is not root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Account {
    user: u32,
    group: u32,
}

impl Account {
    /// The user whom the packages of Postgres make, else `nobody`; `None` if we
    /// are not root ourselves: then the server runs as we do.
    pub(crate) fn unless_we_may() -> Result<Option<Self>, ServerError> {
        if !rustix::process::geteuid().is_root() {
            return Ok(None);
        }
        static FOUND: OnceLock<Option<Account>> = OnceLock::new();
        let found = FOUND.get_or_init(|| ["postgres", "nobody"].into_iter().find_map(Self::named));
        match found {
            Some(account) => Ok(Some(*account)),
            None => Err(ServerError::io(
                "run a server that refuses to run as root: run the tests as another user, or \
                 make a user `postgres`",
                std::io::Error::from(std::io::ErrorKind::NotFound),
            )),
        }
    }

    fn named(name: &str) -> Option<Self> {
        let number = |what: &str| {
            let asked = Command::new("id").args([what, name]).output().ok()?;
            String::from_utf8(asked.stdout).ok()?.trim().parse().ok()
        };
        Some(Self {
            user: number("-u")?,
            group: number("-g")?,
        })
    }

    /// What `setpriv` must be told.
    pub(crate) fn arguments(self) -> [String; 3] {
        [
            format!("--reuid={}", self.user),
            format!("--regid={}", self.group),
            "--clear-groups".into(),
        ]
    }

    pub(crate) fn user(self) -> u32 {
        self.user
    }
}

/// Gives a file or a folder to the account, if there is one.
pub(crate) fn give(path: &Path, account: Option<Account>) -> Result<(), ServerError> {
    let Some(account) = account else {
        return Ok(());
    };
    chown(path, Some(account.user), Some(account.group))
        .map_err(|e| ServerError::io(format!("give {} to its server", path.display()), e))
}
