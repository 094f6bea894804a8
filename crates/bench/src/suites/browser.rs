//! `cargo xtask bench check-page`: checks a page as readers see it, in headless Chromium.
//!
//! The page is opened from its file in three ways: on a light desktop, on a dark one, on a phone.
//! The check fails if the console has an error or a warning, if anything but the file is loaded, if
//! the page is wider than its window, or if it lacks a title or a language. Each view is kept as a
//! screenshot.

mod devtools;

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use devtools::{Browser, Page};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The page
    page: PathBuf,
    /// The directory for the pictures [default: target/bench-page]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// A way to open the page.
struct View {
    name: &'static str,
    width: u32,
    height: u32,
    scheme: &'static str,
    /// Device pixels per CSS pixel.
    scale: u32,
}

const VIEWS: [View; 3] = [
    View {
        name: "light",
        width: 1280,
        height: 900,
        scheme: "light",
        scale: 1,
    },
    View {
        name: "dark",
        width: 1280,
        height: 900,
        scheme: "dark",
        scale: 1,
    },
    View {
        name: "phone",
        width: 390,
        height: 844,
        scheme: "light",
        scale: 2,
    },
];

/// A script that opens everything that can be opened, and returns faults of the page other than
/// those in its console, one per line.
const INSPECT: &str = r#"(() => {
    const wrong = [];
    document.querySelectorAll('details').forEach(d => { d.open = true; });
    const width = document.documentElement.clientWidth;
    const over = document.documentElement.scrollWidth - width;
    if (over > 0) {
        wrong.push(`the page is ${over} pixels wider than its window`);
        for (const e of document.querySelectorAll('main *, header *, footer *')) {
            if (!e.closest('.scroll > *') && e.getBoundingClientRect().right > width + 0.5) {
                wrong.push(`  <${e.tagName} class="${e.getAttribute('class')}"> ${e.textContent.trim().slice(0, 40)}`);
            }
        }
    }
    if (!document.title) { wrong.push('no title'); }
    if (!document.documentElement.lang) { wrong.push('no language'); }
    for (const svg of document.querySelectorAll('svg[role=img]')) {
        if (!svg.getAttribute('aria-label')) { wrong.push('a plot without a label'); }
    }
    for (const text of document.querySelectorAll('svg text')) {
        const size = text.getBoundingClientRect().height;
        if (size > 0 && size < 9) { wrong.push(`text ${size} pixels high: ${text.textContent}`); }
    }
    document.querySelectorAll('details').forEach(d => { d.open = false; });
    return wrong.slice(0, 20).join('\n');
})()"#;

pub(crate) fn run(arguments: &Arguments) -> Result<(), String> {
    let Some(program) = devtools::find() else {
        println!("skipped: no Chromium here (Debian's package is chromium)");
        return Ok(());
    };
    let path = fs::canonicalize(&arguments.page)
        .map_err(|e| format!("{}: {e}", arguments.page.display()))?;
    let out = arguments.out.clone();
    let out = out.unwrap_or_else(|| xtask::root().join("target/bench-page"));
    fs::create_dir_all(&out).map_err(|e| format!("{}: {e}", out.display()))?;
    let mut wrong = Vec::new();
    let mut browser = Browser::start(&program, &out)?;
    for view in &VIEWS {
        let file = out.join(format!("{}.png", view.name));
        let found = look(&mut browser, view, &path, &file)
            .map_err(|e| format!("{} view: {e}", view.name))?;
        wrong.extend(
            found
                .into_iter()
                .map(|line| format!("{} view: {line}", view.name)),
        );
        println!("written: {}", file.display());
    }
    browser.end()?;
    if wrong.is_empty() {
        println!("no errors, nothing fetched, no overflow: light, dark, phone");
        return Ok(());
    }
    Err(format!("{}:\n{}", path.display(), wrong.join("\n")))
}

/// Opens the page in one view. Returns its faults.
fn look(
    browser: &mut Browser,
    view: &View,
    path: &Path,
    file: &Path,
) -> Result<Vec<String>, String> {
    let mut page = Page::open(browser)?;
    for domain in ["Page", "Runtime", "Log", "Network"] {
        page.call(&format!("{domain}.enable"), json!({}))?;
    }
    page.call(
        "Emulation.setDeviceMetricsOverride",
        json!({"width": view.width, "height": view.height, "deviceScaleFactor": view.scale,
            "mobile": view.name == "phone"}),
    )?;
    page.call(
        "Emulation.setEmulatedMedia",
        json!({"features": [{"name": "prefers-color-scheme", "value": view.scheme}]}),
    )?;
    page.call(
        "Page.navigate",
        json!({"url": format!("file://{}", path.display())}),
    )?;
    page.wait("Page.loadEventFired")?;
    let result = page.call("Runtime.evaluate", json!({"expression": INSPECT}))?;
    let mut wrong: Vec<String> = match result["result"]["value"].as_str() {
        Some(text) => text.lines().map(str::to_owned).collect(),
        None => vec![format!("cannot be inspected: {result}")],
    };
    let picture = page.call(
        "Page.captureScreenshot",
        json!({"format": "png", "captureBeyondViewport": true}),
    )?;
    let bytes = devtools::base64(picture["data"].as_str().unwrap_or_default())
        .ok_or("the picture cannot be read")?;
    fs::write(file, bytes).map_err(|e| format!("{}: {e}", file.display()))?;
    wrong.extend(page.events().iter().filter_map(complaint));
    page.close()?;
    Ok(wrong)
}

/// The fault that an event of the browser reports, if any.
fn complaint(event: &Value) -> Option<String> {
    let parameters = &event["params"];
    match event["method"].as_str()? {
        "Runtime.exceptionThrown" => Some(format!("exception: {parameters}")),
        "Runtime.consoleAPICalled" => Some(format!("console: {parameters}")),
        "Log.entryAdded" => Some(format!("console: {}", parameters["entry"]["text"])),
        "Network.requestWillBeSent" => {
            let url = parameters["request"]["url"].as_str()?;
            let own = url.starts_with("file://") && parameters["type"] == "Document";
            (!own).then(|| format!("fetches {url}"))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_fetched_is_a_complaint() {
        let event = |kind: &str, url: &str| {
            json!({"method": "Network.requestWillBeSent",
                "params": {"type": kind, "request": {"url": url}}})
        };
        assert_eq!(complaint(&event("Document", "file:///a.html")), None);
        assert!(complaint(&event("Script", "file:///a.js")).is_some());
        assert!(complaint(&event("Image", "data:x")).is_some());
        assert_eq!(complaint(&json!({"method": "Page.loadEventFired"})), None);
        let logged = json!({"method": "Log.entryAdded", "params": {"entry": {"text": "refused"}}});
        assert!(complaint(&logged).unwrap().contains("refused"));
    }
}
