//! The key of a caller.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use smallvec::SmallVec;

/// The key of a caller: one part or several, of any bytes. A tuple makes a key of several
/// parts, and its parts may be keys.
///
/// The key includes the length and the type of each part, so `("ab", "c")` and
/// `("a", "bc")`, or `"7"` and `7`, are different callers. Stores keep only hashes of these
/// bytes.
///
/// ```
/// use tower_throttle::Key;
///
/// assert_ne!(Key::from(("ab", "c")), Key::from(("a", "bc")));
/// assert_ne!(Key::from("7"), Key::from(7));
/// assert_eq!(Key::from(7_u64), Key::from(7_i64));
/// assert_eq!(Key::from((Key::from(("a", 7)), "b")), Key::from(("a", 7, "b")));
/// ```
#[derive(PartialEq, Eq, Hash)]
pub struct Key(SmallVec<[u8; INLINE_KEY_BYTES]>);

/// Keys of up to this many bytes need no allocation.
pub(crate) const INLINE_KEY_BYTES: usize = 72;

impl Clone for Key {
    /// Copies the bytes in one piece, where a derived `clone` would copy each byte.
    fn clone(&self) -> Self {
        Self(SmallVec::from_slice(&self.0))
    }
}

impl Key {
    /// Returns the key that all callers share: what [`key::global`](crate::key::global) and
    /// [`Policy::shared`](crate::Policy::shared) use.
    #[must_use]
    pub const fn everyone() -> Self {
        Self(SmallVec::new_const())
    }

    /// Returns the key of several parts, as of a tuple of extractors: a tenant and a user, for example.
    /// The parts cannot be confused, however they are spelled.
    ///
    /// ```
    /// use tower_throttle::Key;
    ///
    /// let key = |tenant: &str, user: &str| Key::from(tenant).and(&Key::from(user));
    /// assert_ne!(key("ab", "c"), key("a", "bc"));
    /// ```
    #[must_use]
    pub fn and(mut self, other: &Self) -> Self {
        self.0.extend_from_slice(&other.0);
        self
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the key that has these bytes.
    pub(crate) fn of_bytes(bytes: &[u8]) -> Self {
        Self(SmallVec::from_slice(bytes))
    }

    /// Returns whether it is an address, and nothing else.
    pub(crate) fn is_address(&self) -> bool {
        matches!(
            (self.0.first(), self.0.len()),
            (Some(b'4'), 9) | (Some(b'6'), 21 | 25)
        )
    }

    /// Returns whether it is a text, and nothing else.
    pub(crate) fn is_text(&self) -> bool {
        let text = self.0.get(5..);
        text.is_some_and(|text| *self == Self::from(text))
    }

    /// Returns the key of a whole number that is written in digits.
    pub(crate) fn of_number(text: &str) -> Option<Self> {
        let positive = text.parse::<u128>().map(Self::from);
        positive
            .or_else(|_| text.parse::<i64>().map(Self::from))
            .ok()
    }

    /// Returns the key of an address of a link. Zone 0 is the only one, or not known.
    pub(crate) fn of_address_in_zone(address: Ipv6Addr, zone: u32) -> Self {
        match zone {
            0 => Self::from(address),
            _ => Self::part(b'6', &[&address.octets()[..], &zone.to_be_bytes()].concat()),
        }
    }

    pub(crate) fn missing() -> Self {
        Self::part(b'?', &[])
    }

    pub(crate) fn part(tag: u8, bytes: &[u8]) -> Self {
        // A part is a piece of a request in memory, which never reaches 4 GiB.
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let [first, second, third, fourth] = length.to_le_bytes();
        let start = [tag, first, second, third, fourth];
        let length = start.len() + bytes.len();
        let mut short = [0; INLINE_KEY_BYTES];
        let room = short.get_mut(..length);
        match room.and_then(<[u8]>::split_first_chunk_mut) {
            Some((place, rest)) => {
                *place = start;
                rest.copy_from_slice(bytes);
                Self(SmallVec::from_buf_and_len(short, length))
            }
            None => Self(SmallVec::from_vec([&start, bytes].concat())),
        }
    }
}

impl fmt::Debug for Key {
    /// Shows the length of the key. The bytes are secret, as keys may be credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({} bytes)", self.0.len())
    }
}

impl From<&[u8]> for Key {
    fn from(bytes: &[u8]) -> Self {
        Self::part(b's', bytes)
    }
}

impl From<&str> for Key {
    fn from(text: &str) -> Self {
        Self::from(text.as_bytes())
    }
}

impl From<String> for Key {
    fn from(text: String) -> Self {
        Self::from(text.as_bytes())
    }
}

impl From<&String> for Key {
    fn from(text: &String) -> Self {
        Self::from(text.as_bytes())
    }
}

impl From<u64> for Key {
    fn from(number: u64) -> Self {
        Self::part(b'n', &number.to_be_bytes())
    }
}

impl From<u128> for Key {
    /// For UUIDs, for example (`Uuid::as_u128`). The same number is the same caller for all
    /// integer types.
    fn from(number: u128) -> Self {
        match u64::try_from(number) {
            Ok(number) => Self::from(number),
            Err(_) => Self::part(b'N', &number.to_be_bytes()),
        }
    }
}

macro_rules! signed_key {
    ($($number:ty),+) => {
        $(
            impl From<$number> for Key {
                /// The same number is the same caller for all integer types.
                fn from(number: $number) -> Self {
                    match u64::try_from(number) {
                        Ok(number) => Self::from(number),
                        Err(_) => Self::part(b'-', &i64::from(number).to_be_bytes()),
                    }
                }
            }
        )+
    };
}
signed_key!(i32, i64);

impl From<u32> for Key {
    fn from(number: u32) -> Self {
        Self::from(u64::from(number))
    }
}

impl From<usize> for Key {
    fn from(number: usize) -> Self {
        Self::from(number as u128)
    }
}

impl From<Ipv4Addr> for Key {
    fn from(address: Ipv4Addr) -> Self {
        Self::from(IpAddr::V4(address))
    }
}

impl From<Ipv6Addr> for Key {
    /// Uses the whole address, as from an [`IpAddr`].
    fn from(address: Ipv6Addr) -> Self {
        Self::from(IpAddr::V6(address))
    }
}

impl From<IpAddr> for Key {
    /// Uses the whole address; [`key::peer`](crate::key::peer) and
    /// [`key::client_ip`](crate::key::client_ip) group IPv6 by prefix first.
    fn from(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(v4) => Self::part(b'4', &v4.octets()),
            IpAddr::V6(v6) => Self::part(b'6', &v6.octets()),
        }
    }
}

macro_rules! tuple_key {
    ($($name:ident),+) => {
        impl<$($name: Into<Key>),+> From<($($name,)+)> for Key {
            #[allow(non_snake_case)]
            fn from(($($name,)+): ($($name,)+)) -> Self {
                Self::everyone()$(.and(&$name.into()))+
            }
        }
    };
}
tuple_key!(A, B);
tuple_key!(A, B, C);
tuple_key!(A, B, C, D);
