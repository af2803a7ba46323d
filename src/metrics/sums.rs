//! [`by_name`]: adds up the numbers of layers, limiters and stores that have one name.

/// The numbers of a layer, limiter or store.
pub(super) trait Numbers: Clone {
    /// Returns what no other one of the process has. `None`: not known.
    fn id(&self) -> Option<usize>;

    fn name(&self) -> &str;

    /// Whether another entry of the same one has more. Default: no.
    fn is_bare(&self) -> bool {
        false
    }

    /// Adds the numbers of another one of the same name: a series must not be exported twice.
    fn add(&mut self, other: &Self);

    /// Returns what was counted after a former look at the same one. Numbers that are not counts
    /// stay as they are now.
    #[must_use]
    fn since(&self, former: &Self) -> Self;
}

/// Returns one entry for each name: that of the only one, or the sum of several.
pub(super) fn by_name<'a, T: Numbers + 'a>(listed: impl IntoIterator<Item = &'a T>) -> Vec<T> {
    let mut sums: Vec<T> = Vec::new();
    for numbers in distinct(listed) {
        let mut known = sums.iter_mut();
        match known.find(|known| known.name() == numbers.name()) {
            Some(known) => known.add(&numbers),
            None => sums.push(numbers),
        }
    }
    sums
}

/// Returns each once, however often it is listed.
pub(super) fn distinct<'a, T: Numbers + 'a>(listed: impl IntoIterator<Item = &'a T>) -> Vec<T> {
    let mut distinct: Vec<T> = Vec::new();
    for numbers in listed {
        let is_same = |known: &&mut T| known.id().is_some() && known.id() == numbers.id();
        match distinct.iter_mut().find(is_same) {
            Some(known) if known.is_bare() => *known = numbers.clone(),
            Some(_) => {}
            None => distinct.push(numbers.clone()),
        }
    }
    distinct
}
