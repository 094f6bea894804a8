//! `export`: a fleet's points to a file.

use std::fs::OpenOptions;
use std::io::{BufWriter, Write};
use std::process::ExitCode;

use base::{Error, Result};
use indicatif::{ProgressBar, ProgressStyle};
use tracks::export::{Choice, export};
use tracks::files::Writer;
use tracks::fleets::Fleets;
use tracks::keep;
use tracks::model::name::Name;
use tracks::model::time::Time;
use tracks::read;
use tracks::store::Engine;

use super::args;
use super::say;

pub(crate) fn run(args: &args::Export) -> Result<ExitCode> {
    super::check_is_there(&args.dir)?;
    let name = Name::new(&args.fleet)?;
    let engine = Engine::open(&args.dir)?;
    let fleets = Fleets::open(&engine)?;
    fleets.refuse_mixed(&name)?;
    let info = fleets
        .get(&name)
        .ok_or_else(|| Error::not_found(format!("there is no fleet {name}")))?;
    let clock = base::clock::SystemClock::shared();
    let now = Time(i64::try_from(clock.wall_micros()).unwrap_or(i64::MAX));
    let view = keep::kept(&engine, &fleets, now)?;
    let entity = match &args.entity {
        None => None,
        Some(entity) => {
            let entity = Name::new(entity)?;
            let found = read::find(&*view, info.fleet, &entity)?;
            Some(found.ok_or_else(|| Error::not_found(format!("there is no entity {entity}")))?)
        }
    };
    let choice = Choice {
        entity,
        from: args.from.unwrap_or(Time::MIN),
        to: args.to.unwrap_or(Time::MAX),
    };
    let out: Box<dyn Write> = match &args.out {
        None => Box::new(std::io::stdout().lock()),
        Some(path) => {
            let file = OpenOptions::new().write(true).create_new(true).open(path);
            Box::new(file.map_err(|e| Error::io("create", path.as_path(), e))?)
        }
    };
    let out = BufWriter::with_capacity(256 << 10, out);
    let mut writer = Writer::new(args.format, out, &info.settings.tags)?;
    let style = ProgressStyle::with_template("{elapsed_precise} {human_pos} points, {per_sec}");
    // It draws nothing if stderr is not a terminal.
    let bar = ProgressBar::no_length().with_style(style.map_err(Error::broken)?);
    let count = export(&*view, info.fleet, &choice, &mut writer, &mut |count| {
        bar.set_position(count);
        Ok(())
    });
    bar.finish_and_clear();
    let count = count?;
    writer.finish()?;
    say(&format!("{count} points"));
    Ok(ExitCode::SUCCESS)
}
