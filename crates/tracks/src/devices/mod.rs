//! What phones and trackers send in protocols of their own, and how it is taken.
//!
//! ```text
//!   owntracks, osmand, traccar     bytes ─> what was heard: pure
//!     └ fields                     their numbers, times and further members
//!   intake                         what was heard ─> the shards ─> durable; what becomes of it is counted
//! ```
//!
//! A device sends again what is not acknowledged, often for ever, and often nothing else before. So what can never be
//! stored is acknowledged, counted and said: a position of no fix, a clock far ahead, a message that is no position,
//! bytes that are none of its protocol. What a change of settings can help is an error: a message without a name, one
//! that is encrypted.

mod fields;
mod intake;
mod osmand;
mod owntracks;
#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a test may panic")]
mod tests;
mod traccar;

pub(crate) use intake::Pending;
pub use intake::{Fate, Intake, Protocol};
pub use osmand::osmand;
pub use owntracks::{Owner, owntracks};
pub use traccar::traccar;

use crate::model::report::Report;

/// The most bytes of a message. OwnTracks may put a picture into one.
pub const MESSAGE_BYTES_MAX: usize = 1 << 20;
/// The most positions of a message.
pub const POSITIONS_MAX: usize = 1000;

/// What a message says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// Where a device was.
    Report(Box<Report>, LeftOut),
    /// Nothing that is stored.
    Nothing(Reason),
    /// It is none of its protocol; this says why.
    Wrong(String),
}

/// How many members did not fit into the attributes of a report, or were out of their range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftOut(pub usize);

/// Why a message is not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Its position is 0, 0, or the device says that it is not valid: it has no fix.
    NoFix,
    /// It has no position.
    NoPosition,
    /// It is of another type than a position.
    OtherType,
}

/// Why a message cannot be read as it is, though it might be after a change of the device's settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unusable {
    /// It does not say whose it is.
    NoName,
    /// It is encrypted.
    Encrypted,
}

impl Unusable {
    /// What to do.
    pub fn advice(self) -> &'static str {
        match self {
            Self::NoName => {
                "the message does not say whose it is: enter a user and a device, or an id, in the app"
            }
            Self::Encrypted => {
                "the message is encrypted, which is not read here: take the encryption key out of the app"
            }
        }
    }
}
