//! Typed keys of a TOML configuration that are also options of the command line.
//!
//! A section of a file is a struct, and a list of [`Key`]s that store values in it. From this list
//! come the values of files and of the command line, error messages with locations and suggestions,
//! the help text, a JSON schema, the printed configuration, and tables of the reference
//! documentation. The crate knows no section.
//!
//! A configuration may have several files, which name each other by `include`; strings may contain
//! environment variables (`{env.NAME}`).
//!
//! ```
//! use std::path::Path;
//! use std::time::Duration;
//!
//! use weft_config::{Document, Key, SectionKey, Sources, ValueKind, read_section, show_time};
//!
//! struct Limits {
//!     timeout: Duration,
//!     max_requests: u64,
//! }
//!
//! static LIMITS: [Key<Limits>; 2] = [
//!     Key {
//!         name: "timeout",
//!         flag: "timeout",
//!         argument: "TIME",
//!         help: "timeout of a request",
//!         kind: ValueKind::Time(|limits, time| limits.timeout = time),
//!         show: |limits| format!("{:?}", show_time(limits.timeout)),
//!     },
//!     Key {
//!         name: "max_requests",
//!         flag: "max-requests",
//!         argument: "N",
//!         help: "maximum number of requests",
//!         kind: ValueKind::Count(1..=1_000, |limits, count| limits.max_requests = count),
//!         show: |limits| limits.max_requests.to_string(),
//!     },
//! ];
//!
//! let text = "[limits]\ntimeout = \"5s\"\nmax_requests = 2000\n";
//! let sources = Sources::of_text("server.toml", text.to_owned(), Path::new(""));
//! let document = Document::parse(&sources);
//! let mut limits = Limits { timeout: Duration::from_secs(20), max_requests: 100 };
//! let mut problems = Vec::new();
//! for (section, tables) in document.sections() {
//!     assert_eq!(section.value, "limits");
//!     read_section(&LIMITS, &mut limits, &tables, &|_| None, &mut problems);
//! }
//! assert_eq!(limits.timeout, Duration::from_secs(5));
//! let problems = document.with_syntax_problems(problems);
//! assert_eq!(
//!     problems[0].to_string(),
//!     "server.toml:3:16: expected a number from 1 to 1000, found 2000",
//! );
//!
//! // The option `--max-requests 50`.
//! LIMITS[1].set_arguments(&mut limits, "--max-requests", &["50".into()]).unwrap();
//! assert_eq!(weft_config::print_lines(&LIMITS, &limits), "timeout = \"5s\"\nmax_requests = 50\n");
//! ```

mod environment; // environment variables in strings
pub mod format; // the canonical layout of a file
pub mod help; // the help text of options
mod key; // a key: its type of value, and the function that stores the value
mod location; // locations of values, for error messages
mod print; // sections with all of their values
mod quoting; // formatting of values as in a file
mod reference; // keys for reference documentation
pub mod schema; // parts of a JSON schema
mod section; // a section: its entries, and the keys that read them
mod slot; // reads the value of a key from files and from the command line
mod snippet; // keys that several tables use
mod source; // the texts of the files, with the files that they include
mod suggestion; // known words that are similar to another
mod syntax; // syntax errors
mod units; // sizes and times
mod value; // a TOML value and its conversions

pub use key::{Key, KeySpec, PartKey, SectionKey, SectionKeys, ValueKind, ValueType};
pub use location::{ConfigLocation, ConfigResult, Located, Problem};
pub use print::{print_entries, print_lines};
pub use quoting::{
    quoted, quoted_list, quoted_path, quoted_table, quoted_texts, quoted_time, shown_list,
};
pub use reference::{ReferenceEntry, reference, reference_table};
pub use section::{find, find_flag, read_entries, read_section, section_entries, unknown_key};
pub use slot::{CustomType, Given, ValueSlot};
pub use snippet::Snippets;
pub use source::{Document, Sources, syntax_problems, toml_files};
pub use suggestion::suggest;
pub use units::{parse_size, parse_time, show_size, show_time};
pub use value::{BoolOrPairs, BoolOrText, Entries, Name, Pair, Value, WordOrPath};
