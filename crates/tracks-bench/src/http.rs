//! Reports over HTTP on loopback, from this process, and the same reports without HTTP.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;

use base::clock::{Clock, SystemClock};
use base::stats::Histogram;
use base::threads::SystemThreads;
use base::{Error, Result};
use serde::Serialize;
use tracks::fleets::Info;
use tracks::http::{Config, Server, Service};
use tracks::model::name::Name;
use tracks::model::report::Report;
use tracks::service::{Options, Tracks};
use tracks::write::Ack;

use crate::drive::report;
use crate::places::{self, Place};
use crate::target;

/// How it is driven.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The file of places that objects go through
    #[arg(long)]
    places: PathBuf,
    /// Connections, each with a thread that waits for its answers
    #[arg(long, default_value_t = 16)]
    connections: usize,
    /// Reports of a request
    #[arg(long, default_value_t = 100)]
    batch: usize,
    /// Seconds that are measured
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Answers come when reports are durable, and not when they are visible
    #[arg(long)]
    durable: bool,
    /// Without HTTP
    #[arg(long)]
    direct: bool,
    /// So many places are used, again and again
    #[arg(long, default_value_t = 2_000_000)]
    pool: usize,
}

#[derive(Debug, Serialize)]
struct Results {
    per_second: f64,
    p50_micros: f64,
    p99_micros: f64,
    reports: u64,
}

/// Runs the benchmark. Returns the results as JSON.
pub(crate) fn run(target: &target::Args, args: &Args) -> Result<String> {
    let clock = SystemClock::shared();
    let connections = args.connections.max(1);
    let mut all = places::read(&args.places, connections)?;
    for places in &mut all {
        places.truncate(args.pool / connections);
    }
    let opened = target.open()?;
    let tracks = Tracks::over(
        Arc::clone(&opened.store),
        &Options::default(),
        Arc::clone(&clock),
        &SystemThreads,
    )?;
    let tracks = Arc::new(tracks);
    let fleet = tracks.fleet_or_make(&Name::new("fleet")?)?;
    let mut server = None;
    if !args.direct {
        let service = Service {
            tracks: Arc::clone(&tracks),
            db: None,
            tokens: None,
        };
        let listen = SocketAddr::from(([127, 0, 0, 1], 0));
        server = Some(Server::start(listen, service, Config::default())?);
    }
    let address = server.as_ref().map(Server::address);
    let driver = Driver {
        tracks: &tracks,
        fleet: &fleet,
        clock: &*clock,
        args,
    };
    let (latencies, seconds) = driver.measure(&all, address)?;
    if let Some(server) = server {
        server.stop()?;
    }
    let reports = latencies.count() * args.batch as u64;
    let results = Results {
        per_second: reports as f64 / seconds,
        p50_micros: latencies.percentile(50.0) / 1000.0,
        p99_micros: latencies.percentile(99.0) / 1000.0,
        reports,
    };
    serde_json::to_string(&results).map_err(|e| Error::broken(e.to_string()))
}

struct Driver<'a> {
    tracks: &'a Tracks,
    fleet: &'a Info,
    clock: &'a dyn Clock,
    args: &'a Args,
}

impl Driver<'_> {
    fn measure(&self, all: &[Vec<Place>], address: Option<SocketAddr>) -> Result<(Histogram, f64)> {
        // Requests are built before, so that only the service is measured.
        let calls: Result<Vec<Calls>> = all.iter().map(|places| self.calls(places)).collect();
        let calls = calls?;
        let start = self.clock.monotonic_nanos();
        let end = start + self.args.seconds * 1_000_000_000;
        let latencies = std::thread::scope(|scope| {
            let threads: Vec<_> = calls
                .iter()
                .map(|calls| scope.spawn(move || self.thread(calls, address, end)))
                .collect();
            let mut latencies = Histogram::new();
            for thread in threads {
                let of_thread = thread.join();
                latencies.merge(&of_thread.map_err(|_| Error::broken("a thread panicked"))??);
            }
            Ok::<_, Error>(latencies)
        })?;
        let seconds = (self.clock.monotonic_nanos() - start) as f64 / 1e9;
        Ok((latencies, seconds))
    }

    fn calls(&self, places: &[Place]) -> Result<Calls> {
        let chunks = places.chunks_exact(self.args.batch.max(1));
        if !self.args.direct {
            return Ok(Calls::Bodies(
                chunks.map(|places| self.request(places)).collect(),
            ));
        }
        let reports = |places: &[Place]| -> Result<Vec<Report>> {
            let now = |place| {
                let report = report(place, 0)?;
                Ok(Report {
                    time: None,
                    ..report
                })
            };
            places.iter().map(now).collect()
        };
        Ok(Calls::Reports(chunks.map(reports).collect::<Result<_>>()?))
    }

    /// A whole request. Reports have no time, so that it is their arrival, and each is its object's
    /// newest.
    fn request(&self, places: &[Place]) -> Vec<u8> {
        let mut body = String::new();
        for place in places {
            let (lat, lon) = place.position.degrees();
            let (speed, course) = (
                f64::from(place.speed) / 100.0,
                f64::from(place.course) / 100.0,
            );
            let separator = if body.is_empty() { '[' } else { ',' };
            body.push(separator);
            body += &format!(
                r#"{{"entity":"car-{:07}","lat":{lat:.7},"lon":{lon:.7},"speed":{speed},"course":{course}}}"#,
                place.object
            );
        }
        body.push(']');
        let ack = if self.args.durable {
            "durable"
        } else {
            "visible"
        };
        let head = format!(
            "POST /v1/fleets/fleet/reports?ack={ack} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n",
            body.len()
        );
        [head.as_bytes(), body.as_bytes()].concat()
    }

    fn thread(&self, calls: &Calls, address: Option<SocketAddr>, end: u64) -> Result<Histogram> {
        let mut latencies = Histogram::new();
        let mut talk = address.map(Talk::start).transpose()?;
        for nth in 0.. {
            let start = self.clock.monotonic_nanos();
            if start >= end {
                break;
            }
            match (calls, &mut talk) {
                (Calls::Bodies(all), Some(talk)) => talk.ask(at(all, nth)?)?,
                (Calls::Reports(all), _) => self.call(at(all, nth)?.clone())?,
                (Calls::Bodies(_), None) => return Err(Error::broken("no server")),
            }
            latencies.add(self.clock.monotonic_nanos() - start);
        }
        Ok(latencies)
    }

    fn call(&self, reports: Vec<Report>) -> Result<()> {
        let ack = if self.args.durable {
            Ack::Durable
        } else {
            Ack::Visible
        };
        let answer = self.tracks.report_of(self.fleet, reports, ack)?.wait();
        answer.outcomes.into_iter().try_for_each(|o| o.map(drop))
    }
}

/// The requests that a thread sends repeatedly.
enum Calls {
    Bodies(Vec<Vec<u8>>),
    Reports(Vec<Vec<Report>>),
}

fn at<T>(all: &[T], nth: usize) -> Result<&T> {
    let found = all.get(nth % all.len().max(1));
    found.ok_or_else(|| Error::invalid_argument("the file has too few places"))
}

/// A connection.
struct Talk(BufReader<TcpStream>);

impl Talk {
    fn start(address: SocketAddr) -> Result<Self> {
        let failed = |e| Error::io("cannot reach", "the server", e);
        let stream = TcpStream::connect(address).map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        Ok(Self(BufReader::new(stream)))
    }

    /// Sends a request, and reads its answer. Errors: the status is not 200.
    fn ask(&mut self, request: &[u8]) -> Result<()> {
        let failed = |e| Error::io("cannot talk to", "the server", e);
        self.0.get_mut().write_all(request).map_err(failed)?;
        let (mut line, mut length, mut is_ok) = (String::new(), 0, None);
        loop {
            line.clear();
            self.0.read_line(&mut line).map_err(failed)?;
            let text = line.trim_end();
            if is_ok.is_none() {
                is_ok = Some(text == "HTTP/1.1 200 OK");
            } else if let Some(number) = text.strip_prefix("content-length: ") {
                length = number.parse().unwrap_or(0);
            } else if text.is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).map_err(failed)?;
        if is_ok == Some(true) {
            return Ok(());
        }
        let body = String::from_utf8_lossy(&body).into_owned();
        Err(Error::aborted(format!("the server says {body:.300}")))
    }
}
