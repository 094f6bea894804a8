//! The figures of the shapes: stored as TSV, told as a Markdown table, held against the limits.

use crate::spread::Spread;

/// The most memory or space, of RocksDB's.
const MOST: f64 = 1.1;
/// A smaller difference, in MiB, is no problem: the reserve for a full disk and the first buffers are as large for
/// each database.
const SMALL_MIB: f64 = 8.0;

/// A figure of both engines: medians of the runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sides {
    pub(super) ours: f64,
    pub(super) theirs: f64,
}

impl Sides {
    /// Ours over RocksDB's.
    pub(super) fn ratio(self) -> f64 {
        self.ours / self.theirs
    }
}

/// What was measured of one shape.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    pub(super) axis: String,
    pub(super) n: u64,
    pub(super) what: String,
    /// Time of an operation, or of the whole process.
    pub(super) micros: Sides,
    /// RocksDB's time over ours, in each pair.
    pub(super) speed: Spread,
    pub(super) cpu_seconds: Sides,
    pub(super) memory_mib: Sides,
    pub(super) written_mib: Sides,
    pub(super) space_mib: Sides,
}

/// The columns of `cliffs.tsv`: three names, and then figures.
const STORED: [&str; 16] = [
    "axis",
    "n",
    "what",
    "ironstone_micros",
    "rocksdb_micros",
    "speed",
    "speed_low",
    "speed_high",
    "ironstone_cpu_seconds",
    "rocksdb_cpu_seconds",
    "ironstone_memory_mib",
    "rocksdb_memory_mib",
    "ironstone_written_mib",
    "rocksdb_written_mib",
    "ironstone_space_mib",
    "rocksdb_space_mib",
];

/// The columns of the Markdown table.
pub(super) const COLUMNS: [&str; 9] = [
    "shape",
    "Ironstone, µs",
    "RocksDB, µs",
    "speed over RocksDB's",
    "spread",
    "CPU",
    "memory",
    "written",
    "space",
];

impl Row {
    /// The name of the shape.
    pub(super) fn name(&self) -> String {
        format!("{}-{}-{}", self.axis, self.n, self.what)
    }

    fn stored(&self) -> String {
        let both = |sides: Sides| [sides.ours, sides.theirs];
        let speed = [self.speed.median, self.speed.low, self.speed.high];
        let figures = [
            &both(self.micros)[..],
            &speed,
            &both(self.cpu_seconds),
            &both(self.memory_mib),
            &both(self.written_mib),
            &both(self.space_mib),
        ];
        let figures = figures.concat();
        let mut cells = vec![self.axis.clone(), self.n.to_string(), self.what.clone()];
        cells.extend(figures.iter().map(|f| format!("{f:.4}")));
        cells.join("\t")
    }

    /// Reads what [`Row::stored`] wrote.
    fn parse(line: &str) -> Option<Self> {
        let mut cells = line.split('\t');
        let [axis, n, what] = [cells.next()?, cells.next()?, cells.next()?];
        let figure = |cell: &str| cell.parse().ok().filter(|f: &f64| *f >= 0.0);
        let figures: Vec<f64> = cells.map(figure).collect::<Option<_>>()?;
        let figures: [f64; STORED.len() - 3] = figures.try_into().ok()?;
        let sides = |at: usize| Sides {
            ours: figures[at],
            theirs: figures[at + 1],
        };
        Some(Self {
            axis: axis.to_owned(),
            n: n.parse().ok()?,
            what: what.to_owned(),
            micros: sides(0),
            speed: Spread {
                median: figures[2],
                low: figures[3],
                high: figures[4],
            },
            cpu_seconds: sides(5),
            memory_mib: sides(7),
            written_mib: sides(9),
            space_mib: sides(11),
        })
    }

    /// The cells of [`COLUMNS`]. The last four are Ironstone's over RocksDB's: below 1 is less.
    pub(super) fn cells(&self) -> [String; COLUMNS.len()] {
        let two = |ratio: f64| {
            let text = ratio.is_finite().then(|| format!("{ratio:.2}"));
            text.unwrap_or_else(|| "–".to_owned())
        };
        [
            self.name(),
            format!("{:.3}", self.micros.ours),
            format!("{:.3}", self.micros.theirs),
            two(self.speed.median),
            format!("{}–{}", two(self.speed.low), two(self.speed.high)),
            two(self.cpu_seconds.ratio()),
            two(self.memory_mib.ratio()),
            two(self.written_mib.ratio()),
            two(self.space_mib.ratio()),
        ]
    }

    /// What exceeds its limit.
    pub(super) fn problem(&self) -> Option<String> {
        let speed = self.speed.median;
        let is_fast = speed >= 1.0; // false for what is not a number
        let slow = (!is_fast).then(|| format!("speed {speed:.2}"));
        let large = |what: &str, sides: Sides| {
            let beyond = sides.ratio() > MOST && sides.ours - sides.theirs > SMALL_MIB;
            beyond.then(|| format!("{what} {:.2}", sides.ratio()))
        };
        let memory = large("memory", self.memory_mib);
        let space = large("space", self.space_mib);
        let all: Vec<String> = [slow, memory, space].into_iter().flatten().collect();
        (!all.is_empty()).then(|| all.join(", "))
    }
}

/// The rows so far.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Table {
    pub(super) rows: Vec<Row>,
}

impl Table {
    /// Adds a row, in the place of an earlier one of the same shape.
    pub(super) fn add(&mut self, row: Row) {
        match self.rows.iter_mut().find(|r| r.name() == row.name()) {
            Some(earlier) => *earlier = row,
            None => self.rows.push(row),
        }
    }

    /// Adds the rows of a `cliffs.tsv`.
    pub(super) fn read(&mut self, text: &str) -> Result<(), String> {
        let mut lines = text.lines();
        if lines.next() != Some(&STORED.join("\t")) {
            let wrong =
                "not the cliffs.tsv of this version, it has other columns: measure it again";
            return Err(wrong.to_owned());
        }
        for line in lines {
            let row = Row::parse(line).ok_or_else(|| format!("not a row: {line}"))?;
            self.add(row);
        }
        Ok(())
    }

    pub(super) fn tsv(&self) -> String {
        let rows = self.rows.iter().map(Row::stored);
        let lines: Vec<String> = std::iter::once(STORED.join("\t")).chain(rows).collect();
        lines.join("\n") + "\n"
    }

    pub(super) fn markdown(&self) -> String {
        let mut out = format!("| {} |\n|---{}|\n", COLUMNS.join(" | "), "|---:".repeat(8));
        for row in &self.rows {
            out += &format!("| {} |\n", row.cells().join(" | "));
        }
        out
    }

    /// The rows that exceed a limit, and what does.
    pub(super) fn problems(&self) -> Vec<String> {
        let told = |row: &Row| Some(format!("{}: {}", row.name(), row.problem()?));
        self.rows.iter().filter_map(told).collect()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A row with these figures of both engines.
    pub(in super::super) fn row(name: (&str, u64, &str), micros: [f64; 2], mib: [f64; 2]) -> Row {
        let sides = |[ours, theirs]: [f64; 2]| Sides { ours, theirs };
        let (axis, n, what) = name;
        let ratio = micros[1] / micros[0];
        Row {
            axis: axis.to_owned(),
            n,
            what: what.to_owned(),
            micros: sides(micros),
            speed: Spread {
                median: ratio,
                low: ratio / 2.0,
                high: ratio * 2.0,
            },
            cpu_seconds: sides([1.0, 2.0]),
            memory_mib: sides(mib),
            written_mib: sides([0.0, 0.0]),
            space_mib: sides([5.0, 5.0]),
        }
    }

    #[test]
    fn a_row_that_is_slower_or_larger_is_named() {
        let mut table = Table::default();
        table.add(row(("files", 10, "open"), [1.0, 2.0], [10.0, 10.0]));
        // 5 MiB more are no problem.
        table.add(row(("files", 20, "open"), [1.0, 2.0], [15.0, 10.0]));
        assert_eq!(table.problems(), [""; 0]);
        table.add(row(("files", 10, "open"), [4.0, 2.0], [120.0, 100.0]));
        assert_eq!(
            table.problems(),
            ["files-10-open: speed 0.50, memory 1.20"],
            "it took the place of the other"
        );
        assert!(table.markdown().contains("| – |"), "nothing was written");
    }

    #[test]
    fn stored_rows_come_back() {
        let mut table = Table::default();
        table.add(row(
            ("values", 65536, "scan-plain"),
            [1.25, 2.5],
            [10.0, 10.0],
        ));
        table.add(row(("files", 20, "open"), [1.0, 2.0], [15.0, 10.0]));
        let mut back = Table::default();
        back.read(&table.tsv()).unwrap();
        assert_eq!(back, table);
        let cut = table.tsv().replace("\t15.0000", "");
        assert!(back.read(&cut).unwrap_err().contains("not a row: files"));
        assert!(back.read("shape\n").unwrap_err().contains("other columns"));
    }
}
