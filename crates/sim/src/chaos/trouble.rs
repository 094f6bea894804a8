//! Faults: calls of the disk that fail or are slow, and user code that panics.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base::rng::Rng;
use base::sync::atomic::{AtomicU64, Ordering};
use base::sync::{PoisonError, RwLock};

use crate::disk::{Act, Fault, Repeat, SimDisk};
use crate::hooked::{Hook, Op, Verdict};

/// Code that is called very often panics this much more seldom.
const RARELY: u64 = 1000;

const EMFILE: i32 = 24;

/// The payload of an injected panic.
#[derive(Debug)]
pub(super) struct Injected;

/// The calls that a fault is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Aim {
    Any,
    Logs,
    NewLogs,
    Manifest,
    Tables,
    Directories,
    Names,
}

impl Aim {
    const ALL: [Self; 7] = [
        Self::Any,
        Self::Logs,
        Self::NewLogs,
        Self::Manifest,
        Self::Tables,
        Self::Directories,
        Self::Names,
    ];

    fn meets(self, act: Act, path: &Path) -> bool {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let names_a_file = matches!(act, Act::Create | Act::Rename | Act::Remove | Act::Link);
        let is_log = name.ends_with(".log") || path.to_string_lossy().contains("log-pool");
        match self {
            Self::Any => true,
            Self::Logs => is_log,
            Self::NewLogs => is_log && names_a_file,
            Self::Manifest => name.starts_with("MANIFEST") || name.starts_with("CURRENT"),
            Self::Tables => name.ends_with(".sst"),
            Self::Directories => act == Act::SyncDir,
            Self::Names => names_a_file,
        }
    }
}

/// The faults of a period. `one_in` values: one in so many calls, 0 for none.
#[derive(Clone, Debug, Default)]
pub(super) struct Weather {
    /// Calls of a kind fail.
    pub fault: Option<(Fault, Aim, u64)>,
    /// There is no file handle for a new file.
    pub no_handles_one_in: u64,
    /// Calls take this long.
    pub slow: Option<(u64, Duration)>,
    /// User code panics.
    pub panic_one_in: u64,
}

impl Weather {
    /// Draws some fault.
    pub(super) fn draw(rng: &mut Rng, panics: bool) -> Self {
        let mut weather = Self::default();
        let one_in = [1, 1, 3, 20, 200][rng.below(5) as usize];
        match rng.below(8) {
            0 => weather.no_handles_one_in = one_in,
            1 => {
                let times = [
                    (1, 100),
                    (1, 1000),
                    (5, 5000),
                    (50, 50_000),
                    (1000, 500_000),
                ];
                let (least, micros) = times[rng.below(5) as usize];
                weather.slow = Some((one_in.max(least), Duration::from_micros(micros)));
            }
            2 if panics => weather.panic_one_in = [3, 20, 100][rng.below(3) as usize],
            _ => {
                let fault = Fault::ALL[rng.below(4) as usize];
                let aim = Aim::ALL[rng.below(Aim::ALL.len() as u64) as usize];
                weather.fault = Some((fault, aim, one_in));
            }
        }
        if panics && rng.one_in(3) {
            weather.panic_one_in = 100;
        }
        weather
    }
}

/// Decides about all faults.
#[derive(Debug)]
pub(super) struct Trouble {
    weather: RwLock<Arc<Weather>>,
    seed: u64,
    drawn: AtomicU64,
    /// Number of calls that failed.
    pub faults: AtomicU64,
    /// Number of panics.
    pub panics: AtomicU64,
}

impl Trouble {
    pub(super) fn new(seed: u64) -> Arc<Self> {
        Arc::new(Self {
            weather: RwLock::default(),
            seed,
            drawn: AtomicU64::new(0),
            faults: AtomicU64::new(0),
            panics: AtomicU64::new(0),
        })
    }

    /// Sets the faults from now on.
    pub(super) fn set(&self, weather: Weather) {
        *self.weather.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(weather);
    }

    /// Ends all faults.
    pub(super) fn calm(&self) {
        self.set(Weather::default());
    }

    fn weather(&self) -> Arc<Weather> {
        Arc::clone(&self.weather.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Draws without a lock: threads share one stream of random numbers.
    pub(super) fn one_in(&self, n: u64) -> bool {
        if n <= 1 {
            return n == 1;
        }
        let count = self.drawn.fetch_add(1, Ordering::Relaxed);
        Rng::new(self.seed.wrapping_add(count)).one_in(n)
    }

    /// Panics at random; called in user code.
    pub(super) fn maybe_panic(&self) {
        if self.one_in(self.weather().panic_one_in) {
            self.panics.fetch_add(1, Ordering::Relaxed);
            std::panic::panic_any(Injected);
        }
    }

    /// The same for code that is called very often.
    pub(super) fn rarely_panic(&self) {
        if self.one_in(self.weather().panic_one_in * RARELY) {
            self.panics.fetch_add(1, Ordering::Relaxed);
            std::panic::panic_any(Injected);
        }
    }

    fn strikes(&self, kind: Fault, act: Act, path: &Path) -> bool {
        let Some((fault, aim, one_in)) = self.weather().fault else {
            return false;
        };
        let strikes = fault == kind && aim.meets(act, path) && self.one_in(one_in);
        if strikes {
            self.faults.fetch_add(1, Ordering::Relaxed);
        }
        strikes
    }

    /// Makes the disk fail according to the current faults.
    pub(super) fn haunt(self: &Arc<Self>, disk: &SimDisk) {
        for kind in Fault::ALL {
            let trouble = Arc::clone(self);
            let which = move |act: Act, path: &Path| trouble.strikes(kind, act, path);
            disk.fail_on(kind, Repeat::Forever, which);
        }
    }
}

impl Hook for Trouble {
    fn before(&self, op: Op, path: &Path) -> Verdict {
        let weather = self.weather();
        if let Some((one_in, time)) = weather.slow
            && self.one_in(one_in)
        {
            base::sync::thread::sleep(time);
        }
        let is_log_of_messages = path
            .file_name()
            .is_some_and(|n| n.to_string_lossy().starts_with("LOG"));
        if matches!(op, Op::Open | Op::OpenWrite)
            && !is_log_of_messages
            && self.one_in(weather.no_handles_one_in)
        {
            self.faults.fetch_add(1, Ordering::Relaxed);
            return Verdict::Fail(EMFILE);
        }
        Verdict::Go
    }
}
