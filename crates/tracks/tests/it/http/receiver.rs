//! A receiver of webhooks: it answers as it is told, and records the requests.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use base::clock::SystemClock;
use base::sync::Mutex;
use base::sync::atomic::{AtomicBool, Ordering};
use serde_json::Value;

use super::{Joined, thread};

/// The reaction to a request.
#[derive(Clone, Copy, Debug)]
pub(super) enum Act {
    Status(u16),
    /// Answers only after this many milliseconds.
    Hang(u64),
    /// Closes the connection without an answer.
    Close,
    /// Answers something that is not HTTP.
    Rubbish,
    /// Redirects the client to this server.
    Redirect,
}

/// A recorded request.
#[derive(Clone, Debug)]
pub(super) struct Came {
    pub(super) head: String,
    pub(super) body: String,
}

impl Came {
    pub(super) fn header(&self, name: &str) -> &str {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        let found = lines.find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.unwrap_or_else(|| panic!("{name}: {}", self.head)).1
    }

    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }

    pub(super) fn ids(&self) -> Vec<u64> {
        let json = self.json();
        let events = json["events"].as_array().unwrap();
        events.iter().map(|e| e["id"].as_u64().unwrap()).collect()
    }
}

#[derive(Debug)]
struct Inner {
    acts: Mutex<VecDeque<Act>>,
    came: Mutex<Vec<Came>>,
    ends: AtomicBool,
}

#[derive(Debug)]
pub(super) struct Receiver {
    inner: Arc<Inner>,
    pub(super) address: SocketAddr,
    thread: Option<Joined<()>>,
}

impl Receiver {
    /// A receiver that reacts in these ways, and answers 200 afterwards.
    pub(super) fn new(acts: &[Act]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let inner = Arc::new(Inner {
            acts: Mutex::new(acts.iter().copied().collect()),
            came: Mutex::default(),
            ends: AtomicBool::new(false),
        });
        let ours = Arc::clone(&inner);
        let run = move || {
            for stream in listener.incoming() {
                if ours.ends.load(Ordering::Relaxed) {
                    return;
                }
                let (stream, ours) = (stream.unwrap(), Arc::clone(&ours));
                drop(thread(move || serve(stream, &ours, address)));
            }
        };
        Self {
            inner,
            address,
            thread: Some(thread(run)),
        }
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}/hook?a=b", self.address)
    }

    /// Sets the next reactions.
    pub(super) fn acts(&self, acts: &[Act]) {
        *self.inner.acts.lock().unwrap() = acts.iter().copied().collect();
    }

    pub(super) fn came(&self) -> Vec<Came> {
        self.inner.came.lock().unwrap().clone()
    }

    /// The ids in the order of their first arrival; checks that they rise.
    pub(super) fn ids(&self) -> Vec<u64> {
        let mut ids = Vec::new();
        for id in self.came().iter().flat_map(Came::ids) {
            if !ids.contains(&id) {
                ids.push(id);
            }
        }
        assert!(ids.is_sorted(), "{ids:?}");
        ids
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.inner.ends.store(true, Ordering::Relaxed);
        drop(TcpStream::connect(self.address));
        self.thread.take().unwrap().join().unwrap();
    }
}

fn serve(mut stream: TcpStream, inner: &Inner, own: SocketAddr) {
    let mut lines = BufReader::new(stream.try_clone().unwrap());
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if lines.read_line(&mut head).unwrap_or(0) == 0 {
            return;
        }
    }
    let mut came = Came {
        head,
        body: String::new(),
    };
    let mut body = vec![0; came.header("content-length").parse().unwrap()];
    lines.read_exact(&mut body).unwrap();
    came.body = String::from_utf8(body).unwrap();
    let act = inner.acts.lock().unwrap().pop_front();
    inner.came.lock().unwrap().push(came);
    let answer = match act.unwrap_or(Act::Status(200)) {
        Act::Status(status) => format!("HTTP/1.1 {status} X\r\ncontent-length: 0\r\n\r\n"),
        Act::Redirect => {
            format!("HTTP/1.1 307 X\r\nlocation: http://{own}/\r\ncontent-length: 0\r\n\r\n")
        }
        Act::Rubbish => "SSH-2.0\r\n\r\n".to_owned(),
        Act::Close => return,
        Act::Hang(millis) => {
            SystemClock::shared().sleep(Duration::from_millis(millis));
            return;
        }
    };
    // The client may be gone.
    drop(stream.write_all(answer.as_bytes()));
}
