//! Environment variables of scripts that the configuration sets.

use std::ffi::OsString;

/// Environment variable of a script.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ScriptVariable {
    /// Name of the variable.
    pub name: String,
    /// `None` to copy the variable from the server's environment, if it is set there.
    pub value: Option<String>,
}

impl ScriptVariable {
    /// Parses `NAME=VALUE`, or `NAME` for a variable of the server's environment.
    ///
    /// # Errors
    /// If the name is empty, or not a name of a variable.
    pub fn parse(text: &str) -> Result<ScriptVariable, String> {
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (text, None),
        };
        let is_name_byte = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
        let is_name =
            name.bytes().all(is_name_byte) && !name.starts_with(|c: char| c.is_ascii_digit());
        if name.is_empty() || !is_name || text.contains('\0') {
            return Err(format!("expected NAME=VALUE, or NAME to pass it on, found {text:?}"));
        }
        Ok(ScriptVariable { name: name.to_owned(), value })
    }

    /// Returns the values of variables. Those that are passed on from the server's environment are
    /// absent if they are not set there.
    pub fn resolve(variables: &[ScriptVariable]) -> Vec<(String, OsString)> {
        let variable = |ScriptVariable { name, value }: &ScriptVariable| {
            let value = value.as_ref().map(OsString::from).or_else(|| std::env::var_os(name));
            value.map(|value| (name.clone(), value))
        };
        variables.iter().filter_map(variable).collect()
    }
}

impl std::fmt::Display for ScriptVariable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.value {
            Some(value) => write!(f, "{}={value}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_and_displays_variables() {
        for (text, expected) in [
            ("A=b", Some(("A", Some("b")))),
            ("A_1=b=c ", Some(("A_1", Some("b=c ")))),
            ("A=", Some(("A", Some("")))),
            ("LANG", Some(("LANG", None))),
            ("", None),
            ("=b", None),
            ("1A=b", None),
            ("A B=c", None),
            ("A-B", None),
            ("A=b\0c", None),
        ] {
            let found = ScriptVariable::parse(text).ok();
            let parts = found.as_ref().map(|found| (&*found.name, found.value.as_deref()));
            assert_eq!(parts, expected, "{text:?}");
            assert_eq!(found.map(|found| found.to_string()), expected.map(|_| text.to_owned()));
        }
    }
}
