//! Checks that log files can be written, without creating them.

use std::fs::OpenOptions;
use std::io;
use std::path::Path;

use weft_config::{Located, Problem};

use crate::base::log_target::LogTarget;
use crate::base::sys::{FileAccess, can_access};
use crate::sections::log::LogSettings;

/// Returns an error for each log file that could not be opened at a start as the current user.
pub(crate) fn check(config: &LogSettings) -> Vec<Problem> {
    let logs = [("access log", &config.access), ("error log", &config.error)];
    let problem = |(name, target): (&str, &Located<LogTarget>)| {
        let LogTarget::File(path) = &target.value else { return None };
        let error = check_file(path).err()?;
        let path = path.display();
        Some(target.problem(format!("cannot open the {name} {path}: {error}")))
    };
    logs.into_iter().filter_map(problem).collect()
}

fn check_file(path: &Path) -> io::Result<()> {
    match OpenOptions::new().append(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => check_directory(path),
        opened => opened.map(drop),
    }
}

/// Checks that a file can be created at this path.
fn check_directory(path: &Path) -> io::Result<()> {
    let directory = match path.parent() {
        Some(directory) if directory != Path::new("") => directory,
        _ => Path::new("."),
    };
    can_access(directory, FileAccess::CreateFiles)
}
