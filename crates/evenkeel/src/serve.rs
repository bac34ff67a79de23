//! `evenkeel serve`: a folder and an address go in, a server with sane settings goes on in the
//! foreground. The settings are a configuration text like any other.

use crate::configuration::Choice;
use crate::httpd;
use crate::terminal::{complain, say};
use evenkeel_config::Main;
use evenkeel_message::Level;
use evenkeel_mpm::Mode;
use std::path::PathBuf;

const USAGE: &str = "\
Usage: evenkeel serve [DIR] [--listen ADDRESS:PORT]
  DIR                    the folder to serve; this one if none is given
  --listen ADDRESS:PORT  where to listen; 127.0.0.1:8080 if none is given
";

/// Serves a folder.
pub fn run(words: &[String]) -> i32 {
    let (folder, listen) = match parse(words) {
        Ok(parsed) => parsed,
        Err(text) => {
            complain(&format!("evenkeel serve: {text}"));
            complain(USAGE);
            return 2;
        }
    };
    let folder = match PathBuf::from(&folder).canonicalize() {
        Ok(folder) if folder.is_dir() => folder,
        Ok(folder) => {
            complain(&format!("evenkeel serve: {} is not a folder", folder.display()));
            return 1;
        }
        Err(error) => {
            complain(&format!("evenkeel serve: {folder}: {error}"));
            return 1;
        }
    };
    let shown = folder.display().to_string();
    if shown.contains(['"', '\\', '\n', '$']) {
        complain("evenkeel serve: the folder's path must not hold \", \\, $ or a line feed");
        return 1;
    }
    let text = configuration(&shown, &listen, std::process::id());
    let main = Main::Text { name: "evenkeel serve".to_owned(), text: text.into_bytes() };
    let choice = Choice {
        server_root: "/".to_owned(),
        main,
        before: Vec::new(),
        after: Vec::new(),
        defines: vec!["FOREGROUND".to_owned()],
        program: "evenkeel".to_owned(),
        start_level: Level::Warn,
        skip_root_check: false,
    };
    say(&format!(
        "Serving  {shown}\nAt       http://{listen}/\nStatus   http://{listen}/server-status\n\
         Stop     Ctrl-C, or kill {}",
        std::process::id()
    ));
    httpd::serve("evenkeel", choice, Mode::Foreground, words)
}

fn parse(words: &[String]) -> Result<(String, String), String> {
    let (mut folder, mut listen) = (None, "127.0.0.1:8080".to_owned());
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--listen" => listen = words.next().ok_or("--listen takes an address")?.clone(),
            "-h" | "--help" => return Err("help".to_owned()),
            word if word.starts_with("--listen=") => {
                listen = word.trim_start_matches("--listen=").to_owned();
            }
            word if word.starts_with('-') => return Err(format!("unknown option {word}")),
            word if folder.is_none() => folder = Some(word.to_owned()),
            word => return Err(format!("one folder is served, not {word} as well")),
        }
    }
    Ok((folder.unwrap_or_else(|| ".".to_owned()), listen))
}

/// The settings of a folder that is served without a configuration of its own.
fn configuration(folder: &str, listen: &str, pid: u32) -> String {
    let user = if evenkeel_sys::identity::is_root() {
        // Root's own rights are never needed to serve; the folder may be root's alone, though.
        "User nobody\nGroup nogroup\n"
    } else {
        ""
    };
    format!(
        "ServerName localhost\n\
         Listen {listen}\n\
         {user}\
         PidFile /tmp/evenkeel-{pid}.pid\n\
         ErrorLog /dev/stderr\n\
         LogLevel warn\n\
         DocumentRoot \"{folder}\"\n\
         <Directory \"{folder}\">\n\
             Options FollowSymLinks\n\
             AllowOverride None\n\
         </Directory>\n\
         <Location \"/server-status\">\n\
             SetHandler server-status\n\
             Require local\n\
         </Location>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::parse;

    fn words(text: &str) -> Result<(String, String), String> {
        parse(&text.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn a_folder_and_an_address_may_be_left_out() {
        assert_eq!(words("").unwrap(), (".".into(), "127.0.0.1:8080".into()));
        assert_eq!(words("x --listen [::1]:1").unwrap(), ("x".into(), "[::1]:1".into()));
        assert!(words("a b").is_err() && words("--lisen x").is_err() && words("--listen").is_err());
    }
}
