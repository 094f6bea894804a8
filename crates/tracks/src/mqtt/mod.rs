//! Positions of OwnTracks from a broker of MQTT 3.1.1, subscribed to with QoS 1.
//!
//! ```text
//!   client ─ session     connections, again and again
//!     ├ waiting          messages in progress, in the order of the broker; reports that always fail
//!     └ packet           bytes ─> packets: pure
//! ```
//!
//! A message is acknowledged to the broker when its position is durable, or can never be stored.
//! Until then the broker keeps it, also while the service is down: the session has a name, and is
//! not a clean one. A message that is delivered again changes nothing.
//!
//! This part of the protocol is implemented here because rumqttc 0.25 with TLS brings a second,
//! older rustls-webpki and the abandoned rustls-pemfile, and cannot stop reading while it still
//! sends acknowledgements.

mod client;
mod packet;
mod session;
mod waiting;

use std::path::PathBuf;
use std::time::Duration;

use base::{Error, Result};

pub use client::Client;
pub use packet::{Packet, Publish, Reader};

/// The most bytes of a message's payload.
pub const PAYLOAD_BYTES_MAX: usize = crate::devices::MESSAGE_BYTES_MAX;

/// The address of a broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broker {
    /// The host name or address.
    pub host: String,
    /// The port.
    pub port: u16,
    /// Whether to use TLS.
    pub tls: bool,
}

impl Broker {
    /// Parses `mqtt://host[:1883]` or `mqtts://host[:8883]`. Errors: `InvalidArgument` says what is
    /// wrong.
    ///
    /// ```
    /// use tracks::mqtt::Broker;
    /// let broker = Broker::parse("mqtts://[::1]")?;
    /// assert_eq!((broker.host.as_str(), broker.port, broker.tls), ("::1", 8883, true));
    /// assert!(Broker::parse("mqtt://jane:secret@host").is_err());
    /// # Ok::<(), base::Error>(())
    /// ```
    pub fn parse(text: &str) -> Result<Self> {
        let wrong = |why: &str| {
            let shown = text.rsplit_once('@').map_or(text, |(_, behind)| behind);
            Error::invalid_argument(format!("{shown:.80?} is no broker: {why}"))
                .hint("write mqtt://HOST:1883, or mqtts://HOST:8883 with TLS")
        };
        let (scheme, rest) = text
            .split_once("://")
            .ok_or_else(|| wrong("there is no scheme"))?;
        let (tls, port) = match scheme {
            "mqtt" => (false, 1883),
            "mqtts" => (true, 8883),
            _ => return Err(wrong("the scheme is neither mqtt nor mqtts")),
        };
        if rest.contains('@') {
            return Err(wrong(
                "users and passwords are said elsewhere, as others see command lines",
            ));
        }
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (host, port) = match rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, "")) => (host, Some(port)),
            Some((host, behind)) => (
                host,
                behind.strip_prefix(':').and_then(|port| port.parse().ok()),
            ),
            None => match rest.split_once(':') {
                Some((host, port)) => (host, port.parse().ok()),
                None => (rest, Some(port)),
            },
        };
        let port = port.ok_or_else(|| wrong("the port is none"))?;
        let is_bad = |c: char| !c.is_alphanumeric() && !matches!(c, '-' | '.' | ':' | '_');
        if host.is_empty() || host.contains(is_bad) {
            return Err(wrong("the host is none"));
        }
        Ok(Self {
            host: host.to_owned(),
            port,
            tls,
        })
    }
}

/// How to connect to a broker.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The address of the broker.
    pub broker: Broker,
    /// The topics to subscribe to.
    pub topics: Vec<String>,
    /// The client id, under which the broker keeps messages; no other client of the broker may use
    /// it.
    pub client: String,
    /// The user name at the broker.
    pub user: Option<String>,
    /// The password of the user.
    pub password: Option<String>,
    /// Trusted certificates in PEM; if empty, those of the system.
    pub ca: PathBuf,
    /// The keep-alive time of MQTT: something is sent at least once in about half of it.
    pub keep_alive: Duration,
    /// The pause before the first reconnection; it doubles up to `wait_max`.
    pub wait: Duration,
    /// The longest pause before a reconnection.
    pub wait_max: Duration,
    /// How long the broker may take to answer a ping or the subscription.
    pub answer_timeout: Duration,
}

impl Settings {
    /// Settings for a broker, all others at their defaults.
    pub fn new(broker: Broker) -> Self {
        Self {
            broker,
            topics: vec!["owntracks/#".to_owned()],
            client: "ironstone-tracks".to_owned(),
            user: None,
            password: None,
            ca: PathBuf::from("/etc/ssl/certs/ca-certificates.crt"),
            keep_alive: Duration::from_secs(60),
            wait: Duration::from_millis(500),
            wait_max: Duration::from_secs(30),
            answer_timeout: Duration::from_secs(20),
        }
    }

    /// Checks the settings. Errors: `InvalidArgument` says what is wrong.
    pub fn check(&self) -> Result<()> {
        let is_long = |text: &str| text.len() > usize::from(u16::MAX);
        let wrong = |text: String| Err(Error::invalid_argument(text));
        for topic in &self.topics {
            if topic.is_empty() || is_long(topic) || topic.contains('\0') {
                return wrong(format!("{topic:.40?} is no topic of MQTT"));
            }
        }
        if self.topics.is_empty() || self.topics.len() > 100 {
            return wrong(format!(
                "{} topics of MQTT, and not 1 to 100",
                self.topics.len()
            ));
        }
        if self.client.is_empty() || is_long(&self.client) || self.client.contains('\0') {
            return wrong("the client's id of MQTT is empty or too long".to_owned());
        }
        if self.password.is_some() && self.user.is_none() {
            return wrong("a password of MQTT without a user".to_owned());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brokers_are_read_and_what_is_none_is_refused() {
        let of = |text: &str| Broker::parse(text).map(|b| (b.host, b.port, b.tls));
        assert_eq!(of("mqtt://a.b").unwrap(), ("a.b".to_owned(), 1883, false));
        assert_eq!(
            of("mqtts://10.0.0.1:99/").unwrap(),
            ("10.0.0.1".to_owned(), 99, true)
        );
        assert_eq!(of("mqtt://[::1]:7").unwrap(), ("::1".to_owned(), 7, false));
        for text in [
            "",
            "a:1883",
            "http://a",
            "mqtt://",
            "mqtt://a:b",
            "mqtt://a/b",
            "mqtt://[::1",
            "mqtt://a:99999",
        ] {
            let e = of(text).unwrap_err().to_string();
            assert!(e.contains("is no broker"), "{e}");
        }
        let e = of("mqtt://jane:secret@host").unwrap_err().to_string();
        assert!(!e.contains("secret"), "{e}");
    }

    #[test]
    fn settings_that_cannot_be_are_named() {
        let good = Settings::new(Broker::parse("mqtt://a").unwrap());
        good.check().unwrap();
        let bad = [
            (
                Settings {
                    topics: vec![],
                    ..good.clone()
                },
                "topics",
            ),
            (
                Settings {
                    topics: vec![String::new()],
                    ..good.clone()
                },
                "topic",
            ),
            (
                Settings {
                    client: String::new(),
                    ..good.clone()
                },
                "id",
            ),
            (
                Settings {
                    password: Some("x".to_owned()),
                    ..good
                },
                "without a user",
            ),
        ];
        for (settings, why) in bad {
            assert!(settings.check().unwrap_err().to_string().contains(why));
        }
    }
}
