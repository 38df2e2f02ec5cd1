//! The model against times that can be counted by hand, and one node against all ranks.

use super::events::seconds_of;
use super::fold::{EXACT, Group};
use super::{Line, Machine, Start, Step, Work, least_seconds, simulate};
use crate::gpu::ExchangePath;
use crate::grid::{Chunking, Grid, Shares, Transfer, Transfers};

type Steps = Result<Vec<Step>, std::convert::Infallible>;

const CHUNKING: Chunking = Chunking { bytes: 1 << 20, depth: 4 };

/// A machine on which times are easy to count: a byte takes a nanosecond on each resource.
fn simple(path: ExchangePath) -> Machine {
    Machine {
        ranks_per_node: 1,
        devices: 1,
        path,
        memory_rate: 1e9,
        device_copy_rate: 1e9,
        dispatch_seconds: 0.0,
        submit_seconds: 0.0,
        copy_rate: 1e9,
        host_copy_rate: 1e9,
        host_memory_rate: 1e18,
        message_seconds: 0.0,
        local_latency_seconds: 0.0,
        latency_seconds: 0.0,
        nics: 1,
        nic_rate: 1e9,
        ..Machine::default()
    }
}

/// Each rank of a line sends `len` bytes to each other rank.
fn all_to_all(grid: Grid, rank: usize, axis: usize, len: u64) -> Step {
    let line = Line::new(&grid, rank, axis);
    let parts: Vec<Transfer> = (0..line.len).map(|peer| Transfer { peer, start: peer as u64 * len, len }).collect();
    Step::Start(Start { line, transfers: Transfers { send: parts.clone(), receive: parts }, element_bytes: 1 })
}

fn seconds(machine: &Machine, grid: Grid, steps: impl Fn(usize) -> Vec<Step>) -> f64 {
    simulate(machine, grid, 0, CHUNKING, |rank| -> Steps { Ok(steps(rank)) }).unwrap()
}

fn grid(parts: [usize; 2]) -> Grid {
    Grid::new(parts, parts[0] * parts[1]).unwrap()
}

fn is_near(value: f64, expected: f64, tolerance: f64) -> bool {
    (value - expected).abs() <= tolerance * expected
}

/// Two ranks exchange one chunk of 2^20 bytes; what each keeps is copied first.
#[test]
fn one_chunk_takes_the_time_of_its_resources_in_turn() {
    let (two, bytes) = (grid([2, 1]), 1u64 << 20);
    let exchange = |rank| vec![all_to_all(two, rank, 0, bytes), Step::Finish];
    let (unit, kept) = (bytes as f64 * 1e-9, 2.0 * bytes as f64 * 1e-9);
    for (path, apart, together) in [
        // Out, the interface, in; within a node the device copies from the sender's pages.
        (ExchangePath::Ring, 3.0, 2.0),
        // The host copies what it receives.
        (ExchangePath::Staging, 4.0, 3.0),
        // Devices copy nothing; within a node the host copies.
        (ExchangePath::Mapped, 1.0, 1.0),
    ] {
        let machine = simple(path);
        let found = seconds(&machine, two, exchange);
        assert!(is_near(found, kept + apart * unit, 1e-9), "{path}: {found}");
        let machine = Machine { ranks_per_node: 2, devices: 2, nics: 2, ..machine };
        let found = seconds(&machine, two, exchange);
        assert!(is_near(found, kept + together * unit, 1e-9), "{path} in a node: {found}");
        // One device for both: its queue serves one rank after the other.
        let found = seconds(&Machine { devices: 1, ..machine }, two, exchange);
        let copies = if path == ExchangePath::Mapped { 0.0 } else { 4.0 };
        assert!(found >= 2.0 * kept + copies * unit - 1e-12, "{path} on one device: {found}");
    }
    // Messages of o at either end and the latency; the first submission, and that of the copy
    // in, as that of the copy out ends before what the rank keeps is copied.
    let machine =
        Machine { message_seconds: 1e-3, latency_seconds: 1e-2, submit_seconds: 1e-4, ..simple(ExchangePath::Ring) };
    let found = seconds(&machine, two, exchange);
    assert!(is_near(found, kept + 3.0 * unit + 2e-3 + 1e-2 + 2e-4, 1e-9), "{found}");
    // A pass that follows waits for the copies.
    let then = |rank| [exchange(rank), vec![Step::Pass { work: Work::Mesh, bytes }]].concat();
    let found = seconds(&simple(ExchangePath::Ring), two, then);
    assert!(is_near(found, kept + 4.0 * unit, 1e-9), "{found}");
}

#[test]
fn kinds_of_work_have_rates_of_their_own_and_software_devices_share_cores() {
    let (two, bytes) = (grid([2, 1]), 1u64 << 20);
    let machine = Machine {
        ranks_per_node: 2,
        devices: 2,
        cores: 2,
        particle_rate: 5e8,
        device_copy_rate: 2e9,
        ..simple(ExchangePath::Mapped)
    };
    let steps = |_| [Work::Mesh, Work::Particles, Work::Copy].map(|work| Step::Pass { work, bytes }).to_vec();
    let alone = (1.0 + 2.0 + 0.5) * bytes as f64 * 1e-9;
    let found = seconds(&machine, two, steps);
    assert!(is_near(found, alone, 1e-9), "{found}");
    let found = seconds(&Machine { devices_use_cores: true, ..machine }, two, steps);
    assert!(is_near(found, 2.0 * alone, 1e-9), "{found}");
}

#[test]
fn many_chunks_overlap_on_unlike_resources() {
    let (two, bytes) = (grid([2, 1]), 256u64 << 20);
    let exchange = |rank| vec![all_to_all(two, rank, 0, bytes), Step::Finish];
    let (unit, kept) = (bytes as f64 * 1e-9, 2.0 * bytes as f64 * 1e-9);
    // One queue copies out and in; with a queue each way all three resources work at once.
    for (copy_queues, least) in [(0, 2.0), (1, 2.0), (2, 1.0)] {
        let machine = Machine { copy_queues, ..simple(ExchangePath::Ring) };
        let found = seconds(&machine, two, exchange);
        assert!(found > kept + 0.999 * least * unit && found < kept + 1.1 * least * unit, "{copy_queues}: {found}");
    }
    // Two devices share the memory of a node. Copies that wait for their queue do not hold it. If
    // it is as slow as one copy, it takes all four one after the other, the first of them while
    // devices copy what they keep.
    for depth in [2, 8, 64] {
        for (host_memory_rate, least, most) in [(4e9, kept + 2.0 * unit, 2.0), (1e9, 4.0 * unit, 4.0)] {
            let machine = Machine { ranks_per_node: 2, devices: 2, host_memory_rate, ..simple(ExchangePath::Ring) };
            let chunking = Chunking { depth, ..CHUNKING };
            let found = simulate(&machine, two, 0, chunking, |rank| -> Steps { Ok(exchange(rank)) }).unwrap();
            let is_expected = found > 0.999 * least && found < kept + 1.1 * most * unit;
            assert!(is_expected, "{depth} chunks, memory at {host_memory_rate}: {found}");
        }
    }
    // A window of one chunk does not overlap anything.
    let one = Chunking { depth: 1, ..CHUNKING };
    let machine = Machine { copy_queues: 2, ..simple(ExchangePath::Ring) };
    let found = simulate(&machine, two, 0, one, |rank| -> Steps { Ok(exchange(rank)) }).unwrap();
    assert!(found > kept + 1.9 * unit, "{found}");
}

#[test]
fn nodes_share_interfaces_and_links_between_switches() {
    // Messages are short enough for all to leave at once.
    let ranks = grid([16, 1]);
    let exchange = |rank| vec![all_to_all(ranks, rank, 0, 1 << 20), Step::Finish];
    let machine = Machine {
        ranks_per_node: 4,
        devices: 4,
        nics: 4,
        nic_rate: 1e7,
        switch_nodes: 2,
        copy_queues: 2,
        ..simple(ExchangePath::Ring)
    };
    // Twelve messages of a rank leave the node through its own interface.
    let unit = (1u64 << 20) as f64 * 1e-7;
    let own = seconds(&machine, ranks, exchange);
    assert!(own > 12.0 * unit && own < 13.0 * unit, "{own}");
    let shared = seconds(&Machine { nics: 1, ..machine.clone() }, ranks, exchange);
    assert!(shared > 48.0 * unit && shared < 50.0 * unit, "{shared}");
    // Eight of them cross switches, at a quarter of the rate.
    let tapered = seconds(&Machine { taper: 4.0, ..machine.clone() }, ranks, exchange);
    assert!(tapered > 32.0 * unit && tapered < 37.0 * unit, "{tapered}");
}

/// All ranks against those of one node. Power-of-two lines do the same everywhere; in others
/// ranks of a node reach its end at different times.
#[test]
fn folded_ranks_take_the_time_of_all() {
    let whole = |machine: &Machine, grid: Grid, steps: &dyn Fn(usize) -> Vec<Step>| {
        let group = Group::whole(machine, &grid);
        seconds_of(&group, CHUNKING, (0..grid.ranks()).map(steps).collect())
    };
    for path in [ExchangePath::Ring, ExchangePath::Staging, ExchangePath::Mapped] {
        let machine = Machine { path, ..Machine::default() };
        for (parts, len, tolerance) in [
            ([128, 1], 100_000, 0.02),
            ([128, 1], 3_000_000, 0.02),
            ([16, 8], 100_000, 0.02),
            ([64, 2], 3_000_000, 0.02),
            ([68, 1], 1_000_000, 0.05),
            ([12, 12], 1_000_000, 0.05),
            // Parts of a node of two ranks and of one.
            ([10, 10], 1_000_000, 0.4),
            ([67, 1], 1_000_000, 0.4),
        ] {
            let grid = grid(parts);
            assert!(grid.ranks() > EXACT);
            let steps = |rank: usize| {
                let pass = Step::Pass { work: Work::Mesh, bytes: 1_000_000 };
                let axes = [1, 0].into_iter().filter(|&axis| grid.along(axis) > 1);
                axes.flat_map(|axis| [pass.clone(), all_to_all(grid, rank, axis, len), Step::Finish]).collect()
            };
            let (folded, all) = (seconds(&machine, grid, steps), whole(&machine, grid, &steps));
            let least = least_seconds(&machine, &grid, &steps(0));
            assert!(least <= all && least > 0.0, "{path}, {grid}: {all}, at least {least}");
            assert!(is_near(folded, all, tolerance), "{path}, {grid}, {len}: {folded} folded, {all} of all");
        }
    }
}

/// Compares the node of the largest rank with all ranks, where shares are unequal. Other nodes send
/// less than it does, which the followed ranks do not know.
#[test]
fn the_node_of_the_largest_rank_takes_the_time_of_all() {
    let machine = Machine::default();
    for parts in [[128, 1], [16, 8]] {
        let ranks = parts[0] * parts[1];
        // The second rank of each node has twice the share of the others, and node 9 more of all.
        let of_node = |node: usize| if node == 9 { 1.5 } else { 1.0 };
        let share = |rank: usize| of_node(rank / 4) * if rank % 4 == 1 { 2.0 } else { 1.0 };
        let shares: Vec<f64> = (0..ranks).map(share).collect();
        let grid = Grid::new(parts, Shares::new(&shares).unwrap()).unwrap();
        let largest = grid.largest([1 << 20; 3]);
        let steps = |rank: usize| {
            let bytes = |of: usize| (1e6 * shares[of]) as u64;
            let exchange = |axis: usize| {
                let line = Line::new(&grid, rank, axis);
                let part = |peer: usize| {
                    // Each pair sends the product of its shares, either way.
                    let len = (1e5 * shares[rank] * shares[line.rank(peer)]) as u64;
                    Transfer { peer, start: 0, len }
                };
                let parts: Vec<Transfer> = (0..line.len).map(part).collect();
                Step::Start(Start {
                    line,
                    transfers: Transfers { send: parts.clone(), receive: parts },
                    element_bytes: 1,
                })
            };
            let axes = [1, 0].into_iter().filter(|&axis| grid.along(axis) > 1);
            let pass = Step::Pass { work: Work::Mesh, bytes: bytes(rank) };
            axes.flat_map(|axis| [pass.clone(), exchange(axis), Step::Finish]).collect::<Vec<_>>()
        };
        let folded = simulate(&machine, grid, largest, CHUNKING, |rank| -> Steps { Ok(steps(rank)) }).unwrap();
        let all = seconds_of(&Group::whole(&machine, &grid), CHUNKING, (0..ranks).map(steps).collect());
        let least = least_seconds(&machine, &grid, &steps(largest));
        assert!(least <= all, "{grid}: {all}, at least {least}");
        assert!(is_near(folded, all, 0.25), "{grid}: {folded} of one node, {all} of all");
    }
}

/// Rows of ranks exchange in one piece or in two, before columns exchange.
#[test]
fn lines_with_other_numbers_of_pieces_do_not_wait_for_each_other() {
    for parts in [[2, 2], [2, 64]] {
        let grid = grid(parts);
        let steps = |rank: usize| {
            let pieces = if grid.at(rank)[0] == 0 { 2 } else { 1 };
            let first = (0..pieces).map(|_| all_to_all(grid, rank, 1, 1 << 20));
            let exchanges: Vec<Step> = first.chain([all_to_all(grid, rank, 0, 1 << 20)]).collect();
            let finish = vec![Step::Finish; exchanges.len()];
            [exchanges, finish].concat()
        };
        let found = seconds(&Machine::default(), grid, steps);
        assert!(found > 0.0 && found < 1.0, "{grid}: {found}");
    }
    // A node has ranks of both rows.
    let machine = Machine { ranks_per_node: 4, ..Machine::default() };
    let grid = grid([64, 2]);
    let steps = |rank: usize| {
        let first = (0..1 + rank / 2 % 2).map(|_| all_to_all(grid, rank, 1, 1 << 20));
        let exchanges: Vec<Step> = first.chain([all_to_all(grid, rank, 0, 1 << 20)]).collect();
        let finish = vec![Step::Finish; exchanges.len()];
        [exchanges, finish].concat()
    };
    let found = seconds(&machine, grid, steps);
    assert!(found > 0.0 && found < 1.0, "{grid}: {found}");
}

/// More chunks than are followed each by itself.
#[test]
fn long_exchanges_take_the_time_of_their_bytes_and_messages() {
    let two = grid([2, 1]);
    let machine = Machine { message_seconds: 1e-4, copy_queues: 2, ..simple(ExchangePath::Ring) };
    let chunks = 5000;
    let exchange = |rank| vec![all_to_all(two, rank, 0, chunks << 20), Step::Finish];
    let found = seconds(&machine, two, exchange);
    // The copy of the own part, then the slowest resource, with a window of chunks at either end.
    let least = 3.0 * (chunks << 20) as f64 * 1e-9;
    assert!(found > least && found < 1.05 * least, "{found} {least}");
    // The host is slower than the interface: messages at either end.
    let machine = Machine { message_seconds: 1e-3, ..machine };
    let least = 2.0 * (chunks << 20) as f64 * 1e-9 + 2e-3 * chunks as f64;
    let found = seconds(&machine, two, exchange);
    assert!(found > least && found < 1.05 * least, "{found} {least}");
}

#[test]
fn a_message_that_is_not_sent_takes_forever() {
    let two = grid([2, 1]);
    let steps = |rank| match rank {
        0 => vec![all_to_all(two, 0, 0, 1000), Step::Finish],
        _ => Vec::new(),
    };
    assert_eq!(seconds(&Machine::default(), two, steps), f64::INFINITY);
    assert_eq!(seconds(&Machine::default(), grid([1, 1]), |_| Vec::new()), 0.0);
}
