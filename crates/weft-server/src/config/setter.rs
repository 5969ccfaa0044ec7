//! The means to store the value of a key, and the functions that read the value from files and from the command line.

use std::ffi::{OsStr, OsString};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use super::access_log::{AccessLogConfig, read_logs};
use super::key::{BoolOrPairs, BoolOrText, CertificatePair, Certificates, Pair, WordOrPath};
use super::location::{ConfigLocation, ConfigResult, Located, Problem};
use super::log_target::LogTarget;
use super::units::{expected_count, parse_size, parse_time, size_in};
use super::value::Value;

/// A function that stores a value.
type Store<'a, V> = &'a mut dyn FnMut(V) -> ConfigResult;

/// A [`ValueKind`](super::key::ValueKind) with the section that stores the value.
pub(super) enum Setter<'a> {
    Bool(Store<'a, bool>),
    Count(&'a RangeInclusive<u64>, Store<'a, u64>),
    Size(&'a RangeInclusive<u64>, Store<'a, u64>),
    Time(Store<'a, Duration>),
    Text(Store<'a, Located<String>>),
    Texts(Store<'a, Vec<Located<String>>>),
    Path(Store<'a, Located<PathBuf>>),
    WordOrPath(&'static [&'static str], Store<'a, Located<WordOrPath>>),
    Choice(&'static [&'static str], Store<'a, &'static str>),
    BoolOrText(Store<'a, Located<BoolOrText>>),
    Rules(Store<'a, Vec<Located<String>>>),
    Fields(Store<'a, Vec<Located<String>>>),
    Pairs(Store<'a, Vec<Pair>>),
    BoolOrPairs(Store<'a, BoolOrPairs>),
    LogTarget(Store<'a, Located<LogTarget>>),
    AccessLogs(Store<'a, Vec<AccessLogConfig>>),
    CertificatePairs(Store<'a, Certificates>),
}

impl Setter<'_> {
    /// Sets the values that one or more files have for this key. Lists are joined; another key has
    /// one value. `name` is the first occurrence.
    pub(super) fn set_values(self, name: &Located<String>, values: &[Value<'_>]) -> ConfigResult {
        fn join<V>(
            values: &[Value<'_>],
            list: impl Fn(&Value<'_>) -> ConfigResult<Vec<V>>,
        ) -> ConfigResult<Vec<V>> {
            let lists = values.iter().map(list).collect::<ConfigResult<Vec<_>>>()?;
            Ok(lists.into_iter().flatten().collect())
        }
        match (self, values) {
            (setter, [value]) => setter.set_value(value),
            (Setter::Texts(set), _) => set(join(values, |value| value.texts())?),
            (Setter::Rules(set), _) => set(join(values, |value| value.rules())?),
            (Setter::Fields(set), _) => set(join(values, |value| value.fields())?),
            (Setter::Pairs(set), _) => set(join(values, |value| value.pairs())?),
            (Setter::CertificatePairs(set), _) => {
                set(Certificates::Pairs(join(values, |value| value.certificate_pairs())?))
            }
            (_, [_, second, ..]) => {
                let first = name.location.relative_to(&second.location());
                Err(second.problem(format!("`{}` is given twice{first}", name.value)))
            }
            (_, []) => Ok(()),
        }
    }

    /// Sets the value from a file.
    pub(super) fn set_value(self, value: &Value<'_>) -> ConfigResult {
        match self {
            Setter::Bool(set) => set(value.bool()?),
            Setter::Count(range, set) => set(value.number("a number", range)?),
            Setter::Size(range, set) => set(value.size(range)?),
            Setter::Time(set) => set(value.time()?),
            Setter::Text(set) => set(value.text()?),
            Setter::Texts(set) => set(value.texts()?),
            Setter::Path(set) => set(value.path()?),
            Setter::WordOrPath(words, set) => {
                let word = find_word(words, value.text()?.value.as_ref());
                let word = word.map(|word| value.at(WordOrPath::Word(word)));
                let path = || value.path().map(|path| path.map(WordOrPath::Path));
                set(word.map_or_else(path, Ok)?)
            }
            Setter::Choice(known, set) => {
                let text = value.text()?;
                set(choose(known, &text.value).map_err(|invalid| text.problem(invalid))?)
            }
            Setter::BoolOrText(set) => {
                let text = || value.text().map(|text| text.map(BoolOrText::Text));
                let bool = value.bool().map(|bool| value.at(BoolOrText::Bool(bool)));
                set(bool.or_else(|_| text())?)
            }
            Setter::Rules(set) => set(value.rules()?),
            Setter::Fields(set) => set(value.fields()?),
            Setter::Pairs(set) => set(value.pairs()?),
            Setter::BoolOrPairs(set) => set(value.bool_or_pairs()?),
            Setter::LogTarget(set) => {
                let known = LogTarget::parse(&value.text()?.value);
                let known = known.map_err(|message| value.problem(message))?;
                let file = || value.path().map(|path| LogTarget::File(path.value));
                set(value.at(known.map_or_else(file, Ok)?))
            }
            Setter::AccessLogs(set) => set(read_logs(value)?),
            Setter::CertificatePairs(set) => match value.text() {
                Ok(text) if text.value == "auto" => set(Certificates::Automatic),
                _ => set(Certificates::Pairs(value.certificate_pairs()?)),
            },
        }
    }

    /// Sets the value from the command line. `arguments` has one item for each occurrence of the
    /// option. If the value is not a list, the last occurrence takes effect.
    pub(super) fn set_arguments(self, option: &str, arguments: &[OsString]) -> ConfigResult {
        let problem = |message| Problem { location: location(option), message };
        let last = || arguments.last().cloned().unwrap_or_default();
        let last_text = || to_text(&last()).map_err(problem);
        match self {
            Setter::Bool(set) => set(last() != "no"),
            Setter::Count(range, set) => {
                let text = last_text()?;
                let number = text.parse().ok().filter(|number| range.contains(number));
                set(number.ok_or_else(|| problem(expected_count(range, &text)))?)
            }
            Setter::Size(range, set) => {
                let size = parse_size(&last_text()?).and_then(|size| size_in(range, size));
                set(size.map_err(problem)?)
            }
            Setter::Time(set) => set(parse_time(&last_text()?).map_err(problem)?),
            Setter::Text(set) => set(at(option, last_text()?)),
            Setter::Texts(set) | Setter::Rules(set) | Setter::Fields(set) => {
                let texts = arguments.iter().map(|word| to_text(word).map(|text| at(option, text)));
                set(texts.collect::<Result<_, _>>().map_err(problem)?)
            }
            Setter::Path(set) => set(at(option, last().into())),
            Setter::WordOrPath(words, set) => {
                let path = || WordOrPath::Path(last().into());
                set(at(option, find_word(words, &last()).map_or_else(path, WordOrPath::Word)))
            }
            Setter::Choice(known, set) => set(choose(known, &last_text()?).map_err(problem)?),
            Setter::BoolOrPairs(set) => set(BoolOrPairs::Bool(last() != "no")),
            Setter::Pairs(set) => {
                let pairs = arguments.iter().map(|word| parse_pair(option, word));
                set(pairs.collect::<Result<_, _>>().map_err(problem)?)
            }
            Setter::BoolOrText(set) => {
                let value = match &*last_text()? {
                    "true" => BoolOrText::Bool(true),
                    "false" => BoolOrText::Bool(false),
                    text => BoolOrText::Text(text.to_owned()),
                };
                set(at(option, value))
            }
            Setter::LogTarget(set) => {
                let text = last();
                let known = text.to_str().map_or(Ok(None), LogTarget::parse);
                let target = known.map_err(problem)?.unwrap_or(LogTarget::File(text.into()));
                set(at(option, target))
            }
            Setter::AccessLogs(_) => unreachable!("access logs of routes have no option"),
            Setter::CertificatePairs(set) => {
                set(Certificates::Pairs(certificate_pairs(option, arguments)))
            }
        }
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
