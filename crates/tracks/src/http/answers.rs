//! The answers of calls, and their schemas.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::time::seconds;
use crate::fleets::{Info, Settings};
use crate::model::point::Point;
use crate::model::time::Time;
use crate::read::{Hit, Located, Visit};

/// A report: where something is.
#[derive(Debug, ToSchema)]
#[schema(as = Report)]
#[expect(
    dead_code,
    reason = "it is a description; `json` reads reports without copies"
)]
pub(crate) struct ReportBody {
    /// Whose: 1 to 128 bytes, without control characters.
    #[schema(example = "car1")]
    entity: String,
    /// Degrees.
    #[schema(example = 59.3, minimum = -90, maximum = 90)]
    lat: f64,
    /// Degrees.
    #[schema(example = 18.1, minimum = -180, maximum = 180)]
    lon: f64,
    /// When it was there; without it, when the report arrives.
    time: Option<Moment>,
    /// Over ground, m/s.
    #[schema(minimum = 0, maximum = 655.34)]
    speed: Option<f64>,
    /// From north over east, degrees.
    #[schema(minimum = 0, maximum = 360)]
    course: Option<f64>,
    /// Metres.
    altitude: Option<f64>,
    /// How far off the position may be, metres; more than 6553.5 is stored as that.
    #[schema(minimum = 0)]
    accuracy: Option<f64>,
    /// Per cent.
    #[schema(minimum = 0, maximum = 100)]
    battery: Option<f64>,
    /// What it can be searched by. The fleet gets those that it does not have, 32 in all.
    tags: Option<Vec<String>>,
    /// Anything else: a JSON object of 1024 bytes at most.
    #[schema(value_type = Option<Object>)]
    attributes: Option<BTreeMap<String, String>>,
}

/// A time: seconds since 1970, or RFC 3339.
#[derive(Debug, Serialize, ToSchema)]
#[expect(dead_code, reason = "it is a description")]
#[serde(untagged)]
pub(crate) enum Moment {
    /// Seconds since 1970.
    #[schema(example = 1_700_000_000.5)]
    Seconds(f64),
    /// RFC 3339.
    #[schema(example = "2023-11-14T22:13:20.5Z")]
    Text(String),
}

/// When reports are answered.
#[derive(Debug, Serialize, ToSchema)]
#[expect(dead_code, reason = "it is a description")]
#[serde(rename_all = "lowercase")]
pub(crate) enum AckWord {
    /// When they survive a power cut.
    Durable,
    /// When reads see them.
    Visible,
}

/// What became of reports.
#[derive(Debug, Default, Serialize, ToSchema)]
#[schema(as = Taken)]
pub(crate) struct Taken {
    /// Reports that were stored, late ones included.
    pub(crate) stored: usize,
    /// Of these: there was a newer one of the entity, so it was not moved.
    pub(crate) late: usize,
    /// Reports that were there already.
    pub(crate) same: usize,
    /// Reports that were not taken, the first 1000.
    pub(crate) refused: Vec<Refused>,
    /// How many more were not taken.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) refused_more: usize,
    /// With `ack=visible`: for `GET /v1/durable/{receipt}`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) receipt: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero(n: &usize) -> bool {
    *n == 0
}

/// A report that was not taken.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Refused {
    /// Which of the reports, from 0.
    pub(crate) index: usize,
    /// On which line, from 1, where each has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) line: Option<usize>,
    /// Why.
    #[schema(example = "latitude 91 is not within −90 and 90")]
    pub(crate) error: String,
}

/// What a receipt says.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Durable {
    /// Whether its reports survive a power cut.
    pub(crate) durable: bool,
}

/// A point.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Point)]
pub(crate) struct PointBody {
    /// Degrees.
    lat: f64,
    /// Degrees.
    lon: f64,
    /// Seconds since 1970.
    time: f64,
    /// m/s.
    #[serde(skip_serializing_if = "Option::is_none")]
    speed: Option<f64>,
    /// Degrees.
    #[serde(skip_serializing_if = "Option::is_none")]
    course: Option<f64>,
    /// Metres.
    #[serde(skip_serializing_if = "Option::is_none")]
    altitude: Option<f64>,
    /// Metres.
    #[serde(skip_serializing_if = "Option::is_none")]
    accuracy: Option<f64>,
    /// Per cent.
    #[serde(skip_serializing_if = "Option::is_none")]
    battery: Option<u8>,
    /// Its tags.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tags: Vec<String>,
    /// As they were reported.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    attributes: Option<Box<RawValue>>,
}

pub(crate) fn hundredths(n: u16) -> f64 {
    f64::from(n) / 100.0
}

fn names(settings: &Settings, tags: u32) -> Vec<String> {
    settings
        .names(tags)
        .into_iter()
        .map(str::to_owned)
        .collect()
}

/// The bytes that the names of these tags take as JSON.
fn bytes_of_names(settings: &Settings, tags: u32) -> usize {
    let all = settings.names(tags).into_iter();
    all.map(|name| name.len() + 3).sum()
}

impl PointBody {
    pub(crate) fn new(time: Time, point: &Point, settings: &Settings) -> Self {
        let (lat, lon) = point.position.degrees();
        let attributes = (!point.attributes.is_empty()).then(|| point.attributes.clone());
        Self {
            lat,
            lon,
            time: seconds(time),
            speed: point.speed.map(hundredths),
            course: point.course.map(hundredths),
            altitude: point.altitude.map(|cm| f64::from(cm) / 100.0),
            accuracy: point.accuracy.map(|dm| f64::from(dm) / 10.0),
            battery: point.battery,
            tags: names(settings, point.tags),
            attributes: attributes.and_then(|text| RawValue::from_string(text).ok()),
        }
    }

    pub(crate) fn of(at: &Located, settings: &Settings) -> Self {
        Self::new(at.time, &at.point, settings)
    }

    /// An approximate upper bound of the bytes of its JSON.
    pub(crate) fn bytes_of(at: &Located, settings: &Settings) -> usize {
        /// The bytes of all members except the last two.
        const REST: usize = 200;
        REST + at.point.attributes.len() + bytes_of_names(settings, at.point.tags)
    }
}

/// An entity's newest point.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Latest {
    /// Whose.
    pub(crate) entity: String,
    #[serde(flatten)]
    pub(crate) point: PointBody,
}

/// The parts of a track. Their points are serialized one by one.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) parts: Vec<Vec<Located>>,
    pub(crate) info: Arc<Info>,
}

struct Part<'a>(&'a [Located], &'a Settings);

impl Serialize for Parts {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let settings = &self.info.settings;
        to.collect_seq(self.parts.iter().map(|part| Part(part, settings)))
    }
}

impl Serialize for Part<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Self(part, settings) = self;
        to.collect_seq(part.iter().map(|at| PointBody::of(at, settings)))
    }
}

/// A track.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Track {
    /// Whose.
    pub(crate) entity: String,
    /// Parts without gaps, in the order of time.
    #[schema(value_type = Vec<Vec<PointBody>>)]
    pub(crate) parts: Parts,
    /// From when on there is more, as `from` takes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next: Option<f64>,
}

/// What an entity did.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Summary {
    /// Whose.
    pub(crate) entity: String,
    /// How many points there are.
    pub(crate) points: u64,
    /// The first point's time, seconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) from: Option<f64>,
    /// The last point's time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) to: Option<f64>,
    /// From point to point, metres.
    pub(crate) distance: f64,
    /// From the first point to the last, seconds.
    pub(crate) duration: f64,
    /// Outside of stays, seconds.
    pub(crate) moving: f64,
    /// The highest speed that a point says, m/s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_speed: Option<f64>,
    /// Where it was within 75 m for five minutes at least.
    pub(crate) stays: Vec<Stay>,
}

/// Where an entity stayed.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Stay {
    /// Degrees.
    pub(crate) lat: f64,
    /// Degrees.
    pub(crate) lon: f64,
    /// Seconds since 1970.
    pub(crate) from: f64,
    /// Seconds since 1970.
    pub(crate) to: f64,
}

/// An entity that is in the area.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Hit)]
pub(crate) struct HitBody {
    /// Its name.
    entity: String,
    /// Degrees.
    lat: f64,
    /// Degrees.
    lon: f64,
    /// Of its newest point, seconds since 1970.
    time: f64,
    /// From where was asked, metres.
    #[serde(skip_serializing_if = "Option::is_none")]
    distance: Option<f64>,
    /// m/s.
    #[serde(skip_serializing_if = "Option::is_none")]
    speed: Option<f64>,
    /// Degrees.
    #[serde(skip_serializing_if = "Option::is_none")]
    course: Option<f64>,
    /// Its tags.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tags: Vec<String>,
}

impl HitBody {
    /// An approximate upper bound of the bytes of its JSON.
    pub(crate) fn bytes_of(hit: &Hit, settings: &Settings) -> usize {
        /// The bytes of all members except the name and the tags.
        const REST: usize = 150;
        REST + hit.name.len() + bytes_of_names(settings, hit.tags)
    }

    pub(crate) fn new(hit: Hit, settings: &Settings) -> Self {
        let (lat, lon) = hit.position.degrees();
        Self {
            entity: hit.name,
            lat,
            lon,
            time: seconds(hit.time),
            distance: hit
                .distance
                .map(|metres| (metres * 1000.0).round() / 1000.0),
            speed: hit.speed.map(hundredths),
            course: hit.course.map(hundredths),
            tags: names(settings, hit.tags),
        }
    }
}

/// An entity that was in the area.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Visit)]
pub(crate) struct VisitBody {
    /// Its name.
    entity: String,
    /// The time of its first point there, seconds since 1970.
    first: f64,
    /// Of its last.
    last: f64,
    /// How many points there are.
    points: u64,
}

impl VisitBody {
    pub(crate) fn new(visit: &Visit) -> Self {
        Self {
            entity: visit.name.to_string(),
            first: seconds(visit.first),
            last: seconds(visit.last),
            points: visit.points,
        }
    }
}

/// A part of the entities that are in an area.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Hits {
    /// They.
    pub(crate) results: Vec<HitBody>,
    /// There is more: give it as `cursor`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cursor: Option<String>,
}

/// A part of the entities that were in an area.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Visits {
    /// They.
    pub(crate) results: Vec<VisitBody>,
    /// There is more: give it as `cursor`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cursor: Option<String>,
}

/// Who is in an area, or, with `from` or `to`, who was.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum Within {
    /// Who is.
    Hits(Hits),
    /// Who was.
    Visits(Visits),
}

/// How many entities are in each cell.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Density {
    /// Cells that have any.
    pub(crate) cells: Vec<CellBody>,
}

/// A cell.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Cell)]
pub(crate) struct CellBody {
    /// Its name.
    #[schema(example = "u6sce")]
    pub(crate) geohash: String,
    /// West, south, east and north, degrees.
    pub(crate) bounds: [f64; 4],
    /// How many entities are in it.
    pub(crate) count: u64,
}

/// All fleets that the caller may know of.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FleetList {
    /// They.
    pub(crate) fleets: Vec<FleetBody>,
}

/// A fleet.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Fleet)]
pub(crate) struct FleetBody {
    /// Its name.
    name: String,
    /// Whether reports from too far ahead get the time of their arrival, and are not refused.
    clamp_times: bool,
    /// The tags that its reports may have.
    tags: Vec<String>,
    /// Points that are older, days, are not shown, and dropped; 0: all are kept.
    keep_days: u32,
    /// Entities that are silent for so many days are in no area, until they report again; 0: all are.
    silent_days: u32,
    /// Of points that are older, days, those are dropped that the others say already; 0: all are kept.
    thin_days: u32,
    /// What they say may be so far off, metres.
    thin_metres: u16,
}

impl FleetBody {
    pub(crate) fn new(info: &Info) -> Self {
        Self {
            name: info.name.to_string(),
            clamp_times: info.settings.clamp_times,
            tags: info.settings.tags.clone(),
            keep_days: info.settings.keep_days,
            silent_days: info.settings.silent_days,
            thin_days: info.settings.thin_days,
            thin_metres: info.settings.thin_metres,
        }
    }
}

/// What is to be changed of a fleet; what is left out stays as it is.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct FleetChange {
    /// Whether reports from too far ahead get the time of their arrival, and are not refused.
    pub(crate) clamp_times: Option<bool>,
    /// The tags that its reports may have, 32 at most: those that it has, in their order, and new ones behind them.
    pub(crate) tags: Option<Vec<String>>,
    /// Points that are older, days, are not shown from now on, and dropped later, for good; 0: all are kept.
    #[schema(maximum = 100_000)]
    pub(crate) keep_days: Option<u32>,
    /// Entities that are silent for so many days are in no area, until they report again; 0: all are.
    #[schema(maximum = 100_000)]
    pub(crate) silent_days: Option<u32>,
    /// Of points that are older, days, those are dropped from now on, for good, that the others say already: where it was at their
    /// time, had it moved evenly between those that stay. 0: all are kept.
    #[schema(maximum = 100_000)]
    pub(crate) thin_days: Option<u32>,
    /// What they say may be so far off, metres; 10, unless it is set.
    #[schema(maximum = 65_535)]
    pub(crate) thin_metres: Option<u16>,
}

/// Whether the server is well.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Health {
    /// `ok`.
    pub(crate) status: &'static str,
}
