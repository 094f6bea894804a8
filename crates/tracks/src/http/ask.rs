//! Questions: each on a thread that may block, so many at a time.

use std::sync::Arc;

use axum::response::Response;
use serde::Serialize;
use tokio::time::Instant;

use super::App;
use super::limits::{Held, NoPlace};
use super::problem::{Kind, Problem};
use crate::read::{Asker, Patience};

/// An answer, and how many results it has.
pub(crate) struct Found<T> {
    pub(crate) answer: T,
    pub(crate) hits: usize,
    pub(crate) content_type: &'static str,
    /// The memory that it has, and that its text will have.
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

    /// The same, with its memory.
    pub(crate) fn with(self, room: Room<'_>) -> Self {
        let held = room.held;
        Self { held, ..self }
    }
}

/// Memory for an answer that is being made, asked for as it grows.
pub(crate) struct Room<'a> {
    app: &'a App,
    held: Held,
    bytes: usize,
}

impl<'a> Room<'a> {
    /// As much as is asked for each time, and as much for its text.
    const TIMES: usize = 2;
    /// What is smaller is not counted, and so much more is asked for at a time.
    const STEP: usize = 128 * 1024;

    pub(crate) fn new(app: &'a App) -> Self {
        let held = Held::default();
        Self {
            app,
            held,
            bytes: 0,
        }
    }

    /// How many bytes its text will have.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Some more are to come. Errors: other calls have the memory.
    pub(crate) fn grow(&mut self, bytes: usize) -> Result<(), Problem> {
        self.bytes = self.bytes.saturating_add(bytes);
        let all = self.bytes / Self::STEP * Self::STEP * Self::TIMES;
        if self.app.memory.grow(&mut self.held, all) {
            return Ok(());
        }
        Err(super::body::no_memory())
    }
}

/// Does some work on a thread that may block. Errors: too many do, or too many of the caller's.
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
        // Whoever asked may be gone: the thread is busy until here all the same.
        drop(place);
        done
    });
    done.await.map_err(Problem::internal)?
}

/// Works with a body on a thread that may block, so many at a time.
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

/// Answers a question as JSON.
pub(crate) async fn ask<T: Serialize>(
    app: &Arc<App>,
    question: impl FnOnce(&App, &Patience) -> Result<Found<T>, Problem> + Send + 'static,
) -> Result<Response, Problem> {
    // Dropped with this future, where the caller goes away: the thread is free for others then.
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
