//! The kit's own client: one request over one connection, in the protocol's
//! plain text. Apart from the driver under test.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::{NatsServer, ServerError};

/// For one answer: far more than it takes on a busy machine.
const ANSWER: Duration = Duration::from_secs(5);
/// A server's answers to the kit are far below.
const MOST: usize = 64 << 20;

impl NatsServer {
    /// Publishes this and gives the answer's payload: of JetStream's API, or of
    /// a stream that acknowledges what it stored.
    ///
    /// # Errors
    /// If the server cannot answer, nobody there does, or the answer is an error
    /// of JetStream's. Of a server with TLS: always.
    pub fn request(&self, subject: &str, payload: &str) -> Result<String, ServerError> {
        self.state().answers()?;
        let answer = exchange(
            self.address(),
            self.settings.login(&self.password),
            subject,
            payload,
        );
        let failed = |source: Box<dyn std::error::Error + Send + Sync>| ServerError::Command {
            command: subject.to_owned(),
            source,
        };
        let answer = answer.map_err(|e| failed(e.into()))?;
        match answer.contains("\"error\":{") {
            true => Err(failed(answer.into())),
            false => Ok(answer),
        }
    }
}

fn exchange(
    address: SocketAddr,
    login: Option<(String, String)>,
    subject: &str,
    payload: &str,
) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, ANSWER)?;
    stream.set_read_timeout(Some(ANSWER))?;
    stream.set_write_timeout(Some(ANSWER))?;
    let login = login.map_or_else(String::new, |(user, password)| {
        format!(r#","user":"{user}","pass":"{password}""#)
    });
    let inbox = format!("_INBOX.kit.{:016x}", getrandom::u64()?);
    write!(
        stream,
        "CONNECT {{\"verbose\":false,\"headers\":true,\"no_responders\":true{login}}}\r\n\
         SUB {inbox} 1\r\nPUB {subject} {inbox} {}\r\n{payload}\r\n",
        payload.len()
    )?;
    let mut lines = BufReader::new(stream);
    loop {
        let mut line = String::new();
        if lines.read_line(&mut line)? == 0 {
            return Err(error("the server ended the connection".into()));
        }
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        match words.first() {
            Some(&"MSG") => {
                let bytes = words.last().and_then(|n| n.parse::<usize>().ok());
                let bytes = bytes.filter(|n| *n <= MOST);
                let bytes = bytes.ok_or_else(|| error(format!("not a message: {line}")))?;
                let mut answer = vec![0; bytes];
                lines.read_exact(&mut answer)?;
                return Ok(String::from_utf8_lossy(&answer).into_owned());
            }
            // A status without a payload.
            Some(&"HMSG") => return Err(error("nobody answers there".into())),
            Some(&"-ERR") => return Err(error(line.trim().to_owned())),
            // What it tells of itself, and pings, which it does not miss so soon.
            _ => {}
        }
    }
}

fn error(words: String) -> std::io::Error {
    std::io::Error::other(words)
}
