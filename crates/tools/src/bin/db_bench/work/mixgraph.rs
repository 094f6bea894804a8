//! `mixgraph`: gets, puts and scans with the distributions that Cao, Dong, Vemuri and Du measured in a
//! social graph ("Characterizing, Modeling, and Benchmarking RocksDB Key-Value Workloads at Facebook",
//! FAST 2020).

use base::Result;
use base::rng::Rng;

use super::Worker;
use crate::engine::{Bounds, Cursor, Engine};
use crate::flags::Flags;
use crate::keys::Values;
use crate::stats::Op;

/// The shortest value, in bytes.
const VALUE_MIN: i64 = 10;

/// Which key an access is for.
enum Hotness {
    /// All alike.
    Even,
    /// Ranges of keys, with how hot each is: the sums of the weights up to each.
    Ranges { sums: Vec<f64>, size: u64 },
    /// The power of a key's rank.
    Power,
}

impl Hotness {
    fn new(flags: &Flags) -> Self {
        let two_terms = [
            (flags.keyrange_dist_a, flags.keyrange_dist_b),
            (flags.keyrange_dist_c, flags.keyrange_dist_d),
        ];
        if flags.key_dist_a == 0.0 || flags.key_dist_b == 0.0 {
            return Self::Even;
        }
        if two_terms == [(0.0, 0.0); 2] {
            return Self::Power;
        }
        let count = flags.keyrange_num.unsigned_abs().max(1);
        let weight = |x: u64| {
            let terms = two_terms.map(|(a, b)| a * (b * x as f64).exp());
            (terms[0] + terms[1]).max(0.0)
        };
        let mut weights: Vec<f64> = (1..=count).map(weight).collect();
        // Hot ranges lie anywhere, but in one place for one distribution.
        let mut rng = Rng::new(count);
        for i in (1..weights.len()).rev() {
            weights.swap(i, rng.below(i as u64 + 1) as usize);
        }
        let mut sum = 0.0;
        for weight in &mut weights {
            sum += *weight;
            *weight = sum;
        }
        let size = (flags.num.unsigned_abs() / count).max(1);
        Self::Ranges {
            sums: weights,
            size,
        }
    }

    /// The key that a random number stands for.
    fn key(&self, flags: &Flags, random: u64) -> u64 {
        let num = flags.num.unsigned_abs().max(1);
        // A key's rank, and the key that has it.
        let by_power = |share: f64, keys: u64| {
            let rank = (share / flags.key_dist_a)
                .powf(1.0 / flags.key_dist_b)
                .ceil();
            Rng::new(rank as u64).next_u64() % keys
        };
        match self {
            Self::Even => random % num,
            Self::Power => by_power((random % num) as f64 / num as f64, num),
            Self::Ranges { sums, size } => {
                let total = sums.last().copied().unwrap_or(0.0);
                let at = random as f64 / 2f64.powi(64) * total;
                let range = sums.partition_point(|&sum| sum <= at).min(sums.len() - 1);
                let share = (random % size) as f64 / *size as f64;
                size * range as u64 + by_power(share, *size)
            }
        }
    }
}

/// The value of a generalized Pareto distribution that the share `u` of values is not below.
fn pareto(u: f64, location: f64, shape: f64, scale: f64) -> i64 {
    let value = if shape == 0.0 {
        location - scale * u.ln()
    } else {
        location + scale * (u.powf(-shape) - 1.0) / shape
    };
    value.ceil() as i64
}

impl<E: Engine> Worker<'_, E> {
    /// Gets, puts and scans.
    pub(super) fn mixgraph(&mut self, values: &mut Values) -> Result<()> {
        let flags = self.flags;
        let hotness = Hotness::new(flags);
        let shares = [
            flags.mix_get_ratio,
            flags.mix_put_ratio,
            flags.mix_seek_ratio,
        ];
        let total: f64 = shares.iter().sum();
        let options = self.engine.write_options(self.plan.sync, flags.disable_wal);
        let (keys, mut limit) = (self.keys(), self.limit());
        let (mut key, mut scratch) = (keys.room(), Vec::with_capacity(self.plan.value_size));
        let (mut gets, mut puts, mut seeks, mut found) = (0u64, 0u64, 0u64, 0u64);
        let (mut bytes, mut put_bytes, mut scanned) = (0, 0, 0u64);
        while limit.take(1, &self.stats) {
            let random = self.rng.next_u64();
            let share = (random >> 11) as f64 / 2f64.powi(53);
            keys.write(hotness.key(flags, random), &mut key);
            let what = self.rng.next_u64() as f64 / 2f64.powi(64) * total;
            if what < shares[0] {
                gets += 1;
                if let Some(len) = self.engine.get(&key, &mut scratch)? {
                    found += 1;
                    bytes += key.len() + len;
                }
                self.stats.finished(1, Op::Read);
                self.pace_reads(1);
            } else if what < shares[0] + shares[1] {
                puts += 1;
                let (theta, k, sigma) = (flags.value_theta, flags.value_k, flags.value_sigma);
                let max = flags.mix_max_value_size;
                let len = match pareto(share, theta, k, sigma) {
                    ..VALUE_MIN => VALUE_MIN,
                    len if len > max => len % max,
                    len => len,
                };
                let value = values.take(len as usize);
                put_bytes += value.len();
                let written = key.len() + value.len();
                self.engine.put(&options, &key, value)?;
                self.stats.finished(1, Op::Write);
                self.pace_writes(written);
            } else {
                seeks += 1;
                let (theta, k, sigma) = (flags.iter_theta, flags.iter_k, flags.iter_sigma);
                let len = pareto(share, theta, k, sigma) % flags.mix_max_scan_len;
                let mut cursor = self.engine.cursor(Bounds::default())?;
                cursor.seek(&key);
                found += u64::from(cursor.valid() && cursor.key() == key);
                for _ in 0..len {
                    if !cursor.valid() {
                        break;
                    }
                    bytes += cursor.key().len() + cursor.value().len();
                    scanned += 1;
                    cursor.next();
                }
                cursor.status()?;
                self.stats.finished(1, Op::Seek);
                self.pace_reads(1);
            }
        }
        let mean = |sum: f64, count: u64| sum / count.max(1) as f64;
        let (value_mean, scan_mean) = (mean(put_bytes as f64, puts), mean(scanned as f64, seeks));
        let reads = gets + seeks;
        self.stats.add_bytes(bytes as u64);
        self.stats.add_message(&format!(
            "( Gets:{gets} Puts:{puts} Seek:{seeks}, reads {found} in {reads} found, avg size: \
             {value_mean:.1} value, {scan_mean:.1} scan)\n"
        ));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_ranges_get_most_accesses() {
        let flags = Flags {
            num: 1000,
            keyrange_num: 10,
            keyrange_dist_a: 14.18,
            keyrange_dist_b: -2.917,
            keyrange_dist_c: 0.0164,
            keyrange_dist_d: -0.08082,
            key_dist_a: 0.002312,
            key_dist_b: 0.3467,
            ..Flags::default()
        };
        let (hotness, mut rng) = (Hotness::new(&flags), Rng::new(1));
        let mut counts = [0u32; 10];
        for _ in 0..10_000 {
            let key = hotness.key(&flags, rng.next_u64());
            counts[(key / 100) as usize] += 1;
        }
        counts.sort_unstable();
        // The shares of the two hottest are 14.18 e^-2.917 + … and 14.18 e^-5.834 + … of 0.93.
        assert!((8200..8600).contains(&counts[9]), "{counts:?}");
        assert!((550..750).contains(&counts[8]), "{counts:?}");
    }

    #[test]
    fn pareto_has_its_quantiles() {
        // F(x) = 1 - (1 + k (x - theta) / sigma)^(-1/k), solved for the half.
        assert_eq!(pareto(0.5, 0.0, 0.2615, 25.45), 20);
        assert_eq!(pareto(0.5, 3.0, 0.0, 10.0), 10);
    }
}
