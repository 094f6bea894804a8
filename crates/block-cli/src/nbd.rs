//! `nbd`: serves the cluster's volumes to NBD clients.

use std::path::Path;
use std::sync::Arc;

use base::clock::SystemClock;
use base::metrics::Metrics;
use base::threads::SystemThreads;
use base::{Error, Result};
use block::client::run::{Options, Remote};
use block::client::stats::Stats;
use block::client::volume;
use block::nbd::serve::{self, Say, Server};
use block::nbd::socket::Listener;

use crate::cluster::{Cluster, address};
use crate::http::{self, Pages};
use crate::{chunk, cli, say, signals, status};

/// Serves until it is told to end.
pub(crate) fn run(args: &cli::Nbd) -> Result<()> {
    if let Some(parent) = args.common.with_parent {
        signals::end_with_parent(parent)?;
    }
    io::posix::raise_descriptor_limit();
    let cluster = Cluster::read(&args.common.cluster)?;
    let listen = args.listen.as_ref().or(cluster.nbd.listen.as_ref());
    let listen = listen.ok_or_else(|| {
        Error::invalid_argument("it is not known where NBD clients come")
            .hint("say --listen 127.0.0.1:10809, or [nbd] listen in the cluster file")
    })?;
    let listener = listener(listen, args.common.insecure)?;
    let clock = SystemClock::shared();
    let tell: Say = say::limited("nbd".to_owned(), Arc::clone(&clock));
    let remote = Remote::new(Options {
        cluster: cluster.uuid()?,
        stores: cluster.addresses()?,
        replicas: cluster.replicas(),
        volumes: cluster.specs()?,
        volume: volume::Options::default(),
        clock: Arc::clone(&clock),
        seed: chunk::seed(&*clock),
        say: Arc::clone(&tell),
    })?;
    let stats = remote.stats();
    let server = Server::new(listener, remote, serve::Options::default(), clock)?.with_say(tell);
    let uri = server.uri();
    let metrics = args
        .common
        .metrics
        .as_ref()
        .or(cluster.nbd.metrics.as_ref());
    let mut also = String::new();
    if let Some(text) = metrics {
        let pages = Arc::new(NbdPages {
            uri: uri.clone(),
            stats,
        });
        let bound = http::serve(address(text)?, args.common.insecure, pages, &SystemThreads)?;
        also = format!(", http://{bound}/metrics");
    }
    let stop = server.stop_handle();
    signals::on_stop(&SystemThreads, move || stop.stop())?;
    say(&format!("nbd: listens on {uri}{also}"));
    server.run()?;
    say("nbd: ended");
    Ok(())
}

fn listener(text: &str, insecure: bool) -> Result<Listener> {
    match text.strip_prefix("unix:") {
        Some(path) => Listener::unix(Path::new(path)),
        None => Listener::tcp(address(text)?, insecure),
    }
}

struct NbdPages {
    uri: String,
    stats: Arc<Stats>,
}

impl Pages for NbdPages {
    fn metrics(&self) -> String {
        let mut metrics = Metrics::default();
        self.stats.write(&mut metrics);
        metrics.text()
    }

    fn status(&self) -> String {
        let status = status::Nbd::of(&self.uri, &self.stats);
        serde_json::to_string(&status).unwrap_or_default()
    }
}
