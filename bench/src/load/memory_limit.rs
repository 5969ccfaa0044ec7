//! A limit on the memory of a server, with its part of the page cache: a memory cgroup.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::fs::{Advice, fadvise};

use crate::Result;
use crate::server::Server;
use crate::site::{FileSet, Site};

/// The roots of the memory cgroups of both versions, and the names of their limits.
const ROOTS: [(&str, &str); 2] =
    [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")];

/// A cgroup with the processes of a server. They leave it when it is dropped.
pub struct MemoryLimit {
    group: PathBuf,
    processes: Vec<u32>,
}

impl MemoryLimit {
    pub fn new(server: &Server, bytes: u64) -> Result<MemoryLimit> {
        let exists = |(root, _): &&(&str, &str)| Path::new(root).join("cgroup.procs").exists();
        let (root, limit) =
            ROOTS.iter().find(exists).ok_or("this machine has no memory cgroups")?;
        let group = Path::new(root).join(format!("weft-bench-{}", std::process::id()));
        let this = MemoryLimit { group, processes: server.processes() };
        let write = |name: &str, value: u64| fs::write(this.group.join(name), value.to_string());
        fs::create_dir_all(&this.group)
            .and_then(|()| write(limit, bytes))
            .and_then(|()| {
                this.processes.iter().try_for_each(|id| write("cgroup.procs", (*id).into()))
            })
            .map_err(|error| format!("cannot limit memory by {}: {error}", this.group.display()))?;
        Ok(this)
    }
}

impl Drop for MemoryLimit {
    fn drop(&mut self) {
        let parent = self.group.parent().unwrap_or(Path::new("/")).join("cgroup.procs");
        for process in &self.processes {
            let _ = fs::write(&parent, process.to_string());
        }
        let _ = fs::remove_dir(&self.group);
    }
}

/// Removes files from the page cache.
pub fn evict(site: &Site, set: &FileSet) -> Result<()> {
    let evict = |number| {
        let file = fs::File::open(site.folder.join(set.path(number).trim_start_matches('/')))?;
        file.sync_all()?;
        Ok::<(), std::io::Error>(fadvise(&file, 0, None, Advice::DontNeed)?)
    };
    (0..set.count).try_for_each(evict).map_err(|error| format!("cannot evict files: {error}"))
}
