//! Random numbers that are looked up instead of drawn in turn: those of the n-th decision of an
//! object are a function of the seed, the object and n.
//!
//! An object needs no generator of its own, only a count. Its behaviour depends neither on the
//! other objects nor on the order in which they are asked.

use base::rng::Rng;

/// The kind of a decision. Decisions of different kinds are independent.
#[derive(Clone, Copy, Debug)]
pub(super) enum What {
    /// The first position of an object.
    Start,
    /// How a driver continues.
    Leg,
    /// How long after the start an object's first report is due.
    Phase,
    /// How much later than its turn a report is made.
    Moment,
    /// The fate of a report, and of those after it.
    Fate,
    /// How long a report takes to arrive.
    Latency,
    /// How much later a report arrives again.
    Again,
    /// The errors of a report.
    Noise,
    /// The error of an object's clock.
    Clock,
}

/// The source of all decisions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chance {
    seed: u64,
}

impl Chance {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            seed: Rng::new(seed).next_u64(),
        }
    }

    /// The numbers of one decision.
    pub(super) fn of(self, what: What, object: u32, nth: u32) -> Draw {
        let kind = (what as u64).wrapping_mul(0xa076_1d64_78bd_642f);
        let key = u64::from(object) << 32 | u64::from(nth);
        let mixed = (self.seed.wrapping_add(kind) ^ key).wrapping_mul(0xd6e8_feb8_6659_fd93);
        Draw(Rng::new(mixed ^ mixed >> 32))
    }
}

/// The numbers of one decision, one after the other.
#[derive(Debug)]
pub(super) struct Draw(Rng);

impl Draw {
    /// A number in `0..n`; 0 if `n` is 0.
    pub(super) fn below(&mut self, n: u64) -> u64 {
        self.0.below(n.max(1))
    }

    /// A number that is at least 0 and less than 1.
    pub(super) fn part(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// True with this probability.
    pub(super) fn happens(&mut self, share: f64) -> bool {
        self.part() < share
    }

    /// A number of mean 0 and standard deviation 1, nearly normal: the sum of four uniform ones. It is within ±3.47.
    pub(super) fn bell(&mut self) -> f64 {
        let bits = self.0.next_u64();
        let sum: u64 = (0..4).map(|n| bits >> (16 * n) & 0xffff).sum();
        // Each has the variance 1/12, so that their sum has 1/3.
        (sum as f64 / 65_536.0 - 2.0 + 2.0 / 65_536.0) * 3.0_f64.sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decisions_are_functions_of_their_key() {
        let draw =
            |seed, what, object, nth| Chance::new(seed).of(what, object, nth).below(u64::MAX);
        let one = draw(1, What::Leg, 2, 3);
        assert_eq!(one, draw(1, What::Leg, 2, 3));
        for other in [
            draw(2, What::Leg, 2, 3),
            draw(1, What::Noise, 2, 3),
            draw(1, What::Leg, 3, 3),
            draw(1, What::Leg, 2, 4),
        ] {
            assert_ne!(one, other);
        }
    }

    /// Neighbouring keys give independent numbers: mean, variance and correlation are as for
    /// independent draws.
    #[test]
    fn numbers_of_neighbours_are_independent() {
        let chance = Chance::new(5);
        let of = |object, nth| chance.of(What::Noise, object, nth).bell();
        let (mut sum, mut squares, mut along, mut across) = (0.0, 0.0, 0.0, 0.0);
        for object in 0..200 {
            for nth in 0..200 {
                let x = of(object, nth);
                assert!(x.abs() < 3.47);
                sum += x;
                squares += x * x;
                along += x * of(object, nth + 1);
                across += x * of(object + 1, nth);
            }
        }
        for (what, expected) in [(sum, 0.0), (squares, 1.0), (along, 0.0), (across, 0.0)] {
            let mean = what / 40_000.0;
            assert!((mean - expected).abs() < 0.03, "{mean} for {expected}");
        }
        let mut counts = [0_u32; 6];
        for object in 0..6000 {
            let n = chance.of(What::Clock, object, 0).below(6);
            if let Some(count) = counts.get_mut(n as usize) {
                *count += 1;
            }
        }
        assert!(counts.iter().all(|n| (900..1100).contains(n)), "{counts:?}");
    }
}
