//! What happened in a simulated cluster: so that one sees that the interesting things do.

use std::fmt;

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident: $text:literal;)*) => {
        /// See the module.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Coverage {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Coverage {
            /// Each count with what it counts.
            pub fn all(&self) -> Vec<(&'static str, u64)> {
                vec![$(($text, self.$name),)*]
            }

            /// Adds what happened elsewhere.
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
    /// What clients asked for, without attaching.
    asked: "operations asked for";
    /// What of it was answered.
    answered: "operations answered";
    /// What of it ended in an error.
    failed: "operations that failed";
    /// Changes of registers of which it is not known whether they happened.
    unanswered: "changes of registers without an answer";
    /// Reads of them.
    reads: "reads";
    /// Changes of parts of blocks.
    partial: "changes of parts of blocks";
    /// Zeros and trims.
    zeros: "zeros and trims";
    /// Blocks' quarters that were checked.
    registers: "registers checked";
    /// Registers of which the checker knows nothing.
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
    /// Stores that could not be opened, for a reason.
    refused: "opens refused, with a reason";
    /// Stores that were out, for a reason.
    outs: "stores out, with a reason";
    /// Faults that a disk's calls have met.
    disk_faults: "disks that met a fault";
    /// Leaders.
    leaders: "leaders elected";
    /// Write-backs that are durable.
    checkpoints: "write-backs synced";
    /// Those that failed.
    not_written: "write-backs failed";
    /// Files that logs began.
    log_files: "log files begun";
    /// Times that a group's log was cut.
    truncations: "logs cut";
    /// Batches.
    batches: "batches of the log";
    /// Reads of the watcher that were answered.
    watched: "reads of the watcher";
    /// Clocks that stood still.
    stopped_clocks: "clocks stopped";
    /// Clocks that went back, as a store has found.
    wrong_clocks: "clocks found to have gone back";
    /// Reads that a leader answered at once.
    lease_reads: "reads by lease";
    /// Reads that waited for a round of heartbeats.
    index_reads: "reads by index";
    /// Blocks read from data files.
    block_reads: "blocks read from data files";
    /// Attachments.
    attachments: "attachments";
    /// Attachments that others have ended.
    fenced: "attachments fenced";
    /// Messages.
    messages: "messages sent";
    /// Messages that were lost.
    lost: "messages lost";
    /// Messages that came twice.
    duplicated: "messages doubled";
    /// Replicas that the log does not reach any more.
    stranded: "replicas that need a copy";
    /// Runs in which a group had no quorum left for good.
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
