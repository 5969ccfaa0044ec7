//! Path of a request → script and the rest of the path.

use std::borrow::Cow;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use weft::beneath::{EntryKind as FileKind, Links, open_root, stat_beneath};
use weft::client_limit::{Client, ClientLimit, ClientLimitSettings};
use weft::path::decode;
use weft_config::{ConfigResult, Located};
use weft_upstream::gateway_error::GatewayError;
use weft_upstream::script::{Script, ScriptVariable};

use super::script_patterns::ScriptPatterns;
use crate::base::script_files::ScriptRule;
use crate::base::sys::{Errno, OwnedFd, bytes_of, text_of_bytes};

/// Maximum number of lookups in the directory at the same time, in blocking threads. One client has
/// half of them: while a disk does not respond, its requests do not occupy the threads of others.
const MAX_LOOKUPS: usize = 64;

/// Maximum number of lookups that wait for others, and the maximum time.
const MAX_QUEUED_LOOKUPS: usize = 1_024;
const LOOKUP_QUEUE_TIMEOUT: Duration = Duration::from_secs(5);

/// Directory of the scripts, or a single script.
#[derive(Debug)]
pub(crate) struct Root {
    /// Absolute, because a script runs in its own working directory.
    directory: PathBuf,
    /// Name of the only script, which handles all paths.
    single: Option<PathBuf>,
    index: Option<String>,
    rule: ScriptRule,
    lookups: ClientLimit,
    /// `None`: all scripts are run.
    patterns: Option<ScriptPatterns>,
}

/// Reason that a path resolves to no script.
#[derive(Debug)]
pub(crate) enum LookupError {
    NotFound,
    /// The file is not executable or not accessible.
    Forbidden,
    /// The file system failed, or too many other lookups wait for it.
    Failed(GatewayError),
}

impl Root {
    /// # Errors
    /// Fails if `path` is neither a directory nor a file.
    pub(crate) fn open(path: &Path, index: Option<String>, rule: ScriptRule) -> io::Result<Root> {
        let metadata = path.metadata()?;
        let lookups = ClientLimit::new(ClientLimitSettings {
            max_queued: MAX_QUEUED_LOOKUPS,
            queue_timeout: LOOKUP_QUEUE_TIMEOUT,
            ..ClientLimitSettings::new(MAX_LOOKUPS)
        });
        if metadata.is_dir() {
            // Collecting the components removes a trailing slash; paths are appended later.
            let directory = std::path::absolute(path)?.components().collect();
            return Ok(Root { directory, single: None, index, rule, lookups, patterns: None });
        }
        // A symbolic link to the only script is resolved to its target.
        let file = path.canonicalize()?;
        let (Some(directory), Some(name)) = (file.parent(), file.file_name()) else {
            return Err(io::ErrorKind::NotFound.into());
        };
        let (directory, single) = (directory.to_owned(), Some(name.into()));
        Ok(Root { directory, single, index, rule, lookups, patterns: None })
    }

    /// Restricts the scripts that are run.
    pub(crate) fn with_patterns(self, patterns: Option<ScriptPatterns>) -> Root {
        Root { patterns, ..self }
    }

    /// Follows the segments of a path through directories to the first file, in a blocking thread.
    /// `mount` is the prefix of the route, which the path does not have.
    pub(crate) async fn find(
        self: &Arc<Root>,
        mount: &str,
        path: &str,
        client: Option<Client>,
    ) -> Result<Script, LookupError> {
        let permit = self.lookups.acquire(client).await;
        let permit = permit.ok_or(GatewayError::Overloaded("too many lookups of scripts"))?;
        let (root, mount, path) = (self.clone(), mount.to_owned(), path.to_owned());
        let found = permit.spawn_blocking(move || root.find_now(&mount, &path)).await;
        found.unwrap_or_else(|error| Err(GatewayError::from(io::Error::other(error)).into()))
    }

    fn find_now(&self, mount: &str, path: &str) -> Result<Script, LookupError> {
        let segments = segments(path).ok_or(LookupError::NotFound)?;
        // Opened for each request, because the directory may have been replaced.
        let root = open_root(&self.directory).map_err(LookupError::from)?;
        if let Some(single) = &self.single {
            return match self.entry_kind(&root, single)? {
                EntryKind::Script => Ok(self.script(single, Vec::new(), &segments)),
                EntryKind::Directory => Err(LookupError::NotFound),
            };
        }
        let mut relative = PathBuf::new();
        for (i, segment) in segments.iter().enumerate() {
            match (&**segment, &self.index) {
                // The path ends in a slash and names the directory itself.
                (b"", Some(index)) => relative.push(index),
                (b"" | [b'.', ..], _) => return Err(LookupError::NotFound),
                (name, _) => relative.push(text_of_bytes(name)),
            }
            if let EntryKind::Script = self.entry_kind(&root, &relative)? {
                let name = [b"/", bytes_of(&relative)].concat();
                let script = self.script(&relative, name, &segments[i + 1..]);
                let is_run = |patterns: &ScriptPatterns| patterns.permit(mount, &script);
                return match self.patterns.as_ref().is_none_or(is_run) {
                    true => Ok(script),
                    false => Err(LookupError::NotFound),
                };
            }
        }
        Err(LookupError::NotFound)
    }

    /// Returns the kind of the entry at `relative` beneath the opened root.
    fn entry_kind(&self, root: &OwnedFd, relative: &Path) -> Result<EntryKind, LookupError> {
        // Symbolic links to the outside are refused.
        let stat = stat_beneath(root, bytes_of(relative), Links::Beneath)?;
        match (stat.kind, &self.rule) {
            (FileKind::Folder, _) => Ok(EntryKind::Directory),
            // The start of the process checks if the server itself has permission.
            (FileKind::File, ScriptRule::Executable) if stat.is_executable => Ok(EntryKind::Script),
            (FileKind::File, ScriptRule::Executable) => Err(LookupError::Forbidden),
            (FileKind::File, ScriptRule::Suffix(suffix))
                if bytes_of(relative).ends_with(suffix.as_bytes()) =>
            {
                Ok(EntryKind::Script)
            }
            _ => Err(LookupError::NotFound),
        }
    }

    fn script(&self, relative: &Path, name: Vec<u8>, rest: &[Cow<'_, [u8]>]) -> Script {
        let path_info = rest.iter().flat_map(|segment| [b"/", &**segment].concat()).collect();
        Script {
            file: self.directory.join(relative),
            root: self.directory.clone(),
            name,
            path_info,
        }
    }
}

/// Decodes the segments of a path. Returns `None` for dot segments, encoded slashes and NULs, which
/// could resolve to another path, also when a script uses them as `PATH_INFO`.
fn segments(path: &str) -> Option<Vec<Cow<'_, [u8]>>> {
    let segments = path.strip_prefix('/')?.split('/');
    let is_valid = |segment: &[u8]| {
        !matches!(segment, b"." | b"..") && !segment.iter().any(|b| b"/\0".contains(b))
    };
    let decoded = segments.map(|segment| decode(segment.as_bytes()));
    decoded.map(|segment| is_valid(&segment).then_some(segment)).collect()
}

enum EntryKind {
    Script,
    Directory,
}

impl From<Errno> for LookupError {
    fn from(error: Errno) -> LookupError {
        match error {
            Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG => LookupError::NotFound,
            // Symbolic link that leads outside or into a loop.
            Errno::XDEV | Errno::LOOP => LookupError::NotFound,
            Errno::ACCESS | Errno::PERM => LookupError::Forbidden,
            error => LookupError::Failed(io::Error::from(error).into()),
        }
    }
}

impl From<GatewayError> for LookupError {
    fn from(error: GatewayError) -> LookupError {
        LookupError::Failed(error)
    }
}

/// Validates the name of an index script.
pub(super) fn index_name(name: Located<String>) -> ConfigResult<String> {
    match name.value.is_empty() || name.value.starts_with('.') || name.value.contains(['/', '\0']) {
        true => Err(name.problem(format!("expected the name of a script, found {:?}", name.value))),
        false => Ok(name.value),
    }
}

/// Parses the variables that scripts get besides the variables of their request.
pub(super) fn variables(texts: Vec<Located<String>>) -> ConfigResult<Vec<ScriptVariable>> {
    let parse = |text: Located<String>| {
        ScriptVariable::parse(&text.value).map_err(|invalid| text.problem(invalid))
    };
    texts.into_iter().map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use futures_util::FutureExt;
    use tokio::time::timeout;

    fn tree() -> tempfile::TempDir {
        let tree = tempfile::tempdir().unwrap();
        let root = tree.path().join("root");
        fs::create_dir_all(root.join("in/deep")).unwrap();
        for (name, mode) in [
            ("../outside", 0o755),
            ("a.cgi", 0o755),
            ("a b", 0o755),
            ("text", 0o644),
            (".hidden", 0o755),
            ("in/index.cgi", 0o755),
            ("in/deep/b.cgi", 0o700),
        ] {
            fs::write(root.join(name), "").unwrap();
            fs::set_permissions(root.join(name), fs::Permissions::from_mode(mode)).unwrap();
        }
        symlink("in/deep/b.cgi", root.join("inner")).unwrap();
        symlink("../outside", root.join("outer")).unwrap();
        symlink("/bin/sh", root.join("sh")).unwrap();
        symlink("circle", root.join("circle")).unwrap();
        symlink("..", root.join("in/up")).unwrap();
        let pipe = root.join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RWXU).unwrap();
        tree
    }

    fn resolved(root: &Root, path: &str) -> String {
        match root.find_now("", path) {
            Ok(Script { name, path_info, .. }) => {
                format!("{} + {}", name.escape_ascii(), path_info.escape_ascii())
            }
            Err(LookupError::NotFound) => "404".to_owned(),
            Err(LookupError::Forbidden) => "403".to_owned(),
            Err(LookupError::Failed(error)) => error.reason(),
        }
    }

    #[test]
    fn resolves_paths_beneath_the_root() {
        let tree = tree();
        let root =
            Root::open(&tree.path().join("root"), Some("index.cgi".into()), ScriptRule::Executable)
                .unwrap();
        for (path, expected) in [
            ("/a.cgi", "/a.cgi + "),
            ("/a.cgi/", "/a.cgi + /"),
            ("/a.cgi/x/y%20z", "/a.cgi + /x/y z"),
            ("/a.cgi/.git/%c3", "/a.cgi + /.git/\\xc3"),
            ("/%61%2ecgi/x", "/a.cgi + /x"),
            ("/a%20b", "/a b + "),
            ("/in/deep/b.cgi/c", "/in/deep/b.cgi + /c"),
            ("/in/", "/in/index.cgi + "),
            ("/inner/x", "/inner + /x"),
            ("/in/up/a.cgi", "/in/up/a.cgi + "),
            // A directory without the trailing slash or without an index script.
            ("/in", "404"),
            ("/in/deep/", "404"),
            ("/", "404"),
            ("/none", "404"),
            ("/in/none/a.cgi", "404"),
            ("/text", "403"),
            ("/text/x", "403"),
            ("/.hidden", "404"),
            ("/pipe", "404"),
            // Paths and symbolic links that lead outside, or could.
            ("/outer", "404"),
            ("/sh", "404"),
            ("/circle", "404"),
            ("/../outside", "404"),
            ("/in/../../outside", "404"),
            ("/%2e%2e/outside", "404"),
            ("/in%2fdeep/b.cgi", "404"),
            ("/a.cgi/x%2fy", "404"),
            ("/a.cgi/../x", "404"),
            ("/a.cgi/%2e%2E", "404"),
            ("/a.cgi%00", "404"),
            ("/a.cgi/x%00", "404"),
            ("*", "404"),
            ("", "404"),
        ] {
            assert_eq!(resolved(&root, path), expected, "{path}");
        }
        let with_slash =
            Root::open(&tree.path().join("root/"), None, ScriptRule::Executable).unwrap();
        let script = with_slash.find_now("", "/in/deep/b.cgi/c").unwrap();
        assert_eq!(script.file, tree.path().join("root/in/deep/b.cgi"));
        assert_eq!(script.root.as_os_str(), tree.path().join("root").as_os_str());
        let without_index =
            Root::open(&tree.path().join("root"), None, ScriptRule::Executable).unwrap();
        assert_eq!(resolved(&without_index, "/in/"), "404");
    }

    /// Lookups of one client that do not end leave the other half of the threads to others.
    #[test]
    fn a_client_has_half_of_the_lookups() {
        let tree = tree();
        let root = Root::open(&tree.path().join("root"), None, ScriptRule::Executable).unwrap();
        let root = Arc::new(root);
        let [one, other] = [1, 2].map(|last| Some(Client::new([192, 0, 2, last].into())));
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().max_blocking_threads(1).build().unwrap();
        runtime.block_on(async {
            let held = |client| root.lookups.try_acquire(client);
            let lookups: Vec<_> = (0..MAX_LOOKUPS).map_while(|_| held(one)).collect();
            assert_eq!(lookups.len(), MAX_LOOKUPS / 2);
            let wait = timeout(Duration::from_millis(20), root.find("", "/a.cgi", one));
            assert!(wait.await.is_err(), "the lookup waits");
            assert!(root.find("", "/a.cgi", other).await.is_ok());
            drop(lookups);
            assert!(root.find("", "/a.cgi", one).await.is_ok());
            // A request that leaves does not free the thread of its lookup, which is behind
            // another.
            let (end, has_ended) = std::sync::mpsc::channel::<()>();
            tokio::task::spawn_blocking(move || has_ended.recv());
            let mut lookup = Box::pin(root.find("", "/a.cgi", one));
            assert!((&mut lookup).now_or_never().is_none());
            drop(lookup);
            assert_eq!(root.lookups.in_use(), 1);
            drop(end);
            assert!(root.find("", "/a.cgi", one).await.is_ok());
            assert_eq!(root.lookups.in_use(), 0);
        });
    }

    #[test]
    fn only_files_with_the_suffix_are_run() {
        let tree = tree();
        let root = tree.path().join("root");
        for name in ["index.php", "photo.jpg", "in/a.php", "in/b.PHP", ".hidden.php"] {
            fs::write(root.join(name), "").unwrap();
        }
        fs::create_dir(root.join("folder.php")).unwrap();
        let rule = ScriptRule::Suffix(".php".to_owned());
        let root = Root::open(&root, Some("index.php".into()), rule).unwrap();
        for (path, expected) in [
            ("/", "/index.php + "),
            ("/index.php", "/index.php + "),
            ("/index.php/a/b.jpg", "/index.php + /a/b.jpg"),
            ("/in/a.php", "/in/a.php + "),
            // Not executable files that are executable for CGI.
            ("/a.cgi", "404"),
            // An image with a program in it, as PHP without `cgi.fix_pathinfo = 0` would run it.
            ("/photo.jpg/a.php", "404"),
            ("/photo.jpg%00.php", "404"),
            ("/photo.jpg%2fa.php", "404"),
            ("/in/b.PHP", "404"),
            ("/.hidden.php", "404"),
            ("/folder.php", "404"),
            ("/in/", "404"),
            ("/none.php", "404"),
            ("/../root/index.php", "404"),
        ] {
            assert_eq!(resolved(&root, path), expected, "{path}");
        }
    }

    #[test]
    fn single_script_handles_all_paths() {
        let tree = tree();
        for (file, path, expected) in [
            ("root/a.cgi", "/", " + /"),
            ("root/a.cgi", "/in/x", " + /in/x"),
            ("root/outer", "/x", " + /x"),
            ("root/text", "/x", "403"),
            ("root/a.cgi", "/..", "404"),
        ] {
            let root = Root::open(&tree.path().join(file), None, ScriptRule::Executable).unwrap();
            assert_eq!(resolved(&root, path), expected, "{file} {path}");
        }
        assert!(Root::open(&tree.path().join("none"), None, ScriptRule::Executable).is_err());
    }
}
