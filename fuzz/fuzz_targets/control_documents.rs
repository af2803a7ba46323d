//! Texts of control documents: each is read whole, or not at all, and written as it was read.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tower_throttle::fuzzing;

/// Where the changes begin: each text has a mark of its own before them.
fn changes(text: &[u8]) -> &[u8] {
    let start = b"\"changes\":";
    let place = text.windows(start.len()).position(|part| part == start);
    &text[place.expect("its changes")..]
}

fuzz_target!(|text: &[u8]| {
    let Ok(written) = fuzzing::control_document(text) else {
        return;
    };
    let again = fuzzing::control_document(&written).expect("what was written");
    assert_eq!(changes(&written), changes(&again));
});
