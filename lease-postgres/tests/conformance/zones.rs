//! A way to a server on which sessions get a time zone and a style of dates of our
//! choice. The driver asks for `UTC` and `ISO` at the start of each, and no
//! setting of a role or a URL is stronger than that; so its first message is
//! rewritten on the way.

use std::net::{Ipv4Addr, SocketAddr};

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// A zone, and a style of dates as the server shows it.
type Zone = (&'static str, &'static str);

const ZONES: [Zone; 5] = [
    ("Pacific/Kiritimati", "German, DMY"),
    ("Asia/Kathmandu", "SQL, DMY"),
    ("America/St_Johns", "SQL, MDY"),
    ("Pacific/Pago_Pago", "Postgres, DMY"),
    ("Europe/Berlin", "ISO, YMD"),
];

/// Of the client with this number.
pub(crate) fn zone(number: usize) -> Zone {
    ZONES[number % ZONES.len()]
}

/// Stands until dropped, in the runtime that it was made in.
pub(crate) struct Zones {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl Zones {
    pub(crate) async fn before(server: SocketAddr, zone: Zone) -> std::io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(async move {
                    // Its end is the connection's.
                    let _ = carry(client, server, zone).await;
                });
            }
        });
        Ok(Self { address, task })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Zones {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn carry(
    mut client: TcpStream,
    server: SocketAddr,
    (zone, style): Zone,
) -> std::io::Result<()> {
    let mut server = TcpStream::connect(server).await?;
    let length = client.read_u32().await?;
    let mut message = vec![
        0;
        usize::try_from(length)
            .unwrap_or_default()
            .saturating_sub(4)
    ];
    client.read_exact(&mut message).await?;
    let text = String::from_utf8_lossy(&message).into_owned();
    let text = replaced(&text, "TimeZone\0UTC\0", &format!("TimeZone\0{zone}\0"));
    let text = replaced(
        &text,
        "DateStyle\0ISO, MDY\0",
        &format!("DateStyle\0{style}\0"),
    );
    server
        .write_u32(u32::try_from(text.len()).unwrap() + 4)
        .await?;
    server.write_all(text.as_bytes()).await?;
    copy_bidirectional(&mut client, &mut server).await?;
    Ok(())
}

fn replaced(text: &str, from: &str, to: &str) -> String {
    assert!(text.contains(from), "the driver begins with other settings");
    text.replace(from, to)
}
