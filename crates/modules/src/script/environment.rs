//! The environment of a program as its process gets it.

use evenkeel_message::Variables;

/// The environment of a program (util_script.c: `ap_create_environment`).
#[must_use]
pub fn environment(variables: &Variables) -> Vec<(Vec<u8>, Vec<u8>)> {
    variables.iter().map(|(name, value)| (exported(name), before_nul(value))).collect()
}

/// The name of a variable as a shell can use it (util_script.c: `ap_create_environment`).
fn exported(name: &[u8]) -> Vec<u8> {
    let mut name = name.to_vec();
    for (at, byte) in name.iter_mut().enumerate() {
        let fits = byte.is_ascii_alphanumeric() || *byte == b'_';
        if !fits || (at == 0 && byte.is_ascii_digit()) {
            *byte = b'_';
        }
    }
    name
}

/// A value ends at a NUL, as in the C strings of Apache.
pub(crate) fn before_nul(value: &[u8]) -> Vec<u8> {
    value.iter().copied().take_while(|byte| *byte != 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_a_shell() {
        assert_eq!(exported(b"HTTP_X-A.b"), b"HTTP_X_A_b");
        assert_eq!(exported(b"1a2"), b"_a2");
    }

    #[test]
    fn a_value_ends_at_a_nul() {
        assert_eq!(before_nul(b"a\0b"), b"a");
    }
}
