//! The claims that must hold, judged for a report.
//!
//! Each figure is computed within a pair, whose runs follow each other; the median over the pairs
//! is judged.

use super::data::{Claim, Measurement, Report, Verdict};
use super::place::Disks;
use super::plan::{self, Task};
use super::target::Kind;
use crate::limit::Limit;
use crate::spread::Spread;

/// Limits in MiB: the dirty blocks of a store, and the memory of its process beyond that.
const DIRTY_MAX_MIB: f64 = 256.0;
const MEMORY_BESIDE_MIB: f64 = 200.0;
/// The most by which a write may exceed the sum of its parts, in microseconds.
const SLACK_MICROS: f64 = 60.0;
/// The tail that is always allowed, and the most by which a tail may exceed that of the disk, as
/// factors.
const TAIL: f64 = 3.0;
const TAIL_OF_DISK: f64 = 1.5;
/// The least number of checkpoints in a run of `modes`.
const CHECKPOINTS: f64 = 20.0;
/// The least volume, and the least payload, for judging the write amplification.
const VOLUME_BYTES: u64 = 10 << 30;
const PAYLOAD_BYTES: u64 = 1 << 30;

/// The claims of a task, for the disks on which it was measured.
pub(super) fn of(task: Task, report: &Report) -> Vec<Claim> {
    let mut disks: Vec<&str> = Vec::new();
    let named = report.measurements.iter().map(|m| m.disks.as_str());
    for name in named.chain(report.absent.iter().map(|a| a.disks.as_str())) {
        if !disks.contains(&name) {
            disks.push(name);
        }
    }
    disks
        .into_iter()
        .flat_map(|disks| {
            let judge = Judge { report, disks };
            match task {
                Task::Seed => judge.seed(),
                Task::Floor => judge.floor(),
                Task::Modes => judge.modes(),
            }
        })
        .collect()
}

struct Judge<'a> {
    report: &'a Report,
    disks: &'a str,
}

/// A target, and one of its jobs.
type Side<'a> = (Kind, &'a str);

impl Judge<'_> {
    fn seed(&self) -> Vec<Claim> {
        let [deep, single, large] = plan::SEED_WRITES.map(|job| job.named().name);
        let published = |ssd: &str, hdd: &str| {
            if self.disks == Disks::Hdd.name() {
                format!("the seed on HDD: {hdd}")
            } else {
                format!("the seed on SSD: {ssd}")
            }
        };
        let mut all = vec![
            self.over_odsync(
                &deep,
                1.5,
                published("2.14", "1.05 with a write-back controller, 1.21 without"),
            ),
            self.over_odsync(
                &single,
                1.2,
                published("1.33", "1.01 with a write-back controller, 1.81 without"),
            ),
            self.over_odsync(
                &large,
                1.1,
                published("1.38", "0.86 with a write-back controller"),
            ),
        ];
        if self.is_loop() {
            return all;
        }
        let [read, deep_read] = plan::SEED_READS.map(|job| job.named().name);
        all.extend([
            self.rate(
                &format!("{deep}: over the single copy"),
                &deep,
                Kind::Single,
                0.35,
            ),
            self.rate(
                &format!("{deep}: over the quorum"),
                &deep,
                Kind::Quorum,
                2.0,
            ),
            self.cpu(&deep),
            self.sequential(&large),
            self.rate(
                &format!("{read}: over the single copy"),
                &read,
                Kind::Single,
                0.6,
            ),
            self.rate(
                &format!("{deep_read}: over the single copy"),
                &deep_read,
                Kind::Single,
                0.5,
            ),
            self.memory(),
        ]);
        all
    }

    fn floor(&self) -> Vec<Claim> {
        if self.is_loop() {
            return self.counts();
        }
        let [deep, single] = [plan::DEEP, plan::SINGLE].map(|job| job.named().name);
        let parts = [
            (Kind::Files, plan::WRITERS),
            (Kind::Null, single.as_str()),
            (Kind::Files, plan::PING),
        ];
        let own = self.report.of(self.disks, Kind::Background, &single);
        let over: Vec<f64> = own
            .filter_map(|m| {
                let [w, r, p] = parts.map(|side| self.pair(side, m.pair).map(|m| m.p50_micros));
                Some(m.p50_micros - (w? + r? + 2.0 * p?))
            })
            .collect();
        let of = |side: Side<'_>| {
            let found = self
                .report
                .spread((self.disks, side.0, side.1), |m| Some(m.p50_micros));
            found.map_or("–".to_owned(), |s| format!("{:.0}", s.median))
        };
        let [w, r, p] = parts.map(of);
        let note = format!(
            "medians of p50, µs: Ironstone {}, W {w}, R {r}, P {p}",
            of((Kind::Background, &single))
        );
        vec![
            self.judge(
                format!("{single}: p50 − (W + R + 2 P)"),
                Limit::AtMost(SLACK_MICROS),
                " µs",
                over,
                &[Kind::Background],
                note,
            ),
            self.cpu(&deep),
            self.memory(),
        ]
    }

    fn counts(&self) -> Vec<Claim> {
        let job = plan::SINGLE.named().name;
        let values = |of: fn(&Measurement) -> Option<f64>| {
            self.report
                .of(self.disks, Kind::Background, &job)
                .filter_map(of)
                .collect::<Vec<_>>()
        };
        let ours: &[Kind] = &[Kind::Background];
        let mut all = vec![self.judge(
            format!("{job}: log writes for a write and replica"),
            Limit::AtMost(1.05),
            "",
            values(|m| m.log_writes),
            ours,
            "writes of the log, those with checkpoints included".to_owned(),
        )];
        if self.disks == Disks::LoopVolatile.name() {
            all.push(self.judge(
                format!("{job}: flushes for a write and replica"),
                Limit::AtMost(1.05),
                "",
                values(|m| Some(m.device?.flushes)),
                ours,
                "until everything was written back".to_owned(),
            ));
        }
        let mut written = self.judge(
            format!("{job}: bytes written for a byte of payload and replica"),
            Limit::AtMost(2.6),
            "",
            values(|m| Some(m.device?.amplification)),
            ours,
            "until everything was written back".to_owned(),
        );
        let settings = &self.report.settings;
        if settings.size_bytes < VOLUME_BYTES || settings.count_bytes < PAYLOAD_BYTES {
            written.note += "; judged for a volume of 10 GiB and 1 GiB written";
            if matches!(written.verdict, Verdict::Holds | Verdict::Fails) {
                written.verdict = Verdict::NotMeasured;
            }
        }
        all.push(written);
        all
    }

    fn modes(&self) -> Vec<Claim> {
        let mut all = Vec::new();
        for job in [plan::SINGLE, plan::DEEP].map(|job| job.named().name) {
            let of = |kind, what: fn(&Measurement) -> Option<f64>| {
                self.report.spread((self.disks, kind, &job), what)
            };
            let tail: fn(&Measurement) -> Option<f64> = |m| Some(m.tail());
            let pattern = plan::pattern(&job);
            let case = (self.disks, Kind::Files, pattern.as_str());
            let disk = self.report.spread(case, tail).map(|s| s.median);
            let limit = disk.map_or(TAIL, |own| TAIL.max(TAIL_OF_DISK * own));
            let beside = |what| {
                [Kind::Snapshot, Kind::Odsync].map(|kind| {
                    let found = of(kind, what).map_or("–".to_owned(), |s| s.text());
                    format!("{} {found}", kind.name())
                })
            };
            let values = |what: fn(&Measurement) -> Option<f64>| {
                self.report
                    .of(self.disks, Kind::Background, &job)
                    .filter_map(what)
                    .collect::<Vec<_>>()
            };
            let mut note = beside(tail).join(", ");
            if let Some(own) = disk {
                note += &format!(", the disk itself {own:.2}");
            }
            let limit = Limit::AtMost((limit * 100.0).round() / 100.0);
            let mut claims = [
                self.judge(
                    format!("{job}: p99.9 over p50"),
                    limit,
                    "",
                    values(tail),
                    &[Kind::Background],
                    note,
                ),
                self.judge(
                    format!("{job}: worst second over the mean"),
                    Limit::AtLeast(0.7),
                    "",
                    values(Measurement::worst_second),
                    &[Kind::Background],
                    beside(Measurement::worst_second).join(", "),
                ),
            ];
            let checkpoints = of(Kind::Background, |m| m.checkpoints);
            for claim in &mut claims {
                let seen = checkpoints.map_or(0.0, |s| s.low);
                claim.note += &format!("; {seen:.0} checkpoints");
                if seen < CHECKPOINTS && matches!(claim.verdict, Verdict::Holds | Verdict::Fails) {
                    claim.verdict = Verdict::NotMeasured;
                    claim.note += ", too few: more --seconds";
                }
            }
            all.extend(claims);
        }
        if !self.is_loop() {
            all.push(self.memory());
        }
        all
    }

    fn is_loop(&self) -> bool {
        self.disks != Disks::Dir.name()
    }

    /// The measurement of a pair.
    fn pair<'s>(&'s self, (kind, job): Side<'s>, pair: u32) -> Option<&'s Measurement> {
        self.report
            .of(self.disks, kind, job)
            .find(|m| m.pair == pair)
    }

    /// The ratios within each pair.
    fn ratios(
        &self,
        ours: Side<'_>,
        theirs: Side<'_>,
        of: impl Fn(&Measurement) -> f64,
    ) -> Vec<f64> {
        self.report
            .of(self.disks, ours.0, ours.1)
            .filter_map(|m| Some(of(m) / of(self.pair(theirs, m.pair)?)))
            .collect()
    }

    fn over_odsync(&self, job: &str, bound: f64, note: String) -> Claim {
        let sides = [(Kind::Background, job), (Kind::Odsync, job)];
        let ratios = self.ratios(sides[0], sides[1], |m| m.per_second);
        self.judge(
            format!("{job}: background over odsync"),
            Limit::AtLeast(bound),
            "",
            ratios,
            &[Kind::Background, Kind::Odsync],
            note,
        )
    }

    /// Operations per second over those of another target.
    fn rate(&self, what: &str, job: &str, other: Kind, bound: f64) -> Claim {
        let ours = (Kind::Background, job);
        let ratios = self.ratios(ours, (other, job), |m| m.per_second);
        let limit = Limit::AtLeast(bound);
        self.judge(
            what.to_owned(),
            limit,
            "",
            ratios,
            &[ours.0, other],
            String::new(),
        )
    }

    fn cpu(&self, job: &str) -> Claim {
        let own = self.report.of(self.disks, Kind::Background, job);
        self.judge(
            format!("{job}: processor time of all processes for a write"),
            Limit::AtMost(80.0),
            " µs",
            own.filter_map(|m| m.cpu_micros).collect(),
            &[Kind::Background],
            String::new(),
        )
    }

    /// Judged against a sixth of the disk's rate, because there are three copies, each written twice.
    fn sequential(&self, job: &str) -> Claim {
        let sequential = plan::SEQUENTIAL.named().name;
        let ratios = self.ratios((Kind::Background, job), (Kind::Files, &sequential), |m| {
            m.mib_per_second
        });
        self.judge(
            format!("{job}: over a sixth of sequential writes"),
            Limit::AtLeast(0.75),
            "",
            ratios.into_iter().map(|r| r * 6.0).collect(),
            &[Kind::Background],
            String::new(),
        )
    }

    fn memory(&self) -> Claim {
        let own = self.report.measurements.iter();
        let own = own.filter(|m| m.disks == self.disks && m.target == Kind::Background);
        let most = own.filter_map(|m| m.store_memory_mib).reduce(f64::max);
        self.judge(
            "Memory of a store's process, the most of all".to_owned(),
            Limit::AtMost(DIRTY_MAX_MIB + MEMORY_BESIDE_MIB),
            " MiB",
            most.into_iter().collect(),
            &[Kind::Background],
            format!("dirty_bytes_max is {DIRTY_MAX_MIB} MiB"),
        )
    }

    fn judge(
        &self,
        what: String,
        limit: Limit,
        unit: &str,
        values: Vec<f64>,
        needs: &[Kind],
        note: String,
    ) -> Claim {
        let pairs = values.len();
        let figure = Spread::some(values.into_iter());
        let absent = |a: &&super::data::Missing| a.disks == self.disks && needs.contains(&a.target);
        let absent = self.report.absent.iter().find(absent);
        let (verdict, note) = match (figure, absent) {
            (Some(figure), _) if limit.holds(figure.median) => (Verdict::Holds, note),
            (Some(_), _) => (Verdict::Fails, note),
            (None, Some(absent)) => {
                let why = format!("{}: {}", absent.target.name(), absent.why);
                let parts = [note, why].into_iter().filter(|part| !part.is_empty());
                (Verdict::NotBuilt, parts.collect::<Vec<_>>().join("; "))
            }
            (None, None) => (Verdict::NotMeasured, note),
        };
        Claim {
            disks: self.disks.to_owned(),
            what,
            limit: limit.text(unit),
            figure: figure.map(|f| [f.median, f.low, f.high]),
            pairs,
            verdict,
            note,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block_store::data::Missing;
    use crate::block_store::data::tests::report;

    fn named(claims: &[Claim], start: &str) -> Claim {
        let found = claims.iter().find(|c| c.what.starts_with(start));
        found.unwrap_or_else(|| panic!("no {start}")).clone()
    }

    #[test]
    fn ratios_are_of_a_pair() {
        let job = "4k randwrite QD128";
        let report = report(&[
            (Kind::Background, job, 1, 300.0, 1.0),
            (Kind::Odsync, job, 1, 100.0, 1.0),
            (Kind::Background, job, 2, 100.0, 1.0),
            (Kind::Odsync, job, 2, 100.0, 1.0),
            (Kind::Background, job, 3, 800.0, 1.0),
            (Kind::Odsync, job, 3, 400.0, 1.0),
            (Kind::Single, job, 3, 3200.0, 1.0),
        ]);
        let claims = of(Task::Seed, &report);
        let over = named(&claims, "4k randwrite QD128: background over odsync");
        assert_eq!(over.figure, Some([2.0, 1.0, 3.0]));
        assert_eq!((over.verdict, over.pairs), (Verdict::Holds, 3));
        assert!(over.note.contains("2.14"));
        let single = named(&claims, "4k randwrite QD128: over the single copy");
        assert_eq!(
            (single.figure, single.verdict),
            (Some([0.25; 3]), Verdict::Fails)
        );
        let read = named(&claims, "4k randread QD1: over");
        assert_eq!(read.verdict, Verdict::NotMeasured);
    }

    #[test]
    fn what_is_not_built_is_not_judged() {
        let mut report = report(&[(Kind::Background, "4k randwrite QD1", 1, 300.0, 1.0)]);
        report.absent.push(Missing {
            disks: "own disk".to_owned(),
            target: Kind::Odsync,
            why: "refused".to_owned(),
        });
        let over = named(&of(Task::Seed, &report), "4k randwrite QD1: background");
        assert_eq!(over.verdict, Verdict::NotBuilt);
        assert!(over.note.ends_with("odsync: refused"), "{}", over.note);
    }

    #[test]
    fn the_floor_is_made_of_its_parts() {
        let job = "4k randwrite QD1";
        let report = report(&[
            (Kind::Background, job, 1, 300.0, 250.0),
            (Kind::Null, job, 1, 300.0, 50.0),
            (Kind::Files, plan::WRITERS, 1, 300.0, 90.0),
            (Kind::Files, plan::PING, 1, 300.0, 20.0),
        ]);
        let claims = of(Task::Floor, &report);
        let over = named(&claims, job);
        assert_eq!(
            (over.figure, over.verdict),
            (Some([70.0; 3]), Verdict::Fails)
        );
        assert!(
            over.note.contains("Ironstone 250, W 90, R 50, P 20"),
            "{}",
            over.note
        );
    }

    #[test]
    fn tails_may_be_as_long_as_the_disks() {
        let job = "4k randwrite QD1";
        let pattern = plan::pattern(job);
        let mut report = report(&[
            (Kind::Background, job, 1, 300.0, 1.0),
            (Kind::Files, &pattern, 1, 300.0, 1.0),
        ]);
        let tail = named(&of(Task::Modes, &report), "4k randwrite QD1: p99.9");
        assert_eq!(tail.verdict, Verdict::NotMeasured, "no checkpoints");
        report.measurements[0].checkpoints = Some(20.0);
        let tail = named(&of(Task::Modes, &report), "4k randwrite QD1: p99.9");
        assert_eq!((tail.verdict, tail.limit.as_str()), (Verdict::Holds, "≤ 6"));
        report.measurements[1].p99_9_micros = 1.0;
        let claims = of(Task::Modes, &report);
        let tail = named(&claims, "4k randwrite QD1: p99.9");
        assert_eq!((tail.verdict, tail.limit.as_str()), (Verdict::Fails, "≤ 3"));
        let worst = named(&claims, "4k randwrite QD1: worst second");
        assert_eq!(worst.verdict, Verdict::Holds);
    }
}
