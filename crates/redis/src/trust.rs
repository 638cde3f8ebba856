//! TLS: whether a file names whom to trust, and what is said of a server that is not trusted.

use std::error::Error as StdError;
use std::io;
use std::sync::Arc;

use leasehold_core::StoreErrorKind;
use redis::RedisError;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{AlertDescription, CertificateError, RootCertStore};

/// What is wrong with a file that is to name whom to trust. One that names nobody would only be noticed when the
/// first server is not trusted.
pub(crate) fn wrong_with(ca: &[u8]) -> Option<String> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(ca) {
        let added = certificate.map_err(|error| error.to_string());
        if let Err(why) = added.and_then(|one| roots.add(one).map_err(|error| error.to_string())) {
            return Some(why);
        }
    }
    roots.is_empty().then(|| "there is no certificate in it".to_owned())
}

/// What is said of a connection that could not be made safe.
pub(crate) struct Said {
    pub(crate) kind: StoreErrorKind,
    pub(crate) message: String,
    pub(crate) help: &'static str,
}

/// What is to be said of this, if it is about TLS at all.
pub(crate) fn said(error: &RedisError) -> Option<Said> {
    let error = within(error)?;
    let denied = |message: String, help| Said { kind: StoreErrorKind::Denied, message, help };
    Some(match error {
        rustls::Error::InvalidCertificate(
            CertificateError::UnknownIssuer | CertificateError::BadSignature,
        ) => denied(
            "the server's certificate is signed by nobody whom we trust".to_owned(),
            "name the certificate of its authority in the URL: ca=/path/ca.pem",
        ),
        rustls::Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => denied(
            format!("the server's certificate is for another host: {error}"),
            "write the host in the URL as the certificate has it",
        ),
        rustls::Error::InvalidCertificate(_) => denied(
            format!("the server's certificate cannot be trusted: {error}"),
            "look at it, and at this machine's clock: `openssl s_client -connect host:port`",
        ),
        rustls::Error::AlertReceived(
            AlertDescription::CertificateRequired
            | AlertDescription::HandshakeFailure
            | AlertDescription::BadCertificate,
        ) => denied(
            format!("the server does not accept us: {error}"),
            "it may want a certificate from its clients, and we have none: set tls-auth-clients to no or optional",
        ),
        _ => Said {
            kind: StoreErrorKind::Unavailable,
            message: format!("the connection over TLS failed: {error}"),
            help: "check that this port speaks TLS: one that does not wants redis:// in the URL",
        },
    })
}

/// The error of TLS in one of the connection: it stands where no chain of sources leads.
fn within(error: &RedisError) -> Option<&rustls::Error> {
    let inner = error.source()?.downcast_ref::<Arc<dyn StdError + Send + Sync>>()?;
    let of_io = || inner.downcast_ref::<io::Error>()?.get_ref()?.downcast_ref();
    inner.downcast_ref::<rustls::Error>().or_else(of_io)
}
