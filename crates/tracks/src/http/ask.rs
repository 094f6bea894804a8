//! Queries: each on a blocking thread, a limited number at a time.

use std::sync::Arc;

use axum::response::Response;
use serde::Serialize;
use tokio::time::Instant;

use super::App;
use super::limits::{Held, NoPlace};
use super::problem::{Kind, Problem};
use crate::read::{Asker, Patience};

/// An answer, and the number of its results.
pub(crate) struct Found<T> {
    pub(crate) answer: T,
    pub(crate) hits: usize,
    pub(crate) content_type: &'static str,
    /// The memory of the answer and of its text.
    pub(crate) held: Held,
}

impl<T> Found<T> {
    pub(crate) fn json(answer: T, hits: usize) -> Self {
        Self {
            answer,
            hits,
            content_type: "application/json",
            held: Held::default(),
        }
    }

    /// Adds the memory that the answer holds.
    pub(crate) fn with(self, room: Room<'_>) -> Self {
        let held = room.held;
        Self { held, ..self }
    }
}

/// The memory of an answer that is being made; it grows with the answer.
pub(crate) struct Room<'a> {
    app: &'a App,
    held: Held,
    bytes: usize,
}

impl<'a> Room<'a> {
    /// Memory is counted twice: for the answer and for its text.
    const TIMES: usize = 2;
    /// Memory is requested in steps of this size; a smaller answer is not counted.
    const STEP: usize = 128 * 1024;

    pub(crate) fn new(app: &'a App) -> Self {
        let held = Held::default();
        Self {
            app,
            held,
            bytes: 0,
        }
    }

    /// The bytes that the text will have.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds bytes that will follow. Errors: other calls use the memory.
    pub(crate) fn grow(&mut self, bytes: usize) -> Result<(), Problem> {
        self.bytes = self.bytes.saturating_add(bytes);
        let all = self.bytes / Self::STEP * Self::STEP * Self::TIMES;
        if self.app.memory.grow(&mut self.held, all) {
            return Ok(());
        }
        Err(super::body::no_memory())
    }
}

/// Runs a query on a blocking thread. Errors: too many are running, or too many of the caller's.
pub(crate) async fn blocking<T: Send + 'static>(
    app: &Arc<App>,
    work: impl FnOnce(&App) -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    let caller = app.sharer();
    let token = caller.as_ref().map(|token| token.name());
    let end = Instant::now() + app.config.queue_timeout;
    let place = app.queries.take(token, end).await.map_err(|taken| {
        let detail = match taken {
            NoPlace::All(count) => {
                format!("{count} queries run already, and others wait: ask again later")
            }
            NoPlace::Share(count) => format!(
                "{count} queries of the token {:?} run already, which is its share: ask again later",
                token.unwrap_or_default()
            ),
        };
        Problem::new(Kind::Busy, detail).retry_after(1)
    })?;
    let app = Arc::clone(app);
    let done = tokio::task::spawn_blocking(move || {
        let done = work(&app);
        // Given back only here: the thread is busy until now, even if the caller is gone.
        drop(place);
        done
    });
    done.await.map_err(Problem::internal)?
}

/// Processes a body on a blocking thread, a limited number at a time.
pub(crate) async fn with_body<T: Send + 'static>(
    app: &Arc<App>,
    work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    let permit = Arc::clone(&app.bodies).acquire_owned();
    let permit = tokio::time::timeout(app.config.queue_timeout, permit).await;
    let permit = permit.map_err(|_| {
        let detail = "other calls have all the threads that work with bodies: send it again later";
        Problem::new(Kind::Busy, detail).retry_after(1)
    })?;
    let permit = permit.map_err(Problem::internal)?;
    let done = tokio::task::spawn_blocking(move || {
        let done = work();
        drop(permit);
        done
    });
    done.await.map_err(Problem::internal)?
}

/// Answers a query as JSON.
pub(crate) async fn ask<T: Serialize>(
    app: &Arc<App>,
    question: impl FnOnce(&App, &Patience) -> Result<Found<T>, Problem> + Send + 'static,
) -> Result<Response, Problem> {
    // Dropped with this future if the caller goes away, which ends the query and frees the thread.
    let asker = Asker::default();
    let watch = asker.watch();
    let (content_type, json, held) = blocking(app, move |app| {
        let patience = app.patience().watching(watch);
        let found = question(app, &patience);
        let hits = found.as_ref().map_or(0, |found| found.hits);
        app.counts.query(patience.rows(), hits as u64);
        let Found {
            answer,
            content_type,
            held,
            ..
        } = found?;
        let json = serde_json::to_vec(&answer).map_err(Problem::internal)?;
        Ok((content_type, json, held))
    })
    .await?;
    super::held_answer(app, content_type, json, held)
}
