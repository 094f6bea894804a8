//! Exports of a fleet's points as a file. A thread writes it while the client reads it, a few
//! pieces ahead. If the client takes nothing for too long, its connection is closed, which ends the
//! thread.

use std::io::{self, Write};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::response::Response;
use base::clock::Clock;
use base::{Error, ErrorKind};
use bytes::Bytes;
use hyper::body::Frame;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use utoipa::IntoParams;

use super::ingest::no_such_fleet;
use super::limits::NoPlace;
use super::params::{Params, Path};
use super::problem::{Kind, Problem};
use super::socket::{Phase, Streaming};
use super::{App, answers};
use crate::export::{Choice, export};
use crate::files::{Format, Writer};
use crate::model::name::Name;
use crate::model::time::Time;
use crate::read;

/// The size of a piece, bytes.
const PIECE: usize = 64 * 1024;
/// The most pieces that wait for the client.
const AHEAD: usize = 4;

/// What is exported.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "it is a description")]
pub(crate) struct ExportParams {
    /// `ndjson`, `csv`, `geojson` or `gpx`.
    #[param(default = "ndjson")]
    format: Option<String>,
    /// Of this entity alone.
    entity: Option<String>,
    /// The first moment: seconds since 1970, or RFC 3339.
    from: Option<answers::Moment>,
    /// The last moment.
    to: Option<answers::Moment>,
}

/// Export a fleet's points.
///
/// As `ironstone-tracks import` reads them: entity by entity, in the order of time, of one state. An answer that breaks off was
/// cut off: the server stopped, the client took too little of it for too long, or all of it took longer than an export may.
#[utoipa::path(
    get,
    path = "/v1/fleets/{fleet}/export",
    tag = "fleets",
    params(("fleet" = String, Path, description = "The fleet"), ExportParams),
    responses(
        (status = 200, description = "The points", content(
            (String = "application/x-ndjson"), (String = "text/csv"), (String = "application/geo+json"),
            (String = "application/gpx+xml"),
        )),
        super::openapi::Errors,
    ),
)]
pub(crate) async fn points(
    State(app): State<Arc<App>>,
    Extension(phase): Extension<Phase>,
    path: Path,
    mut params: Params,
) -> Result<Response, Problem> {
    let format = params.text("format")?;
    let (format, content_type) = format_of(format.as_deref().unwrap_or("ndjson"))?;
    let entity = params.text("entity")?;
    let (from, to) = params.times()?.unwrap_or((Time::MIN, Time::MAX));
    params.end()?;
    let named = entity.map(|entity| Name::new(&entity)).transpose();
    let entity = named.map_err(|e| Problem::parameter(format!("entity: {e}")))?;
    let info = app.tracks.fleet(&path.fleet()?).map_err(no_such_fleet)?;
    let caller = app.sharer();
    let place = app
        .exports
        .try_take(caller.as_ref().map(|token| token.name()));
    let place = place.map_err(busy)?;
    let (sender, receiver) = channel(AHEAD);
    let its = Arc::clone(&app);
    let work = move || {
        let view = its.tracks.view_of(info.fleet);
        // Behind the view: it may have tags that the fleet did not have before. Tags never go away.
        let info = its.tracks.fleets().get(&info.name).unwrap_or(info);
        let found = entity.map(|name| {
            read::find(&*view, info.fleet, &name)?.ok_or_else(|| {
                Error::not_found(format!("the fleet {} has no entity {name}", info.name))
            })
        });
        let pieces = Pieces {
            sender: sender.clone(),
            piece: Vec::with_capacity(PIECE),
            end: End::new(&its),
        };
        let end = End::new(&its);
        let done = found.transpose().and_then(|entity| {
            let choice = Choice { entity, from, to };
            let mut writer = Writer::new(format, pieces, &info.settings.tags)?;
            let told = &mut |_| {
                if its.is_stopping() {
                    return Err(Error::new(
                        ErrorKind::ShutdownInProgress,
                        "the server stops",
                    ));
                }
                if sender.is_closed() {
                    return Err(Error::aborted("the client is gone"));
                }
                end.check()
            };
            export(&*view, info.fleet, &choice, &mut writer, told)?;
            writer.finish().map(drop)
        });
        if let Err(e) = done {
            // If the receiver is gone, nobody needs the error.
            drop(sender.blocking_send(Err(e)));
        }
        drop(place);
    };
    let thread = tokio::task::spawn_blocking(work);
    // The thread ends with its receiver.
    drop(thread);
    answer(receiver, phase.streams(), content_type).await
}

fn busy(taken: NoPlace) -> Problem {
    let detail = match taken {
        NoPlace::All(count) => {
            format!("{count} exports run, which is the most (--max-exports): ask again later")
        }
        NoPlace::Share(count) => format!(
            "{count} exports of the token run, which is its share of --max-exports: ask again later"
        ),
    };
    Problem::new(Kind::Busy, detail).retry_after(10)
}

/// When an export is aborted: it holds a thread and a view of the store.
struct End {
    clock: Arc<dyn Clock>,
    at: u64,
    most: Duration,
}

impl End {
    fn new(app: &App) -> Self {
        let most = app.config.export_timeout;
        let nanos = u64::try_from(most.as_nanos()).unwrap_or(u64::MAX);
        Self {
            clock: Arc::clone(&app.clock),
            at: app.now().saturating_add(nanos),
            most,
        }
    }

    fn check(&self) -> Result<(), Error> {
        if self.clock.monotonic_nanos() < self.at {
            return Ok(());
        }
        let text = format!("the export has taken {:?} (--export-timeout)", self.most);
        Err(Error::new(ErrorKind::TimedOut, text).hint("ask for less: entity=, from= and to="))
    }
}

fn format_of(text: &str) -> Result<(Format, &'static str), Problem> {
    match text {
        "ndjson" => Ok((Format::Ndjson, "application/x-ndjson")),
        "csv" => Ok((Format::Csv, "text/csv")),
        "geojson" => Ok((Format::GeoJson, "application/geo+json")),
        "gpx" => Ok((Format::Gpx, "application/gpx+xml")),
        other => Err(Problem::parameter(format!(
            "format={other:.40}: it is ndjson, csv, geojson or gpx"
        ))),
    }
}

/// Waits for the first piece, so that an immediate failure becomes an error response.
async fn answer(
    mut receiver: Receiver<Result<Bytes, Error>>,
    streaming: Streaming,
    content_type: &'static str,
) -> Result<Response, Problem> {
    let first = match receiver.recv().await {
        Some(Err(e)) if e.is_not_found() => {
            return Err(Problem::new(Kind::NoSuchEntity, super::problem::text(&e)));
        }
        Some(Err(e)) => return Err(e.into()),
        Some(Ok(piece)) => Some(piece),
        None => None,
    };
    let body = Streamed {
        first,
        receiver,
        _streaming: streaming,
    };
    let mut response = Response::new(Body::new(body));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    Ok(response)
}

/// Collects the output into pieces.
struct Pieces {
    sender: Sender<Result<Bytes, Error>>,
    piece: Vec<u8>,
    end: End,
}

impl Pieces {
    fn send(&mut self) -> io::Result<()> {
        if self.piece.is_empty() {
            return Ok(());
        }
        let piece = std::mem::replace(&mut self.piece, Vec::with_capacity(PIECE));
        self.end.check().map_err(io::Error::other)?;
        let sent = self.sender.blocking_send(Ok(piece.into()));
        sent.map_err(|_| io::Error::new(io::ErrorKind::BrokenPipe, "the client is gone"))
    }
}

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.piece.len() + bytes.len() > PIECE {
            self.send()?;
        }
        self.piece.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.send()
    }
}

/// The body: the pieces as they are written.
struct Streamed {
    first: Option<Bytes>,
    receiver: Receiver<Result<Bytes, Error>>,
    _streaming: Streaming,
}

impl hyper::body::Body for Streamed {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = self.get_mut();
        if let Some(first) = this.first.take() {
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        let next = this.receiver.poll_recv(cx);
        next.map(|piece| piece.map(|piece| piece.map(Frame::data)))
    }
}
