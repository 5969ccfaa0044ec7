//! Settings of the scripts of upstreams.

use std::path::PathBuf;

use super::variable::ScriptVariable;

/// Scripts that an upstream runs, and the variables that it gets with a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FastCgiSettings {
    /// Directory of the scripts, or one script that handles all paths. Default none: the upstream
    /// itself handles all paths, and gets them as `PATH_INFO`.
    pub root: Option<PathBuf>,

    /// Path under which the upstream has [`root`](FastCgiSettings::root). Default none: the same.
    pub script_root: Option<PathBuf>,

    /// Index script of a directory. Default `index.php`.
    pub index: String,

    /// End of the names of scripts. Default `.php`: no other file is run.
    pub suffix: String,

    /// Patterns of the scripts that are run. Default none: all scripts. The program that looks up
    /// the scripts applies them.
    pub scripts: Option<Vec<String>>,

    /// Variables in addition to the variables of RFC 3875, which they override. Default none.
    pub environment: Vec<ScriptVariable>,
}

impl Default for FastCgiSettings {
    fn default() -> FastCgiSettings {
        FastCgiSettings {
            root: None,
            script_root: None,
            index: "index.php".to_owned(),
            suffix: ".php".to_owned(),
            scripts: None,
            environment: Vec::new(),
        }
    }
}
