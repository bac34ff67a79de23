//! Request methods. Methods of Apache's `<Limit>` (http_core's table) are numbers; for all others
//! the request head has the text.

macro_rules! methods {
    ($($name:ident = $text:literal),+ $(,)?) => {
        /// A request method. HEAD is a method of its own here; `<Limit GET>` covers it, as in
        /// Apache.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Method {
            $(#[doc = $text] $name),+
            ,
            /// A method that RegisterHttpMethod names. Its text is in the request head.
            Registered,
            /// A method that no table names. Its text is in the request head.
            Other,
        }

        impl Method {
            /// Every method of the table, in Apache's order.
            pub const ALL: &[Method] = &[$(Method::$name),+];

            /// The method with exactly that text (methods are case-sensitive: RFC 9110, section
            /// 9.1).
            #[must_use]
            pub fn parse(text: &[u8]) -> Method {
                $(if text == $text.as_bytes() { return Method::$name; })+
                Method::Other
            }

            /// The text of a method of the table; empty for `Registered` and `Other`.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self {
                    $(Method::$name => $text,)+
                    Method::Registered | Method::Other => "",
                }
            }
        }
    };
}

methods! {
    Get = "GET", Head = "HEAD", Post = "POST", Put = "PUT", Delete = "DELETE",
    Connect = "CONNECT", Options = "OPTIONS", Trace = "TRACE", Patch = "PATCH",
    Propfind = "PROPFIND", Proppatch = "PROPPATCH", Mkcol = "MKCOL", Copy = "COPY",
    Move = "MOVE", Lock = "LOCK", Unlock = "UNLOCK", VersionControl = "VERSION-CONTROL",
    Checkout = "CHECKOUT", Uncheckout = "UNCHECKOUT", Checkin = "CHECKIN", Update = "UPDATE",
    Label = "LABEL", Report = "REPORT", Mkworkspace = "MKWORKSPACE", Mkactivity = "MKACTIVITY",
    BaselineControl = "BASELINE-CONTROL", Merge = "MERGE",
}

/// A set of methods, as in `<Limit>` and `Require method`. GET includes HEAD.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MethodSet {
    bits: u32,
    /// Sorted and without duplicates, so that equal sets compare equal.
    others: Vec<Box<[u8]>>,
}

impl MethodSet {
    /// Adds a method by its text.
    pub fn add(&mut self, text: &[u8]) {
        match Method::parse(text) {
            Method::Other => {
                if let Err(at) = self.others.binary_search_by(|other| (**other).cmp(text)) {
                    self.others.insert(at, text.into());
                }
            }
            method => self.bits |= Self::bit(method),
        }
    }

    /// Whether the set contains the method. Its text is used only for `Registered` and `Other`.
    #[must_use]
    pub fn contains(&self, method: Method, text: &[u8]) -> bool {
        match method {
            Method::Registered | Method::Other => self.others.iter().any(|other| **other == *text),
            method => self.bits & Self::bit(method) != 0,
        }
    }

    /// Adds the methods of another set.
    pub fn add_all(&mut self, other: &MethodSet) {
        self.bits |= other.bits;
        other.others.iter().for_each(|method| self.add(method));
    }

    /// Keeps the methods that are in `other` if `wanted`, and those that are not in it otherwise.
    pub fn retain(&mut self, other: &MethodSet, wanted: bool) {
        self.bits &= if wanted { other.bits } else { !other.bits };
        self.others.retain(|method| other.others.contains(method) == wanted);
    }

    /// The methods as the Allow field lists them (RFC 9110, section 10.2.1).
    #[must_use]
    pub fn list(&self) -> Vec<u8> {
        let known = Method::ALL.iter().filter(|method| self.bits & Self::bit(**method) != 0);
        let known = known.map(|method| method.text().as_bytes());
        known.chain(self.others.iter().map(|other| &**other)).collect::<Vec<_>>().join(&b',')
    }

    /// Whether no method is in the set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bits == 0 && self.others.is_empty()
    }

    const fn bit(method: Method) -> u32 {
        match method {
            Method::Head => 1 << Method::Get as u8,
            method => 1 << method as u8,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_cut_and_joined() {
        let set = |words: &[&str]| {
            let mut set = MethodSet::default();
            words.iter().for_each(|word| set.add(word.as_bytes()));
            set
        };
        let (mut both, mut left) = (set(&["GET", "PUT", "BREW"]), set(&["GET", "PUT", "BREW"]));
        both.retain(&set(&["PUT", "POST", "BREW"]), true);
        assert_eq!(both, set(&["PUT", "BREW"]));
        left.retain(&set(&["PUT", "BREW"]), false);
        left.add_all(&set(&["POST", "TEA"]));
        assert_eq!(left, set(&["TEA", "POST", "GET", "TEA"]));
    }

    #[test]
    fn head_goes_with_get_and_unknown_methods_by_text() {
        let mut set = MethodSet::default();
        set.add(b"GET");
        set.add(b"BREW");
        assert!(set.contains(Method::Head, b"HEAD"));
        assert!(!set.contains(Method::Post, b"POST"));
        assert!(set.contains(Method::parse(b"BREW"), b"BREW"));
        assert!(!set.contains(Method::parse(b"brew"), b"brew"));
        for method in Method::ALL {
            assert_eq!(Method::parse(method.text().as_bytes()), *method);
        }
    }
}
