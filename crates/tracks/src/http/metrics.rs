//! Counters of calls, for Prometheus.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

use base::metrics::{Kind, Metrics};
use base::sync::{Mutex, PoisonError};

use super::App;

/// Upper bounds of the histogram of report latencies, seconds.
const BOUNDS: [f64; 12] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0,
];

/// The number of reports with each result.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Outcomes {
    /// They moved their entity.
    pub(crate) moved: usize,
    pub(crate) late: usize,
    pub(crate) same: usize,
    pub(crate) refused: usize,
    /// Reports that the store did not take.
    pub(crate) failed: usize,
}

#[derive(Debug, Default)]
struct Histogram {
    counts: [AtomicU64; BOUNDS.len()],
    count: AtomicU64,
    nanos: AtomicU64,
}

impl Histogram {
    fn add(&self, nanos: u64) {
        let seconds = nanos as f64 / 1e9;
        let of_bound = BOUNDS.iter().zip(&self.counts);
        if let Some((_, count)) = of_bound.into_iter().find(|(bound, _)| seconds <= **bound) {
            count.fetch_add(1, Relaxed);
        }
        self.count.fetch_add(1, Relaxed);
        self.nanos.fetch_add(nanos, Relaxed);
    }

    fn write(&self, m: &mut Metrics, ack: &str) {
        let mut sum = 0;
        for (bound, count) in BOUNDS.iter().zip(&self.counts) {
            sum += count.load(Relaxed);
            let le = bound.to_string();
            m.sample_of("_bucket", &[("ack", ack), ("le", &le)], sum);
        }
        let count = self.count.load(Relaxed).max(sum);
        m.sample_of("_bucket", &[("ack", ack), ("le", "+Inf")], count);
        let seconds = self.nanos.load(Relaxed) as f64 / 1e9;
        m.sample_of("_sum", &[("ack", ack)], seconds);
        m.sample_of("_count", &[("ack", ack)], count);
    }
}

/// The counters of all calls.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    requests: Mutex<BTreeMap<(&'static str, u16), u64>>,
    pub(crate) requests_in_flight: AtomicI64,
    pub(crate) connections: AtomicI64,
    pub(crate) connections_refused: AtomicU64,
    pub(crate) handshakes_failed: AtomicU64,
    reports: [AtomicU64; 5],
    acks: [Histogram; 2],
    rows: AtomicU64,
    hits: AtomicU64,
}

const OUTCOMES: [&str; 5] = ["moved", "late", "same", "refused", "failed"];
const ACKS: [&str; 2] = ["durable", "visible"];

impl Counts {
    pub(crate) fn request(&self, route: &'static str, status: u16) {
        let mut all = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        *all.entry((route, status)).or_default() += 1;
    }

    pub(crate) fn reports(&self, of: &Outcomes) {
        let all = [of.moved, of.late, of.same, of.refused, of.failed];
        for (count, more) in self.reports.iter().zip(all) {
            count.fetch_add(more as u64, Relaxed);
        }
    }

    pub(crate) fn ack(&self, is_durable: bool, nanos: u64) {
        let [durable, visible] = &self.acks;
        let ack = if is_durable { durable } else { visible };
        ack.add(nanos);
    }

    pub(crate) fn query(&self, rows: u64, hits: u64) {
        self.rows.fetch_add(rows, Relaxed);
        self.hits.fetch_add(hits, Relaxed);
    }

    /// All counters in the text format of Prometheus, with the number of reports in progress.
    pub(crate) fn text(&self, reports_in_flight: usize) -> String {
        let mut m = Metrics::default();
        m.family("tracks_requests_total", Kind::Counter, "Answered requests");
        let all = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        for ((route, status), count) in &*all {
            let status = status.to_string();
            m.sample(&[("route", route), ("status", &status)], count);
        }
        drop(all);
        let gauges = [
            (
                "tracks_requests_in_flight",
                "Requests that are not answered yet",
                &self.requests_in_flight,
            ),
            ("tracks_connections", "Open connections", &self.connections),
        ];
        for (name, help, gauge) in gauges {
            m.family(name, Kind::Gauge, help);
            m.sample(&[], gauge.load(Relaxed));
        }
        m.family(
            "tracks_connections_refused_total",
            Kind::Counter,
            "Connections that were refused, as there were too many",
        );
        m.sample(&[], self.connections_refused.load(Relaxed));
        m.family(
            "tracks_handshakes_failed_total",
            Kind::Counter,
            "Connections that did not become TLS in time",
        );
        m.sample(&[], self.handshakes_failed.load(Relaxed));
        m.family(
            "tracks_reports_total",
            Kind::Counter,
            "Reports by what became of them",
        );
        for (outcome, count) in OUTCOMES.iter().zip(&self.reports) {
            m.sample(&[("outcome", outcome)], count.load(Relaxed));
        }
        m.family(
            "tracks_reports_in_flight",
            Kind::Gauge,
            "Reports that wait, or are on their way to the device",
        );
        m.sample(&[], reports_in_flight);
        m.family(
            "tracks_ack_seconds",
            Kind::Histogram,
            "Times from a call's reports to their answer",
        );
        for (ack, histogram) in ACKS.iter().zip(&self.acks) {
            histogram.write(&mut m, ack);
        }
        m.family(
            "tracks_query_rows_total",
            Kind::Counter,
            "Rows that queries have read",
        );
        m.sample(&[], self.rows.load(Relaxed));
        m.family(
            "tracks_query_hits_total",
            Kind::Counter,
            "Results of queries",
        );
        m.sample(&[], self.hits.load(Relaxed));
        m.text()
    }
}

/// The metrics of fences, streams and webhooks.
pub(crate) fn of_fences(app: &App) -> String {
    let mut m = Metrics::default();
    let events = app.tracks.events();
    let now = app.clock.wall_micros();
    let age = |id: Option<u64>| id.map_or(0.0, |id| now.saturating_sub(id) as f64 / 1e6);
    let mut one = |name: &str, kind: Kind, help: &str, value: f64| {
        m.family(name, kind, help);
        m.sample(&[], value);
    };
    let fences = app.tracks.fences().count();
    one("tracks_fences", Kind::Gauge, "Fences", fences as f64);
    let through = events.given_out();
    one(
        "tracks_events_id",
        Kind::Gauge,
        "Up to which id events are given out, microseconds since 1970",
        through as f64,
    );
    one(
        "tracks_events_lag_seconds",
        Kind::Gauge,
        "Age of the oldest event that is not given out yet, as it is not durable",
        age(events.first_waiting()),
    );
    let streams = app.streams.taken();
    one(
        "tracks_streams",
        Kind::Gauge,
        "Open streams",
        streams as f64,
    );
    let (coalesced, dropped) = app.positions.lost(app.tracks.live());
    one(
        "tracks_stream_positions_coalesced_total",
        Kind::Counter,
        "Positions that newer ones of their entities replaced before somebody took them",
        coalesced as f64,
    );
    one(
        "tracks_stream_positions_dropped_total",
        Kind::Counter,
        "Positions that were left out of streams, as too many waited",
        dropped as f64,
    );
    let (delivered, failed) = app.webhooks.counts();
    m.family(
        "tracks_webhook_deliveries_total",
        Kind::Counter,
        "Deliveries to webhooks by what became of them",
    );
    m.sample(&[("outcome", "taken")], delivered);
    m.sample(&[("outcome", "failed")], failed);
    of_webhooks(app, &mut m, age);
    m.text()
}

fn of_webhooks(app: &App, m: &mut Metrics, age: impl Fn(Option<u64>) -> f64) {
    let hooks = app.webhooks.all();
    let states: Vec<_> = hooks.iter().map(|hook| hook.health()).collect();
    m.family(
        "tracks_webhook_lag_seconds",
        Kind::Gauge,
        "Age of the oldest event that a webhook has not taken",
    );
    for health in &states {
        let labels = [("fleet", &*health.fleet), ("webhook", &*health.name)];
        m.sample(&labels, age(health.first_waiting));
    }
    m.family(
        "tracks_webhook_failures",
        Kind::Gauge,
        "Deliveries of a webhook that failed since one was taken",
    );
    for health in &states {
        let labels = [("fleet", &*health.fleet), ("webhook", &*health.name)];
        m.sample(&labels, health.failures);
    }
    m.family(
        "tracks_webhook_disabled",
        Kind::Gauge,
        "Whether a webhook gets nothing any more",
    );
    for health in &states {
        let labels = [("fleet", &*health.fleet), ("webhook", &*health.name)];
        m.sample(&labels, u8::from(health.is_disabled));
    }
}
