//! A root directory behind a symbolic link, which deployments switch to another release.
#![cfg(feature = "files")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use tempfile::TempDir;
use weft::files::{Directory, DirectorySettings};
use weft::server::ServerHandle;

use crate::common::tree::{ask, serve};
use crate::common::{Client, stop, until};

/// A folder with releases and the link `current` to one of them.
struct Releases(TempDir);

/// The files of each release. All bytes of a file are the digit of its release.
const FILES: [(&str, usize); 4] =
    [("index.html", 100), ("a.txt", 3_000), ("folder/b.txt", 40_000), ("large.bin", 300_000)];

impl Releases {
    fn new() -> Releases {
        let releases = Releases(tempfile::tempdir().unwrap());
        for release in ["1", "2"] {
            for (name, length) in FILES {
                let path = releases.path(&format!("releases/{release}/{name}"));
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, release.repeat(length)).unwrap();
            }
        }
        symlink("releases/1", releases.path("current")).unwrap();
        releases
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Switches the link in one step, as `mv -T` does.
    fn switch(&self, release: &str) {
        symlink(format!("releases/{release}"), self.path("next")).unwrap();
        fs::rename(self.path("next"), self.path("current")).unwrap();
    }

    /// Switches the link in two steps, as `ln -sfn` of some systems does.
    fn switch_in_two_steps(&self, release: &str) {
        fs::remove_file(self.path("current")).unwrap();
        symlink(format!("releases/{release}"), self.path("current")).unwrap();
    }

    fn serve(&self, revalidate_after: Duration) -> ServerHandle {
        let settings =
            DirectorySettings { revalidate_after, listing: true, ..DirectorySettings::default() };
        serve(Directory::with_settings(self.path("current"), settings).unwrap())
    }
}

/// Returns the release that serves a target.
fn release(client: &mut Client, target: &str) -> char {
    let response = ask(client, "GET", target);
    assert_eq!(response.status, 200, "{target}");
    let text = response.text();
    let release = text.chars().next().expect("a file with contents");
    assert!(text.chars().all(|c| c == release), "{target}: a mixture of releases");
    release
}

#[test]
fn serves_the_new_release_after_the_revalidation_time() {
    let releases = Releases::new();
    let server = releases.serve(DirectorySettings::default().revalidate_after);
    let mut client = Client::connect(&server);
    let targets = ["/", "/a.txt", "/folder/b.txt", "/large.bin"];
    for (release_after, before) in [("2", '1'), ("1", '2')] {
        assert_eq!(targets.map(|target| release(&mut client, target)), [before; 4]);
        releases.switch(release_after);
        let after = release_after.chars().next().unwrap();
        until("the first file is of the new release", || release(&mut client, "/a.txt") == after);
        // Entries that were fresh a moment ago are of the former release.
        assert_eq!(targets.map(|target| release(&mut client, target)), [after; 4]);
    }
    stop(server);
}

#[test]
fn follows_the_link_only_after_the_revalidation_time() {
    let releases = Releases::new();
    let server = releases.serve(Duration::MAX);
    let mut client = Client::connect(&server);
    assert_eq!(release(&mut client, "/a.txt"), '1');
    releases.switch("2");
    // Neither for a cached file nor for a lookup in the file system.
    assert_eq!(["/a.txt", "/"].map(|target| release(&mut client, target)), ['1'; 2]);
    stop(server);
}

#[test]
fn serves_the_last_release_while_the_link_is_broken() {
    let releases = Releases::new();
    let server = releases.serve(Duration::from_millis(10));
    let mut client = Client::connect(&server);
    let link = releases.path("current");
    for break_link in [
        |_: &PathBuf| {},
        |link: &PathBuf| symlink("missing", link).unwrap(),
        |link: &PathBuf| fs::write(link, "a file").unwrap(),
    ] as [fn(&PathBuf); 3]
    {
        // There is none after the first round.
        let _ = fs::remove_file(&link);
        break_link(&link);
        for target in ["/a.txt", "/", "/large.bin"].repeat(20) {
            assert_eq!(release(&mut client, target), '1', "{target}");
            thread::yield_now();
        }
    }
    releases.switch_in_two_steps("2");
    until("the new release", || release(&mut client, "/a.txt") == '2');
    // The directory behind the link is gone, and with it its files.
    fs::remove_dir_all(releases.path("releases/2")).unwrap();
    until("nothing is left", || ask(&mut client, "GET", "/a.txt").status == 404);
    releases.switch("1");
    until("the release that the link leads to", || {
        ask(&mut client, "GET", "/a.txt").text().starts_with('1')
    });
    stop(server);
}

#[test]
fn listings_are_of_the_new_release() {
    let releases = Releases::new();
    fs::write(releases.path("releases/2/folder/new.txt"), "").unwrap();
    let server = releases.serve(DirectorySettings::default().revalidate_after);
    let mut client = Client::connect(&server);
    let mut lists_new_file = || ask(&mut client, "GET", "/folder/").text().contains("new.txt");
    assert!(!lists_new_file());
    releases.switch("2");
    until("the listing of the new release", &mut lists_new_file);
    stop(server);
}

#[test]
fn no_response_fails_or_mixes_releases_while_the_link_is_switched() {
    const ROUNDS: usize = 300;
    let releases = Releases::new();
    let server = releases.serve(Duration::from_millis(1));
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for number in 1.. {
                if done.load(Relaxed) {
                    break;
                }
                let release = ["1", "2"][number % 2];
                match number % 3 {
                    0 => releases.switch_in_two_steps(release),
                    _ => releases.switch(release),
                }
            }
        });
        let clients: Vec<_> = (0..3)
            .map(|offset| {
                let server = &server;
                scope.spawn(move || {
                    let mut client = Client::connect(server);
                    for round in 0..ROUNDS {
                        let target =
                            ["/", "/a.txt", "/folder/b.txt", "/large.bin"][(round + offset) % 4];
                        release(&mut client, target);
                    }
                })
            })
            .collect();
        let ends: Vec<_> = clients.into_iter().map(|client| client.join()).collect();
        done.store(true, Relaxed);
        ends.into_iter().for_each(|end| end.unwrap());
    });
    stop(server);
}
