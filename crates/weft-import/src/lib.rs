//! Configurations of other servers, converted to the configuration of the web server `weft`.
//!
//! [`nginx`] reads an `nginx.conf` with the files that it includes, and [`caddy`] a Caddyfile. The
//! result is a text in the layout of `weft fmt`. Each directive that has no equivalent becomes a
//! comment with its file and line, at the place to which it applied. A location that cannot be
//! carried over becomes a route that refuses requests, so that its paths do not reach another
//! route. So does a route with values that the program would not accept.
//!
//! Some values depend on rules of the program that reads the result. The program states them as a
//! [`Target`]:
//!
//! ```
//! use std::path::Path;
//!
//! use weft_import::Target;
//!
//! struct MyServer;
//!
//! impl Target for MyServer {
//!     fn is_option(&self, key: &str) -> bool {
//!         key == "compress"
//!     }
//!     fn placeholder(&self, variable: &str) -> Option<String> {
//!         (variable == "host").then(|| "host".to_owned())
//!     }
//!     fn is_route_key(&self, key: &str) -> bool {
//!         key.starts_with('/')
//!     }
//!     fn matches(&self, _regex: &str, _text: &str) -> bool {
//!         false
//!     }
//!     fn check_password_file(&self, _path: &Path) -> Result<(), String> {
//!         Ok(())
//!     }
//!     fn problems(&self, _text: &str) -> Vec<weft_config::Problem> {
//!         Vec::new()
//!     }
//! }
//!
//! let folder = tempfile::tempdir().unwrap();
//! let path = folder.path().join("nginx.conf");
//! std::fs::write(&path, "server { listen 80; root /srv/www; gzip off; }").unwrap();
//! let imported = weft_import::nginx(&path, &MyServer).unwrap();
//! assert!(imported.text.contains("compress = false\n\"/\" = \"-> /srv/www\"\n"));
//! assert!(imported.is_complete);
//! ```

mod document; // a configuration file that is being composed
mod listeners; // addresses of hosts
mod regex; // regular expressions
mod nested_regex; // expressions within a prefix
mod values; // sizes and times
mod validity; // routes that the target does not accept
mod hoist; // options that routes and hosts have in common
mod nginx; // nginx.conf
mod caddy; // Caddyfile
#[cfg(test)]
mod test_target; // a target for the tests

use std::path::Path;

use weft_config::Problem;

pub use caddy::{DIFFERENCES as CADDY_DIFFERENCES, UserFiles, import as caddy};
pub use nginx::{DIFFERENCES as NGINX_DIFFERENCES, import as nginx};

/// The program that reads the imported text: values of the text that depend on its rules.
pub trait Target {
    /// Returns true for a key of routes that hosts and `[defaults]` may have, too.
    fn is_option(&self, key: &str) -> bool;

    /// Returns the name of the placeholder for a variable of nginx, without its `$`; `None` if the
    /// variable has no equivalent.
    fn placeholder(&self, variable: &str) -> Option<String>;

    /// Returns true for a valid key of a route, such as `/prefix` or `~ REGEX`.
    fn is_route_key(&self, key: &str) -> bool;

    /// Returns true if the regular expression is valid and matches the text.
    fn matches(&self, regex: &str, text: &str) -> bool;

    /// Checks a file of users and hashed passwords.
    ///
    /// # Errors
    /// The reason that the program would not start with the file.
    fn check_password_file(&self, path: &Path) -> Result<(), String>;

    /// Returns the problems of a configuration, with their lines. The program would not start with
    /// it, whether files that it names exist or not.
    fn problems(&self, text: &str) -> Vec<Problem>;
}

/// An imported configuration.
#[derive(Debug)]
pub struct Imported {
    /// Content of the configuration file.
    pub text: String,
    /// Each directive has an equivalent.
    pub is_complete: bool,
}
