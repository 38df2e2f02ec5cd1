//! Functions in WGSL of each particle by itself.

use super::particles::POSITIONS;
use super::{AnyArray, ParticleError, Particles};
use crate::gpu::{Array, Callback, DeviceError, KernelParams, KernelSource, RawArray, Trust, words};
use crate::rank::Rank;

/// Particles of a workgroup.
const GROUP: u32 = 64;
/// Name by which the kernel imports the caller's text.
const MODULE: &str = "points::each";

crate::gpu::kernel_params! {
    struct EachParams {
        count: u32,
        pad: u32,
        more: [u32; 2],
    }
}

/// An attribute that a text uses.
struct Variable<'a> {
    name: &'a str,
    values: AnyArray,
    width: u64,
    /// The new values, if the text may change them.
    changed: Option<Array<u32>>,
}

/// Returns `true` if a text may change the variable `name`: if it assigns to it or to parts of it,
/// or takes its address.
fn changes(text: &str, name: &str) -> bool {
    let words = words(text);
    let is = |at: usize, word: &str| words.get(at) == Some(&word);
    (0..words.len()).filter(|&at| words[at] == name).any(|at| {
        if at > 0 && (is(at - 1, "&") || is(at - 1, ".")) {
            return is(at - 1, "&");
        }
        let mut next = at + 1;
        loop {
            if is(next, ".") {
                next += 2;
            } else if is(next, "[") {
                let mut open = 0;
                while next < words.len() {
                    open += i32::from(is(next, "[")) - i32::from(is(next, "]"));
                    next += 1;
                    if open == 0 {
                        break;
                    }
                }
            } else {
                break;
            }
        }
        let equals = |at: usize| is(at, "=") && !is(at + 1, "=");
        let arithmetic = ["+", "-", "*", "/", "%", "&", "|", "^"].iter().any(|operator| is(next, operator));
        let shift = ["<", ">"].iter().any(|operator| is(next, operator) && is(next + 1, operator));
        let step = ["+", "-"].iter().any(|operator| is(next, operator) && is(next + 1, operator));
        equals(next) || (arithmetic && is(next + 1, "=")) || (shift && is(next + 2, "=")) || step
    })
}

impl Variable<'_> {
    fn wgsl(&self) -> String {
        let (scalar, width) = (self.values.element().wgsl(), self.width);
        match width {
            1 => scalar.into(),
            2..=4 => format!("vec{width}<{scalar}>"),
            _ => format!("array<{scalar}, {width}>"),
        }
    }

    /// Returns the place of each value in the variable, and its offset among the values of the
    /// particle.
    fn components(&self) -> Vec<(String, u64)> {
        let (name, width) = (self.name, self.width);
        if width == 1 { vec![(name.into(), 0)] } else { (0..width).map(|c| (format!("{name}[{c}]"), c)).collect() }
    }

    fn load(&self) -> String {
        let line =
            |(place, c): (String, u64)| format!("    {place} = load_user_{}({}u * i + {c}u);\n", self.name, self.width);
        self.components().into_iter().map(line).collect()
    }

    fn store(&self) -> String {
        let line =
            |(place, c): (String, u64)| format!("    store_new_{}({}u * i + {c}u, {place});\n", self.name, self.width);
        self.components().into_iter().map(line).collect()
    }
}

/// Returns the caller's text with its variables, which follow it so that errors name its own lines.
fn text_of(variables: &[Variable<'_>], text: &str) -> String {
    let declared =
        variables.iter().map(|one| format!("var<private> {}: {};\n", one.name, one.wgsl())).collect::<String>();
    let loaded = variables.iter().map(Variable::load).collect::<String>();
    let stored = variables.iter().filter(|one| one.changed.is_some()).map(Variable::store).collect::<String>();
    format!(
        "fn user_update() {{ {text}\n}}\n{declared}fn each_invocation(i: u32) {{\n{loaded}    user_update();\n{stored}}}\n"
    )
}

/// Returns the kernel that runs a callback for each particle.
fn kernel(callback: &Callback) -> KernelSource {
    let body = format!("var<uniform> params: Params;\n#import {MODULE}\n#each_invocation params.count\n");
    callback.bind(KernelSource::new("points::each", body).params::<EachParams>().group(GROUP), MODULE)
}

impl Rank {
    /// Runs statements in WGSL for each particle, with its attributes as variables.
    ///
    /// The position is the variable `x`, an attribute the variable of its name: a scalar, a vector
    /// for 2 to 4 values, else an array. What the statements assign to is written to new arrays;
    /// handles on the old ones keep the old values. `params` has the fields of a struct of
    /// [`kernel_params!`](crate::kernel_params), at most 96 bytes, or is `()`. `return` ends the
    /// statements early.
    ///
    /// Records one dispatch, which reads each attribute that the text names and writes each that it
    /// changes. Collective and blocking only if `x` changes: positions are then wrapped and
    /// checked, and particles are in no order.
    ///
    /// ```
    /// use meshloom::points::{Domain, Particles};
    ///
    /// meshloom::kernel_params! { struct Step { kick: f32, drift: f32 } }
    /// meshloom::run(|rank| {
    ///     let domain = Domain::new(&[8.0; 3])?;
    ///     let mut p = Particles::from_host(rank, &domain, &[1.0, 2.0, 7.5])?
    ///         .with(rank, "v", &[0.0f32, 1.0, 2.0], 3)?
    ///         .with(rank, "f", &[2.0f32, 0.0, 0.0], 3)?;
    ///     rank.each(&mut p, "v += params.kick * f; x += params.drift * v;", &Step { kick: 0.5, drift: 1.0 })?;
    ///     assert_eq!(p.download::<f32>(rank, "x")?, [2.0, 3.0, 1.5]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), meshloom::Error>(())
    /// ```
    ///
    /// # Errors
    /// - [`ParticleError::Device`] if the text does not compile, or names more attributes than the
    ///   device binds.
    /// - [`ParticleError::Moved`] if a coordinate becomes NaN or infinite, on all ranks.
    pub fn each<P: KernelParams>(
        &mut self,
        particles: &mut Particles,
        text: &str,
        params: &P,
    ) -> Result<(), ParticleError> {
        let used = words(text);
        let names: Vec<String> = particles.names().into_iter().map(String::from).collect();
        let mut variables = Vec::new();
        for name in names.iter().filter(|name| used.contains(&name.as_str())) {
            let (values, width) = particles.known_column(name)?;
            let changed = match changes(text, name) {
                true => Some(self.gpu.array::<u32>(name, values.len())?),
                false => None,
            };
            variables.push(Variable { name, values, width, changed });
        }
        let mut callback = Callback::new(text_of(&variables, text)).params(params);
        for Variable { name, values, changed, .. } in &variables {
            let (old, new) = (format!("user_{name}"), format!("new_{name}"));
            callback = values.read_by(callback, &old);
            if let Some(words) = changed {
                callback = values.like(words)?.written_by(callback, &new);
            }
        }
        callback.check("Rank::each", &[])?;
        self.run_each(&callback, particles.len()).map_err(|error| match error {
            DeviceError::Shader { kernel, why } if why.contains("no definition in scope for identifier") => {
                DeviceError::Shader { kernel, why: format!("{why}\nattributes of the particles: {}", names.join(", ")) }
            }
            error => error,
        })?;
        let mut positions = None;
        for Variable { name, values, width, changed } in variables {
            let Some(words) = changed else { continue };
            match name {
                POSITIONS => positions = Some(words.cast()?),
                _ => particles.set(name, values.like(&words)?, width)?,
            }
        }
        if let Some(positions) = positions {
            *particles = particles.moved(self, positions).map_err(|error| match error {
                ParticleError::NonFinite { index, axis } => ParticleError::Moved { index, axis },
                error => error,
            })?;
        }
        Ok(())
    }

    /// Records a callback of particles.
    fn run_each(&mut self, callback: &Callback, count: u64) -> Result<(), DeviceError> {
        let kernel = crate::gpu::Kernel::with_trust(Trust::Nobody, kernel(callback));
        let params = EachParams { count: count as u32, pad: 0, more: [0; 2] };
        let bytes = [bytemuck::bytes_of(&params), &callback.values()].concat();
        let arrays: Vec<&RawArray> = callback.arrays().collect();
        self.recorder.dispatch_bytes(&kernel, &arrays, &bytes, count.div_ceil(GROUP.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn assignments_are_told_from_uses() {
        for text in [
            "v = x;",
            "v.x = 1.0;",
            "v[i + a[2]] = 1.0;",
            "v += x",
            "v -= x",
            "v <<= 1u",
            "v++;",
            "f(&v)",
            "if a { v *= 2.0; }",
        ] {
            assert!(changes(text, "v"), "{text}");
        }
        for text in [
            "x = v;",
            "x = select(v, x, v == x);",
            "if v <= x { x = 1.0; }",
            "x = w.v;",
            "w.v = x;",
            "// v = x\nx = v[0];",
            "x = v + v;",
            "x = -v;",
        ] {
            assert!(!changes(text, "v"), "{text}");
        }
    }
}
