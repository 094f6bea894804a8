//! Calls about backups, which are made while the service runs.

use std::path::Path;
use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use ironstone::{BackupEngine, BackupEngineOptions, CreateBackupOptions, Env};
use serde::Serialize;
use utoipa::ToSchema;

use super::guard::Caller;
use super::params::Params;
use super::problem::{Kind, Problem};
use super::{App, ask};
use crate::backups::Making;

/// A backup.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Backup)]
pub(crate) struct BackupBody {
    /// Its number: later ones have larger numbers.
    id: u32,
    /// When it was made, seconds since 1970.
    time: i64,
    /// Bytes, with those that it shares with others.
    bytes: u64,
    /// Its files.
    files: u32,
}

/// All backups.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Backups)]
pub(crate) struct BackupList {
    /// They, the oldest first.
    backups: Vec<BackupBody>,
}

/// The folder of backups. Errors: none is configured; the caller may not see all fleets.
fn folder<'a>(app: &'a App, caller: &Caller) -> Result<&'a Path, Problem> {
    if !caller.is_for_all_fleets() {
        let detail = "a backup has all fleets, and the token is for some";
        return Err(Problem::new(Kind::Forbidden, detail));
    }
    app.config.backups.as_deref().ok_or_else(|| {
        let detail = "start the server with --backups FOLDER, and outside of its --dir";
        Problem::new(Kind::NoBackups, detail)
    })
}

fn all_of(engine: &BackupEngine) -> Vec<BackupBody> {
    let all = engine.get_backup_info().into_iter();
    let body = |info: ironstone::BackupInfo| BackupBody {
        id: info.backup_id,
        time: info.timestamp,
        bytes: info.size,
        files: info.number_files,
    };
    all.map(body).collect()
}

/// List the backups.
#[utoipa::path(
    get,
    operation_id = "backups",
    path = "/v1/backups",
    tag = "server",
    responses((status = 200, description = "They", body = BackupList), super::openapi::Errors),
)]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    params: Params,
) -> Result<Response, Problem> {
    params.end()?;
    let list = ask::blocking(&app, move |app| {
        let options = BackupEngineOptions::new(folder(app, &caller)?);
        let backups = all_of(&BackupEngine::open(&options, &Env::default())?);
        Ok(BackupList { backups })
    });
    super::answer_of(&app, &list.await?)
}

/// Make a backup.
///
/// In the folder that the server was started with, while all goes on. Tables that an earlier one has are not copied again.
/// `ironstone-tracks restore` brings it back.
#[utoipa::path(
    post,
    path = "/v1/backups",
    operation_id = "make_backup",
    tag = "server",
    responses((status = 201, description = "It is there", body = BackupBody), super::openapi::Errors),
)]
pub(crate) async fn make(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    params: Params,
) -> Result<Response, Problem> {
    params.end()?;
    let one = Arc::clone(&app.backing_up).try_acquire_owned();
    let one = one.map_err(|_| {
        Problem::new(Kind::Busy, "a backup is being made: ask again later").retry_after(30)
    })?;
    let its = Arc::clone(&app);
    let made = tokio::task::spawn_blocking(move || {
        let mut making = Making::begin(folder(&its, &caller)?)?;
        let db = its
            .db
            .as_ref()
            .ok_or_else(|| Problem::new(Kind::NoBackups, "this store has no backups"))?;
        if let Err(e) = making.tidy() {
            Problem::from(e).log("what an earlier backup left");
        }
        let engine = making.engine();
        let id = engine.create_new_backup(db, CreateBackupOptions::default())?;
        drop(one);
        let all = all_of(engine);
        let made = all.into_iter().find(|backup| backup.id == id);
        made.ok_or_else(|| Problem::internal("a backup that was made is not there"))
    });
    let made = made.await.map_err(Problem::internal)??;
    let mut response = super::answer_of(&app, &made)?;
    *response.status_mut() = StatusCode::CREATED;
    Ok(response)
}
