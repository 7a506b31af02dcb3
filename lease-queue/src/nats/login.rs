//! Who comes, by what stands in a file.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use async_nats::ConnectOptions;
use lease_core::StoreError;

use super::errors;

/// More is in no such file.
const MOST_BYTES: u64 = 64 * 1024;

/// A file that proves who somebody is.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum KeyFile {
    /// A user's JWT and the seed of its key, as `nsc` writes them.
    Credentials(PathBuf),
    /// The seed of a user's key alone.
    Seed(PathBuf),
}

impl KeyFile {
    /// Reads the file, and comes as whom it says.
    pub(super) async fn apply(&self, to: ConnectOptions) -> Result<ConnectOptions, StoreError> {
        match self {
            Self::Credentials(path) => {
                let text = read("credentials", path).await?;
                // What the driver says of it is not shown: it may quote.
                to.credentials(&text).map_err(|_| {
                    StoreError::refusing(
                        "the credentials file holds no user's JWT with its seed; let nsc or the \
                         account's owner write it again",
                    )
                })
            }
            Self::Seed(path) => {
                let text = read("nkey", path).await?;
                let seed = text.trim();
                match is_seed(seed) {
                    true => Ok(to.nkey(seed.to_owned())),
                    false => Err(StoreError::refusing(
                        "the nkey file holds no user's seed: 58 characters that begin with SU, and \
                         nothing else",
                    )),
                }
            }
        }
    }
}

/// Nothing of where it is.
impl fmt::Debug for KeyFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Credentials(_) => "Credentials",
            Self::Seed(_) => "Seed",
        })
    }
}

async fn read(what: &str, path: &Path) -> Result<String, StoreError> {
    let path = path.to_owned();
    let read = move || {
        if fs::metadata(&path)?.len() > MOST_BYTES {
            return Err(std::io::Error::other("it is far too large to be one"));
        }
        fs::read_to_string(&path)
    };
    let read = tokio::task::spawn_blocking(read).await;
    let read = read.map_err(std::io::Error::other).flatten();
    read.map_err(|error| {
        errors::refusing(
            format!("the {what} file of the store cannot be read; see that it is there and this user's to read"),
            error,
        )
    })
}

/// Its checksum is the driver's to judge.
fn is_seed(text: &str) -> bool {
    let base32 = |c: char| c.is_ascii_uppercase() || matches!(c, '2'..='7');
    text.len() == 58 && text.starts_with("SU") && text.chars().all(base32)
}
