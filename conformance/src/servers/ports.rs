//! Ports for servers that come and go.

use std::fs::{File, OpenOptions};
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;

use super::ServerError;

/// Below the ports that systems hand out by themselves, so that a port does not
/// go to somebody's outgoing connection while its server is down.
const FIRST: u16 = 11_000;
const LAST: u16 = 21_000;
const TRIES: usize = 200;

/// A port that no other server of the kit takes, in any process of this user,
/// for as long as the claim lives: also while its own server is down.
#[derive(Debug)]
pub(crate) struct PortClaim {
    port: u16,
    /// Locked; the system unlocks it even when the process is killed.
    _lock: File,
}

impl PortClaim {
    /// Claims a port on which nobody listens now.
    pub(crate) fn new() -> Result<Self, ServerError> {
        let folder = folder();
        std::fs::create_dir_all(&folder)
            .map_err(|e| ServerError::io(format!("make {}", folder.display()), e))?;
        for _ in 0..TRIES {
            let random = getrandom::u32()
                .map_err(|e| ServerError::io("draw a port", std::io::Error::from(e)))?;
            let port = FIRST + (random % u32::from(LAST - FIRST)) as u16;
            let path = folder.join(port.to_string());
            let lock = OpenOptions::new()
                .create(true)
                .truncate(false)
                .write(true)
                .open(&path)
                .map_err(|e| ServerError::io(format!("open {}", path.display()), e))?;
            let ours = lock.try_lock().is_ok();
            if ours && TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
                return Ok(Self { port, _lock: lock });
            }
        }
        Err(ServerError::NoPort { tries: TRIES })
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }
}

/// One per user: nobody may open another user's files there.
fn folder() -> PathBuf {
    let user = rustix::process::getuid().as_raw();
    std::env::temp_dir().join(format!("lease-conformance-ports-{user}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claimed_port_is_claimed_once() {
        let claims: Vec<PortClaim> = (0..50).map(|_| PortClaim::new().unwrap()).collect();
        let mut ports: Vec<u16> = claims.iter().map(PortClaim::port).collect();
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), claims.len());
    }
}
