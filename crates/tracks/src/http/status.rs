//! Calls about the server: health, readiness, metrics, and the description.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;
use base::{Error, ErrorKind};
use utoipa::OpenApi;

use super::answers::Health;
use super::guard::Caller;
use super::openapi::Api;
use super::problem::{Kind, Problem};
use super::{App, ask, metrics};

/// The pause after a write that was tried, before another one is.
const TRY_PAUSE: Duration = Duration::from_millis(500);

/// Say whether the process runs.
#[utoipa::path(
    get,
    path = "/healthz",
    tag = "server",
    security(()),
    responses((status = 200, description = "It does", body = Health)),
)]
pub(crate) async fn health(State(app): State<Arc<App>>) -> Result<Response, Problem> {
    super::answer_of(&app, &Health { status: "ok" })
}

/// Say whether new calls should come here.
///
/// They should not while the server stops, nor while the store takes no writes, as on a full device; reads go on then.
#[utoipa::path(
    get,
    path = "/readyz",
    tag = "server",
    security(()),
    responses(
        (status = 200, description = "They should", body = Health),
        (status = 503, description = "The server stops, or its store takes no writes", body = super::problem::ProblemBody,
            content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn ready(State(app): State<Arc<App>>) -> Result<Response, Problem> {
    if app.is_stopping() {
        let detail = "it answers what it has taken: send new calls to another one, or later";
        return Err(Problem::new(Kind::Stopping, detail).retry_after(5));
    }
    if let Some(e) = refuses_writes(&app) {
        let text = format!("the store takes no writes: {e}");
        app.config.notices.say("refuses writes", app.now(), &text);
        // Other details are not for arbitrary clients.
        let detail = if e.kind() == ErrorKind::NoSpace {
            "the device is full: writes go on by themselves when there is room"
        } else {
            "the store has failed, and the server's log says why: if this stays so, start it again"
        };
        return Err(Problem::new(Kind::RefusesWrites, detail).retry_after(5));
    }
    super::answer_of(&app, &Health { status: "ok" })
}

/// Why the store refuses writes. If it does, a write is tried in the background, so that the next
/// answer may differ.
fn refuses_writes(app: &Arc<App>) -> Option<Error> {
    let e = app.tracks.store().refuses_writes()?;
    if let Ok(turn) = Arc::clone(&app.trying).try_acquire_owned() {
        let app = Arc::clone(app);
        tokio::spawn(async move {
            // The store itself records the result.
            drop(app.intake.check_store().await);
            tokio::time::sleep(TRY_PAUSE).await;
            drop(turn);
        });
    }
    Some(e)
}

/// Metrics for Prometheus.
///
/// Those of the HTTP interface, and those of the engine. They name all fleets, so a token for some does not see them.
#[utoipa::path(
    get,
    path = "/metrics",
    tag = "server",
    responses((status = 200, description = "Its text form 0.0.4", body = String, content_type = "text/plain"),
        super::openapi::Errors),
)]
pub(crate) async fn metrics(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
) -> Result<Response, Problem> {
    if !caller.is_for_all_fleets() {
        let detail = "metrics are of all fleets, and the token is for some";
        return Err(Problem::new(Kind::Forbidden, detail));
    }
    let refuses = refuses_writes(&app).is_some();
    let text = ask::blocking(&app, move |app| {
        let mut text = app.counts.text(app.tracks.in_flight());
        let age = app.tracks.queue_age().as_secs_f64();
        text.push_str(
            "# HELP tracks_queue_age_seconds Age of the oldest report that is not written yet\n",
        );
        text.push_str(&format!(
            "# TYPE tracks_queue_age_seconds gauge\ntracks_queue_age_seconds {age}\n"
        ));
        let failed = u8::from(app.tracks.house_failed().is_some());
        text.push_str(&format!(
            "# TYPE tracks_housekeeping_failed gauge\ntracks_housekeeping_failed {failed}\n"
        ));
        let refuses = u8::from(refuses);
        text.push_str(&format!(
            "# TYPE tracks_store_refuses_writes gauge\ntracks_store_refuses_writes {refuses}\n"
        ));
        text.push_str(&app.intake.counts().text());
        text.push_str(&metrics::of_fences(app));
        if let Some(db) = &app.db {
            text.push_str(&db.metrics_text());
        }
        Ok(text)
    });
    let text = text.await?;
    super::typed_answer(&app, "text/plain; version=0.0.4", text.into_bytes())
}

/// This description.
#[utoipa::path(
    get,
    path = "/openapi.json",
    tag = "server",
    security(()),
    responses((status = 200, description = "OpenAPI 3.1", body = Object)),
)]
pub(crate) async fn openapi(State(app): State<Arc<App>>) -> Result<Response, Problem> {
    super::answer_of(&app, &Api::openapi())
}

pub(crate) async fn no_such_path(uri: Uri) -> Problem {
    let detail = format!("{:.100}: /openapi.json lists the paths", uri.path());
    Problem::new(Kind::NoSuchPath, detail)
}

pub(crate) async fn no_such_method(uri: Uri) -> Problem {
    let detail = format!("{:.100}: the header Allow has its methods", uri.path());
    Problem::new(Kind::MethodNotAllowed, detail)
}
