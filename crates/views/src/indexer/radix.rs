//! [`sort`]: a stable radix sort of numbers with indexes.

pub(super) type Numbered = (u64, u32);

const FEW: usize = 256;

pub(super) fn sort(items: &mut [Numbered], spare: &mut Vec<Numbered>) {
    if items.len() < FEW {
        items.sort_by_key(|item| item.0);
        return;
    }
    let first = items[0].0;
    let differing = items.iter().fold(0, |differing, item| differing | (item.0 ^ first));
    if spare.len() < items.len() {
        spare.resize(items.len(), (0, 0));
    }
    let (mut from, mut to) = (&mut *items, &mut spare[..]);
    let mut is_moved = false;
    // Stable passes from the lowest byte to the highest. Bytes that are equal in all items need no pass.
    for shift in (0..u64::BITS).step_by(8).filter(|shift| differing >> shift & 0xff != 0) {
        to = &mut to[..from.len()];
        let byte = |item: &Numbered| (item.0 >> shift & 0xff) as usize;
        let mut places = [0; 256];
        from.iter().for_each(|item| places[byte(item)] += 1);
        let mut before = 0;
        for place in &mut places {
            before += std::mem::replace(place, before);
        }
        for item in &*from {
            let place = &mut places[byte(item)];
            to[*place] = *item;
            *place += 1;
        }
        std::mem::swap(&mut from, &mut to);
        is_moved = !is_moved;
    }
    if is_moved {
        to.copy_from_slice(from);
    }
}

#[cfg(test)]
mod tests {
    use settee_model::testing::Random;

    use super::*;

    #[test]
    fn it_sorts_as_comparing_does() {
        let mut random = Random::new();
        let mut spare = Vec::new();
        for round in 0..200 {
            let len = random.below(if round % 2 == 0 { 20 } else { 2_000 });
            let mask = random.next() & random.next();
            let mut items: Vec<Numbered> = (0..).map(|index| (random.next() & mask, index)).take(len).collect();
            let mut expected = items.clone();
            expected.sort();
            sort(&mut items, &mut spare);
            assert_eq!(items, expected);
        }
    }
}
