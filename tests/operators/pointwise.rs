//! Pointwise functions and their derivatives, against finite differences of expressions that are
//! computed here.

use meshloom::operators::{Pointwise, PointwiseError};

/// Numbers from a counter (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, below: u64) -> u64 {
        self.next() % below
    }

    /// Returns a multiple of 1/64 between -2 and 2, which f32 holds.
    fn number(&mut self) -> f64 {
        (self.below(257) as f64 - 128.0) / 64.0
    }
}

/// An expression in `x`, `y` and `z`, with its text and its value.
enum Tree {
    Variable(usize),
    /// `x` times a number: the compiler would round what is computed of numbers alone to f32.
    Scaled(f64),
    One(usize, Box<Tree>),
    Two(usize, Box<Tree>, Box<Tree>),
    Select(Box<[Tree; 4]>),
}

type Function1 = (&'static str, fn(f64) -> f64);
type Function2 = (&'static str, fn(f64, f64) -> f64);

/// Texts with `$` for the operand, which keep within the domain of each function and its values
/// small.
const ONE: &[Function1] = &[
    ("(-$)", |a| -a),
    ("abs($)", f64::abs),
    ("sign($ + 0.015625)", |a| (a + 0.015625).signum()),
    ("floor($)", f64::floor),
    ("ceil($)", f64::ceil),
    ("trunc($)", f64::trunc),
    ("fract($)", |a| a - a.floor()),
    ("sqrt(1.5 + abs($))", |a| (1.5 + a.abs()).sqrt()),
    ("inverseSqrt(0.5 + $ * $)", |a| (0.5 + a * a).sqrt().recip()),
    ("exp(-abs($))", |a| (-a.abs()).exp()),
    ("exp2(sin($))", |a| a.sin().exp2()),
    ("log(1.25 + $ * $)", |a| (1.25 + a * a).ln()),
    ("log2(2.0 + abs($))", |a| (2.0 + a.abs()).log2()),
    ("sin($)", f64::sin),
    ("cos($)", f64::cos),
    ("tan(0.5 * sin($))", |a| (0.5 * a.sin()).tan()),
    ("asin(0.75 * cos($))", |a| (0.75 * a.cos()).asin()),
    ("acos(0.75 * sin($))", |a| (0.75 * a.sin()).acos()),
    ("atan($)", f64::atan),
    ("sinh(tanh($))", |a| a.tanh().sinh()),
    ("cosh(atan($))", |a| a.atan().cosh()),
    ("tanh($)", f64::tanh),
    ("asinh($)", f64::asinh),
    ("acosh(1.5 + $ * $)", |a| (1.5 + a * a).acosh()),
    ("atanh(0.75 * sin($))", |a| (0.75 * a.sin()).atanh()),
    ("radians($)", f64::to_radians),
    ("degrees(0.03125 * $)", |a| (0.03125 * a).to_degrees()),
    ("saturate($)", |a| a.clamp(0.0, 1.0)),
    ("clamp($, -0.5, 0.75)", |a| a.clamp(-0.5, 0.75)),
    ("smoothstep(-1.0, 2.0, $)", |a| {
        let t = ((a + 1.0) / 3.0).clamp(0.0, 1.0);
        t * t * (3.0 - 2.0 * t)
    }),
    ("pow(abs($) + 0.5, 2.0)", |a| (a.abs() + 0.5).powi(2)),
    ("pow(abs($) + 0.5, -1.5)", |a| (a.abs() + 0.5).powf(-1.5)),
    ("length(vec3($, 1.0, 0.5))", |a| (a * a + 1.25).sqrt()),
    ("normalize(vec2($, 1.0)).x", |a| a / (a * a + 1.0).sqrt()),
    ("helper($)", |a| if a > 0.25 { a * a } else { 0.0625 + 0.5 * (a - 0.25) }),
];

const TWO: &[Function2] = &[
    ("($ + %)", |a, b| a + b),
    ("($ - %)", |a, b| a - b),
    ("($ * %)", |a, b| a * b),
    ("($ / (1.5 + abs(%)))", |a, b| a / (1.5 + b.abs())),
    ("($ % (2.5 + abs(%)))", |a, b| {
        let b = 2.5 + b.abs();
        a - b * (a / b).trunc()
    }),
    ("pow(0.5 + abs($), sin(%))", |a, b| (0.5 + a.abs()).powf(b.sin())),
    ("min($, %)", f64::min),
    ("max($, %)", f64::max),
    ("atan2($, 1.5 + abs(%))", |a, b| a.atan2(1.5 + b.abs())),
    ("mix($, %, 0.25)", |a, b| 0.75 * a + 0.25 * b),
    ("fma($, %, 0.5)", |a, b| a * b + 0.5),
    ("step($, %)", |a, b| f64::from(u8::from(a <= b))),
    ("dot(vec2($, %), vec2(%, 1.0))", |a, b| a * b + b),
    ("distance(vec2($, %), vec2(3.0, -4.0))", |a, b| ((a - 3.0).powi(2) + (b + 4.0).powi(2)).sqrt()),
    ("cross(vec3($, %, 1.0), vec3(%, 1.0, $)).z", |a, b| a - b * b),
    ("reflect(vec2($, %), vec2(0.0, 1.0)).y", |_, b| -b),
];

/// Calls, branches and variables applied to a number.
const HELPER: &str = "
fn helper(a: f32) -> f32 {
    var v = vec2<f32>(a, 0.5);
    if a > 0.25 { return v.x * a; }
    v.x -= 0.25;
    let slope = v.y;
    return 0.0625 + slope * v.x;
}
";

impl Tree {
    fn new(random: &mut Random, depth: u32) -> Tree {
        match random.below(if depth == 0 { 4 } else { 16 }) {
            0..3 => Tree::Variable(random.below(3) as usize),
            3 => Tree::Scaled(random.number()),
            4..10 => Tree::One(random.below(ONE.len() as u64) as usize, Box::new(Tree::new(random, depth - 1))),
            10..15 => {
                let two = [0; 2].map(|_| Box::new(Tree::new(random, depth - 1)));
                let [a, b] = two;
                Tree::Two(random.below(TWO.len() as u64) as usize, a, b)
            }
            _ => Tree::Select(Box::new([0; 4].map(|_| Tree::new(random, depth - 1)))),
        }
    }

    fn text(&self) -> String {
        match self {
            Tree::Variable(number) => ["x", "y", "z"][*number].into(),
            Tree::Scaled(value) => format!("({value:?} * x)"),
            Tree::One(function, a) => ONE[*function].0.replace('$', &a.text()),
            Tree::Two(function, a, b) => {
                // `%` between spaces is the operator.
                let text = TWO[*function].0.replace(" % ", " mod ");
                text.replace('%', &b.text()).replace('$', &a.text()).replace(" mod ", " % ")
            }
            Tree::Select(parts) => {
                let [a, b, c, d] = parts.each_ref().map(Tree::text);
                format!("select({a}, {b}, {c} < {d})")
            }
        }
    }

    fn value(&self, at: &[f64; 3]) -> f64 {
        match self {
            Tree::Variable(number) => at[*number],
            Tree::Scaled(value) => value * at[0],
            Tree::One(function, a) => ONE[*function].1(a.value(at)),
            Tree::Two(function, a, b) => TWO[*function].1(a.value(at), b.value(at)),
            Tree::Select(parts) => {
                let [a, b, c, d] = parts.each_ref().map(|part| part.value(at));
                if c < d { b } else { a }
            }
        }
    }
}

/// Returns the derivative along `direction` by differences of fourth order, if the function is
/// smooth there: two steps must agree.
fn difference(tree: &Tree, at: &[f64; 3], direction: &[f64; 3]) -> Option<f64> {
    let by = |h: f64| {
        let value = |t: f64| {
            let moved: [f64; 3] = std::array::from_fn(|i| at[i] + t * direction[i]);
            tree.value(&moved)
        };
        (8.0 * (value(h) - value(-h)) - (value(2.0 * h) - value(-2.0 * h))) / (12.0 * h)
    };
    let [coarse, fine] = [by(1e-3), by(5e-4)];
    ((coarse - fine).abs() <= 1e-8 * (1.0 + fine.abs())).then_some(fine)
}

#[test]
fn derivatives_of_generated_functions_are_those_of_finite_differences() {
    let mut random = Random(1);
    let (mut compared, mut operations) = (0, 0);
    for case in 0..600 {
        let tree = Tree::new(&mut random, 1 + case % 5);
        let text = format!("{HELPER}fn f(x: f32, y: f32, z: f32) -> f32 {{ return {}; }}", tree.text());
        let function = Pointwise::new(&text, "f").unwrap_or_else(|error| panic!("{text}\n{error}"));
        operations += function.operations();
        let (jvp, vjp) = (function.jvp(), function.vjp());
        for _ in 0..4 {
            let at = [0; 3].map(|_| random.number() + 1.0 / 300.0);
            let direction = [0; 3].map(|_| random.number());
            let value = tree.value(&at);
            let close = |a: f64, b: f64| (a - b).abs() <= 1e-11 * (1.0 + a.abs().max(b.abs()));
            let found = function.evaluate(&at)[0];
            assert!(close(found, value), "{text}\nat {at:?}: {found}, {value}");
            let forward = jvp.evaluate(&[at, direction].concat())[0];
            let reverse = vjp.evaluate(&[&at[..], &[1.0]].concat());
            let dotted: f64 = reverse.iter().zip(&direction).map(|(a, b)| a * b).sum();
            let scale: f64 = 1.0 + reverse.iter().zip(&direction).map(|(a, b)| (a * b).abs()).sum::<f64>();
            assert!((forward - dotted).abs() <= 1e-10 * scale, "{text}\nat {at:?}: {forward}, {dotted}");
            if let Some(wanted) = difference(&tree, &at, &direction) {
                assert!((forward - wanted).abs() <= 1e-6 * scale, "{text}\nat {at:?}: {forward}, {wanted}");
                compared += 1;
            }
        }
    }
    println!("{operations} operations, {compared} derivatives compared");
    assert!(compared > 2000, "only {compared} are smooth");
}

#[test]
fn chains_are_one_function() {
    let step = Pointwise::new("fn f(x: f32, a: f32) -> f32 { return x + a * sin(x); }", "f").unwrap();
    let mut chain = step.clone();
    let want = |mut x: f64, all: &[f64]| {
        all.iter().for_each(|a| x += a * x.sin());
        x
    };
    for _ in 0..9 {
        chain = chain.then(&step);
    }
    assert_eq!(chain.arguments().len(), 11);
    let factors: Vec<f64> = (1..=10).map(|k| 1.0 / f64::from(k)).collect();
    let values = [&[0.7][..], &factors].concat();
    assert!((chain.evaluate(&values)[0] - want(0.7, &factors)).abs() < 1e-14);
    // The derivative of a chain is the product of those of its links.
    let (mut x, mut product) = (0.7f64, 1.0);
    for a in &factors {
        product *= 1.0 + a * x.cos();
        x += a * x.sin();
    }
    let adjoints = chain.vjp().evaluate(&[&values[..], &[1.0]].concat());
    assert!((adjoints[0] - product).abs() < 1e-13);
    assert_eq!(adjoints.len(), 11);
}

#[test]
fn vectors_structures_and_variables_are_followed() {
    let text = "
        struct Pair { a: vec3<f32>, b: f32 }
        const SCALE = vec3<f32>(1.0, 2.0, 4.0);
        fn make(v: vec3<f32>, t: f32) -> Pair { return Pair(v * SCALE, t); }
        fn f(v: vec3<f32>, t: f32) -> vec2<f32> {
            var pair = make(v, t);
            pair.a.y += pair.b;
            var sum = array<f32, 2>();
            sum[1] = dot(pair.a, vec3(1.0));
            if t < 0.0 { sum[0] = t; } else if t > 10.0 { sum[0] = 10.0 * t; }
            return vec2(sum[1], sum[0] + pair.a.zx.x);
        }";
    let function = Pointwise::new(text, "f").unwrap();
    assert_eq!((function.width(), function.arguments()[0].width), (2, 3));
    assert_eq!(function.evaluate(&[1.0, 2.0, 3.0, -0.5]), [1.0 + 4.0 - 0.5 + 12.0, -0.5 + 12.0]);
    assert_eq!(function.evaluate(&[1.0, 2.0, 3.0, 0.5]), [17.5, 12.0]);
    assert_eq!(function.evaluate(&[1.0, 2.0, 3.0, 20.0]), [37.0, 212.0]);
    let adjoint = |t: f64, w: [f64; 2]| function.vjp().evaluate(&[1.0, 2.0, 3.0, t, w[0], w[1]]);
    assert_eq!(adjoint(20.0, [1.0, 0.0]), [1.0, 2.0, 4.0, 1.0]);
    assert_eq!(adjoint(20.0, [0.0, 1.0]), [0.0, 0.0, 4.0, 10.0]);
    assert_eq!(adjoint(5.0, [0.0, 1.0]), [0.0, 0.0, 4.0, 0.0]);
}

#[test]
fn a_branch_that_is_not_taken_adds_nothing_however_infinite() {
    for text in [
        "fn f(x: f32) -> f32 { return select(0.0, sqrt(x) + log(x) + 1.0 / x + pow(x, 0.5), x > 0.0); }",
        "fn f(x: f32) -> f32 { if x <= 0.0 { return 0.0; } return sqrt(x) + log(x) + 1.0 / x + pow(x, 0.5); }",
        "fn f(x: f32) -> f32 { var y = 0.0; if x > 0.0 { y = sqrt(x) + log(x) + 1.0 / x + pow(x, 0.5); } return y; }",
    ] {
        let function = Pointwise::new(text, "f").unwrap();
        for x in [-1.0, 0.0] {
            assert_eq!(function.evaluate(&[x]), [0.0]);
            assert_eq!(function.vjp().evaluate(&[x, 1.0]), [0.0], "{text}");
            assert_eq!(function.jvp().evaluate(&[x, 1.0]), [0.0], "{text}");
        }
        let want = 0.5 / 2.0 + 0.25 - 1.0 / 16.0 + 0.25;
        assert!((function.vjp().evaluate(&[4.0, 1.0])[0] - want).abs() < 1e-15);
    }
}

#[test]
fn conventions_where_there_is_no_derivative() {
    let at = |body: &str, x: f64, y: f64| {
        let function = Pointwise::new(&format!("fn f(x: f32, y: f32) -> f32 {{ return {body}; }}"), "f").unwrap();
        function.vjp().evaluate(&[x, y, 1.0])
    };
    assert_eq!(at("abs(x)", 0.0, 0.0), [0.0, 0.0]);
    assert_eq!(at("min(x, y)", 2.0, 2.0), [1.0, 0.0]);
    assert_eq!(at("max(x, y)", 2.0, 2.0), [1.0, 0.0]);
    assert_eq!(at("clamp(x, 0.0, 1.0)", 0.0, 0.0), [1.0, 0.0]);
    assert_eq!(at("saturate(x)", 1.0, 0.0), [1.0, 0.0]);
    assert_eq!(at("saturate(x)", 1.5, 0.0), [0.0, 0.0]);
    assert_eq!(at("pow(x, y)", 0.0, 2.0), [0.0, 0.0]);
    assert_eq!(at("pow(x, 2.0)", -3.0, 0.0), [-6.0, 0.0]);
    assert_eq!(at("floor(x) + round(x) + step(y, x)", 1.5, 1.5), [0.0, 0.0]);
}

#[test]
fn what_has_no_derivative_is_refused_with_its_line() {
    for (text, line, about) in [
        (
            "fn f(x: f32) -> f32 {\n  var y = x;\n  for (var i = 0; i < 3; i++) { y = y * x; }\n  return y;\n}",
            3,
            "loop",
        ),
        ("fn f(x: f32) -> f32 {\n  let k = i32(x);\n  return x;\n}", 2, "integers"),
        ("var<private> seen: f32;\nfn f(x: f32) -> f32 {\n  seen = x;\n  return x;\n}", 3, "outside"),
        ("var<private> seen: f32;\nfn f(x: f32) -> f32 {\n  return x * seen;\n}", 3, "outside"),
        (
            "fn f(x: f32) -> f32 {\n  var a = array<f32, 2>(x, x);\n  return determinant(mat2x2<f32>(x, x, x, a[0]));\n}",
            3,
            "Determinant",
        ),
        ("fn f(x: f32) -> f32 {\n  return f32(bitcast<u32>(x));\n}", 2, "integers"),
        (
            "fn g(p: ptr<function, f32>) -> f32 { return *p; }\nfn f(x: f32) -> f32 {\n  var y = x;\n  return g(&y);\n}",
            4,
            "pointer",
        ),
        (
            "@group(0) @binding(0) var map: texture_2d<f32>;\nfn f(x: f32) -> f32 {\n  let y = 2.0 * x;\n  return y * textureLoad(map, vec2<i32>(0, 1), 0).x;\n}",
            4,
            "a texture",
        ),
        (
            "@group(0) @binding(0) var map: texture_2d<f32>;\n@group(0) @binding(1) var by: sampler;\nfn f(x: f32) -> f32 {\n  return textureSampleLevel(map, by, vec2<f32>(x, x), 0.0).x;\n}",
            4,
            "a texture",
        ),
        ("fn f(x: f32) -> f32 {\n  switch 1u { case 1u: { return x; } default: { return 0.0; } }\n}", 2, "switch"),
    ] {
        match Pointwise::new(text, "f") {
            Err(PointwiseError::Unsupported { line: found, text: shown, why }) => {
                assert!(why.contains(about), "{text}\n{why}");
                assert_eq!(
                    (found, shown.as_str()),
                    (line, text.lines().nth(line as usize - 1).unwrap().trim()),
                    "{why}"
                );
            }
            other => panic!("{text}\n{other:?}"),
        }
    }
    for (text, about) in [
        ("fn g(x: f32) -> f32 { return x; }", "no function `f`"),
        ("fn f(x: u32) -> f32 { return 1.0; }", "`x` is neither"),
        ("fn f(x: f32) { }", "returns neither"),
        ("fn f(x: f32) -> mat2x2<f32> { return mat2x2<f32>(); }", "returns neither"),
        ("fn f(x: f32) -> f32 { return y; }", "not valid WGSL"),
        ("fn f(x: f32) -> f32 { return 1u; }", "not valid WGSL"),
    ] {
        let error = Pointwise::new(text, "f").unwrap_err().to_string();
        assert!(error.contains(about), "{text}\n{error}");
    }
}

/// Each line runs what follows twice: without a bound that would be 2^30 times.
#[test]
fn functions_with_many_ways_through_are_refused() {
    let lines: String = (1..=30).map(|n| format!("if (a > {n}.0) {{ if (b > {n}.5) {{ return 1.0; }} }}\n")).collect();
    let error = Pointwise::new(&format!("fn f(a: f32, b: f32) -> f32 {{\n{lines}return a; }}"), "f").unwrap_err();
    assert!(error.to_string().contains("operations"), "{error}");
}
