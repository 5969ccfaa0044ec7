//! A TOML value, and its conversion to the type that a key expects.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use crate::environment;
use crate::location::{ConfigLocation, ConfigResult, ConfigText, Located, Problem};
use crate::units::{expected_count, parse_size, parse_time, size_in};

/// A value, the text of its file, and the directory against which its relative paths are resolved.
#[derive(Clone, Copy)]
pub struct Value<'a> {
    pub(crate) value: &'a Spanned<DeValue<'a>>,
    pub(crate) text: &'a ConfigText,
    pub(crate) base: &'a Path,
}

/// A keyword, or the path of a file. A file with the name of a keyword is written with a leading
/// `./`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum WordOrPath {
    /// One of the words of the key.
    Word(&'static str),
    /// Any other text.
    Path(PathBuf),
}

/// A name in a table, and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    /// The name.
    pub name: Located<String>,
    /// The value.
    pub value: Located<String>,
    /// Directory against which a relative path is resolved.
    pub base: PathBuf,
}

/// A boolean, or a table of texts by text.
pub enum BoolOrPairs {
    /// `true` or `false`.
    Bool(bool),
    /// The entries of a table.
    Pairs(Vec<Pair>),
}

/// A boolean, or a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BoolOrText {
    /// `true` or `false`.
    Bool(bool),
    /// Any other text.
    Text(String),
}

/// Name of a value in its table.
pub type Name = Located<String>;

/// Names of a table with their values.
pub type Entries<'a> = Vec<(Name, Value<'a>)>;

impl<'a> Value<'a> {
    /// Returns the directory against which relative paths are resolved.
    pub fn base(&self) -> &'a Path {
        self.base
    }

    /// Returns the location of the value.
    pub fn location(&self) -> ConfigLocation {
        self.text.location(self.value.span())
    }

    /// Returns a problem at the location of the value.
    pub fn problem(&self, message: impl Into<String>) -> Problem {
        Problem { location: self.location(), message: message.into() }
    }

    /// Gives `value` the location of this value.
    pub fn at<T>(&self, value: T) -> Located<T> {
        Located { location: self.location(), value }
    }

    /// Returns the problem that this is not the expected value.
    pub fn expected(&self, what: &str) -> Problem {
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
    pub fn as_text(&self) -> Option<&'a str> {
        match self.value.get_ref() {
            DeValue::String(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the value as a text.
    ///
    /// # Errors
    /// With another type of value.
    pub fn text(&self) -> ConfigResult<Located<String>> {
        let text = self.as_text().ok_or_else(|| self.expected("a text in quotes"))?;
        Ok(self.at(text.to_owned()))
    }

    /// Returns the string, if it has an environment variable: its value may be of any type.
    fn variable(&self) -> Option<&'a str> {
        let written = self.text.as_str().get(self.value.span()).unwrap_or_default();
        self.as_text().filter(|_| written.contains(environment::BEGIN))
    }

    /// Returns the value as a boolean.
    ///
    /// # Errors
    /// With another type of value.
    pub fn bool(&self) -> ConfigResult<bool> {
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

    /// Returns the value as a number in `range`. `what` is its name in messages, such as `a
    /// number`.
    ///
    /// # Errors
    /// With another type of value, or a number outside of `range`.
    pub fn number(&self, what: &str, range: &RangeInclusive<u64>) -> ConfigResult<u64> {
        let (number, written) = match (self.value.get_ref(), self.variable()) {
            (DeValue::Integer(written), _) => (self.integer(), written.to_string()),
            (_, Some(text)) => (text.parse().ok(), text.to_owned()),
            _ => return Err(self.expected(what)),
        };
        let number = number.filter(|number| range.contains(number));
        let invalid = || self.problem(expected_count(range, &written).replace('"', ""));
        number.ok_or_else(invalid)
    }

    /// Returns the value as a number of bytes in `range`: a number, or a text such as `16MiB`.
    ///
    /// # Errors
    /// With another type of value, or a size outside of `range`.
    pub fn size(&self, range: &RangeInclusive<u64>) -> ConfigResult<u64> {
        let size = match (self.integer(), self.as_text()) {
            (Some(bytes), _) => Ok(bytes),
            (None, Some(text)) => parse_size(text),
            (None, None) => return Err(self.expected("a size such as \"16MiB\"")),
        };
        size.and_then(|size| size_in(range, size)).map_err(|message| self.problem(message))
    }

    /// Returns the value as a duration: a text such as `20s`, or `never`.
    ///
    /// # Errors
    /// With another type of value, or without a unit.
    pub fn time(&self) -> ConfigResult<Duration> {
        let example = "a time such as \"20s\", with its unit and in quotes";
        let text = self.as_text().ok_or_else(|| self.expected(example))?;
        parse_time(text).map_err(|message| self.problem(message))
    }

    /// Returns the value as a path. A relative path is resolved against the directory of the file.
    ///
    /// # Errors
    /// With another type of value.
    pub fn path(&self) -> ConfigResult<Located<PathBuf>> {
        Ok(self.text()?.map(|path| self.base.join(path)))
    }

    /// Returns the value as a list of strings. A single string is a list of one.
    ///
    /// # Errors
    /// With another type of value.
    pub fn texts(&self) -> ConfigResult<Vec<Located<String>>> {
        match self.value.get_ref() {
            DeValue::String(_) => Ok(vec![self.text()?]),
            DeValue::Array(_) => self.items()?.map(|item| item.text()).collect(),
            _ => Err(self.expected("a list of texts such as [\"a\", \"b\"]")),
        }
    }

    /// Returns the items of a list.
    ///
    /// # Errors
    /// With another type of value.
    pub fn items(&self) -> ConfigResult<impl Iterator<Item = Value<'a>> + use<'a>> {
        let Value { text, base, .. } = *self;
        match self.value.get_ref() {
            DeValue::Array(items) => Ok(items.iter().map(move |value| Value { value, text, base })),
            _ => Err(self.expected("a list")),
        }
    }

    /// Returns the entries of a table in the order of the file.
    ///
    /// # Errors
    /// With another type of value.
    pub fn entries(&self) -> ConfigResult<Entries<'a>> {
        match self.value.get_ref() {
            DeValue::Table(table) => Ok(entries(table, self.text, self.base)),
            _ => Err(self.expected("a table")),
        }
    }

    /// Returns rules: a list of strings, or a table of values by pattern.
    ///
    /// # Errors
    /// With another type of value.
    pub fn rules(&self) -> ConfigResult<Vec<Located<String>>> {
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
    ///
    /// # Errors
    /// With another type of value.
    pub fn fields(&self) -> ConfigResult<Vec<Located<String>>> {
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
    ///
    /// # Errors
    /// With another type of value.
    pub fn pairs(&self) -> ConfigResult<Vec<Pair>> {
        let expected = |_| self.expected("a table such as { \"a\" = \"b\" }");
        let entries = self.entries().map_err(expected)?.into_iter();
        let pair = |(name, value): (Name, Value<'_>)| {
            Ok(Pair { name, value: value.text()?, base: value.base.to_owned() })
        };
        entries.map(pair).collect()
    }

    /// Returns the value as a boolean, or as the entries of a table of texts.
    ///
    /// # Errors
    /// With another type of value.
    pub fn bool_or_pairs(&self) -> ConfigResult<BoolOrPairs> {
        match self.value.get_ref() {
            DeValue::Table(_) => self.pairs().map(BoolOrPairs::Pairs),
            _ => self.bool().map(BoolOrPairs::Bool),
        }
    }
}

/// Returns the entries of a table in the order of the file.
pub(crate) fn entries<'a>(
    table: &'a DeTable<'a>,
    text: &'a ConfigText,
    base: &'a Path,
) -> Entries<'a> {
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
