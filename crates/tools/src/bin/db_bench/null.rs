//! An engine that does nothing: the time of a benchmark with it is the driver's own cost.

use std::ffi::CString;
use std::path::{Path, PathBuf};

use base::Result;

use crate::engine::{Bounds, Cursor, Engine, TableFile};
use crate::flags::Flags;

pub(crate) struct Null;

/// A cursor for which each seek finds its key.
#[derive(Default)]
pub(crate) struct Everywhere {
    key: Vec<u8>,
}

impl Engine for Null {
    type Write = ();
    type Batch = ();
    type Cursor<'a> = Everywhere;
    type Snapshot<'a> = ();
    type Settings = ();
    type Table = ();
    type Perf = ();

    fn settings(_: &Flags) -> Result<()> {
        Ok(())
    }
    fn open(_: &Flags, (): &(), _: &Path) -> Result<Self> {
        Ok(Self)
    }
    fn open_read_only(_: &Flags, (): &(), _: &Path) -> Result<Self> {
        Ok(Self)
    }
    fn catch_up(&self) -> Result<()> {
        Ok(())
    }
    fn close(self) -> Result<()> {
        Ok(())
    }
    fn write_options(&self, _: bool, _: bool) {}
    #[inline(never)]
    fn put(&self, (): &(), key: &[u8], value: &[u8]) -> Result<()> {
        std::hint::black_box((key, value));
        Ok(())
    }
    #[inline(never)]
    fn delete(&self, (): &(), key: &[u8]) -> Result<()> {
        std::hint::black_box(key);
        Ok(())
    }
    fn single_delete(&self, options: &(), key: &[u8]) -> Result<()> {
        self.delete(options, key)
    }
    fn delete_range(&self, options: &(), begin: &[u8], end: &[u8]) -> Result<()> {
        self.put(options, begin, end)
    }
    fn merge(&self, options: &(), key: &[u8], operand: &[u8]) -> Result<()> {
        self.put(options, key, operand)
    }
    fn batch(&self) {}
    fn batch_put(&self, (): &mut (), key: &[u8], value: &[u8]) -> Result<()> {
        self.put(&(), key, value)
    }
    fn batch_delete(&self, (): &mut (), key: &[u8]) -> Result<()> {
        self.delete(&(), key)
    }
    fn write(&self, (): &(), (): &mut ()) -> Result<()> {
        Ok(())
    }
    fn batch_put_in(&self, (): &mut (), _: usize, key: &[u8], value: &[u8]) -> Result<()> {
        self.put(&(), key, value)
    }
    fn batch_delete_in(&self, (): &mut (), _: usize, key: &[u8]) -> Result<()> {
        self.delete(&(), key)
    }
    #[inline(never)]
    fn get(&self, key: &[u8], _: &mut Vec<u8>) -> Result<Option<usize>> {
        std::hint::black_box(key);
        Ok(Some(0))
    }
    fn get_in(&self, _: usize, key: &[u8], scratch: &mut Vec<u8>) -> Result<Option<usize>> {
        self.get(key, scratch)
    }
    fn delete_range_in(&self, options: &(), _: usize, begin: &[u8], end: &[u8]) -> Result<()> {
        self.put(options, begin, end)
    }
    fn merge_in(&self, options: &(), _: usize, key: &[u8], operand: &[u8]) -> Result<()> {
        self.put(options, key, operand)
    }
    fn get_value(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        value.clear();
        Ok(self.get(key, value)?.is_some())
    }
    fn get_at_once(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>> {
        Ok(vec![None; keys.len()])
    }
    fn merge_operands(&self, key: &[u8]) -> Result<Vec<Vec<u8>>> {
        self.get(key, &mut Vec::new())?;
        Ok(vec![Vec::new()])
    }
    fn entity(&self, key: &[u8]) -> Result<Option<usize>> {
        self.get(key, &mut Vec::new())
    }
    fn multi_entity(&self, keys: &[&[u8]]) -> Result<(u64, u64)> {
        self.multi_get(keys)
    }
    #[inline(never)]
    fn memtable_stats(&self, begin: &[u8], end: &[u8]) -> Result<(u64, u64)> {
        std::hint::black_box((begin, end));
        Ok((0, 0))
    }
    #[inline(never)]
    fn multi_get(&self, keys: &[&[u8]]) -> Result<(u64, u64)> {
        std::hint::black_box(keys);
        Ok((keys.len() as u64, 0))
    }
    fn multi_scan(&self, ranges: &[(Vec<u8>, Vec<u8>)], _: bool) -> Result<u64> {
        std::hint::black_box(ranges);
        Ok(0)
    }
    fn cursor(&self, _: Bounds<'_>) -> Result<Everywhere> {
        Ok(Everywhere::default())
    }
    fn snapshot(&self) {}
    fn cursor_at<'s>(&'s self, (): &'s (), _: Bounds<'_>) -> Result<Everywhere> {
        Ok(Everywhere::default())
    }
    fn approximate_size(&self, _: &[u8], _: &[u8]) -> Result<u64> {
        Ok(0)
    }
    fn table(&self, _: &Path) -> Result<()> {
        Ok(())
    }
    fn table_put(&self, (): &mut (), key: &[u8], value: &[u8]) -> Result<()> {
        self.put(&(), key, value)
    }
    fn table_finish(&self, (): ()) -> Result<()> {
        Ok(())
    }
    fn ingest(&self, _: &[PathBuf]) -> Result<()> {
        Ok(())
    }
    fn flush(&self) -> Result<()> {
        Ok(())
    }
    fn sync_wal(&self) -> Result<()> {
        Ok(())
    }
    fn compact(&self, _rewrites: bool) -> Result<()> {
        Ok(())
    }
    fn tables(&self) -> Result<Vec<(i32, CString)>> {
        Ok(Vec::new())
    }
    fn compact_files(&self, _: &[CString], _: i32) -> Result<()> {
        Ok(())
    }
    fn table_files(&self) -> Result<Vec<TableFile>> {
        Ok(Vec::new())
    }
    fn compact_into(&self, _: &[TableFile], _: i32, _: u64) -> Result<()> {
        Ok(())
    }
    fn set_options(&self, _: &[(&str, &str)]) -> Result<()> {
        Ok(())
    }
    fn verify_checksum(&self) -> Result<()> {
        Ok(())
    }
    fn verify_file_checksums(&self) -> Result<()> {
        Ok(())
    }
    fn backup(&self, _: &Path) -> Result<()> {
        Ok(())
    }
    fn restore(&self, _: &Path, _: &Path) -> Result<()> {
        Ok(())
    }
    fn perf_start(&self, _: i32) -> Result<()> {
        Ok(())
    }
    fn perf_report(&self, (): &()) -> Result<String> {
        Ok(String::new())
    }
    fn property(&self, _: &str) -> Option<String> {
        None
    }
    fn property_of(&self, _: usize, _: &str) -> Option<String> {
        None
    }
    fn statistics(&self) -> Option<String> {
        None
    }
    fn wait_for_compaction(&self) -> Result<()> {
        Ok(())
    }
}

impl Cursor for Everywhere {
    fn seek_to_first(&mut self) {}
    fn seek_to_last(&mut self) {}
    #[inline(never)]
    fn seek(&mut self, key: &[u8]) {
        self.key.clear();
        self.key.extend_from_slice(key);
    }
    fn seek_for_prev(&mut self, key: &[u8]) {
        self.seek(key);
    }
    #[inline(never)]
    fn next(&mut self) {
        std::hint::black_box(());
    }
    #[inline(never)]
    fn prev(&mut self) {
        std::hint::black_box(());
    }
    fn valid(&self) -> bool {
        true
    }
    fn key(&self) -> &[u8] {
        &self.key
    }
    fn value(&self) -> &[u8] {
        &[]
    }
    fn status(&self) -> Result<()> {
        Ok(())
    }
}
