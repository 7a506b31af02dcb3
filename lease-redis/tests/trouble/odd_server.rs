//! A server that says the same to everything.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Starts one that lets clients in and then answers `words` to each script and
/// each scan. It ends with the runtime.
pub(crate) async fn odd_server(words: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(serve(client, words));
        }
    });
    address
}

async fn serve(mut client: TcpStream, words: &[u8]) {
    // More than the longest request, the whole script.
    let mut buffer = vec![0; 1 << 16];
    while let Ok(count @ 1..) = client.read(&mut buffer).await {
        let text = String::from_utf8_lossy(&buffer[..count]).to_uppercase();
        let written = if text.contains("EVAL") || text.contains("SCAN") {
            client.write_all(words).await
        } else {
            // What the driver tells of itself after it connected.
            let told = text.matches("\r\nCLIENT\r\n").count().max(1);
            client.write_all("+OK\r\n".repeat(told).as_bytes()).await
        };
        if written.is_err() {
            return;
        }
    }
}
