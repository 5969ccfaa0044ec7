//! The book: each recipe of the operators' cookbook passes `weft check`, and so does each file of
//! the operators' tutorial.

use std::fs;
use std::path::Path;

use rcgen::{CertifiedKey, generate_simple_self_signed};

use crate::common::repository;
use crate::config::{folder_with, run_in};

/// Files that recipes and chapters name, as they introduce them.
const FILES: [(&str, &str); 8] = [
    ("site/index.html", "<h1>Hello</h1>\n"),
    ("site/404.html", "<h1>There is no such page</h1>\n"),
    ("site/50x.html", "<h1>Later</h1>\n"),
    ("blog/index.php", "<?php echo 1;\n"),
    ("users", "anna:$2y$05$JFfDEFiK93/1ONlOf571be4kT4/fhX8nBN/y75i6nhagf4H7nj76O\n"),
    ("sites/none.txt", ""),
    ("acme/none.txt", ""),
    ("access.log", ""),
];

/// Returns the files of a text, `weft.toml` of each recipe or chapter first.
fn configurations(text: &str) -> Vec<String> {
    let blocks = text.split("```toml\n").skip(1);
    blocks.map(|block| block.split("```").next().unwrap().to_owned()).collect()
}

/// Checks a configuration in a folder with `FILES`. Returns the errors and warnings.
fn check(configuration: &str, included: Option<&str>) -> Result<(), String> {
    let folder = folder_with(&FILES);
    let names = ["example.org".to_owned(), "www.example.org".to_owned()];
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(names).unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    write("cert.pem", &cert.pem());
    write("key.pem", &signing_key.serialize_pem());
    write("weft.toml", configuration);
    if let Some(included) = included {
        write("sites/shop.toml", included);
    }
    let output = run_in(folder.path(), &["check", "weft.toml"]);
    if output.status == Ok(0) { Ok(()) } else { Err(output.stderr) }
}

#[test]
fn recipes_pass_the_check() {
    let page = fs::read_to_string(repository("docs/recipes.md")).unwrap();
    let recipes: Vec<&str> = page.split("\n## ").skip(1).collect();
    assert!(recipes.len() >= 25, "{} recipes", recipes.len());
    for recipe in recipes {
        let title = recipe.lines().next().unwrap();
        let files = configurations(recipe);
        let (first, included) = (files.first().expect(title), files.get(1));
        let checked = check(first, included.map(String::as_str));
        assert_eq!(checked, Ok(()), "{title}");
        // The check is no formality: with a key that does not exist, it fails.
        let broken = first.replacen("\n\n[", "\nno_such_key = 1\n\n[", 1);
        let broken = if broken == *first { format!("no_such_key = 1\n{first}") } else { broken };
        assert!(check(&broken, None).is_err(), "{title}");
    }
}

#[test]
fn files_of_the_tutorial_pass_the_check() {
    let mut count = 0;
    for entry in fs::read_dir(repository("docs/operators")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension() != Some("md".as_ref()) {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let name = Path::new(path.file_name().unwrap()).display();
        for file in configurations(&text) {
            // One has a mistake to show the message, and one needs a machine on the Internet.
            let is_wrong = file.contains("lst = true");
            if !file.contains("/srv/www") {
                assert_eq!(check(&file, None).is_err(), is_wrong, "{name}:\n{file}");
            }
            count += 1;
        }
    }
    assert!(count >= 20, "{count} files");
}
