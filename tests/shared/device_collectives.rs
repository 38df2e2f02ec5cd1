//! Every collective of device arrays against a plain model: each rank knows what all ranks
//! contribute, so it can work out what must come. The same bodies run among threads and among MPI
//! processes.

use std::fmt::Debug;

use meshloom::Rank;
use meshloom::bytemuck;
use meshloom::comm::{Op, Reducible};
use meshloom::exchange::ExchangeError;
use meshloom::exchange::collectives::{Collectives, DeviceNumber};
use meshloom::gpu::{Array, DeviceElement};

type Result<T = ()> = std::result::Result<T, ExchangeError>;

/// An element that tells the rank, the place and a salt apart.
pub trait Sample: bytemuck::Pod + PartialEq + Debug {
    fn sample(rank: usize, place: u64, salt: u64) -> Self;
}

fn number(rank: usize, place: u64, salt: u64) -> u32 {
    let n = (rank as u64 * 10_007 + place * 101 + salt * 7 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (n >> 32) as u32
}

macro_rules! samples {
    ($($ty:ty: $make:expr),*) => {$(
        impl Sample for $ty {
            fn sample(rank: usize, place: u64, salt: u64) -> Self {
                let make: fn(u32) -> $ty = $make;
                make(number(rank, place, salt))
            }
        }
    )*};
}

samples!(
    f32: |n| (f64::from(n) / 1e9 - 2.0) as f32,
    f64: |n| f64::from(n) / 3e9 - 0.7,
    u32: |n| n,
    i32: |n| n as i32,
    u64: |n| u64::from(n) << 31 | u64::from(n),
    i64: |n| (i64::from(n) - (1 << 31)) * 0x1_0000_0001,
    [f32; 2]: |n| [n as f32, -1.0],
    [f64; 2]: |n| [f64::from(n), 0.5]
);

fn samples<T: Sample>(rank: usize, count: u64, salt: u64) -> Vec<T> {
    (0..count).map(|place| T::sample(rank, place, salt)).collect()
}

/// Numbers in an array of elements.
fn upload<N: Sample, T: DeviceElement>(context: &mut Rank, numbers: &[N]) -> Result<Array<T>> {
    let values: Vec<T> = bytemuck::pod_collect_to_vec(numbers);
    let array = context.gpu.array("given", values.len() as u64)?;
    context.recorder.upload(&array, 0, &values)?;
    Ok(array)
}

fn download<N: Sample, T: DeviceElement>(context: &mut Rank, array: &Array<T>) -> Result<Vec<N>> {
    let values = context.recorder.download(array, 0, array.len())?;
    Ok(bytemuck::pod_collect_to_vec(&values))
}

/// Some ranks have nothing.
fn uneven(rank: usize, salt: u64, most: u64) -> u64 {
    (rank as u64 * 3 + salt) % 4 * most / 3
}

/// Fields of `counts[part]` elements, in arrays: field by field, in each the parts, of which
/// `part(rank, field)` gives the values.
fn joined<T: Sample>(fields: u64, parts: usize, part: impl Fn(usize, u64) -> Vec<T>) -> Vec<T> {
    (0..fields).flat_map(|field| (0..parts).flat_map(|rank| part(rank, field)).collect::<Vec<_>>()).collect()
}

/// Part `to` of field `field` of what `from` gives.
fn cut<T: Sample>(from: usize, to: usize, field: u64, count: u64) -> Vec<T> {
    samples(from, count, field * 64 + to as u64)
}

/// Returns what moves, of elements of one type: uneven and empty parts, one and several fields,
/// short and long.
fn moves<T: DeviceElement + Sample>(context: &mut Rank, collectives: &mut Collectives) -> Result {
    let (me, size) = (context.comm.rank(), context.comm.size());
    for (fields, most) in [(1, 0), (1, 5), (3, 4), (1, 4200), (3, 1500)] {
        let what = format!("{:?}, {fields} fields of {most}, rank {me} of {size}", T::ELEMENT);
        let each = |rank, field| samples::<T>(rank, most, field);
        let all = joined(fields, size, each);
        let own = upload::<T, T>(context, &joined(fields, 1, |_, field| each(me, field)))?;
        let got = collectives.all_gather(&mut context.recorder, &own, fields)?.finish(&mut context.recorder)?;
        assert!(download::<T, T>(context, &got)? == all, "all_gather, {what}");
        for salt in 0..2 {
            let each = |rank, field| samples::<T>(rank, uneven(rank, salt, most), field);
            let all = joined(fields, size, each);
            let own = upload::<T, T>(context, &joined(fields, 1, |_, field| each(me, field)))?;
            let got = collectives.all_gather_v(&mut context.recorder, &own, fields)?.finish(&mut context.recorder)?;
            assert!(download::<T, T>(context, &got.array)? == all, "all_gather_v, {what}");
            let counts: Vec<u64> = (0..size).map(|rank| uneven(rank, salt, most)).collect();
            assert_eq!(got.counts, counts);
            let root = (salt as usize + 1) % size;
            let got = collectives.gather_v(&mut context.recorder, root, &own, fields)?.finish(&mut context.recorder)?;
            assert_eq!(got.is_some(), me == root);
            if let Some(got) = got {
                assert!(download::<T, T>(context, &got.array)? == all, "gather_v, {what}");
                assert_eq!(got.counts, counts);
            }
            let whole = upload::<T, T>(context, &all)?;
            let given = (me == root).then_some((&whole, &counts[..]));
            let got =
                collectives.scatter_v(&mut context.recorder, root, given, fields)?.finish(&mut context.recorder)?;
            let wanted = joined(fields, 1, |_, field| each(me, field));
            assert!(download::<T, T>(context, &got)? == wanted, "scatter_v, {what}");
            let given = (me == root).then_some(&whole);
            let got = collectives.broadcast(&mut context.recorder, root, given)?.finish(&mut context.recorder)?;
            assert!(download::<T, T>(context, &got)? == all, "broadcast, {what}");
            // Each rank has another number for each rank.
            let count = |from: usize, to: usize| uneven(from + 2 * to, salt, most);
            let given = joined(fields, size, |to, field| cut::<T>(me, to, field, count(me, to)));
            let counts: Vec<u64> = (0..size).map(|to| count(me, to)).collect();
            let given = upload::<T, T>(context, &given)?;
            let got = collectives.all_to_all_v(&mut context.recorder, &given, &counts, fields)?;
            let got = got.finish(&mut context.recorder)?;
            let wanted = joined(fields, size, |from, field| cut::<T>(from, me, field, count(from, me)));
            assert!(download::<T, T>(context, &got.array)? == wanted, "all_to_all_v, {what}");
        }
        let root = size - 1;
        let got = collectives.gather(&mut context.recorder, root, &own, fields)?.finish(&mut context.recorder)?;
        assert_eq!(got.is_some(), me == root);
        if let Some(got) = got {
            assert!(download::<T, T>(context, &got)? == all, "gather, {what}");
        }
        let whole = upload::<T, T>(context, &all)?;
        let given = (me == root).then_some(&whole);
        let got = collectives.scatter(&mut context.recorder, root, given, fields)?.finish(&mut context.recorder)?;
        let wanted = joined(fields, 1, |_, field| each(me, field));
        assert!(download::<T, T>(context, &got)? == wanted, "scatter, {what}");
        let given = upload::<T, T>(context, &joined(fields, size, |to, field| cut::<T>(me, to, field, most)))?;
        let got = collectives.all_to_all(&mut context.recorder, &given, fields)?.finish(&mut context.recorder)?;
        let wanted = joined(fields, size, |from, field| cut::<T>(from, me, field, most));
        assert!(download::<T, T>(context, &got)? == wanted, "all_to_all, {what}");
        shifted::<T>(context, collectives, most)?;
    }
    Ok(())
}

/// Along a ring and along a row, of arrays that differ in length.
fn shifted<T: DeviceElement + Sample>(context: &mut Rank, collectives: &mut Collectives, most: u64) -> Result {
    let (me, size) = (context.comm.rank(), context.comm.size());
    let own = upload::<T, T>(context, &samples::<T>(me, uneven(me, 1, most), 0))?;
    let (next, before) = ((me + 1) % size, (me + size - 1) % size);
    for ring in [true, false] {
        let to = (ring || next > me).then_some((next, &own));
        let from = (ring || before < me).then_some(before);
        let got = collectives.send_receive(&mut context.recorder, to, from)?.finish(&mut context.recorder)?;
        assert_eq!(got.is_some(), from.is_some());
        if let (Some(got), Some(from)) = (got, from) {
            assert_eq!(download::<T, T>(context, &got)?, samples::<T>(from, uneven(from, 1, most), 0));
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

/// Returns what is combined, to the last bit.
fn reduces<N: DeviceNumber + Sample>(context: &mut Rank, collectives: &mut Collectives) -> Result {
    let (me, size) = (context.comm.rank(), context.comm.size());
    for op in [Op::Sum, Op::Min, Op::Max] {
        for (fields, most) in [(1, 0), (1, 7), (1, 5000), (3, 4), (2, 1501)] {
            let what = format!("{op:?} of {}, {fields} fields of {most}, rank {me} of {size}", N::NAME);
            let at = |rank: usize, place: u64| N::sample(rank, place, 3);
            let reduced =
                |place: u64, ranks: usize| tree(&(0..ranks).map(|rank| at(rank, place)).collect::<Vec<N>>(), op);
            let len = fields * most;
            let own: Vec<N> = (0..len).map(|place| at(me, place)).collect();
            let own: Array<N::Element> = upload(context, &own)?;
            let all: Vec<N> = (0..len).map(|place| reduced(place, size)).collect();
            let got = collectives.all_reduce::<N>(&mut context.recorder, &own, op)?.finish(&mut context.recorder)?;
            assert_bits(&download::<N, _>(context, &got)?, &all, &format!("all_reduce, {what}"));
            let root = 1 % size;
            let got = collectives.reduce::<N>(&mut context.recorder, root, &own, op)?.finish(&mut context.recorder)?;
            assert_eq!(got.is_some(), me == root);
            if let Some(got) = got {
                assert_bits(&download::<N, _>(context, &got)?, &all, &format!("reduce, {what}"));
            }
            let got = collectives.scan::<N>(&mut context.recorder, &own, op)?.finish(&mut context.recorder)?;
            let prefix = |place| (1..=me).fold(at(0, place), |sum: N, rank| sum.combine(at(rank, place), op));
            let wanted: Vec<N> = (0..len).map(prefix).collect();
            assert_bits(&download::<N, _>(context, &got)?, &wanted, &format!("scan, {what}"));
            let got = collectives.scan_exclusive::<N>(&mut context.recorder, &own, op)?;
            let got = got.finish(&mut context.recorder)?;
            assert_eq!(got.is_some(), me > 0);
            if let Some(got) = got {
                let prefix = |place| (1..me).fold(at(0, place), |sum: N, rank| sum.combine(at(rank, place), op));
                let wanted: Vec<N> = (0..len).map(prefix).collect();
                assert_bits(&download::<N, _>(context, &got)?, &wanted, &format!("scan_exclusive, {what}"));
            }
            // The fields are cut in uneven parts, the last of which takes the rest.
            let mut counts: Vec<u64> = (0..size).map(|rank| uneven(rank, 1, most / size as u64)).collect();
            counts[size - 1] += most - counts.iter().sum::<u64>();
            let start: u64 = counts[..me].iter().sum();
            let place = |field: u64, i: u64| (field * most + start + i) as usize;
            let wanted: Vec<N> = (0..fields)
                .flat_map(|field| (0..counts[me]).map(move |i| (field, i)))
                .map(|(f, i)| all[place(f, i)])
                .collect();
            let got = collectives.reduce_scatter_v::<N>(&mut context.recorder, &own, &counts, op, fields)?;
            let got = got.finish(&mut context.recorder)?;
            assert_bits(&download::<N, _>(context, &got)?, &wanted, &format!("reduce_scatter_v, {what}"));
        }
        let own: Vec<N> = (0..2 * 3 * size as u64).map(|place| N::sample(me, place, 3)).collect();
        let own: Array<N::Element> = upload(context, &own)?;
        let got = collectives.reduce_scatter::<N>(&mut context.recorder, &own, op, 2)?.finish(&mut context.recorder)?;
        let place = |field: u64, i: u64| (field * size as u64 + me as u64) * 3 + i;
        let of = |place| tree(&(0..size).map(|rank| N::sample(rank, place, 3)).collect::<Vec<N>>(), op);
        let wanted: Vec<N> = (0..6).map(|at| of(place(at / 3, at % 3))).collect();
        assert_bits(&download::<N, _>(context, &got)?, &wanted, "reduce_scatter");
    }
    Ok(())
}

fn assert_bits<N: Sample>(got: &[N], wanted: &[N], what: &str) {
    let bits = |numbers: &[N]| bytemuck::cast_slice::<N, u8>(numbers).to_vec();
    let first = got.iter().zip(wanted).find(|(a, b)| bytemuck::bytes_of(*a) != bytemuck::bytes_of(*b));
    assert!(bits(got) == bits(wanted), "{what}: {} for {}, first {first:?}", got.len(), wanted.len());
}

/// NaN, infinities and both zeros of floats, of one rank or another.
fn odd_floats(context: &mut Rank, collectives: &mut Collectives) -> Result {
    let (me, size) = (context.comm.rank(), context.comm.size());
    let odd = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0, -0.0, 1e-42, -1e-42, 3.0];
    // More than is short, so that the device combines.
    let at = |rank: usize, place: usize| odd[(place + rank * (place / 8 + 1)) % 8];
    let own: Vec<f32> = (0..5000).map(|place| at(me, place)).collect();
    let array = context.gpu.array("odd", 5000)?;
    context.recorder.upload(&array, 0, &own)?;
    for op in [Op::Min, Op::Max] {
        let got = collectives.all_reduce::<f32>(&mut context.recorder, &array, op)?.finish(&mut context.recorder)?;
        let got = context.recorder.download(&got, 0, 5000)?;
        for (place, got) in got.iter().enumerate() {
            let wanted = tree(&(0..size).map(|rank| at(rank, place)).collect::<Vec<_>>(), op);
            assert!(got.to_bits() == wanted.to_bits() || got.is_nan() && wanted.is_nan(), "{op:?} {got} {wanted}");
        }
    }
    Ok(())
}

/// Several collectives in flight at once, of one and of two exchanges, moved in another order on
/// each rank.
fn in_flight(context: &mut Rank, collectives: &mut Collectives) -> Result {
    let (me, size) = (context.comm.rank(), context.comm.size());
    let given = |salt: u64| samples::<u32>(me, 6000, salt);
    let [a, b, c] = [1, 2, 3].map(|salt| upload::<u32, u32>(context, &given(salt)));
    let (a, b, c) = (a?, b?, c?);
    let mut first = collectives.all_reduce::<u32>(&mut context.recorder, &a, Op::Sum)?;
    let mut second = collectives.all_gather(&mut context.recorder, &b, 1)?;
    let mut third = collectives.scan::<u32>(&mut context.recorder, &c, Op::Max)?;
    let mut turn = me;
    while !(first.is_done() && second.is_done() && third.is_done()) {
        match turn % 3 {
            0 => first.progress(&mut context.recorder)?,
            1 => second.progress(&mut context.recorder)?,
            _ => third.progress(&mut context.recorder)?,
        };
        turn += 1 + me % 2;
        if turn.is_multiple_of(7) {
            turn += 1;
        }
    }
    let first = first.finish(&mut context.recorder)?;
    let sums = download::<u32, u32>(context, &first)?;
    let second = second.finish(&mut context.recorder)?;
    let all = download::<u32, u32>(context, &second)?;
    let third = third.finish(&mut context.recorder)?;
    let most = download::<u32, u32>(context, &third)?;
    for place in (0..6000).step_by(411) {
        let of = |salt: u64| (0..size).map(move |rank| u32::sample(rank, place, salt));
        assert_eq!(sums[place as usize], of(1).fold(0, u32::wrapping_add));
        assert_eq!(Some(most[place as usize]), of(3).take(me + 1).max());
        assert!((0..size).all(|rank| all[rank * 6000 + place as usize] == u32::sample(rank, place, 2)));
    }
    Ok(())
}

/// Returns all collectives on this rank, for all types of elements, in chunks of `bytes` bytes.
pub fn all(context: &mut Rank, chunk: u64) -> Result {
    let exchange = context.exchange.clone().with_chunks(chunk, 2);
    let collectives = &mut Collectives::new(exchange);
    moves::<f32>(context, collectives)?;
    moves::<[f32; 2]>(context, collectives)?;
    reduces::<f32>(context, collectives)?;
    reduces::<u32>(context, collectives)?;
    reduces::<i32>(context, collectives)?;
    reduces::<u64>(context, collectives)?;
    reduces::<i64>(context, collectives)?;
    odd_floats(context, collectives)?;
    if context.gpu.capabilities().f64 {
        moves::<[f64; 2]>(context, collectives)?;
        reduces::<f64>(context, collectives)?;
    }
    in_flight(context, collectives)
}
