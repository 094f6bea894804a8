//! What the server says of itself.

use std::sync::Arc;

use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;
use utoipa::OpenApi;

use super::answers::Health;
use super::openapi::Api;
use super::problem::{Kind, Problem};
use super::{App, ask, metrics};

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
#[utoipa::path(
    get,
    path = "/readyz",
    tag = "server",
    security(()),
    responses(
        (status = 200, description = "They should", body = Health),
        (status = 503, description = "The server stops", body = super::problem::ProblemBody,
            content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn ready(State(app): State<Arc<App>>) -> Result<Response, Problem> {
    if app.is_stopping() {
        let detail = "it answers what it has taken: send new calls to another one, or later";
        return Err(Problem::new(Kind::Stopping, detail).retry_after(5));
    }
    super::answer_of(&app, &Health { status: "ok" })
}

/// Metrics for Prometheus.
///
/// Those of the HTTP interface, and those of the engine.
#[utoipa::path(
    get,
    path = "/metrics",
    tag = "server",
    responses((status = 200, description = "Its text form 0.0.4", body = String, content_type = "text/plain"),
        super::openapi::Errors),
)]
pub(crate) async fn metrics(State(app): State<Arc<App>>) -> Result<Response, Problem> {
    let text = ask::blocking(&app, |app| {
        let mut text = app.counts.text(app.tracks.in_flight());
        let failed = u8::from(app.tracks.house_failed().is_some());
        text.push_str(&format!(
            "# TYPE tracks_housekeeping_failed gauge\ntracks_housekeeping_failed {failed}\n"
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
