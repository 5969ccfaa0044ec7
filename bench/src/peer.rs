//! A measured server: its command, and the origin of its program.

pub struct Peer {
    pub name: &'static str,
    pub origin: Origin,
    pub command: &'static [&'static str],
    /// The template of its configuration file in `configs`.
    pub config: Option<&'static str>,
    /// A description for the report.
    pub note: &'static str,
}

/// The origin of a server, which also determines how its version is found.
#[derive(Clone, Copy, PartialEq)]
pub enum Origin {
    /// The program in this repository.
    Weft,
    /// A package of this workspace, and the crate that it measures.
    Crate(&'static str, &'static str),
    /// A Debian package, its program, and the argument that prints its version.
    Debian(&'static str, &'static str, &'static str),
    /// A program in the root of `--root`, and the argument that prints its version.
    Root(&'static str, &'static str),
    /// A program compiled with GHC.
    Haskell,
}
