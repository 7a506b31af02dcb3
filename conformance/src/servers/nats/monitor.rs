//! What a server tells of itself by its monitoring port.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;

use super::{NatsServer, ServerError};

/// It answers at once or, stopped, not at all.
const ANSWER: Duration = Duration::from_secs(2);

impl NatsServer {
    /// Whether JetStream serves: of a node of a cluster, in touch with its leader.
    pub(super) fn is_healthy(&self) -> Result<bool, ServerError> {
        Ok(self.page("/healthz")?.pointer("/status") == Some(&Value::from("ok")))
    }

    /// A page of the server's monitor as it is, such as `/jsz`, `/varz` or
    /// `/connz`.
    ///
    /// # Errors
    /// If it does not answer, or not in JSON.
    pub(super) fn page(&self, path: &str) -> Result<Value, ServerError> {
        let get = || -> Result<Value, Box<dyn std::error::Error + Send + Sync>> {
            let mut stream = TcpStream::connect_timeout(&self.monitor(), ANSWER)?;
            stream.set_read_timeout(Some(ANSWER))?;
            // Of this version it ends the connection after the answer, in one piece.
            write!(stream, "GET {path} HTTP/1.0\r\n\r\n")?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            let (_, body) = answer.split_once("\r\n\r\n").ok_or("no answer in HTTP")?;
            Ok(serde_json::from_str(body)?)
        };
        get().map_err(|source| ServerError::Command {
            command: format!("GET {path}"),
            source,
        })
    }
}
