//! Texts of quotas: each is read, and written as a text of the same quota, or an error names a
//! word of it.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tower_throttle::{Algorithm, ConfigError, OnStoreFailure, Quota};

fuzz_target!(|text: &str| {
    match text.parse::<Quota>() {
        Ok(quota) => {
            let written = quota.to_string();
            let read: Quota = written.parse().expect("a text that a quota wrote");
            assert_eq!(read, quota, "{written}");
            assert_eq!(read.to_string(), written);
        }
        Err(ConfigError::QuotaText { at, reason, .. }) => {
            assert!(text.get(at).is_some(), "{reason}");
        }
        Err(error) => assert!(!error.code().is_empty()),
    }
    if let Ok(algorithm) = text.parse::<Algorithm>() {
        assert_eq!(algorithm.to_string().parse(), Ok(algorithm));
    }
    match text.parse::<OnStoreFailure>() {
        Ok(choice) => assert_eq!(choice.to_string().parse(), Ok(choice)),
        Err(ConfigError::OnStoreFailureText { at, reason, .. }) => {
            assert!(text.get(at).is_some(), "{reason}");
        }
        Err(error) => panic!("{error}"),
    }
});
