//! NDJSON: one report in each line, in the format of [`json`](super::json). Empty lines are
//! skipped.
//!
//! For NDJSON, see <https://github.com/ndjson/ndjson-spec> and <https://jsonlines.org>.

use std::io::BufRead;

use base::Result;

use super::json;
use super::lines::Lines;
use super::options::Options;
use super::record::{LINE_BYTES_MAX, Record, goes_on};

/// Reports of lines.
#[derive(Debug)]
pub(super) struct Ndjson<R> {
    lines: Lines<R>,
    options: Options,
    is_over: bool,
}

impl<R: BufRead> Ndjson<R> {
    pub(super) fn new(read: R, options: Options) -> Self {
        Self {
            lines: Lines::new(read, LINE_BYTES_MAX),
            options,
            is_over: false,
        }
    }

    fn step(&mut self) -> Result<Option<Record>> {
        while self.lines.advance()? {
            let text = self.lines.text()?;
            if text.trim_ascii().is_empty() {
                continue;
            }
            let Options {
                entity,
                ignore_unknown,
                ..
            } = &self.options;
            let found = json::report_of(text, entity.as_ref(), *ignore_unknown);
            return self.lines.place().record(found).map(Some);
        }
        Ok(None)
    }
}

impl<R: BufRead> Iterator for Ndjson<R> {
    type Item = Result<Record>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let step = self.step();
        self.is_over = match &step {
            Ok(found) => found.is_none(),
            Err(e) => !goes_on(e),
        };
        step.transpose()
    }
}
