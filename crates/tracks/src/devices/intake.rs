//! Intake of devices' messages: reports go to the shards until they are durable; results are
//! counted and reported.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use base::clock::Clock;
use base::metrics::{Kind, Metrics};
use base::{Error, ErrorKind, Result};
use tokio::sync::oneshot;

use super::{Heard, LeftOut, Reason, Unusable};
use crate::fleets;
use crate::model::name::Name;
use crate::model::report::Report;
use crate::notices::Notices;
use crate::service::Tracks;
use crate::write::{Ack, Answer, Outcome, Ticket};

/// How long to wait for a write that tells whether the store takes any.
const STORE_TIMEOUT: Duration = Duration::from_secs(10);

/// The protocol of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// OwnTracks over HTTP.
    OwnTracks,
    /// OsmAnd's query.
    OsmAnd,
    /// Traccar Client's JSON.
    Traccar,
    /// OwnTracks over MQTT.
    Mqtt,
}

/// The result of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It was stored.
    Stored,
    /// It was stored already.
    Same,
    /// It has no fix.
    NoFix,
    /// It has no position.
    NoPosition,
    /// It is of another type than a position.
    OtherType,
    /// It can never be stored: its content or its clock is wrong.
    Refused,
    /// It has no name, or is encrypted.
    Unusable,
    /// The store did not take it; the device will send it again.
    Failed,
}

const PROTOCOLS: [&str; 4] = ["owntracks", "osmand", "traccar", "mqtt"];
const FATES: [&str; 8] = [
    "stored",
    "same",
    "no_fix",
    "no_position",
    "other_type",
    "refused",
    "unusable",
    "failed",
];

/// Counters of messages.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    fates: [[AtomicU64; FATES.len()]; PROTOCOLS.len()],
    left_out: AtomicU64,
    /// Messages of the broker that were acknowledged but not stored, because they failed
    /// repeatedly.
    given_up: AtomicU64,
    /// Whether the broker is connected; negative if none is configured.
    pub(crate) broker: AtomicI64,
    /// How often the connection to the broker was lost.
    pub(crate) broker_lost: AtomicU64,
    /// Messages of the broker that are not acknowledged yet.
    pub(crate) broker_in_flight: AtomicI64,
}

impl Counts {
    fn new() -> Self {
        Self {
            broker: AtomicI64::new(-1),
            ..Self::default()
        }
    }

    fn add(&self, protocol: Protocol, fate: Fate) {
        let count = self
            .fates
            .get(protocol as usize)
            .and_then(|all| all.get(fate as usize));
        if let Some(count) = count {
            count.fetch_add(1, Relaxed);
        }
    }

    /// The counters in the text format of Prometheus.
    pub(crate) fn text(&self) -> String {
        let mut m = Metrics::default();
        let help = "Messages of phones and trackers by what became of them";
        m.family("tracks_device_messages_total", Kind::Counter, help);
        for (protocol, fates) in PROTOCOLS.iter().zip(&self.fates) {
            for (fate, count) in FATES.iter().zip(fates) {
                m.sample(
                    &[("protocol", protocol), ("outcome", fate)],
                    count.load(Relaxed),
                );
            }
        }
        let help = "Fields of stored messages that were out of range, or too long for attributes";
        m.family("tracks_device_fields_left_out_total", Kind::Counter, help);
        m.sample(&[], self.left_out.load(Relaxed));
        let broker = self.broker.load(Relaxed);
        if broker >= 0 {
            m.family(
                "tracks_mqtt_connected",
                Kind::Gauge,
                "Whether the broker is reached",
            );
            m.sample(&[], broker);
            let help = "Connections to the broker that ended, or did not come to be";
            m.family("tracks_mqtt_connections_lost_total", Kind::Counter, help);
            m.sample(&[], self.broker_lost.load(Relaxed));
            let help = "Messages of the broker that are not acknowledged yet";
            m.family("tracks_mqtt_in_flight", Kind::Gauge, help);
            m.sample(&[], self.broker_in_flight.load(Relaxed));
            let help = "Messages of the broker that were acknowledged and not stored, as they failed again and again";
            m.family("tracks_mqtt_given_up_total", Kind::Counter, help);
            m.sample(&[], self.given_up.load(Relaxed));
        }
        m.text()
    }
}

/// Takes messages of devices.
pub struct Intake {
    tracks: Arc<Tracks>,
    /// The fleet of messages that name no other.
    fleet: Name,
    clock: Arc<dyn Clock>,
    notices: Notices,
    counts: Counts,
}

impl fmt::Debug for Intake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Intake({})", self.fleet)
    }
}

/// A report in progress.
#[derive(Debug)]
pub(crate) struct Pending {
    protocol: Protocol,
    entity: Name,
    left_out: LeftOut,
    ticket: Ticket,
}

impl Intake {
    /// An intake whose default fleet is `fleet`.
    pub fn new(tracks: Arc<Tracks>, fleet: Name, clock: Arc<dyn Clock>, notices: Notices) -> Self {
        Self {
            tracks,
            fleet,
            clock,
            notices,
            counts: Counts::new(),
        }
    }

    pub(crate) fn fleet(&self) -> &Name {
        &self.fleet
    }

    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    pub(crate) fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Writes a notice for the operator; see [`Notices`].
    pub(crate) fn say(&self, kind: &'static str, text: &str) {
        self.notices.say(kind, self.clock.monotonic_nanos(), text);
    }

    /// Counts and reports a message that cannot be read with the device's settings.
    pub(crate) fn unusable(&self, protocol: Protocol, why: Unusable) {
        self.counts.add(protocol, Fate::Unusable);
        self.say("unusable", why.advice());
    }

    /// Returns the report of a message, if it has one; any other message is counted here.
    pub(crate) fn sort(&self, protocol: Protocol, heard: Heard) -> Option<(Report, LeftOut)> {
        let fate = match heard {
            Heard::Report(report, left_out) => return Some((*report, left_out)),
            Heard::Nothing(Reason::NoFix) => Fate::NoFix,
            Heard::Nothing(Reason::NoPosition) => Fate::NoPosition,
            Heard::Nothing(Reason::OtherType) => Fate::OtherType,
            Heard::Wrong(why) => {
                let name = PROTOCOLS.get(protocol as usize).unwrap_or(&"");
                self.say(
                    "wrong",
                    &format!("a message of {name} is acknowledged and not stored: {why}"),
                );
                Fate::Refused
            }
        };
        self.counts.add(protocol, fate);
        None
    }

    /// Passes a report to the shards. An unknown fleet is made; then the call may block. Errors:
    /// `Busy` if too many are in progress; `NotFound` if fleets are fixed and there is none with
    /// this name; the store's.
    pub(crate) fn submit(
        &self,
        protocol: Protocol,
        fleet: &Name,
        (report, left_out): (Report, LeftOut),
    ) -> Result<Pending> {
        let entity = report.entity.clone();
        let ticket = self.tracks.report(fleet, vec![report], Ack::Durable);
        let ticket = ticket.inspect_err(|_| self.counts.add(protocol, Fate::Failed))?;
        Ok(Pending {
            protocol,
            entity,
            left_out,
            ticket,
        })
    }

    /// Waits until a report is durable, or is known to be impossible to store. Errors: the store
    /// failed, and the device has to send it again.
    pub(crate) async fn end(&self, pending: Pending) -> Result<Fate> {
        let Pending {
            protocol,
            entity,
            left_out,
            ticket,
        } = pending;
        let answered = Guard {
            counts: &self.counts,
            protocol,
            is_done: false,
        };
        let fate = self.fate(&entity, ticket.await);
        answered.done();
        let fate = fate.inspect_err(|_| self.counts.add(protocol, Fate::Failed))?;
        if fate == Fate::Stored {
            self.counts.left_out.fetch_add(left_out.0 as u64, Relaxed);
        }
        self.counts.add(protocol, fate);
        Ok(fate)
    }

    /// Counts a message that is given up: not stored, and not tried again. Each one is reported.
    pub(crate) fn give_up(&self, text: &str) {
        self.counts.given_up.fetch_add(1, Relaxed);
        self.notices.say_each(text);
    }

    /// Returns once a write of existing content is durable. Errors: the store takes no writes, or
    /// does not answer for ten seconds.
    pub(crate) async fn check_store(&self) -> Result<()> {
        let (sender, told) = oneshot::channel();
        let tracks = Arc::clone(&self.tracks);
        let write = tokio::task::spawn_blocking(move || {
            // If nobody waits any more, it has taken too long.
            let told = move |_, result| drop(sender.send(result));
            fleets::write_again(&**tracks.store(), Box::new(told))
        });
        let done = tokio::time::timeout(STORE_TIMEOUT, async {
            write.await.map_err(Error::broken)??;
            told.await.map_err(Error::broken)?
        });
        done.await.map_err(|_| {
            Error::new(
                ErrorKind::TimedOut,
                format!("the store has written nothing within {STORE_TIMEOUT:?}"),
            )
        })?
    }

    fn fate(&self, entity: &Name, answer: Answer) -> Result<Fate> {
        let mut outcomes = answer.outcomes.into_iter();
        match outcomes.next() {
            Some(Ok(Outcome::Moved | Outcome::Late)) => Ok(Fate::Stored),
            Some(Ok(Outcome::Same)) => Ok(Fate::Same),
            // Not `NotSupported`: a read-only store returns that, too.
            Some(Err(e)) if e.kind() == ErrorKind::InvalidArgument => {
                let why = super::fields::said(&e);
                self.say(
                    "refused",
                    &format!("a report of {entity} is acknowledged and not stored: {why}"),
                );
                Ok(Fate::Refused)
            }
            Some(Err(e)) => Err(e),
            None => Err(Error::broken("a report without an outcome")),
        }
    }
}

/// Counts a report as failed unless it was answered: its caller may be gone.
struct Guard<'a> {
    counts: &'a Counts,
    protocol: Protocol,
    is_done: bool,
}

impl Guard<'_> {
    fn done(mut self) {
        self.is_done = true;
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if !self.is_done {
            self.counts.add(self.protocol, Fate::Failed);
        }
    }
}
