//! The program `weft`; the library beside it has all of its parts.

use std::process::ExitCode;

fn main() -> ExitCode {
    weft_server::main()
}
