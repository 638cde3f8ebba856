//! Who is trusted over TLS, as whom we speak, and what becomes of a login that the cluster has forgotten.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use leasehold_core::{Check, Clock, Code, Doctor, Error, Health, LockName, Store};
use leasehold_etcd::EtcdStore;
use leasehold_harness::servers::certificates::{HOST, authority};
use leasehold_harness::servers::etcd::{Etcd, ask};
use leasehold_harness::servers::{NoServer, find};
use rcgen::{CertificateParams, KeyPair};

const PATIENCE: Duration = Duration::from_secs(30);

async fn look(url: &str) -> Result<(), Error> {
    let store = EtcdStore::open(&url.parse()?)?;
    store.inspect(&LockName::parse("secret")?).await.map(|_| ())
}

/// What such a URL is told, which is nothing about passwords.
async fn refused(url: &str) -> Error {
    let error = look(url).await.unwrap_err();
    let told = format!("{error} {error:?} {:?}", error.help());
    assert!(!told.contains("hunter2"), "{told}");
    assert!(error.help().is_some() && !error.outcome_unknown(), "{told}");
    error
}

/// An etcd that speaks TLS with those who have a certificate of the same authority; killed when dropped.
struct Encrypted {
    child: Child,
    port: u16,
    folder: tempfile::TempDir,
}

impl Encrypted {
    fn start(program: &Path) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let authority = authority().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("ca.pem"), authority.pem()).unwrap();
        std::fs::write(at("other.pem"), leasehold_harness::servers::certificates::authority().unwrap().pem())
            .unwrap();
        for who in ["server", "client"] {
            let key = KeyPair::generate().unwrap();
            let params = CertificateParams::new([HOST.to_owned()]).unwrap();
            std::fs::write(at(&format!("{who}.pem")), params.signed_by(&key, &authority).unwrap().pem())
                .unwrap();
            std::fs::write(at(&format!("{who}.key")), key.serialize_pem()).unwrap();
        }
        let free = || TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
        let (port, peers) = (free(), free());
        let peers = format!("http://127.0.0.1:{peers}");
        let clients = format!("https://127.0.0.1:{port}");
        let file = |name: &str| at(name).display().to_string();
        let child = Command::new(program)
            .args(["--name=m0", "--client-cert-auth", "--log-level=error"])
            .arg(format!("--data-dir={}", file("data")))
            .arg(format!("--listen-client-urls={clients}"))
            .arg(format!("--advertise-client-urls={clients}"))
            .arg(format!("--listen-peer-urls={peers}"))
            .arg(format!("--initial-advertise-peer-urls={peers}"))
            .arg(format!("--initial-cluster=m0={peers}"))
            .arg(format!("--cert-file={}", file("server.pem")))
            .arg(format!("--key-file={}", file("server.key")))
            .arg(format!("--trusted-ca-file={}", file("ca.pem")))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self { child, port, folder }
    }

    fn url(&self, ca: &str, more: &str) -> String {
        let file = |name: &str| self.folder.path().join(name).display().to_string();
        let more = more.replace("CERT", &file("client.pem")).replace("KEY", &file("client.key"));
        format!("etcds://{HOST}:{}?timeout=2s&ca={}{more}", self.port, file(ca))
    }
}

impl Drop for Encrypted {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[tokio::test]
async fn whoever_is_signed_by_the_named_authority_is_trusted_and_nobody_else() {
    let Some(program) = find("etcd") else { return eprintln!("skipped: there is no etcd here") };
    let server = Encrypted::start(&program);
    let (url, clock) = (server.url("ca.pem", "&cert=CERT&key=KEY"), Clock::system());
    let limit = clock.now().after(PATIENCE);
    while let Err(error) = look(&url).await {
        assert!(clock.now() < limit, "{error}");
    }
    let error = refused(&server.url("other.pem", "&cert=CERT&key=KEY")).await;
    assert!(error.to_string().contains("certificate"), "{error}");
    let error = refused(&url.replace("localhost", "127.0.0.1")).await;
    assert!(error.to_string().contains("certificate"), "{error}");
    // The server wants to know who we are.
    look(&server.url("ca.pem", "")).await.unwrap_err();
    look(url.replace("etcds://", "etcd://").split('?').next().unwrap()).await.unwrap_err();
}

fn base64(text: &str) -> &'static str {
    match text {
        "lock/" => "bG9jay8=",
        "lock0" => "bG9jazA=",
        _ => unreachable!(),
    }
}

#[tokio::test]
async fn the_least_rights_are_enough_and_a_forgotten_login_is_made_anew() {
    let mut server = match Etcd::default().start() {
        Ok(server) => server,
        Err(NoServer::Missing(tool)) => return eprintln!("skipped: there is no {tool} here"),
        Err(error) => panic!("{error}"),
    };
    let permission = format!(
        r#"{{"name":"locks","perm":{{"permType":"READWRITE","key":"{}","range_end":"{}"}}}}"#,
        base64("lock/"),
        base64("lock0")
    );
    for (path, body) in [
        ("/v3/auth/user/add", r#"{"name":"root","password":"hunter1"}"#),
        ("/v3/auth/role/add", r#"{"name":"root"}"#),
        ("/v3/auth/user/grant", r#"{"user":"root","role":"root"}"#),
        ("/v3/auth/user/add", r#"{"name":"me","password":"hunter2"}"#),
        ("/v3/auth/role/add", r#"{"name":"locks"}"#),
        ("/v3/auth/role/grant", &permission),
        ("/v3/auth/user/grant", r#"{"user":"me","role":"locks"}"#),
        ("/v3/auth/enable", "{}"),
    ] {
        ask(&server, path, body).unwrap();
    }
    let at = server.address();
    assert_eq!(refused(&format!("etcd://{at}")).await.code(), Code::DENIED);
    assert_eq!(refused(&format!("etcd://me:hunter2-not@{at}")).await.code(), Code::DENIED);
    assert_eq!(refused(&format!("etcd://me:hunter2@{at}/other")).await.code(), Code::DENIED);
    let store = EtcdStore::open(&format!("etcd://me:hunter2@{at}").parse().unwrap()).unwrap();
    // All that a lock needs, and leaves nothing.
    let name = LockName::parse("job").unwrap();
    assert!(store.bare(&name).await.unwrap().is_some());
    let checks: Vec<Check> = store.checkup().await;
    assert!(checks.iter().all(|check| check.health != Health::Failed), "{checks:?}");
    // It forgets all logins by this.
    server.kill();
    server.go_on().unwrap();
    let clock = Clock::system();
    let limit = clock.now().after(PATIENCE);
    while let Err(error) = store.inspect(&name).await {
        assert!(error.code() != Code::DENIED && clock.now() < limit, "{error}");
    }
    assert!(store.bare(&name).await.unwrap().is_some());
}
