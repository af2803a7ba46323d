//! What a client sends beside its key, or in another spelling, gives it no bucket of its choice.

use std::net::{IpAddr, Ipv6Addr};

use crate::prelude::*;

type Lines = Vec<(&'static str, &'static str)>;

/// A request of this peer with these lines.
fn of(peer: impl Into<IpAddr>, lines: &[(&'static str, &str)]) -> Request<Full<Bytes>> {
    let mut request = plain();
    for (name, value) in lines {
        let value = HeaderValue::from_str(value).expect("a value");
        request.headers_mut().append(*name, value);
    }
    let peer = SocketAddr::new(peer.into(), 4711);
    request.extensions_mut().insert(PeerAddr(peer));
    request
}

fn once(key: impl KeyExtractor) -> Policy {
    Policy::new("api", FixedWindow::per_day(1)).key(key)
}

/// The key of README.md, others like it, and the lines that name the caller twice.
fn ambiguous() -> Vec<(&'static str, Policy, Lines)> {
    let header = || key::header("x-api-key");
    let by_closure = |head: &RequestHead<'_>| {
        let mut keys = head.headers().get_all("x-api-key").iter();
        match (keys.next(), keys.next()) {
            (Some(key), None) => Ok(Key::from(key.as_bytes())),
            (Some(_), Some(_)) => Err(KeyError::ambiguous()),
            (None, _) => Err(KeyError::missing()),
        }
    };
    let by_token = || once(key::bearer_token().or(key::peer()));
    let twice = |name, first, second| vec![(name, first), (name, second)];
    let of_header = twice("x-api-key", "known", "junk");
    let tokens = twice("authorization", "Bearer known", "Bearer junk");
    let no_token = vec![("authorization", "Bearer known, junk")];
    let cookies = vec![("cookie", "sid=known; sid=junk")];
    let behind_two = header().or(key::cookie("id")).or(key::peer());
    let [skip, share] = [OnMissingKey::Skip, OnMissingKey::Share]
        .map(|choice| once(header()).on_missing_key(choice));
    vec![
        (
            "header or peer",
            once(header().or(key::peer())),
            of_header.clone(),
        ),
        ("peer behind two", once(behind_two), of_header.clone()),
        ("skip", skip, of_header.clone()),
        ("share", share, of_header.clone()),
        (
            "closure",
            once(KeyExtractor::or(by_closure, key::peer())),
            of_header,
        ),
        ("bearer token", by_token(), tokens),
        ("no token", by_token(), no_token),
        ("cookie", once(key::cookie("sid").or(key::peer())), cookies),
        (
            "host",
            once(key::header("host").or(key::peer())),
            twice("host", "known", "junk"),
        ),
    ]
}

#[test]
fn a_credential_that_is_sent_twice_leaves_no_bucket() {
    for (name, policy, lines) in ambiguous() {
        let (layer, _) = layer_of([policy]);
        for network in 0..40 {
            let answer = ask(&layer, of([192, 0, network, 1], &lines));
            assert_eq!(answer.status, 403, "{name}");
            assert_eq!(answer.reason, Some(DenialReason::KeyMissing), "{name}");
        }
        // Once is no mistake.
        let (field, value) = lines[0];
        let value = value.split([';', ',']).next().expect("a part");
        let known = |network| ask(&layer, of([192, 0, network, 1], &[(field, value)])).status;
        assert_eq!([known(1), known(2)], [200, 429], "{name}");
    }
}

/// Also where the policy denies nothing.
#[test]
fn a_key_that_is_sent_twice_is_on_no_list_and_passes_none() {
    let denied = || Lists::new().deny_keys("api", ["known"]).expect("lists");
    let allowed = || Lists::new().allow_keys("api", ["known"]).expect("lists");
    for (name, policy, lines) in ambiguous() {
        for (policy, lists) in [
            (policy.clone(), denied()),
            (policy.clone().shadow(), denied()),
            (policy, allowed()),
        ] {
            let (layer, _) = layer_with([policy], |builder| builder.lists(lists));
            for lines in [lines.clone(), lines.iter().rev().copied().collect()] {
                let status = ask(&layer, of([192, 0, 2, 1], &lines)).status;
                assert_eq!(status, 403, "{name}");
            }
        }
    }
}

/// A client that guesses passwords chooses the login name. The same text is an API key that is listed.
#[test]
fn an_entry_for_a_key_of_one_policy_is_none_for_the_same_text_of_another() {
    let api = || Policy::new("api", FixedWindow::per_hour(1)).key(key::header("x-api-key"));
    let api = || api().on_missing_key(OnMissingKey::Skip);
    let logins = || Policy::new("logins", FixedWindow::per_hour(5)).key(key::header("x-login"));
    let logins = || logins().on_missing_key(OnMissingKey::Skip);
    let lists = || Lists::new().client_address(key::peer());
    let allowed = lists().allow_keys("api", ["monitoring"]).expect("lists");
    let denied = lists().deny_keys("api", ["monitoring"]).expect("lists");
    for (lists, of_api) in [(allowed, 500), (denied, 0)] {
        for policies in [[api(), logins()], [logins(), api()]] {
            let (layer, _) = layer_with(policies, |builder| builder.lists(lists.clone()));
            let passed = |field| {
                let ask = || ask(&layer, of([192, 0, 2, 1], &[(field, "monitoring")]));
                (0..500).filter(|_| ask().status == 200).count()
            };
            assert_eq!([passed("x-login"), passed("x-api-key")], [5, of_api]);
        }
    }
}

/// The recipe of docs/authentication.md.
#[test]
fn a_network_of_ipv6_has_the_guesses_of_one_client() {
    let client = key::client_ip(["10.0.0.7"]);
    let limit = Policy::new("failures", FixedWindow::per_hour(3));
    let failures = Limiter::new(MemoryStore::new(), limit);
    let passes = |host: &u16| {
        let address = Ipv6Addr::new(0x2001, 0xdb8, 7, 7, *host, 0, 0, *host);
        let request = of([10, 0, 0, 7], &[("x-forwarded-for", &address.to_string())]);
        let address = client
            .extract(&RequestHead::from(&request))
            .expect("an address");
        let decision = failures.check_now(("alice", address));
        decision.expect("a decision").is_allowed()
    };
    assert_eq!((0..100).filter(passes).count(), 3);
}
