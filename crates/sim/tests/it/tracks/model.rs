//! The events that fences should make of reports: a model that compares each report with each fence, one after
//! another.

use std::collections::BTreeMap;

use ::tracks::fence::{Area, Definition};
use ::tracks::geo::distance::distance;
use ::tracks::geo::position::Position;
use ::tracks::geo::shape::Shape;
use ::tracks::model::name::Name;
use ::tracks::model::report::Report;
use ::tracks::model::time::{SECOND, Time};

struct Fence {
    definition: Definition,
    shape: Box<dyn Shape + Send + Sync>,
    rings: Vec<Vec<(i64, i64)>>,
}

/// The time since when an entity is inside, and whether the dwell event was made.
#[derive(Clone, Copy)]
struct Inside {
    since: Time,
    has_dwelled: bool,
}

/// The highest speed at which reports count for fences, m/s: the default of fleets. No report is so fast, except one
/// that replaces the newest of its entity.
const SPEED_MAX: f64 = 350.0;

/// One fleet.
#[derive(Default)]
pub(super) struct Model {
    pub(super) points: BTreeMap<(Name, Time), Position>,
    /// Events, and how many of each: a report that replaces another may make the same once more.
    pub(super) events: BTreeMap<String, usize>,
    /// The last report of each entity that counts for fences, with the time of the newest.
    last: BTreeMap<Name, (Time, Position)>,
    fences: BTreeMap<Name, Fence>,
    /// By entity and fence.
    inside: BTreeMap<(Name, Name), Inside>,
}

/// The rings of a polygon, 10⁻⁷ degrees: longitude, latitude. Others have none.
pub(super) fn corners(definition: &Definition) -> Vec<Vec<(i64, i64)>> {
    let Area::Polygon { coordinates } = &definition.area else {
        return Vec::new();
    };
    let units = |degrees: f64| (degrees * 1e7).round() as i64;
    let ring = |ring: &Vec<[f64; 2]>| ring.iter().map(|c| (units(c[0]), units(c[1]))).collect();
    coordinates.iter().map(ring).collect()
}

/// Whether two straight segments meet.
fn meet(a: [(i64, i64); 2], b: [(i64, i64); 2]) -> bool {
    let side = |[(ax, ay), (bx, by)]: [(i64, i64); 2], (x, y): (i64, i64)| {
        (i128::from(bx - ax) * i128::from(y - ay) - i128::from(by - ay) * i128::from(x - ax))
            .signum()
    };
    // The segments are never collinear here.
    side(a, b[0]) * side(a, b[1]) <= 0 && side(b, a[0]) * side(b, a[1]) <= 0
}

impl Fence {
    fn is_crossed(&self, from: Position, to: Position) -> bool {
        let place = |p: Position| (i64::from(p.lon()), i64::from(p.lat()));
        let way = [place(from), place(to)];
        let mut edges = self.rings.iter().flat_map(|ring| ring.windows(2));
        edges.any(|edge| meet(way, [edge[0], edge[1]]))
    }
}

impl Model {
    pub(super) fn has_fence(&self, name: &Name) -> bool {
        self.fences.contains_key(name)
    }

    pub(super) fn definitions(&self) -> BTreeMap<Name, &Definition> {
        let of = |(name, fence): (&Name, _)| {
            let fence: &'_ Fence = fence;
            (name.clone(), &fence.definition)
        };
        self.fences.iter().map(of).collect()
    }

    /// An entity that is inside already has not entered.
    pub(super) fn put_fence(&mut self, name: &Name, definition: &Definition) {
        self.delete_fence(name);
        let fence = Fence {
            definition: definition.clone(),
            shape: definition.area.shape().unwrap(),
            rings: corners(definition),
        };
        for (entity, (time, position)) in &self.last {
            if fence.shape.has(*position) {
                let inside = Inside {
                    since: *time,
                    has_dwelled: false,
                };
                self.inside.insert((entity.clone(), name.clone()), inside);
            }
        }
        self.fences.insert(name.clone(), fence);
    }

    /// Deleting a fence makes no exit events.
    pub(super) fn delete_fence(&mut self, name: &Name) {
        self.fences.remove(name);
        self.inside.retain(|(_, fence), _| fence != name);
    }

    pub(super) fn erase(&mut self, entity: &Name) {
        self.points.retain(|(of, _), _| of != entity);
        self.last.remove(entity);
        self.inside.retain(|(of, _), _| of != entity);
        let part = format!(" {entity} ");
        self.events.retain(|said, _| !said.contains(&part));
    }

    /// A report that is there already changes nothing, and a late one changes nothing but its point.
    pub(super) fn report(&mut self, report: &Report) {
        let (entity, time, to) = (&report.entity, report.time.unwrap(), report.point.position);
        if self.points.insert((entity.clone(), time), to) == Some(to) {
            return;
        }
        let last = self.last.get(entity).copied();
        if let Some((before, from)) = last {
            let is_jump = time == before && distance(from, to) > SPEED_MAX;
            if time < before || is_jump {
                return;
            }
        }
        self.last.insert(entity.clone(), (time, to));
        for (name, fence) in &self.fences {
            let (key, when) = ((entity.clone(), name.clone()), fence.definition.when);
            let was = self.inside.get_mut(&key);
            let mut say = |kind: &str| {
                let said = format!("{kind} {name} {entity} {}", time.0);
                *self.events.entry(said).or_default() += 1;
            };
            match (was, fence.shape.has(to)) {
                (None, true) => {
                    say("Enter");
                    let inside = Inside {
                        since: time,
                        has_dwelled: false,
                    };
                    self.inside.insert(key, inside);
                }
                (Some(inside), true) => {
                    let long = i64::from(when.dwell_seconds) * SECOND;
                    if long > 0 && !inside.has_dwelled && time.0 - inside.since.0 >= long {
                        inside.has_dwelled = true;
                        say("Dwell");
                    }
                }
                (Some(_), false) => {
                    say("Exit");
                    self.inside.remove(&key);
                }
                (None, false) => {
                    let from = last.filter(|_| when.cross).map(|(_, from)| from);
                    if from.is_some_and(|from| fence.is_crossed(from, to)) {
                        say("Cross");
                    }
                }
            }
        }
    }
}
