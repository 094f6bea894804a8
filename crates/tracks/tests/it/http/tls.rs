//! TLS: certificates, reloading them, and clients that do not complete a handshake.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base::clock::SystemClock;
use tracks::http::Config;
use tracks::http::tls::Tls;
use tracks::service::Options;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

use super::{T, TIMEOUT, World, answer, line, rest};

/// Writes a self-signed certificate for localhost, and its key. Returns the certificate in PEM.
pub(crate) fn write_certificate(dir: &Path) -> String {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    std::fs::write(dir.join("cert.pem"), made.cert.pem()).unwrap();
    std::fs::write(dir.join("key.pem"), made.signing_key.serialize_pem()).unwrap();
    made.cert.pem()
}

/// A client that trusts one certificate.
pub(crate) fn trusting(pem: &str) -> ureq::Agent {
    let root = Certificate::from_pem(pem.as_bytes()).unwrap();
    let tls = TlsConfig::builder()
        .root_certs(RootCerts::new_with_certs(&[root]))
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .build();
    let config = ureq::Agent::config_builder()
        .timeout_global(Some(TIMEOUT))
        .http_status_as_error(false)
        .tls_config(tls)
        .build();
    ureq::Agent::new_with_config(config)
}

/// A server with TLS; the folder of its certificate, the certificate, and the handle to reload it.
fn world(config: Config) -> (World, tempfile::TempDir, String, Arc<Tls>) {
    let files = tempfile::tempdir().unwrap();
    let pem = write_certificate(files.path());
    let tls = Tls::open(
        &files.path().join("cert.pem"),
        &files.path().join("key.pem"),
    )
    .unwrap();
    let tls = Arc::new(tls);
    let config = Config {
        tls: Some(Arc::clone(&tls)),
        ..config
    };
    let mut world = World::with(&Options::default(), config, None);
    world.agent = trusting(&pem);
    (world, files, pem, tls)
}

fn url(world: &World, path: &str) -> String {
    format!("https://localhost:{}{path}", world.address().port())
}

fn health(world: &World, agent: &ureq::Agent) -> Result<u16, ureq::Error> {
    agent
        .get(url(world, "/healthz"))
        .call()
        .map(|response| response.status().as_u16())
}

#[test]
fn calls_work_and_the_certificate_is_changed_while_they_do() {
    let (world, files, old, tls) = world(Config::default());
    let sent = answer(
        world
            .agent
            .post(url(&world, "/v1/fleets/f/reports"))
            .send(line("a", T, 1.0, 2.0)),
    );
    assert_eq!(sent.json()["stored"], 1);
    // An answer that takes many pieces.
    let lines: Vec<String> = (0..5000)
        .map(|n| line("a", T + f64::from(n), 1.0, 2.0))
        .collect();
    let sent = answer(
        world
            .agent
            .post(url(&world, "/v1/fleets/f/reports"))
            .send(lines.join("\n")),
    );
    assert_eq!(sent.json()["stored"], 4999);
    let track = answer(
        world
            .agent
            .get(url(&world, "/v1/fleets/f/entities/a/track"))
            .call(),
    );
    assert_eq!(track.json()["parts"][0].as_array().unwrap().len(), 5000);
    // A bad file is an error, and changes nothing.
    let cert = files.path().join("cert.pem");
    std::fs::write(&cert, "nothing").unwrap();
    let e = tls.reload().unwrap_err().to_string();
    assert!(e.contains("cert.pem") && e.contains("certificate"), "{e}");
    assert_eq!(health(&world, &trusting(&old)).unwrap(), 200);
    // The key of another certificate.
    let other = tempfile::tempdir().unwrap();
    let foreign = write_certificate(other.path());
    std::fs::write(&cert, &foreign).unwrap();
    let e = tls.reload().unwrap_err().to_string();
    assert!(e.contains("cert.pem") && e.contains("key.pem"), "{e}");
    let new = write_certificate(files.path());
    tls.reload().unwrap();
    assert_eq!(health(&world, &trusting(&new)).unwrap(), 200);
    assert!(health(&world, &trusting(&old)).is_err());
    // The existing connection still works.
    assert_eq!(health(&world, &world.agent).unwrap(), 200);
}

fn connect(address: SocketAddr) -> TcpStream {
    TcpStream::connect(address).unwrap()
}

#[test]
fn who_does_not_shake_hands_is_cut_off_and_disturbs_nobody() {
    let config = Config {
        head_timeout: Duration::from_millis(700),
        connections: 150,
        ..Config::default()
    };
    let (mut world, _files, pem, _) = world(config);
    let clock = SystemClock::shared();
    let mut silent: Vec<TcpStream> = (0..100).map(|_| connect(world.address())).collect();
    assert_eq!(health(&world, &world.agent).unwrap(), 200);
    // A client that speaks plain HTTP gets an error message.
    let mut plain = connect(world.address());
    plain
        .write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
        .unwrap();
    let told = rest(&mut plain);
    assert!(
        told.starts_with("HTTP/1.1 400") && told.contains("use https"),
        "{told}"
    );
    // A client that speaks another protocol, and one that never completes its handshake.
    let mut other = connect(world.address());
    other
        .write_all(&[22, 3, 1, 0, 4, 255, 255, 255, 255])
        .unwrap();
    rest(&mut other);
    let mut slow = connect(world.address());
    let before = clock.monotonic_nanos();
    for byte in [22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3] {
        if slow.write_all(&[byte]).is_err() {
            break;
        }
        clock.sleep(Duration::from_millis(100));
    }
    rest(&mut slow);
    assert!(clock.monotonic_nanos() - before < 4_000_000_000);
    for stream in &mut silent {
        assert_eq!(rest(stream), "");
    }
    // A connection that is idle after its handshake is not affected.
    assert_eq!(health(&world, &world.agent).unwrap(), 200);
    // If all places are taken, a further connection is closed; once the others time out, places are
    // free again.
    let many: Vec<TcpStream> = (0..160).map(|_| connect(world.address())).collect();
    clock.sleep(Duration::from_millis(1200));
    assert_eq!(health(&world, &trusting(&pem)).unwrap(), 200);
    let more: Vec<TcpStream> = (0..20).map(|_| connect(world.address())).collect();
    let before = clock.monotonic_nanos();
    world.server.take().unwrap().stop().unwrap();
    assert!(clock.monotonic_nanos() - before < 3_000_000_000);
    drop((many, more));
}

#[test]
fn files_that_are_no_certificate_are_named() {
    let dir = tempfile::tempdir().unwrap();
    write_certificate(dir.path());
    let (cert, key) = (dir.path().join("cert.pem"), dir.path().join("key.pem"));
    let open = |cert: &Path, key: &Path| Tls::open(cert, key).map(|_| ()).unwrap_err().to_string();
    assert!(open(&key, &cert).contains("there is no certificate"));
    assert!(open(&cert, &cert).contains("no private key"));
    assert!(open(&dir.path().join("none"), &key).contains("none"));
}
