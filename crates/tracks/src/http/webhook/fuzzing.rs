//! Parsers of webhooks for fuzzing: see [`super::super::fuzzing`].

use super::calls::WebhookBody;
use super::hosts::{Host, Hosts, Target};
use crate::http::fuzzing::{Read, pair};
use crate::http::json;

/// Parses a body. If it is accepted, its URL must be accepted again when its row is read.
pub(in crate::http) fn body(bytes: &[u8], hosts: &Hosts) -> Read {
    let body: WebhookBody = json::read(bytes)?;
    let wanted = body.wanted(hosts).map_err(|problem| problem.detail)?;
    let again = Target::new(&wanted.url).map(|_| wanted.url.clone());
    Ok(Some((wanted.url, again?)))
}

/// Parses a URL. Its parts must form the same URL again.
pub(in crate::http) fn url(text: &str) -> Read {
    let target = Target::new(text)?;
    let scheme = if target.is_https { "https" } else { "http" };
    let again = Target::new(&format!("{scheme}://{}{}", target.authority(), target.path))?;
    Ok(Some(pair(&target, &again)))
}

/// Parses an allowed host. All URLs that are made of it must be allowed.
pub(in crate::http) fn host(text: &str) -> Read {
    let host = Host::new(text, true).map_err(|e| e.to_string())?;
    Ok(Some(pair(
        &host,
        &Host::new(text, true).map_err(|e| e.to_string())?,
    )))
}
