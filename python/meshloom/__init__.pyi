from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, Optional, TypeVar, Union, final, overload

from numpy import dtype, ndarray
from numpy.typing import ArrayLike, DTypeLike

from . import fft as fft
from . import inference as inference
from . import jax as jax
from . import operators as operators
from . import plot as plot
from . import torch as torch
from .inference import optimize_kl as optimize_kl

__version__: str

# A meshloom.Comm or a communicator of mpi4py.
_Comm = Any
_Points = Union[Array, ArrayLike]
_Box = Union[None, float, Sequence[Optional[float]]]
_T = TypeVar("_T")

class Error(RuntimeError): ...

@final
class Comm:
    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def device(self) -> str: ...
    @property
    def has_f64(self) -> bool: ...
    @property
    def allocated(self) -> int: ...
    @property
    def allocations(self) -> int: ...
    @property
    def kernels(self) -> int: ...
    def trim(self) -> None: ...
    def allgather(self, data: bytes) -> list[bytes]: ...
    def allreduce(self, array: ArrayLike, op: Literal["sum", "min", "max"] = "sum") -> Any: ...
    def bcast(self, value: Any = None, root: int = 0) -> Any: ...
    def barrier(self) -> None: ...

class Array:
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> dtype[Any]: ...
    @property
    def comm(self) -> Comm: ...
    @property
    def ndim(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    __hash__: None  # type: ignore[assignment]
    def __len__(self) -> int: ...
    def __array__(self, dtype: Optional[DTypeLike] = None, copy: Optional[bool] = None) -> ndarray: ...
    def __dlpack__(
        self,
        *,
        stream: Optional[int] = None,
        max_version: Optional[tuple[int, int]] = None,
        dl_device: Optional[tuple[int, int]] = None,
        copy: Optional[bool] = None,
    ) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...
    def numpy(self) -> ndarray: ...
    def reshape(self, *shape: Union[int, Sequence[int]]) -> Array: ...

def asarray(values: Union[Array, ArrayLike], dtype: Optional[DTypeLike] = None, comm: _Comm = None) -> Array: ...
def devices() -> list[dict[str, Any]]: ...
def memory(comm: _Comm = None) -> dict[str, int]: ...
@overload
def ranks(count: int, body: Callable[[Comm], _T]) -> list[_T]: ...
@overload
def ranks(count: int, body: None = None) -> Callable[[Callable[[Comm], _T]], list[_T]]: ...

_Items = Union[int, ArrayLike, tuple[ArrayLike, ...], dict[str, ArrayLike]]

def map_items(
    function: Union[Callable[[Any], Any], operators.Model], items: _Items, *, chunk: int = 64, gather: bool = True, comm: _Comm = None
) -> Any: ...
def map_reduce(
    function: Union[Callable[[Any], Any], operators.Model],
    items: _Items,
    reduction: Union[Literal["sum", "min", "max"], Callable[[Any, Any], Any]] = "sum",
    *,
    chunk: int = 64,
    comm: _Comm = None,
) -> Any: ...

class KDTree:
    data: Union[Array, ndarray]
    n: int
    m: int
    leafsize: int
    boxsize: Optional[ndarray]
    @property
    def size(self) -> int: ...
    @property
    def mins(self) -> ndarray: ...
    @property
    def maxes(self) -> ndarray: ...
    def __init__(
        self,
        data: _Points,
        leafsize: int = 10,
        compact_nodes: bool = True,
        copy_data: bool = False,
        balanced_tree: bool = True,
        boxsize: _Box = None,
        *,
        comm: _Comm = None,
    ) -> None: ...
    def query(
        self,
        x: _Points,
        k: Union[int, Sequence[int]] = 1,
        eps: float = 0.0,
        p: float = 2.0,
        distance_upper_bound: float = ...,
        workers: int = 1,
    ) -> tuple[Any, Any]: ...
    def query_ball_point(
        self,
        x: _Points,
        r: ArrayLike,
        p: float = 2.0,
        eps: float = 0.0,
        workers: int = 1,
        return_sorted: Optional[bool] = None,
        return_length: bool = False,
    ) -> Any: ...
    def query_ball_tree(self, other: KDTree, r: float, p: float = 2.0, eps: float = 0.0) -> list[list[int]]: ...
    @overload
    def query_pairs(self, r: float, p: float = 2.0, eps: float = 0.0, output_type: Literal["set"] = "set") -> set[tuple[int, int]]: ...
    @overload
    def query_pairs(self, r: float, p: float = 2.0, eps: float = 0.0, *, output_type: Literal["ndarray"]) -> ndarray: ...
    def count_neighbors(self, other: KDTree, r: ArrayLike, p: float = 2.0, weights: Any = None, cumulative: bool = True) -> Any: ...
    def sparse_distance_matrix(
        self,
        other: KDTree,
        max_distance: float,
        p: float = 2.0,
        output_type: Literal["dict", "ndarray", "coo_matrix", "dok_matrix"] = "dok_matrix",
    ) -> Any: ...

class Groups:
    labels: ndarray
    length: float
    total: int
    label: ndarray
    count: ndarray
    mass: ndarray
    center: ndarray
    velocity: Optional[ndarray]
    inertia_radius: ndarray
    velocity_dispersion: Optional[ndarray]
    max_radius: ndarray
    axes: ndarray
    directions: ndarray
    offset: ndarray
    members: ndarray
    def __len__(self) -> int: ...

def fof(
    points: _Points,
    linking_length: Optional[float] = None,
    *,
    linking_parameter: Optional[float] = None,
    box: _Box = None,
    masses: Optional[ArrayLike] = None,
    velocities: Optional[ArrayLike] = None,
    min_members: int = 20,
    order: Literal["count", "mass", "label"] = "count",
    comm: _Comm = None,
) -> Groups: ...
def pair_counts(
    points: _Points,
    edges: ArrayLike,
    *,
    other: Optional[_Points] = None,
    weights: Optional[_Points] = None,
    other_weights: Optional[_Points] = None,
    box: _Box = None,
    comm: _Comm = None,
) -> ndarray: ...
def sort(points: _Points, *, box: _Box = None, curve: Literal["morton", "hilbert"] = "morton", comm: _Comm = None) -> ndarray: ...

class PowerSpectrum(NamedTuple):
    k: ndarray
    power: ndarray
    modes: ndarray

_Window = Literal["cic", "tsc", "pcs"]

def power_spectrum(
    data: _Points,
    box: Union[float, Sequence[float]],
    *,
    weights: Optional[_Points] = None,
    contrast: bool = False,
    mesh: Union[None, int, Sequence[int]] = None,
    window: Optional[_Window] = None,
    deconvolve: bool = False,
    interlace: bool = False,
    shot_noise: bool = False,
    comm: _Comm = None,
) -> PowerSpectrum: ...

class Cosmology:
    omega_m: float
    omega_b: float
    h: float
    n_s: float
    A_s: Optional[float]
    sigma8: Optional[float]
    t_cmb: float
    w0: float
    wa: float
    radiation: Optional[float]
    def __init__(
        self,
        omega_m: float = ...,
        omega_b: float = ...,
        h: float = ...,
        n_s: float = ...,
        A_s: Optional[float] = ...,
        sigma8: Optional[float] = None,
        t_cmb: float = ...,
        w0: float = ...,
        wa: float = ...,
        radiation: Optional[float] = ...,
    ) -> None: ...
    def particle_mass(self, box: float, particles: int) -> float: ...
    def growth(self, a: ArrayLike) -> Any: ...
    def growth_rate(self, a: ArrayLike) -> Any: ...
    def comoving_distance(self, a: ArrayLike) -> Any: ...
    def sigma(self, radius: ArrayLike, a: float = 1.0) -> Any: ...

def linear_power(k: ArrayLike, a: float = 1.0, cosmology: Optional[Cosmology] = None) -> Any: ...
def nonlinear_power(k: ArrayLike, a: float = 1.0, cosmology: Optional[Cosmology] = None) -> Any: ...
def halo_mass_function(
    mass: ArrayLike,
    a: float = 1.0,
    model: Literal["press-schechter", "sheth-tormen", "watson", "tinker"] = "sheth-tormen",
    cosmology: Optional[Cosmology] = None,
    overdensity: Optional[float] = None,
) -> Any: ...

class Simulation:
    a: float
    box: float
    positions: ndarray
    velocities: ndarray
    power: PowerSpectrum
    snapshots: list[Simulation]

def white_noise(particles: int, seed: int, *, noise_by: Literal["mode", "site"] = "mode", comm: _Comm = None) -> ndarray: ...
def simulate(
    particles: int = 64,
    mesh: Optional[int] = None,
    box: float = 128.0,
    *,
    cosmology: Optional[Cosmology] = None,
    seed: int = 1,
    noise_by: Literal["mode", "site"] = "mode",
    noise: Optional[ArrayLike] = None,
    lpt: Literal[1, 2] = 2,
    a_start: float = 0.0625,
    a_end: float = 1.0,
    steps: int = 10,
    scheme: Literal["bullfrog", "fastpm"] = "bullfrog",
    window: _Window = "cic",
    snapshots: Sequence[float] = (),
    progress: Any = None,
    comm: _Comm = None,
) -> Simulation: ...
