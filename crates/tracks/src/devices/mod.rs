//! Messages of phones and trackers in their own protocols.
//!
//! ```text
//!   owntracks, osmand, traccar     bytes ─> a message: pure functions
//!     └ fields                     its numbers, times and further members
//!   intake                         a message ─> the shards ─> durable; the results are counted
//! ```
//!
//! A device sends a message again until it is acknowledged, often for ever, and often sends nothing
//! else before. So messages that can never be stored are acknowledged, counted and reported: a
//! position without a fix, a clock far ahead, a message without a position, or malformed bytes. If
//! a change of settings can help, the answer is an error: for a message without a name, or an
//! encrypted one.

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

/// The most bytes of a message. OwnTracks may include a picture.
pub const MESSAGE_BYTES_MAX: usize = 1 << 20;
/// The most positions of a message.
pub const POSITIONS_MAX: usize = 1000;

/// The content of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// Where a device was.
    Report(Box<Report>, LeftOut),
    /// Nothing to store.
    Nothing(Reason),
    /// The message is malformed; the text says why.
    Wrong(String),
}

/// The number of members that did not fit into the attributes of a report, or were out of their
/// range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftOut(pub usize);

/// Why a message has nothing to store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Its position is 0, 0, or the device says that it is invalid.
    NoFix,
    /// It has no position.
    NoPosition,
    /// It is of another type than a position.
    OtherType,
}

/// Why a message cannot be used, although it could be after a change of the device's settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unusable {
    /// It does not name the entity.
    NoName,
    /// It is encrypted.
    Encrypted,
}

impl Unusable {
    /// Advice for the user.
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
