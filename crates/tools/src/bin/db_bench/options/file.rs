//! The options of an OPTIONS file, as `--options_file` asks for them.

use std::path::Path;

use base::{Error, Result};

use super::EngineOption;
use crate::flags::Place;

/// The options of the database, of the default family and of its tables. Errors: the file cannot be read.
pub(super) fn options(path: &Path) -> Result<Vec<EngineOption>> {
    let text = std::fs::read_to_string(path).map_err(|e| Error::io("read", path, e))?;
    Ok(parse(&text))
}

/// The options in the relevant sections. Lines without a value are ignored.
fn parse(text: &str) -> Vec<EngineOption> {
    let mut place = None;
    let mut all = Vec::new();
    for line in text.lines().map(str::trim) {
        if line.starts_with('[') {
            place = match line {
                "[DBOptions]" => Some(Place::Db),
                "[CFOptions \"default\"]" => Some(Place::Cf),
                "[TableOptions/BlockBasedTable \"default\"]" => Some(Place::Table),
                _ => None,
            };
        } else if let (Some(place), Some((name, value))) = (place, line.split_once('=')) {
            let asks = !line.starts_with('#') && !value.is_empty() && value != "nullptr";
            // The tables' factory is named here; what it is to do stands in a section of its own.
            if asks && name != "table_factory" {
                all.push(EngineOption {
                    place,
                    name: name.to_owned(),
                    flag: "",
                    value: value.to_owned(),
                    is_default: false,
                    own: false,
                });
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_familys_sections_count() {
        let all = parse(
            "[Version]\n  rocksdb_version=11.8.1\n[DBOptions]\n  # no\n  max_background_jobs=3\n  \
             wal_dir=\n[CFOptions \"default\"]\n  write_buffer_size=77\n  merge_operator=nullptr\n  \
             table_factory=BlockBasedTable\n[TableOptions/BlockBasedTable \"default\"]\n  \
             block_size=99\n[CFOptions \"other\"]\n  write_buffer_size=1\n",
        );
        let found: Vec<_> = all
            .iter()
            .map(|o| (o.place, o.name.as_str(), o.value.as_str()))
            .collect();
        assert_eq!(
            found,
            [
                (Place::Db, "max_background_jobs", "3"),
                (Place::Cf, "write_buffer_size", "77"),
                (Place::Table, "block_size", "99"),
            ]
        );
    }
}
