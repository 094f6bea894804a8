//! Protection against pages of other sites: a browser lets them send requests to any address that
//! it can reach, also to a server on the same machine that has no tokens. Requests that change
//! something are refused. Browsers do not let such pages read answers, unless a host name of the
//! page resolves to this machine. So a server that listens on this machine only answers only to
//! names of this machine.
//!
//! Browsers send the origin of a request in `Sec-Fetch-Site`
//! (<https://www.w3.org/TR/fetch-metadata/>) and `Origin`. Other clients send neither.

use axum::http::HeaderMap;
use axum::http::header::{HOST, ORIGIN};

use super::problem::{Kind, Problem};

/// `changes` says whether the request may change something. Errors: `Forbidden` if a page of another
/// site sends such a request, or it is meant for another host.
pub(crate) fn check(changes: bool, headers: &HeaderMap, is_local: bool) -> Result<(), Problem> {
    let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let host = text(HOST.as_str());
    if is_local && host.is_some_and(|host| !is_of_this_machine(host)) {
        let host = host.unwrap_or_default();
        return Err(Problem::new(
            Kind::Forbidden,
            format!(
                "{host:.80?} is no name of this machine: ask 127.0.0.1 or localhost, or start the server with --tokens"
            ),
        ));
    }
    if !changes {
        return Ok(());
    }
    let is_elsewhere = match (text("sec-fetch-site"), text(ORIGIN.as_str())) {
        (Some(site), _) => !matches!(site, "same-origin" | "none"),
        (None, Some(origin)) => {
            let from = origin.split_once("://").map(|(_, host)| host);
            from.is_none_or(|from| !host.is_some_and(|host| host.eq_ignore_ascii_case(from)))
        }
        (None, None) => false,
    };
    if is_elsewhere {
        let detail =
            "a page of another site sends it: only pages of this server may change something";
        return Err(Problem::new(Kind::Forbidden, detail));
    }
    Ok(())
}

/// Whether a `Host` is a name or an address of this machine.
fn is_of_this_machine(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    let is_address = name
        .parse::<std::net::IpAddr>()
        .is_ok_and(|address| address.is_loopback());
    is_address || name.eq_ignore_ascii_case("localhost")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(headers: &[(&'static str, &str)]) -> HeaderMap {
        let all = headers
            .iter()
            .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        all.collect()
    }

    #[test]
    fn pages_of_other_sites_change_nothing() {
        let host = ("host", "127.0.0.1:8080");
        let is_right = |headers: &[(&'static str, &str)]| check(true, &of(headers), false).is_ok();
        assert!(is_right(&[host]) && is_right(&[]));
        assert!(is_right(&[host, ("origin", "http://127.0.0.1:8080")]));
        assert!(is_right(&[
            host,
            ("sec-fetch-site", "same-origin"),
            ("origin", "null")
        ]));
        for bad in [
            ("origin", "https://evil.example"),
            ("origin", "http://127.0.0.1:8081"),
            ("origin", "null"),
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-site", "same-site"),
        ] {
            assert!(!is_right(&[host, bad]), "{bad:?}");
            assert!(check(false, &of(&[host, bad]), false).is_ok());
        }
    }

    #[test]
    fn a_server_for_this_machine_answers_to_its_names() {
        let is_right = |host: &str| check(false, &of(&[("host", host)]), true).is_ok();
        for host in [
            "localhost",
            "LOCALHOST:8080",
            "127.0.0.1:1",
            "127.9.9.9",
            "[::1]:80",
            "[::1]",
        ] {
            assert!(is_right(host), "{host}");
        }
        for host in [
            "evil.example",
            "localhost.evil.example:8080",
            "10.0.0.1",
            "[::2]:80",
            "",
        ] {
            assert!(!is_right(host), "{host}");
        }
        assert!(check(false, &of(&[]), true).is_ok());
    }
}
