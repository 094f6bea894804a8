//! Reports before the queries, and beside them.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base::Result;
use base::clock::Clock;
use tracks::fleets::Info;
use tracks::geo::position::Position;
use tracks::model::name::Name;
use tracks::model::point::Point;
use tracks::model::report::Report;
use tracks::model::time::{SECOND, Time};
use tracks::service::Tracks;
use tracks::write::{Ack, Ticket};

use crate::drive::{NOW, all_taken, report};
use crate::places::Place;

/// The time of the first report.
pub(crate) const BEGIN: Time = Time(NOW.0 - 1_000_000 * SECOND);

/// Reports for the service.
#[derive(Clone, Copy)]
pub(crate) struct Load<'a> {
    pub(crate) tracks: &'a Tracks,
    pub(crate) fleet: &'a Info,
    pub(crate) clock: &'a dyn Clock,
}

/// The name of an object with a day's track.
pub(crate) fn day_name(nth: u32) -> Result<Name> {
    Name::new(&format!("day-{nth:04}"))
}

/// Calls in progress, a limited number at a time.
#[derive(Default)]
struct Calls(VecDeque<Ticket>);

impl Calls {
    fn push(&mut self, ticket: Ticket, most: usize) -> Result<()> {
        self.0.push_back(ticket);
        if self.0.len() > most
            && let Some(first) = self.0.pop_front()
        {
            all_taken(first)?;
        }
        Ok(())
    }

    fn end(self) -> Result<()> {
        self.0.into_iter().try_for_each(all_taken)
    }
}

impl Load<'_> {
    fn send(self, reports: Vec<Report>) -> Result<Ticket> {
        self.tracks
            .report_at(self.fleet, reports, Ack::Visible, NOW)
    }

    fn many(self, reports: impl Iterator<Item = Result<Report>>) -> Result<()> {
        let mut calls = Calls::default();
        let mut call = Vec::new();
        for report in reports {
            call.push(report?);
            if call.len() == 256 {
                calls.push(self.send(std::mem::take(&mut call))?, 64)?;
            }
        }
        calls.push(self.send(call)?, 64)?;
        calls.end()
    }

    /// Reports places, in order.
    pub(crate) fn all(self, places: impl Iterator<Item = Place>) -> Result<()> {
        self.many(places.zip(0..).map(|(place, nth)| report(&place, nth)))
    }

    /// Reports of some objects that report every ten seconds and drive in circles.
    pub(crate) fn days(self, places: &[Place], objects: u32, reports: usize) -> Result<()> {
        self.many((0..reports).flat_map(|nth| {
            (0..objects).filter_map(move |object| {
                let around = places.get(object as usize)?.position;
                Some(day_report(object, nth, around))
            })
        }))
    }

    /// Reports at a fixed rate until it is told to stop. Returns the number of reports.
    pub(crate) fn on(
        self,
        places: &[Place],
        from: usize,
        per_second: u64,
        ends: &AtomicBool,
    ) -> Result<f64> {
        let start = self.clock.monotonic_nanos();
        let seconds = || (self.clock.monotonic_nanos() - start) as f64 / 1e9;
        let mut calls = Calls::default();
        let mut sent = 0_u64;
        for (place, nth) in places.iter().cycle().skip(from).zip(from as i64..) {
            if ends.load(Ordering::Relaxed) || per_second == 0 {
                break;
            }
            while sent as f64 > seconds() * per_second as f64 {
                self.clock.sleep(Duration::from_millis(1));
            }
            calls.push(self.send(vec![report(place, nth)?])?, 1000)?;
            sent += 1;
        }
        calls.end()?;
        Ok(sent as f64 / seconds())
    }
}

fn day_report(object: u32, nth: usize, around: Position) -> Result<Report> {
    let (lat, lon) = around.degrees();
    let (sin, cos) = (nth as f64 / 100.0).sin_cos();
    let position = Position::of_degrees(lat + 0.005 * sin, lon + 0.01 * cos)?;
    Ok(Report {
        entity: day_name(object)?,
        time: Some(Time(BEGIN.0 - 86_400 * SECOND + nth as i64 * 10 * SECOND)),
        point: Point::at(position),
    })
}
