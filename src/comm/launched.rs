//! Processes that a launcher started together, known by their environment.

use super::CommError;

/// Returns `true` if a launcher (`mpirun`, `srun`) started this process as one of several.
///
/// Reads the environment only. The processes may still be unable to find each other:
/// `run_mpi` checks that.
#[must_use]
pub fn mpi_launched() -> bool {
    mpi_ranks().is_some()
}

/// Returns the number of processes that a launcher started together; `None` for a single process.
#[must_use]
pub fn mpi_ranks() -> Option<usize> {
    Launched::from_env().map(|launched| launched.ranks)
}

/// Processes that a launcher started as the ranks of one program, by their environment.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Launched {
    /// The number of processes; more than 1.
    pub ranks: usize,
    /// The variables that contain this number.
    variables: Vec<&'static str>,
    /// Whether the launcher tells processes how they find each other.
    has_pmi: bool,
}

impl Launched {
    /// Returns the launch that this process is part of; `None` for a single process.
    pub fn from_env() -> Option<Launched> {
        Launched::from_variables(|name| std::env::var(name).ok())
    }

    fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Option<Launched> {
        let several = |name: &&str| variable(name)?.trim().parse().ok().filter(|&ranks: &usize| ranks > 1);
        let is_set = |name: &&str| variable(name).is_some();
        // Open MPI; MPICH, Intel MPI and Slurm's PMI-2; MVAPICH; MPICH and Intel MPI again.
        let sizes = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE", "MPI_LOCALNRANKS"];
        let mut variables: Vec<&'static str> = sizes.into_iter().filter(|name| several(name).is_some()).collect();
        let pmi = ["PMI_RANK", "PMI_FD", "PMI_PORT", "PMI_CONTROL_PORT", "PMIX_RANK", "PALS_RANKID"];
        let has_pmi = !variables.is_empty() || pmi.iter().any(is_set);
        // A batch script has SLURM_NTASKS and SLURM_PROCID without being a task of a step.
        let step = "SLURM_STEP_NUM_TASKS";
        if (has_pmi || is_set(&"SLURM_PROCID")) && several(&step).is_some() {
            variables.push(step);
        }
        let ranks = variables.first().and_then(several)?;
        Some(Launched { ranks, variables, has_pmi })
    }

    /// Returns `true` if `srun` started the processes without a PMI.
    #[cfg(feature = "mpi")]
    pub fn is_without_pmi(&self) -> bool {
        !self.has_pmi
    }

    /// Returns the error of a build without MPI, whose processes would each do the whole work.
    #[cfg(any(not(feature = "mpi"), test))]
    pub fn without_mpi(&self) -> CommError {
        CommError::Start(format!(
            "{}, but this program was built without MPI; build it with the feature `mpi` (cargo build --features mpi){}",
            self.describe(),
            self.independent_runs()
        ))
    }

    /// Returns the error of processes that the MPI library `library` did not connect.
    #[cfg(any(feature = "mpi", test))]
    pub fn not_connected(&self, library: &str) -> CommError {
        let remedy = match self.has_pmi {
            true => "use the launcher of this MPI library, or `srun --mpi=pmix`",
            false => "use `srun --mpi=pmix` (`srun --mpi=list` shows all), or `mpirun` of this MPI library",
        };
        // The rest of the text is about its build.
        let library = library.split([',', '\n', '\0']).next().unwrap_or_default().trim();
        CommError::Start(format!(
            "{}, but the MPI library ({library}) did not connect them; {remedy}{}",
            self.describe(),
            self.independent_runs()
        ))
    }

    fn describe(&self) -> String {
        let variables: Vec<String> = self.variables.iter().map(|name| format!("{name}={}", self.ranks)).collect();
        format!("a launcher started {} processes ({})", self.ranks, variables.join(", "))
    }

    fn independent_runs(&self) -> String {
        format!("; for independent runs unset {}, or use `Launch::Solo` in Rust", self.variables.join(" and "))
    }
}

#[cfg(test)]
mod tests {
    use super::Launched;

    fn with(set: &[(&str, &str)]) -> Option<Launched> {
        Launched::from_variables(|name| {
            set.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        })
    }

    fn ranks(set: &[(&str, &str)]) -> Option<usize> {
        with(set).map(|launched| launched.ranks)
    }

    #[test]
    fn a_launcher_is_known_by_its_environment() {
        assert_eq!(ranks(&[]), None);
        assert_eq!(ranks(&[("OMPI_COMM_WORLD_SIZE", "1")]), None);
        assert_eq!(ranks(&[("OMPI_COMM_WORLD_SIZE", "4")]), Some(4));
        assert_eq!(ranks(&[("PMI_SIZE", "2")]), Some(2));
        assert_eq!(ranks(&[("PMI_RANK", "1"), ("PMI_SIZE", "2"), ("MPI_LOCALNRANKS", "2")]), Some(2));
        assert_eq!(ranks(&[("MV2_COMM_WORLD_SIZE", "3")]), Some(3));
        assert_eq!(ranks(&[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "8")]), None, "a batch script is not a launch");
        assert_eq!(ranks(&[("SLURM_STEP_NUM_TASKS", "8")]), None);
        assert_eq!(ranks(&[("SLURM_PROCID", "0"), ("SLURM_STEP_NUM_TASKS", "1")]), None);
        assert_eq!(ranks(&[("PMIX_RANK", "0"), ("SLURM_STEP_NUM_TASKS", "8")]), Some(8));
        assert_eq!(ranks(&[("PALS_RANKID", "0"), ("SLURM_STEP_NUM_TASKS", "8")]), Some(8));
        assert_eq!(ranks(&[("PMI_SIZE", "many")]), None);
    }

    #[test]
    fn processes_of_a_step_without_pmi_are_told_how_to_find_each_other() {
        let step = [("SLURM_PROCID", "3"), ("SLURM_STEP_NUM_TASKS", "16")];
        let launched = with(&step).unwrap();
        assert_eq!((launched.ranks, launched.has_pmi), (16, false));
        let text = launched.not_connected("Open MPI v4.1.4, package: Debian\nmore").to_string();
        for part in ["16 processes (SLURM_STEP_NUM_TASKS=16)", "(Open MPI v4.1.4)", "`srun --mpi=pmix`"] {
            assert!(text.contains(part), "{text}");
        }
        assert!(text.ends_with("unset SLURM_STEP_NUM_TASKS, or use `Launch::Solo` in Rust"), "{text}");
        assert!(with(&[("PMI_FD", "5"), step[1]]).unwrap().has_pmi);
    }

    #[test]
    fn a_build_without_mpi_names_the_feature_and_the_way_to_independent_runs() {
        for (name, value) in [("OMPI_COMM_WORLD_SIZE", "3"), ("PMI_SIZE", "3"), ("MPI_LOCALNRANKS", "3")] {
            let text = with(&[(name, value)]).unwrap().without_mpi().to_string();
            assert!(text.contains(&format!("3 processes ({name}=3)")) && text.contains("feature `mpi`"), "{text}");
            assert!(text.ends_with(&format!("unset {name}, or use `Launch::Solo` in Rust")), "{text}");
        }
    }
}
