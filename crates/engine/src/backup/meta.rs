//! The list of a backup's files, as stored in `meta/<id>`.
//!
//! ```text
//!   1795315228                        seconds since 1970
//!   5                                 the last sequence number
//!   metadata 6170706c65               application metadata in hex; only if there is any
//!   2                                 the number of files
//!   shared_checksum/000034_sDWDO…_980.sst crc32 2223874451
//!   private/2/CURRENT crc32 1085714998
//! ```
//!
//! Source: RocksDB `utilities/backup/backup_engine.cc`, schema 1, and files written by 7.8.3 and 11.8.1. Paths are
//! relative to the backup directory and never lead out of it.
#![deny(clippy::indexing_slicing)]

use std::fmt::Write as _;
use std::path::{Component, Path};

use base::{Error, Result};

/// A file of a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct File {
    /// The path, relative to the backup directory.
    pub(super) path: String,
    /// The CRC-32C of the whole file; `None` if it was not recorded.
    pub(super) crc32c: Option<u32>,
}

impl File {
    /// The name of the file in a database.
    pub(super) fn name_in_database(&self) -> String {
        let name = self.path.rsplit('/').next().unwrap_or_default();
        if !self.path.starts_with("shared_checksum/") {
            return name.to_owned();
        }
        // 000034_<session id or checksum, and size>.sst
        let (number, rest) = name.split_once('_').unwrap_or((name, ""));
        match rest.rsplit_once('.') {
            Some((_, suffix)) => format!("{number}.{suffix}"),
            None => name.to_owned(),
        }
    }

    /// Whether other backups may use this file too.
    pub(super) fn is_shared(&self) -> bool {
        self.path.starts_with("shared")
    }
}

/// The content of a backup's list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Meta {
    /// When the backup was made, in seconds since 1970.
    pub(super) timestamp: i64,
    pub(super) sequence: u64,
    pub(super) app_metadata: Vec<u8>,
    pub(super) files: Vec<File>,
}

impl Meta {
    pub(super) fn encode(&self) -> String {
        let mut out = format!("{}\n{}\n", self.timestamp, self.sequence);
        if !self.app_metadata.is_empty() {
            out.push_str("metadata ");
            for byte in &self.app_metadata {
                write!(out, "{byte:02X}").unwrap_or_default();
            }
            out.push('\n');
        }
        writeln!(out, "{}", self.files.len()).unwrap_or_default();
        for file in &self.files {
            match file.crc32c {
                Some(crc) => writeln!(out, "{} crc32 {crc}", file.path),
                None => writeln!(out, "{}", file.path),
            }
            .unwrap_or_default();
        }
        out
    }

    /// Errors: `Corruption`, with a description of the problem; `NotSupported` for a newer schema.
    pub(super) fn decode(text: &str) -> Result<Self> {
        let bad = |what: &str, line: &str| {
            let line: String = line.chars().take(60).collect();
            Error::corruption(format!("backup meta file: {what}: {line:?}"))
        };
        let mut lines = text.lines();
        let mut next = |what: &str| {
            let line = lines.next();
            line.ok_or_else(|| bad("it ends before", what))
        };
        let first = next("the time")?;
        if let Some(version) = first.strip_prefix("schema_version ") {
            return Err(Error::not_supported(format!(
                "backup meta files of schema_version {version}"
            )));
        }
        let timestamp = first.parse().map_err(|_| bad("not a time", first))?;
        let line = next("the sequence number")?;
        let sequence = line.parse().map_err(|_| bad("not a number", line))?;
        let mut line = next("the number of files")?;
        let mut app_metadata = Vec::new();
        if let Some(hex) = line.strip_prefix("metadata ") {
            app_metadata = unhex(hex).ok_or_else(|| bad("metadata is not hex", line))?;
            line = next("the number of files")?;
        }
        let count: usize = line.parse().map_err(|_| bad("not a number", line))?;
        let mut files = Vec::new();
        for line in lines {
            let mut words = line.split(' ');
            let path = words.next().unwrap_or_default();
            if !is_below(path) {
                return Err(bad("not a path below the backups", path));
            }
            let crc32c = match (words.next(), words.next(), words.next()) {
                (None, _, _) => None,
                (Some("crc32"), Some(n), None) => {
                    Some(n.parse().map_err(|_| bad("not a checksum", line))?)
                }
                _ => return Err(bad("unknown words", line)),
            };
            files.push(File {
                path: path.to_owned(),
                crc32c,
            });
        }
        if files.len() != count {
            return Err(bad(
                &format!("{} files follow", files.len()),
                &count.to_string(),
            ));
        }
        Ok(Self {
            timestamp,
            sequence,
            app_metadata,
            files,
        })
    }
}

/// Whether the path stays inside the backup directory. The list may come from an untrusted source.
fn is_below(path: &str) -> bool {
    let parts = ["shared/", "shared_checksum/", "private/"];
    parts.iter().any(|p| path.starts_with(p))
        && Path::new(path)
            .components()
            .all(|c| matches!(c, Component::Normal(_)))
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = text
        .chars()
        .map(|c| c.to_digit(16).map(|d| d as u8))
        .collect();
    let digits = digits?;
    if digits.len() % 2 != 0 {
        return None;
    }
    let pairs = digits.chunks(2).map(|pair| match pair {
        [high, low] => Some(high << 4 | low),
        _ => None,
    });
    pairs.collect()
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "tests may panic")]
mod tests {
    use super::*;

    const TEXT: &str = "1795315228\n5\nmetadata 00FF\n3\n\
        shared_checksum/000034_sDWDOPURINV5VZDVXKKQ8_980.sst crc32 2223874451\n\
        private/2/MANIFEST-000036 crc32 2284143654\nshared/000001.sst\n";

    #[test]
    fn what_is_written_is_read() {
        let meta = Meta::decode(TEXT).unwrap();
        assert_eq!((meta.timestamp, meta.sequence), (1_795_315_228, 5));
        assert_eq!(meta.app_metadata, [0, 255]);
        let names: Vec<_> = meta.files.iter().map(File::name_in_database).collect();
        assert_eq!(names, ["000034.sst", "MANIFEST-000036", "000001.sst"]);
        assert_eq!(meta.files[0].crc32c, Some(2_223_874_451));
        assert!(meta.files[0].is_shared() && !meta.files[1].is_shared());
        assert_eq!(meta.encode(), TEXT);
        let plain = TEXT.replace("metadata 00FF\n", "");
        assert_eq!(Meta::decode(&plain).unwrap().encode(), plain);
    }

    #[test]
    fn damage_is_named() {
        let cases = [
            ("", "it ends before"),
            ("x\n", "not a time"),
            ("1\n", "it ends before"),
            ("1\nx\n", "not a number"),
            ("1\n2\nmetadata 0\n", "not hex"),
            ("1\n2\n1\n", "files follow"),
            ("1\n2\n1\n/etc/passwd crc32 1\n", "not a path"),
            ("1\n2\n1\nprivate/../../x crc32 1\n", "not a path"),
            ("1\n2\n1\nprivate/1/x crc32 y\n", "not a checksum"),
            ("1\n2\n1\nprivate/1/x crc32 1 more\n", "unknown words"),
            ("1\n2\n1\nprivate/1/x md5 1\n", "unknown words"),
        ];
        for (text, want) in cases {
            let e = Meta::decode(text).unwrap_err();
            assert!(
                e.is_corruption() && e.to_string().contains(want),
                "{text:?}: {e}"
            );
        }
        let e = Meta::decode("schema_version 2.0\n").unwrap_err();
        assert!(e.to_string().contains("schema_version 2.0"), "{e}");
        for cut in 0..TEXT.len() {
            drop(Meta::decode(&TEXT[..cut]));
        }
    }
}
