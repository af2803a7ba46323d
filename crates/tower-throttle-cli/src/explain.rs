//! `explain`: what a file does with one request.

use std::net::{IpAddr, SocketAddr};

use http::{HeaderName, HeaderValue, Method, Request, Uri, header::HOST};
use serde_json::{Value, json};
use tower_throttle::{
    Fingerprint, Key, Limiter, List, Policy, RedisStore, RequestHead,
    config::{Config, ExplainedPolicy, Explanation, FoundCondition},
    control::Caller,
    key::PeerAddr,
};

use crate::{
    answer::{Answer, Failure},
    arguments::Explain,
    entries::list_word,
    readers,
};

pub(crate) fn run(arguments: &Explain) -> Result<Answer, Failure> {
    let config = Config::from_path(&arguments.file)?;
    let named = config.reader_names();
    let stand_ins = readers::stand_ins(&named);
    let readers = readers::with_values(stand_ins, &named, &arguments.readers)?;
    let config = config.readers(readers);
    let request = request(arguments)?;
    let head = RequestHead::from(&request);
    let layer = &arguments.layer;
    let Some(explained) = config.explain(layer, &head)? else {
        let layers = config.names().layers.join(", ");
        let message = format!("the file has no layer {layer:?}; it has {layers}");
        return Err(Failure::new(message));
    };
    let names = Naming {
        typed: typed(arguments),
        redis: redis(&config)?,
    };
    Ok(answer(layer, &explained, &names))
}

fn request(arguments: &Explain) -> Result<Request<()>, Failure> {
    let wrong = |what: &str, text: &str| Failure::new(format!("{what}: {text:?} cannot be sent"));
    let uri = arguments.path.parse::<Uri>();
    let uri = uri.map_err(|_| wrong("--path", &arguments.path))?;
    let method = Method::from_bytes(arguments.method.as_bytes());
    let mut request = Request::new(());
    *request.method_mut() = method.map_err(|_| wrong("--method", &arguments.method))?;
    *request.uri_mut() = uri;
    if let Some(host) = &arguments.host {
        let value = HeaderValue::from_str(host).map_err(|_| wrong("--host", host))?;
        request.headers_mut().insert(HOST, value);
    }
    for text in &arguments.headers {
        let header = text.split_once(':').and_then(|(name, value)| {
            let name = name.trim().parse::<HeaderName>().ok()?;
            Some((name, HeaderValue::from_str(value.trim()).ok()?))
        });
        let (name, value) = header.ok_or_else(|| wrong("--header", text))?;
        request.headers_mut().append(name, value);
    }
    if let Some(peer) = arguments.peer {
        let peer = PeerAddr(SocketAddr::new(peer, 0));
        request.extensions_mut().insert(peer);
    }
    Ok(request)
}

/// How callers are named for people.
struct Naming {
    /// All values of the request and of readers, which the user typed. No other is shown.
    typed: Vec<(Key, String)>,
    redis: Option<RedisStore>,
}

fn typed(arguments: &Explain) -> Vec<(Key, String)> {
    let mut typed = Vec::new();
    let mut add = |text: &str| {
        typed.push((Key::from(text), text.to_owned()));
        for part in text.split([',', ';', ' ', '=']) {
            typed.push((Key::from(part), part.to_owned()));
            if let Ok(ip) = part.parse::<IpAddr>() {
                typed.push((Key::from(ip), ip.to_string()));
                let network = Caller::parse(&[format!("ip:{ip}")]).ok();
                let network = network.and_then(|caller| caller.key());
                typed.extend(network.map(|key| (key, ip.to_string())));
            }
        }
    };
    for header in &arguments.headers {
        add(header.split_once(':').map_or("", |(_, value)| value.trim()));
    }
    for reader in &arguments.readers {
        add(reader.split_once('=').map_or("", |(_, value)| value));
    }
    add(&arguments.method);
    if let Some(peer) = arguments.peer {
        add(&peer.to_string());
    }
    typed
}

/// Returns a store that names keys. It is not asked, so the server need not be there.
fn redis(config: &Config) -> Result<Option<RedisStore>, Failure> {
    const NOWHERE: &str = "redis://127.0.0.1:1/";

    let Some((builder, url)) = config.redis(Some(NOWHERE))? else {
        return Ok(None);
    };
    Ok(Some(builder.connect(&url)?))
}

impl Naming {
    fn key<'a>(&'a self, key: &Key) -> Option<&'a str> {
        if *key == Key::everyone() {
            return Some("everyone");
        }
        let mut typed = self.typed.iter();
        typed
            .find(|(known, _)| known == key)
            .map(|(_, text)| &**text)
    }

    /// Returns the name of a bucket in Redis, if it is there.
    fn bucket(&self, policy: &ExplainedPolicy, key: &Key) -> Option<String> {
        let policy = Policy::new(&policy.name, policy.quota);
        let limiter = Limiter::builder().store(self.redis.clone()?).policy(policy);
        limiter.build().ok()?.storage_keys(key.clone()).pop()
    }

    fn fingerprint(&self, bucket: Option<&str>, key: &Key) -> Fingerprint {
        let hash = bucket.and_then(|name| name.split_once('{')?.1.get(..22));
        hash.and_then(Fingerprint::parse)
            .unwrap_or_else(|| Fingerprint::from(key))
    }
}

fn answer(layer: &str, explained: &Explanation, names: &Naming) -> Answer {
    let limits = explained.applies() && explained.list.is_none();
    let mut text = format!("layer {layer:?}: {}\n", state(explained));
    text.push_str(&conditions(&explained.conditions));
    let mut policies = Vec::new();
    let mut applying = 0;
    for policy in &explained.policies {
        let (policy_text, json, applies) = one(policy, limits, names);
        text.push_str(&policy_text);
        policies.push(json);
        applying += usize::from(applies);
    }
    let json = json!({
        "layer": layer,
        "applies": explained.applies(),
        "conditions": conditions_json(&explained.conditions),
        "list": explained.list.map(list_word),
        "address_problem": explained.address_error,
        "policies": policies,
    });
    let is_denied = explained.list == Some(List::Deny) || explained.address_error.is_some();
    let is_limited = applying > 0 || (explained.applies() && is_denied);
    Answer::fine(text, json).fine_if(is_limited)
}

fn state(explained: &Explanation) -> String {
    match (
        explained.applies(),
        explained.list,
        &explained.address_error,
    ) {
        (false, ..) => "passes the request on".to_owned(),
        (_, _, Some(error)) => format!("denies the request, as lists need an address: {error}"),
        (_, Some(List::Allow), _) => {
            "passes the request on: the caller is on the allow list".to_owned()
        }
        (_, Some(List::Deny), _) => "denies the request: the caller is on the deny list".to_owned(),
        _ => "asks its policies".to_owned(),
    }
}

fn one(policy: &ExplainedPolicy, limits: bool, names: &Naming) -> (String, Value, bool) {
    let is_exempt = limits && policy.is_exempt;
    let caller = policy.caller.as_ref().filter(|_| limits && !is_exempt);
    let denies = limits && policy.denies_missing_key;
    let what = match (caller, denies) {
        (Some(_), _) => "applies",
        (None, true) if policy.is_enforced => "denies the request, which lacks its key",
        (None, true) => "would deny the request, which lacks its key",
        (None, false) if is_exempt => "is not asked: its key is on the allow list",
        (None, false) => "does not apply",
    };
    let mut text = format!(
        "policy {:?}: {what}\n{}",
        policy.name,
        conditions(&policy.conditions)
    );
    for (key, found) in policy.keys.iter().filter(|_| limits && policy.applies()) {
        let found_or_not = match found {
            Ok(_) => "found",
            Err(_) if key.starts_with("\"reader:") => {
                "unknown here; say what it returns with `--reader`"
            }
            Err(error) => error,
        };
        text.push_str(&format!("  key      {key}: {found_or_not}\n"));
        // The others are not asked.
        if found.is_ok() {
            break;
        }
    }
    let bucket = caller.and_then(|key| names.bucket(policy, key));
    let fingerprint = caller.map(|key| names.fingerprint(bucket.as_deref(), key).to_string());
    // The key of a list has more in it than the value.
    let found = policy
        .keys
        .iter()
        .find_map(|(_, found)| found.as_ref().ok());
    let key = caller.and_then(|key| names.key(found.unwrap_or(key)));
    let mode = if policy.is_enforced {
        "enforce"
    } else {
        "shadow"
    };
    if let Some(fingerprint) = &fingerprint {
        let key = key.map(|key| format!(" ({key})")).unwrap_or_default();
        text.push_str(&format!("  caller   {fingerprint}{key}\n"));
        if let Some(bucket) = &bucket {
            text.push_str(&format!("  redis    {bucket}\n"));
        }
        text.push_str(&format!("  cost     {}\n", policy.cost));
        text.push_str(&format!("  quota    {}\n", policy.quota));
        text.push_str(&format!("  mode     {mode}\n"));
    }
    let keys = policy.keys.iter();
    let keys = keys.map(|(key, found)| {
        json!({ "key": key, "found": found.is_ok(), "problem": found.as_ref().err() })
    });
    let json = json!({
        "policy": policy.name,
        "applies": caller.is_some(),
        "denies_missing_key": denies,
        "conditions": conditions_json(&policy.conditions),
        "keys": keys.collect::<Vec<_>>(),
        "key": key,
        "fingerprint": fingerprint,
        "redis_key": bucket,
        "cost": policy.cost,
        "quota": policy.quota.to_string(),
        "mode": mode,
    });
    (text, json, caller.is_some() || denies)
}

fn conditions(conditions: &[FoundCondition]) -> String {
    let line = |condition: &FoundCondition| {
        let holds = match condition.holds {
            Some(true) => "holds",
            Some(false) => "does not hold",
            None => "is unclear, so the limit applies",
        };
        format!("  when     {}: {holds}\n", condition.text)
    };
    conditions.iter().map(line).collect()
}

fn conditions_json(conditions: &[FoundCondition]) -> Vec<Value> {
    let conditions = conditions.iter();
    let json = conditions.map(|one| json!({ "condition": one.text, "holds": one.holds }));
    json.collect()
}
