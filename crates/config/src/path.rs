//! Makes paths of the configuration absolute: relative to ServerRoot, without `.`, `..` and doubled
//! slashes. It does not access the file system.

/// The absolute form of `path` relative to `root`, as Apache makes paths relative to ServerRoot:
/// `.` and empty segments are removed, `..` removes the segment before it, and a slash at the end
/// stays.
///
/// Source: server/config.c, ap_server_root_relative; apr_filepath_merge.
#[must_use]
pub fn absolute(root: &str, path: &str) -> String {
    let joined = if path.starts_with('/') { path.to_owned() } else { format!("{root}/{path}") };
    let mut segments: Vec<&str> = Vec::new();
    for segment in joined.split('/') {
        match segment {
            "" | "." => {}
            ".." => {
                segments.pop();
            }
            _ => segments.push(segment),
        }
    }
    let tail = if path.ends_with('/') && !segments.is_empty() { "/" } else { "" };
    format!("/{}{tail}", segments.join("/"))
}

/// The system's message for `error`, without the number that Rust appends.
pub(crate) fn reason(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split_once(" (os error").map_or(text.clone(), |(words, _)| words.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_become_absolute() {
        assert_eq!(absolute("/etc/apache2", "conf.d/*.conf"), "/etc/apache2/conf.d/*.conf");
        assert_eq!(absolute("/etc/", "../x//./y/"), "/x/y/");
        assert_eq!(absolute("/etc", "/a/../../b"), "/b");
        assert_eq!(absolute("/etc", "/"), "/");
        assert_eq!(absolute("/etc", ""), "/etc");
    }

    #[test]
    fn the_system_speaks_as_strerror() {
        let error = std::fs::read("/nonexistent").unwrap_err();
        assert_eq!(reason(&error), "No such file or directory");
    }
}
