//! Tokens, and what they allow. The file has only their hashes.
//!
//! ```toml
//! [[tokens]]
//! name = "gateway"
//! sha256 = "…"                  # hexadecimal, of the token
//! scopes = ["ingest", "read"]   # ingest, read, fences, admin
//! fleets = ["taxis"]            # or "*"
//! reports_per_second = 1000     # none: as many as come
//! ```

use std::path::Path;
use std::sync::Arc;

use base::{Error, Result};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::limits::Bucket;

/// The first characters of each token, by which scanners find leaked ones.
const PREFIX: &str = "istk_";
/// Random bytes of a token.
const RANDOM_BYTES: usize = 32;

/// A permission of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// Sending reports.
    Ingest,
    /// All queries.
    Read,
    /// Changing fences.
    Fences,
    /// Settings of fleets, and metrics.
    Admin,
}

/// The fleets of a token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
enum Fleets {
    Word(String),
    Some(Vec<String>),
}

/// A token in the file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    sha256: String,
    scopes: Vec<Scope>,
    fleets: Fleets,
    #[serde(skip_serializing_if = "Option::is_none")]
    reports_per_second: Option<u32>,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct File {
    tokens: Vec<Entry>,
}

/// A token.
#[derive(Debug)]
pub(crate) struct Token {
    name: String,
    hash: [u8; 32],
    scopes: Vec<Scope>,
    /// `None` means all fleets.
    fleets: Option<Vec<String>>,
    pub(crate) rate: Option<Bucket>,
}

impl Token {
    pub(crate) fn has(&self, scope: Scope) -> bool {
        self.scopes.contains(&scope)
    }

    pub(crate) fn has_fleet(&self, fleet: &str) -> bool {
        let fleets = self.fleets.as_ref();
        fleets.is_none_or(|fleets| fleets.iter().any(|f| f == fleet))
    }

    pub(crate) fn is_for_all_fleets(&self) -> bool {
        self.fleets.is_none()
    }

    /// The fleet, if the token is for a single one.
    pub(crate) fn only_fleet(&self) -> Option<&str> {
        match self.fleets.as_deref() {
            Some([one]) => Some(one),
            _ => None,
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}

/// All tokens.
#[derive(Debug)]
pub struct Tokens(Vec<Arc<Token>>);

impl Tokens {
    /// Reads a file. Errors: it cannot be read; it is invalid, with line and column.
    pub fn read(file: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(file).map_err(|e| Error::io("read", file, e))?;
        Self::parse(&text).map_err(|e| e.or_file(file))
    }

    /// Parses the text of a file. Errors: `InvalidArgument` says what is wrong.
    pub fn parse(text: &str) -> Result<Self> {
        let wrong = |text: String| Error::invalid_argument(text);
        let file: File = toml::from_str(text).map_err(|e| wrong(e.to_string()))?;
        let mut all: Vec<Arc<Token>> = Vec::with_capacity(file.tokens.len());
        for entry in file.tokens {
            let name = entry.name;
            if all.iter().any(|token| token.name == name) {
                return Err(wrong(format!("two tokens have the name {name:?}")));
            }
            let hash = of_hex(&entry.sha256).ok_or_else(|| {
                wrong(format!(
                    "the sha256 of token {name:?} is not 64 hexadecimal digits"
                ))
                .hint("`ironstone-tracks token` makes a token and its entry")
            })?;
            let fleets = match entry.fleets {
                Fleets::Some(fleets) => Some(fleets),
                Fleets::Word(word) if word == "*" => None,
                Fleets::Word(word) => {
                    return Err(wrong(format!(
                        "the fleets of token {name:?} are {word:?}, and not \"*\" or a list"
                    )));
                }
            };
            if entry.reports_per_second == Some(0) {
                return Err(wrong(format!("reports_per_second of token {name:?} is 0"))
                    .hint("leave the scope ingest out to allow no reports"));
            }
            let rate = entry.reports_per_second;
            all.push(Arc::new(Token {
                name,
                hash,
                scopes: entry.scopes,
                fleets,
                rate: rate.map(|rate| Bucket::new(rate.into(), 0)),
            }));
        }
        Ok(Self(all))
    }

    /// The number of tokens.
    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// The token with this text. All hashes are compared in full, so that the time reveals nothing.
    pub(crate) fn find(&self, text: &str) -> Option<Arc<Token>> {
        let hash = hash(text);
        let mut found = None;
        for token in &self.0 {
            if bool::from(token.hash.ct_eq(&hash)) {
                found = Some(Arc::clone(token));
            }
        }
        found
    }
}

/// The properties of a new token.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Its name in the file.
    pub name: String,
    /// Its scopes.
    pub scopes: Vec<Scope>,
    /// Its fleets. Empty means all.
    pub fleets: Vec<String>,
    /// The most reports per second. `None` means no limit.
    pub reports_per_second: Option<u32>,
}

/// Makes a token, and its entry for the file. Errors: the system has no random numbers.
pub fn make(wanted: Wanted) -> Result<(String, String)> {
    let token = format!("{PREFIX}{}", hex(&random::<RANDOM_BYTES>()?));
    let entry = Entry {
        name: wanted.name,
        sha256: hex(&hash(&token)),
        scopes: wanted.scopes,
        fleets: if wanted.fleets.is_empty() {
            Fleets::Word("*".to_owned())
        } else {
            Fleets::Some(wanted.fleets)
        },
        reports_per_second: wanted.reports_per_second,
    };
    let file = File {
        tokens: vec![entry],
    };
    let text = toml::to_string(&file).map_err(Error::broken)?;
    Ok((token, text))
}

/// Random bytes of the system, suitable for secrets.
pub(crate) fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        let got = rustix::rand::getrandom(rest, rustix::rand::GetRandomFlags::empty());
        filled += got.map_err(|e| Error::io("get random numbers", "", e.into()))?;
    }
    Ok(bytes)
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    let digit = |n: u8| char::from_digit(n.into(), 16);
    let digits = bytes.iter().flat_map(|b| [digit(b >> 4), digit(b & 15)]);
    digits.flatten().collect()
}

fn of_hex(text: &str) -> Option<[u8; 32]> {
    let mut out = [0; 32];
    let digits = text.as_bytes();
    if digits.len() != 64 || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    for (byte, pair) in out.iter_mut().zip(digits.chunks(2)) {
        *byte = u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(out)
}

fn hash(text: &str) -> [u8; 32] {
    Sha256::digest(text.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_tokens_are_found_by_their_entries() {
        let wanted = |name: &str, fleets: &[&str]| Wanted {
            name: name.to_owned(),
            scopes: vec![Scope::Ingest],
            fleets: fleets.iter().map(|f| (*f).to_owned()).collect(),
            reports_per_second: Some(5),
        };
        let (a, a_entry) = make(wanted("a", &["x"])).unwrap();
        let (b, b_entry) = make(wanted("b", &[])).unwrap();
        assert!(a != b && a.len() == PREFIX.len() + 64);
        assert!(!a_entry.contains(&a));
        let tokens = Tokens::parse(&format!("{a_entry}\n{b_entry}")).unwrap();
        let found = tokens.find(&a).unwrap();
        assert!(found.has(Scope::Ingest) && !found.has(Scope::Read));
        assert!(found.has_fleet("x") && !found.has_fleet("y"));
        assert!(tokens.find(&b).unwrap().has_fleet("y"));
        assert!(tokens.find("").is_none() && tokens.find(&a[1..]).is_none());
        let e = Tokens::parse(&format!("{a_entry}\n{a_entry}")).unwrap_err();
        assert!(e.to_string().contains("two tokens"), "{e}");
    }

    #[test]
    fn what_is_wrong_with_a_file_is_said() {
        let with = |more: &str| format!("[[tokens]]\nname = \"a\"\n{more}");
        let sha = "0".repeat(64);
        let cases = [
            ("tokens = 7".to_owned(), "line 1"),
            (
                with("sha256 = \"12\"\nscopes = []\nfleets = \"*\""),
                "64 hexadecimal",
            ),
            (
                with(&format!(
                    "sha256 = \"{sha}\"\nscopes = [\"all\"]\nfleets = \"*\""
                )),
                "all",
            ),
            (
                with(&format!("sha256 = \"{sha}\"\nscopes = []\nfleets = \"x\"")),
                "\"*\" or a list",
            ),
            (with("token = \"x\""), "token"),
        ];
        for (text, why) in cases {
            let e = Tokens::parse(&text).unwrap_err().to_string();
            assert!(e.contains(why), "{why}: {e}");
        }
    }
}
