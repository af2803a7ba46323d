//! Pictures of pages for people, in the folder that `TT_PICTURES` names.

use std::{path::PathBuf, thread, time::Duration};

use super::Tab;

/// The folder, if pictures are wanted.
pub(crate) fn folder() -> Option<PathBuf> {
    std::env::var_os("TT_PICTURES").map(PathBuf::from)
}

impl Tab {
    /// Writes the top of the page in a window of this size, if pictures are wanted. The size stays.
    pub(crate) fn picture(&self, name: &str, (width, height): (u32, u32)) {
        let Some(folder) = folder() else { return };
        self.resize(width, height);
        self.evaluate("(document.activeElement?.blur(), scrollTo(0, 0))");
        // Tab may have led through lists.
        self.evaluate(
            "document.querySelectorAll('.scroll').forEach((list) => list.scrollTo(0, 0))",
        );
        // The next numbers draw the charts in their new size.
        thread::sleep(Duration::from_secs(2));
        let path = folder.join(format!("{name}.png"));
        std::fs::write(path, self.screenshot()).expect("a folder");
    }
}
