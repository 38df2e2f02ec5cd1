//! `--sampler`: Markov chains that start where a fit has ended.

use clap::{Args, ValueEnum};
use indicatif::ProgressBar;
use meshloom::Rank;
use meshloom::inference::{
    Algorithm, Draws, Existing, Likelihood, SampleGroups, Sampler, SamplerOptions, Samples, effective_sample_size,
    split_r_hat,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::checked::{count, usage};
use crate::failure::{Ended, Failure};
use crate::fit_state::State;
use crate::run_clock::RunClock;

/// The options of chains.
#[derive(Args, Deserialize, Serialize, Clone, Debug, Default)]
#[serde(default)]
pub struct ChainOptions {
    /// Markov chains from the samples of the fit: draws of the posterior itself in place of samples
    #[arg(long, value_name = "nuts|hmc|mclmc|adjusted-mclmc", hide_possible_values = true)]
    sampler: Option<SamplerName>,
    /// Draws of each chain [default: 500]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    draws: Option<i64>,
    /// Draws of each chain before these, which adapt it and are dropped [default: 500]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    warmup: Option<i64>,
    /// Number of chains [default: 4, or the next multiple of the groups of ranks]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    chains: Option<i64>,
    /// Keep one draw in every N [default: so that each chain keeps 50]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    thinning: Option<i64>,
    /// Steps of a draw: their mean number for hmc, their number for mclmc [default: 16]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    sampler_steps: Option<i64>,
}

/// Algorithm of chains.
#[derive(ValueEnum, Deserialize, Serialize, Clone, Copy, Debug, PartialEq)]
#[serde(rename_all = "kebab-case")]
enum SamplerName {
    Nuts,
    Hmc,
    Mclmc,
    AdjustedMclmc,
}

/// Chains, checked.
pub struct Chains {
    name: SamplerName,
    options: SamplerOptions,
    /// Whether their number is the default, which groups of ranks may raise.
    is_default_number: bool,
}

/// States that chains write.
const STATES: u32 = 10;

/// Largest value of any of the options.
const MOST: i64 = 1 << 24;

impl ChainOptions {
    /// Returns the chains that are asked for.
    ///
    /// # Errors
    /// [`Failure::Usage`] for values out of range, and options that do not belong to the sampler.
    pub fn resolve(&self, seed: u64) -> Result<Option<Chains>, Failure> {
        let ChainOptions { sampler, draws, warmup, chains, thinning, sampler_steps } = self;
        let Some(name) = *sampler else {
            let given = [draws, warmup, chains, thinning, sampler_steps].iter().any(|option| option.is_some());
            return match given {
                true => Err(usage(
                    "--draws, --warmup, --chains, --thinning and --sampler-steps belong to --sampler: give it too",
                )),
                false => Ok(None),
            };
        };
        let number = |option: &str, value: Option<i64>, least: i64, default: u32| {
            value.map_or(Ok(default), |value| count(option, value, least..=MOST).map(|value| value as u32))
        };
        if !matches!(name, SamplerName::Hmc | SamplerName::Mclmc) && sampler_steps.is_some() {
            return Err(usage(
                "--sampler-steps belongs to hmc and mclmc; nuts and adjusted-mclmc find lengths of trajectories",
            ));
        }
        let steps = number("sampler-steps", *sampler_steps, 1, 16)?;
        let algorithm = match name {
            SamplerName::Nuts => Algorithm::nuts(),
            SamplerName::Hmc => Algorithm::hmc(steps),
            SamplerName::Mclmc => Algorithm::mclmc(steps),
            SamplerName::AdjustedMclmc => Algorithm::adjusted_mclmc(),
        };
        let draws = number("draws", *draws, 4, 500)?;
        let thinning = number("thinning", *thinning, 1, (draws / 50).max(1))?;
        if draws / thinning < 4 {
            return Err(usage(format!(
                "--thinning {thinning} keeps {} of {draws} draws; keep 4 at least",
                draws / thinning
            )));
        }
        let options = SamplerOptions::new(algorithm, number("warmup", *warmup, 0, 500)?, draws)
            .chains(number("chains", *chains, 1, 4)?)
            .thinning(thinning)
            .seed(seed);
        Ok(Some(Chains { name, options, is_default_number: chains.is_none() }))
    }
}

impl Chains {
    /// Draws from the posterior, from the samples of a fit on. Returns the draws as samples, what
    /// `run.json` says of them, and warnings; or the failure of a run that `clock` stops, with a
    /// state. Collective over all groups.
    pub fn draw(
        &self,
        rank: &mut Rank,
        likelihood: &Likelihood,
        groups: &SampleGroups,
        fitted: &Samples<Rank>,
        (state, bar, mut clock): (&State, &ProgressBar, RunClock),
    ) -> Result<(Samples<Rank>, Value, Vec<String>), Ended> {
        // Without --resume a state is of an earlier call.
        let existing = if state.resumes() { Existing::Resume } else { Existing::Overwrite };
        let all = self.options.warmup + self.options.draws;
        let mut options = self.options.clone().state(&state.directory, existing).save_every(all.div_ceil(STATES));
        if self.is_default_number {
            options.chains = options.chains.next_multiple_of(groups.count() as u32);
        }
        let own = groups.block(options.chains as usize);
        let mut starts = Vec::new();
        for chain in 0..options.chains as usize {
            let start = match fitted.count() {
                0 => fitted.at(rank, 0)?,
                count => fitted.everywhere(rank, groups, chain % count)?,
            };
            if own.contains(&chain) {
                starts.push(start);
            }
        }
        let mut sampler = Sampler::new(rank, likelihood, groups, &starts, &options)?;
        drop(starts);
        bar.set_length(u64::from(all));
        while let Some(step) = sampler.step(rank)? {
            let draws = u64::from(if step.is_warmup { step.draw } else { self.options.warmup + step.draw }) + 1;
            bar.set_position(draws);
            if let Some(stop) = clock.stop(groups.all())? {
                clock.save(|| sampler.save_state(rank))?;
                clock.answered();
                return Err(stop.failure(format_args!("draw {draws} of {all} (warm-up included)")).into());
            }
        }
        bar.finish_and_clear();
        let Draws { samples, statistics, chains } = sampler.finish(rank)?;
        let each = statistics.len() / chains as usize;
        let energies: Vec<Vec<f64>> =
            statistics.chunks(each).map(|chain| chain.iter().map(|draw| draw.energy).collect()).collect();
        let divergent = statistics.iter().filter(|draw| draw.is_divergent).count();
        let acceptance = statistics.iter().map(|draw| draw.acceptance).sum::<f64>() / statistics.len() as f64;
        let steps: Vec<f64> = statistics.chunks(each).map(|chain| chain[0].step).collect();
        let gradients: u64 = statistics.iter().map(|draw| u64::from(draw.gradients)).sum();
        let (size, r_hat) = (effective_sample_size(&energies), split_r_hat(&energies));
        let finite = |value: f64| value.is_finite().then_some(value);
        let report = json!({
            "sampler": self.name, "chains": chains, "draws": options.draws, "warmup": options.warmup,
            "kept": each, "acceptance": acceptance, "step_sizes": steps, "divergent": divergent,
            "gradients_of_kept": gradients,
            "energy": { "effective_sample_size": finite(size), "split_r_hat": finite(r_hat) },
        });
        let mut warnings = Vec::new();
        if divergent > 0 {
            warnings.push(format!(
                "{divergent} of {} draws are divergent: a part of the posterior is too narrow for the steps, and draws miss it; give more --warmup",
                statistics.len()
            ));
        }
        // A common limit is 1.01, which few draws reach by chance.
        if r_hat > 1.1 {
            warnings.push(format!(
                "chains have not found the same posterior: the energy's split R-hat is {r_hat:.2}, where 1 is right; give more --warmup and --draws"
            ));
        }
        Ok((samples, report, warnings))
    }
}
