//! `rediss://`.
//!
//! # Why not by the driver
//! For each connection it reads the certificates of all of the system's authorities
//! anew, also where the URL names the only one to trust: some hundred files, read
//! and parsed in a task of the runtime. A look at the primary over three sentinels
//! is four connections, and in a program that was not optimised it took most of a
//! second of both. Here they are read once.

use std::io;
use std::sync::{Arc, OnceLock};

use futures_util::future::select_ok;
use redis::io::tcp::TcpSettings;
use redis::io::tcp::socket2::SockRef;
use redis::{ConnectionAddr, ConnectionInfo, RedisResult};
use rustls::client::Resumption;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::{TcpStream, lookup_host};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// The PEM files that a URL names.
#[derive(Debug, Default)]
pub(crate) struct Files {
    pub(crate) authority: Option<String>,
    pub(crate) certificate: Option<String>,
    pub(crate) key: Option<String>,
}

/// Whom to trust, and what to show.
#[derive(Clone)]
pub(crate) struct Tls(TlsConnector);

impl Tls {
    /// Trusts the authority in `files`, or the system's where they name none, and
    /// shows the certificate in `files`, if there is one. Errors name no file's
    /// content.
    pub(crate) fn of(files: &Files) -> Result<Self, String> {
        choose_cryptography();
        let roots = match &files.authority {
            Some(path) => Arc::new(authority(&read("ca", path, "BEGIN CERTIFICATE-----")?)?),
            None => system()?,
        };
        let config = ClientConfig::builder().with_root_certificates(roots);
        let mut config = match (&files.certificate, &files.key) {
            (Some(certificate), Some(key)) => {
                let certificate = read("cert", certificate, "BEGIN CERTIFICATE-----")?;
                let key = read("key", key, "PRIVATE KEY-----")?;
                let chain = CertificateDer::pem_slice_iter(&certificate).collect::<Result<_, _>>();
                let key = PrivateKeyDer::from_pem_slice(&key);
                let (Ok(chain), Ok(key)) = (chain, key) else {
                    return Err(damaged());
                };
                let shown = config.with_client_auth_cert(chain, key);
                shown.map_err(|_| damaged())?
            }
            (None, None) => config.with_no_client_auth(),
            _ => return Err("cert and key belong together; give both or neither".to_owned()),
        };
        // A server that asks for certificates and has `tls-session-caching no` ends
        // every connection that would resume another one.
        config.resumption = Resumption::disabled();
        Ok(Self(TlsConnector::from(Arc::new(config))))
    }

    /// Connects to the server and checks its certificate.
    ///
    /// # Errors
    /// Of input and output; where TLS could not be agreed on, invalid data.
    ///
    /// # Cancel safety
    /// Safe: the connection is closed.
    pub(super) async fn stream(&self, info: &ConnectionInfo) -> RedisResult<TlsStream<TcpStream>> {
        let (ConnectionAddr::TcpTls { host, port, .. } | ConnectionAddr::Tcp(host, port)) =
            info.addr()
        else {
            return Err(io::Error::from(io::ErrorKind::Unsupported).into());
        };
        let name = ServerName::try_from(host.as_str())?.to_owned();
        let places: Vec<_> = lookup_host((host.as_str(), *port)).await?.collect();
        if places.is_empty() {
            let words = "the host has no address";
            return Err(io::Error::new(io::ErrorKind::NotFound, words).into());
        }
        // All at once, as the driver does.
        let tries = places.into_iter().map(|place| {
            let name = name.clone();
            Box::pin(async move {
                let stream = TcpStream::connect(place).await?;
                set(&stream, info.tcp_settings())?;
                self.0.connect(name, stream).await
            })
        });
        let (stream, _) = select_ok(tries).await?;
        Ok(stream)
    }
}

fn set(stream: &TcpStream, settings: &TcpSettings) -> io::Result<()> {
    stream.set_nodelay(settings.nodelay())?;
    let socket = SockRef::from(stream);
    if let Some(keepalive) = settings.keepalive() {
        socket.set_tcp_keepalive(keepalive)?;
    }
    #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
    socket.set_tcp_user_timeout(settings.user_timeout())?;
    Ok(())
}

fn authority(pem: &[u8]) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|_| damaged())?;
        roots.add(certificate).map_err(|_| damaged())?;
    }
    Ok(roots)
}

/// The system's authorities, as they were when the process asked first. One that is
/// damaged is left out: nobody can be vouched for by it.
fn system() -> Result<Arc<RootCertStore>, String> {
    static ALL: OnceLock<Arc<RootCertStore>> = OnceLock::new();
    if let Some(all) = ALL.get() {
        return Ok(Arc::clone(all));
    }
    let read = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    let (used, _) = roots.add_parsable_certificates(read.certs);
    if used == 0 {
        return Err(
            "the system has no certificates of authorities that can be read; install them (the \
             package ca-certificates), or name the authority of the server by \
             ?ca=/path/authority.pem"
                .to_owned(),
        );
    }
    Ok(Arc::clone(ALL.get_or_init(|| Arc::new(roots))))
}

fn damaged() -> String {
    "one of the files that ca, cert and key name is damaged; make them PEM again".to_owned()
}

/// A file without such a block would be read as one that names nobody.
fn read(option: &str, path: &str, block: &str) -> Result<Vec<u8>, String> {
    let pem = std::fs::read(path)
        .map_err(|error| format!("the file that {option} names cannot be read: {error}"))?;
    if !pem
        .windows(block.len())
        .any(|part| part == block.as_bytes())
    {
        return Err(format!(
            "the file that {option} names holds no PEM block that ends with {block}"
        ));
    }
    Ok(pem)
}

/// `rustls` panics at the first connection where the process has chosen no
/// cryptography and the features of its crates do not choose one.
pub(super) fn choose_cryptography() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // Somebody else may have been quicker: as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
}
