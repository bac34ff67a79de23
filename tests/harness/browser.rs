//! Tests the status page in a headless browser: its script runs, draws the scoreboard and the plot
//! again from the data that it requests, and requests nothing from other servers.

use evenkeel_tests::house::{House, wait_for};
use evenkeel_tests::load::text;
use std::process::{Command, Stdio};

const SITE: &str = "\
LoadModule status_module modules/mod_status.so
ErrorDocument 404 none
TransferLog \"@ROOT@/logs/access.log\"
<Location /server-status>
SetHandler server-status
</Location>
";

#[test]
fn the_page_is_drawn_and_asks_nobody_else() {
    let house = House::open(SITE, &[]).unwrap();
    // The first reading is there after two seconds.
    let page = || text(house.address, "/server-status").unwrap_or_default();
    wait_for("an account", || page().contains("id=\"ek-supply\"") && page().contains("d=\"M"))
        .unwrap();
    assert!(!page().contains("y1=\"180\""), "the server draws to a tenth");
    let profile = tempfile::tempdir().unwrap();
    let url = format!("http://{}/server-status", house.address);
    let mut browser = Command::new("chromium");
    browser.args(["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"]);
    browser.args(["--disable-background-networking", "--disable-dev-shm-usage"]);
    browser.arg(format!("--user-data-dir={}", profile.path().display()));
    browser.args(["--virtual-time-budget=3000", "--dump-dom", &url]);
    let output = browser.env("HOME", profile.path()).stdin(Stdio::null()).output();
    let output = output.expect("chromium (package chromium) is not installed");
    let page = String::from_utf8_lossy(&output.stdout).into_owned();
    let part = |id: &str| {
        let from = page.split(&format!("id=\"ek-{id}\"")).nth(1);
        from.and_then(|from| from.split("</svg>").next()).unwrap_or_else(|| panic!("{id}: {page}"))
    };
    // The script draws lines at whole numbers, so these are the script's own.
    assert!(part("axes").contains("y1=\"180\""), "{page}");
    assert!(part("cells").contains("<rect x=\"0\" y=\"0\""), "{page}");
    assert!(part("supply").contains("d=\"M"), "{page}");
    for elsewhere in ["src=", "@import", "url(", "https:"] {
        assert!(!page.contains(elsewhere), "{elsewhere}: {page}");
    }
    let log = || std::fs::read_to_string(house.path("logs/access.log")).unwrap_or_default();
    let first = "GET /server-status?json&pool&last=3600";
    wait_for("the script's request", || log().contains(first)).unwrap();
    let asked = |line: &str| line.split('"').nth(1).unwrap_or_default().to_owned();
    let known = ["GET /server-status", "GET /favicon.ico"];
    let log = log();
    assert!(log.lines().all(|line| known.iter().any(|it| asked(line).starts_with(it))), "{log}");
}
