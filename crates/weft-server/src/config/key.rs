//! A configuration key: its type of value, and the function that stores the value.
//!
//! A key of a section is also a command-line option. Both front ends are in [`setter`](super::setter), so that
//! they accept the same values.

use std::ffi::OsString;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use super::access_log::AccessLogConfig;
use super::location::{ConfigResult, Located};
use super::log_target::LogTarget;
use super::setter::Setter;
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
        self.set(into, &mut |setter| setter.set_values(name, values))
    }

    /// Sets the value from a file.
    pub(crate) fn set_value(&self, into: &mut T, value: &Value<'_>) -> ConfigResult {
        self.set(into, &mut |setter| setter.set_value(value))
    }

    /// Sets the value from the command line. `arguments` has one item for each occurrence of the
    /// option. If the value is not a list, the last occurrence takes effect.
    pub(crate) fn set_arguments(
        &self,
        into: &mut T,
        option: &str,
        arguments: &[OsString],
    ) -> ConfigResult {
        self.set(into, &mut |setter| setter.set_arguments(option, arguments))
    }

    /// Calls `read` with the means to store the value in `into`. The code that reads values is large, and
    /// compiled once instead of for each `T`.
    fn set(&self, into: &mut T, read: &mut dyn FnMut(Setter<'_>) -> ConfigResult) -> ConfigResult {
        match &self.kind {
            ValueKind::Bool(set) => read(Setter::Bool(&mut always(into, *set))),
            ValueKind::Count(range, set) => read(Setter::Count(range, &mut always(into, *set))),
            ValueKind::Size(range, set) => read(Setter::Size(range, &mut always(into, *set))),
            ValueKind::Time(set) => read(Setter::Time(&mut always(into, *set))),
            ValueKind::Text(set) => read(Setter::Text(&mut |value| set(into, value))),
            ValueKind::Texts(set) => read(Setter::Texts(&mut |value| set(into, value))),
            ValueKind::Path(set) => read(Setter::Path(&mut always(into, *set))),
            ValueKind::WordOrPath(words, set) => {
                read(Setter::WordOrPath(words, &mut always(into, *set)))
            }
            ValueKind::Choice(known, set) => read(Setter::Choice(known, &mut always(into, *set))),
            ValueKind::BoolOrText(set) => read(Setter::BoolOrText(&mut |value| set(into, value))),
            ValueKind::Rules(set) => read(Setter::Rules(&mut |value| set(into, value))),
            ValueKind::Fields(set) => read(Setter::Fields(&mut |value| set(into, value))),
            ValueKind::Pairs(set) => read(Setter::Pairs(&mut |value| set(into, value))),
            ValueKind::BoolOrPairs(set) => read(Setter::BoolOrPairs(&mut |value| set(into, value))),
            ValueKind::LogTarget(set) => read(Setter::LogTarget(&mut |value| set(into, value))),
            ValueKind::AccessLogs(set) => read(Setter::AccessLogs(&mut always(into, *set))),
            ValueKind::CertificatePairs(set) => {
                read(Setter::CertificatePairs(&mut always(into, *set)))
            }
        }
    }
}

/// Returns the function that stores a value by `set`, which accepts each value.
fn always<T, V>(into: &mut T, set: fn(&mut T, V)) -> impl FnMut(V) -> ConfigResult {
    move |value| {
        set(into, value);
        Ok(())
    }
}
