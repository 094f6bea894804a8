//! The packets of MQTT 3.1.1 that a subscriber with QoS 1 needs:
//! <https://docs.oasis-open.org/mqtt/mqtt/v3.1.1/mqtt-v3.1.1.html>.
//!
//! ```text
//!   1 type and flags   1…4 length of the rest, seven bits a byte, lowest first   content, by type
//! ```

use base::{Error, Result};

/// The most bytes of a packet that is read whole. The payload of a longer message is skipped.
pub(super) const PACKET_BYTES_MAX: usize = super::PAYLOAD_BYTES_MAX + TOPIC_MOST;
/// The most bytes of a topic with its length, and a packet id.
const TOPIC_MOST: usize = 2 + 65_535 + 2;

/// A CONNECT packet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Connect<'a> {
    /// The client id, under which the broker keeps messages for it.
    pub(super) client: &'a str,
    /// The user name.
    pub(super) user: Option<&'a str>,
    /// The password.
    pub(super) password: Option<&'a [u8]>,
    /// The keep-alive time, seconds: the client sends something at least that often.
    pub(super) keep_alive: u16,
}

fn put(out: &mut Vec<u8>, bytes: &[u8]) {
    let len = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
    out.extend(len.to_be_bytes());
    out.extend(bytes.iter().take(len.into()));
}

fn framed(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut out = vec![kind];
    let mut left = body.len();
    loop {
        let more = left > 127;
        out.push((left & 127) as u8 | if more { 128 } else { 0 });
        left >>= 7;
        if !more {
            break;
        }
    }
    out.extend(body);
    out
}

impl Connect<'_> {
    /// The bytes of the packet. The session is kept: the broker stores messages while the client is
    /// away.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut body = Vec::new();
        put(&mut body, b"MQTT");
        let flags = if self.user.is_some() { 0x80 } else { 0 }
            | if self.password.is_some() { 0x40 } else { 0 };
        body.extend([4, flags]);
        body.extend(self.keep_alive.to_be_bytes());
        put(&mut body, self.client.as_bytes());
        if let Some(user) = self.user {
            put(&mut body, user.as_bytes());
        }
        if let Some(password) = self.password {
            put(&mut body, password);
        }
        framed(0x10, &body)
    }
}

/// A SUBSCRIBE packet with QoS 1.
pub(super) fn subscribe(id: u16, topics: &[String]) -> Vec<u8> {
    let mut body = id.to_be_bytes().to_vec();
    for topic in topics {
        put(&mut body, topic.as_bytes());
        body.push(1);
    }
    framed(0x82, &body)
}

/// A PUBACK packet.
pub(super) fn acknowledge(id: u16) -> Vec<u8> {
    framed(0x40, &id.to_be_bytes())
}

/// A PINGREQ packet.
pub(super) fn ping() -> Vec<u8> {
    framed(0xC0, &[])
}

/// A DISCONNECT packet.
pub(super) fn disconnect() -> Vec<u8> {
    framed(0xE0, &[])
}

/// A packet from the broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Packet {
    /// The client is accepted.
    Connected {
        /// Whether the broker had a session of the client.
        was_known: bool,
    },
    /// The client is rejected, and why.
    Rejected(&'static str),
    /// The answer to a subscription: whether each topic was granted.
    Subscribed(Vec<bool>),
    /// A message.
    Publish(Publish),
    /// The answer to a ping.
    Pong,
    /// A packet that means nothing to a subscriber.
    Other,
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publish {
    /// The topic.
    pub topic: String,
    /// The id to acknowledge. `None` if no acknowledgement is expected.
    pub id: Option<u16>,
    /// The payload. `None` if it is too long to be read.
    pub payload: Option<Vec<u8>>,
}

/// Splits received bytes into packets.
#[derive(Debug, Default)]
pub struct Reader {
    bytes: Vec<u8>,
    /// The number of payload bytes still to be skipped.
    skip: usize,
}

fn wrong(what: &str) -> Error {
    Error::corruption(format!("this is not MQTT 3.1.1: {what}"))
}

impl Reader {
    /// Adds received bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        let skipped = self.skip.min(bytes.len());
        self.skip -= skipped;
        self.bytes.extend(bytes.iter().skip(skipped));
    }

    /// The next packet. `None` if it is not complete yet. Errors: the broker does not speak MQTT.
    pub fn packet(&mut self) -> Result<Option<Packet>> {
        let Some((kind, head, len)) = self.head()? else {
            return Ok(None);
        };
        let is_publish = kind >> 4 == 3;
        if len > PACKET_BYTES_MAX {
            if !is_publish {
                return Err(wrong("a packet of a reply is too long"));
            }
            return self.long(kind, head, len);
        }
        let Some(body) = self.bytes.get(head..head + len) else {
            return Ok(None);
        };
        let packet = if is_publish {
            let (publish, at) = publish(kind, body)?;
            let payload = body.get(at..).map(<[u8]>::to_vec);
            Packet::Publish(Publish { payload, ..publish })
        } else {
            other(kind, body)?
        };
        self.bytes.drain(..head + len);
        Ok(Some(packet))
    }

    /// The first byte, the length of the header, and the length of the rest.
    fn head(&self) -> Result<Option<(u8, usize, usize)>> {
        let mut bytes = self.bytes.iter();
        let Some(kind) = bytes.next() else {
            return Ok(None);
        };
        let mut len = 0;
        for nth in 0..4 {
            let Some(byte) = bytes.next() else {
                return Ok(None);
            };
            len |= usize::from(byte & 127) << (7 * nth);
            if byte & 128 == 0 {
                return Ok(Some((*kind, 2 + nth, len)));
            }
        }
        Err(wrong("a length of more than four bytes"))
    }

    /// A message whose payload is too long: the payload will be skipped.
    fn long(&mut self, kind: u8, head: usize, len: usize) -> Result<Option<Packet>> {
        let Some(body) = self.bytes.get(head..head + TOPIC_MOST) else {
            return Ok(None);
        };
        let (publish, _) = publish(kind, body)?;
        let here = self.bytes.len().min(head + len);
        self.bytes.drain(..here);
        self.skip = head + len - here;
        Ok(Some(Packet::Publish(publish)))
    }
}

/// A message without its payload, and the offset of the payload.
fn publish(kind: u8, body: &[u8]) -> Result<(Publish, usize)> {
    let number = |at: usize| {
        let bytes = body.get(at..at + 2).and_then(|bytes| bytes.try_into().ok());
        bytes
            .map(u16::from_be_bytes)
            .ok_or_else(|| wrong("a message is cut off"))
    };
    let end = 2 + usize::from(number(0)?);
    let topic = body
        .get(2..end)
        .ok_or_else(|| wrong("a topic is cut off"))?;
    let topic = str::from_utf8(topic).map_err(|_| wrong("a topic is not UTF-8"))?;
    let (id, payload) = match kind >> 1 & 3 {
        0 => (None, end),
        1 => (Some(number(end)?), end + 2),
        qos => {
            return Err(wrong(&format!(
                "a message of QoS {qos}, and 1 was asked for"
            )));
        }
    };
    let publish = Publish {
        topic: topic.to_owned(),
        id,
        payload: None,
    };
    Ok((publish, payload))
}

fn other(kind: u8, body: &[u8]) -> Result<Packet> {
    Ok(match (kind >> 4, body) {
        (2, [flags, 0]) => Packet::Connected {
            was_known: flags & 1 == 1,
        },
        (2, [_, code]) => Packet::Rejected(match code {
            1 => "the broker does not speak MQTT 3.1.1",
            2 => "the broker does not take the client's id",
            3 => "the broker is not ready",
            4 => "the user or the password is wrong",
            5 => "the user may not connect",
            _ => "the broker gives no known reason",
        }),
        (9, [_, _, codes @ ..]) => {
            Packet::Subscribed(codes.iter().map(|code| *code < 128).collect())
        }
        (13, []) => Packet::Pong,
        (2 | 9 | 13, _) => return Err(wrong("a reply of another length")),
        (4..=7 | 11, _) => Packet::Other,
        (kind, _) => return Err(wrong(&format!("a packet of type {kind}"))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(qos: u8, topic: &str, id: Option<u16>, payload: &[u8]) -> Vec<u8> {
        let mut body = Vec::new();
        put(&mut body, topic.as_bytes());
        body.extend(id.map(u16::to_be_bytes).into_iter().flatten());
        body.extend(payload);
        framed(0x30 | qos << 1, &body)
    }

    /// All packets of some bytes that arrive in pieces.
    fn read(bytes: &[u8], piece: usize) -> Result<Vec<Packet>> {
        let (mut reader, mut out) = (Reader::default(), Vec::new());
        for part in bytes.chunks(piece) {
            reader.add(part);
            while let Some(packet) = reader.packet()? {
                out.push(packet);
            }
            assert!(reader.bytes.len() <= PACKET_BYTES_MAX + 5 + piece);
        }
        Ok(out)
    }

    #[test]
    fn packets_are_read_in_whatever_pieces_they_come() {
        let long = vec![b'x'; super::super::PAYLOAD_BYTES_MAX + 70_000];
        let bytes = [
            framed(0x20, &[1, 0]),
            framed(0x20, &[0, 5]),
            framed(0x90, &[0, 1, 1, 128]),
            message(1, "owntracks/jane/phone", Some(7), b"{}"),
            message(0, "a", None, b""),
            message(1, "long", Some(300), &long),
            framed(0xD0, &[]),
        ]
        .concat();
        for piece in [1, 7, 4096, bytes.len()] {
            let all = read(&bytes, piece).unwrap();
            let publish = |topic: &str, id, payload: Option<&[u8]>| {
                let payload = payload.map(<[u8]>::to_vec);
                Packet::Publish(Publish {
                    topic: topic.to_owned(),
                    id,
                    payload,
                })
            };
            let expected = [
                Packet::Connected { was_known: true },
                Packet::Rejected("the user may not connect"),
                Packet::Subscribed(vec![true, false]),
                publish("owntracks/jane/phone", Some(7), Some(b"{}")),
                publish("a", None, Some(b"")),
                publish("long", Some(300), None),
                Packet::Pong,
            ];
            assert_eq!(all, expected, "{piece}");
        }
    }

    #[test]
    fn what_is_no_packet_is_an_error() {
        let cases: [(&[u8], &str); 8] = [
            (&[0x00, 0], "type 0"),
            (&[0x30, 255, 255, 255, 255, 1], "four bytes"),
            (&[0x32, 3, 0, 9, 1], "cut off"),
            (&[0x32, 3, 0, 1, 1], "cut off"),
            (&[0x34, 5, 0, 1, 65, 0, 1], "QoS 2"),
            (&[0x30, 3, 0, 1, 255], "UTF-8"),
            (&[0x20, 1, 0], "length"),
            (&[0x90, 255, 255, 255, 127], "too long"),
        ];
        for (bytes, why) in cases {
            let e = read(bytes, 100).unwrap_err().to_string();
            assert!(e.contains(why), "{why}: {e}");
        }
    }

    #[test]
    fn what_is_sent_is_as_the_standard_has_it() {
        let connect = Connect {
            client: "ab",
            user: Some("u"),
            password: Some(b"p"),
            keep_alive: 60,
        };
        let bytes = [
            &[0x10, 20, 0, 4],
            &b"MQTT"[..],
            &[4, 0xC0, 0, 60, 0, 2],
            b"ab",
            &[0, 1],
            b"u",
            &[0, 1],
            b"p",
        ];
        assert_eq!(connect.bytes(), bytes.concat());
        assert_eq!(
            subscribe(1, &["a/#".to_owned()]),
            [&[0x82, 8, 0, 1, 0, 3], &b"a/#"[..], &[1]].concat()
        );
        assert_eq!(acknowledge(258), [0x40, 2, 1, 2]);
        assert_eq!((ping(), disconnect()), (vec![0xC0, 0], vec![0xE0, 0]));
        assert_eq!(framed(0, &[0; 321]).get(..3), Some(&[0, 0xC1, 2][..]));
    }
}
