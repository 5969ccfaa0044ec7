//! Prints the measures of the crates: `.ci/count`, or `.ci/count --circles` for each circle.

use std::env;

fn main() {
    let lists_circles = env::args().any(|argument| argument == "--circles");
    println!("{:>7} {:>6} {:>7} {:>8}  longest folder", "lines", "files", "floors", "circles");
    let mut sum = 0;
    let crates = weft_structure::crates("crates");
    for one in crates.iter().chain(&weft_structure::crates("bench")) {
        let circles = one.circles();
        let (count, folder) = one.longest_folder();
        let measures = [one.code_lines(), one.files.len(), one.floors(), circles.len()]
            .map(|it| it.to_string());
        let [lines, files, floors, number] = measures;
        let folder = format!("{}/{}", one.root, folder.display());
        println!("{lines:>7} {files:>6} {floors:>7} {number:>8}  {count:>3} {folder}");
        for circle in circles.iter().filter(|_| lists_circles) {
            println!("  a circle of {} files", circle.len());
            circle.iter().for_each(|file| println!("    {file}"));
        }
        sum += usize::from(one.root.starts_with("crates/")) * one.code_lines();
    }
    println!("{sum:>7} in crates/");
}
