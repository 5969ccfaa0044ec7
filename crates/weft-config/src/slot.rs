//! A slot for the value of a key, and the functions that read the value from files and from the
//! command line.

use std::ffi::{OsStr, OsString};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use crate::location::{ConfigLocation, ConfigResult, Located, Problem};
use crate::units::{expected_count, parse_size, parse_time, size_in};
use crate::value::{BoolOrPairs, BoolOrText, Pair, Value, WordOrPath};

/// A function that stores a value.
type Store<'a, V> = &'a mut dyn FnMut(V) -> ConfigResult;

/// A type of value with the function that stores a value in a section.
/// [`ValueKind`](crate::ValueKind) has the same variants.
#[allow(missing_docs, reason = "`ValueKind` documents the variants")]
pub enum ValueSlot<'a> {
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
    Custom(&'static CustomType, &'a mut dyn FnMut(Given<'_>) -> ConfigResult),
}

/// A type of values that a section reads itself.
pub struct CustomType {
    /// Returns true if several files, and several occurrences of the option, add to one list.
    pub is_list: bool,
    /// Shape of a value for reference documentation, such as `text or list`.
    pub shape: &'static str,
    /// Returns the JSON schema of a value.
    pub schema: fn() -> serde_json::Value,
}

/// The unread values of a key of a [`CustomType`].
#[derive(Clone, Copy)]
pub enum Given<'a> {
    /// The values that files have: exactly one, unless the type is a list.
    Values(&'a [Value<'a>]),
    /// The arguments of an option of the command line.
    Arguments {
        /// Name of the option, with its dashes.
        option: &'a str,
        /// One item for each occurrence.
        arguments: &'a [OsString],
    },
}

impl Given<'_> {
    /// Reads a text, and passes it to `parse`, or a path if `parse` returns `None`. Of several
    /// arguments the last takes effect.
    ///
    /// # Errors
    /// The message of `parse`, or that the value is not a text.
    pub fn text_or_path<V>(
        &self,
        parse: impl Fn(&str) -> Result<Option<V>, String>,
        of_path: impl Fn(PathBuf) -> V,
    ) -> ConfigResult<Located<V>> {
        match self {
            Given::Values(values) => {
                let value = &values[0];
                let known = parse(&value.text()?.value).map_err(|it| value.problem(it))?;
                Ok(value.at(known.map_or_else(|| value.path().map(|it| of_path(it.value)), Ok)?))
            }
            Given::Arguments { option, arguments } => {
                let text = arguments.last().cloned().unwrap_or_default();
                let known = text.to_str().map_or(Ok(None), parse);
                let known =
                    known.map_err(|message| Problem { location: location(option), message })?;
                Ok(at(option, known.unwrap_or_else(|| of_path(text.into()))))
            }
        }
    }
}

impl ValueSlot<'_> {
    /// Sets the values that one or more files have for this key. Lists are joined; another key has
    /// one value. `name` is the first occurrence.
    pub(crate) fn set_values(self, name: &Located<String>, values: &[Value<'_>]) -> ConfigResult {
        fn join<V>(
            values: &[Value<'_>],
            list: impl Fn(&Value<'_>) -> ConfigResult<Vec<V>>,
        ) -> ConfigResult<Vec<V>> {
            let lists = values.iter().map(list).collect::<ConfigResult<Vec<_>>>()?;
            Ok(lists.into_iter().flatten().collect())
        }
        match (self, values) {
            (slot, [value]) => slot.set_value(value),
            (ValueSlot::Texts(set), _) => set(join(values, |value| value.texts())?),
            (ValueSlot::Rules(set), _) => set(join(values, |value| value.rules())?),
            (ValueSlot::Fields(set), _) => set(join(values, |value| value.fields())?),
            (ValueSlot::Pairs(set), _) => set(join(values, |value| value.pairs())?),
            (ValueSlot::Custom(custom, set), _) if custom.is_list => set(Given::Values(values)),
            (_, [_, second, ..]) => {
                let first = name.location.relative_to(&second.location());
                Err(second.problem(format!("`{}` is given twice{first}", name.value)))
            }
            (_, []) => Ok(()),
        }
    }

    /// Sets the value from a file.
    pub(crate) fn set_value(self, value: &Value<'_>) -> ConfigResult {
        match self {
            ValueSlot::Bool(set) => set(value.bool()?),
            ValueSlot::Count(range, set) => set(value.number("a number", range)?),
            ValueSlot::Size(range, set) => set(value.size(range)?),
            ValueSlot::Time(set) => set(value.time()?),
            ValueSlot::Text(set) => set(value.text()?),
            ValueSlot::Texts(set) => set(value.texts()?),
            ValueSlot::Path(set) => set(value.path()?),
            ValueSlot::WordOrPath(words, set) => {
                let word = find_word(words, value.text()?.value.as_ref());
                let word = word.map(|word| value.at(WordOrPath::Word(word)));
                let path = || value.path().map(|path| path.map(WordOrPath::Path));
                set(word.map_or_else(path, Ok)?)
            }
            ValueSlot::Choice(known, set) => {
                let text = value.text()?;
                set(choose(known, &text.value).map_err(|invalid| text.problem(invalid))?)
            }
            ValueSlot::BoolOrText(set) => {
                let text = || value.text().map(|text| text.map(BoolOrText::Text));
                let bool = value.bool().map(|bool| value.at(BoolOrText::Bool(bool)));
                set(bool.or_else(|_| text())?)
            }
            ValueSlot::Rules(set) => set(value.rules()?),
            ValueSlot::Fields(set) => set(value.fields()?),
            ValueSlot::Pairs(set) => set(value.pairs()?),
            ValueSlot::BoolOrPairs(set) => set(value.bool_or_pairs()?),
            ValueSlot::Custom(_, set) => set(Given::Values(std::slice::from_ref(value))),
        }
    }

    /// Sets the value from the command line. `arguments` has one item for each occurrence of the
    /// option. If the value is not a list, the last occurrence takes effect.
    pub(crate) fn set_arguments(self, option: &str, arguments: &[OsString]) -> ConfigResult {
        let problem = |message| Problem { location: location(option), message };
        let last = || arguments.last().cloned().unwrap_or_default();
        let last_text = || to_text(&last()).map_err(problem);
        match self {
            ValueSlot::Bool(set) => set(last() != "no"),
            ValueSlot::Count(range, set) => {
                let text = last_text()?;
                let number = text.parse().ok().filter(|number| range.contains(number));
                set(number.ok_or_else(|| problem(expected_count(range, &text)))?)
            }
            ValueSlot::Size(range, set) => {
                let size = parse_size(&last_text()?).and_then(|size| size_in(range, size));
                set(size.map_err(problem)?)
            }
            ValueSlot::Time(set) => set(parse_time(&last_text()?).map_err(problem)?),
            ValueSlot::Text(set) => set(at(option, last_text()?)),
            ValueSlot::Texts(set) | ValueSlot::Rules(set) | ValueSlot::Fields(set) => {
                let texts = arguments.iter().map(|word| to_text(word).map(|text| at(option, text)));
                set(texts.collect::<Result<_, _>>().map_err(problem)?)
            }
            ValueSlot::Path(set) => set(at(option, last().into())),
            ValueSlot::WordOrPath(words, set) => {
                let path = || WordOrPath::Path(last().into());
                set(at(option, find_word(words, &last()).map_or_else(path, WordOrPath::Word)))
            }
            ValueSlot::Choice(known, set) => set(choose(known, &last_text()?).map_err(problem)?),
            ValueSlot::BoolOrPairs(set) => set(BoolOrPairs::Bool(last() != "no")),
            ValueSlot::Pairs(set) => {
                let pairs = arguments.iter().map(|word| parse_pair(option, word));
                set(pairs.collect::<Result<_, _>>().map_err(problem)?)
            }
            ValueSlot::BoolOrText(set) => {
                let value = match &*last_text()? {
                    "true" => BoolOrText::Bool(true),
                    "false" => BoolOrText::Bool(false),
                    text => BoolOrText::Text(text.to_owned()),
                };
                set(at(option, value))
            }
            ValueSlot::Custom(_, set) => set(Given::Arguments { option, arguments }),
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
