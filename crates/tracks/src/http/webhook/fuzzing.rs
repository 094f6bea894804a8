//! What fuzzing asks of webhooks: see [`super::super::fuzzing`].

use super::calls::WebhookBody;
use super::hosts::{Host, Hosts, Target};
use crate::http::fuzzing::{Read, pair};
use crate::http::json;

/// A body. What is taken of it has a URL that is taken again when its row is read.
pub(in crate::http) fn body(bytes: &[u8], hosts: &Hosts) -> Read {
    let body: WebhookBody = json::read(bytes)?;
    let wanted = body.wanted(hosts).map_err(|problem| problem.detail)?;
    let again = Target::new(&wanted.url).map(|_| wanted.url.clone());
    Ok(Some((wanted.url, again?)))
}

/// A URL. Of its parts the same URL can be made.
pub(in crate::http) fn url(text: &str) -> Read {
    let target = Target::new(text)?;
    let scheme = if target.is_https { "https" } else { "http" };
    let again = Target::new(&format!("{scheme}://{}{}", target.authority(), target.path))?;
    Ok(Some(pair(&target, &again)))
}

/// A host that is allowed: all URLs that it makes are.
pub(in crate::http) fn host(text: &str) -> Read {
    let host = Host::new(text, true).map_err(|e| e.to_string())?;
    Ok(Some(pair(
        &host,
        &Host::new(text, true).map_err(|e| e.to_string())?,
    )))
}
