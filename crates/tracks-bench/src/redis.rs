//! Redis with the same objects in a geo set, measured by its own figures.
//!
//! Its time for a call is `usec_per_call` of `INFO commandstats`, without the round trip.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use base::clock::Clock;
use base::{Error, Result};
use serde::Serialize;
use tracks::geo::distance::RADIUS;

use crate::places::Place;
use crate::resp::{self, Reply, Talk};
use crate::server::Server;

/// Requests in a pipeline.
const AT_ONCE: usize = 1000;
const SOCKET: &str = "socket";

/// The measurements of Redis.
#[derive(Debug, Serialize)]
pub(crate) struct Results {
    version: String,
    rectangle_micros: f64,
    rectangle_hits: f64,
    nearest_micros: f64,
    nearest_hits: f64,
    /// One connection, pipelined, not durable.
    adds_per_second: f64,
    /// 80 connections without pipelining, with `appendfsync always`.
    durable_adds_per_second: f64,
    memory: u64,
}

/// A Redis server of this benchmark; it ends when this is dropped.
pub(crate) struct Redis<'a> {
    server: Server,
    talk: Talk<UnixStream>,
    clock: &'a dyn Clock,
    adds_per_second: f64,
}

fn failed(what: &str) -> impl Fn(std::io::Error) -> Error {
    resp::failed("redis", what)
}

impl<'a> Redis<'a> {
    /// Starts a server in a temporary folder. Errors: it does not start within ten seconds.
    pub(crate) fn start(program: &Path, clock: &'a dyn Clock) -> Result<Self> {
        let arguments = |command: &mut Command, folder: &Path| {
            command.args(["--port", "0", "--save", "", "--daemonize", "no"]);
            command.arg("--unixsocket").arg(folder.join(SOCKET));
            command.arg("--dir").arg(folder);
        };
        let connect = |folder: &Path| UnixStream::connect(folder.join(SOCKET));
        let (server, talk) = Server::start(("redis", program), arguments, connect, clock)?;
        Ok(Self {
            server,
            talk,
            clock,
            adds_per_second: 0.0,
        })
    }

    fn info(&mut self, section: &str, name: &str) -> Result<String> {
        let Reply::Text(text) = self.talk.ask(&["INFO", section])? else {
            return Err(Error::corruption("redis: INFO is no text"));
        };
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.map(ToOwned::to_owned)
            .ok_or_else(|| Error::not_found(format!("redis says no {name}")))
    }

    /// Loads each object's last place.
    pub(crate) fn load(&mut self, places: &[Place]) -> Result<()> {
        let start = self.clock.monotonic_nanos();
        for some in places.chunks(AT_ONCE) {
            for place in some {
                let (lat, lon) = place.position.degrees();
                let name = format!("car-{:07}", place.object);
                self.talk.send(&[
                    "GEOADD",
                    "fleet",
                    &format!("{lon:.7}"),
                    &format!("{lat:.7}"),
                    &name,
                ])?;
            }
            for _ in some {
                self.talk.reply()?;
            }
        }
        let seconds = (self.clock.monotonic_nanos() - start) as f64 / 1e9;
        self.adds_per_second = places.len() as f64 / seconds;
        Ok(())
    }

    /// Searches squares of `half` degrees of latitude to each side, and the nearest ten in circles
    /// with the area of larger squares.
    pub(crate) fn ask(
        &mut self,
        places: &[Place],
        (square, circle): (f64, f64),
    ) -> Result<Results> {
        let metres = |half: f64| 2.0 * half.to_radians() * RADIUS;
        let side = format!("{:.2}", metres(square));
        let shape = ["BYBOX", &side, &side, "m"];
        let (rectangle_micros, rectangle_hits) = self.search(places, &shape)?;
        let radius = format!("{:.2}", metres(circle) / std::f64::consts::PI.sqrt());
        let shape = ["BYRADIUS", &radius, "m", "ASC", "COUNT", "10"];
        let (nearest_micros, nearest_hits) = self.search(places, &shape)?;
        let memory = self.info("memory", "used_memory:")?.parse().unwrap_or(0);
        let version = self.info("server", "redis_version:")?;
        Ok(Results {
            version,
            rectangle_micros,
            rectangle_hits,
            nearest_micros,
            nearest_hits,
            adds_per_second: self.adds_per_second,
            durable_adds_per_second: self.durable_adds()?,
            memory,
        })
    }

    /// The microseconds per search, and the mean number of results.
    fn search(&mut self, places: &[Place], shape: &[&str]) -> Result<(f64, f64)> {
        self.talk.ask(&["CONFIG", "RESETSTAT"])?;
        let mut found = 0;
        for place in places {
            let (lat, lon) = place.position.degrees();
            let (lat, lon) = (format!("{lat:.7}"), format!("{lon:.7}"));
            let mut words = vec!["GEOSEARCH", "fleet", "FROMLONLAT", &lon, &lat];
            words.extend(shape);
            if let Reply::Many(count) = self.talk.ask(&words)? {
                found += count;
                for _ in 0..count {
                    self.talk.reply()?;
                }
            }
        }
        let stats = self.info("commandstats", "cmdstat_geosearch:")?;
        let micros = stats
            .split(',')
            .find_map(|s| s.strip_prefix("usec_per_call="));
        let micros = micros.and_then(|text| text.parse().ok());
        let micros = micros.ok_or_else(|| Error::corruption("redis: no usec_per_call"))?;
        Ok((micros, found as f64 / places.len().max(1) as f64))
    }

    /// Runs `redis-benchmark` on 80 connections; each write is synced before it is answered.
    fn durable_adds(&mut self) -> Result<f64> {
        self.talk.ask(&["CONFIG", "SET", "appendonly", "yes"])?;
        self.talk.ask(&["CONFIG", "SET", "appendfsync", "always"])?;
        // Waits until it has written its existing data.
        for _ in 0..600 {
            if self.info("persistence", "aof_rewrite_in_progress:")? == "0" {
                break;
            }
            self.clock.sleep(Duration::from_millis(100));
        }
        let mut command = Command::new("redis-benchmark");
        command.arg("-s").arg(self.server.folder().join(SOCKET));
        command.args(["-c", "80", "-n", "200000", "-r", "1000000", "--csv"]);
        command.args([
            "GEOADD",
            "live",
            "18.__rand_int__",
            "59.3",
            "car-__rand_int__",
        ]);
        let output = command.output().map_err(failed("redis-benchmark"))?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let last = text.lines().last().unwrap_or_default();
        let rate = last.split(',').nth(1).map(|rate| rate.trim_matches('"'));
        let rate = rate.and_then(|rate| rate.parse().ok());
        rate.ok_or_else(|| Error::aborted(format!("redis-benchmark says {last:?}")))
    }
}
