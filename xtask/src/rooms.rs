//! Compares the table of rooms in ARCHITECTURE.md with the crates in `cargo metadata`. Nothing is
//! built and no file is read.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// What a room may depend on: named rooms, or all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Allowed {
    /// Every room; for the binary, which connects them.
    All,
    /// Only the named rooms.
    Rooms(BTreeSet<String>),
}

/// What each room may depend on, by the room's name.
pub type Table = BTreeMap<String, Allowed>;

/// The rooms that each crate below `crates/` depends on outside its tests, by the name of its
/// folder.
pub type Crates = BTreeMap<String, BTreeSet<String>>;

/// The room table of `text`: the first Markdown table whose heading begins with `room`.
pub fn parse(text: &str) -> Table {
    let rows = text
        .lines()
        .skip_while(|line| !line.starts_with("| room |"))
        .skip(2)
        .take_while(|line| line.starts_with('|'));
    rows.filter_map(parse_row).collect()
}

fn parse_row(line: &str) -> Option<(String, Allowed)> {
    let mut cells = line.trim().trim_matches('|').split('|').map(str::trim);
    let name = cells.next()?.trim_matches('`').to_owned();
    let allowed = match cells.next_back()? {
        "all" => Allowed::All,
        "-" => Allowed::Rooms(BTreeSet::new()),
        names => Allowed::Rooms(names.split(',').map(|name| name.trim().to_owned()).collect()),
    };
    Some((name, allowed))
}

/// The crates of the workspace that are rooms, from the JSON of `cargo metadata --no-deps`.
pub fn crates(metadata: &str) -> Result<Crates, String> {
    let value: Value =
        serde_json::from_str(metadata).map_err(|error| format!("cargo metadata: {error}"))?;
    let packages = value.get("packages").and_then(Value::as_array);
    let packages = packages.ok_or("cargo metadata: no packages")?;
    Ok(packages.iter().filter_map(parse_package).collect())
}

fn parse_package(package: &Value) -> Option<(String, BTreeSet<String>)> {
    let mut folders = package.get("manifest_path")?.as_str()?.rsplit('/').skip(1);
    let folder = folders.next()?;
    if folders.next()? != "crates" {
        return None;
    }
    let dependencies = package.get("dependencies")?.as_array()?;
    let rooms = dependencies
        .iter()
        .filter(|dependency| dependency.get("kind").is_some_and(Value::is_null))
        .filter_map(|dependency| dependency.get("name")?.as_str()?.strip_prefix("evenkeel-"));
    Some((folder.to_owned(), rooms.map(str::to_owned).collect()))
}

/// Adds a fault for each room without a crate, each crate without a room, and each dependency that
/// the table does not allow.
pub fn check(table: &Table, crates: &Crates, faults: &mut Vec<String>) {
    for room in table.keys().filter(|room| !crates.contains_key(*room)) {
        faults.push(format!("ARCHITECTURE.md: room `{room}` has no crate"));
    }
    for (room, dependencies) in crates {
        let Some(allowed) = table.get(room) else {
            faults.push(format!("crates/{room}: not in ARCHITECTURE.md's table of rooms"));
            continue;
        };
        let Allowed::Rooms(allowed) = allowed else { continue };
        for other in dependencies.difference(allowed) {
            faults.push(format!("crates/{room}/Cargo.toml: `{room}` may not depend on `{other}`"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# House\n\n| room | what | may depend on |\n|---|---|---|\n\
        | `sys` | kernel | - |\n| `mpm` | parent | pool, sys |\n\
        | `evenkeel` | all | all |\n\nText.\n";

    fn faults_of(crates: &[(&str, &[&str])]) -> Vec<String> {
        let crates = crates
            .iter()
            .map(|(name, on)| (name.to_string(), on.iter().map(|on| on.to_string()).collect()))
            .collect();
        let mut faults = Vec::new();
        check(&parse(PAGE), &crates, &mut faults);
        faults
    }

    #[test]
    fn table_is_read() {
        let table = parse(PAGE);
        assert_eq!(table.len(), 3);
        assert_eq!(table["evenkeel"], Allowed::All);
        assert_eq!(table["sys"], Allowed::Rooms(BTreeSet::new()));
        assert_eq!(table["mpm"], Allowed::Rooms(["pool".into(), "sys".into()].into()));
    }

    #[test]
    fn agreement_says_nothing() {
        assert!(faults_of(&[("sys", &[]), ("mpm", &["sys"]), ("evenkeel", &["mpm"])]).is_empty());
    }

    #[test]
    fn each_departure_is_named() {
        let faults = faults_of(&[("sys", &["mpm"]), ("mpm", &["pool"]), ("den", &[])]);
        assert_eq!(
            faults,
            [
                "ARCHITECTURE.md: room `evenkeel` has no crate",
                "crates/den: not in ARCHITECTURE.md's table of rooms",
                "crates/sys/Cargo.toml: `sys` may not depend on `mpm`",
            ]
        );
    }

    #[test]
    fn metadata_gives_rooms_without_their_test_dependencies() {
        let metadata = r#"{"packages":[
            {"manifest_path":"/x/crates/mpm/Cargo.toml","dependencies":[
                {"name":"evenkeel-sys","kind":null},{"name":"evenkeel-proto","kind":"dev"},
                {"name":"tokio","kind":null}]},
            {"manifest_path":"/x/xtask/Cargo.toml","dependencies":[]}]}"#;
        let crates = crates(metadata).unwrap();
        assert_eq!(crates, Crates::from([("mpm".into(), ["sys".to_string()].into())]));
    }
}
