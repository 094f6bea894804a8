//! `getmergeoperands`: searches for a number in a value that is merged from many sorted lists, or in
//! the lists themselves.

use base::{Error, Result};

use super::Worker;
use crate::engine::Engine;
use crate::say;

const KEY: &[u8] = b"my_key";
/// The lists have the numbers from 1 up to this, exclusive.
const NUMBERS: u32 = 100_000;
const LIST: u32 = 100;
/// The number to search for.
const WANTED: u32 = 1;

/// The numbers in a list; other text is ignored.
fn numbers(list: &[u8]) -> Vec<u32> {
    let parts = list.split(|&b| b == b',');
    parts
        .filter_map(|part| std::str::from_utf8(part).ok()?.parse().ok())
        .collect()
}

fn has(list: &[u8]) -> bool {
    numbers(list).binary_search(&WANTED).is_ok()
}

fn text(list: &[u8]) -> String {
    String::from_utf8_lossy(list).into_owned()
}

impl<E: Engine> Worker<'_, E> {
    pub(super) fn lists(&mut self) -> Result<()> {
        let options = self.engine.write_options(false, false);
        let mut list = String::new();
        for number in 1..NUMBERS {
            if number % LIST == 0 {
                list.pop();
                self.engine.merge(&options, KEY, list.as_bytes())?;
                list.clear();
            } else {
                list += &format!("{number},");
            }
        }
        let seconds = |from: u64, to: u64| (to - from) as f64 * 1e-9;
        let mut value = Vec::new();
        let start = self.stats.elapsed();
        if !self.engine.get_value(KEY, &mut value)? {
            return Err(Error::corruption("a key that was merged into is not there"));
        }
        let found = has(&value);
        let end = self.stats.elapsed();
        say(&format!(
            "--- Get API call --- \nFound key? {}\nGet: {:.6} seconds\n\
             Sample data from Get API call: {}\n",
            u8::from(found),
            seconds(start, end),
            text(&value[..value.len().min(10)])
        ));
        let start = self.stats.elapsed();
        let operands = self.engine.merge_operands(KEY)?;
        let found = operands.iter().any(|list| has(list));
        let end = self.stats.elapsed();
        let mut shown = String::new();
        for (i, list) in operands.iter().take(4).enumerate() {
            shown += &format!("List: {i} : {}\n", text(list));
        }
        say(&format!(
            "--- GetMergeOperands API --- \nFound key? {}\nGet Merge operands: {:.6} seconds \n\
             Sample data from GetMergeOperands API call: {shown}",
            u8::from(found),
            seconds(start, end)
        ));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_and_searched() {
        assert_eq!(numbers(b"1,20,300"), [1, 20, 300]);
        assert!(has(b"1,2") && !has(b"2,3") && !has(b""));
    }
}
