//! Signatures of deliveries: with the secret, a receiver can verify that a delivery is genuine, and
//! when it was sent.
//!
//! `X-Ironstone-Signature: t=UNIX,v1=HEX`, where HEX is HMAC-SHA256 with the secret as key over
//! UNIX, a full stop and the body, byte for byte. A receiver should compare in constant time, and
//! refuse signatures that are older than some minutes.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::super::tokens::hex;

/// The header's value for a body that is sent at `seconds` since 1970.
pub(super) fn signature(secret: &str, seconds: u64, body: &[u8]) -> String {
    let key = Hmac::<Sha256>::new_from_slice(secret.as_bytes());
    // HMAC accepts keys of any length.
    let Ok(mut mac) = key else {
        return String::new();
    };
    mac.update(format!("{seconds}.").as_bytes());
    mac.update(body);
    format!("t={seconds},v1={}", hex(&mac.finalize().into_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Like `printf '1700000000.{"a":1}' | openssl dgst -sha256 -hmac key`.
    #[test]
    fn signatures_are_those_of_others() {
        let made = signature("key", 1_700_000_000, br#"{"a":1}"#);
        let hex = "a438e398bfafc57e4396bb7fc2304422f0f768e965d073ca313cb52e22e6ad03";
        assert_eq!(made, format!("t=1700000000,v1={hex}"));
    }
}
