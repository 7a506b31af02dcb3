//! `rediss://`.

use redis::{Client, ClientTlsConfig, ConnectionInfo, TlsCertificates};

/// The PEM files that a URL names.
#[derive(Debug, Default)]
pub(crate) struct Files {
    pub(crate) authority: Option<String>,
    pub(crate) certificate: Option<String>,
    pub(crate) key: Option<String>,
}

/// A client that trusts the authority in `files`, or the system's where
/// they name none, and that shows the certificate in `files`, if there is
/// one. Errors name no file's content.
pub(crate) fn client(info: ConnectionInfo, files: &Files) -> Result<Client, String> {
    let client_tls = match (&files.certificate, &files.key) {
        (Some(certificate), Some(key)) => Some(ClientTlsConfig {
            client_cert: read("cert", certificate, "BEGIN CERTIFICATE-----")?,
            client_key: read("key", key, "PRIVATE KEY-----")?,
        }),
        (None, None) => None,
        _ => return Err("cert and key belong together; give both or neither".to_owned()),
    };
    let root_cert = files
        .authority
        .as_ref()
        .map(|path| read("ca", path, "BEGIN CERTIFICATE-----"))
        .transpose()?;
    let certificates = TlsCertificates {
        client_tls,
        root_cert,
    };
    // What the driver says might quote a line of the key.
    Client::build_with_tls(info, certificates).map_err(|_| {
        "one of the files that ca, cert and key name is damaged; make them PEM again".to_owned()
    })
}

/// The driver takes a file without a certificate for an empty list of
/// authorities, and then trusts nobody.
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
