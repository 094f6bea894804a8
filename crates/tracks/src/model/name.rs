//! Names of fleets and entities.

use std::fmt;

use base::{Error, Result};
use smol_str::SmolStr;
use twox_hash::XxHash3_64;

use super::key::Entity;

/// The most bytes of a name.
pub const BYTES_MAX: usize = 128;
/// How many names of a fleet may share a hash: a further one is refused.
pub const TURNS: u64 = 8;

/// 1 to 128 bytes of UTF-8 without control characters. `/` separates parts, none of which is empty,
/// `.` or `..`, so that a name can be a part of a URL. Names of up to 23 bytes are stored inline.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(SmolStr);

impl Name {
    /// Checks a name. Errors: `InvalidArgument` says why the text is not a valid name.
    ///
    /// ```
    /// use tracks::model::name::Name;
    /// assert_eq!(Name::new("courier 7/bike")?.as_str(), "courier 7/bike");
    /// assert!(Name::new("../etc").is_err() && Name::new("").is_err());
    /// # Ok::<(), base::Error>(())
    /// ```
    pub fn new(text: &str) -> Result<Self> {
        let is_bad_part = |part: &str| matches!(part, "" | "." | "..");
        let wrong = if text.is_empty() {
            "it is empty".to_owned()
        } else if text.len() > BYTES_MAX {
            format!(
                "it has {} bytes, and {BYTES_MAX} at most are allowed",
                text.len()
            )
        } else if let Some(c) = text.chars().find(|c| c.is_control()) {
            format!("it has the control character U+{:04X}", u32::from(c))
        } else if text.split('/').any(is_bad_part) {
            "a part of it between slashes is empty, \".\" or \"..\"".to_owned()
        } else {
            return Ok(Self(text.into()));
        };
        let shown: String = text.chars().take(40).collect();
        Err(Error::invalid_argument(format!(
            "{shown:?} is no name: {wrong}"
        )))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The number of the entity with this name. If another name has that number, the next `turn` is
    /// tried. The lowest byte is the same in all turns, so that all names that could get the same
    /// number go to the same shard.
    pub fn number(&self, turn: u64) -> Entity {
        let hash = |turn| XxHash3_64::oneshot_with_seed(turn, self.0.as_bytes());
        let first = hash(0);
        if turn == 0 {
            return Entity(first);
        }
        let same = u64::from(u8::MAX);
        Entity(hash(turn) & !same | first & same)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_name_is_refused_and_said() {
        let long = "é".repeat(65);
        let bad = [
            ("", "empty"),
            (&long, "130 bytes"),
            ("a\0b", "U+0000"),
            ("a\nb", "U+000A"),
            ("a/../b", "\"..\""),
            ("..", "\"..\""),
            (".", "\".\""),
            ("/a", "slashes"),
            ("a/", "slashes"),
            ("a//b", "slashes"),
        ];
        for (text, why) in bad {
            let e = Name::new(text).unwrap_err().to_string();
            assert!(e.contains(why) && e.contains("is no name"), "{e}");
            assert!(e.len() < 300, "{e}");
        }
        for text in [
            "a",
            "...",
            "car 1",
            "åäö",
            "a/b/c",
            "x".repeat(128).as_str(),
        ] {
            assert_eq!(Name::new(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn turns_give_other_numbers() {
        let name = Name::new("car1").unwrap();
        assert_eq!(name.number(0), name.number(0));
        assert_ne!(name.number(0), name.number(1));
        assert_eq!(name.number(0).0 as u8, name.number(1).0 as u8);
        assert_ne!(name.number(0), Name::new("car2").unwrap().number(0));
    }
}
