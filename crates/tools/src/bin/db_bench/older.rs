//! Lines in an older layout of `rocksdb.stats`, for scripts that expect that layout.
//!
//! RocksDB's benchmark.sh reads columns of the line ` Sum` by number. Since then the column `WPreComp(GB)`
//! was added, and stalls moved to another line. So with RocksDB 11.8's db_bench, two columns of the
//! script's report have wrong values and one is empty. Therefore the benchmark `stats` prints these two
//! lines again in the old layout.

/// The lines, derived from the text of `rocksdb.stats`; empty if the text does not have them.
pub(crate) fn lines(stats: &str) -> String {
    let (sum, stalls) = (sum_line(stats), stalls_line(stats));
    let found = [sum, stalls].into_iter().flatten();
    let text: String = found.collect();
    if text.is_empty() {
        return text;
    }
    format!("** In the layout that benchmark.sh reads **\n{text}\n")
}

/// The line ` Sum` without `WPreComp(GB)`.
fn sum_line(stats: &str) -> Option<String> {
    /// The columns before `WPreComp(GB)`: Sum, files, size, its unit, score, Read, Rn, Rnp1, Write.
    const BEFORE: usize = 9;
    let header = stats.lines().find(|l| l.starts_with("Level "))?;
    let sum = stats.lines().find(|l| l.starts_with(" Sum "))?;
    let mut columns: Vec<&str> = sum.split_whitespace().collect();
    if header.contains("WPreComp(GB)") && columns.len() > BEFORE {
        columns.remove(BEFORE);
    }
    Some(format!(" {}\n", columns.join("  ")))
}

/// The line `Stalls(count):`, from the counts of `Write Stall (count):` of the family.
fn stalls_line(stats: &str) -> Option<String> {
    let counts = stats
        .lines()
        .find_map(|l| l.strip_prefix("Write Stall (count): "))?;
    let count = |name: &str| -> u64 {
        let mut named = counts.split(", ").filter_map(|c| c.split_once(": "));
        let found = named.find(|(n, _)| *n == name);
        found.and_then(|(_, n)| n.trim().parse().ok()).unwrap_or(0)
    };
    Some(format!(
        "Stalls(count): {} level0_slowdown, {} level0_slowdown_with_compaction, \
         {} level0_numfiles, {} level0_numfiles_with_compaction, \
         {} stop for pending_compaction_bytes, {} slowdown for pending_compaction_bytes, \
         {} memtable_compaction, {} memtable_slowdown, interval 0 total count\n",
        count("l0-file-count-limit-delays"),
        count("cf-l0-file-count-limit-delays-with-ongoing-compaction"),
        count("l0-file-count-limit-stops"),
        count("cf-l0-file-count-limit-stops-with-ongoing-compaction"),
        count("pending-compaction-bytes-stops"),
        count("pending-compaction-bytes-delays"),
        count("memtable-limit-stops"),
        count("memtable-limit-delays"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_where_they_stood() {
        let stats = "\
Level    Files   Size     Score Read(GB)  Rn(GB) Rnp1(GB) Write(GB) WPreComp(GB) Wnew(GB) Moved(GB) W-Amp Rd(MB/s) Wr(MB/s) Comp(sec) CompMergeCPU(sec) Comp(cnt) Avg(sec) KeyIn KeyDrop Rblob(GB) Wblob(GB)
 Sum      4/0    252.38 MB   0.0      1.0     2.0      3.0       4.0       5.0      6.0       7.0   1.0      8.0    172.0      1.47              1.35         4    0.367   1179K      0       9.0       9.5
Write Stall (count): cf-l0-file-count-limit-delays-with-ongoing-compaction: 1, cf-l0-file-count-limit-stops-with-ongoing-compaction: 2, l0-file-count-limit-delays: 3, l0-file-count-limit-stops: 4, memtable-limit-delays: 5, memtable-limit-stops: 6, pending-compaction-bytes-delays: 7, pending-compaction-bytes-stops: 8, total-delays: 15, total-stops: 18
";
        let lines = lines(stats);
        let column = |start: &str, n: usize| {
            let line = lines.lines().find(|l| l.starts_with(start)).unwrap();
            line.split_whitespace().nth(n - 1).unwrap().to_owned()
        };
        // What benchmark.sh takes for c_wsecs, c_csecs, b_rgb, b_wgb.
        let taken = [15, 16, 21, 22].map(|n| column(" Sum", n));
        assert_eq!(taken, ["1.47", "1.35", "9.0", "9.5"]);
        let stalls = [2, 6, 10, 14, 18, 20].map(|n| column("Stalls", n));
        assert_eq!(stalls, ["3", "4", "8", "7", "6", "5"]);
        assert_eq!(super::lines(""), "");
    }
}
