//! A key of the file, which is an option of the command line too: what it takes, and what
//! becomes of that. Both front ends are here, so that neither knows more than the other.

use std::ffi::{OsStr, OsString};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use super::place::{At, Checked, Place, Problem};
use super::units::{parse_size, parse_time};
use super::value::Value;

/// A key of a section, whose values are kept in a `T`.
pub(crate) struct Key<T: 'static> {
    pub(crate) name: &'static str,
    /// The option without its dashes.
    pub(crate) flag: &'static str,
    /// What the option's argument is called in the help; a switch has none.
    pub(crate) argument: &'static str,
    pub(crate) help: &'static str,
    pub(crate) takes: Takes<T>,
    /// The value as it stands in a file; empty if there is none.
    pub(crate) show: fn(&T) -> String,
}

/// What a key takes, and what sets it.
pub(crate) enum Takes<T> {
    Switch(fn(&mut T, bool)),
    Count(RangeInclusive<u64>, fn(&mut T, u64)),
    Size(RangeInclusive<u64>, fn(&mut T, u64)),
    Time(fn(&mut T, Duration)),
    Text(fn(&mut T, At<String>) -> Checked),
    Texts(fn(&mut T, Vec<At<String>>) -> Checked),
    Path(fn(&mut T, At<PathBuf>)),
    /// One of some words, or a path.
    WordOrPath(&'static [&'static str], fn(&mut T, At<WordOrPath>)),
    Choice(&'static [&'static str], fn(&mut T, &'static str)),
    /// `PATTERN=VALUE`; in a file also a table of such.
    Rules(fn(&mut T, Vec<At<String>>) -> Checked),
    /// `PATTERN=NAME: VALUE`; in a file also a table of such.
    Fields(fn(&mut T, Vec<At<String>>) -> Checked),
    /// Certificates and their keys.
    Pairs(fn(&mut T, Vec<At<Pair>>)),
}

/// A word that means something, or the path of a file, which `./` keeps from being a word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WordOrPath {
    Word(&'static str),
    Path(PathBuf),
}

#[derive(Clone, Debug)]
pub(crate) struct Pair {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

impl<T> Key<T> {
    pub(crate) fn is_switch(&self) -> bool {
        matches!(self.takes, Takes::Switch(_))
    }

    pub(crate) fn is_list(&self) -> bool {
        use Takes::{Fields, Pairs, Rules, Texts};
        matches!(self.takes, Texts(_) | Rules(_) | Fields(_) | Pairs(_))
    }

    /// Sets what a file says.
    pub(crate) fn set_value(&self, into: &mut T, value: &Value<'_>) -> Checked {
        match &self.takes {
            Takes::Switch(set) => set(into, value.switch()?),
            Takes::Count(range, set) => set(into, value.number("a number", range)?),
            Takes::Size(range, set) => set(into, value.size(range)?),
            Takes::Time(set) => set(into, value.time()?),
            Takes::Text(set) => set(into, value.text()?)?,
            Takes::Texts(set) => set(into, value.texts()?)?,
            Takes::Path(set) => set(into, value.path()?),
            Takes::WordOrPath(words, set) => {
                let word = word(words, value.text()?.value.as_ref());
                let word = word.map(|word| value.at(WordOrPath::Word(word)));
                let path = || value.path().map(|path| path.map(WordOrPath::Path));
                set(into, word.map_or_else(path, Ok)?);
            }
            Takes::Choice(known, set) => {
                let text = value.text()?;
                set(into, chosen(known, &text.value).map_err(|wrong| text.problem(wrong))?);
            }
            Takes::Rules(set) => set(into, value.rules()?)?,
            Takes::Fields(set) => set(into, value.fields()?)?,
            Takes::Pairs(set) => set(into, value.pairs()?),
        }
        Ok(())
    }

    /// Sets what the command line says: the arguments of this option, one for each time that
    /// it stands there. Of those that make no list the last counts.
    pub(crate) fn set_words(&self, into: &mut T, option: &str, words: &[OsString]) -> Checked {
        let problem = |message| Problem { place: place(option), message };
        let last = || words.last().cloned().unwrap_or_default();
        let last_text = || text(&last()).map_err(problem);
        match &self.takes {
            Takes::Switch(set) => set(into, last() != "no"),
            Takes::Count(range, set) => {
                let text = last_text()?;
                let number = text.parse().ok().filter(|number| range.contains(number));
                set(into, number.ok_or_else(|| problem(expected_count(range, &text)))?);
            }
            Takes::Size(range, set) => {
                let size = parse_size(&last_text()?).and_then(|size| size_in(range, size));
                set(into, size.map_err(problem)?);
            }
            Takes::Time(set) => set(into, parse_time(&last_text()?).map_err(problem)?),
            Takes::Text(set) => set(into, at(option, last_text()?))?,
            Takes::Texts(set) | Takes::Rules(set) | Takes::Fields(set) => {
                let texts = words.iter().map(|word| text(word).map(|text| at(option, text)));
                set(into, texts.collect::<Result<_, _>>().map_err(problem)?)?;
            }
            Takes::Path(set) => set(into, at(option, last().into())),
            Takes::WordOrPath(words, set) => {
                let path = || WordOrPath::Path(last().into());
                set(into, at(option, word(words, &last()).map_or_else(path, WordOrPath::Word)));
            }
            Takes::Choice(known, set) => {
                set(into, chosen(known, &last_text()?).map_err(problem)?);
            }
            Takes::Pairs(set) => {
                let pair = |pair: &[OsString]| Pair {
                    certificate: pair[0].clone().into(),
                    key: pair[1].clone().into(),
                };
                set(into, words.chunks_exact(2).map(|words| at(option, pair(words))).collect());
            }
        }
        Ok(())
    }
}

fn place(option: &str) -> Place {
    Place::Option(option.to_owned())
}

fn at<V>(option: &str, value: V) -> At<V> {
    At { place: place(option), value }
}

fn text(word: &OsStr) -> Result<String, String> {
    word.to_str().map(str::to_owned).ok_or_else(|| format!("{word:?} is invalid unicode"))
}

fn word(words: &[&'static str], text: &OsStr) -> Option<&'static str> {
    words.iter().copied().find(|word| *word == text)
}

fn chosen(known: &[&'static str], text: &str) -> Result<&'static str, String> {
    let found = known.iter().find(|choice| **choice == text);
    found.copied().ok_or_else(|| format!("expected {}, found {text:?}", known.join(" or ")))
}

pub(super) fn expected_count(range: &RangeInclusive<u64>, found: &str) -> String {
    let (least, most) = (range.start(), range.end());
    match *most >= u64::from(u32::MAX) {
        true => format!("expected a number of at least {least}, found {found:?}"),
        false => format!("expected a number from {least} to {most}, found {found:?}"),
    }
}

pub(super) fn size_in(range: &RangeInclusive<u64>, size: u64) -> Result<u64, String> {
    let (least, most) = (range.start(), range.end());
    match range.contains(&size) {
        true => Ok(size),
        false => Err(format!("expected a size from {least} to {most} bytes, found {size}")),
    }
}
