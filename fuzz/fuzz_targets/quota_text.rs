//! Texts of quotas: each is read, and written as a text of the same quota, or an error names a
//! word of it.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tower_throttle::{Algorithm, OnStoreFailure, Quota};

fuzz_target!(|text: &str| {
    match text.parse::<Quota>() {
        Ok(quota) => {
            let written = quota.to_string();
            let read: Quota = written.parse().expect("a text that a quota wrote");
            assert_eq!(read, quota, "{written}");
            assert_eq!(read.to_string(), written);
        }
        Err(error) => match error.span() {
            Some(at) => assert!(text.get(at).is_some(), "{error}"),
            None => assert_ne!(error.code(), "quota-text"),
        },
    }
    if let Ok(algorithm) = text.parse::<Algorithm>() {
        assert_eq!(algorithm.to_string().parse(), Ok(algorithm));
    }
    match text.parse::<OnStoreFailure>() {
        Ok(choice) => assert_eq!(choice.to_string().parse(), Ok(choice)),
        Err(error) => {
            let at = error.span().expect("a wrong word");
            assert!(text.get(at).is_some(), "{error}");
        }
    }
});
