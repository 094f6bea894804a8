//! The random operations of a walk.

use std::collections::BTreeSet;

use ::tracks::fence::{Area, Definition, When};
use ::tracks::geo::position::Position;
use ::tracks::model::name::Name;
use ::tracks::model::point::Point;
use ::tracks::model::report::Report;
use ::tracks::model::time::{SECOND, Time};
use base::rng::Rng;

use super::model::corners;
use super::{ENTITIES, NOW, at};

const DAY: i64 = 86_400;

#[derive(Clone, Debug)]
pub(super) enum Op {
    /// Reports among fences.
    Report(Vec<Report>),
    /// Reports among fences that come late, or replace others of the same time.
    Late(Vec<Report>),
    /// Reports of the fleet with retention.
    Drive(Vec<Report>),
    Erase(Name),
    PutFence(Name, Definition),
    DeleteFence(Name),
    Tag(String),
    /// A fleet and a tag that a report creates.
    NewFleet(Name),
    /// The clock moves on, and old points are dropped.
    Keep,
    Backup,
}

pub(super) const KINDS: usize = 10;

impl Op {
    pub(super) fn kind(&self) -> usize {
        match self {
            Self::Report(_) => 0,
            Self::Drive(_) => 1,
            Self::Erase(_) => 2,
            Self::PutFence(..) => 3,
            Self::DeleteFence(_) => 4,
            Self::Tag(_) => 5,
            Self::NewFleet(_) => 6,
            Self::Keep => 7,
            Self::Backup => 8,
            Self::Late(_) => 9,
        }
    }
}

pub(super) fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn circle(rng: &mut Rng) -> Definition {
    // A number of few digits, which JSON keeps to the last bit.
    let lon = (179_900 + rng.below(700)) as f64 / 1e4;
    Definition {
        area: Area::Circle {
            centre: [lon, 59.0],
            radius: 200.0 + rng.below(600) as f64,
        },
        when: When::default(),
        tags: Vec::new(),
    }
}

/// A polygon with a hole, which is outside; it has a dwell event.
fn zone() -> Definition {
    let ring = |corners: &[[f64; 2]]| corners.to_vec();
    let outer = [
        [18.005, 58.998],
        [18.035, 58.9985],
        [18.037, 59.003],
        [18.004, 59.003],
        [18.005, 58.998],
    ];
    let hole = [
        [18.018, 58.9995],
        [18.022, 58.9995],
        [18.020, 59.0015],
        [18.018, 58.9995],
    ];
    Definition {
        area: Area::Polygon {
            coordinates: vec![ring(&outer), ring(&hole)],
        },
        when: When {
            dwell_seconds: 600,
            ..When::default()
        },
        tags: Vec::new(),
    }
}

/// A narrow fence: most entities cross it between two reports.
fn gate() -> Definition {
    let ring = vec![
        [18.0400, 58.990],
        [18.0402, 58.990],
        [18.0412, 59.010],
        [18.0410, 59.010],
        [18.0400, 58.990],
    ];
    Definition {
        area: Area::Polygon {
            coordinates: vec![ring],
        },
        when: When {
            cross: true,
            ..When::default()
        },
        tags: Vec::new(),
    }
}

/// Draws operations. Each report of [`Op::Report`] is later than the one before.
struct Draw {
    rng: Rng,
    seconds: i64,
    /// Entities and seconds of reports that no other has replaced.
    sent: Vec<(u64, i64)>,
    /// Those of late reports.
    late: BTreeSet<(u64, i64)>,
    /// The longitude of each entity that drives.
    drives: Vec<f64>,
}

impl Draw {
    fn reports(&mut self) -> Op {
        let count = 1 + self.rng.below(10);
        let one = |_| {
            self.seconds += 60;
            let entity = self.rng.below(ENTITIES);
            self.sent.push((entity, self.seconds));
            self.among_fences(entity, self.seconds)
        };
        Op::Report((0..count).map(one).collect())
    }

    fn among_fences(&mut self, entity: u64, seconds: i64) -> Report {
        let lon = 17.99 + self.rng.below(700) as f64 / 1e4;
        let lat = 58.999 + self.rng.below(200) as f64 / 1e5;
        report(&format!("e{entity}"), seconds, at(lat, lon))
    }

    /// Half of them are of times without a report; the others replace one, often an entity's newest.
    fn late(&mut self) -> Op {
        let mut reports = Vec::new();
        for _ in 0..=self.rng.below(5) {
            if self.rng.one_in(2) {
                let seconds = self.seconds - 30 - 60 * self.rng.below(200) as i64;
                let entity = self.rng.below(ENTITIES);
                if self.late.insert((entity, seconds)) {
                    reports.push(self.among_fences(entity, seconds));
                }
                continue;
            }
            let most = [6, 200][self.rng.below(2) as usize];
            let back = 1 + self.rng.below(most) as usize;
            let Some(nth) = self.sent.len().checked_sub(back) else {
                continue;
            };
            let (entity, seconds) = self.sent.remove(nth);
            reports.push(self.among_fences(entity, seconds));
        }
        Op::Late(reports)
    }

    /// Ten days of an entity that drives evenly, with noise, and turns now and then.
    fn drive(&mut self, chunk: i64, nth: usize) -> Op {
        let (mut reports, mut lon) = (Vec::new(), self.drives[nth]);
        let mut step = 0.001;
        for n in 0..60 {
            if self.rng.one_in(8) {
                step = self.rng.below(5) as f64 * 0.0005;
            }
            lon += step;
            let noise = self.rng.below(40) as f64 * 1e-6;
            let seconds = chunk * 10 * DAY + n * 14_000 + self.rng.below(9000) as i64 / 3000 * 3000;
            reports.push(report(&format!("d{nth}"), seconds, at(55.0 + noise, lon)));
        }
        self.drives[nth] = lon;
        Op::Drive(reports)
    }

    fn other(&mut self, chunk: i64) -> Op {
        let rng = &mut self.rng;
        let fence = |rng: &mut Rng| name(&format!("f{}", rng.below(6)));
        match rng.below(6) {
            0 => Op::Erase(name(&format!("e{}", rng.below(ENTITIES)))),
            1 => Op::PutFence(fence(rng), circle(rng)),
            2 => Op::DeleteFence(fence(rng)),
            3 => Op::Tag(format!("t{chunk}-{}", rng.below(2))),
            4 => Op::NewFleet(name(&format!("x{chunk}"))),
            _ => Op::Backup,
        }
    }
}

pub(super) fn report(entity: &str, seconds: i64, position: Position) -> Report {
    Report {
        entity: name(entity),
        time: Some(Time(NOW.0 + seconds * SECOND)),
        point: Point::at(position),
    }
}

pub(super) fn ops(seed: u64) -> Vec<Op> {
    let mut draw = Draw {
        rng: Rng::new(seed),
        seconds: -100_000,
        sent: Vec::new(),
        late: BTreeSet::new(),
        drives: vec![10.0, 11.0],
    };
    let mut out = vec![
        Op::PutFence(name("zone"), zone()),
        Op::PutFence(name("gate"), gate()),
    ];
    for n in 0..5 {
        let definition = circle(&mut draw.rng);
        out.push(Op::PutFence(name(&format!("f{n}")), definition));
    }
    for chunk in 0..10 {
        for _ in 0..4 {
            out.push(draw.reports());
            out.push(draw.other(chunk));
            out.push(draw.reports());
            out.push(draw.late());
        }
        out.push(draw.drive(chunk, 0));
        out.push(draw.drive(chunk, 1));
        out.push(Op::Keep);
    }
    out
}

/// The corners with which the model computes crossings are those of the fence.
#[test]
fn the_model_knows_its_gate() {
    let all = corners(&gate());
    assert_eq!(all.len(), 1);
    assert!(gate().area.shape().unwrap().has(at(59.0, 18.0406)));
}
