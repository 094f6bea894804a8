//! Streams: events and positions as they happen, as server-sent events.
//!
//! A stream has a place in the events of its fleet, and takes them at its client's pace; a client
//! that takes nothing for [`Config::write_timeout`](super::Config) is cut off, and goes on after
//! the last id that it has. Positions wait in a [`Listener`], the newest one of each entity.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use axum::{Extension, body::Bytes};
use serde::Serialize;
use tokio::sync::mpsc::{OwnedPermit, Sender};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};
use utoipa::{IntoParams, ToSchema};

use super::answers::hundredths;
use super::areas::AreaParams;
use super::events::EventBody;
use super::feed::{self, Feed};
use super::ingest::no_such_fleet;
use super::limits::{self, NoPlace};
use super::params::{Params, Path, event_id};
use super::positions::{self, Listener, Place, Told, Wanted};
use super::problem::{Kind, Problem, text};
use super::socket::{Cut, Phase, Streaming};
use super::sse::{self, Messages};
use super::time::seconds;
use super::{App, Stopping};
use crate::fleets::{Info, Settings};
use crate::live::Moved;
use crate::model::name::Name;

/// How long the first message waits for rounds that do not know of the stream.
const ROUNDS: Duration = Duration::from_secs(2);
/// The time, ms, after which a client that was cut off reconnects.
const RETRY: u64 = 2000;
/// How often a keep-alive comment is sent.
const ALIVE: Duration = Duration::from_secs(15);
/// The pause between two messages with positions.
const PACE: Duration = Duration::from_millis(100);
/// The most events, and positions, that are taken at once.
const EVENTS: usize = 128;
const POSITIONS: usize = 1024;
/// How long a client may take to receive the end when the server stops.
const END: Duration = Duration::from_millis(500);
/// The pause before a failed read of events is tried again.
const AGAIN: Duration = Duration::from_secs(1);

/// What is wanted.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "it is a description")]
pub(crate) struct StreamParams {
    /// Positions of entities that have this tag; given more than once, all of these.
    tag: Option<Vec<String>>,
    /// Whether positions come.
    #[param(default = true)]
    positions: Option<bool>,
    /// Whether events at fences come: all of the fleet, wherever they are.
    #[param(default = true)]
    events: Option<bool>,
    /// Events behind this id. The header `Last-Event-ID` says more.
    after: Option<u64>,
}

/// The data of a message `position`.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PositionMessage<'a> {
    /// Who.
    entity: &'a str,
    /// Degrees.
    lat: f64,
    /// Degrees.
    lon: f64,
    /// Since when, seconds since 1970.
    time: f64,
    /// m/s.
    #[serde(skip_serializing_if = "Option::is_none")]
    speed: Option<f64>,
    /// From north over east, degrees.
    #[serde(skip_serializing_if = "Option::is_none")]
    course: Option<f64>,
    /// Its tags.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tags: Vec<&'a str>,
}

impl<'a> PositionMessage<'a> {
    fn new(moved: &'a Moved, settings: &'a Settings) -> Self {
        let (lat, lon) = moved.position.degrees();
        Self {
            entity: moved.name.as_str(),
            lat,
            lon,
            time: seconds(moved.time),
            speed: moved.speed.map(hundredths),
            course: moved.course.map(hundredths),
            tags: settings.names(moved.tags),
        }
    }
}

/// A message, by the names of its fields.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct StreamMessage {
    /// What it is.
    event: Option<String>,
    /// Of an event, and of `hello`.
    id: Option<String>,
    /// JSON.
    data: Option<String>,
    /// Milliseconds after which a client that was cut off comes again.
    retry: Option<u64>,
}

/// The data of the messages `hello` and `bye`.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PlaceMessage {
    /// Events with greater ids follow.
    after: u64,
}

/// The data of the message `gone`.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct GoneMessage<'a> {
    /// Who.
    entity: &'a str,
}

/// What happens, as it happens.
///
/// Server-sent events. The first is `hello`, which says behind which id events begin: that of `Last-Event-ID` or `after`, or
/// the newest. Then `enter`, `exit`, `dwell` and `cross`, with their ids: each once in a stream, in order, and none is left
/// out. `position`: the newest of an entity; a slow client gets fewer. `gone`: an entity has left the area, or has lost the
/// tag, or was erased. `bye`: the server stops; come again. A comment comes every 15 s.
#[utoipa::path(
    get,
    path = "/v1/fleets/{fleet}/stream",
    tag = "fences",
    params(
        ("fleet" = String, Path, description = "The fleet"),
        AreaParams, StreamParams,
        ("Last-Event-ID" = Option<u64>, Header, description = "Events behind this id; more than `after`"),
    ),
    responses(
        (status = 200, description = "Messages. Data of `hello` and `bye` is PlaceMessage, of `position` PositionMessage, of \
            `gone` GoneMessage, and of the others Event", body = StreamMessage, content_type = "text/event-stream"),
        super::openapi::Errors,
    ),
)]
pub(crate) async fn stream(
    State(app): State<Arc<App>>,
    Extension(cut): Extension<Cut>,
    Extension(phase): Extension<Phase>,
    path: Path,
    mut params: Params,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let name = path.fleet()?;
    let info = app.tracks.fleet(&name).map_err(no_such_fleet)?;
    let area = params.maybe_area()?;
    let tags = info.settings.bits(&params.all("tag"));
    let tags = tags.map_err(|e| Problem::parameter(format!("tag: {}", text(&e))))?;
    let with_positions = params.flag("positions", true)?;
    let with_events = params.flag("events", true)?;
    let after = params.id("after")?;
    params.end()?;
    if !with_positions && !with_events {
        let detail = "positions and events are both false: nothing would come";
        return Err(Problem::parameter(detail));
    }
    let after = last_event_id(&headers)?.or(after);
    let caller = app.sharer();
    let place = app
        .streams
        .try_take(caller.as_ref().map(|token| token.name()));
    let place = place.map_err(busy)?;
    let listening = with_positions.then(|| {
        let wanted = Wanted { area, tags };
        positions::listen(&app, info.fleet, wanted)
    });
    let feed = app.feeds.of(app.tracks.events(), info.fleet);
    let (response, sender) = sse::answer();
    let stream = Stream {
        after: after.unwrap_or_else(|| app.tracks.events().given_out()),
        news: with_events.then(|| feed.news()),
        feed,
        name,
        info,
        listening,
        sender,
        stopping: app.stopping(),
        app,
        _place: place,
        _streaming: phase.streams(),
    };
    tokio::spawn(stream.run(cut));
    Ok(response)
}

fn busy(taken: NoPlace) -> Problem {
    let detail = match taken {
        NoPlace::All(count) => {
            format!("{count} streams are open, which is the most (--max-streams): come again later")
        }
        NoPlace::Share(count) => format!(
            "{count} streams of the token are open, which is its share of --max-streams: come again later"
        ),
    };
    Problem::new(Kind::Busy, detail).retry_after(5)
}

fn last_event_id(headers: &HeaderMap) -> Result<Option<u64>, Problem> {
    let Some(value) = headers.get("last-event-id") else {
        return Ok(None);
    };
    let id = value.to_str().ok().and_then(event_id);
    id.map(Some).ok_or_else(|| {
        Problem::parameter("Last-Event-ID: it is no id of an event; leave it out to begin now")
    })
}

/// A stream of one client.
struct Stream {
    app: Arc<App>,
    name: Name,
    info: Arc<Info>,
    feed: Arc<Feed>,
    /// `None` if no events are wanted.
    news: Option<watch::Receiver<u64>>,
    /// The id up to which events were given.
    after: u64,
    listening: Option<Place>,
    sender: Sender<Bytes>,
    stopping: Stopping,
    _place: limits::Place,
    _streaming: Streaming,
}

/// Why a stream ends.
enum End {
    /// The client is gone.
    Gone,
    /// The server stops.
    Stop,
}

impl Stream {
    async fn run(mut self, cut: Cut) {
        let mut end = self.begin().await;
        while end.is_ok() {
            end = self.turn().await;
        }
        if matches!(end, Err(End::Stop)) {
            let mut bye = Messages::default();
            bye.add("bye", None, &self.message());
            // A client that does not take it is cut off.
            drop(tokio::time::timeout(END, self.sender.send(bye.take())).await);
            drop(self);
            cut.after(END);
        }
    }

    /// Says hello.
    async fn begin(&mut self) -> Result<(), End> {
        if self.listening.is_some() {
            // Rounds that had begun before publish nothing here. Once they are over, a query sees what they wrote. If
            // writes are stalled, the stream begins without waiting for them any longer.
            let app = Arc::clone(&self.app);
            tokio::select! {
                biased;
                () = self.stopping.wait() => return Err(End::Stop),
                () = self.sender.closed() => return Err(End::Gone),
                _ = tokio::time::timeout(ROUNDS, app.tracks.rounds_end()) => {}
            }
        }
        let mut hello = Messages::default();
        hello.retry(RETRY);
        hello.add("hello", Some(self.after), &self.message());
        self.send(&mut hello).await
    }

    fn message(&self) -> PlaceMessage {
        PlaceMessage { after: self.after }
    }

    /// Waits until there is something, and sends it.
    async fn turn(&mut self) -> Result<(), End> {
        // First of all, so that no message waits here whose entity is erased meanwhile.
        let room = self.room().await?;
        let mut messages = Messages::default();
        let (events, next) = self.events(&mut messages).await;
        let positions = self.positions(&mut messages);
        self.after = next;
        if messages.is_empty() {
            drop(room);
        } else {
            drop(room.send(messages.take()));
            if positions > 0 && events == 0 {
                // Newer positions of the same entities may come meanwhile.
                return self.wait(Some(PACE)).await;
            }
            return Ok(());
        }
        self.wait(None).await
    }

    /// Adds the next events. Returns their number, and the next place.
    async fn events(&mut self, messages: &mut Messages) -> (usize, u64) {
        let Some(news) = &mut self.news else {
            return (0, self.after);
        };
        // First of all: later events trigger another turn.
        news.borrow_and_update();
        let given = match feed::page(&self.app, &self.feed, self.after, EVENTS).await {
            Ok(given) => given,
            Err(problem) => {
                problem.log("events of a stream");
                sleep(AGAIN).await;
                news.mark_changed();
                return (0, self.after);
            }
        };
        for event in &given.events {
            let body = EventBody::new(event);
            messages.add(body.kind(), Some(event.id), &body);
        }
        let is_more = given.events.len() == EVENTS;
        if is_more {
            news.mark_changed();
        }
        (given.events.len(), given.next)
    }

    /// Adds the next positions. Returns their number.
    fn positions(&mut self, messages: &mut Messages) -> usize {
        let Some(place) = &self.listening else {
            return 0;
        };
        let told = place.listener.take(POSITIONS);
        for one in &told {
            match one {
                Told::Here(moved) => {
                    // A position may have a tag that is newer than the known settings.
                    let known = self.info.settings.tags.len();
                    if u64::from(moved.tags) >> known != 0
                        && let Ok(info) = self.app.tracks.fleet(&self.name)
                    {
                        self.info = info;
                    }
                    let data = PositionMessage::new(moved, &self.info.settings);
                    messages.add("position", None, &data);
                }
                Told::Gone(name) => {
                    let entity = name.as_str();
                    messages.add("gone", None, &GoneMessage { entity });
                }
            }
        }
        told.len()
    }

    /// Waits until there is room for messages.
    async fn room(&mut self) -> Result<OwnedPermit<Bytes>, End> {
        let sender = self.sender.clone();
        tokio::select! {
            biased;
            () = self.stopping.wait() => Err(End::Stop),
            room = sender.reserve_owned() => room.map_err(|_| End::Gone),
        }
    }

    async fn send(&mut self, messages: &mut Messages) -> Result<(), End> {
        let room = self.room().await?;
        drop(room.send(messages.take()));
        Ok(())
    }

    /// Waits until there may be something to send. With a pace, positions are not sent before it
    /// has passed, but events are.
    async fn wait(&mut self, pace: Option<Duration>) -> Result<(), End> {
        let begin = Instant::now();
        let not_before = begin + pace.unwrap_or_default();
        let mut alive = begin + ALIVE;
        loop {
            let listener = self.listening.as_ref().map(|place| &*place.listener);
            tokio::select! {
                biased;
                () = self.stopping.wait() => return Err(End::Stop),
                () = self.sender.closed() => return Err(End::Gone),
                () = changed(&mut self.news) => return Ok(()),
                () = sleep_until(not_before), if pace.is_some() => return Ok(()),
                () = waits(listener), if pace.is_none() => return Ok(()),
                () = sleep_until(alive) => {}
            }
            let mut messages = Messages::default();
            messages.alive();
            self.send(&mut messages).await?;
            alive = Instant::now() + ALIVE;
        }
    }
}

/// Returns when there are new events.
async fn changed(news: &mut Option<watch::Receiver<u64>>) {
    match news {
        // Never fails, because the stream holds the feed.
        Some(news) => drop(news.changed().await),
        None => std::future::pending().await,
    }
}

/// Returns when positions may be waiting.
async fn waits(listener: Option<&Listener>) {
    match listener {
        Some(listener) => listener.changed().await,
        None => std::future::pending().await,
    }
}
