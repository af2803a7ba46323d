//! Configuration files: each is read, or its mistakes are in it, one on each line.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tower_throttle_config::Config;

fuzz_target!(|text: &str| {
    if let Err(errors) = Config::from_toml(text) {
        let printed = errors.to_string();
        // Of more than a hundred, the last line says how many more there are.
        let problems = errors.problems().len();
        let expected = problems.min(100) + usize::from(problems > 100);
        assert_eq!(printed.lines().count(), expected, "{printed}");
        let lines = text.split('\n').count();
        for problem in errors.problems() {
            assert!(problem.line().is_none_or(|line| (1..=lines).contains(&line)));
            assert!(problem.column().is_none_or(|column| column > 0));
            assert!(!problem.code().is_empty() && problem.file().is_none());
        }
        // The same text has the same mistakes.
        assert_eq!(Config::from_toml(text).expect_err("mistakes"), errors);
    }
});
