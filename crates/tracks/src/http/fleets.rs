//! Calls about fleets and their settings.

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;

use super::answers::{FleetBody, FleetChange, FleetList};
use super::guard::Caller;
use super::ingest::no_such_fleet;
use super::params::{Params, Path};
use super::problem::{Problem, text};
use super::{App, ask, body, json};
use crate::fleets::check_tags;

/// The greatest number of days in a setting.
const DAYS_MAX: u32 = 100_000;
/// The most bytes of settings.
const BYTES_MAX: usize = 64 * 1024;

/// List the fleets.
///
/// In the order of their names; those that the token is for.
#[utoipa::path(
    get,
    operation_id = "fleets",
    path = "/v1/fleets",
    tag = "fleets",
    responses((status = 200, description = "They", body = FleetList), super::openapi::Errors),
)]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    params: Params,
) -> Result<Response, Problem> {
    params.end()?;
    let all = app.tracks.fleets().all();
    let all = all
        .iter()
        .filter(|info| caller.has_fleet(info.name.as_str()));
    let fleets = all.map(|info| FleetBody::new(info)).collect();
    super::answer_of(&app, &FleetList { fleets })
}

/// Show a fleet's settings.
#[utoipa::path(
    get,
    path = "/v1/fleets/{fleet}",
    tag = "fleets",
    params(("fleet" = String, Path, description = "The fleet")),
    responses((status = 200, description = "The fleet", body = FleetBody), super::openapi::Errors),
)]
pub(crate) async fn settings(
    State(app): State<Arc<App>>,
    path: Path,
    params: Params,
) -> Result<Response, Problem> {
    params.end()?;
    let info = app.tracks.fleet(&path.fleet()?).map_err(no_such_fleet)?;
    super::answer_of(&app, &FleetBody::new(&info))
}

/// Change a fleet's settings, or make a fleet.
///
/// What is left out stays as it is. Tags are never taken out.
#[utoipa::path(
    put,
    path = "/v1/fleets/{fleet}",
    tag = "fleets",
    params(("fleet" = String, Path, description = "The fleet")),
    request_body = FleetChange,
    responses(
        (status = 200, description = "The fleet as it is now", body = FleetBody),
        super::openapi::Errors,
        super::openapi::BodyErrors,
    ),
)]
pub(crate) async fn change(
    State(app): State<Arc<App>>,
    path: Path,
    params: Params,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    params.end()?;
    let fleet = path.fleet()?;
    let bytes = body::read(&app, &headers, body, BYTES_MAX).await?;
    let change: FleetChange = json::read(&bytes).map_err(Problem::body)?;
    if let Some(tags) = &change.tags {
        check_tags(tags).map_err(|e| Problem::body(text(&e)))?;
        let mut seen = std::collections::BTreeSet::new();
        if let Some(twice) = tags.iter().find(|tag| !seen.insert(*tag)) {
            return Err(Problem::body(format!(
                "the tag {twice:.80?} is there twice"
            )));
        }
    }
    for (name, days) in [
        ("keep_days", change.keep_days),
        ("silent_days", change.silent_days),
        ("thin_days", change.thin_days),
    ] {
        if let Some(days) = days.filter(|days| *days > DAYS_MAX) {
            return Err(Problem::body(format!(
                "{name} is {days}, and at most {DAYS_MAX}"
            )));
        }
    }
    let info = ask::blocking(&app, move |app| {
        let changed = app.tracks.change_fleet(&fleet, |settings| {
            settings.clamp_times = change.clamp_times.unwrap_or(settings.clamp_times);
            settings.keep_days = change.keep_days.unwrap_or(settings.keep_days);
            settings.silent_days = change.silent_days.unwrap_or(settings.silent_days);
            settings.thin_days = change.thin_days.unwrap_or(settings.thin_days);
            settings.thin_metres = change.thin_metres.unwrap_or(settings.thin_metres);
            if let Some(tags) = change.tags {
                settings.tags = tags;
            }
            Ok(())
        });
        let info = changed.map_err(Problem::from)?;
        Ok(info)
    });
    let info = info.await?;
    super::answer_of(&app, &FleetBody::new(&info))
}
