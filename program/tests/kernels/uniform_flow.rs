//! Votes and barriers stand where all invocations come to them, in every form of every kernel.

use super::uniformity::{Scope, check};
use meshloom::fft::{self, Limits, Precision};
use meshloom::gpu::{KernelSource, Profile, Variant};
use meshloom::points::neighbors::{self, GroupShape, Lanes};
use naga::Module;

const LIMITS: Limits = Limits {
    workgroup_bytes: 48 << 10,
    invocations: 1024,
    points: 16,
    alone: 16,
    shared: true,
    columns: 16,
    cache_bytes: 0,
};

fn module(source: &KernelSource) -> Module {
    let windows = vec![1; source.slots().unwrap().len()];
    let shape = Profile::Gpu.workgroup_shape();
    let variant = Variant::plain(&windows, 1 << 20, shape);
    let text = source.wgsl(&variant).unwrap();
    naga::front::wgsl::parse_str(&text).unwrap_or_else(|e| panic!("{}: {}", source.label(), e.emit_to_string(&text)))
}

#[test]
fn all_come_to_every_vote_and_every_barrier() {
    let transforms = fft::line_kernels(Precision::Single, &[60, 256, 323, 2039, 4096], LIMITS);
    let transforms = transforms.into_iter().chain(fft::whole_kernels(Precision::Single, LIMITS));
    let forms = [(4, 4, 8), (8, 8, 4), (32, 64, 1)];
    let forms =
        forms.map(|(least, workgroup, slots)| GroupShape { lanes: Lanes::Subgroup { least, workgroup }, slots });
    let searches = forms.into_iter().flat_map(|form| neighbors::kernels_in(form, &[1, 32]));
    let all = meshloom_program::kernels().into_iter().chain(searches).chain(transforms);
    let (mut votes, mut barriers, mut wrong) = (0, 0, Vec::new());
    for source in all {
        let module = module(&source);
        for (scope, met) in [(Scope::Subgroup, &mut votes), (Scope::Workgroup, &mut barriers)] {
            match check(&module, scope) {
                Ok(places) => *met += usize::from(places > 0),
                Err(why) => wrong.push(format!("{}: {why}", source.label())),
            }
        }
    }
    assert!(wrong.is_empty(), "{} kernels: {}", wrong.len(), wrong.join("\n"));
    assert!(votes > 100 && barriers > 100, "{votes} kernels with votes, {barriers} with barriers");
}

/// Returns what `check` says of an entry point with this body.
fn of(scope: Scope, body: &str) -> Result<usize, String> {
    let text = format!(
        "@group(0) @binding(0) var<uniform> n: u32;
         @group(0) @binding(1) var<storage, read> fixed: array<u32>;
         @group(0) @binding(2) var<storage, read_write> data: array<u32>;
         var<workgroup> x: array<u32, 64>;
         var<workgroup> y: u32;
         var<private> kept: u32;
         var<private> own: u32;
         fn helper() {{ workgroupBarrier(); }}
         fn hasty(lane: u32) {{ if lane < n {{ return; }} helper(); }}
         fn harmless(lane: u32) -> u32 {{ if lane < n {{ return 1u; }} return 2u; }}
         fn step(count: ptr<function, u32>) {{ *count -= 1u; }}
         fn blur(count: ptr<function, u32>, by: u32) {{ *count -= by; }}
         fn any(yes: bool) -> bool {{ return subgroupAny(yes); }}
         @compute @workgroup_size(64) fn main(
            @builtin(local_invocation_index) lane: u32, @builtin(subgroup_size) size: u32, @builtin(subgroup_id) id: u32
         ) {{ own = lane; {body} }}"
    );
    check(&naga::front::wgsl::parse_str(&text).unwrap_or_else(|e| panic!("{}", e.emit_to_string(&text))), scope)
}

#[test]
fn barriers_that_some_might_miss_are_found() {
    let good = "x[lane] = harmless(lane); workgroupBarrier();";
    for (body, barriers) in [
        (format!("{good} if lane < n {{ x[0] = 1u; }} {{ storageBarrier(); }} {good}"), 4),
        (format!("{good} if lane < n {{ return; }} x[1] = 2u;"), 2),
        (format!("{good} if n > 3u {{ helper(); }}"), 2),
        (
            "for (var i = 0u; i < n; i++) { workgroupBarrier(); while data[i + lane] > 3u { data[lane] += 1u; } }"
                .into(),
            2,
        ),
        ("var k = 3u; loop { if workgroupUniformLoad(&y) == 0u || k == 0u { break; } step(&k); helper(); }".into(), 2),
        ("if fixed[n] > 3u { workgroupBarrier(); }".into(), 2),
        ("if lane > 3u { if n > 3u { data[lane] = 1u; } } workgroupBarrier();".into(), 2),
    ] {
        // `helper` is there in any case.
        assert_eq!(of(Scope::Workgroup, &body), Ok(barriers), "{body}");
    }
    for bad in [
        "if lane < n { workgroupBarrier(); }",
        "if lane < n { x[0] = 1u; } else { { storageBarrier(); } }",
        "for (var i = 0u; i < lane; i++) { workgroupBarrier(); }",
        "switch lane { case 0u: { workgroupBarrier(); } default: {} }",
        "if lane < n { x[lane] = workgroupUniformLoad(&y); }",
        "if lane < n { return; } workgroupBarrier();",
        "{ loop { if lane < n { return; } break; } } { workgroupBarrier(); }",
        "loop { if n > 3u { break; } if lane < 3u { continue; } workgroupBarrier(); }",
        "loop { if lane > 3u { break; } helper(); }",
        "if lane < n { helper(); }",
        "if lane < n { return; } helper();",
        "hasty(lane);",
        "if data[0] > 3u { helper(); }",
        "if y > 3u { helper(); }",
        "if own > 3u { helper(); }",
        "if kept > 3u { helper(); }",
        "if id > 3u { helper(); }",
        "if any(lane > n) { helper(); }",
        "var k = 3u; blur(&k, lane); if k > 1u { helper(); }",
        "var k = 3u; if lane > 3u { k = 4u; } if k > 3u { helper(); }",
        "x[0] = workgroupUniformLoad(&x[lane]);",
    ] {
        let error = of(Scope::Workgroup, bad).expect_err(bad);
        assert!(error.contains("not reached by all of a Workgroup"), "{bad}: {error}");
    }
}

#[test]
fn votes_that_some_might_miss_are_found() {
    for good in [
        "if any(lane > n) { data[lane] = subgroupAdd(lane); }",
        "var b = subgroupBallot(lane > 3u).x; while b != 0u { data[lane] = subgroupShuffle(lane, firstTrailingBit(b)); b &= b - 1u; }",
        "if subgroupShuffle(lane, n) > 3u { if any(lane > 1u) { data[lane] = 1u; } }",
        "for (var t = 0u; t < 32u; t += size) { while data[lane] > 3u { data[lane] -= 1u; } kept += u32(any(lane > t)); }",
        "kept = subgroupMax(lane); loop { if kept == 0u { break; } kept -= subgroupMin(lane); }",
        "if id > 1u { if any(lane > 1u) { return; } } data[lane] = subgroupAdd(lane);",
    ] {
        assert!(of(Scope::Subgroup, good).is_ok(), "{good}: {:?}", of(Scope::Subgroup, good));
    }
    for bad in [
        "if lane > 3u { data[lane] = subgroupAdd(lane); }",
        "if lane > 3u && any(lane > 5u) { data[lane] = 1u; }",
        "if subgroupShuffle(lane, lane) > 3u { data[lane] = u32(any(true)); }",
        "if subgroupShuffleXor(lane, 1u) > 3u { data[lane] = u32(any(true)); }",
        "while data[lane] > 3u { if any(lane > n) { break; } }",
        "own = subgroupMax(lane); if own > 3u { data[lane] = u32(any(true)); }",
        "if data[0] > 3u { return; } kept = subgroupAdd(lane);",
    ] {
        let error = of(Scope::Subgroup, bad).expect_err(bad);
        assert!(error.contains("not reached by all of a Subgroup"), "{bad}: {error}");
    }
}
