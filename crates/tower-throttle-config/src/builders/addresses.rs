//! The tables `[client_ip]` and `[peer]`: the meaning of these words in keys and lists.

use super::reading::Reading;
use crate::{
    place::FilePlace,
    tables::{self, ProxyHeader},
};
use tower_throttle::key::{self, ClientIp, KeyExtractor};

/// The readers of addresses.
pub(super) struct Addresses {
    /// `None` without the table. `Some(None)` if the table has a mistake.
    client_ip: Option<Option<ClientIp>>,
    peer: Option<ClientIp>,
}

impl Addresses {
    pub(super) fn read(reading: &mut Reading<'_>) -> Self {
        let file = reading.file();
        let client_ip = file.client_ip.as_ref();
        let peer = file.peer.as_ref().and_then(|table| table.ipv6_prefix);
        Self {
            client_ip: client_ip.map(|table| client_ip_of(reading, table)),
            peer: peer.map(|bits| key::peer().ipv6_prefix(bits)),
        }
    }

    pub(super) fn peer(&self) -> ClientIp {
        self.peer.clone().unwrap_or_else(key::peer)
    }

    /// Returns what the word `client_ip` at this place means. Reports it if there is no table.
    pub(super) fn client_ip(&self, reading: &mut Reading<'_>, at: &FilePlace) -> Option<ClientIp> {
        if self.client_ip.is_none() {
            let message = "`client_ip` without a table `[client_ip]`; add it with the addresses of your proxies in `trusted`, or use `peer`";
            reading.report(at, "missing-field", message);
        }
        self.configured_client_ip()
    }

    /// Returns the reader of the table `[client_ip]`, if there is one without mistakes.
    pub(super) fn configured_client_ip(&self) -> Option<ClientIp> {
        self.client_ip.clone().flatten()
    }
}

fn client_ip_of(reading: &mut Reading<'_>, table: &tables::ClientIp) -> Option<ClientIp> {
    let at = FilePlace::root().to("client_ip");
    let (before, trusted_at) = (reading.problems.len(), at.to("trusted"));
    let ranges = table.trusted.iter().map(|range| &*range.0);
    for (index, range) in ranges.clone().enumerate() {
        // Each separately, to report which one is wrong.
        reading.keep(&trusted_at.to(&index), key::client_ip([range]).validate());
    }
    let mut client_ip = key::client_ip(ranges);
    if reading.problems.len() == before {
        // All of them together may be every address.
        reading.keep(&trusted_at, client_ip.validate());
    }
    client_ip = match &table.header {
        None | Some(ProxyHeader::XForwardedFor) => client_ip.from_x_forwarded_for(),
        Some(ProxyHeader::Forwarded) => client_ip.from_forwarded(),
        Some(ProxyHeader::XRealIp) => client_ip.from_x_real_ip(),
        Some(ProxyHeader::Header(name)) => {
            reading.keep(&at.to("header"), key::header(name).validate());
            client_ip.from_header(name)
        }
        Some(ProxyHeader::HeaderWithPort(name)) => {
            reading.keep(&at.to("header"), key::header(name).validate());
            client_ip.from_header_with_port(name)
        }
    };
    if let Some(bits) = table.ipv6_prefix {
        client_ip = client_ip.ipv6_prefix(bits);
    }
    (reading.problems.len() == before).then_some(client_ip)
}
