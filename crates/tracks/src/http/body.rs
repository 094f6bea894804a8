//! Bodies of requests, read and decompressed within limits of size, time and memory.

use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::HeaderMap;
use axum::http::header::{CONTENT_ENCODING, CONTENT_LENGTH};
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Frame;
use tokio::time::Instant;

use super::App;
use super::ask;
use super::limits::Held;
use super::problem::{Kind, Problem};

/// Of a body that is too large, up to this multiple of the limit is read, so that its client
/// receives the answer.
const TOO_MUCH: usize = 4;
/// The largest window of zstd, as a power of two, which RFC 9659 allows for HTTP.
const ZSTD_WINDOW: u32 = 23;

/// Bytes with the memory that is reserved for them.
struct Counted {
    bytes: Vec<u8>,
    _held: Held,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// A buffer that grows within limits.
struct Growing<'a> {
    app: &'a App,
    bytes: Vec<u8>,
    held: Held,
}

impl<'a> Growing<'a> {
    fn new(app: &'a App) -> Self {
        Self {
            app,
            bytes: Vec::new(),
            held: Held::default(),
        }
    }

    fn add(&mut self, more: &[u8]) -> Result<(), Problem> {
        let len = self.bytes.len() + more.len();
        if len > self.bytes.capacity() {
            let capacity = len
                .next_multiple_of(4096)
                .max(self.bytes.capacity() * 3 / 2);
            if !self.app.memory.grow(&mut self.held, capacity) {
                return Err(no_memory());
            }
            self.bytes.reserve_exact(capacity - self.bytes.len());
        }
        self.bytes.extend_from_slice(more);
        Ok(())
    }

    fn end(self) -> Bytes {
        counted(self.bytes, self.held)
    }
}

/// Bytes that give their memory back when they are dropped.
pub(crate) fn counted(bytes: Vec<u8>, held: Held) -> Bytes {
    Bytes::from_owner(Counted { bytes, _held: held })
}

pub(crate) fn no_memory() -> Problem {
    let detail = "other calls have all the memory that bodies may have: send it again later";
    Problem::new(Kind::Busy, detail).retry_after(1)
}

/// Reads a body of at most `most` bytes, compressed and decompressed: what is made of it takes many
/// times its memory.
pub(crate) async fn read(
    app: &Arc<App>,
    headers: &HeaderMap,
    body: Body,
    most: usize,
) -> Result<Bytes, Problem> {
    let inflated = most.min(app.config.inflated_max);
    read_inflated(app, headers, body, (most, inflated)).await
}

/// Reads a body with separate limits for its compressed and decompressed size, for bodies that are
/// processed in parts.
pub(crate) async fn read_inflated(
    app: &Arc<App>,
    headers: &HeaderMap,
    body: Body,
    (most, inflated): (usize, usize),
) -> Result<Bytes, Problem> {
    let coding = Coding::of(headers)?;
    let raw = raw(app, headers, body, most).await?;
    let Some(coding) = coding else {
        return Ok(raw);
    };
    let of = Arc::clone(app);
    ask::with_body(app, move || inflate(&of, (coding, inflated), &raw)).await
}

async fn raw(
    app: &App,
    headers: &HeaderMap,
    mut body: Body,
    most: usize,
) -> Result<Bytes, Problem> {
    let announced = headers.get(CONTENT_LENGTH);
    let announced: Option<usize> = announced.and_then(|v| v.to_str().ok()?.parse().ok());
    let mut seen = 0_usize;
    let mut error = match announced {
        Some(bytes) if bytes > most => Some(Problem::too_large("the body", most)),
        _ => None,
    };
    let mut growing = Growing::new(app);
    let since = Instant::now();
    while let Some(frame) = frame(app, &mut body, (since, seen)).await? {
        let frame = frame.map_err(|e| Problem::body(format!("the body broke off: {e}")))?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        seen += data.len();
        if error.is_none() && seen > most {
            error = Some(Problem::too_large("the body", most));
        }
        if error.is_none() {
            error = growing.add(&data).err();
        }
        if error.is_some() {
            growing = Growing::new(app);
            if seen > TOO_MUCH.saturating_mul(most) {
                break;
            }
        }
    }
    error.map_or_else(|| Ok(growing.end()), Err)
}

/// The next piece of a body that began at a given time and has a given number of bytes so far.
/// Errors: it does not arrive in time.
async fn frame(
    app: &App,
    body: &mut Body,
    (since, seen): (Instant, usize),
) -> Result<Option<Result<Frame<Bytes>, axum::Error>>, Problem> {
    let config = &app.config;
    let of_rate = (seen as u64 * 1000)
        .checked_div(config.rate_min as u64)
        .map(|millis| config.body_lag + Duration::from_millis(millis));
    let is_rate = of_rate.is_some_and(|time| time < config.body_timeout);
    let time = of_rate.map_or(config.body_timeout, |time| time.min(config.body_timeout));
    let frame = tokio::time::timeout_at(since + time, body.frame()).await;
    frame.map_err(|_| {
        let detail = if is_rate {
            format!(
                "{seen} bytes of it were there after {time:?}: send {} a second at least",
                config.rate_min
            )
        } else {
            format!("it was not there within {time:?}: send less at a time")
        };
        Problem::new(Kind::SlowBody, detail)
    })
}

#[derive(Clone, Copy, Debug)]
enum Coding {
    Gzip,
    Zstd,
}

impl Coding {
    fn of(headers: &HeaderMap) -> Result<Option<Self>, Problem> {
        let mut all = headers.get_all(CONTENT_ENCODING).iter();
        let (one, more) = (all.next(), all.next());
        let text = one.map(|value| value.to_str().unwrap_or("?").trim().to_ascii_lowercase());
        match (text.as_deref(), more) {
            (None | Some("" | "identity"), None) => Ok(None),
            (Some("gzip" | "x-gzip"), None) => Ok(Some(Self::Gzip)),
            (Some("zstd"), None) => Ok(Some(Self::Zstd)),
            (other, _) => Err(Problem::new(
                Kind::UnsupportedMediaType,
                format!(
                    "Content-Encoding {:.40?} is not taken: send gzip, zstd, or none",
                    other.unwrap_or_default()
                ),
            )),
        }
    }
}

fn inflate(app: &App, (coding, most): (Coding, usize), raw: &[u8]) -> Result<Bytes, Problem> {
    let wrong = |e: std::io::Error| {
        Problem::body(format!(
            "the body is not what its Content-Encoding says: {e}"
        ))
    };
    let mut reader: Box<dyn Read + '_> = match coding {
        Coding::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(raw)),
        Coding::Zstd => {
            let mut decoder = zstd::stream::read::Decoder::with_buffer(raw).map_err(wrong)?;
            decoder.window_log_max(ZSTD_WINDOW).map_err(wrong)?;
            Box::new(decoder)
        }
    };
    let mut growing = Growing::new(app);
    let mut piece = vec![0; 32 * 1024];
    loop {
        let len = reader.read(&mut piece).map_err(wrong)?;
        let more = piece.get(..len).unwrap_or_default();
        if more.is_empty() {
            return Ok(growing.end());
        }
        if growing.bytes.len() + len > most {
            return Err(Problem::too_large("the inflated body", most));
        }
        growing.add(more)?;
    }
}
