//! Limits of the structure of the source files. `.ci/count --circles` lists the circles.

use std::fs;
use std::path::Path;

use weft_structure::{Crate, crates};

/// Modules of the longest chain of imports between those directly beneath the root of the program.
const MAX_FLOORS_OF_PROGRAM: usize = 9;
/// Source files directly in a folder.
const MAX_FILES_OF_FOLDER: usize = 20;

#[test]
fn nearly_all_files_are_read() {
    let crates = crates("crates");
    for one in &crates {
        let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(&one.root);
        let (mut files, mut open) = (0, vec![src.parent().unwrap().to_owned()]);
        while let Some(folder) = open.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                files += usize::from(path.extension().is_some_and(|it| it == "rs"));
                open.extend(path.is_dir().then_some(path));
            }
        }
        // The others are tests.
        let is_library = one.root.ends_with("lib.rs");
        assert!(!is_library || one.files.len() * 10 >= files * 9, "{files} files of {}", one.root);
    }
    assert!(crates.len() >= 4);
}

#[test]
fn files_form_no_circles() {
    for (folder, least) in [("crates", 7), ("bench", 21)] {
        let crates = crates(folder);
        assert!(crates.len() >= least, "all are found");
        assert!(crates.iter().any(|one| one.files.len() > 30), "all files are found");
        let circles: Vec<_> = crates.iter().flat_map(Crate::circles).collect();
        assert!(circles.is_empty(), "{circles:#?}");
    }
}

#[test]
fn the_program_has_few_floors() {
    let crates = crates("crates/weft-server");
    let program = crates.iter().find(|one| one.root.ends_with("weft-server/src/lib.rs")).unwrap();
    assert!(program.files.len() > 100, "{:?}", program.files);
    let floors = program.floors();
    assert!(floors <= MAX_FLOORS_OF_PROGRAM, "{floors} floors");
}

#[test]
fn folders_have_few_files() {
    for one in crates("crates") {
        let (files, folder) = one.longest_folder();
        assert!(
            files <= MAX_FILES_OF_FOLDER,
            "{files} files in {}, {}",
            one.root,
            folder.display()
        );
    }
}
