//! Stacks of vectors: work that is recorded once for several.

use std::collections::BTreeSet;

use super::every_operator::CASES;
use super::ranks::{on_grid, options};
use meshloom::Rank;
use meshloom::inference::VectorSpace;
use meshloom::operators::{Contents, Leaf, Model, OperatorError, Space, Vector, random_field};

const COPIES: usize = 3;

/// Returns all numbers of a vector.
fn numbers(rank: &mut Rank, vector: &Vector) -> Result<Vec<u64>, OperatorError> {
    let mut found = Vec::new();
    for contents in vector.contents() {
        match contents {
            Contents::Device(array) => {
                let values = rank.recorder.download(array, 0, array.len())?;
                found.extend(values.iter().map(|value| u64::from(value.to_bits())));
            }
            Contents::Host(values) => found.extend(values.iter().map(|value| value.to_bits())),
        }
    }
    Ok(found)
}

/// Returns the value and both derivatives at a vector, or at those of a stack.
fn all(rank: &mut Rank, model: &Model, [x, dx, dy]: [&Vector; 3]) -> Result<[Vector; 3], OperatorError> {
    let at = model.at(rank, x)?;
    let mut tangent = Vector::new(&rank.gpu, model.target())?;
    at.jvp(rank, dx, &mut tangent)?;
    let mut cotangent = Vector::new(&rank.gpu, model.domain())?;
    at.vjp(rank, dy, &mut cotangent)?;
    Ok([at.value.clone(), tangent, cotangent])
}

/// Runs `work` on a stack; `None` if it cannot be recorded so.
fn stacked<T>(
    rank: &mut Rank,
    like: &Vector,
    mut work: impl FnMut(&mut Rank) -> Result<T, OperatorError>,
) -> Option<T> {
    let mut made = None;
    let is_made = rank.stacked(like, COPIES, &mut |rank| {
        made = Some(work(rank)?);
        Ok(())
    });
    made.filter(|_| is_made.unwrap())
}

/// Returns a stack of random vectors, and each of them by itself.
fn random(rank: &mut Rank, space: &Space, seed: u64) -> Result<Option<(Vector, Vec<Vector>)>, OperatorError> {
    let singles: Vec<Vector> =
        (0..COPIES as u64).map(|n| random_field(rank, space, seed + n)).collect::<Result<_, _>>()?;
    let Some(stack) = stacked(rank, &singles[0], |rank| Ok(Vector::new(&rank.gpu, space)?)) else { return Ok(None) };
    for (number, one) in singles.iter().enumerate() {
        let mut entry = rank.entry(&stack, number).unwrap();
        VectorSpace::axpby(rank, 1.0, one, 0.0, &mut entry).unwrap();
    }
    Ok(Some((stack, singles)))
}

/// Operators that a stack refuses: they have numbers on the host, wait for the device, or write to
/// arrays of their own.
const REFUSED: &[&str] =
    &["HostFunction", "HostMap", "Join", "OnHost", "Paint", "RankCollective", "SimulationOperator", "ToDevice"];

#[test]
fn entries_that_a_stack_does_not_have_are_refused() {
    on_grid([1, 1], &options()[0], |rank| {
        let space = Space::of("x", Leaf::vector(70))?;
        let (stack, singles) = random(rank, &space, 1)?.unwrap();
        assert!(rank.entry(&singles[0], 0).is_ok());
        for (vector, number) in [(&stack, COPIES), (&stack, usize::MAX), (&singles[0], 1)] {
            let error = rank.entry(vector, number).unwrap_err().to_string();
            assert!(error.contains("expected vectors 0 to"), "{error}");
        }
        for (entries, words) in [(2..4, "0 to 2"), (0..3, "power of two"), (1..1, "power of two")] {
            let error = rank.sum_of_entries(&stack, entries).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
        let sum = rank.sum_of_entries(&stack, 1..3).unwrap();
        let [sum, a, b] = [&sum, &singles[1], &singles[2]].map(|vector| vector.get(&mut rank.recorder, "x").unwrap());
        for ((sum, a), b) in sum.iter().zip(&a).zip(&b) {
            assert_eq!(*sum as f32, *a as f32 + *b as f32);
        }
        Ok(())
    });
}

#[test]
fn operators_of_a_stack_have_the_bits_of_one_vector_after_the_other() {
    on_grid([1, 1], &options()[0], |rank| {
        let mut refused = BTreeSet::new();
        for case in CASES {
            for model in case.models(rank)? {
                let [domain, target] = [model.domain().clone(), model.target().clone()];
                let stacks = [random(rank, &domain, 10)?, random(rank, &domain, 20)?, random(rank, &target, 30)?];
                let [Some((x, xs)), Some((dx, dxs)), Some((dy, dys))] = stacks else {
                    refused.insert(case.name);
                    continue;
                };
                rank.recorder.submit()?;
                let before = rank.recorder.counts().dispatches;
                let Some(found) = stacked(rank, &x, |rank| all(rank, &model, [&x, &dx, &dy])) else {
                    refused.insert(case.name);
                    continue;
                };
                rank.recorder.submit()?;
                let together = rank.recorder.counts().dispatches - before;
                let mut apart = 0;
                for number in 0..COPIES {
                    rank.recorder.submit()?;
                    let before = rank.recorder.counts().dispatches;
                    let wanted = all(rank, &model, [&xs[number], &dxs[number], &dys[number]])?;
                    rank.recorder.submit()?;
                    apart += rank.recorder.counts().dispatches - before;
                    for (stack, one) in found.iter().zip(&wanted) {
                        let entry = rank.entry(stack, number).unwrap();
                        let [found, wanted] = [numbers(rank, &entry)?, numbers(rank, one)?];
                        assert_eq!(found, wanted, "{}: {model:?}, copy {number}", case.name);
                    }
                }
                assert_eq!(apart, COPIES as u64 * together, "{}: {model:?}", case.name);
            }
        }
        assert_eq!(refused, REFUSED.iter().copied().collect());
        Ok(())
    });
}

#[test]
fn several_ranks_have_no_stacks() {
    on_grid([1, 2], &options()[0], |rank| {
        let like = random_field(rank, &Space::of("x", Leaf::vector(70))?, 1)?;
        assert_eq!(rank.most_stacked(&like), 1);
        assert!(stacked(rank, &like, |rank| Ok(Vector::new(&rank.gpu, like.space())?)).is_none());
        Ok(())
    });
}
