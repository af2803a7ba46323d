//! The reply of a node that does not serve a key: only about the slot of that key, and only
//! with an address.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tower_throttle::fuzzing;

fuzz_target!(|data: &[u8]| {
    let Ok(shown) = std::str::from_utf8(data) else {
        return;
    };
    let Some((word, address)) = fuzzing::redirect(shown, 3_999) else {
        return;
    };
    assert_eq!(shown.split(' ').next(), Some(word));
    assert_eq!(word == "TRYAGAIN", address.is_none());
    if let Some(address) = address {
        assert_eq!(fuzzing::redirect(shown, 4_000), None);
        let (host, port) = address.rsplit_once(':').expect("a port");
        assert_ne!(port.parse::<u16>().expect("a port"), 0);
        assert!((1..=255).contains(&host.len()));
        let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:%".contains(&byte);
        assert!(host.bytes().all(is_host), "{host:?}");
        let again = fuzzing::redirect(&format!("{word} 3999 {address}"), 3_999);
        assert_eq!(again, Some((word, Some(address))));
    }
});
