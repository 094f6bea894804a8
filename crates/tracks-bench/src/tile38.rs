//! Tile38 with the same objects, measured by its own figures.
//!
//! Its time for a call is `elapsed` of its JSON answer (<https://tile38.com/commands/output>),
//! without the round trip.

use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};

use base::clock::Clock;
use base::{Error, Result};
use serde::{Deserialize, Serialize};

use crate::places::Place;
use crate::resp::{self, Reply, Talk};
use crate::server::Server;

/// Requests in a pipeline.
const AT_ONCE: usize = 1000;

/// The measurements of Tile38.
#[derive(Debug, Serialize)]
pub(crate) struct Results {
    version: String,
    rectangle_micros: f64,
    rectangle_hits: f64,
    nearest_micros: f64,
    nearest_hits: f64,
    /// One connection, pipelined.
    sets_per_second: f64,
    memory: u64,
}

/// A Tile38 server of this benchmark; it ends when this is dropped.
pub(crate) struct Tile38<'a> {
    /// Ends the server when it is dropped.
    _server: Server,
    talk: Talk<TcpStream>,
    clock: &'a dyn Clock,
    sets_per_second: f64,
}

/// The parts of an answer that are read.
#[derive(Debug, Deserialize)]
struct Answer {
    ok: bool,
    #[serde(default)]
    count: u64,
    elapsed: String,
    #[serde(default)]
    stats: Stats,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Stats {
    version: String,
    heap_size: u64,
}

fn failed(what: &str) -> impl Fn(std::io::Error) -> Error {
    resp::failed("tile38", what)
}

impl<'a> Tile38<'a> {
    /// Starts a server in a temporary folder. Errors: it does not start within ten seconds.
    pub(crate) fn start(program: &Path, clock: &'a dyn Clock) -> Result<Self> {
        let free = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
        let address = free.map_err(failed("a free port"))?;
        let arguments = |command: &mut Command, folder: &Path| {
            let port = address.port().to_string();
            command.args(["-q", "-h", "127.0.0.1", "-p", &port]);
            command.arg("-d").arg(folder).stderr(Stdio::null());
        };
        let connect = |_: &Path| {
            let stream = TcpStream::connect(address)?;
            stream.set_nodelay(true)?;
            Ok(stream)
        };
        let (server, mut talk) = Server::start(("tile38", program), arguments, connect, clock)?;
        talk.ask(&["OUTPUT", "json"])?;
        Ok(Self {
            _server: server,
            talk,
            clock,
            sets_per_second: 0.0,
        })
    }

    fn answer(&mut self) -> Result<Answer> {
        let Reply::Text(text) = self.talk.reply()? else {
            return Err(Error::corruption("tile38: an answer that is no text"));
        };
        let answer: Answer = serde_json::from_str(&text)
            .map_err(|e| Error::corruption(format!("tile38: {text:.200}: {e}")))?;
        if answer.ok {
            return Ok(answer);
        }
        Err(Error::aborted(format!("tile38: {text:.200}")))
    }

    /// Loads each object's last place.
    pub(crate) fn load(&mut self, places: &[Place]) -> Result<()> {
        let start = self.clock.monotonic_nanos();
        for some in places.chunks(AT_ONCE) {
            for place in some {
                let (lat, lon) = degrees(place);
                let name = format!("car-{:07}", place.object);
                self.talk
                    .send(&["SET", "fleet", &name, "POINT", &lat, &lon])?;
            }
            for _ in some {
                self.answer()?;
            }
        }
        let seconds = (self.clock.monotonic_nanos() - start) as f64 / 1e9;
        self.sets_per_second = places.len() as f64 / seconds;
        Ok(())
    }

    /// Searches squares of `half` degrees of latitude to each side, and the nearest ten.
    pub(crate) fn ask(&mut self, places: &[Place], half: f64) -> Result<Results> {
        let (rectangle_micros, rectangle_hits) = self.search(places, &|place| {
            let (lat, lon) = place.position.degrees();
            let wide = half / lat.to_radians().cos();
            let bounds = [lat - half, lon - wide, lat + half, lon + wide];
            let mut words = owned(&["WITHIN", "fleet", "LIMIT", "100000", "POINTS", "BOUNDS"]);
            words.extend(bounds.map(|degrees| format!("{degrees:.7}")));
            words
        })?;
        let (nearest_micros, nearest_hits) = self.search(places, &|place| {
            let (lat, lon) = degrees(place);
            let mut words = owned(&["NEARBY", "fleet", "LIMIT", "10", "POINTS", "POINT"]);
            words.extend([lat, lon]);
            words
        })?;
        self.talk.send(&["SERVER"])?;
        let stats = self.answer()?.stats;
        Ok(Results {
            version: stats.version,
            rectangle_micros,
            rectangle_hits,
            nearest_micros,
            nearest_hits,
            sets_per_second: self.sets_per_second,
            memory: stats.heap_size,
        })
    }

    /// The microseconds per search, and the mean number of results.
    fn search(
        &mut self,
        places: &[Place],
        words: &dyn Fn(&Place) -> Vec<String>,
    ) -> Result<(f64, f64)> {
        let (mut micros, mut found) = (0.0, 0);
        for place in places {
            let words = words(place);
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            self.talk.send(&words)?;
            let answer = self.answer()?;
            found += answer.count;
            micros += span(&answer.elapsed).ok_or_else(|| {
                Error::corruption(format!("tile38: {:?} is no time", answer.elapsed))
            })?;
        }
        let count = places.len().max(1) as f64;
        Ok((micros / count, found as f64 / count))
    }
}

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().copied().map(str::to_owned).collect()
}

fn degrees(place: &Place) -> (String, String) {
    let (lat, lon) = place.position.degrees();
    (format!("{lat:.7}"), format!("{lon:.7}"))
}

/// Parses a duration as Go writes it, in microseconds.
fn span(text: &str) -> Option<f64> {
    let units = [("ns", 1e-3), ("µs", 1.0), ("ms", 1e3), ("s", 1e6)];
    let number = |(unit, micros): (&str, f64)| {
        let number: f64 = text.strip_suffix(unit)?.parse().ok()?;
        Some(number * micros)
    };
    units.into_iter().find_map(number)
}

#[cfg(test)]
mod tests {
    use super::span;

    #[test]
    fn times_of_go_are_read() {
        let right = [
            ("812ns", 0.812),
            ("48.5µs", 48.5),
            ("1.25ms", 1250.0),
            ("2s", 2e6),
        ];
        for (text, micros) in right {
            assert_eq!(span(text), Some(micros), "{text}");
        }
        assert_eq!(span("1h"), None);
    }
}
