//! How many nodes, and how much traffic, one Redis bears: the tables of
//! `docs/lab/scaling.md`.
//!
//! Nodes with all that they have in production, but for the server and the wire,
//! in a time that is not real. The same seed prints the same, bit for bit:
//!
//! ```text
//! cargo run --release --features testing --example simulate
//! ```
//!
//! Another seed may stand behind `--`.

mod simulation;
mod tables;

fn main() {
    let seed = std::env::args()
        .nth(1)
        .map_or(20_261_121, |seed| seed.parse().expect("the seed, a number"));
    for table in tables::all(seed) {
        println!("{}", table.played());
    }
}
