//! Certificates for a server under test, made for it alone: those of no authority that anybody trusts.

use std::io;
use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose};

/// The only name for which a server under test has a certificate: its address is another one.
pub const HOST: &str = "localhost";

/// The files of a server in its folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certificates {
    /// Who signed the server's certificate.
    pub ca: PathBuf,
    /// The server's certificate.
    pub certificate: PathBuf,
    /// The server's key.
    pub key: PathBuf,
}

impl Certificates {
    /// Those of the server in this folder.
    #[must_use]
    pub fn of(folder: &Path) -> Self {
        let [ca, certificate, key] = ["ca.pem", "server.pem", "server.key"].map(|name| folder.join(name));
        Self { ca, certificate, key }
    }

    /// Makes them, unless they are there.
    pub(super) fn make(&self) -> io::Result<()> {
        let Self { ca, certificate, key } = self;
        if key.exists() {
            return Ok(());
        }
        let authority = authority()?;
        let own_key = KeyPair::generate().map_err(io::Error::other)?;
        let params = CertificateParams::new([HOST.to_owned()]).map_err(io::Error::other)?;
        let own = params.signed_by(&own_key, &authority).map_err(io::Error::other)?;
        std::fs::write(ca, authority.pem())?;
        std::fs::write(certificate, own.pem())?;
        std::fs::write(key, own_key.serialize_pem())
    }
}

/// An authority that nobody trusts.
///
/// # Errors
///
/// When no key can be made.
pub fn authority() -> io::Result<CertifiedIssuer<'static, KeyPair>> {
    let key = KeyPair::generate().map_err(io::Error::other)?;
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params.distinguished_name.push(DnType::CommonName, "an authority for tests");
    CertifiedIssuer::self_signed(params, key).map_err(io::Error::other)
}
