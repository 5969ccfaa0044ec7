//! Commands and options that users of nginx and Caddy type, with their counterparts.

/// Commands of Caddy, and others that are words.
const COMMANDS: [(&str, &str); 14] = [
    ("run", "`weft --config FILE`"),
    ("start", "`weft --config FILE`, started by a service manager"),
    ("serve", "`weft [DIR]`, or `weft --config FILE`"),
    ("restart", "`weft upgrade FILE`, which loses no request"),
    ("validate", "`weft check FILE`"),
    ("test", "`weft check FILE`"),
    ("configtest", "`weft check FILE`"),
    ("adapt", "`weft import caddy FILE`"),
    ("environ", "`weft check FILE --print`"),
    ("file-server", "`weft [DIR] --listen ADDR`"),
    ("reverse-proxy", "`weft --route '*/ >> http://HOST:PORT' --listen ADDR`"),
    ("respond", "a configuration with `{ respond = \"TEXT\" }`"),
    ("version", "`weft --version`"),
    ("help", "`weft --help`"),
];

/// Options of nginx.
const OPTIONS: [(char, &str); 7] = [
    ('t', "`weft check FILE`"),
    ('T', "`weft check FILE --print`"),
    ('s', "`weft reload FILE`, `weft stop FILE`, or SIGUSR1 to open the log files again"),
    ('v', "`weft --version`"),
    ('q', "`weft check FILE`"),
    ('g', "an option such as `--listen`; see `weft --help all`"),
    ('e', "`--error-log FILE`"),
];

/// Returns the counterpart of a command of another server.
pub(crate) fn command(word: &str) -> Option<&'static str> {
    COMMANDS.iter().find(|(name, _)| *name == word).map(|(_, counterpart)| *counterpart)
}

/// Returns the counterpart of an option of nginx.
pub(crate) fn option(letter: char) -> Option<&'static str> {
    OPTIONS.iter().find(|(name, _)| *name == letter).map(|(_, counterpart)| *counterpart)
}
