//! The map: a page and the files that it loads.
//!
//! `cargo xtask web` bundles it into `web/dist`, compressed, and the build embeds it. Without the
//! bundle everything else works, and the page says how to make it. The page loads nothing from
//! other servers, which its content security policy makes browsers enforce; a server of tiles is
//! the only exception, and only if it is configured.
//!
//! ```text
//!   /map                 the page, revalidated each time (ETag)
//!   /map/config.json     what lies beneath the objects
//!   /map/base.geojson    the configured file
//!   /map/NAME-HASH.js    cached by browsers for a year: other content has another name
//! ```

use std::hash::Hasher as _;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG,
    IF_NONE_MATCH, LOCATION, REFERRER_POLICY, VARY, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use base::{Error, Result};
use serde_json::json;
use twox_hash::XxHash64;

use super::problem::Problem;
use super::{App, status};

/// The names and compressed contents.
static FILES: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/map.rs"));

/// The paths, for metrics.
pub(crate) const PATHS: [&str; 3] = ["/map", "/map/", "/map/{*file}"];

const PAGE: &str = "index.html";
/// The most bytes of the base file.
const BASE_MAX: usize = 64 << 20;
const YEAR: &str = "public, max-age=31536000, immutable";
const ASK_AGAIN: &str = "no-cache";
const JSON: &str = "application/json";
const GEOJSON: &str = "application/geo+json";

/// The page if the map was not bundled.
const MISSING: &str = "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
    <meta name=\"viewport\" content=\"width=device-width\">\n<title>Tracks: no map yet</title>\n\
    <h1>The map is not in this build</h1>\n\
    <p>Its parts are bundled by <code>cargo xtask web</code>, which needs Node and npm. Then build again:</p>\n\
    <pre>cargo xtask web\ncargo build --release --bin ironstone-tracks</pre>\n\
    <p>Everything else works: <a href=\"openapi.json\">openapi.json</a> describes all calls.</p>\n</html>\n";

/// What the map shows beneath the objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Map {
    base: Option<Bytes>,
    tiles: Option<Tiles>,
}

/// A server of tiles.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Tiles {
    url: String,
    /// The scheme, host and port of the URL.
    origin: String,
}

impl Map {
    /// Shows GeoJSON beneath the objects. Errors: `InvalidArgument` if it is not GeoJSON, or too
    /// large.
    pub fn with_base(mut self, geojson: Vec<u8>) -> Result<Self> {
        if geojson.len() > BASE_MAX {
            let text = format!(
                "the map's base has {} bytes; {BASE_MAX} are the most",
                geojson.len()
            );
            return Err(Error::invalid_argument(text).hint("simplify it, or leave parts of it out"));
        }
        let parsed: std::result::Result<serde_json::Value, _> = serde_json::from_slice(&geojson);
        let wrong =
            |why: String| Error::invalid_argument(format!("the map's base is no GeoJSON: {why}"));
        let parsed = parsed.map_err(|e| wrong(e.to_string()))?;
        let kind = parsed.get("type").and_then(serde_json::Value::as_str);
        if !kind.is_some_and(|kind| ["FeatureCollection", "Feature"].contains(&kind)) {
            return Err(wrong("it is a FeatureCollection or a Feature".to_owned()));
        }
        self.base = Some(geojson.into());
        Ok(self)
    }

    /// Like [`Map::with_base`], from a file. Errors: as there; the file cannot be read.
    pub fn with_base_of(self, file: &Path) -> Result<Self> {
        let bytes = std::fs::read(file).map_err(|e| Error::io("read", file, e))?;
        self.with_base(bytes).map_err(|e| e.or_file(file))
    }

    /// Shows tiles beneath the objects, which browsers load from this URL. Errors:
    /// `InvalidArgument` if it is not a URL of tiles.
    pub fn with_tiles(mut self, url: &str) -> Result<Self> {
        let origin = origin(url).ok_or_else(|| {
            let text = format!("{url:.100?} is no URL of tiles");
            Error::invalid_argument(text).hint("write https://HOST/PATH/{z}/{x}/{y}.png")
        })?;
        let url = url.to_owned();
        self.tiles = Some(Tiles { url, origin });
        Ok(self)
    }

    fn config(&self) -> String {
        let tiles = self.tiles.as_ref().map(|tiles| &tiles.url);
        json!({ "base": self.base.is_some(), "tiles": tiles, "version": env!("CARGO_PKG_VERSION") })
            .to_string()
    }

    /// The content security policy of the page. Only embedded scripts are allowed.
    fn policy(&self) -> String {
        let mut policy = String::from(
            "default-src 'none'; script-src 'self'; worker-src 'self'; style-src 'self'; manifest-src 'self'; \
             base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        );
        for (directive, own) in [("img-src", "'self' data: blob:"), ("connect-src", "'self'")] {
            policy.push_str(&format!("; {directive} {own}"));
            if let Some(tiles) = &self.tiles {
                policy.push_str(&format!(" {}", tiles.origin));
            }
        }
        policy
    }
}

/// The scheme, host and port of a URL of tiles. `None` if it is invalid: a value in a header must
/// not be able to end the header.
fn origin(url: &str) -> Option<String> {
    let is_plain = |c: char| c.is_ascii_graphic() && !"\"'<>\\^`|,;".contains(c);
    let rest = url
        .strip_prefix("https://")
        .or_else(|| url.strip_prefix("http://"))?;
    let (host, path) = rest.split_once('/')?;
    let is_host = !host.is_empty()
        && host
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || ".-:[]".contains(c));
    let has_all = ["{z}", "{x}", "{y}"].iter().all(|part| path.contains(part));
    let fits = url.len() <= 2000 && url.chars().all(is_plain);
    let end = url.len() - path.len() - 1;
    (is_host && has_all && fits).then(|| url.get(..end).map(str::to_owned))?
}

/// The routes of the map. No token is needed to load it; the calls that it makes may need one.
pub(crate) fn routes(router: Router<Arc<App>>) -> Router<Arc<App>> {
    router
        .route("/map", get(page))
        .route("/map/", get(aside))
        .route("/map/{*file}", get(file))
}

async fn page(State(app): State<Arc<App>>, headers: HeaderMap) -> Response {
    let mut response = match find(PAGE) {
        Some(bytes) => embedded(PAGE, bytes, &headers),
        None => plain(
            "text/html; charset=utf-8",
            Bytes::from_static(MISSING.as_bytes()),
        ),
    };
    let policy = HeaderValue::from_str(&app.config.map.policy());
    // The page is not served without its policy.
    let Ok(policy) = policy else {
        return Problem::internal("the map's policy is no header").into_response();
    };
    response
        .headers_mut()
        .insert(CONTENT_SECURITY_POLICY, policy);
    set(&mut response, REFERRER_POLICY, "no-referrer");
    response
}

/// Redirects, because the page's addresses are relative to `/map`.
async fn aside() -> Response {
    let mut response = StatusCode::PERMANENT_REDIRECT.into_response();
    set(&mut response, LOCATION, "../map");
    response
}

async fn file(State(app): State<Arc<App>>, uri: Uri, headers: HeaderMap) -> Response {
    let map = &app.config.map;
    let name = uri.path().strip_prefix("/map/").unwrap_or_default();
    match (name, &map.base) {
        ("config.json", _) => plain(JSON, map.config().into()),
        ("base.geojson", Some(base)) => plain(GEOJSON, base.clone()),
        (PAGE, _) => status::no_such_path(uri).await.into_response(),
        (name, _) => match find(name) {
            Some(bytes) => embedded(name, bytes, &headers),
            None => status::no_such_path(uri).await.into_response(),
        },
    }
}

fn find(name: &str) -> Option<&'static [u8]> {
    let place = FILES
        .binary_search_by(|(known, _)| (*known).cmp(name))
        .ok()?;
    FILES.get(place).map(|(_, bytes)| *bytes)
}

/// A response with an embedded file.
fn embedded(name: &str, bytes: &'static [u8], asked: &HeaderMap) -> Response {
    let etag = etag(bytes);
    let has = asked
        .get(IF_NONE_MATCH)
        .and_then(|value| value.to_str().ok());
    let is_known = has.is_some_and(|has| {
        has.split(',')
            .any(|one| one.trim().trim_start_matches("W/") == etag)
    });
    let mut response = if is_known {
        StatusCode::NOT_MODIFIED.into_response()
    } else if takes_gzip(asked) {
        let mut response = plain(content_type(name), Bytes::from_static(bytes));
        set(&mut response, CONTENT_ENCODING, "gzip");
        response
    } else {
        let mut whole = Vec::new();
        match flate2::read::GzDecoder::new(bytes).read_to_end(&mut whole) {
            Ok(_) => plain(content_type(name), whole.into()),
            Err(e) => return Problem::internal(e).into_response(),
        }
    };
    set(&mut response, VARY, "accept-encoding");
    let cache = if has_hash(name) { YEAR } else { ASK_AGAIN };
    set(&mut response, CACHE_CONTROL, cache);
    if let Ok(value) = HeaderValue::from_str(&etag) {
        response.headers_mut().insert(ETAG, value);
    }
    response
}

fn plain(content_type: &'static str, body: Bytes) -> Response {
    let mut response = Response::new(Body::from(body));
    set(&mut response, CONTENT_TYPE, content_type);
    set(&mut response, X_CONTENT_TYPE_OPTIONS, "nosniff");
    set(&mut response, CACHE_CONTROL, ASK_AGAIN);
    response
}

fn set(response: &mut Response, name: HeaderName, value: &'static str) {
    response
        .headers_mut()
        .insert(name, HeaderValue::from_static(value));
}

fn etag(bytes: &[u8]) -> String {
    let mut hash = XxHash64::with_seed(0);
    hash.write(bytes);
    format!("\"{:016x}\"", hash.finish())
}

fn takes_gzip(asked: &HeaderMap) -> bool {
    let all = asked.get_all(ACCEPT_ENCODING).iter();
    let mut all = all
        .filter_map(|value| value.to_str().ok())
        .flat_map(|text| text.split(','));
    all.any(|coding| {
        let (name, quality) = coding.split_once(';').unwrap_or((coding, ""));
        let quality = quality.trim().strip_prefix("q=").unwrap_or("1");
        let is_wanted = quality.parse().is_ok_and(|q: f32| q > 0.0);
        ["gzip", "*"].contains(&name.trim()) && is_wanted
    })
}

/// Whether the bundler put a content hash into the name: eight capitals and digits after a hyphen.
fn has_hash(name: &str) -> bool {
    let stem = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
    let hash = stem.rsplit_once('-').map_or("", |(_, hash)| hash);
    hash.len() == 8
        && hash
            .bytes()
            .all(|b| b.is_ascii_uppercase() || b.is_ascii_digit())
}

fn content_type(name: &str) -> &'static str {
    match name.rsplit_once('.').map_or("", |(_, extension)| extension) {
        "html" => "text/html; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "svg" => "image/svg+xml",
        "txt" => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_tiles_have_an_origin_that_is_safe_in_a_header() {
        let good = "https://tiles.example:8443/a/{z}/{x}/{y}.png?k=1";
        assert_eq!(origin(good).unwrap(), "https://tiles.example:8443");
        for bad in [
            "",
            "tiles.example/{z}/{x}/{y}",
            "ftp://tiles.example/{z}/{x}/{y}",
            "https:///{z}/{x}/{y}",
            "https://tiles.example",
            "https://tiles.example/{z}/{x}",
            "https://a;script-src *//{z}/{x}/{y}",
            "https://a.b/{z}/{x}/{y};x",
            "https://user@a.b/{z}/{x}/{y}",
            "https://a.b/{z}/{x}/{y}\r\nx: y",
        ] {
            assert_eq!(origin(bad), None, "{bad}");
            assert!(Map::default().with_tiles(bad).is_err());
        }
        let map = Map::default().with_tiles(good).unwrap();
        assert!(
            map.policy()
                .contains("img-src 'self' data: blob: https://tiles.example:8443;")
        );
        assert!(!Map::default().policy().contains("http"));
    }

    #[test]
    fn a_base_is_geojson() {
        let base = |text: &str| Map::default().with_base(text.as_bytes().to_vec());
        assert!(base("{\"type\":\"FeatureCollection\",\"features\":[]}").is_ok());
        for bad in ["", "[]", "{\"type\":\"Topology\"}", "{\"type\":"] {
            assert!(base(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn files_are_named_by_their_content_or_asked_for_again() {
        assert!(has_hash("main-AB12CD34.js"));
        assert!(
            !has_hash("index.html") && !has_hash("main-ab12cd34.js") && !has_hash("licences.txt")
        );
        let sorted = FILES.is_sorted_by(|(a, _), (b, _)| a < b);
        assert!(sorted);
        let asks = |value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(value));
            takes_gzip(&headers)
        };
        assert!(asks("gzip, deflate") && asks("br;q=1, gzip;q=0.5") && asks("*"));
        assert!(!asks("br") && !asks("gzip;q=0") && !takes_gzip(&HeaderMap::new()));
    }
}
