//! The configurations in `tests/import`: each result starts.

use std::fs;

use super::*;

/// Writes the files that the configurations serve, and their certificates.
fn write_tree(folder: &Path, tree: &str) {
    for file in tree.split("== ").skip(1) {
        let (name, text) = file.split_once('\n').unwrap();
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    ["run/php", "var/log", "etc/ssl"]
        .iter()
        .for_each(|name| fs::create_dir_all(folder.join(name)).unwrap());
    for name in ["example", "other"] {
        let names = vec![format!("{name}.org"), format!("www.{name}.org")];
        let certified = rcgen::generate_simple_self_signed(names).unwrap();
        let file = |end: &str| folder.join(format!("etc/ssl/{name}.{end}"));
        fs::write(file("pem"), certified.cert.pem()).unwrap();
        fs::write(file("key"), certified.signing_key.serialize_pem()).unwrap();
    }
}

#[test]
fn results_of_all_configurations_start() {
    let configurations = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/import");
    let folder = tempfile::tempdir().unwrap();
    write_tree(folder.path(), &fs::read_to_string(configurations.join("tree.txt")).unwrap());
    let at = |text: &str| {
        let paths = ["/srv/", "/etc/", "/run/", "/var/log/"];
        paths.iter().fold(text.to_owned(), |text, path| {
            let own = format!("{}{path}", folder.path().display());
            // Not within another path.
            [" ", "\"", ":"].iter().fold(text, |text, before| {
                text.replace(&format!("{before}{path}"), &format!("{before}{own}"))
            })
        })
    };
    let files = fs::read_dir(folder.path().join("etc/nginx")).unwrap();
    for file in files.map(|file| file.unwrap().path()) {
        fs::write(&file, at(&fs::read_to_string(&file).unwrap())).unwrap();
    }
    let mut names: Vec<_> =
        fs::read_dir(&configurations).unwrap().map(|it| it.unwrap().path()).collect();
    names.retain(|path| path.extension().is_some_and(|end| end == "conf"));
    names.sort();
    assert!(names.len() >= 54, "{names:?}");
    let mut failures = Vec::new();
    for path in names {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let own = folder.path().join(&name);
        fs::write(&own, at(&fs::read_to_string(&path).unwrap())).unwrap();
        let imported = weft_import::nginx(&own, &Program).unwrap();
        if let Some(results) = std::env::var_os("WEFT_WRITE_IMPORTED") {
            fs::write(Path::new(&results).join(&name), &imported.text).unwrap();
        }
        let sources = Sources::of_text("weft.toml", imported.text.clone(), Path::new("/"));
        let config = Config::parse(&sources);
        let problems = match config.problems.is_empty() {
            true => Plan::new(config).and_then(|plan| plan.open(None).map(drop)).err(),
            false => Some(config.problems),
        };
        if let Some(problems) = problems {
            failures.push(format!("{name}: {problems:?}\n{}", imported.text));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
