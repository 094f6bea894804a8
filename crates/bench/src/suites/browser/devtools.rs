//! Chromium's DevTools protocol over a pipe: JSON messages, each followed by a zero byte.
//!
//! Chromium reads them from file descriptor 3 and answers on 4. A shell connects these to its own
//! input and output, so that no port is opened and no unsafe code is needed; `timeout` ends a
//! browser that hangs.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

/// The possible names of the program.
const NAMES: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

/// The most seconds that a browser may run.
const SECONDS: &str = "120";

/// The program, if it is in `PATH`.
pub(super) fn find() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .flat_map(|dir| NAMES.map(|name| dir.join(name)))
        .find(|program| program.is_file())
}

/// A running browser.
pub(super) struct Browser {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    calls: u64,
    /// Events that arrived between answers.
    events: Vec<Value>,
    profile: PathBuf,
}

impl Browser {
    /// Starts a browser with a separate profile in `dir`.
    pub(super) fn start(program: &Path, dir: &Path) -> Result<Self, String> {
        let profile = dir.join(format!("profile-{}", std::process::id()));
        let mut child = Command::new("timeout")
            .args(["-k", "5", SECONDS, "sh", "-c"])
            .arg("exec \"$0\" \"$@\" 3<&0 4>&1 0</dev/null 1>/dev/null 2>/dev/null")
            .arg(program)
            .args(["--headless", "--remote-debugging-pipe", "--no-first-run"])
            // It must run as root, and in containers with little shared memory.
            .args(["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"])
            .args(["--hide-scrollbars", "--disable-background-networking"])
            .arg(format!("--user-data-dir={}", profile.display()))
            .arg("about:blank")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| format!("timeout {}: {e}", program.display()))?;
        let (to, from) = (child.stdin.take(), child.stdout.take());
        Ok(Self {
            to: to.ok_or("no pipe to the browser")?,
            from: BufReader::new(from.ok_or("no pipe from the browser")?),
            child,
            calls: 0,
            events: Vec::new(),
            profile,
        })
    }

    /// Calls a method, of a page if there is a session. Returns the result.
    fn call(&mut self, session: Option<&str>, method: &str, with: Value) -> Result<Value, String> {
        self.calls += 1;
        let id = self.calls;
        let mut message = json!({"id": id, "method": method, "params": with});
        if let Some(session) = session {
            message["sessionId"] = json!(session);
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        let failed = |e: std::io::Error| format!("{method}: {e}");
        self.to.write_all(&bytes).map_err(failed)?;
        self.to.flush().map_err(failed)?;
        loop {
            let mut answer = self.receive()?;
            if answer["id"] != id {
                self.events.push(answer);
                continue;
            }
            if let Some(error) = answer.get("error") {
                return Err(format!("{method}: {error}"));
            }
            return Ok(answer["result"].take());
        }
    }

    fn receive(&mut self) -> Result<Value, String> {
        let mut bytes = Vec::new();
        let read = self.from.read_until(0, &mut bytes);
        read.map_err(|e| format!("the browser: {e}"))?;
        if bytes.pop() != Some(0) {
            return Err("the browser has ended".to_owned());
        }
        serde_json::from_slice(&bytes).map_err(|e| format!("the browser's answer: {e}"))
    }

    /// Ends the browser and removes its profile.
    pub(super) fn end(mut self) -> Result<(), String> {
        self.call(None, "Browser.close", json!({}))?;
        let waited = self.child.wait();
        waited.map_err(|e| format!("the browser: {e}"))?;
        // Its helper processes may still write there; the directory is under target/.
        std::fs::remove_dir_all(&self.profile).ok();
        Ok(())
    }
}

/// A page in a browser.
pub(super) struct Page<'a> {
    browser: &'a mut Browser,
    target: String,
    session: String,
}

impl<'a> Page<'a> {
    pub(super) fn open(browser: &'a mut Browser) -> Result<Self, String> {
        let text = |value: &Value| value.as_str().map(str::to_owned).ok_or("no page opens");
        let made = browser.call(None, "Target.createTarget", json!({"url": "about:blank"}))?;
        let target = text(&made["targetId"])?;
        let attach = json!({"targetId": target, "flatten": true});
        let session = text(&browser.call(None, "Target.attachToTarget", attach)?["sessionId"])?;
        browser.events.clear();
        Ok(Self {
            browser,
            target,
            session,
        })
    }

    pub(super) fn call(&mut self, method: &str, with: Value) -> Result<Value, String> {
        self.browser.call(Some(&self.session), method, with)
    }

    /// Waits for an event, which may have arrived already.
    pub(super) fn wait(&mut self, method: &str) -> Result<(), String> {
        while self.browser.events.iter().all(|e| e["method"] != method) {
            let event = self.browser.receive()?;
            self.browser.events.push(event);
        }
        Ok(())
    }

    /// The events so far.
    pub(super) fn events(&self) -> &[Value] {
        &self.browser.events
    }

    pub(super) fn close(self) -> Result<(), String> {
        let target = json!({"targetId": self.target});
        self.browser.call(None, "Target.closeTarget", target)?;
        Ok(())
    }
}

/// Decodes base64; `None` if the text is invalid.
pub(super) fn base64(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut held) = (0u32, 0);
    for c in text.trim_end_matches('=').bytes() {
        let value = match c {
            b'A'..=b'Z' => c - b'A',
            b'a'..=b'z' => c - b'a' + 26,
            b'0'..=b'9' => c - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = (bits << 6 | u32::from(value)) & 0xffff;
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push((bits >> held) as u8);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_read() {
        assert_eq!(base64("aXJvbg==").as_deref(), Some(b"iron".as_slice()));
        assert_eq!(base64("aXJvbnM=").as_deref(), Some(b"irons".as_slice()));
        assert_eq!(base64("/+8A").as_deref(), Some([0xff, 0xef, 0].as_slice()));
        assert_eq!(base64("a b"), None);
    }
}
