//! The command behind `cargo xtask attack`: runs the attack and prints the reports of differences
//! and the counts. The exit status is 1 if it found a difference that is not accepted.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command's output is its result")]

use evenkeel_tests::attack::accepted;
use evenkeel_tests::attack::compose::Mix;
use evenkeel_tests::attack::judge::Class;
use evenkeel_tests::attack::pair::Pair;
use evenkeel_tests::attack::run::{Plan, run};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const HELP: &str = "\
Usage: cargo xtask attack [OPTION]...
Asks apache2 and Evenkeel the same random requests on the same random sites, and
reports, shrunk to the smallest case, every difference that tests/attack/accepted
does not accept.

  --seed S     the seed of all sites (1)
  --from N     the number of the first site (0)
  --questions  sites whose directives and conditions lead to each other's paths
  --sites N    how many sites (1000)
  --site N     this site alone
  --cases N    how many cases of each kind are shrunk and reported (2)
  --class C    shrink those of this class alone; may be given again: given, shown,
               taken, withheld, refused, other-file, status, location, header,
               body, broken
  --mpm M      event, worker or prefork (event)
  --state FILE keep there how far the run has come, and go on from it after a stop
  --all        accept nothing

The variable EVENKEEL names another binary. Give --seed and --site of a report, and
--questions where it was given, to repeat it.
";

fn main() -> ExitCode {
    match attack() {
        Ok(code) => code,
        Err(reason) => {
            eprintln!("attack: {reason}");
            ExitCode::from(2)
        }
    }
}

fn attack() -> Result<ExitCode, String> {
    let mut plan = Plan {
        seed: 1,
        mix: Mix::All,
        from: 0,
        sites: 1_000,
        cases: 2,
        classes: Vec::new(),
        state: None,
        accepted: Vec::new(),
    };
    let mut model = "event".to_owned();
    let mut accepts = true;
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word}: a value is missing"));
        match word.as_str() {
            "--help" | "-h" => {
                print!("{HELP}");
                return Ok(ExitCode::SUCCESS);
            }
            "--seed" => plan.seed = number(&value()?)?,
            "--from" => plan.from = number(&value()?)?,
            "--sites" => plan.sites = number(&value()?)?,
            "--questions" => plan.mix = Mix::Questions,
            "--site" => (plan.from, plan.sites) = (number(&value()?)?, 1),
            "--cases" => plan.cases = usize::try_from(number(&value()?)?).unwrap_or(usize::MAX),
            "--class" => {
                let name = value()?;
                plan.classes.push(Class::named(&name).ok_or(format!("{name}: no such class"))?);
            }
            "--mpm" => model = value()?,
            "--state" => plan.state = Some(PathBuf::from(value()?)),
            "--all" => accepts = false,
            _ => return Err(format!("{word}: no such option; see --help")),
        }
    }
    if accepts {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        plan.accepted = accepted::read(here.parent().unwrap_or(here), "tests/attack/accepted")?;
    }
    let mut pair = Pair::new(&model)?;
    let totals = run(&mut pair, &plan, &mut |report| println!("{report}"))?;
    pair.stop()?;
    print!("{}", totals.summary());
    Ok(if totals.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("{text}: no number"))
}
