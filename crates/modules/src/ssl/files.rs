//! What the files of certificates, keys and lists hold, with faults that name the directive.

use super::Named;
use evenkeel_tls::{CertificateDer, CertificateRevocationListDer, certificates, pem_blocks};
use std::path::PathBuf;

/// Reads a file that a directive names.
pub(super) fn read(named: &Named) -> Result<Vec<u8>, String> {
    std::fs::read(&named.path).map_err(|error| fault(named, &error.to_string()))
}

/// A fault of a file, with the place of the directive that names it.
pub(super) fn fault(named: &Named, text: &str) -> String {
    format!("{}: {text} ({})", named.path.display(), named.place)
}

/// The certificates of a file, in PEM or DER.
pub(super) fn certificates_of(
    named: &Named,
    text: &[u8],
) -> Result<Vec<CertificateDer<'static>>, String> {
    let all = certificates(text).map_err(|error| fault(named, &error))?;
    if all.is_empty() {
        return Err(fault(named, "the file has no certificate in PEM form"));
    }
    Ok(all)
}

/// The certificates of a file and of all files of a folder.
pub(super) fn authorities(
    file: Option<&Named>,
    folder: Option<&Named>,
) -> Result<Vec<CertificateDer<'static>>, String> {
    let mut all = Vec::new();
    if let Some(named) = file {
        all.extend(certificates_of(named, &read(named)?)?);
    }
    for named in members(folder)? {
        // A folder also holds other files: those without a certificate are none of ours.
        all.extend(certificates(&read(&named)?).unwrap_or_default());
    }
    Ok(all)
}

/// The revocation lists of a file and of all files of a folder.
pub(super) fn lists(
    file: Option<&Named>,
    folder: Option<&Named>,
) -> Result<Vec<CertificateRevocationListDer<'static>>, String> {
    let mut all = Vec::new();
    for named in file.cloned().into_iter().chain(members(folder)?) {
        let blocks = pem_blocks(&read(&named)?);
        let blocks = blocks.map_err(|error| fault(&named, &error.text))?;
        let lists = blocks.into_iter().filter(|block| block.label == "X509 CRL");
        all.extend(lists.map(|block| CertificateRevocationListDer::from(block.der)));
    }
    if file.is_some() && all.is_empty() {
        let text = "the file has no revocation list in PEM form";
        return Err(file.map_or_else(String::new, |named| fault(named, text)));
    }
    Ok(all)
}

/// The regular files of a folder, in the order of their names. OpenSSL looks for links that are
/// named after the hash of a subject; here every file counts, once.
pub(super) fn members(folder: Option<&Named>) -> Result<Vec<Named>, String> {
    let Some(named) = folder else { return Ok(Vec::new()) };
    let entries =
        std::fs::read_dir(&named.path).map_err(|error| fault(named, &error.to_string()))?;
    let mut paths: Vec<PathBuf> = entries
        .filter_map(|entry| std::fs::canonicalize(entry.ok()?.path()).ok())
        .filter(|path| path.is_file())
        .collect();
    paths.sort();
    paths.dedup();
    Ok(paths.into_iter().map(|path| Named { path, place: named.place.clone() }).collect())
}
