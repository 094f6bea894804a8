//! The arguments of the command line.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use tracks::files::Format;
use tracks::http::Host;
use tracks::http::tokens::Scope;
use tracks::model::time::Time;

/// Where everything is, and was: objects report positions; who is in an area, who is nearest, where one has been.
///
/// To try it:
///
///   ironstone-tracks serve --dir /var/tmp/tracks &
///   curl -d '{"entity":"car1","lat":59.3293,"lon":18.0686}' localhost:8080/v1/fleets/taxis/reports
///   curl 'localhost:8080/v1/fleets/taxis/within?circle=59.33,18.07,500'
///
/// /openapi.json describes all calls.
#[derive(Debug, Parser)]
#[command(version, verbatim_doc_comment, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve HTTP until SIGTERM or Ctrl-C.
    Serve(Box<Serve>),
    /// Serve a simulated city that moves, to look at: the map, and calls to try.
    Demo(Demo),
    /// Read all rows of a folder and say which of them disagree. The folder must not be open.
    Check(Check),
    /// Make files of positions a part of a folder, all of them or nothing. The folder must not be open.
    ///
    /// Their reports become the rows that they would be over HTTP, in the order of the files; fences do not see them. Repeating
    /// an import changes nothing.
    Import(Import),
    /// Write a fleet's points to a file, as `import` reads them. The folder must not be open: GET /v1/fleets/F/export is for one
    /// that is.
    Export(Export),
    /// Add a backup of a folder to those in another folder. The first must not be open: POST /v1/backups is for one that is.
    Backup(Backup),
    /// Bring a backup back.
    Restore(Restore),
    /// Make a token: it is said on stderr, and its entry for the file of tokens is printed.
    Token(Token),
}

#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// Where the tracks are kept; made if it is not there.
    #[arg(long)]
    pub(crate) dir: PathBuf,
    /// Where clients come; port 0 is any free one.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080")]
    pub(crate) listen: SocketAddr,
    /// The certificate of TLS (PEM, the server's first); with it and its key all connections have TLS. SIGHUP reads it
    /// again.
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The key of the certificate (PEM).
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Listen on addresses that other machines reach, without TLS: everybody on the way reads and changes everything.
    #[arg(long)]
    pub(crate) insecure_http: bool,
    /// Who may do what (TOML; `ironstone-tracks token` makes entries). Without it everybody may do everything. SIGHUP
    /// reads it again.
    #[arg(long, value_name = "FILE")]
    pub(crate) tokens: Option<PathBuf>,
    /// Refuse reports of fleets that are not known; without it a fleet is made by its first report.
    #[arg(long)]
    pub(crate) fixed_fleets: bool,
    /// Threads that take reports; without it, half as many as there are processors.
    #[arg(long)]
    pub(crate) shards: Option<usize>,
    /// Entities whose newest points are kept in memory, about 180 bytes each.
    #[arg(long, value_name = "N")]
    pub(crate) entities_in_memory: Option<usize>,
    /// Reports that may wait or be on their way to the device; what comes then is answered with 503.
    #[arg(long, value_name = "N")]
    pub(crate) reports_in_flight: Option<usize>,
    /// Write no visits: searches of an area in the past find nothing then.
    #[arg(long)]
    pub(crate) no_visits: bool,
    /// The most bytes of a body, as it is sent.
    #[arg(long, value_name = "SIZE", default_value = "8M", value_parser = size)]
    pub(crate) max_body: usize,
    /// The most bytes of a body that was compressed.
    #[arg(long, value_name = "SIZE", default_value = "64M", value_parser = size)]
    pub(crate) max_inflated: usize,
    /// Bytes a second that the body of a request must have on average after ten seconds, or it is answered with 408, and
    /// that a client must take of an answer, or it is cut off; 0 asks for none.
    #[arg(long, value_name = "SIZE", default_value = "1K", value_parser = rate)]
    pub(crate) min_rate: usize,
    /// Where POST /v1/backups makes backups.
    #[arg(long, value_name = "DIR")]
    pub(crate) backups: Option<PathBuf>,
    /// Exports at a time; more are answered with 503. Where there are several tokens, each has half of them at most.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = positive)]
    pub(crate) max_exports: usize,
    /// Seconds that an export may take; then it breaks off.
    #[arg(long, value_name = "SECONDS", default_value_t = 21_600, value_parser = positive)]
    pub(crate) export_timeout: usize,
    /// Bytes that bodies and answers of all calls may have together.
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = size)]
    pub(crate) memory: usize,
    /// Connections at a time; more are answered with 503.
    #[arg(long, value_name = "N", default_value_t = 10_240, value_parser = positive)]
    pub(crate) max_connections: usize,
    /// Streams at a time; more are answered with 503. Where there are several tokens, each has half of them at most.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = positive)]
    pub(crate) max_streams: usize,
    /// So many fleets there may be for a report or a fence to make another one.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub(crate) max_fleets: usize,
    /// A host that webhooks may go to; may be given more than once. A name leads to public addresses only; an address may be any.
    /// Without any host there are no webhooks.
    #[arg(long, value_name = "HOST[:PORT]", value_parser = host)]
    pub(crate) webhook_host: Vec<Host>,
    /// The same, and its name may lead to addresses of private networks and of this machine.
    #[arg(long, value_name = "HOST[:PORT]", value_parser = private_host)]
    pub(crate) webhook_private: Vec<Host>,
    /// Queries at a time; others wait. Where there are several tokens, each has half of them at most.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = positive)]
    pub(crate) max_queries: usize,
    /// The fleet of phones and trackers that say no other (OwnTracks, OsmAnd, Traccar Client).
    #[arg(long, value_name = "NAME", default_value = "devices")]
    pub(crate) device_fleet: String,
    /// A broker that OwnTracks publishes to: mqtt://HOST:1883, or mqtts://HOST:8883 with TLS.
    #[arg(long, value_name = "URL")]
    pub(crate) mqtt: Option<String>,
    /// What is subscribed to there.
    #[arg(long, value_name = "TOPIC", default_value = "owntracks/#")]
    pub(crate) mqtt_topic: String,
    /// The name under which the broker keeps messages while the service is away; no other client may have it.
    #[arg(long, value_name = "ID", default_value = "ironstone-tracks")]
    pub(crate) mqtt_client: String,
    /// Who the service is to the broker.
    #[arg(long, value_name = "USER")]
    pub(crate) mqtt_user: Option<String>,
    /// The file with that user's password; the environment's IRONSTONE_TRACKS_MQTT_PASSWORD may have it instead.
    #[arg(long, value_name = "FILE")]
    pub(crate) mqtt_password_file: Option<PathBuf>,
    /// Certificates that the broker's has to be of (PEM).
    #[arg(
        long,
        value_name = "FILE",
        default_value = "/etc/ssl/certs/ca-certificates.crt"
    )]
    pub(crate) mqtt_ca: PathBuf,
    /// A file of these settings (TOML; names without the dashes before them, and _ for -). The environment's
    /// IRONSTONE_TRACKS_NAME goes before it, and the command line before both.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Print what all settings come to, as such a file, and end.
    #[arg(long)]
    pub(crate) print_config: bool,
    /// What the map shows beneath the objects: a file of GeoJSON.
    #[arg(long, value_name = "FILE")]
    pub(crate) map_base: Option<PathBuf>,
    /// Tiles that the map shows beneath the objects, as https://HOST/{z}/{x}/{y}.png. Browsers fetch them from there.
    #[arg(long, value_name = "URL")]
    pub(crate) map_tiles: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// Where the tracks are kept; without it a folder that is removed at the end.
    #[arg(long)]
    pub(crate) dir: Option<PathBuf>,
    /// Where clients come; port 0 is any free one.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080")]
    pub(crate) listen: SocketAddr,
    /// Objects that move.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) objects: u32,
    /// End after so many seconds; without it at Ctrl-C.
    #[arg(long, value_name = "N")]
    pub(crate) seconds: Option<u64>,
    /// How much faster than in a real city they move, 1 to 20.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=20))]
    pub(crate) speed: u32,
    /// The most reports a second; with fewer objects each reports once a second.
    #[arg(long, value_name = "N", default_value_t = 5000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) reports_per_second: u32,
    /// Minutes that are simulated before, so that there is a past to look at.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(0..=60))]
    pub(crate) past: u32,
}

#[derive(Debug, Args)]
pub(crate) struct Check {
    /// Where the tracks are kept.
    #[arg(long)]
    pub(crate) dir: PathBuf,
    /// Points need no visits: where some were written with `serve --no-visits`.
    #[arg(long)]
    pub(crate) no_visits: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Import {
    /// Where the tracks are kept; made if it is not there.
    #[arg(long)]
    pub(crate) dir: PathBuf,
    /// Whose positions they are; made if it is not there.
    #[arg(long)]
    pub(crate) fleet: String,
    /// csv, ndjson, geojson, gpx, geolife, tdrive or porto.
    #[arg(long, value_parser = format)]
    pub(crate) format: Format,
    /// Which columns of a CSV file say what, by their names or by numbers from 1 on: `entity=id,lat=y,lon=x,time=t`. Also speed,
    /// course, altitude, accuracy, battery, tags, attributes, and `attributes.NAME`. Without it, columns have these names.
    #[arg(long, value_name = "WHAT=COLUMN,…", value_parser = mapping)]
    pub(crate) map: Option<Map>,
    /// The entity of records that name none.
    #[arg(long)]
    pub(crate) entity: Option<String>,
    /// What is between the columns of a CSV file.
    #[arg(long, value_name = "CHAR", default_value = ",", value_parser = separator)]
    pub(crate) separator: u8,
    /// The first line of a CSV file names no columns.
    #[arg(long)]
    pub(crate) no_header: bool,
    /// How times of a CSV file are written: seconds (or RFC 3339), millis, micros, or a pattern as `%Y-%m-%d %H:%M:%S`.
    #[arg(long, value_name = "HOW", default_value = "seconds")]
    pub(crate) times: String,
    /// Seconds that such times are ahead of UTC.
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    pub(crate) utc_offset: Option<i32>,
    /// The unit of the speeds of a CSV file: m/s, km/h or knots.
    #[arg(long, value_name = "UNIT", default_value = "m/s")]
    pub(crate) speed_unit: String,
    /// Leave out keys of NDJSON and GeoJSON that are not known, instead of refusing their records.
    #[arg(long)]
    pub(crate) ignore_unknown: bool,
    /// What sorting may use.
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = size)]
    pub(crate) memory: usize,
    /// A file for what is wrong with records that are left out.
    #[arg(long, value_name = "FILE")]
    pub(crate) bad_lines: Option<PathBuf>,
    /// Import nothing if there are more of them.
    #[arg(long, value_name = "N")]
    pub(crate) bad_lines_max: Option<u64>,
    /// Write no visits, as `serve --no-visits`.
    #[arg(long)]
    pub(crate) no_visits: bool,
    /// The files, in the order in which later ones replace earlier ones; `-` is stdin. Of a folder, all files whose names end as
    /// those of the format.
    #[arg(required = true)]
    pub(crate) files: Vec<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Export {
    /// Where the tracks are kept.
    #[arg(long)]
    pub(crate) dir: PathBuf,
    /// Whose points.
    #[arg(long)]
    pub(crate) fleet: String,
    /// Of this entity alone.
    #[arg(long)]
    pub(crate) entity: Option<String>,
    /// The first moment: seconds since 1970, or RFC 3339.
    #[arg(long, value_name = "TIME", value_parser = moment, allow_negative_numbers = true)]
    pub(crate) from: Option<Time>,
    /// The last moment.
    #[arg(long, value_name = "TIME", value_parser = moment, allow_negative_numbers = true)]
    pub(crate) to: Option<Time>,
    /// csv, ndjson, geojson or gpx.
    #[arg(long, value_parser = format)]
    pub(crate) format: Format,
    /// A new file; without it, stdout.
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Backup {
    /// Where the tracks are kept.
    #[arg(long)]
    pub(crate) dir: PathBuf,
    /// Where backups are kept; made if it is not there.
    #[arg(long)]
    pub(crate) to: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct Restore {
    /// Where backups are kept.
    #[arg(long)]
    pub(crate) from: PathBuf,
    /// Where the tracks are to be.
    #[arg(long)]
    pub(crate) dir: PathBuf,
    /// Which backup; without it, the last.
    #[arg(long)]
    pub(crate) id: Option<u32>,
    /// Delete the database that is there.
    #[arg(long)]
    pub(crate) replace: bool,
}

/// Fields of a report, and their columns.
pub(crate) type Map = Vec<(String, String)>;

#[derive(Debug, Args)]
pub(crate) struct Token {
    /// What it is called in the file.
    #[arg(long)]
    pub(crate) name: String,
    /// What it allows; may be given more than once.
    #[arg(long = "scope", value_enum, required = true)]
    pub(crate) scopes: Vec<ScopeArg>,
    /// For which fleet; may be given more than once. Without it, for all.
    #[arg(long = "fleet")]
    pub(crate) fleets: Vec<String>,
    /// How many reports a second it may send.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) reports_per_second: Option<u32>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum ScopeArg {
    /// Sending reports.
    Ingest,
    /// All questions.
    Read,
    /// Changing fences.
    Fences,
    /// Settings of fleets, erasing entities, backups, and metrics.
    Admin,
}

impl From<ScopeArg> for Scope {
    fn from(arg: ScopeArg) -> Self {
        match arg {
            ScopeArg::Ingest => Self::Ingest,
            ScopeArg::Read => Self::Read,
            ScopeArg::Fences => Self::Fences,
            ScopeArg::Admin => Self::Admin,
        }
    }
}

/// Parses a number of bytes: 4096, 64K, 8M, 1G; powers of 1024.
fn size(text: &str) -> Result<usize, String> {
    let wrong = || format!("{text:?} is no size: write 4096, 64K, 8M or 1G");
    let upper = text.trim().to_ascii_uppercase();
    let units = [('K', 10), ('M', 20), ('G', 30)];
    let unit = units
        .iter()
        .find_map(|&(c, shift)| Some((upper.strip_suffix(c)?, shift)));
    let (digits, shift) = unit.unwrap_or((&upper, 0));
    let number: usize = digits.parse().map_err(|_| wrong())?;
    number
        .checked_mul(1 << shift)
        .filter(|n| *n > 0)
        .ok_or_else(wrong)
}

fn rate(text: &str) -> Result<usize, String> {
    if text == "0" { Ok(0) } else { size(text) }
}

fn format(text: &str) -> Result<Format, String> {
    let text = if text == "tdrive" { "t-drive" } else { text };
    text.parse().map_err(|e: base::Error| e.to_string())
}

fn moment(text: &str) -> Result<Time, String> {
    let micros = match text.parse::<f64>() {
        Ok(seconds) => (seconds * 1e6).round() as i64,
        Err(_) => text
            .parse::<jiff::Timestamp>()
            .map(jiff::Timestamp::as_microsecond)
            .map_err(|_| format!("{text:?} is neither seconds since 1970 nor RFC 3339"))?,
    };
    Ok(Time(micros))
}

fn mapping(text: &str) -> Result<Map, String> {
    let pair = |pair: &str| {
        let parts = pair
            .split_once('=')
            .filter(|(what, column)| !what.is_empty() && !column.is_empty());
        let (what, column) = parts.ok_or_else(|| format!("{pair:?} is not WHAT=COLUMN"))?;
        Ok((what.to_owned(), column.to_owned()))
    };
    text.split(',').map(pair).collect()
}

fn separator(text: &str) -> Result<u8, String> {
    match text.as_bytes() {
        [one] if one.is_ascii() => Ok(*one),
        _ if text == "\\t" => Ok(b'\t'),
        _ => Err(format!("{text:?} is no single character of ASCII")),
    }
}

fn host(text: &str) -> Result<Host, String> {
    Host::new(text, false).map_err(|e| e.to_string())
}

fn private_host(text: &str) -> Result<Host, String> {
    Host::new(text, true).map_err(|e| e.to_string())
}

fn positive(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|n| *n > 0);
    number.ok_or_else(|| format!("{text:?} is no number above 0"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
        assert_eq!(size("8M"), Ok(8 << 20));
        assert!(size("8 apples").is_err() && size("0").is_err() && positive("0").is_err());
    }
}
