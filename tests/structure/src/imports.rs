//! Dependencies between the files of a crate: a file depends on each other file that defines an item
//! that it names.
//!
//! - `use` declarations count, also those in functions, and so do paths in code. Names in comments and in
//!   tests do not.
//! - The path of a re-export counts as one to the file that defines the item: if `mod.rs` has
//!   `pub use self::date::Date`, a child that uses `super::Date` depends on `date.rs`, not on `mod.rs`.
//! - A re-export is a dependency of its own file only if the code of that file names the item as well.
//! - If a macro or another crate defines the item, the file of the module that has it counts.
//! - `mod date;` and `use super::date` alone are no dependencies; `date::parse()` is one.
//! - A child depends on the modules that contain it anyway: it is a part of them. This does not count, so
//!   that a circle is always one between modules beside each other.
//! - Methods need no path and no import. They do not count.

use std::collections::{BTreeMap, BTreeSet};

use crate::modules::{Import, Modules};

/// The end of a path.
#[derive(Clone, Copy)]
enum Target {
    /// Index of a module.
    Module(usize),
    /// Index of the file that defines an item.
    Item(usize),
}

/// For each file the files on which it depends, and one of the paths by which it names their items.
pub type Dependencies = BTreeMap<usize, BTreeMap<usize, String>>;

/// Determines the dependencies between the files of a crate.
pub fn dependencies(modules: &Modules) -> Dependencies {
    let mut found = Dependencies::new();
    for (index, module) in modules.modules.iter().enumerate() {
        let mut add = |path: &[String]| {
            for target in modules.ends_of(index, path) {
                if let Target::Item(file) = target
                    && file != module.file
                    && !modules.is_ancestor(file, index)
                {
                    found.entry(module.file).or_default().insert(file, path.join("::"));
                }
            }
        };
        module.paths.iter().for_each(|path| add(path));
        for import in &module.imports {
            if import.name == "*" {
                let names = module.words.iter().filter(|word| !module.items.contains(*word));
                let paths =
                    names.map(|name| [&import.path[..], std::slice::from_ref(name)].concat());
                let exists =
                    |path: &Vec<_>| !modules.follow(index, path, &mut BTreeSet::new()).is_empty();
                paths.filter(exists).for_each(|path| add(&path));
            } else if !import.is_reexport || module.words.contains(&import.name) {
                add(&import.path);
            }
        }
    }
    found
}

impl Modules {
    /// Returns true if a file contains an ancestor of a module.
    fn is_ancestor(&self, file: usize, module: usize) -> bool {
        let parent = self.modules[module].parent;
        self.modules[parent].file == file || parent != module && self.is_ancestor(file, parent)
    }

    /// Follows a path that stands in a module. If a macro or another crate defines its item, the file of the
    /// module that has the item counts.
    fn ends_of(&self, from: usize, path: &[String]) -> Vec<Target> {
        let ends = self.follow(from, path, &mut BTreeSet::new());
        let is_own = ["crate", "self", "super"].contains(&&*path[0]);
        if !ends.is_empty() || !is_own || path.len() < 2 {
            return ends;
        }
        let in_module = |end| match end {
            Target::Module(module) => Target::Item(self.modules[module].file),
            item => item,
        };
        self.ends_of(from, &path[..path.len() - 1]).into_iter().map(in_module).collect()
    }

    /// Follows a path that stands in a module. `followed` has the names that are being looked up.
    fn follow(
        &self,
        from: usize,
        path: &[String],
        followed: &mut BTreeSet<(usize, String)>,
    ) -> Vec<Target> {
        let Some((first, mut rest)) = path.split_first() else { return vec![Target::Module(from)] };
        let mut targets = match &**first {
            "crate" => vec![Target::Module(0)],
            "self" => vec![Target::Module(from)],
            "super" => vec![Target::Module(self.modules[from].parent)],
            name => self.lookup(from, name, followed),
        };
        while let Some((name, following)) = rest.split_first() {
            let mut next = Vec::new();
            // A module and a function may have the same name.
            if targets.iter().any(|target| matches!(target, Target::Module(_))) {
                targets.retain(|target| matches!(target, Target::Module(_)));
            }
            for target in targets {
                match target {
                    Target::Item(_) => next.push(target),
                    Target::Module(module) if name == "super" => {
                        next.push(Target::Module(self.modules[module].parent));
                    }
                    Target::Module(module) => next.extend(self.lookup(module, name, followed)),
                }
            }
            (targets, rest) = (next, following);
        }
        targets
    }

    /// Returns the modules and the items that have a name in a module.
    fn lookup(
        &self,
        module: usize,
        name: &str,
        followed: &mut BTreeSet<(usize, String)>,
    ) -> Vec<Target> {
        // `use time::Time` in a module `time` would otherwise lead to itself.
        if !followed.insert((module, name.to_owned())) {
            return Vec::new();
        }
        let own = &self.modules[module];
        let mut targets = Vec::new();
        if own.items.contains(name) {
            targets.push(Target::Item(own.file));
        }
        targets.extend(own.children.get(name).into_iter().flatten().map(|it| Target::Module(*it)));
        let named = |import: &&Import| import.name == name;
        for import in own.imports.iter().filter(named) {
            targets.extend(self.follow(module, &import.path, followed));
        }
        if targets.is_empty() {
            for import in own.imports.iter().filter(|import| import.name == "*") {
                for target in self.follow(module, &import.path, followed) {
                    if let Target::Module(module) = target {
                        targets.extend(self.lookup(module, name, followed));
                    }
                }
            }
        }
        followed.remove(&(module, name.to_owned()));
        targets
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// Returns the dependencies between files, as `user -> used` with the path in the source.
    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let text_of = |path: &Path| {
            let file = files.iter().find(|(name, _)| Path::new(name) == path);
            file.map(|(_, text)| (*text).to_owned())
        };
        let modules = crate::modules::read(Path::new("lib.rs"), &text_of);
        assert_eq!(modules.files.len(), files.len(), "a file that no `mod` declares");
        let name = |file: &usize| modules.files[*file].path.display().to_string();
        let mut found = Vec::new();
        for (user, uses) in dependencies(&modules) {
            let line = |(used, path)| format!("{} -> {} by {path}", name(&user), name(used));
            found.extend(uses.iter().map(line));
        }
        found
    }

    const TIME: (&str, &str) =
        ("time/mod.rs", "mod date; pub use self::date::{Date, now as today};");
    const DATE: (&str, &str) = ("time/date.rs", "pub struct Date; pub fn now() -> Date { Date }");

    #[test]
    fn a_path_leads_to_the_file_that_defines_the_item() {
        for text in [
            "use crate::time::Date;",
            "use crate::{a, time::{self, Date as Day}};",
            "use super::time::*; fn f(_: Date) {}",
            "use crate::time; fn f() -> u8 { time::today().0 }",
            "fn f() { use crate::time::today; today() }",
            "struct Day(Vec<super::time::Date>);",
            "mod b { use super::super::time as t; pub fn f() { t::Date::new() } }",
            "#[cfg(any(test, unix))] use crate::time::Date;",
            "use crate::time::date::MadeByAMacro;",
            "use crate::Date;",
        ] {
            let lib = ("lib.rs", "mod a; mod time; pub use time::Date;");
            let found = found(&[lib, ("a.rs", text), TIME, DATE]);
            let to_date = |line: &String| line.starts_with("a.rs -> time/date.rs by ");
            assert!(found.len() == 1 && found.iter().all(to_date), "{text}: {found:?}");
        }
    }

    #[test]
    fn these_are_no_dependencies() {
        for text in [
            "use crate::time;",
            "use ::time::Date;",
            "use other::time::Date; fn f() { chrono::time::now() }",
            "pub use crate::time::Date;",
            "fn f(x: X) { x.time; <X>::time::now() }",
            "// crate::time::Date\nconst A: &str = \"crate::time::Date\";",
            "#[cfg(test)] mod tests { use crate::time::Date; }",
            "struct A { #[cfg(test)] date: crate::time::Date, b: u8 }",
            "#[cfg(all(test, unix))] fn f<T>(a: T) -> T { crate::time::today() }",
            "use crate::root;",
        ] {
            let lib = ("lib.rs", "mod a; mod time; pub fn root() {}");
            let found = found(&[lib, ("a.rs", text), TIME, DATE]);
            assert!(found.is_empty(), "{text}: {found:?}");
        }
    }

    #[test]
    fn macros_declare_modules() {
        let lib = ("lib.rs", "mod time; list! { /// A\nmod a: A(B); mod b; }");
        let found = found(&[lib, ("a.rs", "use crate::time::Date;"), ("b.rs", ""), TIME, DATE]);
        assert_eq!(found, ["a.rs -> time/date.rs by crate::time::Date"]);
    }

    #[test]
    fn a_replaced_module_is_read_once() {
        let lib = ("lib.rs", "#[cfg(a)] mod time; #[cfg(not(a))] #[path = \"b.rs\"] mod time;");
        let date = ("time/date.rs", "use crate::time::Date; struct Days([Date; 2]);");
        assert!(found(&[lib, ("time/mod.rs", "mod date; struct Date;"), date]).is_empty());
    }

    #[test]
    fn a_file_that_uses_its_own_reexport_depends_on_it() {
        let lib = ("lib.rs", "mod a; pub use a::{A, B}; struct C(A);");
        assert_eq!(
            found(&[lib, ("a.rs", "pub struct A; pub struct B;")]),
            ["lib.rs -> a.rs by a::A"]
        );
    }
}
