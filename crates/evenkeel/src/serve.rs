//! `evenkeel serve`: serves a folder in the foreground, with safe settings. The settings are a
//! configuration text like any other.

use crate::configuration::Choice;
use crate::httpd;
use crate::local_certificate::LocalCertificate;
use crate::terminal::complain;
use evenkeel::{Lenience, Serve};
use evenkeel_config::Main;
use evenkeel_message::Level;
use evenkeel_mpm::{Mode, Model};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Serves a folder.
pub fn run(asked: &Serve) -> i32 {
    let Serve { folder, listen, tls, mpm, lenience } = asked;
    let folder = match PathBuf::from(folder).canonicalize() {
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
    let host = listen.rsplit_once(':').map_or(listen.as_str(), |(host, _)| host);
    let certificate = match tls.then(|| LocalCertificate::find_or_make(host)).transpose() {
        Ok(certificate) => certificate,
        Err(text) => {
            complain(&format!("evenkeel serve: {text}"));
            return 1;
        }
    };
    let text = configuration(&shown, listen, *mpm, *lenience, certificate.as_ref());
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
    let greeting = greeting(&folder, listen, certificate.as_ref());
    httpd::serve("evenkeel", choice, Mode::Foreground, Some(greeting)).unwrap_or_else(|text| {
        complain(&text);
        complain("evenkeel serve: nothing is served; --listen ADDRESS:PORT names another address");
        1
    })
}

/// The text that is printed once the server listens.
fn greeting(folder: &Path, listen: &str, certificate: Option<&LocalCertificate>) -> String {
    let at = match listen.rsplit_once(':') {
        Some(("*" | "0.0.0.0" | "[::]", port)) => format!("localhost:{port}"),
        _ => listen.to_owned(),
    };
    let scheme = if certificate.is_some() { "https" } else { "http" };
    let mut text = format!(
        "Serving  {}\nAt       {scheme}://{at}/\nStatus   {scheme}://{at}/server-status\n\
         Stop     Ctrl-C, or kill {}\n",
        folder.display(),
        std::process::id()
    );
    if let Some(LocalCertificate { certificate, .. }) = certificate {
        let certificate = certificate.display();
        text.push_str(&format!(
            "Trust    curl --cacert {certificate} https://{at}/\n         \
             or import that file in the browser as the certificate of this one server\n"
        ));
    }
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

/// What Debian's configuration gives to PHP, and what it denies. Where no program beside the binary
/// runs PHP, such a file is answered with 500, and so is the folder that it is the index of; its
/// source is not sent.
const PHP: &str = "DirectoryIndex index.html index.php\n\
     <FilesMatch \".+\\.ph(?:ar|p|tml)$\">\n\
         SetHandler application/x-httpd-php\n\
     </FilesMatch>\n\
     <FilesMatch \".+\\.phps$\">\n\
         Require all denied\n\
     </FilesMatch>\n\
     <FilesMatch \"^\\.ph(?:ar|p|ps|tml)$\">\n\
         Require all denied\n\
     </FilesMatch>\n";

/// The configuration for a folder that has none.
fn configuration(
    folder: &str,
    listen: &str,
    model: Model,
    lenience: Lenience,
    certificate: Option<&LocalCertificate>,
) -> String {
    let tls = certificate.map_or_else(String::new, |LocalCertificate { certificate, key }| {
        let (certificate, key) = (certificate.display(), key.display());
        format!(
            "SSLEngine on\nSSLCertificateFile \"{certificate}\"\nSSLCertificateKeyFile \"{key}\"\n"
        )
    });
    let user = if evenkeel_sys::identity::is_root() {
        // Serving never needs root's rights. A folder that only root can read is not served; the
        // greeting says so.
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
    // Answer as if they did not exist.
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
         {user}{tls}\
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
         {PHP}\
         <Location \"/server-status\">\n\
             SetHandler server-status\n\
             Require local\n\
             {rebinding}\
         </Location>\n"
    )
}
