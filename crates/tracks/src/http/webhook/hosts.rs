//! The hosts that webhooks may go to. Nothing here does I/O.
//!
//! A server that sends requests to addresses of its users could be abused to reach machines that
//! only it can reach. So the operator lists the allowed hosts, and a name may not resolve to a
//! private address unless it is listed for that. The check is on the address of each connection,
//! because a name may resolve to another address later.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use axum::http::Uri;
use base::{Error, Result};

/// The most bytes of a URL.
const URL_BYTES_MAX: usize = 2048;

/// A host that webhooks may go to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// In lower case; an address is in its shortest form, without brackets.
    name: String,
    /// `None` allows any port.
    port: Option<u16>,
    is_private: bool,
}

/// All allowed hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hosts(Vec<Host>);

impl Host {
    /// Parses `HOST` or `HOST:PORT`; a host is a name or an address. If `is_private`, a name may
    /// resolve to addresses of private networks and of this machine. Errors: `InvalidArgument` if
    /// it is invalid.
    ///
    /// ```
    /// use tracks::http::Host;
    /// assert!(Host::new("example.org:8443", false).is_ok() && Host::new("[::1]:80", false).is_ok());
    /// assert!(Host::new("https://example.org", false).is_err());
    /// ```
    pub fn new(text: &str, is_private: bool) -> Result<Self> {
        let wrong = || {
            let text =
                format!("{text:.80?} is no host: write example.org, 10.0.0.7:8080 or [::1]:80");
            Error::invalid_argument(text)
        };
        let (name, port) = if text.parse::<Ipv6Addr>().is_ok() {
            (text, None)
        } else {
            let end = text.rfind(']').unwrap_or(0);
            match text.rfind(':').filter(|at| *at > end) {
                Some(at) => {
                    let (name, port) = text.split_at(at);
                    let port = port.strip_prefix(':').and_then(|p| p.parse().ok());
                    (name, Some(port.filter(|p| *p > 0).ok_or_else(wrong)?))
                }
                None => (text, None),
            }
        };
        let name = name_of(name).ok_or_else(wrong)?;
        Ok(Self {
            name,
            port,
            is_private,
        })
    }
}

/// The canonical form of a host's name. `None` if it is invalid.
fn name_of(text: &str) -> Option<String> {
    let inner = text
        .strip_prefix('[')
        .map_or(Some(text), |rest| rest.strip_suffix(']'))?;
    if let Ok(address) = inner.parse::<IpAddr>() {
        return Some(address.to_string());
    }
    let is_of_names = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_');
    let is_name = inner.len() == text.len() && (1..=253).contains(&inner.len());
    (is_name && inner.bytes().all(is_of_names)).then(|| inner.to_ascii_lowercase())
}

impl Hosts {
    /// A list of these hosts.
    pub fn new(hosts: Vec<Host>) -> Self {
        Self(hosts)
    }

    /// Whether webhooks may go to this host, and then whether to private addresses. Errors: they
    /// may not, and what to do.
    pub(super) fn check(&self, target: &Target) -> std::result::Result<bool, String> {
        if self.0.is_empty() {
            let text = "no host is allowed: start the server with --webhook-host HOST";
            return Err(text.to_owned());
        }
        let is_it = |host: &&Host| {
            host.name == target.host && host.port.is_none_or(|port| port == target.port)
        };
        let mut of_it = self.0.iter().filter(is_it).peekable();
        if of_it.peek().is_none() {
            let Target { host, port, .. } = target;
            return Err(format!(
                "{host}, port {port}, is none of the hosts that are allowed: start the server with --webhook-host {host}"
            ));
        }
        let is_address = target.host.parse::<IpAddr>().is_ok();
        Ok(is_address || of_it.any(|host| host.is_private))
    }
}

/// The destination of a webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) is_https: bool,
    /// In the canonical form, as in [`Host`].
    pub(super) host: String,
    pub(super) port: u16,
    /// The path with the query.
    pub(super) path: String,
}

impl Target {
    /// Parses a URL. Errors: what is wrong with it.
    pub(super) fn new(url: &str) -> std::result::Result<Self, String> {
        if url.len() > URL_BYTES_MAX {
            let len = url.len();
            return Err(format!(
                "it has {len} bytes, and {URL_BYTES_MAX} at most are taken"
            ));
        }
        if let Some(c) = url.chars().find(|c| !c.is_ascii_graphic()) {
            let c = u32::from(c);
            return Err(format!(
                "it has the character U+{c:04X}: write it in per cent"
            ));
        }
        if url.contains('#') {
            return Err("it has a fragment, which is never sent: leave it out".to_owned());
        }
        let uri: Uri = url.parse().map_err(|e| format!("it is no URL: {e}"))?;
        let is_https = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err("it is neither http://… nor https://…".to_owned()),
        };
        let authority = uri.authority().map_or("", |a| a.as_str());
        if authority.contains('@') {
            return Err("it has a user or a password: check the signature instead".to_owned());
        }
        let host = uri.host().and_then(name_of);
        let host = host.ok_or_else(|| "its host is no name and no address".to_owned())?;
        // Port 0, and a port that is not a number or too large, are refused.
        let has_port = authority
            .rsplit(']')
            .next()
            .is_some_and(|s| s.contains(':'));
        let port = match (uri.port_u16(), has_port) {
            (Some(port), _) if port > 0 => port,
            (None, false) if is_https => 443,
            (None, false) => 80,
            _ => return Err("its port is not within 1 and 65535".to_owned()),
        };
        let path = uri.path_and_query().map_or("/", |p| p.as_str());
        Ok(Self {
            is_https,
            host,
            port,
            path: path.to_owned(),
        })
    }

    /// The value of the header `Host`.
    pub(super) fn authority(&self) -> String {
        let host = if self.host.contains(':') {
            format!("[{}]", self.host)
        } else {
            self.host.clone()
        };
        match (self.is_https, self.port) {
            (true, 443) | (false, 80) => host,
            (_, port) => format!("{host}:{port}"),
        }
    }
}

/// Whether an address is a public unicast address of the Internet.
pub(super) fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => is_public_v4(v4),
        IpAddr::V6(v6) => is_public_v6(v6),
    }
}

fn is_public_v4(v4: Ipv4Addr) -> bool {
    let [a, b, c, _] = v4.octets();
    // This network, loopback, and everything from multicast on; carrier-grade NAT (RFC 6598),
    // protocol assignments, benchmarks.
    let is_special = matches!(
        (a, b, c),
        (0 | 127 | 224.., ..) | (100, 64..=127, _) | (192, 0, 0) | (198, 18..=19, _)
    );
    !(is_special || v4.is_private() || v4.is_link_local() || v4.is_documentation())
}

fn is_public_v6(v6: Ipv6Addr) -> bool {
    let [a, b, c, d, e, f, g, h] = v6.segments();
    let v4 = |high: u16, low: u16| {
        let [[a, b], [c, d]] = [high.to_be_bytes(), low.to_be_bytes()];
        is_public_v4(Ipv4Addr::new(a, b, c, d))
    };
    match (a, b, c, d, e, f) {
        // IPv4 addresses in other forms: mapped, compatible, through NAT64 or 6to4.
        (0, 0, 0, 0, 0, 0 | 0xffff) | (0x64, 0xff9b, 0, 0, 0, 0) => v4(g, h),
        (0x2002, ..) => v4(b, c),
        // Teredo, documentation.
        (0x2001, 0 | 0xdb8, ..) | (0x3fff, 0..=0xfff, ..) => false,
        // All assigned global unicast addresses.
        (0x2000..=0x3fff, ..) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(all: &[&str], private: &[&str]) -> Hosts {
        let public = all.iter().map(|h| Host::new(h, false).unwrap());
        let private = private.iter().map(|h| Host::new(h, true).unwrap());
        Hosts::new(public.chain(private).collect())
    }

    #[test]
    fn addresses_of_webhooks_are_checked() {
        let right = [
            ("http://example.org", ("example.org", 80, "/")),
            ("HTTPS://Example.ORG/a?b=c", ("example.org", 443, "/a?b=c")),
            ("http://[::1]:8080/x", ("::1", 8080, "/x")),
            ("http://[0:0::1]", ("::1", 80, "/")),
            ("http://127.0.0.1:9", ("127.0.0.1", 9, "/")),
        ];
        for (url, (host, port, path)) in right {
            let target = Target::new(url).unwrap();
            let found = (target.host.as_str(), target.port, target.path.as_str());
            assert_eq!(found, (host, port, path), "{url}");
        }
        let long = format!("http://example.org/{}", "x".repeat(10_000));
        let wrong = [
            ("", "no URL"),
            ("example.org", "neither"),
            ("/path", "neither"),
            ("ftp://example.org/", "neither"),
            ("file:///etc/passwd", ""),
            ("http://user:word@example.org/", "user or a password"),
            ("http://user@example.org/", "user or a password"),
            ("http://example.org/\0", "U+0000"),
            ("http://example.org/a b", "U+0020"),
            ("http://exämple.org/", "U+00E4"),
            ("http://example.org/\r\nHost: x", "U+000D"),
            ("http://example.org/#a", "fragment"),
            ("http://example.org:0/", "port"),
            ("http://example.org:99999/", ""),
            ("http://:80/", ""),
            ("http://ex%41mple.org/", ""),
            (&long, "10019 bytes"),
        ];
        for (url, why) in wrong {
            let e = Target::new(url).unwrap_err();
            assert!(e.contains(why) && e.len() < 200, "{url}: {e}");
        }
        assert_eq!(
            Target::new("http://[::1]:8/").unwrap().authority(),
            "[::1]:8"
        );
        assert_eq!(Target::new("https://a:443/").unwrap().authority(), "a");
    }

    #[test]
    fn only_hosts_that_are_listed_are_allowed() {
        let target = |url| Target::new(url).unwrap();
        let none = Hosts::default().check(&target("http://a/"));
        assert!(none.unwrap_err().contains("--webhook-host"));
        let some = hosts(&["a", "B:81", "10.0.0.1", "[::1]:5"], &["c"]);
        for (url, found) in [
            ("http://a/", Some(false)),
            ("https://a:7/", Some(false)),
            ("http://b:81/", Some(false)),
            ("http://b/", None),
            ("http://a.b/", None),
            ("http://a./", None),
            ("http://10.0.0.1:99/", Some(true)),
            ("http://10.0.0.2/", None),
            ("http://[::1]:5/", Some(true)),
            ("http://[::1]/", None),
            ("http://c/", Some(true)),
        ] {
            assert_eq!(some.check(&target(url)).ok(), found, "{url}");
        }
        for text in [
            "", "a b", "http://a", "a:0", "a:x", "a:65536", "[::1", "a/b", "*",
        ] {
            assert!(Host::new(text, false).is_err(), "{text}");
        }
        assert_eq!(Host::new("::1", false).unwrap().port, None);
    }

    #[test]
    fn private_addresses_are_known_in_all_forms() {
        let private = [
            "0.0.0.0",
            "10.1.2.3",
            "100.64.0.1",
            "127.0.0.1",
            "127.9.9.9",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.8",
            "192.168.1.1",
            "198.18.0.1",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "192.0.2.1",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::127.0.0.1",
            "64:ff9b::10.0.0.1",
            "2002:7f00:1::",
            "2001:db8::1",
            "2001::1",
            "fc00::1",
            "fd12::1",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "100::1",
        ];
        for text in private {
            assert!(!is_public(text.parse().unwrap()), "{text}");
        }
        let public = [
            "1.1.1.1",
            "100.63.0.1",
            "100.128.0.1",
            "172.32.0.1",
            "192.0.1.1",
            "223.255.255.255",
            "2606:4700::1",
            "2a00::1",
            "::ffff:1.1.1.1",
            "64:ff9b::1.1.1.1",
        ];
        for text in public {
            assert!(is_public(text.parse().unwrap()), "{text}");
        }
    }
}
