//! `/metrics` and `/status` over HTTP, on a thread of their own, which never delays data.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use axum::Router;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;
use base::threads::Threads;
use base::{Error, ErrorKind, Result};
use serde::de::DeserializeOwned;

/// The pages of a process.
pub(crate) trait Pages: Send + Sync {
    /// The metrics, for Prometheus.
    fn metrics(&self) -> String;
    /// The status, as JSON.
    fn status(&self) -> String;
}

/// Errors: other machines would reach the address, and `insecure` is not set.
pub(crate) fn check_open(what: &str, address: SocketAddr, insecure: bool) -> Result<()> {
    if address.ip().is_loopback() || insecure {
        return Ok(());
    }
    Err(Error::invalid_argument(format!(
        "{what} on {address} would be open to other machines without TLS"
    ))
    .hint("use 127.0.0.1, or say --insecure"))
}

/// Serves the pages of this process from now on; returns the address.
pub(crate) fn serve(
    address: SocketAddr,
    insecure: bool,
    pages: Arc<dyn Pages>,
    threads: &dyn Threads,
) -> Result<SocketAddr> {
    check_open("--metrics", address, insecure)?;
    let failed = |what: &str, e: std::io::Error| {
        Error::new(ErrorKind::IoError, format!("cannot {what} {address}: {e}")).because(e)
    };
    let listener = TcpListener::bind(address).map_err(|e| failed("listen on", e))?;
    let bound = listener.local_addr().map_err(|e| failed("find", e))?;
    listener
        .set_nonblocking(true)
        .map_err(|e| failed("set up", e))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        // axum sleeps while connections cannot be accepted.
        .enable_time()
        .build()
        .map_err(|e| failed("serve", e))?;
    let run = move || {
        let served = runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            axum::serve(listener, router(pages)).await
        });
        if let Err(e) = served {
            crate::say(&format!("HTTP on {bound} has ended: {e}"));
        }
    };
    let thread = threads.start("http", Box::new(run));
    // The thread ends with the process.
    drop(thread.map_err(|e| failed("serve", e))?);
    Ok(bound)
}

fn router(pages: Arc<dyn Pages>) -> Router {
    let (metrics, status) = (Arc::clone(&pages), pages);
    let text = "text/plain; version=0.0.4";
    Router::new()
        .route(
            "/metrics",
            get(move || {
                let body = metrics.metrics();
                async move { ([(CONTENT_TYPE, text)], body) }
            }),
        )
        .route(
            "/status",
            get(move || {
                let body = status.status();
                async move { ([(CONTENT_TYPE, "application/json")], body) }
            }),
        )
        .fallback(|| async { (StatusCode::NOT_FOUND, "there are /metrics and /status\n") })
}

/// The status of a process. Errors: it does not answer within 2 s.
pub(crate) fn status<T: DeserializeOwned>(address: &str) -> Result<T> {
    let failed = |e: String| Error::new(ErrorKind::IoError, format!("{address}: {e}"));
    let config = ureq::Agent::config_builder()
        .timeout_global(Some(std::time::Duration::from_secs(2)))
        .build();
    let agent = ureq::Agent::new_with_config(config);
    let mut answer = agent
        .get(format!("http://{address}/status"))
        .call()
        .map_err(|e| failed(e.to_string()))?;
    let text = answer
        .body_mut()
        .read_to_string()
        .map_err(|e| failed(e.to_string()))?;
    serde_json::from_str(&text).map_err(|e| failed(e.to_string()))
}
