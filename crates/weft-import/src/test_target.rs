//! A target with the rules of `weft` that the tests of this crate need.

use std::path::Path;

use regex::bytes::RegexBuilder;
use weft_config::{ConfigLocation, Problem};

use crate::Target;

pub(crate) struct TestTarget;

impl Target for TestTarget {
    fn is_option(&self, _: &str) -> bool {
        false
    }

    fn placeholder(&self, variable: &str) -> Option<String> {
        match variable {
            "host" | "scheme" => Some(variable.to_owned()),
            "uri" => Some("path".to_owned()),
            "request_uri" => Some("uri".to_owned()),
            "args" => Some("query".to_owned()),
            "http_user_agent" => Some("header.user-agent".to_owned()),
            "arg_a" => Some("query.a".to_owned()),
            "cookie_b" => Some("cookie.b".to_owned()),
            _ => None,
        }
    }

    fn is_route_key(&self, key: &str) -> bool {
        let is_regex = |regex: &str| RegexBuilder::new(regex).unicode(false).build().is_ok();
        key.starts_with('/') || key.strip_prefix("~ ").is_some_and(is_regex)
    }

    fn matches(&self, regex: &str, text: &str) -> bool {
        let regex = RegexBuilder::new(regex).unicode(false).dot_matches_new_line(true).build();
        regex.is_ok_and(|regex| regex.is_match(text.as_bytes()))
    }

    fn check_password_file(&self, _: &Path) -> Result<(), String> {
        Ok(())
    }

    /// Reports each line with the word `INVALID`.
    fn problems(&self, text: &str) -> Vec<Problem> {
        let lines = text.lines().enumerate().filter(|(_, line)| line.contains("INVALID"));
        let problem = |(index, _): (usize, &str)| {
            let name = "weft.toml".into();
            let location = ConfigLocation::File { name, line: index + 1, column: 1 };
            Problem { location, message: "a word is invalid".to_owned() }
        };
        lines.map(problem).collect()
    }
}
