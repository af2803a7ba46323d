//! Reads a file of limits.

use std::path::Path;

use tower_throttle_config::{Config, ConfigErrors};

use crate::readers;

/// Reads a file, with a stand-in for each reader that it names: only the application has them.
pub(crate) fn read(path: impl AsRef<Path>) -> Result<Config, ConfigErrors> {
    let config = Config::from_path(path)?;
    let stand_ins = readers::stand_ins(&config.reader_names());
    Ok(config.readers(stand_ins))
}
