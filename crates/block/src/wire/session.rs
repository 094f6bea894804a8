//! A connection between two processes without its socket: bytes in, frames out; frames in, bytes out.
//!
//! ```text
//!   read into space() → filled(n) → next_frame() …          writev of output() → sent(n)  ←  send(frame)
//! ```
//!
//! Both sides send a hello first. Until the other's hello has arrived and is accepted, only our own is sent:
//! other frames wait in their lanes. A peer that does not fit, or sends invalid bytes, is told why, and is an
//! error here; the caller sends the rest of [`Session::output`] before it closes the connection.
//!
//! Heads and fields are read many at a time into a stage. A payload has an aligned buffer of its own from the
//! start: its bytes in the stage are copied, and the socket reads the rest directly into it.
//!
//! Frames wait in lanes. As the socket has room, frames are taken from the lanes in order of priority: so a
//! heartbeat overtakes everything but the [`READY_BYTES`] that are about to be sent. Each lane is bounded, and
//! returns frames beyond its limit; an empty lane takes any frame.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::mem;

use base::{Error, ErrorKind, Result};
use bytes::{Buf, Bytes};

use super::frame::{FIELDS_BYTES_MAX, Frame, HEAD, Head, Lane, kind};
use super::hello::{self, Agreed, Hello};
use super::remedy;
use crate::memory::buffers::Buffers;
use crate::memory::slab::{Slab, Space};

/// Bytes of the stage: twice the longest head and fields.
const STAGE_BYTES: usize = 2 * FIELDS_BYTES_MAX;
/// Bytes that no frame overtakes any more; one frame may go beyond.
pub const READY_BYTES: usize = 256 << 10;

/// Limits of one connection.
#[derive(Clone, Debug)]
pub struct Options {
    /// The most bytes that wait in each lane, in the order of [`Lane::ALL`].
    pub lane_bytes_max: [usize; 4],
    /// The source of large payloads' buffers; ideally all connections of a process share it.
    pub buffers: Buffers,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            lane_bytes_max: [1 << 20, 64 << 20, 16 << 20, 16 << 20],
            buffers: Buffers::default(),
        }
    }
}

/// What the next bytes are.
#[derive(Debug)]
enum Input {
    Head,
    Payload {
        frame: Frame,
        buf: Space,
        filled: usize,
    },
    /// No more input is taken.
    Ended,
}

/// Frames that wait in one lane.
#[derive(Debug, Default)]
struct Queue {
    frames: VecDeque<(Bytes, Vec<Bytes>)>,
    bytes: usize,
}

/// A connection without its socket.
#[derive(Debug)]
pub struct Session {
    options: Options,
    me: Hello,
    peer: Option<(Hello, Agreed)>,
    stage: Vec<u8>,
    slab: Slab,
    /// Start of the stage's bytes that are not consumed yet.
    from: usize,
    to: usize,
    input: Input,
    lanes: [Queue; 4],
    /// Bytes that are about to be sent, in order.
    ready: VecDeque<Bytes>,
    ready_bytes: usize,
}

impl Session {
    /// A new connection, for either side. Errors: our own hello cannot be encoded.
    pub fn new(me: Hello, options: Options) -> Result<Self> {
        let hello = me.frame().encode()?;
        Ok(Self {
            slab: Slab::new(options.buffers.clone()),
            options,
            me,
            peer: None,
            stage: vec![0; STAGE_BYTES],
            from: 0,
            to: 0,
            input: Input::Head,
            lanes: Default::default(),
            ready_bytes: hello.len(),
            ready: [hello].into(),
        })
    }

    /// The peer's hello, once it has arrived.
    pub fn peer(&self) -> Option<&Hello> {
        self.peer.as_ref().map(|(hello, _)| hello)
    }

    /// The version and features that both sides use, once known.
    pub fn agreed(&self) -> Option<Agreed> {
        self.peer.as_ref().map(|&(_, agreed)| agreed)
    }

    /// Whether more input is wanted: until the first error.
    pub fn wants_input(&self) -> bool {
        !matches!(self.input, Input::Ended)
    }

    /// The space for the next input. To be used when [`Session::next_frame`] returns nothing. Empty after an
    /// error.
    pub fn space(&mut self) -> &mut [u8] {
        if self.from > 0 {
            self.stage.copy_within(self.from..self.to, 0);
            self.to -= self.from;
            self.from = 0;
        }
        match &mut self.input {
            Input::Payload { buf, filled, .. } if self.to == 0 => {
                buf.get_mut(*filled..).unwrap_or_default()
            }
            Input::Ended => &mut [],
            _ => self.stage.get_mut(self.to..).unwrap_or_default(),
        }
    }

    /// The first `n` bytes of [`Session::space`] are filled.
    pub fn filled(&mut self, n: usize) {
        match &mut self.input {
            Input::Payload { buf, filled, .. } if self.from == self.to => {
                *filled = (*filled + n).min(buf.len());
            }
            _ => self.to = (self.to + n).min(self.stage.len()),
        }
    }

    /// The next frame after the hello in the input. To be called until there is none. Errors: the connection
    /// has ended; the error says why.
    pub fn next_frame(&mut self) -> Result<Option<Frame>> {
        loop {
            let frame = match self.take() {
                Ok(None) => return Ok(None),
                // A peer that refuses the connection does not read any more, so it gets no refusal.
                Ok(Some(frame)) if frame.kind == kind::REFUSAL => {
                    self.input = Input::Ended;
                    return Err(hello::refused(&frame));
                }
                Ok(Some(frame)) => self.admit(frame),
                Err(e) => Err(e),
            };
            match frame {
                Ok(None) => {}
                Ok(frame) => return Ok(frame),
                Err(e) => {
                    self.refuse(&e)?;
                    return Err(e);
                }
            }
        }
    }

    /// Ends the connection; only the reason is still sent.
    fn refuse(&mut self, why: &Error) -> Result<()> {
        self.input = Input::Ended;
        self.lanes = Default::default();
        let text = hello::refusal(why).encode()?;
        self.ready_bytes += text.len();
        self.ready.push_back(text);
        Ok(())
    }

    /// Takes a whole frame from the input.
    fn take(&mut self) -> Result<Option<Frame>> {
        if matches!(self.input, Input::Head) && !self.take_head()? {
            return Ok(None);
        }
        let Input::Payload { buf, filled, .. } = &mut self.input else {
            return Ok(None);
        };
        let staged = self.stage.get(self.from..self.to).unwrap_or_default();
        let space = buf.get_mut(*filled..).unwrap_or_default();
        let n = staged.len().min(space.len());
        if let (Some(from), Some(to)) = (staged.get(..n), space.get_mut(..n)) {
            to.copy_from_slice(from);
        }
        *filled += n;
        self.from += n;
        if *filled < buf.len() {
            return Ok(None);
        }
        let Input::Payload { mut frame, buf, .. } = mem::replace(&mut self.input, Input::Head)
        else {
            return Ok(None);
        };
        if !buf.is_empty() {
            frame.payload.push(buf.freeze());
        }
        Ok(Some(frame))
    }

    /// Takes head and fields from the stage; returns whether they are complete.
    fn take_head(&mut self) -> Result<bool> {
        let staged = self.stage.get(self.from..self.to).unwrap_or_default();
        let Some(head) = Head::decode(staged)? else {
            return Ok(false);
        };
        let Some(frame) = head.frame(staged)? else {
            return Ok(false);
        };
        if self.peer.is_none() && head.payload_bytes > 0 {
            let what = "wire: a payload before the hello";
            return Err(Error::corruption(what).hint(remedy::SAME_RELEASE));
        }
        self.from += HEAD + head.fields_bytes;
        self.input = Input::Payload {
            frame,
            // Reported as Busy, because Aborted means that the peer is gone.
            buf: self.slab.take(head.payload_bytes).map_err(busy)?,
            filled: 0,
        };
        Ok(true)
    }

    /// Passes a frame on to the caller, unless it is about the connection itself.
    fn admit(&mut self, frame: Frame) -> Result<Option<Frame>> {
        if self.peer.is_some() {
            if frame.kind == kind::HELLO {
                return Err(Error::corruption("wire: a second hello").hint(remedy::SAME_RELEASE));
            }
            return Ok(Some(frame));
        }
        let theirs = Hello::of(&frame)?;
        let agreed = self.me.agree(&theirs)?;
        self.peer = Some((theirs, agreed));
        Ok(None)
    }

    /// Whether a lane takes another frame.
    pub fn has_room(&self, lane: Lane) -> bool {
        let at = lane as usize;
        match (self.lanes.get(at), self.options.lane_bytes_max.get(at)) {
            (Some(queue), Some(&max)) => queue.bytes == 0 || queue.bytes < max,
            _ => false,
        }
    }

    /// Queues a frame. Returns it if its lane is full: the caller may try again after [`Session::sent`].
    /// Errors: it exceeds the limits of frames.
    pub fn send(&mut self, frame: Frame) -> Result<Option<Frame>> {
        if !self.has_room(frame.lane) {
            return Ok(Some(frame));
        }
        let head = frame.encode()?;
        if let Some(queue) = self.lanes.get_mut(frame.lane as usize) {
            queue.bytes += frame.bytes();
            queue.frames.push_back((head, frame.payload));
        }
        Ok(None)
    }

    /// Bytes that wait in a lane.
    pub fn queued_bytes(&self, lane: Lane) -> usize {
        self.lanes.get(lane as usize).map_or(0, |q| q.bytes)
    }

    /// Whether there is output to send now.
    pub fn has_output(&self) -> bool {
        let open = self.peer.is_some() && self.wants_input();
        !self.ready.is_empty() || open && self.lanes.iter().any(|q| q.bytes > 0)
    }

    /// Fills `out` with slices of the output, as many as it has room for; returns their number.
    pub fn output<'a>(&'a mut self, out: &mut [IoSlice<'a>]) -> usize {
        self.make_ready();
        let mut count = 0;
        for (slot, bytes) in out.iter_mut().zip(&self.ready) {
            *slot = IoSlice::new(bytes);
            count += 1;
        }
        count
    }

    fn make_ready(&mut self) {
        if self.peer.is_none() || !self.wants_input() {
            return;
        }
        while self.ready_bytes < READY_BYTES {
            let Some((queue, (head, payload))) = self
                .lanes
                .iter_mut()
                .find_map(|q| q.frames.pop_front().map(|f| (q, f)))
            else {
                return;
            };
            let bytes = head.len() + payload.iter().map(Bytes::len).sum::<usize>();
            queue.bytes -= bytes;
            self.ready_bytes += bytes;
            self.ready.push_back(head);
            self.ready
                .extend(payload.into_iter().filter(|p| !p.is_empty()));
        }
    }

    /// The first `n` bytes of the output are sent.
    pub fn sent(&mut self, mut n: usize) {
        while let Some(first) = self.ready.front_mut() {
            let left = first.len().min(n);
            n -= left;
            self.ready_bytes -= left;
            if left < first.len() {
                first.advance(left);
                return;
            }
            self.ready.pop_front();
        }
    }
}

fn busy(e: Error) -> Error {
    Error::new(ErrorKind::Busy, e.to_string())
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a test may panic")]
mod tests {
    use base::rng::Rng;

    use io::buffer::PAGE;

    use super::*;
    use crate::ids::Uuid;
    use crate::wire::hello::{Features, Role};

    fn session(cluster: u8) -> Session {
        let me = Hello::new(Uuid([cluster; 16]), Role::Chunk, u64::from(cluster));
        Session::new(me, Options::default()).unwrap()
    }

    /// Carries up to `n` bytes from one to the other; returns their number.
    fn carry(from: &mut Session, to: &mut Session, n: usize, room: usize) -> usize {
        let mut slices = vec![IoSlice::new(&[]); room];
        let count = from.output(&mut slices);
        let space = to.space();
        let mut all = 0;
        for slice in &slices[..count] {
            let part = slice.len().min(n - all).min(space.len() - all);
            space[all..all + part].copy_from_slice(&slice[..part]);
            all += part;
        }
        let n = all;
        to.filled(n);
        from.sent(n);
        n
    }

    fn frame(rng: &mut Rng, request: u64) -> Frame {
        let mut fields = vec![0; rng.below(300) as usize];
        rng.fill(&mut fields);
        let parts = (0..rng.below(4)).map(|_| {
            let mut part = vec![0; rng.below(9000) as usize];
            rng.fill(&mut part);
            Bytes::from(part)
        });
        let payload = parts.collect();
        let lane = Lane::ALL[rng.below(4) as usize];
        Frame {
            request,
            payload,
            ..Frame::new(kind::REQUEST, lane, fields)
        }
    }

    fn greet(a: &mut Session, b: &mut Session) {
        carry(a, b, 1000, 9);
        carry(b, a, 1000, 9);
        assert_eq!(a.next_frame().unwrap(), None);
        assert_eq!(b.next_frame().unwrap(), None);
        assert!(a.peer().is_some() && b.agreed().is_some());
    }

    /// However the bytes are cut, the frames of each lane arrive whole and in order, and payloads are
    /// aligned.
    #[test]
    fn any_pieces_give_the_same_frames() {
        for seed in 0..60 {
            let mut rng = Rng::new(seed);
            let (mut a, mut b) = (session(1), session(1));
            let frames: Vec<Frame> = (0..40).map(|n| frame(&mut rng, n)).collect();
            let mut left: VecDeque<Frame> = frames.clone().into();
            let mut got = vec![Vec::new(); 4];
            let mut idle = 0;
            while got.iter().map(Vec::len).sum::<usize>() < frames.len() {
                if rng.one_in(3)
                    && let Some(frame) = left.pop_front()
                {
                    assert_eq!(a.send(frame).unwrap(), None);
                }
                let n = 1 + rng.below([20, 500, 100_000][seed as usize % 3]) as usize;
                carry(&mut b, &mut a, n, 2);
                assert_eq!(a.next_frame().unwrap(), None);
                idle = match carry(&mut a, &mut b, n, 1 + rng.below(8) as usize) {
                    0 => idle + 1,
                    _ => 0,
                };
                assert!(idle < 1000, "seed {seed} stands still");
                while let Some(frame) = b.next_frame().unwrap() {
                    got[frame.lane as usize].push(frame);
                }
            }
            assert!(!a.has_output());
            for lane in Lane::ALL {
                assert_eq!(a.queued_bytes(lane), 0);
                let want: Vec<_> = frames.iter().filter(|f| f.lane == lane).collect();
                assert_eq!(want.len(), got[lane as usize].len());
                for (want, got) in want.iter().zip(&got[lane as usize]) {
                    let bytes: Vec<u8> = got.payload.concat();
                    assert_eq!((got.request, &got.fields), (want.request, &want.fields));
                    assert_eq!(bytes, want.payload.concat());
                    let aligned = |p: &Bytes| (p.as_ptr() as usize).is_multiple_of(PAGE);
                    assert!(got.payload.len() <= 1 && got.payload.iter().all(aligned));
                }
            }
        }
    }

    #[test]
    fn a_full_lane_gives_back_and_heartbeats_overtake() {
        let (mut a, mut b) = (session(1), session(1));
        a.options.lane_bytes_max = [100, 3 << 20, 0, 0];
        greet(&mut a, &mut b);
        let big = |request| Frame {
            request,
            payload: vec![vec![1; 1 << 20].into()],
            ..Frame::new(kind::REQUEST, Lane::Foreground, Vec::new())
        };
        for request in 0..3 {
            assert_eq!(a.send(big(request)).unwrap(), None);
        }
        assert!(!a.has_room(Lane::Foreground));
        assert_eq!(a.send(big(3)).unwrap(), Some(big(3)));
        let one = Frame::new(kind::REQUEST, Lane::Repair, Vec::new());
        assert_eq!(a.send(one.clone()).unwrap(), None, "an empty lane");
        assert!(a.send(one).unwrap().is_some());
        // The first frame is sent; then the heartbeat overtakes the second.
        carry(&mut a, &mut b, 100, 4);
        let beat = Frame::new(kind::REQUEST, Lane::Heartbeat, vec![5]);
        assert_eq!(a.send(beat).unwrap(), None);
        let mut order = Vec::new();
        while a.has_output() {
            carry(&mut a, &mut b, 1 << 20, 4);
            while let Some(frame) = b.next_frame().unwrap() {
                order.push(frame.lane);
            }
        }
        use Lane::{Foreground, Heartbeat, Repair};
        let want = [Foreground, Heartbeat, Foreground, Foreground, Repair];
        assert_eq!(order, want);
        assert!(a.has_room(Lane::Foreground));
        let mut long = big(1);
        long.payload.push(vec![1; (1 << 20) + 1].into());
        assert!(a.send(long).is_err());
    }

    #[test]
    fn strangers_are_told_and_see_nothing() {
        let (mut a, mut b) = (session(1), session(2));
        let secret = Frame::new(kind::REQUEST, Lane::Foreground, vec![7; 9]);
        assert_eq!(a.send(secret).unwrap(), None);
        carry(&mut a, &mut b, 1000, 9);
        let e = b.next_frame().unwrap_err().to_string();
        assert!(e.contains("01010101-"), "{e}");
        assert!(b.space().is_empty() && b.has_output());
        carry(&mut b, &mut a, 1000, 9);
        // Both sides notice that they do not fit; the error names the first reason, which comes from the
        // hello.
        let e = a.next_frame().unwrap_err().to_string();
        assert!(e.contains("02020202-"), "{e}");
        assert!(b.next_frame().unwrap().is_none() && !b.has_output());

        let (mut a, mut b) = (session(1), session(1));
        a.me.features = Features {
            needed: 0,
            optional: 4,
        };
        b.me.features.needed = 4;
        a.ready = [a.me.frame().encode().unwrap()].into();
        b.ready = [b.me.frame().encode().unwrap()].into();
        carry(&mut b, &mut a, 1000, 9);
        assert_eq!(a.next_frame().unwrap(), None);
        assert_eq!(a.agreed().unwrap().features, 4);
    }

    #[test]
    fn what_breaks_the_protocol_ends_the_connection() {
        let refused = |bytes: &[u8]| {
            let (mut a, mut b) = (session(1), session(1));
            greet(&mut a, &mut b);
            b.space()[..bytes.len()].copy_from_slice(bytes);
            b.filled(bytes.len());
            let e = b.next_frame().unwrap_err();
            assert!(!b.wants_input() && b.space().is_empty());
            assert!(b.next_frame().unwrap().is_none());
            // The peer gets the same reason, and does not answer it.
            carry(&mut b, &mut a, 2000, 9);
            let told = a.next_frame().unwrap_err().to_string();
            assert!(told.contains(&e.to_string()) && !a.has_output(), "{told}");
            e.to_string()
        };
        assert!(refused(&[b'x'; 64]).contains("magic"));
        let hello = session(1).me.frame().encode().unwrap();
        assert!(refused(&hello).contains("second hello"));
        let mut other = hello.to_vec();
        other[70] ^= 1;
        assert!(refused(&other).contains("crc"));
        let mut early = session(1);
        let frame = Frame::new(kind::REQUEST, Lane::Foreground, Vec::new());
        let bytes = frame.encode().unwrap();
        early.space()[..bytes.len()].copy_from_slice(&bytes);
        early.filled(bytes.len());
        let e = early.next_frame().unwrap_err().to_string();
        assert!(e.contains("before the hello"), "{e}");
    }
}
