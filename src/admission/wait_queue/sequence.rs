//! Sequences of items, each of some length. To locate an item, to remove it, or to split a
//! sequence at it takes O(log n).
//!
//! Each sequence is a treap (Seidel and Aragon, 1996): a binary tree in the order of the
//! items, whose random priorities fall from the root down, which keeps it flat.

use std::{
    hash::{BuildHasher, RandomState},
    task::Waker,
};

/// An item. The root of a tree stands for all items of the tree.
pub(super) type Id = u32;

/// No item: the first node. Empty links lead to it.
pub(super) const NONE: Id = 0;

#[derive(Debug)]
pub(super) struct Sequences {
    nodes: Vec<Node>,
    /// The nodes of removed items.
    free: Vec<Id>,
    random: RandomState,
}

#[derive(Debug, Default)]
struct Node {
    parent: Id,
    left: Id,
    right: Id,
    priority: u32,
    length: u64,
    /// The sum of the lengths in this subtree.
    sum: u64,
    /// Where the first item starts, if this is a root.
    start: u64,
    waker: Option<Waker>,
    /// The waker is woken as soon as the item starts before that.
    wake_below: Start,
    /// If this subtree starts before that, one of its wakers must be woken.
    any_below: Start,
}

/// Where an item starts. The lowest value means nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Start(i64);

impl Default for Start {
    fn default() -> Self {
        Self::NEVER
    }
}

impl Start {
    const NEVER: Self = Self(i64::MIN);

    fn at(start: u64) -> Self {
        Self(i64::try_from(start).unwrap_or(i64::MAX))
    }

    /// Returns the start that lies `length` before.
    fn before(self, length: u64) -> Self {
        Self(self.0.saturating_sub_unsigned(length))
    }
}

impl Default for Sequences {
    fn default() -> Self {
        Self {
            nodes: vec![Node::default()],
            free: Vec::new(),
            random: RandomState::new(),
        }
    }
}

impl Sequences {
    /// Returns how many items there are, in all trees.
    pub(super) fn len(&self) -> usize {
        self.nodes.len() - 1 - self.free.len()
    }

    /// Adds a tree of one new item.
    pub(super) fn add(&mut self, start: u64, length: u64) -> Id {
        let id = match self.free.pop() {
            Some(id) => id,
            None => {
                self.nodes.push(Node::default());
                #[expect(clippy::expect_used, reason = "memory runs out long before")]
                Id::try_from(self.nodes.len() - 1).expect("fewer than 2^32 waiters")
            }
        };
        // Clients cannot predict it, so they cannot make the tree deep.
        let priority = self.random.hash_one(id) as u32;
        *self.node_mut(id) = Node {
            priority,
            length,
            sum: length,
            start,
            ..Node::default()
        };
        id
    }

    pub(super) fn sum(&self, root: Id) -> u64 {
        self.node(root).sum
    }

    /// Returns where the first item of a tree starts.
    pub(super) fn start(&self, root: Id) -> u64 {
        self.node(root).start
    }

    /// Moves all items of a tree.
    pub(super) fn set_start(&mut self, root: Id, start: u64) {
        self.node_mut(root).start = start;
    }

    pub(super) fn length(&self, item: Id) -> u64 {
        self.node(item).length
    }

    /// Returns the first item of a tree.
    pub(super) fn first(&self, root: Id) -> Id {
        self.outermost(root, |node| node.left)
    }

    /// Returns the last item of a tree.
    pub(super) fn last(&self, root: Id) -> Id {
        self.outermost(root, |node| node.right)
    }

    fn outermost(&self, root: Id, next: impl Fn(&Node) -> Id) -> Id {
        let mut item = root;
        loop {
            match next(self.node(item)) {
                NONE => return item,
                further => item = further,
            }
        }
    }

    /// Returns the root of an item's tree, and where the item starts.
    pub(super) fn locate(&self, item: Id) -> (Id, u64) {
        let mut node = self.node(item);
        let mut before = self.sum(node.left);
        let mut root = item;
        while node.parent != NONE {
            let child = root;
            root = node.parent;
            node = self.node(root);
            if node.right == child {
                before = before
                    .saturating_add(self.sum(node.left))
                    .saturating_add(node.length);
            }
        }
        (root, node.start.saturating_add(before))
    }

    /// Returns the item of a tree that starts exactly there.
    pub(super) fn starting_at(&self, root: Id, start: u64) -> Option<Id> {
        let mut left = start.checked_sub(self.start(root))?;
        let mut item = root;
        while item != NONE {
            let node = self.node(item);
            let before = self.sum(node.left);
            match left.checked_sub(before) {
                None => item = node.left,
                Some(0) => return Some(item),
                Some(behind) => {
                    left = behind.checked_sub(node.length)?;
                    item = node.right;
                }
            }
        }
        None
    }

    /// Joins two trees. The first stays where it is, and the second follows it.
    pub(super) fn join(&mut self, left: Id, right: Id) -> Id {
        let start = self.start(if left == NONE { right } else { left });
        let root = self.merge(left, right);
        if root != NONE {
            self.set_start(root, start);
        }
        root
    }

    fn merge(&mut self, left: Id, right: Id) -> Id {
        if left == NONE || right == NONE {
            return left.max(right);
        }
        let is_left = self.node(left).priority > self.node(right).priority;
        if is_left {
            let lower = self.merge(self.node(left).right, right);
            self.node_mut(left).right = lower;
            self.node_mut(lower).parent = left;
            self.update(left);
            left
        } else {
            let lower = self.merge(left, self.node(right).left);
            self.node_mut(right).left = lower;
            self.node_mut(lower).parent = right;
            self.update(right);
            right
        }
    }

    /// Splits a tree into the items before an item, the item itself, and the items behind it.
    /// All stay where they are. Returns the first and the last of these three trees.
    fn around(&mut self, item: Id) -> (Id, Id) {
        let (root, start) = self.locate(item);
        let (first_start, length) = (self.start(root), self.length(item));
        let node = self.node_mut(item);
        let (mut left, mut right) = (node.left, node.right);
        let mut above = node.parent;
        (node.left, node.right, node.parent) = (NONE, NONE, NONE);
        self.update(item);
        let mut child = item;
        while above != NONE {
            let node = self.node_mut(above);
            let next = node.parent;
            let lower = if node.right == child {
                node.right = left;
                std::mem::replace(&mut left, above)
            } else {
                node.left = right;
                std::mem::replace(&mut right, above)
            };
            if lower != NONE {
                self.node_mut(lower).parent = above;
            }
            self.update(above);
            (child, above) = (above, next);
        }
        for (tree, start) in [
            (left, first_start),
            (right, start.saturating_add(length)),
            (item, start),
        ] {
            if tree != NONE {
                let node = self.node_mut(tree);
                (node.parent, node.start) = (NONE, start);
            }
        }
        (left, right)
    }

    /// Removes an item. Returns the tree before it and the tree behind it, which stay where
    /// they are.
    pub(super) fn remove(&mut self, item: Id) -> (Id, Id) {
        let parts = self.around(item);
        *self.node_mut(item) = Node::default();
        self.free.push(item);
        parts
    }

    /// Removes an item, and moves the items behind it up by its length. Returns the root.
    pub(super) fn close_up(&mut self, item: Id) -> Id {
        let node = std::mem::take(self.node_mut(item));
        self.free.push(item);
        let lower = self.merge(node.left, node.right);
        if lower != NONE {
            let below = self.node_mut(lower);
            (below.parent, below.start) = (node.parent, node.start);
        }
        let (mut root, mut above) = (lower, node.parent);
        if above != NONE {
            let parent = self.node_mut(above);
            if parent.left == item {
                parent.left = lower;
            } else {
                parent.right = lower;
            }
        }
        while above != NONE {
            self.update(above);
            (root, above) = (above, self.node(above).parent);
        }
        root
    }

    /// Splits a tree in two, of which the second starts with this item.
    pub(super) fn split_before(&mut self, item: Id) -> (Id, Id) {
        let (left, right) = self.around(item);
        (left, self.join(item, right))
    }

    /// Lets [`wake`](Self::wake) return `waker` as soon as the item starts before `start`.
    pub(super) fn wake_below(&mut self, item: Id, start: u64, waker: &Waker) {
        let node = self.node_mut(item);
        node.waker = Some(waker.clone());
        node.wake_below = Start::at(start);
        let mut item = item;
        while item != NONE {
            self.update(item);
            item = self.node(item).parent;
        }
    }

    /// Takes the wakers of all items of a tree that start before their bound, in order.
    pub(super) fn wake(&mut self, root: Id, woken: &mut Vec<Waker>) {
        self.wake_from(root, self.start(root), woken);
    }

    fn wake_from(&mut self, item: Id, start: u64, woken: &mut Vec<Waker>) {
        if self.node(item).any_below <= Start::at(start) {
            return;
        }
        let &Node {
            left,
            right,
            length,
            wake_below,
            ..
        } = self.node(item);
        self.wake_from(left, start, woken);
        let own = start.saturating_add(self.sum(left));
        if wake_below > Start::at(own) {
            let node = self.node_mut(item);
            woken.extend(node.waker.take());
            node.wake_below = Start::NEVER;
        }
        self.wake_from(right, own.saturating_add(length), woken);
        self.update(item);
    }

    fn update(&mut self, item: Id) {
        let node = self.node(item);
        let (left, right) = (self.node(node.left), self.node(node.right));
        let before = left.sum.saturating_add(node.length);
        let sum = before.saturating_add(right.sum);
        let behind = right.any_below.before(before);
        let own = node.wake_below.before(left.sum);
        let any_below = left.any_below.max(own).max(behind);
        let node = self.node_mut(item);
        (node.sum, node.any_below) = (sum, any_below);
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "each id is that of a node, and nodes are never removed"
    )]
    fn node(&self, id: Id) -> &Node {
        &self.nodes[id as usize]
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "each id is that of a node, and nodes are never removed"
    )]
    fn node_mut(&mut self, id: Id) -> &mut Node {
        &mut self.nodes[id as usize]
    }

    /// Returns the items of a tree in order, and where each starts.
    #[cfg(test)]
    pub(super) fn items(&self, root: Id) -> Vec<(Id, u64)> {
        let mut items = Vec::new();
        let mut start = self.start(root);
        self.visit(root, &mut |item| {
            items.push((item, start));
            start += self.length(item);
        });
        items
    }

    /// Returns how many nodes are on the way from an item to its root.
    #[cfg(test)]
    pub(super) fn depth(&self, item: Id) -> usize {
        let up = |item: &Id| Some(self.node(*item).parent).filter(|parent| *parent != NONE);
        std::iter::successors(Some(item), up).count()
    }

    #[cfg(test)]
    fn visit(&self, item: Id, each: &mut impl FnMut(Id)) {
        if item != NONE {
            self.visit(self.node(item).left, each);
            each(item);
            self.visit(self.node(item).right, each);
        }
    }
}
