//! A configuration key: its type of value, and the function that stores the value.
//!
//! A key of a section is also a command-line option. Both front ends are in this module, so that
//! they accept the same values.

use std::ffi::{OsStr, OsString};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use super::access_log::{AccessLogConfig, read_logs};
use super::location::{ConfigLocation, ConfigResult, Located, Problem};
use super::log_target::LogTarget;
use super::units::{parse_size, parse_time};
use super::value::Value;

/// A key of a section. The values of the section are stored in a `T`.
pub(crate) struct Key<T: 'static> {
    pub(crate) name: &'static str,
    /// Name of the option, without its dashes.
    pub(crate) flag: &'static str,
    /// Placeholder of the option's argument in the help text. Empty for a switch.
    pub(crate) argument: &'static str,
    pub(crate) help: &'static str,
    pub(crate) kind: ValueKind<T>,
    /// Formats the value as in a file. Empty if there is no value.
    pub(crate) show: fn(&T) -> String,
}

/// Type of a key's value, with the function that stores it.
pub(crate) enum ValueKind<T> {
    Bool(fn(&mut T, bool)),
    Count(RangeInclusive<u64>, fn(&mut T, u64)),
    Size(RangeInclusive<u64>, fn(&mut T, u64)),
    Time(fn(&mut T, Duration)),
    Text(fn(&mut T, Located<String>) -> ConfigResult),
    Texts(fn(&mut T, Vec<Located<String>>) -> ConfigResult),
    Path(fn(&mut T, Located<PathBuf>)),
    /// One of the listed words, or a path.
    WordOrPath(&'static [&'static str], fn(&mut T, Located<WordOrPath>)),
    Choice(&'static [&'static str], fn(&mut T, &'static str)),
    /// `true`, `false` or a text.
    BoolOrText(fn(&mut T, Located<BoolOrText>) -> ConfigResult),
    /// `PATTERN=VALUE`; in a file also a table of these.
    Rules(fn(&mut T, Vec<Located<String>>) -> ConfigResult),
    /// `PATTERN=NAME: VALUE`; in a file also a table of these.
    Fields(fn(&mut T, Vec<Located<String>>) -> ConfigResult),
    /// A table of texts by text.
    Pairs(fn(&mut T, Vec<Pair>) -> ConfigResult),
    /// A boolean, or a table of texts by text.
    BoolOrPairs(fn(&mut T, BoolOrPairs) -> ConfigResult),
    /// The destination of a log.
    LogTarget(fn(&mut T, Located<LogTarget>) -> ConfigResult),
    /// Access logs of a route, in a file only.
    AccessLogs(fn(&mut T, Vec<AccessLogConfig>)),
    /// Certificates and their private keys, or `"auto"`.
    CertificatePairs(fn(&mut T, Certificates)),
}

/// Certificates of the listeners of `[tls]`.
#[derive(Debug)]
pub(crate) enum Certificates {
    /// Certificates that are ordered for the names of the hosts; also the default of listeners without
    /// certificates, if a host has a name.
    Automatic,
    Pairs(Vec<Located<CertificatePair>>),
}

impl Default for Certificates {
    fn default() -> Certificates {
        Certificates::Pairs(Vec::new())
    }
}

/// A keyword, or the path of a file. A file with the name of a keyword is written with a leading
/// `./`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum WordOrPath {
    Word(&'static str),
    Path(PathBuf),
}

/// A name in a table, and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pair {
    pub(crate) name: Located<String>,
    pub(crate) value: Located<String>,
    /// Directory against which a relative path is resolved.
    pub(crate) base: PathBuf,
}

pub(crate) enum BoolOrPairs {
    Bool(bool),
    Pairs(Vec<Pair>),
}

/// The value of [`ValueKind::BoolOrText`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BoolOrText {
    Bool(bool),
    Text(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CertificatePair {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

impl<T> Key<T> {
    pub(crate) fn is_switch(&self) -> bool {
        matches!(self.kind, ValueKind::Bool(_))
    }

    pub(crate) fn is_list(&self) -> bool {
        use ValueKind::{CertificatePairs, Fields, Pairs, Rules, Texts};
        matches!(self.kind, Texts(_) | Rules(_) | Fields(_) | Pairs(_) | CertificatePairs(_))
    }

    /// Sets the values that one or more files have for this key. Lists are joined; another key has
    /// one value. `name` is the first occurrence.
    pub(crate) fn set_values(
        &self,
        into: &mut T,
        name: &Located<String>,
        values: &[Value<'_>],
    ) -> ConfigResult {
        fn join<V>(
            values: &[Value<'_>],
            list: impl Fn(&Value<'_>) -> ConfigResult<Vec<V>>,
        ) -> ConfigResult<Vec<V>> {
            let lists = values.iter().map(list).collect::<ConfigResult<Vec<_>>>()?;
            Ok(lists.into_iter().flatten().collect())
        }
        match (&self.kind, values) {
            (_, [value]) => self.set_value(into, value)?,
            (ValueKind::Texts(set), _) => set(into, join(values, |value| value.texts())?)?,
            (ValueKind::Rules(set), _) => set(into, join(values, |value| value.rules())?)?,
            (ValueKind::Fields(set), _) => set(into, join(values, |value| value.fields())?)?,
            (ValueKind::Pairs(set), _) => set(into, join(values, |value| value.pairs())?)?,
            (ValueKind::CertificatePairs(set), _) => {
                let pairs = join(values, |value| value.certificate_pairs())?;
                set(into, Certificates::Pairs(pairs));
            }
            (_, [_, second, ..]) => {
                let first = name.location.relative_to(&second.location());
                return Err(second.problem(format!("`{}` is given twice{first}", self.name)));
            }
            (_, []) => {}
        }
        Ok(())
    }

    /// Sets the value from a file.
    pub(crate) fn set_value(&self, into: &mut T, value: &Value<'_>) -> ConfigResult {
        match &self.kind {
            ValueKind::Bool(set) => set(into, value.bool()?),
            ValueKind::Count(range, set) => set(into, value.number("a number", range)?),
            ValueKind::Size(range, set) => set(into, value.size(range)?),
            ValueKind::Time(set) => set(into, value.time()?),
            ValueKind::Text(set) => set(into, value.text()?)?,
            ValueKind::Texts(set) => set(into, value.texts()?)?,
            ValueKind::Path(set) => set(into, value.path()?),
            ValueKind::WordOrPath(words, set) => {
                let word = find_word(words, value.text()?.value.as_ref());
                let word = word.map(|word| value.at(WordOrPath::Word(word)));
                let path = || value.path().map(|path| path.map(WordOrPath::Path));
                set(into, word.map_or_else(path, Ok)?);
            }
            ValueKind::Choice(known, set) => {
                let text = value.text()?;
                set(into, choose(known, &text.value).map_err(|invalid| text.problem(invalid))?);
            }
            ValueKind::BoolOrText(set) => {
                let text = || value.text().map(|text| text.map(BoolOrText::Text));
                let bool = value.bool().map(|bool| value.at(BoolOrText::Bool(bool)));
                set(into, bool.or_else(|_| text())?)?;
            }
            ValueKind::Rules(set) => set(into, value.rules()?)?,
            ValueKind::Fields(set) => set(into, value.fields()?)?,
            ValueKind::Pairs(set) => set(into, value.pairs()?)?,
            ValueKind::BoolOrPairs(set) => set(into, value.bool_or_pairs()?)?,
            ValueKind::LogTarget(set) => {
                let known = LogTarget::parse(&value.text()?.value);
                let known = known.map_err(|message| value.problem(message))?;
                let file = || value.path().map(|path| LogTarget::File(path.value));
                set(into, value.at(known.map_or_else(file, Ok)?))?;
            }
            ValueKind::AccessLogs(set) => set(into, read_logs(value)?),
            ValueKind::CertificatePairs(set) => match value.text() {
                Ok(text) if text.value == "auto" => set(into, Certificates::Automatic),
                _ => set(into, Certificates::Pairs(value.certificate_pairs()?)),
            },
        }
        Ok(())
    }

    /// Sets the value from the command line. `arguments` has one item for each occurrence of the
    /// option. If the value is not a list, the last occurrence takes effect.
    pub(crate) fn set_arguments(
        &self,
        into: &mut T,
        option: &str,
        arguments: &[OsString],
    ) -> ConfigResult {
        let problem = |message| Problem { location: location(option), message };
        let last = || arguments.last().cloned().unwrap_or_default();
        let last_text = || to_text(&last()).map_err(problem);
        match &self.kind {
            ValueKind::Bool(set) => set(into, last() != "no"),
            ValueKind::Count(range, set) => {
                let text = last_text()?;
                let number = text.parse().ok().filter(|number| range.contains(number));
                set(into, number.ok_or_else(|| problem(expected_count(range, &text)))?);
            }
            ValueKind::Size(range, set) => {
                let size = parse_size(&last_text()?).and_then(|size| size_in(range, size));
                set(into, size.map_err(problem)?);
            }
            ValueKind::Time(set) => set(into, parse_time(&last_text()?).map_err(problem)?),
            ValueKind::Text(set) => set(into, at(option, last_text()?))?,
            ValueKind::Texts(set) | ValueKind::Rules(set) | ValueKind::Fields(set) => {
                let texts = arguments.iter().map(|word| to_text(word).map(|text| at(option, text)));
                set(into, texts.collect::<Result<_, _>>().map_err(problem)?)?;
            }
            ValueKind::Path(set) => set(into, at(option, last().into())),
            ValueKind::WordOrPath(words, set) => {
                let path = || WordOrPath::Path(last().into());
                set(
                    into,
                    at(option, find_word(words, &last()).map_or_else(path, WordOrPath::Word)),
                );
            }
            ValueKind::Choice(known, set) => {
                set(into, choose(known, &last_text()?).map_err(problem)?);
            }
            ValueKind::BoolOrPairs(set) => set(into, BoolOrPairs::Bool(last() != "no"))?,
            ValueKind::Pairs(set) => {
                let pairs = arguments.iter().map(|word| parse_pair(option, word));
                set(into, pairs.collect::<Result<_, _>>().map_err(problem)?)?;
            }
            ValueKind::BoolOrText(set) => {
                let value = match &*last_text()? {
                    "true" => BoolOrText::Bool(true),
                    "false" => BoolOrText::Bool(false),
                    text => BoolOrText::Text(text.to_owned()),
                };
                set(into, at(option, value))?;
            }
            ValueKind::LogTarget(set) => {
                let text = last();
                let known = text.to_str().map_or(Ok(None), LogTarget::parse);
                let target = known.map_err(problem)?.unwrap_or(LogTarget::File(text.into()));
                set(into, at(option, target))?;
            }
            ValueKind::AccessLogs(_) => unreachable!("access logs of routes have no option"),
            ValueKind::CertificatePairs(set) => {
                set(into, Certificates::Pairs(certificate_pairs(option, arguments)));
            }
        }
        Ok(())
    }
}

/// Parses `NAME=VALUE`, an argument of an option.
fn parse_pair(option: &str, word: &OsStr) -> Result<Pair, String> {
    let text = to_text(word)?;
    let (name, value) =
        text.split_once('=').ok_or_else(|| format!("expected NAME=VALUE, found {text:?}"))?;
    let [name, value] = [name, value].map(|text| at(option, text.to_owned()));
    Ok(Pair { name, value, base: PathBuf::new() })
}

/// Returns pairs of a certificate and a key, which alternate in the arguments of an option.
fn certificate_pairs(option: &str, arguments: &[OsString]) -> Vec<Located<CertificatePair>> {
    let pairs = arguments.chunks_exact(2).map(|pair| {
        let [certificate, key] = [0, 1].map(|index: usize| PathBuf::from(pair[index].clone()));
        at(option, CertificatePair { certificate, key })
    });
    pairs.collect()
}

fn location(option: &str) -> ConfigLocation {
    ConfigLocation::Option(option.to_owned())
}

fn at<V>(option: &str, value: V) -> Located<V> {
    Located { location: location(option), value }
}

fn to_text(word: &OsStr) -> Result<String, String> {
    word.to_str().map(str::to_owned).ok_or_else(|| format!("{word:?} is not valid UTF-8"))
}

fn find_word(words: &[&'static str], text: &OsStr) -> Option<&'static str> {
    words.iter().copied().find(|word| *word == text)
}

fn choose(known: &[&'static str], text: &str) -> Result<&'static str, String> {
    let found = known.iter().find(|choice| **choice == text);
    found.copied().ok_or_else(|| format!("expected {}, found {text:?}", known.join(" or ")))
}

pub(super) fn expected_count(range: &RangeInclusive<u64>, found: &str) -> String {
    let (min, max) = (range.start(), range.end());
    match *max >= u64::from(u32::MAX) {
        true => format!("expected a number of at least {min}, found {found:?}"),
        false => format!("expected a number from {min} to {max}, found {found:?}"),
    }
}

pub(super) fn size_in(range: &RangeInclusive<u64>, size: u64) -> Result<u64, String> {
    let (min, max) = (range.start(), range.end());
    match range.contains(&size) {
        true => Ok(size),
        false => Err(format!("expected a size from {min} to {max} bytes, found {size}")),
    }
}
