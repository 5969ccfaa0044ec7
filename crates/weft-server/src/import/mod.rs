//! `weft import`: configurations of other servers → weft.toml.

#[cfg(test)]
mod tests; // imported configurations

use std::path::Path;

use weft_config::find;
use weft_import::Target;

use crate::base::password_file::PasswordFile;
use crate::options::option_keys;
use crate::route::RouteKey;
use crate::template::Pattern;
use crate::template::names::of_nginx;

/// Converts a configuration of nginx, with the files that it includes. Returns the result, and true
/// if no directive was lost.
///
/// # Errors
/// A message with file, line and column if it cannot be read or parsed.
pub(crate) fn import_nginx(path: &Path) -> Result<(String, bool), String> {
    let imported = weft_import::nginx(path, &Program)?;
    Ok((weft_import::NGINX_DIFFERENCES.to_owned() + &imported.text, imported.is_complete))
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
}
