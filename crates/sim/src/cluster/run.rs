//! Runs of simulated clusters: one seed, many seeds, and the report of one that fails.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::coverage::Coverage;
use super::history::Operation;
use super::plan::{self, Plan};
use super::shape::Shape;
use super::world::World;

/// The result of a seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// What happened.
    pub coverage: Coverage,
    /// A hash of everything that clients saw, which is equal in two runs of a seed.
    pub fingerprint: u64,
}

/// A seed that fails.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// The violation under the whole plan.
    pub violation: String,
    /// The part of the plan that is needed.
    pub plan: Plan,
    /// The violation under that part.
    pub reduced: String,
    /// The last events before it.
    pub trace: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seed = self.seed;
        writeln!(f, "seed {seed}: {}", self.violation)?;
        writeln!(f, "\nunder a part of its plan: {}", self.reduced)?;
        writeln!(f, "\n{}\n\nthe last events:", self.plan)?;
        for line in &self.trace {
            writeln!(f, "{line}")?;
        }
        writeln!(f, "\n{}", Shape::draw(seed))?;
        write!(f, "repeat: cargo xtask soak block --seeds 1 --seed {seed}")
    }
}

/// The plan of a seed.
pub fn plan_of(shape: &Shape) -> Plan {
    Plan::draw(shape.seed ^ 0x0091_a000, &shape.faults)
}

/// Runs a seed under its own plan.
///
/// # Errors
/// The violation.
pub fn run(seed: u64) -> Result<Done, String> {
    let shape = Shape::draw(seed);
    let plan = plan_of(&shape);
    attempt(&shape, &plan, None)
}

/// Runs a failing seed again and again, until no event of its plan can be left out; at most `tries` times.
pub fn explain(seed: u64, violation: String, tries: usize) -> Failure {
    let shape = Shape::draw(seed);
    let whole = plan_of(&shape);
    let mut left = tries;
    let plan = plan::reduce(&whole, |plan| {
        left = left.saturating_sub(1);
        left > 0 && attempt(&shape, plan, None).is_err()
    });
    let mut trace = Vec::new();
    let again = attempt(&shape, &plan, Some(&mut trace));
    Failure {
        seed,
        violation,
        plan,
        reduced: again
            .err()
            .unwrap_or_else(|| "it does not fail again".to_owned()),
        trace,
    }
}

/// Runs a shape under a plan. A panic counts as a failure.
fn attempt(shape: &Shape, plan: &Plan, trace: Option<&mut Vec<String>>) -> Result<Done, String> {
    let mut world = World::new(shape.clone(), plan.clone(), trace.is_some())?;
    let ended = catch_unwind(AssertUnwindSafe(|| world.run()));
    if let Some(trace) = trace {
        trace.extend(world.trace().cloned());
    }
    match ended {
        Ok(done) => done.map(|()| Done {
            coverage: world.coverage,
            fingerprint: fingerprint(world.operations(), &world.coverage),
        }),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|&s| s.to_owned()));
            Err(format!("a panic: {}", text.unwrap_or_default()))
        }
    }
}

fn fingerprint(operations: &[Operation], coverage: &Coverage) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325;
    let mut mix = |value: u64| {
        hash = (hash ^ value)
            .wrapping_mul(0x0100_0000_01b3)
            .rotate_left(23);
    };
    for o in operations {
        [
            o.client,
            o.block,
            o.value,
            o.start,
            o.end(),
            o.nanos[0],
            o.nanos[1],
        ]
        .into_iter()
        .for_each(&mut mix);
    }
    coverage.all().into_iter().for_each(|(_, count)| mix(count));
    hash
}
