//! The fences that an entity is inside of, and how a report changes them. Nothing here reads or
//! writes the store.
//!
//! ```text
//!   inside   0+8 the newest fence that was looked at   8+1 what was looked at last:
//!              0 the newest report   1 an older one, 9+8 its time  17+4 latitude  21+4 longitude   2 nothing
//!            then for each fence   0+8 number  8+8 since when  16+1 whether its dwell event is made
//! ```
//!
//! Little-endian. The row is written only when it changes. A fence that is newer than the newest
//! fence in the row was made later: if the entity was in its area already, it counts as inside, but
//! it has not entered. If all fences are newer than the row, its position is out of date and is
//! ignored.

use std::sync::Arc;

use base::coding::{Decoder, put_u32, put_u64};
use base::{Error, Result};

use super::definition::Fence;
use super::events::Kind;
use super::index::{INSIDE_MAX, Index};
use crate::geo::distance::distance;
use crate::geo::position::Position;
use crate::model::point::position;
use crate::model::time::{SECOND, Time};

/// A fence that an entity is inside of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inside {
    /// The fence's number.
    pub fence: u64,
    /// The time of the first report inside.
    pub since: Time,
    /// Whether its dwell event has been made.
    pub has_dwelled: bool,
}

/// The last report that counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Last {
    /// The entity's newest report.
    #[default]
    Newest,
    /// An older report: the reports after it were ignored.
    Older(Time, Position),
    /// None: all reports were ignored.
    Nothing,
}

/// The row of an entity in `inside`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// The number of the newest fence that was considered.
    pub newest: u64,
    /// The last report that counted.
    pub last: Last,
    /// The fences that the entity is inside of, by number.
    pub inside: Vec<Inside>,
}

impl State {
    /// The bytes of the row.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(25 + 17 * self.inside.len());
        put_u64(&mut out, self.newest);
        out.push(match self.last {
            Last::Newest => 0,
            Last::Older(..) => 1,
            Last::Nothing => 2,
        });
        if let Last::Older(time, position) = self.last {
            put_u64(&mut out, time.0.cast_unsigned());
            put_u32(&mut out, position.lat().cast_unsigned());
            put_u32(&mut out, position.lon().cast_unsigned());
        }
        for inside in &self.inside {
            put_u64(&mut out, inside.fence);
            put_u64(&mut out, inside.since.0.cast_unsigned());
            out.push(u8::from(inside.has_dwelled));
        }
        out
    }

    /// Decodes a row. Errors: Corruption.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut d = Decoder::new(bytes);
        let mut read = || {
            let flag = |d: &mut Decoder<'_>| d.u8().filter(|b| *b < 2).map(|b| b == 1);
            let newest = d.u64()?;
            let last = match d.u8()? {
                0 => Last::Newest,
                1 => Last::Older(Time(d.u64()?.cast_signed()), position(&mut d)?),
                2 => Last::Nothing,
                _ => return None,
            };
            let mut inside: Vec<Inside> = Vec::new();
            while !d.is_empty() {
                let one = Inside {
                    fence: d.u64()?,
                    since: Time(d.u64()?.cast_signed()),
                    has_dwelled: flag(&mut d)?,
                };
                let is_in_order = inside.last().is_none_or(|before| before.fence < one.fence);
                is_in_order.then(|| inside.push(one))?;
            }
            Some(Self {
                newest,
                last,
                inside,
            })
        };
        read().ok_or_else(|| Error::corruption("inside: a value that cannot be"))
    }
}

/// A report that moves an entity: it is newer than the entity's newest one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moved {
    /// The newest report before this one, with its tags. `None` if this is the first.
    pub(crate) before: Option<(Time, Position, u32)>,
    pub(crate) time: Time,
    pub(crate) position: Position,
    pub(crate) tags: u32,
    /// In dm; `None` if the device did not say.
    pub(crate) accuracy: Option<u16>,
}

/// The new state, and the events to make.
#[derive(Debug, Default)]
pub(crate) struct Judged {
    /// `None` if the state has not changed.
    pub(crate) state: Option<State>,
    pub(crate) events: Vec<(Kind, Arc<Fence>)>,
}

/// The effect of a report. `accuracy_max` (dm) and `speed_max` (m/s) are the worst accuracy and the
/// highest speed that the fleet allows; a speed of 0 allows any.
pub(crate) fn judge(
    index: &Index,
    old: &State,
    moved: Moved,
    (accuracy_max, speed_max): (u16, f64),
) -> Judged {
    let is_of_before = index.oldest() > old.newest;
    let newest = moved.before.map(|(time, position, _)| (time, position));
    let last = match old.last {
        _ if is_of_before => newest,
        Last::Newest => newest,
        Last::Older(time, position) => Some((time, position)),
        Last::Nothing => None,
    };
    let mut before = old.inside.clone();
    before.retain(|inside| index.get(inside.fence).is_some());
    if let Some((time, position)) = last {
        // An entity that was already there when the fence was made has not entered it.
        let tags = moved.before.map_or(moved.tags, |(_, _, tags)| tags);
        let there = index
            .newer(old.newest)
            .filter(|fence| fence.has(position, tags));
        before.extend(there.map(|fence| Inside {
            fence: fence.number,
            since: time,
            has_dwelled: false,
        }));
        before.truncate(INSIDE_MAX);
    }
    let is_jump = last.is_some_and(|(time, position)| {
        let seconds = (moved.time.0 - time.0) as f64 / SECOND as f64;
        speed_max > 0.0 && distance(position, moved.position) > speed_max * seconds.max(1.0)
    });
    if is_jump
        || moved
            .accuracy
            .is_some_and(|accuracy| accuracy > accuracy_max)
    {
        let state = State {
            newest: index.newest(),
            last: last.map_or(Last::Nothing, |(time, position)| {
                Last::Older(time, position)
            }),
            inside: before,
        };
        return Judged {
            state: (state != *old).then_some(state),
            events: Vec::new(),
        };
    }
    compare(index, old, before, (last, moved))
}

fn compare(
    index: &Index,
    old: &State,
    before: Vec<Inside>,
    (last, moved): (Option<(Time, Position)>, Moved),
) -> Judged {
    let now = index.around(moved.position, moved.tags);
    let mut out = Judged::default();
    let mut state = State {
        newest: index.newest(),
        last: Last::Newest,
        inside: Vec::with_capacity(now.len()),
    };
    let was = |number: u64| before.iter().find(|inside| inside.fence == number);
    for inside in &before {
        let fence = index.get(inside.fence);
        let is_out = !now.iter().any(|fence| fence.number == inside.fence);
        if let Some(fence) = fence.filter(|fence| is_out && fence.definition.when.exit) {
            out.events.push((Kind::Exit, Arc::clone(fence)));
        }
    }
    for fence in &now {
        let when = fence.definition.when;
        let mut inside = was(fence.number).copied().unwrap_or(Inside {
            fence: fence.number,
            since: moved.time,
            has_dwelled: false,
        });
        if was(fence.number).is_none() && when.enter {
            out.events.push((Kind::Enter, Arc::clone(fence)));
        }
        let long = i64::from(when.dwell_seconds) * SECOND;
        if long > 0 && !inside.has_dwelled && moved.time.0 - inside.since.0 >= long {
            inside.has_dwelled = true;
            out.events.push((Kind::Dwell, Arc::clone(fence)));
        }
        state.inside.push(inside);
    }
    if let Some((_, from)) = last {
        for fence in index.crossed((from, moved.position), moved.tags) {
            let is_inside = now.iter().any(|f| f.number == fence.number);
            if !is_inside && was(fence.number).is_none() {
                out.events.push((Kind::Cross, fence));
            }
        }
    }
    if state.inside != old.inside || state.last != old.last {
        out.state = Some(state);
    }
    out
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a test may panic")]
mod tests {
    use super::super::definition::{Area, Definition, When};
    use super::*;
    use crate::geo::position::at;
    use crate::model::name::Name;

    fn fence(number: u64, lon: f64, when: When) -> Arc<Fence> {
        let definition = Definition {
            area: Area::Circle {
                centre: [lon, 50.0],
                radius: 1000.0,
            },
            when,
            tags: Vec::new(),
        };
        let name = Name::new(&format!("f{number}")).unwrap();
        Arc::new(Fence::new((number, name), definition, 0).unwrap())
    }

    /// An entity that reports every minute.
    struct Walk {
        index: Index,
        state: State,
        last: Option<(Time, Position, u32)>,
        events: Vec<String>,
    }

    impl Walk {
        fn new(fences: Vec<Arc<Fence>>) -> Self {
            Self {
                index: Index::new(fences),
                state: State::default(),
                last: None,
                events: Vec::new(),
            }
        }

        fn to(&mut self, lon: f64, accuracy: Option<u16>) -> Vec<String> {
            let time = Time(self.last.map_or(0, |l| l.0.0 + 60 * SECOND));
            let moved = Moved {
                before: self.last,
                time,
                position: at(50.0, lon),
                tags: 0,
                accuracy,
            };
            let judged = judge(&self.index, &self.state, moved, (1000, 350.0));
            if let Some(state) = judged.state {
                assert_eq!(State::decode(&state.encode()).unwrap(), state);
                self.state = state;
            }
            self.last = Some((time, at(50.0, lon), 0));
            let said = judged
                .events
                .iter()
                .map(|(kind, f)| format!("{kind:?} {}", f.name));
            let said: Vec<String> = said.collect();
            self.events.extend(said.clone());
            said
        }
    }

    #[test]
    fn who_goes_in_and_out_is_seen_once() {
        let when = When {
            dwell_seconds: 120,
            cross: true,
            ..When::default()
        };
        let mut walk = Walk::new(vec![fence(1, 10.0, when), fence(2, 10.1, When::default())]);
        assert!(walk.to(9.9, None).is_empty());
        assert_eq!(walk.to(10.0, None), ["Enter f1"]);
        assert!(walk.to(10.001, None).is_empty());
        assert_eq!(walk.to(10.002, None), ["Dwell f1"]);
        assert!(walk.to(10.001, None).is_empty());
        assert_eq!(walk.to(10.1, None), ["Exit f1", "Enter f2"]);
        assert_eq!(walk.to(9.95, None), ["Exit f2", "Cross f1"]);
        assert_eq!(walk.state.inside, []);
    }

    #[test]
    fn poor_reports_and_jumps_change_nothing() {
        let mut walk = Walk::new(vec![fence(1, 10.0, When::default())]);
        walk.to(9.9, None);
        assert!(walk.to(10.0, Some(1001)).is_empty());
        assert_eq!(walk.state.last, Last::Older(Time(0), at(50.0, 9.9)));
        assert_eq!(walk.to(10.0, Some(1000)), ["Enter f1"]);
        assert_eq!(walk.state.last, Last::Newest);
        // 700 km in a minute, and back.
        assert!(walk.to(20.0, None).is_empty());
        assert!(walk.to(10.0, None).is_empty());
        assert_eq!(walk.to(9.9, None), ["Exit f1"]);
    }

    /// An entity is inside a fence that is made around it: it leaves it, but has not entered it.
    #[test]
    fn a_new_fence_has_who_is_there_inside() {
        let mut walk = Walk::new(vec![]);
        walk.to(10.0, None);
        walk.index = Index::new(vec![fence(1, 10.0, When::default())]);
        assert!(walk.to(10.001, None).is_empty());
        assert_eq!(walk.state.inside.len(), 1);
        assert_eq!(walk.to(10.1, None), ["Exit f1"]);
        // As if the entity had been evicted from memory and read again from its row.
        walk.to(10.0, None);
        walk.index = Index::new(vec![
            fence(1, 10.0, When::default()),
            fence(2, 10.0, When::default()),
        ]);
        assert_eq!(walk.to(10.1, None), ["Exit f1", "Exit f2"]);
        // No exit event for a deleted fence.
        walk.to(10.0, None);
        walk.index = Index::new(vec![fence(2, 10.0, When::default())]);
        assert_eq!(walk.to(10.1, None), ["Exit f2"]);
        assert_eq!(walk.events.len(), 7);
    }

    #[test]
    fn hostile_states_are_refused() {
        let state = State {
            newest: 7,
            last: Last::Older(Time(5), at(1.0, 2.0)),
            inside: [1, 2]
                .map(|fence| Inside {
                    fence,
                    since: Time(3),
                    has_dwelled: true,
                })
                .to_vec(),
        };
        let bytes = state.encode();
        assert_eq!(State::decode(&bytes).unwrap(), state);
        for len in (0..bytes.len()).filter(|len| ![25, 42].contains(len)) {
            assert!(State::decode(&bytes[..len]).is_err(), "{len}");
        }
        let mut twice = state;
        twice.inside[1].fence = 1;
        assert!(State::decode(&twice.encode()).unwrap_err().is_corruption());
    }
}
