//! Exchanges between ranks that are threads, on devices: what arrives, with any number of exchanges
//! in flight, and what becomes of values that travel as 16-bit integers.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::plans::{MAPPED, Plan, Side, mismatched, mix};
use meshloom::comm::{CommError, Communicator, run_threads};
use meshloom::exchange::{Exchange, ExchangeError, PendingExchange, Wire};
use meshloom::gpu::{Array, DeviceElement, DeviceError, Gpu, MemoryKind, Options, Recorder};
use meshloom::grid::{Transfer, Transfers};

/// Whole arrays, arrays in windows of 4 KiB, and the floor, where all goes through staging buffers.
fn devices() -> [Options; 3] {
    [(None, false), (Some(4096), false), (None, true)].map(|(window_bytes, floor)| Options {
        window_bytes,
        floor,
        ..meshloom_sanitizer::options().unwrap()
    })
}

fn on_ranks(
    options: &Options,
    ranks: usize,
    body: impl Fn(&Communicator, &mut Recorder) -> Result<(), ExchangeError> + Sync,
) {
    let outcome = run_threads(ranks, |comm| {
        let gpu = Gpu::open(options, comm.rank())?;
        body(&comm, &mut Recorder::new(&gpu)?)
    });
    outcome.unwrap_or_else(|error| panic!("{ranks} ranks, {options:?}: {error}"));
}

#[test]
fn uneven_and_empty_parts_arrive_in_chunks_of_any_size() {
    for options in devices() {
        for ranks in [1, 2, 3, 4, 5, 8] {
            for (chunk, depth, most) in [(4, 1, 15), (4, 8, 15), (1000, 1, 700), (1000, 2, 700), (2 << 20, 8, 700)] {
                on_ranks(&options, ranks, |comm, recorder| {
                    let mut exchange = Exchange::new(comm.clone()).with_chunks(chunk, depth);
                    for salt in 1..3 {
                        let plan = Plan { ranks, most, salt };
                        let side = Side::new(recorder, plan, comm.rank(), MAPPED)?;
                        exchange.run(recorder, &side.transfers, &side.outgoing, &side.incoming)?;
                        side.check(recorder, &format!("chunks of {chunk}, {depth} deep, {options:?}"))?;
                    }
                    Ok(())
                });
            }
        }
    }
}

#[test]
fn parts_of_many_large_chunks_arrive() {
    for (memory, floor) in [(MAPPED, false), ([MemoryKind::Device; 2], false), (MAPPED, true)] {
        let options = Options { floor, ..meshloom_sanitizer::options().unwrap() };
        on_ranks(&options, 2, |comm, recorder| {
            let plan = Plan { ranks: 2, most: 3 << 19, salt: 5 };
            let mut exchange = Exchange::new(comm.clone()).with_chunks(2 << 20, 2);
            let side = Side::new(recorder, plan, comm.rank(), memory)?;
            exchange.run(recorder, &side.transfers, &side.outgoing, &side.incoming)?;
            side.check(recorder, "large")?;
            let other = 1 - comm.rank();
            assert_eq!(exchange.cost().sent_bytes, plan.len(comm.rank(), other) * 4);
            assert_eq!(exchange.cost().received_bytes, plan.len(other, comm.rank()) * 4);
            Ok(())
        });
    }
}

#[test]
fn three_exchanges_in_flight_arrive_in_whatever_order_ranks_move_them() {
    for options in devices() {
        for ranks in [2, 3, 4] {
            on_ranks(&options, ranks, |comm, recorder| {
                let mut exchange = Exchange::new(comm.clone()).with_chunks(300, 2);
                for round in 0..4 {
                    let mut sides = Vec::new();
                    for salt in 0..3 {
                        let plan = Plan { ranks, most: 400, salt: 10 * round + salt };
                        sides.push(Side::new(recorder, plan, comm.rank(), MAPPED)?);
                    }
                    let mut in_flight = VecDeque::new();
                    for side in &sides {
                        in_flight.push_back(side.start(recorder, &mut exchange)?);
                    }
                    if comm.rank() == 1 {
                        for side in &sides {
                            assert!(PendingExchange::finish_first(&mut in_flight, recorder)?);
                            side.check(recorder, "finish_first")?;
                        }
                        assert!(!PendingExchange::finish_first(&mut in_flight, recorder)?);
                        continue;
                    }
                    // From the last to the first on some ranks, one more often than the others.
                    let order = if comm.rank() == 0 { [2, 1, 2, 0] } else { [1, 0, 1, 2] };
                    while in_flight.iter().any(|pending| !pending.is_done()) {
                        for i in order {
                            in_flight[i].progress(recorder)?;
                        }
                    }
                    for (side, pending) in sides.iter().zip(in_flight) {
                        pending.finish(recorder)?;
                        side.check(recorder, "progress")?;
                    }
                }
                Ok(())
            });
        }
    }
}

#[test]
fn work_goes_on_while_an_exchange_is_in_flight() {
    for options in devices() {
        on_ranks(&options, 2, |comm, recorder| {
            let mut exchange = Exchange::new(comm.clone()).with_chunks(64, 2);
            let side = Side::new(recorder, Plan { ranks: 2, most: 500, salt: 3 }, comm.rank(), MAPPED)?;
            let mut pending = side.start(recorder, &mut exchange)?;
            let other = recorder.gpu().array_in::<u32>("other", 100, MemoryKind::Outgoing)?;
            for n in 0..20 {
                recorder.upload(&other, 0, &[n; 100])?;
                assert_eq!(recorder.download(&other, 50, 1)?, [n]);
                pending.progress(recorder)?;
            }
            pending.finish(recorder)?;
            side.check(recorder, "with other work")
        });
    }
}

#[test]
fn an_error_on_one_rank_is_typed_and_ends_all() {
    let shift = |parts: &mut Vec<Transfer>| parts.iter_mut().for_each(|part| part.start += 1 << 20);
    type Break<'a> = &'a (dyn Fn(&mut Transfers) + Sync);
    let breaks: [Break; 4] = [
        &|transfers| shift(&mut transfers.send),
        &|transfers| shift(&mut transfers.receive),
        &|transfers| transfers.send[0].start = u64::MAX,
        &|transfers| transfers.receive[0].peer = 9,
    ];
    for options in devices() {
        for wire in [Wire::Exact, Wire::Block16] {
            for broken in breaks {
                let error = run_threads(3, |comm| {
                    let gpu = Gpu::open(&options, comm.rank())?;
                    let mut recorder = Recorder::new(&gpu)?;
                    let mut exchange = Exchange::new(comm.clone()).with_wire(wire);
                    let plan = Plan { ranks: 3, most: 300, salt: 1 };
                    let mut side = Side::new(&mut recorder, plan, comm.rank(), MAPPED)?;
                    if comm.rank() == 1 {
                        broken(&mut side.transfers);
                    }
                    side.start(&mut recorder, &mut exchange)?.finish(&mut recorder)
                })
                .unwrap_err();
                assert_eq!(error.rank, 1);
                assert!(
                    matches!(error.downcast_ref(), Some(ExchangeError::Device(DeviceError::Misuse { .. }))),
                    "{error}"
                );
            }
        }
    }
}

/// Exchange of as many bytes, copied behind what the exchange is and following it: elements of
/// another type, chunks and forms of values.
#[test]
fn ranks_that_start_other_exchanges_are_told_what_both_are() {
    for options in devices() {
        for len in [5, 50_000] {
            let outcome =
                |start: &(
                      dyn Fn(Exchange, usize, &mut Recorder, &Transfers, [&Array<u32>; 2]) -> Result<(), ExchangeError>
                          + Sync
                  )| {
                    let errors = Mutex::new(Vec::new());
                    let failed = run_threads(2, |comm| {
                        let mut recorder = Recorder::new(&Gpu::open(&options, 0)?)?;
                        let arrays = MAPPED.map(|memory| recorder.gpu().array_in::<u32>("array", len, memory));
                        let [outgoing, incoming] = arrays;
                        let part = Transfer { peer: 1 - comm.rank(), start: 0, len };
                        let transfers = Transfers { send: vec![part], receive: vec![part] };
                        let arrays = [&outgoing?, &incoming?];
                        let found = start(Exchange::new(comm.clone()), comm.rank(), &mut recorder, &transfers, arrays);
                        let text = found.as_ref().expect_err("ranks start other exchanges").to_string();
                        errors.lock().unwrap().push(text);
                        found
                    });
                    let Ok(ExchangeError::Comm(CommError::Mismatch { .. })) = failed.unwrap_err().downcast() else {
                        panic!("{errors:?}")
                    };
                    errors.into_inner().unwrap()
                };
            let said = outcome(&|mut exchange, rank, recorder, transfers, [from, to]| match rank {
                0 => exchange.run(recorder, transfers, from, to),
                _ => exchange.run(recorder, transfers, &from.cast::<f32>()?, &to.cast::<f32>()?),
            });
            for text in said {
                assert!(text.contains("called exchange of u32") && text.contains("called exchange of f32"), "{text}");
            }
            for text in outcome(&|exchange, rank, recorder, transfers, [from, to]| {
                exchange.with_chunks([1 << 20, 1 << 21][rank], 2).run(recorder, transfers, from, to)
            }) {
                assert!(text.matches("exchange of u32 with settings").count() == 2, "{text}");
            }
            for text in outcome(&|exchange, rank, recorder, transfers, [from, to]| {
                exchange.with_wire([Wire::Exact, Wire::Block16][rank]).run(recorder, transfers, from, to)
            }) {
                assert!(text.matches("exchange of u32 with settings").count() == 2, "{text}");
            }
        }
    }
}

/// Bodies continue after the error: a rank that only sends, too much to go with what the
/// exchange is, does not wait for a receiver that has given up, and all know that they are out of
/// step.
#[test]
fn ranks_that_are_out_of_step_know_it() {
    let options = Options { floor: true, ..meshloom_sanitizer::options().unwrap() };
    let known = run_threads(2, |comm| {
        let mut recorder = Recorder::new(&Gpu::open(&options, 0)?)?;
        let outcome = mismatched(&comm, &mut recorder)?;
        let told = matches!(outcome, Err(ExchangeError::Comm(CommError::Mismatch { .. })));
        Ok::<_, ExchangeError>((told, comm.is_out_of_step()))
    });
    assert_eq!(known.unwrap(), [(true, true); 2]);
}

#[test]
fn a_rank_that_gives_up_half_way_ends_all() {
    for options in devices() {
        let error = run_threads(3, |comm| {
            let gpu = Gpu::open(&options, comm.rank())?;
            let mut recorder = Recorder::new(&gpu)?;
            let mut exchange = Exchange::new(comm.clone()).with_chunks(40, 1);
            let side = Side::new(&mut recorder, Plan { ranks: 3, most: 300, salt: 4 }, comm.rank(), MAPPED)?;
            let mut pending = side.start(&mut recorder, &mut exchange)?;
            if comm.rank() == 2 {
                pending.progress(&mut recorder)?;
                return Err(DeviceError::Misuse { what: "test".into(), why: "it gives up".into() }.into());
            }
            pending.finish(&mut recorder)
        })
        .unwrap_err();
        assert_eq!(error.rank, 2);
        assert!(error.downcast_ref::<ExchangeError>().is_some(), "{error}");
    }
}

#[test]
fn a_dropped_exchange_leaves_all_buffers_usable() {
    for options in devices() {
        for steps in [0, 1, 3, 10] {
            on_ranks(&options, 2, |comm, recorder| {
                let plan = Plan { ranks: 2, most: 900, salt: 11 };
                let mut exchange = Exchange::new(comm.clone()).with_chunks(24, 2);
                for wire in [Wire::Exact, Wire::Block16] {
                    exchange = exchange.with_wire(wire);
                    let side = Side::new(recorder, plan, comm.rank(), MAPPED)?;
                    let transfers = side.transfers.clone();
                    let (out, inn) = (side.outgoing.cast::<f32>()?, side.incoming.cast::<f32>()?);
                    let lens = [out.len(), inn.len()];
                    let mut pending = exchange.start(recorder, &transfers, &out, &inn)?;
                    for _ in 0..steps {
                        pending.progress(recorder)?;
                    }
                    drop((out, inn, side));
                    drop(pending);
                    // The same buffers again, and some more.
                    let mut arrays = Vec::new();
                    for n in 0..4u32 {
                        for (len, memory) in lens.into_iter().zip(MAPPED) {
                            let array = recorder.gpu().array_in::<u32>("again", len, memory)?;
                            recorder.upload(&array, 0, &vec![n; len as usize])?;
                            arrays.push((n, array));
                        }
                    }
                    for (n, array) in &arrays {
                        assert_eq!(recorder.download(array, 0, array.len())?, vec![*n; array.len() as usize]);
                    }
                }
                let mut exchange = exchange.with_wire(Wire::Exact);
                let side = Side::new(recorder, plan, comm.rank(), MAPPED)?;
                side.start(recorder, &mut exchange)?.finish(recorder)?;
                side.check(recorder, "after a dropped one")
            });
        }
    }
}

/// Returns what blocks of 16-bit integers make of a part.
fn rounded(part: &[f32]) -> Vec<f32> {
    let block = |block: &[f32]| -> Vec<f32> {
        if block.iter().any(|x| !x.is_finite()) {
            return vec![f32::NAN; block.len()];
        }
        let largest = block.iter().fold(0f64, |most, &x| most.max(f64::from(x).abs()));
        let exponent = if largest == 0.0 { -126 } else { (largest.log2().floor() as i32 - 14).max(-126) };
        let step = 2f64.powi(exponent);
        let round = |x: &f32| (f64::from(*x) / step).round_ties_even().clamp(-32767.0, 32767.0) * step;
        block.iter().map(|x| round(x) as f32).collect()
    };
    part.chunks(64).flat_map(block).collect()
}

/// Values of any magnitude, differing more between blocks than inside; some blocks all zero.
fn sample(from: usize, to: usize, i: u64) -> f32 {
    let n = mix((from as u64) << 50 | (to as u64) << 40 | i);
    let m = mix(77 + from as u64 + 13 * (i / 64));
    let scale = [0.0, 1.0, 1e-37, 3e38, 1e-41, 1e10][(m % 6) as usize];
    let x = (n % 2_000_001) as f64 / 1e6 - 1.0;
    (x * x * x * scale) as f32
}

/// Moves samples in parts of these lengths from every rank to every rank.
fn move_samples<T: DeviceElement>(options: &Options, lens: &[u64], words: usize, make: fn(&[f32]) -> Vec<T>) {
    let ranks = 3;
    on_ranks(options, ranks, |comm, recorder| {
        let me = comm.rank();
        let len = |from: usize, to: usize| lens[(from + 2 * to) % lens.len()];
        let data = |from: usize, to: usize| -> Vec<f32> {
            (0..len(from, to) * words as u64).map(|i| sample(from, to, i)).collect()
        };
        let (mut transfers, mut outgoing, mut at) = (Transfers::default(), Vec::new(), [1u64; 2]);
        outgoing.resize(words, 9.0);
        for peer in 0..ranks {
            let [out, inn] = &mut at;
            transfers.send.push(Transfer { peer, start: *out, len: len(me, peer) });
            transfers.receive.push(Transfer { peer, start: *inn, len: len(peer, me) });
            outgoing.extend(data(me, peer));
            (*out, *inn) = (*out + len(me, peer), *inn + len(peer, me));
        }
        let gpu = recorder.gpu().clone();
        let from = gpu.array::<T>("outgoing", at[0])?;
        let to = gpu.array::<T>("incoming", at[1] + 1)?;
        recorder.upload(&from, 0, &make(&outgoing))?;
        recorder.upload(&to, 0, &make(&vec![5.5; (at[1] + 1) as usize * words]))?;

        let mut exchange = Exchange::new(comm.clone()).with_chunks(1000, 2).with_wire(Wire::Block16);
        assert_eq!(exchange.wire(), Wire::Block16);
        exchange.run(recorder, &transfers, &from, &to)?;

        let got: Vec<T> = recorder.download(&to, 0, to.len())?;
        let got: &[f32] = bytemuck::cast_slice(&got);
        let (first, rest) = got.split_at(words);
        assert!(first.iter().chain(&rest[rest.len() - words..]).all(|&x| x == 5.5), "others' elements are touched");
        let mut rest = rest;
        for peer in 0..ranks {
            let want = data(peer, me);
            let (part, after) = rest.split_at(want.len());
            rest = after;
            if peer == me {
                assert!(part == want, "a rank's own part is exact");
                continue;
            }
            for (i, (got, expected)) in part.iter().zip(rounded(&want)).enumerate() {
                assert_eq!(*got, expected, "value {i} of {} from {peer} to {me}, it was {}", want.len(), want[i]);
            }
            for (got, want) in part.chunks(64).zip(want.chunks(64)) {
                let largest = want.iter().fold(0f64, |most, &x| most.max(f64::from(x).abs()));
                let bound = (largest * 2f64.powi(-15)).max(2f64.powi(-126));
                assert!(got.iter().zip(want).all(|(&a, &b)| (f64::from(a) - f64::from(b)).abs() <= bound));
            }
        }
        let sent: u64 = transfers.send.iter().filter(|part| part.peer != me).map(|part| part.len * words as u64).sum();
        let (cost, exact) = (exchange.cost().sent_bytes, 4 * sent);
        if sent > 1000 {
            assert!(cost * 64 <= exact * 34, "{cost} bytes for {exact}");
        }
        assert!(cost >= exact / 2);
        Ok(())
    });
}

#[test]
fn values_in_blocks_of_16_bits_keep_within_the_bound() {
    for options in devices() {
        move_samples::<f32>(&options, &[1, 64, 63, 0, 65, 130], 1, <[f32]>::to_vec);
        move_samples::<[f32; 2]>(&options, &[1, 31, 32, 0, 33, 130], 2, |x| bytemuck::cast_slice(x).to_vec());
        move_samples::<f32>(&options, &[700, 801], 1, <[f32]>::to_vec);
    }
    // Many workgroups.
    move_samples::<f32>(&devices()[0], &[70_001, 90_003], 1, <[f32]>::to_vec);
}

#[test]
fn what_is_not_finite_takes_its_block_with_it() {
    for (options, bad) in devices().into_iter().zip([f32::NAN, f32::INFINITY, f32::NEG_INFINITY]) {
        on_ranks(&options, 2, |comm, recorder| {
            let (me, other) = (comm.rank(), 1 - comm.rank());
            let mut values: Vec<f32> = (0..2 * 200).map(|i| i as f32).collect();
            values[70] = bad;
            values[199] = bad;
            values[200 + 70] = bad;
            values[200 + 71] = f32::from_bits(0x7fa0_1234);
            let gpu = recorder.gpu().clone();
            let [from, to] = [gpu.array::<u32>("from", 400)?, gpu.array::<u32>("to", 400)?];
            let bits: Vec<u32> = values.iter().map(|x| x.to_bits()).collect();
            recorder.upload(&from, 0, &bits)?;
            let parts = vec![Transfer { peer: other, start: 0, len: 200 }, Transfer { peer: me, start: 200, len: 200 }];
            let transfers = Transfers { send: parts.clone(), receive: parts };
            let mut exchange = Exchange::new(comm.clone()).with_wire(Wire::Block16);
            exchange.run(recorder, &transfers, &from.cast::<f32>()?, &to.cast::<f32>()?)?;
            let got = recorder.download(&to, 0, 400)?;
            for (i, got) in got[..200].iter().map(|&bits| f32::from_bits(bits)).enumerate() {
                let lost = (64..128).contains(&i) || i >= 192;
                assert!(if lost { got.is_nan() } else { got == i as f32 }, "{got} at {i}");
            }
            assert!(got[200..] == bits[200..], "a rank's own part is exact");

            // Anything but f32 travels as it is.
            exchange.run(recorder, &transfers, &from, &to)?;
            assert!(recorder.download(&to, 0, 400)? == bits);
            Ok(())
        });
    }
}

#[test]
fn arrays_on_their_way_are_refused_and_come_back() {
    for options in devices() {
        on_ranks(&options, 2, |comm, recorder| {
            let gpu = recorder.gpu().clone();
            let outgoing = gpu.array_in::<u32>("outgoing", 5, MemoryKind::Outgoing)?;
            let incoming = gpu.array_in::<u32>("incoming", 5, MemoryKind::Incoming)?;
            let other = gpu.array::<u32>("other", 5)?;
            recorder.upload(&outgoing, 0, &[comm.rank() as u32; 5])?;
            let part = Transfer { peer: 1 - comm.rank(), start: 0, len: 5 };
            let transfers = Transfers { send: vec![part], receive: vec![part] };
            let mut exchange = Exchange::new(comm.clone());
            if comm.rank() == 1 {
                // Nothing arrives at rank 0 before.
                comm.barrier()?;
            }
            let pending = exchange.start(recorder, &transfers, &outgoing, &incoming)?;
            if comm.rank() == 0 {
                let away = |result: Result<(), DeviceError>| {
                    let Err(DeviceError::Misuse { why, .. }) = result else { panic!("{result:?}") };
                    assert!(why.contains("finish the exchange"), "{why}");
                };
                away(recorder.download(&incoming, 0, 5).map(drop));
                away(recorder.upload(&incoming, 0, &[9; 5]));
                recorder.copy(&incoming, 0, &other, 0, 5)?;
                away(recorder.submit());
                comm.barrier()?;
            }
            pending.finish(recorder)?;
            if comm.rank() == 0 {
                // What was recorded has waited for the array.
                assert_eq!(recorder.download(&other, 0, 5)?, [1; 5]);
            }
            assert_eq!(recorder.download(&incoming, 0, 5)?, [1 - comm.rank() as u32; 5]);
            Ok(())
        });
    }
}

#[test]
fn staging_is_bounded_and_kept_also_where_a_rank_only_receives() {
    // A device that no other test has.
    let options = Options { floor: true, window_bytes: Some(1 << 26), ..meshloom_sanitizer::options().unwrap() };
    on_ranks(&options, 2, |comm, recorder| {
        let (chunk, depth, len) = (1 << 14, 4, 100 << 12);
        let mut exchange = Exchange::new(comm.clone()).with_chunks(chunk, depth);
        let gpu = recorder.gpu().clone();
        let [from, to] = [gpu.array::<u32>("from", len)?, gpu.array::<u32>("to", len)?];
        let data: Vec<u32> = (0..len as u32).collect();
        recorder.upload(&from, 0, &data)?;
        let part = Transfer { peer: 1 - comm.rank(), start: 0, len };
        let transfers = match comm.rank() {
            0 => Transfers { send: vec![part], receive: Vec::new() },
            _ => Transfers { send: Vec::new(), receive: vec![part] },
        };
        comm.barrier()?;
        let (allocated, most) = (gpu.allocated(), exchange.staging_bytes(&gpu));
        assert_eq!(most, 2 * 4 * (1 << 14));
        comm.barrier()?;
        let mut allocations = None;
        for _ in 0..3 {
            exchange.run(recorder, &transfers, &from, &to)?;
            comm.barrier()?;
            // Of both ranks, which share the device: one sends, the other receives.
            assert!(gpu.allocated() <= allocated + most, "{} bytes", gpu.allocated() - allocated);
            assert_eq!(*allocations.get_or_insert(gpu.allocations()), gpu.allocations(), "staging is used again");
            comm.barrier()?;
        }
        if comm.rank() == 1 {
            assert!(recorder.download(&to, 0, len)? == data);
        }
        Ok(())
    });
}

#[test]
fn short_parts_of_many_peers_share_staging_buffers() {
    const RANKS: usize = 5;
    // A device that no other test has.
    let options = Options { floor: true, window_bytes: Some(1 << 25), ..meshloom_sanitizer::options().unwrap() };
    on_ranks(&options, RANKS, |comm, recorder| {
        let (gpu, me) = (recorder.gpu().clone(), comm.rank() as u32);
        let [from, to] = [gpu.array::<u32>("from", 40)?, gpu.array::<u32>("to", 40)?];
        recorder.upload(&from, 0, &(0..40).map(|i| 100 * me + i).collect::<Vec<u32>>())?;
        let part = |peer: usize| Transfer { peer, start: 8 * peer as u64, len: 8 };
        let parts: Vec<Transfer> = (0..RANKS).map(part).collect();
        let transfers = Transfers { send: parts.clone(), receive: parts };
        comm.barrier()?;
        let before = gpu.allocated();
        comm.barrier()?;
        Exchange::new(comm.clone()).run(recorder, &transfers, &from, &to)?;
        comm.barrier()?;
        // Of all ranks, which share the device: each has one of the least size to send from, and
        // one to receive into.
        assert_eq!(gpu.allocated() - before, 2 * RANKS as u64 * 4096);
        // A rank that ends gives up its own.
        comm.barrier()?;
        let expected = (0..40).map(|i| 100 * (i / 8) + 8 * me + i % 8);
        assert!(expected.eq(recorder.download(&to, 0, 40)?));
        Ok(())
    });
}

#[test]
fn what_is_recorded_runs_while_messages_are_waited_for() {
    let shown = Mutex::new(None);
    on_ranks(&meshloom_sanitizer::options().unwrap(), 2, |comm, recorder| {
        let side = Side::new(recorder, Plan { ranks: 2, most: 500, salt: 2 }, comm.rank(), MAPPED)?;
        if comm.rank() == 1 {
            // Nothing is sent to rank 0 before what it has recorded has run.
            let begun = Instant::now();
            loop {
                assert!(
                    begun.elapsed() < Duration::from_secs(60),
                    "what rank 0 has recorded does not run while it waits"
                );
                let array: Option<Array<u32>> = shown.lock().unwrap().clone();
                if let Some(array) = array
                    && recorder.download(&array, 0, 5)? == [7; 5]
                {
                    break;
                }
            }
        }
        let pending = side.start(recorder, &mut Exchange::new(comm.clone()))?;
        if comm.rank() == 0 {
            let [from, to] = [recorder.gpu().array::<u32>("from", 5)?, recorder.gpu().array::<u32>("to", 5)?];
            recorder.upload(&from, 0, &[7; 5])?;
            recorder.upload(&to, 0, &[0; 5])?;
            recorder.copy(&from, 0, &to, 0, 5)?;
            *shown.lock().unwrap() = Some(to);
        }
        pending.finish(recorder)?;
        side.check(recorder, "while other work ran")
    });
}

#[test]
fn chunks_travel_in_pieces_where_messages_are_short() {
    for options in devices() {
        on_ranks(&options, 3, |comm, recorder| {
            // Chunks of 40 bytes in pieces of 13, and in whole pieces of 8.
            for most in [13, 8] {
                let mut exchange = Exchange::new(comm.with_max_message(most)).with_chunks(40, 3);
                let side = Side::new(recorder, Plan { ranks: 3, most: 90, salt: 21 }, comm.rank(), MAPPED)?;
                exchange.run(recorder, &side.transfers, &side.outgoing, &side.incoming)?;
                side.check(recorder, "in pieces")?;
            }
            Ok(())
        });
    }
}

#[test]
fn arrays_for_the_other_way_are_moved_all_the_same() {
    on_ranks(&meshloom_sanitizer::options().unwrap(), 2, |comm, recorder| {
        let gpu = recorder.gpu().clone();
        // Memory that the host may map for writing, to send from, and the reverse.
        let outgoing = gpu.array_in::<u32>("outgoing", 5, MemoryKind::Incoming)?;
        let incoming = gpu.array_in::<u32>("incoming", 5, MemoryKind::Outgoing)?;
        recorder.upload(&outgoing, 0, &[7 + comm.rank() as u32; 5])?;
        let part = Transfer { peer: 1 - comm.rank(), start: 0, len: 5 };
        let transfers = Transfers { send: vec![part], receive: vec![part] };
        Exchange::new(comm.clone()).run(recorder, &transfers, &outgoing, &incoming)?;
        assert_eq!(recorder.download(&incoming, 0, 5)?, [8 - comm.rank() as u32; 5]);
        Ok(())
    });
}
