//! How much each way of limiting asks of Redis.

use crate::{
    callers::{Callers, MANY},
    measured::{SHORT, Used},
    on_redis::{Stage, Work},
    peers::{Ours, Rate, trl_fred},
    table::{Row, Table},
};

pub fn rows(table: &mut Table) {
    let (many, one) = (Callers::Each(MANY), Callers::Each(1));
    let ample = Ours::new(Rate::Ample);
    let vast = Ours::new(Rate::Vast);
    let once = Ours::new(Rate::Once);
    let leased = Ours {
        leases: true,
        ..vast
    };
    let stacked = Ours {
        policies: 4,
        ..ample
    };
    let asked = Ours {
        caches_denials: false,
        ..once
    };
    let modes = [
        ("exact, 1 in flight", ample, 1, &many),
        ("exact", ample, 256, &many),
        ("one hot caller", vast, 256, &one),
        ("one hot caller, leased", leased, 256, &one),
        ("four policies stacked", stacked, 256, &many),
        ("denied, none cached", asked, 256, &one),
        ("denied, cached", once, 256, &one),
    ];
    let rival = of_rival(&many);
    for (mode, ours, in_flight, callers) in modes {
        let used = of_ours(ours, in_flight, callers);
        let name = match in_flight {
            1 => mode.to_owned(),
            _ => format!("{mode}, {in_flight} in flight"),
        };
        let name = format!("Redis: for 1,000 requests, {name}");
        let thousand = |figure: f64| figure * 1_000.0;
        let mut add = |what: &str, of: fn(&Used) -> f64| {
            let beside = ("trl-fred", thousand(of(&rival)));
            let name = format!("{name}: {what}");
            table.add(Row::cost(name, "", thousand(of(&used)), beside));
        };
        // `curve` has the script calls of many callers, by the number in flight.
        if !mode.starts_with("exact") {
            add("script calls", |used| used.calls);
        }
        add("commands in them", |used| used.commands);
    }
}

fn of_ours(ours: Ours, in_flight: usize, callers: &Callers) -> Used {
    let stage = Stage::new(None);
    let layer = stage.ours(ours);
    let work = work(in_flight, callers);
    match ours.rate {
        Rate::Once => {
            // Then the caller has used up its quota.
            stage.each(1, 0..1, &stage.allowed(&layer));
            stage.round(&work, &stage.denied(layer)).redis
        }
        _ => stage.round(&work, &stage.allowed(layer)).redis,
    }
}

/// The rival calls Redis for each request.
fn of_rival(callers: &Callers) -> Used {
    let stage = Stage::new(None);
    let rival = stage.allowed(trl_fred(stage.client(), Rate::Ample));
    stage.round(&work(256, callers), &rival).redis
}

fn work(in_flight: usize, callers: &Callers) -> Work {
    Work {
        length: SHORT,
        in_flight,
        callers: callers.clone(),
    }
}
