//! Ports for servers and proxies that come and go.

use std::fs::{File, OpenOptions};
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;

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
    pub(crate) fn new() -> io::Result<Self> {
        let folder = folder();
        std::fs::create_dir_all(&folder)?;
        for _ in 0..TRIES {
            let random = getrandom::u32()?;
            let port = FIRST + (random % u32::from(LAST - FIRST)) as u16;
            let lock = OpenOptions::new()
                .create(true)
                .truncate(false)
                .write(true)
                .open(folder.join(port.to_string()))?;
            let ours = lock.try_lock().is_ok();
            if ours && TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
                return Ok(Self { port, _lock: lock });
            }
        }
        Err(io::Error::other(format!(
            "no free port after {TRIES} tries; are there too many servers on this machine?"
        )))
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
