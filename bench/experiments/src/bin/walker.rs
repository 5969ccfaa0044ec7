//! Opening a file beneath a directory: by `openat2(2)`, or by the walk of the engine, which serves
//! systems without this call.
//!
//! `cargo run --release --manifest-path bench/Cargo.toml -p weft-experiments --bin walker`

use rustix::fd::AsFd;
use rustix::fs::{Mode, ResolveFlags, open, openat2};
use weft_experiments::compare;

/// The walk of `weft-http`, which is not public. Without `skip`, rustfmt would look for its tests
/// in another folder.
#[rustfmt::skip]
#[allow(dead_code, reason = "the engine also reads attributes without opening a file")]
#[path = "../../../../crates/weft/src/sys/beneath.rs"]
mod beneath;

/// The flags of the engine on Linux.
mod system {
    use rustix::fd::BorrowedFd;
    use rustix::fs::OFlags;

    pub const READ_FLAGS: OFlags =
        OFlags::RDONLY.union(OFlags::CLOEXEC).union(OFlags::NONBLOCK).union(OFlags::NOCTTY);
    pub const DIRECTORY_FLAGS: OFlags =
        OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

    /// Returns false: no path of the experiment contains a link.
    pub fn refuses_links(_directory: BorrowedFd<'_>) -> rustix::io::Result<bool> {
        Ok(false)
    }
}

mod types {
    pub use rustix::fd::{AsFd, BorrowedFd, OwnedFd};

    /// As in the engine.
    #[derive(Clone, Copy, PartialEq, Eq)]
    #[allow(dead_code, reason = "the experiment follows links beneath the directory")]
    pub enum Links {
        Refused,
        Beneath,
        Anywhere,
    }
}

fn main() {
    let folder = std::env::temp_dir().join(format!("weft-walker-{}", std::process::id()));
    std::fs::create_dir_all(folder.join("a/b/c")).unwrap();
    let root = open(&folder, system::DIRECTORY_FLAGS, Mode::empty()).unwrap();
    for (depth, path) in [(1, "file"), (2, "a/file"), (4, "a/b/c/file")] {
        std::fs::write(folder.join(path), "x").unwrap();
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        compare(
            &format!("a path of {depth} components"),
            &[
                ("openat2", &|| {
                    drop(openat2(&root, path, system::READ_FLAGS, Mode::empty(), resolve).unwrap());
                }),
                ("walk", &|| {
                    let links = types::Links::Beneath;
                    drop(beneath::open(root.as_fd(), path.as_bytes(), links).unwrap());
                }),
            ],
        );
    }
    std::fs::remove_dir_all(folder).unwrap();
}
