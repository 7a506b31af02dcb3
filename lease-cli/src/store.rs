//! Which store: the option, the environment, the user's own file.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use leases::queue::QueueStore;
use leases::{Error, Store};

use crate::exit::{Exit, Failure};
use crate::output;
use crate::patience::Patience;

/// A store that can be opened.
pub(crate) enum Target {
    /// May hold secrets: never printed.
    Url(String),
    /// The user's own SQLite file.
    Default(PathBuf),
}

impl Target {
    /// `--store`, then `LEASE_STORE`, then a file of this user's.
    pub(crate) fn resolve(option: Option<String>) -> Result<Self, Failure> {
        if let Some(url) = option {
            return Ok(Self::Url(url));
        }
        match std::env::var("LEASE_STORE") {
            Ok(url) if !url.is_empty() => Ok(Self::Url(url)),
            Err(std::env::VarError::NotUnicode(_)) => Err(Failure::new(
                Exit::Usage,
                "LEASE_STORE is not valid text; set it to a store's URL",
            )),
            _ => {
                let get = |name: &str| std::env::var_os(name);
                default_path(get("XDG_STATE_HOME"), get("HOME")).map(Self::Default)
            }
        }
    }

    /// What a child's LEASE_STORE must be to mean the same store; `None` when
    /// it finds that by itself.
    pub(crate) fn for_child(&self) -> Option<&str> {
        match self {
            Self::Url(url) => Some(url),
            Self::Default(_) => None,
        }
    }

    /// Whether it is a new store inside this process.
    pub(crate) fn is_memory(&self) -> bool {
        matches!(self, Self::Url(url) if url.split(':').next().is_some_and(|scheme| {
            scheme.eq_ignore_ascii_case("memory")
        }))
    }

    /// Opens it without waiting for its servers: for who looks at what ails them.
    pub(crate) async fn open_lazily(&self) -> Result<Store, Failure> {
        match self {
            Self::Url(url) => leases::open_lazily(url)
                .await
                .map_err(|error| self.failure(error)),
            Self::Default(_) => self.open(Patience::once()).await,
        }
    }

    /// As [`open`](Self::open), for a command that only looks, and that makes no tables.
    pub(crate) async fn open_to_look(&self, patience: Patience) -> Result<Store, Failure> {
        match self {
            Self::Url(url) => {
                let opened = patience.ask(|| leases::open_to_look(url)).await;
                opened.map_err(|error| self.failure(error))
            }
            Self::Default(_) => self.open(patience).await,
        }
    }

    /// Opens it; one that is out of reach is tried for as long as `patience`
    /// lasts.
    pub(crate) async fn open(&self, patience: Patience) -> Result<Store, Failure> {
        let opened = match self {
            Self::Url(url) => patience.ask(|| leases::open(url)).await,
            Self::Default(path) => {
                create_parent(path)?;
                patience.ask(|| open_file(path)).await
            }
        };
        opened.map_err(|error| self.failure(error))
    }

    /// Opens it as a store of queues, as [`open`](Self::open) does.
    pub(crate) async fn open_queue(
        &self,
        patience: Patience,
    ) -> Result<Arc<dyn QueueStore>, Failure> {
        let url = self.queue_url()?;
        let opened = patience.ask(|| leases::open_queue(url)).await;
        opened.map_err(|error| self.failure(error))
    }

    /// As [`open_queue`](Self::open_queue), for a command that only looks.
    pub(crate) async fn open_queue_to_look(
        &self,
        patience: Patience,
    ) -> Result<Arc<dyn QueueStore>, Failure> {
        let url = self.queue_url()?;
        let opened = patience.ask(|| leases::open_queue_to_look(url)).await;
        opened.map_err(|error| self.failure(error))
    }

    fn queue_url(&self) -> Result<&str, Failure> {
        self.for_child().ok_or_else(|| {
            Failure::new(
                Exit::Usage,
                "queues need a store of queues: give --store queue+redis://host, \
                 queue+postgres://user@host/database or nats://host, or set LEASE_STORE",
            )
        })
    }
}

impl Target {
    /// An error of this store, without what may be secret.
    pub(crate) fn failure(&self, error: Error) -> Failure {
        // Our own advice shows how a URL is written; a driver may say anything.
        let ours = matches!(error, Error::Invalid(_));
        let Failure { exit, message } = error.into();
        let message = match self {
            Self::Url(_) if !ours => output::without_urls(&message),
            Self::Url(url) => output::without_arguments(&message, std::slice::from_ref(url)),
            Self::Default(_) => message,
        };
        Failure::new(exit, message)
    }
}

async fn open_file(path: &Path) -> Result<Store, leases::Error> {
    Ok(leases::sqlite::SqliteStore::open(path).await?.into())
}

/// As the XDG base directory specification says: a relative path is no path.
fn default_path(state: Option<OsString>, home: Option<OsString>) -> Result<PathBuf, Failure> {
    let absolute = |path: Option<OsString>| path.map(PathBuf::from).filter(|p| p.is_absolute());
    let state = match absolute(state) {
        Some(state) => state,
        None => absolute(home)
            .map(|home| home.join(".local/state"))
            .ok_or_else(|| {
                Failure::new(
                    Exit::Usage,
                    "no store: give --store URL, or set LEASE_STORE, XDG_STATE_HOME or HOME",
                )
            })?,
    };
    Ok(state.join("lease").join("leases.db"))
}

/// Creates the folder of the default store, for this user alone.
fn create_parent(path: &Path) -> Result<(), Failure> {
    use std::os::unix::fs::DirBuilderExt;
    let Some(parent) = path.parent() else {
        return Ok(());
    };
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(parent)
        .map_err(|error| {
            Failure::new(
                Exit::Misconfigured,
                format!(
                    "cannot create the folder {} for the default store: {error}; give --store URL",
                    parent.display()
                ),
            )
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_path_follows_xdg() {
        let path = |state: Option<&str>, home: Option<&str>| {
            default_path(state.map(Into::into), home.map(Into::into)).map(|p| p.into_os_string())
        };
        assert_eq!(path(Some("/s"), Some("/h")).unwrap(), "/s/lease/leases.db");
        for odd in [None, Some(""), Some("relative")] {
            assert_eq!(
                path(odd, Some("/h")).unwrap(),
                "/h/.local/state/lease/leases.db"
            );
        }
        assert_eq!(path(None, None).unwrap_err().exit, Exit::Usage);
    }
}
