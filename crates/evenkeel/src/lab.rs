//! Starts the load lab, a program of its own (`evenkeel-lab`). `evenkeel bench` and the lab's other
//! subcommands replace this process with that program, as git does with `git-...`: the one beside
//! this executable, or the first one in PATH.

use crate::terminal::complain;
use std::convert::Infallible;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

const PROGRAM: &str = "evenkeel-lab";

/// Becomes the lab with these words, the first of which is the subcommand. Returns the exit status
/// 1 if there is no such program.
pub fn run(words: &[OsString]) -> i32 {
    let Err(text) = become_lab(words);
    let subcommand = words.first().map(|word| word.to_string_lossy()).unwrap_or_default();
    complain(&format!("evenkeel {subcommand}: {text}"));
    1
}

fn become_lab(words: &[OsString]) -> Result<Infallible, String> {
    let own = std::env::current_exe().map_err(|error| format!("this executable: {error}"))?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let program = find(&own, &path).ok_or_else(|| {
        format!(
            "the program {PROGRAM} is neither beside {} nor in PATH; install it, or build it with \
             `cargo build --release --package {PROGRAM}`",
            own.display()
        )
    })?;
    let error: io::Error = Command::new(&program).args(words).exec();
    Err(format!("{}: {error}", program.display()))
}

/// The lab beside the executable `own`, or in a folder of `path`, which is the variable PATH.
fn find(own: &Path, path: &OsString) -> Option<PathBuf> {
    let beside = own.parent().map(Path::to_path_buf);
    let folders = beside.into_iter().chain(std::env::split_paths(path));
    folders.map(|folder| folder.join(PROGRAM)).find(|program| program.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_lab_beside_the_server_comes_before_those_in_path() {
        let root = std::env::temp_dir().join(format!("evenkeel-find-lab-{}", std::process::id()));
        let [beside, first, second] = ["beside", "first", "second"].map(|name| root.join(name));
        for folder in [&beside, &first, &second] {
            fs::create_dir_all(folder).unwrap();
        }
        let own = beside.join("evenkeel");
        let path = std::env::join_paths([&first, &second]).unwrap();
        assert_eq!(find(&own, &path), None);
        // A folder with that name is not a program.
        fs::create_dir(first.join(PROGRAM)).unwrap();
        for folder in [&second, &beside] {
            fs::write(folder.join(PROGRAM), "").unwrap();
            assert_eq!(find(&own, &path), Some(folder.join(PROGRAM)));
        }
        fs::remove_dir_all(&root).unwrap();
    }
}
