//! A certificate authority and a server certificate, made for one server.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

use super::ServerError;

/// Where the files are.
#[derive(Clone, Debug)]
pub(crate) struct TlsFiles {
    /// The authority that clients must trust.
    pub(crate) authority: PathBuf,
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

impl TlsFiles {
    /// Where the files would be; none is written.
    pub(crate) fn in_folder(folder: &Path) -> Self {
        Self {
            authority: folder.join("ca.pem"),
            certificate: folder.join("server.pem"),
            key: folder.join("server.key"),
        }
    }

    /// Writes certificates for `localhost` and `127.0.0.1`.
    pub(crate) fn create(&self) -> Result<(), ServerError> {
        let (authority, certificate, key) =
            pem().map_err(|e| ServerError::Certificates(Box::new(e)))?;
        for (path, text) in [
            (&self.authority, authority),
            (&self.certificate, certificate),
            (&self.key, key),
        ] {
            fs::write(path, text)
                .map_err(|e| ServerError::io(format!("write {}", path.display()), e))?;
        }
        Ok(())
    }
}

fn pem() -> Result<(String, String, String), rcgen::Error> {
    let mut params = CertificateParams::new(Vec::<String>::new())?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params
        .distinguished_name
        .push(DnType::CommonName, "lease-conformance test authority");
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let key = KeyPair::generate()?;
    let authority = params.self_signed(&key)?;
    let issuer = Issuer::new(params, key);

    let mut params = CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()])?;
    params
        .distinguished_name
        .push(DnType::CommonName, "lease-conformance test server");
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    // A replica is a client of its primary, with the same certificate.
    params.extended_key_usages = vec![
        ExtendedKeyUsagePurpose::ServerAuth,
        ExtendedKeyUsagePurpose::ClientAuth,
    ];
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, &issuer)?;
    Ok((authority.pem(), certificate.pem(), key.serialize_pem()))
}
