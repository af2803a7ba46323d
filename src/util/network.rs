//! Networks of addresses, as people write them.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

/// An address, and how many of its leading bits the addresses of the network share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Network {
    pub(crate) address: IpAddr,
    pub(crate) prefix: u8,
}

impl Network {
    /// Parses an address or a CIDR range. IPv4-mapped addresses become IPv4.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (address, prefix) = match text.split_once('/') {
            None => (text.parse::<IpAddr>().ok()?, None),
            Some((address, prefix)) => {
                let is_number = prefix.bytes().all(|byte| byte.is_ascii_digit());
                let prefix = Some(prefix).filter(|_| is_number)?;
                (address.parse().ok()?, Some(prefix.parse().ok()?))
            }
        };
        let prefix = prefix.unwrap_or(width(address));
        if prefix > width(address) {
            return None;
        }
        let mapped = match address {
            IpAddr::V4(_) => None,
            IpAddr::V6(v6) => v6.to_ipv4_mapped(),
        };
        Some(match mapped {
            None => Self { address, prefix },
            Some(v4) => Self {
                address: v4.into(),
                prefix: prefix.checked_sub(96)?,
            },
        })
    }

    /// Returns the network with all bits beyond the prefix unset.
    pub(crate) fn without_host_bits(self) -> Self {
        let (first, _) = self.range();
        let address = self.address_of(first);
        Self { address, ..self }
    }

    /// Returns the first and the last address of the network.
    pub(crate) fn ends(self) -> [IpAddr; 2] {
        let (first, last) = self.range();
        [first, last].map(|bits| self.address_of(bits))
    }

    /// Returns an address alone as people write it, without the length of its prefix.
    pub(crate) fn written(self) -> String {
        match self.prefix == width(self.address) {
            true => self.address.to_string(),
            false => self.to_string(),
        }
    }

    /// Returns the address of these bits, of the version of this network.
    fn address_of(self, bits: u128) -> IpAddr {
        match self.address {
            // The bits of an IPv4 address are 32.
            IpAddr::V4(_) => Ipv4Addr::from_bits(u32::try_from(bits).unwrap_or(u32::MAX)).into(),
            IpAddr::V6(_) => Ipv6Addr::from_bits(bits).into(),
        }
    }

    /// Returns whether an address, which must not be IPv4-mapped, is of this network.
    pub(crate) fn contains(self, address: IpAddr) -> bool {
        let other = Self { address, ..self };
        width(address) == width(self.address) && self.range() == other.range()
    }

    /// Returns the first and the last address of the network, as numbers.
    pub(crate) fn range(self) -> (u128, u128) {
        let first = self.bits() & !self.host_bits();
        (first, first | self.host_bits())
    }

    fn bits(self) -> u128 {
        match self.address {
            IpAddr::V4(v4) => v4.to_bits().into(),
            IpAddr::V6(v6) => v6.to_bits(),
        }
    }

    /// Returns the bits beyond the prefix, all set.
    fn host_bits(self) -> u128 {
        let count = width(self.address) - self.prefix;
        1_u128
            .checked_shl(count.into())
            .map_or(u128::MAX, |bit| bit - 1)
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

/// Returns the number of bits of an address.
const fn width(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}
