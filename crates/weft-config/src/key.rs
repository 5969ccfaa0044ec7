//! A key of a section: its name, its type of value, and the functions that store and show the
//! value.
//!
//! A key is also an option of the command line. [`ValueSlot`] reads values of both, so that they
//! accept the same values.

use std::ffi::OsString;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use crate::location::{ConfigResult, Located};
use crate::slot::{CustomType, Given, ValueSlot};
use crate::value::{BoolOrPairs, BoolOrText, Pair, Value, WordOrPath};

/// A key of a section whose values are stored in an `S`.
pub struct Key<S: 'static> {
    /// Name in a file.
    pub name: &'static str,
    /// Name of the option, without its dashes. Empty if there is no option.
    pub flag: &'static str,
    /// Placeholder of the option's argument in the help text. Empty for a switch.
    pub argument: &'static str,
    /// Meaning, as a noun phrase.
    pub help: &'static str,
    /// Type of the value, with the function that stores it.
    pub kind: ValueKind<S>,
    /// Formats the value as in a file. Empty if there is no value.
    pub show: fn(&S) -> String,
}

impl<S> Key<S> {
    /// The fields of a key without an option of the command line: `Key { name, ..Key::FILE_ONLY }`.
    pub const FILE_ONLY: Key<S> = Key {
        name: "",
        flag: "",
        argument: "",
        help: "",
        kind: ValueKind::Bool(|_, _| {}),
        show: |_| String::new(),
    };
}

/// Type of a key's value, with the function that stores it.
pub enum ValueKind<S> {
    /// `true` or `false`. The option is a switch.
    Bool(fn(&mut S, bool)),
    /// A number in a range.
    Count(RangeInclusive<u64>, fn(&mut S, u64)),
    /// A size such as `16MiB`, with a range in bytes.
    Size(RangeInclusive<u64>, fn(&mut S, u64)),
    /// A duration such as `20s`; `never` is [`Duration::MAX`].
    Time(fn(&mut S, Duration)),
    /// A text.
    Text(fn(&mut S, Located<String>) -> ConfigResult),
    /// A text, or a list of texts.
    Texts(fn(&mut S, Vec<Located<String>>) -> ConfigResult),
    /// A path. In a file it is relative to the directory of the file.
    Path(fn(&mut S, Located<PathBuf>)),
    /// One of the listed words, or a path.
    WordOrPath(&'static [&'static str], fn(&mut S, Located<WordOrPath>)),
    /// One of the listed words.
    Choice(&'static [&'static str], fn(&mut S, &'static str)),
    /// `true`, `false` or a text.
    BoolOrText(fn(&mut S, Located<BoolOrText>) -> ConfigResult),
    /// `PATTERN=VALUE`; in a file also a table of these.
    Rules(fn(&mut S, Vec<Located<String>>) -> ConfigResult),
    /// `PATTERN=NAME: VALUE`; in a file also a table of these.
    Fields(fn(&mut S, Vec<Located<String>>) -> ConfigResult),
    /// A table of texts by text.
    Pairs(fn(&mut S, Vec<Pair>) -> ConfigResult),
    /// A boolean, or a table of texts by text.
    BoolOrPairs(fn(&mut S, BoolOrPairs) -> ConfigResult),
    /// A value that the section reads itself.
    Custom(&'static CustomType, fn(&mut S, Given<'_>) -> ConfigResult),
}

/// Type of a key's value.
#[derive(Clone, Copy)]
pub enum ValueType<'k> {
    /// See [`ValueKind::Bool`].
    Bool,
    /// See [`ValueKind::Count`].
    Count(&'k RangeInclusive<u64>),
    /// See [`ValueKind::Size`].
    Size(&'k RangeInclusive<u64>),
    /// See [`ValueKind::Time`].
    Time,
    /// See [`ValueKind::Text`].
    Text,
    /// See [`ValueKind::Texts`].
    Texts,
    /// See [`ValueKind::Path`].
    Path,
    /// See [`ValueKind::WordOrPath`].
    WordOrPath(&'static [&'static str]),
    /// See [`ValueKind::Choice`].
    Choice(&'static [&'static str]),
    /// See [`ValueKind::BoolOrText`].
    BoolOrText,
    /// See [`ValueKind::Rules`].
    Rules,
    /// See [`ValueKind::Fields`].
    Fields,
    /// See [`ValueKind::Pairs`].
    Pairs,
    /// See [`ValueKind::BoolOrPairs`].
    BoolOrPairs,
    /// See [`ValueKind::Custom`].
    Custom(&'static CustomType),
}

/// The parts of a key that do not depend on its section.
#[derive(Clone, Copy)]
pub struct KeySpec<'k> {
    /// Name in a file.
    pub name: &'static str,
    /// Name of the option, without its dashes. Empty if there is no option.
    pub flag: &'static str,
    /// Placeholder of the option's argument in the help text. Empty for a switch.
    pub argument: &'static str,
    /// Meaning, as a noun phrase.
    pub help: &'static str,
    /// Type of the value.
    pub value_type: ValueType<'k>,
}

/// A key of a section `S`: a [`Key<S>`], or a key of a part of `S` ([`PartKey`]).
///
/// A section that has parts with keys of their own is a list of `Box<dyn SectionKey<S>>`.
pub trait SectionKey<S>: Send + Sync {
    /// Returns the parts that do not depend on the section.
    fn spec(&self) -> KeySpec<'_>;

    /// Formats the value as in a file. Empty if there is no value.
    fn show(&self, section: &S) -> String;

    /// Calls `read` with the slot of the value in `section`. The code that reads values is large,
    /// and compiled once instead of for each `S`.
    ///
    /// # Errors
    /// The error of `read`, if the value is invalid.
    fn store(
        &self,
        section: &mut S,
        read: &mut dyn FnMut(ValueSlot<'_>) -> ConfigResult,
    ) -> ConfigResult;

    /// Returns the name in a file.
    fn name(&self) -> &'static str {
        self.spec().name
    }

    /// Sets the value from a file.
    ///
    /// # Errors
    /// With an invalid value.
    fn set_value(&self, section: &mut S, value: &Value<'_>) -> ConfigResult {
        self.store(section, &mut |slot| slot.set_value(value))
    }

    /// Sets the values that one or more files have for this key. Lists are joined; another key has
    /// one value. `name` is the first occurrence.
    ///
    /// # Errors
    /// With an invalid value, and with several values of a key that is not a list.
    fn set_values(
        &self,
        section: &mut S,
        name: &Located<String>,
        values: &[Value<'_>],
    ) -> ConfigResult {
        self.store(section, &mut |slot| slot.set_values(name, values))
    }

    /// Sets the value from the command line. `option` is the name with its dashes; `arguments` has
    /// one item for each occurrence. If the value is not a list, the last occurrence takes effect.
    ///
    /// # Errors
    /// With an invalid argument.
    fn set_arguments(&self, section: &mut S, option: &str, arguments: &[OsString]) -> ConfigResult {
        self.store(section, &mut |slot| slot.set_arguments(option, arguments))
    }
}

/// A key of a part `P` of a section `S`, as a key of the section.
pub struct PartKey<S, P, K> {
    key: K,
    part: fn(&S) -> &P,
    part_mut: fn(&mut S) -> &mut P,
}

/// Keys of a section that may have several parts.
pub type SectionKeys<S> = Vec<Box<dyn SectionKey<S>>>;

impl<S, P, K: SectionKey<P>> PartKey<S, P, K> {
    /// Makes a key of a section from a key of its part.
    pub fn new(key: K, part: fn(&S) -> &P, part_mut: fn(&mut S) -> &mut P) -> PartKey<S, P, K> {
        PartKey { key, part, part_mut }
    }
}

impl KeySpec<'_> {
    /// Returns true if the option has no argument.
    pub fn is_switch(&self) -> bool {
        matches!(self.value_type, ValueType::Bool)
    }

    /// Returns true if several files, and several occurrences of the option, add to one list.
    pub fn is_list(&self) -> bool {
        use ValueType::{Custom, Fields, Pairs, Rules, Texts};
        match self.value_type {
            Texts | Rules | Fields | Pairs => true,
            Custom(custom) => custom.is_list,
            _ => false,
        }
    }
}

impl<S> ValueKind<S> {
    fn value_type(&self) -> ValueType<'_> {
        match self {
            ValueKind::Bool(_) => ValueType::Bool,
            ValueKind::Count(range, _) => ValueType::Count(range),
            ValueKind::Size(range, _) => ValueType::Size(range),
            ValueKind::Time(_) => ValueType::Time,
            ValueKind::Text(_) => ValueType::Text,
            ValueKind::Texts(_) => ValueType::Texts,
            ValueKind::Path(_) => ValueType::Path,
            ValueKind::WordOrPath(words, _) => ValueType::WordOrPath(words),
            ValueKind::Choice(known, _) => ValueType::Choice(known),
            ValueKind::BoolOrText(_) => ValueType::BoolOrText,
            ValueKind::Rules(_) => ValueType::Rules,
            ValueKind::Fields(_) => ValueType::Fields,
            ValueKind::Pairs(_) => ValueType::Pairs,
            ValueKind::BoolOrPairs(_) => ValueType::BoolOrPairs,
            ValueKind::Custom(custom, _) => ValueType::Custom(custom),
        }
    }
}

impl<S> SectionKey<S> for Key<S> {
    fn spec(&self) -> KeySpec<'_> {
        let Key { name, flag, argument, help, ref kind, .. } = *self;
        KeySpec { name, flag, argument, help, value_type: kind.value_type() }
    }

    fn show(&self, section: &S) -> String {
        (self.show)(section)
    }

    fn store(
        &self,
        into: &mut S,
        read: &mut dyn FnMut(ValueSlot<'_>) -> ConfigResult,
    ) -> ConfigResult {
        match &self.kind {
            ValueKind::Bool(set) => read(ValueSlot::Bool(&mut always(into, *set))),
            ValueKind::Count(range, set) => read(ValueSlot::Count(range, &mut always(into, *set))),
            ValueKind::Size(range, set) => read(ValueSlot::Size(range, &mut always(into, *set))),
            ValueKind::Time(set) => read(ValueSlot::Time(&mut always(into, *set))),
            ValueKind::Text(set) => read(ValueSlot::Text(&mut |value| set(into, value))),
            ValueKind::Texts(set) => read(ValueSlot::Texts(&mut |value| set(into, value))),
            ValueKind::Path(set) => read(ValueSlot::Path(&mut always(into, *set))),
            ValueKind::WordOrPath(words, set) => {
                read(ValueSlot::WordOrPath(words, &mut always(into, *set)))
            }
            ValueKind::Choice(known, set) => {
                read(ValueSlot::Choice(known, &mut always(into, *set)))
            }
            ValueKind::BoolOrText(set) => {
                read(ValueSlot::BoolOrText(&mut |value| set(into, value)))
            }
            ValueKind::Rules(set) => read(ValueSlot::Rules(&mut |value| set(into, value))),
            ValueKind::Fields(set) => read(ValueSlot::Fields(&mut |value| set(into, value))),
            ValueKind::Pairs(set) => read(ValueSlot::Pairs(&mut |value| set(into, value))),
            ValueKind::BoolOrPairs(set) => {
                read(ValueSlot::BoolOrPairs(&mut |value| set(into, value)))
            }
            ValueKind::Custom(custom, set) => {
                read(ValueSlot::Custom(custom, &mut |given| set(into, given)))
            }
        }
    }
}

impl<S, P, K: SectionKey<P>> SectionKey<S> for PartKey<S, P, K> {
    fn spec(&self) -> KeySpec<'_> {
        self.key.spec()
    }

    fn show(&self, section: &S) -> String {
        self.key.show((self.part)(section))
    }

    fn store(
        &self,
        section: &mut S,
        read: &mut dyn FnMut(ValueSlot<'_>) -> ConfigResult,
    ) -> ConfigResult {
        self.key.store((self.part_mut)(section), read)
    }
}

impl<S, K: SectionKey<S> + ?Sized> SectionKey<S> for &K {
    fn spec(&self) -> KeySpec<'_> {
        (**self).spec()
    }

    fn show(&self, section: &S) -> String {
        (**self).show(section)
    }

    fn store(
        &self,
        section: &mut S,
        read: &mut dyn FnMut(ValueSlot<'_>) -> ConfigResult,
    ) -> ConfigResult {
        (**self).store(section, read)
    }
}

impl<S, K: SectionKey<S> + ?Sized> SectionKey<S> for Box<K> {
    fn spec(&self) -> KeySpec<'_> {
        (**self).spec()
    }

    fn show(&self, section: &S) -> String {
        (**self).show(section)
    }

    fn store(
        &self,
        section: &mut S,
        read: &mut dyn FnMut(ValueSlot<'_>) -> ConfigResult,
    ) -> ConfigResult {
        (**self).store(section, read)
    }
}

/// Returns the function that stores a value by `set`, which accepts each value.
fn always<S, V>(into: &mut S, set: fn(&mut S, V)) -> impl FnMut(V) -> ConfigResult {
    move |value| {
        set(into, value);
        Ok(())
    }
}
