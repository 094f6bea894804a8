//! GeoJSON (RFC 7946): polygons of queries, and tracks as lines.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::answers::hundredths;
use super::json;
use super::problem::{Problem, text};
use super::time::seconds;
use crate::geo::polygon::{Corner, Polygon, VERTICES_MAX};
use crate::read::{Located, Track};

/// A GeoJSON Polygon.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Polygon)]
pub(crate) struct PolygonBody {
    /// `Polygon`.
    #[serde(rename = "type")]
    #[schema(example = "Polygon")]
    kind: String,
    /// Its outer ring and its holes, each of positions: longitude, latitude.
    #[schema(example = json!([[[18.0, 59.0], [19.0, 59.0], [19.0, 60.0], [18.0, 59.0]]]))]
    coordinates: Vec<Vec<Vec<f64>>>,
    /// It is not looked at.
    #[serde(rename = "bbox")]
    #[schema(ignore)]
    _bbox: Option<Vec<f64>>,
}

#[derive(Deserialize)]
struct WithGeometry {
    geometry: PolygonBody,
}

/// The polygon of a geometry, or of a Feature with a geometry.
pub(crate) fn polygon(bytes: &[u8]) -> Result<Polygon, Problem> {
    let body: PolygonBody = if json::type_of(bytes).as_deref() == Some("Feature") {
        let feature: WithGeometry = json::read(bytes).map_err(Problem::body)?;
        feature.geometry
    } else {
        json::read(bytes).map_err(Problem::body)?
    };
    if body.kind != "Polygon" {
        let detail = format!("a geometry of type {:.40?}: send a Polygon", body.kind);
        return Err(Problem::body(detail));
    }
    let count: usize = body.coordinates.iter().map(Vec::len).sum();
    if count > VERTICES_MAX {
        let detail = format!("a polygon of {count} positions, and {VERTICES_MAX} at most");
        return Err(Problem::body(detail));
    }
    let mut rings = Vec::with_capacity(body.coordinates.len());
    for (nth, ring) in body.coordinates.iter().enumerate() {
        let corners: Result<Vec<Corner>, Problem> = ring.iter().map(|p| corner(nth, p)).collect();
        rings.push(corners?);
    }
    let rings: Vec<&[Corner]> = rings.iter().map(Vec::as_slice).collect();
    Polygon::new(&rings).map_err(|e| Problem::body(text(&e)))
}

fn corner(ring: usize, coordinates: &[f64]) -> Result<Corner, Problem> {
    let ([lon, lat] | [lon, lat, _]) = coordinates else {
        let detail = format!(
            "ring {ring} has a position of {} numbers",
            coordinates.len()
        );
        return Err(Problem::body(detail));
    };
    let found = Corner::of_degrees(*lat, *lon);
    found.map_err(|e| Problem::body(format!("ring {ring}: {}", text(&e))))
}

/// A track as GeoJSON: a line for each part.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TrackLines {
    /// `FeatureCollection`.
    #[serde(rename = "type")]
    kind: &'static str,
    /// One for each part.
    features: Vec<TrackLine>,
    /// From when on there is more, as `from` takes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<f64>,
}

/// A part of a track.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TrackLine {
    /// `Feature`.
    #[serde(rename = "type")]
    kind: &'static str,
    geometry: LineBody,
    properties: LineProperties,
}

/// A line, or a place, where the part is a single point.
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "type", content = "coordinates")]
pub(crate) enum LineBody {
    /// Longitude, latitude.
    Point([f64; 2]),
    /// Longitude, latitude of each.
    LineString(Vec<[f64; 2]>),
}

/// What is known of the points of a line, in their order.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct LineProperties {
    /// Whose.
    entity: String,
    /// Seconds since 1970.
    times: Vec<f64>,
    /// m/s; null where it is not known.
    speeds: Vec<Option<f64>>,
}

impl TrackLines {
    pub(crate) fn new(entity: &str, track: &Track) -> Self {
        Self {
            kind: "FeatureCollection",
            features: track.parts.iter().map(|part| line(entity, part)).collect(),
            next: track.next.map(seconds),
        }
    }
}

fn line(entity: &str, part: &[Located]) -> TrackLine {
    let place = |at: &Located| {
        let (lat, lon) = at.point.position.degrees();
        [lon, lat]
    };
    let geometry = match part {
        [one] => LineBody::Point(place(one)),
        all => LineBody::LineString(all.iter().map(place).collect()),
    };
    TrackLine {
        kind: "Feature",
        geometry,
        properties: LineProperties {
            entity: entity.to_owned(),
            times: part.iter().map(|at| seconds(at.time)).collect(),
            speeds: part
                .iter()
                .map(|at| at.point.speed.map(hundredths))
                .collect(),
        },
    }
}
