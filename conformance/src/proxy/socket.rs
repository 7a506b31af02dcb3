//! The sockets on both sides of the proxy.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Servers of tests are on this machine: they answer at once or not at all.
const CONNECT: Duration = Duration::from_secs(5);

/// Where the server is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Upstream {
    /// A port.
    Tcp(SocketAddr),
    /// A unix socket.
    Unix(PathBuf),
}

impl From<SocketAddr> for Upstream {
    fn from(address: SocketAddr) -> Self {
        Self::Tcp(address)
    }
}

impl From<&Path> for Upstream {
    fn from(path: &Path) -> Self {
        Self::Unix(path.to_owned())
    }
}

impl From<PathBuf> for Upstream {
    fn from(path: PathBuf) -> Self {
        Self::Unix(path)
    }
}

impl Upstream {
    pub(super) fn connect(&self) -> io::Result<Socket> {
        let socket = match self {
            Self::Tcp(address) => Socket::Tcp(TcpStream::connect_timeout(address, CONNECT)?),
            Self::Unix(path) => Socket::Unix(UnixStream::connect(path)?),
        };
        socket.prepare()?;
        Ok(socket)
    }
}

/// A connected socket that never blocks.
#[derive(Debug)]
pub(super) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    pub(super) fn prepare(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => {
                // The proxy delays what it is told to and nothing else.
                stream.set_nodelay(true)?;
                stream.set_nonblocking(true)
            }
            Self::Unix(stream) => stream.set_nonblocking(true),
        }
    }

    pub(super) fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => (&*stream).read(buffer),
            Self::Unix(stream) => (&*stream).read(buffer),
        }
    }

    pub(super) fn write(&self, data: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => (&*stream).write(data),
            Self::Unix(stream) => (&*stream).write(data),
        }
    }

    /// Says that nothing more will come.
    pub(super) fn end(&self) {
        // The other side may be gone already.
        let _ = match self {
            Self::Tcp(stream) => stream.shutdown(Shutdown::Write),
            Self::Unix(stream) => stream.shutdown(Shutdown::Write),
        };
    }

    /// From now on, closing it is a reset, as by a machine that knows nothing
    /// of the connection.
    pub(super) fn resets_when_closed(&self) {
        if let Self::Tcp(stream) = self {
            // Otherwise it closes politely: no test can depend on more.
            let _ = rustix::net::sockopt::set_socket_linger(stream, Some(Duration::ZERO));
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(stream) => stream.as_fd(),
            Self::Unix(stream) => stream.as_fd(),
        }
    }
}
