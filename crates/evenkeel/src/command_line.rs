//! Parses the command line of httpd, like getopt as Apache's main.c uses it: options may be joined
//! (`-DFOREGROUND`, `-f/path`), and case matters.

use evenkeel_message::Level;

/// The options and the command of httpd.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommandLine {
    /// `-d`: ServerRoot.
    pub server_root: Option<String>,
    /// `-f`: the main configuration file.
    pub file: Option<String>,
    /// `-C`: directives to read before the configuration file.
    pub before: Vec<String>,
    /// `-c`: directives to read after it.
    pub after: Vec<String>,
    /// `-D`: names to define.
    pub defines: Vec<String>,
    /// `-e`: the level of start-up messages.
    pub start_level: Option<Level>,
    /// `-E`: a file for start-up messages.
    pub start_log: Option<String>,
    /// `-k`: the signal to send, or `start`.
    pub signal: Option<String>,
    /// `-X`: one process, in the foreground.
    pub one_process: bool,
    /// `-T`: whether not to check that DocumentRoot exists.
    pub skip_root_check: bool,
    /// What to print instead of serving.
    pub show: Vec<Show>,
}

/// Something to print.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Show {
    /// `-v`.
    Version,
    /// `-V`.
    Build,
    /// `-l`.
    Modules,
    /// `-L`.
    Directives,
    /// `-t`.
    Syntax,
    /// `-S`: virtual hosts and run-time settings.
    Settings,
    /// `-M`: modules.
    Loaded,
    /// `-h` and `-?`.
    Usage,
}

/// Options that take an argument.
const WITH_ARGUMENT: &str = "DCcdfEek";

/// The command line as the error log shows it (AH00094), with the program's name as it was typed.
/// An option and its argument are two words, however they were written, and `-k` is omitted
/// (mpm_common.c: ap_mpm_rewrite_args).
pub fn shown(words: &[String]) -> String {
    rewritten(words).join(" ")
}

/// The same as a list of words.
pub fn rewritten(words: &[String]) -> Vec<&str> {
    let mut shown: Vec<&str> = Vec::new();
    let mut words = words.iter().map(String::as_str);
    while let Some(word) = words.next() {
        let option = word.strip_prefix('-').and_then(|rest| rest.split_at_checked(1));
        let Some((letter, joined)) = option.filter(|(l, _)| WITH_ARGUMENT.contains(l)) else {
            shown.push(word);
            continue;
        };
        let argument = if joined.is_empty() { words.next() } else { Some(joined) };
        if letter != "k" {
            shown.extend(word.get(..2));
            shown.extend(argument);
        }
    }
    shown
}

impl CommandLine {
    /// Parses the words after the program's name.
    ///
    /// # Errors
    ///
    /// The message, after which the caller prints the usage.
    pub fn parse(words: &[String]) -> Result<Self, String> {
        let mut line = CommandLine::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let Some(letters) = word.strip_prefix('-').filter(|letters| !letters.is_empty()) else {
                return Err(format!("unexpected argument {word}"));
            };
            let mut rest = letters.chars();
            while let Some(letter) = rest.next() {
                if !WITH_ARGUMENT.contains(letter) {
                    line.switch(letter)?;
                    continue;
                }
                let joined = rest.as_str().to_owned();
                let argument = if joined.is_empty() { words.next().cloned() } else { Some(joined) };
                let argument =
                    argument.ok_or_else(|| format!("option requires an argument -- '{letter}'"))?;
                line.option(letter, argument)?;
                break;
            }
        }
        Ok(line)
    }

    fn switch(&mut self, letter: char) -> Result<(), String> {
        match letter {
            'v' => self.show.push(Show::Version),
            'V' => self.show.push(Show::Build),
            'l' => self.show.push(Show::Modules),
            'L' => self.show.push(Show::Directives),
            't' => self.show.push(Show::Syntax),
            'S' => self.show.push(Show::Settings),
            'M' => self.show.push(Show::Loaded),
            'h' | '?' => self.show.push(Show::Usage),
            'X' => self.one_process = true,
            'T' => self.skip_root_check = true,
            letter => return Err(format!("invalid option -- '{letter}'")),
        }
        Ok(())
    }

    fn option(&mut self, letter: char, argument: String) -> Result<(), String> {
        match letter {
            'D' => self.defines.push(argument),
            'C' => self.before.push(argument),
            'c' => self.after.push(argument),
            'd' => self.server_root = Some(argument),
            'f' => self.file = Some(argument),
            'E' => self.start_log = Some(argument),
            'e' => {
                let level = Level::parse(&argument).ok_or_else(|| {
                    "Log level keyword must be one of emerg/alert/crit/error/warn/notice/info/\
                     debug/trace1/.../trace8"
                        .to_owned()
                })?;
                self.start_level = Some(level);
            }
            _ => match argument.as_str() {
                "start" | "stop" | "restart" | "graceful" | "graceful-stop" | "upgrade" => {
                    self.signal = Some(argument);
                }
                _ => return Err(format!("invalid -k argument: {argument}")),
            },
        }
        Ok(())
    }

    /// Whether `-D` defines a name.
    #[must_use]
    pub fn is_defined(&self, name: &str) -> bool {
        self.defines.iter().any(|defined| defined == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_shows_options_and_arguments_apart() {
        let words = ["bin/apache2", "-DFOREGROUND", "-k", "start", "-f", "/a b.conf", "-X"];
        let text = "bin/apache2 -D FOREGROUND -f /a b.conf -X";
        assert_eq!(shown(&words.map(str::to_owned)), text);
    }

    fn parse(text: &str) -> Result<CommandLine, String> {
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        CommandLine::parse(&words)
    }

    #[test]
    fn options_may_be_joined_to_their_arguments() {
        let line = parse("-DFOREGROUND -f/etc/x.conf -d /srv -C Listen -k graceful-stop").unwrap();
        assert!(line.is_defined("FOREGROUND"));
        assert_eq!(line.file.as_deref(), Some("/etc/x.conf"));
        assert_eq!(line.server_root.as_deref(), Some("/srv"));
        assert_eq!(line.signal.as_deref(), Some("graceful-stop"));
        let line = parse("-tSD DUMP_MODULES").unwrap();
        assert_eq!(line.show, [Show::Syntax, Show::Settings]);
        assert!(line.is_defined("DUMP_MODULES"));
    }

    #[test]
    fn what_is_unknown_or_incomplete_is_refused() {
        assert_eq!(parse("-f").unwrap_err(), "option requires an argument -- 'f'");
        assert_eq!(parse("-Z").unwrap_err(), "invalid option -- 'Z'");
        assert_eq!(parse("-k dance").unwrap_err(), "invalid -k argument: dance");
        assert!(parse("-e loud").is_err() && parse("serve").is_err());
    }
}
