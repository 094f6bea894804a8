//! Calls about one entity: its newest point, its track, its summary, and its erasure.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::IntoParams;

use super::answers::{self, PointBody, hundredths};
use super::ask::{Found, Room, ask};
use super::geojson::TrackLines;
use super::ingest::no_such_fleet;
use super::params::{Params, Path};
use super::problem::{Kind, Problem};
use super::time::seconds;
use super::{App, params};
use crate::fleets::Info;
use crate::geo::position::Position;
use crate::model::key::Entity;
use crate::model::name::Name;
use crate::model::time::Time;
use crate::read::{self, Choice};
use crate::store::View;

/// The most points of a track.
const POINTS_MAX: usize = 100_000;
/// An upper bound of the bytes of a point of a line, with its time and speed.
const LINE_BYTES: usize = 100;
/// An upper bound of the bytes of a stay.
const STAY_BYTES: usize = 120;

/// The fleet and the name of the entity in the path.
pub(crate) struct Of {
    pub(crate) info: Arc<Info>,
    name: Name,
}

impl Of {
    fn new(app: &App, path: &Path) -> Result<Self, Problem> {
        let (fleet, name) = (path.fleet()?, path.entity()?);
        let info = app.tracks.fleet(&fleet).map_err(no_such_fleet)?;
        Ok(Self { info, name })
    }

    fn none(&self) -> Problem {
        let (fleet, name) = (&self.info.name, &self.name);
        let detail = format!("the fleet {fleet} has no entity {name}: its first report makes it");
        Problem::new(Kind::NoSuchEntity, detail)
    }

    fn find(&self, view: &dyn View) -> Result<Entity, Problem> {
        let found = read::find(view, self.info.fleet, &self.name)?;
        found.ok_or_else(|| self.none())
    }
}

/// Where an entity is.
///
/// Its newest point.
#[utoipa::path(
    get,
    path = "/v1/fleets/{fleet}/entities/{entity}",
    tag = "entities",
    params(
        ("fleet" = String, Path, description = "The fleet"),
        ("entity" = String, Path, description = "The entity; a slash in its name is %2F"),
    ),
    responses((status = 200, description = "Its newest point", body = answers::Latest), super::openapi::Errors),
)]
pub(crate) async fn latest(
    State(app): State<Arc<App>>,
    path: Path,
    params: Params,
) -> Result<Response, Problem> {
    params.end()?;
    let of = Of::new(&app, &path)?;
    let question = move |app: &App, _: &read::Patience| {
        let view = app.tracks.view_of(of.info.fleet);
        let entity = of.find(&*view)?;
        let found = read::latest(&*view, of.info.fleet, entity)?;
        let latest = found.ok_or_else(|| of.none())?;
        let point = PointBody::new(latest.time, &latest.point, &of.info.settings);
        let entity = of.name.to_string();
        Ok(Found::json(answers::Latest { entity, point }, 1))
    };
    ask(&app, question).await
}

/// Erase an entity.
///
/// All that is known of it: its points, where it is, what it is inside of, its events, its name. It is gone when this is
/// answered, and from the disk when tables are merged next. A later report makes it anew.
#[utoipa::path(
    delete,
    path = "/v1/fleets/{fleet}/entities/{entity}",
    tag = "entities",
    params(
        ("fleet" = String, Path, description = "The fleet"),
        ("entity" = String, Path, description = "The entity; a slash in its name is %2F"),
    ),
    responses((status = 204, description = "It is erased"), super::openapi::Errors),
)]
pub(crate) async fn erase(
    State(app): State<Arc<App>>,
    path: Path,
    params: Params,
) -> Result<Response, Problem> {
    params.end()?;
    let of = Of::new(&app, &path)?;
    super::ask::blocking(&app, move |app| {
        let fleet = of.info.fleet;
        // Called before the events are erased, which may take long: a report that arrives meanwhile
        // belongs to a new entity.
        let behind = || app.positions.forget(app.tracks.live(), fleet, &of.name);
        let done = app.tracks.erase_telling(&of.info, &of.name, &behind);
        // Also after a failure: some of its events may be gone.
        if !matches!(done, Ok(false)) {
            app.feeds.forget(fleet, &of.name);
        }
        if done? { Ok(()) } else { Err(of.none()) }
    })
    .await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// What of a track is wanted.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "it is a description")]
pub(crate) struct TrackParams {
    /// The first moment: seconds since 1970, or RFC 3339.
    from: Option<answers::Moment>,
    /// The last moment.
    to: Option<answers::Moment>,
    /// Points are left out where the track stays so close without them, metres.
    #[param(minimum = 0)]
    simplify: Option<f64>,
    /// Of points in less than so many seconds, the first.
    #[param(minimum = 0)]
    every: Option<f64>,
    /// So many points at most, and fewer where they have more than 16 MiB of text; `next` says where to go on.
    #[param(minimum = 1, maximum = 100_000, default = 10_000)]
    max_points: Option<usize>,
    /// The track is cut where nothing is known for more seconds.
    #[param(minimum = 0)]
    gap: Option<f64>,
    /// `json` or `geojson`.
    #[param(default = "json")]
    format: Option<String>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum TrackAnswer {
    Json(answers::Track),
    GeoJson(TrackLines),
}

/// Where an entity was.
#[utoipa::path(
    get,
    path = "/v1/fleets/{fleet}/entities/{entity}/track",
    tag = "entities",
    params(
        ("fleet" = String, Path, description = "The fleet"),
        ("entity" = String, Path, description = "The entity; a slash in its name is %2F"),
        TrackParams,
    ),
    responses(
        (status = 200, description = "Its points", content(
            (answers::Track = "application/json"),
            (TrackLines = "application/geo+json"),
        )),
        super::openapi::Errors,
    ),
)]
pub(crate) async fn track(
    State(app): State<Arc<App>>,
    path: Path,
    mut params: Params,
) -> Result<Response, Problem> {
    let (from, to) = params.times()?.unwrap_or((Time::MIN, Time::MAX));
    let most = Choice::default().max_points;
    let choice = Choice {
        from,
        to,
        simplify: params.number("simplify", (0.0, 1e8))?,
        every: params.seconds("every")?.unwrap_or(0),
        max_points: params.count("max_points", (1, POINTS_MAX), most)?,
        gap: params.seconds("gap")?.unwrap_or(i64::MAX),
    };
    let is_geojson = match params.text("format")?.as_deref() {
        None | Some("json") => false,
        Some("geojson") => true,
        Some(other) => {
            let detail = format!("format={other:.40}: it is json or geojson");
            return Err(Problem::parameter(detail));
        }
    };
    params.end()?;
    let of = Of::new(&app, &path)?;
    let question = move |app: &App, patience: &read::Patience| {
        let view = app.tracks.view_for(of.info.fleet, patience);
        let entity = of.find(&*view)?;
        let (track, room) = page(app, (&*view, entity), (&choice, is_geojson), &of, patience)?;
        let hits = track.parts.iter().map(Vec::len).sum();
        if is_geojson {
            let answer = TrackAnswer::GeoJson(TrackLines::new(of.name.as_str(), &track));
            let found = Found {
                content_type: "application/geo+json",
                ..Found::json(answer, hits)
            };
            return Ok(found.with(room));
        }
        let answer = answers::Track {
            entity: of.name.to_string(),
            next: track.next.map(seconds),
            parts: answers::Parts {
                parts: track.parts,
                info: of.info,
            },
        };
        Ok(Found::json(TrackAnswer::Json(answer), hits).with(room))
    };
    ask(&app, question).await
}

/// A page of a track, and the memory that it holds. It ends before its text would be too long, but
/// has at least one point.
fn page<'a>(
    app: &'a App,
    (view, entity): (&dyn View, Entity),
    (choice, is_geojson): (&Choice, bool),
    of: &Of,
    patience: &read::Patience,
) -> Result<(read::Track, Room<'a>), Problem> {
    let (info, settings) = (&of.info, &of.info.settings);
    let mut room = Room::new(app);
    let mut grown = Ok(());
    let mut fits = |at: &read::Located| {
        let bytes = if is_geojson {
            // Attributes take memory, although they are not in the text.
            LINE_BYTES + at.point.attributes.len()
        } else {
            PointBody::bytes_of(at, settings)
        };
        if room.bytes() > 0 && room.bytes() + bytes > app.config.page_max {
            return false;
        }
        grown = room.grow(bytes);
        grown.is_ok()
    };
    let found = read::track_while(view, (info.fleet, entity), choice, patience, &mut fits);
    grown?;
    Ok((found?, room))
}

/// What an entity did.
///
/// How far it went, how long, and where it stayed. One that stayed more than 100,000 times is refused: ask for a shorter time.
#[utoipa::path(
    get,
    path = "/v1/fleets/{fleet}/entities/{entity}/summary",
    tag = "entities",
    params(
        ("fleet" = String, Path, description = "The fleet"),
        ("entity" = String, Path, description = "The entity; a slash in its name is %2F"),
        ("from" = Option<answers::Moment>, Query, description = "The first moment"),
        ("to" = Option<answers::Moment>, Query, description = "The last moment"),
        ("geodesic" = Option<bool>, Query, description = "Distances on WGS84's ellipsoid, and not on a sphere"),
    ),
    responses((status = 200, description = "What it did", body = answers::Summary), super::openapi::Errors),
)]
pub(crate) async fn summary(
    State(app): State<Arc<App>>,
    path: Path,
    mut params: params::Params,
) -> Result<Response, Problem> {
    let (from, to) = params.times()?.unwrap_or((Time::MIN, Time::MAX));
    let surface = params.surface()?;
    params.end()?;
    let of = Of::new(&app, &path)?;
    let question = move |app: &App, patience: &read::Patience| {
        let view = app.tracks.view_for(of.info.fleet, patience);
        let entity = (of.info.fleet, of.find(&*view)?);
        let summary = read::summary(&*view, entity, (from, to, surface), patience)?;
        let mut room = Room::new(app);
        room.grow(summary.stays.len() * STAY_BYTES)?;
        let answer = summary_of(of.name.to_string(), &summary);
        Ok(Found::json(answer, summary.stays.len().max(1)).with(room))
    };
    ask(&app, question).await
}

fn summary_of(entity: String, summary: &read::Summary) -> answers::Summary {
    let times = summary.times;
    let span = times.map_or(0, |(from, to)| to.0 - from.0);
    let stay = |stay: &read::Stay| {
        let (lat, lon) = Position::degrees(stay.position);
        answers::Stay {
            lat,
            lon,
            from: seconds(stay.from),
            to: seconds(stay.to),
        }
    };
    answers::Summary {
        entity,
        points: summary.points,
        from: times.map(|times| seconds(times.0)),
        to: times.map(|times| seconds(times.1)),
        distance: (summary.metres * 1000.0).round() / 1000.0,
        duration: seconds(Time(span)),
        moving: seconds(Time(summary.moving())),
        max_speed: summary.speed_max.map(hundredths),
        stays: summary.stays.iter().map(stay).collect(),
    }
}
