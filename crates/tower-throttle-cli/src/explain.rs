//! `explain`: what a file does with one request.

use std::net::{IpAddr, SocketAddr};

use http::{HeaderName, HeaderValue, Method, Request, Uri, header::HOST};
use serde_json::{Value, json};
use tower_throttle::{
    Key, List, RequestHead,
    control::{Caller, Mode},
    inspect::{self, ExplainedPolicy},
    key::{KeyError, PeerAddr},
};
use tower_throttle_config::{Config, Explanation, FoundCondition, FoundKey, FoundPolicy};

use crate::{
    answer::{Answer, Failure},
    arguments::Explain,
    entries::{self, list_word},
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
    let layers = config.names().layers;
    let layer = match (&arguments.layer, &*layers) {
        (Some(name), _) => name,
        (None, [only]) => only,
        (None, _) => "default",
    };
    if !layers.iter().any(|known| known == layer) {
        let message = format!(
            "the file has no layer {layer:?}; it has {}",
            layers.join(", ")
        );
        return Err(Failure::new(message));
    }
    // The store names keys. It is not asked, so the server need not be there.
    let limits = config.redis_url("redis://127.0.0.1:1/").build()?;
    let explained = limits.explain(layer, &head)?;
    Ok(answer(layer, &explained, &typed(arguments)))
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

/// All values of the request and of readers, which the user typed. No other is shown.
type Typed = Vec<(Key, String)>;

fn typed(arguments: &Explain) -> Typed {
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

/// Returns a key as the user typed it.
fn in_words<'a>(typed: &'a Typed, key: &Key) -> Option<&'a str> {
    if *key == Key::everyone() {
        return Some("everyone");
    }
    let mut typed = typed.iter();
    typed
        .find(|(known, _)| known == key)
        .map(|(_, text)| &**text)
}

fn answer(layer: &str, explained: &Explanation, typed: &Typed) -> Answer {
    let found = &explained.layer;
    let limits = found.applies && found.list.is_none() && found.list_error.is_none();
    let mut text = format!("layer {layer:?}: {}\n", state(found));
    text.push_str(&conditions(&explained.conditions));
    let mut policies = Vec::new();
    let mut applying = 0;
    for (policy, in_file) in found.policies.iter().zip(&explained.policies) {
        let (policy_text, json, applies) = one(policy, in_file, limits, typed);
        text.push_str(&policy_text);
        policies.push(json);
        applying += usize::from(applies);
    }
    let json = json!({
        "layer": layer,
        "applies": found.applies,
        "conditions": conditions_json(&explained.conditions),
        "list": found.list.map(list_word),
        "address_problem": found.list_error.as_ref().map(problem),
        "policies": policies,
    });
    let is_denied = found.list == Some(List::Deny) || found.list_error.is_some();
    let is_limited = applying > 0 || (found.applies && is_denied);
    Answer::fine(text, json).fine_if(is_limited)
}

/// Says why there is no key, in the words of this command.
fn problem(error: &KeyError) -> String {
    match error.is_missing() || error.is_ambiguous() {
        true => error.to_string(),
        // An application would have to pass the address on.
        false => "the client's address is unknown here; say it with `--peer`".to_owned(),
    }
}

fn state(found: &inspect::Explanation) -> String {
    match (found.applies, found.list, &found.list_error) {
        (false, ..) => "passes the request on".to_owned(),
        (_, _, Some(error)) => format!(
            "denies the request, as lists need an address: {}",
            problem(error)
        ),
        (_, Some(List::Allow), _) => {
            "passes the request on: the caller is on the allow list".to_owned()
        }
        (_, Some(List::Deny), _) => "denies the request: the caller is on the deny list".to_owned(),
        _ => "asks its policies".to_owned(),
    }
}

fn one(
    policy: &ExplainedPolicy,
    in_file: &FoundPolicy,
    limits: bool,
    typed: &Typed,
) -> (String, Value, bool) {
    let is_exempt = limits && policy.is_exempt;
    let caller = policy.caller.as_ref().filter(|_| limits && !is_exempt);
    let denies = limits && policy.denies_missing_key;
    let what = match (caller, denies) {
        (Some(_), _) => "applies",
        (None, true) if policy.mode == Mode::Enforce => "denies the request, which lacks its key",
        (None, true) => "would deny the request, which lacks its key",
        (None, false) if is_exempt => "is not asked: its key is on the allow list",
        (None, false) => "does not apply",
    };
    let mut text = format!(
        "policy {:?}: {what}\n{}",
        policy.name,
        conditions(&in_file.conditions)
    );
    for FoundKey {
        text: key,
        key: found,
        ..
    } in in_file.keys.iter().filter(|_| limits && policy.applies)
    {
        let found_or_not = match found {
            Ok(_) => "found".to_owned(),
            Err(_) if key.starts_with("\"reader:") => {
                "unknown here; say what it returns with `--reader`".to_owned()
            }
            Err(error) => problem(error),
        };
        text.push_str(&format!("  key      {key}: {found_or_not}\n"));
        // The others are not asked.
        if found.is_ok() {
            break;
        }
    }
    let bucket = policy.storage_key.as_ref().filter(|_| caller.is_some());
    let fingerprint = policy.fingerprint.filter(|_| caller.is_some());
    let fingerprint = fingerprint.map(|fingerprint| fingerprint.to_string());
    // The key of a list has more in it than the value.
    let found = in_file
        .keys
        .iter()
        .find_map(|found| found.key.as_ref().ok());
    let key = caller.and_then(|key| in_words(typed, found.unwrap_or(key)));
    let mode = entries::word(policy.mode);
    if let Some(fingerprint) = &fingerprint {
        let key = key.map(|key| format!(" ({key})")).unwrap_or_default();
        text.push_str(&format!("  caller   {fingerprint}{key}\n"));
        if let Some(bucket) = bucket {
            text.push_str(&format!("  redis    {bucket}\n"));
        }
        text.push_str(&format!("  cost     {}\n", policy.cost));
        text.push_str(&format!("  quota    {}\n", policy.quota));
        text.push_str(&format!("  mode     {mode}\n"));
    }
    let keys = in_file.keys.iter();
    let keys = keys.map(|FoundKey { text, key, .. }| {
        let problem = key.as_ref().err().map(problem);
        json!({ "key": text, "found": key.is_ok(), "problem": problem })
    });
    let json = json!({
        "policy": policy.name,
        "applies": caller.is_some(),
        "denies_missing_key": denies,
        "conditions": conditions_json(&in_file.conditions),
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
