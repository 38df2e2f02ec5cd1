//! The sanitizer intercepts every dispatch: errors end the submitting call, correct dispatches have
//! the results of the device, and kernels of other devices run in it.

use std::sync::Arc;

use meshloom::gpu::{DeviceError, Gpu, Kernel, KernelSource, Options, Profile, Recorder};
use meshloom_sanitizer::Sanitizer;

meshloom::kernel_params! { struct Params { count: u32, shift: u32 } }

fn open(sanitizer: Sanitizer) -> Gpu {
    Gpu::open(&Options { observer: Some(Arc::new(sanitizer)), ..options() }, 0).unwrap()
}

/// Returns the options of the environment, whatever it says of the sanitizer.
fn options() -> Options {
    Options { observer: None, ..meshloom_sanitizer::options().unwrap() }
}

fn kernel(name: &str, body: &str) -> Kernel {
    let text = format!(
        "var<uniform> params: Params;
         var<storage, read> from: array<u32>;
         var<storage, read_write> to: array<u32>;
         var<workgroup> kept: array<u32, GROUP>;
         fn each_workgroup(number: u32, lane: u32) {{
             let i = number * GROUP + lane;
             {body}
         }}
         #each_workgroup"
    );
    Kernel::new(KernelSource::new(name, text).params::<Params>().group(64))
}

/// Runs a kernel over 1000 numbers, and gives what is there afterwards.
fn run(gpu: &Gpu, kernel: &Kernel) -> Result<Vec<u32>, DeviceError> {
    let mut recorder = Recorder::new(gpu)?;
    let (from, to) = (gpu.array::<u32>("from", 1000)?, gpu.array::<u32>("to", 1000)?);
    recorder.upload(&from, 0, &(0..1000).collect::<Vec<u32>>())?;
    recorder.clear(&to);
    recorder.dispatch(kernel, &[from.raw(), to.raw()], &Params { count: 1000, shift: 3 }, 16)?;
    recorder.download(&to, 0, 1000)
}

const REVERSED: &str = "kept[lane] = load_from(min(i, params.count - 1u));
    BARRIER
    let value = kept[GROUP - 1u - lane];
    if i < params.count { store_to(i, value << params.shift); }";

#[test]
fn what_is_wrong_ends_the_call_that_submits() {
    let right = kernel("test::reversed", &REVERSED.replace("BARRIER", "workgroupBarrier();"));
    let hasty = kernel("test::hasty", &REVERSED.replace("BARRIER", ""));
    let far = kernel("test::far", "store_to(i, load_from(min(i, 999u)));");
    let expected: Vec<u32> = (0..1000).map(|i| (i / 64 * 64 + 63 - i % 64).min(999) << 3).collect();
    for sanitizer in [Sanitizer::Check, Sanitizer::Compare, Sanitizer::Run { subgroup: 32 }] {
        let gpu = &open(sanitizer);
        assert_eq!(run(gpu, &right).unwrap(), expected);
        for (kernel, words) in
            [(&hasty, ["race", "kept[GROUP - 1u - lane]"]), (&far, ["out of bounds", "of 4000 bytes"])]
        {
            let error = run(gpu, kernel).unwrap_err();
            assert!(matches!(error, DeviceError::Observer { .. }), "{error}");
            assert!(words.iter().all(|word| error.to_string().contains(word)), "{error}");
        }
        // The device goes on working.
        assert_eq!(run(gpu, &right).unwrap(), expected);
    }
    assert_eq!(run(&Gpu::open(&options(), 0).unwrap(), &right).unwrap(), expected);
}

#[test]
fn a_recorder_goes_on_after_a_finding() {
    let gpu = open(Sanitizer::Check);
    let mut recorder = Recorder::new(&gpu).unwrap();
    let (from, to) = (gpu.array::<u32>("from", 64).unwrap(), gpu.array::<u32>("to", 64).unwrap());
    recorder.upload(&from, 0, &[5; 64]).unwrap();
    let far = kernel("test::beyond", "store_to(64u + i, load_from(i));");
    let right = kernel("test::copy", "store_to(i, load_from(i));");
    let params = Params { count: 64, shift: 0 };
    // More dispatches than a submission holds, of which a part failed.
    for _ in 0..3 {
        for _ in 0..100 {
            recorder.dispatch(&right, &[from.raw(), to.raw()], &params, 1).unwrap();
        }
        recorder.dispatch(&far, &[from.raw(), to.raw()], &params, 1).unwrap();
        assert!(matches!(recorder.submit(), Err(DeviceError::Observer { .. })));
    }
    recorder.dispatch(&right, &[from.raw(), to.raw()], &params, 1).unwrap();
    assert_eq!(recorder.download(&to, 0, 64).unwrap(), [5; 64]);
}

#[test]
fn kernels_see_the_subgroups_that_were_asked_for() {
    let sum = "let sum = subgroupAdd(1u); if i < params.count { store_to(i, sum); }";
    for subgroup in [4, 16, 32, 64] {
        let options =
            Options { profile: Some(Profile::Gpu), observer: Some(Arc::new(Sanitizer::Run { subgroup })), ..options() };
        let gpu = Gpu::open(&options, 0).unwrap();
        let capabilities = gpu.capabilities();
        if !capabilities.subgroups {
            assert_eq!([capabilities.subgroup_least, capabilities.subgroup_most], [1; 2]);
            continue;
        }
        assert_eq!([capabilities.subgroup_least, capabilities.subgroup_most], [subgroup; 2]);
        assert_eq!(run(&gpu, &kernel("test::subgroup", sum)).unwrap(), vec![subgroup; 1000]);
    }
    for subgroup in [0, 2, 12, 128] {
        let options = Options { observer: Some(Arc::new(Sanitizer::Run { subgroup })), ..Options::default() };
        let error = Gpu::open(&options, 0).unwrap_err();
        assert!(matches!(error, DeviceError::Misuse { .. }), "{error}");
    }
}

#[test]
fn the_variable_names_a_sanitizer() {
    let named = |text: &str| text.parse::<Sanitizer>().ok();
    assert_eq!(named("1"), Some(Sanitizer::Check));
    assert_eq!(named("compare"), Some(Sanitizer::Compare));
    assert_eq!(named("64"), Some(Sanitizer::Run { subgroup: 64 }));
    for wrong in ["", "2", "0", "12", "128", "yes"] {
        let error = wrong.parse::<Sanitizer>().unwrap_err();
        assert!(error.to_string().contains("MESHLOOM_SANITIZE"), "{error}");
    }
}
