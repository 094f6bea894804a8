//! Where copies are kept: a folder on this machine's disk, or three loop devices of this run.

use std::path::{Path, PathBuf};

use crate::device::SLOW;
use crate::device::disk::{Cache, Disk, Fs};
use crate::device::stat::Stat;
use crate::device::throttle::Controller;

/// A kind of disks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Disks {
    /// One folder on the disk that the folder of the run is on
    Dir,
    /// Three loop devices with volatile caches
    LoopVolatile,
    /// Three loop devices with caches that are protected against power loss
    LoopProtected,
    /// The same, each limited to 240 writes a second
    Hdd,
}

impl Disks {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Dir => "own disk",
            Self::LoopVolatile => "loop, volatile",
            Self::LoopProtected => "loop, protected",
            Self::Hdd => "loop, 240 writes/s",
        }
    }
}

/// Disks for three copies. If there is only one disk, the folders are the same.
pub(super) struct Place {
    pub(super) disks: Disks,
    pub(super) copies: [PathBuf; 3],
    /// The loop devices of this run, one for each copy.
    devices: Vec<Disk>,
    limited: Vec<(Controller, String)>,
}

impl Place {
    /// Makes the disks in `dir`. On an error, `disk::sweep` has to remove what was made.
    pub(super) fn make(disks: Disks, dir: &Path, mebibytes: u64) -> Result<Self, String> {
        let cache = match disks {
            Disks::Dir => {
                let copies = dir.join("copies");
                std::fs::create_dir_all(&copies)
                    .map_err(|e| format!("{}: {e}", copies.display()))?;
                return Ok(Self {
                    disks,
                    copies: [copies.clone(), copies.clone(), copies],
                    devices: Vec::new(),
                    limited: Vec::new(),
                });
            }
            Disks::LoopVolatile => Cache::WriteBack,
            Disks::LoopProtected | Disks::Hdd => Cache::WriteThrough,
        };
        let mut devices = Vec::new();
        for number in 1..=3 {
            let name = format!("copy-{number}");
            devices.push(Disk::make(dir, &name, Fs::Ext4, cache, mebibytes)?);
        }
        let mut limited = Vec::new();
        if disks == Disks::Hdd {
            let controller = Controller::find()?;
            for device in &devices {
                let number = device.number()?;
                controller.limit(&number, SLOW)?;
                limited.push((controller.clone(), number));
            }
        }
        let mounts = [0, 1, 2].map(|n| devices.get(n).map(|d: &Disk| d.mount.clone()));
        Ok(Self {
            disks,
            copies: mounts.map(Option::unwrap_or_default),
            devices,
            limited,
        })
    }

    /// The summed counters of the loop devices; `None` if there are none.
    pub(super) fn stat(&self) -> Result<Option<Stat>, String> {
        let mut sum: Option<Stat> = None;
        for device in &self.devices {
            let stat = device.counters.read()?;
            sum = Some(sum.map_or(stat, |sum| sum.plus(stat)));
        }
        Ok(sum)
    }

    /// Removes the disks.
    pub(super) fn end(self, dir: &Path) -> Result<(), String> {
        for (controller, number) in &self.limited {
            controller.release(number)?;
        }
        let own = !self.devices.is_empty();
        drop(self.devices);
        if own {
            crate::device::disk::sweep(dir)?;
        }
        Ok(())
    }
}
