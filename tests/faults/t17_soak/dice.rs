//! What comes next: the same for the same seed.

/// splitmix64.
#[derive(Debug)]
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut number = self.0;
        number = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        number = (number ^ (number >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (number ^ (number >> 31)) % bound
    }

    pub(super) fn of<'a, T>(&mut self, these: &'a [T]) -> &'a T {
        &these[self.below(these.len() as u64) as usize]
    }
}

#[test]
fn a_seed_is_enough_to_know_what_comes() {
    let throw = |seed| {
        let mut dice = Dice::new(seed);
        (0..100).map(|_| dice.below(6)).collect::<Vec<_>>()
    };
    assert_eq!(throw(1), throw(1));
    assert_ne!(throw(1), throw(2));
    assert!((0..6).all(|number| throw(1).contains(&number)));
}
