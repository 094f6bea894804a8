//! `ctl top`: rates of a cluster, printed repeatedly; and the line of `dev`.

use std::time::Duration;

use base::Result;
use base::clock::{Clock, SystemClock};
use comfy_table::Table;
use serde::Serialize;

use crate::cluster::Cluster;
use crate::ctl::{Found, look};
use crate::size::about;
use crate::status::{Chunk, Nbd};
use crate::{cli, print};

/// Rates of a store since the previous status.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Rates {
    store: u64,
    leaders: u64,
    writes_per_second: f64,
    reads_per_second: f64,
    written_bytes_per_second: f64,
    log_batches_per_second: f64,
    log_bytes_per_second: f64,
    flusher_bytes_per_second: f64,
    queue_us: f64,
    log_us: f64,
    peers_us: f64,
    apply_us: f64,
    dirty_bytes: u64,
    log_fill: f64,
}

impl Rates {
    fn between(a: &Chunk, b: &Chunk, seconds: f64) -> Self {
        let rate = |a: u64, b: u64| b.saturating_sub(a) as f64 / seconds;
        Self {
            store: b.store,
            leaders: b.leaders,
            writes_per_second: rate(a.writes, b.writes),
            reads_per_second: rate(a.reads, b.reads),
            written_bytes_per_second: rate(a.written_bytes, b.written_bytes),
            log_batches_per_second: rate(a.log_batches, b.log_batches),
            log_bytes_per_second: rate(a.log_bytes, b.log_bytes),
            flusher_bytes_per_second: rate(a.flusher_bytes, b.flusher_bytes),
            queue_us: b.queue.mean_us_since(a.queue),
            log_us: b.log.mean_us_since(a.log),
            peers_us: b.peers_time.mean_us_since(a.peers_time),
            apply_us: b.apply.mean_us_since(a.apply),
            dirty_bytes: b.dirty_bytes,
            log_fill: b.log_fill,
        }
    }
}

/// The status of a cluster, and the one before.
pub(crate) struct Looks {
    clock: std::sync::Arc<dyn Clock>,
    before: Option<(u64, Found)>,
}

impl Looks {
    pub(crate) fn new() -> Self {
        Self {
            clock: SystemClock::shared(),
            before: None,
        }
    }

    /// Asks again. Returns the seconds since the previous status, and both; `None` the first time.
    fn again(&mut self, cluster: &Cluster) -> Option<(f64, Found, &Found)> {
        let now = self.clock.monotonic_nanos();
        let found = look(cluster);
        let before = self.before.replace((now, found));
        let (then, old) = before?;
        let (_, found) = self.before.as_ref()?;
        Some(((now - then) as f64 / 1e9, old, found))
    }

    /// The line that `dev` shows.
    pub(crate) fn line(&mut self, cluster: &Cluster) -> Option<String> {
        let (seconds, old, new) = self.again(cluster)?;
        let nbd = match (&old.nbd, &new.nbd) {
            (Some(Ok(a)), Some(Ok(b))) => nbd_text(a, b, seconds),
            _ => "nbd does not answer".to_owned(),
        };
        let chunks = || new.chunks.iter().filter_map(|(_, c)| c.as_ref().ok());
        let dirty: u64 = chunks().map(|c| c.dirty_bytes).max().unwrap_or_default();
        let checkpoints: u64 = chunks().map(|c| c.checkpoints).sum();
        let fill = chunks().map(|c| c.log_fill).fold(0.0, f64::max);
        Some(format!(
            "{nbd}; dirty {}, log {:.0} %, {checkpoints} checkpoints",
            about(dirty),
            fill * 100.0
        ))
    }
}

fn nbd_text(a: &Nbd, b: &Nbd, seconds: f64) -> String {
    let rate = |a: u64, b: u64| b.saturating_sub(a) as f64 / seconds;
    format!(
        "writes {:.0}/s, {:.0} µs, {}/s; reads {:.0}/s, {:.0} µs",
        rate(a.writes, b.writes),
        b.write_time.mean_us_since(a.write_time),
        about(rate(a.written_bytes, b.written_bytes) as u64),
        rate(a.reads, b.reads),
        b.read_time.mean_us_since(a.read_time),
    )
}

/// Prints rates as often as requested.
pub(crate) fn run(args: &cli::Top) -> Result<()> {
    let cluster = Cluster::read(&args.cluster)?;
    let clock = SystemClock::shared();
    let mut looks = Looks::new();
    let mut printed = 0;
    while args.count.is_none_or(|count| printed < count) {
        if let Some((seconds, old, new)) = looks.again(&cluster) {
            let rates = rates(&old, new, seconds);
            let nbd = match (&old.nbd, &new.nbd) {
                (Some(Ok(a)), Some(Ok(b))) => nbd_text(a, b, seconds),
                _ => "nbd: no answer".to_owned(),
            };
            if args.json {
                print(&serde_json::json!({"seconds": seconds, "stores": json(&rates)}).to_string());
            } else {
                print(&format!("{}\n{nbd}", table(&rates)));
            }
            printed += 1;
        }
        clock.sleep(Duration::from_secs(args.interval));
    }
    Ok(())
}

/// The rates of each store, or why there are none.
type All = Vec<(u64, std::result::Result<Rates, String>)>;

fn rates(old: &Found, new: &Found, seconds: f64) -> All {
    let all = new.chunks.iter().map(|(id, now)| {
        let before = old.chunks.iter().find(|(old, _)| old == id);
        let rates = match (before, now) {
            (_, Err(e)) => Err(e.clone()),
            (Some((_, Ok(a))), Ok(b)) => Ok(Rates::between(a, b, seconds)),
            _ => Err("it did not answer before".to_owned()),
        };
        (*id, rates)
    });
    all.collect()
}

fn json(rates: &All) -> Vec<serde_json::Value> {
    let all = rates.iter().map(|(id, rates)| match rates {
        Ok(r) => serde_json::json!(r),
        Err(e) => serde_json::json!({"store": id, "error": e}),
    });
    all.collect()
}

fn table(rates: &All) -> Table {
    let mut table = Table::new();
    table.set_header([
        "store",
        "leads",
        "writes/s",
        "reads/s",
        "log/s",
        "log bytes/s",
        "back/s",
        "queue µs",
        "log µs",
        "peers µs",
        "apply µs",
        "dirty",
        "log full",
    ]);
    for (id, r) in rates {
        let r = match r {
            Ok(r) => r,
            Err(e) => {
                table.add_row([id.to_string(), e.clone()]);
                continue;
            }
        };
        let whole = |n: f64| format!("{n:.0}");
        let bytes = |n: f64| about(n as u64);
        table.add_row([
            r.store.to_string(),
            r.leaders.to_string(),
            whole(r.writes_per_second),
            whole(r.reads_per_second),
            whole(r.log_batches_per_second),
            bytes(r.log_bytes_per_second),
            bytes(r.flusher_bytes_per_second),
            whole(r.queue_us),
            whole(r.log_us),
            whole(r.peers_us),
            whole(r.apply_us),
            about(r.dirty_bytes),
            format!("{:.0} %", r.log_fill * 100.0),
        ]);
    }
    table
}
