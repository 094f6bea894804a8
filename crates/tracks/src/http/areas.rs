//! Calls about areas: which entities are or were there, which are nearest, how many are in each
//! cell.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use utoipa::IntoParams;

use super::answers::{self, CellBody, HitBody, Hits, VisitBody, Visits, Within};
use super::ask::{Found, Room, ask};
use super::geojson::{self, PolygonBody};
use super::ingest::no_such_fleet;
use super::params::{Params, Path};
use super::problem::{Problem, text};
use super::{App, body};
use crate::fleets::Info;
use crate::geo::cell::Cell;
use crate::geo::position::Position;
use crate::geo::shape::Shape;
use crate::model::key::Entity;
use crate::model::time::Time;
use crate::read::{self, Cursor, Filter, K_MAX, Patience};

/// The default limit of results.
const LIMIT: usize = 1000;
/// The greatest limit of results.
const LIMIT_MAX: usize = 10_000;
/// The most bytes of a polygon's body.
const POLYGON_BYTES_MAX: usize = 1 << 20;
/// The depth of a cell for each character of its geohash.
const CUTS: u8 = 5;

/// An area.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "it is a description")]
pub(crate) struct AreaParams {
    /// West, south, east, north in degrees, with commas; west > east crosses the antimeridian.
    #[param(example = "18.0,59.2,18.2,59.4")]
    bbox: Option<String>,
    /// Instead of `bbox`: latitude, longitude in degrees, radius in metres, with commas.
    #[param(example = "59.33,18.06,500")]
    circle: Option<String>,
    /// The circle is one on WGS84's ellipsoid, and not on a sphere.
    geodesic: Option<bool>,
}

/// Which entities are meant.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "it is a description")]
pub(crate) struct FilterParams {
    /// Those that have this tag; given more than once, all of these.
    tag: Option<Vec<String>>,
    /// Those whose newest point is not older, seconds.
    #[param(minimum = 0, maximum = 10_000_000_000_u64)]
    max_age: Option<f64>,
}

/// A part of what there is, now or in a time.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "it is a description")]
pub(crate) struct PageParams {
    /// Who was there, from this moment on: seconds since 1970, or RFC 3339.
    from: Option<answers::Moment>,
    /// Who was there, until this moment.
    to: Option<answers::Moment>,
    /// So many results at most.
    #[param(minimum = 1, maximum = 10_000, default = 1000)]
    limit: Option<usize>,
    /// Of the answer before.
    cursor: Option<String>,
}

fn fleet(app: &App, path: &Path) -> Result<Arc<Info>, Problem> {
    app.tracks.fleet(&path.fleet()?).map_err(no_such_fleet)
}

fn filter(app: &App, info: &Info, params: &mut Params) -> Result<Filter, Problem> {
    let tags = params.all("tag");
    let bits = info.settings.bits(&tags);
    let tags = bits.map_err(|e| Problem::parameter(format!("tag: {}", text(&e))))?;
    let since = match params.seconds("max_age")? {
        Some(age) => Time(app.tracks.now().0.saturating_sub(age)),
        None => Time::MIN,
    };
    Ok(Filter { tags, since })
}

/// What is asked for, and where the page begins.
enum Wanted {
    Now(Filter, Option<Cursor>),
    Past(Time, Time, Option<Entity>),
}

fn wanted(app: &App, info: &Info, params: &mut Params) -> Result<(Wanted, usize), Problem> {
    let times = params.times()?;
    let filter = filter(app, info, params)?;
    let limit = params.count("limit", (1, LIMIT_MAX), LIMIT)?;
    let cursor = params.text("cursor")?;
    let Some((from, to)) = times else {
        let cursor = cursor.map(|text| Cursor::of_text(&text)).transpose();
        let cursor = cursor.map_err(|e| Problem::parameter(format!("cursor: {}", text(&e))))?;
        return Ok((Wanted::Now(filter, cursor), limit));
    };
    if filter != Filter::default() {
        return Err(Problem::parameter(
            "tag and max_age are of who is there now: leave them out, or from and to",
        ));
    }
    let cursor = cursor.map(|text| entity_of(&text)).transpose()?;
    Ok((Wanted::Past(from, to, cursor), limit))
}

fn entity_of(text: &str) -> Result<Entity, Problem> {
    let is_hex = text.len() == 16 && text.bytes().all(|b| b.is_ascii_hexdigit());
    let number = u64::from_str_radix(text, 16).ok().filter(|_| is_hex);
    number.map(Entity).ok_or_else(|| {
        let detail =
            format!("cursor: {text:.40?} is no cursor (give the one of the answer before)");
        Problem::parameter(detail)
    })
}

/// Hits in the form of the answer, their number, and the memory they hold.
fn hits_of<'a>(
    app: &'a App,
    info: &Info,
    hits: Vec<read::Hit>,
    cursor: Option<String>,
) -> Result<(Hits, usize, Room<'a>), Problem> {
    let mut room = Room::new(app);
    let mut results = Vec::with_capacity(hits.len());
    for hit in hits {
        room.grow(HitBody::bytes_of(&hit, &info.settings))?;
        results.push(HitBody::new(hit, &info.settings));
    }
    let count = results.len();
    Ok((Hits { results, cursor }, count, room))
}

fn answer(
    app: &App,
    info: &Info,
    shape: &dyn Shape,
    (wanted, limit): (Wanted, usize),
    patience: &Patience,
) -> Result<Found<Within>, Problem> {
    let view = app.tracks.view_for(info.fleet, patience);
    match wanted {
        Wanted::Now(filter, cursor) => {
            let of = (shape, filter);
            let page = read::within(&*view, info.fleet, of, (limit, cursor), patience)?;
            let cursor = page.next.map(Cursor::to_text);
            let (hits, count, room) = hits_of(app, info, page.hits, cursor)?;
            Ok(Found::json(Within::Hits(hits), count).with(room))
        }
        Wanted::Past(from, to, after) => {
            let of = (shape, from, to);
            let found = read::visitors(&*view, info.fleet, of, (limit, after), patience)?;
            let results: Vec<VisitBody> = found.visits.iter().map(VisitBody::new).collect();
            let hits = results.len();
            let cursor = found.next.map(|entity| format!("{:016x}", entity.0));
            Ok(Found::json(
                Within::Visits(Visits { results, cursor }),
                hits,
            ))
        }
    }
}

/// Who is in an area, or was.
///
/// With `from` or `to`: who has a reported point there in that time. Otherwise: whose newest point is there.
#[utoipa::path(
    get,
    path = "/v1/fleets/{fleet}/within",
    tag = "areas",
    params(
        ("fleet" = String, Path, description = "The fleet"),
        AreaParams, FilterParams, PageParams,
    ),
    responses((status = 200, description = "They", body = Within), super::openapi::Errors),
)]
pub(crate) async fn within(
    State(app): State<Arc<App>>,
    path: Path,
    mut params: Params,
) -> Result<Response, Problem> {
    let info = fleet(&app, &path)?;
    let area = params.area()?;
    let wanted = wanted(&app, &info, &mut params)?;
    params.end()?;
    ask(&app, move |app, patience| {
        answer(app, &info, &*area, wanted, patience)
    })
    .await
}

/// Who is in a polygon, or was.
///
/// The body is a GeoJSON Polygon, which may have holes, or a Feature that has one.
#[utoipa::path(
    post,
    path = "/v1/fleets/{fleet}/within",
    tag = "areas",
    params(("fleet" = String, Path, description = "The fleet"), FilterParams, PageParams),
    request_body = PolygonBody,
    responses(
        (status = 200, description = "They", body = Within),
        super::openapi::Errors,
        super::openapi::BodyErrors,
    ),
)]
pub(crate) async fn within_polygon(
    State(app): State<Arc<App>>,
    path: Path,
    mut params: Params,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let info = fleet(&app, &path)?;
    let wanted = wanted(&app, &info, &mut params)?;
    params.end()?;
    let most = POLYGON_BYTES_MAX.min(app.config.body_max);
    let bytes = body::read(&app, &headers, body, most).await?;
    let question = move |app: &App, patience: &Patience| {
        let polygon = geojson::polygon(&bytes)?;
        answer(app, &info, &polygon, wanted, patience)
    };
    ask(&app, question).await
}

/// Where to look from, and how far.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "it is a description")]
pub(crate) struct NearbyParams {
    /// Degrees.
    #[param(minimum = -90, maximum = 90)]
    lat: f64,
    /// Degrees.
    #[param(minimum = -180, maximum = 180)]
    lon: f64,
    /// So many entities at most.
    #[param(minimum = 1, maximum = 10_000, default = 10)]
    k: Option<usize>,
    /// No farther than so many metres.
    #[param(minimum = 0)]
    within: Option<f64>,
    /// Distances on WGS84's ellipsoid, and not on a sphere, which is up to 0.56 % off.
    geodesic: Option<bool>,
}

/// Who is nearest.
///
/// In the order of their distance.
#[utoipa::path(
    get,
    path = "/v1/fleets/{fleet}/nearby",
    tag = "areas",
    params(("fleet" = String, Path, description = "The fleet"), NearbyParams, FilterParams),
    responses((status = 200, description = "They", body = Hits), super::openapi::Errors),
)]
pub(crate) async fn nearby(
    State(app): State<Arc<App>>,
    path: Path,
    mut params: Params,
) -> Result<Response, Problem> {
    let info = fleet(&app, &path)?;
    let lat = params.number("lat", (-90.0, 90.0))?;
    let lon = params.number("lon", (-180.0, 180.0))?;
    let k = params.count("k", (1, K_MAX), 10)?;
    let within = params.number("within", (0.0, f64::MAX))?;
    let surface = params.surface()?;
    let filter = filter(&app, &info, &mut params)?;
    params.end()?;
    let (Some(lat), Some(lon)) = (lat, lon) else {
        return Err(Problem::parameter("give lat and lon, degrees"));
    };
    let from = Position::of_degrees(lat, lon)?;
    let question = move |app: &App, patience: &Patience| {
        let view = app.tracks.view_for(info.fleet, patience);
        let how = (k, within.unwrap_or(f64::INFINITY), surface);
        let hits = read::nearby(&*view, info.fleet, (from, filter), how, patience)?;
        let (hits, count, room) = hits_of(app, &info, hits, None)?;
        Ok(Found::json(hits, count).with(room))
    };
    ask(&app, question).await
}

/// How many entities are where.
///
/// Cells are geohashes; those without entities are left out.
#[utoipa::path(
    get,
    path = "/v1/fleets/{fleet}/density",
    tag = "areas",
    params(
        ("fleet" = String, Path, description = "The fleet"),
        AreaParams, FilterParams,
        ("precision" = Option<u8>, Query, description = "Characters of the cells' geohashes, 1 to 8; 5 without it"),
    ),
    responses((status = 200, description = "The cells", body = answers::Density), super::openapi::Errors),
)]
pub(crate) async fn density(
    State(app): State<Arc<App>>,
    path: Path,
    mut params: Params,
) -> Result<Response, Problem> {
    let info = fleet(&app, &path)?;
    let area = params.area()?;
    let filter = filter(&app, &info, &mut params)?;
    let precision = params.count("precision", (1, 8), 5)?;
    params.end()?;
    let depth = CUTS * precision as u8;
    let question = move |app: &App, patience: &Patience| {
        let view = app.tracks.view_for(info.fleet, patience);
        let of = (&*area as &dyn Shape, filter);
        let found = read::density(&*view, info.fleet, of, depth, patience)?;
        let cell = |(cell, count): (Cell, u64)| CellBody {
            geohash: cell.geohash(),
            bounds: bounds(cell),
            count,
        };
        let cells: Vec<CellBody> = found.into_iter().map(cell).collect();
        let count = cells.len();
        Ok(Found::json(answers::Density { cells }, count))
    };
    ask(&app, question).await
}

/// The bounds of a cell: west, south, east and north, in degrees.
fn bounds(cell: Cell) -> [f64; 4] {
    let bits = cell.range().0 >> (40 - cell.depth());
    let (mut lon, mut lat) = ((-180.0, 180.0), (-90.0, 90.0));
    for nth in (0..cell.depth()).rev() {
        let is_lon = (cell.depth() - 1 - nth).is_multiple_of(2);
        let (low, high) = if is_lon { &mut lon } else { &mut lat };
        let middle = f64::midpoint(*low, *high);
        *(if bits >> nth & 1 == 1 { low } else { high }) = middle;
    }
    [lon.0, lat.0, lon.1, lat.1]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_those_of_the_cell() {
        let position = Position::of_degrees(57.64911, 10.40744).unwrap();
        let cell = Cell::of(position).at_depth(25);
        assert_eq!(cell.geohash(), "u4pru");
        let expected = [10.371_093_75, 57.612_304_687_5, 10.415_039_062_5, 57.656_25];
        let same = |(a, b): (f64, f64)| (a - b).abs() < 1e-12;
        assert!(bounds(cell).into_iter().zip(expected).all(same));
    }
}
