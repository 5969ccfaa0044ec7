//! What is kept of a file: `files ADDRESS WORKERS VARIANT FOLDER`, on Weft.
//!
//! - `contents`: the bytes, for as long as they are believed: Weft's way with small files;
//! - `descriptor`: the file is open, and its bytes come by `sendfile`;
//! - `nothing`: it is looked up, opened, sent and closed for each request.

use weft::{Directory, DirectorySettings, Server};

fn main() -> weft::Result<()> {
    let (address, workers) = peer::arguments();
    let folder = std::env::args().nth(4).expect("a folder");
    let usual = DirectorySettings::default();
    let settings = match weft_experiments::variant().as_str() {
        "contents" => usual,
        "descriptor" => DirectorySettings { max_kept_file_bytes: 0, ..usual },
        "nothing" => DirectorySettings { max_kept_entries: 0, ..usual },
        other => panic!("there is no variant {other:?}"),
    };
    let files = Directory::with_settings(folder, settings)?;
    Server::new(files).workers(workers).listen(address)?.run()
}
