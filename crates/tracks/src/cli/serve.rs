//! `serve`: the service, until it is told to stop.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::channel;

use base::clock::SystemClock;
use base::threads::SystemThreads;
use base::{Error, Result};
use tracks::http::tokens::Tokens;
use tracks::http::{Config, Hosts, Server, Service, WebhookOptions};
use tracks::service::{Options, Tracks};
use tracks::store::{Engine, Store};

use super::args::Serve;
use super::{print, say, signals};

pub(crate) fn run(args: &Serve) -> Result<ExitCode> {
    check_open(args.listen, args.insecure_http)?;
    let tokens = args.tokens.as_deref().map(Tokens::read).transpose()?;
    // First, so that a signal ends it in order from the beginning.
    let (sender, stopped) = channel();
    signals::on_stop(&SystemThreads, move || {
        // It ends already.
        sender.send(()).unwrap_or_default();
    })?;
    let options = options(args);
    options.write.check()?;
    let engine = Engine::open(&args.dir)?;
    let db = Arc::clone(engine.db());
    let store: Arc<dyn Store> = Arc::new(engine);
    let tracks = Tracks::over(store, &options, SystemClock::shared(), &SystemThreads)?;
    let has_tokens = tokens.is_some();
    let service = Service {
        tracks: Arc::new(tracks),
        db: Some(db),
        tokens,
    };
    let server = Server::start(args.listen, service, config(args))?;
    print(&format!("listening on http://{}", server.address()));
    if !has_tokens {
        say("note: there are no tokens (--tokens): whoever reaches the address may do everything");
    }
    // Errors: there is no thread for signals any more, which ends it as one does.
    stopped.recv().unwrap_or_default();
    say("stopping: what was taken is done first");
    server.stop()?;
    say("stopped");
    Ok(ExitCode::SUCCESS)
}

/// Errors: other machines would reach the address, and that was not asked for.
fn check_open(address: SocketAddr, insecure: bool) -> Result<()> {
    if address.ip().is_loopback() || insecure {
        return Ok(());
    }
    let text = format!("--listen {address} would be open to other machines without TLS");
    let hint = "use 127.0.0.1 behind a proxy that has TLS, or say --insecure-http";
    Err(Error::invalid_argument(text).hint(hint))
}

fn options(args: &Serve) -> Options {
    let mut options = Options {
        fixed_fleets: args.fixed_fleets,
        fleets_max: args.max_fleets,
        ..Options::default()
    };
    let write = &mut options.write;
    write.visits = !args.no_visits;
    write.shards = args.shards.unwrap_or(write.shards);
    let entities = args.entities_in_memory;
    write.entities_in_memory = entities.unwrap_or(write.entities_in_memory);
    let in_flight = args.reports_in_flight;
    write.reports_in_flight = in_flight.unwrap_or(write.reports_in_flight);
    options
}

fn config(args: &Serve) -> Config {
    let hosts = args.webhook_host.iter().chain(&args.webhook_private);
    let webhooks = WebhookOptions {
        hosts: Hosts::new(hosts.cloned().collect()),
        ..WebhookOptions::default()
    };
    Config {
        webhooks,
        streams: args.max_streams,
        body_max: args.max_body,
        inflated_max: args.max_inflated,
        memory: args.memory,
        connections: args.max_connections,
        queries: args.max_queries,
        exports: args.max_exports,
        backups: args.backups.clone(),
        ..Config::default()
    }
}
