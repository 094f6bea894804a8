//! Events of fences, in pages, with an optional wait.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::ingest::no_such_fleet;
use super::params::{Params, Path};
use super::problem::{Problem, text};
use super::time::seconds;
use super::{App, ask, feed};
use crate::fence::{Event, Kind, Page};
use crate::model::key::Fleet;
use crate::model::name::Name;
use crate::model::time::Time;

/// The default limit of events.
const LIMIT: usize = 1000;
/// The greatest limit of events.
const LIMIT_MAX: usize = 10_000;
/// The longest wait, seconds.
const WAIT_MAX: f64 = 60.0;
/// How many events are read at a time.
const PAGE: usize = 1000;
/// The most events that are read for one answer: if few of them match, `next` says where to go on.
const LOOK_MAX: usize = 100_000;

/// What happened at a fence.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = Event)]
pub(crate) struct EventBody<'a> {
    /// Greater than that of each event before; the same whenever it is asked for.
    pub(crate) id: u64,
    kind: KindBody,
    /// Of which fence.
    fence: &'a str,
    /// Who.
    entity: &'a str,
    /// Of the report that showed it, seconds since 1970.
    time: f64,
    /// Where the entity was then, degrees.
    lat: f64,
    /// Degrees.
    lon: f64,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = EventKind)]
pub(crate) enum KindBody {
    /// Outside before, inside now.
    Enter,
    /// Inside before, outside now.
    Exit,
    /// Inside for as long as the fence's `dwell` says.
    Dwell,
    /// Outside before and now; the straight line between has a place inside.
    Cross,
}

impl KindBody {
    pub(crate) const ALL: [Self; 4] = [Self::Enter, Self::Exit, Self::Dwell, Self::Cross];

    pub(crate) fn of(kind: Kind) -> Self {
        match kind {
            Kind::Enter => Self::Enter,
            Kind::Exit => Self::Exit,
            Kind::Dwell => Self::Dwell,
            Kind::Cross => Self::Cross,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Enter => "enter",
            Self::Exit => "exit",
            Self::Dwell => "dwell",
            Self::Cross => "cross",
        }
    }
}

impl<'a> EventBody<'a> {
    pub(crate) fn new(event: &'a Event) -> Self {
        Self {
            id: event.id,
            kind: KindBody::of(event.kind),
            fence: &event.fence,
            entity: &event.entity,
            time: seconds(Time(event.time)),
            lat: event.lat,
            lon: event.lon,
        }
    }

    pub(crate) fn kind(&self) -> &'static str {
        self.kind.name()
    }
}

/// A part of the events.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct EventList<'a> {
    /// They, in the order of their ids.
    events: Vec<EventBody<'a>>,
    /// What to give as `after` next time.
    next: u64,
}

/// Which events are wanted.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "it is a description")]
pub(crate) struct EventParams {
    /// Those with greater ids.
    #[param(default = 0)]
    after: Option<u64>,
    /// So many at most.
    #[param(minimum = 1, maximum = 10_000, default = 1000)]
    limit: Option<usize>,
    /// Of this fence; given more than once, of one of these.
    fence: Option<Vec<String>>,
    /// Of this entity; given more than once, of one of these.
    entity: Option<Vec<String>>,
    /// Of this kind; given more than once, of one of these.
    kind: Option<Vec<KindBody>>,
    /// Where there are none: so many seconds are waited for one.
    #[param(minimum = 0, maximum = 60, default = 0)]
    wait: Option<f64>,
}

/// Which events to return. An empty list does not restrict.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Filter {
    pub(crate) fences: Vec<String>,
    pub(crate) entities: Vec<String>,
    pub(crate) kinds: Vec<KindBody>,
}

impl Filter {
    fn of(params: &mut Params) -> Result<Self, Problem> {
        let mut names = |name: &'static str| {
            let all = params.all(name);
            let bad = all.iter().find_map(|text| Name::new(text).err());
            bad.map_or(Ok(all), |e| {
                Err(Problem::parameter(format!("{name}: {}", text(&e))))
            })
        };
        let (fences, entities) = (names("fence")?, names("entity")?);
        let kinds = params.all("kind").into_iter().map(|text| {
            let found = KindBody::ALL.into_iter().find(|kind| kind.name() == text);
            found.ok_or_else(|| {
                let detail = format!("kind={text:.40}: it is enter, exit, dwell or cross");
                Problem::parameter(detail)
            })
        });
        Ok(Self {
            fences,
            entities,
            kinds: kinds.collect::<Result<_, _>>()?,
        })
    }

    pub(crate) fn has(&self, event: &Event) -> bool {
        let is_of = |names: &[String], name: &String| names.is_empty() || names.contains(name);
        is_of(&self.fences, &event.fence)
            && is_of(&self.entities, &event.entity)
            && (self.kinds.is_empty() || self.kinds.contains(&KindBody::of(event.kind)))
    }
}

/// What happened at the fences of a fleet.
///
/// In the order of their ids. Give `next` as `after` next time: no event is missed, and none comes twice.
#[utoipa::path(
    get,
    operation_id = "events",
    path = "/v1/fleets/{fleet}/events",
    tag = "fences",
    params(("fleet" = String, Path, description = "The fleet"), EventParams),
    responses((status = 200, description = "They", body = EventList), super::openapi::Errors),
)]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    path: Path,
    mut params: Params,
) -> Result<Response, Problem> {
    let info = app.tracks.fleet(&path.fleet()?).map_err(no_such_fleet)?;
    let mut at = params.id("after")?.unwrap_or(0);
    let limit = params.count("limit", (1, LIMIT_MAX), LIMIT)?;
    let filter = Filter::of(&mut params)?;
    let wait = params.number("wait", (0.0, WAIT_MAX))?.unwrap_or(0.0);
    params.end()?;
    // Before the first look, so that no event is missed in between.
    let feed = app.feeds.of(app.tracks.events(), info.fleet);
    let mut news = feed.news();
    let mut stopping = app.stopping();
    let over = tokio::time::sleep(Duration::from_secs_f64(wait));
    tokio::pin!(over);
    let mut tries = 0;
    loop {
        news.borrow_and_update();
        let (erased, filter) = (feed.erased(), filter.clone());
        let fleet = info.fleet;
        let (page, is_end) =
            ask::blocking(&app, move |app| look(app, fleet, (at, limit), &filter)).await?;
        if !feed.are_so(erased, &page.events) {
            // Some of these may be erased by now.
            tries += 1;
            if tries == feed::TRIES {
                return Err(feed::being_erased());
            }
            continue;
        }
        at = page.next;
        if !page.events.is_empty() || !is_end || wait <= 0.0 {
            return answer(&app, &page);
        }
        let is_changed = tokio::select! {
            changed = news.changed() => changed.is_ok(),
            () = &mut over => false,
            () = stopping.wait() => false,
        };
        if !is_changed {
            return answer(&app, &page);
        }
    }
}

fn answer(app: &App, page: &Page) -> Result<Response, Problem> {
    let events = page.events.iter().map(EventBody::new).collect();
    let next = page.next;
    super::answer_of(app, &EventList { events, next })
}

/// The matching events after an id, at most `limit`, and whether the end was reached.
fn look(
    app: &App,
    fleet: Fleet,
    (after, limit): (u64, usize),
    filter: &Filter,
) -> Result<(Page, bool), Problem> {
    let patience = app.patience();
    let size = if *filter == Filter::default() {
        limit
    } else {
        PAGE
    };
    let mut found = Page {
        events: Vec::new(),
        next: after,
    };
    let mut looked = 0;
    while looked < LOOK_MAX && !patience.is_over() {
        let events = app.tracks.events();
        let page = events.page(|| app.tracks.view_of(fleet), fleet, found.next, size)?;
        let count = page.events.len();
        looked += count;
        found.next = page.next;
        for event in page.events {
            if filter.has(&event) {
                found.events.push(event);
            }
            if found.events.len() >= limit {
                found.next = found.events.last().map_or(found.next, |event| event.id);
                return Ok((found, false));
            }
        }
        if count < size {
            return Ok((found, true));
        }
    }
    Ok((found, false))
}
