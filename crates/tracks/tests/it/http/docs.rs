//! Runs the calls of docs/tracks.md, as they are written there, with curl.

use std::collections::BTreeSet;
use std::process::Command;

use tracks::http::{Config, Host, Hosts, WebhookOptions, routes};
use tracks::service::Options;

use super::World;

const TEXT: &str = include_str!("../../../../../docs/tracks.md");

/// The lines of its shell blocks that make calls.
fn calls() -> Vec<&'static str> {
    let mut in_shell = false;
    let mut out = Vec::new();
    for line in TEXT.lines() {
        match line.strip_prefix("```") {
            Some(kind) => in_shell = kind == "sh",
            None if in_shell && line.starts_with("curl ") => out.push(line),
            None => {}
        }
    }
    out
}

/// The method and the path of a call, in the form of routes.
fn route(call: &str) -> (&'static str, &'static str) {
    let method = match call.split_once(" -X ") {
        Some((_, rest)) => rest.split(' ').next().unwrap().to_lowercase(),
        None if call.contains(" -d ") => "post".to_owned(),
        None => "get".to_owned(),
    };
    let whole = call
        .split(" #")
        .next()
        .unwrap()
        .replace("$B", "localhost:8080/v1/fleets/taxis");
    let path = whole.rsplit_once("localhost:8080").unwrap().1;
    let path = path.split(['?', ' ', '"', '\'']).next().unwrap();
    let parts: Vec<&str> = path.split('/').collect();
    let is_it = |pattern: &str| {
        let of: Vec<&str> = pattern.split('/').collect();
        of.len() == parts.len()
            && (of.iter().zip(&parts)).all(|(a, b)| a.starts_with('{') || a == b)
    };
    let all = routes();
    let found = all.iter().find(|(m, p)| *m == method && is_it(p));
    *found.unwrap_or_else(|| panic!("{method} {path}"))
}

#[test]
fn documented_calls_work() {
    if Command::new("curl").arg("--version").output().is_err() {
        assert!(
            std::env::var("CI").as_deref() != Ok("true"),
            "curl is not installed"
        );
        eprintln!("skipped: curl is not installed");
        return;
    }
    let backups = tempfile::tempdir().unwrap();
    // Nothing is sent there: no event is made between making and deleting the webhook.
    let hosts = vec![Host::new("hooks.example.org", false).unwrap()];
    let config = Config {
        backups: Some(backups.path().to_owned()),
        webhooks: WebhookOptions {
            hosts: Hosts::new(hosts),
            ..WebhookOptions::default()
        },
        ..Config::default()
    };
    let world = World::with(&Options::default(), config, None);
    let address = world.address().to_string();
    let (mut receipt, mut seen) = (String::new(), BTreeSet::new());
    for call in calls() {
        seen.insert(route(call));
        let is_endless = call.contains(" -N ");
        let line = call
            .replace("$B", &format!("{address}/v1/fleets/taxis"))
            .replace("localhost:8080", &address)
            .replace("RECEIPT", &receipt)
            .replace("wait=60", "wait=1");
        let time = if is_endless { 1 } else { 20 };
        let line = line.replacen(
            "curl ",
            &format!("curl -sS --fail-with-body --max-time {time} "),
            1,
        );
        let output = Command::new("sh").arg("-c").arg(&line).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        // 28 is curl's timeout, which ends a stream.
        let is_right = output.status.code() == Some(if is_endless { 28 } else { 0 });
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(is_right, "{call}\n{text:.500}\n{said}");
        assert!(
            !is_endless || text.contains("event: hello"),
            "{call}\n{text}"
        );
        if let Some((_, rest)) = text.split_once("\"receipt\":\"") {
            rest.split('"').next().unwrap().clone_into(&mut receipt);
        }
    }
    for route in routes() {
        assert!(seen.contains(&route), "no call for {route:?}");
    }
}
