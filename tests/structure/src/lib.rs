//! Measures of Weft's source files: lines of code, folders, and imports with their circles.
//! `.ci/count` prints them, and the tests of this package limit them.

mod circles;
mod imports;
mod modules;
mod tokens;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// A library or a program.
pub struct Crate {
    /// Path of its root file, relative to the repository.
    pub root: String,
    /// Paths of its files, relative to the folder of the root, without tests; and their lines of code.
    pub files: Vec<(String, usize)>,
    /// Dependencies between the files, by their index, each with a path in the source.
    dependencies: imports::Dependencies,
}

/// Reads the crates in a folder of the repository, at any depth.
pub fn crates(folder: &str) -> Vec<Crate> {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut roots = Vec::new();
    let mut open = vec![repository.join(folder)];
    while let Some(folder) = open.pop() {
        let src = folder.join("src");
        roots.extend([src.join("lib.rs"), src.join("main.rs")]);
        roots.extend(entries(&src.join("bin")));
        let skipped = ["src", "tests", "target"].map(|name| folder.join(name));
        open.extend(entries(&folder).into_iter().filter(|it| it.is_dir() && !skipped.contains(it)));
    }
    roots.retain(|root| root.exists());
    roots.sort();
    roots.iter().map(|root| read(root, &repository)).collect()
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    entries.map(|entry| entry.unwrap().path()).collect()
}

fn read(root: &Path, repository: &Path) -> Crate {
    let modules = modules::read(root, &|path| fs::read_to_string(path).ok());
    let relative = |path: &Path, folder: &Path| {
        path.strip_prefix(folder).unwrap().to_str().unwrap().to_owned()
    };
    let folder = root.parent().unwrap();
    let files = modules.files.iter().map(|it| (relative(&it.path, folder), it.code_lines));
    Crate {
        root: relative(root, repository),
        files: files.collect(),
        dependencies: imports::dependencies(&modules),
    }
}

impl Crate {
    /// Returns the number of lines of code: neither blank nor comments, and no part of a test.
    pub fn code_lines(&self) -> usize {
        self.files.iter().map(|(_, lines)| lines).sum()
    }

    /// Returns the folder with the most source files, without those of its subfolders, and their number.
    pub fn longest_folder(&self) -> (usize, &Path) {
        let mut counts: BTreeMap<&Path, usize> = BTreeMap::new();
        for (file, _) in &self.files {
            *counts.entry(Path::new(file).parent().unwrap()).or_default() += 1;
        }
        counts.into_iter().map(|(folder, count)| (count, folder)).max().expect("a crate has a file")
    }

    /// Returns the number of floors: the longest chain of imports between the modules beneath the root.
    pub fn floors(&self) -> usize {
        let module = |file: usize| {
            let first = self.files[file].0.split('/').next().unwrap();
            first.trim_end_matches(".rs")
        };
        let edges = self.edges().into_iter().map(|(user, used)| (module(user), module(used)));
        circles::floors(&edges.collect())
    }

    /// Returns the circles of files, the largest first: for each file the others that it uses.
    pub fn circles(&self) -> Vec<Vec<String>> {
        let describe = |circle: BTreeSet<usize>| {
            let uses = |file: &usize| {
                let uses = self.dependencies[file].iter().filter(|(used, _)| circle.contains(used));
                let uses = uses.map(|(used, path)| format!("{} ({path})", self.files[*used].0));
                format!("{} -> {}", self.files[*file].0, uses.collect::<Vec<_>>().join(", "))
            };
            circle.iter().map(uses).collect()
        };
        circles::circles(&self.edges()).into_iter().map(describe).collect()
    }

    /// Returns the files and folders directly beneath a folder, such as `server/`. The root file of the
    /// crate is not one of them, and the file `name.rs` belongs to the folder `name`.
    pub fn entries(&self, folder: &str) -> BTreeSet<&str> {
        self.files.iter().filter_map(|(file, _)| self.entry(folder, file)).collect()
    }

    fn entry<'a>(&self, folder: &str, file: &'a str) -> Option<&'a str> {
        let name = file.strip_prefix(folder)?.split('/').next()?.trim_end_matches(".rs");
        (!self.root.ends_with(&format!("src/{file}"))).then_some(name)
    }

    /// Returns pairs of [entries](Crate::entries), of which the first uses the second.
    pub fn uses_beneath(&self, folder: &str) -> BTreeSet<(&str, &str)> {
        let file = |index: usize| &*self.files[index].0;
        let entries =
            |(user, used)| Some((self.entry(folder, file(user))?, self.entry(folder, file(used))?));
        let uses = self.edges().into_iter().filter_map(entries);
        uses.filter(|(user, used)| user != used).collect()
    }

    /// Returns the circles between the entries of a folder, for every folder.
    pub fn folder_circles(&self) -> Vec<(&str, BTreeSet<&str>)> {
        let folders: BTreeSet<&str> =
            self.files.iter().flat_map(|(file, _)| folders_of(file)).collect();
        let circles = |folder| circles::circles(&self.uses_beneath(folder)).into_iter();
        folders.into_iter().flat_map(|it| circles(it).map(move |circle| (it, circle))).collect()
    }

    fn edges(&self) -> BTreeSet<(usize, usize)> {
        let uses = self.dependencies.iter();
        uses.flat_map(|(user, uses)| uses.keys().map(|used| (*user, *used))).collect()
    }
}

/// Returns the folders that contain a file, from the folder of the root.
fn folders_of(file: &str) -> impl Iterator<Item = &str> {
    let ends = file.match_indices('/').map(|(at, _)| at + 1);
    std::iter::once(0).chain(ends).map(|end| &file[..end])
}
