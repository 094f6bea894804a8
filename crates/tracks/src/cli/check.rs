//! `check`: whether the rows of a folder are consistent.

use std::process::ExitCode;

use base::{Error, Result};
use indicatif::{ProgressBar, ProgressStyle};
use tracks::check::{self, Findings, Options};
use tracks::store::Engine;

use super::args::Check;
use super::print;

pub(crate) fn run(args: &Check) -> Result<ExitCode> {
    super::check_is_there(&args.dir)?;
    let engine = Engine::open(&args.dir)?;
    let style = ProgressStyle::with_template("{elapsed_precise} {human_pos} rows, {per_sec}");
    let style = style.map_err(Error::broken)?;
    // It draws nothing if stderr is not a terminal.
    let progress = ProgressBar::no_length().with_style(style);
    let options = Options {
        visits: !args.no_visits,
    };
    let found = check::check(&engine, options, &mut |rows| progress.set_position(rows));
    progress.finish_and_clear();
    let found = found?;
    print(&if args.json {
        json(&found)
    } else {
        text(&found)
    });
    Ok(if found.count == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn text(found: &Findings) -> String {
    let Findings {
        points,
        entities,
        visits,
        ..
    } = found;
    let mut out = format!("{points} points of {entities} entities, {visits} visits");
    for problem in &found.problems {
        out.push_str(&format!("\nwrong: {problem}"));
    }
    if found.alone > 0 {
        out.push_str(&format!(
            "\nhint: no erasure finds the {} visits without a point; they go once they are older than the fleet's keep_days",
            found.alone
        ));
    }
    let more = found.count - found.problems.len() as u64;
    if more > 0 {
        out.push_str(&format!("\nwrong: {more} more"));
    }
    out
}

fn json(found: &Findings) -> String {
    let problem = |p: &check::Problem| {
        let key = p.to_string();
        serde_json::json!({ "family": p.family.name(), "key": key, "what": p.what })
    };
    let problems: Vec<_> = found.problems.iter().map(problem).collect();
    serde_json::json!({
        "points": found.points, "entities": found.entities, "visits": found.visits,
        "visits_alone": found.alone,
        "wrong": found.count, "problems": problems,
    })
    .to_string()
}
