//! Counts of what happened in simulated clusters, which show that the interesting cases occur.

use std::fmt;

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident: $text:literal;)*) => {
        /// Counts of what happened.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Coverage {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Coverage {
            /// Each count with its description.
            pub fn all(&self) -> Vec<(&'static str, u64)> {
                vec![$(($text, self.$name),)*]
            }

            /// Adds the counts of another run.
            pub fn add(&mut self, other: &Self) {
                $(self.$name += other.$name;)*
            }
        }
    };
}

counts! {
    /// Runs.
    runs: "seeds";
    /// Simulated time.
    seconds: "simulated seconds";
    /// Events of the simulation.
    events: "events";
    /// Operations that clients submitted, without attaching.
    asked: "operations asked for";
    /// Operations that were answered.
    answered: "operations answered";
    /// Operations that failed.
    failed: "operations that failed";
    /// Changes of registers without an answer, which may or may not have taken effect.
    unanswered: "changes of registers without an answer";
    /// Reads of registers.
    reads: "reads";
    /// Changes of parts of blocks.
    partial: "changes of parts of blocks";
    /// Zeros and trims.
    zeros: "zeros and trims";
    /// Registers that were checked; a register is a quarter of a block.
    registers: "registers checked";
    /// Registers that the checker could not decide.
    undecided: "registers undecided";
    /// Processes that were killed.
    kills: "processes killed";
    /// Machines that lost their power.
    power_cuts: "machines without power";
    /// Crashes in the middle of something that a process did to its disk.
    armed: "crashes inside of a call";
    /// Writes of the log that were on their way when the power went.
    torn_batches: "log writes in flight at a power cut";
    /// Write-backs that a crash has cut.
    cut_write_backs: "write-backs cut by a crash";
    /// Stores that were opened.
    opens: "stores opened";
    /// Stores that refused to open, for an expected reason.
    refused: "opens refused, with a reason";
    /// Stores that failed, for an expected reason.
    outs: "stores out, with a reason";
    /// Disks whose calls met a fault.
    disk_faults: "disks that met a fault";
    /// Elected leaders.
    leaders: "leaders elected";
    /// Write-backs that are durable.
    checkpoints: "write-backs synced";
    /// Write-backs that failed.
    not_written: "write-backs failed";
    /// Files that logs began.
    log_files: "log files begun";
    /// Truncations of a group's log.
    truncations: "logs cut";
    /// Batches of the log.
    batches: "batches of the log";
    /// Reads of the watcher that were answered.
    watched: "reads of the watcher";
    /// Clocks that stood still.
    stopped_clocks: "clocks stopped";
    /// Clocks that went back, as noticed by a store.
    wrong_clocks: "clocks found to have gone back";
    /// Reads that a leader served under its lease.
    lease_reads: "reads by lease";
    /// Reads that waited for a round of heartbeats.
    index_reads: "reads by index";
    /// Blocks read from data files.
    block_reads: "blocks read from data files";
    /// Attachments.
    attachments: "attachments";
    /// Attachments that were fenced by newer ones.
    fenced: "attachments fenced";
    /// Messages.
    messages: "messages sent";
    /// Messages that were lost.
    lost: "messages lost";
    /// Messages that arrived twice.
    duplicated: "messages doubled";
    /// Replicas whose next entry is no longer in the log.
    stranded: "replicas that need a copy";
    /// Runs in which a group has lost its quorum for good.
    without_quorum: "runs without a quorum, checked for safety only";
    /// Pairs of replicas at the same entry whose blocks were compared.
    compared: "replicas compared";
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (text, count)) in self.all().into_iter().enumerate() {
            let end = if i == 0 { "" } else { "\n" };
            write!(f, "{end}  {count:>12} {text}")?;
        }
        Ok(())
    }
}
