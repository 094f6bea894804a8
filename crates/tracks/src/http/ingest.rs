//! Calls that take reports, and their receipts.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::Response;
use base::{Error, ErrorKind};
use tokio::sync::oneshot;

use super::App;
use super::answers::{Durable, Refused, Taken};
use super::ask;
use super::body;
use super::guard::Caller;
use super::json::Parsed;
use super::metrics::Outcomes;
use super::params::{Params, Path};
use super::problem::{Kind, Problem, text};
use super::source::{Form, Item, Source};
use crate::fleets::{Info, Settings};
use crate::model::name::Name;
use crate::model::report::Report;
use crate::model::time::Time;
use crate::write::{Ack, Answer, Outcome, Ticket};

/// How many reports are passed to the shards at once.
const PART: usize = 4096;
/// The most parts of a body that may be in progress.
const PARTS: usize = 4;
/// The most refused reports that are listed.
const REFUSED_MAX: usize = 1000;
/// The most refused reports of a call, after which the rest is not read: naming what is wrong takes longer than storing.
const REFUSED_END: usize = 100_000;
/// Bodies up to this size are parsed in the task, larger ones on a blocking thread.
const SMALL: usize = 32 * 1024;
/// How long a part waits for room if an earlier part of its body was taken.
const ROOM_TIMEOUT: Duration = Duration::from_secs(10);
/// How often it looks for room.
const ROOM_PAUSE: Duration = Duration::from_millis(20);

/// Send reports.
///
/// The body is one report, an array of them, one in each line (NDJSON), or a GeoJSON Feature or FeatureCollection of
/// points; `Content-Encoding` may be `gzip` or `zstd`. Each report stands for itself: good ones are stored, bad ones
/// are named in the answer. Sending one again changes nothing.
#[utoipa::path(
    post,
    path = "/v1/fleets/{fleet}/reports",
    tag = "reports",
    params(
        ("fleet" = String, Path, description = "The fleet, which is made by its first report unless fleets are fixed"),
        ("ack" = inline(Option<super::answers::AckWord>), Query, description = "`durable` (the answer comes when the \
            reports survive a power cut) or `visible` (when reads see them, with a receipt; only a power cut within about a second \
            loses them)"),
    ),
    request_body(
        description = "Reports",
        content(
            (super::answers::ReportBody = "application/json"),
            (Vec<super::answers::ReportBody> = "application/json"),
            (String = "application/x-ndjson"),
            (Object = "application/geo+json"),
        ),
    ),
    responses(
        (status = 200, description = "What became of them", body = Taken),
        super::openapi::Errors,
        super::openapi::BodyErrors,
    ),
)]
pub(crate) async fn reports(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    path: Path,
    mut params: Params,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let fleet = path.fleet()?;
    let ack = match params.text("ack")?.as_deref() {
        None | Some("durable") => Ack::Durable,
        Some("visible") => Ack::Visible,
        Some(other) => {
            let detail = format!("ack={other:.40}: it is durable or visible");
            return Err(Problem::parameter(detail));
        }
    };
    params.end()?;
    app.tracks.check_fleet(&fleet).map_err(no_such_fleet)?;
    caller.check_rate(app.now())?;
    let content_type = headers.get(CONTENT_TYPE);
    let content_type = content_type.map_or("", |value| value.to_str().unwrap_or("?"));
    let form = Form::of(content_type)?;
    let most = (app.config.body_max, app.config.inflated_max);
    let bytes = body::read_inflated(&app, &headers, body, most).await?;
    // Other calls with this token may have used up its rate meanwhile.
    caller.check_rate(app.now())?;
    let is_small = bytes.len() <= SMALL;
    let source = if is_small {
        Source::new(bytes, form)?
    } else {
        ask::with_body(&app, move || Source::new(bytes, form)).await?
    };
    let call = Call {
        app,
        fleet,
        ack,
        is_small,
        total: Total::default(),
        waiting: VecDeque::new(),
        since: 0,
    };
    call.run(source, &caller).await
}

/// The problem if a fleet does not exist and cannot be made.
pub(crate) fn no_such_fleet(e: Error) -> Problem {
    let kind = match e.kind() {
        ErrorKind::NotFound => Some(Kind::NoSuchFleet),
        ErrorKind::NotSupported => Some(Kind::TooManyFleets),
        _ => None,
    };
    let mut problem = Problem::from(e);
    problem.kind = kind.unwrap_or(problem.kind);
    problem
}

/// The place of a report in the body.
#[derive(Clone, Copy, Debug)]
struct Place {
    index: usize,
    line: Option<usize>,
}

/// The results of all reports of a call.
#[derive(Debug, Default)]
struct Total {
    outcomes: Outcomes,
    refused: Vec<Refused>,
    /// The first error that does not concern a single report.
    error: Option<Error>,
    number: u64,
}

impl Total {
    fn refuse(&mut self, at: Place, error: String) {
        self.outcomes.refused += 1;
        if self.refused.len() < REFUSED_MAX {
            self.refused.push(Refused {
                index: at.index,
                line: at.line,
                error,
            });
        }
    }

    fn add(&mut self, places: &[Place], answer: Answer) {
        self.number = self.number.max(answer.number);
        for (at, outcome) in places.iter().zip(answer.outcomes) {
            match outcome {
                Ok(Outcome::Moved) => self.outcomes.moved += 1,
                Ok(Outcome::Late) => self.outcomes.late += 1,
                Ok(Outcome::Same) => self.outcomes.same += 1,
                Err(e) => match e.kind() {
                    ErrorKind::InvalidArgument | ErrorKind::NotSupported => {
                        self.refuse(*at, text(&e));
                    }
                    _ => {
                        self.outcomes.failed += 1;
                        self.error.get_or_insert(e);
                    }
                },
            }
        }
    }

    fn taken(self, receipt: Option<String>) -> Taken {
        Taken {
            stored: self.outcomes.moved + self.outcomes.late,
            late: self.outcomes.late,
            same: self.outcomes.same,
            refused_more: self.outcomes.refused - self.refused.len(),
            refused: self.refused,
            receipt,
        }
    }
}

/// The reports of a part, with their places.
struct Ready {
    info: Option<Arc<Info>>,
    places: Vec<Place>,
    reports: Vec<Report>,
    refused: Vec<(Place, String)>,
}

struct Call {
    app: Arc<App>,
    fleet: Name,
    ack: Ack,
    is_small: bool,
    total: Total,
    waiting: VecDeque<(Vec<Place>, Ticket)>,
    since: u64,
}

impl Call {
    async fn run(mut self, mut source: Source, caller: &Caller) -> Result<Response, Problem> {
        self.since = self.app.now();
        let mut stopped = None;
        // How many reports were read, if there are more, which are not.
        let (mut read, mut cut) = (0, None);
        loop {
            let (rest, ready) = self.next(source).await?;
            source = rest;
            let count = ready.reports.len() + ready.refused.len();
            if count == 0 {
                break;
            }
            read += count;
            caller.take(count);
            for (at, error) in ready.refused {
                self.total.refuse(at, error);
            }
            let submitted = self.submit(ready.info, ready.places, ready.reports).await;
            if let Err(problem) = submitted {
                stopped = Some(problem);
                break;
            }
            if self.total.outcomes.refused > REFUSED_END {
                let over = ask::with_body(&self.app, move || Ok(source.part(1).is_empty()));
                // If there is no thread to look, there may be more.
                cut = (!over.await.unwrap_or(false)).then_some(read);
                break;
            }
        }
        while !self.waiting.is_empty() {
            self.wait().await?;
        }
        self.answer(stopped, cut)
    }

    /// Parses the next part of the rest.
    async fn next(&self, mut source: Source) -> Result<(Source, Ready), Problem> {
        let (app, fleet) = (Arc::clone(&self.app), self.fleet.clone());
        let may_wait = self.may_wait_for_room();
        let knows_fleet = app.tracks.fleets().get(&fleet).is_some();
        if self.is_small && knows_fleet {
            let items = source.part(PART);
            // A tag that the fleet does not have must be written.
            let info = app.tracks.fleets().get(&fleet);
            let knows = |item: &Item| match (&item.parsed, &info) {
                (Ok(Parsed { tags, .. }), Some(info)) => info.settings.bits(tags).is_ok(),
                _ => true,
            };
            if items.iter().all(knows) {
                return Ok((source, ready(&app, &fleet, items, may_wait)?));
            }
            let done = ask::with_body(&self.app, move || ready(&app, &fleet, items, may_wait));
            return Ok((source, done.await?));
        }
        ask::with_body(&self.app, move || {
            let items = source.part(PART);
            ready(&app, &fleet, items, may_wait).map(|ready| (source, ready))
        })
        .await
    }

    async fn submit(
        &mut self,
        info: Option<Arc<Info>>,
        places: Vec<Place>,
        mut reports: Vec<Report>,
    ) -> Result<(), Problem> {
        let Some(info) = info else {
            return Ok(());
        };
        let app = Arc::clone(&self.app);
        let since = app.now();
        loop {
            let waits = self.may_wait_for_room();
            if waits && !app.tracks.has_room() && Self::may_wait(&app, since) {
                tokio::time::sleep(ROOM_PAUSE).await;
                continue;
            }
            let given = if waits {
                reports.clone()
            } else {
                std::mem::take(&mut reports)
            };
            match app.tracks.report_of(&info, given, self.ack) {
                Ok(ticket) => {
                    self.waiting.push_back((places, ticket));
                    break;
                }
                Err(e) if e.kind() == ErrorKind::Busy => {
                    if !waits || !Self::may_wait(&app, since) {
                        let in_flight = app.tracks.in_flight();
                        let seconds = app.drain.seconds_for(app.now(), in_flight);
                        let stall = app.tracks.store().stall();
                        return Err(Problem::from(e).stalled(stall).retry_after(seconds));
                    }
                    tokio::time::sleep(ROOM_PAUSE).await;
                }
                Err(e) => return Err(e.into()),
            }
        }
        while self.waiting.len() >= PARTS {
            self.wait().await?;
        }
        Ok(())
    }

    /// Once a part was taken, the others wait for room, because the answer is about all of them.
    fn may_wait_for_room(&self) -> bool {
        !self.waiting.is_empty() || self.total.number > 0
    }

    /// Whether a part may wait longer for room.
    fn may_wait(app: &App, since: u64) -> bool {
        Duration::from_nanos(app.now().saturating_sub(since)) <= ROOM_TIMEOUT
    }

    /// Waits for the answer of the first part in progress.
    async fn wait(&mut self) -> Result<(), Problem> {
        let Some((places, ticket)) = self.waiting.pop_front() else {
            return Ok(());
        };
        let timeout = self.app.config.durable_timeout;
        let answer = tokio::time::timeout(timeout, ticket).await;
        let answer = answer.map_err(|_| {
            let detail = format!(
                "the store has not answered within {timeout:?}; the reports may be stored: send them again"
            );
            let stall = self.app.tracks.store().stall();
            Problem::new(Kind::Busy, detail).stalled(stall).retry_after(10)
        })?;
        self.app.drain.add(self.app.now(), places.len());
        self.total.add(&places, answer);
        Ok(())
    }

    /// `cut` is how many reports were read if there are more.
    fn answer(mut self, stopped: Option<Problem>, cut: Option<usize>) -> Result<Response, Problem> {
        let app = &self.app;
        app.counts.reports(&self.total.outcomes);
        let nanos = app.now().saturating_sub(self.since);
        app.counts.ack(self.ack == Ack::Durable, nanos);
        let of = self.total.outcomes;
        let stored = of.moved + of.late + of.same;
        let error = self.total.error.take();
        let problem = stopped.or_else(|| error.map(Problem::from));
        let is_refused = stored == 0 && of.refused > 0;
        let receipt = (self.ack == Ack::Visible && stored > 0)
            .then(|| format!("{}-{}", app.start, self.total.number));
        let taken = self.total.taken(receipt);
        if let (None, Some(read)) = (&problem, cut) {
            let detail = format!(
                "more than {REFUSED_END} reports are invalid: nothing behind the first {read} was read, and {stored} of \
                 these are stored: send the rest in another call"
            );
            let kind = if stored == 0 {
                Kind::ReportsRefused
            } else {
                Kind::InvalidBody
            };
            return Err(with(Problem::new(kind, detail), &taken));
        }
        let Some(mut problem) = problem else {
            if is_refused {
                let detail = first_error(&taken.refused);
                return Err(with(Problem::new(Kind::ReportsRefused, detail), &taken));
            }
            return super::answer_of(app, &taken);
        };
        if stored > 0 {
            problem.detail = format!(
                "{}; {stored} reports of the call are stored: send all again: those with a time that is not ahead of the server's clock are not stored twice",
                problem.detail
            );
        }
        Err(with(problem, &taken))
    }
}

fn first_error(refused: &[Refused]) -> String {
    refused.first().map_or_else(String::new, |first| {
        let at = match first.line {
            Some(line) => format!("line {line}"),
            None => format!("report {}", first.index),
        };
        format!("{at}: {}", first.error)
    })
}

/// Adds the results of the reports to a problem.
fn with(mut problem: Problem, taken: &Taken) -> Problem {
    if let Ok(serde_json::Value::Object(more)) = serde_json::to_value(taken) {
        problem.more.extend(more);
    }
    problem
}

/// The reports of some items, with the bits of their tags. The fleet and its tags are made if necessary, but only for
/// reports that can be stored. With `may_wait`, this happens even if there is no room. Errors: there is no room; the
/// store's.
fn ready(app: &App, fleet: &Name, items: Vec<Item>, may_wait: bool) -> Result<Ready, Problem> {
    let mut refused = Vec::new();
    let mut good: Vec<(Place, Parsed)> = Vec::with_capacity(items.len());
    for item in items {
        let at = Place {
            index: item.index,
            line: item.line,
        };
        match item.parsed {
            Ok(parsed) => good.push((at, parsed)),
            Err(e) => refused.push((at, e)),
        }
    }
    let info = loop {
        let known = app.tracks.fleets().get(fleet);
        let settings = known.as_ref().map(|info| &info.settings);
        let tags = missing(app.tracks.now(), (fleet, settings), &mut good, &mut refused);
        if good.is_empty() || known.is_some() && tags.is_empty() {
            break known;
        }
        if !may_wait && !app.tracks.has_room() {
            return Err(no_room(app));
        }
        // `None`: other calls have added tags meanwhile, so that there would be too many.
        if let Some(info) = made(app, fleet, &tags)? {
            break Some(info);
        }
    };
    refused.sort_by_key(|(at, _)| at.index);
    let mut out = Ready {
        info: info.filter(|_| !good.is_empty()),
        places: Vec::with_capacity(good.len()),
        reports: Vec::with_capacity(good.len()),
        refused,
    };
    let bits = |tags: &[String]| out.info.as_ref().map_or(Ok(0), |i| i.settings.bits(tags));
    for (at, Parsed { mut report, tags }) in good {
        report.point.tags = bits(&tags)?;
        out.places.push(at);
        out.reports.push(report);
    }
    Ok(out)
}

/// Moves reports that cannot be stored to `refused`. Returns the tags of the others that the fleet lacks.
fn missing(
    now: Time,
    (fleet, known): (&Name, Option<&Settings>),
    good: &mut Vec<(Place, Parsed)>,
    refused: &mut Vec<(Place, String)>,
) -> Vec<String> {
    let ahead = known.map_or_else(|| Settings::default().ahead(), Settings::ahead);
    let mut planned: Option<Settings> = None;
    let mut check = |parsed: &Parsed| {
        parsed.report.check(now, ahead)?;
        let settings = planned.as_ref().or(known);
        if settings.is_none_or(|settings| settings.bits(&parsed.tags).is_err()) {
            let default = Settings::default();
            planned = Some(
                settings
                    .unwrap_or(&default)
                    .with_tags(fleet, &parsed.tags)?,
            );
        }
        base::Result::Ok(())
    };
    good.retain(|(at, parsed)| match check(parsed) {
        Ok(()) => true,
        Err(e) => {
            refused.push((*at, text(&e)));
            false
        }
    });
    let had = known.map_or(0, |settings| settings.tags.len());
    planned.map_or_else(Vec::new, |settings| {
        settings.tags.into_iter().skip(had).collect()
    })
}

/// The fleet, with these tags added. `None` if there would be too many tags.
fn made(app: &App, fleet: &Name, tags: &[String]) -> Result<Option<Arc<Info>>, Problem> {
    let info = app.tracks.fleet_or_make(fleet).map_err(no_such_fleet)?;
    match with_tags(app, info, tags) {
        Ok((info, _)) => Ok(Some(info)),
        Err(e) if e.kind() == ErrorKind::InvalidArgument => Ok(None),
        Err(e) => Err(e.into()),
    }
}

fn no_room(app: &App) -> Problem {
    let in_flight = app.tracks.in_flight();
    let detail = format!("{in_flight} reports are on their way already: send them again later");
    let seconds = app.drain.seconds_for(app.now(), in_flight);
    let problem = Problem::new(Kind::Busy, detail).stalled(app.tracks.store().stall());
    problem.retry_after(seconds)
}

/// The bits of tags, which are added to the fleet if necessary.
pub(crate) fn with_tags(
    app: &App,
    info: Arc<Info>,
    tags: &[String],
) -> base::Result<(Arc<Info>, u32)> {
    if let Ok(bits) = info.settings.bits(tags) {
        return Ok((info, bits));
    }
    let store = app.tracks.store();
    let info = app.tracks.fleets().with_tags(&**store, &info.name, tags)?;
    let bits = info.settings.bits(tags)?;
    Ok((info, bits))
}

/// Wait until reports survive a power cut.
///
/// Of those that were answered with this receipt.
#[utoipa::path(
    get,
    path = "/v1/durable/{receipt}",
    tag = "reports",
    params(("receipt" = String, Path, description = "Of an answer to `ack=visible`")),
    responses(
        (status = 200, description = "They do", body = Durable),
        (status = 202, description = "Not yet: ask again", body = Durable,
            headers(("Retry-After" = u64, description = "Seconds"))),
        (status = 410, description = "An earlier start of the server gave it: send the reports again",
            body = super::problem::ProblemBody, content_type = "application/problem+json"),
        super::openapi::Errors,
    ),
)]
pub(crate) async fn durable(
    State(app): State<Arc<App>>,
    path: Path,
    params: Params,
) -> Result<Response, Problem> {
    params.end()?;
    let receipt = path.get("receipt").unwrap_or_default();
    let number = number_of(&app, receipt)?;
    let (sender, receiver) = oneshot::channel();
    // Waits for all writes so far, so that reports that were already stored are durable as well.
    app.tracks
        .store()
        .when_durable(Box::new(move |last, result| {
            drop(sender.send(result.map(|()| last)));
        }));
    let Ok(told) = tokio::time::timeout(app.config.durable_timeout, receiver).await else {
        let mut response = super::answer_of(&app, &Durable { durable: false })?;
        *response.status_mut() = StatusCode::ACCEPTED;
        let headers = response.headers_mut();
        headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        return Ok(response);
    };
    let last = told.map_err(Problem::internal)?.map_err(|e| {
        let detail = format!("the reports may be lost: send them again; {}", text(&e));
        Problem::new(Kind::Storage, detail)
    })?;
    if number > last {
        return Err(invalid_receipt(receipt));
    }
    super::answer_of(&app, &Durable { durable: true })
}

fn invalid_receipt(receipt: &str) -> Problem {
    let detail = format!("{receipt:.80?}: give the receipt of an answer to ack=visible");
    Problem::new(Kind::InvalidReceipt, detail)
}

fn number_of(app: &App, receipt: &str) -> Result<u64, Problem> {
    let parsed = receipt.split_once('-').and_then(|(start, number)| {
        let is_start =
            start.len() == app.start.len() && start.bytes().all(|b| b.is_ascii_hexdigit());
        let is_number = number.bytes().all(|b| b.is_ascii_digit());
        let number: u64 = number.parse().ok()?;
        (is_start && is_number).then_some((start, number))
    });
    let (start, number) = parsed.ok_or_else(|| invalid_receipt(receipt))?;
    if start == app.start {
        return Ok(number);
    }
    let detail = "the server was started again since: send the reports again; those with a time that is not \
                  ahead of the server's clock are not stored twice";
    Err(Problem::new(Kind::ReceiptExpired, detail))
}
