//! The reports of a body: a single one, an array, one in each line, or a GeoJSON FeatureCollection.
//! They are parsed in parts, so that memory is needed for one part only, whatever the size of the
//! body.

use bytes::Bytes;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use super::json::{self, Parsed};
use super::problem::{Kind, Problem};

/// The most bytes of a line, and of a report.
pub(crate) const LINE_MAX: usize = 64 * 1024;

/// A report, or what is wrong with it.
#[derive(Debug)]
pub(crate) struct Item {
    /// Its index among the reports, from 0.
    pub(crate) index: usize,
    /// Its line, from 1, if each report has a line.
    pub(crate) line: Option<usize>,
    pub(crate) parsed: Result<Parsed, String>,
}

/// The form of a body, by its `Content-Type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// To be guessed from its beginning.
    Any,
    /// One report in each line.
    Lines,
}

impl Form {
    /// The form for a `Content-Type`. Errors: it is another type.
    pub(crate) fn of(content_type: &str) -> Result<Self, Problem> {
        let essence = content_type.split(';').next().unwrap_or_default();
        match essence.trim().to_ascii_lowercase().as_str() {
            "application/x-ndjson"
            | "application/ndjson"
            | "application/jsonl"
            | "application/x-jsonlines" => Ok(Self::Lines),
            // The last of these is curl's default.
            ""
            | "application/json"
            | "application/geo+json"
            | "application/octet-stream"
            | "text/plain"
            | "application/x-www-form-urlencoded" => Ok(Self::Any),
            other => Err(Problem::new(
                Kind::UnsupportedMediaType,
                format!(
                    "{other:.80?} is not taken: send application/json, application/geo+json or \
                     application/x-ndjson"
                ),
            )),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    One,
    /// In an array: before its first element, or after another one.
    First,
    Next,
    Lines,
    End,
}

/// Splits a body into reports.
#[derive(Debug)]
pub(crate) struct Source {
    bytes: Bytes,
    at: usize,
    end: usize,
    state: State,
    index: usize,
    line: usize,
}

#[derive(Deserialize)]
struct Collection<'a> {
    #[serde(borrow)]
    features: &'a RawValue,
}

impl Source {
    /// Errors: the body has no form with reports; it has a line that is too long.
    pub(crate) fn new(bytes: Bytes, form: Form) -> Result<Self, Problem> {
        let mut source = Self {
            at: if bytes.starts_with(b"\xef\xbb\xbf") {
                3
            } else {
                0
            },
            end: bytes.len(),
            bytes,
            state: State::One,
            index: 0,
            line: 0,
        };
        if form == Form::Lines {
            source.state = State::Lines;
            source.check_lines()?;
            return Ok(source);
        }
        source.skip_space();
        match source.rest().first() {
            Some(b'[') => {
                source.at += 1;
                source.state = State::First;
            }
            Some(b'{') if source.has_lines() => {
                source.state = State::Lines;
                source.check_lines()?;
            }
            Some(b'{') => {
                source.end = source.at + source.rest().trim_ascii_end().len();
                source.open_collection()?;
                if source.state == State::One && source.rest().len() > LINE_MAX {
                    return Err(Problem::too_large("the report", LINE_MAX));
                }
            }
            Some(_) => {
                return Err(Problem::body(
                    "the body is neither a JSON object, nor an array, nor an object in each line",
                ));
            }
            None => return Err(Problem::body("the body is empty")),
        }
        Ok(source)
    }

    fn rest(&self) -> &[u8] {
        self.bytes.get(self.at..self.end).unwrap_or_default()
    }

    fn skip_space(&mut self) {
        let is_space = |b: &&u8| matches!(b, b' ' | b'\t' | b'\r' | b'\n');
        self.at += self.rest().iter().take_while(is_space).count();
    }

    /// Whether anything follows the first object, or its line.
    fn has_lines(&self) -> bool {
        let rest = self.rest();
        let is_there = |rest: &[u8]| !rest.trim_ascii().is_empty();
        match value(rest) {
            Ok(len) => is_there(rest.get(len..).unwrap_or_default()),
            Err(_) => rest
                .iter()
                .position(|&b| b == b'\n')
                .and_then(|at| rest.split_at_checked(at))
                .is_some_and(|(line, more)| {
                    line.trim_ascii_end().ends_with(b"}") && is_there(more)
                }),
        }
    }

    /// If the body is a collection, goes to its features.
    fn open_collection(&mut self) -> Result<(), Problem> {
        let rest = self.rest();
        if json::type_of(rest).as_deref() != Some("FeatureCollection") {
            return Ok(());
        }
        let found = serde_json::from_slice::<Collection<'_>>(rest);
        let collection = found.map_err(|e| Problem::body(json::said(&e)))?;
        let features = collection.features.get();
        if !features.starts_with('[') {
            return Err(Problem::body("the features of the collection are no array"));
        }
        let start = features.as_ptr().addr() - self.bytes.as_ptr().addr();
        self.end = start + features.len();
        self.at = start + 1;
        self.state = State::First;
        Ok(())
    }

    fn check_lines(&self) -> Result<(), Problem> {
        let lines = self.rest().split(|&b| b == b'\n');
        for (nth, line) in lines.enumerate() {
            if line.len() > LINE_MAX {
                return Err(Problem::too_large(&format!("line {}", nth + 1), LINE_MAX));
            }
        }
        Ok(())
    }

    /// The next reports, at most `most`; empty at the end.
    pub(crate) fn part(&mut self, most: usize) -> Vec<Item> {
        let mut items = Vec::new();
        while items.len() < most
            && let Some(item) = self.item()
        {
            items.push(item);
        }
        items
    }

    fn item(&mut self) -> Option<Item> {
        let (line, parsed) = match self.state {
            State::End => return None,
            State::One => {
                self.state = State::End;
                (None, one(self.rest()))
            }
            State::Lines => {
                let (line, bytes) = self.line()?;
                (Some(line), json::parse(&bytes))
            }
            State::First | State::Next => (None, self.element()?),
        };
        let index = self.index;
        self.index += 1;
        Some(Item {
            index,
            line,
            parsed,
        })
    }

    /// The next line that is not empty.
    fn line(&mut self) -> Option<(usize, Bytes)> {
        while self.at < self.end {
            let rest = self.rest();
            let len = rest.iter().position(|&b| b == b'\n').unwrap_or(rest.len());
            let line = self.bytes.slice(self.at..self.at + len);
            self.at += len + 1;
            self.line += 1;
            if !line.trim_ascii().is_empty() {
                return Some((self.line, line));
            }
        }
        self.state = State::End;
        None
    }

    /// The next element of the array.
    fn element(&mut self) -> Option<Result<Parsed, String>> {
        self.skip_space();
        let is_first = self.state == State::First;
        self.state = State::Next;
        match (self.rest().first(), is_first) {
            (Some(b']'), _) => {
                self.at += 1;
                self.skip_space();
                self.state = State::End;
                let is_end = self.rest().is_empty();
                return (!is_end).then(|| Err("there is more behind the array".to_owned()));
            }
            (Some(b','), false) => {
                self.at += 1;
                self.skip_space();
            }
            (Some(_), true) => {}
            (Some(_), false) => return Some(self.broken("a comma or the array's end is missing")),
            (None, _) => return Some(self.broken("the array's end is missing")),
        }
        match value(self.rest()) {
            Err(e) => Some(self.broken(&json::said(&e))),
            Ok(len) => {
                let parsed = one(self.rest().get(..len).unwrap_or_default());
                self.at += len;
                Some(parsed)
            }
        }
    }

    /// Ends the source: the rest cannot be read.
    fn broken(&mut self, what: &str) -> Result<Parsed, String> {
        self.state = State::End;
        let text = format!(
            "not JSON from byte {} on, which was not read: {what}",
            self.at
        );
        Err(text)
    }
}

fn one(bytes: &[u8]) -> Result<Parsed, String> {
    if bytes.len() > LINE_MAX {
        return Err(format!("a report of more than {LINE_MAX} bytes"));
    }
    json::parse(bytes)
}

/// The length of the JSON value at the beginning, without recursion.
fn value(bytes: &[u8]) -> Result<usize, serde_json::Error> {
    let mut values = serde_json::Deserializer::from_slice(bytes).into_iter::<IgnoredAny>();
    match values.next() {
        Some(Ok(_)) => Ok(values.byte_offset()),
        Some(Err(e)) => Err(e),
        None => Err(json::custom("a value is missing")),
    }
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a test may panic")]
mod tests {
    use super::*;

    /// The names of the entities, or the errors.
    fn read(body: &str, form: Form) -> Vec<Result<String, String>> {
        let mut source = Source::new(body.to_owned().into(), form).unwrap();
        let mut out = Vec::new();
        loop {
            let part = source.part(2);
            if part.is_empty() {
                return out;
            }
            for item in part {
                assert_eq!(item.index, out.len());
                out.push(item.parsed.map(|p| p.report.entity.to_string()));
            }
        }
    }

    fn a(name: &str) -> String {
        format!(r#"{{"entity":"{name}","lat":1,"lon":2}}"#)
    }

    #[test]
    fn forms_are_told_apart() {
        let [x, y, z] = ["x", "y", "z"].map(a);
        let feature =
            r#"{"type":"Feature","geometry":{"type":"Point","coordinates":[1,2]},"id":"x"}"#;
        let collection =
            format!(r#"{{"features":[{feature}, {feature}],"type":"FeatureCollection"}}"#);
        for (body, count) in [
            (x.clone(), 1),
            (format!(" \n{x}\n"), 1),
            (format!("[{x} , {y},{z}]"), 3),
            (" [ ] ".to_owned(), 0),
            (format!("{x}\n\n{y}\r\n{z}"), 3),
            (format!("\u{feff}{x}\n{feature}"), 2),
            (feature.to_owned(), 1),
            (collection, 2),
        ] {
            let all = read(&body, Form::Any);
            assert_eq!(all.iter().filter(|r| r.is_ok()).count(), count, "{body}");
            assert_eq!(all.len(), count, "{body}");
        }
    }

    #[test]
    fn good_ones_are_kept() {
        let [x, y] = ["x", "y"].map(a);
        let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
        for body in [
            format!("[{x},{{}},{y}]"),
            format!("[{x},{deep},{y}]"),
            format!("[{x},7,{y}]"),
            format!("{x}\n{{bad}}\n{y}"),
            format!("{x}\n{deep}\n{y}"),
        ] {
            let all = read(&body, Form::Any);
            let good: Vec<bool> = all.iter().map(Result::is_ok).collect();
            assert_eq!(good, [true, false, true], "{all:?}");
        }
        let all = read(&format!("{{bad}}\n{x}"), Form::Any);
        assert!(all[0].is_err() && all[1].is_ok());
        for (body, why) in [
            (format!("[{x} {y}]"), "comma"),
            (format!("[{x}"), "end is missing"),
            (format!("[{x},]"), "not JSON"),
            (format!("[{x}]{y}"), "behind the array"),
        ] {
            let all = read(&body, Form::Any);
            let e = all[1].as_ref().unwrap_err();
            assert!(all[0].is_ok() && e.contains(why), "{e}");
        }
    }

    #[test]
    fn what_is_no_body_is_refused() {
        for body in ["", " \n", "7", "<xml/>", "NaN"] {
            let e = Source::new(body.to_owned().into(), Form::Any).unwrap_err();
            assert_eq!(e.kind, Kind::InvalidBody, "{body}");
        }
        let long = format!("{}\n{}", a("x"), "x".repeat(LINE_MAX + 1));
        let e = Source::new(long.into(), Form::Lines).unwrap_err();
        assert!(
            e.detail.contains("line 2 has more than 65536 bytes"),
            "{e:?}"
        );
        assert!(Form::of("text/csv").is_err());
        assert_eq!(
            Form::of("Application/X-NDJSON; charset=utf-8").unwrap(),
            Form::Lines
        );
    }
}
