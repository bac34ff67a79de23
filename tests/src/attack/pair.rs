//! The two servers that are compared, in one scratch folder and on one port of two loopback
//! addresses, so that everything they say about a site can be equal. A reload of both loads a batch
//! of sites. If either server refuses a configuration, it is found and left out.

use super::application;
use super::grammar::{MODULES, load_line};
use super::guard::{Guard, OVER};
use super::site::{Node, Place, Site, text};
use crate::house::{children_of, send, wait_for};
use crate::server::{Kind, Server, children, command, free_port, program};
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;
use tempfile::TempDir;

/// The folders of the servers in the scratch folder.
const FOLDERS: [&str; 2] = ["oracle", "other"];

/// The configuration that all sites share. The first host answers for unknown names, and shows
/// which batch is loaded.
const BASE: &str = "\
ServerRoot \"@ROOT@\"
PidFile \"@OWN@/logs/httpd.pid\"
Listen @ADDRESS@:@PORT@
ServerName main.test
ServerTokens Prod
StartServers 1
<IfModule mpm_prefork_module>
MinSpareServers 1
MaxSpareServers 2
MaxRequestWorkers 4
</IfModule>
<IfModule !mpm_prefork_module>
ThreadsPerChild 4
MinSpareThreads 1
MaxSpareThreads 8
MaxRequestWorkers 8
</IfModule>
ErrorLog \"@OWN@/logs/error.log\"
DocumentRoot \"@ROOT@/default\"
TypesConfig \"@ROOT@/mime.types\"
Timeout 10
KeepAliveTimeout 30
MaxKeepAliveRequests 0
@TWIST@
Include \"@ROOT@/main.conf\"
<VirtualHost *:@PORT@>
ServerName probe.test
<If \"%{REQUEST_URI} == '/generation'\">
Redirect http://probe.test/@GENERATION@
</If>
</VirtualHost>
";

const TYPES: &str = "text/html html htm\ntext/plain txt\nimage/png png\n";

/// The two servers.
pub struct Pair {
    kinds: [Kind; 2],
    model: String,
    /// Additional lines for either server, with which tests show that the attack finds differences.
    twists: [&'static str; 2],
    port: u16,
    generation: u64,
    servers: [Option<Server>; 2],
    root: TempDir,
    _guard: Guard,
}

/// A configuration that one of the two refuses.
#[derive(Debug)]
pub struct Refusal {
    /// The number of the site; none if the main server is refused and left out.
    pub number: Option<u64>,
    /// Whether the oracle refuses it.
    pub is_oracles: bool,
    /// The message of the server that refuses it.
    pub said: String,
}

impl Pair {
    /// A pair of apache2 and Evenkeel with this process model, not yet started.
    pub fn new(model: &str) -> Result<Pair, String> {
        Self::of([Kind::Apache, Kind::Evenkeel], model, ["", ""])
    }

    /// A pair of these kinds, each with additional lines of configuration.
    pub fn of(kinds: [Kind; 2], model: &str, twists: [&'static str; 2]) -> Result<Pair, String> {
        let told = |error: std::io::Error| format!("the scratch folder: {error}");
        let root = tempfile::Builder::new().prefix("attack").tempdir().map_err(told)?;
        let guard = Guard::over(root.path())?;
        fs::set_permissions(root.path(), fs::Permissions::from_mode(0o755)).map_err(told)?;
        for folder in ["oracle/logs", "other/logs", "sites", "hosts", "default"] {
            fs::create_dir_all(root.path().join(folder)).map_err(told)?;
        }
        fs::write(root.path().join("mime.types"), TYPES).map_err(told)?;
        fs::write(root.path().join("default/a.txt"), "default").map_err(told)?;
        let port = free_port()?;
        application::start((Ipv4Addr::new(127, 0, 0, 3), port).into())?;
        let servers = [None, None];
        Ok(Pair {
            kinds,
            model: model.to_owned(),
            twists,
            port,
            generation: 0,
            servers,
            root,
            _guard: guard,
        })
    }

    /// The addresses of the two, the oracle first.
    pub fn addresses(&self) -> [SocketAddr; 2] {
        [1, 2].map(|last| (Ipv4Addr::new(127, 0, 0, last), self.port).into())
    }

    /// What a site's placeholders stand for.
    pub fn with_place<T>(&self, number: u64, act: impl FnOnce(&Place<'_>) -> T) -> T {
        let sites = self.root.path().join("sites");
        act(&Place { number, sites: &sites, port: self.port })
    }

    /// Makes both servers serve these sites, leaving out what they refuse. The main server is that
    /// of the first site. An error is a fault of the attack itself, or a server that has ended.
    pub fn load(&mut self, sites: &BTreeMap<u64, Site>) -> Result<Vec<Refusal>, String> {
        self.generation += 1;
        for folder in ["sites", "hosts"] {
            let folder = self.root.path().join(folder);
            let told = |error: std::io::Error| format!("{}: {error}", folder.display());
            fs::remove_dir_all(&folder).map_err(told)?;
            fs::create_dir(&folder).map_err(told)?;
        }
        for (number, site) in sites {
            self.with_place(*number, |place| site.lay_out(place))?;
            let text = self.with_place(*number, |place| place.fill(&text(&site.hosts)));
            self.write(&host_file(*number), &text)?;
        }
        let main = sites.values().next().map_or(&[][..], |site| &site.main);
        self.write_main(main)?;
        let refusals = self.refusals(sites.keys().copied().collect())?;
        self.reload()?;
        Ok(refusals)
    }

    fn write_main(&self, main: &[Node]) -> Result<(), String> {
        let text = self.with_place(0, |place| place.fill(&text(main)));
        self.write("main.conf", &text)
    }

    /// Finds the hosts that either server refuses. Both are left with the others.
    fn refusals(&self, mut numbers: Vec<u64>) -> Result<Vec<Refusal>, String> {
        let mut refusals = Vec::new();
        let mut is_without_main = false;
        loop {
            self.write_servers(&numbers)?;
            let said = [self.test(0)?, self.test(1)?];
            let Some(text) = said.iter().flatten().next() else { return Ok(refusals) };
            let number = match named_host(text).filter(|number| numbers.contains(number)) {
                Some(number) => Some(number),
                None => self.unnamed_host(&numbers)?,
            };
            self.write_servers(number.as_slice())?;
            match [self.test(0)?, self.test(1)?] {
                [Some(said), None] => refusals.push(Refusal { number, is_oracles: true, said }),
                [None, Some(said)] => refusals.push(Refusal { number, is_oracles: false, said }),
                _ => {}
            }
            match number {
                Some(number) => numbers.retain(|other| *other != number),
                None if is_without_main => return Err(format!("refused: {text}")),
                None => {
                    is_without_main = true;
                    self.write_main(&[])?;
                }
            }
        }
    }

    /// One of the hosts that are refused by a message without a name; none if it is the main
    /// server.
    fn unnamed_host(&self, numbers: &[u64]) -> Result<Option<u64>, String> {
        let mut rest = numbers;
        self.write_servers(&[])?;
        if self.is_refused()? {
            return Ok(None);
        }
        while rest.len() > 1 {
            let (first, second) = rest.split_at(rest.len() / 2);
            self.write_servers(first)?;
            rest = if self.is_refused()? { first } else { second };
        }
        self.write_servers(rest)?;
        match self.is_refused()? {
            true => Ok(rest.first().copied()),
            false => Err("hosts are refused together, and none of them alone".to_owned()),
        }
    }

    fn is_refused(&self) -> Result<bool, String> {
        Ok(self.test(0)?.is_some() || self.test(1)?.is_some())
    }

    fn write_servers(&self, numbers: &[u64]) -> Result<(), String> {
        let root = self.root.path();
        for (index, folder) in FOLDERS.iter().enumerate() {
            let own = root.join(folder);
            let model = format!("mpm_{}", self.model);
            let modules = std::iter::once(model.as_str()).chain(MODULES);
            let modules = modules.map(|name| load_line(name) + "\n");
            let [oracle, other] = self.twists;
            let base = BASE
                .replace("@TWIST@", if index == 0 { oracle } else { other })
                .replace("@ROOT@", &root.to_string_lossy())
                .replace("@OWN@", &own.to_string_lossy())
                .replace("@ADDRESS@", &format!("127.0.0.{}", index + 1))
                .replace("@PORT@", &self.port.to_string())
                .replace("@GENERATION@", &self.generation.to_string());
            let hosts = numbers.iter().map(|number| {
                format!("Include \"{}\"\n", root.join(host_file(*number)).to_string_lossy())
            });
            let text: String = modules.chain([children().to_owned(), base]).chain(hosts).collect();
            self.write(&format!("{folder}/httpd.conf"), &text)?;
        }
        Ok(())
    }

    fn write(&self, path: &str, text: &str) -> Result<(), String> {
        let path = self.root.path().join(path);
        fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Why the server with this index refuses its configuration; none if it does not.
    fn test(&self, index: usize) -> Result<Option<String>, String> {
        let (kind, own) = self.own(index)?;
        let program = program(kind, &own)?;
        let file = own.join("httpd.conf");
        let output = command(&program, &["-t", "-f", &file.to_string_lossy()])
            .output()
            .map_err(|error| format!("{}: {error}", program.display()))?;
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        Ok((!output.status.success()).then(|| text.trim().to_owned()))
    }

    fn own(&self, index: usize) -> Result<(Kind, std::path::PathBuf), String> {
        let kind = self.kinds.get(index).ok_or("no such server")?;
        let folder = FOLDERS.get(index).ok_or("no such server")?;
        Ok((*kind, self.root.path().join(folder)))
    }

    /// Starts or reloads both servers, and waits until both serve this generation.
    fn reload(&mut self) -> Result<(), String> {
        let mut before = Vec::new();
        for (index, address) in self.addresses().into_iter().enumerate() {
            let (kind, own) = self.own(index)?;
            let server = self.servers.get_mut(index).ok_or("no such server")?;
            if server.as_mut().is_some_and(Server::has_ended) {
                return Err(format!("{kind:?} has ended by itself\n{}", end_of_log(&own)));
            }
            match server {
                Some(server) => {
                    before.push((server.pid(), children_of(server.pid())));
                    send(server.pid(), Signal::HUP);
                }
                None => {
                    *server = Some(Server::start_at(kind, &own, address, &OVER, "-DFOREGROUND")?);
                }
            }
        }
        let wanted = format!("http://probe.test/{}", self.generation);
        for (index, address) in self.addresses().into_iter().enumerate() {
            let (kind, own) = self.own(index)?;
            let is_loaded = || generation(address).is_some_and(|place| place == wanted);
            wait_for(&format!("the reload of {kind:?}"), is_loaded)
                .map_err(|error| format!("{error}\n{}", end_of_log(&own)))?;
        }
        // A child of the previous generation may accept one more connection, and knows other hosts.
        for (parent, old) in before {
            let are_gone = || !children_of(parent).iter().any(|child| old.contains(child));
            wait_for("the end of the children before the reload", are_gone)?;
        }
        Ok(())
    }

    /// Makes the next load start both servers anew, as after one of them has ended.
    pub fn forget(&mut self) {
        self.servers = [None, None];
    }

    /// Stops both servers. It is an error if one ends badly.
    pub fn stop(mut self) -> Result<(), String> {
        self.servers.iter_mut().filter_map(Option::take).try_for_each(Server::stop)
    }
}

fn host_file(number: u64) -> String {
    format!("hosts/{number}.conf")
}

/// The number of the host in whose file a server found a fault.
fn named_host(said: &str) -> Option<u64> {
    let (_, rest) = said.split_once("/hosts/")?;
    rest.split_once(".conf")?.0.parse().ok()
}

/// The redirect target of the host for probes.
fn generation(address: SocketAddr) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
    let request = "GET /generation HTTP/1.1\r\nHost: probe.test\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).ok()?;
    let mut text = Vec::new();
    stream.read_to_end(&mut text).ok()?;
    let text = String::from_utf8_lossy(&text).into_owned();
    let (_, rest) = text.split_once("\r\nLocation: ")?;
    Some(rest.split("\r\n").next()?.to_owned())
}

fn end_of_log(own: &Path) -> String {
    let bytes = fs::read(own.join("logs/error.log")).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    lines.get(lines.len().saturating_sub(8)..).unwrap_or_default().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_host_is_named() {
        let said = "AH00526: Syntax error on line 3 of /tmp/attackX/hosts/17.conf:\nBad";
        assert_eq!(named_host(said), Some(17));
        assert_eq!(named_host("AH00526: Syntax error on line 3 of /tmp/main.conf:\nBad"), None);
    }
}
