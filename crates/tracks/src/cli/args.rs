//! The arguments of the command line.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use tracks::files::Format;
use tracks::http::Host;
use tracks::http::tokens::Scope;
use tracks::model::time::Time;

/// A tracking service: objects report positions; queries find them by area, by distance and by time.
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
    /// Serve a simulated city with moving objects, as a demonstration: the map, and calls to try.
    Demo(Demo),
    /// Read all rows of a folder and report inconsistent ones. The folder must not be open.
    Check(Check),
    /// Import files of positions into a folder: either all of them or none. The folder must not be
    /// open.
    ///
    /// The reports become the same rows as over HTTP, in the order of the files. They trigger no fences. Repeating an
    /// import changes nothing.
    Import(Import),
    /// Write a fleet's points to a file that `import` can read. The folder must not be open; for an open folder use GET
    /// /v1/fleets/F/export.
    Export(Export),
    /// Add a backup of a folder to a folder of backups. The first folder must not be open; for an open folder use POST
    /// /v1/backups.
    Backup(Backup),
    /// Restore a backup.
    Restore(Restore),
    /// Make a token. The token is printed on stderr, and its entry for the file of tokens on
    /// stdout.
    Token(Token),
}

#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// The folder of the tracks, created if missing.
    #[arg(long)]
    pub(crate) dir: PathBuf,
    /// The address for clients; port 0 means any free port.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080")]
    pub(crate) listen: SocketAddr,
    /// The TLS certificate (PEM, the server's certificate first). With it and its key, all connections use TLS. SIGHUP
    /// reads it again.
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The key of the certificate (PEM).
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Listen on addresses that other machines can reach, without TLS. Anyone on the network path can read and change
    /// all data.
    #[arg(long)]
    pub(crate) insecure_http: bool,
    /// The file of tokens, which defines permissions (TOML; `ironstone-tracks token` makes entries). Without it,
    /// every client may do everything. SIGHUP reads it again.
    #[arg(long, value_name = "FILE")]
    pub(crate) tokens: Option<PathBuf>,
    /// Refuse reports of unknown fleets. Without this flag, the first report of a fleet creates the
    /// fleet.
    #[arg(long)]
    pub(crate) fixed_fleets: bool,
    /// Number of threads that process reports; if not given, half the number of processors.
    #[arg(long)]
    pub(crate) shards: Option<usize>,
    /// Number of entities whose newest points are kept in memory, about 180 bytes each.
    #[arg(long, value_name = "N")]
    pub(crate) entities_in_memory: Option<usize>,
    /// Number of reports that may wait or be on their way to the device; further reports are
    /// answered with 503.
    #[arg(long, value_name = "N")]
    pub(crate) reports_in_flight: Option<usize>,
    /// Write no visits. Searches of an area in the past then find nothing.
    #[arg(long)]
    pub(crate) no_visits: bool,
    /// Maximum size of a request body, as it is sent.
    #[arg(long, value_name = "SIZE", default_value = "8M", value_parser = size)]
    pub(crate) max_body: usize,
    /// Maximum size of a compressed request body after decompression.
    #[arg(long, value_name = "SIZE", default_value = "64M", value_parser = size)]
    pub(crate) max_inflated: usize,
    /// Minimum average rate of a connection after ten seconds, in bytes a second. A request with a slower body is
    /// answered with 408; a client that reads an answer more slowly is disconnected. 0 means no minimum.
    #[arg(long, value_name = "SIZE", default_value = "1K", value_parser = rate)]
    pub(crate) min_rate: usize,
    /// The folder in which POST /v1/backups makes backups.
    #[arg(long, value_name = "DIR")]
    pub(crate) backups: Option<PathBuf>,
    /// Maximum number of simultaneous exports; further ones are answered with 503. If there are several tokens, each
    /// may use at most half of them.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = positive)]
    pub(crate) max_exports: usize,
    /// Seconds that an export may take; then it is aborted.
    #[arg(long, value_name = "SECONDS", default_value_t = 21_600, value_parser = positive)]
    pub(crate) export_timeout: usize,
    /// Maximum size of the bodies and answers of all calls together.
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = size)]
    pub(crate) memory: usize,
    /// Maximum number of simultaneous connections; further ones are answered with 503.
    #[arg(long, value_name = "N", default_value_t = 10_240, value_parser = positive)]
    pub(crate) max_connections: usize,
    /// Maximum number of simultaneous streams; further ones are answered with 503. If there are several tokens, each
    /// may use at most half of them.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = positive)]
    pub(crate) max_streams: usize,
    /// Maximum number of fleets that reports and fences may create.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub(crate) max_fleets: usize,
    /// A host that webhooks may call; may be given more than once. A host name must resolve to public addresses; an IP
    /// address may be any. Without any host, there are no webhooks.
    #[arg(long, value_name = "HOST[:PORT]", value_parser = host)]
    pub(crate) webhook_host: Vec<Host>,
    /// As --webhook-host, but a host name may also resolve to addresses of private networks and of
    /// this machine.
    #[arg(long, value_name = "HOST[:PORT]", value_parser = private_host)]
    pub(crate) webhook_private: Vec<Host>,
    /// Maximum number of simultaneous queries; further ones wait. If there are several tokens, each
    /// may use at most half of them.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = positive)]
    pub(crate) max_queries: usize,
    /// The fleet of phones and trackers that name no fleet (OwnTracks, OsmAnd, Traccar Client).
    #[arg(long, value_name = "NAME", default_value = "devices")]
    pub(crate) device_fleet: String,
    /// A broker that OwnTracks publishes to: mqtt://HOST:1883, or mqtts://HOST:8883 with TLS.
    #[arg(long, value_name = "URL")]
    pub(crate) mqtt: Option<String>,
    /// The MQTT topic to subscribe to.
    #[arg(long, value_name = "TOPIC", default_value = "owntracks/#")]
    pub(crate) mqtt_topic: String,
    /// The MQTT client id, under which the broker keeps messages while the service is down. No other client
    /// may use it.
    #[arg(long, value_name = "ID", default_value = "ironstone-tracks")]
    pub(crate) mqtt_client: String,
    /// The user name for the broker.
    #[arg(long, value_name = "USER")]
    pub(crate) mqtt_user: Option<String>,
    /// The file with the password of this user. The environment variable IRONSTONE_TRACKS_MQTT_PASSWORD can be
    /// used instead.
    #[arg(long, value_name = "FILE")]
    pub(crate) mqtt_password_file: Option<PathBuf>,
    /// The CA certificates that verify the broker's certificate (PEM).
    #[arg(
        long,
        value_name = "FILE",
        default_value = "/etc/ssl/certs/ca-certificates.crt"
    )]
    pub(crate) mqtt_ca: PathBuf,
    /// A configuration file with these settings (TOML; names without leading dashes, and with _ for -).
    /// Environment variables IRONSTONE_TRACKS_NAME have priority over it, and the command line over both.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Print all settings in effect as a configuration file, and exit.
    #[arg(long)]
    pub(crate) print_config: bool,
    /// A GeoJSON file that the map shows beneath the objects.
    #[arg(long, value_name = "FILE")]
    pub(crate) map_base: Option<PathBuf>,
    /// Tiles that the map shows beneath the objects, as https://HOST/{z}/{x}/{y}.png. Browsers fetch them from there.
    #[arg(long, value_name = "URL")]
    pub(crate) map_tiles: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// The folder of the tracks; if not given, a temporary folder that is removed at the end.
    #[arg(long)]
    pub(crate) dir: Option<PathBuf>,
    /// The address for clients; port 0 means any free port.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080")]
    pub(crate) listen: SocketAddr,
    /// Number of moving objects.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) objects: u32,
    /// End after this many seconds; if not given, at Ctrl-C.
    #[arg(long, value_name = "N")]
    pub(crate) seconds: Option<u64>,
    /// How many times faster than in a real city the objects move, 1 to 20.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=20))]
    pub(crate) speed: u32,
    /// Maximum number of reports a second; if there are fewer objects, each reports once a second.
    #[arg(long, value_name = "N", default_value_t = 5000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) reports_per_second: u32,
    /// Minutes that are simulated in advance, so that there are past positions to query.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(0..=60))]
    pub(crate) past: u32,
}

#[derive(Debug, Args)]
pub(crate) struct Check {
    /// The folder of the tracks.
    #[arg(long)]
    pub(crate) dir: PathBuf,
    /// Do not require visits for points, because some were written with `serve --no-visits`.
    #[arg(long)]
    pub(crate) no_visits: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Import {
    /// The folder of the tracks, created if missing.
    #[arg(long)]
    pub(crate) dir: PathBuf,
    /// The fleet that the positions belong to, created if missing.
    #[arg(long)]
    pub(crate) fleet: String,
    /// csv, ndjson, geojson, gpx, geolife, tdrive or porto.
    #[arg(long, value_parser = format)]
    pub(crate) format: Format,
    /// The columns of a CSV file, by name or by number from 1 on: `entity=id,lat=y,lon=x,time=t`. Further fields are
    /// speed, course, altitude, accuracy, battery, tags, attributes, and `attributes.NAME`. If not given, the columns
    /// have the names of the fields.
    #[arg(long, value_name = "WHAT=COLUMN,…", value_parser = mapping)]
    pub(crate) map: Option<Map>,
    /// The entity of records that name none.
    #[arg(long)]
    pub(crate) entity: Option<String>,
    /// The separator between the columns of a CSV file.
    #[arg(long, value_name = "CHAR", default_value = ",", value_parser = separator)]
    pub(crate) separator: u8,
    /// The CSV file has no header line with column names.
    #[arg(long)]
    pub(crate) no_header: bool,
    /// The format of times in a CSV file: seconds (or RFC 3339), millis, micros, or a pattern such as `%Y-%m-%d
    /// %H:%M:%S`.
    #[arg(long, value_name = "HOW", default_value = "seconds")]
    pub(crate) times: String,
    /// Seconds by which these times are ahead of UTC.
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    pub(crate) utc_offset: Option<i32>,
    /// The unit of the speeds of a CSV file: m/s, km/h or knots.
    #[arg(long, value_name = "UNIT", default_value = "m/s")]
    pub(crate) speed_unit: String,
    /// Ignore unknown keys of NDJSON and GeoJSON records instead of refusing the records.
    #[arg(long)]
    pub(crate) ignore_unknown: bool,
    /// Maximum memory for sorting.
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = size)]
    pub(crate) memory: usize,
    /// Write an error for each record that is left out to this file.
    #[arg(long, value_name = "FILE")]
    pub(crate) bad_lines: Option<PathBuf>,
    /// Import nothing if more records than this would be left out.
    #[arg(long, value_name = "N")]
    pub(crate) bad_lines_max: Option<u64>,
    /// Write no visits, as with `serve --no-visits`.
    #[arg(long)]
    pub(crate) no_visits: bool,
    /// The files; later ones replace earlier ones; `-` is stdin. A folder stands for all its files with an extension of
    /// the format.
    #[arg(required = true)]
    pub(crate) files: Vec<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Export {
    /// The folder of the tracks.
    #[arg(long)]
    pub(crate) dir: PathBuf,
    /// The fleet to export.
    #[arg(long)]
    pub(crate) fleet: String,
    /// Export only this entity.
    #[arg(long)]
    pub(crate) entity: Option<String>,
    /// The start of the time range, included: seconds since 1970, or RFC 3339.
    #[arg(long, value_name = "TIME", value_parser = moment, allow_negative_numbers = true)]
    pub(crate) from: Option<Time>,
    /// The end of the time range, included.
    #[arg(long, value_name = "TIME", value_parser = moment, allow_negative_numbers = true)]
    pub(crate) to: Option<Time>,
    /// csv, ndjson, geojson or gpx.
    #[arg(long, value_parser = format)]
    pub(crate) format: Format,
    /// The new file to write; if not given, stdout.
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Backup {
    /// The folder of the tracks.
    #[arg(long)]
    pub(crate) dir: PathBuf,
    /// The folder of the backups, created if missing.
    #[arg(long)]
    pub(crate) to: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct Restore {
    /// The folder of the backups.
    #[arg(long)]
    pub(crate) from: PathBuf,
    /// The folder to restore to.
    #[arg(long)]
    pub(crate) dir: PathBuf,
    /// The number of the backup; if not given, the newest.
    #[arg(long)]
    pub(crate) id: Option<u32>,
    /// Delete the database that is in the folder.
    #[arg(long)]
    pub(crate) replace: bool,
}

/// Fields of a report, and their columns.
pub(crate) type Map = Vec<(String, String)>;

#[derive(Debug, Args)]
pub(crate) struct Token {
    /// The name of the token in the file.
    #[arg(long)]
    pub(crate) name: String,
    /// A permission of the token; may be given more than once.
    #[arg(long = "scope", value_enum, required = true)]
    pub(crate) scopes: Vec<ScopeArg>,
    /// A fleet that the token is for; may be given more than once. If not given, all fleets.
    #[arg(long = "fleet")]
    pub(crate) fleets: Vec<String>,
    /// Maximum number of reports a second that the token may send.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) reports_per_second: Option<u32>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum ScopeArg {
    /// Sending reports.
    Ingest,
    /// All queries.
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
