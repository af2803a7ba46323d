//! Draws the pictures of `docs/algorithms.md`: the same 40 requests under each algorithm.
//!
//! A real limiter decides, and a `ManualClock` is the time. So the same code draws the same bytes,
//! and a test compares them with the files:
//!
//! ```text
//! cargo run --example pictures
//! ```

mod drawing;
mod replay;

use std::{fs, io, path::Path};

fn main() -> io::Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/images");
    fs::create_dir_all(&folder)?;
    for (file, picture) in drawing::all() {
        fs::write(folder.join(file), picture)?;
    }
    Ok(())
}
