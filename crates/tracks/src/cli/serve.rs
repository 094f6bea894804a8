//! `serve`: the service, until it is told to stop.

use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use base::clock::SystemClock;
use base::threads::SystemThreads;
use base::{Error, Result};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracks::http::tls::Tls;
use tracks::http::tokens::Tokens;
use tracks::http::{Config, Hosts, Map, Server, Service, WebhookOptions};
use tracks::model::name::Name;
use tracks::mqtt::{Broker, Client, Settings};
use tracks::notices::Notices;
use tracks::service::{Options, Tracks};
use tracks::store::{Engine, Store};

use super::args::Serve;
use super::signals::{Wish, on_signals};
use super::{print, say};

/// The variable of the environment with the password for the broker.
const MQTT_PASSWORD: &str = "IRONSTONE_TRACKS_MQTT_PASSWORD";

/// Open files that are reserved for the database.
const FILES_RESERVED: u64 = 2048;

pub(crate) fn run(args: &Serve) -> Result<ExitCode> {
    let tls = tls(args)?;
    check_open(args.listen, args.insecure_http || tls.is_some())?;
    let tokens = args.tokens.as_deref().map(Tokens::read).transpose()?;
    let mqtt = mqtt(args)?;
    Name::new(&args.device_fleet)?;
    // First of all, so that a signal always ends the process in order.
    let (sender, wishes) = channel();
    on_signals(&SystemThreads, move |wish| {
        // If the receiver is gone, the process is ending.
        sender.send(wish).unwrap_or_default();
    })?;
    let files = more_files();
    let options = options(args);
    options.write.check()?;
    let mut config = config(args, tls.clone())?;
    // The database needs files, too: without them it would refuse writes.
    let most =
        usize::try_from(files.saturating_sub(FILES_RESERVED.min(files / 2))).unwrap_or(usize::MAX);
    if config.connections > most {
        say(&format!(
            "note: {most} connections at most, as the process may have {files} open files (ulimit -n)"
        ));
        config.connections = most;
    }
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
    let server = Server::start(args.listen, service, config)?;
    let start = |settings| Client::start(settings, Arc::clone(server.intake()), &SystemThreads);
    let mqtt = mqtt.map(start).transpose()?;
    let scheme = if tls.is_some() { "https" } else { "http" };
    print(&format!("listening on {scheme}://{}", server.address()));
    if !has_tokens {
        say("note: there are no tokens (--tokens): whoever reaches the address may do everything");
    }
    // An error means that the thread for signals is gone, which ends the service like a signal to
    // stop.
    while let Ok(Wish::Reload) = wishes.recv() {
        reload(args, tls.as_deref(), &server);
    }
    say("stopping: what was taken is done first");
    drop(mqtt);
    server.stop()?;
    say("stopped");
    Ok(ExitCode::SUCCESS)
}

/// Raises the limit of open files and connections as far as allowed, and returns it.
fn more_files() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let most = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    setrlimit(Resource::Nofile, most).unwrap_or_default();
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Reads the certificate and the tokens again. If one of them is wrong, this is reported, and the
/// old one stays.
fn reload(args: &Serve, tls: Option<&Tls>, server: &Server) {
    let told = |what: &str, file: &Path, done: Result<()>| match done {
        Ok(()) => say(&format!("{what} read again: {}", file.display())),
        Err(e) => say(&format!("{what} not read again, the old ones stay: {e}")),
    };
    if let (Some(tls), Some(file)) = (tls, &args.tls_cert) {
        told("certificates", file, tls.reload());
    }
    if let Some(file) = &args.tokens {
        told(
            "tokens",
            file,
            Tokens::read(file).map(|tokens| server.set_tokens(tokens)),
        );
    }
}

fn tls(args: &Serve) -> Result<Option<Arc<Tls>>> {
    match (&args.tls_cert, &args.tls_key) {
        (Some(cert), Some(key)) => Ok(Some(Arc::new(Tls::open(cert, key)?))),
        (None, None) => Ok(None),
        _ => Err(Error::invalid_argument(
            "TLS needs both --tls-cert and --tls-key",
        )),
    }
}

fn mqtt(args: &Serve) -> Result<Option<Settings>> {
    let Some(url) = &args.mqtt else {
        return Ok(None);
    };
    let password = match &args.mqtt_password_file {
        Some(file) => {
            let text = std::fs::read_to_string(file).map_err(|e| Error::io("read", file, e))?;
            Some(text.trim_end_matches(['\r', '\n']).to_owned())
        }
        None => std::env::var(MQTT_PASSWORD).ok(),
    };
    let settings = Settings {
        topics: vec![args.mqtt_topic.clone()],
        client: args.mqtt_client.clone(),
        user: args.mqtt_user.clone(),
        password,
        ca: args.mqtt_ca.clone(),
        ..Settings::new(Broker::parse(url)?)
    };
    settings.check()?;
    Ok(Some(settings))
}

/// Errors: other machines could reach the address, and that was not allowed.
pub(super) fn check_open(address: SocketAddr, may_be: bool) -> Result<()> {
    if address.ip().is_loopback() || may_be {
        return Ok(());
    }
    let text = format!("--listen {address} would be open to other machines without TLS");
    let hint = "give --tls-cert and --tls-key, or use 127.0.0.1 behind a proxy that has TLS, or say --insecure-http";
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

fn config(args: &Serve, tls: Option<Arc<Tls>>) -> Result<Config> {
    let mut map = Map::default();
    if let Some(file) = &args.map_base {
        map = map.with_base_of(file)?;
    }
    if let Some(url) = &args.map_tiles {
        map = map.with_tiles(url)?;
    }
    let hosts = args.webhook_host.iter().chain(&args.webhook_private);
    let webhooks = WebhookOptions {
        hosts: Hosts::new(hosts.cloned().collect()),
        ..WebhookOptions::default()
    };
    Ok(Config {
        map,
        webhooks,
        streams: args.max_streams,
        body_max: args.max_body,
        inflated_max: args.max_inflated,
        rate_min: args.min_rate,
        memory: args.memory,
        connections: args.max_connections,
        queries: args.max_queries,
        exports: args.max_exports,
        export_timeout: Duration::from_secs(args.export_timeout as u64),
        backups: args.backups.clone(),
        device_fleet: args.device_fleet.clone(),
        notices: Notices::new(say),
        tls,
        ..Config::default()
    })
}
