//! Variables of nginx → placeholders. Pure.

use crate::Target;

/// Variables whose meaning depends on the location.
#[derive(Clone)]
pub(super) struct Variables<'a> {
    /// The server that has the placeholders.
    pub(super) target: &'a dyn Target,
    /// First name of the server.
    pub(super) server_name: String,
    /// The location is a regular expression with the groups `$1` and so on.
    pub(super) has_groups: bool,
    /// The name of the server is a regular expression.
    pub(super) has_host_groups: bool,
    /// Names of groups in the regular expression of the location.
    pub(super) groups: Vec<String>,
    /// Names of groups in the regular expression of the server.
    pub(super) host_groups: Vec<String>,
    /// Values of `set`.
    pub(super) constants: Vec<(String, String)>,
    /// Names of variables that are maps of the result.
    pub(super) maps: Vec<String>,
    /// Names of `map`, each with the variable on which its value depends.
    pub(super) other_maps: Vec<(String, String)>,
}

/// Maximum depth of variables in the values of variables.
const MAX_DEPTH: usize = 8;

impl<'a> Variables<'a> {
    /// Returns the variables of maps.
    pub(super) fn of_maps(target: &'a dyn Target, maps: Vec<String>) -> Variables<'a> {
        Variables {
            target,
            server_name: String::new(),
            has_groups: false,
            has_host_groups: false,
            groups: Vec::new(),
            host_groups: Vec::new(),
            constants: Vec::new(),
            maps,
            other_maps: Vec::new(),
        }
    }

    /// Returns the variables with the groups of a regular expression.
    pub(super) fn with_groups(&self, regex: &str) -> Variables<'a> {
        Variables { has_groups: true, groups: group_names(regex), ..self.clone() }
    }

    /// Converts a text with variables to a template.
    ///
    /// # Errors
    /// The name of a variable without a placeholder.
    pub(super) fn template(&self, text: &str) -> Result<String, String> {
        // Path and query as one value have no question mark without a query.
        let text = text.replace("$uri$is_args$args", "$request_uri");
        let mut out = String::new();
        self.convert(&text, 0, &mut out)?;
        Ok(out)
    }

    /// Converts the value of a response field.
    ///
    /// # Errors
    /// The name of a variable without a placeholder.
    pub(super) fn response_template(&self, text: &str) -> Result<String, String> {
        let parts: Result<Vec<String>, String> =
            text.split("$upstream_addr").map(|part| self.template(part)).collect();
        parts.map(|parts| parts.join("{upstream}"))
    }

    /// Returns the text if it has no variables, except for constants.
    pub(super) fn literal(&self, text: &str) -> Option<String> {
        match text.contains('$') {
            false => Some(text.to_owned()),
            true => {
                let template = self.template(text).ok()?;
                (!template.contains('{')).then_some(template)
            }
        }
    }

    fn convert(&self, text: &str, depth: usize, out: &mut String) -> Result<(), String> {
        let mut rest = text;
        while let Some(at) = rest.find(['$', '{']) {
            out.push_str(&rest[..at]);
            let (c, behind) = rest[at..].split_at(1);
            if c == "{" {
                out.push_str("{{");
                rest = behind;
                continue;
            }
            let (name, behind) = split_name(behind);
            match name {
                // At the end of a regular expression, or before punctuation.
                "" => out.push('$'),
                name => self.push(name, depth, out)?,
            }
            rest = behind;
        }
        out.push_str(rest);
        Ok(())
    }

    fn push(&self, name: &str, depth: usize, out: &mut String) -> Result<(), String> {
        if let Some((_, value)) = self.constants.iter().find(|(known, _)| known == name) {
            if depth == MAX_DEPTH {
                return Err(self.unknown(name));
            }
            return self.convert(value, depth + 1, out);
        }
        let has = |names: &[String]| names.iter().any(|known| known == name);
        let is_number = name.bytes().all(|b| b.is_ascii_digit());
        let placeholder = match name {
            "is_args" => {
                out.push('?');
                return Ok(());
            }
            "server_name" => {
                out.push_str(&self.server_name);
                return Ok(());
            }
            _ if is_number && self.has_groups => format!("re.{name}"),
            _ if is_number && self.has_host_groups => format!("host.{name}"),
            _ if has(&self.groups) => format!("re.{name}"),
            _ if has(&self.host_groups) => format!("host.{name}"),
            _ if has(&self.maps) => format!("map.{name}"),
            // Only fields of responses can have it.
            "upstream_addr" => return Err(self.unknown(name)),
            name => self.target.placeholder(name).ok_or_else(|| self.unknown(name))?,
        };
        out.push_str(&format!("{{{placeholder}}}"));
        Ok(())
    }

    fn unknown(&self, name: &str) -> String {
        match self.other_maps.iter().find(|(known, _)| known == name) {
            Some((_, source)) => {
                format!("the value of ${name} depends on {source} by a `map` without an equivalent")
            }
            None => format!("the variable ${name} has no equivalent"),
        }
    }
}

/// Returns true for a variable with the address of the client.
pub(super) fn is_client_address(text: &str) -> bool {
    matches!(text, "$binary_remote_addr" | "$remote_addr")
}

/// Returns the name of a field as it is usually written.
pub(super) fn title_case(name: &str) -> String {
    let words = name.split('-').map(|word| match word.split_at_checked(1) {
        Some((first, rest)) => first.to_ascii_uppercase() + rest,
        None => String::new(),
    });
    words.collect::<Vec<_>>().join("-")
}

/// Splits the name of a variable behind its `$`.
pub(super) fn split_name(text: &str) -> (&str, &str) {
    if let Some((name, rest)) = text.strip_prefix('{').and_then(|text| text.split_once('}')) {
        return (name, rest);
    }
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let end = match text.starts_with(|c: char| c.is_ascii_digit()) {
        // A group has one digit: `$10` is `$1` and `0`.
        true => 1,
        false => text.find(|c| !is_name(c)).unwrap_or(text.len()),
    };
    text.split_at(end)
}

/// Returns the names of the groups in a regular expression.
pub(super) fn group_names(regex: &str) -> Vec<String> {
    let names = regex.split("(?").skip(1).filter_map(|rest| {
        let rest = rest.strip_prefix('P').unwrap_or(rest);
        let (name, _) = rest.strip_prefix('<')?.split_once('>')?;
        (!name.starts_with(['=', '!'])).then(|| name.to_owned())
    });
    names.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_target::TestTarget;

    fn none() -> Variables<'static> {
        Variables::of_maps(&TestTarget, vec!["pool".to_owned()])
    }

    #[test]
    fn converts_variables_to_placeholders() {
        let variables = Variables {
            server_name: "a.org".to_owned(),
            has_groups: true,
            groups: vec!["user".to_owned()],
            constants: vec![("x".to_owned(), "/x$host".to_owned())],
            ..none()
        };
        for (text, expected) in [
            ("", Ok("")),
            ("https://$host$request_uri", Ok("https://{host}{uri}")),
            ("https://${server_name}/a$is_args$args", Ok("https://a.org/a?{query}")),
            ("$scheme://b$uri$is_args$args", Ok("{scheme}://b{uri}")),
            ("/new/$1/$user$2", Ok("/new/{re.1}/{re.user}{re.2}")),
            ("a{b}$", Ok("a{{b}$")),
            ("$http_user_agent $arg_a $cookie_b", Ok("{header.user-agent} {query.a} {cookie.b}")),
            ("$x!", Ok("/x{host}!")),
            ("http://$pool", Ok("http://{map.pool}")),
            ("$upstream_addr", Err("the variable $upstream_addr has no equivalent".to_owned())),
        ] {
            assert_eq!(variables.template(text), expected.map(str::to_owned), "{text}");
        }
        let recursive =
            Variables { constants: vec![("a".to_owned(), "$a$a".to_owned())], ..none() };
        assert!(recursive.template("$a").is_err());
        assert_eq!(group_names("^(?<a>x)(?P<b>y)(?:z)(?<!w)"), ["a", "b"]);
    }
}
