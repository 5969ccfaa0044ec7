//! Limits of the structure of the source files. `.ci/count --circles` lists the circles.

use std::fs;
use std::path::Path;

use weft_structure::{Crate, crates};

/// Circles of files in all crates beneath `crates/`, and the files of the largest one.
const MAX_CIRCLES: usize = 4;
const MAX_FILES_OF_CIRCLE: usize = 2;
/// Modules of the longest chain of imports between those directly beneath the root of the program.
const MAX_FLOORS_OF_PROGRAM: usize = 8;
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
fn files_form_few_and_small_circles() {
    let circles: Vec<_> = crates("crates").iter().flat_map(Crate::circles).collect();
    assert!(circles.len() <= MAX_CIRCLES, "{} circles: {circles:#?}", circles.len());
    let large = circles.iter().find(|circle| circle.len() > MAX_FILES_OF_CIRCLE);
    assert_eq!(large, None, "a circle of more than {MAX_FILES_OF_CIRCLE} files");
}

#[test]
fn files_of_the_benchmark_form_no_circles() {
    let crates = crates("bench");
    assert!(crates.len() > 20 && crates.iter().any(|one| one.files.len() > 30), "all are found");
    let circles: Vec<_> = crates.iter().flat_map(Crate::circles).collect();
    assert!(circles.is_empty(), "{circles:#?}");
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
