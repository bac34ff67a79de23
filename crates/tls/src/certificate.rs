//! The fields of a certificate under the names that mod_ssl gives them (ssl_engine_vars.c,
//! ssl_var_lookup_ssl_cert): `S_DN`, `S_DN_CN`, `V_END`, `SAN_DNS_0` and so on.

use crate::pem;
use std::fmt::Write as _;
use x509_parser::prelude::{ASN1Time, FromDer as _, GeneralName, X509Certificate, X509Name};

/// The parts of a name that have variables of their own, OpenSSL's short name, and whether
/// `SSLOptions +StdEnvVars` exports them. OpenSSL's name is empty where the attribute has another
/// one in whole names.
const PARTS: &[(&str, &str, &str, bool)] = &[
    ("C", "2.5.4.6", "C", true),
    ("ST", "2.5.4.8", "ST", true),
    ("SP", "2.5.4.8", "ST", false),
    ("L", "2.5.4.7", "L", true),
    ("O", "2.5.4.10", "O", true),
    ("OU", "2.5.4.11", "OU", true),
    ("CN", "2.5.4.3", "CN", true),
    ("T", "2.5.4.12", "title", true),
    ("I", "2.5.4.43", "initials", true),
    ("G", "2.5.4.42", "GN", true),
    ("S", "2.5.4.4", "SN", true),
    ("D", "2.5.4.13", "description", true),
    ("SerialNumber", "2.5.4.5", "serialNumber", true),
    ("UID", "0.9.2342.19200300.100.1.1", "UID", true),
    ("Email", "1.2.840.113549.1.9.1", "emailAddress", true),
];

/// OpenSSL's names of attributes that have no variable of their own.
const OTHERS: &[(&str, &str)] = &[
    ("0.9.2342.19200300.100.1.25", "DC"),
    ("2.5.4.9", "street"),
    ("2.5.4.17", "postalCode"),
    ("2.5.4.15", "businessCategory"),
    ("2.5.4.46", "dnQualifier"),
    ("2.5.4.65", "pseudonym"),
    ("2.5.4.97", "organizationIdentifier"),
    ("1.3.6.1.4.1.311.60.2.1.1", "jurisdictionL"),
    ("1.3.6.1.4.1.311.60.2.1.2", "jurisdictionST"),
    ("1.3.6.1.4.1.311.60.2.1.3", "jurisdictionC"),
];

/// OpenSSL's long names of algorithms.
const ALGORITHMS: &[(&str, &str)] = &[
    ("1.2.840.113549.1.1.1", "rsaEncryption"),
    ("1.2.840.113549.1.1.5", "sha1WithRSAEncryption"),
    ("1.2.840.113549.1.1.10", "rsassaPss"),
    ("1.2.840.113549.1.1.11", "sha256WithRSAEncryption"),
    ("1.2.840.113549.1.1.12", "sha384WithRSAEncryption"),
    ("1.2.840.113549.1.1.13", "sha512WithRSAEncryption"),
    ("1.2.840.10045.2.1", "id-ecPublicKey"),
    ("1.2.840.10045.4.1", "ecdsa-with-SHA1"),
    ("1.2.840.10045.4.3.2", "ecdsa-with-SHA256"),
    ("1.2.840.10045.4.3.3", "ecdsa-with-SHA384"),
    ("1.2.840.10045.4.3.4", "ecdsa-with-SHA512"),
    ("1.3.101.112", "ED25519"),
];

/// The length of a certificate's public key in bits; none if the certificate cannot be parsed.
#[must_use]
pub fn key_bits(der: &[u8]) -> Option<usize> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    Some(certificate.public_key().parsed().ok()?.key_size())
}

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

const DAY_S: i64 = 24 * 3600;

/// The value of the variable `name` (behind `SSL_SERVER_` or `SSL_CLIENT_`, without regard to case
/// where mod_ssl has none) of a certificate at `now_s`, in seconds since 1970.
pub(crate) fn field(der: &[u8], name: &str, legacy_names: bool, now_s: i64) -> Option<String> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let upper = name.to_ascii_uppercase();
    let of = |side: u8| match side {
        b'S' => Some(certificate.subject()),
        b'I' => Some(certificate.issuer()),
        _ => None,
    };
    match upper.as_str() {
        "M_VERSION" => Some((u64::from(certificate.version().0) + 1).to_string()),
        "M_SERIAL" => Some(serial(certificate.raw_serial())),
        "V_START" => time(&certificate.validity().not_before),
        "V_END" => time(&certificate.validity().not_after),
        "V_REMAIN" => {
            let left_s = certificate.validity().not_after.timestamp() - now_s;
            Some((left_s / DAY_S).max(0).to_string())
        }
        "A_SIG" => Some(algorithm(&certificate.signature_algorithm.algorithm.to_id_string())),
        "A_KEY" => Some(algorithm(&certificate.public_key().algorithm.algorithm.to_id_string())),
        "CERT" => Some(pem::write("CERTIFICATE", der)),
        _ => {
            let side = of(*name.as_bytes().first()?);
            if let Some(rest) = upper.get(1..).and_then(|rest| rest.strip_prefix("_DN")) {
                let whole = side?;
                if rest.is_empty() {
                    return Some(if legacy_names {
                        one_line(whole)
                    } else {
                        rfc2253(whole, false)
                    });
                }
                return part(whole, name.get(5..)?);
            }
            if upper.starts_with("SAN_") {
                return alternative(&certificate, name.get(4..)?);
            }
            None
        }
    }
}

/// The names and values of what `+StdEnvVars` exports beyond the fixed list: the parts of both
/// names and the alternative names (modssl_var_extract_dns, modssl_var_extract_san_entries).
pub(crate) fn exports(der: &[u8], prefix: &str, is_client: bool) -> Vec<(String, String)> {
    let Ok((_, certificate)) = X509Certificate::from_der(der) else { return Vec::new() };
    let mut all = Vec::new();
    for (side, name) in [("S", certificate.subject()), ("I", certificate.issuer())] {
        let mut counts = vec![0_usize; PARTS.len()];
        for attribute in name.iter_attributes() {
            let oid = attribute.attr_type().to_id_string();
            let known = PARTS.iter().zip(&mut counts).find(|(part, _)| part.1 == oid && part.3);
            let Some(((part, ..), count)) = known else { continue };
            let index = if *count == 0 { String::new() } else { format!("_{count}") };
            *count += 1;
            all.push((format!("{prefix}{side}_DN_{part}{index}"), value(attribute)));
        }
    }
    let kinds: [&str; 3] =
        if is_client { ["Email", "DNS", "OTHER_msUPN"] } else { ["Email", "DNS", "OTHER_dnsSRV"] };
    for kind in kinds {
        for (index, value) in alternatives(&certificate, kind).into_iter().enumerate() {
            all.push((format!("{prefix}SAN_{kind}_{index}"), value));
        }
    }
    all
}

/// The certificate's exact assertion (RFC 4523): serial number and issuer.
pub(crate) fn exact_assertion(der: &[u8]) -> Option<String> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let serial = certificate.tbs_certificate.serial.to_string();
    let issuer = rfc2253(certificate.issuer(), true);
    Some(format!("{{ serialNumber {serial}, issuer rdnSequence:\"{issuer}\" }}"))
}

/// The subject in RFC 2253's form, for log lines and FakeBasicAuth.
pub(crate) fn legacy_subject(der: &[u8]) -> Option<String> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    Some(one_line(certificate.subject()))
}

/// A serial number in hexadecimal, two digits a byte (i2a_ASN1_INTEGER).
fn serial(bytes: &[u8]) -> String {
    let bytes = match bytes {
        [0, rest @ ..] if !rest.is_empty() => rest,
        all => all,
    };
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02X}");
        text
    })
}

/// A time as ASN1_TIME_print writes it: `Nov  7 09:05:00 2026 GMT`.
fn time(time: &ASN1Time) -> Option<String> {
    let seconds = time.timestamp();
    let (days, second) = (seconds.div_euclid(DAY_S), seconds.rem_euclid(DAY_S));
    let (year, month, day) = date(days);
    let month = MONTHS.get(usize::try_from(month - 1).ok()?)?;
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    Some(format!("{month} {day:2} {hour:02}:{minute:02}:{second:02} {year} GMT"))
}

/// Year, month and day of a day since 1970, in the Gregorian calendar.
fn date(days: i64) -> (i64, i64, i64) {
    // Years begin in March here, so that the leap day is the last of a year.
    let days = days + 719_468;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + i64::from(month <= 2), month, day)
}

fn algorithm(oid: &str) -> String {
    let known = ALGORITHMS.iter().find(|(known, _)| *known == oid);
    known.map_or("UNKNOWN", |(_, name)| name).to_owned()
}

type Attribute<'a> = x509_parser::prelude::AttributeTypeAndValue<'a>;

/// The text of an attribute. Bytes that are not UTF-8 are Latin-1, as T61String has them.
fn value(attribute: &Attribute<'_>) -> String {
    let bytes = attribute.as_slice();
    let text = match attribute.attr_value().tag().0 {
        // BMPString and UniversalString have two and four bytes a character.
        30 => {
            let units: Vec<_> =
                bytes.as_chunks::<2>().0.iter().map(|it| u16::from_be_bytes(*it)).collect();
            String::from_utf16_lossy(&units)
        }
        28 => {
            let characters = bytes.as_chunks::<4>().0.iter();
            characters.filter_map(|it| char::from_u32(u32::from_be_bytes(*it))).collect()
        }
        _ => match std::str::from_utf8(bytes) {
            Ok(text) => text.to_owned(),
            Err(_) => bytes.iter().copied().map(char::from).collect::<String>(),
        },
    };
    let escaped = |char: char| {
        let control = char.is_ascii_control();
        if control { format!("\\{:02X}", u32::from(char)) } else { char.to_string() }
    };
    text.chars().map(escaped).collect()
}

/// A part of a name: `CN`, `OU_1`, with `_RAW` behind it for the bytes as they are.
fn part(whole: &X509Name<'_>, name: &str) -> Option<String> {
    let upper = name.to_ascii_uppercase();
    let name = if upper.ends_with("_RAW") { name.get(..name.len() - 4)? } else { name };
    let (part, index) = match name.split_once('_') {
        Some((part, digits)) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            (part, digits.parse().unwrap_or(usize::MAX))
        }
        _ => (name, 0),
    };
    let (_, oid, ..) = PARTS.iter().find(|(known, ..)| *known == part)?;
    let mut matching = whole.iter_attributes().filter(|one| one.attr_type().to_id_string() == *oid);
    matching.nth(index).map(value)
}

fn short_name(oid: &str) -> Option<&'static str> {
    let part = PARTS.iter().find(|part| part.1 == oid).map(|part| part.2);
    part.or_else(|| OTHERS.iter().find(|(known, _)| *known == oid).map(|(_, name)| *name))
}

/// A name in the form of RFC 2253, the last part first (XN_FLAG_RFC2253).
fn rfc2253(name: &X509Name<'_>, escapes_high: bool) -> String {
    let mut parts = Vec::new();
    for relative in name.iter() {
        let mut one = String::new();
        for attribute in relative.iter() {
            if !one.is_empty() {
                one.push('+');
            }
            let oid = attribute.attr_type().to_id_string();
            match short_name(&oid) {
                Some(name) => {
                    let _ = write!(one, "{name}={}", escape(&value(attribute), escapes_high));
                }
                None => {
                    let _ = write!(one, "{oid}=#{}", serial(&dump(attribute)));
                }
            }
        }
        parts.push(one);
    }
    parts.reverse();
    parts.join(",")
}

/// The value of an unknown attribute in DER.
fn dump(attribute: &Attribute<'_>) -> Vec<u8> {
    let bytes = attribute.as_slice();
    let tag = u8::try_from(attribute.attr_value().tag().0).unwrap_or(12);
    let mut der = vec![tag];
    match u8::try_from(bytes.len()) {
        Ok(length) if length < 128 => der.push(length),
        Ok(length) => der.extend([0x81, length]),
        Err(_) => {
            let length = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
            der.push(0x82);
            der.extend(length.to_be_bytes());
        }
    }
    der.extend_from_slice(bytes);
    der
}

/// Escapes what RFC 2253, section 2.4 escapes.
fn escape(text: &str, escapes_high: bool) -> String {
    let mut escaped = String::with_capacity(text.len());
    let last = text.chars().count().saturating_sub(1);
    for (index, char) in text.chars().enumerate() {
        match char {
            ',' | '+' | '"' | '<' | '>' | ';' => escaped.extend(['\\', char]),
            '#' if index == 0 => escaped.extend(['\\', char]),
            ' ' if index == 0 || index == last => escaped.extend(['\\', char]),
            char if escapes_high && !char.is_ascii() => {
                let mut bytes = [0; 4];
                for byte in char.encode_utf8(&mut bytes).bytes() {
                    let _ = write!(escaped, "\\{byte:02X}");
                }
            }
            char => escaped.push(char),
        }
    }
    escaped
}

/// A name in OpenSSL's old form, the first part first (X509_NAME_oneline).
fn one_line(name: &X509Name<'_>) -> String {
    let mut line = String::new();
    for attribute in name.iter_attributes() {
        let oid = attribute.attr_type().to_id_string();
        let _ = write!(line, "/{}=", short_name(&oid).unwrap_or(&oid));
        for byte in attribute.as_slice() {
            match byte {
                b' '..=b'~' => line.push(char::from(*byte)),
                byte => {
                    let _ = write!(line, "\\x{byte:02X}");
                }
            }
        }
    }
    line
}

/// An alternative name: `Email_0`, `DNS_1`, `OTHER_msUPN_0`.
fn alternative(certificate: &X509Certificate<'_>, name: &str) -> Option<String> {
    let (kind, digits) = name.rsplit_once('_')?;
    let valid = (1..=4).contains(&digits.len()) && digits.bytes().all(|it| it.is_ascii_digit());
    let index: usize = digits.parse().ok().filter(|_| valid)?;
    alternatives(certificate, kind).into_iter().nth(index)
}

fn alternatives(certificate: &X509Certificate<'_>, kind: &str) -> Vec<String> {
    let Some(extension) = certificate.subject_alternative_name().ok().flatten() else {
        return Vec::new();
    };
    let names = extension.value.general_names.iter().filter_map(|name| match name {
        GeneralName::RFC822Name(text) if kind.eq_ignore_ascii_case("Email") => {
            Some((*text).to_owned())
        }
        GeneralName::DNSName(text) if kind.eq_ignore_ascii_case("DNS") => Some((*text).to_owned()),
        GeneralName::OtherName(oid, value) => {
            let wanted = match oid.to_id_string().as_str() {
                "1.3.6.1.4.1.311.20.2.3" => "OTHER_msUPN",
                "1.3.6.1.5.5.7.8.7" => "OTHER_dnsSRV",
                _ => return None,
            };
            kind.eq_ignore_ascii_case(wanted).then(|| other_name(value)).flatten()
        }
        _ => None,
    });
    names.collect()
}

/// The text of an other name: a string in an explicit tag.
fn other_name(value: &[u8]) -> Option<String> {
    let (_, outer) = x509_parser::der_parser::asn1_rs::Any::from_der(value).ok()?;
    let (_, inner) = x509_parser::der_parser::asn1_rs::Any::from_der(outer.data).ok()?;
    std::str::from_utf8(inner.data).ok().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DnType, KeyPair, SanType, SerialNumber};

    fn der() -> Vec<u8> {
        let mut params = CertificateParams::new(vec!["a.example".to_owned()]).unwrap();
        let names = &mut params.distinguished_name;
        *names = rcgen::DistinguishedName::new();
        names.push(DnType::CountryName, "DE");
        names.push(DnType::OrganizationName, "Ächt, GmbH");
        names.push(DnType::CommonName, "a.example");
        params.subject_alt_names.push(SanType::Rfc822Name("x@a.example".try_into().unwrap()));
        params.subject_alt_names.push(SanType::DnsName("b.example".try_into().unwrap()));
        params.serial_number = Some(SerialNumber::from(vec![0x0a, 0xff]));
        params.not_before = rcgen::date_time_ymd(2024, 2, 29);
        params.not_after = rcgen::date_time_ymd(2031, 12, 1);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    #[test]
    fn fields_have_mod_ssls_names_and_openssls_texts() {
        let der = der();
        let now_s = 1_900_000_000; // 17 March 2030
        for (name, want) in [
            ("M_VERSION", Some("3")),
            ("M_SERIAL", Some("0AFF")),
            ("m_serial", Some("0AFF")),
            ("V_START", Some("Feb 29 00:00:00 2024 GMT")),
            ("V_END", Some("Dec  1 00:00:00 2031 GMT")),
            ("V_REMAIN", Some("623")),
            ("S_DN", Some("CN=a.example,O=Ächt\\, GmbH,C=DE")),
            ("I_DN_CN", Some("a.example")),
            ("S_DN_O", Some("Ächt, GmbH")),
            ("S_DN_O_1", None),
            ("S_DN_C_0", Some("DE")),
            ("S_DN_C_RAW", Some("DE")),
            ("A_KEY", Some("id-ecPublicKey")),
            ("A_SIG", Some("ecdsa-with-SHA256")),
            ("SAN_DNS_0", Some("a.example")),
            ("SAN_DNS_1", Some("b.example")),
            ("SAN_DNS_2", None),
            ("SAN_DNS_00000", None),
            ("SAN_Email_0", Some("x@a.example")),
            ("X_DN", None),
            ("FOO", None),
            ("", None),
        ] {
            assert_eq!(field(&der, name, false, now_s).as_deref(), want, "{name}");
        }
        let legacy = field(&der, "S_DN", true, now_s).unwrap();
        assert_eq!(legacy, "/C=DE/O=\\xC3\\x84cht, GmbH/CN=a.example");
        let exact = exact_assertion(&der).unwrap();
        let issuer = "CN=a.example,O=\\C3\\84cht\\, GmbH,C=DE";
        assert_eq!(exact, format!("{{ serialNumber 2815, issuer rdnSequence:\"{issuer}\" }}"));
        assert!(field(b"damaged", "S_DN", false, now_s).is_none());
    }

    #[test]
    fn exports_name_each_part() {
        let all = exports(&der(), "SSL_CLIENT_", true);
        let value = |name: &str| all.iter().find(|(one, _)| one == name).map(|(_, it)| it.as_str());
        assert_eq!(value("SSL_CLIENT_S_DN_CN"), Some("a.example"));
        assert_eq!(value("SSL_CLIENT_I_DN_O"), Some("Ächt, GmbH"));
        assert_eq!(value("SSL_CLIENT_SAN_DNS_1"), Some("b.example"));
        assert_eq!(value("SSL_CLIENT_SAN_Email_0"), Some("x@a.example"));
    }

    #[test]
    fn days_become_dates() {
        for (days, date) in [
            (0, (1970, 1, 1)),
            (-1, (1969, 12, 31)),
            (11_016, (2000, 2, 29)),
            (19_782, (2024, 2, 29)),
            (47_540, (2100, 2, 28)),
            (47_541, (2100, 3, 1)),
        ] {
            assert_eq!(super::date(days), date);
        }
    }
}
