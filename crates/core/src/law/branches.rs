//! The branches of a tree of sharers, whose ids name their branch at each level.

/// One slot in this many is for a sharer: at each level, the branches with pending sharers share the slots of the branch
/// above them, and the sharer's own is one of them. Each level has as many bits of an id, the outermost first.
#[cold]
pub(super) fn branches(pending: impl Iterator<Item = u64> + Clone, id: u64, levels: u32) -> u64 {
    let width = u64::BITS / levels;
    let at_level = |below: u32| {
        let own = id >> (below * width);
        let others = pending.clone().map(|other| other >> (below * width));
        let siblings = others.filter(|&other| other != own && other >> width == own >> width);
        1 + if below == 0 { siblings.count() as u64 } else { distinct(siblings) }
    };
    (0..levels).map(at_level).product()
}

/// The number of different hashes, of some hundred at most. It is a little too low, because two may share a bit.
fn distinct(hashes: impl Iterator<Item = u64>) -> u64 {
    let mut bits = [0_u64; 64];
    hashes.for_each(|hash| bits[(hash >> 6 & 63) as usize] |= 1 << (hash & 63));
    bits.iter().map(|word| u64::from(word.count_ones())).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_level_divides_the_slots_of_the_one_above() {
        let leaf = |network: u64, source: u64| network << 32 | source;
        let pending = [leaf(1, 1), leaf(1, 2), leaf(1, 3), leaf(2, 1), leaf(3, 1), leaf(3, 2)];
        let slots = |id| branches(pending.into_iter(), id, 2);
        assert_eq!([leaf(1, 2), leaf(2, 1), leaf(3, 1)].map(slots), [3 * 3, 3, 3 * 2]);
        assert_eq!(slots(leaf(2, 9)), 3 * 2, "another source of a network");
        assert_eq!(slots(leaf(4, 1)), 4, "another network");
        assert_eq!(branches([].into_iter(), leaf(1, 1), 2), 1);
        let deep = |country: u64, network: u64, source: u64| country << 42 | network << 21 | source;
        let pending = [deep(1, 1, 1), deep(1, 2, 1), deep(1, 2, 2), deep(2, 1, 1)];
        assert_eq!(branches(pending.into_iter(), deep(1, 2, 1), 3), 2 * 2 * 2);
    }
}
