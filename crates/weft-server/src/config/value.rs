//! A TOML value, and its conversion to the type that a key expects.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use super::environment;
use super::key::{BoolOrPairs, CertificatePair, Pair};
use super::location::{ConfigLocation, ConfigResult, ConfigText, Located, Problem};
use super::units::{expected_count, parse_size, parse_time, size_in};

/// A value, the text of its file, and the directory against which its relative paths are resolved.
#[derive(Clone, Copy)]
pub(crate) struct Value<'a> {
    pub(crate) value: &'a Spanned<DeValue<'a>>,
    pub(crate) text: &'a ConfigText,
    pub(crate) base: &'a Path,
}

/// Name of a value in its table.
pub(crate) type Name = Located<String>;

impl<'a> Value<'a> {
    pub(crate) fn location(&self) -> ConfigLocation {
        self.text.location(self.value.span())
    }

    pub(crate) fn problem(&self, message: impl Into<String>) -> Problem {
        Problem { location: self.location(), message: message.into() }
    }

    pub(super) fn at<T>(&self, value: T) -> Located<T> {
        Located { location: self.location(), value }
    }

    fn expected(&self, what: &str) -> Problem {
        let found = match self.value.get_ref() {
            DeValue::String(text) => format!("{text:?}"),
            DeValue::Integer(number) => format!("the number {number}"),
            DeValue::Float(number) => format!("the number {}", number.as_str()),
            DeValue::Boolean(bool) => bool.to_string(),
            DeValue::Datetime(date) => format!("the date {date}"),
            DeValue::Array(_) => "a list".to_owned(),
            DeValue::Table(_) => "a table".to_owned(),
        };
        self.problem(format!("expected {what}, found {found}"))
    }

    /// Returns the string, if the value is one.
    pub(crate) fn as_text(&self) -> Option<&'a str> {
        match self.value.get_ref() {
            DeValue::String(text) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn text(&self) -> ConfigResult<Located<String>> {
        let text = self.as_text().ok_or_else(|| self.expected("a text in quotes"))?;
        Ok(self.at(text.to_owned()))
    }

    /// Returns the string, if it has an environment variable, whose value may be any type.
    fn variable(&self) -> Option<&'a str> {
        let written = self.text.as_str().get(self.value.span()).unwrap_or_default();
        self.as_text().filter(|_| written.contains(environment::BEGIN))
    }

    pub(crate) fn bool(&self) -> ConfigResult<bool> {
        match (self.value.get_ref(), self.variable()) {
            (DeValue::Boolean(bool), _) => Ok(*bool),
            (_, Some("true")) => Ok(true),
            (_, Some("false")) => Ok(false),
            _ => Err(self.expected("true or false")),
        }
    }

    fn integer(&self) -> Option<u64> {
        match self.value.get_ref() {
            DeValue::Integer(n) => u64::from_str_radix(n.as_str(), n.radix()).ok(),
            _ => None,
        }
    }

    pub(crate) fn number(&self, what: &str, range: &RangeInclusive<u64>) -> ConfigResult<u64> {
        let (number, written) = match (self.value.get_ref(), self.variable()) {
            (DeValue::Integer(written), _) => (self.integer(), written.to_string()),
            (_, Some(text)) => (text.parse().ok(), text.to_owned()),
            _ => return Err(self.expected(what)),
        };
        let number = number.filter(|number| range.contains(number));
        let invalid = || self.problem(expected_count(range, &written).replace('"', ""));
        number.ok_or_else(invalid)
    }

    pub(crate) fn size(&self, range: &RangeInclusive<u64>) -> ConfigResult<u64> {
        let size = match (self.integer(), self.as_text()) {
            (Some(bytes), _) => Ok(bytes),
            (None, Some(text)) => parse_size(text),
            (None, None) => return Err(self.expected("a size such as \"16MiB\"")),
        };
        size.and_then(|size| size_in(range, size)).map_err(|message| self.problem(message))
    }

    pub(crate) fn time(&self) -> ConfigResult<Duration> {
        let example = "a time such as \"20s\", with its unit and in quotes";
        let text = self.as_text().ok_or_else(|| self.expected(example))?;
        parse_time(text).map_err(|message| self.problem(message))
    }

    /// Returns the value as a path. A relative path is resolved against the directory of the file.
    pub(crate) fn path(&self) -> ConfigResult<Located<PathBuf>> {
        Ok(self.text()?.map(|path| self.base.join(path)))
    }

    /// Returns the value as a list of strings. A single string is a list of one.
    pub(crate) fn texts(&self) -> ConfigResult<Vec<Located<String>>> {
        match self.value.get_ref() {
            DeValue::String(_) => Ok(vec![self.text()?]),
            DeValue::Array(_) => self.items()?.map(|item| item.text()).collect(),
            _ => Err(self.expected("a list of texts such as [\"a\", \"b\"]")),
        }
    }

    pub(crate) fn items(&self) -> ConfigResult<impl Iterator<Item = Value<'a>> + use<'a>> {
        let Value { text, base, .. } = *self;
        match self.value.get_ref() {
            DeValue::Array(items) => Ok(items.iter().map(move |value| Value { value, text, base })),
            _ => Err(self.expected("a list")),
        }
    }

    /// Returns the entries of a table in the order of the file.
    pub(crate) fn entries(&self) -> ConfigResult<Vec<(Name, Value<'a>)>> {
        match self.value.get_ref() {
            DeValue::Table(table) => Ok(entries(table, self.text, self.base)),
            _ => Err(self.expected("a table")),
        }
    }

    /// Returns rules: a list of strings, or a table of values by pattern.
    pub(crate) fn rules(&self) -> ConfigResult<Vec<Located<String>>> {
        if !matches!(self.value.get_ref(), DeValue::Table(_)) {
            return self.texts();
        }
        let rule = |(pattern, value): (Name, Value<'_>)| {
            Ok(value.text()?.map(|text| format!("{}={text}", to_pattern(&pattern.value))))
        };
        self.entries()?.into_iter().map(rule).collect()
    }

    /// Returns header fields: a list of strings, or a table of values by name. Each value may be a
    /// table of values by pattern.
    pub(crate) fn fields(&self) -> ConfigResult<Vec<Located<String>>> {
        if !matches!(self.value.get_ref(), DeValue::Table(_)) {
            return self.texts();
        }
        let mut fields = Vec::new();
        for (name, value) in self.entries()? {
            let name = name.value;
            match value.value.get_ref() {
                DeValue::Table(_) => {
                    for (pattern, value) in value.entries()? {
                        let pattern = to_pattern(&pattern.value);
                        fields.push(value.text()?.map(|text| format!("{pattern}={name}: {text}")));
                    }
                }
                _ => fields.push(value.text()?.map(|text| format!("{name}: {text}"))),
            }
        }
        Ok(fields)
    }

    /// Returns the entries of a table of texts.
    pub(crate) fn pairs(&self) -> ConfigResult<Vec<Pair>> {
        let expected = |_| self.expected("a table such as { \"a\" = \"b\" }");
        let entries = self.entries().map_err(expected)?.into_iter();
        let pair = |(name, value): (Name, Value<'_>)| {
            Ok(Pair { name, value: value.text()?, base: value.base.to_owned() })
        };
        entries.map(pair).collect()
    }

    pub(crate) fn bool_or_pairs(&self) -> ConfigResult<BoolOrPairs> {
        match self.value.get_ref() {
            DeValue::Table(_) => self.pairs().map(BoolOrPairs::Pairs),
            _ => self.bool().map(BoolOrPairs::Bool),
        }
    }

    pub(crate) fn certificate_pairs(&self) -> ConfigResult<Vec<Located<CertificatePair>>> {
        let expected =
            "\"auto\", or a list of certificates such as [{ cert = \"a.pem\", key = \"b.pem\" }]";
        let items = self.items().map_err(|_| self.expected(expected))?;
        items.map(|item| item.certificate_pair().map(|pair| item.at(pair))).collect()
    }

    fn certificate_pair(&self) -> ConfigResult<CertificatePair> {
        let expected = "{ cert = \"FILE\", key = \"FILE\" }";
        let (mut cert, mut key) = (None, None);
        for (name, value) in self.entries().map_err(|_| self.expected(expected))? {
            match &*name.value {
                "cert" => cert = Some(value.path()?.value),
                "key" => key = Some(value.path()?.value),
                other => {
                    return Err(name.problem(format!("unknown key `{other}`; expected {expected}")));
                }
            }
        }
        match (cert, key) {
            (Some(certificate), Some(key)) => Ok(CertificatePair { certificate, key }),
            (None, _) => Err(self.problem(format!("`cert` is missing; expected {expected}"))),
            (_, None) => Err(self.problem(format!("`key` is missing; expected {expected}"))),
        }
    }
}

/// Returns the entries of a table in the order of the file.
pub(super) fn entries<'a>(
    table: &'a DeTable<'a>,
    text: &'a ConfigText,
    base: &'a Path,
) -> Vec<(Name, Value<'a>)> {
    let mut entries: Vec<(&Spanned<DeString<'_>>, &Spanned<DeValue<'_>>)> = table.iter().collect();
    entries.sort_by_key(|(name, _)| name.span().start);
    let named = |name: &Spanned<DeString<'_>>| Located {
        location: text.location(name.span()),
        value: name.get_ref().clone().into_owned(),
    };
    entries.into_iter().map(|(name, value)| (named(name), Value { value, text, base })).collect()
}

/// Marks the text as a pattern, so that it is recognized before an equals sign. A text without
/// pattern characters is enclosed in braces.
fn to_pattern(pattern: &str) -> String {
    match pattern.contains(['*', '/', '.', '?', '[', '{']) {
        true => pattern.to_owned(),
        false => format!("{{{pattern}}}"),
    }
}
