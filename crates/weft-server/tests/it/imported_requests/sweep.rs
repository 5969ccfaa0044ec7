//! Requests for every file of the tree, in several forms, to each server of a configuration.

use std::collections::BTreeSet;

use regex::Regex;

use crate::idioms::file::Request;

/// A server block.
pub struct ServerBlock {
    pub host: String,
    /// Address of its first `listen` directive, as it is written.
    pub listen: String,
    pub is_secure: bool,
}

/// Returns the server blocks of a configuration, each with a host of these requests, if one of them
/// is for it.
pub fn server_blocks(text: &str, requests: &[Request]) -> Vec<ServerBlock> {
    let blocks = text.split("\nserver {").skip(usize::from(!text.starts_with("server {")));
    let block = |block: &str| {
        let directive = |name: &str| {
            let line = block.lines().find_map(|line| line.trim().strip_prefix(name));
            line.and_then(|line| line.split(';').next()).unwrap_or_default()
        };
        let mut listen = directive("listen ").split(' ');
        let address = listen.next().filter(|it| !it.is_empty()).unwrap_or("80").to_owned();
        let names: Vec<&str> = directive("server_name ").split_whitespace().collect();
        let is_own = |host: &&str| names.iter().any(|name| matches(name, host));
        let host = requests.iter().map(|request| request.host.as_str()).find(is_own);
        ServerBlock {
            host: host.unwrap_or("none.example").to_owned(),
            listen: address,
            is_secure: listen.any(|word| word == "ssl"),
        }
    };
    blocks.map(block).collect()
}

/// Returns true if a host has this name of a server.
fn matches(name: &str, host: &str) -> bool {
    match name.strip_prefix('~') {
        Some(pattern) => Regex::new(pattern).expect("an expression").is_match(host),
        None => match name.strip_prefix('*').or(name.strip_prefix('.')) {
            Some(end) => host.ends_with(end),
            None => name == host,
        },
    }
}

/// Returns the targets of requests: each file of the tree by its path, also in other forms if the
/// configuration serves it, and its folder.
pub fn targets(text: &str, files: &[String]) -> BTreeSet<String> {
    let mut targets = BTreeSet::from(["/", "/none", "/none/"].map(str::to_owned));
    let folders = served_folders(text);
    for file in files {
        let (_, path) = file["/srv/".len()..].split_once('/').expect("a folder");
        targets.insert(format!("/{path}"));
        for (folder, prefix) in &folders {
            if let Some(rest) = file.strip_prefix(folder).and_then(|it| it.strip_prefix('/')) {
                targets.extend(forms(&format!("{prefix}{rest}")));
            }
        }
    }
    targets
}

/// Returns the folders that a configuration serves, each with the prefix of the paths of its files.
fn served_folders(text: &str) -> BTreeSet<(String, String)> {
    let mut folders = BTreeSet::new();
    let mut variables: Vec<(&str, &str)> = Vec::new();
    let mut location = "/";
    let words: Vec<&str> = text.split([' ', '\n', ';', '{']).filter(|it| !it.is_empty()).collect();
    for (at, word) in words.iter().enumerate() {
        let next = |number: usize| words.get(at + number).copied().unwrap_or_default();
        let folder = variables
            .iter()
            .fold(next(1).to_owned(), |folder, (name, value)| folder.replace(name, value));
        let folder = folder.trim_end_matches('/').to_owned();
        match *word {
            "location" if ["=", "^~"].contains(&next(1)) => location = next(2),
            "location" => location = next(1),
            "set" => variables.push((next(1), next(2))),
            "root" => drop(folders.insert((folder, "/".to_owned()))),
            "alias" if location.starts_with('/') => {
                let prefix = format!("{}/", location.trim_end_matches('/'));
                folders.insert((folder, prefix));
            }
            _ => {}
        }
    }
    folders
}

/// Returns the path of a file in forms that servers read as the same path, in turns, and the paths
/// of its folder and of something behind it.
fn forms(path: &str) -> Vec<String> {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    let other = match path.len() % 4 {
        0 => format!("/.{path}"),
        1 => format!("{folder}/none/../{name}"),
        2 => format!("{folder}//{name}"),
        _ => path.replacen('.', "%2e", 1),
    };
    vec![path.to_owned(), other, format!("{path}/"), format!("{folder}/")]
}
