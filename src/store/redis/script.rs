//! The script: assembled from the algorithms in use, called with a list of
//! checks, answered with integers.

use std::sync::OnceLock;

use bytes::Bytes;
use smallvec::SmallVec;

use super::{RedisStore, key::KeyNames, question::Turns, server::script_name};

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
const PARTS: [&str; 3] = ["--@numbers\n", "--@read\n", "--@write\n"];

/// A script and the name that Redis knows it by.
#[derive(Clone, Debug)]
pub(super) struct Script {
    pub(super) text: Bytes,
    pub(super) sha1: Bytes,
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
            sha1: script_name(&text).into(),
            text: text.into(),
        }
    })
}

/// The engine with the parts of the algorithms whose bits are set.
fn assemble(in_use: usize) -> String {
    let mut parts = PARTS.map(|_| String::new());
    let chosen = (1..)
        .zip(ALGORITHMS)
        .filter(|(number, _)| in_use & (1 << (number - 1)) != 0);
    for (number, file) in chosen {
        let mut rest = file;
        // From the last to the first: each goes on to the end of what is left.
        for (part, mark) in parts.iter_mut().zip(PARTS).rev() {
            let (before, own) = rest.split_once(mark).unwrap_or((rest, ""));
            let keyword = if part.is_empty() { "if" } else { "elseif" };
            part.push_str(&format!("{keyword} algorithm == {number} then\n{own}"));
            rest = before;
        }
    }
    let marked = PARTS.iter().zip(parts);
    marked.fold(ENGINE.to_owned(), |engine, (mark, part)| {
        engine.replace(mark, &(part + "end\n"))
    })
}

/// What most keys have room in, the numbers of most legs, and those before them.
const KEY_BYTES: usize = 40;
const LEG_BYTES: usize = 48;
const HEAD_BYTES: usize = 16;

/// The keys and the numbers of a call.
pub(super) struct Arguments {
    /// One after another.
    pub(super) keys: Bytes,
    pub(super) key_ends: SmallVec<[usize; 2]>,
    pub(super) numbers: Bytes,
}

impl Arguments {
    /// `now_us` 0 is the server's own clock.
    pub(super) fn new(checks: &[Turns<'_>], names: &KeyNames, nonce: i64, now_us: u64) -> Self {
        let legs = checks.iter().map(|check| check.question.legs.len()).sum();
        let mut keys = Vec::with_capacity(KEY_BYTES * legs);
        let mut key_ends = SmallVec::with_capacity(legs);
        let mut numbers = Numbers::new(nonce, now_us);
        for check in checks {
            check.question.write_keys(names, &mut keys, &mut key_ends);
            numbers.push(check);
        }
        Self {
            keys: keys.into(),
            key_ends,
            numbers: numbers.written.into(),
        }
    }
}

/// The numbers of a call. Checks in a row that ask the same share theirs.
struct Numbers {
    written: Vec<u8>,
    /// Where those of the last check start, and how many checks these are for.
    last: usize,
    alike: u32,
}

impl Numbers {
    fn new(nonce: i64, now_us: u64) -> Self {
        let mut written = Vec::with_capacity(2 * HEAD_BYTES + LEG_BYTES);
        append(&mut written, [nonce as f64, now_us as f64]);
        Self {
            last: written.len(),
            alike: 0,
            written,
        }
    }

    fn push(&mut self, check: &Turns<'_>) {
        let start = self.written.len();
        append(&mut self.written, [1.0, check.times as f64]);
        check.question.write_numbers(&mut self.written);
        let (before, this) = self.written.split_at(start);
        // All that stands behind the number of checks.
        if before.get(self.last + 8..) != this.get(8..) {
            (self.last, self.alike) = (start, 1);
            return;
        }
        self.written.truncate(start);
        self.alike += 1;
        if let Some(place) = self.written.get_mut(self.last..self.last + 8) {
            place.copy_from_slice(&f64::from(self.alike).to_le_bytes());
        }
    }
}

fn append(to: &mut Vec<u8>, numbers: [f64; 2]) {
    to.extend_from_slice(numbers.map(f64::to_le_bytes).as_flattened());
}

#[cfg(test)]
#[allow(clippy::expect_used)]
mod tests {
    use super::*;
    use crate::{
        Key, Policy, TokenBucket,
        charge::{Check, Operation},
        store::redis::question::Question,
    };

    fn question(caller: &str, cost: u64) -> Question {
        let policy = Policy::new("api", TokenBucket::per_second(5)).cost(cost);
        let policy = policy.compile(Default::default()).expect("a policy");
        let key = std::borrow::Cow::Owned(Key::from(caller));
        let legs = [policy.charge(key, std::borrow::Cow::Borrowed(&policy.demand))];
        let names = KeyNames::new("tt".to_owned(), None).expect("names");
        Question::new(&Check::new(Operation::Take, &legs), &names)
    }

    #[test]
    fn checks_in_a_row_that_ask_the_same_share_their_numbers() {
        let asked = [
            ("ann", 1, 1),
            ("bob", 1, 1),
            ("eve", 1, 2),
            ("joe", 3, 2),
            ("sue", 1, 1),
        ];
        let questions = asked.map(|(caller, cost, _)| question(caller, cost));
        let turns = asked.iter().zip(&questions);
        let turns = turns.map(|((_, _, times), question)| Turns {
            question,
            times: *times,
        });
        let turns: Vec<_> = turns.collect();
        let names = KeyNames::new("tt".to_owned(), None).expect("names");
        let arguments = Arguments::new(&turns, &names, 7, 0);
        assert_eq!(arguments.key_ends.len(), asked.len());
        let numbers = arguments.numbers.chunks(8).map(|bytes| {
            let bytes = bytes.try_into().expect("eight bytes");
            f64::from_le_bytes(bytes)
        });
        let numbers: Vec<_> = numbers.collect();
        let second = 1e9;
        let leg = |units: f64| [33.0, units * second / 5.0, second, 0.0, 0.0, 0.0];
        let expected = [
            &[7.0, 0.0][..],
            &[2.0, 1.0],
            &leg(1.0),
            &[1.0, 2.0],
            &leg(1.0),
            &[1.0, 2.0],
            &leg(3.0),
            &[1.0, 1.0],
            &leg(1.0),
        ];
        assert_eq!(numbers, expected.concat());
    }
}
