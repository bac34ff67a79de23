//! The declarations of `evenkeel`'s own subcommands, from which the parser, the help texts, the
//! completions and the man pages derive. httpd's command line is a contract and is not declared
//! here.

use clap::error::ErrorKind;
use clap::{Args, Command, CommandFactory as _, Parser, Subcommand};
use evenkeel_mpm::Model;

/// The subcommands of the load lab, which `evenkeel-lab` runs, with their descriptions.
pub const LAB: [(&str, &str); 7] = [
    ("bench", "Puts a load on a server and reports what came of it"),
    ("surge", "Puts the SURGE workload on a server"),
    ("replay", "Asks a server for what access logs say was asked"),
    ("lab", "Measures installed servers beside each other on this machine"),
    ("sim", "Simulates what a pool of workers does under a load, hours in a second"),
    ("top", "Shows what this machine does, and a web server on it or elsewhere"),
    ("report", "Makes one page of saved results of the lab"),
];

/// A web server that reads Apache's configuration and keeps an even keel
#[derive(Debug, PartialEq, Eq, Parser)]
#[command(
    name = "evenkeel",
    bin_name = "evenkeel",
    version,
    disable_version_flag = true,
    subcommand_required = true,
    disable_help_subcommand = true,
    max_term_width = 100,
    help_template = "{about}\n\n{usage-heading} {usage}\n\n\
                     Subcommands:\n{subcommands}{after-help}\n",
    override_usage = "evenkeel SUBCOMMAND [WORDS]...\n       \
                      evenkeel [httpd's options]\n       \
                      evenkeel --help | --version",
    after_help = "With httpd's options it serves an Apache configuration; `evenkeel -h` lists \
                  them. The program evenkeel-lab, beside this one or in PATH, runs bench, surge, \
                  replay, lab, sim, top and report. Called as httpd or apache2 it is httpd's \
                  command line alone; evenkeel-lab called as ab is ab's."
)]
pub struct Words {
    /// What is to be done.
    #[command(subcommand)]
    pub subcommand: Own,
}

/// The subcommands that the server has itself.
#[derive(Debug, PartialEq, Eq, Subcommand)]
pub enum Own {
    /// Serves a folder as a site
    Serve(Serve),
    /// Tells what limits a server now
    Explain(Explain),
    /// Prints the directives of the pool of workers as a server obeys them
    Limits(Limits),
    /// Writes the completions for a shell to standard output
    Completions {
        /// The shell
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
}

/// The words of `evenkeel serve`.
#[derive(Debug, PartialEq, Eq, Args)]
#[command(args_override_self = true)]
pub struct Serve {
    /// The folder to serve
    #[arg(value_name = "DIR", default_value = ".")]
    pub folder: String,
    /// Where to listen
    #[arg(
        long,
        value_name = "ADDRESS:PORT",
        default_value = "127.0.0.1:8080",
        value_parser = address
    )]
    pub listen: String,
    /// Speaks HTTPS, with a certificate for this machine that is made in the user's state folder
    #[arg(long)]
    pub tls: bool,
    /// The process model: event, worker or prefork
    #[arg(long, value_name = "MODEL", default_value = "event", value_parser = model)]
    pub mpm: Model,
    /// What is served beyond what is safe for any folder.
    #[command(flatten)]
    pub lenience: Lenience,
}

/// What is served beyond what is safe for any folder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Args)]
pub struct Lenience {
    /// Serves names that begin with a dot too, not .well-known alone
    #[arg(long)]
    pub dot_files: bool,
    /// Follows symbolic links that lead out of the folder
    #[arg(long)]
    pub links_out: bool,
    /// Shows the status page whatever the Host field of a request says, and not under a name of
    /// this machine alone; files are given under any name
    // Another site's page may make its name resolve to this machine (DNS rebinding), and then read
    // the status page.
    #[arg(long)]
    pub status_any_host: bool,
}

/// The words of `evenkeel explain`.
#[derive(Debug, PartialEq, Eq, Args)]
#[command(
    override_usage = "evenkeel explain [URL | PID | -f FILE] [--insecure]",
    after_help = "It prints what limits the server now, how many requests a second that leaves, \
                  the limit behind it and what would move it. The exit status is 0 where it was \
                  told, 1 where it is not to be had, 2 where the words make no sense."
)]
pub struct Explain {
    /// The server's status page (/server-status where only a host is given), or the process of a
    /// server that runs here, whose page is found by its configuration
    #[arg(value_name = "URL | PID", value_parser = whom)]
    pub whom: Option<Whom>,
    /// The configuration of a server that runs here; apache2.conf where nothing is given
    #[arg(short, value_name = "FILE", conflicts_with = "whom", allow_hyphen_values = true)]
    pub file: Option<String>,
    /// Takes any certificate
    #[arg(long, overrides_with = "insecure")]
    pub insecure: bool,
}

/// The server to explain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Whom {
    /// The server with this status page.
    Page(String),
    /// The server of this process.
    Process(i32),
}

/// The words of `evenkeel limits`.
#[derive(Debug, PartialEq, Eq, Args)]
#[command(after_help = "Defaults are among them, and values that cannot be are corrected as the \
                        server does. The exit status is 0, 1 where the configuration is refused, \
                        2 where the words make no sense.")]
pub struct Limits {
    /// The configuration; apache2.conf where nothing is given
    #[arg(short, value_name = "FILE", allow_hyphen_values = true)]
    pub file: Option<String>,
}

/// Why the words are not acted upon.
#[derive(Debug, PartialEq, Eq)]
pub enum Stop {
    /// Help is requested; this is the text.
    Help(String),
    /// The words make no sense, for this reason.
    Wrong(String),
}

/// Parses the words after the program's name.
///
/// # Errors
///
/// Help is requested, or a word makes no sense.
pub fn parse(words: &[String]) -> Result<Own, Stop> {
    let all = std::iter::once("evenkeel").chain(words.iter().map(String::as_str));
    let parsed = Words::try_parse_from(all).map_err(|error| {
        let text = error.render().to_string();
        if error.kind() == ErrorKind::DisplayHelp {
            return Stop::Help(text);
        }
        // The usage and a hint follow after an empty line; --help shows more.
        let first = text.split("\n\n").next().unwrap_or_default();
        Stop::Wrong(first.trim_start_matches("error: ").trim_end().to_owned())
    });
    parsed.map(|words| words.subcommand)
}

/// The declaration of the whole command line, including the names of the lab's subcommands.
#[must_use]
pub fn command() -> Command {
    let own = Words::command();
    LAB.iter().fold(own, |all, (name, about)| all.subcommand(Command::new(*name).about(*about)))
}

fn model(text: &str) -> Result<Model, String> {
    let all = [Model::Event, Model::Worker, Model::Prefork];
    let found = all.into_iter().find(|model| model.name() == text);
    found.ok_or_else(|| "it takes event, worker or prefork".to_owned())
}

/// Checks the form of an address with a port. Whether the address exists shows when the server
/// listens on it.
fn address(text: &str) -> Result<String, String> {
    let is_host = |host: &str| {
        let known = |c: char| c.is_ascii_alphanumeric() || ".-_:[]%*".contains(c);
        !host.is_empty() && host.chars().all(known)
    };
    let is_port = |port: &str| port.parse::<u16>().is_ok_and(|port| port > 0);
    let found = text.rsplit_once(':').filter(|(host, port)| is_host(host) && is_port(port));
    found.map(|_| text.to_owned()).ok_or_else(|| "it takes ADDRESS:PORT".to_owned())
}

fn whom(text: &str) -> Result<Whom, String> {
    match text.parse() {
        Ok(pid) if pid > 0 => Ok(Whom::Process(pid)),
        _ if text.contains("://") => Ok(Whom::Page(text.to_owned())),
        _ => Err("it is neither a URL nor the number of a process".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Own, Stop> {
        parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    fn wrong(line: &str) -> String {
        match parsed(line) {
            Err(Stop::Wrong(text)) => text,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn the_declaration_holds() {
        command().debug_assert();
    }

    #[test]
    fn a_folder_and_an_address_may_be_left_out() {
        let asked = |folder: &str, listen: &str| {
            let (mpm, lenience) = (Model::Event, Lenience::default());
            let (folder, listen) = (folder.into(), listen.into());
            Ok(Own::Serve(Serve { folder, listen, tls: false, mpm, lenience }))
        };
        assert_eq!(parsed("serve"), asked(".", "127.0.0.1:8080"));
        assert_eq!(parsed("serve x --listen [::1]:1"), asked("x", "[::1]:1"));
        assert_eq!(
            parsed("serve --listen=a:1 --listen localhost:80 x"),
            asked("x", "localhost:80")
        );
        assert!(matches!(parsed("serve x --help"), Err(Stop::Help(text)) if text.contains("DIR")));
        assert_eq!(wrong("serve a b"), "unexpected argument 'b' found");
        assert_eq!(wrong("serve --lisen x"), "unexpected argument '--lisen' found");
        assert!(wrong("serve --listen").contains("'--listen <ADDRESS:PORT>'"));
    }

    #[test]
    fn a_process_model_is_one_of_three() {
        for (text, model) in [
            ("serve --mpm prefork", Model::Prefork),
            ("serve --mpm=worker x", Model::Worker),
            ("serve --mpm event", Model::Event),
        ] {
            assert!(matches!(parsed(text), Ok(Own::Serve(Serve { mpm, .. })) if mpm == model));
        }
        assert!(wrong("serve --mpm threads").contains("'threads' for '--mpm <MODEL>'"));
    }

    #[test]
    fn an_address_has_a_port() {
        for bad in ["8080", ":8080", "127.0.0.1:", "127.0.0.1:0", "localhost:70000", "a/b:80"] {
            let text = format!("invalid value '{bad}' for '--listen <ADDRESS:PORT>': it takes");
            assert!(wrong(&format!("serve --listen {bad}")).starts_with(&text));
        }
    }

    #[test]
    fn a_server_is_named_by_its_page_its_process_or_its_file() {
        let asked = |whom: Option<Whom>, file: Option<&str>, insecure| {
            Ok(Own::Explain(Explain { whom, file: file.map(str::to_owned), insecure }))
        };
        assert_eq!(parsed("explain"), asked(None, None, false));
        assert_eq!(parsed("explain 4711"), asked(Some(Whom::Process(4711)), None, false));
        assert_eq!(parsed("explain -f x.conf"), asked(None, Some("x.conf"), false));
        let page = Some(Whom::Page("https://a/".into()));
        assert_eq!(parsed("explain https://a/ --insecure"), asked(page, None, true));
        assert!(matches!(parsed("explain --help"), Err(Stop::Help(_))));
        for bad in ["a", "-1", "0", "-f", "1 2", "--what", "-f a 1", "-f a -f b"] {
            assert!(!wrong(&format!("explain {bad}")).is_empty(), "{bad}");
        }
    }
}
