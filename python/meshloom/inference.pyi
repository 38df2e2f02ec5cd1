from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import Any, Literal, NamedTuple, Optional, TypeVar, Union

from numpy import ndarray
from numpy.typing import ArrayLike

from . import Comm, _Comm
from .operators import Fields, Model, _Field, _Result, _Space, _Values

class DataReport(NamedTuple):
    name: str
    reduced_chi_squared: float
    mean: float
    n_data: int

class IterationReport(NamedTuple):
    iteration: int
    n_samples: int
    energy: float
    steps: int
    applications: int
    reduced_chi_squared: Optional[float]
    latent_chi_squared: Optional[float]
    seconds: float
    sample_steps: int
    unconverged_samples: int
    gave_up: bool
    sample_error_ratio: float
    failed_samples: int
    limited_samples: int

class Evidence(NamedTuple):
    lower: float
    upper: float
    error: float
    log_determinant: tuple[float, float]
    products: int

class Statistics(NamedTuple):
    mean: Any
    error_of_mean: Any
    variance: Any
    tau: Any
    r_hat: Any
    effective_sample_size: Any

class MetricCheck(NamedTuple):
    symmetric: tuple[float, float]
    square: tuple[float, float]
    transposed: tuple[float, float]
    slope: tuple[float, float]
    coordinates: Optional[float]

class Likelihood:
    @property
    def domain(self) -> Fields: ...
    @property
    def name(self) -> str: ...
    @property
    def degrees_of_freedom(self) -> int: ...
    def amend(self, model: Model) -> Likelihood: ...
    def __add__(self, other: Likelihood) -> Likelihood: ...
    def __call__(self, x: _Field) -> float: ...
    def value_and_grad(self, x: _Field) -> tuple[float, _Result]: ...
    def metric(self, x: _Field, v: _Field) -> _Result: ...
    def report(self, x: _Field) -> list[DataReport]: ...
    def random(self, seed: int = 0, scale: float = 1.0) -> _Result: ...

_Mask = Optional[ArrayLike]

def Gaussian(data: ArrayLike, noise_std: ArrayLike = 1.0, *, name: str = "data", mask: _Mask = None, comm: _Comm = None) -> Likelihood: ...
def Poissonian(
    data: ArrayLike, *, exposure: Optional[ArrayLike] = None, name: str = "data", mask: _Mask = None, comm: _Comm = None
) -> Likelihood: ...
def StudentT(
    data: ArrayLike, dof: float, noise_std: ArrayLike = 1.0, *, name: str = "data", mask: _Mask = None, comm: _Comm = None
) -> Likelihood: ...
def VariableCovarianceGaussian(data: ArrayLike, *, name: str = "data", mask: _Mask = None, comm: _Comm = None) -> Likelihood: ...
def VariableCovarianceStudentT(data: ArrayLike, dof: float, *, name: str = "data", mask: _Mask = None, comm: _Comm = None) -> Likelihood: ...
def Categorical(data: ArrayLike, classes: int, *, name: str = "data", mask: _Mask = None, comm: _Comm = None) -> Likelihood: ...
class Prior(Model):
    def inverse(self, values: _Values) -> ndarray: ...

def NormalPrior(mean: ArrayLike, std: ArrayLike, space: _Space, result: Optional[str] = None, comm: _Comm = None) -> Prior: ...
def LogNormalPrior(mean: ArrayLike, std: ArrayLike, space: _Space, result: Optional[str] = None, comm: _Comm = None) -> Prior: ...
def UniformPrior(a_min: ArrayLike, a_max: ArrayLike, space: _Space, result: Optional[str] = None, comm: _Comm = None) -> Prior: ...
def LaplacePrior(alpha: ArrayLike, space: _Space, result: Optional[str] = None, comm: _Comm = None) -> Prior: ...
def InvGammaPrior(a: float, scale: ArrayLike, space: _Space, result: Optional[str] = None, comm: _Comm = None) -> Prior: ...

class CorrelatedField(Model):
    def amplitude(self, x: _Field, group: int = 0) -> tuple[ndarray, ndarray]: ...
    def amplitude_model(self, group: int = 0) -> Model: ...
    def power_spectrum_model(self, group: int = 0) -> Model: ...

_Pair = Union[Model, float, tuple[float, float]]

class CorrelatedFieldMaker:
    def __init__(self, prefix: str = "") -> None: ...
    def set_amplitude_total_offset(self, offset_mean: float, offset_std: _Pair) -> None: ...
    def add_fluctuations(
        self,
        shape: Union[int, Sequence[int]],
        distances: Union[float, Sequence[float]],
        fluctuations: _Pair,
        loglogavgslope: _Pair,
        flexibility: Optional[_Pair] = None,
        asperity: Optional[_Pair] = None,
        prefix: str = "",
        non_parametric_kind: Literal["power", "amplitude"] = "power",
    ) -> None: ...
    def add_fluctuations_matern(
        self,
        shape: Union[int, Sequence[int]],
        distances: Union[float, Sequence[float]],
        *,
        scale: _Pair,
        cutoff_wavenumber: Optional[_Pair] = None,
        loglogslope: _Pair,
        prefix: str = "",
        renormalize_amplitude: bool = False,
        cutoff: None = None,
    ) -> None: ...
    def finalize(self, comm: _Comm = None) -> CorrelatedField: ...

_T = TypeVar("_T")

class Samples:
    @property
    def pos(self) -> _Result: ...
    def __len__(self) -> int: ...
    def __getitem__(self, number: int) -> _Result: ...
    def mean_and_std(self, model: Model, *, ddof: Literal[0, 1] = 1) -> tuple[_Result, _Result]: ...
    def mean(self, model: Model) -> _Result: ...
    def map(self, function: Callable[[Any], _T]) -> list[_T]: ...
    def save(self, path: Union[str, PathLike[str]]) -> None: ...

class Chains(Samples):
    n_chains: int
    n_draws: int
    statistics: dict[str, ndarray]
    def draws(self, model: Optional[Model] = None) -> Any: ...
    def effective_sample_size(self, model: Optional[Model] = None) -> Any: ...
    def split_r_hat(self, model: Optional[Model] = None) -> Any: ...
    def to_arviz(self, model: Optional[Model] = None) -> Any: ...

_EachIteration = Union[_T, Callable[[int], _T]]
_Mode = Literal["linear_resample", "linear_sample", "nonlinear_resample", "nonlinear_sample", "nonlinear_update"]
_Kwargs = Optional[Mapping[str, Any]]

def optimize_kl(
    likelihood: Likelihood,
    position: Optional[_Field] = None,
    *,
    n_total_iterations: Optional[int] = None,
    n_samples: Optional[_EachIteration[Optional[int]]] = None,
    seed: int = 0,
    sample_mode: Optional[_EachIteration[Optional[_Mode]]] = None,
    constants: _EachIteration[Sequence[str]] = (),
    point_estimates: _EachIteration[Sequence[str]] = (),
    draw_linear_kwargs: _EachIteration[_Kwargs] = None,
    nonlinearly_update_kwargs: _EachIteration[_Kwargs] = None,
    kl_kwargs: _EachIteration[_Kwargs] = None,
    callback: Optional[Callable[[Samples, IterationReport], Any]] = None,
    progress: Any = None,
    odir: Union[None, str, PathLike[str]] = None,
    resume: bool = False,
    overwrite: bool = False,
    temperature: _EachIteration[float] = 1.0,
    preconditioning: _EachIteration[str] = "fields",
    curvature: _EachIteration[Literal["sample_average", "at_position"]] = "sample_average",
    memory: Optional[int] = None,
    budget: Optional[float] = None,
) -> tuple[Samples, list[IterationReport]]: ...
def sample_groups(comm: _Comm, count: int) -> Comm: ...
def wiener_filter(
    likelihood: Likelihood, position: Optional[_Field] = None, *, n_samples: int = 2, seed: int = 0, draw_linear_kwargs: _Kwargs = None
) -> Samples: ...
def statistics(values: ArrayLike, comm: _Comm = None) -> Statistics: ...
def expect(f: Union[Model, ArrayLike], log_density: Model, x: _Field, *, n_chains: int = 1) -> tuple[Statistics, _Result]: ...
def evidence(likelihood: Likelihood, samples: Samples, *, directions: int = 64, probes: int = 8, steps: int = 20, seed: int = 0) -> Evidence: ...
def sample(
    likelihood: Likelihood,
    position: Union[None, _Field, Samples] = None,
    *,
    algorithm: Literal["nuts", "hmc", "mclmc", "adjusted_mclmc"] = "nuts",
    n_warmup: int = 500,
    n_draws: int = 500,
    n_chains: int = 4,
    thinning: int = 1,
    seed: int = 0,
    target_acceptance: Optional[float] = None,
    max_depth: Optional[int] = None,
    n_steps: Optional[int] = None,
    energy_variance: Optional[float] = None,
    length: Optional[float] = None,
    progress: Any = None,
    odir: Union[None, str, PathLike[str]] = None,
    resume: bool = False,
    overwrite: bool = False,
    save_every: int = 100,
) -> Chains: ...
def load_samples(path: Union[str, PathLike[str]], comm: _Comm = None) -> Samples: ...
def minimize(
    function: Union[Likelihood, Model],
    position: _Field,
    *,
    method: Union[str, Callable[..., Any]] = "L-BFGS-B",
    callback: Optional[Callable[[Any], Any]] = None,
    **kwargs: Any,
) -> Any: ...
def least_squares(model: Model, position: _Field, **kwargs: Any) -> Any: ...
def check_metric(likelihood: Likelihood, position: Optional[_Field] = None, *, seed: int = 0) -> MetricCheck: ...
