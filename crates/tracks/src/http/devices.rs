//! Phones and trackers over HTTP. Messages that can never be stored are answered with 200, because
//! a device would send them again for ever; see [`devices`](crate::devices).

use std::borrow::Cow;
use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, Uri};
use axum::response::{IntoResponse, Response};
use base::ErrorKind;
use bytes::Bytes;

use super::body;
use super::guard::{self, Caller};
use super::ingest::no_such_fleet;
use super::problem::{Kind, Problem, text};
use super::{App, ask};
use crate::devices::{
    Heard, MESSAGE_BYTES_MAX, Owner, Pending, Protocol, Unusable, osmand as of_query,
    owntracks as of_owntracks, traccar as of_traccar,
};
use crate::model::name::Name;

/// Parameters of this service, not of the device.
const OURS: [&str; 2] = ["fleet", "token"];

type Pairs = Vec<(String, String)>;

fn pairs(encoded: &[u8]) -> Pairs {
    let all = form_urlencoded::parse(encoded);
    all.map(|(name, value)| (name.into_owned(), value.into_owned()))
        .collect()
}

fn query(uri: &Uri) -> Pairs {
    pairs(uri.query().unwrap_or_default().as_bytes())
}

fn get<'a>(pairs: &'a Pairs, name: &str) -> Option<&'a str> {
    let found = pairs.iter().find(|(known, _)| known == name);
    found.map(|(_, value)| value.as_str())
}

/// Take a message of OwnTracks.
///
/// The apps' mode HTTP. The entity is `USER/DEVICE`, of the headers `X-Limit-U` and `X-Limit-D`, the parameters `u` and
/// `d`, or the member `topic`. Positions are answered when they survive a power cut. What can never be stored, as a
/// position of no fix or a message of another type, is answered with 200 too, and counted in
/// `tracks_device_messages_total`.
#[utoipa::path(
    post,
    path = "/owntracks",
    tag = "devices",
    params(
        ("fleet" = Option<String>, Query, description = "The fleet; without it the token's only one, or that of \
            `serve --device-fleet`"),
        ("u" = Option<String>, Query, description = "The user, where no header says it"),
        ("d" = Option<String>, Query, description = "The device, where no header says it"),
        ("X-Limit-U" = Option<String>, Header, description = "The user"),
        ("X-Limit-D" = Option<String>, Header, description = "The device"),
    ),
    request_body(content = Object, description = "The app's JSON"),
    responses(
        (status = 200, description = "Always an empty array", body = Vec<Object>),
        super::openapi::Errors,
        super::openapi::BodyErrors,
    ),
    security((), ("token" = []), ("basic" = []), ("parameter" = [])),
)]
pub(crate) async fn owntracks(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let protocol = Protocol::OwnTracks;
    let params = query(&uri);
    let fleet = fleet(&app, &caller, &params)?;
    let header = |name: &str| {
        let value = headers.get(name).and_then(|value| value.to_str().ok());
        value.map(ToOwned::to_owned)
    };
    let param = |name: &str| get(&params, name).map(ToOwned::to_owned);
    let owner = Owner {
        user: header("x-limit-u").or_else(|| param("u")),
        device: header("x-limit-d").or_else(|| param("d")),
        login: guard::basic(&headers).map(|(user, _)| user),
        topic: None,
    };
    let heard = match message(&app, &headers, body).await? {
        Ok(bytes) => of_owntracks(&bytes, &owner).map(|heard| vec![heard]),
        Err(too_large) => Ok(vec![too_large]),
    };
    take(&app, &caller, (protocol, &fleet), heard).await?;
    super::typed_answer(&app, "application/json", b"[]".to_vec())
}

/// Take a position in the query.
///
/// As OsmAnd, Traccar Client before 9 and many trackers send it: `speed` is in knots, and parameters that are not known
/// become attributes. Positions are answered when they survive a power cut. What can never be stored is answered with
/// 200 too, and counted in `tracks_device_messages_total`.
#[utoipa::path(
    get,
    path = "/osmand",
    tag = "devices",
    params(
        ("id" = Option<String>, Query, description = "The entity; `deviceid` is the same"),
        ("lat" = Option<String>, Query, description = "Degrees"),
        ("lon" = Option<String>, Query, description = "Degrees"),
        ("timestamp" = Option<String>, Query, description = "Seconds or milliseconds since 1970, RFC 3339, or \
            `yyyy-MM-dd HH:mm:ss` in UTC"),
        ("speed" = Option<String>, Query, description = "Knots"),
        ("bearing" = Option<String>, Query, description = "Degrees; `heading` is the same"),
        ("altitude" = Option<String>, Query, description = "Metres"),
        ("accuracy" = Option<String>, Query, description = "Metres"),
        ("batt" = Option<String>, Query, description = "Per cent"),
        ("fleet" = Option<String>, Query, description = "The fleet; without it the token's only one, or that of \
            `serve --device-fleet`"),
    ),
    responses((status = 200, description = "Nothing"), super::openapi::Errors, super::openapi::BodyErrors),
    security((), ("token" = []), ("basic" = []), ("parameter" = [])),
)]
pub(crate) async fn osmand(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
) -> Result<Response, Problem> {
    let params = query(&uri);
    let fleet = fleet(&app, &caller, &params)?;
    let heard = of_pairs(&params);
    take(&app, &caller, (Protocol::OsmAnd, &fleet), heard).await?;
    Ok(().into_response())
}

/// Take a position of OsmAnd or Traccar Client.
///
/// The parameters of `GET /osmand`, in the query or as a form; or, with `Content-Type: application/json`, the JSON of
/// Traccar Client 9 and later.
#[utoipa::path(
    post,
    path = "/osmand",
    tag = "devices",
    params(("fleet" = Option<String>, Query, description = "The fleet; without it the token's only one, or that of \
        `serve --device-fleet`")),
    request_body(
        description = "A form, or JSON",
        content((String = "application/x-www-form-urlencoded"), (Object = "application/json")),
    ),
    responses((status = 200, description = "Nothing"), super::openapi::Errors, super::openapi::BodyErrors),
    security((), ("token" = []), ("basic" = []), ("parameter" = [])),
)]
pub(crate) async fn osmand_post(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let mut params = query(&uri);
    let kind = headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    let is_json = kind.is_some_and(|kind| {
        kind.trim()
            .to_ascii_lowercase()
            .starts_with("application/json")
    });
    let fleet = fleet(&app, &caller, &params)?;
    let protocol = if is_json {
        Protocol::Traccar
    } else {
        Protocol::OsmAnd
    };
    let heard = match message(&app, &headers, body).await? {
        Err(too_large) => Ok(vec![too_large]),
        Ok(bytes) if is_json => of_traccar(&bytes),
        Ok(bytes) => {
            params.extend(pairs(&bytes));
            of_pairs(&params)
        }
    };
    take(&app, &caller, (protocol, &fleet), heard).await?;
    Ok(().into_response())
}

fn of_pairs(params: &Pairs) -> Result<Vec<Heard>, Unusable> {
    let theirs = params
        .iter()
        .filter(|(name, _)| !OURS.contains(&name.as_str()));
    of_query(theirs.map(|(name, value)| (name.as_str(), value.as_str()))).map(|heard| vec![heard])
}

/// The fleet of a call. Errors: the token is not for it, or the name is invalid.
fn fleet(app: &App, caller: &Caller, params: &Pairs) -> Result<Name, Problem> {
    let named = get(params, "fleet").or_else(|| caller.only_fleet());
    let fleet = match named {
        None => app.intake.fleet().clone(),
        Some(name) => {
            Name::new(name).map_err(|e| Problem::parameter(format!("fleet: {}", text(&e))))?
        }
    };
    if !caller.has_fleet(fleet.as_str()) {
        let detail =
            format!("the token is not for the fleet {fleet}: say ?fleet= of one that it is for");
        return Err(Problem::new(Kind::Forbidden, detail));
    }
    app.tracks.check_fleet(&fleet).map_err(no_such_fleet)?;
    caller.check_rate(app.now())?;
    Ok(fleet)
}

/// The body; if it is too large, that is final.
async fn message(
    app: &Arc<App>,
    headers: &HeaderMap,
    body: Body,
) -> Result<Result<Bytes, Heard>, Problem> {
    let most = app.config.body_max.min(MESSAGE_BYTES_MAX);
    match body::read(app, headers, body, most).await {
        Ok(bytes) => Ok(Ok(bytes)),
        Err(problem) if problem.kind == Kind::TooLarge => Ok(Err(Heard::Wrong(problem.detail))),
        Err(problem) => Err(problem),
    }
}

/// Takes a message, and returns once it is durable, or is known to be impossible to store.
async fn take(
    app: &Arc<App>,
    caller: &Caller,
    (protocol, fleet): (Protocol, &Name),
    heard: Result<Vec<Heard>, Unusable>,
) -> Result<(), Problem> {
    let intake = &app.intake;
    let heard = heard.map_err(|why| {
        intake.unusable(protocol, why);
        let kind = match why {
            Unusable::NoName => Kind::InvalidParameter,
            Unusable::Encrypted => Kind::UnsupportedMediaType,
        };
        Problem::new(kind, why.advice())
    })?;
    let reports = heard
        .into_iter()
        .filter_map(|heard| intake.sort(protocol, heard));
    let reports: Vec<_> = reports.collect();
    if reports.is_empty() {
        return Ok(());
    }
    caller.take(reports.len());
    let since = app.now();
    let is_new = app.tracks.fleets().get(fleet).is_none();
    if is_new
        && app
            .tracks
            .would_make_fleet(reports.iter().map(|(report, _)| report))
    {
        // Making the fleet needs a write.
        let (app, fleet) = (Arc::clone(app), fleet.clone());
        let its = Arc::clone(&app);
        let make = move || its.tracks.fleet_or_make(&fleet).map_err(no_such_fleet);
        ask::with_body(&app, make).await?;
    }
    let mut pending: Vec<Pending> = Vec::with_capacity(reports.len());
    for report in reports {
        pending.push(
            intake
                .submit(protocol, fleet, report)
                .map_err(|e| busy(app, e))?,
        );
    }
    let count = pending.len();
    let timeout = app.config.durable_timeout;
    let done = tokio::time::timeout(timeout, async {
        for one in pending {
            intake.end(one).await?;
        }
        Ok::<(), base::Error>(())
    });
    done.await.map_err(|_| {
        let detail = format!("the store has not answered within {timeout:?}: send it again");
        let stall = app.tracks.store().stall();
        Problem::new(Kind::Busy, detail)
            .stalled(stall)
            .retry_after(10)
    })??;
    app.drain.add(app.now(), count);
    app.counts.ack(true, app.now().saturating_sub(since));
    Ok(())
}

fn busy(app: &App, e: base::Error) -> Problem {
    let is_busy = e.kind() == ErrorKind::Busy;
    let problem = Problem::from(e);
    if !is_busy {
        return problem;
    }
    let seconds = app.drain.seconds_for(app.now(), app.tracks.in_flight());
    problem
        .stalled(app.tracks.store().stall())
        .retry_after(seconds)
}

/// The token of a device: the password of its authorization, or the parameter `token`.
pub(crate) fn token(headers: &HeaderMap, uri: &Uri) -> Option<String> {
    let password = guard::basic(headers).map(|(_, password)| password);
    password.or_else(|| {
        let query = uri.query().unwrap_or_default().as_bytes();
        let mut all = form_urlencoded::parse(query);
        all.find(|(name, _)| name == "token")
            .map(|(_, value)| Cow::into_owned(value))
    })
}
