//! A value of the file, and what can be expected of it.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use super::key::{Pair, expected_count, size_in};
use super::place::{At, Checked, Place, Problem, Text};
use super::units::{parse_size, parse_time};

/// A value, the text that it stands in, and the folder in which its paths begin.
#[derive(Clone, Copy)]
pub(crate) struct Value<'a> {
    pub(crate) value: &'a Spanned<DeValue<'a>>,
    pub(crate) text: &'a Text,
    pub(crate) base: &'a Path,
}

/// The name of a value in its table.
pub(crate) type Name = At<String>;

impl<'a> Value<'a> {
    pub(crate) fn place(&self) -> Place {
        self.text.place(self.value.span())
    }

    pub(crate) fn problem(&self, message: impl Into<String>) -> Problem {
        Problem { place: self.place(), message: message.into() }
    }

    pub(super) fn at<T>(&self, value: T) -> At<T> {
        At { place: self.place(), value }
    }

    fn expected(&self, what: &str) -> Problem {
        let found = match self.value.get_ref() {
            DeValue::String(text) => format!("{text:?}"),
            DeValue::Integer(number) => format!("the number {number}"),
            DeValue::Float(number) => format!("the number {}", number.as_str()),
            DeValue::Boolean(switch) => switch.to_string(),
            DeValue::Datetime(date) => format!("the date {date}"),
            DeValue::Array(_) => "a list".to_owned(),
            DeValue::Table(_) => "a table".to_owned(),
        };
        self.problem(format!("expected {what}, found {found}"))
    }

    /// The text, if it is one.
    pub(crate) fn as_text(&self) -> Option<&'a str> {
        match self.value.get_ref() {
            DeValue::String(text) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn text(&self) -> Checked<At<String>> {
        let text = self.as_text().ok_or_else(|| self.expected("a text in quotes"))?;
        Ok(self.at(text.to_owned()))
    }

    pub(crate) fn switch(&self) -> Checked<bool> {
        match self.value.get_ref() {
            DeValue::Boolean(switch) => Ok(*switch),
            _ => Err(self.expected("true or false")),
        }
    }

    fn integer(&self) -> Option<u64> {
        match self.value.get_ref() {
            DeValue::Integer(n) => u64::from_str_radix(n.as_str(), n.radix()).ok(),
            _ => None,
        }
    }

    pub(crate) fn number(&self, what: &str, range: &RangeInclusive<u64>) -> Checked<u64> {
        let DeValue::Integer(written) = self.value.get_ref() else {
            return Err(self.expected(what));
        };
        let number = self.integer().filter(|number| range.contains(number));
        let wrong = || self.problem(expected_count(range, &written.to_string()).replace('"', ""));
        number.ok_or_else(wrong)
    }

    pub(crate) fn size(&self, range: &RangeInclusive<u64>) -> Checked<u64> {
        let size = match (self.integer(), self.as_text()) {
            (Some(bytes), _) => Ok(bytes),
            (None, Some(text)) => parse_size(text),
            (None, None) => return Err(self.expected("a size such as \"16MiB\"")),
        };
        size.and_then(|size| size_in(range, size)).map_err(|message| self.problem(message))
    }

    pub(crate) fn time(&self) -> Checked<Duration> {
        let example = "a time such as \"20s\", with its unit and in quotes";
        let text = self.as_text().ok_or_else(|| self.expected(example))?;
        parse_time(text).map_err(|message| self.problem(message))
    }

    /// A path; one that is relative begins in the folder of the file.
    pub(crate) fn path(&self) -> Checked<At<PathBuf>> {
        Ok(self.text()?.map(|path| self.base.join(path)))
    }

    /// A list of texts; one text is a list of one.
    pub(crate) fn texts(&self) -> Checked<Vec<At<String>>> {
        match self.value.get_ref() {
            DeValue::String(_) => Ok(vec![self.text()?]),
            DeValue::Array(_) => self.items()?.map(|item| item.text()).collect(),
            _ => Err(self.expected("a list of texts such as [\"a\", \"b\"]")),
        }
    }

    fn items(&self) -> Checked<impl Iterator<Item = Value<'a>> + use<'a>> {
        let Value { text, base, .. } = *self;
        match self.value.get_ref() {
            DeValue::Array(items) => Ok(items.iter().map(move |value| Value { value, text, base })),
            _ => Err(self.expected("a list")),
        }
    }

    /// What is in a table, in the order in which it was written.
    pub(crate) fn entries(&self) -> Checked<Vec<(Name, Value<'a>)>> {
        match self.value.get_ref() {
            DeValue::Table(table) => Ok(entries(table, self.text, self.base)),
            _ => Err(self.expected("a table")),
        }
    }

    /// Rules: texts, or a table of values by pattern.
    pub(crate) fn rules(&self) -> Checked<Vec<At<String>>> {
        if !matches!(self.value.get_ref(), DeValue::Table(_)) {
            return self.texts();
        }
        let rule = |(pattern, value): (Name, Value<'_>)| {
            Ok(value.text()?.map(|text| format!("{}={text}", as_pattern(&pattern.value))))
        };
        self.entries()?.into_iter().map(rule).collect()
    }

    /// Fields: texts, or a table of values by name, each of which may be one by pattern.
    pub(crate) fn fields(&self) -> Checked<Vec<At<String>>> {
        if !matches!(self.value.get_ref(), DeValue::Table(_)) {
            return self.texts();
        }
        let mut fields = Vec::new();
        for (name, value) in self.entries()? {
            let name = name.value;
            match value.value.get_ref() {
                DeValue::Table(_) => {
                    for (pattern, value) in value.entries()? {
                        let pattern = as_pattern(&pattern.value);
                        fields.push(value.text()?.map(|text| format!("{pattern}={name}: {text}")));
                    }
                }
                _ => fields.push(value.text()?.map(|text| format!("{name}: {text}"))),
            }
        }
        Ok(fields)
    }

    pub(crate) fn pairs(&self) -> Checked<Vec<At<Pair>>> {
        let expected = "a list of certificates such as [{ cert = \"a.pem\", key = \"b.pem\" }]";
        let items = self.items().map_err(|_| self.expected(expected))?;
        items.map(|item| item.pair().map(|pair| item.at(pair))).collect()
    }

    fn pair(&self) -> Checked<Pair> {
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
            (Some(certificate), Some(key)) => Ok(Pair { certificate, key }),
            (None, _) => Err(self.problem(format!("`cert` is missing; expected {expected}"))),
            (_, None) => Err(self.problem(format!("`key` is missing; expected {expected}"))),
        }
    }
}

/// What is in a table, in the order in which it was written.
pub(super) fn entries<'a>(
    table: &'a DeTable<'a>,
    text: &'a Text,
    base: &'a Path,
) -> Vec<(Name, Value<'a>)> {
    let mut entries: Vec<(&Spanned<DeString<'_>>, &Spanned<DeValue<'_>>)> = table.iter().collect();
    entries.sort_by_key(|(name, _)| name.span().start);
    let named = |name: &Spanned<DeString<'_>>| At {
        place: text.place(name.span()),
        value: name.get_ref().clone().into_owned(),
    };
    entries.into_iter().map(|(name, value)| (named(name), Value { value, text, base })).collect()
}

/// A pattern that is known as one where it stands before an equals sign.
fn as_pattern(pattern: &str) -> String {
    match pattern.contains(['*', '/', '.', '?', '[', '{']) {
        true => pattern.to_owned(),
        false => format!("{{{pattern}}}"),
    }
}
