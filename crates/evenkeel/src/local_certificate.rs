//! The certificate of `evenkeel serve --tls`: for this machine's local names, signed by itself. It
//! is never a CA: whoever trusts it trusts this one server and nothing that its key could sign.

use evenkeel_tls::{certificates, write_pem};
use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// How long a certificate is used, in days. Browsers refuse server certificates of more than 398.
const DAYS: u64 = 365;

/// The files of the certificate and its key.
pub struct LocalCertificate {
    /// The certificate.
    pub certificate: PathBuf,
    /// Its key, which only its owner can read.
    pub key: PathBuf,
}

impl LocalCertificate {
    /// The certificate in the user's state folder, made anew if there is none, if it is older than
    /// a year, or if it lacks a name.
    ///
    /// # Errors
    /// The folder cannot be written, or there is none.
    pub fn find_or_make(host: &str) -> Result<Self, String> {
        Self::within(&state_folder()?, host)
    }

    fn within(folder: &Path, host: &str) -> Result<Self, String> {
        let fault = |error: io::Error| format!("{}: {error}", folder.display());
        let name = if is_local(host) { "localhost".to_owned() } else { file_name(host) };
        let certificate = folder.join(format!("{name}.pem"));
        let key = folder.join(format!("{name}.key"));
        if is_usable(&certificate, &key) {
            return Ok(Self { certificate, key });
        }
        DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(fault)?;
        let (certificate_text, key_text) = make(host)?;
        write_new(&key, &key_text, 0o600).map_err(fault)?;
        write_new(&certificate, &certificate_text, 0o644).map_err(fault)?;
        Ok(Self { certificate, key })
    }
}

/// Where programs keep what they make for a user (XDG Base Directory Specification).
fn state_folder() -> Result<PathBuf, String> {
    let absolute =
        |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = absolute("XDG_STATE_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".local/state")))
        .ok_or("neither XDG_STATE_HOME nor HOME names a folder for the certificate")?;
    Ok(base.join("evenkeel/tls"))
}

fn is_local(host: &str) -> bool {
    matches!(host, "" | "*" | "localhost" | "127.0.0.1" | "[::1]" | "0.0.0.0" | "[::]")
}

fn file_name(host: &str) -> String {
    let char = |char: char| {
        if char.is_ascii_alphanumeric() || matches!(char, '.' | '-') { char } else { '_' }
    };
    host.chars().map(char).collect()
}

fn is_usable(certificate: &Path, key: &Path) -> bool {
    let made = fs::metadata(certificate).and_then(|it| it.modified());
    let age = made.ok().and_then(|made| SystemTime::now().duration_since(made).ok());
    let is_young = age.is_some_and(|age| age < Duration::from_secs((DAYS - 1) * 24 * 3600));
    let is_whole = fs::read(certificate)
        .is_ok_and(|text| certificates(&text).is_ok_and(|certificates| certificates.len() == 1));
    is_young && is_whole && key.is_file()
}

/// A certificate and its key in PEM.
fn make(host: &str) -> Result<(String, String), String> {
    let fault = |error: rcgen::Error| format!("the certificate cannot be made: {error}");
    let mut names = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
    if !is_local(host) {
        names.push(host.trim_matches(['[', ']']).to_owned());
    }
    let mut params = CertificateParams::new(names).map_err(fault)?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "evenkeel serve, this machine only");
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let now = SystemTime::now();
    params.not_before = (now - Duration::from_secs(24 * 3600)).into();
    params.not_after = (now + Duration::from_secs(DAYS * 24 * 3600)).into();
    let key = KeyPair::generate().map_err(fault)?;
    let certificate = params.self_signed(&key).map_err(fault)?;
    let key = write_pem("PRIVATE KEY", &key.serialize_der());
    Ok((write_pem("CERTIFICATE", certificate.der()), key))
}

/// Writes a file through another one, which nobody else can read meanwhile.
fn write_new(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    let next = path.with_extension(format!("new.{}", std::process::id()));
    let _ = fs::remove_file(&next);
    let mut file = File::options().write(true).create_new(true).mode(mode).open(&next)?;
    file.write_all(text.as_bytes())?;
    fs::rename(&next, path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_certificate_is_made_once_and_its_key_is_for_its_owner() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("a/b");
        let made = LocalCertificate::within(&folder, "127.0.0.1").unwrap();
        let text = fs::read(&made.certificate).unwrap();
        assert_eq!(certificates(&text).unwrap().len(), 1);
        assert_eq!(fs::metadata(&made.key).unwrap().permissions().mode() & 0o777, 0o600);
        let again = LocalCertificate::within(&folder, "localhost").unwrap();
        assert_eq!(fs::read(&again.certificate).unwrap(), text);
        let other = LocalCertificate::within(&folder, "dev.example").unwrap();
        assert_ne!(other.certificate, made.certificate);
        // A damaged one is made anew.
        fs::write(&made.certificate, "").unwrap();
        LocalCertificate::within(&folder, "127.0.0.1").unwrap();
        assert_ne!(fs::read(&made.certificate).unwrap(), b"");
    }
}
