//! One POST to a host: its name is resolved, its addresses are checked, and nothing but these is connected to. Redirects are
//! answers like others, and no proxy is asked.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock, Weak};

use axum::http::{HeaderMap, HeaderValue, Method, Request, StatusCode, header};
use base::sync::{Mutex, PoisonError};
use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http1;
use hyper::rt::{Read, Write};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio_rustls::TlsConnector;

use super::hosts::{Target, is_public};

/// Names that are resolved at a time, each once. The system has no time limit of ours for it, so whoever waits for a name that
/// hangs has no place that another name needs.
pub(super) const LOOKUPS: usize = 8;
/// The most bytes of an answer's head.
const HEAD_MAX: usize = 16 * 1024;

/// See the module.
#[derive(Debug)]
pub(super) struct Client {
    lookups: Arc<Semaphore>,
    /// One place for each name that is being resolved, or waited for.
    names: Mutex<BTreeMap<String, Weak<Semaphore>>>,
    resolver: Resolver,
    tls: OnceLock<Result<Arc<ClientConfig>, String>>,
}

/// Finds the addresses of a name.
type Resolver = fn(&str, u16) -> std::io::Result<Vec<SocketAddr>>;

/// As the system does it.
fn system(host: &str, port: u16) -> std::io::Result<Vec<SocketAddr>> {
    std::net::ToSocketAddrs::to_socket_addrs(&(host, port)).map(Iterator::collect)
}

impl Client {
    pub(super) fn new() -> Self {
        Self::with(system)
    }

    fn with(resolver: Resolver) -> Self {
        Self {
            lookups: Arc::new(Semaphore::new(LOOKUPS)),
            names: Mutex::default(),
            resolver,
            tls: OnceLock::new(),
        }
    }

    /// Sends a body, if it may be sent once all is ready for that, and returns the status of the answer; `None`: it was not
    /// sent. Errors: there is no answer.
    pub(super) async fn post(
        &self,
        target: &Target,
        may_be_private: bool,
        (headers, body): (HeaderMap, Bytes),
        may_send: &(dyn Fn() -> bool + Sync),
    ) -> Result<Option<StatusCode>, String> {
        let addresses = self.addresses(target, may_be_private).await?;
        let stream = connect(&addresses).await?;
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        let path = target.path.parse().map_err(|e| format!("its path: {e}"))?;
        *request.uri_mut() = path;
        *request.headers_mut() = headers;
        let host = HeaderValue::from_str(&target.authority());
        let host = host.map_err(|e| format!("its host: {e}"))?;
        request.headers_mut().insert(header::HOST, host);
        if !target.is_https {
            return send(TokioIo::new(stream), request, may_send).await;
        }
        let name = ServerName::try_from(target.host.clone());
        let name = name.map_err(|e| format!("its host: {e}"))?;
        let tls = self.tls().await?;
        let stream = TlsConnector::from(tls).connect(name, stream).await;
        let stream = stream.map_err(|e| format!("TLS: {e}"))?;
        send(TokioIo::new(stream), request, may_send).await
    }

    /// The addresses of a host that may be connected to.
    async fn addresses(
        &self,
        target: &Target,
        may_be_private: bool,
    ) -> Result<Vec<SocketAddr>, String> {
        let (host, port) = (&target.host, target.port);
        let all = match host.parse::<IpAddr>().ok() {
            Some(address) => vec![SocketAddr::new(address, port)],
            None => self.resolve(host.clone(), port).await?,
        };
        let count = all.len();
        let is_allowed = |address: &SocketAddr| may_be_private || is_public(address.ip());
        let allowed: Vec<SocketAddr> = all.into_iter().filter(is_allowed).collect();
        if allowed.is_empty() && count > 0 {
            return Err(format!(
                "{host} leads to private addresses only: start the server with --webhook-private {host} if it may"
            ));
        }
        Ok(allowed)
    }

    async fn resolve(&self, host: String, port: u16) -> Result<Vec<SocketAddr>, String> {
        let of_name = self.name(&host).acquire_owned().await;
        let of_name = of_name.map_err(|e| e.to_string())?;
        let place = Arc::clone(&self.lookups).acquire_owned().await;
        let place = place.map_err(|e| e.to_string())?;
        let resolver = self.resolver;
        // It goes on when nobody waits any more, so it keeps its places.
        let found = tokio::task::spawn_blocking(move || {
            let found = resolver(&host, port);
            drop((of_name, place));
            found.map_err(|e| format!("cannot resolve {host}: {e}"))
        });
        found.await.map_err(|e| e.to_string())?
    }

    /// The place of a name.
    fn name(&self, host: &str) -> Arc<Semaphore> {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(name) = names.get(host).and_then(Weak::upgrade) {
            return name;
        }
        names.retain(|_, name| name.strong_count() > 0);
        let name = Arc::new(Semaphore::new(1));
        names.insert(host.to_owned(), Arc::downgrade(&name));
        name
    }

    async fn tls(&self) -> Result<Arc<ClientConfig>, String> {
        if let Some(made) = self.tls.get() {
            return made.clone();
        }
        let made = tokio::task::spawn_blocking(config).await;
        let made = made.map_err(|e| e.to_string())?;
        self.tls.get_or_init(|| made).clone()
    }
}

/// Trusts whom the system trusts.
fn config() -> Result<Arc<ClientConfig>, String> {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    let (added, _) = roots.add_parsable_certificates(found.certs);
    if added == 0 {
        let why = found.errors.first().map(ToString::to_string);
        let why = why.unwrap_or_else(|| "install ca-certificates".to_owned());
        return Err(format!(
            "no certificates of authorities on this machine: {why}"
        ));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| e.to_string())?;
    let config = config.with_root_certificates(roots).with_no_client_auth();
    Ok(Arc::new(config))
}

async fn connect(addresses: &[SocketAddr]) -> Result<TcpStream, String> {
    let mut why = "it has no address".to_owned();
    for address in addresses {
        match TcpStream::connect(address).await {
            Ok(stream) => {
                // Without it the end of a body may wait.
                stream.set_nodelay(true).unwrap_or_default();
                return Ok(stream);
            }
            Err(e) => why = format!("cannot connect to {address}: {e}"),
        }
    }
    Err(why)
}

async fn send<I: Read + Write + Unpin>(
    io: I,
    request: Request<Full<Bytes>>,
    may_send: &(dyn Fn() -> bool + Sync),
) -> Result<Option<StatusCode>, String> {
    let failed = |e: hyper::Error| format!("the connection failed: {e}");
    let mut builder = http1::Builder::new();
    builder.max_buf_size(HEAD_MAX);
    let (mut sender, connection) = builder.handshake(io).await.map_err(failed)?;
    tokio::pin!(connection);
    // Connecting may have taken long.
    if !may_send() {
        return Ok(None);
    }
    let answer = sender.send_request(request);
    tokio::pin!(answer);
    let mut is_open = true;
    loop {
        tokio::select! {
            biased;
            answer = &mut answer => return answer.map(|a| Some(a.status())).map_err(failed),
            ended = &mut connection, if is_open => {
                // The answer says how.
                is_open = false;
                drop(ended);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};

    use super::*;

    /// Whoever resolves a name that hangs waits until this is there, and ends when it is dropped.
    static HANGING: Mutex<Vec<Sender<()>>> = Mutex::new(Vec::new());

    fn resolver(host: &str, port: u16) -> std::io::Result<Vec<SocketAddr>> {
        if host == "hangs.example" {
            let (sender, receiver) = channel();
            HANGING.lock().unwrap().push(sender);
            // It ends with its sender.
            assert!(receiver.recv().is_err());
        }
        system("127.0.0.1", port)
    }

    /// Webhooks on one name whose servers did not answer had all places for look-ups, and others none.
    #[test]
    fn a_name_that_hangs_keeps_no_other_waiting() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        runtime.block_on(async {
            let client = Arc::new(Client::with(resolver));
            let resolve = |host: &str| {
                let (client, host) = (Arc::clone(&client), host.to_owned());
                tokio::spawn(async move { client.resolve(host, 80).await })
            };
            let hang: Vec<_> = (0..2 * LOOKUPS).map(|_| resolve("hangs.example")).collect();
            while HANGING.lock().unwrap().is_empty() {
                tokio::task::yield_now().await;
            }
            let other = resolve("other.example");
            let found = tokio::time::timeout(std::time::Duration::from_secs(10), other).await;
            let is_found = found.is_ok();
            let count = HANGING.lock().unwrap().len();
            while !hang.iter().all(tokio::task::JoinHandle::is_finished) {
                HANGING.lock().unwrap().clear();
                tokio::task::yield_now().await;
            }
            for one in hang {
                assert_eq!(one.await.unwrap().unwrap().len(), 1);
            }
            assert_eq!((count, is_found), (1, true));
            // What nobody waits for is forgotten.
            drop(client.name("a third one"));
            assert_eq!(client.names.lock().unwrap().len(), 1);
        });
    }
}
