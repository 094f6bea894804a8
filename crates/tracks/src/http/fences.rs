//! Calls about fences: making, showing and deleting them.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use base::ErrorKind;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::ask::{Found, ask};
use super::ingest::{no_such_fleet, with_tags};
use super::params::{Params, Path};
use super::problem::{Kind, Problem, text};
use super::{App, ask, body, json};
use crate::fence::{Area, Definition, Fence, When};
use crate::fleets::check_tags;
use crate::geo::polygon::VERTICES_MAX;
use crate::model::name::Name;

/// The most bytes of a fence's body.
const BYTES_MAX: usize = 1 << 20;

/// Where a fence is. Positions are longitude, latitude, as in GeoJSON; edges are straight in degrees.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(tag = "type", deny_unknown_fields)]
#[schema(as = Area)]
pub(crate) enum AreaBody {
    /// All that is so near.
    Circle {
        /// Longitude, latitude.
        #[schema(value_type = [f64; 2], example = json!([18.0686, 59.3293]))]
        center: Vec<f64>,
        /// Metres.
        #[schema(minimum = 0, example = 500)]
        radius: f64,
    },
    /// Between two meridians and two latitudes.
    Rectangle {
        /// West, south, east, north; west > east crosses the antimeridian.
        bbox: [f64; 4],
    },
    /// A GeoJSON Polygon.
    Polygon {
        /// The outer ring and holes in it.
        coordinates: Vec<Vec<Vec<f64>>>,
    },
    /// A line with a width.
    Corridor {
        /// The line.
        coordinates: Vec<Vec<f64>>,
        /// So many metres to either side of the line: half of the whole width.
        #[schema(minimum = 0, maximum = 100_000)]
        width: f64,
    },
}

/// The greatest `dwell`, seconds: a year.
const DWELL_MAX: u32 = 31_536_000;

/// A fence that is to be.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FenceBody {
    /// Where it is.
    area: AreaBody,
    /// Only entities whose report has all these tags; none: all.
    tags: Option<Vec<String>>,
    /// An event `dwell`, too: at the first report of who is inside for so many seconds already.
    #[schema(minimum = 1, maximum = 31_536_000)]
    dwell: Option<u32>,
    /// Whether there is an event `enter`; `true`, unless it is said.
    enter: Option<bool>,
    /// Whether there is an event `exit`; `true`, unless it is said.
    exit: Option<bool>,
    /// Whether there is an event `cross`; `true`, unless it is said.
    cross: Option<bool>,
}

/// A fence.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Fence)]
pub(crate) struct FenceAnswer {
    /// Its name.
    name: String,
    /// A fence that is made later, or changed, has a greater one.
    number: u64,
    /// Where it is.
    area: AreaBody,
    /// Only entities whose report has all these tags.
    tags: Vec<String>,
    /// Seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    dwell: Option<u32>,
    /// Whether there is an event `enter`.
    enter: bool,
    /// Whether there is an event `exit`.
    exit: bool,
    /// Whether there is an event `cross`.
    cross: bool,
}

/// All fences of a fleet.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FenceList {
    /// They.
    fences: Vec<FenceAnswer>,
}

impl AreaBody {
    fn of(area: &Area) -> Self {
        let line = |line: &Vec<[f64; 2]>| line.iter().map(|p| p.to_vec()).collect();
        match area {
            Area::Circle { centre, radius } => Self::Circle {
                center: centre.to_vec(),
                radius: *radius,
            },
            Area::Rectangle { bbox } => Self::Rectangle { bbox: *bbox },
            Area::Polygon { coordinates } => Self::Polygon {
                coordinates: coordinates.iter().map(line).collect(),
            },
            Area::Corridor { coordinates, width } => Self::Corridor {
                coordinates: line(coordinates),
                width: *width,
            },
        }
    }

    /// Errors: a position is invalid.
    fn into_area(self) -> Result<Area, Problem> {
        let line = |line: Vec<Vec<f64>>| line.iter().map(|p| position(p)).collect();
        Ok(match self {
            Self::Circle { center, radius } => Area::Circle {
                centre: position(&center)?,
                radius,
            },
            Self::Rectangle { bbox } => Area::Rectangle { bbox },
            Self::Polygon { coordinates } => {
                let count: usize = coordinates.iter().map(Vec::len).sum();
                if count > VERTICES_MAX {
                    let detail =
                        format!("a polygon of {count} positions, and {VERTICES_MAX} at most");
                    return Err(Problem::body(detail));
                }
                let rings: Result<_, Problem> = coordinates.into_iter().map(line).collect();
                Area::Polygon {
                    coordinates: rings?,
                }
            }
            Self::Corridor { coordinates, width } => Area::Corridor {
                coordinates: line(coordinates)?,
                width,
            },
        })
    }
}

/// A position of GeoJSON; an altitude is ignored.
fn position(numbers: &[f64]) -> Result<[f64; 2], Problem> {
    let ([lon, lat] | [lon, lat, _]) = numbers else {
        let count = numbers.len();
        let detail = format!("area: a position of {count} numbers, and not longitude, latitude");
        return Err(Problem::body(detail));
    };
    Ok([*lon, *lat])
}

impl FenceBody {
    /// Errors: the fence is invalid.
    pub(super) fn definition(self) -> Result<Definition, Problem> {
        let tags = self.tags.unwrap_or_default();
        check_tags(&tags).map_err(|e| Problem::body(format!("tags: {e}")))?;
        if self
            .dwell
            .is_some_and(|dwell| !(1..=DWELL_MAX).contains(&dwell))
        {
            let detail = format!(
                "dwell: it is 1 s to {DWELL_MAX} s, a year; leave it out for no such event"
            );
            return Err(Problem::body(detail));
        }
        let when = When {
            enter: self.enter.unwrap_or(true),
            exit: self.exit.unwrap_or(true),
            dwell_seconds: self.dwell.unwrap_or(0),
            cross: self.cross.unwrap_or(true),
        };
        if !(when.enter || when.exit || when.cross || when.dwell_seconds > 0) {
            let detail = "enter, exit and cross are false, and there is no dwell: the fence would make no event";
            return Err(Problem::body(detail.to_owned()));
        }
        let area = self.area.into_area()?;
        // Before the shape is made, which takes memory for each position.
        let size = area.check_positions();
        size.map_err(|e| Problem::body(format!("area: {}", text(&e))))?;
        let shape = area.shape();
        drop(shape.map_err(|e| Problem::body(format!("area: {}", text(&e))))?);
        Ok(Definition { area, when, tags })
    }
}

impl FenceAnswer {
    fn new(fence: &Fence) -> Self {
        let definition = &fence.definition;
        let When {
            enter,
            exit,
            dwell_seconds: dwell,
            cross,
        } = definition.when;
        Self {
            name: fence.name.to_string(),
            number: fence.number,
            area: AreaBody::of(&definition.area),
            tags: definition.tags.clone(),
            dwell: (dwell > 0).then_some(dwell),
            enter,
            exit,
            cross,
        }
    }
}

fn no_such_fence(fleet: &Name, name: &Name) -> Problem {
    let detail = format!("the fleet {fleet} has no fence {name}: PUT makes it");
    Problem::new(Kind::NoSuchFence, detail)
}

/// List the fences of a fleet.
///
/// In the order of their numbers.
#[utoipa::path(
    get,
    operation_id = "fences",
    path = "/v1/fleets/{fleet}/fences",
    tag = "fences",
    params(("fleet" = String, Path, description = "The fleet")),
    responses((status = 200, description = "They", body = FenceList), super::openapi::Errors),
)]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    path: Path,
    params: Params,
) -> Result<Response, Problem> {
    params.end()?;
    let info = app.tracks.fleet(&path.fleet()?).map_err(no_such_fleet)?;
    let question = move |app: &App, _: &crate::read::Patience| {
        let all = app.tracks.fences().list(info.fleet);
        let fences: Vec<FenceAnswer> = all.iter().map(|f| FenceAnswer::new(f)).collect();
        let count = fences.len();
        Ok(Found::json(FenceList { fences }, count))
    };
    ask(&app, question).await
}

/// Show a fence.
#[utoipa::path(
    get,
    operation_id = "fence",
    path = "/v1/fleets/{fleet}/fences/{fence}",
    tag = "fences",
    params(
        ("fleet" = String, Path, description = "The fleet"),
        ("fence" = String, Path, description = "The fence; a slash in its name is %2F"),
    ),
    responses((status = 200, description = "The fence", body = FenceAnswer), super::openapi::Errors),
)]
pub(crate) async fn show(
    State(app): State<Arc<App>>,
    path: Path,
    params: Params,
) -> Result<Response, Problem> {
    params.end()?;
    let (fleet, name) = (path.fleet()?, path.name("fence")?);
    let info = app.tracks.fleet(&fleet).map_err(no_such_fleet)?;
    let all = app.tracks.fences().list(info.fleet);
    let fence = all.iter().find(|fence| fence.name == name);
    let fence = fence.ok_or_else(|| no_such_fence(&fleet, &name))?;
    super::answer_of(&app, &FenceAnswer::new(fence))
}

/// Make a fence, or another one in its place.
///
/// It is durable when it is answered. Who is inside already has not entered it. The fleet is made if there is none, and gets
/// tags that it does not have.
#[utoipa::path(
    put,
    operation_id = "put_fence",
    path = "/v1/fleets/{fleet}/fences/{fence}",
    tag = "fences",
    params(
        ("fleet" = String, Path, description = "The fleet"),
        ("fence" = String, Path, description = "The fence; a slash in its name is %2F"),
    ),
    request_body = FenceBody,
    responses(
        (status = 200, description = "The fence as it is now", body = FenceAnswer),
        super::openapi::Errors,
        super::openapi::BodyErrors,
    ),
)]
pub(crate) async fn put(
    State(app): State<Arc<App>>,
    path: Path,
    params: Params,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    params.end()?;
    let (fleet, name) = (path.fleet()?, path.name("fence")?);
    app.tracks.check_fleet(&fleet).map_err(no_such_fleet)?;
    let most = BYTES_MAX.min(app.config.body_max);
    let bytes = body::read(&app, &headers, body, most).await?;
    let fence = ask::blocking(&app, move |app| {
        let body: FenceBody = json::read(&bytes).map_err(Problem::body)?;
        let definition = body.definition()?;
        let info = app.tracks.fleet_or_make(&fleet).map_err(no_such_fleet)?;
        let (info, _) = with_tags(app, info, &definition.tags)?;
        Ok(app.tracks.put_fence(&info, &name, definition)?)
    });
    let fence = fence.await?;
    super::answer_of(&app, &FenceAnswer::new(&fence))
}

/// Delete a fence.
///
/// Nobody leaves it with an event.
#[utoipa::path(
    delete,
    operation_id = "delete_fence",
    path = "/v1/fleets/{fleet}/fences/{fence}",
    tag = "fences",
    params(
        ("fleet" = String, Path, description = "The fleet"),
        ("fence" = String, Path, description = "The fence; a slash in its name is %2F"),
    ),
    responses((status = 204, description = "It is gone, and that is durable"), super::openapi::Errors),
)]
pub(crate) async fn delete(
    State(app): State<Arc<App>>,
    path: Path,
    params: Params,
) -> Result<Response, Problem> {
    params.end()?;
    let (fleet, name) = (path.fleet()?, path.name("fence")?);
    let info = app.tracks.fleet(&fleet).map_err(no_such_fleet)?;
    ask::blocking(&app, move |app| {
        let deleted = app.tracks.delete_fence(&info, &name);
        deleted.map_err(|e| match e.kind() {
            ErrorKind::NotFound => no_such_fence(&fleet, &name),
            _ => e.into(),
        })
    })
    .await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
