//! Caching of files in Weft: `files ADDRESS WORKERS VARIANT FOLDER`.
//!
//! - `contents`: the contents are cached until they are revalidated, Weft's default for small
//!   files;
//! - `descriptor`: the open file is cached, and its contents are sent with `sendfile`;
//! - `nothing`: the file is opened, sent and closed for each request.

use weft::Server;
use weft::files::{Directory, DirectorySettings};

fn main() -> weft::Result<()> {
    let (address, workers) = peer::arguments();
    let folder = std::env::args().nth(4).expect("usage: files ADDRESS WORKERS VARIANT FOLDER");
    let default = DirectorySettings::default();
    let settings = match weft_experiments::variant().as_str() {
        "contents" => default,
        "descriptor" => DirectorySettings { max_cached_file_bytes: 0, ..default },
        "nothing" => DirectorySettings { max_cached_entries: 0, ..default },
        other => panic!("unknown variant {other:?}"),
    };
    let files = Directory::with_settings(folder, settings)?;
    Server::new(files).workers(workers).listen(address)?.run()
}
