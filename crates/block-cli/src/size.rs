//! Numbers of bytes as people write them: `4096`, `64K`, `10G`, `1TiB`; powers of 1024.

use serde::de::{Error as _, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A number of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Size(pub(crate) u64);

const UNITS: [(char, u32); 4] = [('T', 40), ('G', 30), ('M', 20), ('K', 10)];

impl std::str::FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is no size: write 4096, 64K, 512M, 10G or 1T");
        let upper = text.trim().to_ascii_uppercase();
        let bare = upper.strip_suffix("IB").or(upper.strip_suffix('B'));
        let bare = bare.unwrap_or(&upper);
        let unit = UNITS
            .iter()
            .find_map(|&(c, shift)| Some((bare.strip_suffix(c)?, shift)));
        let (digits, shift) = unit.unwrap_or((bare, 0));
        let number: u64 = digits.trim().parse().map_err(|_| wrong())?;
        let bytes = number.checked_mul(1 << shift).ok_or_else(wrong)?;
        Ok(Self(bytes))
    }
}

impl std::fmt::Display for Size {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let whole = |&&(_, shift): &&(char, u32)| self.0 > 0 && self.0.is_multiple_of(1 << shift);
        match UNITS.iter().find(whole) {
            Some((unit, shift)) => write!(f, "{}{unit}", self.0 >> shift),
            None => write!(f, "{}", self.0),
        }
    }
}

/// A number of bytes for people, with one decimal.
pub(crate) fn about(bytes: u64) -> String {
    let found = UNITS.iter().find(|(_, shift)| bytes >= 1 << shift);
    match found {
        Some((unit, shift)) => format!("{:.1} {unit}iB", bytes as f64 / (1_u64 << shift) as f64),
        None => format!("{bytes} B"),
    }
}

impl Serialize for Size {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Either;
        impl Visitor<'_> for Either {
            type Value = Size;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a size: 4096, \"64K\", \"512M\", \"10G\" or \"1T\"")
            }

            fn visit_i64<E: serde::de::Error>(self, n: i64) -> Result<Size, E> {
                u64::try_from(n)
                    .map(Size)
                    .map_err(|_| E::custom("a size is not negative"))
            }

            fn visit_u64<E: serde::de::Error>(self, n: u64) -> Result<Size, E> {
                Ok(Size(n))
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Size, E> {
                text.parse().map_err(E::custom)
            }
        }
        from.deserialize_any(Either).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_written() {
        for (text, bytes, again) in [
            ("4096", 4096, "4K"),
            ("64k", 65536, "64K"),
            ("10G", 10 << 30, "10G"),
            ("1TiB", 1 << 40, "1T"),
            (" 3 MB ", 3 << 20, "3M"),
            ("0", 0, "0"),
            ("4097", 4097, "4097"),
        ] {
            let size: Size = text.parse().unwrap();
            assert_eq!((size.0, size.to_string().as_str()), (bytes, again));
        }
        for text in ["", "G", "-1", "1.5G", "99999999999T"] {
            let e = text.parse::<Size>().unwrap_err();
            assert!(e.contains("is no size"), "{e}");
        }
        assert_eq!(about(1536 << 20), "1.5 GiB");
    }
}
