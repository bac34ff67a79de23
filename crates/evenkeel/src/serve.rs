//! `evenkeel serve`: a folder and an address go in, a server with sane settings goes on in the
//! foreground. The settings are a configuration text like any other.

use crate::configuration::Choice;
use crate::httpd;
use crate::terminal::{complain, say};
use evenkeel_config::Main;
use evenkeel_message::Level;
use evenkeel_mpm::{Mode, Model};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

const USAGE: &str = "\
Usage: evenkeel serve [DIR] [OPTION]...
  DIR                    the folder to serve; this one if none is given
  --listen ADDRESS:PORT  where to listen; 127.0.0.1:8080 if none is given
  --mpm MODEL            the process model: event, worker or prefork; event if none is given
  --dot-files            serve names that begin with a dot too, not .well-known alone
  --links-out            follow symbolic links that lead out of the folder
  --status-any-host      show the status page whatever the Host field of a request says, and not
                         under a name of this machine alone; files are given under any name
";

/// What the words ask for.
#[derive(Debug, PartialEq, Eq)]
enum Asked {
    Usage,
    Folder { folder: String, listen: String, model: Model, lenience: Lenience },
}

/// What is served beyond what is safe for any folder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Lenience {
    /// Names that begin with a dot: `.git`, `.env`.
    dot_files: bool,
    /// Targets of links that are out of the folder.
    links_out: bool,
    /// The status page under names of others: a page of theirs may have its name lead here (DNS
    /// rebinding), and then read ours.
    status_any_host: bool,
}

/// Serves a folder.
pub fn run(words: &[String]) -> i32 {
    let (folder, listen, model, lenience) = match parse(words) {
        Ok(Asked::Folder { folder, listen, model, lenience }) => (folder, listen, model, lenience),
        Ok(Asked::Usage) => {
            say(USAGE);
            return 0;
        }
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
    let text = configuration(&shown, &listen, model, lenience);
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
    let greeting = greeting(&folder, &listen);
    httpd::serve("evenkeel", choice, Mode::Foreground, Some(greeting)).unwrap_or_else(|text| {
        complain(&text);
        complain("evenkeel serve: nothing is served; --listen ADDRESS:PORT names another address");
        1
    })
}

fn parse(words: &[String]) -> Result<Asked, String> {
    let (mut folder, mut listen) = (None, "127.0.0.1:8080".to_owned());
    let (mut model, mut lenience) = (Model::default(), Lenience::default());
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--listen" => listen = words.next().ok_or("--listen takes an address")?.clone(),
            "--mpm" => model = model_named(words.next().ok_or("--mpm takes a process model")?)?,
            "--dot-files" => lenience.dot_files = true,
            "--links-out" => lenience.links_out = true,
            "--status-any-host" => lenience.status_any_host = true,
            "-h" | "--help" => return Ok(Asked::Usage),
            word if word.starts_with("--mpm=") => {
                model = model_named(word.trim_start_matches("--mpm="))?;
            }
            word if word.starts_with("--listen=") => {
                listen = word.trim_start_matches("--listen=").to_owned();
            }
            word if word.starts_with('-') => return Err(format!("unknown option {word}")),
            word if folder.is_none() => folder = Some(word.to_owned()),
            word => return Err(format!("one folder is served, not {word} as well")),
        }
    }
    if !is_address(&listen) {
        return Err(format!("--listen takes ADDRESS:PORT, not {listen}"));
    }
    let folder = folder.unwrap_or_else(|| ".".to_owned());
    Ok(Asked::Folder { folder, listen, model, lenience })
}

fn model_named(name: &str) -> Result<Model, String> {
    let all = [Model::Event, Model::Worker, Model::Prefork];
    let found = all.into_iter().find(|model| model.name() == name);
    found.ok_or_else(|| format!("--mpm takes event, worker or prefork, not {name}"))
}

/// Whether it has the form of an address with a port; whether there is such an address shows when
/// it is listened on.
fn is_address(text: &str) -> bool {
    let is_host = |host: &str| {
        let known = |c: char| c.is_ascii_alphanumeric() || ".-_:[]%*".contains(c);
        !host.is_empty() && host.chars().all(known)
    };
    let is_port = |port: &str| port.parse::<u16>().is_ok_and(|port| port > 0);
    text.rsplit_once(':').is_some_and(|(host, port)| is_host(host) && is_port(port))
}

/// What is said once the server listens.
fn greeting(folder: &Path, listen: &str) -> String {
    let at = match listen.rsplit_once(':') {
        Some(("*" | "0.0.0.0" | "[::]", port)) => format!("localhost:{port}"),
        _ => listen.to_owned(),
    };
    let mut text = format!(
        "Serving  {}\nAt       http://{at}/\nStatus   http://{at}/server-status\n\
         Stop     Ctrl-C, or kill {}\n",
        folder.display(),
        std::process::id()
    );
    if evenkeel_sys::identity::is_root()
        && let Some(closed) = folder.ancestors().find(|folder| !is_open_to_all(folder))
    {
        let closed = closed.display();
        text.push_str(&format!(
            "Beware   root's server serves as nobody, who may not enter {closed}\n"
        ));
    }
    text
}

fn is_open_to_all(folder: &Path) -> bool {
    folder.metadata().is_ok_and(|found| found.permissions().mode() & 0o001 != 0)
}

/// The settings of a folder that is served without a configuration of its own.
fn configuration(folder: &str, listen: &str, model: Model, lenience: Lenience) -> String {
    let user = if evenkeel_sys::identity::is_root() {
        // Root's own rights are never needed to serve. A folder that is root's alone is not
        // served; the greeting says so.
        "User nobody\nGroup nogroup\n"
    } else {
        ""
    };
    let module = model.module();
    let host = listen.rsplit_once(':').map_or(listen, |(host, _)| host);
    let hosts: String = ["localhost", "127\\.[0-9.]+", "\\[::1\\]"].join("|");
    let own = ["\\Q", host, "\\E"].concat();
    let links = match lenience.links_out {
        true => String::new(),
        false => format!("SymLinksWithin \"{folder}\"\n"),
    };
    // As if they were not there.
    let dots = match lenience.dot_files {
        true => "",
        false => "RedirectMatch 404 \"/\\.(?!well-known(/|$))\"\n",
    };
    let rebinding = match lenience.status_any_host {
        true => String::new(),
        false => format!(
            "<If \"-n %{{HTTP_HOST}} && %{{HTTP_HOST}} !~ m#^({hosts}|{own})(:[0-9]+)?$#i\">\n\
             Require all denied\n\
             </If>\n"
        ),
    };
    format!(
        "LoadModule {module}_module modules/mod_{module}.so\n\
         ServerName localhost\n\
         Listen {listen}\n\
         {user}\
         ErrorLog /dev/stderr\n\
         LogLevel warn\n\
         DocumentRoot \"{folder}\"\n\
         {links}{dots}\
         <Directory \"/\">\n\
             AllowOverride None\n\
         </Directory>\n\
         <Directory \"{folder}\">\n\
             Options FollowSymLinks\n\
         </Directory>\n\
         <Location \"/server-status\">\n\
             SetHandler server-status\n\
             Require local\n\
             {rebinding}\
         </Location>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::{Asked, Lenience, parse};
    use evenkeel_mpm::Model;

    fn words(text: &str) -> Result<Asked, String> {
        parse(&text.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn a_folder_and_an_address_may_be_left_out() {
        let asked = |folder: &str, listen: &str| {
            let (model, lenience) = (Model::Event, Lenience::default());
            Ok(Asked::Folder { folder: folder.into(), listen: listen.into(), model, lenience })
        };
        assert_eq!(words(""), asked(".", "127.0.0.1:8080"));
        assert_eq!(words("x --listen [::1]:1"), asked("x", "[::1]:1"));
        assert_eq!(words("--listen=localhost:80 x"), asked("x", "localhost:80"));
        assert_eq!(words("x --help"), Ok(Asked::Usage));
        assert!(words("a b").is_err() && words("--lisen x").is_err() && words("--listen").is_err());
    }

    #[test]
    fn a_process_model_is_one_of_three() {
        for (text, model) in [
            ("--mpm prefork", Model::Prefork),
            ("--mpm=worker x", Model::Worker),
            ("--mpm event", Model::Event),
        ] {
            let asked = words(text);
            assert!(matches!(asked, Ok(Asked::Folder { model: own, .. }) if own == model));
        }
        assert!(words("--mpm threads").is_err() && words("--mpm").is_err());
    }

    #[test]
    fn an_address_has_a_port() {
        for wrong in ["8080", ":8080", "127.0.0.1:", "127.0.0.1:0", "localhost:70000", "a/b:80"] {
            let text = format!("--listen takes ADDRESS:PORT, not {wrong}");
            assert_eq!(words(&format!("--listen {wrong}")), Err(text));
        }
    }
}
