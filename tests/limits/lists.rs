//! What may be on lists, their files, and the lists of a limiter.

use std::{collections::BTreeSet, fs, net::IpAddr, process};

use tower_throttle::{LimiterBuilder, List, Lists};

use crate::support::prelude::*;

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

#[test]
fn entries_that_mean_something_else_are_errors_that_say_what_was_meant() {
    // The entry, the code, and how the message goes on.
    for row in "\
        0.0.0.0/0 | lists-every-address | matches every address
        ::/0 | lists-every-address | matches
        ::ffff:0:0/96 | lists-every-address | matches
        10.0.0.1/8 | list-host-bits | has bits set beyond its prefix; write \"10.0.0.0/8\" for the range, or the address
        2001:db8::1/32 | list-host-bits | has bits set beyond its prefix; write \"2001:db8::/32\"
        ::ffff:10.0.0.1/104 | list-host-bits | has bits set beyond its prefix; write \"10.0.0.0/8\"
        10.0.0 | list-entry | is no address and no CIDR range;
        10.0.0.0/33 | list-entry | is
        10.0.0.0/+8 | list-entry | is
        10.0.0.0/ | list-entry | is
        2001:db8::/129 | list-entry | is
        ::ffff:10.0.0.0/64 | list-entry | is
        example.com | list-entry | is
         | list-entry | is"
        .lines()
    {
        let columns: Vec<_> = row.split('|').map(str::trim).collect();
        let (entry, code, rest) = (columns[0], columns[1], columns[2]);
        let what = if code == "list-entry" { "address" } else { "range" };
        let start = format!("listed {what} {entry:?} {rest}");
        assert_config_error(Lists::new().allow_ips([entry]), code, &start);
        assert_config_error(Lists::new().deny_ips([entry]), code, &start);
    }
    let everyone = Lists::new().deny_keys("api", [Key::everyone()]);
    let start = "the key of all callers is listed;";
    assert_config_error(everyone, "lists-every-caller", start);
}

#[test]
fn an_entry_is_listed_once() {
    let denied = || Lists::new().deny_ips(["10.0.0.0/8"]).expect("lists");
    for again in ["10.0.0.0/8", "::ffff:10.0.0.0/104"] {
        let twice = format!("{again:?} is listed twice;");
        assert_config_error(denied().deny_ips([again]), "listed-twice", &twice);
        let both = format!("{again:?} is on the allow list and on the deny list;");
        assert_config_error(denied().allow_ips([again]), "listed-twice", &both);
    }
    let single = Lists::new().allow_ips(["10.0.0.1", "10.0.0.1/32"]);
    assert_config_error(single, "listed-twice", r#""10.0.0.1/32" is listed twice;"#);
    let keys = Lists::new().deny_keys("api", ["s3cret", "s3cret"]);
    assert_config_error(keys, "listed-twice", "a key is listed twice;");
    let keys = Lists::new().deny_keys("api", [7_u64]).expect("lists");
    let start = "a key is on the allow list and on the deny list;";
    assert_config_error(
        keys.clone().allow_keys("api", [7_i32]),
        "listed-twice",
        start,
    );
    // The same number is another caller of another policy.
    let keys = keys.allow_keys("jobs", [7]).expect("lists");
    let list_of = |policy| keys.find_key(policy, &Key::from(7));
    let expected = [Some(List::Deny), Some(List::Allow), None];
    assert_eq!(["api", "jobs", "others"].map(list_of), expected);

    // A range inside of another one is another entry.
    let nested = denied().allow_ips(["10.1.0.0/16"]).expect("lists");
    let nested = nested.deny_ips(["10.1.2.0/24"]).expect("lists");
    assert_eq!(nested.find_ip(ip("10.0.0.1")), Some(List::Deny));
    assert_eq!(nested.find_ip(ip("10.1.0.1")), Some(List::Allow));
    // The allow list counts first, however long the prefixes are.
    assert_eq!(nested.find_ip(ip("10.1.2.3")), Some(List::Allow));
    assert_eq!(nested.find_ip(ip("11.0.0.1")), None);
}

const FILE: &str = "\u{feff}# The office, and who is out.\r\n\
    \n\
    allow 192.0.2.0/24\t# the office\r\n\
    \t deny  198.51.100.7 \n\
    deny 2001:db8:7::/48#\n";

#[test]
fn a_text_has_one_entry_on_each_line() {
    // A comment begins with a word of its own.
    let start = "line 5: no entry of a list; write `allow` or `deny`, and then";
    assert_config_error(Lists::new().from_text(FILE), "list-line", start);
    let text = FILE.replace("48#", "48 #no");
    let text = format!(
        "{text}allow key api a#b\ndeny key api number:7\ndeny key api number:-7\n\
         deny key api 8\ndeny key jobs text:ann number:9\nallow key jobs AAAAAAAAAAAAAAAAAAAAAA"
    );
    let lists = Lists::new().from_text(&text).expect("lists");
    for (address, list) in [
        ("192.0.2.255", Some(List::Allow)),
        ("198.51.100.7", Some(List::Deny)),
        ("198.51.100.8", None),
        ("2001:db8:7:ffff::1", Some(List::Deny)),
    ] {
        assert_eq!(lists.find_ip(ip(address)), list, "{address}");
    }
    for (key, list) in [
        (Key::from("a#b"), Some(List::Allow)),
        (Key::from(7), Some(List::Deny)),
        (Key::from(-7), Some(List::Deny)),
        (Key::from("7"), None),
        (Key::from("8"), Some(List::Deny)),
        (Key::from(8), None),
    ] {
        assert_eq!(lists.find_key("api", &key), list, "{key:?}");
        assert_eq!(lists.find_key("jobs", &key), None, "{key:?}");
    }
    let several = Key::from(("ann", 9));
    assert_eq!(lists.find_key("jobs", &several), Some(List::Deny));
    // Lists know keys, and no fingerprints.
    let text = Key::from("AAAAAAAAAAAAAAAAAAAAAA");
    assert_eq!(lists.find_key("jobs", &text), Some(List::Allow));
}

#[test]
fn an_error_in_a_text_has_the_number_of_its_line_and_no_key() {
    for (line, code) in [
        ("allow", "list-line"),
        ("192.0.2.0/24", "list-line"),
        ("Deny 192.0.2.0/24", "list-line"),
        ("deny 192.0.2.0/24 192.0.3.0/24", "list-line"),
        ("deny s3cret", "list-line"),
        ("s3cret", "list-line"),
        ("deny key", "list-line"),
        ("deny key s3cret", "list-line"),
        ("deny key api text:", "list-line"),
        ("deny key api number:s3cret", "list-line"),
        (
            "deny key api fingerprint:AAAAAAAAAAAAAAAAAAAAAA",
            "list-line",
        ),
        ("deny key \u{e4} s3cret", "policy-name"),
        ("deny key api s3cret\ndeny key api s3cret", "listed-twice"),
        ("deny 10.0.0.1/8", "list-host-bits"),
        ("deny ::/0", "lists-every-address"),
        ("deny 203.0.113.0/24", "listed-twice"),
    ] {
        let text = format!("deny 203.0.113.0/24\n# {line}\n{line}\nnonsense");
        let error = Lists::new().from_text(&text).expect_err(line);
        let at = 2 + line.lines().count();
        let shown = format!("{error} {error:?}");
        assert!(shown.starts_with(&format!("line {at}: ")), "{shown}");
        assert_eq!(error.code(), code, "{error}");
        assert!(!shown.contains("s3cret"), "{shown}");
    }
}

#[test]
fn a_file_is_named_in_its_errors() {
    let path = std::env::temp_dir().join(format!("tower-throttle-{}-lists", process::id()));
    let read = |bytes: &[u8]| {
        fs::write(&path, bytes).expect("a file");
        let lists = Lists::new().deny_keys("api", ["mallory"]).expect("lists");
        lists.from_file(&path)
    };
    let lists = read(b"deny 198.51.100.0/24\n").expect("lists");
    assert_eq!(lists.find_ip(ip("198.51.100.7")), Some(List::Deny));
    assert_eq!(
        lists.find_key("api", &Key::from("mallory")),
        Some(List::Deny)
    );

    let start = format!("{}:2: no entry of a list;", path.display());
    let bad = read(b"deny 198.51.100.0/24\nallow \xff\n");
    assert_config_error(bad, "list-line", &start);
    fs::remove_file(&path).expect("a file");
    let start = format!("cannot read {} (", path.display());
    assert_config_error(Lists::new().from_file(&path), "list-file", &start);
    // It may have no end.
    let start = "cannot read /dev/null (not a regular file)";
    assert_config_error(Lists::new().from_file("/dev/null"), "list-file", start);
}

#[test]
fn lists_show_no_key() {
    let lists = Lists::new().deny_keys("api", ["s3cret"]).expect("lists");
    let lists = lists.allow_ips(["192.0.2.0/24"]).expect("lists");
    assert_eq!(format!("{lists:?}"), "Lists { networks: 1, keys: 1, .. }");
}

fn limiter(policy: Policy, lists: &Lists) -> Limiter {
    let limiter = Limiter::builder().policy(policy).lists(lists.clone());
    limiter.build().expect("a limiter")
}

fn two() -> Policy {
    Policy::new("two", TokenBucket::per_day(2))
}

fn staff_and_mallory() -> Lists {
    let lists = Lists::new().allow_keys("two", ["staff"]).expect("lists");
    lists.deny_keys("two", ["mallory"]).expect("lists")
}

#[tokio::test]
async fn a_limiter_does_not_charge_an_allowed_key() -> Result<(), Box<dyn std::error::Error>> {
    let lists = staff_and_mallory();
    let limiter = limiter(two(), &lists);
    for units in [1, 9] {
        let decision = limiter.check_n("staff", units).await?;
        assert!(decision.is_allowed());
        assert_eq!(decision.source(), Source::List);
        assert_eq!(decision.charged(), units);
    }
    assert!(limiter.check("staff").await?.is_allowed());
    assert!(limiter.check_now("staff")?.is_allowed());
    assert!(limiter.peek("staff").await?.is_allowed());
    assert_eq!(limiter.take_up_to("staff", 7).await?.charged(), 7);
    let permit = limiter.acquire_n("staff", 9, Duration::ZERO).await?;
    assert!(permit.is_allowed());
    assert!(limiter.debit("staff", 9).await?.is_allowed());
    assert_eq!(limiter.credit("staff", 9).await?.refunded(), 0);
    let requests = limiter.metrics().requests;
    assert_eq!((requests.exempt, requests.total()), (6, 6));
    assert_eq!(limiter.metrics().decisions.list, 6);

    // Nothing was taken and nothing refunded.
    lists.replace(Lists::new())?;
    assert_eq!(limiter.take_up_to("staff", 9).await?.charged(), 2);
    Ok(())
}

#[tokio::test]
async fn a_limiter_denies_a_denied_key() -> Result<(), Box<dyn std::error::Error>> {
    let lists = Lists::new();
    let limiter = limiter(two(), &lists);
    assert!(limiter.check_n("mallory", 2).await?.is_allowed());
    lists.replace(staff_and_mallory())?;
    let permit = limiter.acquire("mallory", Duration::from_secs(9)).await?;
    for decision in [
        &limiter.check("mallory").await?,
        &limiter.check_now("mallory")?,
        &limiter.check_n("mallory", 0).await?,
        &limiter.take_up_to("mallory", 1).await?,
        &limiter.peek("mallory").await?,
        permit.decision(),
    ] {
        assert!(!decision.is_allowed());
        assert_eq!((decision.source(), decision.charged()), (Source::List, 0));
        assert_eq!(decision.retry_after(), None);
        assert_eq!(decision.policies().len(), 0);
    }
    let requests = limiter.metrics().requests;
    assert_eq!((requests.listed, requests.total()), (5, 6));
    // What it used is settled.
    assert_eq!(limiter.credit("mallory", 1).await?.refunded(), 1);
    assert_eq!(limiter.debit("mallory", 1).await?.charged(), 1);
    // A reset forgets what was taken, and takes no key off a list.
    limiter.reset("mallory").await?;
    assert!(!limiter.check("mallory").await?.is_allowed());
    assert!(limiter.check("ann").await?.is_allowed());
    Ok(())
}

#[tokio::test]
async fn a_listed_key_holds_no_permit_and_no_units() -> Result<(), Box<dyn std::error::Error>> {
    let lists = staff_and_mallory();
    let permits = limiter(Policy::new("two", Concurrency::new(1)), &lists);
    let held = [(); 2].map(|()| at_once(acquire(&permits, "staff", Duration::ZERO)));
    assert!(held.iter().all(Permit::is_allowed));
    assert_eq!(permits.metrics().store.held_units, 0);

    let limiter = limiter(two().hold_for(ms(60_000)), &lists);
    let staff = limiter.reserve("staff", 9).await?;
    let mallory = limiter.reserve("mallory", 1).await?;
    assert!(staff.is_allowed() && !mallory.is_allowed());
    let requests = limiter.metrics().requests;
    assert_eq!((requests.exempt, requests.listed), (1, 1));
    // Nothing is charged when these are settled or dropped, also if the lists have changed.
    lists.replace(Lists::new())?;
    assert_eq!(staff.settle(9).await?.charged(), 0);
    drop(mallory);
    for key in ["staff", "mallory"] {
        assert_eq!(limiter.take_up_to(key, 9).await?.charged(), 2, "{key}");
    }
    Ok(())
}

#[test]
fn a_limiter_needs_no_reader_of_addresses() -> Result<(), ConfigError> {
    let lists = Lists::new().deny_ips(["10.0.0.0/8"])?;
    let limiter = limiter(two(), &lists);
    let decision = limiter.check_now(ip("10.0.0.1")).expect("in memory");
    assert!(decision.is_allowed());
    Ok(())
}

/// Each policy looks its own key up, and takes from the bucket of that key.
#[tokio::test]
async fn a_caller_may_have_another_key_under_each_policy() -> Result<(), ConfigError> {
    let lists = staff_and_mallory();
    let limiter = Limiter::builder()
        .lists(lists)
        .policy(two())
        .policy(Policy::new("day", TokenBucket::per_day(5)))
        .policy(Policy::new("all", TokenBucket::per_day(9)).shared())
        .build()?;
    let allowed = async |two: &'static str, day: &'static str, units| {
        let buckets = limiter.buckets_by(|policy| match policy {
            "two" => Some(Key::from(two)),
            "day" => (!day.is_empty()).then(|| Key::from(day)),
            _ => Some(Key::from("not used")),
        });
        let permit = buckets.acquire_n(units, Duration::ZERO).await;
        let permit = permit.expect("in memory");
        let policies = permit.decision().policies();
        let left = policies.map(|policy| (policy.name().to_owned(), policy.remaining()));
        (permit.is_allowed(), left.collect::<Vec<_>>())
    };
    let left = |two: Option<u64>, day: Option<u64>, all: u64| {
        let found = [("two", two), ("day", day), ("all", Some(all))].into_iter();
        let found = found.filter_map(|(name, left)| Some((name.to_owned(), left?)));
        found.collect::<Vec<_>>()
    };
    assert_eq!(
        allowed("ann", "x", 1).await,
        (true, left(Some(1), Some(4), 8))
    );
    assert_eq!(
        allowed("ann", "y", 1).await,
        (true, left(Some(0), Some(4), 7))
    );
    assert!(!allowed("ann", "z", 1).await.0);
    // A policy without a key does not apply, and one whose key is allowed is not asked.
    assert_eq!(allowed("bob", "", 1).await, (true, left(Some(1), None, 6)));
    assert_eq!(
        allowed("staff", "x", 2).await,
        (true, left(None, Some(2), 4))
    );
    assert_eq!(allowed("mallory", "x", 1).await, (false, Vec::new()));
    assert_eq!(
        limiter
            .peek("x")
            .await
            .expect("in memory")
            .policies()
            .nth(1)
            .map(|day| day.remaining()),
        Some(2)
    );
    Ok(())
}

/// As in a layer: an entry is about one policy.
#[tokio::test]
async fn the_other_policies_of_a_limiter_charge_an_allowed_key() -> Result<(), ConfigError> {
    let lists = staff_and_mallory();
    let day = || Policy::new("day", TokenBucket::per_day(5));
    let all = || Policy::new("all", TokenBucket::per_day(9)).shared();
    let build = |policies: Vec<Policy>| {
        let builder = Limiter::builder().lists(lists.clone());
        policies
            .into_iter()
            .fold(builder, LimiterBuilder::policy)
            .build()
    };
    for policies in [vec![two(), day(), all()], vec![all(), day(), two()]] {
        let limiter = build(policies)?;
        let charged = async |key: &str| {
            let asked = limiter.check(key).await.expect("in memory");
            let names = asked.policies().map(|policy| policy.name().to_owned());
            (asked.is_allowed(), names.collect::<BTreeSet<_>>().len())
        };
        assert_eq!(charged("ann").await, (true, 3));
        assert_eq!(charged("staff").await, (true, 2));
        assert_eq!(charged("mallory").await, (false, 0));
        let staff = limiter.buckets("staff");
        assert_eq!(staff.peek().await.expect("in memory").policies().len(), 2);
        let debit = staff.debit(3).await.expect("in memory");
        assert_eq!(debit.policies().len(), 2);
        let permit = limiter.acquire("staff", Duration::ZERO).await;
        assert!(permit.expect("in memory").is_allowed());
        // The day is over for it.
        assert_eq!(charged("staff").await, (false, 2));
        assert_eq!(
            limiter.metrics().policy("two").map(|two| two.allowed),
            Some(1)
        );
        // A reset forgets what it has used of all policies.
        staff.reset().await.expect("in memory");
        assert_eq!(charged("staff").await, (true, 2));
    }
    // A limiter with nothing but shared buckets has no key that could be listed.
    assert_config_error(
        build(vec![all()]),
        "list-policy",
        "keys are listed for \"two\",",
    );
    Ok(())
}
