//! Every collective against a plain sequential model: each rank knows what all ranks contribute, so
//! it can work out what must come. The same bodies run among threads and among MPI processes.

use meshloom::comm::{CommError, Communicator, Op, Reducible};

pub type Case = (&'static str, fn(&Communicator) -> Result<(), CommError>);

pub const CASES: &[Case] = &[
    ("barrier", barrier),
    ("broadcast", broadcast),
    ("all_reduce", all_reduce),
    ("reduce_scatter", reduce_scatter),
    ("scan", scan),
    ("all_gather", all_gather),
    ("all_gather_v", all_gather_v),
    ("gather", gather),
    ("scatter", scatter),
    ("all_to_all", all_to_all),
    ("all_to_all_v", all_to_all_v),
    ("long_blocks", long_blocks),
    ("reduction_in_several_parts", reduction_in_several_parts),
    ("into_memory_of_the_caller", into_memory_of_the_caller),
    ("long_and_short_blocks", long_and_short_blocks),
    ("split", split),
    ("messages_in_posting_order", messages_in_posting_order),
    ("messages_and_collectives_do_not_mix", messages_and_collectives_do_not_mix),
    ("withdrawn_receive", withdrawn_receive),
    ("wrong_size", wrong_size),
];

/// Cuts to try, in bytes.
pub const CUTS: [u64; 4] = [1, 4, 7, 1 << 30];

/// Returns a number that tells the rank, the place and a salt apart.
fn value(rank: usize, place: usize, salt: usize) -> u32 {
    (rank * 10_007 + place * 101 + salt * 7 + 1) as u32
}

fn values(rank: usize, count: usize, salt: usize) -> Vec<u32> {
    (0..count).map(|place| value(rank, place, salt)).collect()
}

fn ranks(comm: &Communicator) -> std::ops::Range<usize> {
    0..comm.size()
}

fn barrier(comm: &Communicator) -> Result<(), CommError> {
    (0..3).try_for_each(|_| comm.barrier())
}

fn broadcast(comm: &Communicator) -> Result<(), CommError> {
    for root in ranks(comm) {
        for count in [0, 1, 3, 8] {
            let mut data = values(comm.rank(), count, 5);
            comm.broadcast(root, &mut data)?;
            assert_eq!(data, values(root, count, 5));
        }
    }
    Ok(())
}

/// Returns the fixed tree, written as a recursion over halves.
fn tree<T: Reducible>(elements: &[T], op: Op) -> T {
    match elements {
        [one] => *one,
        _ => {
            let half = elements.len().next_power_of_two() / 2;
            tree(&elements[..half], op).combine(tree(&elements[half..], op), op)
        }
    }
}

fn reduces<T: Reducible + PartialEq + std::fmt::Debug>(
    comm: &Communicator,
    make: impl Fn(usize, usize) -> T,
) -> Result<(), CommError> {
    for op in [Op::Sum, Op::Min, Op::Max] {
        for count in [0, 1, 5, long(comm)] {
            let mut data: Vec<T> = (0..count).map(|place| make(comm.rank(), place)).collect();
            comm.all_reduce(&mut data, op)?;
            for (place, got) in data.iter().enumerate() {
                let all: Vec<T> = ranks(comm).map(|rank| make(rank, place)).collect();
                // Bytes, not values: the same to the last bit.
                assert_eq!(bytemuck::bytes_of(got), bytemuck::bytes_of(&tree(&all, op)), "{op:?} {all:?}");
            }
        }
    }
    Ok(())
}

fn all_reduce(comm: &Communicator) -> Result<(), CommError> {
    reduces(comm, |rank, place| value(rank, place, 0))?;
    reduces(comm, |rank, place| i32::MAX - value(rank, place, 0) as i32)?;
    reduces(comm, |rank, place| u64::from(value(rank, place, 0)) << 40)?;
    reduces(comm, |rank, place| -i64::from(value(rank, place, 0)))?;
    reduces(comm, |rank, place| i128::from(value(rank, place, 0)) << 90)?;
    reduces(comm, |rank, place| 1.0f32 / value(rank, place, 0) as f32)?;
    reduces(comm, |rank, place| (-0.3f64).powi(rank as i32 * 3 + place as i32))?;
    let mut data = [if comm.rank() + 1 == comm.size() { f32::NAN } else { 1.0 }];
    comm.all_reduce(&mut data, Op::Max)?;
    assert!(data[0].is_nan(), "a NaN of one rank must show");
    Ok(())
}

fn reduce_scatter(comm: &Communicator) -> Result<(), CommError> {
    for block in [0, 1, 3] {
        let count = block * comm.size();
        let data: Vec<f32> = (0..count).map(|place| 1.0 / value(comm.rank(), place, 2) as f32).collect();
        let mut all = data.clone();
        comm.all_reduce(&mut all, Op::Sum)?;
        let mine = comm.reduce_scatter(&data, Op::Sum)?;
        assert_eq!(mine, all[comm.rank() * block..][..block], "as all_reduce, to the last bit");
    }
    Ok(())
}

fn scan(comm: &Communicator) -> Result<(), CommError> {
    for op in [Op::Sum, Op::Min, Op::Max] {
        for count in [0, 1, 4] {
            let prefix = |ranks: usize, place: usize| {
                (0..ranks).fold(i64::identity(op), |sum, rank| sum.combine(i64::from(value(rank, place, 3)), op))
            };
            let data: Vec<i64> = (0..count).map(|place| i64::from(value(comm.rank(), place, 3))).collect();
            let (mut inclusive, mut exclusive) = (data.clone(), data);
            comm.scan(&mut inclusive, op)?;
            comm.scan_exclusive(&mut exclusive, op)?;
            for place in 0..count {
                assert_eq!(inclusive[place], prefix(comm.rank() + 1, place));
                assert_eq!(exclusive[place], prefix(comm.rank(), place));
            }
        }
    }
    Ok(())
}

fn all_gather(comm: &Communicator) -> Result<(), CommError> {
    for count in [0, 1, 3] {
        let expected: Vec<u32> = ranks(comm).flat_map(|rank| values(rank, count, 1)).collect();
        assert_eq!(comm.all_gather(&values(comm.rank(), count, 1))?, expected);
    }
    Ok(())
}

/// Some ranks contribute nothing.
fn uneven(rank: usize, salt: usize) -> usize {
    (rank * 3 + salt) % 4
}

fn all_gather_v(comm: &Communicator) -> Result<(), CommError> {
    for salt in 0..4 {
        let parts = comm.all_gather_v(&values(comm.rank(), uneven(comm.rank(), salt), 1))?;
        for rank in ranks(comm) {
            assert_eq!(parts.get(rank), Some(&values(rank, uneven(rank, salt), 1)[..]));
        }
        assert_eq!(parts.get(comm.size()), None);
        assert_eq!(parts.data().len() as u64, parts.counts().iter().sum::<u64>());
    }
    Ok(())
}

fn gather(comm: &Communicator) -> Result<(), CommError> {
    for root in ranks(comm) {
        let at_root = comm.rank() == root;
        for count in [0, 1, 3] {
            let expected: Vec<u32> = ranks(comm).flat_map(|rank| values(rank, count, root)).collect();
            let got = comm.gather(root, &values(comm.rank(), count, root))?;
            assert_eq!(got, at_root.then_some(expected));

            let got = comm.gather_v(root, &values(comm.rank(), uneven(comm.rank(), count), root))?;
            assert_eq!(got.is_some(), at_root);
            for (rank, part) in got.iter().flat_map(|parts| parts.iter().enumerate()) {
                assert_eq!(part, values(rank, uneven(rank, count), root));
            }
        }
    }
    Ok(())
}

fn scatter(comm: &Communicator) -> Result<(), CommError> {
    for root in ranks(comm) {
        let at_root = comm.rank() == root;
        for count in [0, 1, 3] {
            let data: Vec<u32> = ranks(comm).flat_map(|rank| values(rank, count, root)).collect();
            let mine = comm.scatter(root, at_root.then_some(&data[..]))?;
            assert_eq!(mine, values(comm.rank(), count, root));

            let counts: Vec<u64> = ranks(comm).map(|rank| uneven(rank, count) as u64).collect();
            let data: Vec<u32> = ranks(comm).flat_map(|rank| values(rank, uneven(rank, count), root)).collect();
            let mine = comm.scatter_v(root, at_root.then_some((&data[..], &counts[..])))?;
            assert_eq!(mine, values(comm.rank(), uneven(comm.rank(), count), root));
        }
    }
    Ok(())
}

fn all_to_all(comm: &Communicator) -> Result<(), CommError> {
    for count in [0, 1, 3] {
        let data: Vec<u32> = ranks(comm).flat_map(|to| values(comm.rank(), count, to)).collect();
        let expected: Vec<u32> = ranks(comm).flat_map(|from| values(from, count, comm.rank())).collect();
        assert_eq!(comm.all_to_all(&data)?, expected);
    }
    // Elements of no size have only a number.
    assert_eq!(comm.all_to_all(&vec![(); comm.size()])?.len(), comm.size());
    Ok(())
}

fn all_to_all_v(comm: &Communicator) -> Result<(), CommError> {
    let count = |from: usize, to: usize| (from * 5 + to * 3) % 4;
    let data: Vec<u32> = ranks(comm).flat_map(|to| values(comm.rank(), count(comm.rank(), to), to)).collect();
    let counts: Vec<u64> = ranks(comm).map(|to| count(comm.rank(), to) as u64).collect();
    let parts = comm.all_to_all_v(&data, &counts)?;
    for (from, part) in parts.iter().enumerate() {
        assert_eq!(part, values(from, count(from, comm.rank()), comm.rank()));
    }
    assert_eq!(parts.iter().count(), comm.size());
    Ok(())
}

/// Elements of a block that does not travel along trees; where messages are not cut, MPI moves it.
fn long(comm: &Communicator) -> usize {
    if comm.max_message() > 1 << 20 { 20_000 } else { 300 }
}

fn long_blocks(comm: &Communicator) -> Result<(), CommError> {
    let (me, count) = (comm.rank(), long(comm));
    let of_all: Vec<u32> = ranks(comm).flat_map(|rank| values(rank, count, 6)).collect();
    assert!(comm.all_gather(&values(me, count, 6))? == of_all);
    assert!(comm.all_gather_v(&values(me, count, 6))?.data() == of_all);
    for root in [0, comm.size() - 1] {
        let mut data = values(me, count, 8);
        comm.broadcast(root, &mut data)?;
        assert!(data == values(root, count, 8));
        let got = comm.gather(root, &values(me, count, 6))?;
        assert!(got.as_ref() == (me == root).then_some(&of_all));
        assert!(comm.scatter(root, (me == root).then_some(&of_all[..]))? == values(me, count, 6));
    }
    let data: Vec<u32> = ranks(comm).flat_map(|to| values(me, count, to)).collect();
    let expected: Vec<u32> = ranks(comm).flat_map(|from| values(from, count, me)).collect();
    assert!(comm.all_to_all(&data)? == expected);
    let sums = comm.reduce_scatter(&of_all, Op::Sum)?;
    assert!(sums.iter().zip(values(me, count, 6)).all(|(&sum, value)| sum == value * comm.size() as u32));
    // Its bits are those of the tree, also where ranks reduce parts, which do not divide the slice.
    let fractions = |rank: usize| values(rank, count + 1, 9).into_iter().map(|value| 1.0 / value as f32);
    let mut sums: Vec<f32> = fractions(me).collect();
    comm.all_reduce(&mut sums, Op::Sum)?;
    let mut of_ranks: Vec<_> = ranks(comm).map(fractions).collect();
    for sum in &sums {
        let all: Vec<f32> = of_ranks.iter_mut().filter_map(Iterator::next).collect();
        assert_eq!(sum.to_bits(), tree(&all, Op::Sum).to_bits(), "{all:?}");
    }
    Ok(())
}

/// For very long data ranks reduce a part after another: two and a half here, the last of which
/// they cannot share evenly.
fn reduction_in_several_parts(comm: &Communicator) -> Result<(), CommError> {
    if comm.max_message() < 1 << 20 {
        return Ok(());
    }
    let count = 5 * comm.size() * (1 << 16) + 1;
    let fraction = |rank: usize, place: usize| 1.0 / value(rank, place, 9) as f32;
    let mut sums: Vec<f32> = (0..count).map(|place| fraction(comm.rank(), place)).collect();
    comm.all_reduce(&mut sums, Op::Sum)?;
    for place in (0..count).step_by(997).chain([count - 1]) {
        let all: Vec<f32> = ranks(comm).map(|rank| fraction(rank, place)).collect();
        assert_eq!(sums[place].to_bits(), tree(&all, Op::Sum).to_bits(), "{place}: {all:?}");
    }
    Ok(())
}

fn into_memory_of_the_caller(comm: &Communicator) -> Result<(), CommError> {
    let me = comm.rank();
    let is_length = |result: Result<(), CommError>| matches!(result, Err(CommError::Length { rank, .. }) if rank == me);
    for count in [0, 3, long(comm)] {
        let mine = values(me, count, 6);
        let of_all: Vec<u32> = ranks(comm).flat_map(|rank| values(rank, count, 6)).collect();
        // Too long a result is found before a message goes: the ranks stay in step.
        let mut all = vec![7; of_all.len() + 1];
        assert!(is_length(comm.all_gather_into(&mine, &mut all)));
        assert!(is_length(comm.all_to_all_into(&of_all, &mut all)));
        all.pop();
        // Some ranks bring memory, the others get it.
        if me.is_multiple_of(2) {
            comm.all_gather_into(&mine, &mut all)?;
        } else {
            all = comm.all_gather(&mine)?;
        }
        assert!(all == of_all);
        let root = comm.size() - 1;
        all.fill(7);
        if me == root {
            assert!(count == 0 || is_length(comm.gather_into(root, &mine, &mut [])));
            comm.gather_into(root, &mine, &mut all)?;
            assert!(all == of_all);
        } else {
            comm.gather_into(root, &mine, &mut all)?;
            assert!(all.iter().all(|&value| value == 7), "rank {me} is not the root");
        }
        let data: Vec<u32> = ranks(comm).flat_map(|to| values(me, count, to)).collect();
        if me.is_multiple_of(2) {
            comm.all_to_all_into(&data, &mut all)?;
        } else {
            all = comm.all_to_all(&data)?;
        }
        assert!(all == ranks(comm).flat_map(|from| values(from, count, me)).collect::<Vec<_>>());
    }
    Ok(())
}

fn long_and_short_blocks(comm: &Communicator) -> Result<(), CommError> {
    let count = |from: usize, to: usize| [0, 5, long(comm)][(from + 2 * to) % 3];
    for root in ranks(comm) {
        let at_root = comm.rank() == root;
        let got = comm.gather_v(root, &values(comm.rank(), count(comm.rank(), root), root))?;
        for (rank, part) in got.iter().flat_map(|parts| parts.iter().enumerate()) {
            assert!(part == values(rank, count(rank, root), root));
        }
        let counts: Vec<u64> = ranks(comm).map(|rank| count(root, rank) as u64).collect();
        let data: Vec<u32> = ranks(comm).flat_map(|rank| values(rank, count(root, rank), 1)).collect();
        let mine = comm.scatter_v(root, at_root.then_some((&data[..], &counts[..])))?;
        assert!(mine == values(comm.rank(), count(root, comm.rank()), 1));
    }
    let data: Vec<u32> = ranks(comm).flat_map(|to| values(comm.rank(), count(comm.rank(), to), to)).collect();
    let counts: Vec<u64> = ranks(comm).map(|to| count(comm.rank(), to) as u64).collect();
    let parts = comm.all_to_all_v(&data, &counts)?;
    for (from, part) in parts.iter().enumerate() {
        assert!(part == values(from, count(from, comm.rank()), comm.rank()));
    }
    Ok(())
}

fn split(comm: &Communicator) -> Result<(), CommError> {
    let (rank, size) = (comm.rank(), comm.size());
    // The last rank stays out; the others go by parity, in reverse order; the colors are far
    // apart.
    let color = (rank + 1 < size).then_some(if rank.is_multiple_of(2) { 3 } else { u32::MAX });
    let members: Vec<u64> =
        (0..size.saturating_sub(1)).rev().filter(|other| other % 2 == rank % 2).map(|other| other as u64).collect();
    let part = comm.split(color, (size - rank) as u64)?;
    assert_eq!(part.is_some(), color.is_some());
    if let Some(part) = part {
        assert_eq!(part.all_gather(&[rank as u64])?, members);
        assert_eq!(part.max_message(), comm.max_message());
        // A split of a split, with equal keys: the order stays.
        let again = part.split(Some(0), 1)?.expect("all have a color");
        assert_eq!((again.rank(), again.size()), (part.rank(), part.size()));
        let mut sum = [1u32];
        again.all_reduce(&mut sum, Op::Sum)?;
        assert_eq!(sum, [part.size() as u32]);
    }
    comm.barrier()
}

fn messages_in_posting_order(comm: &Communicator) -> Result<(), CommError> {
    let body = |from: usize, to: usize, number: usize| vec![(from * 50 + to * 10 + number) as u8; number * 3];
    let mut receivings = Vec::new();
    for from in ranks(comm) {
        for number in 0..4 {
            receivings.push((from, number, comm.receive(from, 9, number as u64 * 3)?));
        }
    }
    let mut sendings = Vec::new();
    for to in ranks(comm) {
        for number in 0..4 {
            sendings.push(comm.send(to, 9, body(comm.rank(), to, number))?);
        }
    }
    // Waited for in reverse: the match was made when they were posted.
    for (from, number, mut receiving) in receivings.into_iter().rev() {
        while !receiving.is_done()? {
            std::thread::yield_now();
        }
        assert_eq!(receiving.wait()?, body(from, comm.rank(), number));
    }
    sendings.into_iter().try_for_each(|sending| sending.wait().map(drop))
}

fn messages_and_collectives_do_not_mix(comm: &Communicator) -> Result<(), CommError> {
    let peer = (comm.rank() + 1) % comm.size();
    let from = (comm.rank() + comm.size() - 1) % comm.size();
    let late = comm.receive(from, 1, 2)?;
    let sendings = [comm.send(peer, 0, vec![0; 8])?, comm.send(peer, 1, vec![1; 2])?];
    assert_eq!(comm.all_gather(&[comm.rank() as u64])?, ranks(comm).map(|rank| rank as u64).collect::<Vec<_>>());
    comm.barrier()?;
    // By tag, not by time.
    assert_eq!(late.wait()?, [1; 2]);
    assert_eq!(comm.receive(from, 0, 8)?.wait()?, [0; 8]);
    sendings.into_iter().try_for_each(|sending| sending.wait().map(drop))
}

fn withdrawn_receive(comm: &Communicator) -> Result<(), CommError> {
    let me = comm.rank();
    drop(comm.receive(me, 5, 3)?);
    comm.barrier()?;
    drop(comm.send(me, 5, vec![1, 2, 3])?);
    assert_eq!(comm.receive(me, 5, 3)?.wait()?, [1, 2, 3], "the withdrawn receive must not take it");
    comm.barrier()
}

fn wrong_size(comm: &Communicator) -> Result<(), CommError> {
    // What is left over must not reach the next case.
    let comm = comm.split(Some(0), 0)?.expect("all have a color");
    let me = comm.rank();
    for (tag, (sent, asked)) in (20..).zip([(0, 1), (3, 8), (8, 4), (9, 8), (8, 9), (4, 0)]) {
        drop(comm.send(me, tag, vec![0; sent])?);
        let error = comm.receive(me, tag, asked)?.wait().expect_err("another size was asked for");
        let CommError::MessageSize { rank, from, expected, got } = error else { panic!("{error}") };
        assert_eq!((rank, from, expected), (me, me, asked));
        assert!(if (sent as u64) < asked { got <= sent as u64 } else { got > asked }, "{got} of {sent} for {asked}");
    }
    Ok(())
}
