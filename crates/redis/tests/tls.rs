//! Over TLS: who is trusted, and what is said of whom is not.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use leasehold_core::{Code, Error, LockName, Store};
use leasehold_harness::servers::certificates::authority;
use leasehold_harness::servers::redis::{self as servers, Redis};
use leasehold_redis::RedisStore;

mod support;

use support::server::{Server, missing};

/// Starts a server that speaks TLS, with this line besides, or says why the test is skipped.
fn server(line: Option<&str>) -> Option<Server> {
    if let Some(why) = missing() {
        eprintln!("skipped: {why}");
        return None;
    }
    let redis = Redis { tls: true, ..Redis::default() };
    Some(Server::like(line.into_iter().fold(redis, Redis::line)).unwrap())
}

async fn look(url: &str) -> Result<(), Error> {
    let store = RedisStore::open(&url.parse()?)?;
    store.inspect(&LockName::parse("secret")?).await.map(|_| ())
}

/// What such a URL is told, which is nothing about passwords.
async fn refused(url: &str) -> (String, String) {
    let error = look(url).await.unwrap_err();
    let (told, help) = (error.to_string(), error.help().unwrap_or_default().to_string());
    assert!(!told.contains("hunter2") && !help.contains("hunter2"), "{told}: {help}");
    assert!(!error.outcome_unknown(), "nothing was sent: {told}");
    println!("{told}\n  {help}");
    (told, help)
}

#[tokio::test]
async fn whoever_is_signed_by_the_named_authority_is_trusted_and_nobody_else() {
    let Some(server) = server(None) else { return };
    let url = servers::tls_url(server.running());
    look(&url).await.unwrap();

    // Signed by somebody else than the URL says.
    let folder = tempfile::tempdir().unwrap();
    let other = folder.path().join("other.pem");
    std::fs::write(&other, authority().unwrap().pem()).unwrap();
    let (plain, _) = url.split_once('?').unwrap();
    let (told, help) =
        refused(&format!("{}?ca={}", plain.replace("//", "//:hunter2@"), other.display())).await;
    assert!(told.contains("certificate") && help.contains("ca="), "{told}: {help}");

    // Without a ca= only those count whom the machine trusts.
    let (told, help) = refused(plain).await;
    assert!(told.contains("certificate") && help.contains("ca="), "{told}: {help}");

    // The right authority, and a server that the certificate does not name.
    let (told, help) = refused(&url.replace("localhost", "127.0.0.1")).await;
    assert!(told.contains("certificate") && help.contains("host"), "{told}: {help}");
}

#[tokio::test]
async fn one_side_that_speaks_tls_and_another_that_does_not_are_told_so() {
    let Some(server) = server(None) else { return };
    let url = servers::tls_url(server.running());
    let (told, help) = refused(&format!("{}?timeout=500ms", servers::url(server.running()))).await;
    assert!(help.contains("rediss://"), "{told}: {help}");

    let plain = Server::start(&[]).unwrap();
    let (_, options) = url.split_once('?').unwrap();
    let address = servers::url(plain.running()).replace("redis://127.0.0.1", "rediss://localhost");
    let (told, help) = refused(&format!("{address}?{options}&timeout=500ms")).await;
    assert!(help.contains("redis://"), "{told}: {help}");
}

#[tokio::test]
async fn a_file_without_certificates_is_told_when_the_store_is_opened() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "no certificate\n").unwrap();
    let error = look(&format!("rediss://localhost:1?ca={}", file.path().display())).await.unwrap_err();
    let help = error.help().unwrap_or_default().to_string();
    assert_eq!(error.code(), Code::URL, "{error}");
    assert!(error.to_string().contains("ca=") && help.contains("PEM"), "{error}: {help}");
}

#[tokio::test]
async fn a_server_that_wants_a_certificate_from_us_is_told() {
    let Some(server) = server(Some("tls-auth-clients yes")) else { return };
    let (told, help) = refused(&servers::tls_url(server.running())).await;
    assert!(help.contains("tls-auth-clients"), "{told}: {help}");
}
