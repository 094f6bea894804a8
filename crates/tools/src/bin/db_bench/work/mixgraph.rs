//! `mixgraph`: gets, puts and scans with the distributions that Cao, Dong, Vemuri and Du measured in a
//! social graph ("Characterizing, Modeling, and Benchmarking RocksDB Key-Value Workloads at Facebook",
//! FAST 2020).

use base::Result;
use base::rng::Rng;

use super::Worker;
use crate::engine::{Bounds, Cursor, Engine};
use crate::flags::Flags;
use crate::keys::Values;
use crate::pace::Sine;
use crate::stats::Op;

/// The shortest value, in bytes.
const VALUE_MIN: i64 = 10;

/// Chooses the key of an access.
enum Hotness {
    /// All keys are equally likely.
    Even,
    /// Key ranges and their popularity: the cumulative weights.
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

    /// The key for a random number.
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

/// The value that the share `u` of the values of a generalized Pareto distribution exceeds.
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
        let interval = flags.sine_mix_rate_interval_milliseconds;
        let mut sine = flags.sine_mix_rate.then(|| Sine::new(interval));
        let mut done = Mix::default();
        while limit.take(1, &self.stats) {
            self.pick_engine();
            let random = self.rng.next_u64();
            let share = (random >> 11) as f64 / 2f64.powi(53);
            let number = hotness.key(flags, random);
            keys.write(number, &mut key);
            let what = self.rng.next_u64() as f64 / 2f64.powi(64) * total;
            self.move_mix_pace(&mut sine, shares);
            if what < shares[0] {
                done.gets += 1;
                if let Some(len) = self.get_one(number, &key, &mut scratch)? {
                    done.found += 1;
                    done.bytes += key.len() + len;
                }
                self.stats.finished(1, Op::Read);
                self.pace_reads(1);
            } else if what < shares[0] + shares[1] {
                self.mix_put(&options, &key, share, values, &mut done)?;
            } else {
                self.mix_scan(&key, share, &mut done)?;
            }
        }
        self.stats.add_bytes(done.bytes as u64);
        self.stats.add_message(&done.told());
        Ok(())
    }

    fn mix_put(
        &mut self,
        options: &E::Write,
        key: &[u8],
        share: f64,
        values: &mut Values,
        done: &mut Mix,
    ) -> Result<()> {
        let flags = self.flags;
        let (theta, k, sigma) = (flags.value_theta, flags.value_k, flags.value_sigma);
        let max = flags.mix_max_value_size;
        let len = match pareto(share, theta, k, sigma) {
            ..VALUE_MIN => VALUE_MIN,
            len if len > max => len % max,
            len => len,
        };
        let value = values.take(len as usize);
        done.puts += 1;
        done.put_bytes += value.len();
        let written = key.len() + value.len();
        self.engine.put(options, key, value)?;
        self.stats.finished(1, Op::Write);
        // A curve is one of operations.
        self.pace_writes(if flags.sine_mix_rate { 1 } else { written });
        Ok(())
    }

    fn mix_scan(&mut self, key: &[u8], share: f64, done: &mut Mix) -> Result<()> {
        let flags = self.flags;
        let (theta, k, sigma) = (flags.iter_theta, flags.iter_k, flags.iter_sigma);
        let len = pareto(share, theta, k, sigma) % flags.mix_max_scan_len;
        done.seeks += 1;
        let mut cursor = self.engine.cursor(Bounds::default())?;
        cursor.seek(key);
        done.found += u64::from(cursor.valid() && cursor.key() == key);
        for _ in 0..len {
            if !cursor.valid() {
                break;
            }
            done.bytes += cursor.key().len() + cursor.value().len();
            done.scanned += 1;
            cursor.next();
        }
        cursor.status()?;
        self.stats.finished(1, Op::Seek);
        self.pace_reads(1);
        Ok(())
    }

    /// The rates of reads and puts follow the curve, each in proportion to its share of the
    /// operations.
    fn move_mix_pace(&mut self, sine: &mut Option<Sine>, shares: [f64; 3]) {
        let flags = self.flags;
        let Some(rate) = sine
            .as_mut()
            .and_then(|sine| sine.due(flags, self.stats.elapsed()))
        else {
            return;
        };
        let rate = with_noise(rate, flags, &mut self.rng);
        let paces = [
            (&self.together.read_pace, rate * (shares[0] + shares[2])),
            (&self.together.write_pace, rate * shares[1]),
        ];
        for (pace, rate) in paces {
            if let Some(pace) = pace.as_ref().filter(|_| rate > 0.0) {
                pace.set(rate as u64);
            }
        }
    }
}

/// A rate with a random deviation of up to half of `sine_a`, times the noise; never below 0.
fn with_noise(rate: f64, flags: &Flags, rng: &mut Rng) -> f64 {
    let band = flags.sine_a as i64;
    if !(0.0..=1.0).contains(&flags.sine_mix_rate_noise) || band <= 0 {
        return rate;
    }
    let stray = rng.below(band.unsigned_abs()) as i64 - band / 2;
    let noisy = rate + stray as f64 * flags.sine_mix_rate_noise;
    if noisy < 0.0 { rate } else { noisy }
}

/// The number of operations of a thread.
#[derive(Default)]
struct Mix {
    gets: u64,
    puts: u64,
    seeks: u64,
    found: u64,
    bytes: usize,
    put_bytes: usize,
    scanned: u64,
}

impl Mix {
    fn told(&self) -> String {
        let mean = |sum: f64, count: u64| sum / count.max(1) as f64;
        let (gets, puts, seeks, found) = (self.gets, self.puts, self.seeks, self.found);
        let value_mean = mean(self.put_bytes as f64, puts);
        let scan_mean = mean(self.scanned as f64, seeks);
        let reads = gets + seeks;
        format!(
            "( Gets:{gets} Puts:{puts} Seek:{seeks}, reads {found} in {reads} found, avg size: \
             {value_mean:.1} value, {scan_mean:.1} scan)\n"
        )
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
