//! The script: assembled from the algorithms in use, called with a list of
//! checks, answered with integers.

use std::sync::OnceLock;

use bytes::Bytes;
use fred::{types::Value, util::sha1_hash};
use smallvec::SmallVec;

use super::{RedisStore, key::KeyNames, question::Turns};

const ENGINE: &str = include_str!("lua/engine.lua");
/// In the order of their numbers, from 1.
const ALGORITHMS: [&str; 5] = [
    include_str!("lua/token_bucket.lua"),
    include_str!("lua/fixed_window.lua"),
    include_str!("lua/sliding_window.lua"),
    include_str!("lua/sliding_log.lua"),
    include_str!("lua/concurrency.lua"),
];
/// Where in the engine, and from where in its own file, an algorithm's parts go.
const READ: &str = "--@read\n";
const WRITE: &str = "--@write\n";

/// A script and the name that Redis knows it by.
#[derive(Clone, Debug)]
pub(super) struct Script {
    pub(super) text: Value,
    pub(super) sha1: Value,
}

impl RedisStore {
    /// The texts of all scripts of this version, for whoever loads them where the
    /// application's user may not run `EVAL`: each by `SCRIPT LOAD`, on every primary
    /// and every replica that may become one, again after each start of it. There is
    /// one for each set of algorithms, as checks that go out together are
    /// one call.
    ///
    /// ```
    /// use tower_throttle::RedisStore;
    ///
    /// // for i in script-*.lua; do redis-cli -x SCRIPT LOAD <$i; done
    /// # let folder = std::env::temp_dir().join(format!("tt-scripts-{}", std::process::id()));
    /// # std::fs::create_dir_all(&folder)?;
    /// for (number, text) in RedisStore::scripts().enumerate() {
    ///     std::fs::write(folder.join(format!("script-{number}.lua")), text)?;
    /// }
    /// # assert_eq!(std::fs::read_dir(&folder)?.count(), 31);
    /// # std::fs::remove_dir_all(&folder)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn scripts() -> impl Iterator<Item = String> {
        (1..1 << ALGORITHMS.len()).map(assemble)
    }
}

/// The script for exactly the algorithms of these checks, made when first needed.
pub(super) fn for_checks(checks: &[Turns<'_>]) -> &'static Script {
    static SCRIPTS: [OnceLock<Script>; 1 << ALGORITHMS.len()] =
        [const { OnceLock::new() }; 1 << ALGORITHMS.len()];

    let algorithms = checks.iter().map(|check| check.question.algorithms());
    let in_use = algorithms.fold(0, |set, more| set | more);
    // Every set of algorithms has its place: there is one for each.
    let place = SCRIPTS.get(in_use).unwrap_or(&SCRIPTS[0]);
    place.get_or_init(|| {
        let text = assemble(in_use);
        Script {
            sha1: Value::from(sha1_hash(&text)),
            text: Value::from(text),
        }
    })
}

/// The engine with the parts of the algorithms whose bits are set.
fn assemble(in_use: usize) -> String {
    let (mut read, mut write) = (String::new(), String::new());
    let chosen = (1..)
        .zip(ALGORITHMS)
        .filter(|(number, _)| in_use & 1 << (number - 1) != 0);
    for (number, file) in chosen {
        let (_, parts) = file.split_once(READ).unwrap_or_default();
        let (read_part, write_part) = parts.split_once(WRITE).unwrap_or_default();
        let keyword = if read.is_empty() { "if" } else { "elseif" };
        read.push_str(&format!(
            "{keyword} algorithm == {number} then\n{read_part}"
        ));
        write.push_str(&format!(
            "{keyword} algorithm == {number} then\n{write_part}"
        ));
    }
    ENGINE
        .replace(READ, &(read + "end\n"))
        .replace(WRITE, &(write + "end\n"))
}

/// What most keys have room in, and the numbers of most legs.
const KEY_BYTES: usize = 40;
const LEG_BYTES: usize = 48;

/// The keys and the numbers of a call.
pub(super) struct Arguments {
    /// One after another.
    keys: Bytes,
    key_ends: SmallVec<[usize; 2]>,
    numbers: Bytes,
}

impl Arguments {
    /// `now_us` 0 is the server's own clock.
    pub(super) fn new(checks: &[Turns<'_>], names: &KeyNames, nonce: i64, now_us: u64) -> Self {
        let legs = checks.iter().map(|check| check.question.legs.len()).sum();
        let mut keys = Vec::with_capacity(KEY_BYTES * legs);
        let mut key_ends = SmallVec::with_capacity(legs);
        let mut numbers = Vec::with_capacity(16 + LEG_BYTES * legs);
        for number in [nonce as f64, now_us as f64] {
            numbers.extend_from_slice(&number.to_le_bytes());
        }
        for check in checks {
            check.question.write_keys(names, &mut keys, &mut key_ends);
            check.question.write_numbers(check.times, &mut numbers);
        }
        Self {
            keys: keys.into(),
            key_ends,
            numbers: numbers.into(),
        }
    }

    /// As a command has them: the script, the number of KEYS, KEYS and ARGV.
    pub(super) fn behind(mut self, script: &Value) -> Vec<Value> {
        let mut values = Vec::with_capacity(3 + self.key_ends.len());
        values.push(script.clone());
        values.push(Value::Integer(self.key_ends.len() as i64));
        let mut start = 0;
        for end in &self.key_ends {
            values.push(Value::Bytes(self.keys.split_to(end - start)));
            start = *end;
        }
        values.push(Value::Bytes(self.numbers));
        values
    }
}
