//! The man pages in docs/man, which derive from the declarations of the command lines of `evenkeel`
//! and `evenkeel-lab`. A subcommand has a page of its own, as in git.

use crate::pages::{Page, Pages};
use clap::{Command, CommandFactory as _};
use clap_mangen::Man;

/// All man pages.
pub fn man() -> Result<Pages, String> {
    let mut pages = Vec::new();
    // Subcommands of the lab have their pages under the lab's name only.
    for program in [evenkeel::Words::command(), evenkeel_lab::program::command()] {
        for inner in program.get_subcommands() {
            let name = format!("{} {}", program.get_name(), inner.get_name());
            // The name of the lab is not typed.
            let typed = inner.get_bin_name().unwrap_or(&name).to_owned();
            pages.push(page(&name, inner.clone().bin_name(typed))?);
        }
        // `evenkeel -h` is an option of httpd.
        let has_help = program.get_name() != "evenkeel";
        pages.push(page(program.get_name(), program.clone().disable_help_flag(!has_help))?);
    }
    Ok(Pages { folder: "docs/man", task: "man", pages })
}

/// The page of a command with this name.
fn page(name: &str, command: Command) -> Result<Page, String> {
    let name = name.replace(' ', "-");
    let mut text = Vec::new();
    let command = command.name(name.clone()).disable_help_subcommand(true);
    let man = Man::new(command).source(concat!("Evenkeel ", env!("CARGO_PKG_VERSION")));
    man.render(&mut text).map_err(|error| format!("{name}: {error}"))?;
    Ok(Page { file: format!("{name}.1"), text: String::from_utf8_lossy(&text).into_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_man_pages_are_up_to_date() {
        let mut faults = Vec::new();
        man().unwrap().check(&crate::root(), &mut faults);
        assert!(faults.is_empty(), "{}", faults.join("\n"));
    }

    #[test]
    fn each_program_and_subcommand_has_its_page() {
        let pages = man().unwrap().pages;
        let text = |file: &str| &pages.iter().find(|page| page.file == file).unwrap().text;
        assert!(text("evenkeel-serve.1").contains("\\-\\-dot\\-files"));
        assert!(text("evenkeel-lab-bench.1").contains("SYNOPSIS"));
        assert!(text("evenkeel-serve.1").contains("evenkeel serve"));
        assert!(text("evenkeel.1").contains("evenkeel\\-lab"));
        assert!(!pages.iter().any(|page| page.file == "evenkeel-bench.1"));
    }
}
