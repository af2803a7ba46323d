//! The scripts: the engine with the algorithms that a call needs.

use std::sync::OnceLock;

use bytes::Bytes;

use super::RedisStore;

const ENGINE: &str = include_str!("lua/engine.lua");
/// In the order of their numbers, which start at 1.
const ALGORITHMS: [&str; 6] = [
    include_str!("lua/token_bucket.lua"),
    include_str!("lua/fixed_window.lua"),
    include_str!("lua/sliding_window.lua"),
    include_str!("lua/sliding_log.lua"),
    include_str!("lua/concurrency.lua"),
    include_str!("lua/penalty.lua"),
];
/// The marks of an algorithm's parts: in the engine, and in its own file.
const PARTS: [&str; 3] = ["--@numbers\n", "--@read\n", "--@write\n"];

/// How many scripts there are.
pub(super) const COUNT: usize = (1 << ALGORITHMS.len()) - 1;

/// A script, and the name by which Redis knows it.
#[derive(Debug)]
pub(super) struct Script {
    /// The set of its algorithms, as bits.
    pub(super) algorithms: usize,
    pub(super) text: Bytes,
    pub(super) name: Bytes,
}

impl RedisStore {
    /// Returns the texts of all scripts of this version, for an operator who loads them because
    /// the application's user may not run `EVAL`. Load each by `SCRIPT LOAD`, on every primary
    /// and on every replica that may become one, again after each start. There is one for each
    /// set of algorithms, because checks of several algorithms may share a call.
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
    /// # assert_eq!(std::fs::read_dir(&folder)?.count(), 63);
    /// # std::fs::remove_dir_all(&folder)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn scripts() -> impl Iterator<Item = String> {
        (1..1 << ALGORITHMS.len()).map(assemble)
    }
}

/// Returns the script for these algorithms and no others, assembled when first needed.
#[expect(
    clippy::expect_used,
    reason = "there is a script for each set of algorithms"
)]
pub(super) fn with_algorithms(
    algorithms: impl Iterator<Item = u8>,
    hash: fn(&str) -> String,
) -> &'static Script {
    static SCRIPTS: [OnceLock<Script>; 1 << ALGORITHMS.len()] =
        [const { OnceLock::new() }; 1 << ALGORITHMS.len()];

    let in_use = algorithms.fold(0, |set, number| set | 1 << (number - 1));
    let script = SCRIPTS
        .get(in_use)
        .expect("no algorithm has a higher number");
    script.get_or_init(|| {
        let text = assemble(in_use);
        Script {
            algorithms: in_use,
            name: hash(&text).into(),
            text: text.into(),
        }
    })
}

/// Returns the engine with the parts of the algorithms whose bits are set.
fn assemble(in_use: usize) -> String {
    let mut parts = PARTS.map(|_| String::new());
    let chosen = (1..)
        .zip(ALGORITHMS)
        .filter(|(number, _)| in_use & (1 << (number - 1)) != 0);
    for (number, file) in chosen {
        let mut rest = file;
        // From the last part to the first: each ends where the one behind it began.
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
