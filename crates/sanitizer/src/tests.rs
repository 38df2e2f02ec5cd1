//! Tests of the interpreter: correct kernels have known results, and each wrong kernel has the
//! expected finding.

use super::comparison::Difference;
use super::interpreter::Interpreter;
use super::memory::Memory;
use super::program::Program;
use super::report::{Problem, Report};

/// Runs `text` over buffers of words, which it leaves changed.
fn run_over(text: &str, groups: [u32; 3], buffers: &mut [Vec<u32>]) -> Report {
    let program = Program::new(text).unwrap_or_else(|why| panic!("{why}"));
    let memory = |words: &Vec<u32>| Memory::of_buffer(bytemuck::cast_slice(words).to_vec());
    let mut interpreter = Interpreter::new(&program, 8, groups, buffers.iter().map(memory).collect());
    let report = interpreter.run(1 << 22);
    for (words, memory) in buffers.iter_mut().zip(&interpreter.buffers) {
        words.copy_from_slice(bytemuck::cast_slice(&memory.bytes));
    }
    report
}

/// A text whose 32 invocations run `body` with `x` and `y`, 64 words each, `n`, which is 3, and
/// workgroup memory.
fn kernel(body: &str) -> String {
    format!(
        "@group(0) @binding(0) var<uniform> n: u32;
         @group(0) @binding(1) var<storage, read_write> x: array<u32>;
         @group(0) @binding(2) var<storage, read_write> y: array<u32>;
         @group(0) @binding(3) var<storage, read_write> sum: atomic<u32>;
         var<workgroup> shared_words: array<u32, 64>;
         var<workgroup> total: atomic<u32>;
         var<private> own: array<u32, 4>;
         struct Pair {{ low: u32, high: vec2<f32> }}
         fn square(a: u32) -> u32 {{ if a == 0u {{ return 0u; }} return a * a; }}
         fn raise(count: ptr<function, u32>, by: u32) {{ *count += by; }}
         @compute @workgroup_size(32) fn main(
            @builtin(local_invocation_index) lane: u32, @builtin(workgroup_id) group: vec3<u32>,
            @builtin(subgroup_size) size: u32, @builtin(subgroup_invocation_id) place: u32
         ) {{
            let i = 32u * group.x + lane;
            {body}
         }}"
    )
}

/// Returns what `body` leaves in `x`, which begins as 0, 1, 2...; nothing may be found.
fn results(body: &str) -> Vec<u32> {
    let mut buffers = [vec![3], (0..64).collect(), vec![7; 64], vec![0]];
    let report = run_over(&kernel(body), [2, 1, 1], &mut buffers);
    assert!(
        report.findings.is_empty() && report.unknown.is_none() && report.unfinished.is_none(),
        "{body}: {report:?}"
    );
    buffers[1].clone()
}

#[test]
fn immediate_data_is_the_first_buffer() {
    let text = kernel("x[i] += n;").replace("@group(0) @binding(0) var<uniform> n", "var<immediate> n");
    let mut buffers = [vec![3], (0..64).collect(), vec![7; 64], vec![0]];
    let report = run_over(&text, [2, 1, 1], &mut buffers);
    assert!(report.findings.is_empty() && report.unknown.is_none() && report.unfinished.is_none(), "{report:?}");
    assert_eq!(buffers[1], (3..67).collect::<Vec<_>>());
}

#[test]
fn results_are_those_of_the_text() {
    let each = |f: &dyn Fn(u32) -> u32| (0..64).map(f).collect::<Vec<_>>();
    for (body, expected) in [
        ("x[i] = square(x[i]) + n;", each(&|i| i * i + 3)),
        (
            "var k = 0u; for (var j = 0u; j < i; j++) { if j == 5u { continue; } if j > 20u { break; } k += j; } x[i] = k;",
            each(&|i| (0..i.min(21)).filter(|j| *j != 5).sum()),
        ),
        (
            "switch i % 4u { case 0u: { x[i] = 9u; } case 1u, 2u: { if i > 8u { break; } x[i] = 8u; } default: { x[i] += 1u; } }",
            each(&|i| match i % 4 {
                0 => 9,
                1 | 2 => {
                    if i > 8 {
                        i
                    } else {
                        8
                    }
                }
                _ => i + 1,
            }),
        ),
        (
            "var k = i; loop { if k < 10u { break; } k -= 10u; continuing { raise(&k, 1u); break if k == 12u; } } x[i] = k;",
            each(&|i| {
                let mut k = i;
                while k >= 10 {
                    k -= 9;
                    if k == 12 {
                        break;
                    }
                }
                k
            }),
        ),
        (
            "own[i % 4u] = i; own[(i + 1u) % 4u] = 5u; x[i] = own[i % 4u] + own[(i + 1u) % 4u] + own[(i + 2u) % 4u];",
            each(&|i| i + 5),
        ),
        (
            "var p = Pair(i, vec2<f32>(f32(i), 0.5)); p.high.y *= 4.0; let q = p; x[i] = u32(q.high.x * q.high.y) + q.low;",
            each(&|i| 3 * i),
        ),
        ("let v = vec3<u32>(i, 2u, 3u).zyx; x[i] = dot(v, vec3<u32>(1u, 10u, 100u));", each(&|i| 23 + 100 * i)),
        (
            "shared_words[lane] = x[i]; workgroupBarrier(); x[i] = shared_words[31u - lane];",
            each(&|i| i / 32 * 32 + 31 - i % 32),
        ),
        (
            "if lane == 0u { atomicStore(&total, 0u); } workgroupBarrier(); atomicAdd(&total, x[i]); workgroupBarrier(); x[i] = atomicLoad(&total);",
            each(&|i| if i < 32 { 496 } else { 1520 }),
        ),
        (
            "if lane == 0u { shared_words[0] = i; } x[i] = workgroupUniformLoad(&shared_words[0]);",
            each(&|i| i / 32 * 32),
        ),
        ("x[i] = subgroupAdd(x[i]);", each(&|i| (0..8).map(|k| i / 8 * 8 + k).sum())),
        (
            "x[i] = subgroupExclusiveAdd(x[i]) + subgroupInclusiveAdd(1u);",
            each(&|i| (i / 8 * 8..i).sum::<u32>() + i % 8 + 1),
        ),
        (
            "x[i] = subgroupShuffleXor(x[i], 1u) + 100u * size + 1000u * place;",
            each(&|i| (i ^ 1) + 800 + 1000 * (i % 8)),
        ),
        (
            "x[i] = subgroupBallot(i % 3u == 0u).x;",
            each(&|i| (0..8).map(|k| u32::from((i / 8 * 8 + k) % 3 == 0) << k).sum()),
        ),
        (
            "x[i] = subgroupMax(i % 5u) + u32(subgroupAny(i == 9u)) + u32(subgroupAll(i < 60u));",
            each(&|i| (0..8).map(|k| (i / 8 * 8 + k) % 5).max().unwrap() + u32::from(i / 8 == 1) + u32::from(i < 56)),
        ),
        (
            "x[i] = bitcast<u32>(f32(i) * 0.25) + u32(-1 - i32(i) >> 1u) + arrayLength(&y);",
            each(&|i| (i as f32 * 0.25).to_bits().wrapping_add(((-1 - i as i32) >> 1) as u32).wrapping_add(64)),
        ),
        // Undefined and raced values are harmless if no result depends on them.
        ("x[i] = select(i / (n - 3u), i << n, i >= 0u);", each(&|i| i << 3)),
        ("let idle = y[(i + 1u) % 64u]; y[i] = i; if lane == 99u { x[0] = idle; }", each(&|i| i)),
        (
            "if lane > 3u { shared_words[lane] = i; } workgroupBarrier(); let k = shared_words[lane]; x[i] = select(1u, k, lane > 3u);",
            each(&|i| if i % 32 > 3 { i } else { 1 }),
        ),
    ] {
        assert_eq!(results(body), expected, "{body}");
    }
}

#[test]
fn what_is_wrong_is_found() {
    for (body, problem, words) in [
        ("shared_words[lane] = i; x[i] = shared_words[31u - lane];", Problem::Race, "without order"),
        ("shared_words[lane] = i; storageBarrier(); x[i] = shared_words[31u - lane];", Problem::Race, "without order"),
        ("x[i] = i; workgroupBarrier(); y[i] = x[i ^ 1u];", Problem::Race, "writes without order"),
        ("y[i] = x[(i + 32u) % 64u]; x[i] = 1u;", Problem::Race, "of workgroup"),
        ("x[i / 2u] = i;", Problem::Race, "both write byte 0"),
        ("x[i % 32u] = i;", Problem::Race, "of workgroups 0 and 1"),
        (
            "shared_words[lane] = i; workgroupBarrier(); let k = shared_words[0]; shared_words[lane] = k; workgroupBarrier(); x[i] = shared_words[lane];",
            Problem::Race,
            "reads byte 0",
        ),
        (
            "if lane == 0u { atomicStore(&total, 0u); } atomicAdd(&total, 1u); x[i] = shared_words[lane];",
            Problem::Unwritten,
            "",
        ),
        ("x[i + 1u] = i;", Problem::OutOfBounds, "byte 256, of 256"),
        ("x[i] = y[64u + i - 1u];", Problem::OutOfBounds, "of 256 bytes"),
        ("own[i] = 1u;", Problem::OutOfBounds, "behind the end"),
        ("shared_words[2u * i + 1u] = 1u;", Problem::OutOfBounds, "behind the end"),
        ("x[i] = own[n + lane];", Problem::OutOfBounds, "behind the end"),
        ("x[i] = shared_words[lane];", Problem::Unwritten, "depends on it"),
        ("if shared_words[lane] > 3u { x[i] = 1u; }", Problem::Unwritten, "depends on it"),
        ("x[i] = x[min(shared_words[lane], 63u)];", Problem::Unwritten, "depends on it"),
        ("own[0] = shared_words[lane]; let k = own[0] + 1u; y[i] = square(k);", Problem::Unwritten, "depends on it"),
        ("if lane < 5u { workgroupBarrier(); }", Problem::Barrier, "5 of 32"),
        ("if lane > 5u { return; } workgroupBarrier();", Problem::Barrier, "6 of 32"),
        ("for (var j = 0u; j < lane; j++) { workgroupBarrier(); }", Problem::Barrier, "31 of 32"),
        ("if lane < 5u { x[i] = subgroupAdd(i); }", Problem::Subgroup, "5 invocations of subgroup 0"),
        ("x[i] = subgroupShuffle(i, place + 1u);", Problem::Subgroup, "asks for invocation 8"),
        ("x[i] = i / (n - 3u);", Problem::Undefined, "divided by zero"),
        ("x[i] = 1u << i;", Problem::Undefined, "shifted"),
        ("x[i] = u32(sqrt(-1.0 - f32(i)));", Problem::Undefined, "NaN"),
    ] {
        let mut buffers = [vec![3], (0..64).collect(), vec![7; 64], vec![0]];
        let report = run_over(&kernel(body), [2, 1, 1], &mut buffers);
        assert!(report.unknown.is_none() && report.unfinished.is_none(), "{body}: {report:?}");
        let found = report.findings.iter().find(|found| found.problem == problem);
        let found = found.unwrap_or_else(|| panic!("{body}: {report:?}")).to_string();
        assert!(found.contains(words) && found.contains("at line"), "{body}: {found}");
    }
}

#[test]
fn a_dispatch_ends_with_its_steps() {
    let report = run_over(
        &kernel("loop { if x[0] == 77u { break; } }"),
        [1, 1, 1],
        &mut [vec![3], vec![0; 64], vec![0; 64], vec![0]],
    );
    assert_eq!((report.unfinished, report.unknown, report.findings), (Some(0), None, Vec::new()));
}

#[test]
fn sectors_and_conflicts_are_counted_by_subgroups_of_eight() {
    let traffic = |body: &str| {
        let program = Program::new(&kernel(body)).unwrap();
        let buffers = [vec![3], vec![0; 64], vec![7; 512], vec![0]];
        let memory = |words: &Vec<u32>| Memory::of_buffer(bytemuck::cast_slice(words).to_vec());
        let mut interpreter = Interpreter::new(&program, 8, [2, 1, 1], buffers.iter().map(memory).collect());
        interpreter.counts = true;
        let report = interpreter.run(1 << 22);
        assert!(report.findings.is_empty(), "{report:?}");
        report.traffic.unwrap()
    };
    let of = |body: &str| (traffic(body).requests, traffic(body).wanted, traffic(body).moved);
    // Eight subgroups of eight words: one sector of 32 bytes for all words, one sector for each
    // word, or one word that all lanes read.
    assert_eq!(of("x[i] = n;"), (8, 256, 256));
    assert_eq!(of("y[8u * i] = n;"), (8, 256, 8 * 8 * 32));
    assert_eq!(of("own[0] = y[n];"), (8, 32, 256));
    assert_eq!(of("atomicAdd(&sum, 1u);"), (8, 32, 256));
    let conflicts = |body: &str| traffic(body).cycles / traffic(body).needed;
    assert_eq!(conflicts("shared_words[lane] = 1u;"), 1.0);
    assert_eq!(conflicts("if lane < 8u { shared_words[8u * lane] = 1u; }"), 2.0);
}

#[test]
fn a_device_may_round_the_product_of_an_fma() {
    // (1 + 2^-12)^2 - 1 - 2^-11 is 2^-24, which the rounded product has lost.
    let body = "let a = 1.0 + 1.0 / 4096.0 * f32(n - 2u); x[i] = bitcast<u32>(fma(a, a, -1.0 - 1.0 / 2048.0));";
    let program = Program::new(&kernel(body)).unwrap();
    for (fused, want) in [(true, 2f32.powi(-24)), (false, 0.0)] {
        let buffers = [vec![3u32], vec![9; 64], vec![7; 64], vec![0]];
        let memory = |words: &Vec<u32>| Memory::of_buffer(bytemuck::cast_slice(words).to_vec());
        let mut interpreter = Interpreter::new(&program, 8, [2, 1, 1], buffers.iter().map(memory).collect());
        interpreter.fused = fused;
        assert!(interpreter.run(1 << 22).findings.is_empty());
        assert_eq!(interpreter.buffers[1].bytes[..4], want.to_bits().to_le_bytes(), "{fused}");
    }
}

/// Runs `body` over `x` and `y`, and compares the results with the same buffers except one changed
/// word.
fn differences(body: &str, buffer: usize, word: usize, other: u32) -> Vec<Difference> {
    let program = Program::new(&kernel(body)).unwrap_or_else(|why| panic!("{why}"));
    let words = [vec![3], (0..64).collect::<Vec<u32>>(), vec![7; 64], vec![0]];
    let memory = |words: &Vec<u32>| Memory::of_buffer(bytemuck::cast_slice(words).to_vec());
    let mut interpreter = Interpreter::new(&program, 8, [2, 1, 1], words.iter().map(memory).collect());
    let report = interpreter.run(1 << 22);
    assert!(report.findings.is_empty() && report.unknown.is_none(), "{report:?}");
    let mut device: Vec<Vec<u8>> = interpreter.buffers.iter().map(|memory| memory.bytes.clone()).collect();
    device[buffer][4 * word..][..4].copy_from_slice(&other.to_le_bytes());
    (1..4).filter_map(|binding| interpreter.compare(binding, &device[binding])).collect()
}

#[test]
fn a_device_that_has_something_else_is_seen() {
    // Written, and not written.
    for (word, line) in [(40, Some("x[i] = square(i);")), (5, None)] {
        let body = "if i > 31u { x[i] = square(i); }";
        let found = differences(body, 1, word, 77);
        let [found] = found.as_slice() else { panic!("{found:?}") };
        let text = if line.is_some() { "1600" } else { "5" };
        assert_eq!([found.words, found.binding, found.word], [1, 1, word]);
        assert_eq!([&*found.device, &*found.text], ["77", text]);
        assert_eq!(found.line.is_some(), line.is_some());
        assert!(found.line.iter().all(|(_, line)| body.contains(line.as_str())), "{found}");
        assert!(found.to_string().contains("77 for"), "{found}");
    }
    assert_eq!(differences("x[i] = i;", 1, 9, 9), []);
}

#[test]
fn floats_may_be_rounded() {
    let body = "y[i] = bitcast<u32>(f32(i));";
    // Bits of a float that are a whole number are that.
    assert_eq!(differences(body, 2, 9, 9.001_f32.to_bits()).len(), 1);
    let floats = |body: &str, other: f32| {
        let text =
            kernel(body).replace("var<storage, read_write> y: array<u32>", "var<storage, read_write> y: array<f32>");
        let program = Program::new(&text).unwrap();
        let buffers = [4, 256, 256, 4].map(|bytes| Memory::of_buffer(vec![0; bytes]));
        let mut interpreter = Interpreter::new(&program, 8, [2, 1, 1], buffers.into());
        assert!(interpreter.run(1 << 22).findings.is_empty());
        let mut device = interpreter.buffers[2].bytes.clone();
        device[36..40].copy_from_slice(&other.to_le_bytes());
        interpreter.compare(2, &device).is_some()
    };
    // The largest is 63: up to 63 / 1024 of a difference is rounding.
    for (other, differs) in
        [(9.0, false), (9.06, false), (8.94, false), (9.07, true), (f32::NAN, true), (f32::INFINITY, true)]
    {
        assert_eq!(floats("y[i] = f32(i);", other), differs, "{other}");
    }
    let nan = "y[i] = select(f32(i), bitcast<f32>(0x7fc00000u | i), i == 9u);";
    assert!(!floats(nan, f32::from_bits(0x7fc0_1234)) && floats(nan, 0.0));
}

#[test]
fn what_depends_on_an_order_is_left_out() {
    for (body, differs) in [
        // The sum does not, what each found there does, and where it puts something.
        ("y[i] = i; let before = atomicAdd(&sum, 1u);", true),
        ("y[i] = atomicAdd(&sum, 1u);", false),
        ("y[atomicAdd(&sum, 1u)] = i;", false),
        ("let before = atomicAdd(&sum, 1u); if before == 9u { y[9] = i; }", false),
        ("y[i] = x[atomicAdd(&sum, 1u)];", false),
        ("y[i] = select(1u, 2u, atomicAdd(&sum, 1u) > 30u);", false),
    ] {
        assert_eq!(!differences(body, 2, 9, 1000).is_empty(), differs, "{body}");
    }
    assert_eq!(differences("atomicAdd(&sum, i);", 3, 0, 5).len(), 1);
    assert_eq!(differences("let before = atomicExchange(&sum, i);", 3, 0, 5), []);
}
