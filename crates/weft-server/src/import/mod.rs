//! `weft import`: configurations of other servers → weft.toml.

mod source; // a configuration of another server
#[cfg(test)]
mod tests; // imported configurations

use std::io::{self, Write as _};
use std::path::Path;

use weft_config::{Problem, Sources, find};
use weft_import::Target;

pub(crate) use self::source::{Source, SourceKind};
use crate::base::password_file::PasswordFile;
use crate::base::sys::create_file_with_mode;
use crate::config::{Config, Plan};
use crate::options::option_keys;
use crate::route::RouteKey;
use crate::template::Pattern;
use crate::template::names::of_nginx;

/// Converts the configuration of another server, with the files that it includes. Returns the
/// result, and true if no directive was lost.
///
/// # Errors
/// A message with file and line if it cannot be read or parsed.
pub(crate) fn import(source: &Source) -> Result<(String, bool), String> {
    let (differences, imported) = match source.kind {
        SourceKind::Nginx => {
            (weft_import::NGINX_DIFFERENCES, weft_import::nginx(&source.path, &Program)?)
        }
        SourceKind::Caddy => {
            let users = source.users.as_deref();
            let (imported, files) = weft_import::caddy(&source.path, users, &Program)?;
            for (path, text) in files {
                write_users(&path, &text)
                    .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
            }
            (weft_import::CADDY_DIFFERENCES, imported)
        }
    };
    Ok((differences.to_owned() + &imported.text, imported.is_complete))
}

/// Writes a file of users, which only its owner may read. A file with other contents is kept.
fn write_users(path: &Path, text: &str) -> io::Result<()> {
    if std::fs::read(path).is_ok_and(|known| known == text.as_bytes()) {
        return Ok(());
    }
    create_file_with_mode(path, 0o600)?.write_all(text.as_bytes())
}

/// The rules of this program.
struct Program;

impl Target for Program {
    fn is_option(&self, key: &str) -> bool {
        find(option_keys(), key).is_some()
    }

    fn placeholder(&self, variable: &str) -> Option<String> {
        of_nginx(variable)
    }

    fn is_route_key(&self, key: &str) -> bool {
        RouteKey::parse(key).is_ok()
    }

    fn matches(&self, regex: &str, text: &str) -> bool {
        Pattern::parse(regex).is_ok_and(|pattern| pattern.matches(text.as_bytes()))
    }

    fn check_password_file(&self, path: &Path) -> Result<(), String> {
        PasswordFile::open(path).map(drop)
    }

    fn problems(&self, text: &str) -> Vec<Problem> {
        let config = Config::parse(&Sources::of_text("weft.toml", text.to_owned(), Path::new("/")));
        // A plan without the routes of these lines would have further problems.
        match config.problems.is_empty() {
            true => Plan::new(config).err().unwrap_or_default(),
            false => config.problems,
        }
    }
}
