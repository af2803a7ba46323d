//! The scenes, and how they are printed.

use std::{
    fmt::Write as _,
    sync::{Mutex, PoisonError},
    thread,
    time::Duration,
};

use super::simulation::{Callers, Limit, Mode, Outcome, Scene};

/// Scenes of one kind.
pub(crate) struct Table {
    title: &'static str,
    columns: Vec<Column>,
    scenes: Vec<Scene>,
}

type Cell = fn(&Scene, &mut Outcome) -> String;
type Column = (&'static str, Cell);

/// Returns all tables, in the order of `docs/lab/scaling.md`.
pub(crate) fn all(seed: u64) -> Vec<Table> {
    use Mode::{Cached, Exact, Leased};

    let client = |callers: fn(u32) -> Callers| {
        move |nodes| Scene {
            callers: callers(nodes),
            ..Scene::new(seed, nodes)
        }
    };
    let uniform = client(|nodes| Callers::Uniform {
        callers: 10 * nodes,
    });
    let zipf = client(|nodes| Callers::Zipf {
        callers: 50 * nodes,
        exponent: 1.1,
    });
    let flood = client(|nodes| Callers::Flood {
        callers: 10 * nodes,
        flood_rate: 200.0 * f64::from(nodes),
    });
    let busier = |scene: Scene, each: u32| Scene {
        rate: f64::from(each * scene.nodes),
        ..scene
    };
    let hot = move |each: u32, limit: u32| {
        move |nodes| Scene {
            callers: Callers::Uniform { callers: 1 },
            limit: Limit {
                rate: u64::from(limit * nodes),
                burst: u64::from(limit * nodes),
            },
            ..busier(Scene::new(seed, nodes), each)
        }
    };
    let far = |scene: Scene, each_way_us| Scene {
        each_way: Duration::from_micros(each_way_us),
        ..scene
    };
    let near_and_far = |scene| Scene {
        nearer: 20,
        ..far(scene, 5_000)
    };
    let short = |scene| Scene {
        lasts: Duration::from_millis(1_500),
        ..scene
    };
    let growing = |nodes: u32, each: &[u32]| -> Vec<Scene> {
        let each = each.iter();
        each.map(|each| short(busier(uniform(nodes), *each)))
            .collect()
    };
    let table = |title, scenes| Table {
        title,
        columns: [&LOAD[..], &ADMITTED].concat(),
        scenes,
    };
    let shared = [hot(200, 100)(10), hot(200, 100)(100), hot(50, 25)(1_000)];
    let distances = [250, 500, 5_000].map(|us| [far(flood(100), us), far(hot(200, 400)(100), us)]);
    vec![
        table("Uniform", in_modes(NODES.map(uniform), &[Cached])),
        table("Zipf", in_modes(NODES.map(zipf), &[Exact, Cached])),
        table("Flood", in_modes(NODES.map(flood), &[Exact, Cached])),
        table(
            "Hot key",
            in_modes(NODES.map(hot(200, 400)), &[Cached, Leased]),
        ),
        Table {
            title: "One limit, near and far",
            columns: [&LOAD[..4], &ADMITTED, &FAIR].concat(),
            scenes: in_modes(shared.map(near_and_far), &[Exact, Cached, Leased]),
        },
        table(
            "Growing traffic",
            in_modes(
                [
                    growing(100, &[200, 500, 1_000, 2_000, 3_000]),
                    growing(1_000, &[50, 60, 100, 200]),
                ]
                .concat(),
                &[Cached],
            ),
        ),
        table(
            "Distance",
            in_modes(distances.map(|[flood, _]| flood), &[Cached])
                .into_iter()
                .chain(in_modes(distances.map(|[_, hot]| hot), &[Leased]))
                .collect(),
        ),
    ]
}

const NODES: [u32; 4] = [1, 10, 100, 1_000];

fn in_modes(scenes: impl IntoIterator<Item = Scene>, modes: &[Mode]) -> Vec<Scene> {
    let each = scenes.into_iter();
    let each = each.flat_map(|scene| {
        modes.iter().map(move |mode| Scene {
            mode: *mode,
            ..scene
        })
    });
    each.collect()
}

impl Table {
    /// Shortens the scenes to a few nodes and a moment, for a test.
    #[cfg(test)]
    pub(crate) fn shortened(mut self) -> Self {
        self.scenes.retain(|scene| scene.nodes <= 10);
        for scene in &mut self.scenes {
            scene.lasts = Duration::from_millis(1_500);
        }
        self
    }

    /// Runs the scenes, as many at a time as there are processors.
    pub(crate) fn played(&self) -> String {
        let next = Mutex::new(0..self.scenes.len());
        let rows = Mutex::new(vec![String::new(); self.scenes.len()]);
        let take = || next.lock().unwrap_or_else(PoisonError::into_inner).next();
        let work = || {
            while let Some(place) = take() {
                let row = self.row(&self.scenes[place]);
                rows.lock().unwrap_or_else(PoisonError::into_inner)[place] = row;
            }
        };
        let workers = thread::available_parallelism().map_or(1, usize::from);
        thread::scope(|scope| {
            for _ in 0..workers {
                scope.spawn(work);
            }
        });
        let names: Vec<_> = self.columns.iter().map(|(name, _)| *name).collect();
        let mut text = format!("### {}\n\n| {} |\n", self.title, names.join(" | "));
        let _ = writeln!(text, "|{}", "--:|".repeat(names.len()));
        for row in rows.into_inner().unwrap_or_else(PoisonError::into_inner) {
            let _ = writeln!(text, "{row}");
        }
        text
    }

    fn row(&self, scene: &Scene) -> String {
        let mut outcome = scene.play();
        let cells = self
            .columns
            .iter()
            .map(|(_, cell)| cell(scene, &mut outcome));
        format!("| {} |", cells.collect::<Vec<_>>().join(" | "))
    }
}

const LOAD: [Column; 9] = [
    ("nodes", |scene, _| scene.nodes.to_string()),
    ("requests/s", |_, outcome| whole(outcome.requests_per_s)),
    ("mode", |scene, _| mode(scene.mode).to_owned()),
    ("calls/s", |_, outcome| whole(outcome.calls_per_s)),
    ("decisions/s", |_, outcome| whole(outcome.decisions_per_s)),
    ("checks a call", |_, outcome| {
        format!("{:.1}", outcome.checks_per_call)
    }),
    ("core", |_, outcome| format!("{:.1}%", 100.0 * outcome.busy)),
    ("p50", |_, outcome| ms(outcome.tally.took(500))),
    ("p99", |_, outcome| ms(outcome.tally.took(990))),
];

const ADMITTED: [Column; 5] = [
    ("exactly", |_, outcome| grouped(outcome.tally.exactly())),
    ("less", |_, outcome| {
        part(outcome.tally.under(), outcome.tally.exactly())
    }),
    ("more", |_, outcome| {
        part(outcome.tally.over(), outcome.tally.exactly())
    }),
    ("beyond", |_, outcome| grouped(outcome.tally.most_beyond())),
    ("failed", |_, outcome| {
        part(outcome.tally.failed, outcome.tally.asked)
    }),
];

const FAIR: [Column; 4] = [
    ("Jain's index", |_, outcome| {
        format!("{:.3}", outcome.tally.fairness()[0])
    }),
    ("exactly", |_, outcome| {
        format!("{:.3}", outcome.tally.fairness()[1])
    }),
    ("most / least", |_, outcome| {
        format!("{:.2}", outcome.tally.most_to_least())
    }),
    ("near / far", |_, outcome| {
        format!("{:.2}", outcome.tally.even_to_odd())
    }),
];

const fn mode(mode: Mode) -> &'static str {
    match mode {
        Mode::Exact => "exact",
        Mode::Cached => "cached",
        Mode::Leased => "leased",
    }
}

fn part(units: u64, of: u64) -> String {
    match units {
        0 => "0".to_owned(),
        _ => format!(
            "{} ({:.2}%)",
            grouped(units),
            100.0 * units as f64 / of.max(1) as f64
        ),
    }
}

fn ms(time: Duration) -> String {
    format!("{:.2} ms", time.as_secs_f64() * 1e3)
}

fn whole(number: f64) -> String {
    grouped(number.round() as u64)
}

/// Writes a comma behind each third digit.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
