//! TLS by rustls: 1.2 and 1.3, with a certificate that can be reloaded while connections are open.

use std::io::ErrorKind as IoKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use base::{Error, Result};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{RootCertStore, ServerConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

use super::problem::{Kind, Problem};

/// The first byte of a handshake record.
const HANDSHAKE: u8 = 22;

/// A certificate with its key, from files.
#[derive(Debug)]
pub struct Tls {
    cert: PathBuf,
    key: PathBuf,
    now: ArcSwap<ServerConfig>,
}

impl Tls {
    /// Reads the files: certificates in PEM, the server's first, and its key in PEM. Errors: a file
    /// cannot be read, which the error names; the key does not match.
    pub fn open(cert: &Path, key: &Path) -> Result<Self> {
        let now = ArcSwap::new(config(cert, key)?);
        let (cert, key) = (cert.to_owned(), key.to_owned());
        Ok(Self { cert, key, now })
    }

    /// Reads the files again, for later connections. Errors: as for [`Tls::open`]; the old ones
    /// stay.
    pub fn reload(&self) -> Result<()> {
        self.now.store(config(&self.cert, &self.key)?);
        Ok(())
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.now.load_full())
    }
}

fn wrong(file: &Path, text: impl std::fmt::Display) -> Error {
    Error::invalid_argument(text.to_string()).file(file)
}

/// The certificates of a file, in order. Errors: there are none.
fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let pem = std::fs::read(file).map_err(|e| Error::io("read", file, e))?;
    let all: std::result::Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let all = all.map_err(|e| wrong(file, format!("this is no certificate in PEM: {e}")))?;
    if all.is_empty() {
        return Err(wrong(file, "there is no certificate in PEM in it"));
    }
    Ok(all)
}

fn config(cert: &Path, key: &Path) -> Result<Arc<ServerConfig>> {
    let certs = certificates(cert)?;
    let pem = std::fs::read(key).map_err(|e| Error::io("read", key, e))?;
    let private = PrivateKeyDer::from_pem_slice(&pem)
        .map_err(|e| wrong(key, format!("there is no private key in PEM in it: {e}")))?;
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder
        .with_safe_default_protocol_versions()
        .map_err(Error::broken)?;
    let builder = builder.with_no_client_auth();
    let mut config = builder.with_single_cert(certs, private).map_err(|e| {
        wrong(cert, format!("with the key {}: {e}", key.display()))
            .hint("the first certificate has to be that of the key")
    })?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// The certificates that a client trusts. Errors: the file cannot be read, or has no usable one.
pub(crate) fn roots(file: &Path) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(certificates(file)?);
    if added == 0 {
        return Err(wrong(
            file,
            "there is no certificate in it that can be used",
        ));
    }
    Ok(roots)
}

/// Waits for the first byte. Returns whether a handshake begins; a client that speaks plain HTTP is
/// told to use TLS.
pub(crate) async fn begins(stream: &mut TcpStream) -> std::io::Result<bool> {
    let mut first = [0];
    match stream.peek(&mut first).await? {
        0 => return Err(IoKind::UnexpectedEof.into()),
        _ if first == [HANDSHAKE] => return Ok(true),
        _ => {}
    }
    let body = Problem::new(Kind::InvalidBody, "this address has TLS: use https").into_json();
    let head = format!(
        "HTTP/1.1 400 Bad Request\r\ncontent-type: application/problem+json\r\nconnection: close\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(&body).await?;
    stream.shutdown().await?;
    // Reads what was sent, because otherwise closing would discard the answer.
    let mut rest = [0; 4096];
    for _ in 0..16 {
        if stream.read(&mut rest).await? == 0 {
            break;
        }
    }
    Ok(false)
}
