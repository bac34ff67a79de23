//! The versions of TLS that `SSLProtocol` selects (ssl_engine_config.c, ssl_cmd_protocol_parse).

/// Which versions a host speaks, and what of the directive the server does not have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Versions {
    /// TLS 1.2.
    pub tls12: bool,
    /// TLS 1.3.
    pub tls13: bool,
    /// Versions that were asked for by name and that the server never speaks.
    pub lacking: Vec<String>,
    /// Words that replaced what stood before them: most often, a sign is missing (AH02532).
    pub overriding: Vec<String>,
}

impl Versions {
    /// All that there are: what a host without SSLProtocol speaks.
    #[must_use]
    pub fn all() -> Self {
        Self { tls12: true, tls13: true, ..Self::default() }
    }

    /// Reads the words of SSLProtocol.
    ///
    /// # Errors
    /// A word that is no protocol, with Apache's text.
    pub fn parse<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<Self, String> {
        const OLD: [&str; 3] = ["SSLv3", "TLSv1", "TLSv1.1"];
        let mut versions = Self::default();
        let mut any = false;
        for text in words {
            let sign = text.chars().next().filter(|char| matches!(char, '+' | '-'));
            let word = if sign.is_some() { text.get(1..).unwrap_or_default() } else { text };
            if word == "SSLv2" && sign == Some('-') {
                continue;
            }
            let (tls12, tls13) = match word {
                "all" => (true, true),
                "TLSv1.2" => (true, false),
                "TLSv1.3" => (false, true),
                "SSLv2" => return Err("SSLv2 is no longer supported".to_owned()),
                "SSLv3" if sign != Some('-') => {
                    return Err("SSLv3 not supported by this version of OpenSSL".to_owned());
                }
                word if OLD.contains(&word) => (false, false),
                _ => return Err(format!("Illegal protocol '{word}'")),
            };
            if sign == Some('-') {
                versions.tls12 &= !tls12;
                versions.tls13 &= !tls13;
                versions.lacking.retain(|one| one != word && word != "all");
                continue;
            }
            if sign.is_none() {
                if any {
                    versions.overriding.push(word.to_owned());
                }
                (versions.tls12, versions.tls13) = (false, false);
                versions.lacking.clear();
            }
            versions.tls12 |= tls12;
            versions.tls13 |= tls13;
            if OLD.contains(&word) {
                versions.lacking.push(word.to_owned());
            }
            any = true;
        }
        Ok(versions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<(bool, bool, usize), String> {
        let versions = Versions::parse(text.split(' '))?;
        Ok((versions.tls12, versions.tls13, versions.lacking.len()))
    }

    #[test]
    fn words_add_remove_and_replace() {
        for (text, want) in [
            ("all -SSLv3", (true, true, 0)),
            ("all -SSLv2 -SSLv3 -TLSv1 -TLSv1.1", (true, true, 0)),
            ("-all +TLSv1.2 +TLSv1.3", (true, true, 0)),
            ("-all +TLSv1.2", (true, false, 0)),
            ("TLSv1.2", (true, false, 0)),
            ("TLSv1.2 TLSv1.3", (false, true, 0)),
            ("+TLSv1 +TLSv1.1 +TLSv1.2", (true, false, 2)),
            ("+TLSv1 +TLSv1.2 -TLSv1", (true, false, 0)),
            ("all -TLSv1.2 -TLSv1.3", (false, false, 0)),
        ] {
            assert_eq!(parse(text), Ok(want), "{text}");
        }
        assert_eq!(Versions::parse(["TLSv1.2", "TLSv1.3"]).unwrap().overriding, ["TLSv1.3"]);
    }

    #[test]
    fn what_is_no_protocol_is_refused_with_apaches_text() {
        for (text, want) in [
            ("SSLv2", "SSLv2 is no longer supported"),
            ("+SSLv3", "SSLv3 not supported by this version of OpenSSL"),
            ("tlsv1.2", "Illegal protocol 'tlsv1.2'"),
            ("All", "Illegal protocol 'All'"),
        ] {
            assert_eq!(parse(text), Err(want.to_owned()));
        }
    }
}
