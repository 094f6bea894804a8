//! `import`: files become a part of a folder's tracks, all of them or none.

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use base::clock::SystemClock;
use base::{Error, ErrorKind, Result};
use indicatif::{ProgressBar, ProgressStyle};
use io::{File, FileSystem, OpenHow};
use tracks::files::layout::{self, Column, Layout, Length, Speed, Times};
use tracks::files::{self, Format};
use tracks::import::{Import, Options, Progress, Summary};
use tracks::model::name::Name;
use tracks::model::time::Time;
use tracks::store::Engine;

use super::args;
use super::{print, say};

/// How many bad records are printed on stderr if there is no file for them.
const SAID_MAX: u64 = 10;

pub(crate) fn run(args: &args::Import) -> Result<ExitCode> {
    let clock = SystemClock::shared();
    let begun = clock.monotonic_nanos();
    let fleet = Name::new(&args.fleet)?;
    let options = options(args)?;
    let inputs = inputs(args)?;
    let engine = Engine::open_for_import(&args.dir)?;
    let now = Time(i64::try_from(clock.wall_micros()).unwrap_or(i64::MAX));
    let how = Options {
        memory: args.memory,
        visits: !args.no_visits,
        bad_max: args.bad_lines_max,
    };
    let mut bad = BadLines::new(args.bad_lines.as_deref())?;
    let style = ProgressStyle::with_template("{elapsed_precise} {msg} {human_pos}, {per_sec}");
    // It draws nothing if stderr is not a terminal.
    let bar = ProgressBar::no_length().with_style(style.map_err(Error::broken)?);
    let mut told = |progress| show(&bar, progress);
    let mut import = Import::begin(&engine, &fleet, now, &how)?;
    for input in &inputs {
        read(&mut import, input, (args, &options), &mut bad, &mut told)?;
    }
    let summary = import.finish(&mut |what| bad.add(what), &mut told);
    bar.finish_and_clear();
    let summary = summary?;
    bad.finish()?;
    drop(engine);
    let nanos = clock.monotonic_nanos().saturating_sub(begun);
    print(&text(&summary, nanos as f64 / 1e9));
    let is_nothing = summary.stored + summary.same == 0 && summary.bad > 0;
    Ok(if is_nothing {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

fn show(bar: &ProgressBar, progress: Progress) {
    let (what, count) = match progress {
        Progress::Read(count) => ("read", Some(count)),
        Progress::Sorted(count) => ("sorted", Some(count)),
        Progress::Ingest => ("becoming a part of the database", None),
        Progress::Compact => ("merging", None),
    };
    bar.set_message(what);
    if let Some(count) = count {
        bar.set_position(count);
    }
    bar.tick();
}

fn text(summary: &Summary, seconds: f64) -> String {
    let Summary {
        stored,
        same,
        bad,
        entities,
        moved,
        ..
    } = summary;
    let rate = (stored + same) as f64 / seconds.max(1e-3);
    format!(
        "{stored} reports of {entities} entities, {moved} of which are moved; {same} were there already; {bad} bad; \
         {seconds:.1} s, {rate:.0} reports/s. Fences have not seen them."
    )
}

/// A file, or stdin.
enum Input {
    Stdin,
    File(PathBuf),
}

/// The named files, and the files of the format in the named folders.
fn inputs(args: &args::Import) -> Result<Vec<Input>> {
    let mut out = Vec::new();
    for path in &args.files {
        if path.as_os_str() == "-" {
            out.push(Input::Stdin);
        } else if path.is_dir() {
            let before = out.len();
            walk(path, args.format, &mut out)?;
            if out.len() == before {
                let text = format!("no file in this folder ends as those of {} do", args.format);
                return Err(Error::not_found(text).file(path));
            }
        } else {
            out.push(Input::File(path.clone()));
        }
    }
    Ok(out)
}

/// In the order of their paths, so that the same folder gives the same import.
fn walk(dir: &Path, format: Format, out: &mut Vec<Input>) -> Result<()> {
    let mut folders = vec![dir.to_path_buf()];
    let mut files = Vec::new();
    while let Some(dir) = folders.pop() {
        let failed = |e| Error::io("list", &dir, e);
        for entry in std::fs::read_dir(&dir).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let kind = entry.file_type().map_err(failed)?;
            let path = entry.path();
            if kind.is_dir() {
                folders.push(path);
            } else if ends_as(&path, format) {
                files.push(path);
            }
        }
    }
    files.sort();
    out.extend(files.into_iter().map(Input::File));
    Ok(())
}

fn ends_as(path: &Path, format: Format) -> bool {
    let has = |ending: &str| {
        path.extension()
            .is_some_and(|e| e.eq_ignore_ascii_case(ending))
    };
    match format {
        Format::TDrive => has("txt"),
        Format::Porto => has("csv"),
        _ => Format::of_path(path).is_ok_and(|of| of == format),
    }
}

fn read(
    import: &mut Import<'_>,
    input: &Input,
    (args, options): (&args::Import, &files::Options),
    bad: &mut BadLines,
    told: &mut dyn FnMut(Progress),
) -> Result<()> {
    let mut options = options.clone();
    let (name, source): (String, Box<dyn BufRead>) = match input {
        Input::Stdin => ("-".to_owned(), Box::new(std::io::stdin().lock())),
        Input::File(path) => {
            if args.format == Format::GeoLife && options.entity.is_none() {
                options.entity = Some(layout::geolife_entity(path)?);
            }
            let file = io::posix::Posix.open(path, OpenHow::READ)?;
            let source = BufReader::with_capacity(256 << 10, Source { file, at: 0 });
            (path.display().to_string(), Box::new(source))
        }
    };
    let mut reader = files::open(args.format, source, &options);
    import
        .read(&name, &mut reader, &mut |what| bad.add(what), told)
        .map_err(|e| match input {
            Input::File(path) => e.or_file(path),
            Input::Stdin => e,
        })
}

/// A file as a stream.
struct Source {
    file: Arc<dyn File>,
    at: u64,
}

impl Read for Source {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        let count = self
            .file
            .read_at(buf, self.at)
            .map_err(std::io::Error::other)?;
        self.at += count as u64;
        Ok(count)
    }
}

/// Where bad records are written.
struct BadLines {
    out: Option<(PathBuf, BufWriter<std::fs::File>)>,
    count: u64,
}

impl BadLines {
    fn new(path: Option<&Path>) -> Result<Self> {
        let open = |path: &Path| {
            let file = OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .open(path);
            let file = file.map_err(|e| Error::io("create", path, e))?;
            Ok::<_, Error>((path.to_path_buf(), BufWriter::new(file)))
        };
        Ok(Self {
            out: path.map(open).transpose()?,
            count: 0,
        })
    }

    fn add(&mut self, what: &str) -> Result<()> {
        self.count += 1;
        if let Some((path, out)) = &mut self.out {
            return writeln!(out, "{what}").map_err(|e| Error::io("write", path.as_path(), e));
        }
        if self.count <= SAID_MAX {
            say(&format!("bad: {what}"));
        } else if self.count == SAID_MAX + 1 {
            say("bad: more of them; --bad-lines FILE has them all");
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        match &mut self.out {
            Some((path, out)) => out
                .flush()
                .map_err(|e| Error::io("write", path.as_path(), e)),
            None => Ok(()),
        }
    }
}

/// How the files are read.
fn options(args: &args::Import) -> Result<files::Options> {
    Ok(files::Options {
        entity: args.entity.as_deref().map(Name::new).transpose()?,
        layout: layout_of(args)?,
        utc_offset: args.utc_offset,
        ignore_unknown: args.ignore_unknown,
    })
}

fn layout_of(args: &args::Import) -> Result<Layout> {
    let mut layout = Layout {
        separator: args.separator,
        header: !args.no_header,
        times: times(&args.times),
        ..Layout::default()
    };
    if args.format != Format::Csv && args.map.is_some() {
        let text = format!("--map is for csv, and not for {}", args.format);
        return Err(Error::new(ErrorKind::InvalidArgument, text));
    }
    let speed = match args.speed_unit.as_str() {
        "m/s" => Speed::MetresPerSecond,
        "km/h" => Speed::KilometresPerHour,
        "knots" => Speed::Knots,
        other => {
            let text = format!("--speed-unit {other:?}: there are m/s, km/h and knots");
            return Err(Error::invalid_argument(text));
        }
    };
    if args.map.is_some() {
        let none = || Column::Name(String::new());
        let before = layout;
        layout = Layout {
            separator: before.separator,
            times: before.times,
            ..Layout::of(none(), none(), before.header)
        };
    }
    let mut is_there = (args.map.is_none(), args.map.is_none());
    for (what, column) in args.map.iter().flatten() {
        map(
            &mut layout,
            (what, Column::of(column)),
            &mut is_there,
            speed,
        )?;
    }
    if is_there != (true, true) {
        let text = "--map must say where lat and lon are";
        return Err(Error::invalid_argument(text).hint("as in --map entity=id,lat=y,lon=x,time=t"));
    }
    if let Some((_, unit)) = &mut layout.speed {
        *unit = speed;
    }
    Ok(layout)
}

fn map(
    layout: &mut Layout,
    (what, column): (&str, Column),
    is_there: &mut (bool, bool),
    speed: Speed,
) -> Result<()> {
    let at = &mut layout.positions;
    match (what, at) {
        ("lat", layout::Positions::Columns { lat, .. }) => {
            *lat = column;
            is_there.0 = true;
        }
        ("lon", layout::Positions::Columns { lon, .. }) => {
            *lon = column;
            is_there.1 = true;
        }
        ("entity", _) => layout.entity = Some(column),
        ("time", _) => layout.time.push(column),
        ("speed", _) => layout.speed = Some((column, speed)),
        ("course", _) => layout.course = Some(column),
        ("altitude", _) => layout.altitude = Some((column, Length::Metres)),
        ("accuracy", _) => layout.accuracy = Some(column),
        ("battery", _) => layout.battery = Some(column),
        ("tags", _) => layout.tags = Some(column),
        ("attributes", _) => layout.attributes = Some(column),
        (other, _) => {
            let Some(name) = other.strip_prefix("attributes.") else {
                let text = format!("--map {other}=…: a report has nothing of this name");
                return Err(Error::invalid_argument(text).hint(
                    "it has entity, lat, lon, time, speed, course, altitude, accuracy, battery, tags, attributes, \
                     attributes.NAME",
                ));
            };
            layout.extra.push((name.to_owned(), column));
        }
    }
    Ok(())
}

fn times(text: &str) -> Times {
    match text {
        "seconds" => Times::SecondsOrRfc3339,
        "millis" => Times::Millis,
        "micros" => Times::Micros,
        pattern => Times::Pattern(pattern.to_owned()),
    }
}
