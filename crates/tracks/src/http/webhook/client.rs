//! Sends one POST to a host: resolves its name, checks the addresses, and connects only to these.
//! Redirects are not followed, and no proxy is used.

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
use tokio::sync::{Semaphore, watch};
use tokio_rustls::TlsConnector;

use super::hosts::{Target, is_public};

/// The most names that are resolved at a time, each only once. The system's resolver has no timeout
/// that we control; callers that wait for a name share one look-up, so that they do not take places
/// from other names.
pub(super) const LOOKUPS: usize = 8;
/// The most bytes of an answer's head.
const HEAD_MAX: usize = 16 * 1024;

/// The HTTP client of webhooks.
#[derive(Debug)]
pub(super) struct Client {
    lookups: Arc<Semaphore>,
    /// The names that are being resolved, or wait for a place.
    names: Arc<Names>,
    resolver: Resolver,
    tls: OnceLock<Result<Arc<ClientConfig>, String>>,
}

/// Resolves a name.
type Resolver = fn(&str, u16) -> std::io::Result<Vec<SocketAddr>>;

/// The addresses of a name, without ports.
type Found = Result<Vec<SocketAddr>, String>;
/// Sends the result to the callers that wait for a name.
type Lookup = watch::Sender<Option<Found>>;
type Names = Mutex<BTreeMap<String, Weak<Lookup>>>;

/// The system's resolver.
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
            names: Arc::default(),
            resolver,
            tls: OnceLock::new(),
        }
    }

    /// Sends a body, unless `may_send` forbids it once the connection is ready, and returns the
    /// status of the answer; `None` if it was not sent. Errors: there is no answer.
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

    /// The addresses of a host that are allowed.
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
        let mut found = self.lookup(&host);
        let found = found.wait_for(Option::is_some).await;
        // Nothing is found if the server stops.
        let found = found.ok().and_then(|found| Option::clone(&found));
        let mut all = found.unwrap_or_else(|| Err(format!("cannot resolve {host}: stopped")))?;
        for address in &mut all {
            address.set_port(port);
        }
        Ok(all)
    }

    /// Joins the look-up of a name that is in progress, or starts one.
    fn lookup(&self, host: &str) -> watch::Receiver<Option<Found>> {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(name) = names.get(host).and_then(Weak::upgrade) {
            return name.subscribe();
        }
        let (sender, receiver) = watch::channel(None);
        let name = Arc::new(sender);
        names.insert(host.to_owned(), Arc::downgrade(&name));
        drop(names);
        let of = (Arc::clone(&self.names), Arc::clone(&self.lookups));
        tokio::spawn(look_up(of, name, host.to_owned(), self.resolver));
        receiver
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

/// Resolves a name once there is a place, and wakes the callers that wait for it.
async fn look_up(
    (names, lookups): (Arc<Names>, Arc<Semaphore>),
    name: Arc<Lookup>,
    host: String,
    resolver: Resolver,
) {
    let lock = || names.lock().unwrap_or_else(PoisonError::into_inner);
    let place = lookups.acquire_owned().await;
    {
        // The lock keeps callers from joining meanwhile.
        let mut names = lock();
        if name.receiver_count() == 0 {
            names.remove(&host);
            return;
        }
    }
    let its = host.clone();
    // The look-up continues even if nobody waits any more, so that it keeps its place.
    let found = tokio::task::spawn_blocking(move || {
        let found = resolver(&its, 0);
        drop(place);
        found.map_err(|e| format!("cannot resolve {its}: {e}"))
    });
    let found = found.await.unwrap_or_else(|e| Err(e.to_string()));
    // Removed first, so that later callers start a new look-up.
    lock().remove(&host);
    name.send_replace(Some(found));
}

/// Trusts the certificates of the system.
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
                // Without it, the end of a body may be delayed.
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
                // The response itself tells the result.
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

    /// Look-ups of a hanging name wait until their sender is dropped from this list.
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

    /// A name that hangs does not block the look-ups of other names, and is resolved only once.
    #[test]
    fn a_name_that_hangs_keeps_no_other_waiting_and_is_resolved_once() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        runtime.block_on(async {
            let client = Arc::new(Client::with(resolver));
            let resolve = |host: &str, port| {
                let (client, host) = (Arc::clone(&client), host.to_owned());
                tokio::spawn(async move { client.resolve(host, port).await })
            };
            let hang: Vec<_> = (0..200).map(|n| resolve("hangs.example", n)).collect();
            while HANGING.lock().unwrap().is_empty() {
                tokio::task::yield_now().await;
            }
            let other = resolve("other.example", 80);
            let found = tokio::time::timeout(std::time::Duration::from_secs(10), other).await;
            let is_found = found.is_ok();
            let mut count = 0;
            while !hang.iter().all(tokio::task::JoinHandle::is_finished) {
                count += HANGING.lock().unwrap().drain(..).count();
                tokio::task::yield_now().await;
            }
            for (port, one) in hang.into_iter().enumerate() {
                let found = one.await.unwrap().unwrap();
                let ports: Vec<usize> = found.iter().map(|of| usize::from(of.port())).collect();
                assert_eq!(ports, [port]);
            }
            assert_eq!((count, is_found), (1, true));
            assert_eq!(client.names.lock().unwrap().len(), 0);
            // A name for which nobody waits any more is not resolved.
            let places = Arc::clone(&client.lookups).acquire_many_owned(LOOKUPS as u32);
            let places = places.await.unwrap();
            let alone = resolve("hangs.example", 80);
            while client.names.lock().unwrap().is_empty() {
                tokio::task::yield_now().await;
            }
            alone.abort();
            assert!(alone.await.unwrap_err().is_cancelled());
            drop(places);
            while !client.names.lock().unwrap().is_empty() {
                tokio::task::yield_now().await;
            }
            assert!(HANGING.lock().unwrap().is_empty());
        });
    }
}
