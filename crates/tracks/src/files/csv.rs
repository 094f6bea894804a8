//! CSV files of any [`Layout`].
//!
//! The file is split into lines before quotation marks are looked at: a mark without an end spoils
//! its line, but not the rest of the file. Therefore fields with line breaks are refused. In a file
//! with a header, each line has as many fields as the header.

use std::io::BufRead;
use std::ops::Range;

use base::{Error, Result};
use csv_core::{ReadRecordResult, ReaderBuilder, Terminator};
use serde_json::value::RawValue;

use super::json;
use super::layout::{Column, Layout, Length, Positions, Speed, Times};
use super::lines::Lines;
use super::number::{self, FOOT, KILOMETRE_PER_HOUR, KNOT};
use super::options::Options;
use super::record::{self, Record, bad, goes_on, message, shown};
use super::scan::{element, elements};
use super::times::{self, Unit};
use crate::model::name::Name;
use crate::model::point::Point;
use crate::model::report::Report;
use crate::model::time::Time;

/// The most columns.
const COLUMNS_MAX: usize = 1024;

/// Reports of a CSV file.
#[derive(Debug)]
pub(super) struct Csv<R> {
    lines: Lines<R>,
    fields: Fields,
    layout: Layout,
    named: Option<Name>,
    columns: Option<Columns>,
    polyline: Option<Polyline>,
    is_over: bool,
}

impl<R: BufRead> Csv<R> {
    pub(super) fn new(read: R, layout: Layout, options: &Options) -> Self {
        let utc_offset = options.utc_offset.or(layout.utc_offset);
        let layout = Layout {
            utc_offset,
            ..layout
        };
        Self {
            lines: Lines::new(read, layout.line_bytes_max),
            fields: Fields::new(layout.separator),
            layout,
            named: options.entity.clone(),
            columns: None,
            polyline: None,
            is_over: false,
        }
    }

    fn step(&mut self) -> Result<Option<Record>> {
        if self.columns.is_none() {
            self.columns = Some(self.begin()?);
        }
        loop {
            if let Some(polyline) = &mut self.polyline {
                if let Some(found) = polyline.next() {
                    return self.lines.place().record(found).map(Some);
                }
                self.polyline = None;
            }
            if !self.lines.advance()? {
                return Ok(None);
            }
            let text = self.lines.text()?;
            if text.is_empty() {
                continue;
            }
            let place = self.lines.place();
            let Some(columns) = &self.columns else {
                return Err(Error::broken("columns that are not known"));
            };
            let row = self.fields.read(text).and_then(|()| {
                let row = Row {
                    fields: &self.fields,
                    columns,
                    layout: &self.layout,
                    named: self.named.as_ref(),
                };
                row.check_count()?;
                row.read()
            });
            match row.map_err(|e| place.error(e))? {
                Read::One(found) => return place.record(Ok(*found)).map(Some),
                Read::Many(polyline) => self.polyline = Some(polyline),
            }
        }
    }

    /// Reads the lines before the records.
    fn begin(&mut self) -> Result<Columns> {
        let header = u64::from(self.layout.header);
        for _ in 0..self.layout.skip_lines + header {
            // An empty line is a header without columns, and an overlong one is a header with too
            // many.
            let is_there = self.lines.advance().map_err(fatal)?;
            if !is_there {
                return Err(record::cut_off("its header"));
            }
        }
        if !self.layout.header {
            return Columns::of(&self.layout, None);
        }
        let place = self.lines.place();
        let text = self.lines.text().map_err(fatal)?;
        let read = self.fields.read(text);
        read.map_err(|e| fatal(place.error(e)))?;
        Columns::of(&self.layout, Some(&self.fields))
    }
}

/// Makes an error of one line one that ends the file.
fn fatal(e: Error) -> Error {
    if goes_on(&e) {
        return Error::not_supported(format!("the header: {}", message(&e)));
    }
    e
}

impl<R: BufRead> Iterator for Csv<R> {
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

/// The fields of a line.
#[derive(Debug)]
struct Fields {
    csv: csv_core::Reader,
    line: Vec<u8>,
    bytes: Vec<u8>,
    ends: Vec<usize>,
    count: usize,
}

impl Fields {
    fn new(separator: u8) -> Self {
        let mut csv = ReaderBuilder::new();
        csv.delimiter(separator);
        csv.terminator(Terminator::Any(b'\n'));
        Self {
            csv: csv.build(),
            line: Vec::new(),
            bytes: Vec::new(),
            ends: vec![0; COLUMNS_MAX],
            count: 0,
        }
    }

    /// Splits a line. Errors: `InvalidArgument`.
    fn read(&mut self, text: &str) -> Result<()> {
        self.count = 0;
        if text.is_empty() {
            return Ok(());
        }
        self.line.clear();
        self.line.extend_from_slice(text.as_bytes());
        self.line.push(b'\n');
        self.bytes.resize(self.line.len(), 0);
        self.csv.reset();
        let (result, read, _, count) =
            self.csv
                .read_record(&self.line, &mut self.bytes, &mut self.ends);
        self.count = count;
        match result {
            ReadRecordResult::Record if read == self.line.len() => Ok(()),
            ReadRecordResult::InputEmpty => Err(bad("a quotation mark that does not end")
                .hint("a record is one line: fields have no line breaks")),
            _ => Err(bad(format!("more than {COLUMNS_MAX} columns"))),
        }
    }

    fn get(&self, nth: usize) -> Option<&str> {
        let ends = self.ends.get(..self.count)?;
        let from = match nth.checked_sub(1) {
            None => 0,
            Some(before) => *ends.get(before)?,
        };
        let bytes = self.bytes.get(from..*ends.get(nth)?)?;
        // The text was split at separators and quotation marks, which are ASCII.
        std::str::from_utf8(bytes).ok()
    }

    fn all(&self) -> impl Iterator<Item = &str> {
        (0..self.count).filter_map(|nth| self.get(nth))
    }
}

/// The indexes of the columns, from 0.
#[derive(Debug, Default)]
struct Columns {
    /// The number of columns. `None` if there is no header.
    count: Option<usize>,
    entity: Option<usize>,
    lat: Option<usize>,
    lon: Option<usize>,
    polyline: Option<usize>,
    time: Vec<usize>,
    speed: Option<usize>,
    course: Option<usize>,
    altitude: Option<usize>,
    accuracy: Option<usize>,
    battery: Option<usize>,
    tags: Option<usize>,
    attributes: Option<usize>,
    extra: Vec<(String, usize)>,
}

impl Columns {
    /// Errors: `NotFound` if the header lacks a column; `NotSupported` if the layout contradicts
    /// itself.
    fn of(layout: &Layout, header: Option<&Fields>) -> Result<Self> {
        let contradiction = |why: &str| Error::not_supported(format!("the layout: {why}"));
        if !layout.separator.is_ascii() || matches!(layout.separator, b'"' | b'\n') {
            return Err(contradiction("this separator is none"));
        }
        if !layout.extra.is_empty() && layout.attributes.is_some() {
            return Err(contradiction("attributes have a column, and more columns"));
        }
        let find = |column: &Column| place(column, header);
        let maybe = |column: Option<&Column>| column.map_or(Ok(None), find);
        let mut out = Self {
            count: header.map(|fields| fields.count),
            entity: maybe(layout.entity.as_ref())?,
            speed: maybe(layout.speed.as_ref().map(|(column, _)| column))?,
            course: maybe(layout.course.as_ref())?,
            altitude: maybe(layout.altitude.as_ref().map(|(column, _)| column))?,
            accuracy: maybe(layout.accuracy.as_ref())?,
            battery: maybe(layout.battery.as_ref())?,
            tags: maybe(layout.tags.as_ref())?,
            attributes: maybe(layout.attributes.as_ref())?,
            ..Self::default()
        };
        match &layout.positions {
            Positions::Columns { lat, lon } => (out.lat, out.lon) = (find(lat)?, find(lon)?),
            Positions::Polyline { column, .. } => out.polyline = find(column)?,
        }
        for column in &layout.time {
            out.time.extend(find(column)?);
        }
        for (name, column) in &layout.extra {
            let found = find(column)?;
            out.extra.extend(found.map(|column| (name.clone(), column)));
        }
        Ok(out)
    }
}

/// The index of a column.
fn place(column: &Column, header: Option<&Fields>) -> Result<Option<usize>> {
    let (name, is_optional) = match column {
        Column::Number(0) => return Err(Error::not_supported("column 0: the first one is 1")),
        Column::Number(number) => return Ok(Some(number - 1)),
        Column::Name(name) => (name, false),
        Column::NameIfThere(name) => (name, true),
    };
    let Some(fields) = header else {
        let what = shown(name);
        return Err(Error::not_supported(format!(
            "the column {what}: no header names columns"
        )));
    };
    let mut found = fields
        .all()
        .enumerate()
        .filter(|(_, field)| field.trim_ascii() == name);
    match (found.next(), found.next()) {
        (Some(_), Some(_)) => Err(Error::not_supported(format!(
            "the header has {} twice",
            shown(name)
        ))),
        (Some((nth, _)), None) => Ok(Some(nth)),
        (None, _) if is_optional => Ok(None),
        (None, _) => {
            let there: Vec<String> = fields.all().take(20).map(shown).collect();
            let there = there.join(", ");
            Err(Error::not_found(format!(
                "the column {}: there are {there}",
                shown(name)
            )))
        }
    }
}

/// A line, split into fields.
struct Row<'a> {
    fields: &'a Fields,
    columns: &'a Columns,
    layout: &'a Layout,
    named: Option<&'a Name>,
}

/// The content of a line.
enum Read {
    One(Box<(Report, Vec<String>)>),
    Many(Polyline),
}

impl<'a> Row<'a> {
    fn check_count(&self) -> Result<()> {
        match self.columns.count {
            Some(count) if count != self.fields.count => Err(bad(format!(
                "{} fields, and the header has {count}",
                self.fields.count
            ))),
            _ => Ok(()),
        }
    }

    /// A field. `None` if it is empty, or if there is no such column. Errors: `InvalidArgument` if
    /// the line is too short.
    fn get(&self, column: Option<usize>) -> Result<Option<&'a str>> {
        let Some(column) = column else {
            return Ok(None);
        };
        let short = || {
            bad(format!(
                "{} fields, and {} are needed",
                self.fields.count,
                column + 1
            ))
        };
        let field = self.fields.get(column).ok_or_else(short)?;
        Ok(Some(field).filter(|field| !field.is_empty()))
    }

    /// Like [`Row::get`], without surrounding spaces.
    fn trimmed(&self, column: Option<usize>) -> Result<Option<&'a str>> {
        let field = self.get(column)?.map(str::trim_ascii);
        Ok(field.filter(|field| !field.is_empty()))
    }

    fn number(&self, what: &str, column: Option<usize>) -> Result<Option<f64>> {
        let text = self.trimmed(column)?;
        text.map(|text| number::number(what, text)).transpose()
    }

    fn read(&self) -> Result<Read> {
        let columns = self.columns;
        let entity = record::entity(self.get(columns.entity)?, self.named)?;
        let time = self.time()?;
        if let Positions::Polyline { every, .. } = self.layout.positions {
            let text = self.trimmed(columns.polyline)?.unwrap_or("[]");
            let time = time.ok_or_else(|| bad("time is missing"))?;
            return Polyline::of(entity, (time, every), text).map(Read::Many);
        }
        let (lat, lon) = (self.trimmed(columns.lat)?, self.trimmed(columns.lon)?);
        let mut point = Point::at(number::position(lat, lon)?);
        point.speed = self.speed()?;
        let course = self.number("course", columns.course)?;
        point.course = course.map(number::course).transpose()?;
        point.altitude = self.altitude()?;
        let accuracy = self.number("accuracy", columns.accuracy)?;
        point.accuracy = accuracy.map(number::accuracy).transpose()?;
        let battery = self.number("battery", columns.battery)?;
        point.battery = battery.map(number::battery).transpose()?;
        point.attributes = self.attributes()?;
        let tags = self
            .trimmed(columns.tags)?
            .map_or(Ok(Vec::new()), json::tags)?;
        let report = Report {
            entity,
            time,
            point,
        };
        Ok(Read::One(Box::new((report, tags))))
    }

    fn time(&self) -> Result<Option<Time>> {
        let mut text = String::new();
        for &column in &self.columns.time {
            let part = self.trimmed(Some(column))?.unwrap_or_default();
            if !text.is_empty() && !part.is_empty() {
                text.push(' ');
            }
            text.push_str(part);
        }
        if text.is_empty() {
            return Ok(None);
        }
        let offset = self.layout.utc_offset;
        match &self.layout.times {
            Times::SecondsOrRfc3339 => times::seconds_or_rfc3339(&text, offset),
            Times::Millis => times::since_1970(&text, Unit::Millis),
            Times::Micros => times::since_1970(&text, Unit::Micros),
            Times::Pattern(pattern) => times::of_pattern(pattern, &text, offset),
        }
        .map(Some)
    }

    fn speed(&self) -> Result<Option<u16>> {
        let value = self.number("speed", self.columns.speed)?;
        let unit = self.layout.speed.as_ref().map(|(_, unit)| *unit);
        let metres_per_second = match unit.unwrap_or_default() {
            Speed::MetresPerSecond => 1.0,
            Speed::KilometresPerHour => KILOMETRE_PER_HOUR,
            Speed::Knots => KNOT,
        };
        value
            .map(|value| number::speed(value * metres_per_second))
            .transpose()
    }

    fn altitude(&self) -> Result<Option<i32>> {
        let value = self.number("altitude", self.columns.altitude)?;
        let is_known = |value: &f64| {
            let unknown = self.layout.altitude_unknown;
            unknown.is_none_or(|unknown| (value - unknown).abs() > 1e-9)
        };
        let unit = self.layout.altitude.as_ref().map(|(_, unit)| *unit);
        let metres = match unit.unwrap_or_default() {
            Length::Metres => 1.0,
            Length::Feet => FOOT,
        };
        let value = value.filter(is_known);
        value
            .map(|value| number::altitude(value * metres))
            .transpose()
    }

    fn attributes(&self) -> Result<String> {
        if let Some(text) = self.trimmed(self.columns.attributes)? {
            return json::attributes(text);
        }
        let mut object = serde_json::Map::new();
        for (name, column) in &self.columns.extra {
            if let Some(text) = self.get(Some(*column))? {
                object.insert(name.clone(), text.into());
            }
        }
        json::attributes(&serde_json::Value::Object(object).to_string())
    }
}

/// The positions of one record that are not read yet.
#[derive(Debug)]
struct Polyline {
    entity: Name,
    /// The time of the next position.
    time: Time,
    every: i64,
    text: String,
    at: usize,
    nth: u64,
}

impl Polyline {
    fn of(entity: Name, (time, every): (Time, i64), text: &str) -> Result<Self> {
        let list = serde_json::from_str::<&RawValue>(text).map(RawValue::get);
        let list = list.ok().filter(|list| list.starts_with('['));
        let text = list.ok_or_else(|| bad(format!("the polyline {} is no list", shown(text))))?;
        Ok(Self {
            entity,
            time,
            every,
            text: text.to_owned(),
            at: 1,
            nth: 0,
        })
    }

    fn next(&mut self) -> Option<Result<(Report, Vec<String>)>> {
        let range: Range<usize> = element(&self.text, self.at)?;
        self.at = range.end;
        self.nth += 1;
        let time = self.time;
        self.time = Time(time.0.saturating_add(self.every));
        let raw = self.text.get(range).unwrap_or_default();
        let found = self.report(raw, time).map_err(|e| {
            let nth = self.nth;
            bad(format!("position {nth} of the polyline: {}", message(&e)))
        });
        Some(found)
    }

    fn report(&self, raw: &str, time: Time) -> Result<(Report, Vec<String>)> {
        let mut numbers = elements(raw);
        let (lon, lat) = (numbers.next(), numbers.next());
        let report = Report {
            entity: self.entity.clone(),
            time: Some(time.check()?),
            point: Point::at(number::position(lat, lon)?),
        };
        match numbers.next() {
            None if raw.starts_with('[') => Ok((report, Vec::new())),
            _ => Err(bad(format!(
                "{} is not a longitude and a latitude",
                shown(raw)
            ))),
        }
    }
}

#[cfg(test)]
mod tests;
