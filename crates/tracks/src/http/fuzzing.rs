//! Access to the parsers of HTTP, only for fuzzing. Each accepts any input, and returns what it has
//! read, and what it reads of its own output: these must be equal.

use std::fmt::Debug;

use axum::http::Uri;
use bytes::Bytes;

use super::answers::FleetChange;
use super::fences::FenceBody;
use super::params::{Params, event_id};
use super::source::{Form, Source};
use super::webhook::{Hosts, Webhooks, fuzzing as webhook};
use super::{Map, geojson, json, time, tokens::Tokens};
use crate::fence::Definition;
use crate::fleets::Fleets;
use crate::geo::cover::{RANGES_MAX, cover};
use crate::geo::shape::Shape;
use crate::model::time::{SECOND, Time};
use crate::read::Cursor;
use crate::store::Store;

/// What was read, and what was read again of the output; `None` if there is no output; or why the
/// input was refused.
pub type Read = Result<Option<(String, String)>, String>;

/// The number of kinds of input.
pub const KINDS: u8 = 13;

/// One valid input of each kind.
pub const SEEDS: [&str; KINDS as usize] = [
    r#"[{"entity":"a","lat":1,"lon":2},{"entity":"b","lat":1,"lon":2,"time":5}]"#,
    "{\"entity\":\"a\",\"lat\":1,\"lon\":2}\n\n{}\n",
    r#"{"type":"Polygon","coordinates":[[[18,59],[19,59],[19,60],[18,59]]]}"#,
    r#"{"area":{"type":"Circle","center":[18.0686,59.3293],"radius":500},"dwell":60,"tags":["a"]}"#,
    r#"{"url":"https://example.org/x?y","events":["enter"],"fences":["f"],"secret":"0123456789abcdef"}"#,
    r#"{"clamp_times":true,"tags":["a"],"keep_days":7,"thin_metres":9}"#,
    "bbox=18,59,19,60&from=1&to=2023-11-14T22:13:20Z&simplify=1.5&k=7&every=1&after=9&positions=true&tag=x",
    "1700000000.123457",
    "123456789afffffffffffffffe",
    "[[tokens]]\nname = \"a\"\nsha256 = \"da94ceda6a4046e1a9fb17806d249a17b435c64eba32a195432f6f85b017fbd7\"\n\
     scopes = [\"read\"]\nfleets = \"*\"\n",
    "https://[::1]:8443/a?b",
    "example.org:8443",
    "https://tiles.example.org/{z}/{x}/{y}.png",
];

/// Reads an input of a kind.
pub fn read(kind: u8, bytes: &[u8], hosts: &Hosts) -> Read {
    let text = || str::from_utf8(bytes).map_err(|e| e.to_string());
    let said = |e: base::Error| e.to_string();
    match kind {
        0 => reports(bytes, Form::Any),
        1 => reports(bytes, Form::Lines),
        2 => {
            let polygon = geojson::polygon(bytes).map_err(|problem| problem.detail)?;
            Ok(covered(&polygon))
        }
        3 => fence(bytes),
        4 => webhook::body(bytes, hosts),
        5 => json::read::<FleetChange>(bytes).map(|_| None),
        6 => params(text()?),
        7 => moment(text()?),
        8 => {
            let cursor = Cursor::of_text(&text()?.to_ascii_lowercase()).map_err(said)?;
            Ok(Some(pair(
                &cursor,
                &Cursor::of_text(&cursor.to_text()).map_err(said)?,
            )))
        }
        9 => Tokens::parse(text()?).map(|_| None).map_err(said),
        10 => webhook::url(text()?),
        11 => webhook::host(text()?),
        _ => {
            let tiles = Map::default().with_tiles(text()?).map(|_| None);
            let base = Map::default().with_base(bytes.to_vec()).map(|_| None);
            tiles.or(base).map_err(said)
        }
    }
}

/// Opens the webhooks of a store. Errors: a row is invalid.
pub fn webhooks(store: &dyn Store, fleets: &Fleets) -> base::Result<usize> {
    let all = Webhooks::open(store, fleets, Hosts::default(), 1)?;
    Ok(all.all().len())
}

pub(super) fn pair(first: &impl Debug, again: &impl Debug) -> (String, String) {
    (format!("{first:?}"), format!("{again:?}"))
}

/// A body is split in the same way, however many reports are requested at a time.
fn reports(bytes: &[u8], form: Form) -> Read {
    let all = |most: usize| -> Result<Vec<_>, String> {
        let source = Source::new(Bytes::copy_from_slice(bytes), form);
        let mut source = source.map_err(|problem| problem.detail)?;
        let mut out = Vec::new();
        loop {
            let part = source.part(most);
            if part.is_empty() {
                return Ok(out);
            }
            let report = |item: super::source::Item| {
                let parsed = item.parsed.map(|parsed| (parsed.report, parsed.tags));
                (item.index, item.line, parsed)
            };
            out.extend(part.into_iter().map(report));
        }
    };
    let (whole, parts) = (all(usize::MAX)?, all(1));
    // Each item has its own index and takes at least a byte, except a last one that says what is
    // missing.
    let is_counted = whole.iter().enumerate().all(|(n, (index, ..))| n == *index);
    if !is_counted || whole.len() > bytes.len() + 1 {
        return Ok(Some((format!("{} reports", whole.len()), String::new())));
    }
    Ok(Some(pair(&whole, &parts?)))
}

/// A fence that is accepted is stored, and must be readable when the server starts again.
fn fence(bytes: &[u8]) -> Read {
    let body: FenceBody = json::read(bytes)?;
    let definition = body.definition().map_err(|problem| problem.detail)?;
    let stored = serde_json::to_string(&definition).map_err(|e| e.to_string())?;
    let again = serde_json::from_str::<Definition>(&stored);
    if let Ok(again) = &again
        && let Ok(shape) = again.area.shape()
    {
        drop(covered(&*shape));
        return Ok(Some(pair(&definition, again)));
    }
    Ok(Some(pair(
        &definition,
        &again.map(|again| again.area.shape().err()),
    )))
}

fn covered(shape: &dyn Shape) -> Option<(String, String)> {
    let ranges = cover(shape, RANGES_MAX).len();
    (ranges > RANGES_MAX).then(|| (format!("{ranges} ranges"), String::new()))
}

fn params(text: &str) -> Read {
    let uri: Uri = format!("/?{text}").parse().map_err(|e| format!("{e}"))?;
    let all = || -> Result<Option<usize>, super::problem::Problem> {
        let mut params = Params::of_uri(&uri)?;
        let ranges = params
            .maybe_area()?
            .map(|area| cover(&*area, RANGES_MAX).len());
        let (from, to) = params.times()?.unwrap_or((Time::MIN, Time::MAX));
        let numbers = params.number("simplify", (0.0, 1e8))?;
        let count = params.count("k", (1, 10_000), 10)?;
        let (every, id) = (params.seconds("every")?, params.id("after")?);
        params.flag("positions", true)?;
        params.all("tag");
        params.end()?;
        let is_right = from <= to
            && numbers.is_none_or(|n| (0.0..=1e8).contains(&n))
            && (1..=10_000).contains(&count)
            && every.is_none_or(|every| every >= 0)
            && id == id.and_then(|id| event_id(&id.to_string()));
        // More ranges than allowed.
        Ok(if is_right { ranges } else { Some(usize::MAX) })
    };
    let ranges = all().map_err(|problem| problem.detail)?;
    Ok(ranges
        .filter(|ranges| *ranges > RANGES_MAX)
        .map(|ranges| (format!("{ranges} ranges"), String::new())))
}

/// The text of an answer means the same time, as long as seconds as a number are exact to a
/// microsecond: for 130 years.
fn moment(text: &str) -> Read {
    let time = time::of_text(text)?;
    if time.0.abs() >= SECOND << 32 {
        return Ok(None);
    }
    Ok(Some(pair(
        &time,
        &time::of_text(&time::seconds(time).to_string())?,
    )))
}

#[cfg(test)]
mod tests {
    use base::rng::Rng;

    use super::super::webhook::Host;
    use super::*;

    /// Each kind reads its seed, and accepts or refuses changed seeds.
    #[test]
    fn each_kind_is_read_and_what_is_changed_is_read_or_refused() {
        let hosts = Hosts::new(vec![Host::new("example.org", false).unwrap()]);
        let mut rng = Rng::new(9);
        for (kind, seed) in (0..).zip(SEEDS) {
            let found = read(kind, seed.as_bytes(), &hosts);
            let found = found.unwrap_or_else(|e| panic!("{seed}: {e}"));
            assert!(found.is_none_or(|(a, b)| a == b), "{seed}");
            for _ in 0..300 {
                let mut bytes = seed.as_bytes().to_vec();
                for _ in 0..=rng.below(2) {
                    let at = rng.below(bytes.len() as u64) as usize;
                    if let Some(byte) = bytes.get_mut(at) {
                        let all = b"019.-,:[]{}\"ae\x00 ";
                        *byte = all.get(rng.below(16) as usize).copied().unwrap_or(b' ');
                    }
                }
                if let Ok(Some((a, b))) = read(kind, &bytes, &hosts) {
                    assert_eq!(a, b, "{}", String::from_utf8_lossy(&bytes));
                }
            }
        }
    }
}
